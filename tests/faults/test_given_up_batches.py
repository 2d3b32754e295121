"""Whatever the caller of a `VectorEnv` does, each environment steps once, and no answer is lost."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.amounts import amount
from support.environments import Counter, CounterEnv, Do, Hold
from support.giving_up import interrupted
from support.relay import Relay
from support.servers import serving
from support.waiting import wait_until

from openenv import (
    EnvironmentsFailed,
    ExecutionFailed,
    ResponseTimeout,
    SessionLost,
    create_app,
)
from openenv.client.vector import VectorEnv

SIZE = 3

# Of a call that an interrupt kept from being begun: Python says so of its coroutine.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture
def url() -> Iterator[str]:
    with serving(create_app(Counter)) as url:
        yield url


def taken() -> int:
    """How many steps the environments have taken."""
    return Counter.log.count("step")


def begun() -> int:
    """How many steps and resets they have begun."""
    return taken() + Counter.log.count("reset")


def vector(url: str, size: int = SIZE, **options: Any) -> VectorEnv:
    return VectorEnv(url, size, client=CounterEnv, **options)


def texts(batch: Any) -> list[str]:
    return list(batch[0]["text"])


def has_come(envs: VectorEnv) -> bool:
    """Whether every answer that is awaited has come."""
    return not envs._group.awaited


WHEN = pytest.mark.parametrize("when", ["as the answers come", "while they run"])


def give_up(envs: VectorEnv, call: Callable[[], Any], hold: Hold, steps: int, when: str) -> None:
    """Interrupt a call in which an environment holds."""

    def meanwhile() -> None:
        if when == "as the answers come":
            hold.release()
            wait_until(lambda: has_come(envs))

    def is_waiting() -> bool:
        return taken() == steps and envs._group.waiter.future is not None

    assert interrupted(call, is_waiting, meanwhile) is None
    hold.release()


# ------------------------------------------------------------------ interrupts


@WHEN
def test_an_interrupted_batch_is_had_by_stepping_again(url: str, when: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    actions = [hold.action, Do(), Do()]
    with vector(url) as envs:
        envs.reset()
        give_up(envs, lambda: envs.step(actions), hold, SIZE, when)
        assert texts(envs.step(actions)) == ["step 1"] * SIZE
        assert texts(envs.step(actions)) == ["step 2"] * SIZE
    assert taken() == 2 * SIZE


@WHEN
def test_another_action_is_refused_and_the_error_names_the_cure(
    url: str, when: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    actions = [hold.action, Do(), Do()]
    with vector(url) as envs:
        envs.reset()
        give_up(envs, lambda: envs.step(actions), hold, SIZE, when)
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([hold.action, Do(), Do(what="echo")])
        assert set(caught.value.errors) == {2} and set(caught.value.results) == {0, 1}
        assert isinstance(caught.value.errors[2], SessionLost)
        assert "ask again with the same action" in str(caught.value.errors[2])
        envs.send([Do()], [2])
        envs.batch_size = 1
        assert texts(envs.recv()) == ["step 1"]
    assert taken() == SIZE


@WHEN
def test_actions_that_are_written_over_are_other_steps(url: str, when: str, tmp_path: Path) -> None:
    """What was sent counts, not what the caller's objects hold by now."""
    hold, value = Hold(tmp_path), np.zeros(3)
    actions = [hold.action, Do(), Do(what="echo", value=value)]
    with vector(url) as envs:
        envs.reset()
        give_up(envs, lambda: envs.step(actions), hold, SIZE, when)
        value[:] = 1.0
        with pytest.raises(EnvironmentsFailed, match="ask again with the same action") as caught:
            envs.step(actions)
        assert set(caught.value.errors) == {2}
        value[:] = 0.0
        envs.send([actions[2]], [2])
        envs.batch_size = 1
        assert texts(envs.recv()) == ["echo"]
    assert taken() == SIZE


