"""Virtual environments of their own, for what cannot be installed beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.locks import exclusive

INSTALL = Path(__file__).parents[2] / "scripts" / "install.py"


def python_of(
    folder: Path, *packages: str, made_of: str = "", at_least: tuple[int, int] = (3, 10)
) -> str:
    """The Python of a virtual environment that has `packages`, made when first asked for.

    Skips only if the index is out of reach, or there is no Python as new as that.

    Args:
        folder: Where it is.
        packages: What is to be installed, in the words of `pip install`.
        made_of: What else has it made anew, when that changes.
        at_least: The version of Python that the packages want.
    """
    python, ready, wanted = folder / "bin" / "python", folder / ".ready", "\n".join(packages)
    wanted += made_of
    with exclusive(folder.with_name(f"{folder.name}.lock")):
        if not (ready.exists() and ready.read_text() == wanted):
            ready.unlink(missing_ok=True)
            made = _run(_python(at_least), "-m", "venv", "--clear", str(folder))
            assert made.returncode == 0, made.stdout + made.stderr  # venv prints errors to stdout
            done = _run(sys.executable, str(INSTALL), str(python), *packages)
            if "error sending request" in done.stderr:  # uv's words when an index does not answer
                pytest.skip(f"the package index cannot be reached to install {packages}")
            assert done.returncode == 0, done.stderr
            ready.write_text(wanted)
    return str(python)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _python(at_least: tuple[int, int]) -> str:
    """The Python that runs this, or a newer one of pyenv's."""
    if sys.version_info >= at_least:
        return sys.executable
    for minor in range(at_least[1], at_least[1] + 4):
        for found in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")):
            return str(found)
    pytest.skip(f"there is no Python {at_least[0]}.{at_least[1]}")
