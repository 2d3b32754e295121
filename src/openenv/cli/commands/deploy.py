"""`openenv deploy`: an environment as a Deployment of a cluster, or as a running Space."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._progress import display
from openenv.cli._spaces import Upload, pairs, push_spaces, secrets_of_options
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.providers.kubernetes import KubernetesOptions

__all__ = ["deploy"]

Manifest = Mapping[str, Any]

LOOK_EVERY_S = 0.5
# No server starts with it: a key has no spaces in it.
PLACEHOLDER = "put a key of your own here"


# Whose an option is: the panel of the help that it stands in.
SPACE = "Of --space"
KUBERNETES = "Of --kubernetes"

KUBERNETES_TIMEOUT_S = 300.0
SPACE_TIMEOUT_S = 1800.0


def deploy(
    cli: typer.Context,
    environment: Annotated[
        Path | None,
        typer.Argument(
            rich_help_panel=SPACE,
            help="A directory with an openenv.yaml, by default this one.",
            metavar="ENV_DIR",
            show_default=False,
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="To a Space of the Hugging Face Hub.", metavar="OWNER/NAME", show_default=False
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            "-H",
            help="What the Space runs on, such as cpu-basic.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=SPACE,
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Make a Space that others don't see.", rich_help_panel=SPACE
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="End when the Space runs, or at once.", rich_help_panel=SPACE
        ),
    ] = True,
    allow_secret: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=SPACE,
            metavar="PATH[:LINE]",
            help="Where something looks like a secret, and is none.",
            show_default=False,
        ),
    ] = None,
    openenv: Annotated[
        Path | None,
        typer.Option(
            "--openenv",
            rich_help_panel=SPACE,
            metavar="locked",
            help="Deploy it even if its uv.lock has an OpenEnv of another series.",
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=KUBERNETES, help="The image, as the cluster's nodes fetch it."
        ),
    ] = None,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="To Kubernetes.")] = False,
    name: Annotated[
        str | None,
        typer.Option(rich_help_panel=KUBERNETES, help="Of the Deployment; by default the image's."),
    ] = None,
    namespace: Annotated[
        str, typer.Option(rich_help_panel=KUBERNETES, help="Where; it must exist.")
    ] = "default",
    replicas: Annotated[
        int, typer.Option(rich_help_panel=KUBERNETES, min=1, help="Pods behind the Service.")
    ] = 1,
    cpu: Annotated[
        str, typer.Option(rich_help_panel=KUBERNETES, help="Processors that a pod may take.")
    ] = "2",
    memory: Annotated[
        str, typer.Option(rich_help_panel=KUBERNETES, help="Memory that a pod may take.")
    ] = "4Gi",
    port: Annotated[
        int,
        typer.Option(
            rich_help_panel=KUBERNETES,
            min=1,
            max=65535,
            help="The port that the server listens on.",
        ),
    ] = 8000,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A variable of the server: NAME=VALUE.", metavar="NAME=VALUE"),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="A variable that only the server gets; without a value, that of this shell's. A "
            "secret of the Space, or in a cluster in the file NAME_FILE.",
            metavar="NAME[=VALUE]",
        ),
    ] = None,
    egress: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=KUBERNETES,
            help="A network that pods may reach, such as 10.2.0.0/16.",
            metavar="CIDR",
        ),
    ] = None,
    dns: Annotated[
        bool,
        typer.Option("--dns", help="Pods may ask the cluster's DNS.", rich_help_panel=KUBERNETES),
    ] = False,
    open_network: Annotated[
        bool,
        typer.Option(
            "--open-network",
            help="Pods may reach whatever the cluster does.",
            rich_help_panel=KUBERNETES,
        ),
    ] = False,
    user: Annotated[
        str, typer.Option(rich_help_panel=KUBERNETES, help="Whom the server runs as: uid:gid.")
    ] = "65532:65532",
    service_account: Annotated[
        str | None, typer.Option(rich_help_panel=KUBERNETES, help="Of the pods.")
    ] = None,
    image_pull_secret: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=KUBERNETES,
            help="A Secret that says who may fetch the image.",
            metavar="NAME",
        ),
    ] = None,
    runtime_class: Annotated[
        str | None, typer.Option(rich_help_panel=KUBERNETES, help="Such as gvisor.")
    ] = None,
    pull: Annotated[
        str, typer.Option(rich_help_panel=KUBERNETES, help="missing, always, or never.")
    ] = "missing",
    kubeconfig: Annotated[
        str | None, typer.Option(rich_help_panel=KUBERNETES, help="Where the cluster is.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(rich_help_panel=KUBERNETES, help="Of the kubeconfig.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds that it may take: by default 300, and 1800 for a Space, which is built.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be made, and end.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line for each object.")
    ] = False,
) -> None:
    """Serve an environment from the Hub, as a Space, or an image of one from a cluster.

    In a cluster: a Deployment, its Service, what it may reach, and a key.

    Examples:
        openenv deploy my_env --space acme/my_env --hardware cpu-basic
        openenv deploy --kubernetes --image ghcr.io/somebody/echo-env:1 --replicas 3
        openenv deploy --kubernetes --image echo-env:1 --dry-run  # the objects, as YAML
    """
    if space is not None and kubernetes:
        raise CommandError("--space and --kubernetes exclude each other", exit_code=MISUSED)
    if space is not None:
        _refuse_those_of(KUBERNETES, "--space", cli)
        asked = Upload(
            environment or Path(),
            space,
            private=private,
            hardware=hardware,
            variables=pairs("--env", env),
            secrets=secrets_of_options("--secret", secret),
            let_pass=tuple(allow_secret or ()),
            openenv=openenv,
        )
        wait_s = (timeout or SPACE_TIMEOUT_S) if wait else None
        push_spaces(asked, dry_run=dry_run, as_json=as_json, wait_s=wait_s)
        return
    from openenv.providers._asked import slug
    from openenv.providers.kubernetes import KubernetesOptions

    if not kubernetes:
        raise CommandError(
            "it is not said where to",
            hint="--space OWNER/NAME, or --kubernetes --image IMAGE",
            exit_code=MISUSED,
        )
    if image is None:
        raise CommandError("--kubernetes wants --image", exit_code=MISUSED)
    _refuse_those_of(SPACE, "--kubernetes", cli)
    try:
        options = KubernetesOptions(
            kind="deployment",
            namespace=namespace,
            replicas=replicas,
            resource_limits={"cpu": cpu, "memory": memory},
            container_port=port,
            secrets=secrets_of_options("--secret", secret),
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
    variables = pairs("--env", env)
    if dry_run:
        _show(name, image, options, variables, as_json)
        return
    try:
        timeout_s = timeout or KUBERNETES_TIMEOUT_S
        _apply(name, image, options, variables, (kubeconfig, context), timeout_s)
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


def _refuse_those_of(panel: str, chosen: str, cli: typer.Context) -> None:
    """Have what is given of the other destination be an error: it would be ignored."""
    for param in cli.command.params:
        source = cli.get_parameter_source(str(param.name))
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and getattr(param, "rich_help_panel", None) == panel:
            is_off = cli.params[str(param.name)] is False and param.secondary_opts
            names = param.secondary_opts if is_off else param.opts
            told = names[0] if names[0].startswith("-") else getattr(param, "metavar", names[0])
            raise CommandError(f"{chosen} excludes {told}", exit_code=MISUSED)


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
