"""Tests of the Atari environment against ALE itself and Gymnasium's Atari environment."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from ale_py import ALEInterface, roms
from support import rewards

from atari_env.client import AtariEnv
from atari_env.models import AtariAction, AtariObservation, AtariTask
from atari_env.server import snapshots
from atari_env.server.atari_environment import VARIABLES, AtariEnvironment
from atari_env.server.episode import STEPS_A_CHECKPOINT, generator_seed
from atari_env.server.games import GAMES, GAMES_FOR_TWO, Console, return_console, take_console
from atari_env.server.tasks import ATARI57, SCORES, SPLITS, TEST, TRAIN, VARIED
from openenv import Refused, VectorEnv
from openenv.testing import check_environment

RGB, GREY = (210, 160, 3), (210, 160)

# Games in which a restored state of ALE may continue differently from the original.
INEXACT = ["qbert", "tetris", "tic_tac_toe_3d", "yars_revenge", "miniature_golf", "video_chess"]


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES.values(), snapshots.KEY_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


def move(env: AtariEnvironment, action_id: int) -> AtariObservation:
    return env.step(AtariAction(action_id=action_id))


def plain(observation: AtariObservation) -> dict[str, Any]:
    """Return an observation as values that can be compared."""
    return {**observation.model_dump(), "screen": observation.screen.tobytes()}


def played(
    env: AtariEnvironment, steps: int, choices: random.Random | None = None
) -> list[dict[str, Any]]:
    """Play at random, with the same choices each time, to the end or for `steps` steps."""
    choices = choices or random.Random(7)
    legal = len(move(env, 0).legal_actions)
    seen: list[dict[str, Any]] = []
    while len(seen) < steps and not (seen and seen[-1]["done"]):
        seen.append(plain(move(env, choices.randrange(legal))))
    return seen


def episode(env: AtariEnvironment, steps: int = 100, **options: Any) -> list[dict[str, Any]]:
    return [plain(env.reset(**options)), *played(env, steps)]


# ------------------------------------------------------------------ the contract


EVERY_GAME = pytest.mark.extended("plays every game")
SHORT = {"frameskip": 30, "max_frames": 300}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"obs_type": "ram"},
        {"game_name": "breakout", "obs_type": "ram", "repeat_action_probability": 0.25},
        {"game_name": "space_invaders", "obs_type": "ram", "full_action_space": True, **SHORT},
    ],
    ids=str,
)
def test_every_setting_keeps_the_contract(options: dict[str, Any]) -> None:
    actions = [AtariAction(action_id=action_id) for action_id in (1, 2, 3, 0)]
    report = check_environment(partial(AtariEnvironment, **options), actions=actions)
    assert report.broken == []


@pytest.mark.slow
@pytest.mark.parametrize("obs_type", ["rgb", "grayscale"])
def test_screens_keep_the_contract(obs_type: Any) -> None:
    factory = partial(AtariEnvironment, obs_type=obs_type)
    actions = [AtariAction(action_id=action_id) for action_id in (1, 2, 3)]
    assert check_environment(factory, actions=actions, max_steps=3).broken == []


def test_rewards_are_as_they_are_declared() -> None:
    choices = random.Random(0)
    with AtariEnv.local(AtariEnvironment).sync() as env:
        game = rewards.played(
            env,
            lambda seen: AtariAction(action_id=choices.choice(seen.legal_actions)),
            max_steps=400,
            game_name="space_invaders",
            seed=0,
        )
        score = env.state().score
    assert rewards.worth(game) == score > 0
    assert rewards.parts(game) == {"points": score}


@pytest.mark.parametrize(
    ("game", "expected"), [("pong", 21.0), ("boxing", 100.0), ("breakout", 1e6)]
)
def test_each_episode_tells_the_range_of_its_game(game: str, expected: float) -> None:
    with AtariEnv.local(AtariEnvironment).sync() as env:
        env.reset(game_name=game, obs_type="ram")
        assert env.reward_spec is not None and env.reward_spec.range == (-expected, expected)


def test_a_game_of_boxing_is_within_its_range_whoever_wins() -> None:
    for action in (0, 1):
        with AtariEnv.local(AtariEnvironment).sync() as env:
            game = rewards.played(
                env,
                rewards.in_turn([AtariAction(action_id=action)] * 300),
                max_steps=300,
                game_name="boxing",
                obs_type="ram",
                frameskip=30,
            )
        assert rewards.worth(game)


def test_a_client_chooses_the_game_and_plays_it() -> None:
    with AtariEnv.local(AtariEnvironment).sync() as env:
        first = env.reset(seed=3, game_name="breakout", obs_type="grayscale").observation
        assert first.frame.shape == GREY and first.frame.dtype == np.uint8
        assert first.lives == 5
        result = env.step(AtariAction(action_id=1, game_name="breakout"))
        assert result.observation.metadata["action_meanings"] == ["NOOP", "FIRE", "RIGHT", "LEFT"]
        state = env.state()
    assert (state.game_name, state.obs_type, state.step_count) == ("breakout", "grayscale", 1)


def test_the_client_side_does_not_import_ale() -> None:
    code = (
        "import sys, atari_env; from atari_env import AtariEnv, AtariAction; "
        "assert not {'ale_py', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ fidelity


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("pong", {"repeat_action_probability": 0.25}),
        ("breakout", {"repeat_action_probability": 0.25, "mode": 4, "difficulty": 1}),
        ("ms_pacman", {"repeat_action_probability": 0.5, "obs_type": "grayscale"}),
        ("seaquest", {"frameskip": 3, "obs_type": "ram", "full_action_space": True}),
        ("name_this_game", {"repeat_action_probability": 1.0, "obs_type": "ram"}),
    ],
)
def test_a_seed_gives_the_episode_that_gymnasium_has(game: str, options: dict[str, Any]) -> None:
    gymnasium.register_envs(ale_py)
    name = f"ALE/{game.title().replace('_', '')}-v5"
    with gymnasium.make(name, **{"repeat_action_probability": 0.0, **options}) as reference:
        env = AtariEnvironment(game, **options)
        for seed in (0, 5, 2**70):
            screen, info = reference.reset(seed=seed)
            seen = env.reset(seed=seed)
            choices = random.Random(1)
            for _ in range(80):
                assert seen.frame.tobytes() == screen.tobytes()
                assert seen.lives == info["lives"]
                assert seen.frame_number == info["frame_number"]
                assert seen.episode_frame_number == info["episode_frame_number"]
                if seen.done:
                    break
                action = choices.randrange(len(seen.legal_actions))
                screen, reward, terminated, truncated, info = reference.step(action)
                seen = move(env, action)
                assert (seen.reward, seen.done, seen.truncated) == (reward, terminated, truncated)


@pytest.mark.parametrize("game", ["pong", "adventure", "berzerk", "double_dunk", "video_pinball"])
def test_a_reset_is_a_console_switched_on(game: str) -> None:
    """ALE's own reset keeps the timers of the last game, so berzerk continues differently."""
    env = AtariEnvironment(game)
    reference = episode(AtariEnvironment(game), 40, seed=0)
    for _ in range(3):
        assert episode(env, 40, seed=0) == reference
        played(env, 25, random.Random(3))
    env.reset(game_name="pong" if game != "pong" else "breakout")
    assert episode(env, 40, seed=0) == reference


