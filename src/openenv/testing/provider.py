"""`check_provider`: check that a provider keeps the contract of `openenv.providers.ServerProvider`.

Each sentence of the contract is a constant in this module. The sentence is the message of the check
that enforces it, and the text on the page that explains it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.logs import silence
from openenv._internal.net.keys import key_for
from openenv.client.generic import GenericEnvClient
from openenv.client.launch import server_launch
from openenv.errors import (
    AuthenticationError,
    ConnectError,
    NotSupported,
    OpenEnvError,
    ProviderError,
    ProviderExited,
    ProviderTimeout,
    SessionLost,
)
from openenv.providers._readiness import is_healthy
from openenv.providers.base import Capabilities
from openenv.providers.process import HostProvider
from openenv.providers.servers import Executed, ImageProvider, Server, ServerProvider
from openenv.testing.environment import CheckFailed, CheckReport, PromiseResult, PromiseSkipped

__all__ = ["PROMISES", "check_provider"]

CAPABILITIES_ARE_STATED = "The class states its capabilities."
LAUNCH_GIVES_A_SERVER = "launch returns a Server with a name and the URL of a server."
IT_BECOMES_READY = "wait_for_ready returns once /health answers."
IT_IS_READY_AT_ONCE = "wait_for_ready returns at once if the server is ready."
AN_EPISODE_IS_PLAYED = "A client can reset the environment and read its state."
IT_RUNS = "check_running does not raise while the server runs."
SERVERS_ARE_LISTED = "servers lists the servers that have not been stopped."
VARIABLES_ARRIVE = "Environment variables of launch reach the server."
UNKNOWN_OPTIONS_ARE_REFUSED = "An unknown option is a TypeError that names it."
A_REFUSAL_LEAVES_NOTHING = "A launch that is refused leaves no server."
WHAT_IS_NOT_THERE_IS_NAMED = "A missing environment or image is a ProviderError that names it."
A_PORT_IS_TAKEN = "A requested port is the URL's, or is refused with a reason."
KEYS_ARE_ASKED_FOR = "A client without the key is refused."
KEYS_ARE_FOUND = "Clients in this process find the key by themselves."
KEYS_ARE_FRESH = "Each server has a key of its own."
KEYS_ARE_NOT_SHOWN = "No key is in the server's repr, name, URL or log."
SECRETS_ARE_NOT_SHOWN = "The value of a secret variable is in no log and no repr."
SERVERS_ARE_TWO = "Two servers have different URLs and names."
SERVERS_ARE_APART = "A server keeps running when another is stopped."
THREADS_LAUNCH_AT_ONCE = "Several threads can launch at once."
LAUNCH_ASYNC_LETS_OTHERS_RUN = "launch_async and wait_for_ready_async do not block the event loop."
A_CANCELLED_LAUNCH_LEAVES_NOTHING = "A launch_async that is cancelled leaves no server."
LATE_IS_AN_ERROR = "A server that is not ready in time is a ProviderTimeout that names the time."
AN_END_IS_NOTICED = (
    "A server that exits before it is ready is a ProviderExited, before the timeout."
)
AN_END_HAS_ITS_LAST_WORDS = "The error of a server that exited has its last lines of output."
AN_END_HAS_ITS_CODE = "The error of a server that exited has its exit code."
A_KILL_IS_NOTICED = "check_running raises ProviderExited once the server was killed."
A_KILL_IS_NO_ANSWER = (
    "A client's call raises SessionLost or ConnectError once the server was killed."
)
A_KILLED_ONE_CAN_BE_STOPPED = "A server that was killed can be stopped."
STOP_ENDS_IT = "After stop, nothing answers at its URL."
STOP_MAY_BE_REPEATED = "stop may be repeated, and called by several threads at once."
STOP_IS_REMEMBERED = "After stop, is_stopped is true and check_running does not raise."
STOP_FORGETS_THE_KEY = "After stop, no client finds the server's key."
STOPPED_IS_NEVER_READY = "wait_for_ready of a stopped server is a ProviderError, at once."
A_CANCELLED_STOP_STOPS = "A stop_async that is cancelled still completes."
WITH_STOPS = "Leaving its `with` block stops a server."
LOGS_ARE_READ = "logs returns the server's output, or raises NotSupported."
LAST_LINES_ARE_FEW = "logs(n) returns at most n lines."
LOGS_OUTLIVE_IT = "logs can be read after stop."
COMMANDS_ARE_RUN = "execute returns exit code, stdout and stderr, or raises NotSupported."
COMMANDS_END_IN_TIME = "A command that exceeds its timeout is a ProviderError."
NO_COMMAND_IS_SAID = "A missing program is a ProviderError, or exit code 126 or 127."
CLOSE_STOPS_ALL = "close stops every server, and may be repeated."
OLD_START_GIVES_A_URL = (
    "The older start returns the URL, and the older wait_for_ready waits for it."
)
OLD_START_IS_FOR_ONE = (
    "A second older start is a ProviderError, and the first server keeps running."
)
OLD_STOP_MAY_BE_REPEATED = "The older stop may be repeated, and a start may follow."
OLD_WAIT_NEEDS_A_START = "The older wait_for_ready without a start is a ProviderError."
A_FORKED_CHILD_STOPS_NOTHING = "A forked child that stops a server stops none of its parent's."

PROMISES = tuple(
    value
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, str) and value.endswith(".")
)

READY_S = 120.0
Harm = Mapping[str, Any] | ServerProvider
PLANTED = "planted-secret-value-8d1f"
VARIABLE = "OPENENV_CHECKED_TOKEN"


class PromiseBroken(AssertionError):
    """Raised by a check if a promise is not kept; the message says what was found."""


def _expect(is_so: object, detail: object) -> None:
    if not is_so:
        raise PromiseBroken(str(detail))


@dataclass
class _ProviderSubject:
    """The provider under test, and the means to make servers fail."""

    provider: ServerProvider
    options: Mapping[str, Any]
    dies: Harm | None
    hangs: Harm | None
    missing: Harm | None
    kill: Callable[[Any], object] | None
    ready_s: float
    shared: Server | None = None
    findings: list[PromiseResult] = field(default_factory=list)

    @property
    def can(self) -> Capabilities:
        return self.provider.capabilities

    def launch(self, **options: Any) -> Server:
        return self.provider.launch(**{**self.options, **options})

    def launch_failing(self, harm: Harm) -> Server:
        """Launch a server that is meant to fail."""
        if isinstance(harm, ServerProvider):
            return harm.launch(**self.options)
        return self.launch(**harm)

    def launch_ready(self, **options: Any) -> Server:
        server = self.launch(**options)
        try:
            server.wait_for_ready(self.ready_s)
        except BaseException:
            server.stop()
            raise
        return server

    def shared_server(self) -> Server:
        """Return the server that is shared by the checks that leave it unchanged."""
        if self.shared is None or self.shared.is_stopped:
            self.shared = self.launch_ready(env_vars={VARIABLE: PLANTED})
        return self.shared

    def server_names(self) -> set[str]:
        return {one.name for one in self.provider.servers}


def check_provider(
    provider: ServerProvider,
    *,
    options: Mapping[str, Any] | None = None,
    dies: Harm | None = None,
    hangs: Harm | None = None,
    missing: Harm | None = None,
    kill: Callable[[Any], object] | None = None,
    known_failures: Mapping[str, str] | None = None,
    skip: Mapping[str, str] | None = None,
    ready_s: float = READY_S,
) -> CheckReport:
    """Check that a provider keeps the contract of `openenv.providers.ServerProvider`.

    The check starts and stops about twenty servers of an environment that may be reset freely. The
    provider is closed at the end.

    Args:
        provider: The provider.
        options: Options of each `launch`.
        dies: Further options of `launch` that make a server print a line and exit; or a provider of
            such servers.
        hangs: Further options that make a server run without becoming ready, or such a provider.
        missing: Further options that name an environment or image that does not exist, or such a
            provider.
        kill: Function that kills a server without telling the provider.
        known_failures: Promises (constants of this module) that are known to be broken, with the
            reasons. A promise among them that is kept counts as broken.
        skip: Promises to skip, with the reasons.
        ready_s: Seconds that a server may take to become ready. Default: 120.

    Returns:
        A report of all findings. Checks that need a missing argument are reported as skipped.

    Raises:
        CheckFailed: A promise is broken; the error lists all broken promises.
        ValueError: `known_failures` or `skip` names an unknown promise.
    """
    subject = _ProviderSubject(provider, options or {}, dies, hangs, missing, kill, ready_s)
    known, skipped = known_failures or {}, skip or {}
    if unknown := sorted({*known, *skipped} - set(PROMISES)):
        where = "expected a constant of openenv.testing.provider"
        raise ValueError(f"unknown promise {unknown[0]!r}; {where}")
    try:
        with silence("openenv"):
            for promise, check in _CHECKS.items():
                subject.findings.append(_check_promise(promise, check, subject, known, skipped))
    finally:
        provider.close()
    report = CheckReport(type(provider).__name__, subject.findings)
    if report.broken:
        raise CheckFailed(report)
    return report


def _check_promise(
    promise: str,
    check: _Check,
    subject: _ProviderSubject,
    known: Mapping[str, str],
    skipped: Mapping[str, str],
) -> PromiseResult:
    if promise in skipped:
        return PromiseResult(promise, None, skipped[promise])
    kept, why = True, known.get(promise)
    try:
        check(subject)
        detail = f"it is kept, though it is known to be broken: {why}; take it from known_failures"
    except PromiseSkipped as reason:
        return PromiseResult(promise, None, str(reason))
    except Exception as error:
        kept, detail = False, str(error)
        if not isinstance(error, PromiseBroken):
            detail = f"{type(error).__name__}: {error}"
    if why is None:
        return PromiseResult(promise, kept, "" if kept else detail)
    if kept:
        return PromiseResult(promise, False, detail)
    return PromiseResult(promise, None, f"known to be broken: {why} ({detail})")


_Check = Callable[[_ProviderSubject], None]
_CHECKS: dict[str, _Check] = {}


def _checks(promise: str) -> Callable[[_Check], _Check]:
    assert promise not in _CHECKS, promise
    return lambda check: _CHECKS.setdefault(promise, check)


def _needs(given: Any, name: str) -> Any:
    _require(given is not None, f"needs the argument {name}")
    return given


def _require(is_so: object, reason: str) -> None:
    if not is_so:
        raise PromiseSkipped(reason)


@contextlib.contextmanager
def _raises(*kinds: type[BaseException], by: str) -> Iterator[list[Any]]:
    """Check that an error of these classes is raised, and yield a list that receives the error."""
    caught: list[Any] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    else:
        raise PromiseBroken(f"{by} raised nothing")


# ------------------------------------------------------------------ starting


@_checks(CAPABILITIES_ARE_STATED)
def _capabilities(subject: _ProviderSubject) -> None:
    _expect(isinstance(subject.can, Capabilities), subject.can)


@_checks(LAUNCH_GIVES_A_SERVER)
def _launch(subject: _ProviderSubject) -> None:
    with subject.launch() as server:
        _expect(server.url.startswith(("http://", "https://")), server.url)
        _expect(server.name and not server.is_stopped, server)


@_checks(IT_BECOMES_READY)
def _ready(subject: _ProviderSubject) -> None:
    _expect(is_healthy(subject.shared_server().url, 5.0), "it does not answer")


@_checks(IT_IS_READY_AT_ONCE)
def _ready_again(subject: _ProviderSubject) -> None:
    subject.shared_server().wait_for_ready(5.0)


@_checks(AN_EPISODE_IS_PLAYED)
def _episode(subject: _ProviderSubject) -> None:
    with GenericEnvClient(base_url=subject.shared_server().url).sync() as env:
        _expect(env.reset().done is False, "reset said done")
        _expect("step_count" in env.state(), "there is no step_count")


@_checks(IT_RUNS)
def _runs(subject: _ProviderSubject) -> None:
    subject.shared_server().check_running()


@_checks(SERVERS_ARE_LISTED)
def _listed(subject: _ProviderSubject) -> None:
    with subject.launch() as server:
        _expect(server.name in subject.server_names(), subject.server_names())
    _expect(server.name not in subject.server_names(), "it is listed after stop")


@_checks(VARIABLES_ARRIVE)
def _variables(subject: _ProviderSubject) -> None:
    _require(subject.can.can_execute, "no command can be run beside a server")
    ran = subject.shared_server().execute(["sh", "-c", f"echo $${VARIABLE}".replace("$$", "$")])
    _expect(ran.stdout.strip() == PLANTED, "it is not there")


@_checks(UNKNOWN_OPTIONS_ARE_REFUSED)
def _unknown_option(subject: _ProviderSubject) -> None:
    with _raises(TypeError, by="launch") as caught:
        subject.launch(surely_no_option=1).stop()
    _expect("surely_no_option" in str(caught[0]), caught[0])


@_checks(A_REFUSAL_LEAVES_NOTHING)
def _refusal(subject: _ProviderSubject) -> None:
    before = subject.server_names()
    with contextlib.suppress(TypeError):
        subject.launch(surely_no_option=1)
    _expect(subject.server_names() == before, subject.server_names() - before)


@_checks(WHAT_IS_NOT_THERE_IS_NAMED)
def _missing(subject: _ProviderSubject) -> None:
    missing = _needs(subject.missing, "missing")
    before = subject.server_names()
    with (
        _raises(ProviderError, by="a launch of what is not there"),
        subject.launch_failing(missing) as server,
    ):
        server.wait_for_ready(subject.ready_s)
    _expect(subject.server_names() == before, "it left a server")


@_checks(A_PORT_IS_TAKEN)
def _port(subject: _ProviderSubject) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        server = subject.launch(port=port)
    except (ValueError, ProviderError) as error:
        _expect("port" in str(error), error)
        raise PromiseSkipped(f"no port can be chosen: {error}") from None
    with server:
        _expect(server.url.endswith(f":{port}"), server.url)
        server.wait_for_ready(subject.ready_s)


# ------------------------------------------------------------------ keys and secrets


def _keyed_server(subject: _ProviderSubject) -> Server:
    _require(subject.can.fresh_keys, "its servers want no key")
    server = subject.shared_server()
    _expect(server.api_key, "there is no key")
    return server


@_checks(KEYS_ARE_ASKED_FOR)
def _asked_for(subject: _ProviderSubject) -> None:
    server = _keyed_server(subject)
    client = GenericEnvClient(base_url=server.url, api_key="surely-not-the-key")
    with _raises(AuthenticationError, by="a client with a wrong key"), client.sync() as env:
        env.reset()


@_checks(KEYS_ARE_FOUND)
def _found(subject: _ProviderSubject) -> None:
    server = _keyed_server(subject)
    _expect(key_for(server.url) == server.api_key, "it is not noted")


@_checks(KEYS_ARE_FRESH)
def _fresh(subject: _ProviderSubject) -> None:
    server = _keyed_server(subject)
    with subject.launch() as other:
        _expect(other.api_key != server.api_key, "both have the same")


@_checks(KEYS_ARE_NOT_SHOWN)
def _key_hidden(subject: _ProviderSubject) -> None:
    server = _keyed_server(subject)
    _expect_hidden(subject, str(server.api_key))


@_checks(SECRETS_ARE_NOT_SHOWN)
def _secret_hidden(subject: _ProviderSubject) -> None:
    _expect_hidden(subject, PLANTED)


def _expect_hidden(subject: _ProviderSubject, secret: str) -> None:
    server = subject.shared_server()
    shown = [repr(server), server.name, server.url, repr(subject.provider)]
    with contextlib.suppress(NotSupported):
        shown.append(server.logs())
    _expect(not any(secret in one for one in shown), "it is shown")


# ------------------------------------------------------------------ many


@_checks(SERVERS_ARE_TWO)
def _two(subject: _ProviderSubject) -> None:
    _require(subject.can.many, "it holds one server at a time")
    server = subject.shared_server()
    with subject.launch() as other:
        _expect(server.url != other.url and server.name != other.name, (server, other))


@_checks(SERVERS_ARE_APART)
def _apart(subject: _ProviderSubject) -> None:
    _require(subject.can.many, "it holds one server at a time")
    server = subject.shared_server()
    with GenericEnvClient(base_url=server.url).sync() as env:
        env.reset()
        with subject.launch_ready():
            pass
        env.state()


@_checks(THREADS_LAUNCH_AT_ONCE)
def _threads(subject: _ProviderSubject) -> None:
    _require(subject.can.many, "it holds one server at a time")
    servers: list[Server] = []
    failures = _in_threads(lambda: servers.append(subject.launch_ready()), 3)
    for server in servers:
        server.stop()
    _expect(not failures, failures)
    _expect(len({one.url for one in servers}) == 3, servers)


def _in_threads(call: Callable[[], object], count: int) -> list[BaseException]:
    with ThreadPoolExecutor(count) as pool:
        raised = [future.exception() for future in [pool.submit(call) for _ in range(count)]]
    return [error for error in raised if error is not None]


@_checks(LAUNCH_ASYNC_LETS_OTHERS_RUN)
def _launch_async(subject: _ProviderSubject) -> None:
    async def play() -> float:
        longest, last = 0.0, time.monotonic()

        async def beat() -> None:
            nonlocal longest, last
            while True:
                await asyncio.sleep(0.01)
                now = time.monotonic()
                longest, last = max(longest, now - last), now

        beating = asyncio.ensure_future(beat())
        async with await subject.provider.launch_async(**subject.options) as server:
            await server.wait_for_ready_async(subject.ready_s)
        beating.cancel()
        return longest

    longest = asyncio.run(play())
    _expect(longest < 1.0, f"the loop stood still for {longest:.1f} s")


@_checks(A_CANCELLED_LAUNCH_LEAVES_NOTHING)
def _cancelled_launch(subject: _ProviderSubject) -> None:
    async def play() -> None:
        launching = asyncio.ensure_future(subject.provider.launch_async(**subject.options))
        await asyncio.sleep(0.05)
        launching.cancel()
        try:
            server = await launching
        except asyncio.CancelledError:
            return
        await server.stop_async()  # the launch was faster than the cancellation

    before = subject.server_names()
    asyncio.run(play())
    _expect(subject.server_names() == before, subject.server_names() - before)


# ------------------------------------------------------------------ getting ready, or not


@_checks(LATE_IS_AN_ERROR)
def _late(subject: _ProviderSubject) -> None:
    hangs = _needs(subject.hangs, "hangs")
    with subject.launch_failing(hangs) as server:
        with _raises(ProviderTimeout, by="wait_for_ready") as caught:
            server.wait_for_ready(1.5)
        _expect("1.5 s" in str(caught[0]), caught[0])


@_checks(AN_END_IS_NOTICED)
def _noticed(subject: _ProviderSubject) -> None:
    began = time.monotonic()
    _wait_for_exit(subject)
    _expect(time.monotonic() - began < subject.ready_s / 2, "only after the timeout")


@_checks(AN_END_HAS_ITS_LAST_WORDS)
def _last_words(subject: _ProviderSubject) -> None:
    _require(subject.can.has_logs, "it has no logs")
    _expect(_wait_for_exit(subject).logs.strip(), "there are none")


@_checks(AN_END_HAS_ITS_CODE)
def _exit_code(subject: _ProviderSubject) -> None:
    _expect(_wait_for_exit(subject).exit_code is not None, "there is none")


def _wait_for_exit(subject: _ProviderSubject) -> ProviderExited:
    _require(subject.can.detects_exit, "it cannot know of an end")
    dies = _needs(subject.dies, "dies")
    with (
        _raises(ProviderExited, by="wait_for_ready") as caught,
        subject.launch_failing(dies) as server,
    ):
        server.wait_for_ready(subject.ready_s)
    error: ProviderExited = caught[0]
    return error


@_checks(A_KILL_IS_NOTICED)
def _kill_noticed(subject: _ProviderSubject) -> None:
    _require(subject.can.detects_exit, "it cannot know of an end")
    kill = _needs(subject.kill, "kill")
    with subject.launch_ready() as server:
        kill(server)
        with _raises(ProviderExited, by="check_running"):
            _for_seconds(server.check_running, 10.0)


@_checks(A_KILL_IS_NO_ANSWER)
def _kill_no_answer(subject: _ProviderSubject) -> None:
    kill = _needs(subject.kill, "kill")
    server = subject.launch_ready()
    # A client of a launched server asks the provider whether the server runs, because a proxy in
    # between may answer in the server's place.
    launch = server_launch(lambda: server)
    env = GenericEnvClient._launched(launch, message_timeout_s=20.0).sync()
    try:
        env.reset()
        kill(server)
        with _raises(SessionLost, ConnectError, by="state"):
            _for_seconds(env.state, 10.0)
    finally:
        with contextlib.suppress(OpenEnvError):
            env.close()
        server.stop()


@_checks(A_KILLED_ONE_CAN_BE_STOPPED)
def _kill_stopped(subject: _ProviderSubject) -> None:
    kill = _needs(subject.kill, "kill")
    server = subject.launch_ready()
    kill(server)
    server.stop()
    _expect(server.name not in subject.server_names(), "it is listed")


def _for_seconds(call: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        call()
        time.sleep(0.05)


# ------------------------------------------------------------------ stopping


@_checks(STOP_ENDS_IT)
def _stop(subject: _ProviderSubject) -> None:
    server = subject.launch_ready()
    server.stop()
    _expect(not is_healthy(server.url, 1.0), f"{server.url} answers")


@_checks(STOP_MAY_BE_REPEATED)
def _stop_again(subject: _ProviderSubject) -> None:
    server = subject.launch()
    failures = _in_threads(server.stop, 4)
    server.stop()
    _expect(not failures, failures)


@_checks(STOP_IS_REMEMBERED)
def _stopped(subject: _ProviderSubject) -> None:
    server = subject.launch()
    _expect(not server.is_stopped, "before")
    server.stop()
    _expect(server.is_stopped, "after")
    server.check_running()


@_checks(STOP_FORGETS_THE_KEY)
def _key_forgotten(subject: _ProviderSubject) -> None:
    _require(subject.can.fresh_keys, "its servers want no key")
    server = subject.launch()
    server.stop()
    _expect(key_for(server.url) != server.api_key, "it is noted still")


@_checks(STOPPED_IS_NEVER_READY)
def _never_ready(subject: _ProviderSubject) -> None:
    server = subject.launch()
    server.stop()
    began = time.monotonic()
    with _raises(ProviderError, by="wait_for_ready"):
        server.wait_for_ready(20.0)
    _expect(time.monotonic() - began < 10.0, "it waited")


@_checks(A_CANCELLED_STOP_STOPS)
def _cancelled_stop(subject: _ProviderSubject) -> None:
    async def play(server: Server) -> None:
        stopping = asyncio.ensure_future(server.stop_async())
        await asyncio.sleep(0)
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping

    server = subject.launch_ready()
    asyncio.run(play(server))
    server.stop()
    _expect(server.is_stopped and not is_healthy(server.url, 1.0), "it answers")


@_checks(WITH_STOPS)
def _with(subject: _ProviderSubject) -> None:
    with contextlib.suppress(ZeroDivisionError), subject.launch() as server:
        raise ZeroDivisionError
    _expect(server.is_stopped, "it was not stopped")


# ------------------------------------------------------------------ logs and commands


@_checks(LOGS_ARE_READ)
def _logs_read(subject: _ProviderSubject) -> None:
    server = subject.shared_server()
    if not subject.can.has_logs:
        with _raises(NotSupported, by="logs"):
            server.logs()
        return
    _expect(server.logs().strip(), "there is nothing")


@_checks(LAST_LINES_ARE_FEW)
def _few_lines(subject: _ProviderSubject) -> None:
    _require(subject.can.has_logs, "it has no logs")
    _expect(len(subject.shared_server().logs(2).splitlines()) <= 2, "there are more")


@_checks(LOGS_OUTLIVE_IT)
def _logs_stay(subject: _ProviderSubject) -> None:
    _require(subject.can.has_logs, "it has no logs")
    server = subject.launch_ready()
    server.stop()
    _expect(server.logs().strip(), "there is nothing")


@_checks(COMMANDS_ARE_RUN)
def _command(subject: _ProviderSubject) -> None:
    server = subject.shared_server()
    if not subject.can.can_execute:
        with _raises(NotSupported, by="execute"):
            server.execute(["true"])
        return
    ran = server.execute(["sh", "-c", "echo out; echo err >&2; exit 3"])
    _expect(isinstance(ran, Executed), ran)
    told = ran.exit_code, ran.stdout.strip(), ran.stderr.strip()
    _expect(told == (3, "out", "err"), told)


@_checks(COMMANDS_END_IN_TIME)
def _slow_command(subject: _ProviderSubject) -> None:
    _require(subject.can.can_execute, "it runs no commands")
    began = time.monotonic()
    with _raises(ProviderError, by="execute"):
        subject.shared_server().execute(["sleep", "30"], timeout_s=1.0)
    _expect(time.monotonic() - began < 15.0, "it waited for the command")


@_checks(NO_COMMAND_IS_SAID)
def _no_command(subject: _ProviderSubject) -> None:
    _require(subject.can.can_execute, "it runs no commands")
    try:
        ran = subject.shared_server().execute(["surely-no-such-program"])
    except ProviderError:
        return
    _expect(ran.exit_code in (126, 127), ran)


# ------------------------------------------------------------------ the older methods


def _older_methods(
    subject: _ProviderSubject,
) -> tuple[Callable[[], str], Callable[[], None], Callable[[], None]]:
    provider = subject.provider
    options = dict(subject.options)
    if isinstance(provider, ImageProvider):
        return (
            lambda: provider.start_container(**options),
            lambda: provider.wait_for_ready(timeout_s=subject.ready_s),
            provider.stop_container,
        )
    if isinstance(provider, HostProvider):
        return (
            lambda: provider.start(**options),
            lambda: provider.wait_for_ready(subject.ready_s),
            provider.stop,
        )
    raise PromiseSkipped("it has none")


@_checks(OLD_START_GIVES_A_URL)
def _old_start(subject: _ProviderSubject) -> None:
    start, wait, stop = _older_methods(subject)
    url = start()
    try:
        wait()
        _expect(is_healthy(url, 5.0), f"{url} does not answer")
    finally:
        stop()
    _expect(not is_healthy(url, 1.0), f"{url} answers after stop")


@_checks(OLD_START_IS_FOR_ONE)
def _old_second(subject: _ProviderSubject) -> None:
    start, wait, stop = _older_methods(subject)
    url = start()
    try:
        with _raises(ProviderError, by="a second start"):
            start()
        wait()
        _expect(is_healthy(url, 5.0), "the first is gone")
    finally:
        stop()


@_checks(OLD_STOP_MAY_BE_REPEATED)
def _old_stop(subject: _ProviderSubject) -> None:
    start, _, stop = _older_methods(subject)
    for _ in range(2):
        start()
        stop()
        stop()


@_checks(OLD_WAIT_NEEDS_A_START)
def _old_wait(subject: _ProviderSubject) -> None:
    _, wait, stop = _older_methods(subject)
    stop()
    with _raises(ProviderError, by="wait_for_ready"):
        wait()


# ------------------------------------------------------------------ at the end


@_checks(A_FORKED_CHILD_STOPS_NOTHING)
def _forked(subject: _ProviderSubject) -> None:
    _require(hasattr(os, "fork"), "this system does not fork")
    server = subject.shared_server()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads, which the child does not use
        child = os.fork()
    if child == 0:
        try:
            server.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    _expect(is_healthy(server.url, 5.0), "it is gone")


@_checks(CLOSE_STOPS_ALL)
def _close(subject: _ProviderSubject) -> None:
    servers = [subject.shared_server()]
    if subject.can.many:
        servers.append(subject.launch())
    subject.provider.close()
    subject.provider.close()
    _expect(not subject.provider.servers, subject.server_names())
    _expect(all(one.is_stopped for one in servers), "one was not stopped")
    _expect(not is_healthy(servers[0].url, 1.0), "one answers")
