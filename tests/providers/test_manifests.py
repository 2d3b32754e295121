"""What servers are as objects of Kubernetes. tests/providers/kubernetes asks a cluster of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from openenv.cli.commands.deploy import PLACEHOLDER, deploy
from openenv.errors import KeyFileError
from openenv.providers._manifests import (
    KubernetesOptions,
    network_policy,
    server_objects,
)
from openenv.providers.options import name_for, readable_key_file
from openenv.server.keyfile import read_key_file

PROJECT = Path(__file__).parents[2]
BASE = PROJECT / "deploy" / "kubernetes"


def made(env_vars: dict[str, str] | None = None, **options: Any) -> dict[str, dict[str, Any]]:
    """The objects of a server, by their kinds."""
    objects = server_objects(
        "env-1", "echo-env:1", KubernetesOptions(**options), env_vars or {}, "a-key", "holder"
    )
    return {one["kind"]: one for one in objects}


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects["Pod"]["spec"]["containers"][0]
    return found


# ------------------------------------------------------------------ what a pod is given


def test_a_pod_has_no_rights_by_default() -> None:
    objects = made()
    spec, own = objects["Pod"]["spec"], container(objects)
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert own["resources"] == {"limits": {"cpu": "2", "memory": "4Gi"}}


def test_what_it_may_write_to_is_memory() -> None:
    objects = made(scratch={"/tmp": "64Mi"})
    mounts = {one["mountPath"]: one["name"] for one in container(objects)["volumeMounts"]}
    volumes = {one["name"]: one for one in objects["Pod"]["spec"]["volumes"]}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}
    assert mounts.keys() == {"/tmp", "/run/openenv"}


def test_a_key_is_told_by_a_file_and_stands_nowhere_else() -> None:
    objects = made()
    assert objects["Secret"]["stringData"]["key"] == "a-key"  # as people read it
    environment = {one["name"]: one["value"] for one in container(objects)["env"]}
    assert environment == {"OPENENV_API_KEY_FILE": "/run/openenv/key"}
    assert "a-key" not in json.dumps(objects["Pod"])


@pytest.mark.parametrize(
    "key", ["plain-and-of-16-or-more", "ends-in-base64==", *"[#{=", "a=b", "{'a': 'b'}", '"quoted"']
)
def test_a_server_reads_the_key_that_is_in_the_secret(key: str, tmp_path: Path) -> None:
    key = key if len(key) >= 16 else f"{key}-and-enough-to-be-a-key".replace(" ", "")
    path = tmp_path / "key"
    path.write_text(readable_key_file(key))
    path.chmod(0o600)
    assert [one.key for one in read_key_file(path)] == [key]


def test_secrets_are_files_and_their_paths_are_variables() -> None:
    objects = made(secrets={"HF_TOKEN": "hidden-9f2c"})
    (volume,) = [one for one in objects["Pod"]["spec"]["volumes"] if "secret" in one]
    assert {"key": "secret-HF_TOKEN", "path": "secrets/HF_TOKEN"} in volume["secret"]["items"]
    environment = {one["name"]: one["value"] for one in container(objects)["env"]}
    assert environment["HF_TOKEN_FILE"] == "/run/openenv/secrets/HF_TOKEN"
    assert objects["Secret"]["stringData"]["secret-HF_TOKEN"] == "hidden-9f2c"
    assert "hidden-9f2c" not in json.dumps(objects["Pod"])


def test_variables_that_are_secrets_by_their_names_are_in_the_secret() -> None:
    objects = made({"MODE": "fast", "SOME_TOKEN": "hidden-9f2c"})
    environment = {one["name"]: one for one in container(objects)["env"]}
    assert environment["MODE"]["value"] == "fast"
    source = environment["SOME_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert objects["Secret"]["stringData"][source["key"]] == "hidden-9f2c"
    assert "hidden-9f2c" not in json.dumps(objects["Pod"])


def test_a_server_without_key_and_secrets_has_no_secret() -> None:
    objects = server_objects("env-1", "echo-env:1", KubernetesOptions(), {}, None)
    assert [one["kind"] for one in objects] == ["NetworkPolicy", "Pod"]
    assert not [one for one in objects[-1]["spec"]["volumes"] if "secret" in one]


def test_every_option_is_in_the_manifest() -> None:
    objects = made(
        namespace="rl",
        resource_requests={"cpu": "500m"},
        user="1000:1001",
        read_only=False,
        capabilities=["NET_BIND_SERVICE"],
        new_privileges=True,
        seccomp="profiles/env.json",
        runtime_class="gvisor",
        service_account="envs",
        image_pull_secrets=["registry"],
        pull="always",
        node_selector={"pool": "envs"},
        tolerations=[{"key": "envs", "operator": "Exists"}],
        labels={"team": "rl"},
        annotations={"note": "x"},
        command=["serve", "--fast"],
        container_port=9000,
        ttl_s=60,
        stop_grace_s=3,
    )
    pod, own = objects["Pod"], container(objects)
    spec = pod["spec"]
    assert {one["metadata"]["namespace"] for one in objects.values()} == {"rl"}
    assert {one["metadata"]["labels"]["team"] for one in objects.values()} == {"rl"}
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert own["resources"]["requests"] == {"cpu": "500m"}
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (
        1000,
        1001,
    )
    assert spec["securityContext"]["seccompProfile"] == {
        "type": "Localhost",
        "localhostProfile": "profiles/env.json",
    }
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": True,
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["serviceAccountName"] == "envs"
    assert spec["automountServiceAccountToken"] is False
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert own["imagePullPolicy"] == "Always"
    assert spec["nodeSelector"] == {"pool": "envs"}
    assert spec["tolerations"] == [{"key": "envs", "operator": "Exists"}]
    assert own["args"] == ["serve", "--fast"]
    assert own["ports"][0]["containerPort"] == 9000
    assert own["readinessProbe"]["httpGet"] == {"path": "/health", "port": 9000}
    assert spec["activeDeadlineSeconds"] == 60
    assert spec["terminationGracePeriodSeconds"] == 3


# ------------------------------------------------------------------ what it may reach


def policy(**options: Any) -> dict[str, Any]:
    found = network_policy("env-1", KubernetesOptions(**options))
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


def test_nothing_goes_out_by_default_and_one_port_lets_in() -> None:
    spec = policy()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == []
    assert spec["ingress"] == [{"ports": [{"port": 8000, "protocol": "TCP"}]}]
    pod = made()["Pod"]
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_networks_and_the_clusters_dns_may_be_named() -> None:
    networks, dns = policy(egress=["10.2.0.0/16"], dns=True)["egress"]
    assert networks == {"to": [{"ipBlock": {"cidr": "10.2.0.0/16"}}]}
    assert [one["port"] for one in dns["ports"]] == [53, 53]


@pytest.mark.parametrize(
    ("wide", "hidden"),
    [("0.0.0.0/0", "169.254.0.0/16"), ("169.0.0.0/8", "169.254.0.0/16"), ("::/0", "fd00:ec2::/32")],
)
def test_credentials_of_the_cloud_are_left_out_of_wide_networks(wide: str, hidden: str) -> None:
    (only,) = policy(egress=[wide])["egress"]
    assert only["to"] == [{"ipBlock": {"cidr": wide, "except": [hidden]}}]


def test_an_open_network_has_no_policy() -> None:
    assert network_policy("env-1", KubernetesOptions(network="open")) is None


# ------------------------------------------------------------------ deployments and services


def test_a_deployment_is_found_by_its_service_and_its_policy() -> None:
    objects = made(kind="deployment", replicas=3)
    assert objects.keys() == {"Secret", "NetworkPolicy", "Service", "Deployment"}
    spec = objects["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["replicas"] == 3
    for wanted in (
        spec["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert wanted and wanted.items() <= labels.items()
    assert "restartPolicy" not in spec["template"]["spec"]


def test_a_pod_that_a_gateway_leads_to_has_a_service() -> None:
    objects = made(reach="gateway", gateway="https://envs.example/{name}")
    assert objects["Service"]["spec"]["selector"].items() <= (
        objects["Pod"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    ("image", "word"),
    [
        ("registry.example:5000/team/Echo_Env:1.2", "echo-env"),
        ("echo@sha256:abc", "echo"),
        ("___", "server"),
        ("x" * 80, "x" * 36),
    ],
)
def test_a_name_that_kubernetes_allows_is_made_of_an_image(image: str, word: str) -> None:
    name = name_for(image)
    assert re.fullmatch(rf"openenv-{word}-[0-9a-f]{{8}}", name)
    assert len(name) <= 63, "RFC 1123"


# ------------------------------------------------------------------ what means nothing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "job"}, "kind is 'job'; expected one of 'pod', 'deployment'"),
        ({"network": "host"}, "network is 'host'"),
        ({"reach": "ssh"}, "reach is 'ssh'"),
        ({"replicas": 0}, "replicas is 0; it must be above 0"),
        ({"container_port": None}, "container_port is None; it must be above 0"),
        ({"resource_limits": {"cpu": "two"}}, r"resource_limits\['cpu'\] is 'two'"),
        ({"scratch": {"/tmp": "-1"}}, r"scratch\['/tmp'\] is '-1'"),
        ({"user": "root"}, "expected numbers as 'uid:gid'"),
        ({"user": "0:0"}, "other than root's"),
        ({"egress": ["example.com"]}, "'example.com', which is not a network"),
        ({"egress": "10.0.0.0/8"}, "expected a list"),
        ({"network": "open", "dns": True}, "network is 'open'"),
        ({"secrets": {"no name": "x"}}, "a secret's name is 'no name'"),
        ({"namespace": "No_Such"}, "namespace is 'No_Such'"),
        ({"reach": "gateway"}, "set both or neither"),
        ({"gateway": "https://x/{name}"}, "set both or neither"),
        ({"reach": "gateway", "gateway": "https://x/{pod}"}, "expected a URL with {name}"),
        ({"kind": "deployment", "ttl_s": 5}, "ttl_s needs kind='pod'"),
        ({"stop_grace_s": -1}, "stop_grace_s is -1"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KubernetesOptions(**options)


def test_an_option_that_there_is_not_is_named() -> None:
    with pytest.raises(TypeError, match="no such option: memory; there are namespace, kind"):
        KubernetesOptions().changed({"memory": "4Gi"})


def test_secrets_are_not_in_the_words_for_options() -> None:
    assert "hidden-9f2c" not in repr(KubernetesOptions(secrets={"TOKEN": "hidden-9f2c"}))


# ------------------------------------------------------------------ what `openenv deploy` prints


def printed(*arguments: str) -> str:
    import typer

    app = typer.Typer()
    app.command()(deploy)
    done = CliRunner().invoke(
        app, ["--kubernetes", "--dry-run", *arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_kustomize_base_is_what_deploy_makes_by_default() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    base = [yaml.safe_load((BASE / name).read_text()) for name in listed]
    assert base == list(yaml.safe_load_all(printed("--image", "env:latest")))


def test_a_dry_run_prints_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hidden-9f2c")
    shown = printed("--image", "x", "--secret", "HF_TOKEN", "--env", "MY_PASSWORD=hidden-77aa")
    assert "hidden-" not in shown
    told = next(one for one in yaml.safe_load_all(shown) if one["kind"] == "Secret")["stringData"]
    assert told.keys() == {"key", "secret-HF_TOKEN", "variable-MY_PASSWORD"}


def test_a_dry_run_prints_json_a_line_for_each_object() -> None:
    lines = printed("--image", "x", "--replicas", "3", "--json").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["Secret", "NetworkPolicy", "Service", "Deployment"]


def test_no_server_starts_with_the_placeholder(tmp_path: Path) -> None:
    secret = yaml.safe_load((BASE / "secret.yaml").read_text())
    path = tmp_path / "key"
    path.write_text(secret["stringData"]["key"])
    path.chmod(0o600)
    assert PLACEHOLDER in path.read_text()
    with pytest.raises(KeyFileError, match="without spaces"):
        read_key_file(path)