def test_the_games_are_those_that_ale_plays_alone() -> None:
    every = set(roms.get_all_rom_ids())
    paths = {name: roms.get_rom_path(name) for name in every}
    playable = {name for name, path in paths.items() if path and ALEInterface.isSupportedROM(path)}
    assert set(GAMES) == playable
    assert playable.isdisjoint(GAMES_FOR_TWO) and playable | GAMES_FOR_TWO == every
    assert len(GAMES) == 104


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("games", [GAMES[::13], pytest.param(GAMES, marks=EVERY_GAME)])
def test_every_game_is_played_stored_and_gone_on_with(games: Sequence[str]) -> None:
    for game in games:
        env, elsewhere = AtariEnvironment(game), AtariEnvironment("pong")
        first = env.reset(seed=1)
        assert first.frame.shape[1:] == RGB[1:] and not first.done
        played(env, 40)
        if env._require_episode("test").is_over:
            continue
        elsewhere.restore(env.snapshot())
        assert np.array_equal(elsewhere.render(), env.render()), game
        if not env._require_episode("test").is_over:
            assert played(env, 12) == played(elsewhere, 12), game
        env.close()
        elsewhere.close()


def test_no_mode_is_over_before_it_begins() -> None:
    env = AtariEnvironment("demon_attack")
    assert take_console("demon_attack").modes == [1]
    with pytest.raises(Refused, match="only mode 1"):
        env.reset(mode=3)


