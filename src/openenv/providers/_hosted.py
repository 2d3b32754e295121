"""What providers of hosted sandboxes share.

A service gives a sandbox: a machine somewhere else, with an address that leads to one of its ports.
The server is started in it by a command, and writes its log, its number and its end to files there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import shlex
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from openenv._internal.net.keys import forget_key, note_key
from openenv._internal.redaction import redact, register_secrets_of
from openenv._internal.timing import backoff_s
from openenv._internal.yaml import UnreadableYAML, read_yaml
from openenv.errors import ProviderError, ProviderExited
from openenv.providers._asked import image_of, key_of
from openenv.providers._dockerfiles import Dockerfile
from openenv.providers._readiness import LOG_TAIL_LINES
from openenv.providers.base import FRESH_KEY, FreshKey
from openenv.providers.owners import is_orphan, own_name
from openenv.providers.servers import EXECUTE_TIMEOUT_S, Executed, ImageProvider, Server

__all__ = [
    "PORT",
    "READY_TIMEOUT_S",
    "Gone",
    "HostedProvider",
    "HostedServer",
    "Refused",
    "Sandbox",
    "UnknownOption",
    "as_command",
    "command_of_manifest",
    "https_only",
    "no_adapter",
    "only",
    "owner_labels",
    "owner_of",
    "retried",
    "unique_name",
]

logger = logging.getLogger(__name__)

PORT = 8000
READY_TIMEOUT_S = 120.0
SCRIPT_TIMEOUT_S = 60.0
CHECK_S = 1.0  # between two looks at the process of a server that is waited for: each is a request
LOG_BYTES = 2**20
TRIES, FIRST_PAUSE_S, LAST_PAUSE_S = 4, 0.2, 8.0
FILES = "openenv-server"  # .sh, .key, .pid, .log and .exit, in the sandbox

T = TypeVar("T")


class Gone(ProviderError):
    """The service has no such sandbox, or no longer."""


class UnknownOption(TypeError, ValueError):
    """There is no such option. The public package's providers call it a `ValueError`."""


class Refused(ProviderError):
    """The service does not do it now, and may later: it is asked too often, or has a fault.

    Args:
        message: What it says.
        nothing_was_done: It has said no, so that asking again makes nothing twice.
    """

    def __init__(self, message: str, nothing_was_done: bool) -> None:
        super().__init__(message)
        self.nothing_was_done = nothing_was_done


def retried(
    work: Callable[[], T], *, is_repeatable: bool, until: float | None = None, tries: int = TRIES
) -> T:
    """Ask a service, and ask again where it does not do it now.

    Args:
        work: Asks once.
        is_repeatable: To do it twice is as to do it once, so that a fault of the service is tried
            again too.
        until: When to give up, by `time.monotonic`.
        tries: How often to ask where `until` is None.
    """
    for asked in itertools.count(1):
        pause = backoff_s(asked, FIRST_PAUSE_S, LAST_PAUSE_S)
        try:
            return work()
        except Refused as error:
            is_last = asked >= tries if until is None else time.monotonic() + pause > until
            if is_last or not (is_repeatable or error.nothing_was_done):
                raise
        time.sleep(pause)
    raise AssertionError("unreachable")


# ---------------------------------------------------------------------- what a service implements


class Sandbox(ABC):
    """A sandbox of a service. Failures are `ProviderError`, `Gone` or `Refused`, without secrets.

    Attributes:
        name: What the service calls it.
        files: The directory in it that its server's files are in, for a shell.
    """

    name: str
    files: str = "/tmp"  # nosec B108  # the sandbox's

    @abstractmethod
    def run(self, script: str, timeout_s: float) -> Executed:
        """Run a script of ``sh`` in it, and wait for its end."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file in it."""

    @abstractmethod
    def address(self) -> str:
        """The base URL that leads to its port."""

    @abstractmethod
    def why_ended(self) -> str | None:
        """Why it is over; None where it is not, or nobody can tell."""

    @abstractmethod
    def delete(self) -> None:
        """End it. Without an error where it is gone."""

    def path(self, name: str) -> str:
        """Where a file of its server is, as `write` takes it."""
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

# A process that has ended and that nobody has waited for can be signalled still.
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


def start_server(sandbox: Sandbox, command: str, key: str | None) -> None:
    """Start the server in a sandbox. It goes on by itself."""
    d = sandbox.files
    told = ""
    if key is not None:
        text = json.dumps({"key": key, "role": "orchestrator", "name": "provider"})
        sandbox.write(sandbox.path("key"), text.encode())
        told = f'export OPENENV_API_KEY_FILE="{d}/{FILES}.key"\n'
    # In a shell of its own, so that `exit` and `exec` in the command leave the last line alone.
    script = f'd="{d}"\n{told}sh -c {shlex.quote(command)}\necho $? >"$d/{FILES}.exit"\n'
    sandbox.write(sandbox.path("sh"), script.encode())
    done = sandbox.run(_START.format(files=f'"{d}"', name=FILES), SCRIPT_TIMEOUT_S)
    if done.exit_code != 0:
        raise ProviderError(
            redact(f"the server could not be started in {sandbox.name}: {_said(done)}")
        )


