"""The oracle: the solution with which a package shows that its verifier rewards correct behavior.

A manifest declares it (RFC 008, "The oracle and the semantic contract"):

    validation:
      capabilities:
        oracle: {form: script, location: validation/oracle.py}

There are two forms, and four kinds of file. All paths are relative to the package.

``form: injected_state``, a JSON file. The reset's arguments, or a snapshot from
`EnvClient.snapshot`, put the world into the state that a correct trajectory reaches. The actions
let the verifier see this state; by default there is one action that does nothing:

    {"episodes": [{"reset": {"task": "t1", "board": "solved"}, "snapshot": "<base64, optional>",
                   "actions": [{"submit": true}]}]}

``form: script``, one of

- ``*.json``: a correct trajectory: ``{"episodes": [{"reset": {}, "actions": []}]}``.
- ``*.py``: a policy. It runs in a separate process on the validator's side, never in the server.
  Its functions receive a `ProbeView`: ``observation``, ``step``, ``state`` (privileged: no agent
  sees it) and ``reset``. Actions are objects, or models, which are converted to JSON.

      EPISODES = [{"task": "t1", "seed": 1}]    # arguments of reset; by default those of the plan
      def oracle(view): ...                     # the next action; None ends the episode
      def do_nothing(view): ...                 # optional: earns nothing; default: least action
      def secrets(view): ...                    # optional: texts that no observation may show
      def candidates(view): ...                 # optional: the actions that a learner chooses from
      CANARIES = [...]                          # optional: episodes that must earn nothing
      LEARNING = {...}                          # optional: see `openenv.validation.learner`

- any other file: a shell script that runs in the subject's sandbox after the reset and brings the
  world to the solved state, like Harbor's ``solution/solve.sh``. The provider must be able to run
  commands.

Canaries are a JSON file in the format of a trajectory. Their episodes must earn no more than doing
nothing.
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
from typing import Any

from typing_extensions import Self

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError
from openenv.validation.actions import Action
from openenv.validation.evidence import InvalidJSON, strict_json
from openenv.validation.manifest import OracleDeclaration
from openenv.validation.probes import Policy, ProbePlan, ProbeView, script_policy

CALL_S = 30.0
MAX_EPISODES = 8
MAX_ANSWER_BYTES = 32 * 2**20
PROGRAM = Path(__file__).parent / "programs" / "oracle_server.py"

FUNCTIONS = ("oracle", "do_nothing", "secrets", "candidates")


class OracleError(OpenEnvError, ValueError):
    """An oracle or a file of canaries that is missing, not valid, or fails."""


@dataclass(frozen=True)
class OracleEpisode:
    """An episode that an oracle plays, or a canary."""

    reset: Mapping[str, Any]
    actions: tuple[Action, ...] | None = None  # the actions; None if a program chooses them
    snapshot: bytes | None = None  # a snapshot to restore after the reset
    name: str = ""  # the name in evidence


def read_episodes(path: Path) -> tuple[OracleEpisode, ...]:
    """Read episodes from a JSON file; the module's docstring describes the format.

    Raises:
        OracleError: The file is missing or not valid; the message says where and why.
    """
    try:
        content = strict_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OracleError(f"{path} cannot be read: {error.strerror}") from error
    except (InvalidJSON, UnicodeDecodeError) as error:
        raise OracleError(f"{path} is not valid JSON: {error}") from error
    return parse_episodes(content, str(path))


def parse_episodes(content: Any, where: str) -> tuple[OracleEpisode, ...]:
    """Parse episodes from JSON data: an object with ``episodes``, a list, or a single episode.

    Raises:
        OracleError: The data is not valid.
    """
    listed = content.get("episodes", content) if isinstance(content, dict) else content
    listed = listed if isinstance(listed, list) else [listed]
    if not 1 <= len(listed) <= MAX_EPISODES:
        raise OracleError(f"{where} has {len(listed)} episodes; expected 1 to {MAX_EPISODES}")
    return tuple(_episode(one, f"{where}: episodes[{i}]") for i, one in enumerate(listed))


def _episode(content: Any, where: str) -> OracleEpisode:
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
        raise OracleError(f"{where}.snapshot is not valid Base64: {error}") from error
    name = str(content.get("name") or where.rpartition(": ")[2])
    return OracleEpisode(reset, None if actions is None else tuple(actions), snapshot, name)


# ------------------------------------------------------------------ oracles


@dataclass
class Oracle:
    """A correct solution, ready to be shown. An oracle is a context manager."""

    form: str  # ``injected_state`` or ``script``
    location: Path
    # The episodes; `program` or `script` plays those without actions.
    episodes: tuple[OracleEpisode, ...]
    program: OracleProgram | None = None  # the Python file that plays episodes
    script: bytes | None = None  # the program to run in the subject's sandbox
    # Episodes that must earn nothing, listed by the Python file.
    canaries: tuple[OracleEpisode, ...] = ()
    # The Python file's settings for the learner.
    learning: Mapping[str, Any] = field(default_factory=dict)

    def policy(self, episode: OracleEpisode) -> Policy | None:
        """Return the policy that plays an episode; None if the script in the sandbox plays it."""
        if episode.actions is not None:
            return script_policy(episode.actions)
        return None if self.program is None else self.program.policy("oracle")

    def has_function(self, function: str) -> bool:
        """Return whether the Python file has a function of this name."""
        return self.program is not None and function in self.program.functions

    def secrets(self, view: ProbeView) -> list[str]:
        """Return the texts that no observation may show, if the Python file names any."""
        found = self.program.call("secrets", view) if self.has_function("secrets") else []  # type: ignore[union-attr]
        return [text for text in found or [] if isinstance(text, str) and text]

    def close(self) -> None:
        """End the program's process. Idempotent."""
        if self.program is not None:
            self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_oracle(declared: OracleDeclaration, root: Path, plan: ProbePlan) -> Oracle:
    """Read the oracle that a manifest declares. Without episodes the plan's reset is played.

    Raises:
        OracleError: The file is missing or not valid; the message gives the reason.
    """
    path = root / declared.location
    if not path.resolve().is_relative_to(root.resolve()):
        raise OracleError(f"the oracle {declared.location} lies outside the package")
    if not path.is_file():
        raise OracleError(f"the oracle {declared.location} is not a file of the package")
    if path.suffix == ".json":
        episodes = read_episodes(path)
        lacks_actions = any(episode.actions is None for episode in episodes)
        if declared.form == "script" and lacks_actions:
            raise OracleError(f"{declared.location}: every episode of a trajectory needs actions")
        return Oracle(declared.form, path, episodes)
    if declared.form == "injected_state":
        raise OracleError(f"{declared.location}: an injected state must be a JSON file")
    if path.suffix != ".py":
        episode = OracleEpisode(plan.reset, name="plan")
        return Oracle("script", path, (episode,), script=path.read_bytes())
    with contextlib.ExitStack() as stack:
        program = OracleProgram(path, root)
        stack.callback(program.close)
        oracle = _oracle_of_program(program, path, plan)
        stack.pop_all()
    return oracle


