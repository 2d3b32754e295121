"""`KubernetesProvider` in a cluster: a real API server, scheduler and controllers, real containers.

See scripts/kubernetes, and `agent.py` for what stands for a kubelet.
"""

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
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from providers.kubernetes.agent import Agent
from providers.kubernetes.cluster import STRANGER, ControlPlane, created
from providers.kubernetes.conftest import IMAGE
from support.commands import environ
from support.waiting import wait_until

from echo_env import EchoAction, EchoEnv
from openenv import GenericEnvClient
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._clusters import Cluster, ClusterError
from openenv.providers._manifests import KubernetesOptions, server_objects
from openenv.providers.kubernetes import KubernetesProvider
from openenv.providers.servers import Executed, Server
from openenv.testing import check_provider

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(180), pytest.mark.usefixtures("agent")]

KINDS = "pods,deployments,services,networkpolicies,secrets,leases"
OURS = "app.kubernetes.io/managed-by=openenv"


def left(plane: ControlPlane, namespace: str = "default") -> list[str]:
    """The objects of this package that the cluster has."""
    shown = plane.kubectl("get", KINDS, "-n", namespace, "-l", OURS, "-o", "name")
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.split()


def nothing_of(plane: ControlPlane, name: str) -> bool:
    return not [one for one in left(plane) if name in one]


