"""`openenv deploy`: an environment as a Deployment of a cluster."""

from __future__ import annotations

import base64
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._progress import display
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.providers.kubernetes import KubernetesOptions

__all__ = ["deploy"]

Manifest = Mapping[str, Any]

LOOK_EVERY_S = 0.5
# No server starts with it: a key has no spaces in it.
PLACEHOLDER = "put a key of your own here"


def deploy(
    image: Annotated[str, typer.Option(help="The image, as the cluster's nodes fetch it.")],
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="To Kubernetes.")] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the Deployment; by default the image's.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Where; it must exist.")] = "default",
    replicas: Annotated[int, typer.Option(min=1, help="Pods behind the Service.")] = 1,
    cpu: Annotated[str, typer.Option(help="Processors that a pod may take.")] = "2",
    memory: Annotated[str, typer.Option(help="Memory that a pod may take.")] = "4Gi",
    port: Annotated[int, typer.Option(help="The port that the server listens on.")] = 8000,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A variable of the server: NAME=VALUE.", metavar="NAME=VALUE"),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="A variable of this shell whose value the server finds in the file NAME_FILE.",
            metavar="NAME",
        ),
    ] = None,
    egress: Annotated[
        list[str] | None,
        typer.Option(help="A network that pods may reach, such as 10.2.0.0/16.", metavar="CIDR"),
    ] = None,
    dns: Annotated[bool, typer.Option("--dns", help="Pods may ask the cluster's DNS.")] = False,
    open_network: Annotated[
        bool, typer.Option("--open-network", help="Pods may reach whatever the cluster does.")
    ] = False,
    user: Annotated[str, typer.Option(help="Whom the server runs as: uid:gid.")] = "65532:65532",
    service_account: Annotated[str | None, typer.Option(help="Of the pods.")] = None,
    image_pull_secret: Annotated[
        list[str] | None,
        typer.Option(help="A Secret that says who may fetch the image.", metavar="NAME"),
    ] = None,
    runtime_class: Annotated[str | None, typer.Option(help="Such as gvisor.")] = None,
    pull: Annotated[str, typer.Option(help="missing, always, or never.")] = "missing",
    kubeconfig: Annotated[str | None, typer.Option(help="Where the cluster is.")] = None,
    context: Annotated[str | None, typer.Option(help="Of the kubeconfig.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that it may take.")] = 300.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be made, as YAML, and end.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line for each object.")
    ] = False,
) -> None:
    """Serve an image from a cluster: a Deployment, its Service, what it may reach, and a key."""
    from openenv.providers._asked import slug
    from openenv.providers.kubernetes import KubernetesOptions

    if not kubernetes:
        raise CommandError("it is not said where to", hint="--kubernetes", exit_code=MISUSED)
    try:
        options = KubernetesOptions(
            kind="deployment",
            namespace=namespace,
            replicas=replicas,
            resource_limits={"cpu": cpu, "memory": memory},
            container_port=port,
            secrets=_from_shell(secret or ()),
            egress=tuple(egress or ()),
            dns=dns,
            network="open" if open_network else "internal",
            user=user,
            service_account=service_account,
            image_pull_secrets=tuple(image_pull_secret or ()),
            runtime_class=runtime_class,
            pull=pull,  # type: ignore[arg-type]  # which is checked
        )
    except ValueError as error:
        raise CommandError(str(error), exit_code=MISUSED) from None
    name = name or slug(image)
    variables = _variables(env or ())
    if dry_run:
        _show(name, image, options, variables, as_json)
        return
    try:
        _apply(name, image, options, variables, (kubeconfig, context), timeout)
    except OpenEnvError as error:
        raise CommandError(str(error)) from None
    url = f"http://{name}.{namespace}.svc:{port}"
    if as_json:
        told = {"name": name, "namespace": namespace, "replicas": replicas, "secret": name}
        emit({**told, "url": url})
        return
    typer.echo(url)
    say(
        f"its key: kubectl get secret {name} --namespace {namespace} "
        "--output jsonpath='{.data.key}' | base64 -d"
    )


