"""Builds and subjects on a real engine, by Podman; see scripts/containers."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.validated import replace, write_package
from validation.containers.parts import BASE, RESOURCES, spec_of

from openenv.validation import CheckResult, CheckStatus, Level, validate
from openenv.validation.providers import SubjectError, UnmetRequirement
from openenv.validation.providers.docker import DockerValidationProvider

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
