"""A trainer callback that measures, reports and logs the costs of environments."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from openenv._internal.packages import needs
from openenv.rollouts.meter import Meter, MeterReading, StepCost

with needs("openenv.integrations.trl", "pip install trl"):
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]


IDLE_STEPS = 3


class EnvironmentCost(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Measures the environments' part of each training step of a transformers trainer.

    The costs are printed on stderr, added to the trainer's log as ``environment/...``, and kept in
    the list `steps`. If no rollout of three training steps in a row acts, a warning is printed.

    Args:
        sources: Objects with a `meter`, made by `environment_factory` or `rollout_func`; or meters.
        every: Report every this many steps. 0 reports only the end of training.
        tell: Function that is called with each line. Default: print on stderr.

    Raises:
        ValueError: There are no `sources`.
    """

    def __init__(
        self, *sources: Any, every: int = 1, tell: Callable[[str], None] | None = None
    ) -> None:
        if not sources:
            raise ValueError("EnvironmentCost needs something to measure: what has a meter")
        self.steps: list[StepCost] = []
        self._meters: list[Meter] = [getattr(source, "meter", source) for source in sources]
        self._every = every
        self._tell = tell or _tell_stderr
        self._began: float | None = None
        self._before = MeterReading()
        self._tokens = 0
        self._idle = 0  # training steps in a row in which no rollout acted

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start measuring a step."""
        if self._began is None:
            self._began = time.perf_counter()
            self._before = self._read()
            self._tokens = int(getattr(state, "num_input_tokens_seen", 0) or 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step."""
        if self._began is None:
            return
        seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)
        now, found = time.perf_counter(), self._read()
        cost = StepCost(
            state.global_step, now - self._began, seen - self._tokens, found - self._before
        )
        self.steps.append(cost)
        self._began = None
        self._warn_if_idle(cost.environments, is_main=state.is_world_process_zero)
        if self._every and state.global_step % self._every == 0 and state.is_world_process_zero:
            self._tell(str(cost))

    def _warn_if_idle(self, counted: MeterReading, *, is_main: bool) -> None:
        acted = counted.steps or counted.refusals or not counted.episodes
        self._idle = 0 if acted else self._idle + 1
        if self._idle == IDLE_STEPS and is_main:
            self._tell(
                f"no rollout of the last {IDLE_STEPS} training steps has acted, so there is "
                "nothing to learn from: look at the replies (log_completions=True), the chat "
                "template, and max_completion_length, which may cut calls off"
            )

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Add the costs of the last step to the trainer's log."""
        if not self.steps or (logs is not None and "train_runtime" in logs):
            return
        found = self.steps[-1].as_logs()
        if logs is not None:
            logs.update(found)
        if state.log_history:
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report all steps together."""
        if self.steps and state.is_world_process_zero:
            self._tell(str(self))

    def __str__(self) -> str:
        seconds = sum(one.seconds for one in self.steps)
        waited = sum(one.environments.waited_s for one in self.steps)
        share = waited / seconds if seconds else 0.0
        steps, failures = (
            sum(getattr(one.environments, name) for one in self.steps)
            for name in ("steps", "failures")
        )
        return (
            f"{len(self.steps)} training steps in {seconds:.1f} s, of which environments were "
            f"waited for {waited:.1f} s ({share:.1%}); {steps:,} of their steps, {failures:,} "
            "failures"
        )

    def _read(self) -> MeterReading:
        readings = [meter.read() for meter in self._meters]
        total = readings[0]
        for one in readings[1:]:
            total = total + one
        return total


def _tell_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # looked up at each call, since it may be redirected
    sys.stderr.flush()
