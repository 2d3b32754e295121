"""`RayProvider` on a real cluster of three nodes, in a namespace of its own. See scripts/ray."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from support.processes import is_alive
from support.waiting import wait_until

from openenv import ConnectError, EnvPool, GenericEnvClient, SessionLost
from openenv.errors import NotSupported, ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.ray import RayProvider, RayServer
from openenv.providers.servers import Server
from openenv.testing import check_provider

ray: Any = pytest.importorskip("ray", reason="see scripts/ray")
cluster_utils: Any = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(180),
    # Of Ray's own: sockets and files that its driver leaves to the collector of garbage.
    pytest.mark.filterwarnings("default"),
    pytest.mark.blocks_the_loop,
]

HERE = Path(__file__).parent
MORTAL = f"{HERE / 'mortal.py'}:Mortal"
CPUS = 3  # of each node
CLIENT_PORT = 10001  # in the namespace of the tests

# Workers cannot import this module.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes at addresses of their own, and this process as a driver of theirs."""
    head = {"num_cpus": CPUS, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    head["ray_client_server_port"] = CLIENT_PORT
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        made.add_node(num_cpus=CPUS, node_ip_address="127.0.0.2")
        made.add_node(num_cpus=CPUS, node_ip_address="127.0.0.3", resources={"simulator": 2})
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def provider(cluster: Any) -> Iterator[RayProvider]:
    with contextlib.closing(RayProvider("echo_env")) as made:
        yield made
    wait_until(lambda: is_free(cluster), 20.0)


def launched(provider: RayProvider, *arguments: Any, **options: Any) -> RayServer:
    server = provider.launch(*arguments, **options)
    server.wait_for_ready()
    return cast(RayServer, server)


def echoed(server: RayServer, word: str = "hi") -> str:
    """What a server answers, by WebSocket."""
    with GenericEnvClient(server.url).sync() as env:
        env.reset()
        return str(env.step({"message": word}).observation["echoed_message"])


def commands() -> dict[int, str]:
    """The command lines of all processes there are."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def has_ended(server: RayServer) -> bool:
    """Raises how, if it has."""
    server.check_running()
    return False


def is_free(cluster: Any) -> bool:
    """Whether nothing of the cluster is given to anybody."""
    has = ray.cluster_resources()["CPU"]
    return bool(ray.available_resources().get("CPU", 0) == has)


def folders() -> list[Path]:
    """What servers write to."""
    return [
        path
        for path in Path(tempfile.gettempdir()).glob("openenv-*")
        if (path / "server.log").exists()
    ]


# ------------------------------------------------------------------ where servers are


def test_servers_are_spread_over_the_nodes_and_each_is_stepped(provider: RayProvider) -> None:
    servers = [launched(provider) for _ in range(6)]
    assert set(Counter(server.node_id for server in servers).values()) == {2}
    assert {server.url.rpartition(":")[0] for server in servers} == {
        f"http://127.0.0.{n}" for n in (1, 2, 3)
    }
    for number, server in enumerate(servers):
        assert echoed(server, f"hello {number}") == f"hello {number}"


def test_servers_are_packed(provider: RayProvider) -> None:
    servers = [launched(provider, placement="pack") for _ in range(4)]
    assert sorted(Counter(server.node_id for server in servers).values()) == [1, CPUS]


def test_many_start_at_once(provider: RayProvider) -> None:
    async def play() -> None:
        servers = await asyncio.gather(*(provider.launch_async() for _ in range(6)))
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        nodes = Counter(cast(RayServer, server).node_id for server in servers)
        assert set(nodes.values()) == {2}
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())


def test_a_full_node_sends_servers_to_another(provider: RayProvider, cluster: Any) -> None:
    """Ray's account decides, not this provider's: here others hold a whole node."""
    first = launched(provider)
    held = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    others = [
        ray.remote(Other)
        .options(num_cpus=CPUS, scheduling_strategy=held(node["NodeID"], soft=False))
        .remote()
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != first.node_id
    ]
    ray.get([other.answer.remote() for other in others])
    assert {launched(provider).node_id for _ in range(CPUS - 1)} == {first.node_id}
    for other in others:
        ray.kill(other)


class Other:
    """Somebody else's actor."""

    def answer(self) -> int:
        return os.getpid()


def test_custom_resources_and_memory_are_asked_for(provider: RayProvider) -> None:
    server = launched(provider, num_cpus=0.5, resources={"simulator": 1}, memory_bytes=2**30)
    assert server.url.startswith("http://127.0.0.3:")
    whole, free = ray.cluster_resources(), ray.available_resources()
    assert whole["CPU"] - free["CPU"] == 0.5
    assert whole["simulator"] - free["simulator"] == 1
    assert whole["memory"] - free["memory"] == 2**30


def test_what_no_node_has_is_said_and_leaves_nothing(provider: RayProvider, cluster: Any) -> None:
    provider.start_timeout_s = 2.0
    with pytest.raises(ProviderTimeout) as caught:
        provider.launch(num_cpus=50, resources={"simulator": 1}, memory_bytes=2**30)
    said = str(caught.value)
    assert "50 CPU, 1 GiB of memory, 1 simulator" in said
    assert "no node has that much" in said
    assert "127.0.0.1 3 CPU" in said and "2 simulator" in said
    wait_until(lambda: is_free(cluster))


def test_what_others_hold_is_waited_for_and_then_said(provider: RayProvider) -> None:
    servers = [provider.launch(num_cpus=CPUS) for _ in range(3)]
    provider.start_timeout_s = 2.0
    with pytest.raises(ProviderTimeout, match="others hold it"):
        provider.launch()
    provider.start_timeout_s = 60.0

    async def replace() -> None:
        waiting = asyncio.ensure_future(provider.launch_async())
        await servers[0].stop_async()
        server = await waiting
        await server.stop_async()

    asyncio.run(replace())


# ------------------------------------------------------------------ reserved at once


def groups() -> list[str]:
    """The states of placement groups."""
    return [one["state"] for one in ray.util.placement_group_table().values()]


def test_replicas_are_reserved_all_at_once_and_given_back(cluster: Any) -> None:
    with contextlib.closing(RayProvider("echo_env", replicas=6)) as provider:
        servers = [launched(provider)]
        assert groups().count("CREATED") == 1
        assert ray.available_resources()["CPU"] == 3 * CPUS - 6
        servers += [launched(provider) for _ in range(5)]
        assert set(Counter(server.node_id for server in servers).values()) == {2}
        assert ray.available_resources()["CPU"] == 3 * CPUS - 6
        servers.append(launched(provider))  # one more than was said
        assert ray.available_resources()["CPU"] == 3 * CPUS - 7
        servers.pop(0).stop()
        servers.append(launched(provider))  # in its place
        assert ray.available_resources()["CPU"] == 3 * CPUS - 7
        for server in servers:
            server.stop()
        assert "CREATED" not in groups()
    wait_until(lambda: is_free(cluster))


def test_a_reservation_that_cannot_be_had_takes_nothing(cluster: Any) -> None:
    provider = RayProvider("echo_env", replicas=3 * CPUS + 1, start_timeout_s=2.0)
    with pytest.raises(ProviderTimeout, match="10 times 1 CPU"):
        provider.launch()
    assert not {"CREATED", "PENDING"} & set(groups())
    wait_until(lambda: is_free(cluster))


# ------------------------------------------------------------------ how servers are


def test_it_wants_a_key_that_stands_in_no_command_line_or_file(provider: RayProvider) -> None:
    server = launched(provider)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server.url}/state")
    caught.value.close()
    assert caught.value.code == 401
    assert server.api_key is not None and len(server.api_key) > 30
    assert not [line for line in commands().values() if server.api_key in line]
    assert not list(Path(f"/proc/{server.pid}/cwd").glob("key"))
    environment = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert server.api_key.encode() not in environment


