"""`DockerSwarmProvider` on a real engine and a real swarm. See scripts/dockerd."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.relay import Relay
from support.waiting import wait_until

from openenv import GenericEnvClient, SessionLost
from openenv.errors import NotSupported, ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.engines import find_engine
from openenv.providers.owners import OWNER, own_name
from openenv.providers.servers import Server
from openenv.providers.swarm import DockerSwarmProvider, Service, SwarmOptions, prune
from openenv.testing import check_provider
from openenv.testing import provider as promises

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(180)]

IMAGE = "localhost/openenv-test:latest"
SMALL: dict[str, Any] = {"memory_limit": "512m", "processes": 64}


def own(engine: Any) -> list[str]:
    """The services, secrets and containers of this process."""
    is_ours = {"label": f"{OWNER}={own_name()}"}
    made = [*engine.services(filters=is_ours), *engine.secrets(filters=is_ours)]
    names = {one["ID"]: one["Spec"]["Name"] for one in made}
    return [
        *names.values(),
        *(
            one["Names"][0]
            for one in engine.containers(all=True)
            if one["Labels"].get("com.docker.swarm.service.id") in names
        ),
    ]


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[Any]:
    """The engine; at the end it has nothing of ours."""
    client = find_engine()
    if client.info()["Swarm"]["LocalNodeState"] == "inactive":
        with pytest.raises(ProviderError, match="the engine is in no swarm"):
            DockerSwarmProvider(auto_init_swarm=False)
    yield client
    assert own(client) == []


@pytest.fixture
def provider() -> Iterator[DockerSwarmProvider]:
    with contextlib.closing(DockerSwarmProvider(IMAGE, replicas=1, **SMALL)) as made:
        yield made


@pytest.fixture(scope="module")
def service(engine: Any) -> Iterator[Service]:
    with contextlib.closing(DockerSwarmProvider(IMAGE, **SMALL)) as made:
        service = made.launch(
            replicas=4, env_vars={"PLAIN": "seen"}, secrets={"TOKEN": "hidden-9f2c"}
        )
        service.wait_for_ready()
        yield service


@pytest.fixture
def replica(service: Service) -> Server:
    return service.replicas[0]


def told(server: Server, code: str) -> str:
    """What a piece of Python prints where a server runs."""
    done = server.execute(["python", "-c", textwrap.dedent(code)])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def container_of(engine: Any, name: str) -> str:
    """The container that runs a replica now."""
    (found,) = engine.containers(filters={"name": f"^{name}\\."})
    return str(found["Id"])


def played(url: str, words: str) -> str:
    with GenericEnvClient(url).sync() as env:
        env.reset()
        return str(env.step({"message": words}).observation["echoed_message"])


# ------------------------------------------------------------------ replicas, and their sessions


def test_the_swarm_that_is_made_listens_on_the_loopback_interface_only(
    service: Service, engine: Any
) -> None:
    swarm = engine.info()["Swarm"]
    assert swarm["NodeAddr"] == "127.0.0.1"
    assert swarm["RemoteManagers"][0]["Addr"] == "127.0.0.1:2377"
    shown = subprocess.run(
        ["ss", "--no-header", "-ltn", "sport = :2377"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[3] == "127.0.0.1:2377"


def test_every_replica_has_an_address_of_its_own(service: Service) -> None:
    hosts = {told(one, "import socket; print(socket.gethostname())") for one in service.replicas}
    assert len(hosts) == len({one.url for one in service.replicas}) == 4
    for one in service.replicas:
        assert played(one.url, one.name) == one.name


def sessions(server: Server) -> int:
    """How many connections a replica's server has."""
    code = """
        rows = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
        print(sum(row[1].endswith(":1F40") and row[3] == "01" for row in rows))
    """
    return int(told(server, code))


def test_sessions_at_the_address_of_the_service_are_shared_out(service: Service) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(GenericEnvClient(service.url).sync()) for _ in range(8)]
        for number, env in enumerate(clients):
            env.reset()
            for _ in range(3):
                assert env.step({"message": str(number)}).observation["message_length"] == 1
        assert [sessions(one) for one in service.replicas] == [2, 2, 2, 2]
        assert [env.state()["step_count"] for env in clients] == [3] * 8


