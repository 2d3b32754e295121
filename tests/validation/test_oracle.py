"""The forms of an oracle, and what is told of one that is none."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from openenv.validation.manifest import OracleDeclaration
from openenv.validation.oracle import OracleError, OracleProgram, read_oracle
from openenv.validation.probes import ProbePlan, ProbeView


def declared(location: str, form: Any = "script") -> OracleDeclaration:
    return OracleDeclaration(form=form, location=location)


def package(root: Path, name: str, content: Any) -> Path:
    path = root / "validation" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def test_a_trajectory_that_is_written_down_is_played(tmp_path: Path) -> None:
    content = {"episodes": [{"reset": {"seed": 1}, "actions": [{"say": "a"}]}]}
    oracle = read_oracle(
        declared("validation/o.json"), package(tmp_path, "o.json", content), ProbePlan()
    )
    (episode,) = oracle.episodes
    policy = oracle.policy(episode)
    assert policy is not None
    assert policy(ProbeView({}, 0)) == {"say": "a"} and policy(ProbeView({}, 1)) is None


def test_a_state_may_be_a_snapshot(tmp_path: Path) -> None:
    content = {"reset": {}, "snapshot": base64.b64encode(b"solved").decode()}
    root = package(tmp_path, "o.json", content)
    oracle = read_oracle(declared("validation/o.json", "injected_state"), root, ProbePlan())
    assert oracle.episodes[0].snapshot == b"solved"
    assert oracle.episodes[0].actions is None


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ({"episodes": []}, "script"),
        ({"episodes": [{"reset": {}}]}, "script"),  # a trajectory without actions
        ({"reset": {}, "snapshot": "%"}, "injected_state"),
        ({"reset": [], "actions": []}, "script"),
        ({"reset": {}, "actions": ["a"]}, "script"),
        ({"rset": {}, "actions": []}, "script"),
        ("{", "script"),
    ],
)
def test_a_file_of_json_that_is_no_oracle_is_refused(
    tmp_path: Path, content: Any, form: str
) -> None:
    root = package(tmp_path, "o.json", content)
    with pytest.raises(OracleError):
        read_oracle(declared("validation/o.json", form), root, ProbePlan())


def test_an_oracle_lies_in_its_package(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    (tmp_path / "package").mkdir()
    for location in ("missing.json", "../outside.json"):
        with pytest.raises(OracleError):
            read_oracle(declared(location), tmp_path / "package", ProbePlan())


PROGRAM = """
print("this goes to standard error")
EPISODES = [{"task": "t1"}]
def oracle(view):
    return {"say": view.state["word"]} if view.step < 2 else None
def secrets(view):
    return [view.state["word"]]
"""


def test_a_program_plays_by_what_it_is_shown(tmp_path: Path) -> None:
    root = package(tmp_path, "o.py", PROGRAM)
    with read_oracle(declared("validation/o.py"), root, ProbePlan()) as oracle:
        (episode,) = oracle.episodes
        policy = oracle.policy(episode)
        assert policy is not None
        assert policy(ProbeView({}, 0, {"word": "go"})) == {"say": "go"}
        assert policy(ProbeView({}, 2, {"word": "go"})) is None
        assert oracle.secrets(ProbeView({}, 0, {"word": "go"})) == ["go"]
        assert not oracle.has_function("do_nothing")
        assert episode.reset == {"episode_id": "oracle-0", "task": "t1"}


def test_a_program_may_import_from_its_package(tmp_path: Path) -> None:
    root = tmp_path / "my_env"
    (root / "validation").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "models.py").write_text(
        "from openenv.types import Action\nclass A(Action):\n    n: int"
    )
    (root / "validation" / "o.py").write_text(
        "from ..models import A\ndef oracle(view):\n    return A(n=view.step)"
    )
    with read_oracle(declared("validation/o.py"), root, ProbePlan()) as oracle:
        policy = oracle.policy(oracle.episodes[0])
        assert policy is not None and policy(ProbeView({}, 3)) == {"n": 3}


@pytest.mark.parametrize(
    "text",
    [
        "raise RuntimeError('no weights')",
        "def solve(view): ...",
        "EPISODES = 7\ndef oracle(view): ...",
        "import os; os._exit(3)",
    ],
)
def test_a_program_that_is_no_oracle_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OracleError):
        read_oracle(declared("validation/o.py"), package(tmp_path, "o.py", text), ProbePlan())


@pytest.mark.slow
def test_a_program_that_raises_or_hangs_is_told(tmp_path: Path) -> None:
    text = "import time\ndef oracle(view):\n    1 / 0\ndef secrets(view):\n    time.sleep(60)"
    root = package(tmp_path, "o.py", text)
    program = OracleProgram(root / "validation" / "o.py", root, call_s=0.5)
    try:
        with pytest.raises(OracleError) as raised:
            program.call("oracle", ProbeView({}, 0))
        assert "ZeroDivisionError" in str(raised.value)
        with pytest.raises(OracleError):
            program.call("secrets", ProbeView({}, 0))
        assert program._process.poll() is not None, "it was ended"
    finally:
        program.close()
