"""What servers of environments are as objects of Kubernetes, and what they may be given.

Nothing here asks a cluster. `KubernetesProvider` makes a Pod of it, or a Deployment; `openenv
deploy` and `deploy/kubernetes` are the same.
"""

from __future__ import annotations

import ipaddress
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.providers.owners import OWNER
from openenv.settings import secrets_of

__all__ = [
    "CONTAINER",
    "IMAGE",
    "MANAGER",
    "SERVER",
    "KubernetesOptions",
    "deployment",
    "lease",
    "network_policy",
    "pod",
    "secret",
    "server_objects",
    "service",
]

Manifest = dict[str, Any]
Kind = Literal["pod", "deployment"]
Network = Literal["internal", "open"]
Pull = Literal["missing", "always", "never"]
Reach = Literal["auto", "cluster", "port-forward", "gateway"]

PORT = 8000
NOBODY = "65532:65532"  # an id that images seldom have
CONTAINER = "server"
MANAGER = "openenv"
SERVER, IMAGE = "dev.openenv.server", "dev.openenv.image"
INSIDE = "/run/openenv"  # what a server is told by files is there
METADATA = ("169.254.0.0/16", "fd00:ec2::/32")  # where clouds tell machines their credentials
READY_EVERY_S = 2

_PULLS = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}
_CHOICES: Mapping[str, Sequence[str]] = {
    "kind": ("pod", "deployment"),
    "network": ("internal", "open"),
    "pull": tuple(_PULLS),
    "reach": ("auto", "cluster", "port-forward", "gateway"),
}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)([munkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class KubernetesOptions:
    """What a server may have in a cluster, and how it is reached. The defaults give it little.

    Attributes:
        namespace: Where its objects are; it must exist.
        kind: ``pod``: each server is a pod, with a key and a life of its own. ``deployment``: each
            is a Deployment of `replicas` pods behind one Service, with one key; pods that end are
            started anew.
        replicas: The pods of a Deployment; of ``pod``, how many servers a provider was made for.
        resource_limits: As Kubernetes has them, such as ``{"cpu": "2", "memory": "4Gi"}``.
        resource_requests: Likewise; what is not named is the limit.
        network: ``internal``: a NetworkPolicy lets connections in to the server's port only, and
            none out but those that `egress` and `dns` name. The cluster's network has to be one
            that enforces such policies. ``open``: there is none.
        egress: Networks that it may reach, such as ``10.2.0.0/16``. Addresses at which a cloud
            tells machines their credentials are left out of wider ones.
        dns: It may ask the cluster's DNS, by which much can be told to anybody.
        user: As ``uid:gid``; not root.
        read_only: Its root filesystem cannot be written.
        scratch: Directories in memory that can be, with how much each may hold. It counts as
            memory of the server.
        capabilities: Of Linux, to be kept: none by default.
        new_privileges: Programs in it may gain rights, as by ``setuid``.
        seccomp: ``RuntimeDefault``, ``Unconfined``, or the path of a profile on the nodes.
        runtime_class: Such as ``gvisor``; None is the cluster's.
        service_account: Whose rights its pods have at admission. None is the namespace's default.
            No pod is told a token of it.
        image_pull_secrets: Names of Secrets that say who may fetch the image.
        pull: When a node fetches the image: where it is ``missing``, ``always``, or ``never``.
        node_selector: Labels that its node must have.
        tolerations: As Kubernetes has them.
        labels: More of them, of every object.
        annotations: Likewise.
        secrets: Are files of these names in ``/run/openenv/secrets``, and their paths in the
            variables ``<NAME>_FILE``; in the cluster they are in a Secret.
        command: What it runs instead of the arguments that the image names.
        container_port: The port that its server listens on.
        ttl_s: Seconds after which Kubernetes ends it, come what may; None is never. Of pods only.
        stop_grace_s: Seconds that it may take to end when it is asked to.
        schedule_timeout_s: Seconds until it has an address, where `launch` has to wait for that.
        reach: ``cluster``: at the address of its pod, or the name of its Service, which programs in
            the cluster reach. ``port-forward``: at a port of the loopback interface, through the
            cluster's API. ``gateway``: as `gateway` says. ``auto`` is ``cluster`` for a program in
            the cluster, and ``port-forward`` otherwise.
        gateway: The base URL of a server that a gateway of yours leads to its Service, such as
            ``https://envs.example.com/{namespace}/{name}``; `name` is that of the Service.
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
    stop_grace_s: int = 10
    schedule_timeout_s: float = 120.0
    reach: Reach = "auto"
    gateway: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {listed}")
        for name in ("replicas", "ttl_s", "container_port", "schedule_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}; it must be above 0")
        for name in ("egress", "image_pull_secrets", "capabilities", "command"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a list")
        self._check_amounts()
        self._check_reach()
        _ids(self.user)
        for network in self.egress:
            _network(network)
        for name in self.secrets:
            if not name.isidentifier():
                raise ValueError(f"a secret's name is {name!r}; it must be one of a variable")
        if not _NAME.fullmatch(self.namespace):
            raise ValueError(f"namespace is {self.namespace!r}, which Kubernetes does not allow")
        if self.network == "open" and (self.egress or self.dns):
            raise ValueError("egress and dns say what network='internal' lets out; it is 'open'")

    def _check_amounts(self) -> None:
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
            raise ValueError("ttl_s is of pods; a Deployment starts those that end anew")

    def _check_reach(self) -> None:
        if (self.reach == "gateway") != (self.gateway is not None):
            raise ValueError(
                f"reach is {self.reach!r} and gateway {self.gateway!r}; each wants the other"
            )
        if self.gateway is not None:
            named = {name for _, name, _, _ in string.Formatter().parse(self.gateway) if name}
            if "name" not in named or named - {"name", "namespace"}:
                raise ValueError(
                    f"gateway is {self.gateway!r}; expected a URL with {{name}}, and {{namespace}} "
                    "where that is wanted"
                )


def _ids(user: str) -> tuple[int, int]:
    parts = user.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or int(parts[0]) == 0:
        raise ValueError(
            f"user is {user!r}; expected numbers as 'uid:gid', and not those of root: an image's "
            "own name of a user says nothing to a cluster"
        )
    return int(parts[0]), int(parts[1])


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"egress names {text!r}, which is no network: {error}") from None


# ------------------------------------------------------------------ objects


def _metadata(name: str, options: KubernetesOptions, owner: str | None = None) -> Manifest:
    return {
        "name": name,
        "namespace": options.namespace,
        "labels": _labels(name, options, owner),
        **({"annotations": dict(options.annotations)} if options.annotations else {}),
    }


def _labels(name: str, options: KubernetesOptions, owner: str | None) -> dict[str, str]:
    return {
        **options.labels,
        "app.kubernetes.io/managed-by": MANAGER,
        SERVER: name,
        **({OWNER: owner} if owner is not None else {}),
    }


def lease(name: str, namespace: str, holder: str, seconds: int, now: str) -> Manifest:
    """What says that somebody still holds the servers whose owner it is."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": MANAGER, OWNER: name},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": now,
            "renewTime": now,
        },
    }


