"""Tests of the terminal environment."""

from __future__ import annotations

import base64
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from pydantic import ValidationError
from support.memory import kept_below
from support.servers import serving

from openenv import Refused, create_app
from openenv.errors import ValidationFailed
from openenv.reward import REWARD_INFO
from openenv.sandbox import SandboxPolicy
from openenv.sandbox.policy import MIB
from openenv.testing import check_environment
from openenv.types import public_view

from .. import TerminalAction, TerminalEnv, TerminalObservation, TerminalState
from ..server.settings import Settings, read_settings
from ..server.shell import SHOWN_BYTES
from ..server.tasks import FileCheck, Task
from ..server.terminal_environment import MAX_FILE_BYTES, TerminalEnvironment
from .conftest import THERE, Make, run, submit

STUBBORN = "trap '' INT; while true; do sleep 1; done"


def do(env: TerminalEnvironment, kind: str, **fields: object) -> TerminalObservation:
    return env.step(TerminalAction.model_validate({"kind": kind, **fields}))


def test_it_keeps_the_contract() -> None:
    actions = [
        TerminalAction(command="echo $RANDOM; cd /tmp; false"),
        TerminalAction(kind="write_file", path="a", content="x"),
        TerminalAction(kind="type", text="cat a\n"),
    ]
    factory = partial(TerminalEnvironment, Settings(sandbox="bubblewrap"))
    check_environment(factory, actions=actions, max_steps=6)


# ------------------------------------------------------------------ one shell


def test_a_command_gives_its_output_and_exit_code(env: TerminalEnvironment) -> None:
    seen = run(env, "echo out; echo err >&2; (exit 3)")
    assert (seen.output, seen.exit_code, seen.running) == ("out\nerr\n", 3, False)
    assert (seen.reward, seen.done) == (None, False)


def test_what_a_shell_keeps_is_kept_between_steps(env: TerminalEnvironment) -> None:
    run(
        env, "mkdir -p a/b; cd a/b; x=1; export Y=2; declare -A m=([k]=3); f() { echo $x ${m[k]}; }"
    )
    run(env, "alias hi='echo hello'; sleep 100 &")
    seen = run(env, "f; hi; sh -c 'echo $Y'; jobs -r | wc -l; pwd")
    assert seen.output == "1 3\nhello\n2\n1\n/home/agent/a/b\n"
    assert (seen.cwd, env.state.cwd) == ("~/a/b", "~/a/b")
    assert run(env, "cd /usr").cwd == "/usr"


def test_the_exit_code_of_the_step_before_is_known(env: TerminalEnvironment) -> None:
    run(env, "(exit 41)")
    assert run(env, "echo $?").output == "41\n"


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ('cat <<END\nit\'s "two"\nlines\nEND', 'it\'s "two"\nlines\n', 0),
        ("printf 'no newline'", "no newline", 0),
        ("echo 'open", "bash: unexpected EOF while looking for matching `''\n", 2),
        ("no-such-program", "bash: no-such-program: command not found\n", 127),
        ("true; # a comment", "", 0),
        ("", "", 0),
        ("exec 5>x; echo five >&5; cat x; exec 5>&-", "five\n", 0),
        ("head -n 1 <<< first", "first\n", 0),
        ("set -u; echo $HOME; set +u", "/home/agent\n", 0),
        ("printf 'a\\tb\\n'", "a\tb\n", 0),
    ],
)
def test_a_command_may_be_anything(
    env: TerminalEnvironment, command: str, output: str, exit_code: int
) -> None:
    seen = run(env, command)
    assert (seen.output, seen.exit_code) == (output, exit_code)
    assert run(env, "echo next").output == "next\n"


def test_programs_have_a_terminal_and_no_files_but_theirs(env: TerminalEnvironment) -> None:
    assert run(env, "test -t 0 && test -t 1 && stty size").output == "40 120\n"
    assert run(env, "ls /proc/self/fd").output == "0  1  2  3\n"
    assert run(env, "ls -A ~ /tmp").output == "/home/agent:\n\n/tmp:\n"


