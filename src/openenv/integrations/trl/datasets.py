"""Datasets of tasks and seeds for TRL, with a row for each group of rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from openenv._internal.packages import needs
from openenv.integrations.trl.environments import TASK_COLUMN
from openenv.rollouts.jobs import derived_seed
from openenv.tasks.load import load_tasks
from openenv.tasks.task import Task


def task_rows(
    tasks: Any,
    *,
    prompt: str = "",
    system_prompt: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    has_seeds: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield rows for TRL: ``prompt``, ``task_id``, ``openenv_task`` and ``seed``.

    TRL plays each row several times, as a group. The row's seed makes these rollouts begin alike.

    Args:
        tasks: A source of tasks, as `openenv.tasks.load_tasks` takes it; or the number of rows
            without tasks, each with a seed of its own.
        prompt: The user's message before the task's own prompt; required without tasks.
        system_prompt: A system message before the prompt.
        split: The split of `tasks`.
        limit: Maximum number of tasks, counted from the first. Default: all.
        seed: The seed from which the seeds of rows are derived.
        has_seeds: Give each row a seed. An environment that its tasks determine completely needs
            none. Without tasks, rows always have seeds.

    Raises:
        TasksetError: The tasks cannot be found or read.
        ValueError: `tasks` is less than 1, or there is a `split` or no `prompt` without tasks.
    """
    if isinstance(tasks, int):
        if tasks < 1:
            raise ValueError(f"tasks={tasks}; expected at least one row")
        if split is not None:
            raise ValueError(f"split={split!r}: of which tasks? give some")
        if not prompt:
            raise ValueError("prompt is empty; without tasks it is all that the model is told")
        found: Iterable[Task] = (Task(id=f"seed-{seed + i}") for i in range(tasks))
        return _rows(found, prompt, system_prompt, seed, is_seed_only=True, has_seeds=True)
    loaded = load_tasks(tasks, split=split, limit=limit)
    return _rows(loaded, prompt, system_prompt, seed, is_seed_only=False, has_seeds=has_seeds)


def _rows(
    tasks: Iterable[Task],
    prompt: str,
    system_prompt: str | None,
    seed: int,
    *,
    is_seed_only: bool,
    has_seeds: bool,
) -> Iterator[dict[str, Any]]:
    for number, task in enumerate(tasks):
        # The row holds the task even if it is only a seed: a `task_id` without a task would be
        # passed to the environment's reset.
        row: dict[str, Any] = {
            "prompt": prompt_of(task, prompt, system_prompt),
            "task_id": task.id,
            TASK_COLUMN: json.dumps(
                task.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False
            ),
        }
        if is_seed_only:
            row["seed"] = seed + number
        elif has_seeds and "seed" not in task.reset:
            row["seed"] = derived_seed(seed, task.id)
        yield row


def prompt_of(task: Task, prompt: str, system_prompt: str | None) -> list[dict[str, Any]]:
    """Return the messages that present a task to a model."""
    messages: list[dict[str, Any]] = []
    if system_prompt:
        messages.append({"role": "system", "content": system_prompt})
    own = task.prompt
    if isinstance(own, str) or own is None:
        said = "\n\n".join(part for part in (prompt, own) if part)
        messages.append({"role": "user", "content": said})
    else:
        if prompt:
            messages.append({"role": "user", "content": prompt})
        messages += [dict(message) for message in own]
    return messages


def task_dataset(tasks: Any, **options: Any) -> Any:
    """Return the rows of `task_rows` as a `datasets.Dataset`.

    Args:
        tasks: Tasks, or the number of rows; see `task_rows`.
        options: Options of `task_rows`.

    Raises:
        MissingPackage: `datasets` is not installed.
        TasksetError: The tasks cannot be found or read.
        ValueError: An argument of `task_rows` is not valid.
    """
    with needs("openenv.integrations.trl", "pip install datasets"):
        import datasets  # type: ignore[import-not-found,unused-ignore]

    rows = list(task_rows(tasks, **options))
    names = dict.fromkeys(name for row in rows for name in row)
    return datasets.Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})
