"""What crosses the wire between the terminal environment and its client."""

from __future__ import annotations

import base64
import binascii
import difflib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from openenv.types import Action, Observation, Private, State

from .keys import bytes_of_key

__all__ = ["Kind", "TerminalAction", "TerminalObservation", "TerminalState", "TerminalTask"]

Kind = Literal["run", "type", "keys", "wait", "resize", "write_file", "read_file", "submit"]

# Of each kind: the fields that it needs, and those that it may have.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (("command",), ("timeout_s", "on_timeout", "raw")),
    "type": (("text",), ("timeout_s", "raw")),
    "keys": (("keys",), ("timeout_s", "raw")),
    "wait": ((), ("timeout_s", "raw")),
    "resize": (("rows", "columns"), ()),
    "write_file": (("path", "content"), ("encoding",)),
    "read_file": (("path",), ("encoding",)),
    "submit": ((), ()),
}


class TerminalAction(Action):
    """One thing to do at the terminal; `kind` says what, and which other fields it has.

    - run: have the shell run `command` (lines, here-documents and all), until its prompt is back;
    - type: type `text`, such as an answer to a program that runs; ``"\\n"`` is the Enter key;
    - keys: press `keys`, such as ``["C-c"]`` or ``["Up", "Enter"]``;
    - wait: look what else comes;
    - resize: give the terminal `rows` and `columns`;
    - write_file, read_file: move a file in or out;
    - submit: say that the task is done; it is scored, and the episode ends.
    """

    kind: Kind = Field(default="run", description="What to do.")
    command: str | None = Field(
        default=None, max_length=2**20, description="run: what the shell shall run."
    )
    text: str | None = Field(default=None, max_length=2**16, description="type: what to type.")
    keys: list[str] | None = Field(
        default=None, min_length=1, max_length=1000, description="keys: as tmux names them."
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="run, type, keys, wait: seconds to wait at most. Of run, by default the "
        "server's TERMINAL_TIMEOUT_S; of the others 2, 2 and 10.",
    )
    on_timeout: Literal["interrupt", "leave"] = Field(
        default="interrupt",
        description="run: what becomes of a command that takes longer. interrupt: Control-C, then "
        "its processes are killed, and if that does not help, the shell. leave: it goes on.",
    )
    raw: bool = Field(
        default=False,
        description="run, type, keys, wait: give the output with the escape sequences in it.",
    )
    rows: int | None = Field(default=None, ge=1, le=500, description="resize: of the terminal.")
    columns: int | None = Field(
        default=None, ge=20, le=1000, description="resize: characters in a row."
    )
    path: str | None = Field(
        default=None, description="write_file, read_file: from the shell's directory, or from ~."
    )
    content: str | None = Field(
        default=None, max_length=2**24, description="write_file: what to write."
    )
    encoding: Literal["utf-8", "base64"] = Field(
        default="utf-8", description="write_file, read_file: how the content is written down."
    )

    @field_validator("command", "path")
    @classmethod
    def _has_no_nul(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("there can be no character NUL in it")
        return value

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            bytes_of_key(name)
        return value

    @model_validator(mode="after")
    def _has_the_fields_of_its_kind(self) -> TerminalAction:
        needed, possible = FIELDS[self.kind]
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"kind {self.kind!r} needs the field {name!r}")
        known = {"kind", "metadata", *needed, *possible}
        for name, field in type(self).model_fields.items():
            if name not in known and getattr(self, name) != field.default:
                raise ValueError(_misplaced(self.kind, name, [*needed, *possible]))
        if self.kind == "write_file" and self.encoding == "base64":
            _bytes_of_base64(self.content or "")
        return self

    @property
    def data(self) -> bytes:
        """What write_file writes."""
        content = self.content or ""
        return _bytes_of_base64(content) if self.encoding == "base64" else content.encode()


def _misplaced(kind: str, name: str, fields: list[str]) -> str:
    owners = [other for other, (a, b) in FIELDS.items() if name in (*a, *b)]
    close = difflib.get_close_matches(name, fields, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"kind {kind!r} has no field {name!r}{hint}; it belongs to {', '.join(owners)}"


def _bytes_of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"content is no base64: {error}") from None


class TerminalObservation(Observation):
    """What came of an action.

    `metadata` has `ended_by` where a command took too long: ``"C-c"``, ``"SIGINT"``, ``"SIGKILL"``
    or ``"end of the shell"``; `shell_ended` in words; at the end `limit` (``"time"`` or
    ``"steps"``), `checks_passed` and `checks_total`.
    """

    output: str = Field(
        default="",
        description="What the terminal got since the last action, without what the shell itself "
        "prints as its prompt; of read_file, the file.",
    )
    exit_code: int | None = Field(
        default=None,
        description="Of the command that has ended in this step; null where none has. Of files: "
        "0, or 1 with the reason as output.",
    )
    cwd: str = Field(
        default="~", description="The shell's directory at its latest prompt; ~ is home."
    )
    running: bool = Field(
        default=False, description="The shell is not at its prompt: something runs, or is begun."
    )
    timed_out: bool = Field(default=False, description="The command took longer than it may.")
    left_out: int = Field(
        default=0, description="Bytes that are missing from the middle of the output."
    )
    shell_restarted: bool = Field(
        default=False,
        description="The shell has ended, and this is another one: in the home directory, without "
        "the variables, functions and jobs of before. Files are still there.",
    )
    prompt: str | None = Field(
        default=None, description="The task; only after reset, where there is one."
    )


class TerminalState(State):
    """Where the episode stands."""

    sandbox: str | None = Field(
        default=None, description="The kind of sandbox: gvisor, bubblewrap or landlock."
    )
    guarantee: str | None = Field(
        default=None, description="What stands between the shell and the machine."
    )
    cwd: str = Field(default="~", description="The shell's directory at its latest prompt.")
    running: bool = Field(default=False, description="The shell is not at its prompt.")
    rows: int = Field(default=40, description="Of the terminal.")
    columns: int = Field(default=120, description="Of the terminal.")
    task_id: str | None = Field(default=None, description="The running task.")
    checks: Annotated[dict[str, bool] | None, Private] = Field(
        default=None, description="Which of the task's checks hold; null until it was scored."
    )


class TerminalTask(BaseModel):
    """A task, as others may see it: without what it is judged by."""

    model_config = ConfigDict(extra="forbid")

    id: str
    instruction: str
    wall_s: float = Field(description="Seconds that an episode may take.")
    max_steps: int = Field(description="Steps that an episode may take.")
    num_checks: int = Field(description="Parts of which the reward is the mean.")
