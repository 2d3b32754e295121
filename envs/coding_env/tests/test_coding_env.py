"""Tests of the coding environment, over real servers where it matters."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import rewards
from support.memory import MIB, kept_below

from coding_env import CodeAction, CodeObservation, CodingEnv
from coding_env.server import tasks
from coding_env.server.grading import MAX_REPORT_CHARACTERS, Grade, grade_answer
from coding_env.server.python_codeact_env import PythonCodeActEnv
from coding_env.server.transforms import CodeQualityTransform, create_safe_coding_transform
from openenv import ProcessProvider, Refused, check_environment
from openenv.environment import CompositeTransform, Transform, scored
from openenv.errors import ExecutionFailed, SandboxUnavailable, StepTimeout
from openenv.reward import REWARD_INFO, RewardSpec
from openenv.sandbox import SandboxPolicy, kinds
from openenv.sandbox.landlock import Landlock
from openenv.testing.escapes import ESCAPES, MachineCanaries
from openenv.types import CodeExecResult

pytestmark = pytest.mark.slow

ENGINES = ("sandbox", "smolagents")


@pytest.fixture
def env() -> Iterator[PythonCodeActEnv]:
    environment = PythonCodeActEnv("sandbox", sandbox="bubblewrap")
    environment.reset()
    yield environment
    environment.close()


@pytest.fixture(params=ENGINES)
def any_env(request: pytest.FixtureRequest) -> Iterator[PythonCodeActEnv]:
    environment = PythonCodeActEnv(request.param, sandbox="bubblewrap")
    environment.reset()
    yield environment
    environment.close()


def run(env: PythonCodeActEnv, code: str, **options: Any) -> CodeObservation:
    return env.step(CodeAction(code=code), **options)


def test_names_stay_through_an_episode_and_no_longer(any_env: PythonCodeActEnv) -> None:
    run(any_env, "x = 6")
    assert run(any_env, "print(x * 7)").stdout == "42\n"
    any_env.reset()
    after = run(any_env, "x")
    assert after.exit_code == 1 and "x" in after.stderr


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("print(1)", 0.1),
        ("x = 1\n" * 40, 0.0),
        ("import  os", -0.9),
        ("def f(: pass", -0.1),
        ("eval('1')" + " # long" * 20, -1.0),
        ("open('x'" + "  " * 60, -1.1),
    ],
)
def test_without_a_task_code_is_rewarded_for_how_it_looks(code: str, reward: float) -> None:
    environment = PythonCodeActEnv("smolagents")
    assert environment.reset().reward == 0.0
    done = run(environment, code)
    assert done.reward == pytest.approx(reward)
    assert ("safety_violation" in done.metadata) == (reward < -0.5)
    assert not done.done


def test_rewards_are_as_they_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    looks = ["print(1)", "import os", "def f(: pass", "open('x'" + "  " * 60]
    with CodingEnv.local(PythonCodeActEnv).sync() as env:
        free = rewards.played(env, rewards.in_turn(map(action, looks)), max_steps=len(looks))
        half = "def digital_root(number): return number % 9"
        answers = [action("1"), CodeAction(code=half, submit=True)]
        answered = rewards.played(env, rewards.in_turn(answers), task="digital_root")
    assert rewards.worth(free) == pytest.approx(0.1 - 0.9 - 0.1 - 1.1)
    assert rewards.parts(free) == pytest.approx({"safety": -2.0, "brevity": 0.4, "syntax": -0.4})
    passed = rewards.worth(answered)
    assert passed is not None and 0 < passed < 1
    assert rewards.parts(answered) == {"tests_passed": passed}


def test_rewards_reach_both_ends_of_the_range_that_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An abandoned task used to score -1.2, and the maximum without a task used to be 1."""
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    with CodingEnv.local(PythonCodeActEnv).sync() as env:
        looks = map(action, ("open('x'" + "x" * 120, "1"))
        free = rewards.played(env, rewards.in_turn(looks), max_steps=2)
        assert rewards.worth(free) == pytest.approx(-1.2 + 0.1)
        assert env.reward_spec is not None and env.reward_spec.range == (-1.2, 0.1)
        assert [one.reward for one in free[1:]] == pytest.approx([-1.2, 0.1])
        right = "def digital_root(n): return n and 1 + (n - 1) % 9"
        for code, paid in (("", 0.0), (right, 1.0)):
            submitted = rewards.in_turn([action("1"), CodeAction(code=code, submit=True)])
            answered = rewards.played(env, submitted, task="digital_root")
            assert rewards.worth(answered) == paid
            spec = env.reward_spec
            assert spec is not None and (spec.kind, spec.range) == ("terminal", (0.0, 1.0))


