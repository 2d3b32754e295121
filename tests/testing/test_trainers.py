"""The suite for integrations of trainers: one that is right passes, and each fault is named."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict

import pytest

from openenv.errors import CapacityError
from openenv.rollouts.beginnings import Beginnings
from openenv.rollouts.episode_sessions import EpisodeSession, EpisodeSessions
from openenv.rollouts.replies import ParsedReply, read_reply
from openenv.testing import IntegrationFailed, check_integration
from openenv.testing.trainers import (
    CASES,
    ScriptedReply,
    TrainerCase,
    TrainerResult,
    TrainerRollout,
    TrainerRun,
    find_case,
)

pytestmark = pytest.mark.timeout(120)


class Trainer:
    """An integration as it should be, but for its faults."""

    def __init__(self, *faults: str) -> None:
        self.faults = frozenset(faults)
        self.beginnings = Beginnings("planted")

    def play(self, run: TrainerRun) -> TrainerResult:
        return asyncio.run(self._played(run))

    async def _played(self, run: TrainerRun) -> TrainerResult:
        sessions = await EpisodeSessions.of(
            run.address, retries=0, shows_pictures="sees" in self.faults
        )
        found: dict[str, list[TrainerRollout]] = defaultdict(list)
        try:
            if "asks_no_room" not in self.faults:
                sessions.check_room(max(case.rollouts for case in run.cases))
            for case in run.cases:
                for number in range(case.rollouts):
                    found[case.name].append(await self._rollout(sessions, case, run, number))
        except CapacityError as error:
            return TrainerResult(error=f"CapacityError: {error}")
        finally:
            await sessions.aclose()
        return TrainerResult(found)

    async def _rollout(
        self, sessions: EpisodeSessions, case: TrainerCase, run: TrainerRun, number: int
    ) -> TrainerRollout:
        session = await sessions.take()
        try:
            return await self._episode(session, sessions, case, run, number)
        except Exception as error:
            if "raises" in self.faults:
                raise
            if "counts_failures_as_0" in self.faults:
                return TrainerRollout(0.0, is_trained_on=True)
            return TrainerRollout(error=f"{type(error).__name__}: {error}")
        finally:
            await session.close()

    async def _episode(
        self,
        session: EpisodeSession,
        sessions: EpisodeSessions,
        case: TrainerCase,
        run: TrainerRun,
        number: int,
    ) -> TrainerRollout:
        row = {name: value for name, value in case.row.items() if name != "prompt"}
        if "drops_task_id" in self.faults:
            row.pop("task_id", None)
        if "drops_seed" in self.faults:
            row["seed"] += 1000
        seen = session.look_at(await session.reset(**row))
        assert "drops_seed" in self.faults or find_case(seen.text) == case
        if "compares_nothing" not in self.faults:
            self.beginnings.saw(case.name, seen.text)
        shown, learnt = seen.text, ""
        for turn in range(run.max_turns):
            reply = case.reply(turn)
            learnt += reply.text()
            if "refusals_are_failures" in self.faults and "button 9" in shown:
                raise RuntimeError("refused")
            answer = await session.act_by(self._read(reply, sessions))
            shown += f"\n{answer.text}"
            if answer.is_over:
                break
        if "hides_beginnings" in self.faults:
            shown = shown.partition("\n")[2]
        if "learns_all" in self.faults:
            learnt += shown
        if "hides_answers" in self.faults:
            shown = shown.partition("\n")[0]
        pictures = len(seen.pictures) if "blind" not in self.faults else 0
        score = session.score(0.0 if "giving_up_is_0" in self.faults else "earned")
        value = score.value
        if value is None and "counts_failures_as_0" in self.faults:
            value = 0.0
        if "no_room_for_all" in self.faults and case.name == "no_room" and number:
            return TrainerRollout()
        is_used = value is not None and "learns_nothing" not in self.faults
        return TrainerRollout(value, is_used, shown, learnt, pictures)

    def _read(self, reply: ScriptedReply, sessions: EpisodeSessions) -> ParsedReply:
        said = reply.text()
        if "keeps_thoughts" in self.faults and reply.thought and not reply.is_cut:
            said = reply.text().replace("<think>", "").replace("</think>", "")
            return read_reply(json.dumps({"code": said}), sessions.interface)
        if "reads_thoughts" in self.faults and not reply.is_cut:
            said = reply.text().replace("<think>", "").replace("</think>", "")
        if "keeps_fences" in self.faults and reply.form == "fenced":
            return read_reply(json.dumps({"code": said}), sessions.interface)
        if "guesses_calls" in self.faults and reply.form == "malformed":
            return read_reply(json.dumps({"code": reply.codes[0]}), sessions.interface)
        is_cut = reply.is_cut and "carries_out_cut_ones" not in self.faults
        if "reads_open_thoughts" in self.faults and reply.is_open:
            said, is_cut = said.partition("First I try")[2], False
        parsed = read_reply(said, sessions.interface, is_cut=is_cut)
        if "last_call_only" in self.faults:
            return ParsedReply("", "", parsed.calls[-1:], parsed.problem, parsed.end)
        return parsed


NAMES = {case.name for case in CASES}
PLAYED = {case.name for case in CASES if case.expected in ("right", "right_or_ended")}
FAULTS: dict[str, set[str]] = {
    "counts_failures_as_0": {
        "reset_raises",
        "breaks",
        "unscored",
        "unfinished_without_a_range",
        "unequal_beginnings",
        "picture",
    },
    "keeps_thoughts": {"behind_a_thought", "a_call_in_a_thought"},
    "reads_thoughts": {"a_call_in_a_thought"},
    "keeps_fences": {"in_a_fence"},
    "last_call_only": {"several_calls"},
    "guesses_calls": {"malformed_call"},
    "carries_out_cut_ones": {"cut_off"},
    "reads_open_thoughts": {"cut_off_in_a_thought"},
    "refusals_are_failures": {"refused"},
    "hides_answers": {"refused"},
    "hides_beginnings": PLAYED | {"unfinished"},
    "giving_up_is_0": {"unfinished", "unfinished_without_a_range"},
    "drops_task_id": {"task_id"},
    "drops_seed": NAMES - {"no_room"},
    "learns_nothing": {
        *("fine", "behind_a_thought", "a_call_in_a_thought", "in_a_fence", "several_calls"),
        "refused",
        "task_id",
    },
    "learns_all": PLAYED | {"unfinished"},
    "compares_nothing": {"unequal_beginnings"},
}


def broken_by(*faults: str) -> dict[str, str]:
    try:
        check_integration(Trainer(*faults).play)
    except IntegrationFailed as failed:
        return {one.case: one.detail for one in failed.report.broken}
    return {}


def test_an_integration_that_is_right_passes_every_case() -> None:
    report = check_integration(Trainer().play, name="ours")
    assert {one.case for one in report.findings if one.is_kept} == NAMES
    assert "kept: behind_a_thought" in str(report)
    assert report.as_data()["findings"][0] == {"case": "fine", "is_kept": True, "detail": ""}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_found_and_what_to_do_is_said(fault: str) -> None:
    found = broken_by(fault)
    assert found.keys() == FAULTS[fault]
    for name, detail in found.items():
        cure = next(case.cure for case in CASES if case.name == name)
        assert cure[1:] in detail
        assert (
            "expected" in detail or "in the loss" in detail or "shown" in detail or "lost" in detail
        )


def test_a_trainer_that_waits_for_a_session_passes_and_one_that_trains_on_some_does_not() -> None:
    assert broken_by("asks_no_room") == {}
    assert broken_by("asks_no_room", "no_room_for_all").keys() == {"no_room"}


def test_a_model_that_sees_has_to_be_given_the_picture() -> None:
    assert broken_by("sees") == {}
    assert broken_by("sees", "blind").keys() == {"picture"}


def test_a_case_that_ends_the_run_breaks_those_beside_it() -> None:
    found = broken_by("raises")
    assert found.keys() >= {"fine", "reset_raises"}
    assert "the trainer ended with ExecutionFailed" in found["reset_raises"]


def test_a_case_may_not_apply_with_a_reason() -> None:
    why = {"unequal_beginnings": "each rollout is a process of its own"}
    report = check_integration(Trainer("compares_nothing").play, not_applicable=why)
    (left,) = [one for one in report.findings if one.is_kept is None]
    assert (left.case, left.detail) == ("unequal_beginnings", why["unequal_beginnings"])


@pytest.mark.parametrize(
    ("reasons", "why"),
    [
        ({"unscore": "it has none"}, "did you mean 'unscored'?"),
        ({"unscored": " "}, "say why the case cannot happen"),
    ],
)
def test_a_case_that_is_not_known_or_has_no_reason_is_refused(
    reasons: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match="not_applicable") as refused:
        check_integration(Trainer().play, not_applicable=reasons)
    assert why in str(refused.value)


def test_what_is_played_crosses_to_another_process_as_json() -> None:
    run = TrainerRun("http://127.0.0.1:1", CASES[:3], 5)
    assert TrainerRun.from_data(json.loads(json.dumps(run.as_data()))) == run
    played = TrainerResult({"fine": [TrainerRollout(1.0, True, "seen")]}, "it ended")
    assert TrainerResult.from_data(json.loads(json.dumps(played.as_data()))) == played


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ScriptedReply(("a",), thought="Hm."), "<think>\nHm.\n</think>\n\n<tool_call>"),
        (ScriptedReply(("a",), thought="Hm.", is_open=True), "<think>\nHm.\n<tool_call>"),
        (ScriptedReply(("a",), form="fenced"), "```python\na\n```"),
    ],
)
def test_a_reply_is_written_as_models_write_it(reply: ScriptedReply, text: str) -> None:
    assert reply.text().startswith(text)


def test_the_arguments_of_a_malformed_call_are_no_json() -> None:
    (text,) = ScriptedReply(("a",), form="malformed").arguments
    with pytest.raises(json.JSONDecodeError):
        json.loads(str(text))


def test_a_case_is_known_by_its_prompt_alone_where_the_environment_could_not_be_reset() -> None:
    (case,) = [case for case in CASES if case.name == "reset_raises"]
    assert find_case(case.row["prompt"][0]["content"]) == case
    with pytest.raises(ValueError, match="first observation"):
        find_case("Press the buttons.")
