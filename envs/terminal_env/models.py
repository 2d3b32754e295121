"""Actions, observations and state of the terminal environment."""

from __future__ import annotations

import base64
import binascii
import difflib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from openenv.types import Action, Observation, Private, State

from .keys import encode_key

__all__ = ["Kind", "TerminalAction", "TerminalObservation", "TerminalState", "TerminalTask"]

Kind = Literal["run", "type", "keys", "wait", "resize", "write_file", "read_file", "submit"]

# The required and the optional fields of each kind of action.
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
    """An action at the terminal. `kind` determines which other fields it has.

    - run: run `command` (it may have several lines and here-documents) until the prompt is back;
    - type: type `text`, such as an answer to a running program; ``"\\n"`` is the Enter key;
    - keys: press `keys`, such as ``["C-c"]`` or ``["Up", "Enter"]``;
    - wait: wait for more output;
    - resize: set the terminal's `rows` and `columns`;
    - write_file, read_file: write or read a file;
    - submit: end the episode and score the task.
    """

    kind: Kind = Field(default="run", description="The kind of action.")
    command: str | None = Field(
        default=None, max_length=2**20, description="run: the command for the shell."
    )
    text: str | None = Field(default=None, max_length=2**16, description="type: the text to type.")
    keys: list[str] | None = Field(
        default=None, min_length=1, max_length=1000, description="keys: keys by their tmux names."
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="run, type, keys, wait: maximum seconds to wait. The default of run is the "
        "server's TERMINAL_TIMEOUT_S; the defaults of the others are 2, 2 and 10.",
    )
    on_timeout: Literal["interrupt", "leave"] = Field(
        default="interrupt",
        description="run: what happens to a command that takes longer. interrupt: it gets "
        "Control-C, then its processes are killed, and if that does not help, the shell. leave: it "
        "continues.",
    )
    raw: bool = Field(
        default=False,
        description="run, type, keys, wait: return the output with its escape sequences.",
    )
    rows: int | None = Field(
        default=None, ge=1, le=500, description="resize: rows of the terminal."
    )
    columns: int | None = Field(
        default=None, ge=20, le=1000, description="resize: columns of the terminal."
    )
    path: str | None = Field(
        default=None,
        description="write_file, read_file: a path from the shell's directory, or with ~.",
    )
    content: str | None = Field(
        default=None, max_length=2**24, description="write_file: the content of the file."
    )
    encoding: Literal["utf-8", "base64"] = Field(
        default="utf-8", description="write_file, read_file: the encoding of the content."
    )

    @field_validator("command", "path")
    @classmethod
    def _check_nul(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("the character NUL is not allowed")
        return value

    @field_validator("keys")
    @classmethod
    def _check_keys(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            encode_key(name)
        return value

    @model_validator(mode="after")
    def _check_fields(self) -> TerminalAction:
        needed, possible = FIELDS[self.kind]
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"kind {self.kind!r} needs the field {name!r}")
        known = {"kind", "metadata", *needed, *possible}
        for name, field in type(self).model_fields.items():
            if name not in known and getattr(self, name) != field.default:
                raise ValueError(_describe_misplaced(self.kind, name, [*needed, *possible]))
        if self.kind == "write_file" and self.encoding == "base64":
            _decode_base64(self.content or "")
        return self

    @property
    def data(self) -> bytes:
        """The bytes that write_file writes."""
        content = self.content or ""
        return _decode_base64(content) if self.encoding == "base64" else content.encode()


def _describe_misplaced(kind: str, name: str, fields: list[str]) -> str:
    owners = [other for other, (a, b) in FIELDS.items() if name in (*a, *b)]
    close = difflib.get_close_matches(name, fields, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"kind {kind!r} has no field {name!r}{hint}; it belongs to {', '.join(owners)}"


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"content is no base64: {error}") from None


class TerminalObservation(Observation):
    """The result of an action.

    `metadata` has `ended_by` if a command took too long: ``"C-c"``, ``"SIGINT"``, ``"SIGKILL"`` or
    ``"end of the shell"``. If the shell has ended, `shell_ended` says so in words. At the end of an
    episode it has `limit` (``"time"`` or ``"steps"``), `checks_passed` and `checks_total`.
    """

    output: str = Field(
        default="",
        description="The terminal's output since the last action, without the shell's prompt; for "
        "read_file, the content of the file.",
    )
    exit_code: int | None = Field(
        default=None,
        description="The exit code of the command that ended in this step; null if none ended. For "
        "read_file and write_file: 0, or 1 with the reason as output.",
    )
    cwd: str = Field(
        default="~", description="The shell's directory at its latest prompt; ~ is home."
    )
    running: bool = Field(
        default=False, description="Whether a command runs, or a line was begun at the prompt."
    )
    timed_out: bool = Field(default=False, description="Whether the command took too long.")
    left_out: int = Field(
        default=0, description="Bytes that are missing from the middle of the output."
    )
    shell_restarted: bool = Field(
        default=False,
        description="Whether the shell has ended and this is a new one: in the home directory, "
        "without the earlier variables, functions and jobs. Files are still there.",
    )
    prompt: str | None = Field(default=None, description="The task, after a reset with a task.")


class TerminalState(State):
    """The state of the episode."""

    sandbox: str | None = Field(
        default=None, description="The kind of sandbox: gvisor, bubblewrap or landlock."
    )
    guarantee: str | None = Field(
        default=None, description="The guarantee of the sandbox: process, namespaces or kernel."
    )
    cwd: str = Field(default="~", description="The shell's directory at its latest prompt.")
    running: bool = Field(default=False, description="Whether the shell is not at its prompt.")
    rows: int = Field(default=40, description="Rows of the terminal.")
    columns: int = Field(default=120, description="Columns of the terminal.")
    task_id: str | None = Field(default=None, description="The id of the running task.")
    checks: Annotated[dict[str, bool] | None, Private] = Field(
        default=None, description="Whether each check of the task passes; null until it is scored."
    )


class TerminalTask(BaseModel):
    """The public part of a task, without its checks."""

    model_config = ConfigDict(extra="forbid")

    id: str
    instruction: str
    wall_s: float = Field(description="Seconds that an episode may take.")
    max_steps: int = Field(description="Steps that an episode may take.")
    num_checks: int = Field(description="The number of checks whose mean is the reward.")