# ------------------------------------------------------------------ seeds


STICKY: dict[str, Any] = {"repeat_action_probability": 0.25, "obs_type": "ram"}


def test_the_seed_determines_the_episode() -> None:
    first, second = AtariEnvironment(**STICKY), AtariEnvironment(**STICKY)
    for seed in (0, 1, -1, 2**70):
        expected = episode(first, seed=seed)
        assert episode(second, seed=seed) == expected
        assert episode(first, seed=seed) == expected


def test_the_seed_determines_the_episode_in_another_process() -> None:
    code = f"""
import hashlib
from atari_env.server.atari_environment import AtariEnvironment
from atari_env.models import AtariAction
env = AtariEnvironment("breakout", **{STICKY!r})
env.reset(seed=11)
screens = [env.step(AtariAction(action_id=i % 4)).screen.tobytes() for i in range(80)]
print(hashlib.sha256(b"".join(screens)).hexdigest())
"""
    runs = {subprocess.check_output([sys.executable, "-c", code], timeout=60) for _ in range(2)}
    assert len(runs) == 1


def test_sticky_actions_depend_on_the_seed() -> None:
    env = AtariEnvironment(**STICKY)
    assert len({repr(episode(env, seed=seed)) for seed in range(5)}) == 5
    assert repr(episode(env)) != repr(episode(env))
    assert generator_seed(3) != generator_seed(-3)


def test_without_sticky_actions_every_episode_is_the_same() -> None:
    env = AtariEnvironment(obs_type="ram")
    assert episode(env, seed=1) == episode(env, seed=2) == episode(env)


def test_games_side_by_side_on_threads_do_not_disturb_one_another() -> None:
    alone = [episode(AtariEnvironment(**STICKY), 30, seed=seed) for seed in range(6)]
    envs = [AtariEnvironment(**STICKY) for _ in alone]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda i: episode(envs[i], 30, seed=i), range(6)))
    assert together == alone


def test_no_other_random_generator_is_read_or_advanced() -> None:
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
    episode(AtariEnvironment(**STICKY), 20, seed=5)
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before  # type: ignore[index]


# ------------------------------------------------------------------ observations


@pytest.mark.parametrize(
    ("obs_type", "shape"), [("rgb", RGB), ("grayscale", GREY), ("ram", (128,))]
)
def test_a_screen_is_flat_and_says_its_shape(obs_type: Any, shape: tuple[int, ...]) -> None:
    env = AtariEnvironment(obs_type=obs_type)
    seen = env.reset()
    assert seen.screen.ndim == 1 and seen.screen.dtype == np.uint8
    assert tuple(seen.screen_shape) == seen.frame.shape == shape
    assert np.shares_memory(seen.frame, seen.screen)
    assert env.render().shape == RGB
    if obs_type == "rgb":
        assert np.array_equal(env.render(), seen.frame)


def test_an_observation_stays_what_it_was_when_the_game_goes_on() -> None:
    env = AtariEnvironment("breakout")
    first = env.reset()
    before = first.screen.copy()
    played(env, 20)
    assert np.array_equal(first.screen, before)


