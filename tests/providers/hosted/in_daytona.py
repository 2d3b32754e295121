"""`DaytonaProvider` by Daytona's own SDK, with a stand-in of the service: see `test_with_sdks`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.hosted.contract import check
from providers.hosted.daytona_service import KEY, Daytona
from providers.hosted.machines import ECHO
from support.processes import is_alive
from support.servers import serving
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._hosted import owner_of
from openenv.providers.daytona import DaytonaProvider
from openenv.providers.owners import own_name

pytestmark = pytest.mark.filterwarnings("ignore:.server_url. is deprecated")  # of the SDK's own

IMAGE = "registry.example/echo-env:latest"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daytona]:
    made = Daytona()
    with serving(made.app) as url:
        made.url = url
        monkeypatch.setenv("DAYTONA_API_URL", f"{url}/api")
        monkeypatch.setenv("DAYTONA_API_KEY", KEY)
        yield made
        left = list(made.boxes)
        made.destroy()
    assert left == []


@pytest.fixture
def provider(service: Daytona) -> Iterator[DaytonaProvider]:
    with contextlib.closing(DaytonaProvider(image=IMAGE, cmd=ECHO)) as made:
        yield made


# ------------------------------------------------------------------ as a client has it


def test_an_image_is_started_stepped_and_stopped(service: Daytona) -> None:
    provider = DaytonaProvider()
    with EchoEnv.from_docker_image(IMAGE, provider=provider).sync() as env:
        env.reset()
        result = env.step(EchoAction(message="hello"))
        assert result.observation.echoed_message == "hello"
        (box,) = service.boxes.values()
        assert box.asked["buildInfo"]["dockerfileContent"] == f"FROM {IMAGE}\n"
        processes = box.machine.processes()
        assert processes
    assert service.boxes == {}
    assert not [pid for pid in processes if is_alive(pid)]


def test_a_provider_that_knows_its_image_serves_a_client(service: Daytona) -> None:
    provider = DaytonaProvider(image=IMAGE, env_vars={"PLAIN": "seen"}, public=True, target="us")
    with EchoEnv(provider=provider).sync() as env:
        env.reset()
        (asked,) = service.made
        assert asked["env"] == {"PLAIN": "seen"}
        assert asked["public"] is True and asked["target"] == "us"
        assert asked["autoStopInterval"] == 15 and asked["autoDeleteInterval"] == 0
        assert asked["expires"] == "86400"


def test_the_older_methods_hold_one_server(provider: DaytonaProvider, service: Daytona) -> None:
    url = provider.start_container(IMAGE, 8000, {"A": "1"})
    provider.wait_for_ready(url)
    assert provider.base_url == url
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container()
    assert len(service.made) == 1
    provider.stop_container()
    provider.stop_container()
    assert service.boxes == {}


def test_many_start_at_once(provider: DaytonaProvider, service: Daytona) -> None:
    async def play() -> None:
        servers = await asyncio.gather(*(provider.launch_async() for _ in range(3)))
        assert len({server.url for server in servers}) == 3
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())
    assert service.boxes == {}


def test_a_server_is_looked_into(provider: DaytonaProvider) -> None:
    with provider.launch(env_vars={"WORD": "seen"}) as server:
        server.wait_for_ready()
        done = server.execute(["sh", "-c", 'echo "$WORD"; echo oh >&2; exit 3'])
        assert (done.exit_code, done.stdout, done.stderr) == (3, "seen\n", "oh\n")
        assert "Uvicorn running" in server.logs()
        assert len(server.logs(1).splitlines()) == 1
        with pytest.raises(ProviderError, match="could not be run"):
            server.execute(["sleep", "30"], timeout_s=1)
    assert "Uvicorn running" in server.logs()


def test_it_wants_a_key_of_its_own(provider: DaytonaProvider, service: Daytona) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        assert server.api_key is not None and len(server.api_key) > 30
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.url}/state")
        caught.value.close()
        assert caught.value.code == 401
        (box,) = service.boxes.values()
        assert server.api_key not in str(box.machine.commands) + str(box.asked)


def test_an_address_is_renewed(provider: DaytonaProvider) -> None:
    former = provider.start_container()
    provider.wait_for_ready()
    url = provider.refresh_preview_url()
    assert url != former and provider.base_url == url
    for address in (former, url):
        with EchoEnv(address).sync() as env:
            env.reset()
    provider.stop_container()
    with pytest.raises(ProviderError, match="not running"):
        provider.refresh_preview_url()


# ------------------------------------------------------------------ images and commands


def test_the_command_of_the_start_goes_first(service: Daytona, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text('FROM python:3.12\nWORKDIR /app\nCMD ["echo", "of the Dockerfile"]\n')
    image = DaytonaProvider.image_from_dockerfile(str(file))

    def said(provider: DaytonaProvider, **options: Any) -> str:
        with provider.launch(image, **options) as server:
            with pytest.raises(ProviderExited) as caught:
                server.wait_for_ready(30)
            return str(caught.value)

    told = DaytonaProvider(cmd="echo of the provider")
    service.manifest = 'app: "of.the:manifest"'
    assert "of the start" in said(told, cmd="echo of the start")
    assert "of the provider" in said(told)
    assert "No module named 'of'" in said(DaytonaProvider())
    service.manifest = None
    assert "of the Dockerfile" in said(DaytonaProvider())


def test_a_manifest_is_looked_for_below_app(service: Daytona) -> None:
    service.manifest_in = "app/src/echo"
    with EchoEnv(provider=DaytonaProvider(image=IMAGE)).sync() as env:
        env.reset()


def test_an_image_that_does_not_say_how_it_is_started_is_refused(service: Daytona) -> None:
    service.manifest = None
    with pytest.raises(ValueError, match=r"pass cmd='uvicorn"):
        DaytonaProvider(image=IMAGE).launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_dockerfile_is_built_without_mounts(service: Daytona, tmp_path: Path) -> None:
    file = tmp_path / "server" / "Dockerfile"
    file.parent.mkdir()
    file.write_text(
        "FROM python:3.12\nRUN --mount=type=cache,target=/root/.cache \\\n    pip install x\n"
        f"CMD {ECHO}\n"
    )
    service.manifest, service.first = None, "pending_build"
    lines: list[str] = []
    image = DaytonaProvider.image_from_dockerfile(str(file), str(tmp_path))
    provider = DaytonaProvider(image=image, on_snapshot_create_logs=lines.append)
    with EchoEnv(provider=provider).sync() as env:
        env.reset()
    (asked,) = service.made
    assert asked["buildInfo"]["dockerfileContent"] == (
        f"FROM python:3.12\nRUN pip install x\nCMD {ECHO}\n"
    )
    assert "step 1" in "".join(lines)
    assert [one.name for one in tmp_path.iterdir()] == ["server"]


def test_a_snapshot_is_named(service: Daytona) -> None:
    with DaytonaProvider().launch("snapshot:echo", cmd=ECHO, labels={"team": "a"}) as server:
        server.wait_for_ready()
    (asked,) = service.made
    assert asked["snapshot"] == "echo" and "buildInfo" not in asked
    assert asked["labels"]["team"] == "a" and owner_of(asked["labels"]) == own_name()


def test_options_go_to_the_sandbox_and_unknown_ones_are_refused(service: Daytona) -> None:
    import daytona

    provider = DaytonaProvider(image=IMAGE, cmd=ECHO, resources=daytona.Resources(cpu=2, memory=4))
    with provider.launch(network_block_all=True, ttl_minutes=30):
        (asked,) = service.made
        assert (asked["cpu"], asked["memory"]) == (2, 4)
        assert asked["networkBlockAll"] is True and asked["ttlMinutes"] == 30
    with pytest.raises(TypeError, match=r"no such option: netwrok.*network_block_all"):
        provider.launch(netwrok=1)
    with pytest.raises(ValueError, match="port is 9000"):
        provider.launch(port=9000)
    with pytest.raises(ValueError, match="resources of its own"):
        provider.launch("snapshot:echo")
    with pytest.raises(ValueError, match="has not been registered"):
        provider.launch("dockerfile:/nowhere")
    assert len(service.made) == 1


# ------------------------------------------------------------------ what goes wrong


def test_a_wrong_key_is_said(service: Daytona) -> None:
    provider = DaytonaProvider(image=IMAGE, api_key="dtn_of_somebody_else")
    with pytest.raises(ProviderError, match=r"DAYTONA_API_KEY.*the right one") as caught:
        provider.launch()
    assert "dtn_of_somebody_else" not in str(caught.value)


def test_no_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY", raising=False)
    with pytest.raises(ProviderError, match="DAYTONA_API_KEY"):
        DaytonaProvider()


def test_one_that_is_asked_too_often_is_asked_again(
    provider: DaytonaProvider, service: Daytona
) -> None:
    service.faults.order("POST /api/sandbox$", 429, 2, message="Too many requests")
    with provider.launch() as server:
        server.wait_for_ready()
    assert service.faults.count("POST /api/sandbox$") == 3


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "Total CPU quota exceeded"), (500, "Internal server error"), (502, "Bad gateway")],
)
def test_a_sandbox_that_is_not_made_is_said_and_asked_for_once(
    provider: DaytonaProvider, service: Daytona, status: int, message: str
) -> None:
    service.faults.order("POST /api/sandbox$", status, message=message)
    with pytest.raises(ProviderError, match=message):
        provider.launch()
    assert service.faults.count("POST /api/sandbox$") == 1


@pytest.mark.parametrize("state", ["error", "build_failed"])
def test_a_sandbox_that_fails_to_start_is_deleted(
    provider: DaytonaProvider, service: Daytona, state: str
) -> None:
    service.first, service.becomes, service.reason = "creating", state, "no such image"
    with pytest.raises(ProviderError, match="no such image"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_sandbox_that_takes_too_long_is_deleted(service: Daytona) -> None:
    service.becomes = "creating"
    provider = DaytonaProvider(image=IMAGE, cmd=ECHO, create_timeout=1)
    with pytest.raises(ProviderError, match="timeout"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_launch_that_is_cancelled_leaves_nothing(
    provider: DaytonaProvider, service: Daytona
) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.to_thread(wait_until, lambda: bool(service.made))
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(cancel())
    assert service.boxes == {} and len(service.made) == 1


def test_a_failure_after_the_sandbox_is_there_deletes_it(
    provider: DaytonaProvider, service: Daytona
) -> None:
    service.faults.order("signed-preview-url", 500, message="no link today")
    with pytest.raises(ProviderError, match="no link today"):
        provider.launch()
    assert service.boxes == {} and len(service.made) == 1


def test_a_server_that_ends_says_so_at_once_with_its_last_words(provider: DaytonaProvider) -> None:
    command = "echo 'no such weights' >&2; exit 3"
    with (
        provider.launch(cmd=command) as server,
        pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights") as caught,
    ):
        server.wait_for_ready(60)
    assert caught.value.exit_code == 3


def test_a_server_whose_process_is_killed_is_said_to_be_gone(
    provider: DaytonaProvider, service: Daytona
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        server.check_running()
        (box,) = service.boxes.values()
        box.machine.kill()
        with pytest.raises(ProviderExited, match="its process is gone"):
            server.check_running()


def test_a_server_that_never_answers_says_so(provider: DaytonaProvider) -> None:
    with (
        provider.launch(cmd="echo loading; sleep 60") as server,
        pytest.raises(ProviderTimeout, match=r"within 1 s(.|\n)*loading"),
    ):
        server.wait_for_ready(1)


def test_secrets_are_not_in_errors(provider: DaytonaProvider) -> None:
    command = 'echo "the key is $SERVICE_API_KEY"; exit 1'
    with (
        provider.launch(cmd=command, env_vars={"SERVICE_API_KEY": "sk-4b1d77aa20"}) as server,
        pytest.raises(ProviderExited, match=r"the key is \*\*\*") as caught,
    ):
        server.wait_for_ready()
    assert "sk-4b1d77aa20" not in str(caught.value)


@pytest.mark.parametrize("state", ["stopped", "error"])
def test_a_sandbox_that_ends_is_said_to_have(
    provider: DaytonaProvider, service: Daytona, state: str
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        (box,) = service.boxes.values()
        box.state, box.reason = state, "out of memory"
        with pytest.raises(ProviderExited, match=f"Daytona calls it {state}: out of memory"):
            server.check_running()


def test_a_sandbox_that_somebody_deletes_is_said_to_be_gone(
    provider: DaytonaProvider, service: Daytona
) -> None:
    server = provider.launch()
    server.wait_for_ready()
    service.destroy()
    with pytest.raises(ProviderExited, match="not found"):
        server.check_running()
    server.stop()
    assert server.is_stopped


def test_a_service_that_does_not_answer_for_a_while_ends_no_server(
    provider: DaytonaProvider, service: Daytona
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        service.faults.order("(execute|GET /api/sandbox)", 503, 20, message="maintenance")
        server.check_running()
        service.faults.clear()


def test_a_deletion_that_fails_once_is_tried_again(
    provider: DaytonaProvider, service: Daytona
) -> None:
    server = provider.launch()
    service.faults.order("DELETE", 500, message="try again")
    server.stop()
    assert service.boxes == {} and service.faults.count("DELETE") == 2


def test_a_stop_that_failed_can_be_repeated(provider: DaytonaProvider, service: Daytona) -> None:
    provider.start_container()
    service.faults.order("DELETE", 403, message="not now")
    with pytest.raises(ProviderError, match="not now"):
        provider.stop_container()
    assert len(service.boxes) == 1
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container()
    provider.stop_container()
    assert service.boxes == {}


# ------------------------------------------------------------------ what is left behind


def test_a_server_that_nobody_holds_is_deleted(provider: DaytonaProvider, service: Daytona) -> None:
    server = provider.launch()
    assert len(service.boxes) == 1
    del server
    gc.collect()
    wait_until(lambda: service.boxes == {})


PROGRAM = f"""
import os, sys
from openenv.providers._hosted import owner_of
from openenv.providers.daytona import DaytonaProvider
server = DaytonaProvider(image={IMAGE!r}, cmd={ECHO!r}).launch()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_what_a_program_leaves_is_deleted(service: Daytona, how: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], env=os.environ, timeout=50)
    assert len(service.boxes) == (1 if how == "killed" else 0), done
    with DaytonaProvider(image=IMAGE, cmd=ECHO).launch():
        assert len(service.boxes) == 1
        (box,) = service.boxes.values()
        assert owner_of(box.asked["labels"]) == own_name()


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(service: Daytona, provider: DaytonaProvider) -> None:
    check(provider, service.boxes)
