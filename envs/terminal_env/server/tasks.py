"""Tasks: an instruction, the files at the start, and the checks of the agent's work.

Their form is that of Terminal-Bench (https://www.tbench.ai): an instruction, files, commands that
prepare them, a verification, a solution that proves that the task can be done, and limits. Checks
are data, not programs: `grading` carries them out from outside the sandbox.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from openenv.errors import Refused

from ..models import TerminalTask

__all__ = ["Check", "File", "FileCheck", "RunCheck", "Task", "TaskSet"]

TASK_FILE, FILES_FOLDER = "task.yaml", "files"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Model):
    """A file, given by its text or by its bytes in base64."""

    text: str | None = None
    base64: str | None = None
    mode: str = Field(default="644", pattern="^[0-7]{3,4}$")

    @model_validator(mode="after")
    def _check_content(self) -> File:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("a file has either text or base64")
        return self

    @property
    def data(self) -> bytes:
        """The content of the file."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "")


class FileCheck(_Model):
    """A check of one of the agent's files, after every process in the sandbox has ended.

    The check passes if all given attributes match the file.

    Attributes:
        file: The path, relative to the home directory.
        equals: The text; blanks at the ends of lines and of the text do not count.
        matches: A regular expression that the text matches somewhere. ``^`` and ``$`` match at the
            ends of lines.
        lacks: A regular expression that the text does not match anywhere.
        mode: The permissions, as ``"640"``.
        type: The type; that of a link is ``"link"``, not that of its target.
        leads_to: The target of a symbolic link, possibly by way of other links.
        must_hold: The check does not count toward the score, but the score is 0 if it fails.
    """

    file: str
    equals: str | None = None
    matches: str | None = None
    lacks: str | None = None
    mode: str | None = Field(default=None, pattern="^[0-7]{3,4}$")
    type: Literal["file", "directory", "link", "absent"] | None = None
    leads_to: str | None = None
    must_hold: bool = False

    @model_validator(mode="after")
    def _check_expectations(self) -> FileCheck:
        if not self.model_fields_set - {"file", "must_hold"}:
            raise ValueError(f"the check of {self.file!r} expects nothing")
        return self

    @property
    def name(self) -> str:
        """The name of the check in `TerminalState.checks`."""
        return f"{self.file}: {', '.join(sorted(self.model_fields_set - {'file', 'must_hold'}))}"


class RunCheck(_Model):
    """A check of a command in a fresh sandbox, with copies of some of the agent's files.

    Attributes:
        run: The command, for a bash without start-up files in the environment of a new sandbox.
        copies: The agent's files and directories, which must exist, with the destination of each;
            paths are relative to the home directory.
        copies_if_there: Like `copies`, but these may be missing.
        files: Further files, which the agent has never seen.
        before: Commands that prepare the sandbox, before the copies are made.
        stdin: The input of the command.
        stdout: The expected output; blanks at the ends of lines and of the text do not count.
        exit_code: The expected exit code; None for any.
        wall_s: Seconds that the command may take.
        must_hold: Like that of `FileCheck`.
    """

    run: str
    copies: dict[str, str] = Field(default_factory=dict)
    copies_if_there: dict[str, str] = Field(default_factory=dict)
    files: dict[str, File] = Field(default_factory=dict)
    before: list[str] = Field(default_factory=list)
    stdin: str = ""
    stdout: str | None = None
    exit_code: int | None = 0
    wall_s: float = Field(default=10.0, gt=0, le=600)
    must_hold: bool = False

    @property
    def name(self) -> str:
        """The name of the check in `TerminalState.checks`."""
        return f"run: {self.run}"


Check = FileCheck | RunCheck


