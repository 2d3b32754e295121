"""What a node does: it runs the pods that the scheduler gives it, by Podman, and says how they are.

A small kubelet, since a real one cannot start a pod on every test machine. It plays what these
tests use of a Pod (one container, its Secret and its directories in memory, limits, rights, the
readiness probe, deadlines, restarts), keeps pods off all networks where a NetworkPolicy lets
nothing out, and serves what the API server asks kubelets for: logs, exec and port-forward.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from providers.kubernetes.cluster import ControlPlane, created, free_port
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

LOOK_EVERY_S = 0.1
PULL_BACK_OFF_S = 0.5
INTERNAL = "openenv-test-internal"
MARK = "dev.openenv.test-agent"
UNITS = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6, "G": 1e9}
CONFIGURATION = Path(__file__).parents[3] / ".containers" / "containers.conf"

Manifest = dict[str, Any]


def amount(text: str) -> float:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, env=environ())
    if check and done.returncode:
        raise PodmanError(done.stderr.strip())
    return done


def environ() -> dict[str, str]:
    told = {"CONTAINERS_CONF": str(CONFIGURATION)} if CONFIGURATION.exists() else {}
    return {**os.environ, **told}


def printed(container: str) -> str:
    """What a container has printed, in the order in which it did."""
    done = subprocess.run(
        ["podman", "logs", container],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ(),
    )
    return "" if done.returncode else done.stdout


class PodmanError(Exception):
    pass


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Agent:
    """One node."""

    def __init__(self, plane: ControlPlane, name: str = "node-1", cpu: str = "16") -> None:
        self._plane = plane
        self.name = name
        self.mark = f"{os.getpid()}-{name}"
        self._client = plane.client()
        self._port = free_port()
        self._ended = threading.Event()
        self._players: dict[str, _Player] = {}
        self._thread = threading.Thread(target=self._watch, name="test-agent", daemon=True)
        self._doors = _Doors(self, plane, self._port)
        self._register(cpu)
        self._thread.start()

    def _register(self, cpu: str) -> None:
        size = {"cpu": cpu, "memory": "64Gi", "pods": "110", "ephemeral-storage": "10Gi"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        created(self._client, "/api/v1/nodes", node)
        status = {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        path = f"/api/v1/nodes/{self.name}"
        self.patch(f"{path}/status", {"status": status})
        # Admission taints every new node; the controller that takes that away does not run.
        self.patch(path, {"spec": {"taints": []}})

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for player in list(self._players.values()):
            player.end(0)
        self._doors.close()
        self._client.close()
        podman("network", "rm", INTERNAL, check=False)

    def patch(self, path: str, change: Manifest) -> httpx.Response:
        kind = {"content-type": "application/strategic-merge-patch+json"}
        return self._client.patch(path, content=json.dumps(change), headers=kind)

    def get(self, path: str) -> Manifest | None:
        answer = self._client.get(path)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        found: Manifest = answer.json()
        return found

    def player(self, namespace: str, name: str) -> _Player | None:
        for one in self._players.values():
            if (one.namespace, one.name) == (namespace, name):
                return one
        return None

    def _watch(self) -> None:
        path = f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}"
        while not self._ended.wait(LOOK_EVERY_S):
            with contextlib.suppress(httpx.HTTPError):
                found = self.get(path) or {}
                pods = {pod["metadata"]["uid"]: pod for pod in found.get("items") or ()}
                for uid, pod in pods.items():
                    self._take(uid, pod)
                for uid in self._players.keys() - pods.keys():
                    self._players.pop(uid).end(0)

    def _take(self, uid: str, pod: Manifest) -> None:
        player = self._players.get(uid)
        if player is None:
            player = self._players[uid] = _Player(self, pod)
            player.begin()
        if "deletionTimestamp" in pod["metadata"]:
            player.delete(pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    def kill(self, namespace: str, name: str) -> None:
        """End what a pod's container runs."""
        player = self.player(namespace, name)
        assert player is not None
        podman("kill", player.container)

    def event(self, pod: Manifest, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        created(
            self._client,
            f"/api/v1/namespaces/{namespace}/events",
            {
                "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "namespace": namespace,
                    "uid": metadata["uid"],
                },
                "type": "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": now(),
                "source": {"component": "test-agent"},
            },
        )

    def told_nothing_out(self, pod: Manifest) -> bool:
        """Whether a NetworkPolicy lets nothing out of a pod."""
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        for one in (self.get(path) or {}).get("items") or ():
            wanted = one["spec"]["podSelector"].get("matchLabels") or {}
            is_meant = wanted.items() <= labels.items()
            if is_meant and "Egress" in one["spec"]["policyTypes"]:
                return not one["spec"].get("egress")
        return False