def test_the_outline_of_an_episode() -> None:
    env = AtariEnvironment("breakout", frameskip=60, obs_type="ram")
    first = env.reset(episode_id="mine")
    assert (first.reward, first.done, first.lives, first.frame_number) == (0.0, False, 5, 0)
    seen = played(env, 1000)
    assert seen[-1]["done"] and not seen[-1]["truncated"] and seen[-1]["lives"] == 0
    assert not any(one["done"] for one in seen[:-1])
    assert env.state.score == sum(one["reward"] for one in seen) > 0
    assert (env.state.episode_id, env.state.step_count) == ("mine", len(seen) + 1)


def test_the_full_action_space_has_eighteen_actions() -> None:
    env = AtariEnvironment()
    assert len(env.reset().legal_actions) == 6
    seen = env.reset(full_action_space=True)
    assert seen.legal_actions == list(range(18))
    assert seen.metadata["action_meanings"][17] == "DOWNLEFTFIRE"


@pytest.mark.parametrize("max_frames", [1, 30, 31])
def test_the_limit_on_frames_truncates(max_frames: int) -> None:
    env = AtariEnvironment(max_frames=max_frames, obs_type="ram")
    env.reset()
    seen = move(env, 0)
    while not seen.done:
        seen = move(env, 0)
    assert seen.truncated and seen.episode_frame_number == max_frames
    assert env.state.step_count == -(-max_frames // 4)
    with pytest.raises(Refused, match="after done"):
        move(env, 0)


def test_an_episode_has_a_frame_even_if_its_beginning_takes_all() -> None:
    env = AtariEnvironment("name_this_game", max_frames=10, obs_type="ram")
    first = env.reset()
    assert first.episode_frame_number > 10 and not first.done
    seen = move(env, 0)
    assert seen.truncated and seen.frame_number == first.frame_number + 1


def test_without_a_limit_nothing_is_truncated() -> None:
    env = AtariEnvironment(max_frames=0, frameskip=1000, obs_type="ram")
    env.reset()
    assert not move(env, 0).truncated


# ------------------------------------------------------------------ refusals


def test_what_needs_a_game_is_refused_before_reset() -> None:
    env = AtariEnvironment()
    for call in (partial(move, env, 0), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    assert (env.state.episode_id, env.state.step_count) == (None, 0)


@pytest.mark.parametrize("action_id", [-1, 6, 18, 99])
def test_an_illegal_action_is_refused_and_changes_nothing(action_id: int) -> None:
    env, undisturbed = AtariEnvironment(obs_type="ram"), AtariEnvironment(obs_type="ram")
    env.reset(episode_id="one")
    undisturbed.reset(episode_id="one")
    with pytest.raises(Refused, match=rf"illegal action {action_id} in pong.*2 \(RIGHT\)"):
        move(env, action_id)
    assert env.state == undisturbed.state
    assert played(env, 5) == played(undisturbed, 5)


def test_an_action_that_names_another_game_is_refused() -> None:
    env = AtariEnvironment("breakout", obs_type="ram", full_action_space=True)
    env.reset()
    env.step(AtariAction(action_id=1))
    env.step(AtariAction(action_id=1, game_name="breakout", obs_type="ram", full_action_space=True))
    env.reset(full_action_space=False)
    for wrong in ({"game_name": "qbert"}, {"obs_type": "grayscale"}, {"full_action_space": True}):
        with pytest.raises(Refused, match=f"the action says {next(iter(wrong))}="):
            env.step(AtariAction.model_validate({"action_id": 1, **wrong}))
    assert env.state.step_count == 0


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"game_name": "spaceinvaders"}, "did you mean 'space_invaders'"),
        ({"game_name": "ALE/MsPacman-v5"}, "did you mean 'ms_pacman'"),
        ({"game_name": "montezuma"}, "did you mean 'montezuma_revenge'"),
        ({"game_name": "../../etc/passwd"}, "known are adventure, "),
        ({"game_name": ""}, "known are adventure, "),
        ({"game_name": "combat"}, "a game for two"),
        ({"game_name": 3}, "game_name=3"),
        ({"obs_type": "RGB"}, "'rgb', 'grayscale' or 'ram'"),
        ({"mode": 9}, "only mode 0, 1"),
        ({"difficulty": -1}, "only difficulty 0, 1, 2, 3"),
        ({"game_name": "breakout", "mode": 1}, "only mode 0, 4"),
        ({"frameskip": 0}, "frameskip=0"),
        ({"frameskip": 10**9}, "frameskip=1000000000"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability=1.5"),
        ({"repeat_action_probability": float("nan")}, "repeat_action_probability=nan"),
        ({"max_frames": -1}, "max_frames=-1"),
        ({"task": "pongg"}, "did you mean 'pong'"),
        ({"task": {"id": "x", "frameskip": 0}}, "frameskip=0"),
        ({"task": {}}, "this is no task: id="),
        ({"task": "pong", "frameskip": 2, "mode": 1}, "sets frameskip, mode"),
    ],
    ids=str,
)
def test_a_wrong_choice_is_refused_and_the_game_goes_on(wrong: dict[str, Any], hint: str) -> None:
    env, undisturbed = AtariEnvironment(obs_type="ram"), AtariEnvironment(obs_type="ram")
    env.reset(episode_id="one")
    undisturbed.reset(episode_id="one")
    with pytest.raises(Refused, match=hint):
        env.reset(**wrong)
    assert env.state == undisturbed.state
    assert played(env, 5) == played(undisturbed, 5)


