"""The `Task` model: one row of a taskset."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)

from openenv.errors import OpenEnvError
from openenv.types import Private, omit_example, private_fields, public_view

BASE64 = "base64"


class TasksetError(OpenEnvError, ValueError):
    """A source of tasks cannot be read, or a row is not a task.

    Attributes:
        source: The name of the source, such as a file, a data set or a function.
        row: The row's location in the source, such as ``line 7`` or ``row 6``; None if the error
            does not concern a single row.
    """

    def __init__(self, source: str, row: str | None, why: str) -> None:
        self.source = source
        self.row = row
        super().__init__(f"{source}{'' if row is None else f', {row}'}: {why}")


def _decode_content(content: Any) -> Any:
    """Decode ``{"base64": "..."}`` to bytes; return any other value unchanged."""
    if not (isinstance(content, Mapping) and set(content) == {BASE64}):
        return content
    try:
        return base64.b64decode(content[BASE64], validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"not valid Base64: {error}") from None


def _encode_content(content: str | bytes) -> Any:
    return {BASE64: base64.b64encode(content).decode()} if isinstance(content, bytes) else content


def _check_relative(path: str) -> str:
    """Return the path if it is relative and stays below the directory of the files."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or "\\" in path:
        raise ValueError(f"{path!r:.200} is not a relative path with '/' separators")
    return path


FileContent = Annotated[
    str | bytes,
    BeforeValidator(_decode_content),
    PlainSerializer(_encode_content, when_used="json"),
]
FilePath = Annotated[str, AfterValidator(_check_relative)]


class Task(BaseModel):
    """A problem to solve in an environment, with the criteria that score the solution.

    The `criteria` (an answer, hidden tests) are private: agents never receive them, nor do clients
    that are not trusted to score. `public` leaves them out.

    In JSON, a text file is a string and a binary file is ``{"base64": "..."}``.

    Example:
        >>> from openenv import Task
        >>> task = Task(id="sum-1", prompt="What is 2 + 3?", criteria={"answer": 5})
        >>> task.public()
        {'id': 'sum-1', 'prompt': 'What is 2 + 3?'}
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=False,
        json_schema_extra=omit_example,
    )

    id: str = Field(min_length=1, description="Identifies the task in its taskset.")
    prompt: str | list[dict[str, Any]] | None = Field(
        default=None, description="What the agent is told: text, or chat messages."
    )
    reset: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the environment's `reset`."
    )
    files: dict[FilePath, FileContent] = Field(
        default_factory=dict, description="What the world holds at first, by relative path."
    )
    state: dict[str, Any] | None = Field(
        default=None, description="The state that the world begins in, where there are no files."
    )
    criteria: Annotated[dict[str, Any], Private] = Field(
        default_factory=dict,
        repr=False,
        description="What it is scored by: an answer, hidden tests.",
    )
    split: str | None = Field(default=None, description="The split that it is in.")
    index: int | None = Field(default=None, ge=0, description="Where it stands in its split.")
    group: str | None = Field(default=None, description="A family of tasks that are alike.")
    difficulty: float | None = Field(
        default=None, allow_inf_nan=False, description="Higher is harder."
    )
    metadata: dict[str, Any] = Field(default_factory=dict, description="Whatever else is known.")

    @property
    def is_reference(self) -> bool:
        """True if the task only refers to a task on a server.

        A reference's `reset` names a split and an index, and the task holds no files, state or
        criteria.
        """
        has_more = bool(self.files or self.state or self.criteria)
        return not has_more and {"split", "index"} <= set(self.reset)

    def public(self) -> dict[str, Any]:
        """Return the task as JSON data, without the criteria and without empty fields."""
        return _without_empty(public_view(self))

    def as_data(self) -> dict[str, Any]:
        """Return the whole task as JSON data, including the criteria, without empty fields."""
        return _without_empty(self.model_dump(mode="json"))


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value not in (None, {}, [])}


def to_public_data(value: Any) -> Any:
    """Convert a task or a split to JSON data that any caller may see, without private fields.

    A model is converted to its public fields. Other objects are converted to their attributes,
    except private fields of dataclasses and names that begin with an underscore. A value without
    attributes is converted to its string form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Task):
        return value.public()
    if isinstance(value, BaseModel):
        return public_view(value)
    if isinstance(value, Mapping):
        return {str(name): to_public_data(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_public_data(one) for one in value]
    attributes = getattr(value, "__dict__", None)
    hidden: frozenset[str] = frozenset()
    if is_dataclass(value) and not isinstance(value, type):  # dataclasses may have slots
        hidden = private_fields(type(value))
        attributes = {one.name: getattr(value, one.name) for one in fields(value)}
    if attributes is None or isinstance(value, type):
        return str(value)
    shown = {n: one for n, one in attributes.items() if n not in hidden and not n.startswith("_")}
    return {name: to_public_data(one) for name, one in shown.items()}
