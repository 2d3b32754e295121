"""Servers in a Kubernetes cluster: each server is a pod, or a Deployment.

By default a pod has a read-only root filesystem, no capabilities, an unprivileged user, limits on
processors and memory, no service account token, and a NetworkPolicy that denies all egress. Options
grant more.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from openenv._internal.redaction import redact
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._clusters import Cluster, ClusterError
from openenv.providers._manifests import (
    CONTAINER,
    MANAGER,
    SERVER,
    KubernetesOptions,
    lease,
    server_objects,
)
from openenv.providers._readiness import HEALTH_TIMEOUT_S, LOG_TAIL_LINES, is_healthy, wait_until
from openenv.providers._relay import Relay, RelayThread, through, to_host, to_pod
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import name_for
from openenv.providers.owners import OWNER, is_orphan, own_name
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    MANAGED,
    READY_TIMEOUT_S,
    Executed,
    ImageProvider,
    LaunchRequest,
    Server,
)

__all__ = [
    "MANAGER",
    "Cluster",
    "ClusterError",
    "KubernetesOptions",
    "KubernetesProvider",
    "check_deployment",
    "count_updated",
    "cure_for",
    "prune",
    "server_objects",
    "why_not_ready",
]

logger = logging.getLogger(__name__)

Manifest = Mapping[str, Any]

LEASE_S = 600
LOOK_EVERY_S = 0.5
REVISION = "deployment.kubernetes.io/revision"
GONE_S = 30.0  # in addition to a pod's grace period
STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"

# Reasons of waiting containers that do not resolve by themselves.
HOPELESS = {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
    "StartError",
}


class KubernetesProvider(ImageProvider):
    """Serves environments from a Kubernetes cluster.

        provider = KubernetesProvider("registry.example/echo-env:1", namespace="rl-training")
        async with EchoEnv.from_docker_image(provider.image, provider=provider) as env: ...

    Inside a cluster the provider uses the service account of its own pod, elsewhere a kubeconfig.
    The required rights are those of the Role in ``deploy/kubernetes/rbac.yaml``.

    Args:
        image: The default image of `launch`.
        kubeconfig: File with the cluster's address. By default that of KUBECONFIG, the in-cluster
            settings of a pod, or ``~/.kube/config``.
        context: A context of the kubeconfig; None for the current context.
        api_key: Key that each server requires. By default each server gets a fresh key, passed in a
            file, which clients in this process find automatically. None: no key. Servers of the
            public package check no keys.
        lease_s: Seconds after the last renewal of this process's lease after which other processes
            may remove its servers. The lease is renewed every third of this time.
        **options: The fields of `KubernetesOptions`; among them `namespace`, `resource_limits` and
            `replicas`.

    Attributes:
        image: The default image.

    Raises:
        MissingPackage: Kubernetes' client is not installed.
        ProviderError: No cluster is configured.
        TypeError: An option does not exist.
        ValueError: An option's value is invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(
        MANAGED,
        isolation="pod",
        own_files=True,
        read_only=True,
        unprivileged=True,
        networks=("internal", "open"),
        limits=("memory", "cpu"),
        orphans="end at the next start",
    )

    def __init__(
        self,
        image: str | None = None,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        api_key: str | FreshKey | None = FRESH_KEY,
        lease_s: int = LEASE_S,
        **options: Any,
    ) -> None:
        super().__init__(image, api_key)
        if lease_s < 1:
            raise ValueError(f"lease_s is {lease_s!r}; it must be 1 or more")
        self._options = KubernetesOptions().changed(options)
        self.replicas = self._options.replicas if self._options.kind == "pod" else None
        self._lease_s = lease_s
        self._cluster = Cluster(kubeconfig, context)
        self._leases: dict[str, _NamespaceLease] = {}
        self._thread: RelayThread | None = None  # for all forwarded ports
        self._turn_of_cluster = threading.Lock()

    def _launch(self, request: LaunchRequest) -> Server:
        image, chosen, key = self._resolve(request, self._options)
        if chosen.kind == "pod" and request.options.get("replicas") is not None:
            raise ValueError(
                "a launch takes replicas only with kind='deployment'; a pod is one server"
            )
        if chosen.reach == "auto":
            is_around = self._cluster.is_around
            chosen = replace(chosen, reach="cluster" if is_around else "port-forward")
        if request.port is not None and chosen.reach == "gateway":
            raise ValueError(
                "port cannot be chosen with reach='gateway', which uses no port of this host"
            )
        with self._turn_of_cluster:
            held = self._held_by(chosen.namespace)
        name = name_for(image)
        objects = server_objects(name, image, chosen, request.env_vars, key, held.name)
        made = _ServerObjects(self._cluster, chosen, name)
        try:
            made.create(objects, held.reference)
            url, cut = self._address(made, request.port)
            return _ClusterServer(made, url, key, cut, held)
        except BaseException as error:
            with contextlib.suppress(ProviderError):  # the first error is the one to report
                made.remove()
                made.wait_until_gone()
            if isinstance(error, ClusterError):
                words = f"{image} could not be started: {error}{cure_for(error)}"
                raise ProviderError(words) from None
            raise

    def _held_by(self, namespace: str) -> _NamespaceLease:
        """Return the lease under which this process owns servers in a namespace."""
        held = self._leases.get(namespace)
        if held is None or held.is_closed:
            try:
                prune(self._cluster, namespace)
                held = _NamespaceLease(self._cluster, namespace, self._lease_s)
            except ClusterError as error:
                raise ProviderError(
                    f"no server can be started in namespace {namespace!r}: {error}{cure_for(error)}"
                ) from None
            self._leases[namespace] = held
        return held

    def _address(self, made: _ServerObjects, port: int | None) -> tuple[str, Callable[[], None]]:
        """Return a server's URL, and a function that closes the connections to the server."""
        options = made.options
        if options.reach == "port-forward":
            with self._turn_of_cluster:
                if self._thread is None:
                    self._thread = RelayThread()
                relay = Relay(port, to_pod(_PodChooser(made)), self._thread)
            return f"http://127.0.0.1:{relay.port}", relay.close
        if options.reach == "gateway":
            assert options.gateway is not None
            url = options.gateway.format(name=made.name, namespace=made.namespace)
            return url.rstrip("/"), lambda: None
        host = f"{made.name}.{made.namespace}.svc" if made.is_deployment else _pod_ip(made)
        if port is None:
            bracketed = f"[{host}]" if ":" in host else host
            return f"http://{bracketed}:{options.container_port}", lambda: None
        relay = Relay(port, through(to_host(host, options.container_port)))
        return f"http://127.0.0.1:{port}", relay.close

    def close(self) -> None:
        super().close()
        with self._turn_of_cluster:
            leases, self._leases = self._leases, {}
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        for held in leases.values():
            held.close()