def test_variables_are_told_and_secrets_of_logs_are_not(cluster: Any) -> None:
    secret = secrets.token_hex(8)
    with contextlib.closing(RayProvider(MORTAL, env_vars={"TOLD": "here"})) as provider:
        server = launched(provider, env_vars={"SERVICE_TOKEN": secret})
        with GenericEnvClient(server.url).sync() as env:
            env.reset()
            assert env.step({"what": "say"}).observation["variable"] == "here"
            env.step({"what": secret})
        assert "told to say" in server.logs()
        assert "told to ***" in server.logs() and secret not in server.logs()
        assert len(server.logs(2).splitlines()) == 2
        server.stop()
        assert "told to say" in server.logs()


def test_commands_are_run_beside_it(provider: RayProvider) -> None:
    server = launched(provider)
    done = server.execute(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(ProviderError, match="took longer than"):
        server.execute(["sleep", "30"], timeout_s=0.2)
    with pytest.raises(ProviderError, match="could not be run"):
        server.execute(["/nowhere/program"])
    with ThreadPoolExecutor(20) as pool:
        slow = [pool.submit(server.execute, ["sleep", "30"], 1.0) for _ in range(20)]
    said = Counter(str(one.exception()).rpartition(" ")[2] for one in slow)
    assert said == {"s": 16, "already": 4}
    assert echoed(server) == "hi"


def test_a_port_may_be_named(provider: RayProvider) -> None:
    with socket.create_server(("127.0.0.3", 0)) as probe:
        port = probe.getsockname()[1]
        with pytest.raises(ProviderExited, match=f"cannot listen on .* port {port}"):
            provider.launch(port=port, resources={"simulator": 1})
    server = launched(provider, port=port, resources={"simulator": 1})
    assert server.url == f"http://127.0.0.3:{port}"


def test_a_client_starts_and_stops_it(cluster: Any) -> None:
    with GenericEnvClient.with_provider(RayProvider("echo_env")).sync() as env:
        env.reset()
        assert env.step({"message": "hi"}).observation["echoed_message"] == "hi"
    wait_until(lambda: is_free(cluster))
    assert ray.is_initialized()  # the provider has only found it


# ------------------------------------------------------------------ how they end


def test_stop_leaves_no_process_and_no_file(provider: RayProvider, cluster: Any) -> None:
    before = set(folders())
    server = launched(provider)
    pid = server.pid
    group = [n for n in commands() if _group(n) == pid]
    assert len(group) >= 2  # the server, and what watches over it
    assert len(set(folders()) - before) == 1
    server.stop()
    server.stop()
    assert not [n for n in group if is_alive(n)]
    assert set(folders()) == before
    wait_until(lambda: is_free(cluster))
    with pytest.raises(ProviderError, match="stopped"):
        server.wait_for_ready(1.0)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_a_server_that_ends_is_told_with_its_last_lines(cluster: Any) -> None:
    with contextlib.closing(RayProvider(MORTAL)) as provider:
        server = launched(provider)
        server.check_running()
        with GenericEnvClient(server.url).sync() as env:
            env.reset()
            with pytest.raises(SessionLost):
                env.step({"what": "die"})
        began = time.monotonic()
        with pytest.raises(ProviderExited) as caught:
            server.check_running()
        assert time.monotonic() - began < 2.0
        assert caught.value.exit_code == 7
        assert "told to die" in caught.value.logs
        assert "told to die" in server.logs()
        server.stop()
    wait_until(lambda: is_free(cluster))


def test_one_that_never_starts_is_told_at_once(provider: RayProvider, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no display')\n")
    with pytest.raises(ProviderExited, match="no display"):
        launched(provider, str(broken))
    with pytest.raises(ProviderExited, match="no_such_environment"):
        launched(provider, "no_such_environment")


def test_one_may_be_started_again_at_its_address(cluster: Any) -> None:
    with contextlib.closing(RayProvider(MORTAL, max_restarts=1)) as provider:
        server = launched(provider)
        seen = []
        for _ in range(2):
            wait_until(lambda: _is_up(server), 20.0)
            with GenericEnvClient(server.url).sync() as env:
                seen.append(env.reset().observation["pid"])
                with pytest.raises(SessionLost):
                    env.step({"what": "die"})
        assert len(set(seen)) == 2
        with pytest.raises(ProviderExited) as caught:
            server.check_running()
        assert caught.value.exit_code == 7


def _is_up(server: RayServer) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{server.url}/health", timeout=2):
        return True
    return False


def test_an_actor_that_is_killed_takes_its_server_with_it(provider: RayProvider) -> None:
    server = launched(provider)
    pid = server.pid
    actor = server._actor
    holder = int(Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0])
    assert "_Host" in commands()[holder]
    os.kill(holder, signal.SIGKILL)
    with pytest.raises(ProviderExited):
        wait_until(lambda: has_ended(server), 10.0)
    wait_until(lambda: not is_alive(pid), 20.0)
    with pytest.raises(NotSupported):
        server.logs()
    server.stop()
    del actor


def test_a_server_that_nobody_holds_is_ended(provider: RayProvider, cluster: Any) -> None:
    pid = launched(provider).pid
    gc.collect()
    wait_until(lambda: not is_alive(pid), 20.0)
    wait_until(lambda: is_free(cluster))


def test_a_launch_that_is_cancelled_leaves_nothing(provider: RayProvider, cluster: Any) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.sleep(0.3)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    before = set(folders())
    asyncio.run(cancel())
    assert set(folders()) <= before
    wait_until(lambda: is_free(cluster), 10.0)


def test_a_driver_that_is_killed_leaves_nothing(cluster: Any) -> None:
    before = set(folders())
    with subprocess.Popen(
        [sys.executable, str(HERE / "driver.py"), cluster.address],
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        pids = json.loads(driver.stdout.readline())
        assert all(is_alive(pid) for pid in pids) and not is_free(cluster)
        driver.kill()
        driver.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 30.0)
    wait_until(lambda: is_free(cluster), 30.0)
    wait_until(lambda: set(folders()) <= before, 20.0)
    assert "CREATED" not in groups()


# ------------------------------------------------------------------ a node that is lost


@pytest.mark.parametrize("replicas", [None, 4])
def test_a_node_that_is_lost_takes_its_server_only(
    cluster: Any, replicas: int | None, record_property: Callable[[str, object], None]
) -> None:
    extra = cluster.add_node(num_cpus=CPUS, node_ip_address="127.0.0.4")
    provider = RayProvider("echo_env", replicas=replicas)
    with contextlib.closing(provider), contextlib.ExitStack() as stack:
        servers = [launched(provider) for _ in range(4)]
        envs = [stack.enter_context(GenericEnvClient(one.url).sync()) for one in servers]
        for env in envs:
            env.reset()
        (lost,) = [n for n, one in enumerate(servers) if one.node_id == extra.node_id]
        pid = servers[lost].pid
        cluster.remove_node(extra, allow_graceful=False)
        began = time.monotonic()
        with pytest.raises((SessionLost, ConnectError)):
            while True:
                envs[lost].step({"message": "still there?"})
        with pytest.raises(ProviderExited, match=r"lost|dead|listens"):
            wait_until(lambda: has_ended(servers[lost]), 10.0)
        noticed = time.monotonic() - began
        assert noticed < 10.0
        with pytest.raises(ConnectError):
            envs[lost].reset()
        wait_until(lambda: not is_alive(pid), 20.0)
        for number, env in enumerate(envs):
            if number != lost:
                assert env.step({"message": "on"}).observation["echoed_message"] == "on"
                servers[number].check_running()
        servers[lost].stop()
        began = time.monotonic()
        instead = launched(provider)
        replaced = time.monotonic() - began
        record_property("seconds", f"noticed after {noticed:.1f}, replaced in {replaced:.1f}")
        assert instead.node_id in {one.node_id for n, one in enumerate(servers) if n != lost}
        assert echoed(instead) == "hi"
    wait_until(lambda: is_free(cluster), 30.0)


# ------------------------------------------------------------------ whose Ray it is


def test_a_pool_heals_when_a_node_is_lost(cluster: Any) -> None:
    """The run goes on: each session of the node says that it is lost, and begins elsewhere."""
    node = cluster.add_node(num_cpus=CPUS, node_ip_address="127.0.0.5", resources={"spare": 3})
    provider = RayProvider("echo_env", resources={"spare": 0.001})
    pool: EnvPool[Any] = EnvPool(
        provider, min_servers=2, max_servers=2, sessions_per_server=4, check_every_s=0.5
    )
    other = None
    try:
        with pool as held, contextlib.closing(provider):
            other = cluster.add_node(
                num_cpus=CPUS, node_ip_address="127.0.0.6", resources={"spare": 3}
            )
            envs = held.lease_many(8)
            for env in envs:
                env.reset()
            cluster.remove_node(node, allow_graceful=False)
            node, lost = None, 0
            wait_until(lambda: held.stats().lost == 2, 30.0)  # its processes live on for a moment
            for env in envs:
                try:
                    env.step({"message": "hi"})
                except (SessionLost, ConnectError):
                    lost += 1
                    env.reset()
                    env.step({"message": "hi"})
            assert lost == 8, "both servers were on the only node that had what they asked for"
            wait_until(lambda: held.stats().servers == 2, 60.0)
            assert {env.base_url.rpartition(":")[0] for env in envs} == {"http://127.0.0.6"}
            for env in envs:
                env.close()
    finally:
        for left in (node, other):
            if left is not None:
                cluster.remove_node(left)


def test_it_is_used_in_a_task(cluster: Any) -> None:
    def train() -> tuple[str, int, str]:
        with contextlib.closing(RayProvider("echo_env", num_cpus=0.5)) as provider:
            server = launched(provider)
            return echoed(server, "from a task"), server.pid, server.node_id

    said, pid, node_id = ray.get(ray.remote(train).remote())
    assert said == "from a task"
    assert node_id in {node["NodeID"] for node in ray.nodes()}
    assert not is_alive(pid)
    assert ray.is_initialized()


def test_it_is_used_in_an_actor_that_awaits_and_ends_with_it(cluster: Any) -> None:
    class Trainer:
        async def begin(self) -> int:
            self.provider = RayProvider("echo_env")
            self.server = await self.provider.launch_async()
            await self.server.wait_for_ready_async()
            return cast(RayServer, self.server).pid

        async def play(self) -> str:
            async with GenericEnvClient(self.server.url) as env:
                await env.reset()
                result = await env.step({"message": "from an actor"})
                return str(result.observation["echoed_message"])

    trainer = ray.remote(Trainer).remote()
    pid = ray.get(trainer.begin.remote())
    assert ray.get(trainer.play.remote()) == "from an actor"
    assert is_alive(pid)
    ray.kill(trainer)
    wait_until(lambda: not is_alive(pid), 20.0)
    wait_until(lambda: is_free(cluster), 20.0)


def test_a_job_of_detached_actors_has_none_of_them(cluster: Any) -> None:
    """`JobConfig(default_actor_lifetime="detached")` would have servers outlive their owner."""
    code = f"""
import ray
ray.init(
    address={cluster.address!r},
    job_config=ray.job_config.JobConfig(default_actor_lifetime="detached"),
    namespace="others",
)
from openenv.providers.ray import RayProvider
server = RayProvider("echo_env").launch()
server.wait_for_ready()
print(server.pid, flush=True)
import os
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout.strip().splitlines()[-1])
    wait_until(lambda: not is_alive(pid), 30.0)
    wait_until(lambda: is_free(cluster), 30.0)


def test_another_address_than_that_of_the_job_is_refused(cluster: Any) -> None:
    with contextlib.closing(RayProvider("echo_env", address=cluster.address)) as provider:
        launched(provider)
    assert ray.is_initialized()
    with pytest.raises(ProviderError, match=r"connected to the Ray at .* already"):
        RayProvider("echo_env", address="127.0.0.9:6379").launch()


def test_a_connection_that_it_has_made_ends_with_the_last_provider(cluster: Any) -> None:
    code = f"""
import ray
from openenv.providers.ray import RayProvider
first = RayProvider("echo_env", address={cluster.address!r})
second = RayProvider("echo_env", address={cluster.address!r})
assert not ray.is_initialized()
servers = [first.launch(), second.launch()]
first.close()
assert ray.is_initialized() and servers[0].is_stopped
servers[1].wait_for_ready()
second.close()
assert not ray.is_initialized()
servers[1].stop()
first.launch().wait_for_ready()
ray.shutdown()
first.close()
assert not ray.is_initialized()
try:
    RayProvider("echo_env", address="127.0.0.1:1").launch()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ProviderError Ray at 127.0.0.1:1 cannot be reached")
    wait_until(lambda: is_free(cluster), 20.0)


def test_it_is_used_by_ray_client(cluster: Any) -> None:
    code = f"""
from openenv import GenericEnvClient
from openenv.errors import ProviderError, ProviderExited
from openenv.providers.ray import RayProvider
provider = RayProvider("echo_env", address="ray://127.0.0.1:{CLIENT_PORT}", replicas=2)
servers = []
for tries_left in (2, 1, 0):
    try:
        servers.append(provider.launch())
        break
    except ProviderError as error:
        # On a busy machine, what Ray starts for each of its clients is not ready in its 30 s.
        if "cannot be reached" not in str(error) or not tries_left:
            raise
servers += [provider.launch() for _ in range(2)]
for server in servers:
    server.wait_for_ready()
    with GenericEnvClient(server.url).sync() as env:
        env.reset()
        print(env.step({{"message": "by a client"}}).observation["echoed_message"])
servers[0].execute(["kill", "-KILL", str(servers[0].pid)])
try:
    while True:
        servers[0].check_running()
except ProviderExited as error:
    print(error.exit_code)
provider.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["by a client"] * 3 + ["-9"]
    wait_until(lambda: is_free(cluster), 20.0)


def test_a_file_is_one_of_the_working_directory_of_the_job(cluster: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine.py").write_text((HERE / "mortal.py").read_text())
    code = f"""
import ray
from openenv import GenericEnvClient
from openenv.providers.ray import RayProvider
ray.init(address={cluster.address!r}, runtime_env={{"working_dir": {str(there)!r}}})
server = RayProvider("mine.py:Mortal").launch()
server.wait_for_ready()
with GenericEnvClient(server.url).sync() as env:
    print(env.reset().observation["pid"] == server.pid)
server.stop()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


# ------------------------------------------------------------------ options


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(TypeError, match=r"no such option: cpus; there are num_cpus, num_gpus"):
        RayProvider("echo_env", cpus=1)
    for wrong in (
        {"placement": "anywhere"},
        {"num_cpus": -1},
        {"memory_bytes": 0},
        {"replicas": 0},
        {"start_timeout_s": 0},
        {"resources": {"simulator": 0}},
        {"resources": {"CPU": 1}},
    ):
        with pytest.raises(ValueError):
            RayProvider("echo_env", **cast(dict[str, Any], wrong))


def test_a_launch_of_nothing_or_with_unknown_options_is_refused(cluster: Any) -> None:
    with pytest.raises(ProviderError, match="nothing to serve"):
        RayProvider().launch()
    with pytest.raises(TypeError, match="no such option: node"):
        RayProvider("echo_env").launch(node="a")


def test_ray_is_imported_by_those_who_use_it_only() -> None:
    code = "import sys, openenv.providers, openenv.providers.ray; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ------------------------------------------------------------------ the contract


def kill(server: Server) -> None:
    """Kill who listens at the port of a server, on whichever node that is."""
    command = ["ss", "--no-header", "-ltnp", f"sport = :{server.url.rpartition(':')[2]}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for pid in set(re.findall(r"pid=(\d+)", shown)):
        os.kill(int(pid), signal.SIGKILL)


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(cluster: Any, tmp_path: Path) -> None:
    targets = {
        "dies": "print('no weights', flush=True)\nraise SystemExit(3)\n",
        "hangs": "import time\nprint('loading', flush=True)\ntime.sleep(1000)\n",
    }
    for name, program in targets.items():
        (tmp_path / f"{name}.py").write_text(program)
    report = check_provider(
        RayProvider("echo_env", num_cpus=0.1),
        kill=kill,
        dies={"image": str(tmp_path / "dies.py")},
        hangs={"image": str(tmp_path / "hangs.py")},
        missing={"image": "no_such_env"},
    )
    assert [one.promise for one in report.findings if one.kept is not True] == []
