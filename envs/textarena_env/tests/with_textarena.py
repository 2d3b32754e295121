"""Tests of the TextArena environment that need the library.

The tests need no network: the two games that need NLTK data get made-up data.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import rewards
from support.servers import serving

from openenv import Refused
from openenv.errors import ServerError
from openenv.reward import REWARD_INFO
from openenv.rollouts.policies.views import view
from openenv.testing import check_environment
from openenv.testing.environment import ARGUMENTS_ARE_TAKEN
from openenv.types import StepResult, public_view
from textarena_env import (
    TextArenaAction,
    TextArenaEnv,
    TextArenaMessage,
    TextArenaObservation,
)
from textarena_env.server import textarena_environment
from textarena_env.server.app import app
from textarena_env.server.dice import Dice
from textarena_env.server.game import GAMES, Game
from textarena_env.server.opponents import find_listed_moves
from textarena_env.server.textarena_environment import TASK_GAMES, TextArenaEnvironment

pytestmark = [
    pytest.mark.filterwarnings("default"),  # the library's own warnings are not ours to fix
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TEXTARENA_"):
            monkeypatch.delenv(name)


def make(env_id: str = "Mastermind-v0", **options: Any) -> TextArenaEnvironment:
    return TextArenaEnvironment(env_id, download_nltk=False, **options)


def say(env: TextArenaEnvironment, message: str) -> TextArenaObservation:
    return env.step(TextArenaAction(message=message))


def any_move(seen: TextArenaObservation) -> TextArenaAction:
    """Return the first move that the game lists, or else an invalid one."""
    return TextArenaAction(message=next(iter(find_listed_moves(seen.new_messages)), "[0]"))


def play(env: TextArenaEnvironment, limit: int = 12, **reset: Any) -> list[TextArenaObservation]:
    seen = [env.reset(**reset)]
    while not seen[-1].done and len(seen) <= limit:
        seen.append(env.step(any_move(seen[-1])))
    return seen


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize(
    ("env_id", "num_players", "arguments"),
    [
        ("Mastermind-v0", 1, {}),
        ("GuessTheNumber-v0", 1, {}),
        ("TicTacToe-v0", 2, {}),
        ("TicTacToe-v0", 2, {"opponent": "random", "agent_player": 1}),
        ("ThreePlayerTicTacToe-v0", 3, {"opponent": "random"}),
        ("Nim-v0", 2, {"opponent": "scripted", "opponent_messages": ["[0 1]", "[1 1]"]}),
    ],
)
def test_it_keeps_the_contract(env_id: str, num_players: int, arguments: dict[str, Any]) -> None:
    check_environment(
        partial(TextArenaEnvironment, env_id, num_players, download_nltk=False),
        actions=any_move,
        reset_arguments=arguments,
        max_steps=8,
        # The check passes each argument alone, but opponents need several arguments.
        skip=[ARGUMENTS_ARE_TAKEN] if arguments else [],
    )


def test_rewards_are_as_they_are_declared() -> None:
    with TextArenaEnv.local(partial(TextArenaEnvironment, download_nltk=False)).sync() as env:
        won = rewards.played(
            env,
            lambda seen: TextArenaAction(message=f"[{env.state().raw_state['game_number']}]"),
            env_id="GuessTheNumber-v0",
            seed=5,
        )
        moves = [TextArenaAction(message=move) for move in ("[0]", "[3]", "[1]", "[4]", "[2]")]
        both = rewards.played(
            env, rewards.in_turn(moves), env_id="TicTacToe-v0", num_players=2, seed=1
        )
        codes = [TextArenaAction(message=code) for code in ("[1 2 3 4]", "[4 3 2 1]")]
        cut_off = rewards.played(
            env, rewards.in_turn(codes), env_id="Mastermind-v0", max_turns=2, seed=1
        )
    assert (rewards.worth(won), rewards.parts(won)) == (1.0, {"payoff": 1.0})
    assert (rewards.worth(both), rewards.parts(both)) == (1.0, {"payoff": 1.0})
    assert cut_off[-1].truncated and rewards.worth(cut_off) == 0.0


def test_every_argument_of_reset_may_be_null() -> None:
    env = make()
    nothing: dict[str, None] = dict.fromkeys(
        ["seed", "task", "env_id", "num_players", "max_turns", "opponent", "opponent_messages"]
    )
    assert env.reset(**nothing, agent_player=None).prompt


def test_it_is_played_over_a_socket() -> None:
    with serving(app) as url, TextArenaEnv(base_url=url).sync() as env:
        first = env.reset(env_id="GuessTheNumber-v0", seed=5)
        assert first.reward is None and first.observation.legal_players == [0]
        secret = env.state().raw_state["game_number"]
        wrong = env.step(TextArenaAction(message=f"[{secret % 20 + 1}]"))
        assert (wrong.reward, wrong.done) == (0.0, False)
        assert wrong.observation.messages and wrong.observation.prompt == first.observation.prompt
        last = env.step(TextArenaAction(message=f"[{secret}]"))
        assert (last.reward, last.done) == (1.0, True)
        assert last.observation.info["rewards"] == {"0": 1.0}
        with pytest.raises(ServerError, match="call reset"):
            env.step(TextArenaAction(message="[1]"))
        with pytest.raises(ServerError, match="did you mean 'GuessTheNumber-v0'"):
            env.reset(env_id="guessthenumber-v0")


def base_games() -> list[str]:
    return [
        name for name in GAMES if not name.endswith(("-raw", "-train")) and name.endswith("-v0")
    ]


@pytest.mark.parametrize("env_id", base_games())
def test_every_game_is_played_or_says_why_not(env_id: str) -> None:
    env, refusals = make("Mastermind-v0"), []
    for num_players in (1, 2, 3, 4, 6):
        try:
            first = env.reset(env_id=env_id, num_players=num_players, seed=1)
        except Refused as refusal:
            refusals.append(str(refusal))
            continue
        assert first.prompt and first.messages and not first.done
        json.dumps([env.state.model_dump(mode="json"), first.model_dump(mode="json")])
        again = make("Mastermind-v0")
        again.restore(env.snapshot())
        assert again.state == env.state
        return
    assert len(refusals) == 5 and all(env_id in refusal for refusal in refusals)


# ------------------------------------------------------------------ seeds


@pytest.mark.parametrize("env_id", TASK_GAMES)
def test_the_seed_determines_the_game_and_is_not_ignored(env_id: str) -> None:
    first, second = make(env_id), make(env_id)
    expected = play(first, seed=3)
    random.seed(99)
    assert play(second, seed=3) == expected
    assert play(first, seed=3) == expected
    states = set()
    for seed in (0, 1, 2, 3, -1, 2**70):
        first.reset(seed=seed)
        say(first, "[4 4]")  # the game lays the mines after the first move
        states.add(repr((first.state.raw_state, first.render())))
    assert len(states) > 1


def test_games_side_by_side_do_not_disturb_one_another() -> None:
    alone = [play(make(env_id), seed=3) for env_id in TASK_GAMES]
    envs = [make(env_id) for env_id in TASK_GAMES]
    seen = [[env.reset(seed=3)] for env in envs]
    for _ in range(12):
        for env, history in zip(envs, seen, strict=True):
            if not history[-1].done:
                history.append(env.step(any_move(history[-1])))
    assert seen == alone


def test_games_in_threads_do_not_disturb_one_another() -> None:
    alone = {env_id: play(make(env_id), seed=3) for env_id in TASK_GAMES}
    found: dict[str, Any] = {}

    def run(env_id: str) -> None:
        found[env_id] = play(make(env_id), seed=3)

    threads = [threading.Thread(target=run, args=(env_id,)) for env_id in TASK_GAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert found == alone


def test_no_other_random_generator_is_read_or_advanced() -> None:
    random.seed(0)
    np.random.seed(0)
    python, numpy = random.getstate(), np.random.get_state()
    for env_id in ("Minesweeper-v0", "Blackjack-v0", "SpellingBee-v0"):
        env = make("Mastermind-v0")
        try:
            env.reset(env_id=env_id, seed=4, num_players=1 if "Bee" not in env_id else 2)
        except Refused:
            continue
        say(env, "[hit]")
    assert random.getstate() == python
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy, strict=True))


def test_numpys_generator_is_an_episodes_own_too() -> None:
    first, second = Dice(5), Dice(5)
    np.random.seed(0)
    drawn = []
    for _ in range(2):
        for dice in (first, second):
            with dice.activate():
                drawn.append((random.random(), float(np.random.random())))
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    with Dice(6).activate():
        assert (random.random(), float(np.random.random())) not in drawn
    after = float(np.random.random())
    np.random.seed(0)
    assert float(np.random.random()) == after


def test_without_a_seed_games_differ() -> None:
    secrets = set()
    for _ in range(12):
        env = make("Mastermind-v0")
        env.reset()
        secrets.add(str(env.state.raw_state["secret_code"]))
    assert len(secrets) > 6


def test_the_seed_determines_the_game_in_another_process() -> None:
    code = (
        "from textarena_env.server.textarena_environment import TextArenaEnvironment as E\n"
        "env = E('Minesweeper-v0'); env.reset(seed=5); print(env.snapshot().decode())\n"
        "env = E('Mastermind-v0'); env.reset(seed=5); print(env.state.raw_state)\n"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True, timeout=100,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    snapshots = [json.loads(lines[0]) for lines in ran]
    assert snapshots[0]["told"] == snapshots[1]["told"]
    assert ran[0][1] == ran[1][1]


# ------------------------------------------------------------------ several players


def test_the_agent_plays_all_seats_in_turn_where_there_is_no_opponent() -> None:
    env = make("TicTacToe-v0", num_players=2)
    first = env.reset(seed=1)
    seen = [first, *(say(env, move) for move in ("[0]", "[3]", "[1]", "[4]", "[2]"))]
    assert [one.current_player_id for one in seen[:-1]] == [0, 1, 0, 1, 0]
    assert [one.legal_players for one in seen[:-1]] == [[0], [1], [0], [1], [0]]
    assert "Player 0" in seen[0].prompt and "Player 1" in seen[1].prompt
    assert seen[-1].done and seen[-1].reward == 1.0 and seen[-1].legal_players == []
    assert seen[-1].info["rewards"] == {"0": 1.0, "1": -1.0}


def test_a_scripted_opponent_says_its_messages_in_turn() -> None:
    env = make()
    said = ["[3]", "[4]", "[8]"]
    first = env.reset(env_id="TicTacToe-v0", opponent="scripted", opponent_messages=said)
    assert first.current_player_id == 0
    second = say(env, "[0]")
    assert second.current_player_id == 0
    told = second.new_messages
    assert any(one.sender_id == 1 for one in told) or "cell 3" in str(told)
    say(env, "[1]")
    last = say(env, "[2]")
    assert last.done and last.reward == 1.0


def test_the_agent_in_the_second_seat_is_paid_for_its_own_seat() -> None:
    env = make()
    first = env.reset(
        env_id="TicTacToe-v0",
        opponent="scripted",
        opponent_messages=["[0]", "[1]", "[2]"],
        agent_player=1,
    )
    assert first.current_player_id == 1 and "Player 1" in first.prompt
    say(env, "[3]")
    last = say(env, "[4]")
    assert last.done and last.reward == -1.0
    assert last.info["rewards"] == {"0": 1.0, "1": -1.0}
    assert last.messages


def test_a_random_opponent_plays_moves_that_the_game_lists() -> None:
    outcomes = set()
    for seed in range(12):
        last = play(make(), env_id="TicTacToe-v0", opponent="random", seed=seed)[-1]
        assert last.done and not last.info["game_info"]["1"]["invalid_move"]
        outcomes.add(last.reward)
    assert len(outcomes) > 1


def test_a_game_that_lists_no_moves_has_no_random_opponent() -> None:
    env = make()
    env.reset(seed=1)
    before = env.snapshot()
    with pytest.raises(Refused, match="does not list the moves"):
        env.reset(env_id="IteratedPrisonersDilemma-v0", opponent="random", agent_player=1, seed=1)
    assert env.snapshot() == before


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("Board\nAvailable Moves: '[0]', '[1]'", ["[0]", "[1]"]),
        ("Valid moves: '[0, 1]', '[1, 0]'\nScores: [9]", ["[0, 1]", "[1, 0]"]),
        ("Your available actions are: '[check]', '[bet]'", ["[check]", "[bet]"]),
        ("Pile 0: 3", []),
    ],
)
def test_listed_moves_are_read(text: str, moves: list[str]) -> None:
    told = TextArenaMessage(sender_id=-1, content=text, category="GAME_BOARD")
    assert find_listed_moves([told]) == moves


# ------------------------------------------------------------------ ends


def test_two_wrong_moves_end_a_game_as_the_library_has_it() -> None:
    env = make("TicTacToe-v0", num_players=2)
    env.reset(seed=1)
    first, last = say(env, "nonsense"), say(env, "nonsense")
    assert not first.done and "invalid move" in str(first.messages)
    assert last.done and last.reward == -1.0


@pytest.mark.parametrize("env_id", ["Countdown-v0", "Cryptarithm-v0", "Secretary-v0"])
def test_invalid_moves_that_end_a_game_are_paid_for_as_the_worst(env_id: str) -> None:
    """Countdown pays an error text for an invalid move, which used to be unscored."""
    last = paid(env_id, ["nonsense"] * 2, seed=1)
    assert last.done and last.reward == -1.0 and last.components == {"payoff": -1.0}


def test_a_reward_that_is_no_number_is_none_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Game, "finish", lambda game: ({}, {}))
    env = make("Countdown-v0")
    env.reset(seed=1)
    seen = say(env, "nonsense")
    while not seen.done:
        seen = say(env, "nonsense")
    assert seen.reward is None and "error" not in seen.info
    assert "Countdown-v0" in seen.metadata[REWARD_INFO]["unscored"]


def test_a_limit_on_turns_cuts_a_game_off() -> None:
    env = make("Mastermind-v0", max_turns=3)
    seen = play(env, seed=1)
    if not seen[-1].truncated:  # two invalid moves end the game earlier
        env.reset(seed=1)
        seen = [say(env, f"[1 2 3 {n}]") for n in (4, 5, 6)]
    assert seen[-1].done and seen[-1].truncated and seen[-1].reward == 0.0
    with pytest.raises(Refused, match="after done"):
        say(env, "[1 2 3 4]")


def test_a_game_whose_code_fails_is_over() -> None:
    env = make()
    env.reset(env_id="CharacterConclave-v0", num_players=3, seed=1)
    with pytest.raises(TypeError):
        for _ in range(10):
            say(env, "[0]")
    with pytest.raises(Refused, match="after done"):
        say(env, "[0]")
    assert env.reset(seed=1).prompt


# ------------------------------------------------------------------ Wordle, with made-up words


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make NLTK data in the form that TextArena reads, with made-up words and a tagger."""
    folder = tmp_path_factory.mktemp("nltk_data")
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    known = ["crane", "house", "table", "apple", "water"]
    for name in ("en", "en-basic", "README"):
        (corpus / name).write_text("\n".join(known) + "\n")
    name = "averaged_perceptron_tagger_eng"
    tagger = folder / "taggers" / name
    tagger.mkdir(parents=True)
    parts = {"weights": {}, "tagdict": dict.fromkeys(known, "NN"), "classes": ["NN"]}
    for part, content in parts.items():
        (tagger / f"{name}.{part}.json").write_text(json.dumps(content))
    return folder


