"""`openenv serve`: an environment on a port of this machine."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from openenv import settings
from openenv._internal.logs import set_up_logs
from openenv._internal.net.peers import is_loopback
from openenv.cli._console import (
    DEBUG_HINT,
    CommandError,
    MisuseError,
    did_you_mean,
    emit,
    say,
    show_tracebacks,
    stderr,
)
from openenv.cli._failures import describe_user_error
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._wrapped import MCPServeOptions
from openenv.settings import use_api_key_file

if TYPE_CHECKING:
    from openenv.execution.recording import RecordingOptions
    from openenv.tasks import ServedTasks

logger = logging.getLogger(__name__)


class LogFormat(str, Enum):
    """The formats of log lines."""

    TEXT = "text"
    JSON = "json"


ANY_ADDRESS = ("0.0.0.0", "::", "")


# These are also options of `openenv mcp`.
TARGET: str = argument(
    ".",
    metavar="TARGET",
    autocompletion=complete_environments,
    help="Environment to serve: a directory with an openenv.yaml, an installed environment, a "
    "Python file, or module:attribute.",
)
RECORD: Path | None = option(
    None,
    metavar="DIRECTORY",
    help="Record all sessions in this directory, for `openenv replay`. By default the directory "
    "in OPENENV_RECORD, if set.",
)
DEBUG: bool = option(
    False, help="Send clients the text of exceptions, not only the class and an incident id."
)


@dataclass(frozen=True)
class TLSOptions:
    """The certificate of a server."""

    ssl_certfile: str | None = option(
        None, help="Serve https and wss with this TLS certificate (PEM)."
    )
    ssl_keyfile: str | None = option(None, help="Private key of the certificate (PEM).")
    ssl_keyfile_password_file: str | None = option(
        None, help="File with the password of the private key."
    )


@takes_options
def serve(
    *,
    context: typer.Context,
    target: str = TARGET,
    wrapping: MCPServeOptions,
    host: str = option("127.0.0.1", help="Address to listen on."),
    port: int = option(
        8000, "-p", min=0, max=65535, help="Port to listen on; 0 chooses a free port."
    ),
    reload: bool = option(
        False, help="Restart the server when the environment's files change; implies --debug."
    ),
    workers: int | None = option(
        None,
        min=1,
        help="Number of worker processes for environments: a crash affects one worker only, and "
        "N workers use N cores. By default environments run in the server's process.",
    ),
    max_concurrent_envs: int | None = option(
        None,
        min=1,
        metavar="N",
        show_default="MAX_CONCURRENT_ENVS, else the environment's own, usually 64",
        help="Maximum number of sessions at once. Further ones wait in a queue.",
    ),
    record: Path | None = RECORD,
    record_on_request: bool = option(
        False, help="Record only the sessions whose clients request it."
    ),
    tasks: str | None = option(
        None,
        metavar="SOURCE",
        help="Tasks that `reset` can begin: a .jsonl or .parquet file, a dataset folder, "
        "hf://datasets/ORG/NAME, or module:function. By default the environment's own.",
    ),
    web: bool = option(
        False,
        help="Also serve a web page at /web/ to play the environment and watch sessions. By "
        "default the page is served if ENABLE_WEB_INTERFACE is set.",
    ),
    debug: bool = DEBUG,
    log_format: LogFormat | None = option(
        None,
        show_default="OPENENV_LOG_FORMAT, else text",
        help="Format of the log: text, or JSON with an object per line.",
    ),
    api_key_file: Path | None = option(
        None,
        help="File of accepted keys (TOML or JSON lines), readable by its owner only. By default "
        "the file in OPENENV_API_KEY_FILE, and the key in OPENENV_API_KEY.",
    ),
    tls: TLSOptions,
    as_json: bool = option(False, "--json", help="Print the URL as JSON once the server listens."),
) -> None:
    """Serve an environment over WebSocket and HTTP.

    The server runs until Ctrl-C or SIGTERM.

    Examples:
        openenv serve echo --port 9000 --web
        openenv serve --mcp 'uvx mcp-server-time'  # an MCP server as an environment
    """
    source = context.get_parameter_source("target")
    is_given = source is not None and source.name == "COMMANDLINE"
    wrapping.check(has_target=is_given, reload=reload)
    if reload and workers is not None:
        raise MisuseError(
            "--reload and --workers exclude each other",
            hint="use --reload while you write the environment, --workers when you run it",
        )
    if tasks is not None and (reload or wrapping.mcp):
        raise MisuseError(
            f"--tasks and {'--reload' if reload else '--mcp'} exclude each other",
            hint="give them in the program: create_app(..., tasks=SOURCE)",
        )
    from openenv._internal.packages import MissingPackage
    from openenv.errors import ConnectError
    from openenv.server import run
    from openenv.server.loading import TargetError
    from openenv.tasks import ServedTasks, TasksetError

    if web:  # create_app reads the setting, perhaps in another process
        settings.enable_web_interface()
    if api_key_file is not None:
        use_api_key_file(str(api_key_file))
    sys.path.insert(0, str(Path.cwd()))
    recording = recording_of(record, record_on_request, reload)
    if log_format is not None:  # worker processes and the process of --reload read the variable
        os.environ["OPENENV_LOG_FORMAT"] = log_format.value
    set_up_logs()
    if max_concurrent_envs is not None:  # as above
        settings.set_max_concurrent_envs(max_concurrent_envs)
    if wrapping.mcp:
        target, application = str(wrapping), wrapping.application(workers, recording, debug)
    else:
        target = package_called(target)
        try:
            served = None if tasks is None else ServedTasks(tasks)
        except (TasksetError, MissingPackage, ConnectError) as error:
            raise MisuseError(f"--tasks: {error}") from error
        application = load_application(target, workers, recording, debug, served)
        if served is not None:
            say(f"tasks: {served}")
    if max_concurrent_envs is not None:
        _check_limit(application, target, max_concurrent_envs)
    try:
        options = run.tls_options(tls.ssl_certfile, tls.ssl_keyfile, tls.ssl_keyfile_password_file)
    except TargetError as error:
        raise MisuseError(str(error)) from error
    bound = _listen(host, port)
    scheme = "https" if options else "http"
    url = f"{scheme}://{_reachable(host)}:{bound.getsockname()[1]}"
    if settings.log_format() == "json":
        logger.info("serving %s at %s", target, url)
    else:
        _announce(target, url, host, workers, recording, application)
    if as_json:
        emit({"url": url, "pid": os.getpid(), "target": target})
    if reload:
        _reload(target, bound, host, options)
    else:
        # SIGTERM keeps its default effect, so that a supervisor sees the signal as the cause.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run.serve(application, host=host, bound=bound, **options)


def _check_limit(application: Any, target: str, wanted: int) -> None:
    """Refuse a limit of sessions that the application does not keep."""
    from openenv.server.workers import managers_of

    found = sorted({manager.max_sessions for manager in managers_of(application)})
    if found == [wanted]:
        return
    has = f"serves {found[0]} at once" if found else "does not say how many it serves at once"
    raise MisuseError(
        f"--max-concurrent-envs {wanted} has no effect: {target} {has}",
        hint="declare SUPPORTS_CONCURRENT_SESSIONS = True on a class whose instances share nothing"
        if found == [1]
        else "the application sets it: create_app(..., max_concurrent_envs=N)",
    )


def recording_of(
    directory: Path | None, on_request: bool = False, reload: bool = False
) -> RecordingOptions | None:
    """Return the recording options, or None without recording."""
    from openenv.server.recording import recording_options

    if reload and (directory is not None or on_request):
        raise MisuseError(
            "--reload and --record exclude each other",
            hint="set OPENENV_RECORD, or record without --reload",
        )
    try:
        options = recording_options(directory, every_session=not on_request)
    except ValueError as error:
        raise MisuseError(str(error)) from error
    if options is None and on_request:
        raise MisuseError("--record-on-request needs to know where", hint="--record DIRECTORY")
    if options is None:
        return None
    directory = Path(options.directory)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return options
    except OSError as error:
        raise MisuseError(
            f"nothing can be recorded in {directory}: {error.strerror}",
            hint="name a directory that can be written to: --record DIRECTORY",
        ) from error


def _reload(target: str, bound: socket.socket, host: str, tls: dict[str, Any]) -> None:
    from openenv.server import run

    # Another process loads the target, and its supervisor binds the port itself.
    port = bound.getsockname()[1]
    bound.close()
    os.environ["OPENENV_DEBUG"] = "1"
    name = target.partition(":")[0]
    if Path(name).exists():
        sources = Path(name).resolve() if Path(name).is_dir() else Path(name).resolve().parent
    else:
        file = getattr(sys.modules.get(name), "__file__", None)
        sources = Path(file).parent if file else Path.cwd()
    run.serve(target, host=host, port=port, reload=True, reload_dirs=[str(sources)], **tls)


def package_called(target: str) -> str:
    """Return the package of an installed environment by name: ``2048`` gives ``game_2048_env``.

    Paths, ``module:attribute``, dotted names and unknown names are returned unchanged. An
    environment takes precedence over another package of the same name, as `chess_env` over
    ``chess``.
    """
    from openenv.hub.discovery import get_discovery

    if Path(target).exists() or not target.replace("-", "_").replace("_", "").isalnum():
        return target
    info = get_discovery().get_environment_by_name(target)
    return target if info is None else info.module


def load_application(
    target: str,
    workers: int | None,
    recording: RecordingOptions | None,
    debug: bool,
    tasks: ServedTasks | None = None,
) -> Any:
    """Import a target, and prepare it for serving."""
    from openenv.errors import KeyFileError
    from openenv.manifest import ManifestError
    from openenv.server.loading import RunsElsewhere, TargetError, load_target
    from openenv.server.recording import record_sessions
    from openenv.server.run import check_guarded, show_errors
    from openenv.server.tasks import give_tasks
    from openenv.server.workers import serve_from_workers

    if debug:
        show_tracebacks()
    try:
        application = load_target(target)
        if tasks is not None:
            give_tasks(application, target, tasks)
        if workers is not None:
            serve_from_workers(application, target, workers)
        if recording is not None:
            record_sessions(application, target, recording)
        if debug:
            show_errors(application)
        check_guarded(application)
        return application
    except (ManifestError, KeyFileError) as error:
        raise CommandError(str(error)) from error
    except RunsElsewhere as error:
        raise CommandError(error.reason, hint=error.hint) from error
    except TargetError as error:
        raise CommandError(str(error), hint=_other_targets(target)) from error
    except Exception as error:  # any error of the environment's own code
        raise CommandError(
            f"{target} could not be loaded: {describe_user_error(error)}",
            hint=_missing_module(error, target) or DEBUG_HINT,
        ) from error


def _missing_module(error: Exception, target: str) -> str | None:
    """Suggest how to install a missing module, never by the module's name, which may be a
    stranger's.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    place = Path(target.partition(":")[0])
    directory = place if place.is_dir() else place.parent
    for file, install in (
        ("pyproject.toml", f"-e {shlex.quote(str(directory))}"),
        *(
            (file, f"-r {shlex.quote(str(directory / file))}")
            for file in ("requirements.txt", "server/requirements.txt")
        ),
    ):
        if (directory / file).is_file():
            return f"install what it depends on: pip install {install}"
    return (
        f"no package that is installed, and no file of the directory, is {error.name!r}; install "
        "what the environment's README names, or correct the import"
    )


