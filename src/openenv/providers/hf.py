"""Servers in Hugging Face sandboxes: https://huggingface.co/docs/huggingface_hub/guides/sandbox

The sandboxes of a pool share a machine, which is a Hugging Face job, and an image. A server listens
on a socket in its own directory. The job's URL leads to the server, but needs credentials that
clients do not have; so a port of the loopback interface adds the credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from openenv._internal.net.sockets import open_stream
from openenv._internal.net.tls import client_context
from openenv._internal.packages import needs
from openenv._internal.redaction import redact, register_secret
from openenv.errors import ProviderError
from openenv.providers._hosted import (
    HOSTED,
    PORT,
    HostedProvider,
    HostedSandbox,
    SandboxGone,
    ServiceBusy,
    command_of_manifest,
    only,
    retried,
    service_error,
)
from openenv.providers._relay import CHUNK, Onward, Relay, through
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import check_positive
from openenv.providers.servers import Executed

__all__ = ["HFSandboxProvider"]

logger = logging.getLogger(__name__)

SOCKET = f'"$SBX_PROXY_DIR/{PORT}.sock"'
IDLE_S = 600
OPEN_TIMEOUT_S = 20.0
GOODBYE_S = 1.0

Credentials = Callable[[], Mapping[str, str]]


def sdk() -> Any:
    """Import Hugging Face's library, or raise MissingPackage."""
    with needs("HFSandboxProvider", "pip install 'openenv[hf]'"):
        import huggingface_hub
        import huggingface_hub.errors

        if not hasattr(huggingface_hub, "SandboxPool"):
            raise ModuleNotFoundError(
                "this huggingface_hub has no SandboxPool", name="huggingface_hub"
            )
    return huggingface_hub


class HFSandboxProvider(HostedProvider):
    """Serves environments from sandboxes of Hugging Face.

        provider = HFSandboxProvider(image="hf.co/spaces/me/echo_env")
        async with EchoEnv(provider=provider) as env: ...

    All providers of this process with the same image and flavor share a pool, whose machines hold
    many sandboxes each, and end with the process. Users and Landlock isolate the sandboxes, which
    have no ports: a server listens on the socket ``$SBX_PROXY_DIR/8000.sock``. The first of these
    commands starts the server: `cmd` of `launch`, `cmd` of the provider, the image's command
    ``server``, and the ``app`` of the ``openenv.yaml`` below ``/app``.

    Args:
        image: The default image of `launch`.
        env_vars: Environment variables of every server.
        flavor: The kind of machine, such as ``cpu-basic``.
        cmd: The shell command that starts the server.
        server_key: Key that each server requires. By default each server gets a fresh key, passed
            in a file, which clients in this process find automatically. None: no key. Servers of
            the public package check no keys, so all users of this machine can use them.

    `launch` takes `cmd` and `idle_timeout`: seconds without requests after which a sandbox is
    deleted, 600 by default.

    Raises:
        MissingPackage: `huggingface_hub` is not installed, or is older than 2.
    """

    capabilities: ClassVar[Capabilities] = HOSTED

    def __init__(
        self,
        *,
        image: str,
        env_vars: dict[str, str] | None = None,
        flavor: str = "cpu-basic",
        cmd: str | None = None,
        server_key: str | FreshKey | None = FRESH_KEY,
    ) -> None:
        super().__init__(image, env_vars, cmd, server_key)
        self._flavor = flavor
        sdk()

    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        only(options, "cmd", "idle_timeout")
        idle_s = options.get("idle_timeout", IDLE_S)
        check_positive(idle_timeout=idle_s)

        def create() -> Any:
            with _failing(f"a sandbox for {image} could not be made"):
                return _pools.of(image, self._flavor).create(
                    env=dict(env_vars), idle_timeout=idle_s
                )

        return _HFSandbox(retried(create, is_repeatable=False))

    def _resolved(self, sandbox: HostedSandbox, image: str, command: str | None) -> str:
        if command is None and sandbox.run("command -v server", 60.0).exit_code == 0:
            command = "exec server"
        if command is None:
            command = command_of_manifest(sandbox, f"--uds {SOCKET}")
        if command is None:
            raise ValueError(
                f"nothing says how to start the server of {image}: there is no command 'server', "
                f"and no openenv.yaml with an 'app' below /app; pass cmd='uvicorn server.app:app "
                f"--uds {SOCKET}', or the server's own command"
            )
        return f'mkdir -p "$SBX_PROXY_DIR"\n{command}'


# ---------------------------------------------------------------------- pools


