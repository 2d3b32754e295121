"""The oracle: what a package brings to show that its verifier rewards a correct solution.

A manifest declares one (RFC 008, "The oracle and the semantic contract"):

    validation:
      capabilities:
        oracle: {form: script, location: validation/oracle.py}

There are two forms, and four kinds of file. Of every kind, paths are relative to the package.

``form: injected_state``, a file of JSON. The reset's arguments put the world into the state that a
correct trajectory leads to, or a snapshot does, as `EnvClient.snapshot` gives it; the actions are
those by which the verifier looks at it (by default one that does nothing):

    {"episodes": [{"reset": {"task": "t1", "board": "solved"}, "snapshot": "<base64, or left out>",
                   "actions": [{"submit": true}]}]}

``form: script``, one of

- ``*.json``: a correct trajectory, written down: ``{"episodes": [{"reset": {}, "actions": []}]}``.
- ``*.py``: a policy. It runs in a process of its own on the validator's side, never in the server;
  its functions get a `View`, by its fields: ``observation``, ``step``, ``state`` (privileged: no
  agent sees it) and ``reset``. Actions are objects, or models, which are written as JSON.

      EPISODES = [{"task": "t1", "seed": 1}]    # arguments of reset; by default those of the plan
      def oracle(view): ...                     # the next action; None has had enough
      def do_nothing(view): ...                 # optional: what earns nothing, by default the least
      def secrets(view): ...                    # optional: texts that no observation may show
      def candidates(view): ...                 # optional: the actions that a learner chooses from
      CANARIES = [...]                          # optional: episodes that deserve nothing
      LEARNING = {...}                          # optional: see `openenv.validation.learner`

- any other: a program that is run in the subject's sandbox after the reset and drives the world to
  the solved state, as Harbor's ``solution/solve.sh``. The provider must be able to run commands.

Canaries are a file of JSON like a trajectory's, whose episodes deserve no more than doing nothing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError
from openenv.validation.actions import Action
from openenv.validation.evidence import NotJSON, strict_json
from openenv.validation.manifest import OracleDeclaration
from openenv.validation.probes import Plan, Policy, View, scripted

__all__ = ["Episode", "Oracle", "OracleError", "OracleProgram", "read_episodes", "read_oracle"]

CALL_S = 30.0
MAX_EPISODES = 8
MAX_ANSWER_BYTES = 32 * 2**20
PROGRAM = Path(__file__).parent / "programs" / "oracle.py"

FUNCTIONS = ("oracle", "do_nothing", "secrets", "candidates")


class OracleError(OpenEnvError, ValueError):
    """What a package declares as its oracle, or as canaries, is missing or is none."""


@dataclass(frozen=True)
class Episode:
    """One episode that is known beforehand.

    Attributes:
        reset: The arguments of its reset.
        actions: What is done in it; None where a program decides.
        snapshot: Is restored after the reset.
        name: What it is called in evidence.
    """

    reset: Mapping[str, Any]
    actions: tuple[Action, ...] | None = None
    snapshot: bytes | None = None
    name: str = ""


def read_episodes(path: Path) -> tuple[Episode, ...]:
    """Read episodes from a file of JSON, as it is described above.

    Raises:
        OracleError: There is none, or it is none; the text says where and why.
    """
    try:
        content = strict_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OracleError(f"{path} cannot be read: {error.strerror}") from error
    except (NotJSON, UnicodeDecodeError) as error:
        raise OracleError(f"{path} is no JSON: {error}") from error
    return episodes_of(content, str(path))


def episodes_of(content: Any, where: str) -> tuple[Episode, ...]:
    """Read episodes from a value of JSON: an object of them, a list, or one alone.

    Raises:
        OracleError: They are none.
    """
    listed = content.get("episodes", content) if isinstance(content, dict) else content
    listed = listed if isinstance(listed, list) else [listed]
    if not 1 <= len(listed) <= MAX_EPISODES:
        raise OracleError(f"{where} has {len(listed)} episodes; expected 1 to {MAX_EPISODES}")
    return tuple(_episode(one, f"{where}: episodes[{i}]") for i, one in enumerate(listed))


def _episode(content: Any, where: str) -> Episode:
    known = {"reset", "actions", "snapshot", "name"}
    if not isinstance(content, dict) or content.keys() - known:
        raise OracleError(f"{where} must be an object of {', '.join(sorted(known))}")
    reset, actions = content.get("reset", {}), content.get("actions")
    if not isinstance(reset, dict):
        raise OracleError(f"{where}.reset must be an object")
    if actions is not None and not (
        isinstance(actions, list) and all(isinstance(action, dict) for action in actions)
    ):
        raise OracleError(f"{where}.actions must be a list of objects")
    try:
        stored = content.get("snapshot")
        snapshot = None if stored is None else base64.b64decode(stored, validate=True)
    except (ValueError, TypeError) as error:
        raise OracleError(f"{where}.snapshot is no base64: {error}") from error
    name = str(content.get("name") or where.rpartition(": ")[2])
    return Episode(reset, None if actions is None else tuple(actions), snapshot, name)


# ------------------------------------------------------------------ oracles


@dataclass
class Oracle:
    """A correct solution, ready to be shown. It is a context manager.

    Attributes:
        form: ``injected_state`` or ``script``.
        location: Its file.
        episodes: How each begins; those without actions are played by `program`, or by `script`.
        program: The Python file that plays them.
        script: The program to run in the subject's sandbox.
        canaries: Episodes that deserve nothing, which the Python file has listed.
        learning: What it says of learning.
    """

    form: str
    location: Path
    episodes: tuple[Episode, ...]
    program: OracleProgram | None = None
    script: bytes | None = None
    canaries: tuple[Episode, ...] = ()
    learning: Mapping[str, Any] = field(default_factory=dict)

    def policy(self, episode: Episode) -> Policy | None:
        """Who plays an episode; None where only the sandbox can."""
        if episode.actions is not None:
            return scripted(episode.actions)
        return None if self.program is None else self.program.policy("oracle")

    def does(self, function: str) -> bool:
        """Whether its Python file has a function of that name."""
        return self.program is not None and function in self.program.functions

    def secrets(self, view: View) -> list[str]:
        """Texts that no observation may show, where its Python file tells them."""
        found = self.program.call("secrets", view) if self.does("secrets") else []  # type: ignore[union-attr]
        return [text for text in found or [] if isinstance(text, str) and text]

    def close(self) -> None:
        """End its program. Safe to repeat."""
        if self.program is not None:
            self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_oracle(declared: OracleDeclaration, root: Path, plan: Plan) -> Oracle:
    """Make the oracle that a manifest declares.

    Args:
        declared: What the manifest says.
        root: The package's directory.
        plan: Begins the episodes of an oracle that names none.

    Raises:
        OracleError: There is none at that place, or it is none; the text says why.
    """
    path = root / declared.location
    if not path.resolve().is_relative_to(root.resolve()):
        raise OracleError(f"the oracle {declared.location} lies outside the package")
    if not path.is_file():
        raise OracleError(f"the oracle {declared.location} is no file of the package")
    if path.suffix == ".json":
        episodes = read_episodes(path)
        needs = declared.form == "script"
        if needs and any(episode.actions is None for episode in episodes):
            raise OracleError(f"{declared.location}: a trajectory has actions in every episode")
        return Oracle(declared.form, path, episodes)
    if declared.form == "injected_state":
        raise OracleError(f"{declared.location}: an injected state is a file of JSON, not of code")
    if path.suffix != ".py":
        return Oracle("script", path, (Episode(plan.reset, name="plan"),), script=path.read_bytes())
    program = OracleProgram(path, root)
    try:
        return _of_program(program, path, plan)
    except OracleError:
        program.close()
        raise


def _of_program(program: OracleProgram, path: Path, plan: Plan) -> Oracle:
    told = program.described
    if "oracle" not in program.functions:
        raise OracleError(f"{path} has no function oracle(view)")
    resets = told.get("EPISODES") or [plan.reset]
    if not isinstance(resets, list) or not all(isinstance(one, dict) for one in resets):
        raise OracleError(f"{path}: EPISODES must be a list of reset arguments")
    begun = tuple(
        Episode({"episode_id": f"oracle-{i}", **reset}, name=f"EPISODES[{i}]")
        for i, reset in enumerate(resets[:MAX_EPISODES])
    )
    listed = told.get("CANARIES")
    canaries = episodes_of(listed, f"{path.name}: CANARIES") if listed else ()
    return Oracle(
        "script", path, begun, program, canaries=canaries, learning=told.get("LEARNING") or {}
    )


class OracleProgram:
    """A package's Python file, in a process of its own.

    Args:
        path: The file.
        root: The package's directory, by whose name the file's relative imports go.
        call_s: Seconds that a call may take.

    Raises:
        OracleError: It cannot be imported.
    """

    def __init__(self, path: Path, root: Path, call_s: float = CALL_S) -> None:
        self._path, self._call_s = path, call_s
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(  # nosec B603  # what the author wants played
            [sys.executable, str(PROGRAM), str(path.resolve()), str(root.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            cwd=root,
        )
        self._buffer = b""
        try:
            self.described: dict[str, Any] = self._ask({"call": "describe"})
        except OracleError:
            self.close()
            raise
        self.functions = frozenset(self.described["functions"]) & set(FUNCTIONS)

    def policy(self, function: str) -> Policy:
        """A policy that calls a function of the file."""
        return lambda view: self.call(function, view)

    def call(self, function: str, view: View) -> Any:
        """Call a function of the file.

        Raises:
            OracleError: It raised, or took too long.
        """
        return self._ask({"call": function, "view": asdict(view)})["result"]

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = read_json(self._line())
        except (OSError, ValueError) as error:
            raise OracleError(f"{self._path} has ended: {error}") from error
        if "error" in answer:
            raise OracleError(f"{self._path.name}, {request['call']}: {answer['error']}")
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        until = time.monotonic() + self._call_s
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            if not ready:
                self.close()
                raise OracleError(f"{self._path} took longer than {self._call_s:g} s")
            read = os.read(self._process.stdout.fileno(), 2**16)
            if not read:
                raise OracleError(f"{self._path} cannot be run; what it printed says why")
            self._buffer += read
            if len(self._buffer) > MAX_ANSWER_BYTES:
                self.close()
                raise OracleError(f"{self._path} answered more than {MAX_ANSWER_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process. Safe to repeat."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
