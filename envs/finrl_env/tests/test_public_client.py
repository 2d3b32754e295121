"""Tests of our server with a program that is written for the public package."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.servers import serving
from support.venvs import python_of

from finrl_env.models import FinRLAction
from finrl_env.server.finrl_environment import FinRLEnvironment

# The first test may have to install the public package.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
PUBLIC = "openenv==0.10.0"


@pytest.fixture(scope="module")
def played() -> Iterator[Any]:
    """Return the results of the public package's client on a server with the default settings."""
    python = python_of(ROOT / ".peer", PUBLIC)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FINRL_CONFIG_PATH", raising=False)
        from finrl_env.server.app import app

        with serving(app) as url:
            yield run(python, url)


def run(python: str, url: str) -> Any:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENENV"))}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("play_public.py")), url],
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_configuration_is_the_public_one(played: Any) -> None:
    assert played["config"] == {
        "stock_dim": 1,
        "initial_amount": 100_000,
        "action_space": 1,
        "state_space": 7,
        "tech_indicators": ["macd", "rsi_30", "cci_30", "dx_30"],
    }


def test_an_episode_takes_a_hundred_steps_of_a_hundred_days(played: Any) -> None:
    seen = played["sync"]["seen"]
    assert len(seen) == 101
    assert [one["done"] for one in seen] == [False] * 100 + [True]
    assert len({one["date"] for one in seen}) == 100
    assert {len(one["state"]) for one in seen} == {7}
    assert seen[0]["state"][0] == seen[0]["portfolio_value"] == 100_000
    assert seen[0]["state"][2] == seen[0]["reward"] == 0
    assert played["sync"]["step_count"] == 100


def test_rewards_and_values_are_those_of_the_shares_held(played: Any) -> None:
    for before, after in pairwise(played["sync"]["seen"][:-1]):
        cash, price, shares = after["state"][:3]
        assert after["portfolio_value"] == pytest.approx(cash + price * shares, rel=1e-12)
        gain = after["portfolio_value"] - before["portfolio_value"]
        assert after["reward"] == pytest.approx(gain * 1e-4, rel=1e-9)


def test_mistakes_are_errors_of_the_same_code_and_the_episode_goes_on(played: Any) -> None:
    early, too_long, late = played["sync"]["mistakes"]
    assert all("EXECUTION_ERROR" in one for one in (early, too_long, late))
    assert "reset" in early and "2 numbers" in too_long and "done" in late


def test_the_public_client_sees_what_the_environment_says(played: Any) -> None:
    env = FinRLEnvironment({})
    here = [env.reset()]
    here += [env.step(FinRLAction(actions=[amount])) for amount in (1.0, -1.0, 0.3)]
    assert [one["state"] for one in played["async"]["seen"]] == [one.state for one in here]
    assert [one["reward"] for one in played["async"]["seen"]] == [one.reward for one in here]
    assert (played["async"]["episode_id"], played["async"]["step_count"]) == ("mine", 3)
