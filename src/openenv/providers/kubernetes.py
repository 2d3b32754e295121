"""Environments in a cluster of Kubernetes: each server is a pod, or a Deployment.

A pod is given little: its root filesystem cannot be written, it has no capability and gets none,
its user is none of the image's, processors and memory are limited, it is told no token of the
cluster, and a NetworkPolicy lets it reach nothing. Whoever needs more says so by name.
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

from openenv._internal.redaction import redact, register_secret, register_secrets_of
from openenv.errors import ProviderError, ProviderExited, ProviderTimeout
from openenv.providers._asked import image_of, key_of, name_for, with_changes
from openenv.providers._clusters import Cluster, ClusterError
from openenv.providers._forwarding import Forwarding
from openenv.providers._manifests import (
    CONTAINER,
    MANAGER,
    SERVER,
    KubernetesOptions,
    lease,
    server_objects,
)
from openenv.providers._readiness import LOG_TAIL_LINES, is_healthy, wait_until
from openenv.providers._relay import Relay, to_host
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.owners import OWNER, is_orphan, own_name
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    READY_TIMEOUT_S,
    Executed,
    ImageProvider,
    Server,
)

__all__ = [
    "MANAGER",
    "Cluster",
    "KubernetesOptions",
    "KubernetesProvider",
    "check_deployment",
    "prune",
    "server_objects",
    "why_not_ready",
]

logger = logging.getLogger(__name__)

Manifest = Mapping[str, Any]

LEASE_S = 600
LOOK_EVERY_S = 0.5  # at a pod that is not ready yet
HEALTH_TIMEOUT_S = 2.0
GONE_S = 30.0  # beyond the grace that a pod has
STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"

# Why a container does not start, and will not by itself.
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
    """Serves environments from a cluster of Kubernetes.

        provider = KubernetesProvider("registry.example/echo-env:1", namespace="rl-training")
        async with EchoEnv.from_docker_image(provider.image, provider=provider) as env: ...

    It works in a cluster, by the service account of its own pod, and outside, by a kubeconfig. The
    rights that it needs are the Role in ``deploy/kubernetes/rbac.yaml``.

    Args:
        image: What `launch` runs where it is not told.
        kubeconfig: A file that says where the cluster is. By default that of KUBECONFIG, or what
            a program in a cluster is told, or ``~/.kube/config``.
        context: Of that file; None is its current one.
        api_key: The key that each server wants: by default a fresh one for each, told by a file in
            its pods, which clients in this process find by themselves; None is none. A server of
            the public package lets everybody in all the same.
        lease_s: Seconds after which others may take the servers away, once this process has
            stopped saying that it holds them. It says so three times as often.
        **options: The fields of `KubernetesOptions`; among them `namespace`, `resource_limits` and
            `replicas`.

    Attributes:
        image: As the argument.

    Raises:
        MissingPackage: Kubernetes' client is not installed.
        ProviderError: No cluster is known.
        TypeError: There is no such option.
        ValueError: An option means nothing.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        isolation="pod",
        own_files=True,
        read_only=True,
        unprivileged=True,
        networks=("internal", "open"),
        limits=("memory", "cpu"),
        fresh_keys=True,
        many=True,
        detects_exit=True,
        has_logs=True,
        can_execute=True,
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
        super().__init__()
        if lease_s < 1:
            raise ValueError(f"lease_s is {lease_s!r}; it must be 1 or more")
        self.image = image
        self._options = with_changes(KubernetesOptions(), options)
        self.replicas = self._options.replicas if self._options.kind == "pod" else None
        self._wanted_key = api_key
        self._lease_s = lease_s
        self._cluster = Cluster(kubeconfig, context)
        self._leases: dict[str, _Lease] = {}
        self._forwarding: Forwarding | None = None
        self._turn_of_cluster = threading.Lock()

    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Server:
        image = image_of(image, self.image)
        chosen = self._chosen(port, options)
        key = key_of(self._wanted_key)
        register_secrets_of(env_vars)
        for value in chosen.secrets.values():
            register_secret(value)
        with self._turn_of_cluster:
            held = self._held_by(chosen.namespace)
        name = name_for(image)
        objects = server_objects(name, image, chosen, env_vars, key, held.name)
        made = _Made(self._cluster, chosen.namespace, name, chosen.stop_grace_s)
        try:
            made.create(objects, held.reference)
            url, relay = self._address(made, chosen, port)
            return _Served(made, chosen, url, key, relay, held)
        except ClusterError as error:
            _undo(made)
            raise ProviderError(f"{image} could not be started: {error}{_cure(error)}") from None
        except BaseException:
            _undo(made)
            raise

    def _chosen(self, port: int | None, options: Mapping[str, Any]) -> KubernetesOptions:
        chosen = with_changes(self._options, options)
        if chosen.kind == "pod" and options.get("replicas") is not None:
            raise ValueError("replicas of one launch are of kind='deployment'; a pod is one")
        if chosen.reach == "auto":
            is_around = self._cluster.is_around
            chosen = replace(chosen, reach="cluster" if is_around else "port-forward")
        if port is not None and chosen.reach == "gateway":
            raise ValueError("there is no port on this host where reach is 'gateway'")
        return chosen

    def _held_by(self, namespace: str) -> _Lease:
        """What says in a namespace that this process holds its servers."""
        held = self._leases.get(namespace)
        if held is None or held.is_closed:
            try:
                prune(self._cluster, namespace)
                held = _Lease(self._cluster, namespace, self._lease_s)
            except ClusterError as error:
                raise ProviderError(
                    f"no server can be started in namespace {namespace!r}: {error}{_cure(error)}"
                ) from None
            self._leases[namespace] = held
        return held

    def _address(
        self, made: _Made, chosen: KubernetesOptions, port: int | None
    ) -> tuple[str, Callable[[], None]]:
        """The URL of a server, and what ends the way to it."""
        if chosen.reach == "port-forward":
            with self._turn_of_cluster:
                if self._forwarding is None:
                    self._forwarding = Forwarding()
                forwarding = self._forwarding
            find = _Chooser(made.cluster, made.namespace, made.name, chosen)
            at = forwarding.listen(port, find)
            return f"http://127.0.0.1:{at}", lambda: forwarding.stop(at)
        if chosen.reach == "gateway":
            assert chosen.gateway is not None
            url = chosen.gateway.format(name=made.name, namespace=made.namespace)
            return url.rstrip("/"), _nothing
        if chosen.kind == "deployment":
            host = f"{made.name}.{made.namespace}.svc"
        else:
            host = _pod_ip(made, chosen.schedule_timeout_s)
        if port is None:
            bracketed = f"[{host}]" if ":" in host else host
            return f"http://{bracketed}:{chosen.container_port}", _nothing
        relay = Relay(port, to_host(host, chosen.container_port))
        return f"http://127.0.0.1:{port}", relay.close

    def close(self) -> None:
        super().close()
        with self._turn_of_cluster:
            leases, self._leases = self._leases, {}
            forwarding, self._forwarding = self._forwarding, None
        if forwarding is not None:
            forwarding.close()
        for held in leases.values():
            held.close()


