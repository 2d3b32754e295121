"""`HFSandboxProvider` by the hub's own library, with a stand-in of it: see `test_with_sdks`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.hosted.contract import check
from providers.hosted.hf_service import DOMAIN, TOKEN, HuggingFace
from support.certificates import certificates

from echo_env import EchoAction, EchoEnv
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.hf import HFSandboxProvider, _pools

IMAGE = "hf.co/spaces/me/echo_env"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ssl.SSLContext, str]]:
    made = certificates(tmp_path_factory.mktemp("certificates"), f"*.{DOMAIN}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.private_key)
    yield context, made.authority


@pytest.fixture
def service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, context: tuple[ssl.SSLContext, str]
) -> Iterator[HuggingFace]:
    import huggingface_hub.constants
    import huggingface_hub.hf_api

    made = HuggingFace()
    with made.serving(context[0]):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", made.url)
        monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", made.url)
        for name, value in {
            "HF_HOME": str(tmp_path / "hf"),
            "HF_ENDPOINT": made.url,
            "HF_TOKEN": TOKEN,
            "HTTPS_PROXY": made.proxy,
            "https_proxy": made.proxy,
            "no_proxy": "127.0.0.1",
            "SSL_CERT_FILE": context[1],
        }.items():
            monkeypatch.setenv(name, value)
        huggingface_hub.close_session()  # it knows the former proxy
        yield made
        _pools.close()
        left = list(made.boxes)
        running = [job.id for job in made.jobs.values() if job.stage == "RUNNING"]
        made.destroy()
    assert (left, running) == ([], [])


@pytest.fixture
def provider(service: HuggingFace) -> Iterator[HFSandboxProvider]:
    with contextlib.closing(HFSandboxProvider(image=IMAGE)) as made:
        yield made


def test_an_image_is_started_stepped_and_stopped(service: HuggingFace) -> None:
    provider = HFSandboxProvider(image=IMAGE, env_vars={"A": "1"})
    with EchoEnv(provider=provider).sync() as env:
        env.reset()
        result = env.step(EchoAction(message="hello"))
        assert result.observation.echoed_message == "hello"
        (box,) = service.boxes.values()
        assert box.asked["env"] == {"A": "1"}
        assert box.machine.processes()
    assert service.boxes == {}
    (job,) = service.jobs.values()
    assert job.stage == "RUNNING"
    assert job.asked["spaceId"] == "me/echo_env" and job.asked["flavor"] == "cpu-basic"
    assert job.asked["labels"]["hf-sandbox-pool"].startswith("openenv-")


def test_the_older_methods_hold_one_server(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    url = provider.start_container(IMAGE, 8000, {"B": "2"})
    assert url.startswith("http://127.0.0.1:")
    provider.wait_for_ready(url)
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container()
    assert len(service.made) == 1
    with EchoEnv(url).sync() as env:
        env.reset()
    provider.stop_container()
    provider.stop_container()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/health", timeout=2)


def test_many_share_a_machine(service: HuggingFace) -> None:
    providers = [HFSandboxProvider(image=IMAGE) for _ in range(2)]

    async def play() -> None:
        servers = await asyncio.gather(*(one.launch_async() for one in [*providers, *providers]))
        assert len({server.url for server in servers}) == 4
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())
    assert len(service.jobs) == 1


def test_credentials_are_added_and_its_own_key_is_wanted(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.url}/state")
        caught.value.close()
        assert caught.value.code == 401
        asks = urllib.request.Request(
            f"{server.url}/state", headers={"Authorization": f"Bearer {server.api_key}"}
        )
        with urllib.request.urlopen(asks) as response:
            assert response.status == 200
        (box,) = service.boxes.values()
        assert str(server.api_key) not in str(box.machine.commands) + str(box.asked)


def test_a_server_is_looked_into(provider: HFSandboxProvider) -> None:
    with provider.launch(env_vars={"WORD": "seen"}) as server:
        server.wait_for_ready()
        done = server.execute(["sh", "-c", 'echo "$WORD"; echo oh >&2; exit 3'])
        assert (done.exit_code, done.stdout, done.stderr) == (3, "seen\n", "oh\n")
        with pytest.raises(ProviderError, match=r"took longer than 0\.2 s"):
            server.execute(["sleep", "30"], timeout_s=0.2)
        assert "Uvicorn running on unix socket" in server.logs()
    assert "Uvicorn running on unix socket" in server.logs()


def test_commands_go_in_their_order(service: HuggingFace) -> None:
    def said(provider: HFSandboxProvider, **options: Any) -> str:
        with (
            contextlib.closing(provider),
            provider.launch(**options) as server,
            pytest.raises(ProviderExited) as caught,
        ):
            server.wait_for_ready(30)
        return str(caught.value)

    service.server = "echo of the image"
    assert "of the start" in said(
        HFSandboxProvider(image=IMAGE, cmd="echo"), cmd="echo of the start"
    )
    assert "of the provider" in said(HFSandboxProvider(image=IMAGE, cmd="echo of the provider"))
    assert "of the image" in said(HFSandboxProvider(image=IMAGE))
    service.server = None
    with (
        contextlib.closing(HFSandboxProvider(image=IMAGE)) as provider,
        provider.launch() as server,
    ):
        server.wait_for_ready()
        assert "Uvicorn running on unix socket" in server.logs()
    service.manifest = None
    with (
        contextlib.closing(HFSandboxProvider(image=IMAGE)) as provider,
        pytest.raises(ValueError, match="pass cmd="),
    ):
        provider.launch()


def test_unknown_options_are_refused(provider: HFSandboxProvider, service: HuggingFace) -> None:
    with pytest.raises(TypeError, match="no such option: gpu"):
        provider.launch(gpu=1)
    with pytest.raises(ValueError, match="no such option: gpu"):
        provider.start_container(gpu=1)
    with pytest.raises(ValueError, match="port is 9000"):
        provider.launch(port=9000)
    with pytest.raises(ValueError, match="idle_timeout is 0"):
        provider.launch(idle_timeout=0)
    assert service.jobs == {}


# ------------------------------------------------------------------ what goes wrong


def test_a_wrong_token_is_said(service: HuggingFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    with pytest.raises(ProviderError, match="is HF_TOKEN the right one") as caught:
        HFSandboxProvider(image=IMAGE).launch()
    assert "hf_of_somebody_else" not in str(caught.value)


def test_no_token_is_said(service: HuggingFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ProviderError, match="token is required"):
        HFSandboxProvider(image=IMAGE).launch()


def test_a_job_that_ends_while_it_starts_is_said(service: HuggingFace) -> None:
    service.stage = "ERROR"
    with pytest.raises(ProviderError, match=r"terminated during startup(.|\n)*exec format error"):
        HFSandboxProvider(image=IMAGE).launch()


@pytest.mark.parametrize("status", [402, 500])
def test_a_job_that_is_not_made_is_said_and_asked_for_once(
    provider: HFSandboxProvider, service: HuggingFace, status: int
) -> None:
    service.faults.order("POST /api/jobs/me$", status, error="Pre-paid credit is required")
    with pytest.raises(ProviderError, match=r"sandbox for .* could not be made"):
        provider.launch()
    assert service.faults.count("POST /api/jobs/me$") == 1


def test_a_sandbox_that_is_asked_for_too_often_is_asked_for_again(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    service.faults.order("POST /v1/sandboxes$", 429, 2, error="slow down")
    with provider.launch():
        assert service.faults.count("POST /v1/sandboxes$") == 3


def test_a_failure_after_the_sandbox_is_there_deletes_it(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    service.faults.order("PUT", 500, error="no space left")
    with pytest.raises(ProviderError, match="no space left"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_server_that_ends_says_so_at_once(provider: HFSandboxProvider) -> None:
    with (
        provider.launch(cmd="echo 'no such weights'; exit 3") as server,
        pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights"),
    ):
        server.wait_for_ready(60)


def test_a_server_that_never_answers_says_so(provider: HFSandboxProvider) -> None:
    with (
        provider.launch(cmd="echo loading; sleep 60") as server,
        pytest.raises(ProviderTimeout, match=r"within 1 s(.|\n)*loading"),
    ):
        server.wait_for_ready(1)


def test_a_sandbox_that_is_gone_is_said_to_be(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        service.faults.order("exec", 503, 20, error="maintenance")
        server.check_running()
        service.faults.clear()
        service.destroy()
        with pytest.raises(ProviderExited, match="no such sandbox"):
            server.check_running()


def test_a_deletion_that_fails_is_tried_again(
    provider: HFSandboxProvider, service: HuggingFace
) -> None:
    server = provider.launch()
    service.faults.order("DELETE", 500, error="try again")
    server.stop()
    assert service.boxes == {} and service.faults.count("DELETE") == 2


PROGRAM = f"""
from openenv.providers.hf import HFSandboxProvider
server = HFSandboxProvider(image={IMAGE!r}).launch()
"""


def test_what_a_program_leaves_is_deleted(service: HuggingFace) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ, timeout=50)
    assert done.returncode == 0
    assert service.boxes == {} and len(service.made) == 1
    (job,) = service.jobs.values()
    assert job.stage == "CANCELED"


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(service: HuggingFace, provider: HFSandboxProvider) -> None:
    check(provider, service.boxes)