WORDLE = """
import json
from textarena_env.server.textarena_environment import TextArenaEnvironment
from textarena_env import TextArenaAction
env = TextArenaEnvironment(download_nltk=False)
secrets = []
for seed in (1234, 1234, 1234, 1, 2, 3, 4, 5, 6):
    env.reset(seed=seed)
    secrets.append(env.state.raw_state["secret_word"])
env.reset(seed=1234)
wrong = next(word for word in ("crane", "house") if word != secrets[0])
first = env.step(TextArenaAction(message=f"[{wrong}]"))
last = env.step(TextArenaAction(message=secrets[0]))
found = {"secrets": secrets, "first": first.model_dump(), "last": last.model_dump()}
print(json.dumps(found))
"""


def test_wordle_honours_the_seed_and_signals_progress(words: Path) -> None:
    """In the public package, six resets with one seed gave six words."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORDLE],
        env={**os.environ, "NLTK_DATA": str(words)},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(set(found["secrets"][:3])) == 1 and len(set(found["secrets"])) > 1
    first, last = found["first"], found["last"]
    assert first["reward"] == 0.0 and not first["done"]
    assert set(first["info"]["reward_signals"]) == {
        "wordle.greens", "wordle.yellows", "wordle.correct", "wordle.repetitions",
    }  # fmt: skip
    assert first["metadata"]["reward_signals"] == first["info"]["reward_signals"]
    assert last["reward"] == 1.0 and last["info"]["reward_signals"]["wordle.correct"] == 1.0


def test_a_game_whose_data_are_missing_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "from textarena_env.server.textarena_environment import TextArenaEnvironment\n"
        "TextArenaEnvironment(download_nltk=False).reset(seed=1)"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NLTK_DATA": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "nltk.downloader words" in ran.stderr.splitlines()[-1]


# ------------------------------------------------------------------ compatibility

READ_AS_TRAINERS_DO = """
import json
from functools import partial
from textarena_env.server.textarena_environment import TextArenaEnvironment
from textarena_env import TextArenaAction, TextArenaEnv
found = []
with TextArenaEnv.local(partial(TextArenaEnvironment, download_nltk=False)).sync() as env:
    before = env.reset(seed=1234).observation.messages[0].content
    secret = env.state().raw_state["secret_word"]
    wrong, other = [word for word in ("crane", "house", "table") if word != secret][:2]
    found.append(["", before, 0.0, False, {}])
    for guess in (wrong, wrong, other, "zzzzz", secret):
        result = env.step(TextArenaAction(message=f"[{guess}]"))
        assert len(result.observation.messages) == 1
        now = result.observation.messages[0].content
        assert now.startswith(before)
        signals = result.observation.info["reward_signals"]
        found.append([guess, now[len(before):], result.reward, result.done, signals])
        before = now