def test_a_misspelt_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        AtariEnvironment().reset(game="pong")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("variable", "text", "hint"),
    [
        ("ATARI_GAME", "pongg", "did you mean 'pong'"),
        ("ATARI_MODE", "9", "only mode"),
        ("ATARI_FRAMESKIP", "four", "frameskip='four'"),
        ("ATARI_FULL_ACTION_SPACE", "perhaps", "full_action_space='perhaps'"),
    ],
)
def test_a_wrong_variable_keeps_the_environment_from_being_made(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, hint: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=hint):
        AtariEnvironment()


# ------------------------------------------------------------------ options


def test_the_defaults_are_those_of_existing_programs() -> None:
    state = AtariEnvironment().state
    assert (state.game_name, state.obs_type, state.full_action_space) == ("pong", "rgb", False)
    assert (state.mode, state.difficulty) == (None, None)
    assert (state.repeat_action_probability, state.frameskip) == (0.0, 4)
    assert state.max_frames == 108_000


def test_variables_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "ATARI_GAME": "breakout",
        "ATARI_OBS_TYPE": "ram",
        "ATARI_FULL_ACTION_SPACE": "True",
        "ATARI_MODE": "4",
        "ATARI_DIFFICULTY": "1",
        "ATARI_REPEAT_ACTION_PROB": "0.5",
        "ATARI_FRAMESKIP": "2",
        "ATARI_MAX_FRAMES": "",
    }.items():
        monkeypatch.setenv(name, text)
    state = AtariEnvironment(frameskip=3).state
    assert (state.game_name, state.obs_type, state.full_action_space) == ("breakout", "ram", True)
    assert (state.mode, state.difficulty, state.max_frames) == (4, 1, 108_000)
    assert (state.repeat_action_probability, state.frameskip) == (0.5, 3)


def test_a_choice_is_for_one_episode_and_a_mode_for_one_game() -> None:
    env = AtariEnvironment("breakout", mode=4, difficulty=1, obs_type="ram")
    env.reset(game_name="freeway", frameskip=2)
    assert (env.state.game_name, env.state.mode, env.state.frameskip) == ("freeway", None, 2)
    assert env.state.obs_type == "ram"
    env.reset()
    assert (env.state.game_name, env.state.mode, env.state.frameskip) == ("breakout", 4, 4)
    env.reset(mode=8)
    assert (env.state.mode, env.state.difficulty) == (8, 1)


