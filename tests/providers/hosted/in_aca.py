"""`ACASandboxProvider` by Azure's own SDK, with a stand-in of the service: see `test_with_sdks`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.containerapps.sandbox import EgressHostRule, EgressPolicy
from azure.core.credentials import AccessToken
from providers.hosted.aca_service import GROUP, TOKEN, Azure
from providers.hosted.contract import check
from providers.hosted.doors import Doors, doors
from providers.hosted.machines import ECHO
from support.servers import serving
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._hosted import owner_of
from openenv.providers.aca import ACASandboxProvider
from openenv.providers.owners import own_name

DENIED = EgressPolicy(default_action="Deny")
QUICK = {"retry_backoff_factor": 0.01}  # what the SDK itself asks again


class Credential:
    """As azure-identity has them."""

    def __init__(self, token: str = TOKEN) -> None:
        self._token = token

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 3600)


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors(tmp_path_factory.mktemp("certificates")) as made:
        yield made


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, https: Doors) -> Iterator[Azure]:
    made = Azure(https)
    with serving(made.app) as url:
        port = https.to(int(url.rpartition(":")[2]))
        for name, value in {
            "AZURE_SUBSCRIPTION_ID": "sub",
            "AZURE_RESOURCE_GROUP": "rg",
            "AZURE_SANDBOX_GROUP": "group",
            "TEST_ENDPOINT": f"https://127.0.0.1:{port}",
            "OPENENV_CA_FILE": https.authority,
            "REQUESTS_CA_BUNDLE": https.authority,
        }.items():
            monkeypatch.setenv(name, value)
        yield made
        left = list(made.boxes)
        made.destroy()
    assert left == []


def made_provider(**options: Any) -> ACASandboxProvider:
    defaults: dict[str, Any] = {
        "endpoint": os.environ["TEST_ENDPOINT"],
        "credential": Credential(),
        "anonymous_port": True,
        "egress_policy": DENIED,
        "polling_interval": 0.05,
        "sdk_kwargs": QUICK,
    }
    return ACASandboxProvider(**{**defaults, **options})


@pytest.fixture
def provider(service: Azure) -> Iterator[ACASandboxProvider]:
    made = made_provider(image="echo-env", cmd=ECHO, surface_server_logs=True)
    with contextlib.closing(made):
        yield made


# ------------------------------------------------------------------ as a client has it


def test_a_disk_is_started_stepped_and_stopped(service: Azure) -> None:
    provider = made_provider(env_vars={"PLAIN": "seen"}, labels={"team": "a"}, disk_size="20Gi")
    with EchoEnv.from_docker_image("disk-id:d-1", provider=provider).sync() as env:
        env.reset()
        result = env.step(EchoAction(message="hello"))
        assert result.observation.echoed_message == "hello"
        (box,) = service.boxes.values()
        assert box.asked["sourcesRef"] == {"diskImage": {"id": "d-1"}}
        assert box.asked["resources"] == {"cpu": "1000m", "memory": "2048Mi", "disk": "20Gi"}
        assert box.asked["environment"] == {"PLAIN": "seen"}
        assert box.asked["egressPolicy"] == {"defaultAction": "Deny"}
        policy = box.asked["lifecycle"]["autoSuspendPolicy"]
        assert policy == {"enabled": True, "interval": 900, "mode": "Memory"}
        assert box.asked["labels"]["team"] == "a" and owner_of(box.asked["labels"]) == own_name()
        assert all(len(value) <= 63 for value in box.asked["labels"].values())
    assert service.boxes == {}


@pytest.mark.parametrize("image", ["echo-env", "disk:echo-env"])
def test_the_older_methods_hold_one_server(
    provider: ACASandboxProvider, service: Azure, image: str
) -> None:
    url = provider.start_container(image, 8000, {"B": "2"})
    assert url.startswith("https://") and provider.base_url == url
    provider.wait_for_ready(url)
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container()
    (asked,) = service.made
    assert asked["sourcesRef"] == {"diskImage": {"name": "echo-env", "isPublic": True}}
    with EchoEnv(url).sync() as env:
        env.reset()
    provider.stop_container()
    provider.stop_container()
    assert service.boxes == {}


def test_many_start_at_once(provider: ACASandboxProvider, service: Azure) -> None:
    async def play() -> None:
        servers = await asyncio.gather(*(provider.launch_async() for _ in range(3)))
        assert len({server.url for server in servers}) == 3
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())
    assert service.boxes == {}


def test_a_server_is_looked_into(provider: ACASandboxProvider, service: Azure) -> None:
    with provider.launch(env_vars={"WORD": "seen"}) as server:
        server.wait_for_ready()
        done = server.execute(["sh", "-c", 'echo "$WORD"; echo oh >&2; exit 3'])
        assert (done.exit_code, done.stdout, done.stderr) == (3, "seen\n", "oh\n")
        assert server.execute(["sh", "-c", "exit 124"]).exit_code == 124
        with pytest.raises(ProviderError, match="took longer than 1 s"):
            server.execute(["sleep", "30"], timeout_s=1)
        assert "Uvicorn running" in server.logs()
        (box,) = service.boxes.values()
        assert server.api_key is not None and server.api_key not in str(box.machine.commands)
    assert "Uvicorn running" in server.logs()


def test_a_policy_denies_all_but_what_is_named(service: Azure) -> None:
    policy = ACASandboxProvider.deny_all_egress(allow=["*.pypi.org"])
    assert policy.default_action == "Deny"
    assert policy.host_rules == [EgressHostRule(pattern="*.pypi.org", action="Allow")]
    with made_provider(image="echo-env").launch(egress_policy=policy, labels={"run": "7"}):
        (asked,) = service.made
        assert asked["egressPolicy"]["hostRules"] == [{"pattern": "*.pypi.org", "action": "Allow"}]
        assert asked["labels"]["run"] == "7"


def test_no_policy_is_warned_of(service: Azure) -> None:
    provider = made_provider(image="echo-env", egress_policy=None)
    with pytest.warns(UserWarning, match="may connect to everything"), provider.launch():
        (asked,) = service.made
        assert "egressPolicy" not in asked


def test_commands_go_in_their_order(provider: ACASandboxProvider, service: Azure) -> None:
    def said(**options: Any) -> str:
        made = made_provider(image="echo-env", surface_server_logs=True, **options)
        with made.launch() as server, pytest.raises(ProviderExited) as caught:
            server.wait_for_ready(30)
        return str(caught.value)

    service.manifest = "app: of.the.manifest:app"
    with (
        provider.launch(cmd="echo of the start") as server,
        pytest.raises(ProviderExited, match="of the start"),
    ):
        server.wait_for_ready(30)
    assert "of the provider in /tmp" in said(
        cmd='echo "of the provider in /${PWD##*/}"', working_directory="/tmp"
    )
    assert "No module named 'of'" in said()
    service.manifest = None
    with pytest.raises(ValueError, match="pass cmd="):
        made_provider(image="echo-env").launch()


def test_unknown_options_are_refused(provider: ACASandboxProvider, service: Azure) -> None:
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="no such option: gpu"):
            provider.start_container(gpu=1)
    with pytest.raises(ValueError, match="port is 9000"):
        provider.launch(port=9000)
    with pytest.raises(ValueError, match="anonymous_port is False"):
        provider.launch(anonymous_port=False)
    with pytest.raises(ValueError, match="not a disk of Azure's"):
        provider.launch("ghcr.io/me/echo:latest")
    assert service.made == []


# ------------------------------------------------------------------ what goes wrong


def test_a_wrong_credential_is_said(service: Azure) -> None:
    provider = made_provider(image="echo-env", credential=Credential("of-somebody-else"))
    with pytest.raises(ProviderError, match=r"access token is invalid.*the right one") as caught:
        provider.launch()
    assert "of-somebody-else" not in str(caught.value)


@pytest.mark.parametrize("status", [409, 500])
def test_a_sandbox_that_is_not_made_is_said(
    provider: ACASandboxProvider, service: Azure, status: int
) -> None:
    error = {"code": "QuotaExceeded", "message": "The group has too many sandboxes"}
    service.faults.order(f"PUT {GROUP}$", status, 20, error=error)
    with pytest.raises(ProviderError, match="too many sandboxes"):
        provider.launch()
    service.faults.clear()


def test_a_sandbox_that_fails_to_start_is_deleted(
    provider: ACASandboxProvider, service: Azure
) -> None:
    service.becomes = "Failed"
    with pytest.raises(ProviderError, match="failed"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_sandbox_that_takes_too_long_is_deleted(service: Azure) -> None:
    service.becomes = "Creating"
    with pytest.raises(ProviderError, match="within 1s"):
        made_provider(image="echo-env", create_timeout=1).launch()
    assert service.boxes == {} and len(service.made) == 1


@pytest.mark.parametrize("step", ["ports/add", "files", "executeShellCommand"])
def test_a_failure_after_the_sandbox_is_there_deletes_it(
    provider: ACASandboxProvider, service: Azure, step: str
) -> None:
    service.faults.order(step, 400, error={"code": "Bad", "message": "not today"})
    with pytest.raises(ProviderError, match="not today"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_launch_that_is_cancelled_leaves_nothing(
    provider: ACASandboxProvider, service: Azure
) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.to_thread(wait_until, lambda: bool(service.made))
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(cancel())
    assert service.boxes == {} and len(service.made) == 1


def test_a_server_that_ends_says_so_at_once(provider: ACASandboxProvider, service: Azure) -> None:
    command = 'echo "no such weights for $MODEL_TOKEN"; exit 3'
    told = {"MODEL_TOKEN": "tok-77aa31bb90"}
    with (
        provider.launch(cmd=command, env_vars=told) as server,
        pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights for \*\*\*"),
    ):
        server.wait_for_ready(60)
    with (
        made_provider(image="echo-env").launch(cmd=command) as server,
        pytest.raises(ProviderExited, match=r"exit code 3.*surface_server_logs") as caught,
    ):
        server.wait_for_ready(60)
    assert "no such weights" not in str(caught.value)


def test_a_server_that_never_answers_says_so(provider: ACASandboxProvider) -> None:
    with (
        provider.launch(cmd="echo loading; sleep 60") as server,
        pytest.raises(ProviderTimeout, match=r"within 1 s(.|\n)*loading"),
    ):
        server.wait_for_ready(1)


def test_a_sandbox_that_ends_is_said_to_have(provider: ACASandboxProvider, service: Azure) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        (box,) = service.boxes.values()
        box.state, box.reason = "Stopped", "Idle"
        server.check_running()  # the next request resumes it
        box.reason = "Disabled"
        with pytest.raises(ProviderExited, match=r"Azure calls it Stopped \(Disabled\)"):
            server.check_running()
        service.destroy()
        with pytest.raises(ProviderExited, match="not found"):
            server.check_running()


def test_a_stop_that_fails_is_tried_again_and_can_be_repeated(
    provider: ACASandboxProvider, service: Azure
) -> None:
    provider.start_container()
    service.faults.order("DELETE", 409, error={"code": "Conflict", "message": "not now"})
    with pytest.raises(ProviderError, match="not now"):
        provider.stop_container()
    assert len(service.boxes) == 1
    service.faults.order("DELETE", 500, error={"code": "Fault", "message": "try again"})
    provider.stop_container()
    assert service.boxes == {}


PROGRAM = """
import os, sys
from providers.hosted.in_aca import made_provider
server = made_provider(image="echo-env").launch()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_what_a_program_leaves_is_deleted(service: Azure, how: str) -> None:
    tests = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, "PYTHONPATH": tests}
    subprocess.run([sys.executable, "-c", PROGRAM, how], env=environment, timeout=50)
    assert len(service.boxes) == (1 if how == "killed" else 0) and len(service.made) == 1
    with made_provider(image="echo-env").launch():
        (box,) = service.boxes.values()
        assert owner_of(box.asked["labels"]) == own_name()


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(service: Azure, provider: ACASandboxProvider) -> None:
    check(provider, service.boxes)
