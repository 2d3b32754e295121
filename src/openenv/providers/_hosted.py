"""Base classes of providers for hosted sandboxes.

A service provides a sandbox: a remote machine, with a URL that leads to one of its ports. A shell
command starts the server in the sandbox; files there hold the log, the process id and the exit
code.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from openenv._internal.net.keys import forget_key, note_key
from openenv._internal.redaction import redact, register_secrets_of
from openenv._internal.timing import backoff_s
from openenv._internal.yaml import UnreadableYAML, read_yaml
from openenv.errors import ProviderError, ProviderExited
from openenv.providers._readiness import LOG_TAIL_LINES
from openenv.providers.base import FRESH_KEY, FreshKey
from openenv.providers.options import key_file, key_of, slug
from openenv.providers.owners import is_orphan, own_name
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    MANAGED,
    Executed,
    ImageProvider,
    LaunchRequest,
    Server,
    last_lines,
)

logger = logging.getLogger(__name__)

PORT = 8000
READY_TIMEOUT_S = 120.0
SCRIPT_TIMEOUT_S = 60.0
CHECK_S = 1.0  # between two checks of a starting server's process, each of which is a request
LOG_BYTES = 2**20
TRIES, FIRST_PAUSE_S, LAST_PAUSE_S = 4, 0.2, 8.0
FILES = "openenv-server"  # .sh, .key, .pid, .log and .exit, in the sandbox

HOSTED = replace(
    MANAGED,
    isolation="hosted sandbox",
    own_files=True,
    networks=("internet",),
    orphans="end when their time is over",
)

T = TypeVar("T")


class SandboxGone(ProviderError):
    """The service does not have the sandbox, or no longer has it."""


class UnknownOption(TypeError, ValueError):
    """An option does not exist. The public package's providers raise `ValueError`."""


class ServiceBusy(ProviderError):
    """The service failed temporarily: too many requests, or a fault of the service.

    Args:
        message: The service's message.
        nothing_was_done: Whether the service did nothing, so that a retry is safe.
    """

    def __init__(self, message: str, nothing_was_done: bool) -> None:
        super().__init__(message)
        self.nothing_was_done = nothing_was_done


def retried(
    work: Callable[[], T], *, is_repeatable: bool, until: float | None = None, tries: int = TRIES
) -> T:
    """Send a request, and retry if the service is busy.

    Args:
        work: Sends the request.
        is_repeatable: Whether the request is idempotent, so that it is also retried after faults of
            the service.
        until: Time at which to give up, as of `time.monotonic`.
        tries: Maximum number of attempts if `until` is None.
    """
    for asked in itertools.count(1):
        pause = backoff_s(asked, FIRST_PAUSE_S, LAST_PAUSE_S)
        try:
            return work()
        except ServiceBusy as error:
            is_last = asked >= tries if until is None else time.monotonic() + pause > until
            if is_last or not (is_repeatable or error.nothing_was_done):
                raise
        time.sleep(pause)
    raise AssertionError("unreachable")


def service_error(words: str, status: int | None, denied: str) -> ProviderError:
    """Return the error for a service's answer.

    Args:
        words: The error message, which may contain secrets.
        status: The HTTP status.
        denied: Text to add to the message if the credentials were refused (401).
    """
    words = redact(words)
    if status in (404, 410):
        return SandboxGone(words)
    if status == 401:
        return ProviderError(words + denied)
    if status == 429 or (status or 0) >= 500:
        return ServiceBusy(words, nothing_was_done=status == 429)
    return ProviderError(words)


def clean_up(delete: Callable[[], object], left: str) -> None:
    """Delete a sandbox after a failure; log `left` if the deletion fails."""
    try:
        retried(delete, is_repeatable=True)
    except ProviderError as error:
        logger.warning("%s: %s", left, error)


# ---------------------------------------------------------------------- implemented per service