def test_modes_and_difficulties_change_the_game() -> None:
    invaders = AtariEnvironment("space_invaders", obs_type="ram")
    assert len({repr(episode(invaders, 30, mode=mode)) for mode in (0, 1, 2)}) == 3
    pong = AtariEnvironment("pong", obs_type="ram")
    assert episode(pong, 80, difficulty=0) != episode(pong, 80, difficulty=3)


def test_consoles_are_kept_for_the_next_who_plays() -> None:
    env = AtariEnvironment("tutankham")
    console = env._console
    env.close()
    assert AtariEnvironment("tutankham")._console is console
    assert take_console("tutankham") is not console


def test_of_many_idle_consoles_the_last_are_kept() -> None:
    console = take_console("pong")
    others = [Console.__new__(Console) for _ in range(70)]
    for other in others:
        other.game_name = "none"
        return_console(other)
    return_console(console)
    assert take_console("pong") is console


# ------------------------------------------------------------------ tasks


def test_the_splits_are_those_of_the_papers() -> None:
    env = AtariEnvironment()
    sizes = {"train": 5, "test": 50, "atari57": 57, "all": 104, "variations": 77}
    assert {split: env.num_tasks(split) for split in env.list_splits()} == sizes
    assert set(TRAIN).isdisjoint(TEST)
    assert {*TRAIN, *TEST, *ATARI57, *VARIED} <= set(GAMES)
    assert len(SCORES) == 49 and set(SCORES) <= {*TRAIN, *TEST}
    assert all(low < high for low, high in SCORES.values())


def test_a_task_is_had_by_its_place_and_begun_by_its_id_or_itself() -> None:
    env = AtariEnvironment(obs_type="ram", frameskip=2)
    task = env.get_task("variations", 3)
    assert task.id == "freeway/mode-1/difficulty-1"
    for given in (task, task.id, task.model_dump()):
        env.reset(seed=0, task=given)
        state = env.state
        assert (state.game_name, state.mode, state.difficulty) == ("freeway", 1, 1)
        assert (state.repeat_action_probability, state.frameskip) == (0.25, 4)
        assert state.obs_type == "ram"
    env.reset(task="pong", obs_type="grayscale")
    assert (env.state.game_name, env.state.obs_type) == ("pong", "grayscale")


def test_tasks_are_counted_and_sliced() -> None:
    env = AtariEnvironment()
    every = env.list_tasks("train")
    assert env.get_task_range("train", 1, 3) == every[1:3]
    assert env.get_task_range("train") == every
    assert every[0] == AtariTask(
        id="asterix",
        game_name="asterix",
        repeat_action_probability=0.25,
        random_score=210,
        human_score=8503,
    )
    for index in (-1, 5):
        with pytest.raises(IndexError):
            env.get_task("train", index)
    with pytest.raises(Refused, match="did you mean 'train'"):
        env.list_tasks("trian")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=EVERY_GAME)])
def test_every_task_can_be_begun(every: int) -> None:
    env = AtariEnvironment(obs_type="ram")
    tasks = {task.id: task for tasks in SPLITS.values() for task in tasks}
    for task in list(tasks.values())[::every]:
        assert not env.reset(task=task).done, task.id
        assert not move(env, 0).done, task.id


# ------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("steps", [0, 1, STEPS_A_CHECKPOINT, 2 * STEPS_A_CHECKPOINT + 1, 90])
def test_a_stored_episode_goes_on_anywhere(steps: int) -> None:
    env = AtariEnvironment("seaquest", repeat_action_probability=0.25)
    elsewhere = AtariEnvironment("pong", obs_type="ram")
    env.reset(seed=4, episode_id="e")
    played(env, steps)
    stored = env.snapshot()
    elsewhere.restore(stored)
    assert elsewhere.state == env.state
    assert np.array_equal(elsewhere.render(), env.render())
    assert elsewhere.snapshot() == stored
    expected = played(env, 60)
    assert played(elsewhere, 60) == expected
    env.restore(stored)
    assert played(env, 60) == expected


