"""Every environment of this repository: the contract, in every lane; the same episode again; and
what it brings to be validated by.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.amounts import rest
from support.servers import serving

from openenv import GenericEnvClient, check_environment, create_app
from openenv.execution.spec import EnvironmentSpec
from openenv.images.context import read_build_context
from openenv.reward import RewardSpec
from openenv.validation.evidence import Transcript, episode_reward
from openenv.validation.manifest import NormalizedManifestV2
from openenv.validation.oracle import read_oracle
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.probes import Policy, read_plan, script_policy
from openenv.validation.wire import RawSession, play_episode

pytestmark = pytest.mark.slow

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "envs"


LEGAL = "what the observation says is legal"


class Subject(NamedTuple):
    """An environment, and how to act in it: actions in turn, as JSON has them."""

    cls: str
    actions: tuple[dict[str, Any], ...]
    reset: dict[str, Any] | None = None


SUBJECTS = {
    "atari_env": Subject(
        "atari_env.server.atari_environment:AtariEnvironment",
        tuple({"action_id": n} for n in (1, 2, 3, 0)),
    ),
    "blackjack_env": Subject(
        "blackjack_env.server.blackjack_environment:BlackjackEnvironment",
        ({"action": "hit"}, {"action": "stand"}),
    ),
    "chess_env": Subject(
        "chess_env.server.chess_environment:ChessEnvironment",
        ({"move": LEGAL},) * 8,
        {"agent_color": "white", "opponent": "random"},
    ),
    "coding_env": Subject(
        "coding_env.server.python_codeact_env:PythonCodeActEnv",
        ({"code": "import random\nprint(random.random())"}, {"code": "{str(n) for n in range(9)}"}),
    ),
    "echo_env": Subject(
        "echo_env.server.echo_environment:EchoEnvironment", ({"message": "a"}, {"message": "äöü"})
    ),
    "finrl_env": Subject(
        "finrl_env.server.finrl_environment:FinRLEnvironment",
        ({"actions": [0.5]}, {"actions": [-0.25]}),
    ),
    "game_2048_env": Subject(
        "game_2048_env.server.game_2048_environment:Game2048Environment",
        ({"move": LEGAL},) * 5,
    ),
    "openspiel_env": Subject(
        "openspiel_env.server.openspiel_environment:OpenSpielEnvironment",
        ({"action_id": 1}, {"action_id": 0}),
    ),
    "wordle_env": Subject(
        "wordle_env.server.wordle_environment:WordleEnvironment",
        ({"guess": "crane"}, {"guess": "spoil"}, {"guess": "humid"}),
    ),
}

# Whose libraries are in virtual environments of their own, or that need engines: their own tests
# hold them against the contract.
APART = {"browser_env", "reasoning_gym_env", "terminal_env", "textarena_env"}


def class_of(subject: Subject) -> Callable[[], Any]:
    module, _, name = subject.cls.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return found


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    return SUBJECTS[request.param]


def test_none_is_forgotten() -> None:
    there = {path.parent.name for path in ENVIRONMENTS.glob("*/openenv.yaml")}
    assert there == SUBJECTS.keys() | APART


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, rest(1)], ids=["threads", "processes"])
def test_the_contract_is_kept_in_every_lane(subject: Subject, workers: int) -> None:
    factory = class_of(subject)
    model = EnvironmentSpec.of(factory).action_cls
    given: Any = [_made(model, action) for action in subject.actions]
    if LEGAL in subject.actions[0].values():
        given = lambda seen: _made(model, _legal(subject.actions[0], seen.model_dump()))  # noqa: E731
    report = check_environment(
        factory, actions=given, reset_arguments=subject.reset, workers=workers, max_steps=8
    )
    assert not report.broken


def _made(model: Any, fields: dict[str, Any]) -> Any:
    members = getattr(model, "__args__", (model,))
    named = next(one for one in members if fields.keys() <= one.model_fields.keys())
    return named.model_construct(**fields) if LEGAL in fields.values() else named(**fields)


def _legal(action: dict[str, Any], observation: Mapping[str, Any]) -> dict[str, Any]:
    """The action, with the first of what may be done (at the end: nothing may) where it says so."""
    legal = observation.get("legal_actions") or observation.get("legal_moves")
    first = (legal or ["up"])[0]
    return {name: first if value == LEGAL else value for name, value in action.items()}


@pytest.mark.timeout(120)
def test_the_same_seed_and_actions_give_the_same_record(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in one process, in a worker, and by either version of the protocol."""
    told = []
    for number, (workers, version) in enumerate([(None, 1), (None, 1), (1, 1), (None, 0), (1, 0)]):
        monkeypatch.setenv("OPENENV_PROTOCOL", str(version))
        folder = tmp_path / str(number)
        app = create_app(class_of(subject), workers=workers, record=folder)
        with GenericEnvClient.local(app).sync() as env:
            result = env.reset(seed=7, **(subject.reset or {}))
            for action in subject.actions:
                if result.done:
                    break
                result = env.step(_legal(action, result.observation))
        told.append(_essence(folder))
    assert len(told[0]) >= 2
    for other in told[1:]:
        assert other == told[0]


