"""The tools of a session for an agent, the same for every transport.

`ToolSupport` lists the ways in which environments offer tools. An agent sees an observation without
its private fields, its reward and its metadata; the last two are for the trainer.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import from_json, to_json

from openenv._internal.generics import members, once_per_class
from openenv._internal.incidents import describe_error
from openenv._internal.models import ACTION_TYPE, named_kinds, reader_of, wire_schema
from openenv._internal.quoting import error_list
from openenv.arrays import Blob
from openenv.errors import InvalidActionError, InvalidReturnError
from openenv.execution.commands import CallMethod, Command, Step
from openenv.execution.spec import CALL_TOOL, LIST_TOOLS, EnvironmentSpec, ToolSupport
from openenv.protocol.messages import Transition
from openenv.tools.results import build_failure, from_dump, image_block, to_block
from openenv.tools.types import (
    RESERVED_TOOL_NAMES,
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
)
from openenv.types import Action, private_fields, private_in, public_schema, public_view

logger = logging.getLogger(__name__)

PICTURES = "openenv/pictures"
"""Key in a tool's `_meta`: the observation fields that may be pictures. `outputSchema` omits them,
since pictures are separate content blocks."""
TRAINER_FIELDS = frozenset({"reward", "metadata"})  # observation fields that no agent sees


@dataclass(slots=True)
class ToolOutcome:
    """The outcome of a tool call.

    Attributes:
        result: The agent's result, in its wire form.
        observation: A `CallToolObservation` in JSON form, if there is one.
        reward: The reward of the call, for the trainer.
        done: Whether the episode is over.
        truncated: Whether a limit outside the task ended the episode.
    """

    result: dict[str, Any]
    observation: dict[str, Any] | None = None
    reward: bool | int | float | None = None
    done: bool = False
    truncated: bool = False


def build_list_command(spec: EnvironmentSpec) -> Command | None:
    """Return the command that lists the tools; None if the tools are known without a call."""
    if spec.tool_support is ToolSupport.TOOLS:
        return CallMethod(LIST_TOOLS)
    return Step(ListToolsAction()) if spec.tool_support is ToolSupport.TOOL_ACTIONS else None


def build_call_command(
    spec: EnvironmentSpec,
    name: str,
    arguments: Mapping[str, Any],
    timeout_s: float | None = None,
    on_progress: Any = None,
) -> Command:
    """Return the command that calls a tool.

    Raises:
        LookupError: There is no such tool, if that is known without asking the environment.
        InvalidActionError: The tool does not take these arguments, if that is known.
    """
    if spec.tool_support is ToolSupport.TOOLS:
        progress = () if on_progress is None else (on_progress,)
        return CallMethod(CALL_TOOL, (name, dict(arguments), *progress), timeout_s)
    timed = {} if timeout_s is None else {"timeout_s": timeout_s}
    if spec.tool_support is ToolSupport.TOOL_ACTIONS:
        return Step(CallToolAction(tool_name=name, arguments=dict(arguments)), timed)
    tool = action_tools(spec).get(name)
    if tool is None:
        raise LookupError(f"Unknown tool: {name!r}")
    action: Any = tool.build_action(arguments)
    kind = named_kinds(spec.action_cls).get(tool.model)
    if kind is not None:  # the fields alone, as in a recording, would not name the model
        action = {ACTION_TYPE: kind, **tool.fixed, **arguments}
    return Step(action, timed)


# ------------------------------------------------------------------ replies

# These functions encode replies where the environment lives.


def read_tools(reply: Any) -> list[dict[str, Any]]:
    """Return the tools, in their wire form, from a session's reply to a list command."""
    if not isinstance(reply, Transition):
        return list(reply)
    observation = reply.observation
    if not isinstance(observation, ListToolsObservation):
        made = type(observation).__name__
        raise InvalidReturnError(
            f"a ListToolsAction gave a {made}; expected a ListToolsObservation"
        )
    return [
        {"name": one.name, "description": one.description, "inputSchema": one.input_schema}
        for one in observation.tools
    ]


