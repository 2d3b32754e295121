"""What there is to do in an environment: tasks, in splits."""

from openenv.tasks.provider import TaskProvider

__all__ = ["TaskProvider"]