def test_a_session_over_http_is_found_by_every_connection(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.api_key}", "Connection": "close"}

    def post(path: str, body: Any, **more: str) -> httpx.Response:
        answer = httpx.post(f"{service.url}{path}", json=body, headers={**headers, **more})
        answer.raise_for_status()
        return answer

    for _ in range(3):
        session = post("/reset", {}).headers["OpenEnv-Session-Id"]
        for _ in range(8):
            post("/step", {"action": {"message": "x"}}, **{"OpenEnv-Session-Id": session})
        seen = httpx.get(f"{service.url}/state", headers={**headers, "OpenEnv-Session-Id": session})
        assert seen.json()["step_count"] == 8


def test_a_session_whose_connection_broke_goes_on_at_its_own_replica(replica: Server) -> None:
    relay = Relay(replica.url)
    with GenericEnvClient(relay.url, api_key=replica.api_key).sync() as env:
        env.reset()
        for number in range(1, 4):
            env.step({"message": "hi"})
            assert env.state()["step_count"] == number
            relay.cut()
    relay.close()


def test_at_the_address_of_the_service_it_goes_on_or_is_said_to_be_lost(service: Service) -> None:
    relay = Relay(service.url)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(GenericEnvClient(relay.url, api_key=service.api_key).sync())
            for _ in range(8)
        ]
        for env in clients:
            env.reset()
            env.step({"message": "hi"})
        relay.cut()
        ends = []
        for env in clients:
            try:
                env.step({"message": "hi"})
                ends.append(env.state()["step_count"])
            except SessionLost:
                ends.append("lost")
                env.reset()
                env.step({"message": "hi"})
                assert env.state()["step_count"] == 1
        assert set(ends) <= {2, "lost"} and "lost" in ends
    relay.close()


@pytest.mark.parametrize("at", ["service", "replica"])
def test_of_a_replica_that_is_killed_the_sessions_are_lost_and_another_takes_its_place(
    service: Service, engine: Any, at: str
) -> None:
    with contextlib.ExitStack() as stack:
        urls = [one.url for one in service.replicas] if at == "replica" else [service.url] * 4
        clients = [stack.enter_context(GenericEnvClient(url).sync()) for url in urls]
        for env in clients:
            env.reset()
        victim = service.replicas[1]
        before = container_of(engine, victim.name)
        engine.kill(before)
        ends = []
        for env in clients:
            try:
                ends.append(env.step({"message": "hi"}).observation["message_length"])
            except SessionLost:
                ends.append("lost")
        assert sorted(map(str, ends)) == ["2", "2", "2", "lost"]
        service.wait_for_ready()
        service.check_running()
        victim.check_running()
        assert container_of(engine, victim.name) != before
        for env in clients:
            env.reset()
            assert env.step({"message": "hello"}).observation["message_length"] == 5
    assert played(victim.url, "again") == "again"


def test_one_that_ends_again_and_again_is_given_up(
    provider: DockerSwarmProvider, engine: Any
) -> None:
    with provider.launch() as service:
        service.wait_for_ready()

        def has_ended() -> bool:
            for one in engine.containers(filters={"name": f"^{service.name}\\."}):
                engine.kill(one["Id"])
            try:
                service.check_running()
            except ProviderExited:
                return True
            return False

        wait_until(has_ended, 120)
        with pytest.raises(ProviderExited, match=r"replica 1 has ended \(task: non-zero") as caught:
            service.replicas[0].check_running()
        assert caught.value.exit_code == 137


# ------------------------------------------------------------------ as clients have always had it


