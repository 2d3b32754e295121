"""Builds and subjects on a real engine, by Podman; see scripts/containers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, environ
from support.processes import commands
from support.validated import replace, write_package
from support.waiting import wait_until
from validation.containers.parts import BASE, RESOURCES, names, spec_of

from openenv.images import BuildOptions
from openenv.validation import CheckResult, CheckStatus, Level
from openenv.validation.providers import SubjectError, UnmetRequirement
from openenv.validation.providers.docker import DockerValidationProvider
from openenv.validation.runner import validate
from openenv.validation.static.builds import BuildSettings, build_twice
from openenv.validation.static.package import read_package

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

DOCKERFILE = f"""\
FROM {BASE}
COPY . /lamp_env
USER 1000:1000
"""


def built(package: Path, artifacts: Path) -> dict[str, CheckResult]:
    validation = validate(package, max_level=Level.STATIC, artifacts_dir=artifacts)
    return {result.check_id: result for result in validation.report.results}


def package_in(directory: Path, dockerfile: str = DOCKERFILE) -> Path:
    package = write_package(directory)
    (package / "server" / "Dockerfile").write_text(dockerfile)
    return package


def test_an_image_is_built_twice_and_listed(tmp_path: Path) -> None:
    found = built(package_in(tmp_path), tmp_path / "kept")
    assert found["static.reproducible_build"].status is CheckStatus.PASS
    assert found["static.sbom"].status is CheckStatus.PASS, found["static.sbom"]
    assert found["static.sbom"].measured["components"] > 50
    assert (tmp_path / "kept" / "sbom.cdx.json").exists()


def test_a_build_that_writes_the_time_is_found(tmp_path: Path) -> None:
    stamped = DOCKERFILE.replace("USER", "RUN date +%s%N > /stamp\nUSER")
    result = built(package_in(tmp_path, stamped), tmp_path / "kept")["static.reproducible_build"]
    assert result.status is CheckStatus.FAIL
    assert len(result.measured["differing_layers"]) == 1


def test_a_build_that_fails_is_the_packages_fault(tmp_path: Path) -> None:
    broken = DOCKERFILE.replace("USER", "RUN false\nUSER")
    found = built(package_in(tmp_path, broken), tmp_path / "kept")
    assert found["static.reproducible_build"].status is CheckStatus.FAIL
    assert found["static.sbom"].status is CheckStatus.SKIP


def test_an_engine_that_is_killed_says_nothing_of_the_package(engine: Any, tmp_path: Path) -> None:
    sleep = f"sleep 60.{os.getpid()}"  # which is of this test alone
    slow = DOCKERFILE.replace("USER", f"RUN {sleep}\nUSER")
    package = package_in(tmp_path / "package", slow)
    with subprocess.Popen(
        [*COMMAND, "validate", str(package), "--level", "static", "--json"],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as validating:
        wait_until(lambda: sleep in commands().values(), 60)
        children = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(validating.pid)])
        running = commands()
        asleep = [pid for pid, line in running.items() if line == sleep]
        building = [pid for pid in map(int, children.split()) if "build" in running.get(pid, "")]
        for pid in building + asleep:
            os.kill(pid, signal.SIGKILL)
        report, words = validating.communicate(timeout=60)
    found = {one["check_id"]: one for one in json.loads(report)["results"]}
    assert found["static.reproducible_build"]["status"] == "skip", words
    assert "ended by SIGKILL" in found["static.reproducible_build"]["evidence"][0]


def test_a_second_build_that_fails_leaves_nothing_of_the_first(engine: Any, tmp_path: Path) -> None:
    before = names(engine)
    made = f"mkdir /shared/{uuid.uuid4().hex}"  # which no earlier build has left in the cache
    once = DOCKERFILE.replace("USER", f"RUN {made}\nUSER")
    package = package_in(tmp_path / "package", once)
    (tmp_path / "shared").mkdir()
    options = BuildOptions(volumes=[f"{tmp_path / 'shared'}:/shared"])
    validation = validate(package, max_level=Level.STATIC, build=BuildSettings(options=options))
    found = {result.check_id: result for result in validation.report.results}
    assert found["static.reproducible_build"].status is CheckStatus.FAIL
    assert made in found["static.reproducible_build"].evidence[0]
    assert names(engine) <= before


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_validation_that_is_ended_leaves_nothing(
    engine: Any, tmp_path: Path, by: signal.Signals
) -> None:
    before = names(engine)
    sleep = f"sleep 8.{os.getpid()}"
    slow = DOCKERFILE.replace("USER", f"RUN {sleep}\nUSER")
    package = package_in(tmp_path / "package", slow)
    with subprocess.Popen(
        [*COMMAND, "validate", str(package), "--level", "static"],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as validating:
        wait_until(lambda: not names(engine) <= before, 120)
        wait_until(lambda: sleep in commands().values(), 60)  # in the second build
        validating.send_signal(by)
        _, words = validating.communicate(timeout=60)
    if by is signal.SIGKILL:  # the next run of anybody takes it away
        assert validating.returncode == -signal.SIGKILL and not names(engine) <= before
        built(package_in(tmp_path / "another"), tmp_path / "kept")
    else:
        assert validating.returncode == 128 + by, words
        assert "Traceback" not in words
    assert names(engine) <= before  # and less, where another killed run had left some


def test_another_runs_images_are_left_to_it(engine: Any, tmp_path: Path) -> None:
    package = package_in(tmp_path)
    plan = read_package(package, None).plan
    assert plan is not None
    one, another = build_twice(plan), build_twice(plan)
    assert one.image_ref == another.image_ref
    one.forget()
    tags = set(another.built[0].tags + another.built[1].tags)
    assert tags <= names(engine)
    another.forget()
    assert tags.isdisjoint(names(engine))


def test_a_base_that_is_not_to_be_had_is_nobodys_fault(tmp_path: Path) -> None:
    package = package_in(tmp_path)
    replace(package, "server/Dockerfile", BASE, "localhost/there-is-no-such-base:1")
    result = built(package, tmp_path / "kept")["static.reproducible_build"]
    assert result.status is CheckStatus.SKIP and "image_build" in result.evidence[0]


def test_a_subject_is_held_to_what_it_declares(engine: Any) -> None:
    subject = DockerValidationProvider().start(spec_of(engine))
    try:
        with urllib.request.urlopen(f"{subject.base_url}/health", timeout=10) as answer:
            assert answer.status == 200
        told = subject.inspect()
        assert (told["isolation"], told["network_mode"], told["read_only"]) == (
            "container",
            "none",
            True,
        )
        assert told["memory_bytes"] == 512 * 2**20
        done = subject.exec(["sh", "-c", "id -u; touch /etc/x || echo refused"], 20.0)
        assert "refused" in done.stdout and not done.stdout.startswith("0\n")
    finally:
        subject.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{subject.base_url}/health", timeout=5)


def test_what_an_engine_cannot_give_is_named(engine: Any) -> None:
    gpu = RESOURCES.model_copy(update={"gpus": 1})
    with pytest.raises(UnmetRequirement) as caught:
        DockerValidationProvider().start(spec_of(engine, resources=gpu))
    assert caught.value.capability == "gpu"


def test_a_subject_that_does_not_start_says_so(engine: Any) -> None:
    base = str(engine.inspect_image(BASE)["Id"]).removeprefix("sha256:")
    with pytest.raises(SubjectError) as caught:  # there is no server in it
        DockerValidationProvider().start(spec_of(engine, image_ref=f"sha256:{base}"))
    assert caught.value.phase in ("start", "readiness")