@WHEN
def test_an_interrupted_recv_leaves_its_answers_to_the_next(
    url: str, when: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    with vector(url) as envs:
        envs.reset()
        envs.send([hold.action, Do(), Do()])
        give_up(envs, envs.recv, hold, SIZE, when)
        batch = envs.recv()
        assert texts(batch) == ["step 1"] * SIZE
        assert sorted(batch[4]["env_id"]) == [0, 1, 2]
        assert texts(envs.step([Do()] * SIZE)) == ["step 2"] * SIZE
    assert taken() == 2 * SIZE


def test_an_interrupted_send_may_be_followed_by_recv(url: str) -> None:
    """Made again it is refused, where the first has sent."""
    with vector(url) as envs:
        envs.reset()

        def send() -> None:
            envs.send([Do()] * SIZE)

        for moment in range(40):
            interrupted(send, moment * 2e-5)
            with contextlib.suppress(RuntimeError):  # it was sent
                send()
            assert texts(envs.recv()) == [f"step {moment + 1}"] * SIZE
    assert taken() == 40 * SIZE


def test_an_interrupted_reset_is_had_by_resetting_again(url: str) -> None:
    with vector(url) as envs:
        for moment in range(40):
            found = interrupted(lambda: envs.reset(seed=1), moment * 1e-4) or envs.reset(seed=1)
            assert texts(found) == ["ready"] * SIZE
            assert Counter.log.count("reset") == (moment + 1) * SIZE


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("how", ["step", "recv"])
def test_a_batch_may_be_interrupted_at_any_moment(url: str, mode: str, how: str) -> None:
    """Also while environments whose episode is over are being reset."""
    actions = [Do(), Do(what="done"), Do()]
    resets_besides = 1 if mode == "SameStep" else 0
    with vector(url, autoreset_mode=mode) as envs:
        envs.reset()
        before, is_sent = begun(), False

        def exchange() -> Any:
            nonlocal is_sent
            if how == "step":
                return envs.step(actions)
            if not is_sent:
                try:
                    envs.send(actions)
                except RuntimeError as error:  # interrupted after it had sent
                    assert "call recv()" in str(error)
                is_sent = True
            return envs.recv()

        for moment in range(amount(600, 100)):
            found = interrupted(exchange, moment % 100 * 2e-5) or exchange()
            is_sent = False
            assert len(texts(found)) == SIZE
            assert begun() - before == (moment + 1) * (SIZE + resets_besides)


def test_resets_of_the_same_step_are_had_with_it(url: str, tmp_path: Path) -> None:
    """The step is over, and its reset under way, when the caller is interrupted."""
    freed = threading.Event()

    class Slow(Counter):
        def reset(self, *arguments: Any, **named: Any) -> Any:
            found = super().reset(*arguments, **named)
            if self.log.count("reset") > SIZE:
                freed.wait(10)
            return found

    with serving(create_app(Slow)) as slow, vector(slow, autoreset_mode="SameStep") as envs:
        envs.reset()
        actions = [Do(), Do(what="done"), Do()]
        found = interrupted(
            lambda: envs.step(actions), lambda: Counter.log.count("reset") == SIZE + 1
        )
        assert found is None
        freed.set()
        batch = envs.step(actions)
        assert texts(batch) == ["step 1", "ready", "step 1"]
        assert batch[2].tolist() == [False, True, False]
        assert batch[4]["final_obs"][1]["text"] == "over"
        assert Counter.log.count("reset") == SIZE + 1
        assert texts(envs.step([Do()] * SIZE)) == ["step 2", "step 1", "step 2"]


def test_an_error_that_was_not_taken_comes_again(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    actions = [hold.action, Do(what="raise"), Do()]
    with vector(url) as envs:
        envs.reset()
        give_up(envs, lambda: envs.step(actions), hold, SIZE, "as the answers come")
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(actions)
        assert isinstance(caught.value.errors[1], ExecutionFailed)
        assert {i: r.observation["text"] for i, r in caught.value.results.items()} == {
            0: "step 1",
            2: "step 1",
        }
    assert taken() == SIZE


# ------------------------------------------------------------------ limits


def test_what_was_not_answered_in_time_is_had_by_asking_again(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url, message_timeout_s=0.3) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([Do(), hold.action, Do()])
        assert set(caught.value.results) == {0, 2}, "these have stepped, and here are the results"
        assert isinstance(caught.value.errors[1], ResponseTimeout)
        with pytest.raises(EnvironmentsFailed) as refused:
            envs.step([Do(), Do(), Do()])
        assert set(refused.value.results) == {0, 2}
        assert isinstance(refused.value.errors[1], SessionLost)
        hold.release()
        envs.send([hold.action], [1])
        envs.batch_size = 1
        assert texts(envs.recv()) == ["step 1"]
        envs.batch_size = SIZE
        assert texts(envs.step([Do()] * SIZE)) == ["step 3", "step 2", "step 3"]
    assert taken() == 5 + SIZE


def test_it_may_take_too_long_again_and_again(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url, 1, message_timeout_s=0.1) as envs:
        envs.reset()
        for _ in range(3):
            with pytest.raises(EnvironmentsFailed) as caught:
                envs.step([hold.action])
            assert isinstance(caught.value.errors[0], ResponseTimeout)
        hold.release()
        session = envs._group.sessions[0]
        wait_until(lambda: all(sent.outcome for sent in session.unanswered()))
        assert texts(envs.step([hold.action])) == ["step 1"]
        assert texts(envs.step([hold.action])) == ["step 2"], "the next step, though an equal one"
    assert taken() == 2


def test_a_rendering_in_between_keeps_the_late_answer(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url, 1, message_timeout_s=0.2) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed):
            envs.step([hold.action])
        hold.release()
        assert envs.render() == ("at 1",)
        assert texts(envs.step([hold.action])) == ["step 1"]
    assert taken() == 1


def test_a_reset_begins_anew_after_what_was_given_up(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url, message_timeout_s=0.2) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed):
            envs.step([hold.action] * SIZE)
        hold.release()
        envs.reset()
        assert texts(envs.step([hold.action] * SIZE)) == ["step 1"] * SIZE
    assert taken() == 2 * SIZE