def test_the_older_methods_hold_one_service(engine: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with DockerSwarmProvider() as provider:
        url = provider.start_container(
            IMAGE,
            port=port,
            env_vars={"PLAIN": "x"},
            replicas=2,
            cpu_limit="0.5",
            memory_limit="512m",
            constraints=["node.role==manager"],
            labels={"team": "red"},
            command="uvicorn echo_env.server.app:app --host 0.0.0.0 --port 8000",
        )
        assert url == f"http://127.0.0.1:{port}"
        provider.wait_for_ready(url, timeout_s=60)
        (made,) = engine.services(filters={"label": "team=red"})
        template = made["Spec"]["TaskTemplate"]
        assert made["Spec"]["Mode"]["Replicated"]["Replicas"] == 2
        assert template["Resources"]["Limits"] == {
            "NanoCPUs": 500_000_000,
            "MemoryBytes": 512 * 2**20,
            "Pids": 512,
        }
        assert template["Placement"]["Constraints"] == ["node.role==manager"]
        assert played(url, "hi") == "hi"
        assert "GET /health" in provider.logs()
    assert "GET /health" in provider.logs(), "what it printed is kept"
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass


def test_a_client_starts_and_ends_one(engine: Any) -> None:
    provider = DockerSwarmProvider(**SMALL)
    with GenericEnvClient.from_docker_image(IMAGE, provider=provider).sync() as env:
        env.reset()
        assert env.step({"message": "hi"}).observation["echoed_message"] == "hi"
        before = own(engine)
    assert len(set(before) - set(own(engine))) == 4, "a service, its secret, two containers"


def test_a_launch_that_is_cancelled_leaves_nothing(
    provider: DockerSwarmProvider, engine: Any
) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.sleep(0)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    before = own(engine)
    asyncio.run(cancel())
    assert sorted(own(engine)) == sorted(before)


def test_a_port_that_is_taken_is_said_and_nothing_is_left(
    provider: DockerSwarmProvider, engine: Any
) -> None:
    before = own(engine)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ProviderError, match=r"cannot listen on 127\.0\.0\.1 port"),
    ):
        provider.launch(port=taken.getsockname()[1])
    assert sorted(own(engine)) == sorted(before)


# ------------------------------------------------------------------ what replicas are not given