def test_characters_come_whole_however_they_are_cut(env: TerminalEnvironment) -> None:
    seen = run(env, "for n in {1..2000}; do printf 'aä€😀'; done")
    assert seen.output == "aä€😀" * 2000


def test_the_end_of_a_job_in_the_background_is_told_once(env: TerminalEnvironment) -> None:
    run(env, "sleep 0.2 &")
    run(env, "sleep 0.4")
    seen = [run(env, "true").output, run(env, "true").output]
    assert sum("Done" in output for output in seen) <= 1
    assert "sleep 0.2" not in run(env, "jobs").output


def test_what_comes_in_the_background_is_waited_for(env: TerminalEnvironment) -> None:
    run(env, "(sleep 0.3; echo later) &")
    seen = do(env, "wait", timeout_s=5)
    assert "later\n" in seen.output
    assert (seen.running, seen.exit_code) == (False, None)


def test_a_changed_prompt_changes_nothing(env: TerminalEnvironment) -> None:
    run(env, "PS1='(venv) '$PS1")
    assert run(env, "echo a").output == "a\n"
    run(env, "PS1='mine> '")
    assert [run(env, f"echo {n}").output for n in "bc"] == ["b\n", "c\n"]
    refused = run(env, "PROMPT_COMMAND=true")
    assert "PROMPT_COMMAND: readonly variable" in refused.output
    assert run(env, "echo d").output == "d\n"


def test_a_narrow_terminal_changes_nothing(env: TerminalEnvironment) -> None:
    run(env, "mkdir -p a/rather/long/path/of/directories; cd a/rather/long/path/of/directories")
    do(env, "resize", rows=10, columns=20)
    assert run(env, "stty size").output == "10 20\n"
    assert run(env, "echo fine").output == "fine\n"
    assert (env.state.rows, env.state.columns) == (10, 20)


# ------------------------------------------------------------------ time


def test_a_command_that_takes_too_long_is_interrupted(env: TerminalEnvironment) -> None:
    run(env, "x=1")
    seen = run(env, "echo begun; sleep 100; echo never", timeout_s=0.3)
    assert (seen.output, seen.exit_code, seen.timed_out) == ("begun\n^C\n", 130, True)
    assert (seen.metadata["ended_by"], seen.running, seen.shell_restarted) == ("C-c", False, False)
    assert run(env, "echo $x").output == "1\n"


def test_one_that_does_not_heed_that_is_killed_and_the_shell_lives(
    env: TerminalEnvironment,
) -> None:
    run(env, "x=1; sleep 1000 &")
    seen = run(env, f'bash -c "{STUBBORN}"', timeout_s=0.3)
    assert (seen.timed_out, seen.exit_code) == (True, 137)
    assert seen.metadata["ended_by"] == "SIGKILL"
    assert run(env, "echo $x; jobs -r | wc -l").output == "1\n1\n"


def test_where_nothing_else_helps_the_shell_is_ended_and_says_so(env: TerminalEnvironment) -> None:
    run(env, "x=1; cd /tmp; touch ~/stays")
    seen = run(env, "trap '' INT; while true; do true; done", timeout_s=0.3)
    assert (seen.timed_out, seen.shell_restarted, seen.exit_code) == (True, True, 137)
    assert seen.metadata["ended_by"] == "end of the shell"
    assert (seen.cwd, seen.running) == ("~", False)
    assert run(env, "echo [$x]; ls").output == "[]\nstays\n"


def test_a_command_may_be_left_running(env: TerminalEnvironment) -> None:
    seen = run(env, "read line; echo got $line", timeout_s=0.2, on_timeout="leave")
    assert (seen.running, seen.timed_out, seen.exit_code) == (True, True, None)
    with pytest.raises(Refused, match="C-c"):
        run(env, "echo second")
    assert env.state.step_count == 1 and env.state.running
    seen = do(env, "type", text="typed\n", timeout_s=5)
    if seen.running:
        seen = do(env, "wait", timeout_s=5)
    assert seen.output.endswith("got typed\n")
    assert (seen.running, seen.exit_code) == (False, 0)


def test_the_callers_time_counts_too(env: TerminalEnvironment) -> None:
    began = time.monotonic()
    seen = env.step(TerminalAction(command="sleep 100", timeout_s=90), timeout_s=0.2)
    assert seen.timed_out and time.monotonic() - began < 20


