"""Running a server: called by ``openenv serve``, an environment's ``main`` and the providers.

``python -m openenv.server.run TARGET`` does the same without the imports of the command line. A
provider starts it this way, and has it write its port into a file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import logging
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import uvicorn.config
import uvicorn.logging

from openenv._internal.children import calm_garbage_collector, keep_freed_memory
from openenv._internal.logs import JSONFormatter, set_up_logs
from openenv._internal.redaction import redact
from openenv._internal.replacing import replace_text
from openenv._internal.shadowing import keep_libraries
from openenv.environment import Environment
from openenv.errors import KeyFileError
from openenv.execution.manager import SessionManager
from openenv.server.auth import warn_if_open
from openenv.server.loading import TargetError, load_target
from openenv.server.socket import SocketProtocol
from openenv.server.workers import managers_of, serve_from_workers
from openenv.settings import (
    api_key,
    api_key_file,
    compresses,
    hide_keys,
    log_format,
    log_level,
    use_api_key_file,
)
from openenv.types import Action, Observation, State

# A client answers pings on its event loop, which a trainer may block for minutes (an optimizer
# step). A crash is still noticed at once: the client's operating system closes the connection.
PING_INTERVAL_S = 20
PING_TIMEOUT_S = 600
SHUTDOWN_GRACE_S = 10
OWN_FILES = 64  # rough number of a server's descriptors that are not connections
LISTEN_BACKLOG = 4096
TICK_S = 0.1
INTERRUPTED = 130  # exit status of a program that Ctrl-C ended
logger = logging.getLogger(__name__)

TARGET_VARIABLE = "OPENENV_TARGET"

_LIMITS = {
    "memory_bytes": "RLIMIT_AS",
    "cpu_seconds": "RLIMIT_CPU",
    "open_files": "RLIMIT_NOFILE",
    "file_size_bytes": "RLIMIT_FSIZE",
    "core_bytes": "RLIMIT_CORE",
}


def serve(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    bound: socket.socket | None = None,
    reload: bool = False,
    reload_dirs: Sequence[str] = (),
    ssl_certfile: str | os.PathLike[str] | None = None,
    ssl_keyfile: str | os.PathLike[str] | None = None,
    ssl_keyfile_password: str | None = None,
) -> None:
    """Serve until stopped. SIGTERM and SIGINT close every environment first.

    Args:
        app: An ASGI application; with `reload`, a target (see `openenv.server.loading`), since
            another process has to load it.
        host: The address to listen on.
        port: The port to listen on.
        bound: A socket that is already listening, instead of `host` and `port`.
        reload: Restart when files change.
        reload_dirs: Directories to watch for changes.
        ssl_certfile: The server's certificate (PEM), with the intermediate certificates. The
            server then accepts only TLS.
        ssl_keyfile: The certificate's private key (PEM); by default in the same file.
        ssl_keyfile_password: The password of the private key.

    Raises:
        SystemExit: The server did not start, or lost its workers for good; the log says why.
        TargetError: Keys are configured, but the application would not ask for them.
    """
    address = host if bound is None else bound.getsockname()[0]
    options = _options() | {"host": address, "port": port}
    set_up_logs()
    if ssl_certfile is not None:
        options |= {"ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile}
        options |= {"ssl_keyfile_password": ssl_keyfile_password}
    if reload:
        os.environ[TARGET_VARIABLE] = app
        options |= {"reload": True, "reload_dirs": list(reload_dirs), "factory": True}
        uvicorn.run("openenv.server.run:target_app", **options)
        return
    check_guarded(app)
    if not has_keys(app):
        warn_if_open(options["host"])
    hide_keys()
    _raise_open_files(app)
    calm_garbage_collector()
    keep_freed_memory()
    server = _OpenEnvServer(uvicorn.Config(app, **options), managers_of(app))
    server.run(sockets=None if bound is None else [bound])
    if not server.started or server.is_hopeless:
        raise SystemExit(1)


def has_keys(app: Any) -> bool:
    """Return whether an application has environments and all of them need a key."""
    managers = managers_of(app)
    return bool(managers) and all(manager.keys is not None for manager in managers)


def check_guarded(app: Any) -> None:
    """Check that configured keys are asked for: a door that only looks locked is worse than an
    open one.

    Raises:
        TargetError: Keys are configured, but the application serves no environment of `create_app`.
    """
    if not (api_key() or api_key_file()) or has_keys(app):
        return
    if not managers_of(app):
        raise TargetError(
            "there are keys, but the application serves no environment of create_app, so nothing "
            "would ask for them; take OPENENV_API_KEY and OPENENV_API_KEY_FILE away, or start its "
            "provider with api_key=None"
        )


def _options() -> dict[str, Any]:
    return {
        "log_config": _log_config(),
        "log_level": log_level(),
        "ws": SocketProtocol,
        "ws_per_message_deflate": compresses(),
        "ws_ping_interval": PING_INTERVAL_S,
        "ws_ping_timeout": PING_TIMEOUT_S,
        "backlog": LISTEN_BACKLOG,
        "timeout_graceful_shutdown": SHUTDOWN_GRACE_S,
    }


class _Nothing(Environment[Action, Observation, State]):
    """An environment for warming up, which is never instantiated."""


def warm_up() -> None:
    """Do once the work that forked servers would repeat: see `openenv._internal.forkserver`."""
    from openenv.server.app import create_app

    options: dict[str, Any] = {**_options(), "log_config": None}
    config = uvicorn.Config(create_app(_Nothing), **options)
    config.load()
    config.get_loop_factory()


def _raise_open_files(app: Any) -> None:
    """Raise the limit of open files to the system's maximum, since each connection takes one, and
    warn if the limit is below the number of sessions that `app` may hold.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems report a wrong hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sum(manager.max_sessions for manager in managers_of(app))
    if allowed != resource.RLIM_INFINITY and wanted + OWN_FILES > allowed:
        logger.warning(
            "%d sessions are allowed, but this system lets a process open %d files, so about %d "
            "connections. Raise the hard limit (`ulimit -Hn`, LimitNOFILE=, --ulimit nofile=), or "
            "let sessions share connections: VectorEnv does",
            wanted,
            allowed,
            max(0, allowed - OWN_FILES),
        )


