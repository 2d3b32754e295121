"""`ModalProvider` by Modal's own SDK, with a stand-in of the service: see `test_with_sdks`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import modal
import pytest
from grpclib import Status
from providers.hosted.contract import check
from providers.hosted.doors import Doors, doors
from providers.hosted.machines import ECHO
from providers.hosted.modal_service import TOKEN, Modal
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.modal import ModalProvider

IMAGE = "registry.example/echo-env:latest"


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors(tmp_path_factory.mktemp("certificates")) as made:
        yield made


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, https: Doors) -> Iterator[Modal]:
    made = Modal(https)
    with made.serving():
        for name, value in {
            "MODAL_SERVER_URL": made.url,
            "MODAL_TOKEN_ID": TOKEN[0],
            "MODAL_TOKEN_SECRET": TOKEN[1],
            "OPENENV_CA_FILE": https.authority,
        }.items():
            monkeypatch.setenv(name, value)
        yield made
        left = list(made.boxes)
        made.destroy()
        modal.Client.from_env().close()  # it knows this address
    assert left == []


@pytest.fixture
def provider(service: Modal) -> Iterator[ModalProvider]:
    made = ModalProvider(image=IMAGE, cmd=ECHO, surface_server_logs=True)
    with contextlib.closing(made):
        yield made


# ------------------------------------------------------------------ as a client has it


@pytest.mark.parametrize(("use_sandbox_v2", "setting"), [(False, "1"), (False, "0"), (True, "0")])
def test_an_image_is_started_stepped_and_stopped(
    service: Modal, monkeypatch: pytest.MonkeyPatch, use_sandbox_v2: bool, setting: str
) -> None:
    monkeypatch.setenv("MODAL_SANDBOX_V2", setting)  # which generation `Sandbox.create` makes
    provider = ModalProvider(use_sandbox_v2=use_sandbox_v2, env_vars={"PLAIN": "seen"}, cpu=2.0)
    with EchoEnv.from_docker_image(IMAGE, provider=provider).sync() as env:
        env.reset()
        result = env.step(EchoAction(message="hello"))
        assert result.observation.echoed_message == "hello"
        (box,) = service.boxes.values()
        assert box.machine.variables == {"PLAIN": "seen"}
        assert service.images[box.definition.image_id][0] == f"FROM {IMAGE}"
        assert service.images[box.definition.image_id][-1] == "ENTRYPOINT []"
        assert box.definition.timeout_secs == 300
        assert box.definition.resources.milli_cpu == 2000
    assert service.boxes == {}


def test_the_older_methods_hold_one_server(provider: ModalProvider, service: Modal) -> None:
    url = provider.start_container(IMAGE, 8000, {"B": "2"})
    assert url.startswith("https://") and provider.base_url == url
    provider.wait_for_ready(url)
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container()
    assert len(service.made) == 1
    with EchoEnv(url).sync() as env:
        env.reset()
    provider.stop_container()
    provider.stop_container()
    assert service.boxes == {}


def test_many_start_at_once(provider: ModalProvider, service: Modal) -> None:
    async def play() -> None:
        servers = await asyncio.gather(*(provider.launch_async() for _ in range(3)))
        assert len({server.url for server in servers}) == 3
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())
    assert service.boxes == {}


def test_it_wants_a_key_of_its_own(provider: ModalProvider, service: Modal) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        (box,) = service.boxes.values()
        assert server.api_key is not None
        assert server.api_key not in str(box.machine.commands)
        with EchoEnv(server.url, headers={"X-API-Key": server.api_key}).sync() as env:
            env.reset()
        from openenv._internal.net.tls import client_context

        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.url}/state", context=client_context())
        caught.value.close()
        assert caught.value.code == 401


def test_a_server_is_looked_into(provider: ModalProvider) -> None:
    with provider.launch(env_vars={"WORD": "seen"}) as server:
        server.wait_for_ready()
        done = server.execute(["sh", "-c", 'echo "$WORD"; echo oh >&2; exit 3'])
        assert (done.exit_code, done.stdout, done.stderr) == (3, "seen\n", "oh\n")
        with pytest.raises(ProviderError, match="took longer than 1 s"):
            server.execute(["sleep", "30"], timeout_s=1)
        assert "Uvicorn running" in server.logs()
    assert "Uvicorn running" in server.logs()


# ------------------------------------------------------------------ images and commands


def test_a_dockerfile_is_built_and_its_command_is_the_last_choice(
    service: Modal, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    file = tmp_path / "Dockerfile"
    file.write_text(f"FROM python:3.12\nWORKDIR /app\nCMD {ECHO}\n")
    image = ModalProvider.image_from_dockerfile(str(file))
    service.manifest = None
    with EchoEnv(provider=ModalProvider(image=image)).sync() as env:
        env.reset()
        (box,) = service.boxes.values()
        assert "WORKDIR /app" in service.images[box.definition.image_id]
    with (
        ModalProvider(image=image, cmd="false", surface_server_logs=True).launch(
            cmd="echo of the start"
        ) as server,
        pytest.raises(ProviderExited, match="of the start"),
    ):
        server.wait_for_ready()


def test_options_go_to_the_sandbox_and_unknown_ones_are_refused(
    provider: ModalProvider, service: Modal
) -> None:
    with provider.launch(region="us-east", timeout=900):
        (asked,) = service.made
        assert asked.timeout_secs == 900
        assert list(asked.scheduler_placement.regions) == ["us-east"]
    with pytest.raises(TypeError, match=r"no such option: gpus.*gpu"):
        provider.launch(gpus="A100")
    with pytest.raises(ValueError, match="port is 9000"):
        provider.launch(port=9000)
    with pytest.raises(ValueError, match="has not been registered"):
        provider.launch("dockerfile:/nowhere")
    assert len(service.made) == 1


def test_an_image_that_does_not_say_how_it_is_started_is_refused(service: Modal) -> None:
    service.manifest = None
    with pytest.raises(ValueError, match=r"pass cmd='uvicorn"):
        ModalProvider(image=IMAGE).launch()
    assert service.boxes == {} and len(service.made) == 1


# ------------------------------------------------------------------ what goes wrong


def test_a_wrong_token_is_said(service: Modal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-of-somebody-else")
    with pytest.raises(ProviderError, match=r"malformed or revoked.*MODAL_TOKEN_ID") as caught:
        ModalProvider(image=IMAGE).launch()
    assert "as-of-somebody-else" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.RESOURCE_EXHAUSTED, "Workspace budget exceeded"),
        (Status.FAILED_PRECONDITION, "Sandbox name is taken"),
        (Status.PERMISSION_DENIED, "You may not"),
    ],
)
def test_a_sandbox_that_is_not_made_is_said(
    provider: ModalProvider, service: Modal, status: Status, words: str
) -> None:
    service.fail("SandboxCreate.*", status, words)
    with pytest.raises(ProviderError, match=words):
        provider.launch()
    assert sum(name.startswith("SandboxCreate") for name in service.asked) == 1


def test_a_sandbox_that_fails_to_start_is_said_and_ended(
    provider: ModalProvider, service: Modal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_SANDBOX_V2", "0")  # the others wait for it afterwards
    service.starts = False
    with pytest.raises(ProviderError, match="Image has no /bin/sh"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_failure_after_the_sandbox_is_there_ends_it(
    provider: ModalProvider, service: Modal
) -> None:
    service.fail("SandboxGetTunnels.*", Status.INVALID_ARGUMENT, "no tunnel today")
    with pytest.raises(ProviderError, match="no tunnel today"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_launch_that_is_cancelled_leaves_nothing(provider: ModalProvider, service: Modal) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.to_thread(wait_until, lambda: bool(service.made))
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(cancel())
    assert service.boxes == {} and len(service.made) == 1


def test_a_server_that_ends_says_so_at_once_and_its_words_where_they_are_wanted(
    provider: ModalProvider, service: Modal
) -> None:
    command = 'echo "no such weights for $MODEL_TOKEN"; exit 3'
    told = {"MODEL_TOKEN": "tok-77aa31bb90"}
    with (
        provider.launch(cmd=command, env_vars=told) as server,
        pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights for \*\*\*"),
    ):
        server.wait_for_ready(60)
    with (
        ModalProvider(image=IMAGE).launch(cmd=command, env_vars=told) as server,
        pytest.raises(ProviderExited, match=r"exit code 3.*surface_server_logs") as caught,
    ):
        server.wait_for_ready(60)
    assert "no such weights" not in str(caught.value)


def test_a_server_that_never_answers_says_so(provider: ModalProvider) -> None:
    with (
        provider.launch(cmd="echo loading; sleep 60") as server,
        pytest.raises(ProviderTimeout, match=r"within 1 s(.|\n)*loading"),
    ):
        server.wait_for_ready(1)


def test_a_sandbox_whose_time_is_over_is_said_to_have_ended(
    provider: ModalProvider, service: Modal
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        server.check_running()
        (box,) = service.boxes.values()
        box.code = 124
        with pytest.raises(ProviderExited, match="its time is over"):
            server.check_running()


def test_a_sandbox_that_somebody_ends_is_said_to_be_gone(
    provider: ModalProvider, service: Modal
) -> None:
    server = provider.launch()
    server.wait_for_ready()
    service.destroy()
    with pytest.raises(ProviderExited, match="not found"):
        server.check_running()
    server.stop()


def test_a_stop_that_fails_is_tried_again_and_can_be_repeated(
    provider: ModalProvider, service: Modal
) -> None:
    provider.start_container()
    service.fail("SandboxTerminate.*", Status.PERMISSION_DENIED, "not now")
    with pytest.raises(ProviderError, match="not now"):
        provider.stop_container()
    assert len(service.boxes) == 1
    provider.stop_container()
    assert service.boxes == {}


PROGRAM = f"""
from openenv.providers.modal import ModalProvider
server = ModalProvider(image={IMAGE!r}, cmd={ECHO!r}).launch()
"""


def test_what_a_program_leaves_is_ended(service: Modal) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ, timeout=50)
    assert done.returncode == 0
    assert service.boxes == {} and len(service.made) == 1


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(service: Modal, provider: ModalProvider) -> None:
    check(provider, service.boxes)