# ------------------------------------------------------------------ the end of a shell


@pytest.mark.parametrize("kind", ["run", "keys"])
def test_a_shell_that_exits_is_followed_by_another_and_says_so(
    env: TerminalEnvironment, kind: str
) -> None:
    run(env, "x=1; cd /tmp; (exit 7)")
    seen = run(env, "exit 7") if kind == "run" else do(env, "keys", keys=["C-d"], timeout_s=5)
    assert (seen.shell_restarted, seen.exit_code, seen.cwd) == (True, 7, "~")
    assert run(env, "echo [$x]").output == "[]\n"


def test_a_shell_that_was_replaced_can_be_ended(env: TerminalEnvironment) -> None:
    seen = run(env, "exec sleep 1000", timeout_s=0.3)
    assert (seen.timed_out, seen.shell_restarted) == (True, True)
    assert run(env, "echo here").output == "here\n"


def test_a_sandbox_that_ends_is_told_and_nothing_goes_on(make: Make) -> None:
    env = make(policy=SandboxPolicy(memory_bytes=100 * MIB))
    env.reset()
    eat = "import mmap, time; m = mmap.mmap(-1, 2**28); [m.write(b'x' * 2**20) for _ in range(256)]"
    with pytest.raises(Refused, match=r"MiB of memory.*reset"):
        run(env, f'python3 -c "{eat}; time.sleep(60)"')
    with pytest.raises(Refused, match="MiB of memory"):
        run(env, "true")
    with pytest.raises(Refused, match="MiB of memory"):
        env.render()
    env.reset()
    assert run(env, "echo back").output == "back\n"


def test_a_sandbox_full_of_processes_gets_a_shell_again(make: Make) -> None:
    env = make(policy=SandboxPolicy(processes=20))
    env.reset()
    run(env, "for n in {1..40}; do sleep 1000 & done", timeout_s=2)
    assert run(env, "exit").shell_restarted
    assert run(env, "echo here").output == "here\n"


# ------------------------------------------------------------------ typing


def test_a_program_is_spoken_to(env: TerminalEnvironment) -> None:
    seen = run(env, "python3 -q", timeout_s=3, on_timeout="leave")
    assert seen.running
    if ">>>" not in seen.output:
        seen = do(env, "wait", timeout_s=2)
    assert "42\n" in do(env, "type", text="print(6 * 7)\n").output
    seen = do(env, "keys", keys=["C-d"], timeout_s=5)
    assert (seen.running, seen.exit_code) == (False, 0)


def test_a_line_that_was_begun_is_not_mixed_with_a_command(env: TerminalEnvironment) -> None:
    seen = do(env, "type", text="echo one")
    assert (seen.output, seen.running) == ("echo one", True)
    with pytest.raises(Refused, match="a line was begun"):
        run(env, "echo two")
    seen = do(env, "keys", keys=["Space", "t", "w", "o", "Enter"])
    assert (seen.output, seen.exit_code, seen.running) == (" two\none two\n", 0, False)
    do(env, "type", text="echo dropped")
    assert do(env, "keys", keys=["C-c"]).exit_code == 130
    assert run(env, "echo three").output == "three\n"


def test_arrows_recall_commands(env: TerminalEnvironment) -> None:
    run(env, "echo first")
    run(env, "echo second")
    seen = do(env, "keys", keys=["Up", "Up", "Enter"])
    assert seen.output == "echo first\nfirst\n"


def test_a_key_that_is_a_signal_ends_what_runs(env: TerminalEnvironment) -> None:
    run(env, "sleep 100", timeout_s=0.2, on_timeout="leave")
    seen = do(env, "keys", keys=["C-c"], timeout_s=5)
    assert (seen.exit_code, seen.running) == (130, False)
    run(env, "sleep 100", timeout_s=0.2, on_timeout="leave")
    do(env, "keys", keys=["C-z"], timeout_s=5)
    assert "Stopped" in run(env, "jobs").output


