"""Resolve all dependencies of the workspace for all supported Pythons into requirements.lock.

Environments outside the workspace have their own locks beside their `pyproject.toml`. A lock lists
versions and hashes but no host, so it works with any index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
FUZZ = ROOT / "tests" / "fuzz" / "requirements.lock"
HEADER = "# Locked by `make lock`, for Python 3.10 to 3.14. Do not edit.\n"


# Environments with many dependencies, or dependencies that need a compiler. Tests marked `packages`
# install them in separate virtual environments.
APART = {"reasoning_gym_env", "textarena_env"}


def requirements() -> list[str]:
    """Return the requirements of the workspace, without its own members."""
    root = _project(ROOT)
    wanted = [*root["project"]["dependencies"], *root["dependency-groups"]["dev"]]
    wanted += root["build-system"]["requires"] + ["editables>=0.5"]
    for path in sorted(ROOT.glob("envs/*/pyproject.toml")):
        if path.parent.name not in APART:
            wanted += _project(path.parent)["project"]["dependencies"]
    return wanted


def requirements_of(environment: Path) -> list[str]:
    """Return the requirements of one environment's image."""
    members = (ROOT, environment)
    return [line for member in members for line in _project(member)["project"]["dependencies"]]


def _project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())
    return found


def lock(wanted: list[str], path: Path) -> None:
    """Resolve requirements, without members of the workspace, into a file."""
    uv = Path(sys.executable).with_name("uv")
    with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
        source.write("\n".join(w for w in wanted if not w.lower().startswith("openenv")))
        source.flush()
        command = [str(uv), "pip", "compile", "--universal", "--python-version", "3.10"]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", source.name]
        resolved = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # nosec B603  # no shell
    path.write_text(HEADER + resolved)
    print(f"{path.relative_to(ROOT)}: {resolved.count('==')} packages")


def main() -> int:
    """Write all locks, or only the named ones: environments, or ``fuzz``."""
    named = sys.argv[1:]
    if not named:
        lock(requirements(), LOCK)
    if not named or "fuzz" in named:
        lock(_project(ROOT)["dependency-groups"]["fuzz"], FUZZ)
    for name in sorted(set(named) - {"fuzz"}) if named else sorted(APART):
        environment = ROOT / "envs" / name
        lock(requirements_of(environment), environment / LOCK.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