def _other_targets(target: str) -> str:
    from openenv.hub.discovery import get_discovery

    here = Path.cwd()
    nearby = {
        os.path.relpath(manifest.parent, here)
        for directory in (here, here / "envs", Path(target).parent)
        for manifest in directory.glob("*/openenv.yaml")
    }
    installed = get_discovery().discover()
    known = sorted(nearby | {info.module for info in installed.values()})
    wrong = target.partition(":")[0].rstrip("/")
    listed = ", ".join(known[:8])
    return did_you_mean(wrong, [*known, *installed]) or (
        f"environments found here: {listed}" if known else "make one: openenv init my_env"
    )


def _listen(host: str, port: int) -> socket.socket:
    from openenv.server.run import LISTEN_BACKLOG, bind

    try:
        bound = bind(host, port)
        bound.listen(LISTEN_BACKLOG)  # from here on a client waits instead of being refused
        return bound
    except OSError as error:
        why = f"cannot listen on {host}: {error.strerror}"
        hint = "--host 127.0.0.1 is for this machine, --host 0.0.0.0 for all that reach it"
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} of {host} is in use"
            hint = f"take another: --port {min(port + 1, 65535)}, or --port 0 for any free one"
        elif error.errno == errno.EACCES:
            why = f"port {port} may not be used: {error.strerror}"
            hint = "ports below 1024 need privileges; take a higher one with --port"
        raise CommandError(why, hint=hint) from error


