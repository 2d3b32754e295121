"""Virtual environments of their own, for what cannot be installed beside ours."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[2] / "scripts" / "install.py"


def python_of(folder: Path, *packages: str, made_of: str = "") -> str:
    """The Python of a virtual environment that has `packages`, made when first asked for.

    Skips only if the index is out of reach.

    Args:
        folder: Where it is.
        packages: What is to be installed, in the words of `pip install`.
        made_of: What else has it made anew, when that changes.
    """
    python, ready, wanted = folder / "bin" / "python", folder / ".ready", "\n".join(packages)
    wanted += made_of
    if not (ready.exists() and ready.read_text() == wanted):
        ready.unlink(missing_ok=True)
        venv.create(folder, clear=True)
        install = [sys.executable, str(INSTALL), str(python), *packages]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if "error sending request" in done.stderr:  # uv's words for an index that does not answer
            pytest.skip(f"the package index cannot be reached to install {packages}")
        assert done.returncode == 0, done.stderr
        ready.write_text(wanted)
    return str(python)