@pytest.mark.parametrize("game", INEXACT)
def test_games_whose_states_ale_stores_badly_go_on_exactly(game: str) -> None:
    """ALE's own states lack registers of the graphics chip and rewards."""
    env, elsewhere = AtariEnvironment(game), AtariEnvironment(game)
    choices = random.Random(0)
    env.reset(seed=0)
    for _ in range(6):
        played(env, 25, choices)
        if env._require_episode("test").is_over:
            env.reset(seed=0)
        elsewhere.restore(env.snapshot())
        state = choices.getstate()
        expected = played(env, 8, choices)
        choices.setstate(state)
        assert played(elsewhere, 8, choices) == expected
        if env._require_episode("test").is_over:
            env.reset(seed=0)


def test_a_checkpoint_that_leads_elsewhere_is_made_up_for() -> None:
    env, elsewhere = AtariEnvironment(), AtariEnvironment()
    env.reset(seed=0)
    played(env, 60)
    stored = snapshots.read(env.snapshot())
    other = AtariEnvironment()
    other.reset(seed=0)
    for _ in range(70):
        move(other, 3)
    wrong = snapshots.read(other.snapshot())
    assert stored.checkpoint is not None and wrong.checkpoint is not None
    checkpoint = stored.checkpoint.model_copy(update={"state": wrong.checkpoint.state})
    stored = stored.model_copy(update={"checkpoint": checkpoint})
    elsewhere._episode = snapshots.resume(stored, elsewhere._console)
    assert played(elsewhere, 30) == played(env, 30)


def test_a_finished_episode_may_be_stored() -> None:
    env = AtariEnvironment("breakout", frameskip=60, obs_type="ram")
    assert episode(env, 1000, seed=1)[-1]["done"]
    stored = env.snapshot()
    env.reset()
    env.restore(stored)
    with pytest.raises(Refused, match="after done"):
        move(env, 0)


def forged(stored: bytes, **changes: Any) -> bytes:
    """Return a stored episode with other fields and without a valid code."""
    code, body = stored[:32], json.loads(stored[32:])
    return code + json.dumps({**body, **changes}).encode()


def test_another_servers_episode_is_played_again_and_its_checkpoint_not_looked_at() -> None:
    env = AtariEnvironment("seaquest", repeat_action_probability=0.25, obs_type="ram")
    env.reset(seed=9)
    played(env, 50)
    stored = env.snapshot()
    checkpoint = {**json.loads(stored[32:])["checkpoint"]}
    checkpoint["state"] = base64.urlsafe_b64encode(hostile_state(checkpoint["state"])).decode()
    elsewhere = AtariEnvironment()
    elsewhere.restore(forged(stored, checkpoint=checkpoint))
    assert elsewhere.state == env.state
    assert played(elsewhere, 20) == played(env, 20)


