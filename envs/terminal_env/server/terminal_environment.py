"""A shell at a terminal in a sandbox, and tasks that are graded from outside.

The tasks have the form of Terminal-Bench (https://www.tbench.ai).
"""

from __future__ import annotations

import base64
import contextlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from openenv.environment import Environment, termination, truncation
from openenv.errors import Refused, SandboxEnded, SandboxFileError
from openenv.reward import RewardSpec
from openenv.sandbox import Sandbox, strongest

from ..models import TerminalAction, TerminalObservation, TerminalState, TerminalTask
from .grading import CLEAN_BASH, Grade, grade_work
from .settings import Settings, read_settings
from .shell import NoShell, Shell
from .tasks import Task, TaskSet
from .text import Excerpt
from .warm import WarmTerminal, find_pool

__all__ = ["TerminalEnvironment"]

MAX_FILE_BYTES = 16 * 2**20
SETUP_S = 60.0
READY_S = 10.0
LOOK_S = 2.0  # the default time of typing and keys
WAIT_S = 10.0


class TerminalEnvironment(Environment[TerminalAction, TerminalObservation, TerminalState]):
    """An environment with a bash at a terminal of its own.

    Without a task an episode never ends. With a task (`reset(task=...)`) it ends with `submit`, or
    when the task's time or steps are used up (`truncated`). Its last step is rewarded with the
    share of the task's checks that pass, or with 0 if a required check fails. No other step has a
    reward.

    Args:
        settings: The settings of the sandbox and the terminal; None reads the environment
            variables.
        tasks: The tasks; None takes those that TERMINAL_TASKS names, or the bundled ones.

    Raises:
        SandboxUnavailable: This machine has no sandbox with the required guarantee.
        ValueError: An environment variable has a wrong value.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", (0.0, 1.0), ("checks", "must_hold"))

    def __init__(self, settings: Settings | None = None, *, tasks: TaskSet | None = None) -> None:
        super().__init__()
        self._settings = settings or read_settings(os.environ)
        self._tasks = tasks or TaskSet.from_environ()
        kind = strongest(self._settings.require, self._settings.sandbox, self._settings.policy)
        self._kind, self._guarantee = kind.name, str(kind.guarantee)
        self._pool = find_pool(self._settings)
        self._warm: WarmTerminal | None = None
        self._task: Task | None = None
        self._deadline: float | None = None
        self._is_over = False
        self._lost: str | None = None
        self._screen = ""
        self._state = self._make_state(None, None)

    # ------------------------------------------------------------------ episodes

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | TerminalTask | None = None,
    ) -> TerminalObservation:
        """Start an episode in a fresh sandbox, with a shell at its prompt.

        Args:
            seed: Seeds the shell's RANDOM, and the order of sets in Python programs. Times, process
                ids and the system's own randomness are not determined.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id; None for an episode without a task.

        Raises:
            Refused: The task is unknown, or it cannot be set up here. The running episode
                continues.
        """
        chosen = None if task is None else self._tasks.find(task)
        warm = self._start_sandbox(seed, chosen)
        self._end()
        self._warm, self._task, self._is_over, self._lost = warm, chosen, False, None
        self._deadline = None if chosen is None else time.monotonic() + chosen.wall_s
        self._screen = ""
        self._state = self._make_state(episode_id or str(uuid.uuid4()), chosen)
        return TerminalObservation(prompt=None if chosen is None else chosen.instruction)

    def _start_sandbox(self, seed: int | None, task: Task | None) -> WarmTerminal:
        """Take a sandbox, and set up the task in it."""
        with contextlib.ExitStack() as stack:
            try:
                warm = stack.enter_context(self._pool.take())
                if task is not None:
                    _set_up(task, warm.sandbox)
                if seed is not None:
                    warm.shell.seed(seed)
            except (SandboxEnded, NoShell) as error:
                raise Refused(f"no terminal could be started: {error}") from error
            stack.pop_all()
        return warm

    def _make_state(self, episode_id: str | None, task: Task | None) -> TerminalState:
        return TerminalState(
            episode_id=episode_id,
            sandbox=self._kind,
            guarantee=self._guarantee,
            rows=self._settings.rows,
            columns=self._settings.columns,
            task_id=None if task is None else task.id,
        )

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: TerminalAction, timeout_s: float | None = None
    ) -> TerminalObservation:
        """Carry out an action.

        Args:
            action: The action.
            timeout_s: Seconds that the action may take, if fewer than its own. Ending a command
                that takes longer can take about three seconds more.

        Raises:
            Refused: There was no reset, the episode is over, the sandbox has ended, another command
                is running, or there is no task to submit. Nothing changes.
        """
        if not isinstance(action, TerminalAction):
            raise TypeError(f"expected a TerminalAction, got {type(action).__name__}")
        warm = self._require_sandbox()
        self._check_action(action, warm.shell)
        if action.kind == "submit" or self._is_time_over():
            return self._finish(warm, limit="time" if self._is_time_over() else None)
        observation = self._carry_out(action, warm, timeout_s)
        self._state.step_count += 1
        limit = self._limit_reached()
        return observation if limit is None else self._finish(warm, observation, limit)

    def _require_sandbox(self) -> WarmTerminal:
        if self._is_over:
            raise Refused("the episode is over; call reset()")
        if self._lost is not None:
            raise Refused(f"{self._lost}; its files are gone: call reset()")
        if self._warm is None:
            raise Refused("there is no terminal yet; call reset()")
        return self._warm

    def _check_action(self, action: TerminalAction, shell: Shell) -> None:
        if action.kind == "submit" and self._task is None:
            raise Refused("there is nothing to submit: reset(task=...) starts a task")
        if action.kind == "run" and shell.is_running:
            raise Refused(
                "the shell is not at its prompt, because a program runs in the foreground: wait, "
                "type to the program, or end it by keys=['C-c']"
            )
        if action.kind == "run" and shell.has_line:
            raise Refused(
                "a line was begun at the shell's prompt: finish it by type and keys, or drop it by "
                "keys=['C-c']"
            )

    def _is_time_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _limit_reached(self) -> str | None:
        if self._task is None:
            return None
        if self._is_time_over():
            return "time"
        return "steps" if self._state.step_count >= self._task.max_steps else None

    # ------------------------------------------------------------------ at the terminal

    def _carry_out(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        """Carry out an action. If that ends the sandbox, refuse it and all further steps."""
        how = self._HOW[action.kind]
        try:
            observation = how(self, action, warm, timeout_s)
            self._update_state(warm.shell)
        except (SandboxEnded, NoShell) as error:
            self._lost = str(error)
            self._end()
            raise Refused(f"{error}; its files are gone: call reset()") from error
        observation.cwd, observation.running = self._state.cwd, self._state.running
        return observation

    def _update_state(self, shell: Shell) -> None:
        home = shell.sandbox.home
        is_below = shell.cwd == home or shell.cwd.startswith(f"{home}/")
        self._state.cwd = f"~{shell.cwd[len(home) :]}" if is_below else shell.cwd
        self._state.running = shell.is_running or shell.has_line

    def _run(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        assert action.command is not None
        is_over = warm.shell.run(
            action.command, self._seconds(action, self._settings.timeout_s, timeout_s)
        )
        timed_out = not is_over and warm.shell.code is None
        notes = {}
        if timed_out and action.on_timeout == "interrupt":
            notes["ended_by"] = warm.shell.interrupt()
        return self._observe(action, warm, is_over or bool(notes), timed_out, notes)

    def _type(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        assert action.text is not None
        was = warm.shell.prompts
        # The Enter key sends a carriage return; programs read it as the end of a line.
        text = action.text.replace("\r\n", "\r").replace("\n", "\r")
        warm.shell.send(text.encode(), self._seconds(action, LOOK_S, timeout_s))
        return self._observe(action, warm, warm.shell.prompts > was)

    def _press(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        assert action.keys is not None
        was = warm.shell.prompts
        warm.shell.press(action.keys, self._seconds(action, LOOK_S, timeout_s))
        return self._observe(action, warm, warm.shell.prompts > was)

    def _wait(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        was = warm.shell.prompts
        warm.shell.wait(self._seconds(action, WAIT_S, timeout_s))
        return self._observe(action, warm, warm.shell.prompts > was)

    def _resize(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        assert action.rows is not None and action.columns is not None
        warm.shell.resize(action.rows, action.columns)
        self._state.rows, self._state.columns = action.rows, action.columns
        return TerminalObservation()

    def _write_file(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        try:
            warm.sandbox.write(self._path(action, warm.shell), action.data)
        except SandboxFileError as error:
            return TerminalObservation(output=_describe_error(action, error), exit_code=1)
        return TerminalObservation(exit_code=0)

    def _read_file(
        self, action: TerminalAction, warm: WarmTerminal, timeout_s: float | None
    ) -> TerminalObservation:
        """Return a file, or its first and last part; in base64 its first part."""
        try:
            data = warm.sandbox.read(self._path(action, warm.shell), MAX_FILE_BYTES + 1)
        except SandboxFileError as error:
            return TerminalObservation(output=_describe_error(action, error), exit_code=1)
        if len(data) > MAX_FILE_BYTES:
            words = f"{action.path}: it has more than {MAX_FILE_BYTES} bytes\n"
            return TerminalObservation(output=words, exit_code=1)
        limit = self._settings.output_bytes
        if action.encoding == "base64":
            output = base64.b64encode(data[:limit]).decode()
            left_out = max(0, len(data) - limit)
        else:
            excerpt = Excerpt(limit)
            excerpt.take(data)
            output, left_out = excerpt.text(raw=True), excerpt.left_out
        return TerminalObservation(output=output, exit_code=0, left_out=left_out)

    _HOW: ClassVar[dict[str, Callable[..., TerminalObservation]]] = {
        "run": _run,
        "type": _type,
        "keys": _press,
        "wait": _wait,
        "resize": _resize,
        "write_file": _write_file,
        "read_file": _read_file,
    }

    def _seconds(self, action: TerminalAction, default: float, timeout_s: float | None) -> float:
        """Return the seconds that an action may take."""
        limits = [action.timeout_s or default]
        if timeout_s is not None:
            limits.append(timeout_s)
        if self._deadline is not None:
            limits.append(self._deadline - time.monotonic())
        return max(0.0, min(limits))

    @staticmethod
    def _path(action: TerminalAction, shell: Shell) -> str:
        """Return the path of an action, relative to the shell's directory."""
        assert action.path is not None
        if action.path == "~" or action.path.startswith("~/"):
            return shell.sandbox.home + action.path[1:]
        return os.path.join(shell.cwd, action.path)

    def _observe(
        self,
        action: TerminalAction,
        warm: WarmTerminal,
        is_over: bool,
        timed_out: bool = False,
        notes: dict[str, Any] | None = None,
    ) -> TerminalObservation:
        """Return the terminal's output, and start another shell if the shell has ended."""
        shell = warm.shell
        output, left_out = shell.output(action.raw)
        observation = TerminalObservation(
            output=output,
            exit_code=shell.exit_code if is_over else None,
            timed_out=timed_out,
            left_out=left_out,
            metadata=dict(notes or {}),
        )
        if shell.code is not None:
            observation.exit_code = shell.code
            observation.shell_restarted = True
            observation.metadata["shell_ended"] = f"the shell has ended with {shell.code}"
            warm.restart_shell(self._state.rows, self._state.columns)
        return observation

    # ------------------------------------------------------------------ the end

    def _finish(
        self, warm: WarmTerminal, last: TerminalObservation | None = None, limit: str | None = None
    ) -> TerminalObservation:
        """Grade the work, and end the episode."""
        assert self._task is not None
        self._screen = self._read_screen(warm)
        grade = self._grade(self._task, warm)
        self._is_over = True
        self._end()
        self._state.running = False
        self._state.checks = grade.checks or None
        if last is None:
            self._state.step_count += 1
            last = TerminalObservation(output=grade.message, cwd=self._state.cwd)
        last.running = False
        last.metadata |= grade.metadata
        if limit is None:
            return termination(last, grade.score)
        last.metadata["limit"] = limit
        return truncation(last, grade.score)

    def _grade(self, task: Task, warm: WarmTerminal) -> Grade:
        return grade_work(task, warm.sandbox, self._take_fresh)

    @contextlib.contextmanager
    def _take_fresh(self) -> Any:
        try:
            warm = self._pool.take()
        except NoShell as error:
            raise SandboxEnded(str(error)) from error
        with warm:
            yield warm.sandbox

    def _end(self) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            warm.sandbox.close()

    @property
    def state(self) -> TerminalState:
        """The state of the episode."""
        return self._state

    def render(self) -> str:
        """Return the lines of the terminal; after the end of an episode, the last ones.

        Raises:
            Refused: There was no reset, or the sandbox has ended.
        """
        if self._is_over:
            return self._screen
        return self._read_screen(self._require_sandbox())

    def _read_screen(self, warm: WarmTerminal) -> str:
        return warm.shell.screen(self._state.rows)

    def close(self) -> None:
        self._end()

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return self._tasks.splits()

    def list_tasks(self, split: str) -> list[TerminalTask]:
        """Return the public parts of the tasks of a split."""
        return [task.to_public() for task in self._tasks.split(split)]

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(self._tasks.split(split))

    def get_task(self, split: str, index: int) -> TerminalTask:
        """Return the public part of one task of a split."""
        return self._tasks.split(split)[index].to_public()

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[TerminalTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        return self.list_tasks(split)[start:stop]


def _describe_error(action: TerminalAction, error: SandboxFileError) -> str:
    return f"{action.path}: {error.strerror}\n"


def _set_up(task: Task, sandbox: Sandbox) -> None:
    """Set up the files and services of a task.

    Raises:
        Refused: The task cannot be set up in this sandbox.
        SandboxEnded: The sandbox has ended meanwhile.
    """
    for program in task.needs:
        if sandbox.run(["/bin/sh", "-c", 'command -v "$1"', "sh", program]).exit_code != 0:
            raise Refused(f"task {task.id!r} needs {program}, which the sandboxes here do not have")
    try:
        for path, file in task.files.items():
            sandbox.write(path, file.data, int(file.mode, 8))
    except SandboxFileError as error:
        raise Refused(f"task {task.id!r} cannot be set up here: {error}") from error
    for command in task.setup:
        _run_setup(task, sandbox, command, SETUP_S)
    for command in task.services:
        sandbox.start([*CLEAN_BASH, command], limit=2**12)
    if task.ready is not None:
        _run_setup(task, sandbox, f"until {task.ready}; do sleep 0.05; done", READY_S)


def _run_setup(task: Task, sandbox: Sandbox, command: str, wall_s: float) -> None:
    done = sandbox.run([*CLEAN_BASH, command], wall_s=wall_s)
    if done.exit_code != 0:
        why = "it takes too long" if done.timed_out else done.stderr.strip()[-500:]
        raise Refused(f"task {task.id!r} cannot be set up here ({command!r}): {why}")
