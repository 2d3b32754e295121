"""The engines that run the code of an episode."""

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
    "WarmSandbox",
    "choose_engine",
    "choose_guarantee",
    "find_pool",
]

logger = logging.getLogger(__name__)

ENDING_S = 1.5  # time to interrupt code and, if necessary, to end it

MAX_WARM = 64
WARM_MEMORY_MB = 1024


class Outcome(NamedTuple):
    """The output of a piece of code. `notes` are added to the observation's metadata."""

    stdout: str
    stderr: str
    exit_code: int
    notes: dict[str, Any]


class Engine(Protocol):
    """An engine that runs the code of one episode, from `begin` to `end`."""

    name: str

    @property
    def sandbox(self) -> str | None:
        """The kind of the engine's sandbox, or None."""
        ...

    @property
    def guarantee(self) -> str | None:
        """The guarantee of the engine's sandbox, or None."""
        ...

    can_seed: bool

    def begin(self, seed: int | None) -> None:
        """Start an episode with no names and no files; `seed` seeds the code's `random`."""
        ...

    def run(self, code: str, timeout_s: float | None) -> Outcome:
        """Run a piece of code."""
        ...

    def end(self) -> None:
        """Release the resources of the episode; a second call does nothing."""
        ...


class SmolagentsEngine:
    """The interpreter of smolagents in this process, without a sandbox; see `PyExecutor`."""

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


class WarmSandbox:
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
        """Whether the sandbox is still running."""
        return not self.sandbox.is_over

    def processes(self) -> list[int]:
        """Return the ids of the sandbox's processes."""
        return self.sandbox.processes()

    def close(self) -> None:
        """End the sandbox."""
        self.sandbox.close()


class SandboxEngine:
    """CPython in a sandbox. The engines of a process share a pool of sandboxes made ahead."""

    name = "sandbox"
    can_seed = True

    def __init__(self, require: str, kind: str | None, policy: SandboxPolicy) -> None:
        self._pool = find_pool(policy, require, kind)
        self._warm: WarmSandbox | None = None
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
            # This leaves time to interrupt the code and, if necessary, to end it.
            wall_s = min(wall_s, max(timeout_s - ENDING_S, timeout_s / 2))
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


_pools: dict[tuple[Any, ...], Spares[WarmSandbox]] = {}
_pools_lock = threading.Lock()


def find_pool(policy: SandboxPolicy, require: str, kind: str | None) -> Spares[WarmSandbox]:
    """Return this process's pool of sandboxes of one kind, each with a started interpreter."""
    key = (os.getpid(), repr(policy), require, kind)
    with _pools_lock:
        if key not in _pools:
            most = _read_integer("CODING_WARM_SANDBOXES", MAX_WARM)
            megabytes = _read_integer("CODING_WARM_MEMORY_MB", WARM_MEMORY_MB)
            _pools[key] = Spares(
                partial(WarmSandbox, policy, require, kind), most, megabytes * 2**20
            )
        return _pools[key]


def _read_integer(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{variable} is {text!r}; expected an integer from 0")
    return int(text)


ENGINES = ("sandbox", "smolagents")


def choose_guarantee(kind: str | None, policy: SandboxPolicy) -> str:
    """Return the default guarantee: ``"namespaces"`` if possible, else ``"process"``.

    The log warns if the machine has no sandbox with namespaces, since the other is weaker.
    """
    try:
        strongest("namespaces", kind, policy)
    except SandboxUnavailable as error:
        with contextlib.suppress(SandboxUnavailable):  # `choose_engine` reports it
            weaker = strongest("process", kind, policy)
            logger.warning("code runs in the weaker sandbox %r: %s", weaker.name, error)
        return "process"
    return "namespaces"


def choose_engine(
    name: str | None, require: str, kind: str | None, policy: SandboxPolicy
) -> Engine:
    """Make the engine of this name; None is the sandbox.

    Raises:
        SandboxUnavailable: No sandbox has the guarantee. The code does not run anywhere else.
        ValueError: The name is unknown.
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
        own = "no sandbox; CODING_ENGINE=smolagents runs code in the server's own process"
        reasons = {**error.reasons, "smolagents": own}
        raise SandboxUnavailable(error.guarantee, reasons) from error
