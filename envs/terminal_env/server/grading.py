"""Grading of the files that an agent has left.

Grading starts by ending every process in the agent's sandbox. The sandbox's first process reads
files, and this process compares them. Each check that has to run something runs in a fresh sandbox,
with copies of the files that the task names and nothing else: no start-up file, no program on the
agent's PATH and no process of the agent's gets there. Expected values are never in a sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openenv.errors import SandboxEnded, SandboxError, SandboxFileError
from openenv.reward import Score
from openenv.sandbox import Sandbox

from .tasks import Check, FileCheck, RunCheck, Task

__all__ = ["CLEAN_BASH", "Fresh", "Grade", "grade_work"]

Fresh = Callable[[], "contextlib.AbstractContextManager[Sandbox]"]

MAX_FILE_BYTES = 4 * 2**20
MAX_COPIED_BYTES = 16 * 2**20
MAX_COPIED_FILES = 2000
LOOK_S = 20.0

# The environment of a sandbox comes from this process, not from the agent's shell.
CLEAN_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")


@dataclass(frozen=True)
class Grade:
    """The result of grading an agent's work.

    Attributes:
        score: The share of the counted checks that pass, 0 to 1. It is 0 if a required check fails,
            and unscored if the work could not be graded.
        checks: Whether each check passes, by its name.
        passed: The number of counted checks that pass; 0 if a required check fails.
        total: The number of counted checks.
    """

    score: Score
    checks: dict[str, bool] = field(default_factory=dict)
    passed: int = 0
    total: int = 0

    @property
    def message(self) -> str:
        """The text for the agent."""
        if self.score.value is None:
            return "the task could not be scored\n"
        return f"{self.passed} of {self.total} checks hold\n"

    @property
    def metadata(self) -> dict[str, Any]:
        """The fields for the observation's metadata."""
        if self.score.value is None:
            return {}
        return {"checks_passed": self.passed, "checks_total": self.total}


class CouldNotLook(Exception):
    """The work could not be inspected, through no fault of the agent's."""


def grade_work(task: Task, sandbox: Sandbox, fresh: Fresh) -> Grade:
    """End every process in the agent's sandbox, and grade its files.

    Args:
        task: The task.
        sandbox: The agent's sandbox.
        fresh: Returns another sandbox, which has not been used.
    """
    try:
        sandbox.kill_all()
        files = [check.file for check in task.checks if isinstance(check, FileCheck)]
        seen = {one.path: one for one in _look(sandbox, files) or ()}
        held = [(check, _check_holds(check, seen, sandbox, fresh)) for check in task.checks]
    except (SandboxError, CouldNotLook) as error:
        return Grade(Score(unscored=str(error)))
    counted = [holds for check, holds in held if not check.must_hold]
    passed = sum(counted)
    parts = {"checks": passed / len(counted)}
    if not all(holds for check, holds in held if check.must_hold):
        parts["must_hold"] = -parts["checks"]
        passed = 0
    names = {f"{number}. {check.name}": holds for number, (check, holds) in enumerate(held, 1)}
    return Grade(Score(sum(parts.values()), parts), names, passed, len(counted))


def _check_holds(check: Check, seen: dict[str, Seen], sandbox: Sandbox, fresh: Fresh) -> bool:
    if isinstance(check, FileCheck):
        return _file_holds(check, seen.get(check.file), sandbox)
    return _run_check_holds(check, sandbox, fresh)


# ------------------------------------------------------------------ files


def _file_holds(check: FileCheck, found: Seen | None, sandbox: Sandbox) -> bool:
    if check.type is not None and check.type != (found.type if found else "absent"):
        return False
    if check.mode is not None and (found is None or found.mode != int(check.mode, 8)):
        return False
    if check.leads_to is not None and not _leads_to(found, check.leads_to, sandbox):
        return False
    return _text_holds(check, sandbox)


def _text_holds(check: FileCheck, sandbox: Sandbox) -> bool:
    if check.equals is None and check.matches is None and check.lacks is None:
        return True
    text = _read_text(check.file, sandbox)
    if text is None:
        return False
    if check.equals is not None and _lines(text) != _lines(check.equals):
        return False
    if check.matches is not None and not re.search(check.matches, text, re.MULTILINE):
        return False
    return check.lacks is None or not re.search(check.lacks, text, re.MULTILINE)


def _read_text(path: str, sandbox: Sandbox) -> str | None:
    """Return a file's text, or None if the file is missing, too long or no text."""
    try:
        data = sandbox.read(path, MAX_FILE_BYTES + 1)
        return data.decode() if len(data) <= MAX_FILE_BYTES else None
    except (SandboxFileError, UnicodeDecodeError):
        return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _leads_to(found: Seen | None, to: str, sandbox: Sandbox) -> bool:
    goal = os.path.normpath(os.path.join(sandbox.home, to))
    return found is not None and found.type == "link" and found.real == goal


