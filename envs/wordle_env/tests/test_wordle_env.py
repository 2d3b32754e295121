"""Tests of the Wordle environment."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import rewards
from support.servers import serving

from openenv import Refused
from openenv.errors import IgnoredArgumentWarning, ServerError
from openenv.testing import check_environment
from openenv.types import public_view
from wordle_env import MarkedGuess, WordleAction, WordleEnv, WordleObservation, WordleTask
from wordle_env.server.app import app
from wordle_env.server.marking import known_share, mark, unused_hint
from wordle_env.server.wordle_environment import WordleEnvironment
from wordle_env.server.words import SPLITS, WORDS, split_of, words_of

HERE = Path(__file__).parent
SIX = ["crane", "crane", "crane", "crane", "crane", "crane"]


def letters(marks: list[Any]) -> str:
    return "".join(given[0] if given != "grey" else "-" for given in marks)


def guess(env: WordleEnvironment, word: str) -> WordleObservation:
    return env.step(WordleAction(guess=word))


def task_of(word: str) -> WordleTask:
    env = WordleEnvironment()
    return env.get_task(split_of(word), words_of(split_of(word)).index(word))


def playing(word: str, **options: Any) -> WordleEnvironment:
    """Return an environment whose secret is `word`."""
    env = WordleEnvironment()
    env.reset(task=task_of(word), **options)
    return env


def secret_of(env: WordleEnvironment) -> str:
    secret = env.state.secret
    assert secret is not None
    return secret


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize(
    "words", [SIX, ["crane", "sound", "bl@nk", "xyz", "toast"], ["no"] * 20, ["zzzzz"]]
)
def test_it_keeps_the_contract(words: list[str]) -> None:
    check_environment(WordleEnvironment, actions=[WordleAction(guess=word) for word in words])


def test_its_rewards_are_as_they_are_declared() -> None:
    with WordleEnv.local(WordleEnvironment).sync() as env:
        won = rewards.played(env, guessing("mxyzt", "bl@nk", "crane"), task=task_of("crane"))
        lost = rewards.played(env, guessing(*SIX), task=task_of("sound"))
        cut_off = rewards.played(env, guessing(*["no"] * 3), seed=1, max_rejected=2)
    assert (rewards.worth(won), rewards.parts(won)) == (1.0, {"solved": 1.0})
    assert (rewards.worth(lost), lost[-1].components) == (0.0, {"solved": 0.0})
    assert cut_off[-1].truncated and rewards.worth(cut_off) == 0.0


def guessing(*words: str) -> Callable[[WordleObservation], WordleAction]:
    return rewards.in_turn(WordleAction(guess=word) for word in words)


def test_it_is_played_over_a_socket() -> None:
    with serving(app) as url, WordleEnv(base_url=url).sync() as env:
        first = env.reset(seed=3, hard_mode=True)
        assert first.reward is None and not first.done
        rejected = env.step(WordleAction(guess="not a word"))
        assert rejected.observation.accepted is False and rejected.reward == 0.0
        secret = env.state().secret
        assert secret in WORDS
        won = env.step(WordleAction(guess=f" {secret.upper()} "))
        assert (won.reward, won.done, won.truncated) == (1.0, True, False)
        assert won.observation.answer == secret
        with pytest.raises(ServerError, match="call reset"):
            env.step(WordleAction(guess="crane"))
        assert env.reset(seed=3).observation.guesses == []


def test_a_misspelt_argument_of_reset_is_told() -> None:
    told = pytest.warns(IgnoredArgumentWarning, match="hardmode")
    with WordleEnv.local(WordleEnvironment).sync() as env, told:
        env.reset(hardmode=True)


def test_the_client_side_imports_no_server() -> None:
    code = (
        "import sys, wordle_env; "
        "assert not any(name.startswith('wordle_env.server') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ marks


@pytest.mark.parametrize(
    ("guessed", "secret", "marks"),
    [
        ("crane", "crane", "ggggg"),
        ("crane", "sound", "---g-"),
        ("speed", "abide", "--y-y"),  # the secret has one e, so one e of the guess is marked
        ("speed", "erase", "y-yy-"),
        ("speed", "steal", "g-g--"),
        ("speed", "crepe", "-ygy-"),
        ("allow", "label", "yyy--"),
        ("llama", "label", "gyy--"),
        ("geese", "eagle", "yy--g"),
        ("eerie", "niece", "y--yg"),
        ("mamma", "maxim", "ggy--"),
        ("abbey", "babes", "yygg-"),
    ],
)
def test_letters_that_occur_twice_are_marked_as_often_as_the_secret_has_them(
    guessed: str, secret: str, marks: str
) -> None:
    assert letters(list(mark(guessed, secret))) == marks


def test_marks_agree_with_their_definition_for_any_letters() -> None:
    """Try all words of three letters from a small alphabet, in which letters often repeat."""
    words = ["".join(letters) for letters in itertools.product("abcd", repeat=3)]
    for guessed, secret in itertools.product(words, words):
        marks = mark(guessed, secret)
        assert [m == "green" for m in marks] == [
            g == s for g, s in zip(guessed, secret, strict=True)
        ]
        for letter in "abcd":
            own = [m for g, m in zip(guessed, marks, strict=True) if g == letter]
            assert len(own) - own.count("grey") == min(guessed.count(letter), secret.count(letter))
            others = [m for m in own if m != "green"]
            assert others == sorted(others, key=["yellow", "grey"].index)


def test_the_best_mark_of_each_letter_is_kept() -> None:
    env = playing("sheep")
    assert guess(env, "eight").letters == {
        "e": "yellow", "g": "grey", "h": "yellow", "i": "grey", "t": "grey",
    }  # fmt: skip
    assert guess(env, "shell").letters["e"] == "green"
    assert guess(env, "erase").letters["e"] == "green"


# ------------------------------------------------------------------ rewards and ends


def test_the_secret_pays_one_and_ends_the_episode() -> None:
    env = playing("whale")
    assert guess(env, "crane").reward == 0.0
    last = guess(env, "WHALE")
    assert (last.reward, last.done, last.truncated, last.solved) == (1.0, True, False, True)
    assert last.answer == "whale"
    assert "Solved with guess 2" in last.text


def test_the_last_guess_ends_the_episode_without_a_reward() -> None:
    env = playing("whale", max_guesses=2)
    first, last = guess(env, "crane"), guess(env, "sound")
    assert (first.done, first.answer, first.guesses_left) == (False, None, 1)
    assert (last.reward, last.done, last.truncated, last.solved) == (0.0, True, False, False)
    assert last.answer == "whale" and "WHALE" in last.text


def test_the_secret_counts_with_the_last_guess_too() -> None:
    env = playing("whale", max_guesses=1)
    assert guess(env, "whale").reward == 1.0


def test_shaping_adds_up_to_one_for_a_solved_word() -> None:
    env = playing("sheep")
    seen = [guess(env, word) for word in ("eerie", "sweet", "cheer", "sheep")]
    shaping = [one.metadata["shaping"] for one in seen]
    assert shaping == pytest.approx([0.2, 0.4, 0.2, 0.2])
    assert all(value >= 0 for value in shaping)


def test_what_is_known_never_grows_less() -> None:
    draw = random.Random(0)
    words = sorted(WORDS)
    for _ in range(300):
        secret, seen, known = draw.choice(words), [], 0.0
        for _ in range(5):
            word = draw.choice(words)
            seen.append(MarkedGuess(word=word, marks=mark(word, secret)))
            assert known <= known_share(seen) <= 1
            known = known_share(seen)


# ------------------------------------------------------------------ guesses that do not count


@pytest.mark.parametrize(
    "word", ["", "cran", "cranes", "cr ne", "cräne", "12345", "brgfk", "crane\nsound", "ﬁnal"]
)
def test_what_is_no_word_costs_no_guess(word: str) -> None:
    env = playing("whale")
    seen = guess(env, word)
    assert (seen.accepted, seen.reward, seen.done) == (False, 0.0, False)
    assert seen.guesses_left == 6 and seen.guesses == []
    assert "does not count" in seen.text
    assert env.state.step_count == 1 and env.state.rejected == 1


def test_a_long_guess_is_not_quoted_in_full() -> None:
    assert len(guess(playing("whale"), "think " * 1000).text) < 200


def test_only_listed_words_count_where_that_is_asked_for() -> None:
    env = playing("whale", accept="listed")
    assert guess(env, "aeiou").accepted is False
    assert guess(env, "noise").accepted is True
    assert guess(playing("whale"), "aeiou").accepted is True


def test_too_many_rejected_guesses_cut_the_episode_off() -> None:
    env = playing("whale", max_rejected=2)
    seen = [guess(env, "no") for _ in range(3)]
    assert [one.done for one in seen] == [False, False, True]
    assert seen[-1].truncated and seen[-1].answer == "whale"
    with pytest.raises(Refused, match="after done"):
        guess(env, "whale")


# ------------------------------------------------------------------ hard mode


@pytest.mark.parametrize(
    ("earlier", "secret", "guessed", "hint"),
    [
        (["crane"], "crate", "crave", None),
        (["crane"], "crate", "grape", "the first letter must be C"),
        (["crane"], "crate", "cross", "the third letter must be A"),
        (["toast"], "stale", "slate", None),
        (["boost"], "stale", "crate", "it must have the letter S"),
        (["geese"], "eagle", "eagle", None),
        (["geese"], "eagle", "gauge", "it must have the letter E 2 times"),
        (["crane", "crate"], "crate", "crane", "the fourth letter must be T"),
        (["crane"], "sound", "crane", None),  # grey letters may be tried again
    ],
)
def test_hard_mode_wants_known_letters_used(
    earlier: list[str], secret: str, guessed: str, hint: str | None
) -> None:
    seen = [MarkedGuess(word=word, marks=mark(word, secret)) for word in earlier]
    assert unused_hint(guessed, seen) == hint


def test_the_secret_always_keeps_the_rules_of_hard_mode() -> None:
    draw = random.Random(1)
    words = sorted(WORDS)
    for _ in range(2000):
        secret = draw.choice(words)
        seen = [MarkedGuess(word=w, marks=mark(w, secret)) for w in draw.choices(words, k=4)]
        assert unused_hint(secret, seen) is None


def test_hard_mode_rejects_a_guess_without_costing_it() -> None:
    env = playing("crate", hard_mode=True)
    assert "Hard mode" in env.reset(task=task_of("crate"), hard_mode=True).text
    guess(env, "crane")
    seen = guess(env, "sound")
    assert seen.accepted is False and "the second letter must be R" not in seen.text
    assert "the first letter must be C" in seen.text
    assert guess(env, "crate").solved
    assert guess(playing("crate"), "sound").accepted


# ------------------------------------------------------------------ the secret


def test_the_secret_is_told_at_the_end_only() -> None:
    env = playing("whale")
    shown = [public_view(env.state), env.reset(task=task_of("whale")).model_dump()]
    shown += [guess(env, word).model_dump() for word in ("crane", "no", "sound", "while")]
    assert "whale" not in json.dumps(shown).lower()
    assert guess(env, "whale").answer == "whale"


def test_the_words_are_well_formed_and_many() -> None:
    assert len(WORDS) >= 600
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in WORDS)
    listed = (HERE.parent / "server" / "words.txt").read_text().split()
    assert listed == sorted(set(listed))
    assert set(listed) == WORDS


# ------------------------------------------------------------------ seeds and tasks


def test_the_seed_chooses_the_word_in_another_process_too() -> None:
    env = WordleEnvironment()
    expected = []
    for seed in (0, 1, -1, 2**70):
        env.reset(seed=seed)
        expected.append(env.state.secret)
    code = (
        "from wordle_env.server.wordle_environment import WordleEnvironment as E\n"
        "env = E()\n"
        "for seed in (0, 1, -1, 2**70): env.reset(seed=seed); print(env.state.secret)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == expected


@pytest.mark.slow
def test_seeds_reach_all_words_about_as_often() -> None:
    env, seen = WordleEnvironment(), Counter[str]()
    for seed in range(8000):
        env.reset(seed=seed)
        seen[secret_of(env)] += 1
    assert set(seen) == set(words_of("train"))
    assert max(seen.values()) < 30  # the mean is ten


def test_without_a_seed_the_words_differ() -> None:
    env, seen = WordleEnvironment(), set()
    for _ in range(30):
        env.reset()
        seen.add(secret_of(env))
    assert len(seen) > 10


def test_no_other_random_generator_is_read_or_advanced() -> None:
    random.seed(0)
    before = random.getstate()
    WordleEnvironment().reset(seed=1)
    assert random.getstate() == before


def test_the_splits_share_no_word() -> None:
    env = WordleEnvironment()
    train, test = (set(words_of(split)) for split in SPLITS)
    assert not train & test and train | test == WORDS
    assert env.list_splits() == ["train", "test"]
    assert env.num_tasks("train") == len(train) > 3 * len(test) > 300
    for seed in range(200):
        env.reset(seed=seed, split="test")
        assert secret_of(env) in test


def test_every_task_is_played_by_its_id_and_as_it_is() -> None:
    env = WordleEnvironment()
    for split in SPLITS:
        tasks = env.list_tasks(split)
        assert len({task.id for task in tasks}) == len(tasks) == env.num_tasks(split)
        assert env.get_task_range(split, 3, 6) == tasks[3:6]
        for index, task in enumerate(tasks):
            assert env.get_task(split, index) == task
            env.reset(task=task.id)
            secret = secret_of(env)
            assert secret in words_of(task.split) and secret not in task.id.partition("/")[2]
            assert env.state.task == task.id
            env.reset(task=task.model_dump(), seed=9)
            assert secret_of(env) == secret


@pytest.mark.parametrize("index", [-1, 10_000])
def test_a_task_that_is_not_there_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        WordleEnvironment().get_task("train", index)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"task": "train/nothing"}, "train/nothing"),
        ({"task": {"name": "x"}}, "task"),
        ({"task": 3}, "task"),
        ({"split": "validation"}, "validation"),
        ({"split": None}, "split"),
        ({"max_guesses": 0}, "max_guesses"),
        ({"max_guesses": 21}, "max_guesses"),
        ({"max_guesses": "6"}, "max_guesses"),
        ({"max_guesses": True}, "max_guesses"),
        ({"max_rejected": -1}, "max_rejected"),
        ({"hard_mode": 1}, "hard_mode"),
        ({"accept": "all"}, "accept"),
        ({"seed": "abc"}, "seed"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_a_wrong_argument_of_reset_is_refused_and_changes_nothing(
    options: dict[str, Any], field: str
) -> None:
    env = playing("whale")
    guess(env, "crane")
    before, stored = env.state, env.snapshot()
    with pytest.raises(Refused, match=field):
        env.reset(**options)
    assert env.state == before and env.snapshot() == stored
    assert guess(env, "whale").solved


def test_a_step_without_an_episode_is_refused() -> None:
    env = WordleEnvironment()
    for call in (lambda: guess(env, "crane"), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    assert env.state.step_count == 0 and env.state.secret is None


def test_a_constructor_refuses_what_reset_refuses() -> None:
    with pytest.raises(ValueError, match="max_guesses"):
        WordleEnvironment(max_guesses=0)


# ------------------------------------------------------------------ snapshots and pictures


def test_a_stored_episode_goes_on_anywhere() -> None:
    env, elsewhere = playing("whale", hard_mode=True), WordleEnvironment(max_guesses=3)
    for word in ("no", "while", "crane"):
        guess(env, word)
    elsewhere.restore(env.snapshot())
    assert elsewhere.state == env.state and elsewhere.snapshot() == env.snapshot()
    assert elsewhere.render() == env.render()
    for word in ("sound", "whole", "whale"):
        assert guess(env, word) == guess(elsewhere, word)
    assert elsewhere.reset().guesses_left == 3  # its own rules apply again


WRONG: list[dict[str, Any]] = [
    {"secret": "qwert"},
    {"guesses": ["crane"] * 7},
    {"guesses": ["whale", "crane"]},
    {"guesses": ["no"]},
    {"guesses": [3]},
    {"rejected": -1},
    {"rejected": 99},
    {"rules": {"max_guesses": 99}},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = playing("whale")
    guess(env, "crane")
    before = env.snapshot()
    for data in (json.dumps({**json.loads(before), **wrong}).encode(), b"", b"\xff", b"[]"):
        with pytest.raises(ValueError):
            env.restore(data)
    assert env.snapshot() == before


def test_a_client_forks_an_episode() -> None:
    with WordleEnv.local(WordleEnvironment).sync() as env:
        env.reset(seed=2)
        env.step(WordleAction(guess="crane"))
        (fork,) = env.fork(1)
        assert fork.state() == env.state()


def test_a_picture_of_the_board_changes_nothing() -> None:
    env = playing("whale")
    guess(env, "whole")
    before = env.snapshot()
    svg = env.render()
    assert svg.startswith("<svg") and svg.count("<rect") == 30 and svg.count("<text") == 5
    assert env.snapshot() == before


def test_the_picture_of_the_readme_is_drawn_by_render() -> None:
    env = playing("whale")
    for word in ("crane", "shale", "whale"):
        guess(env, word)
    assert (HERE.parent / "board.svg").read_text() == env.render()
