"""What there is to do in an environment: tasks, in splits."""

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
