"""Our own environments pass; in containers they do so by `make badges`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.amounts import mostly_extended
from support.commands import ENVIRONMENTS

from openenv.validation import CheckStatus, validate
from openenv.validation.providers.process import ProcessValidationProvider

# What only a container, or the building of one, can show.
UNSEEN = {
    "static.reproducible_build",
    "static.sbom",
    "runtime.network_policy",
    "runtime.host_containment",
    "runtime.resource_bounds",
}
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/openenv.yaml"))
LIBRARIES = {"reasoning_gym_env": "reasoning_gym", "textarena_env": "textarena"}


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", mostly_extended(NAMES, ["echo_env"]))
def test_it_passes_all_that_a_process_can_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (library := LIBRARIES.get(name)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    validation = validate(
        ENVIRONMENTS / name,
        skip_build=True,
        provider=ProcessValidationProvider(),
        artifacts_dir=tmp_path,
    )
    unsure = {
        result.check_id: result.evidence
        for result in validation.report.results
        if result.status is not CheckStatus.PASS and result.check_id not in UNSEEN
    }
    unsure.pop("semantic.verifier_portability", None)  # without a network nobody can tell here
    assert unsure == {}


@pytest.mark.parametrize("name", NAMES)
def test_its_readme_shows_that_it_passes(name: str) -> None:
    root = ENVIRONMENTS / name
    assert "](badge.svg)" in (root / "README.md").read_text()
    assert "openenv validate: pass 100" in (root / "badge.svg").read_text()
