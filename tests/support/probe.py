"""An environment that tells where it runs, and does harm on request; served from this file."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
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


def facts(_: Any) -> dict[str, Any]:
    """What a process has from its beginning, with its own directory left out."""
    here = os.getcwd()
    status = Path("/proc/self/status").read_text().splitlines()
    told = ("Umask", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list", "Threads", "CoreDumping")
    files = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if int(n) < 3]
    facts = {
        "arguments": sys.argv,
        "path": sys.path,
        "variables": {k: v for k, v in os.environ.items() if k not in ("PYTHON_OF_TEST", "_")},
        "main": sys.modules["__main__"].__spec__.name,  # type: ignore[union-attr]
        "files": files,
        "streams": [
            (s.fileno(), s.encoding, s.errors, s.line_buffering, getattr(s, "write_through", None))
            for s in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "scratch": tempfile.gettempdir(),
        "status": [line for line in status if line.startswith(told)],
        "limits": limits(None),
        "logging": [repr(logging.root.handlers), logging.root.level],
        "time zone": time.tzname,
    }
    return json.loads(json.dumps(facts).replace(here, "HERE"))  # type: ignore[no-any-return]


def parent(_: Any) -> int:
    return os.getppid()


def draw(_: Any) -> list[float]:
    import numpy

    return [
        random.random(),
        float(numpy.random.random()),
        float(numpy.random.default_rng().random()),
    ]


DEEDS: dict[str, Callable[[Any], Any]] = {
    "where": where,
    "limits": limits,
    "facts": facts,
    "parent": parent,
    "draw": draw,
    "children": lambda _: Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(),
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