def seen(plane: ControlPlane, kind: str, name: str) -> dict[str, Any]:
    shown = plane.kubectl("get", kind, name, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def provided(kubeconfig: Path, **options: Any) -> KubernetesProvider:
    told = {"pull": "never", "reach": "cluster", "stop_grace_s": 2, **options}
    return KubernetesProvider(IMAGE, kubeconfig=str(kubeconfig), **told)


@pytest.fixture
def provider(trainer: Path, plane: ControlPlane) -> Iterator[KubernetesProvider]:
    """What every test has that says nothing else: no rights but those of the Role."""
    with contextlib.closing(provided(trainer)) as made:
        yield made
    wait_until(lambda: left(plane) == [], 15)


@pytest.fixture(scope="module")
def server(agent: Agent, plane: ControlPlane) -> Iterator[Server]:
    """One that several tests share, in a namespace of its own."""
    make_namespace(plane, "shared")
    with contextlib.closing(provided(plane.kubeconfig(), namespace="shared")) as made:
        server = made.launch(env_vars={"PLAIN": "seen"}, secrets={"TOKEN": "hidden-9f2c"})
        server.wait_for_ready()
        yield server


def make_namespace(plane: ControlPlane, name: str) -> None:
    with plane.client() as client:
        created(client, "/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: client.get(path).is_success, 15)


def told(server: Server, code: str) -> str:
    """What a piece of Python prints in a pod."""
    done = server.execute(["python", "-c", textwrap.dedent(code)])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


# ------------------------------------------------------------------ as a client has it


@pytest.mark.parametrize("reach", ["cluster", "port-forward"])
def test_an_image_is_started_stepped_and_stopped(
    trainer: Path, plane: ControlPlane, reach: str
) -> None:
    with (
        contextlib.closing(provided(trainer, reach=reach)) as provider,
        EchoEnv.from_docker_image(IMAGE, provider=provider).sync() as env,
    ):
        env.reset()
        assert env.step(EchoAction(message="hi")).observation.echoed_message == "hi"
        kinds = {one.partition("/")[0].partition(".")[0] for one in left(plane)}
        assert kinds == {"pod", "secret", "networkpolicy", "lease"}
    assert left(plane) == []


def test_the_older_methods_hold_one_server(provider: KubernetesProvider) -> None:
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
    assert "GET /health" in provider.logs()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass


@pytest.mark.parametrize("reach", ["cluster", "port-forward"])
def test_a_port_that_is_taken_is_said(provider: KubernetesProvider, reach: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ProviderError, match=r"cannot listen on 127\.0\.0\.1 port"),
    ):
        provider.launch(port=taken.getsockname()[1], reach=reach)


def test_many_start_at_once(provider: KubernetesProvider) -> None:
    async def play() -> None:
        servers = await asyncio.gather(
            *(provider.launch_async(reach="port-forward") for _ in range(6))
        )
        assert len({server.url for server in servers}) == 6
        await asyncio.gather(*(server.wait_for_ready_async(120) for server in servers))
        await asyncio.gather(*(server.stop_async() for server in servers))

    asyncio.run(play())


def test_many_connections_are_forwarded_at_once(provider: KubernetesProvider) -> None:
    large = "x" * 3_000_000

    def play(url: str, message: str) -> int:
        with GenericEnvClient(url).sync() as env:
            env.reset()
            lengths = [
                env.step({"message": message}).observation["message_length"] for _ in range(5)
            ]
        assert set(lengths) == {len(message)}
        return int(lengths[0])

    with provider.launch(reach="port-forward") as server:
        server.wait_for_ready()
        with ThreadPoolExecutor(24) as pool:
            played = list(pool.map(lambda n: play(server.url, "x" * n), range(1, 25)))
        assert played == list(range(1, 25))
        assert play(server.url, large) == len(large)


def test_a_program_in_the_cluster_asks_by_its_service_account(
    plane: ControlPlane, trainer: Path, tmp_path: Path
) -> None:
    account = {"metadata": {"name": "in-cluster"}}
    subject = {"kind": "ServiceAccount", "name": "in-cluster", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "openenv-provider"}
    binding = {"metadata": {"name": "in-cluster"}, "roleRef": role, "subjects": [subject]}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    with plane.client() as client:
        created(client, accounts, account)
        created(
            client, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding
        )
        asked = created(client, f"{accounts}/in-cluster/token", {"spec": {}})
    (tmp_path / "token").write_text(asked["status"]["token"])
    (tmp_path / "ca.crt").write_text(plane.authority.read_text())
    (tmp_path / "namespace").write_text("default")
    program = f"""
        from openenv import GenericEnvClient
        from openenv.providers.kubernetes import KubernetesProvider
        provider = KubernetesProvider({IMAGE!r}, pull="never", stop_grace_s=2)
        with provider.launch() as server:
            assert not server.url.startswith("http://127."), server.url
            server.wait_for_ready()
            with GenericEnvClient(server.url).sync() as env:
                env.reset()
                print(env.step({{"message": "inside"}}).observation["echoed_message"])
        provider.close()
    """
    # In a mount namespace of its own it finds what a pod is given.
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    inside = (
        f'mount -t tmpfs none /run && mkdir -p {where} && cp "$1"/* {where} && exec "$2" -c "$3"'
    )
    host, port = plane.url.removeprefix("https://").split(":")
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            inside,
            "_",
            tmp_path,
            sys.executable,
            textwrap.dedent(program),
        ],
        env={**environ(), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stdout == "inside\n", done.stderr
    assert left(plane) == []


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
    assert status["Uid"].split()[0] == "65532"
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_it_writes_to_memory_only_and_is_told_no_token(server: Server) -> None:
    assert "Read-only file system" in server.execute(["touch", "/home/x"]).stderr
    assert server.execute(["touch", "/tmp/x"]).exit_code == 0
    code = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'))"
    assert told(server, code) == "False"


def test_its_network_leads_nowhere_where_policies_are_enforced(server: Server) -> None:
    code = """
        import socket
        try: socket.create_connection(("1.1.1.1", 80), 3); print("reached")
        except OSError as error: print("no:", error)
    """
    assert told(server, code).startswith("no:")


def test_secrets_are_told_by_files_and_are_in_no_pod(server: Server, plane: ControlPlane) -> None:
    assert told(server, "import os; print(open(os.environ['TOKEN_FILE']).read())") == "hidden-9f2c"
    pods = plane.kubectl("get", "pods,networkpolicies", "-n", "shared", "-o", "json").stdout
    assert "seen" in pods
    assert "hidden-9f2c" not in pods and str(server.api_key) not in pods


# ------------------------------------------------------------------ what the API server says


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": "deployment", "replicas": 3},
        {"reach": "gateway", "gateway": "https://envs.example/{name}"},
        {
            "egress": ["0.0.0.0/0", "::/0"],
            "dns": True,
            "seccomp": "profiles/env.json",
            "tolerations": [{"key": "envs", "operator": "Exists", "effect": "NoSchedule"}],
            "node_selector": {"pool": "envs"},
            "image_pull_secrets": ["registry"],
            "capabilities": ["NET_BIND_SERVICE"],
            "resource_requests": {"cpu": "500m", "memory": "1Gi"},
            "secrets": {"TOKEN": "hidden-9f2c"},
            "ttl_s": 60,
        },
    ],
)
def test_the_api_server_knows_every_field(plane: ControlPlane, options: dict[str, Any]) -> None:
    cluster = Cluster(str(plane.kubeconfig()))
    variables = {"A": "b", "SOME_TOKEN": "hidden-77aa"}
    for one in server_objects("env-1", IMAGE, KubernetesOptions(**options), variables, "a-key"):
        cluster.apply(one, dry_run=True)
        one["spec" if "spec" in one else "stringData"]["noSuchField"] = {"x": 1}
        with pytest.raises(ClusterError, match=r"noSuchField|ValueString|string"):
            cluster.apply(one, dry_run=True)


