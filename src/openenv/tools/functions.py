"""Functions as tools: schemas from signatures, validation and calls.

    class Calculator(MCPEnvironment):
        @tool
        def add(self, a: float, b: float) -> float:
            \"\"\"Add two numbers.\"\"\"
            return a + b

The JSON schema of the arguments comes from the annotations; descriptions from ``Annotated[str,
Field(description=...)]`` or the ``Args:`` section of the docstring. A return annotation gives the
schema of the structured result.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_type_hints, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticSerializationError

from openenv._internal.generics import once_per_class
from openenv._internal.quoting import error_list
from openenv.errors import InvalidReturnError, OpenEnvError
from openenv.settings import ServerMode, parse_mode
from openenv.tools.results import (
    NOT_FINITE,
    WRAPPED,
    Image,
    to_content,
    without_numpy,
    write_numbers,
)
from openenv.tools.types import RESERVED_TOOL_NAMES
from openenv.types import private_in, public_schema, public_value

__all__ = [
    "FunctionTool",
    "InvalidToolArguments",
    "ToolMark",
    "UnknownTool",
    "check_name",
    "check_not_reserved",
    "declared_tools",
    "is_tool",
    "tool",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Mode = ServerMode | Literal["simulation", "production"]

_MARK = "_openenv_tool"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # as in MCP 2025-11-25


class UnknownTool(OpenEnvError, LookupError):
    """A call of a tool that does not exist."""


class InvalidToolArguments(OpenEnvError, ValueError):
    """A tool does not accept these arguments; the message says which, and what was expected."""


@dataclass(frozen=True)
class ToolMark:
    """The options of a tool that are not in the function's signature; see `tool`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Mapping[str, Any] | None = None
    mode: ServerMode | None = None


@overload
def tool(function: FunctionT) -> FunctionT: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
) -> Callable[[FunctionT], FunctionT]: ...


def tool(
    function: FunctionT | None = None,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
) -> FunctionT | Callable[[FunctionT], FunctionT]:
    """Mark a method of an `MCPEnvironment` as a tool.

    Args:
        function: The method.
        name: Name of the tool. Default: the method's name.
        title: A name for people.
        description: Description for agents. Default: the docstring without ``Args:``.
        annotations: MCP tool annotations, such as ``{"readOnlyHint": True}``.
        mode: ``simulation`` or ``production``: offer the tool only on a server in this mode.
            Default: both.

    Raises:
        ValueError: The mode is unknown.
    """
    chosen = None if mode is None else parse_mode(mode)
    mark = ToolMark(name, title, description, annotations, chosen)

    def marked(function: FunctionT) -> FunctionT:
        setattr(function, _MARK, mark)
        return function

    return marked if function is None else marked(function)


def is_tool(function: Any) -> bool:
    """Return whether a method is marked as a tool."""
    return isinstance(getattr(function, _MARK, None), ToolMark)


def check_name(name: str) -> None:
    """Check that a tool defined in an environment may have this name.

    Raises:
        ValueError: The name is reserved for simulation control, or not allowed by MCP.
    """
    check_not_reserved(name)
    if not NAME.fullmatch(name):
        raise ValueError(
            f"a tool's name has 1 to 128 letters, digits, '_', '-' and '.'; got {name!r}"
        )


def check_not_reserved(name: str) -> None:
    """Check that a tool of any server may have this name.

    Raises:
        ValueError: The name is reserved for simulation control.
    """
    if name in RESERVED_TOOL_NAMES:
        reserved = ", ".join(sorted(RESERVED_TOOL_NAMES))
        raise ValueError(
            f"no tool may be called {name!r}: {reserved} are reserved for clients that drive the "
            "environment, and no agent may reach them"
        )