class _ClusterServer(Server):
    """A server in a cluster: a pod, or the pods of a Deployment."""

    def __init__(
        self,
        made: _ServerObjects,
        url: str,
        key: str | None,
        cut: Callable[[], None],
        held: _NamespaceLease,
    ) -> None:
        super().__init__(url, made.name, key)
        self._made = made
        self._cut = cut
        self._held = held  # keeps the lease alive as long as a server may be needed
        self._clean_up_with(cut, made.remove)

    # ------------------------------------------------------------------ status

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        patience = min(timeout_s, HEALTH_TIMEOUT_S)
        next_look, runs = 0.0, False

        def is_ready() -> bool:
            nonlocal next_look, runs
            if time.monotonic() >= next_look:
                runs = self._runs()
                next_look = time.monotonic() + LOOK_EVERY_S
            return runs and is_healthy(self.url, patience)

        what = f"answer at {self.url}/health"
        try:
            wait_until(is_ready, timeout_s, what, lambda: None, self._last_lines)
        except ProviderTimeout as error:
            why = why_not_ready(self._made.cluster, self._made.namespace, self.name)
            words = str(error).partition("\n")[0]
            raise ProviderTimeout(f"{words}: {why}", logs=error.logs) from None
        self._check_wanted()

    def _runs(self) -> bool:
        """Return whether enough containers are running.

        Raises:
            ProviderError: The containers will never run.
        """
        self._check_wanted()
        running = [pod for pod in self._made.pods() if _is_running(pod)]
        wanted = (self._made.options.replicas or 1) if self._made.is_deployment else 1
        return len(running) >= wanted

    def check_running(self) -> None:
        if self.is_stopped:
            return
        cluster, namespace = self._made.cluster, self._made.namespace
        if self._made.is_deployment:
            check_deployment(cluster, namespace, self.name)
            return
        pod = cluster.find("Pod", namespace, self.name)
        if pod is None:
            raise ProviderExited("somebody has deleted the pod", exit_code=None)
        _raise_trouble(cluster, pod)

    # ------------------------------------------------------------------ logs, commands, stop

    def _read_log(self, lines: int | None) -> str:
        cluster, pods = self._made.cluster, self._made.pods()
        parts = [(pod["metadata"]["name"], _log_of(cluster, pod, lines)) for pod in pods]
        if not self._made.is_deployment:
            return parts[0][1] if parts else ""
        return "\n".join(f"{name}: {line}" for name, text in parts for line in text.splitlines())

    def _last_lines(self, lines: int) -> str:
        try:
            return self.logs(lines)
        except ClusterError as error:
            return f"(its log cannot be read: {error})"

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        for pod in self._made.pods():
            if _is_running(pod):
                name = pod["metadata"]["name"]
                cluster, namespace = self._made.cluster, self._made.namespace
                return cluster.execute(namespace, name, CONTAINER, command, timeout_s)
        raise ProviderError(f"{command[0]} could not be run: no pod of {self.name} runs")

    def _stop(self) -> None:
        self._cut()
        if self._kept_log is None:
            try:
                self._kept_log = self.logs()
            except ProviderError as error:
                self._kept_log = f"(its log could not be read: {error})"
        try:
            self._made.remove()
        except ClusterError as error:
            raise ProviderError(f"{self.name} could not be removed: {error}") from None
        self._made.wait_until_gone()


