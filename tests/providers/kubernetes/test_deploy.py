"""`openenv deploy` to a real API server: see `test_kubernetes.py`."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.kubernetes.agent import Agent
from providers.kubernetes.cluster import ControlPlane
from providers.kubernetes.conftest import IMAGE
from support.commands import environ
from support.waiting import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(180), pytest.mark.usefixtures("agent")]

BASE = Path(__file__).parents[3] / "deploy" / "kubernetes"
# The command, whether or not `openenv` has it yet.
PROGRAM = """
import typer
from openenv.cli._console import CommandError, print_error
from openenv.cli.commands.deploy import deploy
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(deploy)
try:
    app()
except CommandError as error:
    print_error(error)
    raise SystemExit(error.exit_code)
"""


def deployed(plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    told = ["--kubernetes", f"--kubeconfig={plane.kubeconfig()}", "--pull=never", *arguments]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *told],
        capture_output=True,
        text=True,
        env=environ(),
        timeout=120,
    )


def key(plane: ControlPlane, name: str) -> str:
    shown = plane.kubectl("get", "secret", name, "-o", "jsonpath={.data.key}")
    return base64.b64decode(shown.stdout).decode()


@pytest.fixture(autouse=True)
def nothing_is_left(plane: ControlPlane) -> Iterator[None]:
    yield
    kinds = "deployments,services,networkpolicies,secrets"
    plane.kubectl("delete", kinds, "-l", "app.kubernetes.io/managed-by=openenv")
    wait_until(lambda: plane.kubectl("get", "pods", "-o", "name").stdout == "", 40)


def test_it_applies_and_waits_and_again_with_the_same_key(plane: ControlPlane) -> None:
    done = deployed(plane, "--image", IMAGE, "--name", "echo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {
        "name": "echo",
        "namespace": "default",
        "replicas": 1,
        "secret": "echo",
        "url": "http://echo.default.svc:8000",
    }
    assert "1 pod is ready" in done.stderr
    before = key(plane, "echo")
    assert len(before) > 30
    assert before not in done.stdout + done.stderr
    again = deployed(plane, "--image", IMAGE, "--name", "echo", "--replicas", "2")
    assert again.returncode == 0, again.stderr
    assert again.stdout == "http://echo.default.svc:8000\n"
    assert key(plane, "echo") == before
    pods = plane.kubectl("get", "pods", "-l", "dev.openenv.server=echo", "-o", "name")
    assert len(pods.stdout.split()) == 2
    third = deployed(plane, "--image", IMAGE, "--name", "echo", "--json")
    assert json.loads(third.stdout)["replicas"] == 2, "as many as run"


def test_an_update_that_cannot_start_says_so_at_once(plane: ControlPlane) -> None:
    done = deployed(plane, "--image", IMAGE, "--name", "echo", "--replicas", "2")
    assert done.returncode == 0, done.stderr
    began = time.monotonic()
    done = deployed(plane, "--image", "registry.invalid/nowhere:2", "--name", "echo")
    assert done.returncode == 1
    assert "ImagePullBackOff" in done.stderr
    assert "kubectl rollout undo deployment/echo --namespace default" in done.stderr
    assert time.monotonic() - began < 60, "long before the timeout of 300 s"
    pods = plane.kubectl("get", "deployment", "echo", "-o", "jsonpath={.status.readyReplicas}")
    assert pods.stdout == "2", "the pods of before serve on"


def test_a_quota_for_fewer_pods_says_so_at_once(plane: ControlPlane) -> None:
    assert plane.kubectl("create", "quota", "few", "--hard=pods=1").returncode == 0
    try:
        done = deployed(plane, "--image", IMAGE, "--name", "echo", "--replicas", "3")
    finally:
        plane.kubectl("delete", "quota", "few")
    assert done.returncode == 1
    assert "a pod could not be created" in done.stderr and "exceeded quota" in done.stderr


def test_an_observers_key_is_added_as_the_guide_says(plane: ControlPlane, tmp_path: Path) -> None:
    assert deployed(plane, "--image", IMAGE, "--name", "echo").returncode == 0
    keys = tmp_path / "keys.toml"
    keys.write_text(
        f'[[keys]]\nkey = "{key(plane, "echo")}"\nname = "trainer"\nrole = "orchestrator"\n'
        '[[keys]]\nkey = "a-key-for-prometheus"\nname = "prometheus"\nrole = "observer"\n'
    )
    made = plane.kubectl(
        *("create", "secret", "generic", "echo", f"--from-file=key={keys}"),
        *("--dry-run=client", "-o", "yaml"),
    )
    (tmp_path / "secret.yaml").write_text(made.stdout)
    forced = ("--server-side", "--force-conflicts", "--filename", str(tmp_path / "secret.yaml"))
    done = plane.kubectl("apply", *forced)
    assert done.returncode == 0, done.stderr
    assert plane.kubectl("rollout", "restart", "deployment/echo").returncode == 0
    again = deployed(plane, "--image", IMAGE, "--name", "echo")  # waits for the pods
    assert again.returncode == 0, again.stderr
    assert key(plane, "echo") == keys.read_text()


def test_one_that_cannot_start_says_why(plane: ControlPlane) -> None:
    done = deployed(plane, "--image", "registry.invalid/nowhere:1", "--name", "nowhere")
    assert done.returncode == 1
    assert "ImagePullBackOff" in done.stderr and "it is nowhere" in done.stderr
    assert "kubectl delete deployment,service,secret,networkpolicy nowhere" in done.stderr


def test_one_that_nobody_has_room_for_says_why(plane: ControlPlane) -> None:
    done = deployed(plane, "--image", IMAGE, "--name", "big", "--cpu", "64", "--timeout", "3")
    assert done.returncode == 1
    assert "big was not ready within 3 s" in done.stderr and "Insufficient cpu" in done.stderr


def test_what_others_have_made_is_left_alone(plane: ControlPlane) -> None:
    made = plane.kubectl("create", "service", "clusterip", "theirs", "--tcp=80")
    assert made.returncode == 0, made.stderr
    done = deployed(plane, "--image", IMAGE, "--name", "theirs")
    assert done.returncode == 1
    assert "there is a Service theirs already" in done.stderr
    assert plane.kubectl("delete", "service", "theirs").returncode == 0


def test_the_kustomize_base_is_applied_by_kubectl(
    plane: ControlPlane, agent: Agent, tmp_path: Path
) -> None:
    overlay = tmp_path / "kustomization.yaml"
    shutil.copytree(BASE, tmp_path / "base")
    overlay.write_text(
        "bases: [base]\n"  # among `resources`, for newer ones than this kubectl
        'images: [{name: env, newName: localhost/openenv-test, newTag: "latest"}]\n'
        "patchesStrategicMerge: [key.yaml]\n"
    )
    (tmp_path / "key.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: env, namespace: default}\n"
        """stringData: {key: '{"key": "0123456789abcdefghij", "role": "orchestrator"}'}\n"""
    )
    done = plane.kubectl("apply", "-k", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rolled = plane.kubectl("rollout", "status", "deployment/env", "--timeout=50s")
    shown = plane.kubectl("get", "pods", "-o", "yaml").stdout if rolled.returncode else ""
    assert rolled.returncode == 0, rolled.stdout + rolled.stderr + shown


def test_the_api_server_takes_the_gateway(plane: ControlPlane) -> None:
    done = plane.kubectl("apply", "--dry-run=server", "-f", str(BASE / "gateway.yaml"))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_where_to_is_to_be_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--image", "x"],
        capture_output=True,
        text=True,
        env=environ(),
    )
    assert done.returncode == 2
    assert "--kubernetes" in done.stderr