class _Player:
    """One pod."""

    def __init__(self, agent: Agent, pod: Manifest) -> None:
        self._agent = agent
        self._pod = pod
        self.namespace, self.name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._spec = pod["spec"]["containers"][0]
        self.container = f"test-pod-{pod['metadata']['uid']}"
        self._folder: Path = agent._plane.folder / self.container
        self._ended = threading.Event()
        self._grace_s: int | None = None
        self._thread = threading.Thread(target=self._play, name=self.container, daemon=True)
        self._restarts = 0
        self._last: Manifest = {}
        self.address = ""
        self._turn = threading.Lock()

    def begin(self) -> None:
        self._thread.start()

    def delete(self, grace_s: int) -> None:
        if self._grace_s is None or grace_s < self._grace_s:
            self._grace_s = grace_s
            self._ended.set()

    def end(self, grace_s: int) -> None:
        self.delete(grace_s)
        self._thread.join()

    # ------------------------------------------------------------------ its life

    def _play(self) -> None:
        try:
            with contextlib.suppress(httpx.HTTPError):
                self._live()
            self._ended.wait()
        finally:
            podman("stop", "-t", str(self._grace_s or 0), self.container, check=False)
            podman("rm", "-f", self.container, check=False)
            shutil.rmtree(self._folder, ignore_errors=True)
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
            with contextlib.suppress(httpx.HTTPError):
                self._agent._client.request("DELETE", path, json=body)

    @property
    def _uid(self) -> str:
        return str(self._pod["metadata"]["uid"])

    def _live(self) -> None:
        image = self._spec["image"]
        if podman("image", "exists", image, check=False).returncode:
            return self._cannot_pull(image)
        try:
            self._create(image)
        except LookupError as error:
            return self._waits("CreateContainerConfigError", str(error.args[0]))
        except PodmanError as error:
            return self._waits("CreateContainerError", str(error))
        always = self._pod["spec"].get("restartPolicy", "Always") == "Always"
        while not self._ended.is_set():
            try:
                podman("start", self.container)
            except PodmanError as error:
                self._over(128, "StartError", str(error))
                return None
            if not self._run_to_its_end():
                return None
            code, is_oom = self._exit()
            reason = "OOMKilled" if is_oom else "Error" if code else "Completed"
            log = printed(self.container)[-2048:]
            self._last = {"exitCode": code, "reason": reason, "message": log, "finishedAt": now()}
            if not always:
                self._over(code, reason, log)
                return None
            self._restarts += 1
            if self._restarts > 1:
                message = f"back-off 10s restarting failed container={self._spec['name']}"
                self._waits("CrashLoopBackOff", message)
                self._ended.wait(1.0)
        return None

    def _cannot_pull(self, image: str) -> None:
        words = f'Failed to pull image "{image}": it is nowhere'
        self._agent.event(self._pod, "Failed", words)
        self._waits("ErrImagePull", words)
        self._ended.wait(PULL_BACK_OFF_S)
        self._waits("ImagePullBackOff", f'Back-off pulling image "{image}"')

    def _run_to_its_end(self) -> bool:
        """Say how the container is until it ends; False where the pod is to go."""
        state: Manifest = {"running": {"startedAt": now()}}
        began, was_ready = time.monotonic(), False
        self.address = self._address()
        self._say("Running", state, ready=False)
        limit = self._pod["spec"].get("activeDeadlineSeconds")
        while not self._ended.wait(LOOK_EVERY_S):
            if not self._runs():
                return True
            if limit and time.monotonic() - began > limit:
                podman("kill", self.container, check=False)
                message = "Pod was active on the node longer than the specified deadline"
                self._over(137, "Error", "", {"reason": "DeadlineExceeded", "message": message})
                return False
            is_ready = self._probe()
            if is_ready != was_ready:
                self._say("Running", state, ready=is_ready)
                was_ready = is_ready
        return False

    def _runs(self) -> bool:
        told = podman("inspect", "-f", "{{.State.Running}}", self.container, check=False)
        return told.stdout.strip() == "true"

    def _exit(self) -> tuple[int, bool]:
        shape = "{{.State.ExitCode}} {{.State.OOMKilled}}"
        code, oom = podman("inspect", "-f", shape, self.container).stdout.split()
        return int(code), oom == "true"

    def _probe(self) -> bool:
        probe = (self._spec.get("readinessProbe") or {}).get("httpGet")
        if probe is None:
            return True
        with contextlib.suppress(httpx.HTTPError):
            url = f"http://{self.address}:{probe['port']}{probe['path']}"
            return httpx.get(url, timeout=2, trust_env=False).status_code == 200
        return False

    def _address(self) -> str:
        told = json.loads(podman("inspect", self.container).stdout)[0]["NetworkSettings"]
        found = [one["IPAddress"] for one in told["Networks"].values()]
        return str(found[0])

    # ------------------------------------------------------------------ what it says

    def _waits(self, reason: str, message: str) -> None:
        phase = "Running" if self._restarts else "Pending"
        self._say(phase, {"waiting": {"reason": reason, "message": message}}, ready=False)

    def _over(self, code: int, reason: str, log: str, more: Manifest | None = None) -> None:
        ended = {"exitCode": code, "reason": reason, "message": log, "finishedAt": now()}
        self._say("Failed" if code else "Succeeded", {"terminated": ended}, False, more or {})

    def _say(self, phase: str, state: Manifest, ready: bool, more: Manifest | None = None) -> None:
        word = "True" if ready else "False"
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            **({"podIP": self.address} if self.address else {}),
            **({"podIPs": [{"$patch": "replace"}, {"ip": self.address}]} if self.address else {}),
            "conditions": [
                {"type": "Ready", "status": word},
                {"type": "ContainersReady", "status": word},
                {"type": "Initialized", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": self._spec["name"],
                    "image": self._spec["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": self._restarts,
                    "state": {"$patch": "replace", **state},
                    "lastState": {"terminated": self._last} if self._last else {},
                }
            ],
            **(more or {}),
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/status"
        answer = self._agent.patch(path, {"metadata": {"uid": self._uid}, "status": status})
        assert answer.is_success or answer.status_code in (404, 409), answer.text

    # ------------------------------------------------------------------ its container

    def _create(self, image: str) -> None:
        spec, pod = self._spec, self._pod["spec"]
        rights = {**(pod.get("securityContext") or {}), **(spec.get("securityContext") or {})}
        limits = spec["resources"].get("limits") or {}
        command = [
            "create",
            "--name",
            self.container,
            "--label",
            f"{MARK}={self._agent.mark}",
            "--init",
        ]
        if self._agent.told_nothing_out(self._pod):
            podman("network", "create", "--internal", INTERNAL, check=False)
            command.append(f"--network={INTERNAL}")
        if rights.get("readOnlyRootFilesystem"):
            command += ["--read-only", "--read-only-tmpfs=false"]
        if not rights.get("allowPrivilegeEscalation", True):
            command.append("--security-opt=no-new-privileges")
        for one in (rights.get("capabilities") or {}).get("drop") or ():
            command.append(f"--cap-drop={one}")
        for one in (rights.get("capabilities") or {}).get("add") or ():
            command.append(f"--cap-add={one}")
        if "runAsUser" in rights:
            command.append(f"--user={rights['runAsUser']}:{rights.get('runAsGroup', 0)}")
        if "memory" in limits:
            size = int(amount(limits["memory"]))
            command += [f"--memory={size}", f"--memory-swap={size}"]
        if "cpu" in limits:
            command.append(f"--cpus={min(amount(limits['cpu']), os.cpu_count() or 1)}")
        for name, value in self._environment():
            command += ["--env", f"{name}={value}"]
        podman(*command, *self._mounts(), image, *(spec.get("args") or ()))

    def _environment(self) -> Iterator[tuple[str, str]]:
        for one in self._spec.get("env") or ():
            source = (one.get("valueFrom") or {}).get("secretKeyRef")
            if source is None:
                yield one["name"], one.get("value", "")
            else:
                yield one["name"], self._secret(source["name"])[source["key"]].decode()

    def _mounts(self) -> Iterator[str]:
        volumes = {one["name"]: one for one in self._pod["spec"].get("volumes") or ()}
        for mount in self._spec.get("volumeMounts") or ():
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "emptyDir" in volume:
                size = int(amount(volume["emptyDir"]["sizeLimit"]))
                yield f"--tmpfs={path}:size={size},mode=1777"
            elif "secret" in volume:
                yield f"--volume={self._files(volume['secret'])}:{path}:ro"
            else:  # a token, which these pods are not to be given
                assert "projected" in volume or "hostPath" in volume, volume
                raise LookupError(f"volume {mount['name']} is not expected")

    def _files(self, source: Manifest) -> Path:
        data = self._secret(source["secretName"])
        folder = self._folder / "told"
        for item in source["items"]:
            path = folder / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[item["key"]])
            path.chmod(source["defaultMode"])
        return folder

    def _secret(self, name: str) -> dict[str, bytes]:
        found = self._agent.get(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
        if found is None:
            raise LookupError(f'secret "{name}" not found')
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


class _Doors:
    """What the API server asks kubelets for. Its WebSockets are passed on as they come."""

    def __init__(self, agent: Agent, plane: ControlPlane, port: int) -> None:
        self._agent = agent
        self._plane = plane
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._over: asyncio.Event | None = None
        up = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(up,), daemon=True)
        self._thread.start()
        assert up.wait(10)

    def close(self) -> None:
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    def _run(self, up: threading.Event) -> None:
        self._loop.run_until_complete(self._serve(up))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    async def _serve(self, up: threading.Event) -> None:
        self._over = asyncio.Event()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = self._plane.folder
        tls.load_cert_chain(folder / "server.pem", folder / "server.key")
        options: dict[str, Any] = {"process_request": self._answer, "ssl": tls}
        protocols = [Subprotocol("v4.channel.k8s.io")]
        async with serve(
            self._open,
            "127.0.0.1",
            self._port,
            subprotocols=protocols,
            compression=None,
            max_size=None,
            **options,
        ):
            up.set()
            await self._over.wait()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Logs are plain HTTP; the rest are WebSockets."""
        url = urlsplit(request.path)
        kind, namespace, name = url.path.strip("/").split("/")[:3]
        player = self._agent.player(namespace, name)
        if player is None:
            return _response(404, f"no pod {namespace}/{name}")
        if kind != "containerLogs":
            return None
        lines = parse_qs(url.query).get("tailLines")
        text = await asyncio.to_thread(printed, player.container)
        if lines:  # Podman's own choice of the last ones is not always right
            text = "".join(text.splitlines(keepends=True)[-int(lines[0]) :])
        return _response(200, text)

    async def _open(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        url = urlsplit(socket.request.path)
        kind, namespace, name = url.path.strip("/").split("/")[:3]
        query = parse_qs(url.query)
        player = self._agent.player(namespace, name)
        assert player is not None
        with contextlib.suppress(ConnectionClosed):
            if kind == "exec":
                await _execute(socket, player, query["command"])
            elif kind == "portForward":
                await _forward(socket, player, int(query["port"][0]))


def _response(status: int, text: str) -> Response:
    body = text.encode()
    headers = Headers({"Content-Type": "text/plain", "Content-Length": str(len(body))})
    return Response(status, "", headers, body)


async def _execute(socket: ServerConnection, player: _Player, command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        "podman",
        "exec",
        player.container,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ(),
    )
    assert process.stdout is not None and process.stderr is not None

    async def pump(channel: int, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(2**16):
            await socket.send(bytes([channel]) + data)

    try:
        await asyncio.gather(pump(1, process.stdout), pump(2, process.stderr))
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    status: Manifest = {"status": "Success"}
    if code:
        cause = {"reason": "ExitCode", "message": str(code)}
        status = {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with exit code {code}",
            "details": {"causes": [cause]},
        }
    await socket.send(b"\3" + json.dumps(status).encode())


async def _forward(socket: ServerConnection, player: _Player, port: int) -> None:
    number = port.to_bytes(2, "little")
    await socket.send(b"\0" + number)
    await socket.send(b"\1" + number)
    try:
        reader, writer = await asyncio.open_connection(player.address or "0.0.0.0", port)
    except OSError as error:
        await socket.send(b"\1" + f"error forwarding port {port}: {error}".encode())
        return

    async def there() -> None:
        async for message in socket:
            assert isinstance(message, bytes) and message[0] == 0
            writer.write(message[1:])
            await writer.drain()

    async def back() -> None:
        while data := await reader.read(2**16):
            await socket.send(b"\0" + data)

    tasks = [asyncio.ensure_future(there()), asyncio.ensure_future(back())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