class _Served(Server):
    """A server in a cluster: a pod, or the pods of a Deployment."""

    def __init__(
        self,
        made: _Made,
        options: KubernetesOptions,
        url: str,
        key: str | None,
        cut: Callable[[], None],
        held: _Lease,
    ) -> None:
        super().__init__(url, made.name, key)
        self._made = made
        self._options = options
        self._cut = cut
        self._held = held  # goes on for as long as one of its servers may be needed
        self._kept_log: str | None = None
        self._abandon = weakref.finalize(self, _abandon, made, cut, os.getpid())

    # ------------------------------------------------------------------ how it is

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        look = _Seldom(self._look, LOOK_EVERY_S)
        patience = min(timeout_s, HEALTH_TIMEOUT_S)
        what = f"answer at {self.url}/health"
        try:
            wait_until(
                lambda: look() and is_healthy(self.url, patience),
                timeout_s,
                what,
                _nothing,
                self._last_lines,
            )
        except ProviderTimeout as error:
            why = why_not_ready(self._made.cluster, self._made.namespace, self.name)
            words = str(error).partition("\n")[0]
            raise ProviderTimeout(f"{words}: {why}", logs=error.logs) from None
        self._check_wanted()

    def _look(self) -> bool:
        """Whether its containers run.

        Raises:
            ProviderError: They will not.
        """
        self._check_wanted()
        running = [pod for pod in self._pods() if _is_running(pod)]
        return len(running) >= (self._options.replicas or 1 if self._is_deployment else 1)

    @property
    def _is_deployment(self) -> bool:
        return self._options.kind == "deployment"

    def _pods(self) -> list[dict[str, Any]]:
        return self._made.pods()

    def check_running(self) -> None:
        if self.is_stopped:
            return
        cluster, namespace = self._made.cluster, self._made.namespace
        if self._is_deployment:
            check_deployment(cluster, namespace, self.name)
            return
        pod = cluster.find("Pod", namespace, self.name)
        if pod is None:
            raise ProviderExited("somebody has deleted the pod", exit_code=None)
        _raise_trouble(cluster, pod)

    # ------------------------------------------------------------------ what is asked of it

    def logs(self, lines: int | None = None) -> str:
        if self._kept_log is not None:
            return "\n".join(self._kept_log.splitlines()[-lines:]) if lines else self._kept_log
        cluster = self._made.cluster
        parts = [(pod["metadata"]["name"], _log_of(cluster, pod, lines)) for pod in self._pods()]
        if not self._is_deployment:
            return parts[0][1] if parts else ""
        return "\n".join(f"{name}: {line}" for name, text in parts for line in text.splitlines())

    def _last_lines(self, lines: int) -> str:
        try:
            return self.logs(lines)
        except ClusterError as error:
            return f"(its log cannot be read: {error})"

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        for pod in self._pods():
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
        self._abandon.detach()


