"""Policies in all the forms that users write them, and those that have a name."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter
from rollouts.worlds import Say, Talk
from support.environments import Counter

from openenv import Action, Environment, GenericEnvClient, Observation, State
from openenv.rollouts import (
    Decision,
    PerEpisode,
    PolicyError,
    PolicyTurn,
    Rollout,
    RolloutLimits,
    policy_named,
    rollout,
)
from openenv.rollouts.policies.chances import RandomPolicy, sample_value
from openenv.rollouts.policies.people import HumanPolicy
from openenv.rollouts.policies.scripts import ScriptedPolicy
from openenv.tasks import Task


def only(*arguments: Any, **options: Any) -> Rollout:
    (found,) = rollout(*arguments, concurrency=1, **options).rollouts
    return found


# ------------------------------------------------------------------ functions, classes, objects


def test_a_function_is_told_what_it_names() -> None:
    told: list[Any] = []

    def policy(
        seen: Any, task: Any, step: int, history: Any, result: Any, seconds_left: Any
    ) -> dict[str, str]:
        told.append((task["id"], step, list(history), result.reward, seconds_left is None))
        return {"word": ("a", "over")[step]}

    only(Talk, policy, [Task(id="t")])
    first = ({"word": "a"}, {"metadata": {}, "words": ["a"]})
    assert told == [("t", 0, [], None, True), ("t", 1, [first], 1.0, True)]


def test_a_function_may_ask_for_the_whole_turn() -> None:
    def policy(turn: PolicyTurn) -> Say:
        assert turn.observation["words"] == []
        return Say(word="over")

    assert only(Talk, policy).outcome == "done"


async def _later(observation: Any) -> dict[str, str]:
    return {"word": "over"}


def test_a_function_may_be_a_coroutine_or_an_object() -> None:
    class Shared:
        def act(self, observation: Any) -> dict[str, str]:
            return {"word": "over"}

    for policy in (_later, Shared(), lambda _: {"word": "over"}):
        assert only(Talk, policy).outcome == "done"


def test_a_class_is_made_anew_for_each_episode() -> None:
    class Remembers:
        def __init__(self) -> None:
            self.messages: list[dict[str, Any]] = []

        async def reset(self, rollout_id: str, task: Any) -> None:
            assert rollout_id.startswith(task["id"])

        def act(self, observation: Any) -> dict[str, str]:
            self.messages.append({"role": "user", "content": "x"})
            return {"word": "over" if len(self.messages) == 3 else "a"}

    run = rollout(Talk, Remembers, [Task(id=f"t{n}") for n in range(6)], concurrency=3)
    assert {len(found.messages) for found in run} == {3}
    named = PerEpisode(Remembers, name="memory")
    assert rollout(Talk, named, [Task(id="t")]).header.policy == "memory"


def test_messages_that_are_no_conversation_are_no_part_of_the_record(tmp_path: Path) -> None:
    class Notes:
        def __init__(self) -> None:
            self.messages = ["one", "two"]

        def act(self, observation: Any) -> dict[str, str]:
            return {"word": "over"}

    run = rollout(Talk, Notes, n=2, output=tmp_path / "x.jsonl")
    assert [found.messages for found in run] == [[], []]


def test_a_plain_policy_may_ask_a_synchronous_client_each_time() -> None:
    """However quick it was: on the event loop that the client lives on nobody would answer."""
    with GenericEnvClient.local(Talk).sync() as other:

        def ahead(observation: Any) -> dict[str, str]:
            other.reset()
            return {"word": "over" if other.step({"word": "over"}).done else "a"}

        run = rollout(Talk, ahead, n=30, concurrency=2)
    assert run.summary().outcomes == {"done": 30}


def test_an_object_that_remembers_plays_no_two_episodes_at_once() -> None:
    class One:
        def reset(self) -> None: ...

        def act(self, observation: Any) -> dict[str, str]:
            return {"word": "over"}

    with pytest.raises(PolicyError, match="at once"):
        rollout(Talk, One(), concurrency=2)
    assert len(rollout(Talk, One(), n=3, concurrency=1)) == 3


@pytest.mark.parametrize("wrong", [3, None, int, "nobody", "random:", "scripted:", "json:nothing"])
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(PolicyError):
        rollout(Talk, wrong)


def test_a_policy_that_gives_no_action_has_failed() -> None:
    found = only(Talk, lambda _: "over", error_budget=1)
    assert [failure.type for failure in found.failures] == ["TypeError"]


def test_a_decision_tells_how_it_came_about() -> None:
    def policy(observation: Any) -> Decision:
        record = {"text": "done!", "logprobs": [-0.5]}
        return Decision({"word": "over"}, record, 2, 30, 4)

    found = only(Talk, policy)
    assert found.steps[0].policy == {
        "text": "done!",
        "logprobs": [-0.5],
        "completion_tokens": 4,
    }
    usage = found.usage
    assert (usage.model_calls, usage.prompt_tokens, usage.completion_tokens) == (2, 30, 4)


# ------------------------------------------------------------------ by chance


class Inner(BaseModel):
    kind: Literal["inner"] = "inner"
    flags: list[bool] = Field(min_length=1, max_length=4)


class Tree(BaseModel):
    value: int
    below: list[Tree] = Field(default_factory=list)


class Everything(BaseModel):
    small: Annotated[int, Field(gt=2, lt=5)]
    large: Annotated[int, Field(ge=-5, le=-3)]
    even: Annotated[int, Field(multiple_of=4, ge=1, le=9)]
    real: Annotated[float, Field(gt=0.25, lt=0.5)]
    text: Annotated[str, Field(min_length=3, max_length=5)]
    choice: Literal["a", "b", 3]
    maybe: int | None
    pair: tuple[int, str]
    union: Inner | bool
    inner: Inner
    anything: dict[str, int] = Field(default_factory=dict)
    tree: Tree


@given(st.integers(0, 2**31))
def test_what_is_made_up_fits_its_model(seed: int) -> None:
    made = sample_value(Everything.model_json_schema(), Random(seed))
    Everything.model_validate(json.loads(json.dumps(made)))


def test_what_cannot_be_made_up_is_refused() -> None:
    for schema in (
        {"type": "string", "pattern": "^a+$"},
        {"type": "integer", "minimum": 3, "maximum": 2},
    ):
        with pytest.raises(PolicyError):
            sample_value(schema, Random(0))


class Move(Action):
    type: Literal["move"] = "move"
    to: int = Field(ge=0, le=99)


class Wait(Action):
    type: Literal["wait"] = "wait"


class Board(Observation):
    legal_moves: list[int] = Field(default_factory=list)


class Walk(Environment[Move, Board, State]):
    """Takes moves to where it says that one may."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.at = 0

    def reset(self, seed: int | None = None) -> Board:  # type: ignore[override]
        self.at = 0
        return Board(legal_moves=[40, 41])

    def step(self, action: Move) -> Board:  # type: ignore[override]
        assert action.to in (40, 41)
        self.at += 1
        return Board(legal_moves=[40, 41], done=self.at == 5, reward=1.0)

    @property
    def state(self) -> State:
        return State(step_count=self.at)


