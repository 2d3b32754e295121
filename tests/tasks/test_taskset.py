"""What a taskset is apart from where it is from."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.zygote import run_python

from openenv.tasks import Task, Taskset, TasksetError, load_tasks
from openenv.tasks.rows import IdIndex

ROWS = [{"id": f"t{i}", "prompt": f"p{i}", "difficulty": i % 3} for i in range(30)]


@pytest.fixture
def tasks() -> Taskset:
    return load_tasks(ROWS)


def ids(tasks: Taskset) -> list[str]:
    return [task.id for task in tasks]


def harder(task: Task) -> Task:
    return task.model_copy(update={"difficulty": 9.0})


def easier(task: Task) -> Task:
    return task.model_copy(update={"difficulty": 0.0})


def test_slices_selections_and_filters_choose(tasks: Taskset) -> None:
    assert ids(tasks[3:5]) == ["t3", "t4"] and ids(tasks[::-10]) == ["t29", "t19", "t9"]
    assert ids(tasks.select([7, 2, -1])) == ["t7", "t2", "t29"]
    easy = tasks.filter(lambda task: task.difficulty == 0)
    assert len(easy) == 10 and ids(easy[1:3]) == ["t3", "t6"]
    assert easy[2].index == 6, "a task's place in its split stays what it is"
    with pytest.raises(IndexError):
        tasks.select([30])
    with pytest.raises(IndexError):
        easy[10]


def test_map_changes_anything_but_the_id(tasks: Taskset) -> None:
    mapped = tasks.map(harder)
    assert mapped[0].difficulty == 9 and tasks[0].difficulty == 0
    assert len(mapped.filter(lambda task: task.difficulty == 9)) == 30
    renamed = tasks.map(lambda task: task.model_copy(update={"id": "x"}))
    nothing: Any = tasks.map(lambda task: None)  # type: ignore[arg-type,return-value]
    for wrong in (renamed, nothing):
        with pytest.raises(TasksetError, match="t0"):
            wrong[0]


def test_a_task_is_found_by_its_id(tasks: Taskset) -> None:
    assert tasks.find("t17") == 17
    assert tasks[10:20].find("t17") == 7
    assert tasks.select([29, 17, 3]).find("t17") == 1
    assert tasks.filter(lambda task: task.difficulty == 2).find("t17") == 5
    for chosen in (tasks[:10], tasks.filter(lambda task: task.difficulty == 0)):
        with pytest.raises(TasksetError):
            chosen.find("t17")
    with pytest.raises(TasksetError, match="did you mean"):
        tasks.find("t17x")


def test_ids_that_have_the_same_hash_are_told_apart() -> None:
    from array import array

    names = ["a", "b", "c", "b"]
    index = IdIndex(array("Q", [7, 7, 7, 7]), names.__getitem__)
    assert index.duplicates() == (1, 3)
    assert IdIndex(array("Q", [7, 7, 7]), ["a", "b", "c"].__getitem__).duplicates() is None


def test_a_fingerprint_says_what_the_tasks_are(tasks: Taskset) -> None:
    assert load_tasks(ROWS).fingerprint == tasks.fingerprint
    changed = [*ROWS[:-1], {**ROWS[-1], "prompt": "other"}]
    others = [
        load_tasks(changed),
        load_tasks(ROWS[::-1]),
        load_tasks(ROWS, split="test"),
        load_tasks(ROWS, columns={"group": "prompt"}),
        tasks[:29],
        tasks.select(range(29)),
        tasks.filter(lambda task: task.difficulty),
        tasks.map(harder),
        tasks.map(easier),
    ]
    prints = [one.fingerprint for one in (tasks, *others)]
    assert len(set(prints)) == len(prints)
    assert tasks[:29].fingerprint == load_tasks(ROWS)[:29].fingerprint


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n')
    code = (
        "import sys; from openenv.tasks import load_tasks\n"
        "print(load_tasks(sys.argv[1]).select([2, 0]).fingerprint)"
    )
    done = run_python(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=30
    )
    assert done.stdout.strip() == load_tasks(path).select([2, 0]).fingerprint, done.stderr


@pytest.mark.parametrize("kind", ["list", "file"])
def test_a_taskset_can_be_pickled(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"id": "t{i}"}}\n' for i in range(9)))
    tasks = load_tasks(path if kind == "file" else [{"id": f"t{i}"} for i in range(9)])
    tasks[0]  # which opens the file
    for one in (tasks, tasks[2:5], tasks.select([8, 1]), tasks.map(harder)):
        again = pickle.loads(pickle.dumps(one))
        assert ids(again) == ids(one) and again.fingerprint == one.fingerprint
        assert again[1:].fingerprint == one[1:].fingerprint
    assert pickle.loads(pickle.dumps(tasks)).find("t5") == 5


def test_it_is_read_by_many_threads_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"id": "t{i}", "prompt": "{"x" * i}"}}\n' for i in range(300)))
    tasks = load_tasks(path)
    wrong: list[int] = []

    def read(step: int) -> None:
        found = [(i, tasks[i]) for i in range(0, 300, step)]
        wrong.extend(i for i, t in found if t.id != f"t{i}" or len(t.prompt or "") != i)

    threads = [threading.Thread(target=read, args=[step]) for step in (1, 2, 3, 5, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


def test_it_tells_people_what_it_is(tasks: Taskset) -> None:
    assert repr(tasks) == "<Taskset list (train): 30 tasks>"
