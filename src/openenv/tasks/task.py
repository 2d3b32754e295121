"""A task: one row of a taskset."""

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

from openenv.types import Private, private_fields, public_view

__all__ = ["Task", "told"]

BASE64 = "base64"


def _decoded(content: Any) -> Any:
    """The bytes of ``{"base64": "..."}``, as JSON has them; anything else as it is."""
    if not (isinstance(content, Mapping) and set(content) == {BASE64}):
        return content
    try:
        return base64.b64decode(content[BASE64], validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"no Base64: {error}") from None


def _encoded(content: str | bytes) -> Any:
    return {BASE64: base64.b64encode(content).decode()} if isinstance(content, bytes) else content


def _relative(path: str) -> str:
    """A path that stays below the directory that the files are put into."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or "\\" in path:
        raise ValueError(f"{path!r:.200} is no relative path of a file, with '/' between its parts")
    return path


FileContent = Annotated[
    str | bytes,
    BeforeValidator(_decoded),
    PlainSerializer(_encoded, when_used="json"),
]
FilePath = Annotated[str, AfterValidator(_relative)]


class Task(BaseModel):
    """One thing to do in an environment, and how one tells whether it was done.

    The `criteria` are for who scores it: an answer, hidden tests. No agent is given them, and no
    client that is not trusted to score; `public` leaves them out.

    In JSON, a file of bytes is ``{"base64": "..."}``; one of text is a string.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False)

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
        """It only says which task of a server it is: its `reset` names a split and an index, and
        there is nothing in it that the server would not have.
        """
        has_more = bool(self.files or self.state or self.criteria)
        return not has_more and {"split", "index"} <= set(self.reset)

    def public(self) -> dict[str, Any]:
        """The task as JSON has it, without what it is scored by, and without empty fields."""
        return _without_empty(public_view(self))

    def as_data(self) -> dict[str, Any]:
        """The whole task as JSON has it, criteria and all, without empty fields."""
        return _without_empty(self.model_dump(mode="json"))


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value not in (None, {}, [])}


def told(value: Any) -> Any:
    """What is told of a task, or of a split, to whoever asks: as JSON has it, less what is private.

    A model is its public fields; any other object its attributes, but for those whose name begins
    with an underscore; and what has none is its text.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Task):
        return value.public()
    if isinstance(value, BaseModel):
        return public_view(value)
    if isinstance(value, Mapping):
        return {str(name): told(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [told(one) for one in value]
    attributes = getattr(value, "__dict__", None)
    hidden: frozenset[str] = frozenset()
    if is_dataclass(value) and not isinstance(value, type):  # which may have slots
        hidden = private_fields(type(value))
        attributes = {one.name: getattr(value, one.name) for one in fields(value)}
    if attributes is None or isinstance(value, type):
        return str(value)
    shown = {n: one for n, one in attributes.items() if n not in hidden and not n.startswith("_")}
    return {name: told(one) for name, one in shown.items()}