print(json.dumps(found))
"""


def test_what_wordle_tells_by_each_step_is_the_end_of_a_growing_text(words: Path) -> None:
    """Trainers' examples show the model the text appended to `messages[0]`, which was empty."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_AS_TRAINERS_DO],
        env={**os.environ, "NLTK_DATA": str(words)},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    first, wrong, again, other, invalid, right = json.loads(ran.stdout.splitlines()[-1])
    assert first[1].startswith("\n[GAME] You are Playing Wordle.")
    assert "Feedback:" in wrong[1] and wrong[0].upper() in wrong[1].replace(" ", "")
    assert "You attempted an invalid move" in invalid[1] and "Feedback:" not in invalid[1]
    assert [one[2:4] for one in (wrong, again, other, invalid)] == [[0.0, False]] * 4
    assert right[2:4] == [1.0, True]
    assert [one[4]["wordle.repetitions"] for one in (wrong, again, other)] == [1.0, 0.0, 1.0]
    assert right[4]["wordle.correct"] == 1.0 and again[4]["wordle.correct"] == 0.0


@pytest.mark.parametrize("env_id", ["GuessTheNumber-v0", "Sudoku-v0", "Mastermind-v0"])
def test_the_text_for_programs_grows_and_that_for_models_says_everything_once(env_id: str) -> None:
    env = make(env_id)
    seen = [env.reset(seed=3), *(say(env, move) for move in ("[1 1 1]", "[2]"))]
    texts = [one.messages[0].content for one in seen]
    rules = seen[0].prompt.strip()
    assert rules in texts[0] and rules in view(seen[0])
    for before, after, one in zip(texts, texts[1:], seen[1:], strict=False):
        assert len(one.messages) == 1 and after.startswith(before) and len(after) > len(before)
        assert view(one) == one.text != "" and rules not in view(one)
        assert all(part.content.strip() in after for part in one.new_messages)