def test_they_want_a_key_that_is_a_secret_of_the_swarm(service: Service, engine: Any) -> None:
    for url in (service.url, *(one.url for one in service.replicas)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{url}/state")
        caught.value.close()
        assert caught.value.code == 401
    assert {one.api_key for one in service.replicas} == {service.api_key}
    assert "hidden-9f2c" in told(
        service.replicas[3], "import os; print(open(os.environ['TOKEN_FILE']).read())"
    )
    seen = json.dumps([engine.inspect_service(service.name), engine.secrets(), engine.tasks()])
    assert "PLAIN=seen" in seen
    assert "hidden-9f2c" not in seen and str(service.api_key) not in seen


def test_they_have_no_rights(replica: Server, engine: Any) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in told(replica, "print(open('/proc/self/status').read())").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split()[0] == "1000"
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    assert status["Seccomp"] == "2"
    if tuple(map(int, engine.version()["ApiVersion"].split("."))) >= (1, 44):
        assert status["NoNewPrivs"] == "1"


def test_they_write_to_memory_only(replica: Server) -> None:
    assert "Read-only file system" in replica.execute(["touch", "/home/app/x"]).stderr
    assert replica.execute(["touch", "/tmp/x"]).exit_code == 0


OUTSIDE = "198.51.100.2"  # of TEST-NET-2


@pytest.fixture(scope="module")
def outside() -> Iterator[tuple[str, int]]:
    """A server beyond this machine, to which its network leads."""
    serve = [sys.executable, "-m", "http.server", "--bind", OUTSIDE, "8080"]
    up = "read -r _; ip link set lo up; exec " + " ".join(serve)
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", up], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as far:
        assert far.stdin is not None
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{far.pid}/ns/net") != own)

        def ip(*words: str, there: bool = False) -> None:
            enter = ["nsenter", f"--net=/proc/{far.pid}/ns/net"] if there else []
            subprocess.run([*enter, "ip", *words], check=True)

        ip("link", "add", "openenv-out", "type", "veth", "peer", "far", "netns", str(far.pid))
        ip("address", "add", "198.51.100.1/24", "dev", "openenv-out")
        ip("link", "set", "openenv-out", "up")
        ip("address", "add", f"{OUTSIDE}/24", "dev", "far", there=True)
        ip("link", "set", "far", "up", there=True)
        ip("route", "add", "default", "via", "198.51.100.1", there=True)
        far.stdin.write(b"\n")
        far.stdin.close()
        wait_until(lambda: _answers(OUTSIDE, 8080))
        yield OUTSIDE, 8080
        far.kill()  # its end of the cable goes with it, and so does ours


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def reaches(server: Server, address: tuple[str, int]) -> bool:
    code = f"""
        import socket
        try: socket.create_connection({address!r}, 3); print("reached")
        except OSError as error: print("no:", error)
    """
    return told(server, code) == "reached"


def test_their_network_leads_nowhere(
    replica: Server, provider: DockerSwarmProvider, outside: tuple[str, int]
) -> None:
    assert not reaches(replica, outside)
    assert not reaches(replica, ("1.1.1.1", 80))
    with provider.launch(network="published") as service:
        service.wait_for_ready()
        assert reaches(service.replicas[0], outside), "there is something to be kept from"


def test_their_limits_hold(replica: Server) -> None:
    done = replica.execute(["python", "-c", "held = b'x' * 2**30; print('held')"])
    assert (done.exit_code, done.stdout) == (137, "")
    code = """
        import os, time
        made = 0
        try:
            while made < 500:
                if os.fork() == 0: time.sleep(3); os._exit(0)
                made += 1
        except OSError as error: print(made, error)
    """
    made, _, why = told(replica, code).partition(" ")
    assert int(made) < 64 and "temporarily unavailable" in why


# ------------------------------------------------------------------ what goes wrong


def test_one_that_ends_says_so_at_once_with_its_last_words(provider: DockerSwarmProvider) -> None:
    code = "import sys; print('no such weights', file=sys.stderr); sys.exit(3)"
    with (
        provider.launch(command=["python", "-c", code]) as service,
        pytest.raises(ProviderExited, match=r"non-zero exit \(3\)(.|\n)*no such weights") as caught,
    ):
        service.wait_for_ready(60)
    assert caught.value.exit_code == 3


def test_one_that_never_answers_says_so_with_its_last_words(
    provider: DockerSwarmProvider,
) -> None:
    code = "import time; print('loading', flush=True); time.sleep(60)"
    with (
        provider.launch(command=["python", "-c", code]) as service,
        pytest.raises(ProviderTimeout, match=r"within 5 s(.|\n)*loading"),
    ):
        service.wait_for_ready(5)


def test_an_image_that_is_not_there_is_named(provider: DockerSwarmProvider) -> None:
    with (
        provider.launch("localhost/nowhere:latest") as service,
        pytest.raises(ProviderExited, match="No such image: localhost/nowhere:latest"),
    ):
        service.wait_for_ready(60)


def test_no_node_that_may_run_it_is_said(provider: DockerSwarmProvider) -> None:
    with (
        provider.launch(constraints=["node.labels.gpu==yes"]) as service,
        pytest.raises(ProviderError, match="no suitable node"),
    ):
        service.wait_for_ready(60)


def test_a_program_that_is_not_there_is_named(provider: DockerSwarmProvider) -> None:
    with (
        provider.launch(command=["no-such-program"]) as service,
        pytest.raises(ProviderExited, match=r"no-such-program|non-zero exit \(127\)"),
    ):
        service.wait_for_ready(60)


def test_a_service_that_somebody_removes_is_said_to_be_gone(
    provider: DockerSwarmProvider, engine: Any
) -> None:
    with provider.launch() as service:
        service.wait_for_ready()
        engine.remove_service(service.name)
        with pytest.raises(ProviderExited, match="removed the service"):
            service.check_running()


def test_where_a_command_shall_run_has_to_be_said(service: Service) -> None:
    with pytest.raises(NotSupported, match=r"ask one of service\.replicas"):
        service.execute(["true"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "4g"}, "no such option: memory; there are replicas, cpu_limit"),
        ({"network": "host"}, "network is 'host'; expected one of 'internal', 'published'"),
        ({"replicas": 0}, "replicas is 0; it must be above 0"),
        ({"cpu_limit": "many"}, "cpu_limit is 'many'; it must be a number"),
        (
            {"memory_limit": "4 cups"},
            "memory_limit is '4 cups'; expected bytes, or a text such as '512m'",
        ),
        ({"constraints": "node.role==manager"}, "it must be a list of texts"),
        ({"secrets": {"no name": "x"}}, "a secret's name is 'no name'"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    provider: DockerSwarmProvider, options: dict[str, Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        provider.launch(**options)


def test_sizes_are_read_as_docker_reads_them() -> None:
    sizes: dict[int | str, int] = {
        "512m": 2**29,
        "2g": 2**31,
        "1.5k": 1536,
        4096: 4096,
        "64MB": 2**26,
    }
    assert {size: SwarmOptions(memory_limit=size).memory_bytes for size in sizes} == sizes


# ------------------------------------------------------------------ other networks


def test_replicas_are_published_at_ports_of_their_nodes(provider: DockerSwarmProvider) -> None:
    with provider.launch(network="published", replicas=2) as service:
        service.wait_for_ready()
        for one in service.replicas:
            assert played(one.url, "hi") == "hi"


@pytest.fixture
def overlay(engine: Any) -> Iterator[str]:
    name = f"openenv-test-{os.getpid()}"
    engine.create_network(name, driver="overlay", internal=True)
    yield name

    def is_removed() -> bool:
        try:
            engine.remove_network(name)
        except Exception:  # of Docker's SDK: the last task may still be on its way out
            return False
        return True

    wait_until(is_removed, 30)


def test_replicas_find_each_other_on_a_network_of_the_swarm(
    provider: DockerSwarmProvider, overlay: str
) -> None:
    with provider.launch(overlay_network=overlay, replicas=2) as service:
        service.wait_for_ready()
        code = f"""
            import socket, urllib.request
            found = {{one[4][0] for one in socket.getaddrinfo({service.name!r}, 8000)}}
            for host in found:
                urllib.request.urlopen(f"http://{{host}}:8000/health").read()
            print(len(found))
        """
        assert told(service.replicas[0], code) == "2"
        assert played(service.url, "hi") == "hi"


def test_a_network_that_is_not_there_is_named(provider: DockerSwarmProvider, engine: Any) -> None:
    before = own(engine)
    with pytest.raises(ProviderError, match="network nowhere not found"):
        provider.launch(overlay_network="nowhere")
    assert sorted(own(engine)) == sorted(before)


# ------------------------------------------------------------------ holders that are killed

HOLDER = f"""
import sys, time
from openenv.providers.swarm import DockerSwarmProvider
service = DockerSwarmProvider({IMAGE!r}, replicas=1).launch()
service.wait_for_ready()
print(service.name, flush=True)
time.sleep(600)
"""


def test_the_next_start_removes_what_a_killed_holder_left(
    provider: DockerSwarmProvider, engine: Any
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
    ) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert prune(engine) == []
        holder.send_signal(signal.SIGKILL)
    assert engine.services(filters={"name": name})
    with provider.launch():
        assert not engine.services(filters={"name": name})
        assert not [one for one in engine.secrets() if one["Spec"]["Name"].startswith(name)]
        assert not engine.containers(all=True, filters={"name": f"^{name}\\."})


def test_a_provider_that_is_forgotten_leaves_nothing(engine: Any) -> None:
    service = DockerSwarmProvider(IMAGE, replicas=1, **SMALL).launch()
    name = service.name
    del service
    gc.collect()
    wait_until(lambda: not engine.services(filters={"name": name}), 60)


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(engine: Any) -> None:
    def kill(server: Server) -> None:
        is_its = {"label": f"com.docker.swarm.service.name={server.name}"}
        for container in engine.containers(filters=is_its):
            engine.kill(container["Id"])

    restarts = {promises.A_KILL_IS_NOTICED: "a swarm starts what was killed anew"}
    report = check_provider(
        DockerSwarmProvider(IMAGE, replicas=1, **SMALL),
        kill=kill,
        dies={"command": ["sh", "-c", "echo no weights; exit 3"]},
        hangs={"command": ["sleep", "1000"]},
        missing={"image": "localhost/no-such-image:1"},
        known_failures=restarts,
    )
    assert {one.promise for one in report.findings if one.kept is not True} == set(restarts)