class _SandboxPools:
    """The pools of this process, each created with its first sandbox.

    Pools last as long as the process, since a machine takes seconds to start, and clients come and
    go. Hugging Face ends a machine that has had no sandboxes for ten minutes.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._turns: dict[tuple[int, str, str], threading.Lock] = {}
        self._made: dict[tuple[int, str, str], Any] = {}

    def of(self, image: str, flavor: str) -> Any:
        key = (os.getpid(), image, flavor)  # a forked child has no pools
        with self._turn:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            if key not in self._made:
                named = hashlib.sha1(f"{image}\n{flavor}".encode(), usedforsecurity=False)
                pool = sdk().SandboxPool(
                    image=image, flavor=flavor, name=f"openenv-{named.hexdigest()[:12]}"
                )
                self._made[key] = pool
                weakref.finalize(pool, _close, pool.close, os.getpid())
            return self._made[key]

    def close(self) -> None:
        """End all machines of this process."""
        with self._turn:
            mine = [key for key in self._made if key[0] == os.getpid()]
            pools = [self._made.pop(key) for key in mine]
        for pool in pools:
            _close(pool.close, os.getpid())


def _close(close: Callable[[], None], owner: int) -> None:
    if os.getpid() == owner:
        try:
            close()
        except Exception as error:  # errors of the library; idle machines end by themselves
            logger.warning("a pool of sandboxes could not be closed: %s", redact(str(error)))


_pools = _SandboxPools()


# ---------------------------------------------------------------------- a sandbox


class _HFSandbox(HostedSandbox):
    files = "$HOME"

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self._relay: Relay | None = None
        self.name = str(sandbox.id)
        for value in sandbox.proxy_headers.values():
            register_secret(value.removeprefix("Bearer "))

    def path(self, name: str) -> str:
        return super().path(name).rpartition("/")[2]  # relative to the sandbox's home

    def run(self, script: str, timeout_s: float) -> Executed:
        with _failing("a command could not be run"):
            done = self._sandbox.run(["sh", "-c", script], timeout=timeout_s, check=False)
        if done.timed_out:
            raise ProviderError(f"a command could not be run: it took longer than {timeout_s:g} s")
        code = done.exit_code if done.exit_code is not None else 128 + (done.signal or 0)
        return Executed(code, done.stdout, done.stderr)

    def write(self, path: str, data: bytes) -> None:
        with _failing("a file could not be written"):
            self._sandbox.files.write(path, data, mode="600")

    def address(self) -> str:
        sandbox = self._sandbox
        reach = _with_credentials(sandbox.proxy_url_for(PORT), lambda: sandbox.proxy_headers)
        self._relay = Relay(None, through(reach))
        return f"http://127.0.0.1:{self._relay.port}"

    def why_ended(self) -> str | None:
        try:
            with _failing("nothing is known"):
                self._sandbox.processes()
        except SandboxGone as error:
            return str(error)
        return None

    def delete(self) -> None:
        if self._relay is not None:
            self._relay.close()
        with _failing(f"{self.name} could not be deleted"):
            self._sandbox.kill()
        # The library reports a failure by a warning only.
        if getattr(self._sandbox, "_killed", True) is False and self.why_ended() is None:
            raise ServiceBusy(f"{self.name} could not be deleted", nothing_was_done=False)


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    hub = sdk()
    answered = hub.errors.HfHubHTTPError
    transport = next(one for one in answered.__mro__ if one.__name__ == "HTTPError")
    try:
        yield
    except (hub.errors.SandboxError, answered) as error:
        response = error if isinstance(error, hub.errors.SandboxError) else error.response
        status = getattr(response, "status_code", None)
        hint = "; is HF_TOKEN the right one? (or: hf auth login)"
        raise service_error(f"{what}: {error}", status, hint) from None
    except transport as error:
        raise ServiceBusy(redact(f"{what}: {error}"), nothing_was_done=False) from None


# ---------------------------------------------------------------------- connections to the server


def _with_credentials(url: str, credentials: Credentials) -> Callable[[asyncio.StreamReader], Any]:
    """Return a `Reach` for a server behind a URL: one request per connection, with credentials.

    The credentials include ``Authorization``, so the client's own key becomes ``X-API-Key``.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    host, port, prefix = parts.hostname, parts.port or 443, parts.path.rstrip("/")
    passing: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def reach(reader: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)  # nothing else references it while a half-closed connection waits
        try:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
                raise OSError("no request") from error
            told = await asyncio.to_thread(credentials)
            netloc = host if port == 443 else f"{host}:{port}"
            opening = open_stream(
                f"https://{host}:{port}",
                tls=client_context(),
                timeout_s=OPEN_TIMEOUT_S,
                limit=CHUNK,
            )
            onward = await asyncio.wait_for(opening, OPEN_TIMEOUT_S)
            whole = cast(Any, _WholeWriter(onward[1]))
            with contextlib.closing(onward[1]):
                yield (onward[0], whole), _rewritten(head, netloc, prefix, told)
        finally:
            passing.discard(task)

    return reach


class _WholeWriter:
    """A writer whose end closes the connection, since TLS cannot end only one direction."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.write, self.drain = writer.write, writer.drain

    def write_eof(self) -> None:
        self._writer.close()
        # The other side may never acknowledge the end.
        asyncio.get_running_loop().call_later(GOODBYE_S, self._writer.transport.abort)


def _rewritten(head: bytes, host: str, prefix: str, told: Mapping[str, str]) -> bytes:
    line, *headers = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = line.partition(" ")
    ours = {"host", "connection", "authorization", *(name.lower() for name in told)}
    pairs = [
        (name.strip(), value.strip()) for name, _, value in (h.partition(":") for h in headers)
    ]
    lower = {name.lower(): value for name, value in pairs}
    goes_on = "upgrade" in lower and "upgrade" in lower.get("connection", "").lower()
    kept = [f"{name}: {value}" for name, value in pairs if name.lower() not in ours]
    key = lower.get("authorization", "")
    if key[:7].lower() == "bearer " and "x-api-key" not in lower:
        kept.append(f"X-API-Key: {key[7:].strip()}")
    kept += [f"{name}: {value}" for name, value in told.items()]
    kept += [f"Host: {host}", f"Connection: {'Upgrade' if goes_on else 'close'}"]
    return "\r\n".join([f"{method} {prefix}{rest}", *kept, "", ""]).encode("latin-1")