def _reachable(host: str) -> str:
    """Return a host name under which this machine reaches a server on `host`."""
    if host in ANY_ADDRESS:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _announce(
    target: str,
    url: str,
    host: str,
    workers: int | None,
    recording: RecordingOptions | None,
    application: Any,
) -> None:
    from rich.panel import Panel
    from rich.text import Text

    from openenv.server.run import has_keys

    rows = [
        ("serving", target),
        ("url", url + (", open to the network" if host in ANY_ADDRESS else "")),
        ("docs", f"{url}/docs"),
        ("health", f"{url}/health"),
        ("session", f"ws{url.removeprefix('http')}/ws"),
        ("mcp", f"{url}/mcp"),
    ]
    if settings.web_interface_enabled():
        rows.insert(2, ("page", f"{url}/web/"))
    if workers is not None:
        rows.insert(1, ("workers", f"{workers} process{'es' if workers > 1 else ''}"))
    if recording is not None:
        which = "" if recording.every_session else ", on request"
        rows.append(("recorded", f"in {recording.directory}{which}"))
    is_open = not is_loopback(host) and not has_keys(application)
    if has_keys(application):
        rows.append(("keys", "wanted of everybody"))
    elif is_open:
        rows.append(
            ("keys", "NONE: every client that reaches this address may use the environments")
        )
    text = Text("\n").join(Text.assemble((f"{name:<9}", "dim"), value) for name, value in rows)
    stderr().print(Panel.fit(text, title="OpenEnv", border_style="red" if is_open else "green"))
    module, name = _client()
    say(
        f"from {module} import {name}\n"
        f'with {name}(base_url="{url}") as env:\n'
        "    print(env.reset().observation)\n"
    )


def _client() -> tuple[str, str]:
    """Return the environment's client class, if imported, or else `GenericEnvClient`."""
    from openenv.client import EnvClient

    for cls in EnvClient.__subclasses__():
        package = cls.__module__.rpartition(".")[0]
        if package.partition(".")[0] != "openenv":
            offered = getattr(sys.modules.get(package), cls.__name__, None) is cls
            return (package if offered else cls.__module__), cls.__name__
    return "openenv", "GenericEnvClient"
