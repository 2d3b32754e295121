"""Play schedules of what callers and networks do, and say whether the promise held.

    cd tests
    python -m faults.promise.play --schedules 2000 --seed 1   # prints one JSON object
    python -m faults.promise.play --seed 1 --only 137         # one of them again, shortened

Servers of several kinds are started, and a few processes play one schedule after the other against
them, each with one kind of client. Afterwards the ledger is read: each step that was answered was
taken once, every other once at most; and what the servers and the players hold is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import gc
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from faults.promise import machine as machines
from faults.promise.players import TypeScript

from openenv.client import background

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
Urls = dict[str, str]
Acts = list[tuple[str, str]]

SPACE = 10_000  # numbers of a schedule
WARM = 10**7  # schedules before those that count
GRACE_S = 4.0  # that servers wait for clients that were cut off
# Class of the environment, sessions at once, further options.
SERVERS = {
    "threads": ("Chained", 256, ()),
    "async": ("AsyncChained", 256, ()),
    "workers": ("Chained", 256, ("--workers", "2")),
    "full": ("Chained", 3, ()),
    "tools": ("Tooled", 256, ()),
    "dying": ("Chained", 256, ("--workers", "2")),
    "restarted": ("Chained", 256, ()),
    "recorded": ("Chained", 256, ("--record", "{folder}/recordings")),
}
LOSSY = ("dying", "restarted")
RECORDINGS_KIB = 64  # of room, which is soon used up
RESTART_S = 4.0
KINDS = ["sync", "bare", "generic", "awaited", "own", "vector"]
# (server, client, version of the protocol); `gateway` stands in front of `threads` and `async`.
COMBINATIONS = [
    *((server, kind, 1) for server in ("threads", "async", "workers", "gateway") for kind in KINDS),
    *(("tools", "tools", 1) for _ in range(3)),
    ("full", "sync", 1),
    ("full", "awaited", 1),
    *(("threads", kind, 0) for kind in ("sync", "awaited", "vector")),
    *((server, kind, 1) for server in LOSSY for kind in ("sync", "awaited", "vector")),
    ("recorded", "sync", 1),
    ("threads", "pooled", 1),
    *((server, "page", 1) for server in ("threads", "async", "workers", "restarted")),
]
if os.environ.get("PROMISE_TYPESCRIPT"):  # where Node is installed
    COMBINATIONS += [
        *((server, "typescript", 1) for server in ("threads", "async", "workers", "gateway")),
        *((server, "typescript", 1) for server in ("full", *LOSSY)),
        ("threads", "typescript", 0),
    ]


def may_lose(server: str, kind: str, version: int) -> bool:
    """Whether sessions of a combination may be lost at any time, if it is said.

    A pool ends its leases on a server that does not answer three times in a row. A WebSocket of
    Node is not told on which server of a gateway it is, and may meet another one when it comes
    back.
    """
    by_way = kind == "pooled" or (server, kind) == ("gateway", "typescript")
    return version == 0 or server in LOSSY or by_way


# ------------------------------------------------------------------ one process of players


def play_one(
    urls: Urls, seed: str, number: int, length: int, acts: Acts | None = None
) -> dict[str, Any]:
    """Play a schedule; give what came of it."""
    server, kind, version = COMBINATIONS[number % len(COMBINATIONS)]
    os.environ["OPENENV_PROTOCOL"] = str(version)
    acts = machines.schedule(f"{seed}:{number}", length) if acts is None else acts
    first = number * SPACE
    machine = None
    try:
        machine = machines.Machine(
            urls[server],
            kind,
            first,
            is_lossy=may_lose(server, kind, version),
            is_dying=server == "dying",
        )
        account = machine.play(acts)
    except machines.Broken as broken:
        said = str(broken)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        mine = [f"{one.name}:{one.lineno}" for one in frames if str(HERE) in one.filename]
        said = f"{' '.join(mine)}: {error!r}"
    else:
        return {"number": number, "is_right": True, **vars(account)}
    known = vars(machine.account) if machine is not None else {}
    return {"number": number, "is_right": False, "said": said, **known}


def shorten(acts: Acts, fails: Callable[[Acts], bool], tries: int = 60) -> Acts:
    """Leave out acts without which it fails as well."""
    size = max(1, len(acts) // 2)
    while size and tries > 0:
        start = 0
        while start < len(acts) and tries > 0:
            tries -= 1
            without = acts[:start] + acts[start + size :]
            if fails(without):
                acts = without
            else:
                start += size
        size //= 2
    return acts


def held() -> dict[str, int]:
    """Count what this process holds."""
    gc.collect()
    tasks = 0
    if background._loop is not None:
        counted = threading.Event()

        def count() -> None:
            nonlocal tasks
            tasks = len(asyncio.all_tasks(background._loop))
            counted.set()

        background._loop.call_soon_threadsafe(count)
        counted.wait(10)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "tasks": tasks,
    }


def descriptors() -> list[str]:
    """Say what this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def play_many(arguments: argparse.Namespace) -> None:
    """Play the schedules of one process; print a line of JSON for each."""
    logging.disable(logging.CRITICAL)
    urls = json.loads(arguments.urls)
    numbers = list(range(arguments.worker, arguments.schedules, arguments.processes))
    background.background_loop()  # which stays, once there is one
    play_one(urls, "warm", WARM + arguments.worker, 2)
    before = held()
    for number in numbers:
        sys.stdout.write(
            json.dumps(play_one(urls, arguments.seed, number, arguments.length)) + "\n"
        )
        sys.stdout.flush()
    leaks: dict[str, Any] = {}
    try:
        TypeScript.stop()
    except subprocess.TimeoutExpired:
        leaks["node"] = "the clients in TypeScript hold something, so that Node does not end"
    deadline = time.monotonic() + 15
    while (after := held()) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    # A thread for names and a descriptor of libuv's come when they are first needed, and stay.
    leeway = {"descriptors": 2, "threads": 2, "tasks": 0}
    leaks |= {
        name: after[name] - before[name]
        for name in before
        if after[name] > before[name] + leeway[name]
    }
    if leaks:
        leaks["what"] = [thread.name for thread in threading.enumerate()] + descriptors()
    sys.stdout.write(json.dumps({"leaks": leaks}) + "\n")


