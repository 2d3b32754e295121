"""Batches for trainers: resets overlap with the model, one broken task fails alone, order stays."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rollouts.worlds import PerStep, Talk
from support.commands import openenv_running
from support.servers import serving

from openenv import create_app
from openenv.errors import CapacityError
from openenv.rollouts.batched import BatchPlayer, _Timing
from openenv.rollouts.episode_sessions import EpisodeStart
from openenv.rollouts.failures import EnvironmentsFailing, FailureStreak, TaskNotTaken
from openenv.rollouts.meter import Meter
from openenv.rollouts.tokens import Chat

END = "\x03"
WAIT_S = 10.0


class Letters:
    """A tokenizer of which each letter is a token."""

    eos_token = END
    eos_token_id = ord(END)
    chat_template: Any = "{# of letters #}"

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        text = "".join(f"<{one['role']}>{one['content']}{END}\n" for one in conversation)
        return text + ("<assistant>" if options.get("add_generation_prompt") else "")

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: Any, **options: Any) -> str:
        return "".join(map(chr, token_ids)).replace(END, "")


class Model:
    """Says what `words` gives for the text of a sequence; notes the calls."""

    def __init__(self, words: Callable[[str], str]) -> None:
        self._words = words
        self.calls: list[list[str]] = []

    def __call__(self, sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        texts = ["".join(map(chr, one)) for one in sequences]
        self.calls.append(texts)
        return [[ord(letter) for letter in f"{self._words(text)}{END}"] for text in texts], None


class Patient(PerStep):
    """Cannot begin what is called late before `asked`; tells when it begins."""

    asked: ClassVar[threading.Event]
    entered: ClassVar[threading.Event]
    was_asked: ClassVar[bool | None]

    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        if start == "late":
            Patient.entered.set()
            Patient.was_asked = Patient.asked.wait(WAIT_S)
        if start.startswith("broken"):
            raise ValueError("there is no such board")
        return super().reset(seed, start)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Patient.asked, Patient.entered, Patient.was_asked = threading.Event(), threading.Event(), None


@contextlib.contextmanager
def playing(environment: Any, **options: Any) -> Iterator[tuple[BatchPlayer, Chat]]:
    player = BatchPlayer(environment, **options)
    try:
        yield player, Chat(Letters(), player.sessions.interface)
    finally:
        player.close()


def starts(*names: str) -> list[EpisodeStart]:
    return [EpisodeStart([{"role": "user", "content": f"{one}."}], {"start": one}) for one in names]


def turns(text: str) -> int:
    """Replies that the model has made in a sequence."""
    return text.count("<assistant>") - 1


# ------------------------------------------------------------------ overlap


def test_a_batch_begins_to_act_with_those_that_are_ready() -> None:
    def words(text: str) -> str:
        Patient.asked.set()
        return "over"

    model = Model(words)
    with playing(Patient) as (player, chat):
        found = player.play(chat, starts("late", "a", "b"), model)
    assert Patient.was_asked, "the model was asked before the last one had begun"
    assert [len(one) for one in model.calls] == [2, 1]
    assert [one.score.value for one in found] == [4.5] * 3
    assert [one.messages[0]["content"] for one in found] == ["late.", "a.", "b."]


def test_a_seat_that_is_free_begins_the_next_episode_while_others_play() -> None:
    begun: list[bool] = []

    def words(text: str) -> str:
        if text.startswith("<user>long"):
            if turns(text) == 1:
                begun.append(Patient.entered.wait(WAIT_S))
                Patient.asked.set()
            return "over" if turns(text) == 2 else "on"
        return "over"

    model = Model(words)
    with playing(Patient, at_once=2) as (player, chat):
        found = player.play(chat, starts("quick", "long", "late"), model)
        assert player.meter.read().sessions == 2
    assert begun == [True], "the third began before the second was over"
    assert [one.turns for one in found] == [1, 3, 1]


def test_a_model_is_not_asked_for_each_rollout_by_itself() -> None:
    model = Model(lambda text: "over" if turns(text) == 2 else "on")
    with playing(PerStep) as (player, chat):
        found = player.play(chat, starts(*map(str, range(16))), model)
        assert [one.turns for one in found] == [3] * 16
    assert [len(one) for one in model.calls] == [16, 16, 16]
    first = [text.partition("\n")[0] for text in model.calls[0]]
    assert first == [f"<user>{n}." for n in range(16)], "in the order of the starts"


@pytest.mark.parametrize(
    ("call_s", "lefts_s", "ready", "waits"),
    [
        (1.0, [0.05] * 8, 24, True),  # a quarter of a call, against a twentieth of a second
        (0.1, [0.05] * 8, 24, False),
        (1.0, [9.0], 15, False),  # a straggler
        (1.0, [0.01, 9.0], 14, True),  # one of them comes at once
        (1.0, [9.0], 0, True),  # nothing else can be done
        (0.0, [0.001], 1, False),
        (1.0, [], 4, False),
    ],
)
def test_it_waits_where_that_costs_less_than_going_without(
    call_s: float, lefts_s: list[float], ready: int, waits: bool
) -> None:
    timing = _Timing()
    timing.call_s = call_s
    assert timing.is_worth_waiting(lefts_s, ready) is waits
    assert _Timing(lockstep=True).is_worth_waiting(lefts_s, ready) is bool(lefts_s)


def test_once_no_more_are_to_begin_a_whole_call_is_at_stake() -> None:
    timing = _Timing()
    timing.call_s = 1.0
    assert not timing.is_worth_waiting([0.5], 15)
    assert timing.is_worth_waiting([0.5], 15, is_last=True)
    assert not timing.is_worth_waiting([0.01, 9.0], 14, is_last=True)
    assert not timing.is_worth_waiting([], 4, is_last=True)


def test_what_took_its_time_is_taken_to_take_as_long_again() -> None:
    timing = _Timing()
    assert timing.left_s("reset", 3.0) == 3.0, "nobody knows: as long as it has taken"
    timing.note("reset", 5.0)
    assert timing.left_s("reset", 3.0) == 2.0
    assert timing.left_s("reset", 9.0) == 4.0
    assert timing.left_s("step", 0.0) < 0.01


class Napping(PerStep):
    def reset(self, seed: int | None = None, start: str = "") -> Any:  # type: ignore[override]
        time.sleep(0.3 if start == "late" else 0.0)
        return super().reset(seed, start)


def test_in_lockstep_the_calls_do_not_depend_on_time() -> None:
    model = Model(lambda text: "over" if "late" in text or turns(text) == 1 else "on")
    with playing(Napping, at_once=2, lockstep=True) as (player, chat):
        player.play(chat, starts("a", "late", "b"), model)
    assert [[text[6:7] for text in one] for one in model.calls] == [["a", "l"], ["a", "b"], ["b"]]
    quick = Model(lambda text: "over")
    with playing(Napping) as (player, chat):
        player._timing.call_s = 0.0  # a model that replies at once waits for nobody
        player.play(chat, starts("a", "late"), quick)
    assert [len(one) for one in quick.calls] == [1, 1]


def test_what_passes_while_the_model_replies_is_not_waited_for() -> None:
    def words(text: str) -> str:
        if text.startswith("<user>a."):
            time.sleep(0.5)
        return "over"

    with playing(Napping) as (player, chat):
        player._timing.call_s = 0.0
        player.play(chat, starts("a", "late"), Model(words))
        cost = player.meter.read()
    assert cost.summed_s > 0.25 and cost.waited_s < 0.2


def test_two_ways_of_spending_time_are_told_apart() -> None:
    meter = Meter()
    with meter.elsewhere(), meter.waiting():
        time.sleep(0.05)
    assert meter.read().waited_s == 0.0 and meter.read().summed_s > 0.04
    with meter.waiting():
        time.sleep(0.05)
        with meter.elsewhere():
            before = meter.read().waited_s
            time.sleep(0.05)
            assert meter.read().waited_s == before > 0.04


# ------------------------------------------------------------------ failures


def over(text: str) -> str:
    return "over"


def test_a_task_whose_reset_raises_fails_alone_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with playing(Patient, failures_in_a_row=3) as (player, chat):
        batch = starts(*["broken"] * 8, "a", "b")
        found = player.play(chat, batch, Model(over))
        player.play(chat, batch, Model(over))
    assert [one.score.value for one in found] == [None] * 8 + [4.5, 4.5]
    assert "there is no such board" in str(found[0].score.unscored)
    told = [one.getMessage() for one in caplog.records if "has no reward" in one.getMessage()]
    assert len(told) == 1 and '{"start": "broken"}' in told[0], told


def test_failures_are_in_a_row_as_the_starts_are_and_not_as_they_end() -> None:
    """Those that cannot begin end first, and would be a row of three."""
    with playing(Patient, failures_in_a_row=3) as (player, chat):
        mixed = starts("broken 1", "a", "broken 2", "b", "broken 3", "c")
        found = player.play(chat, mixed, Model(over))
        assert [one.score.value for one in found] == [None, 4.5] * 3
        with pytest.raises(EnvironmentsFailing, match=r"3 episodes in a row.*no such board"):
            player.play(chat, starts("broken 1", "broken 2", "broken 3", "a"), Model(over))
        with pytest.raises(EnvironmentsFailing):
            player.play(chat, starts(*["broken"] * 3), Model(over))
        (again,) = player.play(chat, starts("a"), Model(over))
        assert again.score.value == 4.5


def test_one_task_alone_is_never_too_many_failures() -> None:
    streak = FailureStreak(2)
    for _ in range(5):
        streak.ended("it is broken", "a")
    with pytest.raises(EnvironmentsFailing, match="6 episodes in a row"):
        streak.ended("it is broken", "b")
    streak.ended("it is broken", "b")
    streak.ended(None, "a")
    streak.ended("it is broken", "a")
    with pytest.raises(EnvironmentsFailing, match="2 episodes in a row"):
        streak.ended("nobody says of which task")


def test_a_batch_that_a_server_cannot_hold_is_refused_before_it_begins() -> None:
    model = Model(over)
    with serving(create_app(PerStep, max_concurrent_envs=3)) as url:
        with playing(url) as (player, chat):
            began = time.monotonic()
            with pytest.raises(CapacityError, match=r"5 rollouts .* holds 3 sessions.*at once"):
                player.play(chat, starts(*"abcde"), model)
            assert time.monotonic() - began < 1.0
            assert (model.calls, player.meter.read().sessions) == ([], 0)
            assert len(player.play(chat, starts(*"abc"), model)) == 3
        with playing(url, at_once=3) as (player, chat):
            assert len(player.play(chat, starts(*"abcde"), model)) == 5


@pytest.mark.slow("starts a gateway")
def test_of_servers_behind_a_gateway_a_session_sees_one(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        apps = [create_app(PerStep, max_concurrent_envs=3) for _ in range(2)]
        urls = [stack.enter_context(serving(app)) for app in apps]
        command = ("gateway", "--port", "0", "--json", *urls)
        running = stack.enter_context(
            openenv_running(*command, cwd=tmp_path, log=tmp_path / "gateway.log")
        )
        player, chat = stack.enter_context(playing(running.first_line()["url"]))
        player.play(chat, starts("a"), Model(over))
        player.sessions.check_room(6)


def test_a_batch_that_is_broken_off_leaves_nothing_behind() -> None:
    def breaks(text: str) -> str:
        assert Patient.entered.wait(WAIT_S)
        threading.Timer(0.2, Patient.asked.set).start()  # so that its reset comes to an end
        raise RuntimeError("out of memory")

    with playing(Patient) as (player, chat):
        player._timing.call_s = 0.0
        with pytest.raises(RuntimeError, match="out of memory"):
            player.play(chat, starts("late", "a"), Model(breaks))
        found = player.play(chat, starts("b", "c"), Model(over))
        assert [one.score.value for one in found] == [4.5, 4.5]
        assert player.meter.read().sessions == 3, "that of the reset that was given up is gone"
        assert player.play(chat, [], Model(over)) == []


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_a_batch_of_other_episodes_than_were_asked_for_ends_at_once() -> None:
    with playing(Talk) as (player, chat):
        wrong = EpisodeStart([{"role": "user", "content": "x"}], {"level": 3})
        with pytest.raises(TaskNotTaken, match="takes no 'level'"):
            player.play(chat, [*starts("a"), wrong], Model(over))
        assert player.play(chat, starts("a"), Model(over))[0].score.value == 4.0
