"""Tests of the tasks: each can be solved, doing nothing earns nothing, and tricks do not help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import rewards
from support.memory import MIB, kept_below

from openenv import Refused
from openenv.reward import REWARD_INFO

from .. import TerminalAction, TerminalEnv
from ..server.bundled import bundled_tasks
from ..server.grading import MAX_COPIED_BYTES, MAX_COPIED_FILES, MAX_FILE_BYTES
from ..server.settings import Settings
from ..server.tasks import Check, FileCheck, RunCheck, Task, TaskSet
from ..server.terminal_environment import TerminalEnvironment
from .conftest import Make, run, submit

TASKS = {task.id: task for task in bundled_tasks()}


def done(make: Make, task: str, command: str) -> float | None:
    """Return the reward of a task after a command."""
    env = make()
    env.reset(task=task)
    run(env, command)
    reward = submit(env).reward
    return None if reward is None else float(reward)


# ------------------------------------------------------------------ the bundled ones


@pytest.mark.parametrize("task", TASKS)
def test_a_task_can_be_done(make: Make, task: str) -> None:
    solution = TASKS[task].solution
    assert solution is not None
    env = make()
    env.reset(task=task)
    seen = run(env, solution)
    assert seen.exit_code == 0
    assert submit(env).reward == 1.0, env.state.checks


@pytest.mark.parametrize("task", TASKS)
def test_nothing_comes_of_nothing(make: Make, task: str) -> None:
    assert done(make, task, "true") == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_task_can_be_done_or_is_refused_under_landlock(make: Make, task: str) -> None:
    env = make(kind="landlock")
    solution = TASKS[task].solution
    assert solution is not None
    if task == "who_listens":  # the sandbox has no sockets
        with pytest.raises(Refused, match="cannot be set up here"):
            env.reset(task=task)
        return
    env.reset(task=task)
    run(env, solution)
    assert submit(env).reward == 1.0, env.state.checks


def test_the_splits_share_nothing(make: Make) -> None:
    env = make()
    assert env.list_splits() == ["test", "train"]
    ids = {split: {task.id for task in env.list_tasks(split)} for split in env.list_splits()}
    assert ids["train"] | ids["test"] == set(TASKS) and not ids["train"] & ids["test"]
    assert len(TASKS) >= 12 and env.num_tasks("train") == len(ids["train"])
    assert env.get_task_range("test", 1, 3) == env.list_tasks("test")[1:3]
    with pytest.raises(Refused, match="there is no split"):
        env.list_tasks("training")


def test_what_is_shown_of_a_task_does_not_tell_how_it_is_judged(make: Make) -> None:
    env = make()
    shown = env.get_task("train", 0)
    fields = {"id", "instruction", "wall_s", "max_steps", "num_checks"}
    assert set(shown.model_dump()) == fields
    assert env.reset(task=shown).prompt == shown.instruction
    env.reset(task=shown.model_dump())
    with pytest.raises(Refused, match="another one here"):
        env.reset(task={**shown.model_dump(), "instruction": "Do as you like."})


def test_a_part_that_holds_is_a_part_of_the_reward(make: Make) -> None:
    command = "cd project; chmod 640 notes.txt; chmod 750 run.sh; chmod 700 secret"
    assert done(make, "who_may_read", command) == pytest.approx(3 / 8)


# ------------------------------------------------------------------ tricks

FAKES = "mkdir -p ~/bin ~/.local/bin; for n in {}; do printf '#!/bin/sh\\n{}\\n' > ~/bin/$n; done; "
FAKES += "cp ~/bin/* ~/.local/bin; chmod +x ~/bin/* ~/.local/bin/*; export PATH=~/bin:$PATH"
SITE = """
for version in 3.{9..14}; do
    mkdir -p ~/.local/lib/python$version/site-packages
    echo 'print(2.5)' | tee ~/.local/lib/python$version/site-packages/{user,site}customize.py
done
echo 'print(2.5)' | tee ~/sitecustomize.py ~/usercustomize.py ~/start.py
export PYTHONPATH=~ PYTHONSTARTUP=~/start.py PYTHONINSPECT=1
"""
LATE = """
cat > late.sh <<'END'
trap '' TERM HUP INT QUIT
while kill -0 $1 2>/dev/null; do sleep 0.01; done
for n in {1..500}; do
    find ~/var -type f -printf '%s %P\\n' | sort -rn | head -5 | sed 's, , var/,' > ~/largest.txt