def test_chance_takes_legal_moves_where_the_environment_tells_of_them() -> None:
    found = only(Walk, "random", seed=3)
    assert found.outcome == "done"
    assert {step.action["to"] for step in found.steps} <= {40, 41}


def test_chance_is_the_same_in_the_same_rollout_and_another_in_another() -> None:
    runs = [
        rollout(Talk, "random", n=4, seed=seed, limits=RolloutLimits(steps=3)) for seed in (1, 1, 2)
    ]
    said = [{r.id: [step.action["word"] for step in r.steps] for r in run} for run in runs]
    assert said[0] == said[1]
    assert len({json.dumps(words) for words in said[0].values()}) == 4


def test_samples_of_a_group_are_played_otherwise() -> None:
    run = rollout(Talk, "random", [Task(id="t")], n=4, limits=RolloutLimits(steps=2), seed=1)
    assert len({r.seed for r in run}) == 1
    assert len({json.dumps([step.action for step in r.steps]) for r in run}) == 4


def test_chance_takes_every_kind_of_action() -> None:
    from openenv.rollouts.interfaces import Interface
    from openenv.rollouts.policies.base import EpisodeOpening

    union: Any = TypeAdapter(Annotated[Move | Wait, Field(discriminator="type")])
    interface = Interface.of(union.json_schema(), None)
    player = RandomPolicy().begin(EpisodeOpening(seed=1, interface=interface))
    actions: list[Any] = []
    for _ in range(20):
        decision: Any = player.act(PolicyTurn({}))
        actions.append(union.validate_python(decision.action))
    assert {type(action) for action in actions} == {Move, Wait}