# ------------------------------------------------------------------ servers, and the whole


@contextlib.contextmanager
def serving(
    folder: Path, wanted: set[str]
) -> Iterator[tuple[Urls, dict[str, subprocess.Popen[bytes]]]]:
    """Start the servers; give their addresses and their processes."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OPENENV")},
        "PROMISE_LEDGER": str(folder / "ledger"),
        "OPENENV_RESUME_GRACE_S": str(GRACE_S),
    }
    (folder / "ledger").mkdir()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    urls: Urls = {}

    def start(name: str, *command: str, sessions: int = 1, port: int = 0) -> None:
        out = folder / f"{name}.out"
        program = Path(sys.executable).with_name("openenv")
        with (folder / f"{name}.log").open("ab") as log, out.open("wb") as said:
            processes[name] = subprocess.Popen(
                [str(program), *command, "--port", str(port), "--json"],
                cwd=HERE,
                env={**environment, "MAX_CONCURRENT_ENVS": str(sessions)},
                stdout=said,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + 60
        while not (lines := out.read_text().splitlines()) and time.monotonic() < deadline:
            assert processes[name].poll() is None, (folder / f"{name}.log").read_text()[-2000:]
            time.sleep(0.02)
        urls[name] = json.loads(lines[0])["url"]

    def serve(name: str, port: int = 0) -> None:
        environment_class, sessions, options = SERVERS[name]
        command = [f"environment.py:{environment_class}"]
        command += [option.format(folder=folder) for option in options]
        start(name, "serve", *command, sessions=sessions, port=port)

    def restart() -> None:
        port = int(urls["restarted"].rpartition(":")[2])
        while not is_over.wait(RESTART_S):
            processes["restarted"].kill()
            processes["restarted"].wait()
            serve("restarted", port)

    is_over, restarting = threading.Event(), threading.Thread(target=restart)
    try:
        for name in SERVERS:
            if name in wanted or ("gateway" in wanted and name in ("threads", "async")):
                serve(name)
        if "gateway" in wanted:
            start("gateway", "gateway", urls["threads"], urls["async"])
        if "restarted" in wanted:
            restarting.start()
        yield urls, processes
    finally:
        is_over.set()
        if restarting.ident is not None:
            restarting.join()
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def little_room(folder: Path) -> Iterator[None]:
    """Have a folder with little room, where this process may mount one."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={RECORDINGS_KIB}k", "tmpfs", str(folder)]
    is_mounted = os.getuid() == 0 and subprocess.run(["mount", *options]).returncode == 0
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)