def action(code: str) -> CodeAction:
    return CodeAction(code=code)


def test_a_transform_of_ones_own_may_tell_no_components() -> None:
    class Half(Transform[Any]):
        def __call__(self, observation: Any) -> Any:
            return scored(observation, 0.5)

    both = CompositeTransform([Half(), CodeQualityTransform()])
    with CodingEnv.local(lambda: PythonCodeActEnv("smolagents", transform=both)).sync() as env:
        first = env.reset()
        step = env.step(CodeAction(code="1"))
    assert first.reward_info == {"spec": RewardSpec("per_step").as_data()}
    assert (step.reward, step.components) == (0.6, {})


def test_an_environment_of_existing_code_runs_as_it_did() -> None:
    env = PythonCodeActEnv()
    assert env.reset().model_dump(exclude={"metadata"}) == {
        "done": False,
        "reward": 0.0,
        "truncated": False,
        "stdout": "",
        "stderr": "",
        "exit_code": 0,
    }
    env.transform = create_safe_coding_transform()
    step = env.step(CodeAction(code="print('Hello')"))
    assert (step.stdout, step.exit_code, env.state.step_count) == ("Hello\n", 0, 1)
    assert env.state.last_exit_code == 0
    env.close()


def test_what_runs_the_code_is_told() -> None:
    sandboxed, plain = PythonCodeActEnv(sandbox="bubblewrap"), PythonCodeActEnv("smolagents")
    assert (sandboxed.state.engine, sandboxed.state.sandbox) == ("sandbox", "bubblewrap")
    assert sandboxed.state.guarantee == "namespaces"
    assert (plain.state.engine, plain.state.sandbox) == ("smolagents", None)


