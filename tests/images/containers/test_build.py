"""`openenv build` on a real engine, by Podman; see scripts/containers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, ENVIRONMENTS, environ, run_openenv
from support.processes import commands
from support.registries import registry_in
from support.waiting import wait_until

from openenv import GenericEnvClient
from openenv.providers.docker import LocalDockerProvider
from openenv.providers.engines import find_engine

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

PROJECT = ENVIRONMENTS.parent
BASE = "localhost/openenv-test-base:latest"
# What this machine needs: builds reach the network through it, and trust whom it trusts.
HERE = ("--base", BASE, "--network", "host", "--ca-file", "/etc/ssl/certs/ca-certificates.crt")
BUILD_S = 400.0
TAG = f"openenv-test-build-{os.getpid()}"
ACTIONS = {
    "echo_env": {"message": "hi"},
    "chess_env": {"move": "e2e4"},
    "coding_env": {"code": "print(6 * 7)"},
}
# Of the base, which is Debian with pip, 298 MB are; of bytecode some 41 MB.
MOST_BYTES = {"echo_env": 415e6, "chess_env": 400e6 + 41e6, "coding_env": 520e6 + 41e6}
# What a server loads that would have to be compiled at each start.
WITHOUT_BYTECODE = """
import os, sys
import openenv.server.run, fastapi, uvicorn
specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
found = [getattr(spec, "cached", None) for spec in specs]
print([path for path in found if path and not os.path.exists(path)])
"""


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[Any]:
    """The engine; at the end it has no image, and the machine no directory, of these tests."""
    told = PROJECT / ".containers" / "containers.conf"
    with pytest.MonkeyPatch.context() as patch:
        if told.exists():
            patch.setenv("CONTAINERS_CONF", str(told))
        client = find_engine()
        yield client
        for image in client.images():
            for name in image.get("RepoTags") or ():
                if TAG in name:
                    client.remove_image(name, force=True)
        assert scratch_directories() == []


def scratch_directories() -> list[Path]:
    own = f"/{os.getpid()}/"
    found = []
    for directory in Path(tempfile.gettempdir()).glob("openenv-build-*"):
        with contextlib.suppress(OSError):
            if own in (directory / "owner").read_text():
                found.append(directory)
    return found


@pytest.fixture(scope="module")
def openenv_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout's OpenEnv as it is now, for all that is built here."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--wheel", "--quiet", "-o", folder, PROJECT], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build(directory: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, "build", str(directory), "--engine", "podman", *HERE, *arguments],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == code, done.stderr
    return done


def built(directory: Path, *arguments: str) -> Any:
    return json.loads(build(directory, "--json", *arguments).stdout)


def in_image(image: str, *command: str) -> str:
    return subprocess.run(
        ["podman", "run", "--rm", "--network=none", "--no-healthcheck", image, *command],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


# ------------------------------------------------------------------ environments


@pytest.mark.parametrize("name", ACTIONS)
def test_an_environment_is_built_started_and_stepped(
    name: str,
    openenv_wheel: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    tag, bill = f"{TAG}:{name}", tmp_path / "bom.json"
    told = built(
        ENVIRONMENTS / name, "-t", tag, "--sbom", str(bill), "--openenv", str(openenv_wheel)
    )
    record_property("size_bytes", told["size_bytes"])
    assert told["size_bytes"] < MOST_BYTES[name]
    assert told["user"] == "1000:1000"
    with contextlib.closing(LocalDockerProvider(tag, pull="never")) as provider:
        server = provider.launch()
        with server:
            server.wait_for_ready()
            with GenericEnvClient(server.url).sync() as env:
                env.reset()
                assert env.step(ACTIONS[name]).observation
            health = subprocess.run(["podman", "healthcheck", "run", server.name])
            assert health.returncode == 0
            found = server.execute(["sh", "-c", "id -u; ls /build"])
            assert found.stdout == "1000\n"
            assert server.execute(["python", "-c", WITHOUT_BYTECODE]).stdout == "[]\n"
            check_bill(bill, tag, server)


def check_bill(bill: Path, tag: str, server: Any) -> None:
    """It lists exactly what the image's own metadata does, and the image names it."""
    code = "from importlib.metadata import distributions as d; print(*(x.name for x in d()))"
    there = server.execute(["python", "-c", code]).stdout.lower().replace("_", "-").split()
    components = json.loads(bill.read_text())["components"]
    listed = [one["name"] for one in components if one["purl"].startswith("pkg:pypi/")]
    assert sorted(set(there)) == sorted(listed)
    assert {"openenv", "pydantic", "uvicorn"} <= set(listed)
    assert any(one["purl"].startswith("pkg:deb/debian/libc6@") for one in components)
    digest = subprocess.run(["sha256sum", bill], check=True, capture_output=True, text=True).stdout
    assert label(tag, "dev.openenv.sbom.sha256") == digest.split()[0]


