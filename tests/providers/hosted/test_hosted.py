"""What providers of hosted sandboxes share, on sandboxes of this machine; and their arguments."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from providers.hosted.machines import ECHO, MANIFEST, Machine
from support.processes import is_alive
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._hosted import (
    LOG_BYTES,
    HostedProvider,
    HostedSandbox,
    HostedServer,
    SandboxGone,
    ServiceBusy,
    https_only,
    only,
    owner_labels,
    owner_of,
    retried,
    unique_name,
)
from openenv.providers._relay import CHUNK
from openenv.providers.aca import ACASandboxProvider
from openenv.providers.base import Capabilities
from openenv.providers.daytona import DaytonaProvider
from openenv.providers.hf import HFSandboxProvider, _rewritten, _with_credentials
from openenv.providers.modal import ModalProvider
from openenv.providers.owners import own_name
from openenv.providers.servers import Executed


class Here(HostedSandbox):
    """A sandbox of this machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine: Machine | None = machine
        self.name = machine.id
        self.broken: list[ProviderError] = []

    def _machine(self) -> Machine:
        if self.broken:
            raise self.broken.pop()
        if self.machine is None:
            raise SandboxGone("there is no such sandbox")
        return self.machine

    def run(self, script: str, timeout_s: float) -> Executed:
        ran = self._machine().run(["sh", "-c", script], timeout_s)
        if ran.code is None:
            raise ProviderError(f"it took longer than {timeout_s:g} s")
        return Executed(ran.code, ran.stdout.decode(), ran.stderr.decode())

    def write(self, path: str, data: bytes) -> None:
        self._machine().write(path, data)

    def address(self) -> str:
        return self._machine().link()

    def why_ended(self) -> str | None:
        return "it was deleted" if self.machine is None else None

    def delete(self) -> None:
        if self.broken:
            raise self.broken.pop()
        if self.machine is not None:
            self.machine.destroy()
            self.machine = None


class OfHere(HostedProvider):
    """Of sandboxes of this machine."""

    capabilities: ClassVar[Capabilities] = Capabilities(isolation="process")

    def __init__(self, command: str | None = None, shows_log: bool = True) -> None:
        super().__init__("image", None, command, shows_log=shows_log)
        self.made: list[Here] = []
        self.manifest: str | None = None
        self.left: list[tuple[str, Callable[[], object]]] = []
        self.breaks: list[ProviderError] = []  # of a new sandbox, the last one first

    def _make(
        self, image: str, env_vars: Mapping[str, str], options: dict[str, Any]
    ) -> HostedSandbox:
        only(options)
        self.made.append(Here(Machine(env_vars, self.manifest)))
        self.made[-1].broken = list(self.breaks)
        return self.made[-1]

    def _held_by_others(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield from self.left


@pytest.fixture
def provider() -> Iterator[OfHere]:
    made = OfHere()
    yield made
    made.close()
    assert [one.name for one in made.made if one.machine is not None] == []


@pytest.mark.slow
def test_a_server_is_started_by_its_manifest_and_stepped(provider: OfHere) -> None:
    provider.manifest = MANIFEST
    with EchoEnv(provider=provider).sync() as env:
        env.reset()
        assert env.step(EchoAction(message="hi")).observation.echoed_message == "hi"
        (sandbox,) = provider.made
        assert sandbox.machine is not None
        processes = sandbox.machine.processes()
        assert processes
    wait_until(lambda: not [pid for pid in processes if is_alive(pid)])


@pytest.mark.slow
def test_a_key_is_told_by_a_file_that_only_its_owner_reads(provider: OfHere) -> None:
    with provider.launch(cmd=f'ls -l "$OPENENV_API_KEY_FILE"; {ECHO}') as server:
        server.wait_for_ready()
        (machine,) = [one.machine for one in provider.made]
        assert machine is not None and server.api_key is not None
        assert server.logs().startswith("-rw------- ")
        assert server.api_key not in str(machine.commands)
        assert server.api_key in (machine.root / "tmp" / "openenv-server.key").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("exec false", 1), ("kill $$", 143)])