def test_one_that_nobody_has_room_for_says_so(provider: KubernetesProvider) -> None:
    size = {"cpu": "64", "memory": "1Gi"}
    with (
        provider.launch(resource_limits=size, reach="port-forward") as server,
        pytest.raises(
            ProviderTimeout, match=r"within 2 s: the pod is Pending: .*1 Insufficient cpu"
        ),
    ):
        server.wait_for_ready(2)


def test_one_that_gets_no_address_says_why_and_leaves_nothing(
    provider: KubernetesProvider, plane: ControlPlane
) -> None:
    with pytest.raises(
        ProviderTimeout, match=r"no address within 1.5 s: .*didn't match Pod's node"
    ):
        provider.launch(node_selector={"pool": "nowhere"}, schedule_timeout_s=1.5)
    assert [one for one in left(plane) if not one.startswith("lease")] == []


def test_what_a_quota_refuses_is_said(plane: ControlPlane) -> None:
    make_namespace(plane, "small")
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"limits.memory": "1Gi"}}}
    with plane.client() as client:
        path = "/api/v1/namespaces/small/resourcequotas"
        created(client, path, quota)
        wait_until(lambda: "hard" in client.get(f"{path}/small").json().get("status", {}), 15)
    with contextlib.closing(provided(plane.kubeconfig(), namespace="small")) as provider:
        with pytest.raises(ProviderError, match=r"exceeded quota: small.*limits\.memory=1Gi"):
            provider.launch()
        with (
            provider.launch(kind="deployment", reach="port-forward") as server,
            pytest.raises(ProviderError, match=r"a pod could not be created: .*exceeded quota"),
        ):
            server.wait_for_ready(20)
    assert left(plane, "small") == []


def test_who_has_no_rights_is_told_which(plane: ControlPlane) -> None:
    with (
        contextlib.closing(provided(plane.kubeconfig(STRANGER))) as provider,
        pytest.raises(ProviderError, match=r'"stranger" cannot list resource "leases".*rbac\.yaml'),
    ):
        provider.launch()


def test_a_namespace_that_is_not_there_is_said(plane: ControlPlane) -> None:
    with (
        contextlib.closing(provided(plane.kubeconfig(), namespace="nowhere")) as provider,
        pytest.raises(ProviderError, match='namespaces "nowhere" not found'),
    ):
        provider.launch()


def test_a_cluster_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plane: ControlPlane
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ProviderError, match="no cluster is configured"):
        KubernetesProvider(kubeconfig=str(tmp_path / "none"))
    told = plane.kubeconfig().read_text().replace(plane.url, "https://127.0.0.1:9")
    (tmp_path / "dead").write_text(told)
    provider = KubernetesProvider(IMAGE, kubeconfig=str(tmp_path / "dead"))
    with pytest.raises(ProviderError, match=r"does not answer at https://127\.0\.0\.1:9"):
        provider.launch()


# ------------------------------------------------------------------ what goes wrong in a pod