def test_a_sudoku_is_read_off_the_message_of_the_first_observation() -> None:
    told = make("Sudoku-v0").reset(seed=3).messages[0].content
    assert all(f"\nR{row}" in told for row in range(1, 10)) and "|" in told


def test_who_plays_all_seats_is_told_whose_turn_it_is() -> None:
    env = make("TicTacToe-v0", num_players=2)
    seen = [env.reset(seed=1), say(env, "[0]"), say(env, "[3]")]
    assert [view(one).splitlines()[0] for one in seen] == [
        "Player 0 is to move.", "Player 1 is to move.", "Player 0 is to move.",
    ]  # fmt: skip
    alone = env.reset(env_id="TicTacToe-v0", opponent="random", seed=1)
    assert "is to move" not in view(alone)


def test_the_last_reward_of_the_state_is_always_a_number() -> None:
    """Public clients refuse a state without these fields."""
    env = make("GuessTheNumber-v0")
    assert env.state.last_reward == 0.0
    env.reset(seed=5)
    assert env.state.last_reward == 0.0


# ------------------------------------------------------------------ reward ranges


def paid(env_id: str, messages: Iterable[str], **reset: Any) -> StepResult[Any]:
    with TextArenaEnv.local(partial(TextArenaEnvironment, download_nltk=False)).sync() as env:
        actions = rewards.in_turn(TextArenaAction(message=one) for one in messages)
        episode = rewards.played(env, actions, env_id=env_id, **reset)
        rewards.worth(episode)
        assert env.reward_spec is not None
        assert env.reward_spec.range == TextArenaEnvironment.REWARD.range == (-1.0, 1.0)
        return episode[-1]


