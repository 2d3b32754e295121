"""A policy that follows a script of actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    PolicyError,
    PolicyPlayer,
    PolicyStopped,
    PolicyTurn,
)


class ScriptedPolicy:
    """Takes the actions of a script in order; after the last, the episode is `stopped`.

    Args:
        actions: The actions of every episode; or a mapping from task ids to the actions of these
            tasks' episodes. Without tasks, an episode's seed is its task id.
        name: The name in records.
    """

    needs_interface = False
    wants_refusals = False

    def __init__(
        self, actions: Sequence[Any] | Mapping[str, Sequence[Any]], *, name: str = "scripted"
    ) -> None:
        self.name = name
        by_task = isinstance(actions, Mapping)
        self._by_task: Mapping[str, Sequence[Any]] = actions if by_task else {}  # type: ignore[assignment]
        self._actions: Sequence[Any] | None = None if by_task else list(actions)

    @classmethod
    def of_file(cls, path: str | Path) -> ScriptedPolicy:
        """Read a file of JSON lines: one action, or one ``{"task_id", "actions"}``, per line.

        Raises:
            PolicyError: The file cannot be read or is not a script.
        """
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            raise PolicyError(f"the script {path} cannot be read: {error.strerror}") from error
        found = list(_read(Path(path), lines))
        if not found:
            raise PolicyError(f"the script {path} holds no action")
        name = f"scripted:{path}"
        if not all(one.keys() == {"task_id", "actions"} for one in found):
            return cls(found, name=name)
        by_task: dict[str, Sequence[Any]] = {}
        for one in found:
            task_id, actions = one["task_id"], one["actions"]
            if not isinstance(actions, list):
                why = f"the actions of task {task_id!r} are {actions!r:.100}; expected a list"
                raise PolicyError(f"{path}: {why}")
            if task_id in by_task:
                raise PolicyError(f"{path}: task {task_id!r} is in it twice")
            by_task[task_id] = actions
        return cls(by_task, name=name)

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        """Begin an episode.

        Raises:
            PolicyError: The script has no actions for the task.
        """
        if self._actions is not None:
            return _ScriptPlayer(self._actions)
        task_id = (opening.task or {}).get("id", opening.rollout_id.rpartition("#")[0])
        if task_id not in self._by_task:
            raise PolicyError(f"{self.name} has no actions for the task {task_id!r}")
        return _ScriptPlayer(self._by_task[task_id])

    async def aclose(self) -> None:
        """Do nothing: no resources are held."""


class _ScriptPlayer:
    def __init__(self, actions: Iterable[Any]) -> None:
        self._left = iter(actions)

    def act(self, turn: PolicyTurn) -> Decision:
        for action in self._left:
            return Decision(action)
        raise PolicyStopped("the script is at its end")


def _read(path: Path, lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = from_json(line)
        except ValueError as error:
            raise PolicyError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise PolicyError(f"{path}, line {number} is no action: expected an object")
        yield found