def label(tag: str, name: str) -> str:
    form = f'{{{{index .Config.Labels "{name}"}}}}'
    command = ["podman", "image", "inspect", "--format", form, tag]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_same_sources_give_the_same_image(openenv_wheel: Path) -> None:
    arguments = ("--no-cache", "--openenv", str(openenv_wheel))
    one = built(ENVIRONMENTS / "echo_env", "-t", f"{TAG}:one", *arguments)
    other = built(ENVIRONMENTS / "echo_env", "-t", f"{TAG}:other", *arguments)
    assert one["id"] == other["id"]
    assert one["is_reproducible"] and one["lock"] == other["lock"]


def test_one_of_its_own_is_built_with_the_openenv_that_is_named(
    openenv_wheel: Path, tmp_path: Path
) -> None:
    assert run_openenv("init", "lights_env", cwd=tmp_path).returncode == 0
    own, bill = tmp_path / "lights_env", tmp_path / "bom.json"
    arguments = ("--openenv", str(openenv_wheel), "--sbom", str(bill))
    told = built(own, "-t", f"{TAG}:own", *arguments)
    assert told["mode"] == "standalone"
    versions = {one["name"]: one["version"] for one in json.loads(bill.read_text())["components"]}
    assert versions["openenv"] == openenv_wheel.name.split("-")[1]
    assert versions["openenv-lights-env"] == "0.1.0"


