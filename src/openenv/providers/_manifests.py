"""Kubernetes manifests of servers, and the options of a server.

Nothing in this module talks to a cluster. `KubernetesProvider` creates the objects;
`openenv deploy` and `deploy/kubernetes` use the same manifests.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from openenv.providers.options import ServerOptions, readable_key_file
from openenv.providers.owners import OWNER
from openenv.settings import secrets_of

Manifest = dict[str, Any]
Kind = Literal["pod", "deployment"]
Network = Literal["internal", "open"]
Pull = Literal["missing", "always", "never"]
Reach = Literal["auto", "cluster", "port-forward", "gateway"]

PORT = 8000
NOBODY = "65532:65532"  # an id that images seldom use
CONTAINER = "server"
MANAGER = "openenv"
SERVER, IMAGE = "dev.openenv.server", "dev.openenv.image"
INSIDE = "/run/openenv"  # the directory in a container for the provider's files
METADATA = ("169.254.0.0/16", "fd00:ec2::/32")  # networks of the clouds' metadata services
READY_EVERY_S = 2

_PULLS = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)([munkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class KubernetesOptions(ServerOptions):
    """The rights, limits and address of a server in a cluster; few rights by default.

    Attributes:
        namespace: The namespace of the objects, which must exist.
        kind: ``pod``: each server is a pod, with its own key and lifetime. ``deployment``: each
            server is a Deployment of `replicas` pods behind one Service, with one key; pods that
            end are restarted.
        replicas: Number of pods of a Deployment; 1 if None. For ``pod``: number of servers that the
            provider is configured for.
        resource_limits: Kubernetes resource limits, such as ``{"cpu": "2", "memory": "4Gi"}``.
        resource_requests: Kubernetes resource requests; by default the limits.
        network: ``internal``: a NetworkPolicy allows connections to the server's port, and from the
            server only to `egress` and `dns`. The cluster's network must enforce such policies.
            ``open``: no NetworkPolicy.
        egress: Networks that the server may reach, such as ``10.2.0.0/16``. Wider networks exclude
            the clouds' metadata services.
        dns: Allow queries to the cluster's DNS, through which data can leak.
        user: The user, as ``uid:gid``; must not be root.
        read_only: Make the root filesystem read-only.
        scratch: Writable in-memory directories, with the maximum size of each. Their content counts
            toward the server's memory.
        capabilities: Linux capabilities to keep; none by default.
        new_privileges: Allow programs to gain privileges, for example through ``setuid``.
        seccomp: ``RuntimeDefault``, ``Unconfined``, or the path of a profile on the nodes.
        runtime_class: The runtime class, such as ``gvisor``. None: the cluster's default.
        service_account: The service account of the pods. None: the namespace's default. Pods never
            get its token.
        image_pull_secrets: Names of Secrets with credentials for the image's registry.
        pull: When a node fetches the image: ``missing``, ``always`` or ``never``.
        node_selector: Labels that the node must have.
        tolerations: Kubernetes tolerations.
        labels: Additional labels of every object.
        annotations: Additional annotations of every object.
        secrets: Secrets by name, stored in a Secret. Each becomes a file in
            ``/run/openenv/secrets``, whose path is in the variable ``<NAME>_FILE``.
        command: Arguments to use instead of the image's ``CMD``.
        container_port: Port that the server listens on.
        ttl_s: Seconds after which Kubernetes ends the server in any case. None: never. Only for
            ``pod``.
        stop_grace_s: Seconds that the server has to shut down: 5 to let calls end, 10 to close the
            environments, and some to spare.
        schedule_timeout_s: Maximum seconds for the pod to get an address, if `launch` waits for it.
        reach: How clients reach the server. ``cluster``: the pod's address, or the Service's name,
            for programs in the cluster. ``port-forward``: a port of the loopback interface, through
            the cluster's API. ``gateway``: the address in `gateway`. ``auto``: ``cluster`` inside
            the cluster, otherwise ``port-forward``.
        gateway: Base URL at which your own gateway forwards to the Service, such as
            ``https://envs.example.com/{namespace}/{name}``; `name` is the Service's.
    """

    namespace: str = "default"
    kind: Kind = "pod"
    replicas: int | None = None
    resource_limits: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "2", "memory": "4Gi"}
    )
    resource_requests: Mapping[str, str] = field(default_factory=dict)
    network: Network = "internal"
    egress: Sequence[str] = ()
    dns: bool = False
    user: str = NOBODY
    read_only: bool = True
    scratch: Mapping[str, str] = field(
        default_factory=lambda: {"/tmp": "512Mi", "/var/tmp": "64Mi", "/run": "16Mi"}  # nosec B108  # the pod's
    )
    capabilities: Sequence[str] = ()
    new_privileges: bool = False
    seccomp: str = "RuntimeDefault"
    runtime_class: str | None = None
    service_account: str | None = None
    image_pull_secrets: Sequence[str] = ()
    pull: Pull = "missing"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: Sequence[str] | None = None
    container_port: int = PORT
    ttl_s: int | None = None
    stop_grace_s: int = 20
    schedule_timeout_s: float = 120.0
    reach: Reach = "auto"
    gateway: str | None = None

    def __post_init__(self) -> None:
        self._check_choice("kind", get_args(Kind))
        self._check_choice("network", get_args(Network))
        self._check_choice("pull", tuple(_PULLS))
        self._check_choice("reach", get_args(Reach))
        self._check_positive("container_port", "schedule_timeout_s")
        self._check_positive_or_none("replicas", "ttl_s")
        for name in ("egress", "image_pull_secrets", "capabilities", "command"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a list")
        for name in ("resource_limits", "resource_requests", "scratch"):
            for what, amount in getattr(self, name).items():
                if not _QUANTITY.fullmatch(str(amount)):
                    raise ValueError(
                        f"{name}[{what!r}] is {amount!r}; expected an amount such as '500m' or "
                        "'4Gi'"
                    )
        if self.stop_grace_s < 0:
            raise ValueError(f"stop_grace_s is {self.stop_grace_s!r}; it must not be below 0")
        if self.kind == "deployment" and self.ttl_s is not None:
            raise ValueError("ttl_s needs kind='pod'; a Deployment restarts pods that end")
        self._check_reach()
        _ids(self.user)
        for network in self.egress:
            _network(network)
        self._check_secrets(self.secrets)
        if not _NAME.fullmatch(self.namespace):
            raise ValueError(f"namespace is {self.namespace!r}, which Kubernetes does not allow")
        if self.network == "open" and (self.egress or self.dns):
            raise ValueError("egress and dns need network='internal'; network is 'open'")

    def _check_reach(self) -> None:
        if (self.reach == "gateway") != (self.gateway is not None):
            raise ValueError(
                f"reach is {self.reach!r} and gateway {self.gateway!r}; set both or neither"
            )
        if self.gateway is not None:
            named = {name for _, name, _, _ in string.Formatter().parse(self.gateway) if name}
            if "name" not in named or named - {"name", "namespace"}:
                raise ValueError(
                    f"gateway is {self.gateway!r}; expected a URL with {{name}}, and optionally "
                    "{namespace}"
                )


def _ids(user: str) -> tuple[int, int]:
    parts = user.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or int(parts[0]) == 0:
        raise ValueError(
            f"user is {user!r}; expected numbers as 'uid:gid', other than root's: a cluster does "
            "not know the names of an image's users"
        )
    return int(parts[0]), int(parts[1])


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"egress names {text!r}, which is not a network: {error}") from None


# ------------------------------------------------------------------ objects


def lease(name: str, namespace: str, holder: str, seconds: int, now: str) -> Manifest:
    """Return the Lease of a process that owns servers."""
    labels = {"app.kubernetes.io/managed-by": MANAGER, OWNER: name}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": now,
            "renewTime": now,
        },
    }


def server_objects(
    name: str,
    image: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    key: str | None,
    owner: str | None = None,
) -> list[Manifest]:
    """Return all objects of a server in the order of creation; the last one runs the server.

    Args:
        name: The name of each object.
        image: The image that the server runs.
        options: The server's options.
        env_vars: Environment variables. Those whose names suggest secrets go into a Secret.
        key: The key that the server requires, or None.
        owner: Name of the Lease of the process that owns the server.
    """
    manifests = _ServerManifests(name, image, options, env_vars, key, owner)
    is_deployment = options.kind == "deployment"
    objects = [
        manifests.secret(),
        network_policy(name, options, owner),
        manifests.service() if is_deployment or options.reach == "gateway" else None,
        manifests.deployment() if is_deployment else manifests.pod(),
    ]
    return [one for one in objects if one is not None]


def network_policy(
    name: str, options: KubernetesOptions, owner: str | None = None
) -> Manifest | None:
    """Return the NetworkPolicy of a server's pods; None for an open network."""
    if options.network == "open":
        return None
    egress: list[Manifest] = [{"to": [{"ipBlock": _block(one)}]} for one in options.egress]
    if options.dns:
        system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
        dns = {"matchLabels": {"k8s-app": "kube-dns"}}
        egress.append(
            {
                "to": [{"namespaceSelector": system, "podSelector": dns}],
                "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
            }
        )
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(name, options, owner),
        "spec": {
            "podSelector": {"matchLabels": {SERVER: name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": options.container_port, "protocol": "TCP"}]}],
            "egress": egress,
        },
    }


def _block(text: str) -> Manifest:
    network = _network(text)
    hidden = [
        str(one)
        for one in map(ipaddress.ip_network, METADATA)
        if one.version == network.version and one != network and one.subnet_of(network)  # type: ignore[arg-type]  # of the same version
    ]
    return {"cidr": str(network), **({"except": hidden} if hidden else {})}


def _metadata(name: str, options: KubernetesOptions, owner: str | None) -> Manifest:
    labels = {
        **options.labels,
        "app.kubernetes.io/managed-by": MANAGER,
        SERVER: name,
        **({OWNER: owner} if owner is not None else {}),
    }
    return {
        "name": name,
        "namespace": options.namespace,
        "labels": labels,
        **({"annotations": dict(options.annotations)} if options.annotations else {}),
    }


class _ServerManifests:
    """The manifests of one server; the arguments are those of `server_objects`."""

    def __init__(
        self,
        name: str,
        image: str,
        options: KubernetesOptions,
        env_vars: Mapping[str, str],
        key: str | None,
        owner: str | None,
    ) -> None:
        self.name, self.image, self.options, self.key = name, image, options, key
        self.hidden = {one: value for one, value in env_vars.items() if secrets_of({one: value})}
        self.plain = {one: value for one, value in env_vars.items() if one not in self.hidden}
        self.owner = owner

    @property
    def metadata(self) -> Manifest:
        return _metadata(self.name, self.options, self.owner)

    @property
    def annotations(self) -> Manifest:
        return {**self.options.annotations, IMAGE: self.image}

    def secret(self) -> Manifest | None:
        data = dict[str, str]()
        if self.key is not None:
            data["key"] = readable_key_file(self.key)
        data.update({f"secret-{one}": value for one, value in self.options.secrets.items()})
        data.update({f"variable-{one}": value for one, value in self.hidden.items()})
        if not data:
            return None
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self.metadata,
            "type": "Opaque",
            "stringData": data,
        }

    def service(self) -> Manifest:
        port = self.options.container_port
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata,
            "spec": {
                "selector": {SERVER: self.name},
                "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}],
            },
        }

    def pod(self) -> Manifest:
        spec = {**self.pod_spec(), "restartPolicy": "Never"}
        if self.options.ttl_s is not None:
            spec["activeDeadlineSeconds"] = self.options.ttl_s
        metadata = {**self.metadata, "annotations": self.annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def deployment(self) -> Manifest:
        labels = self.metadata["labels"]
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata,
            "spec": {
                "replicas": self.options.replicas or 1,
                "selector": {"matchLabels": {SERVER: self.name}},
                "template": {
                    "metadata": {"labels": labels, "annotations": self.annotations},
                    "spec": self.pod_spec(),
                },
            },
        }

    def pod_spec(self) -> Manifest:
        options = self.options
        uid, gid = _ids(options.user)
        seccomp: Manifest = {"type": options.seccomp}
        if options.seccomp not in ("RuntimeDefault", "Unconfined"):
            seccomp = {"type": "Localhost", "localhostProfile": options.seccomp}
        volumes: list[Manifest] = [
            {"name": f"scratch-{index}", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
            for index, size in enumerate(options.scratch.values())
        ]
        items = [{"key": "key", "path": "key"}] if self.key is not None else []
        items += [{"key": f"secret-{one}", "path": f"secrets/{one}"} for one in options.secrets]
        if items:
            secret = {"secretName": self.name, "items": items, "defaultMode": 0o444}
            volumes.insert(0, {"name": "keys", "secret": secret})
        optional = {
            "serviceAccountName": options.service_account,
            "runtimeClassName": options.runtime_class,
            "imagePullSecrets": [{"name": one} for one in options.image_pull_secrets],
            "nodeSelector": dict(options.node_selector),
            "tolerations": [dict(one) for one in options.tolerations],
        }
        return {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": options.stop_grace_s,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": uid,
                "runAsGroup": gid,
                "seccompProfile": seccomp,
            },
            "containers": [self.container()],
            "volumes": volumes,
            **{name: value for name, value in optional.items() if value},
        }

    def container(self) -> Manifest:
        options = self.options
        requests, command = options.resource_requests, options.command
        capabilities = {"add": list(options.capabilities)} if options.capabilities else {}
        mounts: list[Manifest] = [
            {"name": f"scratch-{index}", "mountPath": path}
            for index, path in enumerate(options.scratch)
        ]
        if self.key is not None or options.secrets:
            mounts.append({"name": "keys", "mountPath": INSIDE, "readOnly": True})
        return {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": _PULLS[options.pull],
            "ports": [{"name": "http", "containerPort": options.container_port, "protocol": "TCP"}],
            "env": self.environment(),
            "resources": {
                "limits": dict(options.resource_limits),
                **({"requests": dict(requests)} if requests else {}),
            },
            "readinessProbe": {
                "httpGet": {"path": "/health", "port": options.container_port},
                "periodSeconds": READY_EVERY_S,
                "timeoutSeconds": 2,
            },
            "securityContext": {
                "allowPrivilegeEscalation": options.new_privileges,
                "readOnlyRootFilesystem": options.read_only,
                "capabilities": {"drop": ["ALL"], **capabilities},
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": mounts,
            **({"args": list(command)} if command is not None else {}),
        }

    def environment(self) -> list[Manifest]:
        told = {f"{one}_FILE": f"{INSIDE}/secrets/{one}" for one in self.options.secrets}
        if self.key is not None:
            told["OPENENV_API_KEY_FILE"] = f"{INSIDE}/key"
        found: list[Manifest] = [
            {"name": one, "value": value} for one, value in {**told, **self.plain}.items()
        ]
        for one in self.hidden:
            reference = {"secretKeyRef": {"name": self.name, "key": f"variable-{one}"}}
            found.append({"name": one, "valueFrom": reference})
        return found
