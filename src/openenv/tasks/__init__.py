"""Tasks, tasksets and samplers: the problems that an environment offers, in splits.

A `Task` is one row; a `Taskset` holds the rows of one split and makes tasks on demand; a sampler
decides which tasks a trainer plays next; `ServedTasks` and `TaskAPIClient` are the two ends of the
server's Task API.

Below this package: `openenv.types`, `openenv.errors` and the HTTP door. Above: `execution` (resets
an environment to a task), `client`, `server`, `rollouts` and `evals`.

Read `task.py`, then `load.py` (sources), `columns.py` (rows to tasks) and `taskset.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.tasks.api import TaskAPIClient
    from openenv.tasks.curriculum import CurriculumSampler
    from openenv.tasks.errors import TasksetError
    from openenv.tasks.load import load_splits, load_tasks
    from openenv.tasks.provider import LoadsTasks, TaskProvider
    from openenv.tasks.samplers import (
        Sampler,
        SequentialSampler,
        ShuffledSampler,
        TaskSampler,
        UniformSampler,
        WeightedSampler,
    )
    from openenv.tasks.served import ServedTasks
    from openenv.tasks.task import Task
    from openenv.tasks.taskset import Taskset, TaskStream

__all__ = [
    "CurriculumSampler",
    "LoadsTasks",
    "Sampler",
    "SequentialSampler",
    "ServedTasks",
    "ShuffledSampler",
    "Task",
    "TaskAPIClient",
    "TaskProvider",
    "TaskSampler",
    "TaskStream",
    "Taskset",
    "TasksetError",
    "UniformSampler",
    "WeightedSampler",
    "load_splits",
    "load_tasks",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.tasks.api": ["TaskAPIClient"],
        "openenv.tasks.curriculum": ["CurriculumSampler"],
        "openenv.tasks.errors": ["TasksetError"],
        "openenv.tasks.load": ["load_splits", "load_tasks"],
        "openenv.tasks.provider": ["LoadsTasks", "TaskProvider"],
        "openenv.tasks.samplers": [
            "Sampler",
            "SequentialSampler",
            "ShuffledSampler",
            "TaskSampler",
            "UniformSampler",
            "WeightedSampler",
        ],
        "openenv.tasks.served": ["ServedTasks"],
        "openenv.tasks.task": ["Task"],
        "openenv.tasks.taskset": ["TaskStream", "Taskset"],
    },
)
