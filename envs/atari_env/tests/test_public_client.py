"""Tests of our server with an unchanged program that is written for the public package."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.servers import serving
from support.venvs import python_of

from atari_env.models import AtariAction, AtariObservation
from atari_env.server.app import app
from atari_env.server.atari_environment import AtariEnvironment
from openenv.reward import REWARD_INFO

HERE = Path(__file__).parent
PEER = Path(__file__).parents[3] / ".peer"
PUBLIC = "openenv==0.10.0"

# The first test may have to install the public package.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]


def played(url: str) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV"))}
    command = [python_of(PEER, PUBLIC), str(HERE / "public_program.py"), url]
    done = subprocess.run(
        command, capture_output=True, text=True, env=kept, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(seen: AtariObservation) -> dict[str, Any]:
    return {
        "screen": hashlib.sha256(seen.screen.tobytes()).hexdigest(),
        "screen_shape": seen.screen_shape,
        "legal_actions": seen.legal_actions,
        "lives": seen.lives,
        "frames": [seen.episode_frame_number, seen.frame_number],
        "metadata": seen.metadata,
        "reward": seen.reward,
        "done": seen.done,
    }


def test_the_public_client_plays_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATARI_GAME", "breakout")
    monkeypatch.setenv("ATARI_FULL_ACTION_SPACE", "true")
    with serving(app) as url:
        seen = played(url)
    env = AtariEnvironment()
    reference = [expected(env.reset())]
    reference += [
        expected(env.step(AtariAction(action_id=action))) for action in [1, 2, 3, 4, 5, 0] * 4
    ]
    assert env.REWARD is not None
    reference[0]["metadata"][REWARD_INFO] = {"spec": env.REWARD.as_data()}
    assert seen["seen"] == reference
    assert seen["seen"][0]["reward"] == 0.0
    assert "illegal action 99 in breakout" in seen["refused"]
    assert "EXECUTION_ERROR" in seen["refused"]
    state = seen["state"]
    assert (state["game_name"], state["obs_type"], state["frameskip"]) == ("breakout", "rgb", 4)
    assert (state["full_action_space"], state["step_count"]) == (True, 24)
    assert (state["mode"], state["difficulty"]) == (None, None)