# ---------------------------------------------------------------------- objects of a server


class _ServerObjects:
    def __init__(self, cluster: Cluster, options: KubernetesOptions, name: str) -> None:
        self.cluster = cluster
        self.options = options
        self.namespace = options.namespace
        self.name = name
        self.is_deployment = options.kind == "deployment"
        self._kinds: list[str] = []

    def create(self, objects: Sequence[Manifest], owner: Manifest) -> None:
        """Create the objects. The last one, which runs the server, becomes the others' owner."""
        runs: Manifest = {}
        for one in objects:
            self._kinds.append(one["kind"])  # even a failed request may have created the object
            metadata = {**one["metadata"], "ownerReferences": [owner]}
            runs = self.cluster.create({**one, "metadata": metadata})
        change = {"metadata": {"ownerReferences": [_reference(runs)]}}
        for one in objects[:-1]:
            self.cluster.merge(one["kind"], self.namespace, self.name, change)

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.list("Pod", self.namespace, labels=f"{SERVER}={self.name}")

    def remove(self) -> None:
        """Request the deletion of the objects, without waiting."""
        for kind in reversed(self._kinds):
            self.cluster.delete(kind, self.namespace, self.name)

    def wait_until_gone(self) -> None:
        patience_s = self.options.stop_grace_s + GONE_S
        deadline = time.monotonic() + patience_s
        pause = 0.05
        while left := self.pods():
            if time.monotonic() > deadline:
                places = {(pod["spec"].get("nodeName") or "no node") for pod in left}
                raise ProviderError(
                    f"{self.name} has not ended within {patience_s:g} s: it is still on "
                    f"{', '.join(sorted(places))}"
                )
            time.sleep(pause)
            pause = min(pause * 1.3, LOOK_EVERY_S)


def _reference(made: Manifest) -> dict[str, Any]:
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }


