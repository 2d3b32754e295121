"""The old path `openenv.core.harness.adapter`; written by scripts/mirrors.py."""

from openenv.agents.adapter import AgenticHarnessAdapter as AgenticHarnessAdapter
from openenv.agents.errors import HarnessError as HarnessError
from openenv.agents.errors import HarnessNotRunningError as HarnessNotRunningError
from openenv.agents.errors import HarnessStartupError as HarnessStartupError
from openenv.agents.errors import HarnessTurnTimeoutError as HarnessTurnTimeoutError

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
