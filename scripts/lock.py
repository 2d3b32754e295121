"""Resolve every dependency of the workspace, for all supported Pythons, into requirements.lock.

The file names versions and hashes and no host, so that it works with any index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = "# Locked by `make lock`, for Python 3.10 to 3.14. Do not edit.\n"


# Environments whose libraries are many, or need a compiler: they are tried in virtual environments
# of their own (tests marked `compat`).
APART = {"reasoning_gym_env", "textarena_env"}


def requirements() -> list[str]:
    """What the workspace asks for, less its own members."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*root["project"]["dependencies"], *root["dependency-groups"]["dev"]]
    wanted += root["build-system"]["requires"] + ["editables>=0.5"]
    for path in sorted(ROOT.glob("envs/*/pyproject.toml")):
        if path.parent.name in APART:
            continue
        wanted += tomllib.loads(path.read_text())["project"]["dependencies"]
    return [line for line in wanted if not line.lower().startswith("openenv")]


def main() -> int:
    """Write the lock."""
    uv = Path(sys.executable).with_name("uv")
    with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
        source.write("\n".join(requirements()))
        source.flush()
        command = [str(uv), "pip", "compile", "--universal", "--python-version", "3.10"]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", source.name]
        resolved = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # nosec B603  # no shell
    LOCK.write_text(HEADER + resolved)
    print(f"{LOCK.name}: {resolved.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
