"""Tasks, tasksets and samplers: the problems that an environment offers, in splits.

A `Task` is one row. A `Taskset` holds the rows of one split and makes tasks on demand. A sampler
decides which tasks a trainer plays next. `ServedTasks` and `TaskAPIClient` are the server side and
the client side of the Task API.

This package builds on `openenv.types`, `openenv.errors` and the internal HTTP client. `execution`
(which resets an environment to a task), `client`, `server`, `rollouts` and `evals` use it.

Read `task.py`, then `load.py` (sources), `columns.py` (rows to tasks) and `taskset.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.tasks.api import TaskAPIClient as TaskAPIClient
    from openenv.tasks.curriculum import CurriculumSampler as CurriculumSampler
    from openenv.tasks.load import load_splits as load_splits
    from openenv.tasks.load import load_tasks as load_tasks
    from openenv.tasks.provider import LoadsTasks as LoadsTasks
    from openenv.tasks.provider import TaskProvider as TaskProvider
    from openenv.tasks.samplers import Sampler as Sampler
    from openenv.tasks.samplers import SequentialSampler as SequentialSampler
    from openenv.tasks.samplers import ShuffledSampler as ShuffledSampler
    from openenv.tasks.samplers import TaskSampler as TaskSampler
    from openenv.tasks.samplers import UniformSampler as UniformSampler
    from openenv.tasks.samplers import WeightedSampler as WeightedSampler
    from openenv.tasks.served import ServedTasks as ServedTasks
    from openenv.tasks.task import Task as Task
    from openenv.tasks.task import TasksetError as TasksetError
    from openenv.tasks.taskset import Taskset as Taskset
    from openenv.tasks.taskset import TaskStream as TaskStream
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
