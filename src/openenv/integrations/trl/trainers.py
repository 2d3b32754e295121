"""The batch and the group of a rollout, read from the calling trainer.

TRL passes the trainer to a `rollout_func`, but calls an environment's ``reset`` with the columns of
a row only. There the trainer is found among the caller frames. Nothing else tells where a group
ends: rows may be equal, and the instances of a batch may be on several processes.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from openenv.integrations.trl.rewards import (
    TrainingRefused,
    check_reward_functions,
    names_of,
)
from openenv.rollouts.jobs import derived_seed

CALLERS = 12  # maximum number of frames to search for a trainer
MARKS = ("accelerator", "environments", "num_generations", "reward_funcs", "state")
WORKER_MARKS = ("reward_funcs", "reward_func_names")  # AsyncGRPO's worker, in its own process

_clocks: WeakKeyDictionary[Any, BatchClock] = WeakKeyDictionary()
_lock = threading.Lock()


class BatchClock:
    """The position of a trainer: its step, and the batch within the step.

    A step may have several batches (gradient accumulation, evaluation). The count restarts in each
    step, so that a resumed run counts like one that was never interrupted.

    Attributes:
        mode: ``train`` or ``eval``.
        step: The trainer's global step.
        number: The number of the batch in the step, from 0.
        groups: Number of groups in earlier batches of the step.
    """

    def __init__(self) -> None:
        self.mode = ""
        self.step = -1
        self.number = 0
        self.groups = 0
        self._groups_of_batch = 0
        self._places: Any = None
        self._begun: set[int] = set()

    def begin(self, trainer: Any, groups: int) -> None:
        """Record that a batch begins.

        Args:
            groups: Number of groups of the batch on all processes.
        """
        mode, step = mode_of(trainer), int(trainer.state.global_step)
        if (mode, step) == (self.mode, self.step):
            self.number += 1
            self.groups += self._groups_of_batch
        else:
            self.mode, self.step, self.number, self.groups = mode, step, 0, 0
        self._groups_of_batch = groups

    @property
    def batch(self) -> tuple[str, int, int]:
        """The batch: mode, step, and number within the step."""
        return self.mode, self.step, self.number

    def reset_of(self, trainer: Any, place: Any) -> int:
        """Record the reset of an environment; the first reset of a batch begins the batch.

        Args:
            place: One of the trainer's environments.

        Returns:
            The number of the environment's group, counted over all processes.
        """
        places = trainer.environments
        at = next((i for i, one in enumerate(places) if one is place), 0)
        of_each = group_size(trainer)
        is_first = (
            places is not self._places
            or id(place) in self._begun
            or (mode_of(trainer), int(trainer.state.global_step)) != (self.mode, self.step)
        )
        if is_first:
            self._places, self._begun = places, set()
            self.begin(trainer, -(-len(places) * trainer.accelerator.num_processes // of_each))
        self._begun.add(id(place))
        return int(trainer.accelerator.process_index * len(places) + at) // of_each

    def seed(self, base: int, group: int) -> int:
        """Return the seed of a group of this batch.

        All evaluations have the same seeds, so that they can be compared.
        """
        step = [self.step] if self.mode == "train" else []
        return derived_seed(base, self.mode, *step, self.number, group)


def clock_of(trainer: Any) -> BatchClock:
    """Return the clock of a trainer, which its environments share."""
    with _lock:
        return _clocks.setdefault(trainer, BatchClock())


def mode_of(trainer: Any) -> str:
    """Return ``train``, or ``eval``."""
    return "train" if trainer.model.training else "eval"


def group_size(trainer: Any) -> int:
    """Return the number of rollouts in a group, in training or evaluation."""
    is_training = trainer.model.training
    return int(trainer.num_generations if is_training else trainer.num_generations_eval)


def calling_trainer(marks: Sequence[str] = MARKS) -> Any:
    """Return the trainer among this thread's callers; None if there is none.

    Args:
        marks: Attributes by which the trainer is recognized.
    """
    frame = inspect.currentframe()
    for _ in range(CALLERS):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            return None
        found = frame.f_locals.get("self")
        if found is not None and all(hasattr(found, name) for name in marks):
            return found
    return None


def check_trainer(trainer: Any) -> None:
    """Refuse a trainer that would train on a wrong signal with ``environment_factory``.

    Raises:
        TrainingRefused: A reward function would count failed rollouts, the completions of several
            processes would be mixed up, or the processes would wait for each other forever.
    """
    check_reward_functions(trainer)
    if trainer.accelerator.num_processes < 2:
        return
    uses_vllm = getattr(trainer, "use_vllm", False)
    mode = getattr(trainer, "vllm_mode", "server")
    if uses_vllm and (
        mode == "server" or int(getattr(trainer, "vllm_tensor_parallel_size", 1) or 1) > 1
    ):
        raise TrainingRefused(
            "environment_factory with several processes and a vLLM that they share: TRL asks it "
            "for replies as often as each process's own tools are called, and hands out what comes "
            "back as if all had asked equally often, so rollouts would get each other's replies. "
            "Use rollout_func, which has all processes ask together; or vllm_mode='colocate' with "
            "vllm_tensor_parallel_size=1; or one process"
        )
    by = _splits_weights(trainer.accelerator)
    if by and not uses_vllm:
        raise TrainingRefused(
            f"environment_factory with several processes and weights that {by} splits over them: "
            "all have to ask the model equally often, and TRL asks it as often as each process's "
            "own tools are called, so the processes would wait for each other for ever. Use "
            "rollout_func, which has all processes ask together; or use_vllm=True with "
            "vllm_mode='colocate'; or ZeRO up to stage 2"
        )


def check_worker() -> None:
    """Refuse a calling AsyncGRPO worker that would train on a wrong signal.

    Raises:
        TrainingRefused: The worker has reward functions, which would count failed rollouts.
    """
    worker = calling_trainer(WORKER_MARKS)
    functions = [] if worker is None else list(worker.reward_funcs)
    if functions:
        raise TrainingRefused(
            f"AsyncGRPO does not tell the reward function {', '.join(names_of(functions))} which "
            "rollouts have failed, and would add its reward to an environment's that is not there. "
            "Let the environment's own be the only one: reward_funcs=[]; or use GRPOTrainer"
        )


def _splits_weights(accelerator: Any) -> str | None:
    """Return the name of the method that splits weights over processes, if any; a forward pass then
    needs all processes.
    """
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    if plugin is not None and int(plugin.zero_stage) == 3:
        return "ZeRO-3"
    return "FSDP" if accelerator.distributed_type == "FSDP" else None