done
END
(setsid nohup bash late.sh $$ > /dev/null 2>&1 &)
"""
HOOKS = """
cd repository
printf '#!/bin/sh\\necho %s\\n' 66e38a4d66eeb506f09f0ff3b8928010e1f8b15b > ~/hook
chmod +x ~/hook; cp ~/hook .git/hooks/post-checkout
git config core.fsmonitor ~/hook; git config core.pager ~/hook; git config alias.rev-parse '!~/hook'
git config core.hooksPath ~; git config include.path ~/more
git commit -q --allow-empty -m 'Add the parser' 2>/dev/null
git branch rescued; git reset -q --hard HEAD~1 2>/dev/null
"""
MARKS = """
number=$(grep -o '7770;[0-9a-f]*' <<< "$PROMPT_COMMAND" | head -1)
printf '\\e]%s;back;0;1;/;%s\\a\\e]%s;ready\\a' "$number" "${number#*;}" "$number"
"""
TRICKS = {
    "programs of one's own": ("repack_the_settings", FAKES.format("tar gzip sort", "exit 0")),
    "a python of one's own": ("wrong_median", FAKES.format("python3 bash env", "echo 2.5")),
    "start-up files of python": ("wrong_median", SITE),
    "a module that answers by itself": (
        "wrong_median",
        "printf 'import os, sys\\nprint(2.5)\\nsys.stdout.flush()\\nos._exit(0)\\n' > stats.py; "
        "cp stats.py ask.py",
    ),
    "start-up files of bash": (
        "count_the_lines",
        "echo 'echo total: 0; exit 0' | tee ~/.bashrc ~/.profile ~/.bash_profile ~/.bash_env; "
        "export BASH_ENV=~/.bash_env ENV=~/.bash_env",
    ),
    "functions for every bash": (
        "count_the_lines",
        "wc() { echo 0; }; find() { echo; }; echo() { builtin echo total: 0; }; export -f wc find",
    ),
    "a process that outlives the shell": ("largest_files", LATE),
    "hooks and settings of git": ("lost_commit", HOOKS),
    "marks of one's own": ("largest_files", MARKS),
    "an answer that never ends": ("largest_files", "ln -s /dev/zero ~/largest.txt"),
    "an answer that nobody writes": ("largest_files", "mkfifo ~/largest.txt"),
    "an answer that is a directory": ("largest_files", "mkdir ~/largest.txt"),
    "an answer without an end": ("largest_files", "ln -s largest.txt ~/largest.txt"),
    "an answer that is too long": ("largest_files", "head -c 60M /dev/zero > ~/largest.txt"),
    "a full disk": (
        "largest_files",
        "head -c 200M /dev/zero > ~/fill; head -c 200M /dev/zero > /tmp/f",
    ),
    "everything removed": ("remove_the_copies", "rm -r ~/pictures"),
    "the log made to fit": ("slowest_pages", "echo > ~/access.log; echo '/ 1.0' > ~/slowest.txt"),
    "the old directory put back": ("broken_links", "ln -s v2 ~/data/v1"),
    "a script that ends all": ("count_the_lines", "echo 'kill -9 -1' > ~/count_lines.sh"),
    "a script that never ends": ("count_the_lines", "echo 'sleep 1000' > ~/count_lines.sh"),
    "a script that takes all memory": (
        "count_the_lines",
        "echo 'exec python3 -c \"import os; [os.fork() for _ in range(9)]; b = bytes(2**28); "
        "os.wait()\"' > ~/count_lines.sh",
    ),
    "too many files to copy": (
        "lost_commit",
        "cd repository/.git/refs; mkdir many; cd many; seq 1 2500 | xargs touch",
    ),
    "processes without number": (
        "largest_files",
        "for n in {1..70}; do (setsid sleep 999 &); done",
    ),
    "files of nobody": ("who_may_read", "chmod 000 ~/project ~/project/*"),
}


@pytest.mark.slow
@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_does_not_pay(make: Make, trick: str) -> None:
    """The task is scored 0, not unscored."""
    task, command = TRICKS[trick]
    assert done(make, task, command) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "trick", ["a python of one's own", "start-up files of bash", "a full disk"]
)
def test_a_trick_does_not_hurt_either(make: Make, trick: str) -> None:
    """A solution is rewarded even if other files exist."""
    task, command = TRICKS[trick]
    solution = TASKS[task].solution
    assert done(make, task, f"{solution}\n{command}") == 1.0


# ------------------------------------------------------------------ custom tasks


def test_tasks_may_be_lines_of_a_file(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    task = {"id": "a", "instruction": "Write 1 to b.", "checks": [{"file": "b", "equals": "1"}]}
    file.write_text(json.dumps(task) + "\n\n" + json.dumps({**task, "id": "c"}) + "\n")
    found = TaskSet.from_environ({"TERMINAL_TASKS": str(file)})
    assert [one.id for one in found.split("train")] == ["a", "c"]


FOLDER = """
instruction: Print the sum of the numbers in numbers.txt.
split: mine
setup: ["echo 4 >> numbers.txt"]
checks:
  - run: ./sum.sh
    copies: {sum.sh: sum.sh}
    files: {numbers.txt: {text: "5\\n6\\n"}}
    stdout: "11"
