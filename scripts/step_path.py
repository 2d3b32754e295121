"""Trace one step of each kind, and write its path into docs/concepts/reading-the-code.md.

A server and a client run in this process, over a real socket. After some warm-up steps, one step is
traced: each call of a function of src/openenv counts, in the order of the calls. Calls of libraries
and resumptions of coroutines do not count.

`python scripts/step_path.py` writes the tables, ``--check`` exits with 1 if they are stale,
``--print`` shows them, and ``--kind`` chooses one kind of step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import uvicorn

from openenv import Action, EnvClient, Environment, Observation, State, VectorEnv, create_app
from openenv.client.background import background_loop
from openenv.server.run import bind

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "openenv"
PAGE = ROOT / "docs" / "concepts" / "reading-the-code.md"
BEGIN, END = "<!-- scripts/step_path.py begins -->", "<!-- scripts/step_path.py ends -->"

WARM_STEPS = 220  # enough for the server to measure that the class's steps are quick
TRACED_STEPS = 9  # sometimes a timer of the server fires during one
SETTLE_S = 0.02
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
ENVIRONMENT = "the environment's step"
ENVIRONMENTS = 4  # of the VectorEnv
# The Python version of the page's path; other versions may call other functions.
PYTHON = (3, 11)


class Ping(Action):
    """The action of the traced step."""

    text: str = ""


class Pong(Observation):
    """The observation of the traced step."""

    text: str = ""


class ThreadEnvironment(Environment[Ping, Pong, State]):
    """A synchronous environment, which is called on a thread."""

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def reset(self) -> Pong:  # type: ignore[override]
        return Pong()

    def step(self, action: Ping) -> Pong:  # type: ignore[override]
        return Pong(text=action.text, reward=1.0)

    @property
    def state(self) -> State:
        return State()


class InlineEnvironment(ThreadEnvironment):
    """A synchronous environment that never blocks, so it is called on the event loop."""

    NEVER_BLOCKS: ClassVar[bool] = True


class AsyncEnvironment(Environment[Ping, Pong, State]):
    """An asynchronous environment, which is awaited on the event loop."""

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    async def reset_async(self) -> Pong:  # type: ignore[override]
        return Pong()

    async def step_async(self, action: Ping) -> Pong:  # type: ignore[override]
        return Pong(text=action.text, reward=1.0)

    def reset(self) -> Pong:  # type: ignore[override]
        raise NotImplementedError

    def step(self, action: Ping) -> Pong:  # type: ignore[override]
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State()


class PingClient(EnvClient[Ping, Pong, State]):
    """A typed client of the environments above."""


class Call(NamedTuple):
    """One call of an OpenEnv function, or of the environment.

    Attributes:
        side: ``client``, ``server`` or ``environment``.
        module: The file below src/openenv, without its suffix.
        name: The function's qualified name.
    """

    side: str
    module: str
    name: str


class StepPath(NamedTuple):
    """The calls of one step, in order."""

    calls: tuple[Call, ...]

    def of(self, side: str) -> int:
        """Count the calls of one side."""
        return sum(call.side == side for call in self.calls)

    @property
    def total(self) -> int:
        """Count the calls of both sides."""
        return self.of("client") + self.of("server")

    @property
    def way_back(self) -> int:
        """Count the server's calls from the environment's return until the frame is sent."""
        sides = [call.side for call in self.calls]
        begin = len(sides) - sides[::-1].index("environment")
        end = max(i for i, call in enumerate(self.calls) if call.name == "SocketChannel.send")
        return sum(side == "server" for side in sides[begin : end + 1])


class Tracer:
    """A tracer that records the calls of all threads of this process."""

    def __init__(self) -> None:
        self._calls: list[Call] | None = None
        self._server_threads: set[int] = set()
        self._names: dict[Any, Call | None] = {}

    def install(self) -> None:
        """Trace this thread, the clients' shared loop, and threads that start from now on."""
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)
        self._on_shared_loop(self._hook)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)
        self._on_shared_loop(None)

    @staticmethod
    def _on_shared_loop(hook: Any) -> None:
        """Set the hook on the thread of the clients' loop, which may have started already."""
        done = threading.Event()

        def set_hook() -> None:
            sys.setprofile(hook)
            done.set()

        background_loop().call_soon_threadsafe(set_hook)
        done.wait()

    def note_server(self) -> None:
        """Record that the calling thread is the server's event loop."""
        self._server_threads.add(threading.get_ident())

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """Record the calls within the block."""
        calls: list[Call] = []
        self._calls = calls
        try:
            yield calls
        finally:
            self._calls = None

    def _hook(self, frame: Any, event: str, _: Any) -> None:
        calls = self._calls
        if calls is None or event != "call":
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _name(code)
        call = self._names[code]
        if call is None or (code.co_flags & GENERATORS and not _begins(frame)):
            return
        if call.side != "environment":
            call = call._replace(side="server" if self._is_server() else "client")
        calls.append(call)

    def _is_server(self) -> bool:
        # The server's environment threads are named openenv-0, openenv-pool-1, and so on.
        if threading.get_ident() in self._server_threads:
            return True
        name = threading.current_thread().name
        return name.startswith("openenv-") and name.rpartition("-")[2].isdigit()