def test_application_cursor_keys_are_sent_where_they_are_asked_for(
    env: TerminalEnvironment,
) -> None:
    ask = "printf '\\e[?1h'; stty raw -echo; head -c 3 | od -c; stty sane; printf '\\e[?1l'"
    run(env, ask, timeout_s=0.5, on_timeout="leave")
    assert "033   O   A" in do(env, "keys", keys=["Up"], timeout_s=5).output


# ------------------------------------------------------------------ output


def test_output_over_the_limit_keeps_its_beginning_and_its_end(make: Make) -> None:
    env = make(output_bytes=1000)
    env.reset()
    seen = run(env, "seq 1 100000")
    assert seen.output.startswith("1\n2\n3\n") and seen.output.endswith("\n99999\n100000\n")
    assert f"[... {seen.left_out} bytes are left out here ...]" in seen.output
    whole = sum(len(f"{n}\r\n") for n in range(1, 100001))  # as the terminal writes it
    assert seen.left_out + 1000 == whole
    assert run(env, "echo short").left_out == 0


def test_a_flood_ends_in_time(env: TerminalEnvironment) -> None:
    seen = run(env, "yes", timeout_s=0.5)
    assert seen.timed_out and seen.left_out > 0 and len(seen.output) < 40_000
    assert run(env, "echo here").output == "here\n"


def test_output_is_plain_or_raw(env: TerminalEnvironment) -> None:
    red = r"printf '\e[31mred\e[0m\e]0;title\a\n'"
    assert run(env, red).output == "red\n"
    assert run(env, red, raw=True).output == "\x1b[31mred\x1b[0m\x1b]0;title\x07\r\n"
    progress = r"for n in 5 50 100; do printf '\r%d%%\e[K' $n; done; echo; printf 'abc\b\bX\n'"
    assert run(env, progress).output == "100%\naXc\n"


def test_it_shows_the_screen(make: Make) -> None:
    env = make(rows=4)
    with pytest.raises(Refused, match="reset"):
        env.render()
    env.reset()
    assert env.render() == "~$ "
    run(env, "seq 1 9")
    assert env.render() == "7\n8\n9\n~$ "


# ------------------------------------------------------------------ files


def test_files_go_in_and_out(env: TerminalEnvironment) -> None:
    run(env, "mkdir d; cd d")
    assert do(env, "write_file", path="new/f", content="ä\n").exit_code == 0
    assert run(env, "cat new/f ~/d/new/f").output == "ä\nä\n"
    assert do(env, "read_file", path="~/d/new/f").output == "ä\n"
    data = bytes(range(256))
    text = base64.b64encode(data).decode()
    do(env, "write_file", path="/tmp/b", content=text, encoding="base64")
    assert do(env, "read_file", path="/tmp/b", encoding="base64").output == text
    assert run(env, "wc -c < /tmp/b").output == "256\n"


def test_a_file_that_cannot_be_had_is_told(env: TerminalEnvironment) -> None:
    seen = do(env, "read_file", path="nothing")
    assert (seen.exit_code, seen.output) == (1, "nothing: No such file or directory\n")
    assert do(env, "read_file", path="/dev/zero").exit_code == 1
    seen = do(env, "write_file", path="/usr/mine", content="")
    assert (seen.exit_code, "/usr/mine: " in seen.output) == (1, True)


def test_a_long_file_is_cut_in_the_middle_and_says_so(make: Make) -> None:
    env = make(output_bytes=1000)
    env.reset()
    run(env, "seq 1 1000 > f")
    seen = do(env, "read_file", path="f")
    assert seen.left_out == 3893 - 1000 and seen.output.endswith("\n1000\n")
    seen = do(env, "read_file", path="f", encoding="base64")
    assert (len(base64.b64decode(seen.output)), seen.left_out) == (1000, 2893)


def test_a_file_of_more_than_16_mebibytes_is_not_read(env: TerminalEnvironment) -> None:
    run(env, f"truncate -s {MAX_FILE_BYTES + 1} large; echo small > small")
    with kept_below(64 * MIB):
        seen = do(env, "read_file", path="large")
    assert (
        seen.exit_code == 1 and seen.output == f"large: it has more than {MAX_FILE_BYTES} bytes\n"
    )
    assert do(env, "read_file", path="small").output == "small\n"


