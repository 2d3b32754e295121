"""Scorers that are programs, which crash, hang, fork and write garbage."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import environ
from support.processes import is_alive
from support.waiting import wait_until

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import TemporarilyUnscored, bounded, command_scorer, limits
from openenv.sandbox import Sandbox, SandboxPolicy, SandboxUnavailable

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="process groups are those of POSIX"),
]

EPISODE: Trajectory[Any, Any] = Trajectory([("crane", "close"), ("slate", "right")])

GRADES = """
    import json, sys
    steps = json.load(sys.stdin)["trajectory"]["steps"]
    shares = [float(step["observation"] == "right") for step in steps]
    print("thinking ...", file=sys.stderr)
    print(json.dumps({"reward": sum(shares), "step_rewards": shares}))
"""


@pytest.fixture
def program(tmp_path: Path) -> Any:
    def make(code: str, **options: Any) -> Any:
        file = tmp_path / "grade.py"
        file.write_text(textwrap.dedent(code))
        return command_scorer([sys.executable, "-I", str(file)], **options)

    return make


def score(scorer: Any) -> Score:
    found: Score = asyncio.run(scorer(EPISODE))
    return found


def refusal(scorer: Any) -> Unscored:
    with pytest.raises(Unscored) as caught:
        score(scorer)
    return caught.value


def test_it_reads_the_episode_and_writes_a_score(program: Any) -> None:
    assert score(program(GRADES)) == Score(1.0, step_rewards=[0.0, 1.0])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("raise RuntimeError('the tests are gone')", "the tests are gone"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("", "not JSON"),
        ("print('score: 1')", "not JSON"),
        ("print('{\"reward\": NaN}')", "not JSON"),
        ("print('{\"reward\": 1} trailing')", "not JSON"),
        ("import sys; sys.stdout.buffer.write(bytes(range(256)))", "not JSON"),
        ("import os; os.close(1); os.close(2)", "not JSON"),
    ],
)
def test_a_crash_or_garbage_is_no_score(program: Any, code: str, said: str) -> None:
    why = refusal(program(code))
    assert said in str(why) and not isinstance(why, TemporarilyUnscored)


def test_what_says_try_again_is_asked_again(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKOFF_S", 0.0)
    seen = tmp_path / "seen"
    scorer = program(
        f"""
        import pathlib, sys
        if not pathlib.Path({str(seen)!r}).exists():
            pathlib.Path({str(seen)!r}).touch()
            sys.exit(75)
        print('{{"reward": 0.5}}')
        """
    )
    assert isinstance(refusal(scorer), TemporarilyUnscored)
    seen.unlink()
    assert score(bounded(scorer)).value == 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(600)",
        "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
        "import os, time; os.close(1); os.close(2); time.sleep(600)",
        "while True: pass",
    ],
    ids=["sleeps", "ignores signals", "closes its output", "computes"],
)
def test_one_that_hangs_is_ended(program: Any, code: str) -> None:
    began = time.monotonic()
    why = refusal(program(code, timeout_s=0.3))
    assert isinstance(why, TemporarilyUnscored) and "within 0.3 s" in str(why)
    assert time.monotonic() - began < 10


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_one_that_writes_without_end_is_ended_or_not_kept(program: Any, stream: str) -> None:
    code = f"""
        import sys
        while True:
            sys.{stream}.write("x" * 65536)
    """
    why = refusal(program(code, max_bytes=10_000, timeout_s=0.5))
    assert ("more than 10000 bytes" if stream == "stdout" else "within 0.5 s") in str(why)


FORKS = """
    import os, sys, time
    child = os.fork()
    if not child:
        {what}
        time.sleep(600)
        os._exit(0)
    print('{{"reward": 1.0}}')
    print(child, file=sys.stderr)
    sys.stdout.flush()
    {then}