# ---------------------------------------------------------------------- what is made


class _Made:
    """The objects that one server is. All have its name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, grace_s: int) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self._grace_s = grace_s
        self._kinds: list[str] = []

    def create(self, objects: Sequence[Manifest], owner: Manifest) -> None:
        """Make them, the one that runs last: then all of them go with it."""
        runs: Manifest = {}
        for one in objects:
            self._kinds.append(one["kind"])  # it may be there though nobody was told
            metadata = {**one["metadata"], "ownerReferences": [owner]}
            runs = self.cluster.create({**one, "metadata": metadata})
        reference = _reference(runs)
        for one in objects[:-1]:
            change = {"metadata": {"ownerReferences": [reference]}}
            self.cluster.merge(one["kind"], self.namespace, self.name, change)

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.list("Pod", self.namespace, labels=f"{SERVER}={self.name}")

    def remove(self) -> None:
        """Ask for the end of all of it."""
        for kind in reversed(self._kinds):
            self.cluster.delete(kind, self.namespace, self.name)

    def wait_until_gone(self) -> None:
        deadline = time.monotonic() + self._grace_s + GONE_S
        pause = 0.05
        while left := self.pods():
            if time.monotonic() > deadline:
                places = {(pod["spec"].get("nodeName") or "no node") for pod in left}
                raise ProviderError(
                    f"{self.name} has not ended within {self._grace_s + GONE_S:g} s: it is still "
                    f"on {', '.join(sorted(places))}"
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


def _undo(made: _Made) -> None:
    """Take away what a launch has made that has failed."""
    with contextlib.suppress(ProviderError):  # the first error is the one to be told
        made.remove()
        made.wait_until_gone()


def _abandon(made: _Made, cut: Callable[[], None], owner: int) -> None:
    """Take away a server that nobody can stop any more."""
    if os.getpid() != owner:  # a forked child's copy
        return
    for work in (cut, made.remove):
        with contextlib.suppress(Exception):  # and there is nobody who could be told
            work()


def _nothing() -> None:
    pass


class _Seldom:
    """A look at something that is taken at most so often."""

    def __init__(self, look: Callable[[], bool], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._next = 0.0
        self._seen = False

    def __call__(self) -> bool:
        if time.monotonic() >= self._next:
            self._seen = self._look()
            self._next = time.monotonic() + self._every_s
        return self._seen


class _Chooser:
    """Says which pod a new connection goes to: one after the other of those that run."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, options: KubernetesOptions
    ) -> None:
        self._cluster = cluster
        self._place = (namespace, name)
        self._is_deployment = options.kind == "deployment"
        self._port = options.container_port
        self._turns = 0

    def __call__(self) -> Any:
        namespace, name = self._place
        if self._is_deployment:
            found = self._cluster.list("Pod", namespace, labels=f"{SERVER}={name}")
            ready = sorted(pod["metadata"]["name"] for pod in found if _is_ready(pod))
            if not ready:
                raise ProviderError(f"no pod of {name} is ready")
            self._turns += 1
            name = ready[self._turns % len(ready)]
        return self._cluster.forwarding(namespace, name, self._port)


def _pod_ip(made: _Made, timeout_s: float) -> str:
    """The address of a pod, which it has once it has a node."""
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