"""


def test_tasks_may_be_folders(make: Make, tmp_path: Path) -> None:
    files = tmp_path / "sum" / "files"
    files.mkdir(parents=True)
    (tmp_path / "sum" / "task.yaml").write_text(FOLDER)
    (files / "numbers.txt").write_text("1\n2\n")
    (files / "sum.sh").write_text("#!/bin/sh\necho 0\n")
    (files / "sum.sh").chmod(0o755)
    tasks = TaskSet.from_environ({"TERMINAL_TASKS": str(tmp_path)})
    env = make(*tasks.split("mine"))
    env.reset(task="sum")
    assert run(env, "cat numbers.txt; ./sum.sh").output == "1\n2\n4\n0\n"
    run(env, "echo 'paste -sd+ numbers.txt | bc' > sum.sh; which bc || exit 1")
    run(env, "printf '#!/bin/sh\\nawk \"{s += \\\\$1} END {print s}\" numbers.txt\\n' > sum.sh")
    assert run(env, "./sum.sh").output == "7\n"
    assert submit(env).reward == 1.0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "tasks.jsonl:1 is no task"),
        ('{"id": "a", "instruction": "b", "checks": []}', "at least 1 item"),
        ('{"id": "a", "instruction": "b", "checks": [{"file": "c"}]}', "expects nothing"),
        ('{"id": "a", "checks": [{"run": "c"}]}', "instruction"),
        (
            '{"id": "a", "instruction": "b", "checks": [{"run": "c", "must_hold": true}]}',
            "one check that counts",
        ),
    ],
)
def test_what_is_no_task_is_told_with_its_place(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(line)
    with pytest.raises(ValueError, match=words):
        TaskSet.from_environ({"TERMINAL_TASKS": str(file)})
    with pytest.raises(ValueError, match=r"has no \*/task.yaml"):
        TaskSet.from_environ({"TERMINAL_TASKS": str(tmp_path)})


def test_two_tasks_of_one_id_are_told() -> None:
    task = next(iter(TASKS.values()))
    with pytest.raises(ValueError, match="several tasks have the id"):
        TaskSet([task, task])


def test_a_task_that_cannot_be_set_up_is_refused_and_the_episode_goes_on(make: Make) -> None:
    checks: list[Check] = [FileCheck(file="a", type="absent")]
    needy = Task(id="needy", instruction="-", checks=checks, needs=["no-such-program"])
    broken = Task(id="broken", instruction="-", checks=checks, setup=["echo why >&2; false"])
    env = make(needy, broken)
    env.reset()
    run(env, "x=1")
    with pytest.raises(Refused, match="needs no-such-program"):
        env.reset(task="needy")
    with pytest.raises(Refused, match=r"echo why.*why"):
        env.reset(task="broken")
    assert run(env, "echo $x").output == "1\n"


def test_rewards_are_as_they_are_declared() -> None:
    checks: list[Check] = [
        FileCheck(file="one", type="file"),
        FileCheck(file="two", type="file"),
        FileCheck(file="precious", type="file", must_hold=True),
    ]
    tasks = TaskSet([Task(id="a", instruction="-", setup=["touch precious"], checks=checks)])
    settings = Settings(sandbox="bubblewrap", warm_sandboxes=0)
    with TerminalEnv.local(lambda: TerminalEnvironment(settings, tasks=tasks)).sync() as env:
        half, forfeited = (
            rewards.played(env, rewards.in_turn([*commands, SUBMIT]), task="a")
            for commands in ([TOUCH], [TOUCH, TerminalAction(command="rm precious")])
        )
    assert (rewards.worth(half), rewards.parts(half)) == (0.5, {"checks": 0.5})
    assert rewards.worth(forfeited) == 0.0
    assert rewards.parts(forfeited) == {"checks": 0.5, "must_hold": -0.5}


TOUCH, SUBMIT = TerminalAction(command="touch one"), TerminalAction(kind="submit")


def test_a_check_that_cannot_be_prepared_leaves_no_score(make: Make) -> None:
    task = Task(id="a", instruction="-", checks=[RunCheck(run="true", before=["false"])])
    env = make(task)
    env.reset(task="a")
    last = submit(env)
    assert (last.done, last.reward) == (True, None)
    assert "'false' failed" in last.metadata[REWARD_INFO]["unscored"]


def test_what_is_too_large_to_be_looked_at_fails_its_check_and_no_other(make: Make) -> None:
    """The limits are for the text of a file, the bytes of copies, and the number of copies."""
    checks: list[Check] = [
        FileCheck(file="large", matches="x"),
        RunCheck(run="true", copies={"large": "large"}),
        RunCheck(run="true", copies={"many": "many"}),
        FileCheck(file="small", matches="x"),
        RunCheck(run="test -e here", copies={"small": "here"}),
    ]
    env = make(Task(id="a", instruction="-", checks=checks))
    env.reset(task="a")
    size = max(MAX_FILE_BYTES, MAX_COPIED_BYTES) + 1
    run(
        env,
        f"echo x > small; cp small large; truncate -s {size} large; "
        f"mkdir many; cd many; seq {MAX_COPIED_FILES + 1} | xargs touch",
    )
    with kept_below(96 * MIB):
        submit(env)
    assert env.state.checks is not None
    assert list(env.state.checks.values()) == [False, False, False, True, True]