def test_the_end_of_a_server_is_told_with_its_code(
    provider: OfHere, command: str, code: int
) -> None:
    with (
        provider.launch(cmd=f"echo no such weights; {command}") as server,
        pytest.raises(ProviderExited, match=rf"exit code {code}\)(.|\n)*no such weights") as caught,
    ):
        server.wait_for_ready()
    assert caught.value.exit_code == code


@pytest.mark.slow
def test_a_server_that_is_silent_is_told_of_in_time(provider: OfHere) -> None:
    with (
        provider.launch(cmd="echo loading; sleep 60") as server,
        pytest.raises(ProviderTimeout, match=r"(.|\n)*loading"),
    ):
        server.wait_for_ready(0.5)


@pytest.mark.slow
def test_a_log_is_kept_to_itself_where_it_is_not_wanted() -> None:
    provider = OfHere("echo the secret plan; exit 1", shows_log=False)
    with provider.launch() as server:
        with pytest.raises(ProviderExited, match="surface_server_logs") as caught:
            server.wait_for_ready()
        assert "secret plan" not in str(caught.value)
        assert "secret plan" in server.logs()
    with OfHere("sleep 60", shows_log=False).launch() as server:
        with pytest.raises(ProviderTimeout) as late:
            server.wait_for_ready(0.3)
        assert "log" not in str(late.value)


def test_a_service_that_is_silent_for_a_while_ends_nothing(provider: OfHere) -> None:
    with provider.launch(cmd="sleep 60") as server:
        provider.made[0].broken = [ServiceBusy("maintenance", nothing_was_done=False)]
        server.check_running()
        provider.made[0].delete()
        with pytest.raises(ProviderExited, match="no such sandbox"):
            server.check_running()


def test_a_command_has_to_be_known(provider: OfHere) -> None:
    with pytest.raises(ValueError, match="nothing says how to start the server of image"):
        provider.launch()
    provider.manifest = "app: ["
    with pytest.raises(ValueError, match="is not valid YAML"):
        provider.launch()
    assert [one.machine for one in provider.made] == [None, None]


@pytest.mark.slow
def test_a_deletion_that_fails_is_tried_again_and_then_said(provider: OfHere) -> None:
    server = provider.launch(cmd="sleep 60")
    provider.made[0].broken = [ServiceBusy("try again", nothing_was_done=False)] * 2
    server.logs = lambda lines=None: ""  # type: ignore[method-assign]  # which would take one
    server.stop()
    assert provider.made[0].machine is None
    server = provider.launch(cmd="sleep 60")
    server.logs = lambda lines=None: ""  # type: ignore[method-assign]
    provider.made[1].broken = [ProviderError("no")]
    with pytest.raises(ProviderError, match="no"):
        server.stop()
    assert provider.made[1].machine is not None
    server.stop()
    assert server.is_stopped


def test_a_sandbox_that_cannot_be_deleted_is_named(
    provider: OfHere, caplog: pytest.LogCaptureFixture
) -> None:
    provider.breaks = [ProviderError("no deletion"), ProviderError("no writing")]
    with pytest.raises(ProviderError, match="no writing"):
        provider.launch(cmd="sleep 60")
    assert f"{provider.made[0].name} could not be deleted, and may cost money" in caplog.text
    provider.made[0].delete()


def test_a_server_that_nobody_holds_is_deleted(provider: OfHere) -> None:
    server = provider.launch(cmd="sleep 60")
    assert not server.is_stopped
    del server
    gc.collect()
    wait_until(lambda: provider.made[0].machine is None)


def test_what_a_killed_holder_has_left_is_deleted_once(
    provider: OfHere, caplog: pytest.LogCaptureFixture
) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from openenv.providers.owners import own_name; print(own_name())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    deleted: list[str] = []
    provider.left = [
        (ended.stdout.strip(), lambda: deleted.append("orphan")),
        (own_name(), lambda: deleted.append("ours")),
        ("other-machine/boot/1/2", lambda: deleted.append("of another machine")),
    ]
    for _ in range(2):
        provider.launch(cmd="sleep 60").stop()
    assert deleted == ["orphan"]