class HostedSandbox(ABC):
    """A sandbox of a service.

    Methods raise `ProviderError`, `SandboxGone` or `ServiceBusy`, without secrets.

    Attributes:
        name: The service's name for the sandbox.
        files: The directory in the sandbox for the server's files, for a shell.
    """

    name: str
    files: str = "/tmp"  # nosec B108  # the sandbox's

    @abstractmethod
    def run(self, script: str, timeout_s: float) -> Executed:
        """Run a shell script in the sandbox, and wait for the end."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file in the sandbox."""

    @abstractmethod
    def address(self) -> str:
        """Return the base URL that leads to the sandbox's port."""

    @abstractmethod
    def why_ended(self) -> str | None:
        """Return why the sandbox has ended; None if it has not ended, or this is unknown."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the sandbox; do nothing if the sandbox is gone."""

    def path(self, name: str) -> str:
        """Return the path of a file of the server, for `write`."""
        return f"{self.files}/{FILES}.{name}"


# ---------------------------------------------------------------------- the server in a sandbox

_START = """\
d={files}
rm -f "$d/{name}.exit"
chmod 600 "$d/{name}.key" 2>/dev/null
s=$(command -v setsid || true)
$s nohup sh "$d/{name}.sh" >"$d/{name}.log" 2>&1 </dev/null &
echo $! >"$d/{name}.pid"
"""

# A zombie process can still be signalled.
_STATUS = """\
d={files}
p=$(cat "$d/{name}.pid" 2>/dev/null)
runs=
if [ -n "$p" ] && kill -0 "$p" 2>/dev/null; then
case "$(cat "/proc/$p/stat" 2>/dev/null)" in *") Z "*) ;; *) runs=1;; esac
fi
if [ -n "$runs" ] && [ ! -f "$d/{name}.exit" ]; then echo runs; exit 0; fi
echo "exit $(cat "$d/{name}.exit" 2>/dev/null)"
tail -n {lines} "$d/{name}.log" 2>/dev/null
exit 0
"""

_LOG = "tail -c {bytes} {files}/{name}.log 2>/dev/null || true"

_FIND = """\
f=/app/env/openenv.yaml
[ -f "$f" ] || f=$(find /app -maxdepth 5 -name openenv.yaml \
-not -path "*/site-packages/*" -not -path "*/node_modules/*" 2>/dev/null \
| awk '{ print length($0), $0 }' | sort -n | head -n 1 | cut -d " " -f 2-)
[ -n "$f" ] && [ -f "$f" ] && printf "%s\\n" "$f" && cat "$f" || true
"""


def start_server(sandbox: HostedSandbox, command: str, key: str | None) -> None:
    """Start the server in a sandbox, in the background."""
    d = sandbox.files
    told = ""
    if key is not None:
        sandbox.write(sandbox.path("key"), key_file(key).encode())
        told = f'export OPENENV_API_KEY_FILE="{d}/{FILES}.key"\n'
    # In its own shell, so that `exit` and `exec` in the command do not skip the last line.
    script = f'd="{d}"\n{told}sh -c {shlex.quote(command)}\necho $? >"$d/{FILES}.exit"\n'
    sandbox.write(sandbox.path("sh"), script.encode())
    done = sandbox.run(_START.format(files=f'"{d}"', name=FILES), SCRIPT_TIMEOUT_S)
    if done.exit_code != 0:
        said = (done.stderr or done.stdout).strip() or f"exit code {done.exit_code}"
        raise ProviderError(redact(f"the server could not be started in {sandbox.name}: {said}"))