def _said(done: Executed) -> str:
    return (done.stderr or done.stdout).strip() or f"exit code {done.exit_code}"


class HostedServer(Server):
    """A server in a sandbox of a service.

    Args:
        sandbox: Where it runs.
        url: Its base URL.
        key: The key that it wants.
        shows_log: Errors carry its last lines.
    """

    def __init__(self, sandbox: Sandbox, url: str, key: str | None, shows_log: bool) -> None:
        super().__init__(url, sandbox.name, key)
        self._sandbox = sandbox
        self._shows_log = shows_log
        self._kept_log: str | None = None
        self._next_check = 0.0
        self._former_urls: list[str] = []
        self._abandon = weakref.finalize(self, _abandon, sandbox, os.getpid())

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
            why = self._why_ended(error)
            if why is None:  # the service does not answer just now: nothing is known
                logger.debug("nothing is known of %s: %s", self.name, error)
                return
            raise ProviderExited(f"the sandbox has ended: {why}", exit_code=None) from None
        said, _, log = done.stdout.partition("\n")
        if said.split(" ", 1)[0] != "exit":
            return
        code = said.removeprefix("exit").strip()
        how = f"exit code {code}" if code else "its process is gone"
        raise self._exited(
            f"the server has ended ({how})", int(code) if code.isdigit() else None, log
        )

    def _exited(self, message: str, code: int | None, log: str) -> ProviderExited:
        if self._shows_log:
            return ProviderExited(message, exit_code=code, logs=redact(log))
        hint = "; surface_server_logs=True says its last lines here"
        return ProviderExited(message + hint, exit_code=code)

    def _why_ended(self, error: ProviderError) -> str | None:
        if isinstance(error, Gone):
            return redact(str(error))
        with contextlib.suppress(ProviderError):
            return self._sandbox.why_ended()
        return None

    @property
    def _folder(self) -> str:
        return f'"{self._sandbox.files}"'

    def logs(self, lines: int | None = None) -> str:
        text = self._kept_log
        if text is None:
            script = _LOG.format(bytes=LOG_BYTES, files=self._folder, name=FILES)
            # Cut here too: `tail` there is a program of the image.
            text = redact(self._sandbox.run(script, SCRIPT_TIMEOUT_S).stdout[-LOG_BYTES:])
        return text if lines is None else "\n".join(text.splitlines()[-lines:])

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
        """Be reached by another address from now on; the former one may go on to lead here."""
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
        self._abandon.detach()
        for url in self._former_urls:
            forget_key(url)


def _abandon(sandbox: Sandbox, owner: int) -> None:
    """Delete a sandbox that nobody can stop any more."""
    if os.getpid() == owner:
        with contextlib.suppress(Exception):  # nobody is left who could know
            sandbox.delete()


# ---------------------------------------------------------------------- the provider