class Task(_Model):
    """A task.

    Attributes:
        id: The unique name.
        instruction: The text for the agent.
        split: The split, such as ``"train"``.
        files: The files in the home directory at the start.
        setup: Commands that prepare the sandbox after that, each for a bash in the home directory.
        services: Commands that keep running, in the home directory.
        ready: A command that fails until the services are ready.
        needs: Programs that the sandbox must have.
        checks: The checks of the agent's work.
        solution: Commands that solve the task; never shown.
        wall_s: Seconds that an episode may take.
        max_steps: Steps that an episode may take.
    """

    id: str = Field(min_length=1)
    instruction: str = Field(min_length=1)
    split: str = "train"
    files: dict[str, File] = Field(default_factory=dict)
    setup: list[str] = Field(default_factory=list)
    services: list[str] = Field(default_factory=list)
    ready: str | None = None
    needs: list[str] = Field(default_factory=list)
    checks: list[Check] = Field(min_length=1)
    solution: str | None = None
    wall_s: float = Field(default=600.0, gt=0, le=86400)
    max_steps: int = Field(default=100, ge=1)

    @model_validator(mode="after")
    def _check_scorable(self) -> Task:
        if all(check.must_hold for check in self.checks):
            raise ValueError("a task has at least one check that counts")
        return self

    def to_public(self) -> TerminalTask:
        """Return the public part of the task."""
        return TerminalTask(
            id=self.id,
            instruction=self.instruction,
            wall_s=self.wall_s,
            max_steps=self.max_steps,
            num_checks=sum(not check.must_hold for check in self.checks),
        )


class TaskSet:
    """A set of tasks with unique ids.

    Raises:
        ValueError: Two tasks have the same id.
    """

    def __init__(self, tasks: list[Task]) -> None:
        counted = Counter(task.id for task in tasks)
        if twice := [id for id, count in counted.items() if count > 1]:
            raise ValueError(f"several tasks have the id {twice[0]!r}")
        self._tasks = {task.id: task for task in tasks}

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> TaskSet:
        """Read the JSONL file or folder that TERMINAL_TASKS names, or take the bundled tasks.

        Raises:
            ValueError: An entry is not a valid task; the message has its place and the reason.
        """
        path = environ.get("TERMINAL_TASKS")
        return cls(list(_read(Path(path)))) if path else _bundled()

    def splits(self) -> list[str]:
        """Return the names of the splits."""
        return sorted({task.split for task in self._tasks.values()})

    def split(self, name: str) -> list[Task]:
        """Return the tasks of a split.

        Raises:
            Refused: The split is unknown.
        """
        if name not in self.splits():
            raise Refused(f"there is no split {name!r}; there are {', '.join(self.splits())}")
        return [task for task in self._tasks.values() if task.split == name]

    def find(self, wanted: str | Mapping[str, Any] | TerminalTask) -> Task:
        """Find a task by its id, or by the public part that `get_task` returned.

        Raises:
            Refused: No task has this id, or the task with this id differs.
        """
        given = wanted.model_dump() if isinstance(wanted, TerminalTask) else wanted
        id = given.get("id") if isinstance(given, Mapping) else given
        found = self._tasks.get(id) if isinstance(id, str) else None
        if found is None:
            close = difflib.get_close_matches(str(id), self._tasks, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "list_tasks(split) gives all of them"
            raise Refused(f"there is no task {str(id)!r:.80}; {hint}")
        if isinstance(given, Mapping) and dict(given) != found.to_public().model_dump():
            raise Refused(f"task {id!r} is another one here; pass its id, or what get_task gave")
        return found


@cache
def _bundled() -> TaskSet:
    from .bundled import bundled_tasks

    return TaskSet(bundled_tasks())


def _read(path: Path) -> Iterator[Task]:
    if path.is_dir():
        folders = sorted(file.parent for file in path.glob(f"*/{TASK_FILE}"))
        if not folders:
            raise ValueError(f"{path} has no */{TASK_FILE}")
        yield from map(_read_folder, folders)
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            yield _parse_task(f"{path}:{number}", line, json.loads)


def _read_folder(folder: Path) -> Task:
    """Read a task from a folder: `task.yaml`, and the home directory's content in `files`."""
    where = folder / TASK_FILE

    def load(text: str) -> Any:
        found = yaml.safe_load(text)
        if isinstance(found, dict):
            found.setdefault("id", folder.name)
            found["files"] = {**_read_files(folder / FILES_FOLDER), **(found.get("files") or {})}
        return found

    return _parse_task(str(where), where.read_text(encoding="utf-8"), load)


def _parse_task(where: str, text: str, load: Any) -> Task:
    try:
        return Task.model_validate(load(text))
    except (ValueError, ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{where} is no task: {error}") from error


def _read_files(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = base64.b64encode(path.read_bytes()).decode()
            mode = f"{stat.S_IMODE(path.stat().st_mode):o}"
            found[str(path.relative_to(folder))] = {"base64": content, "mode": mode}
    return found