@pytest.mark.parametrize("reach", ["cluster", "port-forward"])
def test_one_that_ends_says_so_at_once_with_its_last_words(
    provider: KubernetesProvider, reach: str
) -> None:
    code = "import sys; print('no such weights', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ProviderExited, match=r"exit code 3(.|\n)*no such weights") as caught:
        provider.launch(command=["python", "-c", code], reach=reach).wait_for_ready(60)
    assert caught.value.exit_code == 3


def test_one_that_never_answers_says_so_with_its_last_words(provider: KubernetesProvider) -> None:
    code = "import time; print('loading', flush=True); time.sleep(60)"
    with (
        provider.launch(command=["python", "-c", code]) as server,
        pytest.raises(ProviderTimeout, match=r"within 3 s: the pod is Running(.|\n)*loading"),
    ):
        server.wait_for_ready(3)


def test_what_takes_too_much_memory_is_ended(provider: KubernetesProvider) -> None:
    size = {"cpu": "1", "memory": "64Mi"}
    code = "held = b'x' * 2**30; print('held')"
    with (
        provider.launch(
            resource_limits=size, command=["python", "-c", code], reach="port-forward"
        ) as server,
        pytest.raises(ProviderExited, match=r"more memory than it may|exit code 137"),
    ):
        server.wait_for_ready(30)


@pytest.mark.parametrize("reach", ["cluster", "port-forward"])
def test_an_image_that_is_not_there_is_said_at_once(
    provider: KubernetesProvider, reach: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"ImagePullBackOff(.|\n)*it is nowhere"):
        provider.launch("registry.invalid/nowhere:1", reach=reach).wait_for_ready(60)
    assert time.monotonic() - began < 30


def test_a_secret_that_is_gone_is_said_at_once(
    provider: KubernetesProvider, plane: ControlPlane, agent: Agent
) -> None:
    selector = {"pool": f"p{uuid.uuid4().hex[:8]}"}
    with provider.launch(node_selector=selector, reach="port-forward") as server:
        assert plane.kubectl("delete", "secret", server.name).returncode == 0
        agent.patch(f"/api/v1/nodes/{agent.name}", {"metadata": {"labels": selector}})
        with pytest.raises(ProviderError, match=r"CreateContainerConfigError: secret .* not found"):
            server.wait_for_ready(60)


def test_pods_of_a_deployment_that_end_again_and_again_are_said(
    provider: KubernetesProvider,
) -> None:
    code = "import sys; print('no such weights', flush=True); sys.exit(4)"
    with (
        provider.launch(
            kind="deployment", command=["python", "-c", code], reach="port-forward"
        ) as server,
        pytest.raises(ProviderExited, match=r"CrashLoopBackOff.*exit code 4(.|\n)*no such weights"),
    ):
        server.wait_for_ready(60)


def test_one_that_somebody_deletes_is_said_to_be_gone(
    provider: KubernetesProvider, plane: ControlPlane
) -> None:
    with provider.launch() as server:
        server.wait_for_ready()
        assert plane.kubectl("delete", "pod", server.name, "--wait=false").returncode == 0
        with pytest.raises(ProviderExited, match="somebody is deleting the pod"):
            server.check_running()
        wait_until(lambda: plane.kubectl("get", "pod", server.name).returncode == 1, 20)
        with pytest.raises(ProviderExited, match="somebody has deleted the pod"):
            server.check_running()
        # What belonged to the pod goes with it.
        wait_until(lambda: nothing_of(plane, server.name), 30)


def test_one_whose_time_is_over_is_ended_by_the_cluster(provider: KubernetesProvider) -> None:
    def is_over(server: Server) -> bool:
        try:
            server.check_running()
        except ProviderExited:
            return True
        return False

    with provider.launch(ttl_s=3) as server:
        wait_until(lambda: is_over(server), 30)
        with pytest.raises(ProviderExited, match="DeadlineExceeded"):
            server.check_running()