def test_a_sandbox_that_cannot_be_had_is_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Code never runs unconfined, nor in a weaker sandbox than the required one."""
    monkeypatch.setenv("PATH", "/nowhere")
    kinds._tried.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
            PythonCodeActEnv(require="namespaces")
        if any(offer.is_there for offer in kinds.kinds_of_this_machine()):
            assert PythonCodeActEnv().state.sandbox == "landlock"
            assert "the weaker sandbox" in caplog.text
        kinds._tried.cache_clear()
        monkeypatch.setattr(Landlock, "why_not", lambda self: "this kernel has none")
        with pytest.raises(SandboxUnavailable, match="CODING_ENGINE=smolagents"):
            PythonCodeActEnv()
        assert PythonCodeActEnv("smolagents").state.engine == "smolagents"
    finally:
        kinds._tried.cache_clear()


@pytest.mark.parametrize(
    "options", [{"engine": "jupyter"}, {"sandbox": "chroot"}, {"require": "much"}]
)
def test_an_unknown_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options.values()))):
        PythonCodeActEnv(**options)  # type: ignore[arg-type]


def test_a_traceback_shows_the_codes_own_lines(env: PythonCodeActEnv) -> None:
    run(env, "def f(n):\n    return n / 0")
    stderr = run(env, "f(3)").stderr
    assert '"<step 1>", line 2, in f\n    return n / 0' in stderr
    assert stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "interpreter.py" not in stderr


def test_code_may_end_with_an_exit_code(env: PythonCodeActEnv) -> None:
    run(env, "kept = 1")
    assert run(env, "raise SystemExit(3)").exit_code == 3
    assert run(env, "kept").stdout == "1\n"


def test_code_that_takes_too_long_is_interrupted_and_keeps_its_names(
    env: PythonCodeActEnv,
) -> None:
    run(env, "kept = 1")
    began = time.monotonic()
    late = run(env, "print('begun')\nwhile True: pass", timeout_s=0.5)
    assert time.monotonic() - began < 10
    assert (late.exit_code, late.stdout, late.metadata["timed_out"]) == (124, "begun\n", True)
    assert "KeyboardInterrupt" in late.stderr
    assert "names_are_gone" not in late.metadata
    assert run(env, "kept").stdout == "1\n"


def test_code_that_cannot_be_interrupted_is_ended_and_that_is_said(env: PythonCodeActEnv) -> None:
    run(env, "kept = 1")
    late = run(env, "import time\nwhile True:\n  try: time.sleep(9)\n  except: pass", timeout_s=0.3)
    assert (late.exit_code, late.metadata["names_are_gone"]) == (124, True)
    after = run(env, "kept")
    assert after.exit_code == 1 and "NameError" in after.stderr
    assert run(env, "6 * 7").stdout == "42\n"


def test_a_sandbox_that_was_ended_is_no_new_episode() -> None:
    env = PythonCodeActEnv(
        "sandbox", sandbox="bubblewrap", policy=SandboxPolicy(memory_bytes=2**27)
    )
    env.reset()
    run(env, "kept = 1")
    eat = "import mmap, time\nm = mmap.mmap(-1, 2**28)\nfor _ in range(256): m.write(b'x' * 2**20)"
    with pytest.raises(Refused, match=r"MiB of memory.*names and files are gone: call reset"):
        run(env, f"{eat}\ntime.sleep(9)")
    with pytest.raises(Refused, match="call reset"):
        run(env, "kept")
    assert env.state.step_count == 1
    env.reset()
    assert run(env, "6 * 7").stdout == "42\n"
    env.close()


def test_a_seed_seeds_random_and_the_order_of_sets(env: PythonCodeActEnv) -> None:
    code = "import random\nprint(random.random(), {str(n) for n in range(50)})"
    outputs = []
    for seed in (3, 3, 4):
        env.reset(seed=seed)
        outputs.append(run(env, code).stdout)
    assert outputs[0] == outputs[1] != outputs[2]


CODES = {
    "sandbox": ["import random\nprint(random.random())", "1/0"],
    "smolagents": ["x = 1", "x + 1"],
}


def test_a_seed_that_cannot_be_taken_is_told() -> None:
    env = PythonCodeActEnv("smolagents")
    assert env.reset(seed=1).metadata == {"ignored_arguments": ["seed"]}
    assert env.reset().metadata == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_contract_is_kept(engine: str) -> None:
    report = check_environment(
        lambda: PythonCodeActEnv(engine, sandbox="bubblewrap"),
        action_cls=CodeAction,
        observation_cls=CodeObservation,
        actions=[CodeAction(code=code) for code in CODES[engine]],
    )
    assert not report.broken, report


def test_a_task_is_ended_by_its_answer() -> None:
    report = check_environment(
        lambda: _WithTask(sandbox="bubblewrap"),
        action_cls=CodeAction,
        observation_cls=CodeObservation,
        actions=[CodeAction(code="1"), CodeAction(code="def roman(number): ...", submit=True)],
    )
    assert not report.broken, report


class _WithTask(PythonCodeActEnv):
    def reset(  # type: ignore[override]
        self, seed: int | None = None, episode_id: str | None = None, task: Any = "roman"
    ) -> CodeObservation:
        return super().reset(seed, episode_id, task)


def test_render_shows_the_latest_step(env: PythonCodeActEnv) -> None:
    with pytest.raises(Refused):
        env.render()
    run(env, "for n in range(2):\n    print(n)")
    assert env.render() == ">>> for n in range(2):\n...     print(n)\n0\n1\n"


# ------------------------------------------------------------------ tasks


def reference(name: str) -> str:
    (bundled,) = (one for one in tasks._BUNDLED if one.function.__name__ == name)
    source = inspect.getsource(bundled.function).splitlines()
    return "from collections import Counter\n" + "\n".join(source[1:])


@pytest.mark.parametrize("name", [one.function.__name__ for one in tasks._BUNDLED])
def test_every_task_can_be_solved_and_not_by_nothing(env: PythonCodeActEnv, name: str) -> None:
    shown = env.reset(task=name)
    assert shown.prompt is not None and f"`{name}(" in shown.prompt
    assert shown.reward is None
    assert run(env, "1").reward is None
    answer = env.step(CodeAction(code=reference(name), submit=True))
    assert (answer.reward, answer.done, answer.exit_code) == (1.0, True, 0)
    env.reset(task=name)
    nothing = env.step(CodeAction(code="pass", submit=True))
    assert (nothing.reward, nothing.done) == (0.0, True)


def test_a_part_of_the_tests_is_a_part_of_the_reward(env: PythonCodeActEnv) -> None:
    env.reset(task="digital_root")
    answer = env.step(CodeAction(code="def digital_root(number): return number % 9", submit=True))
    assert 0 < (answer.reward or 0) < 1
    assert answer.stdout.endswith("tests passed\n")
    with pytest.raises(Refused, match="episode is over"):
        run(env, "1")


CHEATS = {
    "an object that equals everything": """