def test_what_was_given_up_survives_a_broken_connection(url: str, tmp_path: Path) -> None:
    hold, relay = Hold(tmp_path), Relay(url)
    with vector(relay.url, message_timeout_s=0.2) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed):
            envs.step([hold.action] * SIZE)
        relay.cut()
        hold.release()
        assert texts(envs.step([hold.action] * SIZE)) == ["step 1"] * SIZE
    relay.close()
    assert taken() == SIZE


# ------------------------------------------------------------------ version 0


@pytest.fixture
def version_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")


@pytest.mark.usefixtures("version_0")
def test_version_0_keeps_what_has_come_and_loses_what_has_not(url: str, tmp_path: Path) -> None:
    holds = [Hold(tmp_path / name) for name in ("first", "second")]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with vector(url) as envs:
        envs.reset()
        actions = [holds[0].action, Do(), Do()]
        give_up(envs, lambda: envs.step(actions), holds[0], SIZE, "as the answers come")
        assert texts(envs.step(actions)) == ["step 1"] * SIZE
        actions = [holds[1].action, Do(), Do()]
        give_up(envs, lambda: envs.step(actions), holds[1], 2 * SIZE, "while they run")
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(actions)
        assert isinstance(caught.value.errors[0], SessionLost)
        assert all(
            result.observation["text"] == "step 2" for result in caught.value.results.values()
        )
        envs.reset()
        assert texts(envs.step([Do()] * SIZE)) == ["step 1"] * SIZE


@pytest.mark.usefixtures("version_0")
def test_version_0_loses_what_was_not_answered_in_time(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url, 2, message_timeout_s=0.3) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([hold.action, Do()])
        assert isinstance(caught.value.errors[0], ResponseTimeout)
        hold.release()
        with pytest.raises(EnvironmentsFailed) as refused:
            envs.step([hold.action, Do()])
        assert isinstance(refused.value.errors[0], SessionLost)
        envs.reset()
        assert texts(envs.step([Do()] * 2)) == ["step 1"] * 2


# ------------------------------------------------------------------ other ends


def test_a_close_ends_what_may_be_asked_again(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    envs = vector(url)
    envs.reset()
    give_up(envs, lambda: envs.step([hold.action] * SIZE), hold, SIZE, "while they run")
    envs.close()
    with pytest.raises(SessionLost):
        envs.step([hold.action] * SIZE)
    assert taken() == SIZE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_lost_the_episodes(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with vector(url) as envs:
        envs.reset()
        envs.send([hold.action, Do(), Do()])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                envs.step([Do()] * SIZE)
            except EnvironmentsFailed as failed:
                code = 0 if len(failed.errors) == SIZE else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        hold.release()
        assert texts(envs.recv()) == ["step 1"] * SIZE
    assert taken() == SIZE


def test_calls_of_two_threads_end_with_both(url: str) -> None:
    """A `VectorEnv` is one caller's; two of them share the loop and are in nobody's way."""
    with vector(url) as one, vector(url) as other:
        one.reset()
        other.reset()
        counts: dict[int, list[str]] = {}

        def play(number: int, envs: VectorEnv) -> None:
            for _ in range(50):
                counts[number] = texts(envs.step([Do()] * SIZE))

        thread = threading.Thread(target=play, args=(1, other))
        thread.start()

        def step() -> Any:
            return one.step([Do()] * SIZE)

        for moment in range(50):
            found = interrupted(step, moment * 2e-5) or step()
            assert texts(found) == [f"step {moment + 1}"] * SIZE
        thread.join()
        assert counts[1] == ["step 50"] * SIZE
    assert taken() == 2 * 50 * SIZE
