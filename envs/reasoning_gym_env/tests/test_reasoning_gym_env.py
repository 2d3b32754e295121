"""Tests of the Reasoning Gym environment, without the library and in a process that has it.

`with_reasoning_gym.py` has the tests that need the library. They run in a virtual environment with
the library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.venvs import python_of

from openenv import Environment
from openenv.types import public_view
from reasoning_gym_env import (
    ReasoningGymAction,
    ReasoningGymEnv,
    ReasoningGymObservation,
    ReasoningGymState,
)
from reasoning_gym_env.harness import ReasoningGymSessionFactory

HERE = Path(__file__).parent
PACKAGE = HERE.parent
ROOT = PACKAGE.parents[1]


def test_the_client_side_does_not_import_the_library() -> None:
    code = (
        "import sys, reasoning_gym_env; "
        "assert 'reasoning_gym' not in sys.modules and 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_fields_are_those_of_the_public_package() -> None:
    own = set(ReasoningGymObservation.model_fields)
    assert {"question", "score", "correct_answer", "dataset_metadata"} < own
    assert ReasoningGymAction(answer="4").answer == "4"


class Asking(Environment[ReasoningGymAction, ReasoningGymObservation, ReasoningGymState]):
    """An environment with one question that records its resets and needs no library."""

    given: ClassVar[list[dict[str, Any]]] = []

    def reset(self, seed: int | None = None, **arguments: Any) -> ReasoningGymObservation:  # type: ignore[override]
        self.given.append({"seed": seed, **arguments})
        return ReasoningGymObservation(question="6 * 7?")

    def step(self, action: ReasoningGymAction, **_: Any) -> ReasoningGymObservation:  # type: ignore[override]
        score = float(action.answer == "42")
        return ReasoningGymObservation(score=score, correct_answer="42", reward=score, done=True)

    @property
    def state(self) -> ReasoningGymState:
        return ReasoningGymState()


def test_a_question_is_a_session_of_a_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asking, "given", [])
    factory = ReasoningGymSessionFactory(
        lambda: ReasoningGymEnv.local(Asking), dataset_name="products", dataset_config={"max": 9}
    )
    session = factory.create(seed=3)
    assert session.initial_messages() == [{"role": "user", "content": "6 * 7?"}]
    asked = {"seed": 3, "dataset_name": "products", "dataset_config": {"max": 9}, "size": 1}
    assert Asking.given == [asked]
    result = session.call_tool("answer", {"answer": "42"})
    assert (result.done, result.data["score"], result.data["correct_answer"]) == (True, 1.0, "42")
    assert session.verify([]).env_reward == 1.0
    session.close()
    factory.create().close()
    assert isinstance(Asking.given[1]["seed"], int)


def test_the_answer_is_a_private_field_of_the_state() -> None:
    state = ReasoningGymState(correct_answer="42", dataset_name="leg_counting")
    assert "42" not in str(public_view(state))


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_it_keeps_its_promises_with_the_library() -> None:
    wanted = (ROOT / "pyproject.toml").read_text() + (PACKAGE / "pyproject.toml").read_text()
    editable = [word for path in (ROOT, PACKAGE) for word in ("--editable", str(path))]
    packages = ["--compile-bytecode", *editable, "pytest", "pytest-timeout"]
    python = python_of(ROOT / ".peers" / "reasoning", *packages, made_of=wanted)
    tests = HERE / "with_reasoning_gym.py"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