def _oracle_of_program(program: OracleProgram, path: Path, plan: ProbePlan) -> Oracle:
    told = program.described
    if "oracle" not in program.functions:
        raise OracleError(f"{path} has no function oracle(view)")
    resets = told.get("EPISODES") or [plan.reset]
    if not isinstance(resets, list) or not all(isinstance(one, dict) for one in resets):
        raise OracleError(f"{path}: EPISODES must be a list of reset arguments")
    begun = tuple(
        OracleEpisode({"episode_id": f"oracle-{i}", **reset}, name=f"EPISODES[{i}]")
        for i, reset in enumerate(resets[:MAX_EPISODES])
    )
    listed = told.get("CANARIES")
    canaries = parse_episodes(listed, f"{path.name}: CANARIES") if listed else ()
    return Oracle(
        "script", path, begun, program, canaries=canaries, learning=told.get("LEARNING") or {}
    )


class OracleProgram:
    """A package's Python file, running in a separate process.

    Raises:
        OracleError: The file cannot be imported.
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
        """Return a policy that calls a function of the file."""
        return lambda view: self.call(function, view)

    def call(self, function: str, view: ProbeView) -> Any:
        """Call a function of the file.

        Raises:
            OracleError: The function raised an exception or took longer than 30 s, or the process
                ended.
        """
        return self._ask({"call": function, "view": asdict(view)})["result"]

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = read_json(self._line())
        except (OSError, ValueError) as error:
            raise OracleError(f"{self._path} ended: {error}") from error
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
                raise OracleError(f"{self._path} cannot be run; see its output")
            self._buffer += read
            if len(self._buffer) > MAX_ANSWER_BYTES:
                self.close()
                raise OracleError(f"{self._path} answered more than {MAX_ANSWER_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
