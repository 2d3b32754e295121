"""Which columns are which fields; nothing that may be an answer is public unless it is mapped."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tasks.sources import fields_of, made_of

from openenv.tasks import Task, TasksetError, load_tasks


def only(row: Any, **options: Any) -> Task:
    (task,) = load_tasks([row], **options)
    return task


def test_a_column_of_a_fields_name_is_that_field() -> None:
    task = only(
        {
            "id": "a",
            "prompt": "do",
            "reset": {"seed": 1},
            "criteria": {"k": 1},
            "metadata": {"m": 2},
        }
    )
    assert task == Task(
        id="a",
        prompt="do",
        reset={"seed": 1},
        criteria={"k": 1},
        metadata={"m": 2},
        split="train",
        index=0,
    )


def test_what_nobody_has_mapped_is_private() -> None:
    task = only({"id": "a", "prompt": "do", "answer": "planted", "criteria": {"k": 1}, "level": 3})
    assert task.criteria == {"k": 1, "answer": "planted", "level": 3}
    assert task.public() == {"id": "a", "prompt": "do", "split": "train", "index": 0}


def test_metadata_of_a_table_that_is_not_made_for_tasks_is_private() -> None:
    assert only({"id": "a", "metadata": {"k": 1}}).metadata == {"k": 1}
    foreign = only({"id": "a", "metadata": {"solution": "planted"}, "answer": 1})
    assert foreign.metadata == {}
    assert foreign.criteria["metadata"] == {"solution": "planted"}
    mapped = only({"id": "a", "metadata": {"k": 1}, "answer": 1}, columns={"metadata": "metadata"})
    assert mapped.metadata == {"k": 1}


def test_columns_may_be_mapped() -> None:
    row = {"uid": 7, "question": "q", "answer": "x", "tests": "t", "size": 4, "topic": "s", "b": 1}
    task = only(
        row,
        columns={
            "id": "uid",
            "prompt": "question",
            "criteria": ["answer", "tests"],
            "reset": {"board": "size"},
            "group": "topic",
        },
    )
    assert (task.id, task.prompt, task.group) == ("7", "q", "s")
    assert task.reset == {"board": 4}
    assert task.criteria == {"answer": "x", "tests": "t", "b": 1}


def test_one_column_of_an_object_is_the_object_or_in_it() -> None:
    assert only({"id": "a", "x": {"k": 1}}, columns={"criteria": "x"}).criteria == {"k": 1}
    assert only({"id": "a", "x": 5}, columns={"criteria": "x"}).criteria == {"x": 5}


def test_a_column_that_is_mapped_elsewhere_is_not_the_field_of_its_name() -> None:
    task = only({"id": "a", "prompt": "planted", "text": "do"}, columns={"prompt": "text"})
    assert task.prompt == "do"
    assert task.criteria == {"prompt": "planted"}


def test_a_function_may_make_the_task_or_its_fields() -> None:
    row = {"uid": "a", "question": "q", "answer": "x"}
    assert only(row, columns=made_of).criteria == {"answer": "x"}
    assert only(row, columns=fields_of) == Task(id="a", prompt="q", split="train", index=0)


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"id": "a"}, {"columns": {"promt": "x"}}),
        ({"id": "a"}, {"columns": {"prompt": "question"}}),
        ({"id": "a"}, {"columns": {"prompt": ["a", "b"]}}),
        ({"id": "a"}, {"columns": lambda row: 3}),
        ({"id": "a", "criteria": {"k": 1}, "k": 2}, {}),
        ({"id": "a", "criteria": 3, "k": 2}, {}),
        ({"id": "a", "task": {"id": "b"}}, {}),
        ({"id": "a", "difficulty": "hard"}, {}),
        ({"id": "", "prompt": "x"}, {}),
        ([1, 2], {}),
        ("text", {}),
    ],
)
def test_what_is_no_task_is_refused(row: Any, options: dict[str, Any]) -> None:
    with pytest.raises(TasksetError):
        load_tasks([row], **options)


def test_an_error_names_the_field_and_not_its_value() -> None:
    with pytest.raises(TasksetError) as caught:
        load_tasks([{"id": "a"}, {"id": "b", "criteria": ["planted"]}])
    assert caught.value.row == "row 1"
    assert "criteria" in str(caught.value) and "planted" not in str(caught.value)


def test_a_misspelt_name_is_asked_about() -> None:
    with pytest.raises(TasksetError, match="did you mean 'prompt'"):
        load_tasks([{"id": "a"}], columns={"promt": "x"})
    with pytest.raises(TasksetError, match="did you mean 'question'"):
        load_tasks([{"id": "a", "question": "q"}], columns={"prompt": "questoin"})


# ------------------------------------------------------------------ RFC 006


def test_a_canonical_row_of_rfc_006_is_understood() -> None:
    task = only(
        {
            "task_id": "example-001",
            "task": {
                "prompt": [{"role": "user", "content": "Solve this."}],
                "answer": "42",
                "metadata": {"difficulty": "easy"},
            },
        }
    )
    assert task.id == "example-001"
    assert task.prompt == [{"role": "user", "content": "Solve this."}]
    assert task.criteria == {"answer": "42", "metadata": {"difficulty": "easy"}}


def test_an_explicit_reset_of_rfc_006_is_understood() -> None:
    row = {"task_id": "t", "openenv_reset": {"task_id": "t"}, "metadata": {"source": "bench"}}
    task = only(row)
    assert task.reset == {"task_id": "t"}
    assert task.metadata == {"source": "bench"}


def test_steps_and_texts_of_rfc_006_are_kept_from_agents() -> None:
    task = only({"task_id": "t", "openenv_step": {"move": "e4"}, "task": "what it is"})
    assert task.criteria == {"openenv_step": {"move": "e4"}, "task": "what it is"}
    assert task.prompt is None


def test_nothing_that_a_row_names_is_imported() -> None:
    load_tasks([{"id": "a", "adapter": "antigravity.Taskset", "grader": "this:main"}])
    assert "antigravity" not in sys.modules and "this" not in sys.modules


def test_objects_may_be_texts() -> None:
    task = only({"id": "a", "reset": '{"seed": 3}', "criteria": ' {"k": 1}', "prompt": '{"x": 1}'})
    assert task.reset == {"seed": 3} and task.criteria == {"k": 1}
    assert task.prompt == '{"x": 1}'
