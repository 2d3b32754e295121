"""The class that TRL makes its environments of, without TRL."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import pytest
from rollouts.worlds import PerStep, Talk, Terminal
from support.relay import Relay
from support.servers import serving

from openenv import create_app
from openenv.errors import CapacityError, ExecutionFailed, NotSupported
from openenv.integrations.trl import (
    EnvironmentsFailing,
    RolloutEnvironment,
    ToolRefused,
    TrainingRefused,
    UnequalBeginnings,
    environment_factory,
    rollout_func,
    skip_failures,
    task_rows,
)
from openenv.integrations.trl.environments import episode_arguments
from openenv.integrations.trl.processes import ProcessFailed, SharedModel
from openenv.integrations.trl.rollout_funcs import _by_prompt
from openenv.integrations.typed_tools import Parameters, identifiers, typed_function
from openenv.reward import RewardSpec
from openenv.rollouts.episode_sessions import NoActiveEpisode
from openenv.rollouts.failures import TaskNotTaken
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
    with pytest.raises(NoActiveEpisode, match="call reset first"):
        place.get_reward()
    assert (place.reward, place.unscored) == (None, "no episode was begun: call reset first")
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
    assert place.get_reward() is None  # what not finishing is worth is not declared
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


class Stuck(Talk):
    """Cannot begin by a seed that is not even."""

    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        if (seed or 0) % 2:
            raise ValueError("no such room")
        return super().reset(seed, start)


def test_a_reset_that_fails_for_good_leaves_the_rollout_out_and_counts() -> None:
    """One task whose reset raised ended the run."""
    cls = factory(Stuck, failures_in_a_row=3)
    first, second = cls(), cls()
    assert first.reset(seed=0) == '{"words": []}'
    assert second.reset(seed=1) is None
    assert second.get_reward() is None
    assert str(second.unscored).startswith("the episode could not begin: ExecutionFailed")
    assert cls.meter.read().failures == 1
    assert first.reset(seed=2) == '{"words": []}'
    for _ in range(2):
        assert second.reset(seed=1) is None
    with pytest.raises(EnvironmentsFailing, match="3 episodes in a row have failed"):
        second.reset(seed=1)


# ------------------------------------------------------------------ groups


class Dice(Talk):
    """Begins by chance, which follows from the seed alone."""

    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        return super().reset(seed, str(random.Random(seed).random()) + start)


class Luck(Dice):
    """Begins by chance, and takes no seed."""

    def reset(self, start: str = "") -> Any:  # type: ignore[override]
        return super().reset(None, start)


def begun_by(places: list[Any], rows: list[dict[str, Any]]) -> list[str]:
    return [place.reset(**row) for place, row in zip(places, rows, strict=True)]


def test_rollouts_of_equal_rows_begin_alike_in_a_batch_and_otherwise_in_the_next() -> None:
    """Without seeds each began by itself, and rewards of a group were compared that cannot be."""
    cls = factory(Dice)
    places = [cls() for _ in range(4)]
    rows = [{"start": "a"}, {"start": "a"}, {"start": "b"}, {"start": "b"}]
    batches = [begun_by(places, rows) for _ in range(2)]
    for one in batches:
        assert one[0] == one[1] != one[2] == one[3]
    assert not set(batches[0]) & set(batches[1])
    again = factory(Dice)
    assert begun_by([again() for _ in range(4)], rows) == batches[0]  # as in another process
    other = factory(Dice, seed=1)
    assert begun_by([other() for _ in range(4)], rows) != batches[0]


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_a_group_that_begins_differently_is_an_error_that_names_the_cures() -> None:
    cls = factory(Luck)
    begun_by([cls()], [{"start": "a"}])
    with pytest.raises(
        UnequalBeginnings, match=r"(?s)ignores its seed.*shows.*equal_beginnings=False"
    ):
        cls().reset(start="a")
    lax = factory(Luck, equal_beginnings=False)
    first, second = begun_by([lax(), lax()], [{"start": "a"}] * 2)
    assert first != second


def test_a_class_is_pickled_by_what_it_was_made_of_and_plays_in_another_process() -> None:
    """AsyncGRPO hands it to a process that it spawns."""
    cls = factory(Dice, name="Dices", unfinished=0.5)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        first, second, worth, name = pool.submit(elsewhere, cls).result(timeout=60)
        with pytest.raises(TrainingRefused, match="which group a rollout is of"):
            pool.submit(elsewhere, cls, 1100).result(timeout=60)
    assert first == second  # though one place began twice while the other waited
    assert (worth, name) == (0.5, "Dices")
    assert pickle.loads(pickle.dumps(RolloutEnvironment)) is RolloutEnvironment


def elsewhere(cls: type[Any], times: int = 2) -> tuple[str, str, float, str]:
    """Play where the class was unpickled."""
    one = cls()
    shown = [one.reset(start="a") for _ in range(times)]
    worth = one.get_reward()
    cls.close()
    return shown[0], shown[1], worth, cls.__name__


# ------------------------------------------------------------------ reward functions


def test_a_further_reward_function_gives_none_where_the_environment_failed() -> None:
    cls = factory(Talk)
    places = [cls(), cls()]
    for place in places:
        place.reset()
    with pytest.raises(ExecutionFailed):
        places[0].say(word="crash")
    places[1].say(word="over")

    def length(completions: list[str], **_: Any) -> list[float]:
        return [float(len(one)) for one in completions]

    class Later:
        async def __call__(self, completions: list[str], **_: Any) -> list[float]:
            return length(completions)

    wrapped, later = skip_failures(length), skip_failures(Later())
    given: dict[str, Any] = {"completions": ["a", "bcd"]}
    assert wrapped(**given, environments=places) == [None, 3.0]
    assert wrapped(**given, env_reward=[0.0, None]) == [1.0, None]
    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later(**given, environments=places)) == [None, 3.0]
    assert (wrapped.__name__, later.__name__) == ("length", "Later")
    with pytest.raises(TrainingRefused, match="as AsyncGRPO does not"):
        wrapped(**given)
    with pytest.raises(TypeError, match="expected a function"):
        skip_failures("a/reward-model")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "make", "why"),
    [
        ("1.5.1", environment_factory, r"counts a rollout whose environment failed.*'trl>=1.8'"),
        ("1.5.1", rollout_func, r"counts a rollout whose environment failed.*'trl>=1.6'"),
        ("1.7.0", environment_factory, r"takes the get_reward.*'trl>=1.8', or use rollout_func"),
        ("1.7.0", rollout_func, None),
        ("1.8.0", environment_factory, None),
        ("2.0.0.dev0", environment_factory, None),
    ],
)
def test_a_trl_that_would_train_on_a_wrong_signal_is_refused(
    version: str,
    make: Callable[[Any], Any],
    why: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = tmp_path / f"trl-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: trl\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    if why is None:
        make(Talk).close()
    else:
        with pytest.raises(NotSupported, match=why):
            make(Talk)


# ------------------------------------------------------------------ several processes


def together(count: int, work: Callable[[SharedModel, int], Any]) -> list[Any]:
    """Have so many threads work, each as a process of one training that asks one model."""
    values: list[Any] = [None] * count
    barrier = threading.Barrier(count, timeout=20)
    asked: list[list[int]] = [[] for _ in range(count)]

    def of(rank: int) -> Any:
        def gather(value: Any) -> list[Any]:
            values[rank] = value
            barrier.wait()
            found = list(values)
            barrier.wait()
            return found

        def ask(sequences: list[list[int]]) -> Any:
            asked[rank].append(len(sequences))
            replies = [[ids[0] * 10] for ids in sequences]
            return replies, [[-float(ids[0])] for ids in sequences]

        try:
            return work(SharedModel(ask, gather, rank, [0]), rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(of, range(count)))
    assert all(one == asked[0] for one in asked)  # each asks as often, for as many
    return found


def test_processes_that_ask_differently_often_get_their_own_replies() -> None:
    def work(model: SharedModel, rank: int) -> list[Any]:
        turns = (3, 0, 5)[rank]
        asked = [
            [[100 * rank + 10 * turn + i] for i in range(rank + turn % 2 + 1)]
            for turn in range(turns)
        ]
        return model.run(lambda: [(one, *model.generate(one)) for one in asked])

    found = together(3, work)
    assert [len(one) for one in found] == [3, 0, 5]
    for asked, replies, logprobs in itertools.chain(*found):
        assert replies == [[ids[0] * 10] for ids in asked]
        assert logprobs == [[-float(ids[0])] for ids in asked]


def test_a_process_that_fails_ends_the_others() -> None:
    def work(model: SharedModel, rank: int) -> Any:
        def play() -> None:
            model.generate([[1]])
            if rank == 1:
                raise RuntimeError("no more cards")
            model.generate([[2]])

        return model.run(play)

    first, second, third = together(3, work)
    assert str(second) == "no more cards"
    for one in (first, third):
        assert isinstance(one, ProcessFailed)
        assert str(one) == "process 1 has failed: RuntimeError: no more cards"


def test_tools_may_be_coroutines() -> None:
    cls = factory(PerStep, is_async=True)
    place = cls()
    place.reset()
    assert inspect.iscoroutinefunction(place.say)
    assert asyncio.run(place.say(word="over")).startswith('{"words": ["over"]}')
    assert place.get_reward() == 4.5


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_columns_are_what_an_episode_is_reset_with() -> None:
    row: dict[str, Any] = {"prompt": "x", "images": None, "start": "a", "level": 3, "none": None}
    assert episode_arguments(row)[0] == {"start": "a", "level": 3}
    assert episode_arguments(row, ["start"])[0] == {"start": "a"}
    assert episode_arguments(row, {"level": "start"})[0] == {"start": 3}
    with pytest.raises(KeyError, match="the dataset has no 'stop'"):
        episode_arguments(row, ["stop"])
    place = factory(Talk)()
    with pytest.raises(TaskNotTaken, match=r"takes no 'level'.*columns=\[\.\.\.\] says which are"):
        place.reset(**row)
    assert place.reset(start="a").endswith('{"words": ["a"]}')


class Shelf(Talk):
    """Has many tasks, and is given tools and pictures."""

    def reset(  # type: ignore[override]
        self,
        seed: int | None = None,
        task_id: str = "first",
        tools: list[str] | None = None,
        image: str = "",
    ) -> Any:
        return super().reset(seed, " ".join([task_id, *(tools or ()), image]))


def test_a_column_that_reset_takes_is_handed_over_whatever_it_is_called() -> None:
    """It was dropped if TRL had a column of that name: another task was played and scored."""
    place = factory(Shelf)()
    assert place.reset(task_id="chess", tools=["saw"], image="a.png") == (
        '{"words": ["chess saw a.png"]}'
    )
    row = next(task_rows([Task(id="train/7", reset={"tools": ["axe"]})], prompt="Talk."))
    assert row["task_id"] == "train/7"  # which names the task beside it, for people
    assert place.reset(**row) == '\n\n{"words": ["first axe "]}'
    assert place.reset(**next(task_rows(1, prompt="Talk."))) == '\n\n{"words": ["first "]}'


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_columns_that_may_be_the_trainers_are_no_error_where_reset_takes_none() -> None:
    place = factory(Talk)()
    assert place.reset(tools=["saw"], completion="x", images=["a"]) == '{"words": []}'
    with pytest.raises(TaskNotTaken, match="takes no 'task_id'"):
        place.reset(task_id="chess")


def test_pictures_for_the_model_are_left_out_and_this_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = factory(Shelf)()
    with caplog.at_level(logging.WARNING):
        assert place.reset(image=object()) == '{"words": ["first "]}'
        place.reset(image=object())
    assert [one.getMessage() for one in caplog.records if "cannot be sent" in one.getMessage()] == [
        "the column 'image' holds object, which is for the model and cannot be sent to an "
        "environment; its reset is called without it"
    ]


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


def test_pictures_are_given_to_trl_as_parts_or_refused() -> None:
    from PIL import Image
    from rollouts.test_views import PIXELS, Camera

    seen = environment_factory(Camera, shows_pictures=True)
    try:
        instance: Any = seen()
        *pictures, text = instance.reset(prompt=[{"role": "user", "content": "Look."}])
        assert [isinstance(one["image"], Image.Image) for one in pictures] == [True, True]
        assert pictures[0]["image"].tobytes() == PIXELS.tobytes()
        assert text["type"] == "text" and "[picture 1]" in text["text"]
        picture, text = instance.move(to="north")
        assert (picture["type"], "There." in text["text"]) == ("image", True)
        assert instance.get_reward() == 1.0
    finally:
        seen.close()
    told = environment_factory(Camera)
    try:
        with pytest.raises(NotSupported, match="shows a picture"):
            told().reset()
    finally:
        told.close()


def test_too_few_places_are_told_before_anything_is_played() -> None:
    with serving(create_app(Talk, max_concurrent_envs=2)) as url:
        made = environment_factory(url)
        try:
            places: list[Any] = [made() for _ in range(3)]
            with pytest.raises(CapacityError, match=r"3 rollouts .* holds 2 sessions"):
                places[0].reset()
            assert made.meter.read().sessions == 0
        finally:
            made.close()


def test_rows_of_which_nothing_tells_what_a_reward_function_gets_are_refused() -> None:
    rows = [
        {"prompt": "One.", "seed": seed, "answer": answer} for seed, answer in [(1, "a"), (1, "b")]
    ]
    alike = _by_prompt(rows, ["seed"], "the dataset")  # whichever is TRL's row has its own columns
    assert [one.seeds for one in alike.values()] == [[1]]
    with pytest.raises(ValueError, match="the same prompt and seed that differ in 'answer'"):
        _by_prompt([*rows, {"prompt": "One.", "seed": 2, "answer": "c"}], ["seed"], "the dataset")
