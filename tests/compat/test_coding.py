"""Code: old clients on our coding server, and our `PyExecutor` beside the public package's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.venvs import python_of

# The first test may have to install the public package, and smolagents beside it.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
PEER = HERE.parents[1] / ".peers" / "coding"
PACKAGES = ("openenv==0.10.0", f"smolagents=={metadata.version('smolagents')}")

Serve = Callable[..., list[str]]
Play = Callable[..., Any]

# ------------------------------------------------------------------ old clients


@pytest.fixture(scope="module", params=["sandbox", "smolagents"])
def engine(request: pytest.FixtureRequest) -> str:
    engine: str = request.param
    return engine


@pytest.fixture(scope="module")
def seen(engine: str, serve: Serve, play: Play) -> dict[str, Any]:
    """What a program written for the public package saw, run by its Python and by ours."""
    (url,) = serve("ours", "coding_env.server.app:app", CODING_ENGINE=engine)
    return {whose: play(whose, "coding_client.py", url) for whose in ("peer", "ours")}


def test_a_client_of_the_public_package_runs_code(seen: dict[str, Any], engine: str) -> None:
    first, named, printed, divided, imported, long, broken, x, state, second, gone = seen["peer"][
        "sync"
    ]
    assert (first["reward"], first["done"], first["exit_code"]) == (0.0, False, 0)
    assert (named["exit_code"], named["reward"]) == (0, 0.1)
    assert (printed["stdout"].strip(), printed["reward"]) == ("42", 0.1)
    assert divided["exit_code"] == 1 and "division by zero" in divided["last_line"]
    assert divided["stdout"] == ""
    assert (imported["reward"], imported["violation"]) == (-0.9, r"import\s+os")
    assert imported["exit_code"] == (0 if engine == "sandbox" else 1)
    assert (long["stdout"].strip(), long["reward"]) == ("a" * 200, 0.0)
    assert broken["exit_code"] == 1 and broken["reward"] == pytest.approx(-0.1)
    assert x["stdout"].strip() == "6"
    assert {"last_exit_code": 0, "step_count": 7}.items() <= state.items()
    assert (second["reward"], second["exit_code"]) == (0.0, 0)
    assert gone["exit_code"] == 1, "reset has taken the names"


def test_each_code_is_in_the_metadata(seen: dict[str, Any]) -> None:
    assert seen["peer"]["sync"][2]["last_code"] == "print(x * 7)"


@pytest.mark.parametrize("whose", ["peer", "ours"])
def test_every_manner_sees_the_same(seen: dict[str, Any], whose: str) -> None:
    assert seen[whose]["async"] == seen[whose]["sync"]
    assert seen[whose]["side by side"] == [seen[whose]["sync"]] * 3


def test_both_packages_clients_see_the_same(seen: dict[str, Any]) -> None:
    assert seen["ours"] == seen["peer"]


# ------------------------------------------------------------------ PyExecutor


@pytest.fixture(scope="module")
def outcomes(play: Play) -> dict[str, Any]:
    """What came of the same pieces by the public package's `PyExecutor` and by ours."""
    command = [python_of(PEER, *PACKAGES), str(HERE / "executor_snippets.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {"peer": json.loads(done.stdout), "ours": play("ours", "executor_snippets.py")}


@pytest.mark.parametrize(
    "row", ["names", "values", "errors", "imports", "ours", "output", "extended"]
)
def test_py_executor_comes_to_the_same(outcomes: dict[str, Any], row: str) -> None:
    assert outcomes["ours"][row] == outcomes["peer"][row]


def test_the_pieces_are_as_many_as_the_rows_say(outcomes: dict[str, Any]) -> None:
    assert sum(map(len, outcomes["peer"].values())) >= 30
    assert outcomes["peer"]["names"]["x * 7"] == ["42", "", 0]