def secret(
    name: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    key: str | None,
    owner: str | None = None,
) -> Manifest | None:
    """What a server is told in confidence; None where that is nothing."""
    data = dict[str, str]()
    if key is not None:
        data["key"] = json.dumps({"key": key, "role": "orchestrator", "name": "provider"})
    data.update({f"secret-{one}": value for one, value in options.secrets.items()})
    data.update({f"variable-{one}": value for one, value in _confidential(env_vars).items()})
    if not data:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(name, options, owner),
        "type": "Opaque",
        "stringData": data,
    }


def _confidential(env_vars: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say that their values are secrets."""
    return {name: value for name, value in env_vars.items() if secrets_of({name: value})}


def network_policy(
    name: str, options: KubernetesOptions, owner: str | None = None
) -> Manifest | None:
    """What a server's pods may be reached by, and may reach; None where that is anything."""
    if options.network == "open":
        return None
    egress: list[Manifest] = [{"to": [{"ipBlock": _block(one)}]} for one in options.egress]
    if options.dns:
        egress.append(
            {
                "to": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                        },
                        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                    }
                ],
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
        one
        for one in map(ipaddress.ip_network, METADATA)
        if one.version == network.version and one != network and one.subnet_of(network)  # type: ignore[arg-type]  # of the same version
    ]
    return {
        "cidr": str(network),
        **({"except": [str(one) for one in hidden]} if hidden else {}),
    }