class Any(int):
    def __eq__(self, other): return True
    def __repr__(self): return 'True'
def edit_distance(one, other): return Any()
""",
    "an exit code of 0": "import os\ndef edit_distance(one, other): os._exit(0)",
    "the frames of who asks": """
import sys, gc
def edit_distance(one, other):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if isinstance(value, dict) and 'expected' in value: return value['expected']
        frame = frame.f_back
    for found in gc.get_objects():
        if isinstance(found, dict) and 'expected' in found: return found['expected']
""",
    "a message of its own to the server": """
import json, os, struct
def edit_distance(one, other):
    head = json.dumps({'is': 'done', 'exit_code': 0}).encode()
    for _ in range(9): os.write(4, struct.pack('>II', len(head), 0) + head)
""",
    "all answers at once": """
def edit_distance(one, other):
    for n in range(9): __openenv_said__(text=str(n))
""",
    "no end": "def edit_distance(one, other):\n    while True: pass",
    "files that might be the tests": """
import os
def edit_distance(one, other):
    for folder, _, names in os.walk('/'):
        for name in names:
            if name in ('grading.py', 'tasks.py'): return open(os.path.join(folder, name)).read()
""",
    "a repr that is not its value's": "def edit_distance(one, other): return print",
}


@pytest.mark.parametrize("code", CHEATS.values(), ids=CHEATS)
def test_an_answer_cannot_make_its_own_score(
    env: PythonCodeActEnv, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = env._tasks.find("edit_distance").model_copy(update={"wall_s": 0.3})
    monkeypatch.setitem(env._tasks._tasks, "edit_distance", short)
    env.reset(task="edit_distance")
    answer = env.step(CodeAction(code=code, submit=True))
    assert (answer.reward, answer.done) == (0.0, True)


def test_tests_never_reach_the_agent(env: PythonCodeActEnv) -> None:
    shown = [task for split in env.list_splits() for task in env.list_tasks(split)]
    assert len(shown) == 12 and {tuple(task) for task in shown} == {("id", "prompt", "num_tests")}
    assert env.num_tasks("test") == 4
    observation = env.reset(task=env.get_task("test", 0))
    assert "expected" not in observation.model_dump_json()


def test_no_score_is_not_a_score_of_nothing(
    env: PythonCodeActEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Grade:
        raise SandboxUnavailable("namespaces", {"bubblewrap": "gone"})

    monkeypatch.setattr("coding_env.server.python_codeact_env.grade_answer", fails)
    env.reset(task="roman")
    answer = env.step(CodeAction(code="def roman(n): return 'I'", submit=True))
    assert (answer.reward, answer.done) == (None, True)
    assert "gone" in answer.metadata[REWARD_INFO]["unscored"]


def test_there_is_nothing_to_submit_to_without_a_task(env: PythonCodeActEnv) -> None:
    with pytest.raises(Refused, match=r"no task; reset\(task="):
        env.step(CodeAction(code="1", submit=True))
    with pytest.raises(Refused, match="did you mean 'roman'"):
        env.reset(task="romans")
    assert run(env, "1").stdout == "1\n"


def test_what_an_answer_gives_is_read_up_to_so_many_characters() -> None:
    """A call whose value is larger fails its test, and the next test runs."""
    cases = [
        tasks.Case(call=f"make({size})", expected="x" * size)
        for size in (
            10,
            MAX_REPORT_CHARACTERS,
            MAX_REPORT_CHARACTERS - 2,
            100 * MAX_REPORT_CHARACTERS,
            10,
        )
    ]
    task = tasks.Task(id="a", prompt="-", tests=cases)
    with kept_below(512 * MIB):
        grade = grade_answer(task, "def make(n): return 'x' * n", "process", None)
    assert (grade.passed, grade.total) == (3, 5)


def test_tasks_come_from_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": "double", "prompt": "double(n)", "tests": [{"call": "double(4)", "expected": 8}]},
        {
            "id": "sum",
            "prompt": "Print the sum.",
            "split": "test",
            "tests": [{"stdin": "1 2\n", "stdout": "3"}, {"stdin": "", "stdout": "0\n"}],
        },
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("CODING_TASKS", str(file))
    env = PythonCodeActEnv("sandbox", sandbox="bubblewrap")
    assert env.list_splits() == ["test", "train"]
    for task, code in (
        ("double", "double = lambda n: 2 * n"),
        ("sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())), ' ')"),
    ):
        env.reset(task=task)
        assert env.step(CodeAction(code=code, submit=True)).reward == 1.0
    env.close()
    file.write_text('{"id": "x", "prompt": "x", "tests": [{"call": "x()", "stdin": ""}]}')
    with pytest.raises(ValueError, match=r"tasks\.jsonl:1 is no task"):
        PythonCodeActEnv("sandbox", sandbox="bubblewrap")


# ------------------------------------------------------------------ other sessions


def test_neighbours_are_answered_while_others_try_to_get_out() -> None:
    """A server runs untrusted code in several sessions, and answers another session in time."""
    worst, codes, is_over = [0.0], [], threading.Event()
    rough = [one for one in ESCAPES if one.kind in ("memory", "disk", "output", "processes")][::6]
    provider = ProcessProvider(
        "coding_env", env_vars={"CODING_SANDBOX": "bubblewrap", "CODING_WARM_SANDBOXES": "1"}
    )
    outside = MachineCanaries()
    with CodingEnv.with_provider(provider) as quiet:
        quiet.reset()

        def ask() -> None:
            while not is_over.is_set():
                began = time.monotonic()
                codes.append(quiet.step(CodeAction(code="6 * 7")).observation.stdout)
                worst[0] = max(worst[0], time.monotonic() - began)

        asking = threading.Thread(target=ask)
        asking.start()
        with CodingEnv(base_url=provider.base_url) as rude:
            for escape in rough:
                rude.reset()
                try:
                    done = rude.step(CodeAction(code=outside.names() + escape.code), timeout_s=3)
                    assert not outside.breaches(done.observation.stdout, done.observation.stderr)
                except ExecutionFailed as error:
                    assert "names and files are gone" in str(error)
                except StepTimeout:
                    pass  # reported, but not as an answer
        is_over.set()
        asking.join(30)
    outside.close()
    assert codes and set(codes) == {"42\n"}
    assert worst[0] < 15


def test_the_result_of_executing_code_is_the_old_one() -> None:
    from openenv.core.tools import PyExecutor

    executor = PyExecutor()
    assert executor.run("print('a')\n[1, 2]") == CodeExecResult(
        stdout="a\n\n[1, 2]", stderr="", exit_code=0
    )
    failed = executor.run("print('a')\n1 / 0")
    assert (failed.stdout, failed.exit_code) == ("", 1)
    assert "ZeroDivisionError" in failed.stderr
    assert executor.run("{print}").stdout.startswith("{<")
    assert executor.run("safe_json_dumps({'a': 1})").stdout == '"{\\"a\\": 1}"'
    assert PyExecutor(["json"]).run("import json\njson.dumps(1)").stdout == '"1"'
    assert "not allowed" in executor.run("import socket").stderr