class _PodChooser:
    """Chooses the pod of each new connection, round robin among the ready pods."""

    def __init__(self, made: _ServerObjects) -> None:
        self._made = made
        self._turns = 0

    def __call__(self) -> Any:
        name = self._made.name
        if self._made.is_deployment:
            pods = self._made.pods()
            ready = sorted(pod["metadata"]["name"] for pod in pods if _is_ready(pod))
            if not ready:
                raise ProviderError(f"no pod of {name} is ready")
            self._turns += 1
            name = ready[self._turns % len(ready)]
        made = self._made
        return made.cluster.forwarding(made.namespace, name, made.options.container_port)


def _pod_ip(made: _ServerObjects) -> str:
    """Wait for a pod's address, which is assigned once the pod has a node."""
    timeout_s = made.options.schedule_timeout_s
    deadline = time.monotonic() + timeout_s
    pause = 0.02
    while True:
        pod = made.cluster.find("Pod", made.namespace, made.name)
        if pod is None:
            raise ProviderExited("somebody has deleted the pod", exit_code=None)
        address = (pod.get("status") or {}).get("podIP")
        if address:
            return str(address)
        _raise_trouble(made.cluster, pod)
        if time.monotonic() > deadline:
            raise ProviderTimeout(
                f"{made.name} got no address within {timeout_s:g} s: "
                + why_not_ready(made.cluster, made.namespace, made.name)
            )
        time.sleep(pause)
        pause = min(pause * 1.3, LOOK_EVERY_S)


# ---------------------------------------------------------------------- pod status