def test_of_another_servers_episode_so_many_frames_are_played_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server restores its own episodes of any length from a checkpoint."""
    monkeypatch.setattr("atari_env.server.snapshots._MAX_REPLAY_FRAMES", 400)
    env, elsewhere = (AtariEnvironment("pong", frameskip=10, obs_type="ram") for _ in range(2))
    env.reset(seed=9)
    elsewhere.reset(seed=4)
    played(env, 20)
    short = env.snapshot()
    played(env, 40)
    before = elsewhere.state
    with pytest.raises(Refused, match="of which 400 are played again"):
        elsewhere.restore(forged(env.snapshot()))
    assert elsewhere.state == before
    elsewhere.restore(forged(short))
    assert elsewhere.state.step_count < 40
    elsewhere.restore(env.snapshot())
    assert elsewhere.state == env.state


def hostile_state(state: str) -> bytes:
    """Return a state of the emulator that ALE accepts and that ends the process."""
    data = bytearray(base64.urlsafe_b64decode(state))
    at = data.index(b"M6532") + len(b"M6532")
    assert data[at : at + 4] == (128).to_bytes(4, "little")  # the number of bytes that follow
    data[at : at + 4] = (2**30).to_bytes(4, "little")
    return bytes(data)


def test_ale_would_have_ended_the_process() -> None:
    """The authentication code is needed because wrong states end the process."""
    env = AtariEnvironment()
    env.reset()
    played(env, 50)
    state = json.loads(env.snapshot()[32:])["checkpoint"]["state"]
    code = (
        "import sys; from atari_env.server.games import Console; from ale_py import ALEState; "
        "Console('pong').ale.restoreSystemState(ALEState(sys.stdin.buffer.read()))"
    )
    data = hostile_state(state)
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=False, timeout=60
    )
    assert done.returncode < 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": "AAAA"},
        {"actions": base64.b64encode(b"\xff" * 3).decode()},
        {"actions": "no base64!"},
        {"seed": -1},
        {"seed": 2**32},
        {"digest": "0"},
        {"setting": {"game_name": "combat"}},
        {"setting": {"game_name": "/etc/passwd"}},
        {"setting": {"game_name": "pong", "mode": 77}},
        {"setting": {"frameskip": 10**9}},
        {"setting": {"frameskip": 1000}, "actions": base64.b64encode(bytes(200)).decode()},
        {"more": 1},
    ],
    ids=lambda wrong: str(wrong)[:60],
)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = AtariEnvironment(obs_type="ram")
    env.reset(seed=1)
    played(env, 20)
    before = env.snapshot()
    with pytest.raises(Refused):
        env.restore(forged(before, **wrong))
    assert env.snapshot() == before
    move(env, 1)


def test_bytes_that_are_nothing_are_refused() -> None:
    env = AtariEnvironment()
    for data in (b"", b"\xff\x00", bytes(32) + b"[]", bytes(32) + b"null", bytes(64)):
        with pytest.raises(Refused, match="not a stored episode"):
            env.restore(data)


def test_servers_with_one_key_believe_each_others_checkpoints() -> None:
    code = (
        "import sys; from atari_env.server.atari_environment import AtariEnvironment; "
        "from atari_env.models import AtariAction; env = AtariEnvironment(); env.reset(seed=0); "
        "[env.step(AtariAction(action_id=2)) for _ in range(50)]; "
        "sys.stdout.buffer.write(env.snapshot())"
    )
    read = (
        "import sys; from atari_env.server import snapshots; "
        "print(snapshots.read(sys.stdin.buffer.read()).checkpoint is not None)"
    )

    def run(code: str, key: str, data: bytes = b"") -> bytes:
        environ = {**os.environ, snapshots.KEY_VARIABLE: key}
        command = [sys.executable, "-c", code]
        return subprocess.check_output(command, input=data, env=environ, timeout=60)

    stored = run(code, "one key")
    assert run(read, "one key", stored).strip() == b"True"
    assert run(read, "another", stored).strip() == b"False"


# ------------------------------------------------------------------ concurrency


def test_a_vector_of_games_is_what_each_is_alone() -> None:
    alone = [episode(AtariEnvironment(**STICKY), 0, seed=5 + i) for i in range(4)]
    with VectorEnv.local(AtariEnvironment, 4, client=AtariEnv) as envs:
        observations, _ = envs.reset(seed=5, options=STICKY)
        assert observations["screen"].shape == (4, 128)
        assert observations["screen"].dtype == np.uint8
        for i, seen in enumerate(alone):
            assert observations["screen"][i].tobytes() == seen[0]["screen"]
        steps = [envs.step({"action_id": np.array([2, 3, 4, 5])}) for _ in range(10)]
    observations, rewards, *_ = steps[-1]
    for i, action_id in enumerate((2, 3, 4, 5)):
        env = AtariEnvironment(**STICKY)
        env.reset(seed=5 + i)
        last = [move(env, action_id) for _ in range(10)][-1]
        assert last.screen.tobytes() == observations["screen"][i].tobytes()
        assert last.reward == rewards[i]
