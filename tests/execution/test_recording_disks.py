"""What a recording says of what a disk did not take, whenever and however it failed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import openenv_running
from support.dice import Dice, DiceEnv, Roll
from support.disks import SmallDisk, files_limited_to
from support.waiting import wait_until

from openenv.execution import recording
from openenv.execution.commands import Reset, Step
from openenv.execution.manager import SessionManager
from openenv.execution.recording import Recordings
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.rollouts.recorded import recorded_rollouts
from openenv.rollouts.replays import RecordedEpisode, RecordingOptions, read

pytestmark = pytest.mark.anyio
LONG = {"what": "tell", "extra": "x" * 2000}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    yield disk
    disk.close()


Record = Callable[..., SessionManager]


@pytest.fixture
def record(disk: SmallDisk) -> Record:
    """Make a manager that records on the small disk."""

    def record(directory: Path = disk.place, **options: Any) -> SessionManager:
        spec = EnvironmentSpec.of(Dice)
        manager = SessionManager(spec)
        manager.record_to(Recordings(RecordingOptions(directory, **options), spec))
        return manager

    return record


def recordings_of(manager: SessionManager) -> Recordings:
    found = manager._recordings
    assert found is not None
    return found


async def play(session: Session, steps: int) -> None:
    """Make `steps` + 1 events, all but one of them long."""
    await session.handle(Reset({"seed": 1}))
    for _ in range(steps):
        await session.handle(Step(dict(LONG)))


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("Dice/*"))


def kinds(file: Path) -> list[str]:
    """What the lines of a file are; each is whole."""
    return [json.loads(line).get("event", "header") for line in file.read_bytes().splitlines()]


async def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


def told(episodes: list[RecordedEpisode]) -> tuple[int, int]:
    """How many events are there, and how many are said to be missing."""
    return sum(len(one.events) for one in episodes), sum(one.lost for one in episodes)


# ------------------------------------------------------------------ room comes back


@pytest.mark.parametrize("is_ended", [True, False])
async def test_what_a_full_disk_did_not_take_is_said_once_there_is_room(
    record: Record, disk: SmallDisk, is_ended: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a session that has ended before, and without another event of anybody."""
    manager = record()
    session = await manager.create()
    await play(session, 200)
    recordings = recordings_of(manager)
    await recordings.written()
    if is_ended:
        await manager.close(session.id)
    assert 100 < recordings.lost < 201
    disk.grow()
    (file,) = files(disk.place)
    await until(lambda: kinds(file)[-1] == ("end" if is_ended else "gap"))
    await until(lambda: f"{recordings.lost} events were lost" in caplog.text)
    await manager.aclose()
    assert recordings.debtors == 0
    episodes = list(read(file))
    there, lost = told(episodes)
    assert there + lost == 201 and lost == recordings.lost
    assert not any(one.is_whole or one.is_torn for one in episodes)
    assert kinds(file)[-1] == "end"