def service(name: str, options: KubernetesOptions, owner: str | None = None) -> Manifest:
    """The name in the cluster that leads to a server's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, options, owner),
        "spec": {
            "selector": {SERVER: name},
            "ports": [
                {
                    "name": "http",
                    "port": options.container_port,
                    "targetPort": options.container_port,
                    "protocol": "TCP",
                }
            ],
        },
    }


def pod(
    name: str,
    image: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    has_key: bool,
    owner: str | None = None,
) -> Manifest:
    """A server as a pod that is not started again when it ends."""
    metadata = _metadata(name, options, owner)
    metadata["annotations"] = {**metadata.get("annotations", {}), IMAGE: image}
    spec = {**_pod_spec(name, image, options, env_vars, has_key), "restartPolicy": "Never"}
    if options.ttl_s is not None:
        spec["activeDeadlineSeconds"] = options.ttl_s
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(
    name: str,
    image: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    has_key: bool,
    owner: str | None = None,
) -> Manifest:
    """A server as so many pods, which are started again when they end."""
    metadata = _metadata(name, options, owner)
    told = {**metadata.get("annotations", {}), IMAGE: image}
    template: Manifest = {"labels": dict(metadata["labels"]), "annotations": told}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": options.replicas or 1,
            "selector": {"matchLabels": {SERVER: name}},
            "template": {
                "metadata": template,
                "spec": _pod_spec(name, image, options, env_vars, has_key),
            },
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
    """Everything that one server is, in the order in which it is made; the last is what runs."""
    told = secret(name, options, env_vars, key, owner)
    has_service = options.kind == "deployment" or options.reach == "gateway"
    make = deployment if options.kind == "deployment" else pod
    objects = [
        told,
        network_policy(name, options, owner),
        service(name, options, owner) if has_service else None,
        make(name, image, options, env_vars, key is not None, owner),
    ]
    return [one for one in objects if one is not None]


# ------------------------------------------------------------------ parts of a pod


def _pod_spec(
    name: str,
    image: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    has_key: bool,
) -> Manifest:
    uid, gid = _ids(options.user)
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": options.stop_grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": gid,
            "seccompProfile": _seccomp(options.seccomp),
        },
        "containers": [_container(name, image, options, env_vars, has_key)],
        "volumes": _volumes(name, options, has_key),
    }
    for field_, value in (
        ("serviceAccountName", options.service_account),
        ("runtimeClassName", options.runtime_class),
        ("imagePullSecrets", [{"name": one} for one in options.image_pull_secrets]),
        ("nodeSelector", dict(options.node_selector)),
        ("tolerations", [dict(one) for one in options.tolerations]),
    ):
        if value:
            spec[field_] = value
    return spec


def _container(
    name: str,
    image: str,
    options: KubernetesOptions,
    env_vars: Mapping[str, str],
    has_key: bool,
) -> Manifest:
    resources: Manifest = {"limits": dict(options.resource_limits)}
    if options.resource_requests:
        resources["requests"] = dict(options.resource_requests)
    container: Manifest = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": _PULLS[options.pull],
        "ports": [{"name": "http", "containerPort": options.container_port, "protocol": "TCP"}],
        "env": _environment(name, options, env_vars, has_key),
        "resources": resources,
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": options.container_port},
            "periodSeconds": READY_EVERY_S,
            "timeoutSeconds": 2,
        },
        "securityContext": {
            "allowPrivilegeEscalation": options.new_privileges,
            "readOnlyRootFilesystem": options.read_only,
            "capabilities": {
                "drop": ["ALL"],
                **({"add": list(options.capabilities)} if options.capabilities else {}),
            },
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(options, has_key),
    }
    if options.command is not None:
        container["args"] = list(options.command)
    return container


def _environment(
    name: str, options: KubernetesOptions, env_vars: Mapping[str, str], has_key: bool
) -> list[Manifest]:
    told = {f"{one}_FILE": f"{INSIDE}/secrets/{one}" for one in options.secrets}
    if has_key:
        told["OPENENV_API_KEY_FILE"] = f"{INSIDE}/key"
    hidden = _confidential(env_vars)
    plain = {**told, **{one: value for one, value in env_vars.items() if one not in hidden}}
    return [{"name": one, "value": value} for one, value in plain.items()] + [
        {"name": one, "valueFrom": {"secretKeyRef": {"name": name, "key": f"variable-{one}"}}}
        for one in hidden
    ]


def _volumes(name: str, options: KubernetesOptions, has_key: bool) -> list[Manifest]:
    items = [{"key": "key", "path": "key"}] if has_key else []
    items += [{"key": f"secret-{one}", "path": f"secrets/{one}"} for one in options.secrets]
    told = {"secretName": name, "items": items, "defaultMode": 0o444}
    volumes: list[Manifest] = [{"name": "told", "secret": told}] if items else []
    return volumes + [
        {"name": f"scratch-{index}", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
        for index, size in enumerate(options.scratch.values())
    ]


def _mounts(options: KubernetesOptions, has_key: bool) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": f"scratch-{index}", "mountPath": path}
        for index, path in enumerate(options.scratch)
    ]
    if has_key or options.secrets:
        mounts.append({"name": "told", "mountPath": INSIDE, "readOnly": True})
    return mounts


def _seccomp(profile: str) -> Manifest:
    if profile in ("RuntimeDefault", "Unconfined"):
        return {"type": profile}
    return {"type": "Localhost", "localhostProfile": profile}