def test_payoffs_reach_both_ends_of_the_range_that_is_declared() -> None:
    line = ("[0]", "[1]", "[2]")
    scripted = {"opponent": "scripted", "seed": 1}
    won = paid("TicTacToe-v0", line, opponent_messages=["[3]", "[4]", "[8]"], **scripted)
    lost = paid("TicTacToe-v0", ("[3]", "[4]", "[8]"), opponent_messages=line, **scripted)
    assert (won.reward, lost.reward) == (1.0, -1.0)
    nonsense = paid("Secretary-v0", ["nonsense"] * 2, seed=5)
    assert nonsense.done and nonsense.reward == -1.0


def test_to_hold_out_against_an_opponent_pays_no_more_than_to_lose() -> None:
    """A truncated game used to score 0, and a lost one -1."""
    cut_off = paid("TicTacToe-v0", ["[0]"], opponent="random", max_turns=1, seed=1)
    assert cut_off.truncated and cut_off.reward == -1.0
    assert cut_off.components == {"payoff": -1.0}


@pytest.mark.parametrize(
    ("env_id", "expected"), [("Set-v0", (-1.0, 20.0)), ("Mastermind-v0", (-1.0, 1.0))]
)
def test_each_episode_tells_the_range_of_its_game(
    env_id: str, expected: tuple[float, float] | None
) -> None:
    with TextArenaEnv.local(partial(TextArenaEnvironment, download_nltk=False)).sync() as env:
        for name, of_it in (("GuessTheNumber-v0", (-1.0, 1.0)), (env_id, expected)):
            env.reset(env_id=name, seed=1)
            assert env.reward_spec is not None and env.reward_spec.range == of_it