"""


def test_what_it_started_and_left_is_ended_with_it_and_keeps_nobody_waiting(
    program: Any, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    write = f"open({str(note)!r}, 'w').write(str(os.getpid()))"
    wait = f"while not os.path.exists({str(note)!r}): time.sleep(0.001)"
    began = time.monotonic()
    assert score(program(FORKS.format(what=write, then=wait), timeout_s=20)).value == 1.0
    assert time.monotonic() - began < 10
    pid = int(note.read_text())
    wait_until(lambda: not is_alive(pid), 5)


def test_what_left_its_session_keeps_nobody_waiting(program: Any, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    write = f"os.setsid(); open({str(note)!r}, 'w').write(str(os.getpid()))"
    wait = f"while not os.path.exists({str(note)!r}): time.sleep(0.001)"
    began = time.monotonic()
    try:
        assert score(program(FORKS.format(what=write, then=wait), timeout_s=20)).value == 1.0
        assert time.monotonic() - began < 10
    finally:
        os.kill(int(note.read_text()), 9)


def test_it_sees_none_of_our_variables(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = """
        import json, os
        print(json.dumps({"reward": None, "unscored": " ".join(sorted(os.environ))}))
    """
    assert set(str(refusal(program(code))).split()) <= {"LANG", "LC_CTYPE", "PATH"}
    assert "MORE" in str(refusal(program(code, environment={"MORE": "1"})))


def test_who_asks_can_be_cancelled_and_the_program_is_ended(program: Any, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    scorer = program(
        f"""
        import os, time
        with open({str(note)!r} + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(note)!r} + ".new", {str(note)!r})
        time.sleep(600)
        """
    )

    async def ask() -> None:
        task = asyncio.ensure_future(scorer(EPISODE))
        await asyncio.to_thread(wait_until, note.exists, 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(ask())
    wait_until(lambda: not is_alive(int(note.read_text())), 5)


def test_a_program_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no executable program"):
        command_scorer(["./nowhere"])
    with pytest.raises(ValueError, match="nothing"):
        command_scorer([])
    with pytest.raises(ValueError, match="sandbox=Sandbox"):
        command_scorer(["true"], files={"a": ""})


def test_a_program_that_vanishes_or_cannot_be_run_is_no_score(tmp_path: Path) -> None:
    file = tmp_path / "grade"
    file.write_text("no program at all")
    file.chmod(0o755)
    scorer = command_scorer([str(file)])
    assert "did not start" in str(refusal(scorer))
    file.unlink()
    assert "No such file" in str(refusal(scorer))


def test_scores_belong_to_what_is_in_the_program(program: Any) -> None:
    first, again = program(GRADES).identity, program(GRADES).identity
    changed = program(GRADES + "# another").identity
    assert first == again != changed
    assert program(GRADES, environment={"A": "1"}).identity not in (first, changed)


def test_scores_belong_to_what_is_in_a_program_that_path_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    file = tmp_path / "planted-grader"
    identities = []
    for code in ("echo 1", "echo 2", "echo 1"):
        file.write_text(f"#!/bin/sh\n{code}\n")
        file.chmod(0o755)
        identities.append(command_scorer([file.name]).identity)
    assert identities[0] == identities[2] != identities[1]


# ------------------------------------------------------------------ in a sandbox


def sandboxed(code: str, **options: Any) -> Any:
    try:
        with Sandbox(require="process"):
            pass
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    files = {"grade.py": textwrap.dedent(code)}
    options = {"timeout_s": 20.0, **options}
    place = lambda: Sandbox(SandboxPolicy(), require="process")  # noqa: E731
    return command_scorer(["python3", "grade.py"], sandbox=place, files=files, **options)


def test_it_may_run_in_a_sandbox() -> None:
    assert score(sandboxed(GRADES)) == Score(1.0, step_rewards=[0.0, 1.0])


@pytest.mark.slow
def test_what_goes_wrong_in_a_sandbox_is_no_score() -> None:
    assert "exit code 3" in str(refusal(sandboxed("raise SystemExit(3)")))
    assert "within 0.5 s" in str(refusal(sandboxed("while True: pass", timeout_s=0.5)))
    loud = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    why = str(refusal(sandboxed(loud, timeout_s=1.0)))
    assert "within 1 s" in why or "more than is read" in why


# ------------------------------------------------------------------ the other way


SERVES = """
    import sys
    from openenv.rewards.external import from_rubric, score_stdin

    def right(action, observation):
        print("looking at", action)
        return float(observation == "right")

    score_stdin(from_rubric(right))
"""


@pytest.mark.slow
def test_a_scorer_of_ours_is_a_program(tmp_path: Path) -> None:
    file = tmp_path / "grade.py"
    file.write_text(textwrap.dedent(SERVES))
    paths = {"PYTHONPATH": environ()["PYTHONPATH"]}
    scorer = command_scorer([sys.executable, str(file)], environment=paths, timeout_s=30)
    assert score(scorer) == Score(1.0, step_rewards=[0.0, 1.0])