# ------------------------------------------------------------------ as written down


def test_a_script_is_played_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text('{"word": "a"}\n\n{"word": "over"}\n')
    found = only(Talk, f"scripted:{file}")
    assert [step.action["word"] for step in found.steps] == ["a", "over"]


def test_a_script_may_tell_what_to_do_with_each_task(tmp_path: Path) -> None:
    file = tmp_path / "script.jsonl"
    scripts = {"t0": ["over"], "t1": ["a", "over"]}
    rows = [{"task_id": t, "actions": [{"word": w} for w in ws]} for t, ws in scripts.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = rollout(Talk, f"scripted:{file}", [Task(id="t0"), Task(id="t1")])
    assert {r.task_id: len(r.steps) for r in run} == {"t0": 1, "t1": 2}
    for unknown in ("t2", "t1.5"):
        found = only(Talk, f"scripted:{file}", [Task(id=unknown)], error_budget=1)
        assert f"no actions for the task '{unknown}'" in found.failures[0].message
    again = rollout(Talk, f"scripted:{file}", iter([Task(id="t1"), Task(id="t1")]))
    assert {r.id: len(r.steps) for r in again} == {"t1#0": 2, "t1.1#0": 2}


def test_an_episode_that_outlasts_its_script_is_stopped() -> None:
    found = only(Talk, ScriptedPolicy([{"word": "a"}]))
    assert (found.outcome, found.reward, len(found.steps)) == ("stopped", 1.0, 1)


TWICE = '{"task_id": "t", "actions": []}\n' * 2


@pytest.mark.parametrize(
    "content",
    ["", "[]\n", "{\n", '{"task_id": "t", "actions": {"word": "a"}}\n', TWICE],
    ids=["empty", "list", "torn", "no list of actions", "twice"],
)
def test_a_script_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text(content)
    with pytest.raises(PolicyError):
        policy_named(f"scripted:{file}")
    with pytest.raises(PolicyError):
        policy_named(f"scripted:{file}.not")


# ------------------------------------------------------------------ by a person


def person(*lines: str) -> tuple[HumanPolicy, list[str]]:
    said: list[str] = []
    typed = iter(lines)

    def ask(question: str) -> str:
        said.append(question)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    return HumanPolicy(ask, said.append), said


def test_a_person_is_asked_field_by_field() -> None:
    policy, said = person("a", "rude", "over")
    found = only(Talk, policy, [Task(id="t", prompt="Talk to me.")])
    assert [step.action["word"] for step in found.steps] == ["a", "over"]
    assert "Talk to me." in said
    assert "not taken: mind your language" in said
    assert said.count("word: ") == 3


def test_values_are_typed_as_json_and_what_may_be_left_out_is() -> None:
    policy, said = person("", "", "reward", "2.5", "done", "")
    found = only(Counter, policy, limits=RolloutLimits(steps=3))
    actions = [{k: v for k, v in step.action.items() if k != "metadata"} for step in found.steps]
    assert actions == [{}, {"what": "reward", "value": 2.5}, {"what": "done"}]
    assert "what (may be left empty): " in said


def test_the_end_of_the_input_ends_the_run() -> None:
    policy, _ = person("a", "over", "a")
    run = rollout(Talk, policy, [Task(id=f"t{n}") for n in range(5)], concurrency=4)
    assert [found.outcome for found in run] == ["done", "stopped"]