def test_labels_of_owners_are_short_and_found_again() -> None:
    labels = owner_labels()
    assert owner_of({**labels, "team": "a"}) == own_name()
    assert owner_of({"team": "a"}) is None
    assert all(len(value) <= 63 for value in labels.values())


# ------------------------------------------------------------------ small parts


def refusing(times: int, nothing_was_done: bool) -> Callable[[], int]:
    asked = itertools.count(1)

    def work() -> int:
        if (count := next(asked)) <= times:
            raise ServiceBusy("not now", nothing_was_done)
        return count

    return work


def test_only_what_may_be_repeated_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openenv.providers._hosted.FIRST_PAUSE_S", 0.001)
    assert retried(refusing(2, True), is_repeatable=False) == 3
    assert retried(refusing(2, False), is_repeatable=True) == 3
    with pytest.raises(ServiceBusy):
        retried(refusing(1, False), is_repeatable=False)
    with pytest.raises(ServiceBusy):
        retried(refusing(9, True), is_repeatable=True)
    with pytest.raises(ServiceBusy):
        retried(refusing(1, True), is_repeatable=True, until=0.0)


def test_an_option_that_there_is_not_is_named_with_those_that_there_are() -> None:
    only({"cmd": 1}, "cmd", "labels")
    for error in (TypeError, ValueError):  # the public package's is the second
        with pytest.raises(error, match="no such option: cdm; there are cmd, labels"):
            only({"cdm": 1}, "cmd", "labels")


def test_an_address_that_others_can_read_along_is_refused() -> None:
    assert https_only("https://a.example/") == "https://a.example"
    with pytest.raises(ProviderError, match="without https"):
        https_only("http://a.example")


@pytest.mark.parametrize(
    "image", ["ghcr.io/me/echo-env:1.2", "snapshot:Echo_Env", "dockerfile:/a/b/Dockerfile", "ü:"]
)
def test_a_name_is_short_and_of_plain_letters(image: str) -> None:
    names = {unique_name(image) for _ in range(20)}
    assert len(names) == 20
    for name in names:
        assert len(name) <= 48 and all(c.isascii() and (c.isalnum() or c == "-") for c in name)


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("daytona", DaytonaProvider, "daytona"),
        ("modal", ModalProvider, "modal"),
        ("huggingface_hub", lambda: HFSandboxProvider(image="i"), "hf"),
        (
            "azure.containerapps.sandbox",
            lambda: ACASandboxProvider(
                subscription_id="s",
                resource_group="r",
                sandbox_group="g",
                region="eastus2",
                anonymous_port=True,
            ),
            "aca",
        ),
    ],
)
def test_a_missing_package_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, module: str, make: Callable[[], object], extra: str
) -> None:
    first = module.partition(".")[0]
    for name in (first, module):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match=rf"pip install 'openenv\[{extra}\]'"):
        make()


OF_AZURE: dict[str, Any] = {
    "subscription_id": "s",
    "resource_group": "r",
    "sandbox_group": "g",
    "region": "eastus2",
    "anonymous_port": True,
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"anonymous_port": None}, "anonymous_port is None"),
        ({"anonymous_port": False}, "anonymous_port is False"),
        ({"auto_suspend_mode": "Sleep"}, "auto_suspend_mode is 'Sleep'"),
        ({"create_timeout": 0}, "create_timeout is 0"),
        ({"image": "ghcr.io/me/echo"}, "not a disk of Azure's"),
        ({"image": "echo:latest"}, "not a disk of Azure's"),
        ({"image": "disk-id:"}, "not a disk of Azure's"),
        ({"subscription_id": None}, "subscription_id is missing.*AZURE_SUBSCRIPTION_ID"),
        ({"region": None}, "region is missing.*AZURE_REGION"),
    ],
)
def test_azure_is_told_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], words: str
) -> None:
    for name in ("SUBSCRIPTION_ID", "RESOURCE_GROUP", "SANDBOX_GROUP", "REGION"):
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    with pytest.raises(ValueError, match=words):
        ACASandboxProvider(**{**OF_AZURE, **changed})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DaytonaProvider(auto_stop_interval=-1), "auto_stop_interval is -1"),
        (lambda: DaytonaProvider(create_timeout=0), "create_timeout is 0"),
        (lambda: ModalProvider(timeout=0), "timeout is 0"),
        (lambda: ModalProvider(cpu=-1.0), "cpu is -1"),
    ],
)
def test_values_that_mean_nothing_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_what_stands_for_an_sdk_is_not_taken() -> None:
    with pytest.raises(TypeError, match="_adapter"):
        ModalProvider(_adapter=object())