def test_a_payoff_beyond_the_range_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(textarena_environment._RANGES, "GuessTheNumber", (-1.0, 0.5))
    env = make("GuessTheNumber-v0")
    env.reset(seed=5)
    last = say(env, f"[{env.state.raw_state['game_number']}]")
    assert last.done and last.reward is None
    assert "paid 1, which is not from -1 to 0.5" in last.metadata[REWARD_INFO]["unscored"]


# ------------------------------------------------------------------ settings


def test_variables_set_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTARENA_ENV_ID", "TicTacToe-v0")
    monkeypatch.setenv("TEXTARENA_NUM_PLAYERS", "2")
    monkeypatch.setenv("TEXTARENA_MAX_TURNS", "7")
    env = TextArenaEnvironment()
    assert env.reset(seed=1).prompt
    state = env.state
    assert (state.env_id, state.num_players, state.max_turns) == ("TicTacToe-v0", 2, 7)
    monkeypatch.setenv("TEXTARENA_NUM_PLAYERS", "two")
    with pytest.raises(ValueError, match="TEXTARENA_NUM_PLAYERS"):
        TextArenaEnvironment()


def test_keyword_variables_reach_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTARENA_ENV_ID", "GuessTheNumber-v0")
    monkeypatch.setenv("TEXTARENA_KW_MAX_NUMBER", "7")
    env = TextArenaEnvironment()
    assert "7" in env.reset(seed=1).prompt
    assert env.reset(env_id="Mastermind-v0", seed=1).prompt  # the options are not for other games


