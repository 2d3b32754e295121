"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.amounts import amount
from support.servers import serving
from support.waiting import wait_until

from openenv._internal import children as _children

BLOCKED_AFTER_S = 1.0
NOTED_EVERY_S = 0.1

# No example fails for the time that it takes on a machine that is slow, or busy.
settings.register_profile(
    "any machine",
    settings(),
    deadline=None,
    max_examples=amount(100, 25),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="module")
def only_what_is_new() -> None:
    """Let the collector pass over what the modules before hold: in a long run that takes seconds,
    in which it stops every thread.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def no_server_is_left() -> Iterator[None]:
    """Fail where a module leaves servers running that were forked for it."""
    before = set(_servers())
    yield
    left = set(_servers()) - before
    wait_until(lambda: left.isdisjoint(_servers()), 10, lambda: left)


def _servers() -> list[str]:
    """Those of whom the fork server has forked who listen, and where they run."""
    forking = _children._server
    if forking is None:
        return []
    pid = forking._process.pid
    found = []
    with contextlib.suppress(OSError):
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                place = Path(f"/proc/{child}")
                if not listening.isdisjoint(map(os.readlink, (place / "fd").iterdir())):
                    found.append(f"{child} in {os.readlink(place / 'cwd')}")
    return found


def _kept_waiting() -> float:
    """Seconds for which threads of this process could have run, and the machine was busy with
    others: a loop is not to blame for these.
    """
    waited = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waited += int(task.read_text().split()[1])
    return waited / 1e9


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def the_loop_is_never_blocked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail a test in which any event loop was held up for a second.

    A test that blocks a loop on purpose says so: ``@pytest.mark.blocks_the_loop``.
    """
    if request.node.get_closest_marker("blocks_the_loop"):
        yield
        return
    culprits: list[str] = []
    run: Callable[[Any], None] = asyncio.Handle._run
    noted_at, noted = 0.0, 0.0

    def timed(handle: asyncio.Handle) -> None:
        nonlocal noted_at, noted
        began = time.perf_counter()
        if began - noted_at > NOTED_EVERY_S:
            noted_at, noted = began, _kept_waiting()
        run(handle)
        took = time.perf_counter() - began
        if took > BLOCKED_AFTER_S and took - (_kept_waiting() - noted) > BLOCKED_AFTER_S:
            # The callback of a task's step is anonymous; the task that it is bound to is not.
            culprit = getattr(getattr(handle, "_callback", None), "__self__", handle)
            culprits.append(f"{took:.2f} s in {culprit!r}")

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    yield
    assert not culprits, f"the event loop was blocked: {culprits}"


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """`uv` of this virtual environment, with the certificates of this machine."""
    installed = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(installed), os.environ["PATH"]]))
    monkeypatch.setenv("UV_NATIVE_TLS", "1")


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve ASGI applications for the length of a test; gives the base URL of each."""
    import contextlib

    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(serving(app))