class _OpenEnvServer(uvicorn.Server):
    """A uvicorn server that stops at once, and cleanly even if a client leaves at that moment.

    Attributes:
        is_hopeless: The server ended because no environment can run in it any more.
    """

    def __init__(self, config: uvicorn.Config, managers: Sequence[SessionManager] = ()) -> None:
        super().__init__(config)
        self._managers = managers
        self.is_hopeless = False

    async def on_tick(self, counter: int) -> bool:
        for manager in self._managers:
            if not self.is_hopeless and (why := manager.executors.hopeless) is not None:
                logger.error("the server ends: %s", why)
                self.is_hopeless = self.should_exit = True
        return await super().on_tick(counter)

    async def main_loop(self) -> None:
        # uvicorn itself checks only every 0.1 s whether it should stop.
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._told.wait(), TICK_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if hasattr(self, "_told"):
            self._loop.call_soon_threadsafe(self._told.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn sends such a client a second close frame, which raises, and then leaves without
        # telling the application about the shutdown.
        from websockets.exceptions import InvalidState

        try:
            await super().shutdown(sockets)
        except InvalidState:
            await asyncio.sleep(0.01)  # by then that client has left
            await self.shutdown(sockets)


def _log_config() -> dict[str, Any]:
    """Return uvicorn's logging configuration, with all lines on stderr and without secrets."""
    config = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["handlers"]["access"]["stream"] = "ext://sys.stderr"
    config["filters"] = {"probes": {"()": _HealthFilter}}
    config["handlers"]["access"]["filters"] = ["probes"]
    if log_format() == "json":
        config["formatters"] = {name: {"()": JSONFormatter} for name in config["formatters"]}
    else:
        config["formatters"]["default"]["()"] = _DefaultFormatter
        config["formatters"]["access"]["()"] = _AccessFormatter
    return config


class _HealthFilter(logging.Filter):
    """Passes a request for ``/health`` only if its status differs from that of the last one.

    Kubernetes asks every few seconds, which would push all else out of the log's last lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: object = None

    def filter(self, record: logging.LogRecord) -> bool:
        match record.args:
            case (_, "GET", "/health", _, status):
                last, self._last = self._last, status
                return status != last
        return True


class _DefaultFormatter(uvicorn.logging.DefaultFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _AccessFormatter(uvicorn.logging.AccessFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def serve_from_command_line(app: Any, *, host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve `app`, with ``--host`` and ``--port`` from the command line.

    An environment's ``main`` calls this function, so that ``uv run server --port 9000`` works.
    """
    parser = argparse.ArgumentParser(description="Serve this environment.")
    parser.add_argument("--host", default=host, help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=port, help="port to listen on (%(default)s)")
    parser.add_argument("--ssl-certfile", help="certificate (PEM): speak TLS")
    parser.add_argument("--ssl-keyfile", help="the certificate's private key (PEM)")
    parser.add_argument("--ssl-keyfile-password-file", help="what that is encrypted with")
    arguments = parser.parse_args()
    try:
        tls = tls_options(
            arguments.ssl_certfile, arguments.ssl_keyfile, arguments.ssl_keyfile_password_file
        )
        serve(app, host=arguments.host, port=arguments.port, **tls)
    except TargetError as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:  # every environment is already closed
        raise SystemExit(INTERRUPTED) from None


def show_errors(app: Any) -> None:
    """Send clients of `app` the text of every exception."""
    for manager in managers_of(app):
        manager.debug = True


def target_app() -> Any:
    """Load the application; called in the process that `reload` starts."""
    set_up_logs()
    app = load_target(os.environ[TARGET_VARIABLE])
    check_guarded(app)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the target of the command line, and return an exit code."""
    arguments = _parse(argv)
    set_up_logs()
    _apply_limits(arguments.limit)
    if arguments.api_key_file is not None:
        use_api_key_file(arguments.api_key_file)
    keep_libraries()
    sys.path.insert(0, str(Path(arguments.app_dir)))
    sys.path += [entry for entry in arguments.path if entry not in sys.path]
    try:
        bound = bind(arguments.host, arguments.port)
    except OSError as error:
        return _failed(f"cannot listen on {arguments.host} port {arguments.port}: {error}")
    if arguments.port_file is not None:
        replace_text(Path(arguments.port_file), str(bound.getsockname()[1]))
    try:
        app = load_target(arguments.target)
        if arguments.workers is not None:
            serve_from_workers(app, arguments.target, arguments.workers)
        check_guarded(app)
        if arguments.debug:
            show_errors(app)
        tls = tls_options(
            arguments.ssl_certfile, arguments.ssl_keyfile, arguments.ssl_keyfile_password_file
        )
    except (TargetError, KeyFileError, OSError) as error:
        return _failed(str(error))
    try:
        serve(app, host=arguments.host, bound=bound, **tls)
    except KeyboardInterrupt:  # every environment is already closed
        return INTERRUPTED
    return 0


def _failed(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)  # noqa: T201 - the process's log
    return 2


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m openenv.server.run")
    parser.add_argument("target")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=_count)
    parser.add_argument("--app-dir", default=".")
    parser.add_argument("--path", action="append", default=[], metavar="DIRECTORY")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--port-file")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--api-key-file")
    parser.add_argument("--ssl-certfile")
    parser.add_argument("--ssl-keyfile")
    parser.add_argument("--ssl-keyfile-password-file")
    return parser.parse_args(argv)


def tls_options(
    certfile: str | None, keyfile: str | None, password_file: str | None
) -> dict[str, Any]:
    """Check the files and return the TLS arguments of `serve`; empty without a certificate.

    Raises:
        TargetError: A file is missing or invalid, or the files do not belong together.
    """
    if certfile is None:
        if keyfile is not None or password_file is not None:
            raise TargetError("a private key alone is of no use: give --ssl-certfile too")
        return {}
    try:
        password = None if password_file is None else Path(password_file).read_text().rstrip("\r\n")
        # Without a password, OpenSSL would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certfile, keyfile, password or (lambda: "")
        )
    except (OSError, ValueError) as error:
        files = " and ".join(name for name in (certfile, keyfile) if name is not None)
        raise TargetError(f"TLS cannot be had with {files}: {error}") from None
    return {
        "ssl_certfile": certfile,
        "ssl_keyfile": keyfile,
        "ssl_keyfile_password": password,
    }


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def bind(host: str, port: int) -> socket.socket:
    """Listen on a port before the application is ready, so that early clients wait.

    Raises:
        OSError: The port is in use, or this machine does not have the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only if the socket's protocol is named. Left on, it delays
    # by 40 ms every answer that follows another on a connection.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(LISTEN_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def _apply_limits(limits: Sequence[str]) -> None:
    import resource

    for limit in limits:
        name, _, value = limit.partition("=")
        which = getattr(resource, _LIMITS[name])
        _, hard = resource.getrlimit(which)
        wanted = int(value)
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise SystemExit(f"{name}={wanted} exceeds the hard limit of this system, {hard}")
        resource.setrlimit(which, (wanted, wanted))


if __name__ == "__main__":
    sys.exit(main())