def test_commands_run_beside_the_server(server: Server) -> None:
    shown = server.execute(["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert shown == Executed(4, "out\n", "err\n")
    many = server.execute(["python", "-c", "print('x' * 500_000)"])
    assert len(many.stdout) == 500_001
    with pytest.raises(ProviderError, match=r"sleep took longer than 0\.5 s"):
        server.execute(["sleep", "3"], timeout_s=0.5)


def test_the_last_lines_alone_can_be_asked_for(server: Server) -> None:
    first, second = server.logs(2).splitlines()
    assert f"{first}\n{second}" in server.logs()


# ------------------------------------------------------------------ many pods behind one Service


def test_a_deployment_serves_by_all_of_its_pods(
    trainer: Path, plane: ControlPlane, agent: Agent
) -> None:
    with contextlib.closing(
        provided(trainer, kind="deployment", replicas=2, reach="port-forward")
    ) as provider:
        assert provider.replicas is None
        with provider.launch() as server:
            server.wait_for_ready(120)
            with GenericEnvClient(server.url).sync() as env:
                env.reset()
                assert env.step({"message": "hi"}).observation["message_length"] == 2
            for _ in range(6):
                with contextlib.suppress(urllib.error.HTTPError):
                    urllib.request.urlopen(f"{server.url}/nowhere").close()
            lines = [one for one in server.logs().splitlines() if "/nowhere" in one]
            pods = {one.partition(":")[0] for one in lines}
            assert len(pods) == 2
            service = seen(plane, "service", server.name)
            assert service["spec"]["selector"] == {"dev.openenv.server": server.name}
            assert server.execute(["echo", "hi"]).stdout == "hi\n"
            agent.kill("default", sorted(pods)[0])
            wait_until(lambda: restarts(plane, sorted(pods)[0]) == 1, 30)
            server.check_running()
    assert left(plane) == []


def restarts(plane: ControlPlane, pod: str) -> int:
    statuses = seen(plane, "pod", pod)["status"]["containerStatuses"]
    return int(statuses[0]["restartCount"])


def test_a_deployment_in_the_cluster_is_reached_by_its_name(provider: KubernetesProvider) -> None:
    with provider.launch(kind="deployment") as server:
        assert server.url == f"http://{server.name}.default.svc:8000"


def test_a_gateway_is_told_which_service(provider: KubernetesProvider, plane: ControlPlane) -> None:
    gateway = "https://envs.example/{namespace}/{name}/"
    with provider.launch(reach="gateway", gateway=gateway) as server:
        assert server.url == f"https://envs.example/default/{server.name}"
        assert seen(plane, "service", server.name)["spec"]["ports"][0]["port"] == 8000


# ------------------------------------------------------------------ what is left behind


def test_what_belongs_to_a_pod_is_owned_by_it(
    provider: KubernetesProvider, plane: ControlPlane
) -> None:
    with provider.launch() as server:
        pod = seen(plane, "pod", server.name)
        assert [one["kind"] for one in pod["metadata"]["ownerReferences"]] == ["Lease"]
        for kind in ("secret", "networkpolicy"):
            (owner,) = seen(plane, kind, server.name)["metadata"]["ownerReferences"]
            assert owner["uid"] == pod["metadata"]["uid"]


def test_a_launch_that_is_cancelled_leaves_nothing(
    provider: KubernetesProvider, plane: ControlPlane
) -> None:
    async def cancel() -> None:
        launching = asyncio.ensure_future(provider.launch_async())
        await asyncio.sleep(0.1)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(cancel())
    assert [one for one in left(plane) if not one.startswith("lease")] == []


def test_a_launch_that_is_refused_half_way_leaves_nothing(plane: ControlPlane) -> None:
    make_namespace(plane, "half")
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    with plane.client() as client:
        path = "/api/v1/namespaces/half/resourcequotas"
        created(client, path, quota)
        wait_until(lambda: "hard" in client.get(f"{path}/none").json().get("status", {}), 15)
    with contextlib.closing(provided(plane.kubeconfig(), namespace="half")) as provider:
        with pytest.raises(ProviderError, match="exceeded quota"):
            provider.launch()
        assert [one for one in left(plane, "half") if not one.startswith("lease")] == []


def test_a_provider_that_is_forgotten_leaves_nothing(trainer: Path, plane: ControlPlane) -> None:
    server = provided(trainer, reach="port-forward").launch()
    assert any(server.name in one for one in left(plane))
    del server
    gc.collect()
    wait_until(lambda: left(plane) == [], 30)
    assert not [one for one in threading.enumerate() if one.name == "openenv-forwarding"]


HOLDER = f"""
import sys, time
from openenv.providers.kubernetes import KubernetesProvider
provider = KubernetesProvider({IMAGE!r}, kubeconfig=sys.argv[1], pull="never", stop_grace_s=1)
print(provider.launch().name, flush=True)
time.sleep(600)
"""


def test_the_next_start_removes_what_a_killed_holder_left(
    trainer: Path, plane: ControlPlane
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(trainer)],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
    ) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        holder.send_signal(signal.SIGKILL)
    assert not nothing_of(plane, name)
    with contextlib.closing(provided(trainer)) as provider, provider.launch():
        wait_until(lambda: nothing_of(plane, name), 20)
    wait_until(lambda: left(plane) == [], 20)


@pytest.mark.parametrize(("age_s", "is_removed"), [(30, True), (0, False)])
def test_what_another_machine_holds_is_removed_once_its_lease_is_over(
    provider: KubernetesProvider,
    trainer: Path,
    plane: ControlPlane,
    age_s: int,
    is_removed: bool,
) -> None:
    with contextlib.closing(provided(trainer, lease_s=20)) as other:
        server = other.launch(reach="port-forward")
        lease = next(one for one in left(plane) if one.startswith("lease"))
        renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - age_s))
        spec = {"holderIdentity": "another-machine/boot/1/1", "renewTime": renewed}
        done = plane.kubectl("patch", lease, "--type=merge", "-p", json.dumps({"spec": spec}))
        assert done.returncode == 0, done.stderr
        with provider.launch(reach="port-forward"):
            if is_removed:
                wait_until(lambda: nothing_of(plane, server.name), 20)
            assert nothing_of(plane, server.name) is is_removed


