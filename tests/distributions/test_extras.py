"""Every extra installs alone, and what it stands for imports; at the lowest versions too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from distributions.parts import PROJECTS, ROOT, about, built, groups, requirements, run, uv, venv

PROGRAM = Path(__file__).with_name("programs") / "imports.py"
EXTRAS: dict[str, list[str]] = about(ROOT)["optional-dependencies"]
GUIDE = ROOT / "docs" / "guides" / "installing.md"

# What an extra's packages are imported as, where that is not their name, and where not at all.
NAMES = {
    "azure-containerapps-sandbox": "azure",
    "azure-identity": "azure",
    "inspect-ai": "inspect_ai",
    "opentelemetry-api": "opentelemetry",
    "ray": None,  # providers ask its dashboard, by HTTP
    "websocket-client": None,  # the Kubernetes client's own need, for port forwarding
}


def packages_of(extra: str) -> set[str]:
    names = {re.split(r"[\[<>=; ]", line)[0] for line in EXTRAS[extra]}
    return {found for name in names if (found := NAMES.get(name, name)) is not None}


@pytest.mark.parametrize("project", PROJECTS[1:], ids=lambda path: path.name)
def test_the_extra_dev_of_an_environment_is_what_its_tests_need(project: Path) -> None:
    """``pip install -e "envs/coding_env[dev]"`` is documented, and pip knows no groups."""
    assert about(project)["optional-dependencies"]["dev"] == groups(project)["dev"]


@pytest.mark.packaging
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("resolution", ["highest", "lowest-direct"])
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_alone_and_imports(
    extra: str, resolution: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python, pins = venv(tmp_path / "venv"), tmp_path / "pins.txt"
    wanted = "\n".join(requirements() + requirements(ROOT, extra))
    command = ["--python", python, "--resolution", resolution, "--no-annotate", "--quiet"]
    uv("compile", *command, "-o", pins, "-", input=wanted)
    uv("install", "--python", python, "-r", pins)
    uv("install", "--python", python, "--no-deps", built(ROOT, tmp_path_factory)[1])
    run(python, "-I", PROGRAM, *sorted(packages_of(extra)), cwd=tmp_path)
    print(f"{extra}, {resolution}: {len(pins.read_text().splitlines())} packages")  # noqa: T201


def test_the_guide_tells_of_every_extra() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(EXTRAS)