def _containers(pod: Manifest) -> list[dict[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _is_running(pod: Manifest) -> bool:
    states = [one.get("state") or {} for one in _containers(pod)]
    return bool(states) and all("running" in state for state in states)


def _log_of(cluster: Cluster, pod: Manifest, lines: int | None) -> str:
    metadata = pod["metadata"]
    try:
        return cluster.logs(metadata["namespace"], metadata["name"], CONTAINER, lines)
    except ClusterError as error:
        if error.status in (400, 404):  # the container has not started, or is gone
            return _last_message(pod)
        raise


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _trouble(pod: Manifest) -> tuple[str, int | None, bool] | None:
    """Return why a pod will not serve: the reason, the exit code, and whether the pod has ended.

    Return None if the pod serves, or still may.
    """
    status = pod.get("status") or {}
    for one in _containers(pod):
        state = one.get("state") or {}
        ended = state.get("terminated")
        if ended and pod["spec"].get("restartPolicy") == "Never":
            code = ended.get("exitCode")
            how = f"exit code {code}"
            if ended.get("reason") == "OOMKilled":
                how = "it took more memory than it may"
            elif status.get("reason"):  # such as Evicted, or DeadlineExceeded
                how = ", ".join(filter(None, (how, status["reason"], status.get("message"))))
            return f"the pod has ended ({how})", code, True
        waiting = state.get("waiting") or {}
        if (reason := waiting.get("reason")) in HOPELESS:
            message = f": {waiting['message']}" if waiting.get("message") else ""
            words = f"its container does not start: {reason}{message}"
            before = (one.get("lastState") or {}).get("terminated")
            if before is None:
                return words, None, False
            code = before.get("exitCode")
            return f"{words}; it ended with exit code {code}", code, True
    if "deletionTimestamp" in pod["metadata"]:
        return "somebody is deleting the pod", None, True
    if status.get("phase") in ("Failed", "Succeeded"):
        why = " ".join(filter(None, (status.get("reason"), status.get("message"))))
        return f"the pod has ended ({why or status['phase']})", None, True
    return None


def _raise_trouble(cluster: Cluster, pod: Manifest) -> None:
    trouble = _trouble(pod)
    if trouble is None:
        return
    words, exit_code, has_ended = trouble
    try:
        logs = _log_of(cluster, pod, LOG_TAIL_LINES) or _last_message(pod)
    except ClusterError:  # its node may be gone
        logs = _last_message(pod)
    if has_ended:
        raise ProviderExited(redact(words), exit_code=exit_code, logs=redact(logs))
    events = _events(cluster, pod["metadata"]["namespace"], pod["metadata"]["name"])
    raise ProviderError("\n".join([redact(words), *events]), logs=redact(logs))


def check_deployment(cluster: Cluster, namespace: str, name: str) -> None:
    """Raise an error if no pod of a Deployment will become ready.

    Raises:
        ProviderExited: The pods end, or somebody has deleted the Deployment.
        ProviderError: The pods do not start.
    """
    status = _deployment(cluster, namespace, name).get("status") or {}
    if not status.get("readyReplicas"):
        _check_creation(status)
        _check_pods(cluster, namespace, f"{SERVER}={name}")


def count_updated(cluster: Cluster, namespace: str, name: str) -> int:
    """Return the number of ready pods with the newest configuration of a Deployment.

    As long as pods of an earlier configuration run, it is less than the number of replicas.

    Raises:
        ProviderExited: The newest pods end, or somebody has deleted the Deployment.
        ProviderError: The newest pods do not start.
    """
    found = _deployment(cluster, namespace, name)
    status, wanted = found.get("status") or {}, found["spec"].get("replicas") or 1
    if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
        return 0
    newest = _newest_set(cluster, found)
    ready = int((newest.get("status") or {}).get("readyReplicas") or 0)
    if ready < wanted:
        _check_creation(status)
    if not ready and newest:
        template = newest["metadata"]["labels"]["pod-template-hash"]
        _check_pods(cluster, namespace, f"{SERVER}={name},pod-template-hash={template}")
    return ready if (status.get("replicas") or 0) <= wanted else min(ready, wanted - 1)


def _deployment(cluster: Cluster, namespace: str, name: str) -> Manifest:
    found = cluster.find("Deployment", namespace, name)
    if found is None:
        raise ProviderExited("somebody has deleted the Deployment", exit_code=None)
    return found


def _check_creation(status: Mapping[str, Any]) -> None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            why = redact(condition.get("message") or "")
            raise ProviderError(f"a pod could not be created: {why}")


def _newest_set(cluster: Cluster, deployment: Manifest) -> Manifest:
    """Return the ReplicaSet of a Deployment's newest configuration; empty if there is none yet."""
    about = deployment["metadata"]
    revision = (about.get("annotations") or {}).get(REVISION)
    labels = f"{SERVER}={about['name']}"
    for one in cluster.list("ReplicaSet", about["namespace"], labels=labels):
        if revision and (one["metadata"].get("annotations") or {}).get(REVISION) == revision:
            return one
    return {}


def _check_pods(cluster: Cluster, namespace: str, labels: str) -> None:
    for pod in cluster.list("Pod", namespace, labels=labels):
        if "deletionTimestamp" not in pod["metadata"]:
            _raise_trouble(cluster, pod)


def _last_message(pod: Manifest) -> str:
    """Return the last output of an ended container, from the pod's status."""
    for one in _containers(pod):
        for state in ("state", "lastState"):
            message = ((one.get(state) or {}).get("terminated") or {}).get("message")
            if message:
                return redact(message)
    return ""


def _events(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Return the cluster's last 5 warnings about an object; none if access is denied."""
    try:
        found = cluster.list("Event", namespace, fields=f"involvedObject.name={name}")
    except ClusterError:
        return []
    found.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    lines = [
        redact(f"{one.get('reason')}: {one.get('message')}")
        for one in found
        if one.get("type") != "Normal"
    ]
    return list(dict.fromkeys(lines))[-5:]


def why_not_ready(cluster: Cluster, namespace: str, name: str) -> str:
    """Describe why the pods of a server or of a Deployment are not ready."""
    try:
        pods = cluster.list("Pod", namespace, labels=f"{SERVER}={name}")
    except ClusterError as error:
        return str(error)
    if not pods:  # the ReplicaSets' events have the reason
        with contextlib.suppress(ClusterError):
            sets = cluster.list("ReplicaSet", namespace, labels=f"{SERVER}={name}")
            names = [one["metadata"]["name"] for one in sets]
            events = [line for one in names for line in _events(cluster, namespace, one)]
            return "; ".join(["there is no pod", *events])
        return "there is no pod"
    words = [_state_of(cluster, namespace, pod) for pod in pods if not _is_ready(pod)]
    counted = f"{len(pods) - len(words)} of {len(pods)} pods are ready; " if len(pods) > 1 else ""
    return counted + "; ".join(dict.fromkeys(words))


def _state_of(cluster: Cluster, namespace: str, pod: Manifest) -> str:
    status = pod.get("status") or {}
    waiting = [((one.get("state") or {}).get("waiting") or {}) for one in _containers(pod)]
    said = [" ".join(filter(None, (w.get("reason"), w.get("message")))) for w in waiting if w]
    said += [
        str(one.get("message"))
        for one in status.get("conditions") or ()
        if one.get("status") == "False" and one.get("message")
    ]
    events = _events(cluster, namespace, pod["metadata"]["name"])
    said += [line for line in events if not any(one and one in line for one in said)]
    phase = f"the pod is {status.get('phase') or 'unknown'}"
    return ": ".join([phase, "; ".join(dict.fromkeys(map(redact, said)))] if said else [phase])


def cure_for(error: ClusterError) -> str:
    """Say which rights a refused request needed; empty for other failures."""
    if error.status == 403 and "quota" not in str(error):
        return "; the rights that are needed are the Role in deploy/kubernetes/rbac.yaml"
    return ""


# ---------------------------------------------------------------------- ownership


class _NamespaceLease:
    """A Lease in a namespace, which shows that this process is alive.

    A process id means nothing on another machine. So the process creates a Lease in the cluster and
    renews it. The pods belong to the Lease, and are deleted with it.
    """

    def __init__(self, cluster: Cluster, namespace: str, seconds: int) -> None:
        self.name = name = f"openenv-{secrets.token_hex(8)}"
        made = cluster.create(lease(name, namespace, own_name(), seconds, _now()))
        self.reference = _reference(made)
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(seconds / 3):
                _renew(cluster, namespace, name)

        threading.Thread(target=renew, name="openenv-lease", daemon=True).start()
        self.close = weakref.finalize(self, _let_go, cluster, namespace, name, ended, os.getpid())

    @property
    def is_closed(self) -> bool:
        return not self.close.alive


def _renew(cluster: Cluster, namespace: str, name: str) -> None:
    try:
        cluster.merge("Lease", namespace, name, {"spec": {"renewTime": _now()}})
    except ClusterError as error:
        logger.warning("lease %s could not be renewed: %s", name, error)


def _let_go(
    cluster: Cluster, namespace: str, name: str, ended: threading.Event, owner: int
) -> None:
    if os.getpid() != owner:
        return
    ended.set()
    with contextlib.suppress(Exception):  # the Lease expires by itself
        cluster.delete("Lease", namespace, name)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(STAMP)


def prune(cluster: Cluster, namespace: str) -> list[str]:
    """Delete the servers whose owner has ended or let its lease expire; return their names.

    Raises:
        ClusterError: A request failed, for example because access is denied.
    """
    removed = []
    for one in cluster.list("Lease", namespace, labels=f"app.kubernetes.io/managed-by={MANAGER}"):
        if not _is_over(one):
            continue
        owner = one["metadata"]["name"]
        for kind in ("Deployment", "Pod"):
            for left in cluster.list(kind, namespace, labels=f"{OWNER}={owner}"):
                name = left["metadata"]["labels"].get(SERVER, left["metadata"]["name"])
                for what in (kind, "Service", "NetworkPolicy", "Secret"):
                    cluster.delete(what, namespace, name)
                removed.append(name)
        cluster.delete("Lease", namespace, owner)
    return list(dict.fromkeys(removed))


def _is_over(one: Manifest) -> bool:
    spec = one["spec"]
    if is_orphan(str(spec.get("holderIdentity"))):
        return True
    try:
        renewed = datetime.datetime.strptime(str(spec.get("renewTime")), STAMP)
    except ValueError:
        return False
    age = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - renewed
    return age.total_seconds() > int(spec.get("leaseDurationSeconds") or LEASE_S)
