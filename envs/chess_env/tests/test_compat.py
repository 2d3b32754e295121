"""Tests of our server with a client that was written for the public package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.servers import serving
from support.venvs import python_of

from openenv import create_app

from .. import ChessAction, ChessObservation, ChessState
from ..server.chess_environment import ChessEnvironment

HERE = Path(__file__).parent
PEER = HERE.parents[2] / ".peer"
PUBLIC = "openenv==0.10.0"

# The first test may have to install the public package.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = create_app(
        partial(ChessEnvironment, None),
        ChessAction,
        ChessObservation,
        env_name="chess_env",
        state_cls=ChessState,
    )
    with serving(app) as served:
        yield served


@pytest.fixture(scope="module", params=["theirs", "ours"])
def seen(request: pytest.FixtureRequest, url: str) -> Any:
    """Return the client's results with the public package's Python and with ours."""
    python = python_of(PEER, PUBLIC) if request.param == "theirs" else sys.executable
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV"))}
    done = subprocess.run(
        [python, str(HERE / "chess_client.py"), url],
        capture_output=True,
        text=True,
        env=kept,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_public_client_plays_a_game_to_its_end(seen: Any) -> None:
    first, wrong, *moves, mate, state, second, won = seen["sync"]
    assert not first["done"] and len(first["observation"]["legal_moves"]) == 20
    assert (wrong["reward"], wrong["done"]) == (-0.1, False)
    assert wrong["observation"]["fen"] == first["observation"]["fen"]
    assert [(move["reward"], move["done"]) for move in moves] == [(0.0, False)] * 3
    assert (mate["reward"], mate["done"]) == (-1.0, True)  # the reward of White's side
    assert mate["observation"]["result"] == "0-1" and mate["observation"]["is_check"]
    assert len(mate["observation"]["metadata"]["discounted_rewards"]) == 4
    assert state["move_history"] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    assert (state["episode_id"], state["step_count"]) == ("e", 4)
    assert second["observation"]["legal_moves"] and not second["done"]
    assert (won["reward"], won["done"], won["observation"]["result"]) == (1.0, True, "1-0")


def test_every_manner_of_the_public_client_sees_the_same(seen: Any) -> None:
    assert seen["async"] == seen["sync"]
    assert seen["side by side"] == [seen["sync"]] * 4