async def test_files_that_recover_one_after_the_other_are_one_loss_in_the_log(
    record: Record, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The gap of the first fits on the full disk, before the second file loses anything."""
    manager = record()
    recordings = recordings_of(manager)
    first = await manager.create()
    await play(first, 200)
    await manager.close(first.id)
    disk.fill()
    await until(lambda: recordings.lost > 100 and recordings.debtors == 0)
    second = await manager.create()
    await play(second, 0)
    await manager.close(second.id)
    await until(lambda: recordings.debtors == 1)
    disk.grow()
    await until(lambda: "events were lost" in caplog.text)
    await manager.aclose()
    (said,) = [r.message for r in caplog.records if "events were lost" in r.message]
    assert said.endswith(f" {recordings.lost} events were lost")
    assert caplog.text.count("cannot be written") == 1


async def test_a_server_that_ends_when_there_is_room_says_what_is_missing(
    record: Record, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SETTLE_S", 1000.0)
    manager = record()
    session = await manager.create()
    await play(session, 200)
    await manager.close(session.id)
    disk.grow()
    await manager.aclose()
    (file,) = files(disk.place)
    there, lost = told(list(read(file)))
    assert there + lost == 201 and lost > 100 and kinds(file)[-1] == "end"


async def test_a_session_of_which_nothing_could_be_written_leaves_a_file_that_says_so(
    record: Record, disk: SmallDisk
) -> None:
    """The disk was full before its first line."""
    disk.fill()
    manager = record()
    session = await manager.create()
    await play(session, 3)
    await manager.close(session.id)
    recordings = recordings_of(manager)
    await until(lambda: recordings.debtors == 1)
    assert not any(file.stat().st_size for file in files(disk.place))
    disk.grow()
    await until(lambda: recordings.debtors == 0)
    await manager.aclose()
    (file,) = files(disk.place)
    assert kinds(file) == ["header", "gap", "end"]
    (episode,) = read(file)
    assert (episode.events, episode.lost, episode.is_whole) == ([], 4, False)
    (rollout,) = recorded_rollouts(file)[1]
    assert rollout.failures


async def test_a_first_line_that_found_no_room_is_said_by_the_next(
    record: Record, disk: SmallDisk
) -> None:
    """What is missing before the first event that is there used to be read as nothing."""
    disk.fill()
    manager = record()
    session = await manager.create()
    await play(session, 3)
    await recordings_of(manager).written()
    disk.grow()
    await session.handle(Reset({"seed": 2}))
    await manager.aclose()
    (file,) = files(disk.place)
    first, second = read(file)
    assert (first.events, first.lost) == ([], 4)
    assert second.seed == 2 and second.is_whole


async def test_a_file_that_could_not_be_continued_is_once_there_is_room(
    record: Record, disk: SmallDisk
) -> None:
    manager = record(max_file_bytes=30_000)
    session = await manager.create()
    recordings = recordings_of(manager)
    await play(session, 10)
    await recordings.written()
    disk.fill()
    await play(session, 10)
    await recordings.written()
    await manager.close(session.id)
    assert recordings.debtors == 1 and len(files(disk.place)) == 1
    disk.grow()
    await until(lambda: recordings.debtors == 0)
    await manager.aclose()
    first, second = files(disk.place)
    assert kinds(second) == ["header", "gap", "end"]
    there, lost = told(list(read(first)))
    assert there + lost == 22 and lost == recordings.lost > 5


@pytest.mark.usefixtures("disk")
async def test_events_that_no_queue_took_are_counted_with_those_that_no_disk_took(
    record: Record, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that told of lost events was lost itself, and only it was counted."""
    monkeypatch.setattr(recording, "MAX_WAITING_BYTES", 4000)
    disk.fill()
    manager = record()
    session = await manager.create()
    recordings = recordings_of(manager)
    for _ in range(10):
        await play(session, 9)
        await recordings.written()
    await manager.close(session.id)
    disk.grow()
    await until(lambda: recordings.debtors == 0)
    await manager.aclose()
    assert recordings.lost == 100
    assert told(list(read(*files(disk.place)))) == (0, 100)


# ------------------------------------------------------------------ it never does


async def test_without_room_to_the_end_the_log_says_so_and_the_file_is_torn(
    record: Record, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    manager = record()
    session = await manager.create()
    await play(session, 2)
    await recordings_of(manager).written()
    (file,) = files(disk.place)
    with files_limited_to(file.stat().st_size):
        await play(session, 4)
        await manager.close(session.id)
        await manager.aclose()
    (episode,) = read(file)
    assert episode.is_torn and not episode.is_whole and len(episode.events) == 3
    (said,) = [r.message for r in caplog.records if "cannot say so" in r.message]
    assert said.endswith(f"5 events are missing in them: {file.name}")
    assert recordings_of(manager).lost == 5


async def test_a_recording_without_an_end_is_torn_unless_its_episode_is_done(
    record: Record, disk: SmallDisk
) -> None:
    manager = record()
    session = await manager.create()
    await session.handle(Reset({"seed": 1}))
    await manager.aclose()
    (file,) = files(disk.place)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:-1]))
    (episode,) = read(file)
    assert episode.is_torn and not episode.is_whole
    done = json.loads(whole[-2]) | {"event": "step", "step": 1, "terminated": True}
    file.write_bytes(b"".join(whole[:-1]) + json.dumps(done).encode() + b"\n")
    (episode,) = read(file)
    assert episode.is_torn and episode.is_whole
    file.write_bytes(whole[0])
    (episode,) = read(file)
    assert episode.is_torn and episode.events == []


# ------------------------------------------------------------------ other errors


@pytest.mark.parametrize("code", ["EDQUOT", "EIO", "EROFS", "ENOSPC", "EBADF"])
@pytest.mark.parametrize("takes_back", [True, False])
async def test_any_error_of_a_disk_leaves_a_gap_and_whole_lines(
    code: str, takes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: SmallDisk
) -> None:
    """Even if the half of a line that was written cannot be taken back at once."""
    disk.grow()
    failing = False
    write, ftruncate = os.write, os.ftruncate

    def is_ours(descriptor: int) -> bool:
        link = os.readlink(f"/proc/self/fd/{descriptor}")
        return failing and link.startswith(str(disk.place))

    def half_written(descriptor: int, data: Any) -> int:
        if not is_ours(descriptor):
            return write(descriptor, data)
        if len(data) > 100:
            return write(descriptor, data[:50])
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    def kept(descriptor: int, size: int) -> None:
        if is_ours(descriptor) and not takes_back:
            raise OSError(errno.EIO, "it cannot be taken back")
        ftruncate(descriptor, size)

    monkeypatch.setattr(os, "write", half_written)
    monkeypatch.setattr(os, "ftruncate", kept)
    spec = EnvironmentSpec.of(Dice)
    manager = SessionManager(spec)
    manager.record_to(Recordings(RecordingOptions(disk.place), spec))
    recordings = recordings_of(manager)
    session = await manager.create()
    await play(session, 2)
    await recordings.written()
    failing = True
    await play(session, 4)
    await recordings.written()
    assert recordings.lost == 5
    failing = False
    await play(session, 1)
    await manager.aclose()
    (file,) = files(disk.place)
    first, second = read(file)
    assert (len(first.events), first.lost, len(second.events)) == (3, 5, 2)
    assert kinds(file)[-1] == "end" and (first.is_whole, second.is_whole) == (False, True)