def test_a_lease_is_renewed(trainer: Path, plane: ControlPlane) -> None:
    def renewed() -> str:
        (lease,) = [one for one in left(plane) if one.startswith("lease")]
        return str(seen(plane, *lease.split("/"))["spec"]["renewTime"])

    with contextlib.closing(provided(trainer, lease_s=2)) as provider, provider.launch():
        before = renewed()
        wait_until(lambda: renewed() > before, 10)
    assert left(plane) == []


def test_a_stop_that_fails_can_be_repeated(
    provider: KubernetesProvider, plane: ControlPlane, tmp_path: Path
) -> None:
    server = provider.launch()
    server.wait_for_ready()
    role = seen(plane, "role", "openenv-provider")
    rules = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/openenv-provider"
    metadata = {"name": "openenv-provider", "namespace": "default"}
    with plane.client() as client:
        assert client.put(path, json={"metadata": metadata, "rules": rules}).is_success
        try:
            wait_until(lambda: not may_delete(plane), 10)
            with pytest.raises(ProviderError, match=r'cannot (list|delete) resource "pods"'):
                server.stop()
        finally:
            told = {"metadata": metadata, "rules": role["rules"]}
            assert client.put(path, json=told).is_success
    wait_until(lambda: may_delete(plane), 10)
    server.stop()
    assert nothing_of(plane, server.name)


def may_delete(plane: ControlPlane) -> bool:
    return plane.kubectl("auth", "can-i", "delete", "pods", "--as=trainer").returncode == 0


def test_a_child_that_is_forked_stops_nothing(
    provider: KubernetesProvider, plane: ControlPlane
) -> None:
    with provider.launch() as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not nothing_of(plane, server.name)


# ------------------------------------------------------------------ the contract


@pytest.mark.timeout(600)
def test_it_keeps_what_providers_promise(plane: ControlPlane, trainer: Path) -> None:
    def kill(server: Server) -> None:
        plane.kubectl("delete", "pod", server.name, "--force", "--grace-period=0")

    report = check_provider(
        provided(trainer),
        kill=kill,
        dies={"command": ["sh", "-c", "echo no weights; exit 3"]},
        hangs={"command": ["sleep", "1000"]},
        missing={"image": "registry.invalid/nowhere:1"},
    )
    assert [one.promise for one in report.findings if one.kept is not True] == []
    wait_until(lambda: left(plane) == [], 30)