@dataclass(frozen=True)
class Seen:
    """A file in a sandbox.

    Attributes:
        path: The requested path, or a path below it.
        type: ``"file"``, ``"directory"``, ``"link"`` or ``"other"``.
        mode: The permissions.
        target: The target of a link, as the link has it.
        real: The path with all links resolved; None if nothing is there.
    """

    path: str
    type: str
    mode: int
    target: str | None
    real: str | None


# The interpreter of the sandbox's read-only root runs this after every process has ended.
LOOK = """
import json, os, stat, sys

home, limit, paths = sys.argv[1], int(sys.argv[2]), sys.argv[3:]

def look(path):
    at = os.path.join(home, path)
    try:
        found = os.lstat(at)
    except OSError:
        return
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    type = kinds.get(stat.S_IFMT(found.st_mode), "other")
    target = os.readlink(at) if type == "link" else None
    real = os.path.realpath(at)
    yield path, type, stat.S_IMODE(found.st_mode), target, real if os.path.exists(real) else None

def below(path):
    yield from look(path)
    at = os.path.join(home, path)
    if os.path.isdir(at) and not os.path.islink(at):
        for name in sorted(os.listdir(at)):
            yield from below(os.path.join(path, name))

found = []
for path in paths:
    for one in (below if limit else look)(path):
        found.append(one)
        if limit and len(found) > limit:
            break
print(json.dumps(found))
"""


def _look(sandbox: Sandbox, paths: list[str], below: bool = False) -> list[Seen] | None:
    """Inspect the files at some paths, and with `below` all files below them.

    Missing files are left out. With `below`, the result is None if the files cannot be listed,
    for example because there are too many.
    """
    limit = MAX_COPIED_FILES if below else 0
    program = [sandbox.python, "-I", "-S", "-c", LOOK, sandbox.home, str(limit), *paths]
    done = sandbox.run(program, cwd="/", wall_s=LOOK_S)
    if done.left_out or done.timed_out or done.exit_code != 0:
        if not below:
            raise CouldNotLook(f"looking at {', '.join(paths)} failed: {done.stderr[-300:]}")
        return None
    found = [Seen(*one) for one in json.loads(done.stdout)]
    return found if not below or len(found) <= MAX_COPIED_FILES else None


# ------------------------------------------------------------------ commands


def _run_check_holds(check: RunCheck, sandbox: Sandbox, fresh: Fresh) -> bool:
    """Return whether a command passes its check. A command that ends its sandbox does not."""
    copies = _read_copies(check, sandbox)
    if copies is None:
        return False
    with fresh() as other:
        for path, file in check.files.items():
            other.write(path, file.data, int(file.mode, 8))
        for command in check.before:
            done = other.run([*CLEAN_BASH, command])
            if done.exit_code != 0:
                raise CouldNotLook(f"{command!r} failed: {done.stderr[-300:]}")
        try:
            for copy in copies:
                copy.put(other)
            done = other.run([*CLEAN_BASH, check.run], stdin=check.stdin, wall_s=check.wall_s)
        except (SandboxEnded, SandboxFileError):
            return False
    if done.timed_out or done.left_out or check.exit_code not in (None, done.exit_code):
        return False
    return check.stdout is None or _lines(done.stdout) == _lines(check.stdout)


@dataclass(frozen=True)
class _Copy:
    path: str
    seen: Seen
    data: bytes

    def put(self, sandbox: Sandbox) -> None:
        if self.seen.type == "file":
            sandbox.write(self.path, self.data, self.seen.mode | 0o400)
        elif self.seen.type == "directory":
            sandbox.run(["/bin/mkdir", "-p", "--", self.path])
        else:
            folder = os.path.dirname(self.path) or "."
            link = ["/bin/ln", "-s", "--", self.seen.target or "", self.path]
            sandbox.run(f"/bin/mkdir -p -- {shlex.quote(folder)} && {shlex.join(link)}")


def _read_copies(check: RunCheck, sandbox: Sandbox) -> list[_Copy] | None:
    """Read the agent's files; None if one is missing, or if they are too many or too large."""
    copies, size = [], 0
    for source, goal in {**check.copies_if_there, **check.copies}.items():
        found = _look(sandbox, [source], below=True)
        if found is None or (not found and source in check.copies):
            return None
        for seen in found:
            if seen.type == "other":
                return None
            try:
                data = (
                    sandbox.read(seen.path, MAX_COPIED_BYTES - size + 1)
                    if seen.type == "file"
                    else b""
                )
            except SandboxFileError:
                return None
            size += len(data)
            if size > MAX_COPIED_BYTES:
                return None
            inside = os.path.relpath(seen.path, source)
            copies.append(_Copy(os.path.normpath(os.path.join(goal, inside)), seen, data))
    return copies