def read_outcome(reply: Any) -> ToolOutcome:
    """Return the outcome of a tool call from the session's reply."""
    outcome = ToolOutcome({}, None, reply.reward, reply.done, reply.truncated)
    observation = reply.observation if isinstance(reply, Transition) else reply
    if not isinstance(observation, CallToolObservation):
        outcome.result = show_transition(reply)
        return outcome
    excluded = {"reward", "done", "truncated"}
    outcome.observation = observation.model_dump(mode="json", exclude=excluded)
    if observation.error is not None and observation.result is None:
        outcome.result = build_failure(observation.error.message)
    else:
        outcome.result = from_dump(outcome.observation["result"])
    return outcome


def show_transition(transition: Transition) -> dict[str, Any]:
    """Return the agent's view of a transition, as a tool result in its wire form."""
    observation = transition.observation
    if isinstance(observation, CallToolObservation):
        return read_outcome(observation).result
    pictures: dict[str, dict[str, Any]] = {}
    shown: Any = observation
    if isinstance(observation, BaseModel):
        for name in _picture_fields(type(observation)):
            block = _picture_block(observation, name)
            if block is not None:
                pictures[name] = block
        shown = public_view(observation, TRAINER_FIELDS | pictures.keys())
    # Through JSON, since a float may be NaN or infinite, which JSON does not have.
    hidden = private_in(shown)
    written = to_json(shown, exclude=hidden, inf_nan_mode="constants", serialize_unknown=True)
    shown = from_json(written)
    if not isinstance(shown, dict):
        shown = {"observation": shown}
    shown |= {"done": transition.done}
    if not transition.truncated:
        shown.pop("truncated", None)
    text = to_json(shown, inf_nan_mode="constants")
    if b"NaN" in text or b"Infinity" in text:  # the text keeps them; the structured part must not
        shown = from_json(to_json(shown, inf_nan_mode="null"))
    return {
        "content": [{"type": "text", "text": text.decode()}, *pictures.values()],
        "structuredContent": shown,
        "isError": False,
    }


@once_per_class
def _picture_fields(cls: type[BaseModel]) -> tuple[str, ...]:
    hidden = private_fields(cls) | TRAINER_FIELDS
    return tuple(
        name
        for name, info in cls.model_fields.items()
        if name not in hidden and (_blob(info) is not None or "ndarray" in str(info.annotation))
    )


def _blob(info: Any) -> Blob | None:
    return next((one for one in info.metadata if isinstance(one, Blob)), None)


def _picture_block(observation: BaseModel, name: str) -> dict[str, Any] | None:
    value = getattr(observation, name)
    blob = _blob(type(observation).model_fields[name])
    if blob is not None:
        media_type = blob.media_type or ""
        is_picture = bool(value) and media_type.startswith("image/")
        return image_block(value, media_type) if is_picture else None
    return to_block(value)


# ------------------------------------------------------------------ actions as tools


@dataclass(frozen=True)
class ActionTool:
    """An action model as a tool.

    Attributes:
        model: The model.
        fixed: The values of fields that allow only one value, such as the ``type`` of a variant.
        description: The tool in its wire form.
    """

    model: type[Action]
    fixed: Mapping[str, Any]
    description: dict[str, Any] = field(repr=False)

    def build_action(self, arguments: Mapping[str, Any]) -> Action:
        """Return the action for a call.

        Raises:
            InvalidActionError: The model rejects the arguments.
        """
        unknown = [
            {"type": "extra_forbidden", "loc": [name], "msg": "no argument", "input": value}
            for name, value in arguments.items()
            if name in self.fixed or name == "metadata"
        ]
        if unknown:
            raise InvalidActionError(unknown)
        try:
            action: Action = reader_of(self.model).read({**self.fixed, **arguments})
            return action
        except ValidationError as error:
            raise InvalidActionError(error_list(error)) from None


def action_tools(spec: EnvironmentSpec) -> dict[str, ActionTool]:
    """Return the tools that represent an environment's actions, by name."""
    return _action_tools(spec.action_cls, spec.observation_cls)


@functools.lru_cache(maxsize=100)
def _action_tools(action_cls: Any, observation_cls: Any) -> dict[str, ActionTool]:
    output = _output_schema(observation_cls)
    is_model = isinstance(observation_cls, type) and issubclass(observation_cls, BaseModel)
    pictures = _picture_fields(observation_cls) if is_model else ()
    found: dict[str, ActionTool] = {}
    for model in members(action_cls):
        if isinstance(model, type):
            made = _action_tool(model, output, pictures)
            if made.description["name"] in found:
                made.description["name"] = _snake(model.__name__)
            found[made.description["name"]] = made
    return found


