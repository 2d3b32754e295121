"""Tasks from files, tables, functions and lists."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openenv.tasks import Task, Taskset, TasksetError, TaskStream, load_splits, load_tasks
from openenv.tasks.served import ServedTasks

ROWS = [{"id": f"t{i}", "prompt": f"p{i}", "criteria": {"answer": i}} for i in range(10)]


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "tasks.jsonl", ROWS)


# ------------------------------------------------------------------ JSON lines


def test_a_file_of_json_lines_is_a_sequence_of_tasks(file: Path) -> None:
    tasks = load_tasks(file)
    assert len(tasks) == 10 and tasks.splits == ("train",)
    assert tasks[3] == Task(id="t3", prompt="p3", criteria={"answer": 3}, split="train", index=3)
    assert tasks[-1].id == "t9"
    assert [task.id for task in tasks] == [row["id"] for row in ROWS]
    assert load_tasks(str(file)).fingerprint == tasks.fingerprint


def test_ids_are_counted_where_rows_have_none(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "tasks.jsonl", [{"prompt": "a"}, {"prompt": "b"}])
    assert [task.id for task in load_tasks(path)] == ["train/0", "train/1"]
    assert [task.id for task in load_tasks(path, split="test")] == ["test/0", "test/1"]


def test_empty_lines_and_a_byte_order_mark_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n{"id":"a"}\n\n  \r\n{"id":"b"}\r\n\n{"id":"c"}')
    tasks = load_tasks(path)
    assert [task.id for task in tasks] == ["a", "b", "c"]
    assert [tasks[i].id for i in (2, 0, 1)] == ["c", "a", "b"]


def test_an_empty_file_has_no_tasks(tmp_path: Path) -> None:
    assert len(load_tasks(write_lines(tmp_path / "none.jsonl", []))) == 0


@pytest.mark.parametrize(
    ("damaged", "word"),
    [
        ('{"id": "x", ', "JSON"),
        ("[1, 2]", "object"),
        ('{"id": "x", "prompt": 3}', "prompt"),
        ('{"id": "t2"}', "line 4"),
    ],
)
def test_a_damaged_row_is_told_by_file_and_line(tmp_path: Path, damaged: str, word: str) -> None:
    lines = ["", *(json.dumps(row) for row in ROWS), damaged]
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(TasksetError, match=word) as caught:
        load_tasks(path)
    assert (caught.value.source, caught.value.row) == (str(path), "line 12")


def test_a_file_that_changed_after_it_was_loaded_is_not_read_on(file: Path) -> None:
    tasks = load_tasks(file)
    assert tasks[0].id == "t0"
    with file.open("a") as opened:
        opened.write('{"id": "later"}\n')
    with pytest.raises(TasksetError, match="changed"):
        tasks[1]
    with pytest.raises(TasksetError, match="changed"):
        list(tasks)


def test_rows_may_say_their_split(tmp_path: Path) -> None:
    rows = [{"id": f"t{i}", "split": "test" if i % 3 == 2 else "train"} for i in range(9)]
    path = write_lines(tmp_path / "tasks.jsonl", rows)
    test = load_tasks(path, split="test")
    assert [task.id for task in test] == ["t2", "t5", "t8"]
    assert [task.index for task in test] == [0, 1, 2] and test.splits == ("train", "test")
    assert {name: len(tasks) for name, tasks in load_splits(path).items()} == {
        "train": 6,
        "test": 3,
    }
    with pytest.raises(TasksetError, match="train, test"):
        list(load_tasks(path))
    with pytest.raises(TasksetError, match="did you mean 'test'"):
        load_tasks(path, split="tset")
    write_lines(path, [*rows, {"id": "x"}])
    with pytest.raises(TasksetError) as caught:
        load_tasks(path, split="test")
    assert caught.value.row == "line 10"


def test_a_row_in_a_split_that_is_damaged_is_told_by_its_line(tmp_path: Path) -> None:
    rows = [{"id": "a", "split": "train"}, {"id": "b", "split": "test"}]
    path = write_lines(
        tmp_path / "tasks.jsonl", [*rows, {"id": "c", "split": "test", "index": "x"}]
    )
    with pytest.raises(TasksetError) as caught:
        load_tasks(path, split="test")
    assert caught.value.row == "line 3"


@pytest.mark.slow
def test_tasks_are_not_kept(tmp_path: Path) -> None:
    rows = ({"id": f"task-{i}", "prompt": "x" * 400} for i in range(20_000))
    path = write_lines(tmp_path / "tasks.jsonl", list(rows))
    load_tasks(path)
    tracemalloc.start()
    try:
        tasks = load_tasks(path)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tasks) == 20_000 and tasks.find("task-19999") == 19_999
    assert [task.index for task in tasks] == list(range(20_000))
    assert held < 20_000 * 100  # where its line is, and where its id; a task takes 2000 bytes


# ------------------------------------------------------------------ tables


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "tasks.parquet"
    rows = [
        {"id": "a", "question": "1+1", "reset": {"seed": 1, "size": None}, "answer": "2"},
        {"id": "b", "question": "1+2", "reset": {"seed": None, "size": 5}, "answer": "3"},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    tasks = load_tasks(path, columns={"prompt": "question"})
    assert [task.reset for task in tasks] == [{"seed": 1}, {"size": 5}]
    assert (tasks[1].prompt, tasks[1].criteria) == ("1+2", {"answer": "3"})
    assert pickle.loads(pickle.dumps(tasks))[0] == tasks[0]
    assert tasks.find("b") == 1
    with pytest.raises(TasksetError, match="did you mean 'question'"):
        load_tasks(path, columns={"prompt": "qestion"})
    with pytest.raises(TasksetError) as caught:
        load_tasks(path, columns={"id": "reset"})[0]
    assert caught.value.row == "row 0"
    path.write_bytes(b"no Parquet")
    with pytest.raises(TasksetError, match="cannot be read"):
        load_tasks(path)


def test_duplicate_ids_of_a_table_are_found(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "tasks.parquet"
    table = pyarrow.table({"id": ["a", "b", "c", "b"]})
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(TasksetError, match="row 1") as caught:
        load_tasks(path)
    assert caught.value.row == "row 3"


@pytest.mark.slow
def test_what_save_to_disk_has_written_is_read(tmp_path: Path) -> None:
    import datasets

    train = datasets.Dataset.from_list([{"question": "1+1", "answer": "2"}] * 3)
    test = datasets.Dataset.from_list([{"question": "2+2", "answer": "4"}])
    folder = tmp_path / "saved"
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(folder))
    tasks = load_tasks(folder, split="test", columns={"prompt": "question"})
    assert tasks.splits == ("train", "test")
    assert tasks[0] == Task(
        id="test/0", prompt="2+2", criteria={"answer": "4"}, split="test", index=0
    )
    again = load_tasks(folder, split="test", columns={"prompt": "question"})
    assert again.fingerprint == tasks.fingerprint
    assert len({load_tasks(folder, split=s).fingerprint for s in ("train", "test")}) == 2
    train.save_to_disk(str(tmp_path / "one"))
    assert len(load_tasks(tmp_path / "one")) == 3
    with pytest.raises(TasksetError, match="did you mean 'train'"):
        load_tasks(folder, split="trian")
    with pytest.raises(TasksetError):
        load_tasks(tmp_path)


def test_a_folder_of_data_files_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    write_lines(folder / "train.jsonl", ROWS)
    write_lines(folder / "test.jsonl", ROWS[:2])
    splits = load_splits(folder)
    assert {name: len(tasks) for name, tasks in splits.items()} == {"train": 10, "test": 2}
    assert splits["train"][4].criteria == {"answer": 4}


def test_a_data_set_in_memory_is_read() -> None:
    import datasets

    table = datasets.Dataset.from_list([dict(row) for row in ROWS])
    tasks = load_tasks(table)
    assert [task.id for task in tasks] == [row["id"] for row in ROWS]
    assert tasks.fingerprint == load_tasks(datasets.Dataset.from_list(ROWS)).fingerprint
    splits = load_splits(datasets.DatasetDict({"train": table, "test": table.select([0])}))
    assert len(splits["test"]) == 1


def test_a_picture_in_a_table_stays_bytes() -> None:
    import datasets

    features = datasets.Features({"id": datasets.Value("string"), "image": datasets.Image()})
    picture = b"\x89PNG planted"
    rows = {"id": ["a"], "image": [{"bytes": picture, "path": None}]}
    table = datasets.Dataset.from_dict(rows, features=features)
    assert load_tasks(table)[0].criteria["image"]["bytes"] == picture


# ------------------------------------------------------------------ functions, lists


def test_a_function_may_return_rows() -> None:
    tasks = load_tasks("tasks.sources:rows")
    assert len(tasks) == 5 and tasks[2].criteria == {"answer": "2"}
    assert load_tasks("tasks.sources:LISTED")[0].id == "listed-0"
    assert [task.id for task in load_tasks("tasks.sources:filtered")] == [
        "row-0",
        "row-1",
        "row-3",
        "row-4",
    ]


def test_a_function_may_be_asked_for_a_split() -> None:
    assert load_tasks("tasks.sources:rows_of", split="test")[1].id == "test-1"
    assert load_tasks("tasks.sources:rows_of")[1].id == "train-1"
    assert list(load_splits("tasks.sources:by_split")) == ["train", "test"]


def test_a_generator_is_a_stream() -> None:
    stream = load_tasks("tasks.sources:endless")
    assert isinstance(stream, TaskStream) and stream
    assert [stream[i].prompt for i in (0, 3, 2)] == ["count to 0", "count to 3", "count to 2"]
    with pytest.raises(TypeError):
        len(stream)
    some = load_tasks("tasks.sources:endless", limit=4)
    assert len(some) == 4 and some[3].id == "train/3"
    hard = stream.filter(lambda task: task.difficulty == 2)
    assert [hard[i].id for i in range(3)] == ["train/2", "train/5", "train/8"]
    assert [task.id for task in hard[1:3]] == ["train/5", "train/8"]
    assert [task.id for task in stream.select([4, 1])] == ["train/4", "train/1"]
    assert stream.find("train/7") == 7


def test_a_stream_that_fails_does_not_look_as_if_it_had_ended() -> None:
    stream = load_tasks("tasks.sources:breaks")
    for _ in range(2):
        assert stream[1].prompt == "1"
        with pytest.raises(OSError, match="the connection broke"):
            stream.at(2)


def test_a_stream_that_ends_says_so() -> None:
    stream = load_tasks("tasks.sources:four")
    assert len(list(stream)) == 4
    for _ in range(2):
        assert stream.at(4) is None
    with pytest.raises(IndexError):
        stream[9]
    assert stream[1].prompt == "1"


@pytest.mark.parametrize(
    "source",
    [
        "no/such/file.jsonl",
        "tasks.csv",
        "nonsense",
        "no_such_module:rows",
        "tasks.sources:rwos",
        "tasks.sources:number",
        "tasks.sources:A_NUMBER",
        Path("no-such-folder"),
        3,
        iter([]),
        {"train": 3},
    ],
)
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(TasksetError):
        load_tasks(source)


def test_a_misspelt_file_or_function_is_asked_about(file: Path) -> None:
    with pytest.raises(TasksetError, match=r"did you mean 'tasks\.jsonl'"):
        load_tasks(file.with_name("taks.jsonl"))
    with pytest.raises(TasksetError, match="did you mean 'rows'"):
        load_tasks("tasks.sources:rwos")


def test_what_a_function_raises_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="planted"):
        load_tasks("tasks.sources:raises")


def test_options_that_a_source_does_not_have_are_refused(file: Path) -> None:
    for options in ({"revision": "main"}, {"config": "x"}):
        with pytest.raises(TasksetError):
            load_tasks(file, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit"):
        load_tasks(file, limit=-1)
    assert len(load_tasks(file, limit=3)) == 3 == len(load_tasks(file, limit=3)[:99])


def test_tasks_may_be_listed() -> None:
    tasks = load_tasks([Task(id="a"), Task(id="b", split="train", index=7)])
    assert [(task.split, task.index) for task in tasks] == [("train", 0), ("train", 7)]
    with pytest.raises(TasksetError, match="row 0"):
        load_tasks([Task(id="a"), Task(id="a")])
    assert load_tasks(tasks) is tasks
    with pytest.raises(TasksetError):
        load_tasks(tasks, split="test")
    assert isinstance(load_tasks({"train": [Task(id="a")]}), Taskset)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "list", "function"])
def test_rows_that_say_their_split_are_of_it(kind: str, tmp_path: Path) -> None:
    rows = [{"id": str(n), "split": "test" if n % 3 == 0 else "train", "x": n} for n in range(7)]
    source: Any = tmp_path / f"tasks.{kind}"
    if kind == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    else:
        source = rows if kind == "list" else lambda: rows
    for served in (ServedTasks(load_tasks(source)), ServedTasks(source)):
        assert served.list_splits() == ["test", "train"]
        assert [task.id for task in served.list_tasks("test")] == ["0", "3", "6"]
        assert [task.index for task in served.list_tasks("train")] == [0, 1, 2, 3]
        task, _ = served.resolve({"split": "test", "index": 1})
        assert task is not None and (task.id, task.split, task.criteria) == ("3", "test", {"x": 3})
        named, _ = served.resolve({"task": "4"})
        assert named is not None and named.split == "train"
    assert [task.id for task in load_tasks(source, split="test")] == ["0", "3", "6"]
    assert {name: len(part) for name, part in load_splits(source).items()} == {
        "test": 3,
        "train": 4,
    }
    with pytest.raises(
        TasksetError, match="has no split 'tests'; expected one of test, train; did you mean"
    ):
        load_tasks(source, split="tests")
    every = pickle.loads(pickle.dumps(load_tasks(source)))
    assert repr(every).endswith("test (3), train (4)>")
    assert len(load_tasks(every, split="train")) == 4
    for read in (len, list, Taskset.check, lambda tasks: tasks[0]):
        with pytest.raises(TasksetError, match="has the splits test, train; say which"):
            read(every)
