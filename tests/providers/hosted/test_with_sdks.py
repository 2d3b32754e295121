"""Each provider by its service's own SDK, in a virtual environment that has it.

The SDKs want other versions of what they share with us and with each other. The tests of one are
the file ``in_<name>.py`` beside this one; a stand-in of its service, ``<name>_service.py``, answers
what the SDK sends, and starts real servers of environments.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.venvs import python_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SDKS = sorted(path.stem.removeprefix("in_") for path in HERE.glob("in_*.py"))

pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", SDKS)
def test_the_tests_of_a_service_pass_with_its_sdk(name: str) -> None:
    wanted = [HERE / f"requirements-{one}.txt" for one in (name, "tests")]
    asked = [word for path in wanted for word in ("-r", str(path))]
    python = python_of(
        ROOT / ".peers" / f"hosted-{name}",
        *asked,
        "-e",
        str(ROOT),
        "-e",
        str(ROOT / "envs" / "echo_env"),
        made_of="\n".join(path.read_text() for path in wanted),
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / f"in_{name}.py")],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
