"""What runs the code of an episode."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from functools import partial
from typing import Any, NamedTuple, Protocol

from openenv.errors import NotSupported, SandboxUnavailable
from openenv.sandbox import Interpreter, Sandbox, SandboxPolicy, strongest
from openenv.sandbox.py_executor import PyExecutor

from .spares import Spares

__all__ = [
    "ENGINES",
    "Engine",
    "Outcome",
    "SandboxEngine",
    "SmolagentsEngine",
    "Warm",
    "choose_engine",
    "guarantee_of",
    "pool",
]

logger = logging.getLogger(__name__)

TO_END_S = 1.5

MOST_WARM = 64
WARM_MEMORY_MB = 1024


class Outcome(NamedTuple):
    """What a piece of code came to; `notes` go into the observation's metadata."""

    stdout: str
    stderr: str
    exit_code: int
    notes: dict[str, Any]


class Engine(Protocol):
    """Runs the code of one episode, from `begin` to `end`."""

    name: str

    @property
    def sandbox(self) -> str | None:
        """The kind of sandbox that is, or is going to be, in force."""
        ...

    @property
    def guarantee(self) -> str | None:
        """What it guarantees."""
        ...

    can_seed: bool

    def begin(self, seed: int | None) -> None:
        """Begin with no names and no files; `seed` is of the code's `random`."""
        ...

    def run(self, code: str, timeout_s: float | None) -> Outcome:
        """Run a piece of code."""
        ...

    def end(self) -> None:
        """Release what the episode holds; a second call does nothing."""
        ...


class SmolagentsEngine:
    """smolagents' interpreter, in this process. No sandbox: see `PyExecutor`."""

    name = "smolagents"
    can_seed = False  # its code shares `random` with this process, and with other sessions
    sandbox: str | None = None
    guarantee: str | None = None

    def __init__(self) -> None:
        if PyExecutor is None:
            raise NotSupported(
                "the engine 'smolagents' needs smolagents; pip install smolagents",
                feature="smolagents",
            )
        self._executor: PyExecutor | None = None

    def begin(self, seed: int | None) -> None:
        self._executor = PyExecutor()

    def run(self, code: str, timeout_s: float | None) -> Outcome:
        if self._executor is None:
            self.begin(None)
        assert self._executor is not None
        done = self._executor.run(code)
        return Outcome(done.stdout, done.stderr, done.exit_code, {})

    def end(self) -> None:
        self._executor = None


class Warm:
    """A sandbox whose interpreter has started."""

    def __init__(self, policy: SandboxPolicy, require: str, kind: str | None) -> None:
        self.sandbox = Sandbox(policy, require=require, kind=kind)
        try:
            self.python = Interpreter(self.sandbox)
        except BaseException:
            self.sandbox.close()
            raise

    @property
    def is_good(self) -> bool:
        """The sandbox has not ended."""
        return not self.sandbox.is_over

    def processes(self) -> list[int]:
        """The numbers of its processes."""
        return self.sandbox.processes()

    def close(self) -> None:
        """End the sandbox."""
        self.sandbox.close()


class SandboxEngine:
    """CPython in a sandbox. Those of a process are made ahead in a pool that they share."""

    name = "sandbox"
    can_seed = True

    def __init__(self, require: str, kind: str | None, policy: SandboxPolicy) -> None:
        self._pool = pool(policy, require, kind)
        self._warm: Warm | None = None
        self._kind = strongest(require, kind, policy)

    @property
    def sandbox(self) -> str | None:
        return self._kind.name

    @property
    def guarantee(self) -> str | None:
        return str(self._kind.guarantee)

    def begin(self, seed: int | None) -> None:
        before, self._warm = self._warm, None
        if before is not None:
            self._pool.retire(before)
        self._warm = self._pool.take()
        if seed is not None:
            self._warm.python.run(f"import random\nrandom.seed({seed})\ndel random")

    def run(self, code: str, timeout_s: float | None) -> Outcome:
        if self._warm is None:
            self.begin(None)
        assert self._warm is not None
        wall_s = self._warm.sandbox.policy.wall_s
        if timeout_s is not None:
            # To interrupt the code, and if need be to end it, takes its time too.
            wall_s = min(wall_s, max(timeout_s - TO_END_S, timeout_s / 2))
        done = self._warm.python.run(code, wall_s=wall_s)
        notes: dict[str, Any] = {}
        if done.timed_out:
            notes["timed_out"] = True
        if done.left_out:
            notes["left_out"] = dict(done.left_out)
        if done.names_are_gone:
            notes["names_are_gone"] = True
        return Outcome(done.stdout, done.stderr, done.exit_code, notes)

    def end(self) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            self._pool.end(warm)


_pools: dict[tuple[Any, ...], Spares[Warm]] = {}
_pools_lock = threading.Lock()


def pool(policy: SandboxPolicy, require: str, kind: str | None) -> Spares[Warm]:
    """The pool of this process for sandboxes of one kind, with the interpreter of each started."""
    key = (os.getpid(), repr(policy), require, kind)
    with _pools_lock:
        if key not in _pools:
            most = _of_environ("CODING_WARM_SANDBOXES", MOST_WARM)
            megabytes = _of_environ("CODING_WARM_MEMORY_MB", WARM_MEMORY_MB)
            _pools[key] = Spares(partial(Warm, policy, require, kind), most, megabytes * 2**20)
        return _pools[key]


def _of_environ(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{variable} is {text!r}; expected an integer from 0")
    return int(text)


ENGINES = ("sandbox", "smolagents")


def guarantee_of(kind: str | None, policy: SandboxPolicy) -> str:
    """The guarantee where nobody asks for one: namespaces, or, where this machine has no sandbox
    with those, a process whose calls are filtered; the log then says so.
    """
    try:
        strongest("namespaces", kind, policy)
    except SandboxUnavailable as error:
        with contextlib.suppress(SandboxUnavailable):  # which is told with that of the engine
            weaker = strongest("process", kind, policy)
            logger.warning("code is run in the sandbox %r, which is weaker: %s", weaker.name, error)
        return "process"
    return "namespaces"


def choose_engine(
    name: str | None, require: str, kind: str | None, policy: SandboxPolicy
) -> Engine:
    """The engine of this name; None is the sandbox.

    Raises:
        SandboxUnavailable: There is no sandbox with that guarantee: the code is run nowhere else.
        ValueError: There is no such engine.
    """
    if name not in (None, *ENGINES):
        raise ValueError(f"engine is {name!r}; expected one of {', '.join(ENGINES)}")
    if name == "smolagents":
        return SmolagentsEngine()
    try:
        return SandboxEngine(require, kind, policy)
    except SandboxUnavailable as error:
        if name is not None:
            raise
        own = "it is none, and runs code in the server's own process: CODING_ENGINE=smolagents"
        reasons = {**error.reasons, "smolagents": own}
        raise SandboxUnavailable(error.guarantee, reasons) from error
