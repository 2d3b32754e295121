"""Captured turns: what may be trained on, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from openenv.rollouts.harness.training import TrainingTrace, TrainingTurn, training_sampling


def turn(**changes: Any) -> dict[str, Any]:
    return {
        "node_id": "n",
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3],
        "per_token_logps": [-0.5],
        "loss_mask": [0, 0, 1],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_id": ""}, "at least 1 character"),
        ({"loss_mask": [0, 1]}, "loss_mask has 2 entries for 2 tokens of the prompt and 1"),
        ({"loss_mask": [1, 0, 1]}, "loss_mask is 1 in the prompt"),
        ({"loss_mask": [0, 0, 2]}, "neither 0 nor 1"),
        ({"per_token_logps": []}, "has 0 numbers for 1 completion_token_ids"),
        ({"per_token_logps": [float("nan")]}, "no log-probability"),
        ({"per_token_logps": [float("-inf")]}, "no log-probability"),
        ({"per_token_logps": [0.5]}, "no log-probability"),
        ({"prompt_token_ids": [], "loss_mask": [1]}, "prompt_token_ids is empty"),
        ({"prompt_token_ids": [-1, 2]}, "prompt_token_ids has a negative"),
        ({"prompt_token_ids": [True, 2]}, "valid integer"),
        ({"zork": 1}, "Extra inputs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_trained_on_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainingTurn(**turn(**changes))


def test_a_turn_may_have_written_nothing_or_be_context_only() -> None:
    nothing = turn(completion_token_ids=[], per_token_logps=[], loss_mask=[0, 0])
    assert TrainingTurn(**nothing).completion_token_ids == []
    assert TrainingTurn(**turn(loss_mask=[0, 0, 0])).loss_mask == [0, 0, 0]


def test_entries_and_back() -> None:
    turns = [turn(request={"messages": []}, metadata={"a": 1}), turn(node_id="m")]
    trace = TrainingTrace(turns=[TrainingTurn(**one) for one in turns])
    entries = trace.to_trace_entries()
    assert entries[0]["metadata"] == {"a": 1, "node_id": "n"}
    assert entries[0]["loss_mask"] == [0, 0, 1]
    assert TrainingTrace.from_entries(entries) == trace
    assert TrainingTrace.from_entries([]) == TrainingTrace(turns=[])


def test_an_entry_says_what_it_lacks() -> None:
    good = TrainingTrace(turns=[TrainingTurn(**turn())]).to_trace_entries()[0]
    lacking = {name: value for name, value in good.items() if name != "loss_mask"}
    with pytest.raises(ValueError, match=r"entry 1 has no loss_mask$"):
        TrainingTrace.from_entries([good, lacking])
    with pytest.raises(ValueError, match=r"entry 0 has no metadata.node_id$"):
        TrainingTrace.from_entries([{**good, "metadata": None}])


def test_each_call_is_there_once() -> None:
    one, two = TrainingTurn(**turn()), TrainingTurn(**turn(node_id="m"))
    assert TrainingTrace(turns=[one, two]).unique_calls().turns == [one, two]
    with pytest.raises(ValidationError, match="two turns have the node_id 'n'"):
        TrainingTrace(turns=[one, one])
    unchecked = TrainingTrace.model_construct(turns=[one, one])
    with pytest.raises(ValidationError, match="two turns have the node_id 'n'"):
        unchecked.unique_calls()


def test_sampling_that_is_the_policys_own() -> None:
    full = {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    assert training_sampling({"temperature": 0.7}) == full
    assert training_sampling({"temperature": 0.7, "top_k": 0, "top_p": 1}) == full
    assert training_sampling(None) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": 0}, "temperature=0: training expects a finite number above 0"),
        ({"temperature": True}, "temperature=True"),
        ({"temperature": None}, "temperature=None"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"top_p": 0.9}, "top_p=0.9: training expects 1.0"),
        ({"top_k": 5}, "top_k=5: training expects -1"),
        ({"min_p": None}, "min_p=None: expected a number"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"seed": 1, "n": 2}, "n, seed: unsupported in training"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_sampling_from_another_distribution_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        training_sampling({"temperature": 1, **changes})
