"""A real API server of Kubernetes on the loopback interface, with its scheduler and controllers.

See scripts/kubernetes, which builds them. What runs its pods is `agent.py`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme

BIN = Path(__file__).parents[3] / ".containers" / "kubernetes" / "bin"
STARTS_WITHIN_S = 90.0
ADMIN, TRAINER, STRANGER = "admin-token", "trainer-token", "stranger-token"


@dataclass(frozen=True)
class ControlPlane:
    """Where it is, and what opens it."""

    url: str
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def kubeconfig(self, token: str = ADMIN) -> Path:
        """A kubeconfig of who has that token."""
        path = self.folder / f"{token}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": token, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": token}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(told))
        return path

    def client(self, token: str = ADMIN) -> httpx.Client:
        """Plain HTTP, which nothing of ours stands between."""
        return httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(self.authority)),
            timeout=20,
            trust_env=False,
        )

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "kubectl"), f"--kubeconfig={self.kubeconfig()}", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Start one; it ends with the block."""
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        assert (BIN / program).exists(), f"{program} is missing: run scripts/kubernetes"
    assert shutil.which("etcd"), "etcd is missing: run scripts/kubernetes"
    with contextlib.ExitStack() as stack:
        plane = ControlPlane(f"https://127.0.0.1:{free_port()}", folder)
        _write_keys(folder)
        etcd = _start_etcd(stack, folder)
        _start(stack, folder, "kube-apiserver", **_of_server(plane, etcd))
        with plane.client() as client:
            _wait(folder, "kube-apiserver", lambda: client.get("/readyz").status_code == 200)
            config = str(plane.kubeconfig())
            _start(stack, folder, "kube-scheduler", **_common(config))
            _start(
                stack,
                folder,
                "kube-controller-manager",
                **_common(config),
                # A node's health is the agent's to say.
                controllers="*,-nodelifecycle,-nodeipam,-attachdetach,-cloud-node-lifecycle",
                service_account_private_key_file=str(folder / "accounts.key"),
                root_ca_file=str(plane.authority),
                concurrent_gc_syncs="4",
            )
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            _wait(folder, "kube-controller-manager", lambda: client.get(path).is_success)
        yield plane


def _write_keys(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    own.private_key_pem.write_to_path(str(folder / "server.key"))
    subprocess.run(
        ["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"],
        check=True,
        capture_output=True,
    )
    rows = [
        f'{ADMIN},admin,1,"system:masters"',
        f"{TRAINER},trainer,2",
        f"{STRANGER},stranger,3",
    ]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")


def _of_server(plane: ControlPlane, etcd: str) -> dict[str, str]:
    folder = plane.folder
    return {
        "etcd_servers": etcd,
        "bind_address": "127.0.0.1",
        "advertise_address": "10.255.255.1",  # nobody asks there
        "endpoint_reconciler_type": "none",
        "secure_port": plane.url.rpartition(":")[2],
        "tls_cert_file": str(folder / "server.pem"),
        "tls_private_key_file": str(folder / "server.key"),
        "client_ca_file": str(plane.authority),
        "token_auth_file": str(folder / "tokens.csv"),
        "authorization_mode": "RBAC",
        "service_account_issuer": "https://kubernetes.default.svc",
        "service_account_signing_key_file": str(folder / "accounts.key"),
        "service_account_key_file": str(folder / "accounts.key"),
        "service_cluster_ip_range": "10.96.0.0/16",
        "kubelet_preferred_address_types": "InternalIP",
        "cert_dir": str(folder),
    }


def _common(kubeconfig: str) -> dict[str, str]:
    return {
        "kubeconfig": kubeconfig,
        "leader_elect": "false",
        "port": "0",
        "bind_address": "127.0.0.1",
        "secure_port": str(free_port()),
    }


def _start_etcd(stack: contextlib.ExitStack, folder: Path) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    flags = {
        "data_dir": str(folder / "etcd"),
        "listen_client_urls": client,
        "advertise_client_urls": client,
        "listen_peer_urls": peer,
        "initial_advertise_peer_urls": peer,
        "initial_cluster": f"default={peer}",
        "unsafe_no_fsync": "true",
    }
    _start(stack, folder, "etcd", **flags)
    with httpx.Client(trust_env=False) as http:
        _wait(folder, "etcd", lambda: http.get(f"{client}/health").is_success)
    return client


def _start(stack: contextlib.ExitStack, folder: Path, program: str, **flags: str) -> None:
    command = [shutil.which("etcd") or program if program == "etcd" else str(BIN / program)]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    log = stack.enter_context((folder / f"{program}.log").open("wb"))
    process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(folder: Path, program: str, is_up: Any) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if is_up():
                return
        if time.monotonic() > deadline:
            lines = (folder / f"{program}.log").read_text(errors="replace").splitlines()
            raise AssertionError("\n".join([f"{program} is not ready", *lines[-15:]]))
        time.sleep(0.1)


def created(client: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Make an object."""
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    made: dict[str, Any] = answer.json()
    return made
