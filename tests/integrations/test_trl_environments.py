"""The class that TRL makes its environments of, without TRL."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from rollouts.worlds import PerStep, Talk, Terminal
from support.relay import Relay
from support.servers import serving

from openenv import create_app
from openenv.errors import ExecutionFailed
from openenv.integrations.trl import (
    EnvironmentsFailing,
    RolloutEnvironment,
    ToolRefused,
    environment_factory,
    task_rows,
)
from openenv.integrations.trl.environments import episode_arguments
from openenv.integrations.typed_tools import Parameters, identifiers, typed_function
from openenv.reward import RewardSpec
from openenv.rollouts.failures import TaskNotTaken
from openenv.rollouts.seats import NoEpisode
from openenv.tasks.task import Task

made: list[type[RolloutEnvironment]] = []


def factory(environment: Any, **options: Any) -> Any:
    made.append(environment_factory(environment, **options))
    return made[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def tools_of(cls: type) -> list[str]:
    """As TRL finds them."""
    found = inspect.getmembers(cls, predicate=inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_")]


def test_its_methods_are_the_tools_and_what_trl_asks_for() -> None:
    cls = factory(PerStep)
    assert cls.__name__ == "Perstep"
    assert tools_of(cls) == ["get_reward", "reset", "say"]
    assert tools_of(factory(PerStep, gives_reward=False)) == ["reset", "say"]
    assert factory(PerStep, name="Talking").__name__ == "Talking"
    assert str(inspect.signature(cls().say)) == "(word: str) -> str"
    assert str(inspect.getdoc(cls.say)).splitlines()[-2:] == [
        "Returns:",
        "    What the environment shows then.",
    ]


def test_a_rollout_is_worth_what_its_environment_declares() -> None:
    cls = factory(PerStep)
    place = cls()
    with pytest.raises(NoEpisode, match="call reset first"):
        place.get_reward()
    assert place.reset(prompt=[{"role": "user", "content": ""}], seed=1) == '{"words": []}'
    assert place.reset(prompt=[{"role": "user", "content": "Talk."}]) == '\n\n{"words": []}'
    assert place.say(word="hi") == '{"words": ["hi"]}'
    assert place.say(word="over").endswith("(the episode is over)")
    assert place.get_reward() == place.reward == 7.0
    assert place.reward_components == {"length": 6.0, "style": 1.0}
    assert (place.done, place.steps, place.unscored) == (True, 2, None)
    with pytest.raises(ToolRefused, match="the episode is over"):
        place.say(word="more")
    assert cls.meter.read().episodes == 2
    assert cls.meter.read().sessions == 1


def test_a_mistake_of_the_model_is_told_and_the_episode_goes_on() -> None:
    place = factory(Terminal)()
    place.reset()
    with pytest.raises(ToolRefused, match="mind your language"):
        place.say(word="rude")
    with pytest.raises(ToolRefused, match="word: Field required"):
        place.say()
    assert place.get_reward() == 0.0
    place.say(word="over")
    assert place.get_reward() == 1.0


class Losing(Terminal):
    REWARD = RewardSpec("terminal", range=(-2.0, 1.0))


@pytest.mark.parametrize(
    ("unfinished", "worth"), [("earned", -2.0), (-3, -3.0), (None, None), ("known", None)]
)
def test_one_that_was_not_finished_is_worth_what_was_agreed(unfinished: Any, worth: Any) -> None:
    place = factory(Losing, unfinished=unfinished)()
    place.reset()
    place.say(word="hi")
    assert place.get_reward() == worth


def test_a_failure_of_the_environment_has_no_reward_and_many_end_the_training() -> None:
    cls = factory(Talk, failures_in_a_row=3)
    first, second = cls(), cls()
    for place in (first, second):
        place.reset()
        with pytest.raises(ExecutionFailed):
            place.say(word="crash")
        assert place.get_reward() is None
        assert str(place.unscored).startswith("the episode broke off")
    first.reset()
    first.say(word="over")
    second.reset()
    second.say(word="over")
    assert second.get_reward() == 4.0
    for _ in range(3):
        first.reset()
        with pytest.raises(ExecutionFailed):
            first.say(word="crash")
    with pytest.raises(EnvironmentsFailing, match="3 episodes in a row have failed"):
        first.reset()
    first.reset()


@pytest.mark.slow
def test_resets_that_fail_count_at_once_also_of_new_rollouts() -> None:
    with serving(create_app(Talk, max_concurrent_envs=8)) as url:
        relay = Relay(url)
        cls = factory(relay.url, retries=0, failures_in_a_row=3)
        relay.refuse()
        relay.cut()
        for _ in range(2):
            place = cls()
            assert place.reset() is None
            assert str(place.unscored).startswith("the episode could not begin: ConnectError")
        with pytest.raises(EnvironmentsFailing, match="3 episodes in a row have failed"):
            cls().reset()
        relay.close()


def test_tools_may_be_coroutines() -> None:
    cls = factory(PerStep, is_async=True)
    place = cls()
    place.reset()
    assert inspect.iscoroutinefunction(place.say)
    assert asyncio.run(place.say(word="over")).startswith('{"words": ["over"]}')
    assert place.get_reward() == 4.5


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_columns_are_what_an_episode_is_reset_with() -> None:
    row = {"prompt": "x", "images": None, "start": "a", "level": 3, "none": None}
    assert episode_arguments(row)[0] == {"start": "a", "level": 3}
    assert episode_arguments(row, ["start"])[0] == {"start": "a"}
    assert episode_arguments(row, {"level": "start"})[0] == {"start": 3}
    with pytest.raises(KeyError, match="the dataset has no 'stop'"):
        episode_arguments(row, ["stop"])
    place = factory(Talk)()
    with pytest.raises(TaskNotTaken, match="takes no 'level'"):
        place.reset(**row)
    assert place.reset(start="a").endswith('{"words": ["a"]}')


def test_rows_of_tasks_begin_the_episode_of_their_task() -> None:
    tasks = [Task(id="t", prompt="Say b.", reset={"start": "b"}), Task(id="u", reset={"seed": 5})]
    first, second = task_rows(tasks, prompt="Talk.", system_prompt="Be brief.")
    assert first["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Talk.\n\nSay b."},
    ]
    assert json.loads(first["openenv_task"])["reset"] == {"start": "b"}
    assert isinstance(first["seed"], int)
    assert "seed" not in second
    assert episode_arguments(second)[0] == {"seed": 5}
    place = factory(Talk)()
    assert place.reset(**first).endswith('{"words": ["b"]}')
    assert [row["seed"] for row in task_rows(2, prompt="Talk.", seed=7)] == [7, 8]
    with pytest.raises(ValueError, match="at least one row"):
        task_rows(0, prompt="Talk.")
    with pytest.raises(ValueError, match="it is all that the model is told"):
        task_rows(2)


# ------------------------------------------------------------------ tools as functions


def test_names_become_identifiers_of_their_own() -> None:
    names = ["go-on", "go on", "class", "2nd", "reset", "_x"]
    assert identifiers(names, taken=["reset"]) == {
        "go-on": "go_on",
        "go on": "go_on_",
        "class": "class_",
        "2nd": "tool_2nd",
        "reset": "reset_",
        "_x": "x",
    }


def test_a_schema_becomes_a_signature_and_its_arguments_go_back() -> None:
    schema = {
        "properties": {
            "often": {"type": "integer", "minimum": 1, "default": 2},
            "from": {"type": "string", "description": "Where\n  from."},
            "how": {"enum": ["slow", "fast"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["from", "how"],
    }
    parameters = Parameters(schema)
    found = parameters.signature.parameters
    assert list(found) == ["from_", "how", "often", "tags"]
    assert found["how"].annotation == Literal["slow", "fast"]
    assert found["often"].default == 2
    assert parameters.lines[0] == "from_: Where from."
    assert parameters.lines[2] == "often: The often (at least 1)."
    assert parameters.arguments({"from_": "a", "tags": None, "new": 1}) == {"from": "a", "new": 1}
    made = typed_function("go", "Goes. Args: none", parameters, lambda **given: given)
    assert made(from_="a") == {"from_": "a"}
    assert str(inspect.getdoc(made)).splitlines()[0] == "Goes. Args - none"