# ---------------------------------------------------------------------- how a pod is


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
        if error.status in (400, 404):  # it has not begun, or is gone
            return _last_message(pod)
        raise


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _trouble(pod: Manifest) -> tuple[str, int | None, bool] | None:
    """Why a pod serves no more, or never will: words, the exit code, and whether it has ended.

    None where it serves, or may come to it.
    """
    status = pod.get("status") or {}
    for one in _containers(pod):
        state = one.get("state") or {}
        ended = state.get("terminated")
        if ended and pod["spec"].get("restartPolicy") == "Never":
            return _ended(ended, status)
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in HOPELESS:
            return _hopeless(waiting, (one.get("lastState") or {}).get("terminated"))
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
    """Raise why no pod of a Deployment will be ready. It starts anew those that end.

    Raises:
        ProviderExited: They end, or somebody has deleted it.
        ProviderError: They do not start.
    """
    found = cluster.find("Deployment", namespace, name)
    if found is None:
        raise ProviderExited("somebody has deleted the Deployment", exit_code=None)
    status = found.get("status") or {}
    if status.get("readyReplicas"):
        return
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            raise ProviderError(f"no pod is made: {redact(condition.get('message') or '')}")
    for pod in cluster.list("Pod", namespace, labels=f"{SERVER}={name}"):
        if "deletionTimestamp" not in pod["metadata"]:
            _raise_trouble(cluster, pod)


def _ended(ended: Manifest, status: Manifest) -> tuple[str, int | None, bool]:
    code = ended.get("exitCode")
    how = f"exit code {code}"
    if ended.get("reason") == "OOMKilled":
        how = "it took more memory than it may"
    elif status.get("reason"):  # such as Evicted, or DeadlineExceeded
        how = ", ".join(filter(None, (how, status["reason"], status.get("message"))))
    return f"the pod has ended ({how})", code, True


def _hopeless(waiting: Manifest, before: Manifest | None) -> tuple[str, int | None, bool]:
    reason, message = waiting["reason"], waiting.get("message")
    words = f"its container does not start: {reason}" + (f": {message}" if message else "")
    if before is not None:
        code = before.get("exitCode")
        return f"{words}; it ended with exit code {code}", code, True
    return words, None, False


def _last_message(pod: Manifest) -> str:
    """The last lines of a container that has ended, as its status has them."""
    for one in _containers(pod):
        for state in ("state", "lastState"):
            message = ((one.get(state) or {}).get("terminated") or {}).get("message")
            if message:
                return redact(message)
    return ""


def _events(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """What the cluster has noted about an object, as far as it may be read."""
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
    """Words for why the pods of a server, or of a Deployment, are not ready."""
    try:
        pods = cluster.list("Pod", namespace, labels=f"{SERVER}={name}")
    except ClusterError as error:
        return str(error)
    if not pods:
        return "; ".join(["there is no pod", *_events_of_set(cluster, namespace, name)])
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


def _events_of_set(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Why a Deployment makes no pods: its ReplicaSets are told that."""
    try:
        sets = cluster.list("ReplicaSet", namespace, labels=f"{SERVER}={name}")
    except ClusterError:
        return []
    return [line for one in sets for line in _events(cluster, namespace, one["metadata"]["name"])]


def _cure(error: ClusterError) -> str:
    if error.status == 403 and "quota" not in str(error):
        return "; the rights that are needed are the Role in deploy/kubernetes/rbac.yaml"
    return ""


# ---------------------------------------------------------------------- who holds what


class _Lease:
    """Says in a namespace that this process lives, for as long as it does.

    A process number means nothing on another machine: what says so is an object, a Lease, which is
    renewed. Pods belong to it, and go with it.
    """

    def __init__(self, cluster: Cluster, namespace: str, seconds: int) -> None:
        self.name = f"openenv-{secrets.token_hex(8)}"
        made = cluster.create(lease(self.name, namespace, own_name(), seconds, _now()))
        self.reference = _reference(made)
        self._ended = threading.Event()
        thread = threading.Thread(
            target=_renew,
            args=(cluster, namespace, self.name, seconds, self._ended),
            name="openenv-lease",
            daemon=True,
        )
        thread.start()
        self._finish = weakref.finalize(
            self, _let_go, cluster, namespace, self.name, self._ended, os.getpid()
        )

    @property
    def is_closed(self) -> bool:
        return not self._finish.alive

    def close(self) -> None:
        self._finish()


def _renew(
    cluster: Cluster, namespace: str, name: str, seconds: int, ended: threading.Event
) -> None:
    while not ended.wait(seconds / 3):
        _renew_once(cluster, namespace, name)


def _renew_once(cluster: Cluster, namespace: str, name: str) -> None:
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
    with contextlib.suppress(Exception):  # it ends by itself
        cluster.delete("Lease", namespace, name)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(STAMP)


def prune(cluster: Cluster, namespace: str) -> list[str]:
    """Take away the servers whose holder has ended, or has not been heard of; gives their names.

    Raises:
        ClusterError: That is not permitted.
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
