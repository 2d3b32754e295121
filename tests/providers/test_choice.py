"""Which provider runs an image where nobody has said so, on machines with and without engines."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from echo_env import EchoAction, EchoEnv
from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError
from openenv.providers import ProcessProvider
from openenv.providers.choice import provider_for


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose engine does not answer."""
    monkeypatch.delenv("OPENENV_RUN_IMAGES", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")


@pytest.mark.slow
@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_installed_package_is_served_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        EchoEnv.from_docker_image("ghcr.io/somebody/echo-env:latest").sync() as env,
    ):
        env.reset()
        assert env.step(EchoAction(message="hi")).observation.echoed_message == "hi"
    (said,) = [one.getMessage() for one in caplog.records if "no sandbox" in one.getMessage()]
    assert "echo_env in a process" in said and "no engine answers at unix://" in said


@pytest.mark.usefixtures("no_engine")
def test_without_both_it_says_how_to_get_either() -> None:
    with pytest.raises(ProviderError) as caught:
        EchoEnv.from_docker_image("no-such-env:latest").reset()
    words = str(caught.value)
    assert "no engine answers" in words and "pip install openenv-no-such-env" in words


def test_a_setting_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    assert isinstance(provider_for("echo-env", "echo-env"), ProcessProvider)
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "container")
    with pytest.raises(ProviderError, match="no engine answers"):
        provider_for("echo-env", "echo-env")
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "vm")
    with pytest.raises(ValueError, match="OPENENV_RUN_IMAGES is 'vm'"):
        provider_for("echo-env", "echo-env")


@pytest.mark.parametrize("has_it", [True, False])
def test_an_engine_that_has_the_image_is_not_passed_over_for_want_of_an_sdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_it: bool
) -> None:
    """A program in the engine's place says whether it has the image."""
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\nexit {0 if has_it else 1}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("OPENENV_RUN_IMAGES", raising=False)
    monkeypatch.setitem(sys.modules, "docker", None)
    if not has_it:
        assert isinstance(provider_for("echo-env", "echo-env"), ProcessProvider)
        return
    other = tmp_path / "docker"  # is asked first, and lacks the image
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    with pytest.raises(MissingPackage, match="OPENENV_RUN_IMAGES=process") as caught:
        provider_for("echo-env", "echo-env")
    assert str(program) in str(caught.value) and "openenv[docker]" in str(caught.value)
