"""`openenv deploy`: an environment as a Kubernetes Deployment, or as a running Space."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from openenv.cli._console import CommandError, MisuseError, emit, say
from openenv.cli._options import argument, option, takes_options
from openenv.cli._progress import display
from openenv.cli._spaces import SpaceUpload, parse_pairs, parse_secrets, push_spaces
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.providers.kubernetes import KubernetesOptions

LOOK_EVERY_S = 0.5
# Not a valid key, since keys contain no spaces; a server with it does not start.
PLACEHOLDER = "put a key of your own here"
# Help panels; each also identifies the destination to which an option applies.
SPACE = "Options with --space"
KUBERNETES = "Options with --kubernetes"
KUBERNETES_TIMEOUT_S = 300.0
SPACE_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class SpaceDestination:
    """The options of a deployment as a Space."""

    PANEL: ClassVar[str] = SPACE

    environment: Path | None = argument(
        None,
        metavar="ENV_DIR",
        help="Directory with an openenv.yaml; by default the current one.",
    )
    hardware: str | None = option(
        None,
        "-H",
        metavar="NAME",
        help="Hardware of the Space, such as cpu-basic, the Hub's default.",
    )
    private: bool = option(False, help="Create the Space as private.")
    wait: bool = option(True, help="Wait until the Space runs, or return at once.")
    allow_secret: list[str] | None = option(
        None,
        metavar="PATH[:LINE]",
        help="Push this place although it looks like a secret; repeatable.",
    )
    openenv: Path | None = option(
        None,
        metavar="locked",
        help="Deploy even if uv.lock has an OpenEnv of another series.",
    )


@dataclass(frozen=True)
class ClusterDestination:
    """The options of a deployment on Kubernetes."""

    PANEL: ClassVar[str] = KUBERNETES

    image: str | None = option(None, help="Image name under which the cluster's nodes can pull it.")
    name: str | None = option(
        None, help="Name of the Deployment; by default derived from the image."
    )
    namespace: str = option("default", help="Namespace of the objects, which must exist.")
    replicas: int | None = option(
        None, min=1, help="Number of pods.", show_default="that of the running deployment, else 1"
    )
    cpu: str = option("2", help="CPU limit of a pod, in cores.")
    memory: str = option("4Gi", help="Memory limit of a pod.")
    port: int = option(8000, min=1, max=65535, help="Port of the server in the container.")
    egress: list[str] | None = option(
        None, metavar="CIDR", help="Network that pods may reach, such as 10.2.0.0/16; repeatable."
    )
    dns: bool = option(False, help="Let pods use the cluster's DNS.")
    open_network: bool = option(
        False, help="Let pods reach every network that the cluster reaches."
    )
    user: str = option("65532:65532", help="User and group of the server, as uid:gid.")
    service_account: str | None = option(
        None, help="Service account of the pods; by default the namespace's."
    )
    image_pull_secret: list[str] | None = option(
        None, metavar="NAME", help="Secret with the registry's credentials; repeatable."
    )
    runtime_class: str | None = option(
        None, help="Runtime class of the pods, such as gvisor; by default the cluster's."
    )
    stop_grace_s: int = option(20, min=0, help="Seconds that a server has to shut down.")
    pull: str = option("missing", help="When to pull the image: missing, always or never.")
    kubeconfig: str | None = option(None, help="Path of the kubeconfig; by default as for kubectl.")
    context: str | None = option(
        None, help="Context in the kubeconfig; by default the current one."
    )


@takes_options
def deploy(
    *,
    cli: typer.Context,
    to_space: SpaceDestination,
    to_cluster: ClusterDestination,
    space: str | None = option(
        None, metavar="OWNER/NAME", help="Deploy to this Space on the Hugging Face Hub."
    ),
    kubernetes: bool = option(False, help="Deploy to Kubernetes."),
    env: list[str] | None = option(
        None, metavar="NAME=VALUE", help="Environment variable of the server; repeatable."
    ),
    secret: list[str] | None = option(
        None,
        metavar="NAME[=VALUE]",
        help="Secret of the server; without a value, taken from this shell's variable. A Space "
        "gets a secret, a cluster the file NAME_FILE. Repeatable.",
    ),
    timeout: float | None = option(
        None,
        min=1,
        help="Maximum seconds to wait; by default 300, and 1800 for a Space, which is built first.",
    ),
    dry_run: bool = option(False, help="Print the plan, and do nothing."),
    as_json: bool = option(False, "--json", help="Print a line of JSON per object."),
) -> None:
    """Run an environment as a Space on the Hub, or run an image on Kubernetes.

    On Kubernetes this creates a Deployment, a Service, a NetworkPolicy, and a Secret with a key.

    Examples:
        openenv deploy my_env --space acme/my_env --hardware cpu-basic
        openenv deploy --kubernetes --image echo-env:1 --dry-run  # the objects, as YAML
    """
    if space is not None and kubernetes:
        raise MisuseError("--space and --kubernetes exclude each other")
    variables, sent = parse_pairs("--env", env), parse_secrets("--secret", secret)
    if space is not None:
        _refuse_options_of(KUBERNETES, "--space", cli)
        upload = SpaceUpload(
            to_space.environment or Path(),
            space,
            private=to_space.private,
            hardware=to_space.hardware,
            variables=variables,
            secrets=sent,
            let_pass=to_space.allow_secret or (),
            openenv=to_space.openenv,
        )
        wait_s = (timeout or SPACE_TIMEOUT_S) if to_space.wait else None
        push_spaces(upload, dry_run=dry_run, as_json=as_json, wait_s=wait_s)
        return
    if not kubernetes:
        raise MisuseError(
            "no destination is given", hint="--space OWNER/NAME, or --kubernetes --image IMAGE"
        )
    if to_cluster.image is None:
        raise MisuseError("--kubernetes requires --image")
    _refuse_options_of(SPACE, "--kubernetes", cli)
    from openenv.providers.options import slug

    asked, image = to_cluster, to_cluster.image
    options = _cluster_options(asked, sent)
    name = asked.name or slug(image)
    if dry_run:
        _show(name, image, options, variables, as_json)
        return
    try:
        where = asked.kubeconfig, asked.context
        replicas = _apply(name, image, options, variables, where, timeout or KUBERNETES_TIMEOUT_S)
    except OpenEnvError as error:
        raise CommandError(_describe(error)) from None
    url = f"http://{name}.{asked.namespace}.svc:{asked.port}"
    if as_json:
        told = {"name": name, "namespace": asked.namespace, "replicas": replicas}
        emit({**told, "secret": name, "url": url})
        return
    typer.echo(url)
    say(
        f"its key: kubectl get secret {name} --namespace {asked.namespace} "
        "--output jsonpath='{.data.key}' | base64 -d"
    )


def _cluster_options(asked: ClusterDestination, sent: dict[str, str]) -> KubernetesOptions:
    from openenv.providers.kubernetes import KubernetesOptions

    try:
        return KubernetesOptions(
            kind="deployment",
            namespace=asked.namespace,
            replicas=asked.replicas,
            resource_limits={"cpu": asked.cpu, "memory": asked.memory},
            container_port=asked.port,
            secrets=sent,
            egress=tuple(asked.egress or ()),
            dns=asked.dns,
            network="open" if asked.open_network else "internal",
            user=asked.user,
            service_account=asked.service_account,
            image_pull_secrets=tuple(asked.image_pull_secret or ()),
            runtime_class=asked.runtime_class,
            stop_grace_s=asked.stop_grace_s,
            pull=asked.pull,  # type: ignore[arg-type]  # checked by KubernetesOptions
        )
    except ValueError as error:
        raise MisuseError(str(error)) from None


def _refuse_options_of(panel: str, chosen: str, cli: typer.Context) -> None:
    """Refuse options of the other destination, which would be ignored."""
    for param in cli.command.params:
        source = cli.get_parameter_source(str(param.name))
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and getattr(param, "rich_help_panel", None) == panel:
            is_off = cli.params[str(param.name)] is False and param.secondary_opts
            names = param.secondary_opts if is_off else param.opts
            told = names[0] if names[0].startswith("-") else getattr(param, "metavar", names[0])
            raise MisuseError(f"{chosen} excludes {told}")


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
        if one["kind"] == "Secret":  # secret values must not be printed
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
) -> int:
    """Apply the objects, wait for the pods, and return their number."""
    from openenv.providers.kubernetes import Cluster, server_objects

    cluster = Cluster(*where)
    _refuse_foreign(cluster, name, options)
    running = cluster.find("Deployment", options.namespace, name) or {}
    if options.replicas is None:
        options = replace(options, replicas=(running.get("spec") or {}).get("replicas") or 1)
    objects = server_objects(name, image, options, variables, secrets.token_urlsafe(32))
    found = cluster.find("Secret", options.namespace, name) or {}
    data = (found.get("data") or {}).get("key")
    key = base64.b64decode(data).decode() if data else PLACEHOLDER
    if PLACEHOLDER not in key:  # clients of the existing deployment use its key
        objects[0]["stringData"]["key"] = key
    with display() as shown:
        shown.begin("applying", len(objects))
        for done, one in enumerate(objects, 1):
            cluster.apply(one)
            shown.update(done, str(one["kind"]))
        shown.finish(", ".join(one["kind"] for one in objects))
        total = options.replicas or 1
        shown.begin("starting", total)
        try:
            _wait(cluster, name, options, timeout_s, lambda ready: shown.update(ready, "pods"))
        except (CommandError, OpenEnvError) as error:
            where_to = f"--namespace {options.namespace}"
            undo = f"kubectl rollout undo deployment/{name} {where_to}"
            if not running:
                undo = f"kubectl delete deployment,service,secret,networkpolicy {name} {where_to}"
            raise CommandError(
                _describe(error), hint=f"what was applied stays; this takes it back: {undo}"
            ) from None
        shown.finish(f"{total} pod{'s are' if total > 1 else ' is'} ready")
    return total


def _describe(error: Exception) -> str:
    from openenv.providers.kubernetes import ClusterError, cure_for

    return f"{error}{cure_for(error)}" if isinstance(error, ClusterError) else str(error)


def _wait(
    cluster: Any,
    name: str,
    options: KubernetesOptions,
    timeout_s: float,
    tell: Callable[[int], None],
) -> None:
    """Wait until all pods serve the applied configuration."""
    from openenv.providers.kubernetes import count_updated, why_not_ready

    deadline = time.monotonic() + timeout_s
    while (ready := count_updated(cluster, options.namespace, name)) < (options.replicas or 1):
        if time.monotonic() > deadline:
            why = why_not_ready(cluster, options.namespace, name)
            raise CommandError(f"{name} was not ready within {timeout_s:g} s: {why}")
        tell(ready)
        time.sleep(LOOK_EVERY_S)


def _refuse_foreign(cluster: Any, name: str, options: KubernetesOptions) -> None:
    from openenv.providers.kubernetes import MANAGER

    for kind in ("Deployment", "Service", "Secret", "NetworkPolicy"):
        found = cluster.find(kind, options.namespace, name)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        if found is not None and labels.get("app.kubernetes.io/managed-by") != MANAGER:
            raise CommandError(
                f"there is a {kind} {name} already, which this command has not made",
                hint="choose another name: --name NAME",
            )
