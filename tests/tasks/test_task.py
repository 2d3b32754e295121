"""A task in JSON, and what is shown of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from openenv.tasks import Task

WHOLE = Task(
    id="a",
    prompt="What is 2 + 2?",
    reset={"seed": 3},
    files={"data/blob.bin": b"\x00\xff", "notes.txt": "hello"},
    state={"money": 5},
    criteria={"answer": "four", "tests": ["assert planted"]},
    split="train",
    index=0,
    difficulty=2,
)


def test_a_task_comes_back_from_json_as_it_was() -> None:
    again = Task.model_validate_json(WHOLE.model_dump_json())
    assert again == WHOLE
    assert again.files == {"data/blob.bin": b"\x00\xff", "notes.txt": "hello"}
    assert Task.model_validate(WHOLE.as_data()) == WHOLE


def test_neither_the_public_form_nor_the_repr_tells_the_criteria() -> None:
    assert "criteria" not in WHOLE.public()
    assert "four" not in str(WHOLE.public()) and "planted" not in repr(WHOLE)
    assert "group" not in WHOLE.public(), "what is empty is left out"


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "", "a\\b", "nul\0"])
def test_a_file_of_a_task_stays_below_its_directory(path: str) -> None:
    with pytest.raises(ValidationError):
        Task(id="a", files={path: "x"})


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": "a", "answer": 4},
        {"id": "a", "difficulty": float("nan")},
        {"id": "a", "index": -1},
        {"id": "a", "files": {"x": {"base64": "no base64!"}}},
    ],
)
def test_what_is_no_task_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Task(**fields)


def test_a_reference_says_where_and_nothing_else() -> None:
    place = {"split": "train", "index": 3}
    assert Task(id="a", reset=place).is_reference
    assert not Task(id="a", reset=place, criteria={"answer": 1}).is_reference
    assert not Task(id="a", reset={"seed": 1}).is_reference