def test_of_what_a_terminal_was_sent_the_end_is_kept(env: TerminalEnvironment) -> None:
    with kept_below(32 * MIB):
        seen = run(env, "head -c 4000000 /dev/zero | tr '\\0' x")
    assert seen.left_out > 3_000_000 and seen.exit_code == 0
    assert env._warm is not None and len(env._warm.shell._shown) <= SHOWN_BYTES
    assert run(env, "echo next").output == "next\n"


# ------------------------------------------------------------------ seeds


def test_the_same_seed_gives_the_same_episode(make: Make) -> None:
    program = "python3 -c 'print(list(set(map(str, range(9)))))'"
    commands = ["echo $RANDOM $RANDOM", program, "history"]
    episodes = []
    for seed in (5, 5, 6):
        env = make()
        env.reset(seed=seed)
        episodes.append([run(env, command).output for command in commands])
    assert episodes[0] == episodes[1]
    assert episodes[0][0] != episodes[2][0] and episodes[0][1] != episodes[2][1]


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "run"}, "needs the field 'command'"),
        ({"command": "ls", "text": "x"}, "it belongs to type"),
        ({"kind": "type", "text": "x", "on_timeout": "leave"}, "it belongs to run"),
        ({"kind": "keys", "keys": ["Entr"]}, "did you mean 'Enter'"),
        ({"kind": "keys", "keys": []}, "keys"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "ls", "timeout_s": 0}, "timeout_s"),
        ({"kind": "write_file", "path": "a", "content": "?", "encoding": "base64"}, "no base64"),
        ({"kind": "resize", "rows": 0, "columns": 80}, "rows"),
        ({"kind": "runn", "command": "ls"}, "kind"),
    ],
)
def test_an_action_that_makes_no_sense_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        TerminalAction.model_validate(fields)


def test_what_cannot_be_done_is_refused_and_changes_nothing(make: Make) -> None:
    env = make()
    with pytest.raises(Refused, match="reset"):
        run(env, "true")
    env.reset()
    with pytest.raises(Refused, match="nothing to submit"):
        submit(env)
    with pytest.raises(Refused, match="did you mean 'sum_the_orders'"):
        env.reset(task="sum_the_order")
    assert env.state.step_count == 0
    assert run(env, "echo on").output == "on\n"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TERMINAL_TIMEOUT_S", "soon", "TERMINAL_TIMEOUT_S must be a number"),
        ("TERMINAL_ROWS", "0", "TERMINAL_ROWS: rows is 0"),
        ("TERMINAL_MEMORY_MB", "-1", "TERMINAL_MEMORY_MB: memory_bytes"),
        ("TERMINAL_NETWORK", "pypi.org", "TERMINAL_NETWORK: network"),
    ],
)
def test_a_setting_that_means_nothing_is_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read_settings({variable: value})


def test_settings_come_from_variables() -> None:
    found = read_settings({"TERMINAL_SANDBOX": "gvisor", "TERMINAL_MEMORY_MB": "64"})
    assert (found.sandbox, found.policy.memory_bytes) == ("gvisor", 64 * MIB)
    assert found.policy.environment["PAGER"] == "cat"


def test_an_unknown_sandbox_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="expected one of 'gvisor', 'bubblewrap', 'landlock'"):
        TerminalEnvironment(Settings(sandbox="jail"))


# ------------------------------------------------------------------ limits of a task

PLAIN = Task(
    id="plain",
    instruction="Write 1 to ~/one.",
    checks=[FileCheck(file="one", equals="1"), FileCheck(file="one", mode="600")],
    max_steps=2,
    wall_s=60,
)


def test_submitting_ends_the_episode_and_pays_the_part_that_holds(make: Make) -> None:
    env = make(PLAIN)
    assert env.reset(task="plain").prompt == "Write 1 to ~/one."
    assert run(env, "echo 1 > one").reward is None
    last = submit(env)
    assert (last.reward, last.done, last.truncated) == (0.5, True, False)
    assert (last.metadata["checks_passed"], last.metadata["checks_total"]) == (1, 2)
    assert env.state.step_count == 2
    with pytest.raises(Refused, match="over"):
        run(env, "true")
    assert env.render() == "~$ echo 1 > one\n~$ "