class HostedProvider(ImageProvider):
    """Starts servers in sandboxes of a service: what all such providers do alike.

    Args:
        image: What `launch` runs where it is not told.
        env_vars: Environment variables of every server.
        command: What starts the server, for a shell.
        server_key: The key that each server wants.
        shows_log: Errors carry a server's last lines.
    """

    def __init__(
        self,
        image: str | None,
        env_vars: Mapping[str, str] | None,
        command: str | None,
        server_key: str | FreshKey | None = FRESH_KEY,
        shows_log: bool = True,
    ) -> None:
        super().__init__()
        self.image = image
        self._env_vars = dict(env_vars or {})
        self._command = command
        self._server_key = server_key
        self._shows_log = shows_log
        self._is_swept = False
        self._turn_of_sweep = threading.Lock()

    # ------------------------------------------------------------------ what a service implements

    @abstractmethod
    def _make(self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]) -> Sandbox:
        """Make a sandbox that runs; nothing is left of it if this raises."""

    def _dockerfile_of(self, image: str) -> Dockerfile | None:
        """The Dockerfile that an image is built from, where it is known."""
        return None

    def _held_by_others(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """The labels of owners of the sandboxes there are, and what deletes each."""
        return iter(())

    # ------------------------------------------------------------------ what stands on that

    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Server:
        image = image_of(image, self.image)
        if port not in (None, PORT):
            raise ValueError(
                f"port is {port!r}; a server in a sandbox listens on {PORT}, and has an address of "
                "its own"
            )
        variables = {**self._env_vars, **env_vars}
        register_secrets_of(variables)
        key = key_of(self._server_key)
        self._sweep()
        rest = dict(options)
        command = rest.pop("cmd", None) or self._command
        sandbox = self._make(image, variables, rest)
        try:
            self._serve(sandbox, image, command, key)
            return self._server_in(sandbox, key)
        except BaseException:
            _delete_at_any_rate(sandbox)
            raise

    def _serve(self, sandbox: Sandbox, image: str, command: str | None, key: str | None) -> None:
        start_server(sandbox, self._resolved(sandbox, image, command), key)

    def _server_in(self, sandbox: Sandbox, key: str | None) -> HostedServer:
        return HostedServer(sandbox, sandbox.address(), key, self._shows_log)

    def _resolved(self, sandbox: Sandbox, image: str, command: str | None) -> str:
        """What starts the server: the command that was told, or else that of the image."""
        if command is not None:
            return command
        found = command_of_manifest(sandbox)
        if found is not None:
            return found
        file = self._dockerfile_of(image)
        if file is not None and file.command is not None:
            return as_command(file.command, file.folder)
        raise ValueError(
            f"nothing says how the server of {image} is started: there is no openenv.yaml with an "
            "'app' below /app, and no Dockerfile with a CMD; pass cmd='uvicorn server.app:app "
            f"--host 0.0.0.0 --port {PORT}', or as it is started"
        )

    def _sweep(self) -> None:
        """Delete what holders have left that were killed on this machine."""
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


def _delete_at_any_rate(sandbox: Sandbox) -> None:
    try:
        retried(sandbox.delete, is_repeatable=True)
    except ProviderError as error:
        logger.warning("%s could not be deleted, and may cost money: %s", sandbox.name, error)


# ---------------------------------------------------------------------- labels

_OWNER_PARTS = tuple(f"openenv-owner-{part}" for part in ("machine", "boot", "process", "start"))


def owner_labels() -> dict[str, str]:
    """Labels that say who holds a sandbox: of few characters each, as services want them."""
    return dict(zip(_OWNER_PARTS, own_name().split("/"), strict=True))


def owner_of(labels: Mapping[str, str]) -> str | None:
    """Who holds a sandbox, by its labels, as `owners.is_orphan` takes it; None where none of
    these providers has made it.
    """
    if not all(part in labels for part in _OWNER_PARTS):
        return None
    return "/".join(labels[part] for part in _OWNER_PARTS)


# ---------------------------------------------------------------------- commands


def command_of_manifest(sandbox: Sandbox, listens: str | None = None) -> str | None:
    """What starts the server by the ``app`` of the ``openenv.yaml`` of a sandbox, if it has one.

    Args:
        sandbox: Where it is looked for.
        listens: The options that say where, by which uvicorn listens.
    """
    path, _, text = sandbox.run(_FIND, SCRIPT_TIMEOUT_S).stdout.partition("\n")
    try:
        manifest = read_yaml(text)[0] if path else None
    except UnreadableYAML as error:
        raise ValueError(f"{path} in {sandbox.name} is no YAML: {error}") from None
    app = manifest.get("app") if isinstance(manifest, dict) else None
    if not isinstance(app, str) or not app.strip():
        return None
    arguments = f"{shlex.quote(app.strip())} {listens or f'--host 0.0.0.0 --port {PORT}'}"
    # The public package's images have their packages in /app/.venv.
    return (
        f"cd {shlex.quote(path.rpartition('/')[0])} || exit 1\n"
        'PATH="$PWD/.venv/bin:/app/.venv/bin:$PATH"; export PATH\n'
        f"if command -v uvicorn >/dev/null; then exec uvicorn {arguments}; fi\n"
        f"exec python3 -m uvicorn {arguments}"
    )


def as_command(command: str, folder: str | None) -> str:
    """A command that is run in a directory, both for a shell."""
    return command if folder is None else f"cd {folder} || exit 1\n{command}"


# ---------------------------------------------------------------------- arguments


def only(options: Mapping[str, Any], *known: str) -> None:
    """See that there are no other options.

    Raises:
        UnknownOption: There are.
    """
    unknown = sorted(options.keys() - set(known))
    if unknown:
        listed = ", ".join(sorted(known))
        raise UnknownOption(f"no such option: {', '.join(unknown)}; there are {listed}")


def no_adapter(adapter: Any) -> None:
    """Refuse what the public package's own tests put in the place of an SDK.

    Raises:
        TypeError: Something is.
    """
    if adapter is not None:
        raise TypeError("_adapter is not taken: this provider speaks with the service's own SDK")


def https_only(url: str) -> str:
    """The URL, without a slash at its end, once it is seen that nobody can read along.

    Raises:
        ProviderError: It is of another scheme.
    """
    if not url.startswith("https://"):
        raise ProviderError(f"the service gave an address that is not of https: {redact(url)}")
    return url.rstrip("/")


def unique_name(image: str) -> str:
    """A name that no other sandbox has, for people to recognize."""
    last = image.rpartition("/")[2].partition(":")[0].partition("@")[0] or image.rpartition(":")[2]
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in last.lower())
    return f"openenv-{slug[:24].strip('-') or 'image'}-{secrets.token_hex(6)}"
