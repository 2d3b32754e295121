"""`openenv push --registry`, by Podman and a registry on this machine; see scripts/containers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.commands import COMMAND, ENVIRONMENTS, environ
from support.registries import registry_in
from support.zygote import run_python

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

BASE = "localhost/openenv-test-base:latest"
NAME = f"openenv-test-push-{os.getpid()}"
DOCKERFILE = "FROM nothing/of-the-kind AS final\nCOPY . /app\nCMD server\n"


def test_an_image_is_built_as_told_and_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ENVIRONMENTS.parent / ".containers" / "containers.conf"
    if told.exists():
        monkeypatch.setenv("CONTAINERS_CONF", str(told))
    ignored = shutil.ignore_patterns("__pycache__")
    echo = Path(shutil.copytree(ENVIRONMENTS / "echo_env", tmp_path / "echo", ignore=ignored))
    (echo / "server" / "Dockerfile").write_text(DOCKERFILE)
    with (echo / "openenv.yaml").open("a") as file:
        file.write("variables: {LEVEL: easy}\n")
    manifest = (echo / "openenv.yaml").read_text()
    (echo / "openenv.yaml").write_text(manifest.replace("echo_env", NAME, 1))
    with registry_in(tmp_path) as registry:
        options = ["--registry", f"{registry}/me", "--base-image", BASE, "--interface"]
        options += ["--engine", "podman", "--push-without-tls", "--json"]
        done = run_python(
            [*COMMAND, "push", str(echo), *options],
            env=environ(),
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        assert "a registry has no variables: give LEVEL" in done.stderr
        image = json.loads(done.stdout)["image"]
        assert image == f"{registry}/me/{NAME}:latest"
        subprocess.run(["podman", "rmi", image, NAME], check=True, capture_output=True)
        pull = ["podman", "pull", "--quiet", "--tls-verify=false", image]
        subprocess.run(pull, check=True, capture_output=True)
        asked = ["podman", "inspect", "--format", "{{json .Config}}", image]
        told_of = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        assert "ENABLE_WEB_INTERFACE=true" in json.loads(told_of)["Env"]
        subprocess.run(["podman", "rmi", image], check=True, capture_output=True)