class HostedServer(Server):
    """A server in a sandbox of a service.

    Args:
        sandbox: The sandbox.
        url: The server's base URL.
        key: The key that the server requires, or None.
        shows_log: Whether errors include the log's last lines.
    """

    def __init__(self, sandbox: HostedSandbox, url: str, key: str | None, shows_log: bool) -> None:
        super().__init__(url, sandbox.name, key)
        self._sandbox = sandbox
        self._shows_log = shows_log
        self._next_check = 0.0
        self._former_urls: list[str] = []
        self._clean_up_with(sandbox.delete)

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        super().wait_for_ready(timeout_s)

    async def wait_for_ready_async(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        await super().wait_for_ready_async(timeout_s)

    def _check_wanted(self) -> None:
        if self.is_stopped or time.monotonic() >= self._next_check:
            super()._check_wanted()
            self._next_check = time.monotonic() + CHECK_S

    def check_running(self) -> None:
        if self.is_stopped:
            return
        script = _STATUS.format(files=self._folder, name=FILES, lines=LOG_TAIL_LINES)
        try:
            done = self._sandbox.run(script, SCRIPT_TIMEOUT_S)
        except ProviderError as error:
            why: str | None = None
            if isinstance(error, SandboxGone):
                why = redact(str(error))
            else:
                with contextlib.suppress(ProviderError):
                    why = self._sandbox.why_ended()
            if why is None:  # the service does not answer at the moment
                logger.debug("nothing is known of %s: %s", self.name, error)
                return
            raise ProviderExited(f"the sandbox has ended: {why}", exit_code=None) from None
        said, _, log = done.stdout.partition("\n")
        if said.split(" ", 1)[0] != "exit":
            return
        code = said.removeprefix("exit").strip()
        words = f"the server has ended ({f'exit code {code}' if code else 'its process is gone'})"
        exit_code = int(code) if code.isdigit() else None
        if self._shows_log:
            raise ProviderExited(words, exit_code=exit_code, logs=redact(log))
        hint = "; pass surface_server_logs=True to see the last lines here"
        raise ProviderExited(words + hint, exit_code=exit_code)

    @property
    def _folder(self) -> str:
        return f'"{self._sandbox.files}"'

    def _read_log(self, lines: int | None) -> str:
        script = _LOG.format(bytes=LOG_BYTES, files=self._folder, name=FILES)
        # Truncate here too, since `tail` in the sandbox is a program of the image.
        text = redact(self._sandbox.run(script, SCRIPT_TIMEOUT_S).stdout[-LOG_BYTES:])
        return last_lines(text, lines)

    def _last_lines(self, lines: int) -> str:
        if self._shows_log:
            with contextlib.suppress(ProviderError):
                return self.logs(lines)
        return ""

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        if self.is_stopped:
            raise ProviderError(f"{self.name} has been stopped")
        return self._sandbox.run(shlex.join(command), timeout_s)

    def move_to(self, url: str) -> None:
        """Change the server's address. The former address may still lead to the server."""
        note_key(url, self._key)
        self._former_urls.append(self.url)
        self.url = url

    def _stop(self) -> None:
        if self._kept_log is None:
            try:
                self._kept_log = self.logs()
            except ProviderError as error:
                logger.debug("the log of %s is lost: %s", self.name, error)
                self._kept_log = ""
        retried(self._sandbox.delete, is_repeatable=True)
        for url in self._former_urls:
            forget_key(url)


# ---------------------------------------------------------------------- the provider


class HostedProvider(ImageProvider):
    """Base class of providers that start servers in sandboxes of a service.

    Args:
        image: The default image of `launch`.
        env_vars: Environment variables of every server.
        command: The shell command that starts the server.
        server_key: The key that each server requires.
        shows_log: Whether errors include the log's last lines.
    """

    def __init__(
        self,
        image: str | None,
        env_vars: Mapping[str, str] | None,
        command: str | None,
        server_key: str | FreshKey | None = FRESH_KEY,
        shows_log: bool = True,
    ) -> None:
        super().__init__(image, server_key)
        self._env_vars = dict(env_vars or {})
        self._command = command
        self._shows_log = shows_log
        self._is_swept = False
        self._turn_of_sweep = threading.Lock()

    # ------------------------------------------------------------------ implemented per service

    @abstractmethod
    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        """Create a running sandbox; on a failure, leave nothing behind."""

    def _command_of_image(self, image: str) -> str | None:
        """Return the command of an image's Dockerfile, if known."""
        return None

    def _held_by_others(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the owner of each existing sandbox, and a function that deletes the sandbox."""
        return iter(())

    # ------------------------------------------------------------------ the launch

    def _launch(self, request: LaunchRequest) -> Server:
        image = self._image_of(request)
        if request.port not in (None, PORT):
            raise ValueError(
                f"port is {request.port!r}; a server in a sandbox listens on {PORT}, and has an "
                "address of its own"
            )
        variables = {**self._env_vars, **request.env_vars}
        register_secrets_of(variables)
        key = key_of(self._wanted_key)
        self._sweep()
        rest = dict(request.options)
        command = rest.pop("cmd", None) or self._command
        sandbox = self._make(image, variables, rest)
        try:
            start_server(sandbox, self._resolved(sandbox, image, command), key)
            return HostedServer(sandbox, sandbox.address(), key, self._shows_log)
        except BaseException:
            clean_up(sandbox.delete, f"{sandbox.name} could not be deleted, and may cost money")
            raise

    def _resolved(self, sandbox: HostedSandbox, image: str, command: str | None) -> str:
        """Return the command that starts the server: given, or the manifest's or image's."""
        if command is not None:
            return command
        found = command_of_manifest(sandbox) or self._command_of_image(image)
        if found is not None:
            return found
        raise ValueError(
            f"nothing says how to start the server of {image}: there is no openenv.yaml with an "
            "'app' below /app, and no Dockerfile with a CMD; pass cmd='uvicorn server.app:app "
            f"--host 0.0.0.0 --port {PORT}', or the server's own command"
        )

    def _sweep(self) -> None:
        """Delete the sandboxes of this machine's killed processes, once per provider."""
        with self._turn_of_sweep:
            if self._is_swept:
                return
            self._is_swept = True
            try:
                for owner, delete in self._held_by_others():
                    if is_orphan(owner):
                        delete()
            except ProviderError as error:
                logger.warning("sandboxes that nobody holds could not be looked for: %s", error)

    def wait_for_ready(self, base_url: str | None = None, timeout_s: float = 120.0) -> None:
        super().wait_for_ready(base_url, timeout_s)


# ---------------------------------------------------------------------- labels

_OWNER_PARTS = tuple(f"openenv-owner-{part}" for part in ("machine", "boot", "process", "start"))


def owner_labels() -> dict[str, str]:
    """Return labels that name this process as a sandbox's owner, within services' limits."""
    return dict(zip(_OWNER_PARTS, own_name().split("/"), strict=True))


def owner_of(labels: Mapping[str, str]) -> str | None:
    """Return a sandbox's owner from its labels, for `owners.is_orphan`, or None."""
    if not all(part in labels for part in _OWNER_PARTS):
        return None
    return "/".join(labels[part] for part in _OWNER_PARTS)


# ---------------------------------------------------------------------- commands


def command_of_manifest(sandbox: HostedSandbox, listens: str | None = None) -> str | None:
    """Return the command for the ``app`` of the ``openenv.yaml`` in a sandbox, or None.

    Args:
        sandbox: The sandbox.
        listens: uvicorn's address options; by default ``--host 0.0.0.0 --port 8000``.
    """
    path, _, text = sandbox.run(_FIND, SCRIPT_TIMEOUT_S).stdout.partition("\n")
    try:
        manifest = read_yaml(text)[0] if path else None
    except UnreadableYAML as error:
        raise ValueError(f"{path} in {sandbox.name} is not valid YAML: {error}") from None
    app = manifest.get("app") if isinstance(manifest, dict) else None
    if not isinstance(app, str) or not app.strip():
        return None
    arguments = f"{shlex.quote(app.strip())} {listens or f'--host 0.0.0.0 --port {PORT}'}"
    # The public package's images have the packages in /app/.venv.
    return (
        f"cd {shlex.quote(path.rpartition('/')[0])} || exit 1\n"
        'PATH="$PWD/.venv/bin:/app/.venv/bin:$PATH"; export PATH\n'
        f"if command -v uvicorn >/dev/null; then exec uvicorn {arguments}; fi\n"
        f"exec python3 -m uvicorn {arguments}"
    )


def as_command(command: str, folder: str | None) -> str:
    """Return a shell command that runs in a directory."""
    return command if folder is None else f"cd {folder} || exit 1\n{command}"


# ---------------------------------------------------------------------- arguments


def only(options: Mapping[str, Any], *known: str) -> None:
    """Raise UnknownOption if there is an option that is not in `known`."""
    unknown = sorted(options.keys() - set(known))
    if unknown:
        listed = ", ".join(sorted(known))
        raise UnknownOption(f"no such option: {', '.join(unknown)}; there are {listed}")


def no_adapter(adapter: Any) -> None:
    """Raise TypeError for the SDK stub that the public package's tests pass."""
    if adapter is not None:
        raise TypeError("_adapter is not supported: this provider uses the service's own SDK")


def https_only(url: str) -> str:
    """Return an https URL without a trailing slash.

    Raises:
        ProviderError: The URL's scheme is not https.
    """
    if not url.startswith("https://"):
        raise ProviderError(f"the service returned an address without https: {redact(url)}")
    return url.rstrip("/")


def unique_name(image: str) -> str:
    """Return a unique, recognizable name for a sandbox of an image."""
    return f"openenv-{slug(image)[:24].strip('-')}-{secrets.token_hex(6)}"