# ------------------------------------------------------------------ private fields


def test_the_secret_is_told_to_nobody_in_the_game() -> None:
    env = make("GuessTheNumber-v0")
    env.reset(seed=5)
    assert env.state.raw_state["game_number"]
    assert "raw_state" not in public_view(env.state)


def test_a_player_is_told_nothing_twice_and_nothing_of_others() -> None:
    env = make("KuhnPoker-v0", num_players=2)
    seen = [env.reset(seed=1)]
    for _ in range(3):
        seen.append(env.step(any_move(seen[-1])))
    for one in seen:
        cards = [m for m in one.new_messages if "Your card is" in m.content]
        assert len(cards) <= 2
    prompts = [m for one in seen for m in one.new_messages if m.category == "PROMPT"]
    assert len(prompts) == 2  # one for each seat


# ------------------------------------------------------------------ tasks


def test_tasks_are_of_many_games_and_are_played_by_their_ids() -> None:
    env = make()
    assert env.list_splits() == ["train", "test"]
    tasks = env.list_tasks("test")
    assert len({task.id for task in tasks}) == len(tasks) == env.num_tasks("test")
    assert [task.env_id for task in tasks[: len(TASK_GAMES)]] == list(TASK_GAMES)
    for task in tasks[: len(TASK_GAMES)]:
        first = env.reset(task=task.id)
        assert env.state.task == task.id and env.state.env_id == task.env_id
        state = env.state.raw_state
        assert env.reset(task=task.model_dump()) == first and env.state.raw_state == state
    for index in (-1, len(tasks)):
        with pytest.raises(IndexError):
            env.get_task("test", index)


