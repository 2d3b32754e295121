"""What a recorded session leaves on the disk, whatever the disk does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.commands import openenv_running
from support.dice import (
    AsyncStoredDice,
    Camera,
    CameraEnv,
    Dice,
    DiceEnv,
    Roll,
    StoredDice,
)
from support.disks import files_limited_to
from support.drawn import Easel
from support.lamps import Lamp
from support.probe import Ask, ProbeEnv, ProbeEnvironment
from support.scoring import SPEC, AsyncScorer, Scorer
from support.waiting import wait_until

from openenv import NotSupported, create_app
from openenv.errors import RecordingError
from openenv.execution import recording
from openenv.execution.commands import (
    CallMethod,
    GetState,
    Render,
    Reset,
    Restore,
    Step,
    TakeSnapshot,
)
from openenv.execution.manager import SessionManager
from openenv.execution.process import Workers
from openenv.execution.recording import Recordings
from openenv.execution.session import Session
from openenv.execution.spec import LIST_TOOLS, EnvironmentSpec
from openenv.execution.tools import build_call_command
from openenv.protocol.http import SESSION_HEADER
from openenv.rollouts.replays import RecordingOptions, read, read_header, replay
from openenv.server.workers import spec_source
from openenv.tools import CallToolObservation

pytestmark = pytest.mark.anyio

Record = Callable[..., SessionManager]


@pytest.fixture
async def record(tmp_path: Path) -> AsyncIterator[Record]:
    """Make managers that record in a directory, by `RecordingOptions`."""
    managers: list[SessionManager] = []

    def record(factory: Callable[[], Any] = Dice, **options: Any) -> SessionManager:
        spec = EnvironmentSpec.of(factory)
        manager = SessionManager(spec)
        manager.record_to(Recordings(RecordingOptions(tmp_path, **options), spec))
        managers.append(manager)
        return manager

    yield record
    for manager in managers:
        await manager.aclose()


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*"))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def ended(directory: Path) -> int:
    """How many recordings are complete."""
    return sum(b'{"event":"end"' in file.read_bytes() for file in files(directory))


async def play(session: Session, steps: int = 1, seed: int = 0) -> None:
    await session.handle(Reset({"seed": seed}))
    for _ in range(steps):
        await session.handle(Step({"sides": 6}))


async def test_drawings_are_not_written_down(record: Record, tmp_path: Path) -> None:
    manager = record(Easel)
    session = await manager.create()
    await session.handle(Reset())
    for encode in (None, repr):
        assert "steps: 0" in str(await session.handle(Render(), encode=encode))
    await session.handle(Step({}))
    await manager.close(session.id)
    await manager.aclose()
    (file,) = files(tmp_path)
    (episode,) = read(file)
    assert [event.kind for event in episode.events] == ["reset", "step"]


@pytest.mark.parametrize("cls", [StoredDice, AsyncStoredDice])
async def test_an_episode_is_written_down(record: Record, tmp_path: Path, cls: Any) -> None:
    manager = record(cls)
    session = await manager.create()
    await session.handle(Reset({"seed": 3, "episode_id": "e"}))
    await session.handle(Step({"sides": 6, "what": "stop"}, {"timeout_s": 2.0}))
    await session.handle(GetState())
    with pytest.raises(ValueError, match="table"):
        await session.handle(Step({"what": "raise"}))
    stored = await session.handle(TakeSnapshot())
    await session.handle(Restore({"snapshot": stored.snapshot}))
    await manager.close(session.id)
    await manager.aclose()
    (file,) = files(tmp_path)
    assert file.parent.name == cls.__name__ and file.name.endswith(f"Z-{session.id}.jsonl")
    header = read_header(file)
    assert (header.environment, header.session_id) == (cls.__name__, session.id)
    assert header.target == f"support.dice:{cls.__name__}"
    first, second = read(file)
    reset, step, failed = first.events
    assert (first.number, first.is_whole, reset.kind, reset.seed) == (1, True, "reset", 3)
    assert reset.arguments == {"episode_id": "e"} and reset.observation["number"] == 243
    assert (step.action, step.arguments) == ({"sides": 6, "what": "stop"}, {"timeout_s": 2.0})
    assert step.terminated and step.done and not step.truncated
    assert step.reward == step.observation["number"] / 3 and step.metadata == {"note": "n"}
    assert 0 <= step.seconds < 5 and reset.time <= step.time
    assert failed.error is not None and failed.observation is None
    assert (failed.error.type, failed.error.code) == ("ValueError", "EXECUTION_ERROR")
    assert [event.step for event in first.events] == [0, 1, 2]
    assert (second.events[0].kind, second.events[0].snapshot) == ("restore", stored.snapshot)
    assert lines(file)[-1]["event"] == "end"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("cls", [Scorer, AsyncScorer], ids=["in the metadata", "in the result"])
async def test_what_is_known_of_a_reward_is_written_down(
    record: Record, tmp_path: Path, cls: Any
) -> None:
    manager = record(cls)
    session = await manager.create()
    await session.handle(Reset({}))
    await session.handle(Step({"value": 1.0}))
    await session.handle(Step({"value": "no judge"}))
    await manager.close(session.id)
    (path,) = files(tmp_path)
    (episode,) = read(path)
    first, second, third = episode.events
    assert first.reward_info == {"spec": SPEC.as_data()}
    assert second.reward_info == {"components": {"work": 0.5, "style": 0.5}}
    assert third.reward is None and third.reward_info == {"unscored": "no judge"}


async def test_arguments_are_those_that_came(record: Record, tmp_path: Path) -> None:
    """The environment clears the dictionary that it is given."""
    manager = record()
    session = await manager.create()
    await session.handle(Reset({"options": {"level": 3}}))
    await manager.aclose()
    (episode,) = read(*files(tmp_path))
    assert episode.events[0].arguments == {"options": {"level": 3}}


@pytest.mark.parametrize("protocol", ["0", "1"])
@pytest.mark.parametrize("workers", [None, 1])
def test_a_server_records_its_sessions(
    serve: Callable[[Any], str],
    tmp_path: Path,
    workers: int | None,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    url = serve(create_app(Camera, record=tmp_path, workers=workers))
    with CameraEnv(url) as env, CameraEnv(url) as other:
        seen = env.reset(seed=1).observation
        other.reset(seed=1)
        env.step(Roll())
        assert seen.frame.shape == (2, 2)
    wait_until(lambda: ended(tmp_path) == 2, 10)
    (episode,) = max(map(list, map(read, files(tmp_path))), key=lambda e: len(e[0].events))
    frame = episode.events[0].observation["frame"]
    assert frame["dtype"] == "|u1" and frame["shape"] == [2, 2]
    again = type(seen).model_validate(episode.events[0].observation)
    assert np.array_equal(again.frame, seen.frame) and np.array_equal(again.depth, seen.depth)


def test_a_session_over_http_is_recorded(serve: Callable[[Any], str], tmp_path: Path) -> None:
    url = serve(create_app(Dice, record=tmp_path))
    reset = httpx.post(f"{url}/reset", json={"seed": 3})
    headers = {SESSION_HEADER: reset.headers[SESSION_HEADER]}
    httpx.post(f"{url}/step", json={"action": {"what": "stop"}}, headers=headers)
    assert httpx.delete(f"{url}/session", headers=headers).status_code < 300
    (episode,) = read(*files(tmp_path))
    assert (episode.seed, [event.done for event in episode.events]) == (3, [False, True])


async def test_what_cannot_be_written_fails_no_session(record: Record, tmp_path: Path) -> None:
    manager = record()
    session = await manager.create()
    await session.handle(Reset())
    transition = await session.handle(Step({"what": "object"}))
    assert type(transition.observation.extra) is object
    await manager.aclose()
    (episode,) = read(*files(tmp_path))
    assert "object" in (episode.events[1].unrecorded or "")


async def test_a_session_that_does_nothing_leaves_no_file(record: Record, tmp_path: Path) -> None:
    manager = record()
    await manager.create()
    async with manager.throwaway() as session:
        await play(session)
    await manager.aclose()
    assert files(tmp_path) == []


async def test_a_manager_records_again_after_it_was_closed(record: Record, tmp_path: Path) -> None:
    manager = record()
    for count in (1, 2):
        await play(await manager.create())
        await manager.aclose()
        assert len(files(tmp_path)) == count


# ------------------------------------------------------------------ on request


@pytest.mark.parametrize("subprotocol", ["openenv.v1.msgpack", "openenv.v1.json"])
def test_a_client_asks_for_it(
    tmp_path: Path, serve: Callable[[Any], str], subprotocol: str
) -> None:
    options = RecordingOptions(tmp_path, every_session=False)
    url = serve(create_app(Dice, record=options))

    def client(**more: Any) -> DiceEnv:
        made = DiceEnv(url, **more)
        made._websocket = dataclasses.replace(made._websocket, subprotocols=(subprotocol,))
        return made

    with client() as unrecorded, client(record=True) as recorded:
        unrecorded.reset(seed=1)
        recorded.reset(seed=2)
        recorded.sync().new_session().reset(seed=2)
    wait_until(lambda: ended(tmp_path) == 2, 10)
    assert [episode.seed for file in files(tmp_path) for episode in read(file)] == [2, 2]


def test_a_server_without_a_place_for_it_says_so(serve: Callable[[Any], str]) -> None:
    url = serve(create_app(Dice))
    with DiceEnv(url, record=True) as env, pytest.raises(NotSupported, match="--record"):
        env.reset()


def test_version_0_cannot_ask_for_it(
    serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with (
        pytest.raises(NotSupported, match="version 0"),
        DiceEnv(serve(create_app(Dice)), record=True),
    ):
        pass


async def test_a_session_is_recorded_from_when_it_is_said(record: Record, tmp_path: Path) -> None:
    manager = record(every_session=False)
    session = await manager.create()
    await play(session)
    manager.record(session)
    await session.handle(Step({}))
    await play(session, seed=5)
    await manager.aclose()
    before, after = read(*files(tmp_path))
    assert (before.number, before.is_whole, len(before.events)) == (0, False, 1)
    assert (after.number, after.is_whole, after.seed) == (1, True, 5)


@pytest.mark.parametrize("workers", [None, 1])
async def test_calls_of_an_agent_are_steps(tmp_path: Path, workers: int | None) -> None:
    spec = EnvironmentSpec.of(Lamp)
    manager = SessionManager(spec)
    if workers is not None:
        manager.run_on(Workers(spec, workers, spec_source(spec)))
    manager.record_to(Recordings(RecordingOptions(tmp_path), spec))
    session = await manager.create()
    await session.handle(Reset({"seed": 1}))
    await session.handle(Step({"type": "call_tool", "tool_name": "pretend"}))
    for name in ("pretend", "nothing"):
        called = await session.handle(build_call_command(spec, name, {}, timeout_s=5.0))
        assert isinstance(called, CallToolObservation)
    await session.handle(CallMethod(LIST_TOOLS))
    await manager.aclose()
    (file,) = files(tmp_path)
    _, reset, by_trainer, by_agent, failed, end = lines(file)
    assert (reset["event"], end["event"]) == ("reset", "end")
    assert [one["step"] for one in (by_trainer, by_agent, failed)] == [1, 2, 3]
    assert by_agent["action"]["tool_name"] == "pretend"
    assert by_agent["arguments"] == {"timeout_s": 5.0}
    assert by_agent["observation"] == by_trainer["observation"]
    assert failed["observation"]["error"]["error_type"] == "tool_not_found"
    assert replay(file, Lamp).is_same


async def test_the_place_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_RECORD", str(tmp_path))
    monkeypatch.setenv("OPENENV_RECORD_FILE_MIB", "3")
    async with DiceEnv.local(create_app(Dice)) as env:
        await env.reset(seed=4)
    wait_until(lambda: len(files(tmp_path)) == 1, 10)
    monkeypatch.setenv("OPENENV_RECORD_FILE_MIB", "much")
    with pytest.raises(ValueError, match="OPENENV_RECORD_FILE_MIB"):
        create_app(Dice)


# ------------------------------------------------------------------ bounded


@pytest.mark.parametrize("name", ["max_file_bytes", "max_total_bytes"])
def test_limits_are_positive(tmp_path: Path, name: str) -> None:
    for limit in (0, -1):
        options: Any = {name: limit}
        with pytest.raises(ValueError, match=f"{name}={limit}"):
            RecordingOptions(tmp_path, **options)


async def test_a_file_is_continued_in_others(record: Record, tmp_path: Path) -> None:
    manager = record(max_file_bytes=4000)
    session = await manager.create()
    for seed in range(10):
        await play(session, steps=5, seed=seed)
        await manager._recordings.aclose()  # type: ignore[union-attr]  # in several writes
    await manager.aclose()
    parts = sorted(files(tmp_path), key=lambda path: (len(path.name), path.name))
    assert len(parts) > 3 and parts[1].name == f"{parts[0].name}.1"
    assert all(part.stat().st_size <= 4000 for part in parts)
    assert [read_header(part).part for part in parts] == list(range(len(parts)))
    episodes = list(read(parts[0]))
    assert [episode.seed for episode in episodes] == list(range(10))
    assert all(len(episode.events) == 6 for episode in episodes)
    assert len(list(read(parts[2]))) < 10


async def test_the_oldest_are_removed_and_none_that_is_written_to(
    record: Record, tmp_path: Path
) -> None:
    manager = record(max_total_bytes=40_000)
    oldest = await manager.create()
    await play(oldest)
    for seed in range(20):
        session = await manager.create()
        await play(session, steps=20, seed=seed)
        await manager.close(session.id)
        await manager._recordings.aclose()  # type: ignore[union-attr]
        assert sum(file.stat().st_size for file in files(tmp_path)) <= 40_000
    await play(oldest, seed=99)
    await manager.aclose()
    kept = {read_header(file).session_id: list(read(file)) for file in files(tmp_path)}
    assert [episode.seed for episode in kept[oldest.id]] == [0, 99]
    assert [episode.seed for episode in kept[session.id]] == [19]
    assert 2 < len(kept) < 21


@pytest.mark.slow
@pytest.mark.parametrize(("size", "servers"), [(15_000, 1), (10, 1), (10, 2)])
async def test_neither_large_events_nor_short_sessions_go_beyond_the_limit(
    record: Record, tmp_path: Path, size: int, servers: int
) -> None:
    """Nor do two servers that share the directory."""
    managers = [record(max_total_bytes=40_000) for _ in range(servers)]
    for _ in range(60):
        for manager in managers:
            session = await manager.create()
            await session.handle(Reset())
            await session.handle(Step({"what": "tell", "extra": "x" * size}))
            await manager.close(session.id)
            await manager._recordings.written()  # type: ignore[union-attr]
            assert sum(file.stat().st_size for file in files(tmp_path)) <= 40_000
    assert all(manager._recordings.lost == 0 for manager in managers)  # type: ignore[union-attr]


def open_files(directory: Path) -> list[str]:
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [link for link in links if link.startswith(str(directory))]


async def test_few_files_are_open_for_many_sessions(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_OPEN_FILES", 3)
    manager = record()
    recordings = manager._recordings
    assert recordings is not None
    sessions = [await manager.create() for _ in range(10)]
    for seed in range(3):
        for session in sessions:
            await play(session, seed=seed)
        await recordings.written()
        assert len(open_files(tmp_path)) == 3
    closed = {str(file) for file in files(tmp_path)} - set(open_files(tmp_path))
    os.unlink(closed.pop())  # as a server may that makes room
    for session in sessions:
        await play(session, seed=3)
    await manager.aclose()
    assert open_files(tmp_path) == [] and recordings.lost == 0
    seeds = sorted([episode.seed for episode in read(file)] for file in files(tmp_path))
    assert seeds == [*[[0, 1, 2, 3]] * 9, [3]]


async def test_nothing_is_removed_that_is_no_recording(record: Record, tmp_path: Path) -> None:
    strange = tmp_path / "Dice" / "notes.jsonl"
    strange.parent.mkdir()
    strange.write_text("x" * 100_000)
    manager = record(max_total_bytes=20_000)
    for _ in range(5):
        session = await manager.create()
        await play(session, steps=20)
        await manager.close(session.id)
    await manager.aclose()
    assert strange.exists()


# ------------------------------------------------------------------ disks


async def test_a_full_disk_is_said_once_and_leaves_a_gap(
    record: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = record()
    recordings = manager._recordings
    assert recordings is not None
    session = await manager.create()
    await play(session, seed=1)
    await recordings.aclose()
    (file,) = files(tmp_path)
    with files_limited_to(file.stat().st_size + 100):
        for seed in (2, 3, 4):
            await play(session, steps=3, seed=seed)
            await recordings.written()
    assert recordings.lost == 12
    await play(session, seed=5)
    await manager.aclose()
    episodes = list(read(file))
    assert [(episode.seed, episode.lost) for episode in episodes] == [(1, 12), (5, 0)]
    said = [r.message for r in caplog.records if r.name == "openenv.execution.recording"]
    assert len(said) == 2
    assert "cannot be written: [Errno 27] File too large" in said[0]
    assert "12 events were lost" in said[1]


async def test_a_directory_that_cannot_be_made_fails_no_session(
    record: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "Dice").write_text("this is a file")
    manager = record()
    await play(await manager.create())
    await manager.aclose()
    assert "cannot be written" in caplog.text


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_WAITING_BYTES", 2000)
    monkeypatch.setattr(recording, "PACE_S", 0.3)  # in which nothing is written


@pytest.mark.usefixtures("slow_disk")
async def test_a_slow_disk_stalls_nobody(record: Record, tmp_path: Path) -> None:
    manager = record()
    session = await manager.create()
    await play(session, steps=50)
    recordings = manager._recordings
    assert recordings is not None and recordings.lost > 10
    await recordings.aclose()
    await session.handle(Step({}))
    await manager.aclose()
    whole, rest = read(*files(tmp_path))
    assert whole.has_beginning and whole.lost == recordings.lost and not whole.is_whole
    assert not rest.has_beginning and rest.number == 1
    assert len(whole.events) + whole.lost + len(rest.events) == 52


@pytest.mark.usefixtures("slow_disk")
async def test_a_loss_is_not_over_while_much_waits(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    manager = record()
    await play(await manager.create(), steps=50)
    recordings = manager._recordings
    assert recordings is not None
    recordings._settle(1)  # as after each batch; more than half of what may wait still does
    assert recordings.losses.is_reported
    await manager.aclose()
    assert not recordings.losses.is_reported
    assert caplog.text.count("cannot be written") == 1


@pytest.mark.usefixtures("slow_disk")
async def test_what_is_missing_at_the_end_is_said_too(record: Record, tmp_path: Path) -> None:
    manager = record()
    session = await manager.create()
    await play(session, steps=50)
    await manager.close(session.id)
    recordings = manager._recordings
    assert recordings is not None and recordings.lost > 10
    await manager.aclose()
    (file,) = files(tmp_path)
    (episode,) = read(file)
    assert len(episode.events) + episode.lost == 51 and episode.lost == recordings.lost
    assert [line["event"] for line in lines(file)[-2:]] == ["gap", "end"]


async def test_a_directory_that_running_sessions_fill_is_full(
    record: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = record(max_total_bytes=10_000)
    session = await manager.create()
    for seed in range(20):
        await play(session, steps=10, seed=seed)
        await manager._recordings.aclose()  # type: ignore[union-attr]
    await manager.aclose()
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 10_000
    assert "sessions that still run fill 10000 bytes" in caplog.text


# ------------------------------------------------------------------ ends


@pytest.mark.slow
def test_a_killed_server_leaves_what_it_had_written(tmp_path: Path) -> None:
    target = str(Path(__file__).parents[1] / "support" / "dice.py") + ":Dice"
    records = tmp_path / "records"
    with openenv_running(
        *("serve", target, "--port", "0", "--json", "--record", str(records)),
        cwd=tmp_path,
        log=tmp_path / "log",
    ) as server:
        url = server.first_line()["url"]
        with contextlib.suppress(ConnectionError), DiceEnv(url) as env:
            env.reset(seed=7)
            for _ in range(50):
                env.step(Roll())
            wait_until(lambda: sum(len(lines(file)) for file in files(records)) == 52, 10)
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait(10)
    assert f"recorded in {records}" in " ".join(server.words().replace("│", " ").split())
    (file,) = files(records)
    assert read_header(file).target == target
    (episode,) = read(file)
    assert (episode.seed, len(episode.events), episode.is_done) == (7, 51, False)


@pytest.mark.slow
def test_a_server_that_is_stopped_leaves_whole_recordings(tmp_path: Path) -> None:
    target = str(Path(__file__).parents[1] / "support" / "dice.py") + ":Dice"
    arguments = ("serve", target, "--port", "0", "--json", "--workers", "2")
    with openenv_running(
        *arguments, "--record", str(tmp_path / "records"), cwd=tmp_path, log=tmp_path / "log"
    ) as server:
        url = server.first_line()["url"]
        env = DiceEnv(url).sync()
        env.connect()
        env.reset(seed=7)
        env.step(Roll())
        server.interrupt()
    with contextlib.suppress(ConnectionError):
        env.close()
    (file,) = files(tmp_path / "records")
    assert [line.get("event") for line in lines(file)] == [None, "reset", "step", "end"]


async def recorded(record: Record, tmp_path: Path) -> Path:
    manager = record()
    session = await manager.create()
    await play(session, steps=2)
    await play(session, steps=2, seed=1)
    await manager.aclose()
    (file,) = files(tmp_path)
    return file


async def test_a_torn_line_is_told_from_damage(record: Record, tmp_path: Path) -> None:
    file = await recorded(record, tmp_path)
    content = file.read_bytes()
    whole = content.splitlines(keepends=True)
    for cut in (1, 10, 40, len(whole[6]) - 1):
        file.write_bytes(b"".join(whole[:6]) + whole[6][:cut])
        first, second = read(file)
        assert (first.is_torn, second.is_torn, len(second.events)) == (False, True, 2)
    file.write_bytes(b"".join(whole[:3]) + whole[3][:40] + b"\n" + b"".join(whole[4:]))
    with pytest.raises(RecordingError, match="damaged") as damaged:
        list(read(file))
    assert damaged.value.line == 4


@pytest.mark.parametrize(
    ("line", "change", "field"),
    [
        (1, {"session_id": None}, "session_id"),
        (1, {"time": "today"}, "time"),
        (3, {"event": None}, "event"),
        (3, {"event": []}, "event"),
        (3, {"event": "walk"}, "event"),
        (3, {"episode": None}, "episode"),
        (3, {"step": "x"}, "step"),
        (3, {"action": 3}, "action"),
        (3, {"arguments": []}, "arguments"),
        (3, {"error": {"type": "E"}}, "error.code"),
        (3, {"event": "restore", "snapshot": "x"}, "snapshot"),
        (3, {"event": "gap"}, "lost"),
    ],
)
async def test_a_line_of_another_form_is_damage(
    record: Record, tmp_path: Path, line: int, change: dict[str, Any], field: str
) -> None:
    file = await recorded(record, tmp_path)
    whole = lines(file)
    whole[line - 1] |= change
    file.write_text("".join(json.dumps(one) + "\n" for one in whole))
    with pytest.raises(RecordingError, match=f"line {line}: the line is damaged: {field}"):
        list(read(file))


async def test_a_server_may_be_killed_as_it_continues_a_file(
    record: Record, tmp_path: Path
) -> None:
    file = await recorded(record, tmp_path)
    header = file.read_bytes().splitlines(keepends=True)[0]
    part = file.with_name(f"{file.name}.1")
    for cut in (0, 10, len(header) - 1, len(header)):
        part.write_bytes(header[:cut])
        assert [episode.is_torn for episode in read(file)] == [False, cut < len(header)]


@pytest.mark.parametrize("content", [b"", b"{}\n", b"hello", b'{"format": "other"}\n', b"[1]\n"])
def test_another_file_is_no_recording(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(content)
    with pytest.raises(RecordingError, match="no recording"):
        list(read(file))


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"format": "openenv-recording", "version": 2}\n')
    with pytest.raises(RecordingError, match="later version"):
        read_header(file)


async def test_a_crash_of_a_worker_is_recorded(tmp_path: Path) -> None:
    app = create_app(ProbeEnvironment, workers=1, record=tmp_path)
    async with app.router.lifespan_context(app), ProbeEnv.local(app) as env:
        await env.reset()
        with pytest.raises(RuntimeError, match="SIGKILL"):
            await env.step(Ask(what="kill"))
    (episode,) = read(*files(tmp_path))
    assert episode.events[-1].error is not None
    assert episode.events[-1].error.type == "EnvironmentCrashed"