# ------------------------------------------------------------------ contexts


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An environment whose Dockerfile takes everything in and installs nothing."""
    made = tmp_path / "small_env"
    made.mkdir()
    (made / "openenv.yaml").write_text("name: small_env\n")
    (made / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE:-{BASE}}}\nCOPY . /context\nUSER 7\n")
    return made


def test_rubbish_and_secrets_are_not_in_the_image(small: Path) -> None:
    for path in ("a.py", ".git/HEAD", ".venv/x", "__pycache__/a.pyc", ".env", "outputs/log"):
        (small / path).parent.mkdir(exist_ok=True)
        (small / path).write_text("x")
    (small / "kept").mkdir()
    (small / "kept" / "b.md").write_text("x")
    (small / ".dockerignore").write_text("kept/*.txt\nDockerfile")
    (small / "kept" / "b.txt").write_text("x")
    done = build(small, "-t", f"{TAG}:small")
    assert done.stdout == f"{TAG}:small\n"
    found = in_image(f"{TAG}:small", "sh", "-c", "cd /context && find . -type f | sort")
    assert found.split() == ["./a.py", "./kept/b.md", "./openenv.yaml"]
    assert "left out, as they look like secrets: .env" in done.stderr


def test_a_context_and_a_dockerfile_may_lie_elsewhere(small: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.txt").write_text("shared")
    dockerfile = tmp_path / "Other"
    dockerfile.write_text("ARG BASE\nFROM $BASE\nARG WORD=no\nENV WORD=$WORD\nCOPY shared.txt /\n")
    arguments = ("-c", str(tmp_path), "-f", str(dockerfile), "--build-arg", "WORD=yes")
    done = build(small, "-t", f"{TAG}:elsewhere", "--label", "team=blue", *arguments)
    assert "its program runs as root" in done.stderr
    assert in_image(f"{TAG}:elsewhere", "sh", "-c", "cat /shared.txt; echo $WORD") == "sharedyes\n"
    assert label(f"{TAG}:elsewhere", "team") == "blue"


def test_an_image_is_built_by_buildah_too(small: Path) -> None:
    podman = built(small, "-t", f"{TAG}:by-podman", "--no-cache")
    done = subprocess.run(
        [
            *COMMAND,
            "build",
            str(small),
            "--engine",
            "buildah",
            *HERE,
            "-t",
            f"{TAG}:by-buildah",
            "--json",
            "--sbom",
            str(small.parent / "bom.json"),
        ],
        env=environ(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["user"], told["engine"]) == ("7", "buildah")
    assert told["size_bytes"] == pytest.approx(podman["size_bytes"], rel=0.05)
    assert in_image(f"{TAG}:by-buildah", "ls", "/context").split() == ["Dockerfile", "openenv.yaml"]


# ------------------------------------------------------------------ what goes wrong


def test_a_step_that_fails_is_named_with_its_last_lines(small: Path) -> None:
    with (small / "Dockerfile").open("a") as file:
        file.write("RUN seq 1 500 && echo no such compiler >&2 && exit 3\n")
    done = build(small, "-t", f"{TAG}:failed", code=1)
    assert done.stdout == ""
    assert "Error: the build failed at: RUN seq 1 500" in done.stderr
    assert "no such compiler" in done.stderr
    assert "\n500\n" in done.stderr and "\n400\n" not in done.stderr
    assert len(done.stderr.splitlines()) < 30
    assert TAG + ":failed" not in images()


def images() -> str:
    command = ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_base_that_is_not_there_is_named(small: Path) -> None:
    arguments = ("--base", "localhost/no-such-base:1", "-t", f"{TAG}:never")
    done = build(small, "--offline", *arguments, code=1)
    assert "the base image localhost/no-such-base:1 is not on this machine" in done.stderr
    assert "hint: podman pull localhost/no-such-base:1" in done.stderr
    done = build(small, *arguments, code=1)
    assert "the base image localhost/no-such-base:1 is not available" in done.stderr
    assert "--base IMAGE" in done.stderr


def test_a_registry_that_does_not_take_it_is_named(small: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    done = build(small, "-t", f"{TAG}:pushed", "--push", address, code=1)
    assert f"{address} did not take the image {address}/{TAG}:pushed" in done.stderr
    assert "connection refused" in done.stderr
    assert f"hint: podman login {address}" in done.stderr


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with registry_in(tmp_path) as address:
        yield address


def test_an_image_is_pushed_and_pulled_as_it_was(small: Path, registry: str) -> None:
    arguments = ("-t", f"{TAG}:pushed", "--push", f"{registry}/me")
    done = build(small, *arguments, code=1)
    assert "hint: it speaks plain HTTP; pass --push-without-tls" in done.stderr
    told = built(small, *arguments, "--push-without-tls")
    assert told["pushed"] == f"{registry}/me/{TAG}:pushed"
    subprocess.run(["podman", "rmi", told["pushed"]], check=True, capture_output=True)
    pull = ["podman", "pull", "--quiet", "--tls-verify=false", told["pushed"]]
    pulled = subprocess.run(pull, check=True, capture_output=True, text=True).stdout.strip()
    assert f"sha256:{pulled}" == told["id"]


def test_a_build_that_is_interrupted_leaves_nothing(small: Path) -> None:
    with (small / "Dockerfile").open("a") as file:
        file.write("RUN echo begun && sleep 300\n")
    before = containers()
    with subprocess.Popen(
        [*COMMAND, "build", str(small), "--engine", "podman", *HERE, "-t", f"{TAG}:interrupted"],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as building:
        wait_until(lambda: "sleep 300" in commands().values(), 60)
        began = time.monotonic()
        building.send_signal(signal.SIGINT)
        _, words = building.communicate(timeout=30)
    assert building.returncode == 130, words
    assert time.monotonic() - began < 15
    wait_until(lambda: "sleep 300" not in commands().values(), 15)
    assert containers() == before
    left = Path(tempfile.gettempdir()).glob("openenv-build-*")
    assert not [one for one in left if f"/{building.pid}/" in (one / "owner").read_text()]


def containers() -> str:
    command = ["buildah", "containers", "--quiet"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