def _from_shell(names: Sequence[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise CommandError(f"there is no variable {missing[0]} to take a secret from")
    return {name: os.environ[name] for name in names}


def _variables(told: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in told]
    for (name, equals, _), one in zip(pairs, told, strict=True):
        if not (name and equals):
            raise CommandError(f"{one!r} is no NAME=VALUE", exit_code=MISUSED)
    return {name: value for name, _, value in pairs}


def _show(
    name: str,
    image: str,
    options: KubernetesOptions,
    variables: Mapping[str, str],
    as_json: bool,
) -> None:
    from openenv.providers.kubernetes import server_objects

    objects = server_objects(name, image, options, variables, PLACEHOLDER)
    for one in objects:
        if one["kind"] == "Secret":  # what is in it is nobody's to read
            told = one["stringData"]
            told.update({field: PLACEHOLDER for field in told if field != "key"})
    if as_json:
        for one in objects:
            emit(one)
        return
    import yaml

    typer.echo(yaml.safe_dump_all(objects, sort_keys=False), nl=False)


def _apply(
    name: str,
    image: str,
    options: KubernetesOptions,
    variables: Mapping[str, str],
    where: tuple[str | None, str | None],
    timeout_s: float,
) -> None:
    from openenv.providers.kubernetes import Cluster, server_objects

    cluster = Cluster(*where)
    _refuse_foreign(cluster, name, options)
    objects = server_objects(name, image, options, variables, secrets.token_urlsafe(32))
    _keep_key(objects[0], cluster.find("Secret", options.namespace, name))
    with display() as shown:
        shown.begin("applying", len(objects))
        for done, one in enumerate(objects, 1):
            cluster.apply(one)
            shown.update(done, str(one["kind"]))
        shown.finish(", ".join(one["kind"] for one in objects))
        total = options.replicas or 1
        shown.begin("starting", total)
        deadline = time.monotonic() + timeout_s
        while (ready := _ready(cluster, name, options)) < total:
            if time.monotonic() > deadline:
                raise _late(cluster, name, options, timeout_s)
            shown.update(ready, "pods are ready")
            time.sleep(LOOK_EVERY_S)
        shown.finish(f"{total} pods are ready")


def _refuse_foreign(cluster: Any, name: str, options: KubernetesOptions) -> None:
    from openenv.providers.kubernetes import MANAGER

    for kind in ("Deployment", "Service", "Secret", "NetworkPolicy"):
        found = cluster.find(kind, options.namespace, name)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        if found is not None and labels.get("app.kubernetes.io/managed-by") != MANAGER:
            raise CommandError(
                f"there is a {kind} {name} already, which this command has not made",
                hint="name another by --name",
            )


def _keep_key(told: dict[str, Any], found: Manifest | None) -> None:
    """Leave the server the key of an earlier time, which its users have."""
    data = ((found or {}).get("data") or {}).get("key")
    key = base64.b64decode(data).decode() if data else PLACEHOLDER
    if PLACEHOLDER not in key:
        told["stringData"]["key"] = key


def _ready(cluster: Any, name: str, options: KubernetesOptions) -> int:
    """How many pods serve what was applied."""
    from openenv.providers.kubernetes import check_deployment

    found = cluster.get("Deployment", options.namespace, name)
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
        return 0
    ready = min(status.get("updatedReplicas") or 0, status.get("readyReplicas") or 0)
    if (status.get("replicas") or 0) > (options.replicas or 1):
        ready = min(ready, (options.replicas or 1) - 1)  # pods of before are still there
    if not ready:
        check_deployment(cluster, options.namespace, name)
    return ready


def _late(cluster: Any, name: str, options: KubernetesOptions, timeout_s: float) -> CommandError:
    from openenv.providers.kubernetes import why_not_ready

    why = why_not_ready(cluster, options.namespace, name)
    return CommandError(f"{name} was not ready within {timeout_s:g} s: {why}")