def test_tasks_of_one_game_differ() -> None:
    env, seen = make(), set()
    for number in range(10):
        env.reset(task=f"train/Mastermind-v0/{number}")
        seen.add(str(env.state.raw_state["secret_code"]))
    assert len(seen) > 5


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"env_id": "TicTacTo-v0"}, "TicTacToe-v0"),
        ({"env_id": "TicTacToe-v0", "num_players": 3}, "num_players=3"),
        ({"env_id": 3}, "game"),
        ({"num_players": 0}, "num_players"),
        ({"num_players": "2"}, "num_players"),
        ({"max_turns": 0}, "max_turns"),
        ({"opponent": "best"}, "best"),
        ({"env_id": "TicTacToe-v0", "opponent": "scripted"}, "opponent_messages"),
        ({"env_id": "TicTacToe-v0", "opponent_messages": ["[1]"]}, "opponent_messages"),
        ({"env_id": "TicTacToe-v0", "opponent": "random", "agent_player": 2}, "agent_player"),
        ({"agent_player": 1, "num_players": 2}, "agent_player"),
        ({"seed": "1"}, "seed"),
        ({"task": "train/Mastermind-v0/1", "seed": 1}, "task"),
        ({"task": "train/Chess-v0/1"}, "train/Chess-v0/1"),
        ({"task": "test/Mastermind-v0/100"}, "test/Mastermind-v0/100"),
        ({"task": 3}, "task"),
        ({"env_id": "TwentyQuestions-v0"}, "OPENROUTER_API_KEY"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_reset_is_refused_and_changes_nothing(
    arguments: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    env = make()
    env.reset(seed=1)
    say(env, "[1 2 3 4]")
    before, stored = env.state, env.snapshot()
    with pytest.raises(Refused, match=field):
        env.reset(**arguments)
    assert env.state == before and env.snapshot() == stored
    assert not say(env, "[1 2 3 5]").done


def test_nothing_happens_before_a_game() -> None:
    env = make()
    for call in (partial(say, env, "[1]"), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    assert env.state.raw_state == {}


def test_an_unknown_game_of_the_server_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="did you mean 'Mastermind-v0'"):
        TextArenaEnvironment("Mastermin-v0")


# ------------------------------------------------------------------ snapshots and pictures


@pytest.mark.parametrize(
    "arguments",
    [
        {"env_id": "Minesweeper-v0"},
        {"env_id": "Blackjack-v0"},
        {"env_id": "PigDice-v0", "opponent": "random"},
        {"task": "test/2048-v0-easy/5"},
        {"env_id": "TicTacToe-v0", "opponent": "scripted", "opponent_messages": ["[8]", "[7]"]},
    ],
    ids=str,
)
def test_a_stored_game_goes_on_anywhere(arguments: dict[str, Any]) -> None:
    env, elsewhere = make(), make("Mastermind-v0", max_turns=3)
    last = play(env, limit=4, **arguments)[-1]
    elsewhere.restore(env.snapshot())
    assert elsewhere.state.model_dump(exclude={"last_reward", "last_info"}) == env.state.model_dump(
        exclude={"last_reward", "last_info"}
    )
    assert elsewhere.render() == env.render()
    for _ in range(4):
        if last.done:
            break
        action = any_move(last)
        last = env.step(action)
        assert elsewhere.step(action) == last
    assert elsewhere.snapshot() == env.snapshot()
    elsewhere.reset()
    assert elsewhere.state.max_turns == 3 and elsewhere.state.env_id == "Mastermind-v0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"env_id": "nothing"},
        {"env_id": "TicTacToe-v0"},
        {"seed": -1},
        {"seed": 8},
        {"said": ["[1 2 3 4]"] * 500},
        {"said": [1]},
        {"told": "x"},
        {"more": 1},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = make("FrozenLake-v0-random")
    env.reset(seed=7)
    say(env, "[right]")
    before = env.snapshot()
    for data in (json.dumps({**json.loads(before), **wrong}).encode(), b"", b"\xff", b"[]"):
        with pytest.raises(ValueError):
            env.restore(data)
    assert env.snapshot() == before


def test_a_game_is_shown_as_its_player_was_told_it() -> None:
    env = make("TicTacToe-v0", num_players=2)
    first = env.reset(seed=1)
    before = env.snapshot()
    shown = env.render()
    assert (
        shown.startswith("TicTacToe-v0, player 0")
        and first.new_messages[-1].content.strip() in shown
    )
    assert env.snapshot() == before
    say(env, "[4]")
    assert "player 1" in env.render().splitlines()[0]
