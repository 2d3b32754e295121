"""Episodes as conversations, and conversations as episodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from openenv.errors import Unscored
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import as_messages, as_text, from_messages, task_of
from openenv.rewards.external.conversation import last_text, split_prompt
from openenv.rewards.external.fields import Fields, with_fields
from openenv.rewards.external.scorers import to_json_value
from openenv.tasks.task import Task
from openenv.tools.types import CallToolAction, CallToolObservation
from openenv.types import Action, Observation

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


class Guess(Action):
    word: str
    sure: bool = False


class Move(Action):
    action_id: int
    game: str = "pong"


class Seen(Observation):
    text: str = ""
    board: list[int] = Field(default_factory=list)


class Board(Observation):
    board: list[int] = Field(default_factory=list)


class Asked(Observation):
    question: str | None = None
    score: float | None = None


def said(action: Any) -> dict[str, Any]:
    (message,) = as_messages(Trajectory([(action, None)]))
    return message


def seen(observation: Any) -> list[dict[str, Any]]:
    return as_messages(Trajectory(first=observation))


@pytest.mark.parametrize(
    ("action", "content"),
    [
        ("hello", "hello"),
        (Guess(word="crane"), "crane"),
        (Guess(word="crane", sure=True), "crane"),
        ({"word": "crane", "metadata": {"t": 1}}, "crane"),
        (Move(action_id=0), '{"action_id": 0, "game": "pong"}'),
        ([1, 2], "[1, 2]"),
        ({"content": "yes", "tool_calls": []}, "yes"),
        ({}, ""),
    ],
    ids=str,
)
def test_what_is_said_is_the_only_text_or_else_all_as_json(action: Any, content: str) -> None:
    assert said(action) == {"role": "assistant", "content": content}


def test_an_action_and_what_was_recorded_of_it_say_the_same() -> None:
    for action in (Guess(word="crane"), Move(action_id=3)):
        assert said(action) == said(action.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("observation", "content"),
    [
        (Seen(text="A table.", board=[1]), "A table."),
        (Board(board=[1, 2], reward=3.0, done=True), '{"board": [1, 2]}'),
        (Asked(question="How many?"), "How many?"),
        ("plain", "plain"),
    ],
    ids=str,
)
def test_what_is_seen_is_text_without_reward_and_annotations(
    observation: Any, content: str
) -> None:
    assert seen(observation) == [{"role": "user", "content": content}]


def test_an_observation_that_shows_nothing_is_no_message() -> None:
    assert seen(Seen()) == seen(None) == []


def test_the_calls_of_tools_are_those_of_chat_completions() -> None:
    call = CallToolAction(tool_name="add", arguments={"a": 1})
    result = {"content": [{"type": "text", "text": "3"}], "data": 3}
    failed = {"error_type": "execution_error", "message": "no such tool"}
    episode: Trajectory[Any, Any] = Trajectory(
        [
            (call, CallToolObservation(tool_name="add", result=result)),
            (call, {"tool_name": "add", "result": None, "error": failed}),
        ]
    )
    first, three, second, error = as_messages(episode)
    assert first["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert three == {"role": "tool", "tool_call_id": "call_0", "name": "add", "content": "3"}
    assert second["tool_calls"][0]["id"] == error["tool_call_id"] == "call_1"
    assert error["content"] == "no such tool"


def test_a_conversation_that_is_shown_anew_each_time_is_not_repeated() -> None:
    before = [{"role": "user", "content": "2 + 2?"}]
    after = [*before, {"role": "assistant", "content": "4"}, {"role": "user", "content": "Sure?"}]
    episode: Trajectory[Any, Any] = Trajectory(
        [({"content": "4"}, {"messages": after}), ({"content": "Yes."}, None)],
        first={"messages": before},
        task={"prompt": "2 + 2?"},
    )
    assert [one["content"] for one in as_messages(episode)] == ["2 + 2?", "4", "Sure?", "Yes."]


def test_a_conversation_is_parted_where_the_assistant_first_speaks() -> None:
    messages = as_messages(
        Trajectory([("4", "Sure?"), ("Yes.", "Thanks.")], first="2 + 2?", task={"prompt": "Sum."})
    )
    prompt, completion = split_prompt(messages)
    assert [one["content"] for one in prompt] == ["Sum.", "2 + 2?"]
    assert [one["content"] for one in completion] == ["4", "Sure?", "Yes."]
    assert as_text(messages) == "4\n\nYes."
    assert last_text(messages) == "Yes."
    with pytest.raises(Unscored, match="has no message"):
        last_text(prompt)


def test_what_a_task_is_scored_by_stands_over_its_other_fields() -> None:
    task = Task(id="t", prompt="p", criteria={"answer": "4"}, metadata={"level": 1, "answer": "no"})
    known = task_of(Trajectory(task=task))
    assert (known["answer"], known["level"], known["id"], known["prompt"]) == ("4", 1, "t", "p")
    assert task_of(Trajectory(task={"answer": 5})) == {"answer": 5}
    assert task_of(Trajectory()) == {}


# ------------------------------------------------------------------ conversations as episodes


def test_each_message_of_the_assistant_is_a_step() -> None:
    episode = from_messages(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 2?"}],
        [
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "3"},
            {"role": "assistant", "content": "3"},
        ],
        task={"id": 1},
    )
    (call, result), (answer, end) = episode
    assert call.tool_calls == [CALL]
    assert (result.text, result.done) == ("3", False)
    assert (answer.content, end.messages, end.done) == ("3", [], True)
    assert (episode.first.text, episode.task) == ("Be brief.\n\n1 + 2?", {"id": 1})


def test_text_is_one_message() -> None:
    episode = from_messages("1 + 2?", "")
    assert [(action.content, seen.done) for action, seen in episode] == [("", True)]


@pytest.mark.parametrize("completion", [[], [{"role": "user", "content": "?"}]])
def test_a_conversation_in_which_nobody_answers_cannot_be_scored(completion: Any) -> None:
    with pytest.raises(Unscored):
        from_messages("1 + 2?", completion)


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(Unscored, match="role and a content"):
        from_messages("?", [{"speaker": "me"}])


roles = st.sampled_from(["user", "assistant", "system"])
spoken = st.fixed_dictionaries({"role": roles, "content": st.text(min_size=1)})


@pytest.mark.slow
@given(st.lists(spoken, max_size=3), st.lists(spoken, max_size=6))
def test_a_conversation_comes_back_as_it_was(
    prompt: list[dict[str, str]], completion: list[dict[str, str]]
) -> None:
    completion = [{"role": "assistant", "content": "hi"}, *completion]
    assert as_messages(from_messages(prompt, completion)) == prompt + completion


# ------------------------------------------------------------------ what was recorded


def test_fields_are_attributes_and_a_misspelt_one_is_an_error() -> None:
    seen = with_fields({"board": [{"x": 1}], "items": ["sword"], "get": 3})
    assert (seen.board[0].x, seen["board"], seen.items, seen.get) == (
        1,
        [{"x": 1}],
        ["sword"],
        3,
    )
    with pytest.raises(AttributeError, match="'bord'; there are: board"):
        _ = seen.bord
    assert json.loads(json.dumps(to_json_value(seen))) == dict(seen)
    assert isinstance(Fields().items, type({}.items))