async def test_a_directory_that_is_removed_is_made_again(tmp_path: Path) -> None:
    """Events used to be written into the file that nobody could find any more."""
    spec = EnvironmentSpec.of(Dice)
    manager = SessionManager(spec)
    manager.record_to(Recordings(RecordingOptions(tmp_path / "r"), spec))
    session = await manager.create()
    await play(session, 2)
    await recordings_of(manager).written()
    shutil.rmtree(tmp_path / "r")
    await session.handle(Reset({"seed": 2}))
    await manager.aclose()
    (file,) = files(tmp_path / "r")
    assert [episode.seed for episode in read(file)] == [2]
    assert recordings_of(manager).lost == 0


async def test_a_directory_that_cannot_be_made_again_is_a_gap_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = EnvironmentSpec.of(Dice)
    manager = SessionManager(spec)
    manager.record_to(Recordings(RecordingOptions(tmp_path / "r"), spec))
    session = await manager.create()
    await play(session, 2)
    recordings = recordings_of(manager)
    await recordings.written()
    shutil.rmtree(tmp_path / "r")
    (tmp_path / "r").write_text("a file, where the directory was")
    await play(session, 2)
    await recordings.written()
    assert recordings.lost == 3 and "cannot be written" in caplog.text
    (tmp_path / "r").unlink()
    await until(lambda: recordings.debtors == 0)
    await manager.aclose()
    (file,) = files(tmp_path / "r")
    (episode,) = read(file)
    assert (episode.events, episode.lost) == ([], 3)


async def test_files_that_wait_for_room_are_bounded(
    record: Record,
    disk: SmallDisk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recording, "MAX_DEBTORS", 3)
    disk.fill()
    manager = record()
    for _ in range(5):
        session = await manager.create()
        await play(session, 1)
        await manager.close(session.id)
    recordings = recordings_of(manager)
    await recordings.written()
    assert recordings.debtors == 3 and recordings.lost == 10
    assert caplog.text.count("lacks events, and will not say so") == 2
    disk.grow()
    await manager.aclose()
    assert [told(list(read(file))) for file in files(disk.place)] == [(0, 2)] * 3


# ------------------------------------------------------------------ a server


@pytest.mark.slow("a disk is filled, and grown, under a server")
def test_a_server_counts_and_logs_what_a_full_disk_did_not_take(
    disk: SmallDisk, tmp_path: Path
) -> None:
    target = str(Path(__file__).parents[1] / "support" / "dice.py") + ":Dice"
    with openenv_running(
        *("serve", target, "--port", "0", "--json", "--record", str(disk.place / "r")),
        cwd=tmp_path,
        log=tmp_path / "log",
    ) as server:
        url = server.first_line()["url"]

        def metric(name: str) -> float:
            found = [
                line.rpartition(" ")[2]
                for line in httpx.get(f"{url}/metrics").text.splitlines()
                if line.startswith(name)
            ]
            return float(found[0])

        assert metric("openenv_recording_events_lost_total") == 0
        with DiceEnv(url) as env:
            env.reset(seed=7)
            for _ in range(100):
                env.step(Roll.model_validate(LONG))
        disk.fill()
        with DiceEnv(url) as env:
            env.reset(seed=8)
        wait_until(lambda: metric("openenv_recordings_in_debt") == 1, 10)
        lost = metric("openenv_recording_events_lost_total")
        assert lost > 50
        disk.grow()
        wait_until(lambda: metric("openenv_recordings_in_debt") == 0, 20)
        server.interrupt()
    both = [told(list(read(file))) for file in files(disk.place / "r")]
    assert sorted(there + said for there, said in both) == [1, 101]
    assert sum(said for _, said in both) == lost
    assert all(kinds(file)[-1] == "end" for file in files(disk.place / "r"))
    assert f"{lost:.0f} events were lost" in server.words()