def _name(code: Any) -> Call | None:
    name = getattr(code, "co_qualname", code.co_name)
    if code.co_filename == __file__ and code.co_name in ("step", "step_async"):
        return Call("environment", "", ENVIRONMENT)
    if code.co_name in COMPREHENSIONS or code.co_name == "<module>":
        return None
    path = Path(code.co_filename)
    if SOURCE not in path.parents:
        return None
    return Call("", path.relative_to(SOURCE).with_suffix("").as_posix(), name)


def _begins(frame: Any) -> bool:
    """Return whether a coroutine or generator runs for the first time."""
    if sys.version_info < (3, 11):
        return bool(frame.f_lasti < 0)
    # The argument of RESUME: 0 at the start, another number after a yield or an await.
    return bool(frame.f_code.co_code[frame.f_lasti + 1] & 3 == 0)


# ------------------------------------------------------------------ the steps


@contextlib.contextmanager
def serving(environment: type, tracer: Tracer) -> Iterator[str]:
    """Serve an environment class from a thread; yield the address."""
    app = create_app(environment, Ping, Pong, max_concurrent_envs=8)
    with bind("127.0.0.1", 0) as bound:
        config = uvicorn.Config(app, log_level="warning", ws_per_message_deflate=False)
        server = uvicorn.Server(config)

        def run() -> None:
            tracer.note_server()
            server.run(sockets=[bound])

        thread = threading.Thread(target=run, name="server", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(15)


async def _async_paths(url: str, tracer: Tracer) -> list[list[Call]]:
    paths = []
    async with PingClient(base_url=url) as client:
        await client.reset()
        for index in range(WARM_STEPS + TRACED_STEPS):
            with tracer.recording() as calls:
                result = await client.step(Ping(text="a"))
                # The server may have work left after its answer.
                await asyncio.sleep(0 if index < WARM_STEPS else SETTLE_S)
            assert result.observation.text == "a"
            if index >= WARM_STEPS:
                paths.append(calls)
    return paths


def _run_async(url: str, tracer: Tracer) -> list[list[Call]]:
    return asyncio.run(_async_paths(url, tracer))


def _run_sync(url: str, tracer: Tracer) -> list[list[Call]]:
    paths = []
    with PingClient(base_url=url) as client:
        client.reset()
        for index in range(WARM_STEPS + TRACED_STEPS):
            with tracer.recording() as calls:
                result = client.step(Ping(text="a"))
                time.sleep(0 if index < WARM_STEPS else SETTLE_S)
            assert result.observation.text == "a"
            if index >= WARM_STEPS:
                paths.append(calls)
    return paths


def _run_vector(url: str, tracer: Tracer) -> list[list[Call]]:
    paths = []
    with VectorEnv(base_url=url, num_envs=ENVIRONMENTS, client=PingClient) as envs:
        envs.reset()
        for index in range(WARM_STEPS + TRACED_STEPS):
            with tracer.recording() as calls:
                _, rewards, *_ = envs.step([Ping(text="a")] * ENVIRONMENTS)
                time.sleep(0 if index < WARM_STEPS else SETTLE_S)
            assert len(rewards) == ENVIRONMENTS
            if index >= WARM_STEPS:
                paths.append(calls)
    return paths


class Kind(NamedTuple):
    """One kind of step.

    Attributes:
        title: The heading of the table.
        environment: The class to serve.
        run: Performs the steps.
        version: The protocol version.
        is_shown: Whether the page shows the figures, which must not depend on thread scheduling.
    """

    title: str
    environment: type
    run: Callable[[str, Tracer], list[list[Call]]]
    version: int = 1
    is_shown: bool = True


KINDS = {
    "v1-async": Kind(
        "Asynchronous client, protocol version 1, environment on a thread",
        ThreadEnvironment,
        _run_async,
    ),
    "v0-async": Kind(
        "Asynchronous client, protocol version 0, environment on a thread",
        ThreadEnvironment,
        _run_async,
        0,
    ),
    "sync": Kind("Synchronous client", ThreadEnvironment, _run_sync),
    "async-environment": Kind("Asynchronous environment", AsyncEnvironment, _run_async),
    "inline-environment": Kind(
        "Environment that declares `NEVER_BLOCKS`", InlineEnvironment, _run_async
    ),
    "vector": Kind(
        f"`VectorEnv` of {ENVIRONMENTS} environments, all in one step",
        ThreadEnvironment,
        _run_vector,
        is_shown=False,
    ),
}


def trace(name: str) -> StepPath:
    """Trace one step of a kind."""
    kind, tracer = KINDS[name], Tracer()
    before = os.environ.get("OPENENV_PROTOCOL")
    os.environ["OPENENV_PROTOCOL"] = str(kind.version)
    tracer.install()
    try:
        with serving(kind.environment, tracer) as url:
            # The shortest path, and of those the most frequent, since threads may be interrupted
            # anywhere.
            paths = Counter(map(tuple, kind.run(url, tracer)))
            return StepPath(min(paths, key=lambda path: (len(path), -paths[path])))
    finally:
        tracer.remove()
        if before is None:
            del os.environ["OPENENV_PROTOCOL"]
        else:
            os.environ["OPENENV_PROTOCOL"] = before


# ------------------------------------------------------------------ the page


def summary(paths: dict[str, StepPath]) -> str:
    """Write the table of some kinds."""
    rows = [
        f"| {KINDS[name].title} | {path.of('client')} | {path.of('server')} | {path.total} "
        f"| {path.way_back} |"
        for name, path in paths.items()
    ]
    head = "| Step | client | server | both | from the environment's return to the socket |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])


def table(path: StepPath) -> str:
    """Write the table of one path, with a row for successive calls of one module."""
    rows, number = ["| | side | module | calls |", "| --- | --- | --- | --- |"], 0
    group: list[Call] = []
    for call in [*path.calls, Call("", "", "")]:
        if group and (call.side, call.module) != (group[0].side, group[0].module):
            first = group[0]
            names = ", ".join(f"`{one.name}`" for one in group)
            if first.side == "environment":
                rows.append(f"| | | | **{ENVIRONMENT}** |")
            else:
                span = f"{number + 1}" if len(group) == 1 else f"{number + 1}-{number + len(group)}"
                rows.append(f"| {span} | {first.side} | `{first.module}` | {names} |")
                number += len(group)
            group = []
        group.append(call)
    return "\n".join(rows)


def section(paths: dict[str, StepPath]) -> str:
    """Return the text between the markers of the page."""
    shown = ("v1-async", "v0-async")
    parts = [summary(paths)]
    parts += [f"### {KINDS[name].title}\n\n{table(paths[name])}" for name in shown]
    return "\n\n".join(parts)


def replaced(page: str, text: str) -> str:
    """Replace the text between the markers of the page by `text`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> int:
    """Write the page, check it, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="Exit with 1 if the page is stale.")
    parser.add_argument("--print", action="store_true", help="Print the tables, write nothing.")
    parser.add_argument("--kind", choices=KINDS, help="Print this kind only.")
    given = parser.parse_args()
    if given.kind:
        path = trace(given.kind)
        print(table(path))
        print(summary({given.kind: path}))
        return 0
    paths = {name: trace(name) for name, kind in KINDS.items() if kind.is_shown or given.print}
    text, page = section(paths), PAGE.read_text("utf-8")
    if given.print:
        print(text)
    elif not given.check:
        PAGE.write_text(replaced(page, text), encoding="utf-8")
    elif page != replaced(page, text):
        print(f"{PAGE.name} is not what scripts/step_path.py traces", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
