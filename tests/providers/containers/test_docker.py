"""`LocalDockerProvider` on a real engine: Podman's, by Docker's API. See scripts/containers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import registry_in
from support.terminals import run_on_a_terminal
from support.waiting import wait_until

from openenv import GenericEnvClient
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers.docker import LocalDockerProvider, listed
from openenv.providers.engines import engine_info, find_engine
from openenv.providers.servers import Executed, Server
from openenv.testing import check_provider

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]

IMAGE = "localhost/openenv-test:latest"
PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[Any]:
    """The engine, with what this machine needs it to be told; at the end it has nothing of ours."""
    told = PROJECT / ".containers" / "containers.conf"
    with pytest.MonkeyPatch.context() as patch:
        if told.exists():
            patch.setenv("CONTAINERS_CONF", str(told))
        client = find_engine()
        yield client
        assert [one for one in listed(client) if one.pid == str(os.getpid())] == []


@pytest.fixture
def provider() -> Iterator[LocalDockerProvider]:
    with contextlib.closing(LocalDockerProvider(IMAGE, pull="never")) as made:
        yield made


@pytest.fixture(scope="module")
def server(engine: Any) -> Iterator[Server]:
    with contextlib.closing(LocalDockerProvider(IMAGE, pull="never")) as made:
        server = made.launch(env_vars={"PLAIN": "seen"}, secrets={"TOKEN": "hidden-9f2c"})
        server.wait_for_ready()
        yield server


def told(server: Server, code: str) -> str:
    """What a piece of Python prints in a container."""
    done = server.execute(["python", "-c", textwrap.dedent(code)])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def skip_where_not_held(engine: Any, limit: str) -> None:
    """Rootless engines on cgroups v1 limit nothing; the provider warns."""
    if limit in engine_info(engine).not_held:
        pytest.skip(f"this engine does not limit {limit}")


# ------------------------------------------------------------------ as a client has it


@pytest.mark.parametrize("network", ["internal", "bridge", "none", ["example.org:443"]], ids=str)
def test_an_image_is_started_stepped_and_stopped(engine: Any, network: Any) -> None:
    provider = LocalDockerProvider(network=network)
    if network == "internal" and engine_info(engine).is_rootless:
        with pytest.raises(ProviderError, match="cannot reach the networks of a rootless engine"):
            provider.launch(IMAGE)
        return
    with GenericEnvClient.from_docker_image(IMAGE, provider=provider).sync() as env:
        env.reset()
        assert env.step({"message": "hi"}).observation["echoed_message"] == "hi"
        (mine,) = [one for one in listed(engine) if one.pid == str(os.getpid())]
        assert mine.is_held and mine.image == IMAGE
    assert not [one for one in listed(engine) if one.id == mine.id]


@contextlib.contextmanager
def engine_that_trusts(engine: Any, registry: str, folder: Path) -> Iterator[str | None]:
    """The address of an engine that fetches from a registry without TLS.

    Docker's does from this machine's own address; Podman's is told by a file when it begins.
    """
    if not engine_info(engine).is_podman:
        yield None
        return
    told = folder / "registries.conf"
    told.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    socket_path = folder / "podman.sock"
    environ = {**os.environ, "CONTAINERS_REGISTRIES_CONF": str(told)}
    command = ["podman", "system", "service", "--time=0", f"unix://{socket_path}"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as serving:
        try:
            wait_until(socket_path.exists, 20)
            yield f"unix://{socket_path}"
        finally:
            serving.terminate()


@pytest.fixture(scope="module")
def registry(
    engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str | None]]:
    """The address of a registry that has ``team/far:1``, and of an engine that trusts it."""
    folder = tmp_path_factory.mktemp("registry")
    with registry_in(folder) as registry, engine_that_trusts(engine, registry, folder) as address:
        (folder / "ballast").write_bytes(os.urandom(40_000_000))
        (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY ballast /ballast\n")
        (folder / ".dockerignore").write_text("*\n!ballast\n!Dockerfile\n")
        name = f"{registry}/team/far:1"
        with contextlib.closing(find_engine(address)) as client:
            for step in client.build(path=str(folder), tag=name, rm=True, decode=True):
                assert "error" not in step, step
            for step in client.push(name, stream=True, decode=True):
                assert "error" not in step, step
            client.remove_image(name, force=True)
        yield registry, address


@pytest.fixture
def far_image(registry: tuple[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """An image that only a registry has, with a layer of 40 MB; and an engine that can fetch it."""
    name, address = f"{registry[0]}/team/far:1", registry[1]
    with contextlib.closing(find_engine(address)) as client:
        before = {image["Id"] for image in client.images()}
        yield name, address
        for image in {image["Id"] for image in client.images()} - before:
            client.remove_image(image, force=True)


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_an_image_is_fetched_once_and_told_of(far_image: tuple[str, str | None], by: str) -> None:
    name, address = far_image
    if by == "digest":
        name = f"{name.rpartition(':')[0]}@{digest_of(name)}"
    lines: list[str] = []
    with contextlib.closing(
        LocalDockerProvider(name, engine=address, progress=lines.append)
    ) as provider:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            servers = [pool.submit(provider.launch) for _ in range(3)]
        for server in servers:
            server.result().wait_for_ready()
    begun = [line for line in lines if line.endswith("Pulling fs layer")]
    assert begun and len(begun) == len(set(begun)), lines


def digest_of(name: str) -> str:
    """The digest by which the registry knows an image."""
    registry, _, path = name.partition("/")
    path, _, tag = path.rpartition(":")
    request = urllib.request.Request(f"http://{registry}/v2/{path}/manifests/{tag}", method="HEAD")
    for kind in ("docker.distribution.manifest.v2", "oci.image.manifest.v1"):
        request.add_unredirected_header("Accept", f"application/vnd.{kind}+json")
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request) as told:
            return str(told.headers["Docker-Content-Digest"])
    raise AssertionError(f"{name} is not in the registry")


def test_a_bar_is_shown_on_a_terminal(far_image: tuple[str, str | None]) -> None:
    name, address = far_image
    told = run_on_a_terminal(
        f"""
        from openenv.providers.docker import LocalDockerProvider
        provider = LocalDockerProvider({name!r}, engine={address!r})
        provider.launch().stop()
        provider.close()
        """
    )
    assert f"fetching {name}" in told and re.search(r"[1-9]\d* of \d+ layers", told), told


def test_an_image_that_cannot_be_fetched_is_named(registry: tuple[str, str | None]) -> None:
    name = f"{registry[0]}/team/absent:1"
    with (
        contextlib.closing(LocalDockerProvider(name, engine=registry[1])) as provider,
        pytest.raises(ProviderError, match=f"{name} could not be") as caught,
    ):
        provider.launch()
    assert re.search("manifest unknown|not found", str(caught.value)), caught.value


def test_the_older_methods_hold_one_server(provider: LocalDockerProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = provider.start_container(IMAGE, port=port)
    assert url == f"http://127.0.0.1:{port}"
    provider.wait_for_ready(url, timeout_s=60)
    with pytest.raises(ProviderError, match="running already"):
        provider.start_container(IMAGE)
    with GenericEnvClient(url).sync() as env:
        env.reset()
        assert env.step({"message": "hi"}).observation["message_length"] == 2
    assert "GET /health" in provider.logs()
    provider.stop_container()
    provider.stop_container()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass


def test_a_port_that_is_taken_is_said(provider: LocalDockerProvider) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ProviderError, match=r"cannot listen on 127\.0\.0\.1 port"),
    ):
        provider.launch(port=taken.getsockname()[1])


async def launched(provider: LocalDockerProvider, count: int) -> list[Server]:
    return list(await asyncio.gather(*(provider.launch_async() for _ in range(count))))


def test_many_start_at_once(provider: LocalDockerProvider) -> None:
    async def play() -> None:
        servers = await launched(provider, 8)
        assert len({server.url for server in servers}) == 8
        await asyncio.gather(*(server.wait_for_ready_async() for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())


def own(engine: Any) -> set[str]:
    """The containers that this process holds."""
    return {one.id for one in listed(engine) if one.pid == str(os.getpid())}


def test_a_launch_that_is_cancelled_leaves_nothing(
    provider: LocalDockerProvider, engine: Any
) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.sleep(0.1)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    before = own(engine)
    asyncio.run(cancel())
    assert own(engine) == before


# ------------------------------------------------------------------ what it is not given


def test_it_wants_a_key_of_its_own(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server.url}/state")
    caught.value.close()
    assert caught.value.code == 401
    assert server.api_key is not None and len(server.api_key) > 30


def test_it_has_no_rights(server: Server) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in told(server, "print(open('/proc/self/status').read())").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split()[0] == "1000"
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_it_writes_to_memory_only(server: Server) -> None:
    assert "Read-only file system" in server.execute(["touch", "/home/app/x"]).stderr
    assert server.execute(["touch", "/tmp/x"]).exit_code == 0


@pytest.mark.parametrize("address", [("1.1.1.1", 80), ("8.8.8.8", 53)])
def test_its_network_leads_nowhere(server: Server, address: tuple[str, int]) -> None:
    code = f"""
        import socket
        try: socket.create_connection({address!r}, 3); print("reached")
        except OSError as error: print("no:", error)
    """
    assert told(server, code).startswith("no:")


@pytest.fixture(scope="module")
def apart(engine: Any) -> Iterator[Server]:
    """A server in a container that has no network."""
    with contextlib.closing(LocalDockerProvider(IMAGE, pull="never", network="none")) as made:
        server = made.launch()
        server.wait_for_ready()
        yield server


def test_without_a_network_there_is_none(apart: Server) -> None:
    devices = told(apart, "print(open('/proc/net/dev').read())").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{apart.url}/state")
    caught.value.close()
    assert caught.value.code == 401
    assert "Read-only file system" in apart.execute(["touch", "/run/openenv/x"]).stderr


def test_without_a_network_many_connections_carry_what_others_do(apart: Server) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(GenericEnvClient(apart.url).sync()) for _ in range(24)]
        for number, env in enumerate(clients):
            env.reset()
            long = f"{number} " * 500_000
            assert env.step({"message": long}).observation["echoed_message"] == long
        for env in clients:
            assert env.state()["step_count"] == 1
    for _ in range(24):
        urllib.request.urlopen(f"{apart.url}/health").read()


def test_without_a_network_a_server_that_ends_says_so(provider: LocalDockerProvider) -> None:
    code = "import sys; print('no such weights', file=sys.stderr); sys.exit(3)"
    with (
        provider.launch(network="none", command=["python", "-c", code]) as server,
        pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights"),
    ):
        server.wait_for_ready(60)


def test_an_image_that_cannot_be_reached_without_a_network_says_why(
    provider: LocalDockerProvider,
) -> None:
    with (
        provider.launch(network="none", env_vars={"PATH": "/usr/sbin"}) as server,
        pytest.raises(ProviderExited, match="the image has no python3"),
    ):
        server.wait_for_ready(60)


class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def outside() -> Iterator[Callable[[str], str]]:
    """Servers of this machine, which need no network to be asked by a proxy of its own."""
    with contextlib.ExitStack() as stack:

        def served(host: str) -> str:
            made = stack.enter_context(http.server.ThreadingHTTPServer((host, 0), Greeting))
            threading.Thread(target=made.serve_forever, daemon=True).start()
            stack.callback(made.shutdown)
            return f"{host}:{made.server_port}"

        yield served


def fetched(server: Server, address: str) -> str:
    code = f"""
        import urllib.request
        try: print(urllib.request.urlopen("http://{address}/", timeout=10).read().decode())
        except Exception as error: print("no:", error)
    """
    return told(server, code)


def test_hosts_of_a_list_are_reached_by_a_proxy_and_others_are_not(
    provider: LocalDockerProvider, outside: Callable[[str], str]
) -> None:
    named, in_network, other = outside("127.0.0.2"), outside("127.0.3.9"), outside("127.0.0.4")
    port = in_network.rpartition(":")[2]
    with provider.launch(network=[named, f"127.0.3.0/24:{port}"]) as server:
        server.wait_for_ready()
        assert fetched(server, named) == fetched(server, in_network) == "hello from outside"
        assert "403" in fetched(server, other)
        assert "403" in fetched(server, named.partition(":")[0] + ":1")
        assert "403" in fetched(server, f"localhost.localdomain:{port}")
        for address in (named, in_network, "1.1.1.1:80"):
            host, _, at = address.partition(":")
            code = f"""
                import socket
                try: socket.create_connection(({host!r}, {at}), 3); print("reached")
                except OSError as error: print("no:", error)
            """
            assert told(server, code).startswith("no:"), "but by the proxy"
        with GenericEnvClient(server.url).sync() as env:
            env.reset()


def test_a_tunnel_leads_to_hosts_of_a_list_only(
    provider: LocalDockerProvider, outside: Callable[[str], str]
) -> None:
    named, other = outside("127.0.0.2"), outside("127.0.0.4")
    with provider.launch(network=[named]) as server:
        server.wait_for_ready()
        code = """
            import http.client
            made = http.client.HTTPConnection("127.0.0.1", 3128, timeout=10)
            made.set_tunnel({!r}, {})
            try: made.request("GET", "/"); print(made.getresponse().read().decode())
            except OSError as error: print("no:", error)
        """
        assert told(server, code.format(*named.split(":"))) == "hello from outside"
        assert "403 Forbidden" in told(server, code.format(*other.split(":")))


def test_it_reaches_no_port_of_the_loopback_interface(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        code = f"""
            import socket
            try: socket.create_connection(("127.0.0.1", {outside.getsockname()[1]}), 3)
            except OSError as error: print("no:", error)
        """
        assert told(server, code).startswith("no:")


def test_a_profile_of_seccomp_holds(provider: LocalDockerProvider) -> None:
    refused = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77}
    profile = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]})
    with provider.launch(seccomp=profile) as server:
        server.wait_for_ready()
        assert "File descriptor in bad state" in server.execute(["mkdir", "/tmp/x"]).stderr


def test_its_share_of_the_processors_is_told_to_the_engine(
    provider: LocalDockerProvider, engine: Any
) -> None:
    with provider.launch(cpus=0.5) as server:
        told = engine.inspect_container(server.name)["HostConfig"]
        assert told["NanoCpus"] == 500_000_000


def test_its_processes_are_counted(provider: LocalDockerProvider, engine: Any) -> None:
    skip_where_not_held(engine, "processes")
    with provider.launch(processes=64) as server:
        server.wait_for_ready()
        code = """
            import os, time
            made = 0
            try:
                while made < 500:
                    if os.fork() == 0: time.sleep(5); os._exit(0)
                    made += 1
            except OSError as error: print(made, error)
        """
        made, _, why = told(server, code).partition(" ")
        assert int(made) < 64 and "temporarily unavailable" in why
        with GenericEnvClient(server.url).sync() as env:
            env.reset()


def test_what_takes_too_much_memory_is_ended(provider: LocalDockerProvider, engine: Any) -> None:
    skip_where_not_held(engine, "memory")
    with provider.launch(memory_bytes=256 * 2**20) as server:
        server.wait_for_ready()
        done = server.execute(["python", "-c", "held = b'x' * 2**30; print('held')"])
        assert (done.exit_code, done.stdout) == (137, "")


def test_secrets_are_told_by_files_and_are_in_nothing_that_can_be_inspected(
    server: Server, engine: Any
) -> None:
    assert told(server, "import os; print(open(os.environ['TOKEN_FILE']).read())") == "hidden-9f2c"
    (mine,) = [one for one in listed(engine) if one.id.startswith(server.name)]
    seen = json.dumps(engine.inspect_container(mine.id))
    assert "PLAIN=seen" in seen
    assert "hidden-9f2c" not in seen and str(server.api_key) not in seen
    assert oct(os.stat(mine.folder).st_mode & 0o777) == "0o700"


# ------------------------------------------------------------------ what goes wrong


def test_one_that_ends_says_so_at_once_with_its_last_words(provider: LocalDockerProvider) -> None:
    code = "import sys; print('no such weights', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights") as caught:
        provider.launch(command=["python", "-c", code]).wait_for_ready(60)
    assert caught.value.exit_code == 3


def test_one_that_never_answers_says_so_with_its_last_words(provider: LocalDockerProvider) -> None:
    code = "import time; print('loading', flush=True); time.sleep(60)"
    with (
        provider.launch(command=["python", "-c", code]) as server,
        pytest.raises(ProviderTimeout, match=r"within 1.5 s(.|\n)*loading"),
    ):
        server.wait_for_ready(1.5)


def test_one_that_somebody_removes_is_said_to_be_gone(
    provider: LocalDockerProvider, engine: Any
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        engine.remove_container(server.name, force=True)
        with pytest.raises(ProviderExited, match="removed the container"):
            server.check_running()


def test_a_program_that_is_not_there_is_named(provider: LocalDockerProvider) -> None:
    with (
        pytest.raises(ProviderError, match=r"No such file or directory|no-such-program"),
        provider.launch(command=["no-such-program"]) as server,
    ):
        server.wait_for_ready()


def test_an_image_that_is_not_there_is_named(provider: LocalDockerProvider) -> None:
    with pytest.raises(ProviderError, match="there is no image 'localhost/nowhere'"):
        provider.launch("localhost/nowhere")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "4g"}, "no such option: memory; there are network, memory_bytes"),
        ({"network": "host"}, "network is 'host'; expected one of 'internal', 'bridge'"),
        ({"network": ["example.org"]}, "network lists 'example.org'; expected NAME:PORT"),
        ({"network": ["*:443"]}, r"network lists '\*:443'"),
        ({"network": ["10.0.0.0/8:0"]}, "network lists '10.0.0.0/8:0'"),
        ({"cpus": 0}, "cpus is 0; it must be above 0"),
        ({"secrets": {"no name": "x"}}, "a secret's name is 'no name'"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    provider: LocalDockerProvider, options: dict[str, Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        provider.launch(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"secrets": {"no name": "x"}},
        {"secrets": {"TOKEN": "\udc80"}},  # no text that can be written
        {"image": "localhost/nowhere"},
        {"runtime": "no-such-runtime"},
        {"runtime": "no-such-runtime", "network": ["example.org:443"]},
    ],
    ids=str,
)
def test_a_launch_that_fails_leaves_no_file_behind(
    provider: LocalDockerProvider,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((ProviderError, ValueError)):
        provider.launch(**options)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_not_there_is_said() -> None:
    with pytest.raises(ProviderError, match=r"no engine answers at unix:///nowhere\.sock"):
        LocalDockerProvider(engine="unix:///nowhere.sock")


def test_commands_run_beside_the_server(server: Server) -> None:
    shown = server.execute(["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert shown == Executed(4, "out\n", "err\n")
    with pytest.raises(ProviderError, match=r"sleep took longer than 0\.5 s"):
        server.execute(["sleep", "3"], timeout_s=0.5)


# ------------------------------------------------------------------ holders that are killed

HOLDER = f"""
import sys, time
from openenv.providers.docker import LocalDockerProvider
server = LocalDockerProvider({IMAGE!r}, pull="never").launch()
server.wait_for_ready()
print(server.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def orphan(engine: Any) -> str:
    """A container whose holder was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        holder.send_signal(signal.SIGKILL)
    assert any(one.id.startswith(name) and not one.is_held for one in listed(engine))
    return name


def test_the_next_start_removes_what_a_killed_holder_left(engine: Any, orphan: str) -> None:
    (left,) = [one for one in listed(engine) if one.id.startswith(orphan)]
    with (
        contextlib.closing(LocalDockerProvider(IMAGE, pull="never")) as provider,
        provider.launch(),
    ):
        assert not [one for one in listed(engine) if one.id.startswith(orphan)]
    assert not os.path.exists(left.folder)


def test_ps_names_it_and_prune_removes_it(engine: Any, orphan: str) -> None:
    openenv = [sys.executable, "-m", "openenv.cli"]
    shown = subprocess.run([*openenv, "ps", "--json"], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    (row,) = [row for row in rows if row["id"].startswith(orphan)]
    assert row["image"] == IMAGE and row["is_held"] is False
    pruned = subprocess.run([*openenv, "prune"], capture_output=True, text=True, check=True)
    assert [one for one in pruned.stdout.split() if one.startswith(orphan)]
    assert not [one for one in listed(engine) if one.id.startswith(orphan)]


def test_a_provider_that_is_forgotten_leaves_nothing(engine: Any) -> None:
    server = LocalDockerProvider(IMAGE, pull="never").launch()
    name = server.name
    del server
    gc.collect()
    wait_until(lambda: not [one for one in listed(engine) if one.id.startswith(name)])


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(400)
def test_it_keeps_what_providers_promise(engine: Any) -> None:
    report = check_provider(
        LocalDockerProvider(IMAGE),
        kill=lambda server: engine.kill(server._id),
        dies={"command": ["sh", "-c", "echo no weights; exit 3"]},
        hangs={"command": ["sleep", "1000"]},
        missing={"image": "localhost/no-such-image", "pull": "never"},
    )
    assert [one.promise for one in report.findings if one.kept is not True] == []