def _action_tool(
    model: type[Action], output: dict[str, Any] | None, pictures: Sequence[str]
) -> ActionTool:
    schema = public_schema(model.model_json_schema())
    fixed = {
        info.validation_alias if isinstance(info.validation_alias, str) else name: choices[0]
        for name, info in model.model_fields.items()
        if get_origin(info.annotation) is Literal and len(choices := get_args(info.annotation)) == 1
    }
    properties = schema.get("properties", {})
    for name in (*fixed, "metadata"):
        properties.pop(name, None)
    required = [name for name in schema.pop("required", ()) if name in properties]
    schema.pop("title", None)
    text = schema.pop("description", "")
    for one in properties.values():
        one.pop("title", None)
    title = _HUMPS.sub(" ", model.__name__.removesuffix("Action") or model.__name__)
    description: dict[str, Any] = {
        "name": tool_name(model),
        "title": title,
        "description": text or f"Take the action {title!r}.",
        "inputSchema": {
            "type": "object",
            "properties": {},
            **schema,
            **({"required": required} if required else {}),
        },
        "annotations": {"title": title, "readOnlyHint": False, "openWorldHint": False},
    }
    if output is not None:
        description["outputSchema"] = output
    if pictures:
        description["_meta"] = {PICTURES: list(pictures)}
    return ActionTool(model, fixed, description)


def tool_name(model: type) -> str:
    """Return the tool name of an action model: ``play_move`` for ``PlayMoveAction``, unless the
    class attribute `TOOL_NAME` gives another.
    """
    chosen = getattr(model, "TOOL_NAME", None)
    name = chosen if isinstance(chosen, str) else _snake(model.__name__.removesuffix("Action"))
    return "act" if name in RESERVED_TOOL_NAMES or not name else name


_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _snake(name: str) -> str:
    return _HUMPS.sub("_", name).lower()


def _output_schema(observation_cls: Any) -> dict[str, Any] | None:
    """Return the schema of an agent's view of observations; None if there is no model."""
    if not (isinstance(observation_cls, type) and issubclass(observation_cls, BaseModel)):
        return None
    try:
        schema = public_schema(wire_schema(observation_cls, "serialization"))
    except PydanticUserError:
        return None
    hidden = {*private_fields(observation_cls), *TRAINER_FIELDS, *_picture_fields(observation_cls)}
    for name in hidden:
        schema.get("properties", {}).pop(name, None)
    return {**_relax(schema), "type": "object"}


# Schema keys that may be wrong for a value without some of its fields.
LEFT_OUT = frozenset(
    ("required", "additionalProperties", "title", "const", "default", "discriminator", "examples")
)


def _relax(schema: Any) -> Any:
    """Return a schema that also fits values without some fields, and NaN or infinity as null."""
    if isinstance(schema, list):
        return [_relax(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "oneOf" in schema:  # without constants, a value may fit several
        schema = {("anyOf" if key == "oneOf" else key): value for key, value in schema.items()}
    kept = {
        key: {name: _relax(one) for name, one in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)
        else _relax(value)
        for key, value in schema.items()
        if key not in LEFT_OUT
    }
    if kept.get("type") == "number":
        kept["type"] = ["number", "null"]
    return kept


async def list_tools(
    spec: EnvironmentSpec, open_session: Callable[[], AbstractAsyncContextManager[Any]]
) -> list[dict[str, Any]] | None:
    """Return the descriptions of an environment's tools, as a fresh instance has them.

    Returns:
        The descriptions of the tools; None if the environment could not list them.
    """
    if spec.environment_class is not None and spec.tool_support is ToolSupport.ACTIONS:
        return [tool.description for tool in action_tools(spec).values()]
    try:
        async with open_session() as session:
            command = build_list_command(session.spec)
            if command is None:
                return [tool.description for tool in action_tools(spec).values()]
            found: list[dict[str, Any]] = await session.handle(command, encode=read_tools)
            return found
    except Exception as error:
        logger.warning(
            "/schema lists no tools, since they could not be listed: %s", describe_error(error)
        )
        return None