def test_the_limit_of_steps_truncates_and_scores(make: Make) -> None:
    env = make(PLAIN)
    env.reset(task="plain")
    assert not run(env, "echo 1 > one").done
    last = run(env, "chmod 600 one; echo done")
    assert (last.output, last.reward, last.done, last.truncated) == ("done\n", 1.0, True, True)
    assert last.metadata["limit"] == "steps"


def test_the_limit_of_time_truncates_and_scores(make: Make) -> None:
    env = make(PLAIN.model_copy(update={"wall_s": 0.5}))
    env.reset(task="plain")
    last = run(env, "umask 077; echo 1 > one; sleep 100")
    assert (last.reward, last.done, last.truncated, last.timed_out) == (1.0, True, True, True)
    assert last.metadata["limit"] == "time"


def test_what_could_not_be_scored_pays_nothing_and_says_why(make: Make) -> None:
    env = make(PLAIN)
    env.reset(task="plain")
    assert env._warm is not None
    env._warm.sandbox.close()
    last = submit(env)
    assert (last.reward, last.done) == (None, True)
    assert "the sandbox has ended" in last.metadata[REWARD_INFO]["unscored"]


def test_which_checks_hold_is_for_the_driver_alone(make: Make) -> None:
    env = make(PLAIN)
    env.reset(task="plain")
    assert env.state.checks is None
    submit(env)
    assert env.state.checks == {"1. one: equals": False, "2. one: mode": False}
    assert "checks" not in public_view(env.state)


# ------------------------------------------------------------------ sandbox kinds


@pytest.mark.slow
@pytest.mark.parametrize("kind", THERE)
def test_every_kind_of_sandbox_has_a_terminal(make: Make, kind: str) -> None:
    env = make(kind=kind)
    env.reset(seed=1, episode_id="e")
    state = env.state
    assert (state.sandbox, state.episode_id) == (kind, "e")
    assert run(env, "cd /usr; x=5; (exit 3)").exit_code == 3
    assert run(env, "echo $? $x; pwd").output == "3 5\n/usr\n"
    seen = run(env, "cd; sleep 100", timeout_s=1)
    assert (seen.timed_out, seen.exit_code, seen.metadata["ended_by"]) == (True, 130, "C-c")
    assert run(env, "echo $x").output == "5\n"
    seen = run(env, "trap '' INT; while true; do true; done", timeout_s=1)
    assert seen.shell_restarted and seen.cwd == "~"
    assert do(env, "write_file", path="f", content="1").exit_code == 0
    run(env, "sleep 100", timeout_s=1, on_timeout="leave")
    seen = do(env, "keys", keys=["C-c"], timeout_s=10)
    assert (seen.running, seen.exit_code) == (False, 130)
    assert run(env, "cat f").output == "1"


# ------------------------------------------------------------------ client and server


@pytest.mark.slow
def test_four_sessions_at_once_are_apart() -> None:
    factory = partial(TerminalEnvironment, Settings(sandbox="bubblewrap"))
    app = create_app(
        factory,
        TerminalAction,
        TerminalObservation,
        state_cls=TerminalState,
        max_concurrent_envs=4,
    )

    def play(number: int, url: str) -> list[object]:
        with TerminalEnv(base_url=url).sync() as env:
            env.reset(task="sum_the_orders")
            env.step(TerminalAction(command=f"mine={number}; echo $mine > /tmp/mine"))
            seen = env.step(TerminalAction(command="echo $mine; cat /tmp/mine")).observation
            with pytest.raises(ValidationFailed):
                env.step(TerminalAction.model_construct(kind="keys", keys=["Entr"]))
            last = env.step(TerminalAction(kind="submit"))
            return [seen.output, last.reward, last.done, env.state().task_id]

    with serving(app) as url, ThreadPoolExecutor(4) as threads:
        played = list(threads.map(lambda number: play(number, url), range(4)))
    assert played == [[f"{n}\n{n}\n", 0.0, True, "sum_the_orders"] for n in range(4)]
