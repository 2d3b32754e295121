"""The old path `openenv.core.harness.environment`; written by scripts/mirrors.py."""

from openenv.agents.environment import HarnessAction as HarnessAction
from openenv.agents.environment import HarnessEnvironment as HarnessEnvironment

__all__ = ["HarnessAction", "HarnessEnvironment"]
