"""What is asked for can be had: on every Python and machine, and without a compiler."""

from __future__ import annotations

import pytest
from distributions.parts import PROJECTS, VERSIONS, requirements, uv

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(900)]

MACHINES = (
    "x86_64-manylinux_2_28",
    "aarch64-manylinux_2_28",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
)
NEWEST_AND_OLDEST = (VERSIONS[0], VERSIONS[-1])
# What comes as sources of pure Python, which pip builds without a compiler.
PURE_SOURCES = ("chess",)
# Of Reasoning Gym's own needs, one (pycosat) comes as sources in C.
NEED_A_COMPILER = {"reasoning_gym_env"}


def resolve(wanted: list[str], version: str, machine: str, *more: str) -> str:
    """Resolve to what comes as a wheel."""
    options = ["--only-binary", ":all:", "--python-version", version, "--python-platform", machine]
    return uv("compile", "--quiet", *options, *more, "-", input="\n".join(wanted))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_installation_is_wheels_alone(version: str) -> None:
    assert resolve(requirements(), version, MACHINES[0])


@pytest.mark.parametrize("machine", MACHINES[1:])
@pytest.mark.parametrize("version", NEWEST_AND_OLDEST)
def test_so_it_is_on_other_machines(version: str, machine: str) -> None:
    assert resolve(requirements(), version, machine)


@pytest.mark.parametrize("version", NEWEST_AND_OLDEST)
def test_the_environments_can_be_installed_side_by_side_without_a_compiler(version: str) -> None:
    projects = [project for project in PROJECTS if project.name not in NEED_A_COMPILER]
    wanted = {line for project in projects for line in requirements(project)}
    more = [word for name in PURE_SOURCES for word in ("--no-binary", name)]
    assert resolve(sorted(wanted), version, MACHINES[0], *more)