@dataclass(frozen=True, eq=False)
class FunctionTool:
    """A tool implemented by a Python function.

    Attributes:
        name: The name that agents use.
        function: The function; for a method, without its instance.
        mark: The author's options.
        description: The tool in the form of MCP's `tools/list`.
        is_async: True for a coroutine function.
        takes_self: True if the first parameter is the instance.
        arguments: The model that validates arguments.
        returned: Serializer for the return annotation; None without one.
        wraps: True if MCP needs the return value wrapped in an object.
        names: The function's parameter for each field of `arguments`.
    """

    name: str
    function: Callable[..., Any]
    mark: ToolMark
    is_async: bool
    takes_self: bool
    arguments: type[BaseModel]
    returned: TypeAdapter[Any] | None
    wraps: bool
    names: Mapping[str, str]
    description: dict[str, Any] = field(repr=False)

    @property
    def key(self) -> tuple[str, ServerMode | None]:
        """Return the name and the mode, which no two tools of an environment share."""
        return self.name, self.mark.mode

    @classmethod
    def of(
        cls, function: Callable[..., Any], mark: ToolMark | None = None, *, takes_self: bool = False
    ) -> FunctionTool:
        """Make a tool from a function.

        Raises:
            ValueError: The name is not allowed for a tool.
            TypeError: The function takes arguments that a JSON object cannot carry.
        """
        mark = mark or cast(ToolMark, getattr(function, _MARK, ToolMark()))
        name = str(mark.name or getattr(function, "__name__", type(function).__name__))
        check_name(name)
        text, described = _split_docstring(inspect.getdoc(function) or "")
        arguments, names = _arguments_model(function, name, described, takes_self)
        returned, output, wraps = _return_schema(function)
        description: dict[str, Any] = {
            "name": name,
            "description": mark.description if mark.description is not None else text,
            "inputSchema": _input_schema(arguments),
        }
        optional = {
            "title": mark.title,
            "outputSchema": output,
            "annotations": None if mark.annotations is None else dict(mark.annotations),
        }
        description |= {key: value for key, value in optional.items() if value is not None}
        return cls(
            name,
            function,
            mark,
            inspect.iscoroutinefunction(inspect.unwrap(function)),
            takes_self,
            arguments,
            returned,
            wraps,
            names,
            description,
        )

    def is_offered_in(self, mode: ServerMode) -> bool:
        """Return whether a server in this mode offers the tool."""
        return self.mark.mode is None or self.mark.mode is mode

    def bind(self, instance: Any) -> Callable[..., Any]:
        """Return the function with the instance bound, to be called with keyword arguments."""
        return functools.partial(self.function, instance) if self.takes_self else self.function

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and return the keyword arguments of the function.

        Raises:
            InvalidToolArguments: The tool does not accept these arguments.
        """
        try:
            model = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            why = "; ".join(_describe_error(one) for one in error_list(error))
            raise InvalidToolArguments(f"{self.name}: {why}") from None
        return {self.names[f]: getattr(model, f) for f in model.model_fields_set}

    async def call(
        self,
        instance: Any,
        arguments: Mapping[str, Any],
        *,
        inline: bool,
        on_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
    ) -> dict[str, Any]:
        """Call the function and convert the return value to a result.

        Args:
            instance: The instance to which the method is bound.
            arguments: The agent's arguments.
            inline: Call a plain function directly instead of on a thread.
            on_thread: Function that calls a plain function on a thread.

        Raises:
            InvalidToolArguments: The tool does not accept these arguments.
            InvalidReturnError: The value does not match the return annotation.
        """
        passed, function = self.validate(arguments), self.bind(instance)
        if self.is_async or inline:
            value = function(**passed)
        else:
            value = await on_thread(functools.partial(function, **passed))
        if isinstance(value, Awaitable):
            value = await value
        return self.result(value)

    def result(self, value: Any) -> dict[str, Any]:
        """Convert a return value to a result in MCP's form.

        Raises:
            InvalidReturnError: The value does not match the return annotation.
        """
        if "numpy" in sys.modules:
            value = without_numpy(value)
        result: dict[str, Any] = {"content": to_content(value), "isError": False}
        if self.returned is None:
            if not isinstance(value, Mapping | BaseModel):
                return result
            shown = public_value(value)
        else:
            hidden = private_in(value)
            try:
                shown = self.returned.dump_python(
                    value, mode="json", by_alias=True, warnings="error", exclude=hidden
                )
            except PydanticSerializationError as error:
                why = f"{self.name} returned a value that violates its annotation: {error}"
                raise InvalidReturnError(why) from error
        meta: dict[str, Any] = {**WRAPPED} if self.wraps else {}
        written = write_numbers(shown)
        if written is not shown:
            meta[NOT_FINITE] = True
        result["structuredContent"] = {"result": written} if self.wraps else written
        return {**result, "_meta": meta} if meta else result


def _describe_error(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    has_input = "input" in error and error["type"] not in ("missing", "too_many_errors")
    got = f" (got {error['input']!r:.100})" if has_input else ""
    return f"{where}: {error['msg']}{got}" if where else f"{error['msg']}{got}"


def _arguments_model(
    function: Callable[..., Any], name: str, described: Mapping[str, str], takes_self: bool
) -> tuple[type[BaseModel], dict[str, str]]:
    parameters = list(inspect.signature(function).parameters.values())[takes_self:]
    hints = _hints(function)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for number, parameter in enumerate(parameters):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(
                f"tool {name!r}: arguments are passed by name, so {parameter} is not possible"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            raise TypeError(
                f"tool {name!r}: arguments must be declared; replace {parameter} by parameters"
            )
        # Renamed, since a model has attributes of its own, such as `copy`.
        inner = f"argument_{number}"
        names[inner] = parameter.name
        annotation = hints.get(parameter.name, Any)
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        metadata = getattr(annotation, "__metadata__", ())
        is_described = any(getattr(one, "description", None) for one in metadata)
        text = None if is_described else described.get(parameter.name)
        options: dict[str, Any] = {} if text is None else {"description": text}
        fields[inner] = (annotation, Field(default, alias=parameter.name, **options))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    try:
        return create_model(f"{name}_arguments", __config__=config, **fields), names
    except PydanticUserError as error:
        raise TypeError(f"tool {name!r}: {error}") from error


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {function!r}: {error}; its annotations must be importable"
        ) from error


def _input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = public_schema(arguments.model_json_schema(by_alias=True))
    for one in (schema, *schema.get("properties", {}).values()):
        one.pop("title", None)
    return {"type": "object", "properties": {}, **schema}


def _return_schema(
    function: Callable[..., Any],
) -> tuple[TypeAdapter[Any] | None, dict[str, Any] | None, bool]:
    """Return the adapter and schema of a return value, and whether MCP needs it wrapped."""
    annotation = _hints(function).get("return")
    if annotation in (None, type(None), Any, Image, bytes, inspect.Signature.empty):
        return None, None, False
    try:
        adapter = TypeAdapter(annotation)
        schema = public_schema(adapter.json_schema(mode="serialization"))
    except PydanticUserError:  # a type without a schema, such as a picture
        return None, None, False
    found = schema
    while "$ref" in found:
        found = schema["$defs"][found["$ref"].rpartition("/")[2]]
    if found.get("type") == "object":
        if "$ref" in schema:
            schema = {**found, "$defs": schema["$defs"]}
        schema.pop("title", None)
        return adapter, schema, False
    defs = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    schema.pop("title", None)
    wrapped = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
        **defs,
    }
    return adapter, wrapped, True


_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$", re.MULTILINE)
_AFTER = re.compile(r"^\S", re.MULTILINE)
_ENTRY = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def _split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the text without ``Args:`` and the descriptions of arguments."""
    section = _SECTION.search(text)
    if section is None:
        return text.strip(), {}
    head, tail = text[: section.start()], text[section.end() :]
    after = _AFTER.search(tail)
    entries, rest = (tail, "") if after is None else (tail[: after.start()], tail[after.start() :])
    described: dict[str, str] = {}
    last = ""
    for line in entries.splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            last = entry.group(1)
            described[last] = entry.group(2).strip()
        elif last and line.strip():
            described[last] += " " + line.strip()
    return "\n\n".join(part.strip() for part in (head, rest) if part.strip()), described


@once_per_class
def declared_tools(cls: type) -> tuple[FunctionTool, ...]:
    """Return the methods of a class that are marked as tools, inherited methods first."""
    found: dict[tuple[str, Any], FunctionTool] = {}
    attributes = dict.fromkeys(n for base in reversed(cls.__mro__) for n in vars(base))
    for attribute in attributes:
        static = inspect.getattr_static(cls, attribute)
        is_bound = not isinstance(static, staticmethod)
        function = getattr(static, "__func__", static)
        mark = getattr(static, _MARK, None) or getattr(function, _MARK, None)
        if isinstance(mark, ToolMark):
            if isinstance(static, classmethod):
                function, is_bound = getattr(cls, attribute), False
            made = FunctionTool.of(function, mark, takes_self=is_bound)
            found[made.key] = made
    return tuple(found.values())
