"""`VectorEnv` beside `gymnasium.vector.SyncVectorEnv`: the same numbers, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import gymnasium
import numpy as np
import pytest
from support.environments import Counter, CounterEnv, Do, Log, Seen
from support.scoring import SPEC, Scorer
from support.servers import serving
from support.tasked import ROWS, SECRET, SPLITS, Answer, AsyncLoader, Loader, Sums, SumsEnv
from support.walk import Go, GymWalk, Walk, Walked, WalkEnv

from openenv import Action, EnvClient, Environment, Observation, State, StepResult, create_app
from openenv.arrays import Array
from openenv.client.generic import GenericEnvClient
from openenv.client.vector import AutoresetMode, VectorEnv
from openenv.reward import REWARD_INFO
from openenv.tasks import Task

COUNT = 5


@pytest.fixture(scope="module")
def walks() -> Iterator[str]:
    with serving(create_app(Walk, Go, Walked, max_concurrent_envs=200)) as url:
        yield url


def actions_of(rng: np.random.Generator) -> Any:
    return rng.integers(0, 3, COUNT)


def assert_same(ours: Any, theirs: Any, path: str = "") -> None:
    """Equal values, of the same type and dtype, in nested dicts and arrays."""
    assert type(ours) is type(theirs), (path, ours, theirs)
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{path}.{key}")
    elif isinstance(theirs, tuple):
        for index, value in enumerate(theirs):
            assert_same(ours[index], value, f"{path}[{index}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.dtype == object and ours.shape == theirs.shape, path
        for index, value in enumerate(theirs):
            if isinstance(value, dict):  # an observation: values of NumPy's own types
                assert ours[index].keys() - {"metadata"} == value.keys(), path
                for name in value:
                    assert np.array_equal(ours[index][name], value[name]), f"{path}.{name}"
            else:
                assert_same(ours[index], value, f"{path}[{index}]")
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), (path, ours, theirs)
    else:
        assert ours == theirs, path


@pytest.mark.parametrize("client", [CounterEnv, GenericEnvClient])
def test_what_is_known_of_rewards_is_in_the_infos(client: type[EnvClient[Any, Any, Any]]) -> None:
    app = create_app(Scorer, Do, Seen, max_concurrent_envs=2)
    with serving(app) as url, VectorEnv(url, 2, client=client) as envs:
        assert envs.reward_spec is None
        _, infos = envs.reset()
        assert envs.reward_spec == SPEC and infos == {}
        _, rewards, *_, infos = envs.step([Do(value=1.0), Do(value="no judge")])
        assert rewards[0] == 1.0 and np.isnan(rewards[1])
        told = infos[REWARD_INFO]
        assert told["components"]["work"].tolist() == [0.5, 0.0]
        assert told["_components"].tolist() == [True, False]
        assert told["unscored"].tolist() == [None, "no judge"]


# ------------------------------------------------------------------ as Gymnasium does


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_300_steps_are_those_of_gymnasium(walks: str, mode: AutoresetMode) -> None:
    theirs = gymnasium.vector.SyncVectorEnv([GymWalk] * COUNT, autoreset_mode=mode.value)
    rng = np.random.default_rng(1)
    with VectorEnv(walks, COUNT, client=WalkEnv, autoreset_mode=mode) as ours:
        assert_same(ours.reset(seed=7), theirs.reset(seed=7))
        for _ in range(300):
            actions = actions_of(rng)
            stepped = tuple(ours.step(actions))
            assert_same(stepped, theirs.step(actions))
            over = stepped[2] | stepped[3]
            if mode is AutoresetMode.DISABLED and over.any():
                options = {"reset_mask": over}
                assert_same(ours.reset(options=options), theirs.reset(options=dict(options)))
    theirs.close()


def test_the_mode_may_be_one_of_gymnasiums(walks: str) -> None:
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    with VectorEnv(walks, 1, autoreset_mode=mode.value) as envs:
        assert envs.autoreset_mode is AutoresetMode.SAME_STEP
        assert envs.metadata["autoreset_mode"].value == mode.value


def test_seeds_and_options_reach_each_environment(walks: str) -> None:
    theirs = gymnasium.vector.SyncVectorEnv([GymWalk] * COUNT)
    with VectorEnv(walks, COUNT, client=WalkEnv) as ours:
        for seed in (3, [5, 4, 3, 2, 1]):
            given: Any = {"seed": seed, "options": {"start": 1.5}}
            assert_same(ours.reset(**given), theirs.reset(**given))
        first, _ = ours.reset(seed=[1, None, 1, None, 1])
        assert np.array_equal(first["frame"][0], first["frame"][4])
        again, _ = ours.reset()
        assert not np.array_equal(first["frame"], again["frame"])
    theirs.close()


@pytest.mark.parametrize("version", ["0", "1"])
@pytest.mark.parametrize("form", [Sums, Loader, AsyncLoader])
def test_tasks_reach_each_environment(
    form: Any, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    app = create_app(form, tasks=SPLITS, max_concurrent_envs=3)
    own = Task.model_validate(ROWS[2])
    row = Task(id="x", reset={"split": "train", "index": 4})

    def prompts(**given: Any) -> list[str | None]:
        seen, _ = envs.reset(**given)
        return [None if prompt is None else prompt.split()[2] for prompt in seen["prompt"]]

    with serving(app) as url, VectorEnv(url, 3, client=SumsEnv) as envs:
        assert prompts(task=own) == ["2"] * 3
        assert prompts(task="sum-3", seed=5) == ["3"] * 3
        assert prompts(task={"split": "train", "index": 1}) == ["1"] * 3
        assert prompts(task=[row, "sum-1", None], seed=7) == ["4", "1", None]
        assert prompts(options={"task": [row, own, {"id": "sum-0"}]}) == ["4", "2", "0"]
        assert prompts(options={"task": row, "level": 2}) == ["4"] * 3
        assert prompts(task=np.array(["sum-1", "sum-2", "sum-3"])) == ["1", "2", "3"]
        envs.reset(task=[own] * 3, seed=[1, 2, 3])
        rewards = envs.step([Answer(text=f"{SECRET}-2"), Answer(text="x"), Answer(text="y")])[1]
        assert rewards.tolist() == [1.0, 0.0, 0.0]


def test_tasks_that_do_not_fit_are_refused_before_any_is_begun() -> None:
    with VectorEnv.local(lambda: Sums(), 2, client=SumsEnv) as envs:
        with pytest.raises(ValueError, match="1 tasks for 2 environments"):
            envs.reset(task=["sum-1"])
        with pytest.raises(ValueError, match="options has a task"):
            envs.reset(task="sum-1", options={"task": "sum-1"})
        fixed = Task(id="sum-1", reset={"seed": 7})
        with pytest.raises(ValueError, match="seed: task 'sum-1' requires 7, got 8"):
            envs.reset(task=fixed, seed=7)
        envs.reset()
        mask = {"reset_mask": [True, False]}
        assert envs.reset(task=fixed, seed=7, options=mask)[0]["seed"] == [7, None]


def test_a_reset_mask_spares_the_others(walks: str) -> None:
    with VectorEnv(walks, COUNT, client=WalkEnv, autoreset_mode="Disabled") as envs:
        envs.reset(seed=1)
        seen = envs.step(np.zeros(COUNT, int))[0]
        mask = np.array([True, False, False, True, False])
        observations, infos = envs.reset(seed=9, options={"reset_mask": mask, "start": 2})
        assert observations["position"].tolist()[0] == observations["position"][3] == 2
        assert np.array_equal(observations["frame"][~mask], seen["frame"][~mask])
        assert infos["_begun"].tolist() == mask.tolist()
        *_, infos = envs.step(np.ones(COUNT, int))
        assert infos["count"].tolist() == [1, 2, 2, 1, 2]


@pytest.mark.parametrize("mask", [[True], [True] * (COUNT + 1), [False] * COUNT])
def test_a_mask_that_fits_nothing_is_refused(walks: str, mask: list[bool]) -> None:
    with VectorEnv(walks, COUNT) as envs:
        envs.reset()
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": np.array(mask)})


@pytest.mark.parametrize("connections", [1, 2, 3, 100])
def test_environments_may_share_any_number_of_connections(walks: str, connections: int) -> None:
    with VectorEnv(walks, COUNT, client=WalkEnv, connections=connections) as envs:
        first, _ = envs.reset(seed=1)
        with VectorEnv(walks, COUNT, client=WalkEnv) as others:
            assert_same(others.reset(seed=1)[0], first)
            assert_same(tuple(others.step([0] * COUNT)), tuple(envs.step([0] * COUNT)))


def test_a_hundred_environments_are_stepped_together(walks: str) -> None:
    """More than go into one frame."""
    with VectorEnv(walks, 150, client=WalkEnv) as envs:
        observations, _ = envs.reset(seed=list(range(150)))
        assert observations["frame"].shape == (150, 2, 3)
        assert len({frame.tobytes() for frame in observations["frame"]}) > 140
        *_, infos = envs.step([1] * 150)
        assert infos["count"].tolist() == [1] * 150


# ------------------------------------------------------------------ actions in, observations out


def test_actions_may_come_in_any_form(walks: str) -> None:
    forms: list[Any] = [
        np.array([0, 1, 2, 1, 0]),
        np.array([0, 1, 2, 1, 0], dtype=np.uint8),
        [0, 1, 2, 1, 0],
        (np.int64(n) for n in (0, 1, 2, 1, 0)),
        [Go(to=n) for n in (0, 1, 2, 1, 0)],
        [{"to": n} for n in (0, 1, 2, 1, 0)],
        {"to": np.array([0, 1, 2, 1, 0])},
        {"to": [0, 1, 2, 1, 0]},
    ]
    with VectorEnv(walks, COUNT, client=WalkEnv) as envs:
        seen = []
        for actions in forms:
            envs.reset(seed=11)
            seen.append(tuple(envs.step(actions)))
    for other in seen[1:]:
        assert_same(other, seen[0])


@pytest.mark.parametrize("version", [0, 1])
def test_values_of_numpy_are_taken_by_either_protocol(
    walks: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", str(version))
    with VectorEnv(walks, 2, client=WalkEnv) as envs:
        envs.reset()
        envs.step([np.int64(1), np.int64(2)])
        envs.step({"to": [np.int8(1), np.int8(2)]})


@pytest.mark.parametrize("actions", [[], [1], [1] * 6, {"to": [1]}, {"to": [1] * 6}, np.zeros(4)])
def test_a_wrong_number_of_actions_is_refused(walks: str, actions: Any) -> None:
    with VectorEnv(walks, COUNT, client=WalkEnv) as envs:
        envs.reset()
        with pytest.raises(ValueError, match="5 environments"):
            envs.step(actions)
        with pytest.raises(ValueError, match="5 environments"):
            envs.reset(seed=[1, 2])
        envs.step([1] * COUNT)


def test_bare_values_need_an_action_of_one_field(walks: str) -> None:
    with VectorEnv(walks, 1) as envs:
        envs.reset()
        with pytest.raises(TypeError, match="field"):
            envs.step([1])
        envs.step([{"to": 1}])


def test_models_are_given_where_nothing_is_stacked(walks: str) -> None:
    with VectorEnv(walks, 2, client=WalkEnv, stack=False) as envs:
        observations, _ = envs.reset(seed=1)
        assert [type(one) for one in observations] == [Walked, Walked]
        observations = envs.step([1, 1])[0]
        assert [one.reward is None for one in observations] == [False, False]
        assert observations[0].frame.dtype == np.uint8


class Move(Action):
    by: list[float]


class Board(Observation):
    text: str = ""
    cells: list[list[int]] = []  # noqa: RUF012 - Pydantic copies it
    words: list[str] = []  # noqa: RUF012
    moved: list[float] = []  # noqa: RUF012
    flag: bool = False
    maybe: float | None = None
    pixels: Annotated[np.ndarray, Array(np.float32, (2,))] | None = None


class Game(Environment[Move, Board, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self) -> Board:  # type: ignore[override]
        return Board(text="begun", cells=[[1, 2], [3, 4]], words=["a"])

    def step(self, action: Move) -> Board:  # type: ignore[override]
        pixels = np.array(action.by, "float32")
        moved = Board(text="moved", words=["a"] * int(action.by[0]), moved=action.by, pixels=pixels)
        moved.maybe = action.by[0] if action.by[0] > 1 else None
        return moved


class GameEnv(EnvClient[Move, Board, State]):
    """Its client."""


@pytest.mark.parametrize("version", [0, 1])
def test_every_field_is_a_batch_of_its_own(
    serve: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", str(version))
    with VectorEnv(serve(create_app(Game, Move, Board)), 3, client=GameEnv) as envs:
        observations, infos = envs.reset()
        assert infos == {} and observations.keys() == Board().model_fields_set | {
            "text", "cells", "words", "moved", "flag", "maybe", "pixels",
        }  # fmt: skip
        assert observations["text"] == ["begun"] * 3
        assert observations["cells"].shape == (3, 2, 2)
        assert observations["flag"].dtype == bool and observations["maybe"] == [None] * 3
        by = np.array([[1, 0.5], [2, 0.5], [3, 0.5]], "float32")
        observations, rewards, *_ = envs.step(by)
        assert np.array_equal(observations["moved"], by)
        assert np.array_equal(observations["pixels"], by)
        assert observations["pixels"].dtype == np.float32
        assert observations["words"] == [["a"], ["a", "a"], ["a", "a", "a"]]
        assert observations["maybe"] == [None, 2.0, 3.0]
        assert np.isnan(rewards).all() and rewards.dtype == float
        assert np.array_equal(envs.step({"by": by})[0]["moved"], by)


class OldEnv(EnvClient[Do, Seen, State]):
    """A client with hooks of its own."""

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Seen]:
        seen = Seen(text=payload["observation"]["text"].upper())
        return StepResult(seen, payload["reward"], payload["done"])


class Shown(Action):
    pixels: Annotated[np.ndarray, Array(np.uint8, (2, 2))]


class Mirror(Environment[Shown, Board, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self) -> Board:  # type: ignore[override]
        return Board()

    def step(self, action: Shown) -> Board:  # type: ignore[override]
        return Board(cells=action.pixels.tolist(), text=action.pixels.dtype.name)


class MirrorEnv(EnvClient[Shown, Board, State]):
    """Its client."""


@pytest.mark.parametrize("version", [0, 1])
def test_arrays_of_actions_go_as_they_are_where_the_protocol_can(
    serve: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", str(version))
    pixels = np.array([[1, 2], [3, 250]], "uint8")
    with VectorEnv(serve(create_app(Mirror, Shown, Board)), 2, client=MirrorEnv) as envs:
        envs.reset()
        actions = [Shown(pixels=pixels)] * 2
        sent = envs._step_requests(range(2), actions)[0].data["pixels"]
        assert isinstance(sent, np.ndarray if version else list)
        observations = envs.step(actions)[0]
        assert observations["text"] == ["uint8"] * 2
        assert np.array_equal(observations["cells"], [pixels] * 2)


class HalfEnv(EnvClient[Move, Board, State]):
    """A client that sends something else than it is given."""

    def _step_payload(self, action: Any) -> dict[str, Any]:
        fields = super()._step_payload(action)
        return {"by": [value / 2 for value in fields["by"]]}


def test_every_form_of_action_goes_through_the_hook(serve: Any) -> None:
    halves = [[0.5, 1.0], [1.5, 2.0]]
    with VectorEnv(serve(create_app(Game, Move, Board)), 2, client=HalfEnv) as envs:
        envs.reset()
        for actions in (
            [Move(by=[1.0, 2.0]), Move(by=[3.0, 4.0])],
            [{"by": [1.0, 2.0]}, {"by": [3.0, 4.0]}],
            {"by": [[1.0, 2.0], [3.0, 4.0]]},
        ):
            assert envs.step(actions)[0]["moved"].tolist() == halves


@pytest.mark.parametrize("client", [CounterEnv, OldEnv])
def test_the_hooks_of_a_client_are_used(serve: Any, client: Any) -> None:
    with VectorEnv(serve(create_app(Counter)), 2, client=client) as envs:
        observations, _ = envs.reset()
        word = "READY" if client is OldEnv else "ready"
        assert observations["text"] == [word, word]
        assert observations.keys() == {"text", "value", "arguments"}
        *_, truncations, infos = envs.step([Do(what="truncate"), Do(what="annotate")])
        assert truncations.tolist() == [True, False]
        assert infos["_k"].tolist() == [False, True] and infos["k"][1] == [1, {"a": None}]


def test_the_environments_may_be_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "log", Log())
    with VectorEnv.local(Counter, 3, client=CounterEnv) as envs:
        assert envs.reset(seed=5)[0]["text"] == ["ready"] * 3
        assert envs.step([Do()] * 3)[1].tolist() == [1.0] * 3
    assert Counter.log.count("init") == Counter.log.count("close") == 3
    with VectorEnv.local(create_app(Counter), 2, client=CounterEnv) as envs:
        assert envs.reset()[0]["text"] == ["ready"] * 2