TIMES = {"time", "seconds", "created", "session_id", "episode_id", "id"}  # of events


def _essence(folder: Path) -> list[bytes]:
    """The events of the only recording, byte for byte but for times and names of sessions."""
    (path,) = folder.rglob("*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    kept = (
        {k: v for k, v in event.items() if k not in TIMES}
        for event in events
        if event["event"] in ("reset", "step")
    )
    return [json.dumps(one, sort_keys=True).encode() for one in kept]


# ------------------------------------------------------------------ what rewards mean


def test_each_episode_tells_a_range_of_rewards(subject: Subject) -> None:
    """Without one, an episode that was given up is worth 0, also where a lost one is worth less."""
    with GenericEnvClient.local(class_of(subject)).sync() as env:
        env.reset(**(subject.reset or {}))
        assert env.reward_spec is not None and env.reward_spec.range is not None
        low, high = env.reward_spec.range
    assert low < high


@pytest.mark.parametrize("name", sorted(APART))
def test_those_with_libraries_declare_a_range_of_rewards(name: str) -> None:
    declared = [
        call
        for path in (ENVIRONMENTS / name / "server").glob("*.py")
        for statement in ast.walk(ast.parse(path.read_text()))
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "REWARD"
        for call in [statement.value]
    ]
    assert len(declared) == 1 and isinstance(declared[0], ast.Call)
    given = [ast.literal_eval(one) for one in declared[0].args]
    assert RewardSpec(*given).range is not None


# ------------------------------------------------------------------ what validates it


@pytest.mark.parametrize("name", sorted(SUBJECTS.keys() | APART))
def test_what_it_is_validated_by_is_there_and_goes_into_no_image(name: str) -> None:
    root = ENVIRONMENTS / name
    manifest = OpenEnvYamlParser().parse(root)
    assert isinstance(manifest, NormalizedManifestV2)
    assert manifest.capabilities.oracle is not None
    plan, oracle = manifest.execution.probe_path, manifest.capabilities.oracle.location
    assert read_plan(root / plan).actions
    assert (root / oracle).is_file()
    shipped = read_build_context(root / manifest.execution.context).files
    assert not {plan, oracle} & set(shipped)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SUBJECTS)
def test_its_oracle_gets_the_highest_reward_and_idleness_does_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    root = ENVIRONMENTS / name
    manifest = OpenEnvYamlParser().parse(root)
    assert isinstance(manifest, NormalizedManifestV2) and manifest.capabilities.oracle is not None
    (low, high), plan = manifest.reward.range, read_plan(root / manifest.execution.probe_path)
    app = importlib.import_module(f"{name}.server.app").app
    with read_oracle(manifest.capabilities.oracle, root, plan) as oracle, serving(app) as url:
        assert oracle.program is not None
        probe = played(url, plan.reset, script_policy(plan.actions or ()))
        assert not probe.errors
        for episode in oracle.episodes:
            solved = played(url, episode.reset, oracle.program.policy("oracle"))
            assert not solved.errors
            tolerated = manifest.reward.oracle_tolerance * (high - low) + 1e-9
            assert episode_reward(solved) == pytest.approx(high, abs=tolerated)
            idle = played(url, episode.reset, oracle.program.policy("do_nothing"))
            assert (episode_reward(idle) or 0.0) <= high - manifest.reward.floor_margin
            rewards = [m.reward for t in (probe, solved, idle) for m in t.steps]
            assert all(reward is None or low <= reward <= high for reward in rewards)


def played(url: str, reset: Mapping[str, Any], policy: Policy) -> Transcript:
    async def one() -> Transcript:
        async with RawSession(url) as session:
            return await play_episode(session, reset, policy, max_steps=100)

    return asyncio.run(one())