def measured(url: str, process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Count what a server holds."""
    family = [process.pid, *children(process.pid)]
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    slots = sum(
        float(one.rsplit(" ", 1)[1]) for one in lines if one.startswith("openenv_slots_taken")
    )
    count = {"slots": slots, "descriptors": 0, "threads": 0}
    for pid in family:
        with contextlib.suppress(OSError):
            count["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
            count["threads"] += len(os.listdir(f"/proc/{pid}/task"))
    return count


def children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[1]) == pid:
                    found += [int(entry), *children(int(entry))]
    return found


def ledger(folder: Path) -> dict[str, collections.Counter[int]]:
    """Read what every instance has noted; by number, how often a step was taken or begun."""
    counted: dict[str, collections.Counter[int]] = {
        kind: collections.Counter() for kind in ("step", "begin", "reset")
    }
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            kind, _, number = line.partition(" ")
            if kind in counted and number not in ("", "None"):
                counted[kind][int(number)] += 1
    return counted


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--only", type=int)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--urls")
    arguments = parser.parse_args()
    if arguments.worker is not None:
        play_many(arguments)
        return 0
    with tempfile.TemporaryDirectory() as name:
        report = whole(arguments, Path(name))
    sys.stdout.write(json.dumps(report) + "\n")
    return int(not report["is_kept"])


def whole(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    used = (
        COMBINATIONS
        if arguments.only is None
        else [COMBINATIONS[arguments.only % len(COMBINATIONS)]]
    )
    with (
        little_room(folder / "recordings"),
        serving(folder, {server for server, _, _ in used}) as (urls, processes),
    ):
        if arguments.only is not None:
            logging.disable(logging.CRITICAL)
            return alone(arguments, urls, folder / "ledger")
        before = {}
        for name, process in processes.items():
            if name not in ("gateway", "restarted"):
                before[name] = measured(urls[name], process)
        command = [sys.executable, "-W", "ignore", "-m", "faults.promise.play"]
        command += ["--urls", json.dumps(urls)]
        for option in ("schedules", "seed", "length", "processes"):
            command += [f"--{option}", str(getattr(arguments, option))]
        playing = [
            subprocess.Popen(
                [*command, "--worker", str(place)], stdout=subprocess.PIPE, text=True, cwd=TESTS
            )
            for place in range(arguments.processes)
        ]
        outputs = [""] * len(playing)

        def read(place: int) -> None:
            outputs[place] = playing[place].communicate()[0]

        readers = [threading.Thread(target=read, args=[place]) for place in range(len(playing))]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        lines = [json.loads(line) for output in outputs for line in output.splitlines()]
        played = [line for line in lines if "number" in line]
        leaks = [line["leaks"] for line in lines if line.get("leaks")]
        leaks += of_servers(before, urls, processes)
        report = judged(played, ledger(folder / "ledger"))
        report["leaks"] = leaks
        report["is_kept"] &= not leaks and len(played) == arguments.schedules
        return report


def alone(arguments: argparse.Namespace, urls: Urls, folder: Path) -> dict[str, Any]:
    """Play one schedule, and make it shorter if it fails."""

    def fails(acts: Acts, number: int) -> tuple[bool, dict[str, Any], dict[str, Any]]:
        found = play_one(urls, arguments.seed, number, arguments.length, acts)
        report = judged([found], ledger(folder))
        return not report["is_kept"], found, report

    acts = machines.schedule(f"{arguments.seed}:{arguments.only}", arguments.length)
    is_broken, found, report = fails(acts, arguments.only)
    if is_broken:
        fresh = itertools.count(1)
        report["shortest"] = shorten(
            acts,
            # Other numbers, the same combination.
            lambda some: any(
                fails(some, arguments.only + next(fresh) * len(COMBINATIONS) * 7919)[0]
                for _ in range(2)
            ),
        )
    return {**report, "happened_in_order": found.get("happened")}


def of_servers(
    before: Mapping[str, dict[str, float]],
    urls: Urls,
    processes: Mapping[str, subprocess.Popen[bytes]],
) -> list[dict[str, Any]]:
    """What servers hold that they did not hold before, once they need not wait for anybody."""
    deadline = time.monotonic() + GRACE_S + 20
    while True:
        leaks = []
        for name, earlier in before.items():
            now = measured(urls[name], processes[name])
            # A pool's idle threads and connections of this very question come and go.
            leeway = {"slots": 0, "descriptors": 4, "threads": 40}
            leaks += [
                {"server": name, what: now[what] - earlier[what]}
                for what in now
                if now[what] > earlier[what] + leeway[what]
            ]
        if not leaks or time.monotonic() > deadline:
            return leaks
        time.sleep(0.5)


def judged(
    played: list[dict[str, Any]], counted: Mapping[str, collections.Counter[int]]
) -> dict[str, Any]:
    """Compare what was answered with the ledger."""
    wrong = [
        {
            "number": one["number"],
            "of": COMBINATIONS[one["number"] % len(COMBINATIONS)],
            "said": one["said"],
        }
        for one in played
        if not one["is_right"]
    ]
    right = [one for one in played if one["is_right"]]
    mine = {one["number"] for one in played}
    answered = {n: one["number"] for one in right for n in one["answered"]}
    doubled = [
        n
        for kind in ("step", "begin")
        for n, times in counted[kind].items()
        if times > 1 and n // SPACE in mine
    ]
    lost = [n for n in answered if counted["step"][n] != 1]
    resets = [  # where a session is lost, its client resets another one with the same seed
        n
        for n, times in counted["reset"].items()
        if times > 1
        and n // SPACE in mine
        and not may_lose(*COMBINATIONS[n // SPACE % len(COMBINATIONS)])
    ]
    happened = collections.Counter(name for one in right for name in one["happened"])
    return {
        "is_kept": not (wrong or doubled or lost or resets),
        "schedules": len(played),
        "steps_answered": len(answered),
        "losses": sum(one["losses"] for one in right),
        "losses_by_version": {
            version: sum(
                one["losses"]
                for one in right
                if COMBINATIONS[one["number"] % len(COMBINATIONS)][2] == version
            )
            for version in (0, 1)
        },
        "wrong": wrong[:20],
        "wrong_count": len(wrong),
        "doubled": sorted({n // SPACE for n in doubled})[:20],
        "done_twice": len(doubled),
        "answered_and_not_taken": len(lost),
        "resets_twice": sorted({n // SPACE for n in resets})[:20],
        "happened": dict(happened.most_common()),
    }


if __name__ == "__main__":
    sys.exit(main())