def test_dockerfiles_of_the_public_package_are_registered_as_before(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM a\nRUN --mount=type=cache,target=/c ls\n")
    for kind in (DaytonaProvider, ModalProvider):
        assert kind.image_from_dockerfile(str(file)) == f"dockerfile:{file}"
    assert DaytonaProvider.strip_buildkit_syntax(file.read_text()) == "FROM a\nRUN ls\n"


@pytest.mark.parametrize(
    "kind", [DaytonaProvider, ModalProvider, ACASandboxProvider, HFSandboxProvider]
)
def test_the_older_methods_wait_as_long_as_those_of_the_public_package(kind: Any) -> None:
    parameters = inspect.signature(kind.wait_for_ready).parameters
    assert parameters["timeout_s"].default == 120.0
    assert list(inspect.signature(kind.start_container).parameters)[1:] == [
        "image",
        "port",
        "env_vars",
        "kwargs",
    ]
    assert kind.capabilities.many and kind.capabilities.fresh_keys


def test_a_request_is_given_credentials_and_keeps_its_own_key() -> None:
    told = {"Authorization": "Bearer of-the-hub", "X-Sandbox-Token": "of-the-sandbox"}
    head = (
        b"GET /ws?a=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: keep-alive, Upgrade\r\n"
        b"Upgrade: websocket\r\nauthorization: Bearer own\r\nX-Sandbox-Token: forged\r\n\r\n"
    )
    line, *headers = _rewritten(head, "job.example", "/v1/proxy/8000", told).decode().split("\r\n")
    assert line == "GET /v1/proxy/8000/ws?a=1 HTTP/1.1"
    assert headers == [
        "Upgrade: websocket",
        "X-API-Key: own",
        "Authorization: Bearer of-the-hub",
        "X-Sandbox-Token: of-the-sandbox",
        "Host: job.example",
        "Connection: Upgrade",
        "",
        "",
    ]
    plain = _rewritten(b"POST /step HTTP/1.1\r\nContent-Length: 2\r\n\r\n", "h", "", {})
    assert plain == (
        b"POST /step HTTP/1.1\r\nContent-Length: 2\r\nHost: h\r\nConnection: close\r\n\r\n"
    )


def test_so_much_of_a_log_is_read_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is; also where the image's own `tail` gives more."""
    pour = f"head -c {3 * LOG_BYTES} /dev/zero | tr '\\0' x; echo; echo the end; sleep 60"
    with OfHere(pour).launch() as server:
        assert isinstance(server, HostedServer)
        wait_until(lambda: server.logs(1) == "the end")
        log = server.logs()
        assert len(log.encode()) == LOG_BYTES and log.endswith("x\nthe end\n")
        box = server._sandbox
        monkeypatch.setattr(box, "run", lambda *_: Executed(0, "y" * 4 * LOG_BYTES + "z", ""))
        assert len(server.logs()) == LOG_BYTES and server.logs()[-1] == "z"
        monkeypatch.undo()
        with OfHere("echo hello; sleep 60").launch() as neighbour:
            wait_until(lambda: neighbour.logs() == "hello\n")


@pytest.mark.anyio
async def test_a_head_that_is_too_large_is_not_passed_on() -> None:
    reach = _with_credentials("https://127.0.0.1:9", dict)
    reader = asyncio.StreamReader(limit=CHUNK)
    reader.feed_data(b"GET / HTTP/1.1\r\nX: " + b"y" * (2 * CHUNK))
    with pytest.raises(OSError, match="no request"):
        async with reach(reader):
            pass
    neighbour = asyncio.StreamReader(limit=CHUNK)
    neighbour.feed_data(b"GET / HTTP/1.1\r\nX: y\r\n\r\n")
    with pytest.raises(ConnectionRefusedError):  # its head was read, and the server asked
        async with reach(neighbour):
            pass
