"""The public package, in the virtual environment that the compatibility tests also use.

uvloop and httptools, which make it faster but are not dependencies, are in a folder of their own.
So is ALE, whose games both packages serve. The reason is that the contents of an install of the
package are themselves measured.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["EXTRAS", "PUBLIC", "peer_python"]

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peer"
PUBLIC = "openenv==0.10.0"
EXTRAS = PEER / "extras"
BESIDE = {"uvloop": "uvloop", "httptools": "httptools", "ale_py": "ale-py>=0.12,<0.13"}


def peer_python() -> Path:
    """Return the Python of `.peer`, which is installed if missing.

    Raises:
        SystemExit: The installation failed.
    """
    python, ready = PEER / "bin" / "python", PEER / ".ready"
    if not (ready.exists() and ready.read_text() == PUBLIC):
        print(f"installing {PUBLIC} into {PEER}", file=sys.stderr)
        ready.unlink(missing_ok=True)
        venv.create(PEER, clear=True)
        _install(python, PUBLIC)
        ready.write_text(PUBLIC)
    missing = [package for name, package in BESIDE.items() if not (EXTRAS / name).is_dir()]
    if missing:  # the public package has NumPy, which ALE needs
        _install(python, "--target", str(EXTRAS), "--no-deps", *missing)
    return python


def _install(python: Path, *what: str) -> None:
    install = [sys.executable, str(ROOT / "scripts" / "install.py"), str(python)]
    done = subprocess.run([*install, *what], check=False, stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(what)} could not be installed")


if __name__ == "__main__":
    print(peer_python())
