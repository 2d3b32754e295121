"""Files of rollouts survive whatever happens to their writers, and say what is wrong with them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rollouts.worlds import room_for
from support.waiting import wait_until

from openenv.rollouts import (
    Failure,
    Rollout,
    RolloutFileError,
    RolloutHeader,
    RolloutWriter,
    StepRecord,
    read_header,
    read_rollouts,
    write_parquet,
)


def header(**settings: Any) -> RolloutHeader:
    return RolloutHeader(environment="echo_env", policy="random", settings={"n": 1, **settings})


def rollout(name: str, **fields: Any) -> Rollout:
    step = StepRecord(action={"what": "ü"}, observation={"x": [1, None]}, reward=0.5, done=True)
    return Rollout(id=name, group=name[:-2], steps=[step], reward=0.5, **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "x.jsonl"


def written(path: Path, *names: str) -> Path:
    with RolloutWriter(path, header()) as writer:
        for name in names:
            writer.write(rollout(name))
    return path


def ids(path: Path) -> list[str]:
    return [one.id for one in read_rollouts(path)]


# ------------------------------------------------------------------ writing and reading


def test_what_is_written_is_read_back(path: Path) -> None:
    written(path, "a#0", "b#0")
    assert read_header(path).settings == {"n": 1}
    assert list(read_rollouts(path)) == [rollout("a#0"), rollout("b#0")]


def test_a_line_is_there_as_soon_as_it_was_written(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        for count in range(1, 4):
            writer.write(rollout(f"{count}#0"))
            assert len(ids(path)) == count


def test_fields_of_a_later_version_are_kept(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0", from_the_future={"x": 1}))
    (found,) = read_rollouts(path)
    assert found.model_extra == {"from_the_future": {"x": 1}}


def test_a_file_that_is_there_is_not_written_over(path: Path) -> None:
    written(path, "a#0")
    with pytest.raises(FileExistsError):
        RolloutWriter(path, header())
    assert ids(path) == ["a#0"]


def test_a_text_that_utf_8_cannot_carry_is_written_with_backslashes(path: Path) -> None:
    said = [{"role": "assistant", "content": "half \ud83d of it"}]
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0", messages=said))
    (found,) = read_rollouts(path)
    assert found == rollout(
        "a#0", messages=[{"role": "assistant", "content": r"half \ud83d of it"}]
    )


def test_lines_are_not_written_to_what_is_called_a_table(tmp_path: Path) -> None:
    with pytest.raises(RolloutFileError, match="write_parquet"):
        RolloutWriter(tmp_path / "x.parquet", header())
    assert list(tmp_path.iterdir()) == []


def test_a_closed_writer_writes_no_more(path: Path) -> None:
    writer = RolloutWriter(path, header())
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(rollout("a#0"))


# ------------------------------------------------------------------ damage


def test_a_torn_last_line_is_passed_over_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(path, "a#0", "b#0")
    path.write_bytes(path.read_bytes()[:-20])
    assert ids(path) == ["a#0"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_resume_removes_a_torn_last_line_wherever_it_is_torn(path: Path) -> None:
    whole = written(path, "a#0", "b#0").read_bytes()
    begin = whole.rindex(b"\n", 0, -1) + 1
    for cut in (*range(begin + 1, len(whole), 97), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with RolloutWriter(path, header(), resume=True) as writer:
            assert writer.done == {"a#0"}
            writer.write(rollout("c#0"))
        assert ids(path) == ["a#0", "c#0"]


def test_a_torn_line_may_be_long(path: Path) -> None:
    whole = written(path, "a#0").read_bytes()
    path.write_bytes(whole + b"x" * 300_000)
    with RolloutWriter(path, header(), resume=True) as writer:
        assert writer.done == {"a#0"}
    assert path.read_bytes() == whole


def test_a_resume_of_a_torn_header_begins_anew(path: Path) -> None:
    first = written(path).read_bytes()
    for cut in (0, 5, len(first) - 1):
        path.write_bytes(first[:cut])
        with RolloutWriter(path, header(), resume=True) as writer:
            assert not writer.is_resumed
            writer.write(rollout("a#0"))
        assert ids(path) == ["a#0"]


@pytest.mark.parametrize("content", [b"my notes", b'{"format": "else"}\n', b"\n", b"{}\n{}\n"])
def test_a_file_of_something_else_is_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(RolloutFileError):
        RolloutWriter(path, header(), resume=True)
    with pytest.raises(RolloutFileError):
        read_header(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [b"{", b"[]\n", b'{"id": "b#0", "steps": 3}\n', b'{"outcome": "lost"}\n'],
    ids=["torn", "list", "steps", "outcome"],
)
def test_damage_before_the_last_line_is_told_with_its_place(path: Path, damage: bytes) -> None:
    lines = written(path, "a#0", "b#0", "c#0").read_bytes().splitlines(keepends=True)
    lines[2] = damage
    path.write_bytes(b"".join(lines))
    with pytest.raises(RolloutFileError) as raised:
        list(read_rollouts(path))
    assert raised.value.line == 3
    assert raised.value.path == str(path)
    with pytest.raises(RolloutFileError):
        RolloutWriter(path, header(), resume=True)
    assert path.read_bytes() == b"".join(lines)


def test_a_file_of_a_later_version_is_refused(path: Path) -> None:
    written(path)
    first = json.loads(path.read_bytes()) | {"version": 2}
    path.write_text(json.dumps(first, separators=(",", ":")) + "\n")
    with pytest.raises(RolloutFileError, match="version is 2"):
        read_header(path)


def test_an_id_that_is_there_twice_is_damage(path: Path) -> None:
    line = written(path, "a#0").read_bytes().splitlines(keepends=True)[1]
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(RolloutFileError, match="twice"):
        RolloutWriter(path, header(), resume=True)


# ------------------------------------------------------------------ going on


def test_a_resume_knows_what_is_done(path: Path) -> None:
    written(path, "a#0")
    found: list[Rollout] = []
    with RolloutWriter(path, header(), resume=True, on_found=found.append) as writer:
        assert writer.done == {"a#0"}
        assert writer.is_resumed
        writer.write(rollout("b#0"))
    assert ids(path) == ["a#0", "b#0"]
    assert found == [rollout("a#0")]


def test_what_has_failed_is_taken_out_to_be_done_again(path: Path) -> None:
    why = Failure(type="SessionLost", message="gone", at="step", step=2)
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0"))
        writer.write(rollout("b#0", outcome="failed", failures=[why]))
        writer.write(rollout("c#0"))
    with RolloutWriter(path, header(), resume=True) as writer:
        assert writer.done == {"a#0", "c#0"}
        assert writer.failed == {"b#0": [why]}
        assert ids(path) == ["a#0", "c#0"]
        with pytest.raises(RolloutFileError):  # the new file is locked as the old one was
            RolloutWriter(path, header(), resume=True)
        writer.write(rollout("b#0"))
    assert ids(path) == ["a#0", "c#0", "b#0"]
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_what_has_failed_may_be_kept(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0", outcome="failed"))
        writer.write(rollout("b#0"))
    before, found = path.read_bytes(), list[Rollout]()
    with RolloutWriter(
        path, header(), resume=True, keeps_failed=True, on_found=found.append
    ) as writer:
        assert (writer.done, writer.failed) == ({"a#0", "b#0"}, {})
    assert [one.id for one in found] == ["a#0", "b#0"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (RolloutHeader(environment="chess_env", policy="random", settings={"n": 1}), "environment"),
        (RolloutHeader(environment="echo_env", policy="human", settings={"n": 1}), "policy"),
        (header(n=4), "settings.n"),
        (header(limits={"steps": 3}), "settings.limits"),
    ],
)
def test_other_settings_are_refused_and_named(path: Path, other: RolloutHeader, named: str) -> None:
    written(path, "a#0")
    with pytest.raises(RolloutFileError, match=named):
        RolloutWriter(path, other, resume=True)
    assert ids(path) == ["a#0"]


def test_a_server_may_have_moved(path: Path) -> None:
    here, there = (
        RolloutHeader(environment=f"http://127.0.0.1:{port}", policy="random")
        for port in (8000, 8001)
    )
    RolloutWriter(path, here).close()
    RolloutWriter(path, there, resume=True).close()


def test_there_is_one_writer_at_a_time(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0"))
        with pytest.raises(RolloutFileError, match="somebody else"):
            RolloutWriter(path, header(), resume=True)
    with RolloutWriter(path, header(), resume=True) as writer:
        assert writer.done == {"a#0"}


# ------------------------------------------------------------------ a full disk


def test_on_a_full_disk_nothing_is_lost_that_was_said_to_be_written(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0"))
        before = path.read_bytes()
        with room_for(len(before) + 30), pytest.raises(OSError, match="can be gone on with"):
            writer.write(rollout("b#0"))
        assert path.read_bytes() == before
        writer.write(rollout("c#0"))  # there is room again
    assert ids(path) == ["a#0", "c#0"]


def test_a_file_is_not_lost_where_there_is_no_room_to_write_it_anew(path: Path) -> None:
    with RolloutWriter(path, header()) as writer:
        writer.write(rollout("a#0", messages=[{"content": "x" * 5000}]))
        writer.write(rollout("b#0", outcome="failed"))
    before = path.read_bytes()
    with room_for(1000), pytest.raises(OSError):
        RolloutWriter(path, header(), resume=True)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


# ------------------------------------------------------------------ Parquet


@pytest.mark.slow
def test_a_table_holds_the_same(path: Path, tmp_path: Path) -> None:
    rollouts = [
        rollout(
            "a#0",
            seed=2**40,
            reward_kind="terminal",
            reward_range=(-1.0, 0.5),
            reward_unfinished=0.0,
        ),
        rollout("b#0", step_rewards=[0.5], token_rewards=[[0.0, 0.5]], task={"id": "b"}),
        rollout("c#0", outcome="failed", unscored="gone", failures=[Failure(type="E", message="")]),
        rollout("d#0", is_kept=False, limit="steps", later={"x": 1}, components={"x": 0.5}),
    ]
    with RolloutWriter(path, header()) as writer:
        for one in rollouts:
            writer.write(one)
    table = tmp_path / "tables" / "x.parquet"
    assert write_parquet(path, table) == 4
    assert read_header(table) == read_header(path)
    assert list(read_rollouts(table)) == rollouts


def test_a_table_has_the_columns_that_are_promised(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    import openenv.rollouts.files as files

    table = tmp_path / "x.parquet"
    write_parquet((header(), [rollout("a#0")]), table)
    columns = {field.name: str(field.type) for field in parquet.read_schema(table)}
    assert files.__doc__ is not None
    assert all(name in files.__doc__ for name in columns)
    assert columns["reward"] == "double"
    assert columns["steps"] == "string"
    assert parquet.read_table(table).to_pylist()[0]["num_steps"] == 1


def test_a_table_without_a_header_is_no_table_of_rollouts(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"id": ["a"]}), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 but not")
    for name in ("x.parquet", "y.parquet"):
        with pytest.raises(RolloutFileError):
            list(read_rollouts(tmp_path / name))


def test_a_table_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def breaks() -> Iterator[Rollout]:
        yield rollout("a#0")
        raise KeyError

    with pytest.raises(KeyError):
        write_parquet((header(), breaks()), tmp_path / "x.parquet")
    with pytest.raises(RolloutFileError, match="rows 1 to 1"):
        write_parquet((header(), [rollout("a#0", seed=2**70)]), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ killed writers


def _write_and_die(path: Path, ready: Callable[[], object]) -> None:
    writer = RolloutWriter(path, header())
    ready()
    for number in range(10**9):
        writer.write(rollout(f"{number}#0"))


def test_a_writer_that_is_killed_leaves_whole_lines(path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _write_and_die(path, lambda: os.write(writing, b"!"))
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"!"
    wait_until(lambda: path.stat().st_size > 50_000)
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reading)
    with RolloutWriter(path, header(), resume=True) as writer:
        count = len(writer.done)
        assert writer.done == {f"{n}#0" for n in range(count)}
