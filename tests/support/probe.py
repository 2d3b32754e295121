"""An environment that tells where it runs, and does harm on request; served from this file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from openenv import Action, EnvClient, Environment, Observation, State


class Ask(Action):
    what: str
    value: Any = None


class Answer(Observation):
    value: Any = None


def where(_: Any) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "directory": os.getcwd(),
        "scratch": tempfile.gettempdir(),
    }


def limits(_: Any) -> dict[str, Any]:
    names = ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE")
    return {name: resource.getrlimit(getattr(resource, name))[0] for name in names}


def spawn(_: Any) -> int:
    return subprocess.Popen(["sleep", "1000"]).pid


def kill(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hold(seconds: int) -> None:
    """Sleep, and let no other thread of Python run meanwhile."""
    ctypes.PyDLL(None).sleep(seconds)


class Odd(Exception):
    """It can be pickled, and not be read again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def odd(_: Any) -> None:
    raise Odd(1, 2)


def missing(name: str) -> None:
    try:
        raise KeyError(name)
    except KeyError as error:
        raise FileNotFoundError(2, "No such file", name) from error


def allocate(size: int) -> int:
    return len(bytearray(size))


def write(lines: int) -> None:
    for number in range(lines):
        sys.stdout.write(f"line {number}\n")
    sys.stdout.flush()


DEEDS: dict[str, Callable[[Any], Any]] = {
    "where": where,
    "limits": limits,
    "spawn": spawn,
    "kill": kill,
    "allocate": allocate,
    "write": write,
    "sleep": time.sleep,
    "hold": hold,
    "exit": os._exit,
    "segfault": ctypes.string_at,
    "thread": lambda _: threading.get_ident(),
    "odd": odd,
    "missing": missing,
    "length": len,
    "bytes": lambda size: "x" * size,
    "variable": os.environ.get,
}


class ProbeEnvironment(Environment[Ask, Answer, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self) -> Answer:  # type: ignore[override]
        return Answer()

    def step(self, action: Ask) -> Answer:  # type: ignore[override]
        return Answer(value=DEEDS[action.what](action.value))

    @property
    def state(self) -> State:
        return State()


class ProbeEnv(EnvClient[Ask, Answer, State]):
    """Its client."""
