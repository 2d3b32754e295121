"""The old path `openenv.core.harness.adapter`; written by scripts/mirrors.py."""

from openenv.harness.agents.adapter import AgenticHarnessAdapter as AgenticHarnessAdapter
from openenv.harness.agents.errors import HarnessError as HarnessError
from openenv.harness.agents.errors import HarnessNotRunningError as HarnessNotRunningError
from openenv.harness.agents.errors import HarnessStartupError as HarnessStartupError
from openenv.harness.agents.errors import HarnessTurnTimeoutError as HarnessTurnTimeoutError

__all__ = [
    "AgenticHarnessAdapter",
    "HarnessError",
    "HarnessNotRunningError",
    "HarnessStartupError",
    "HarnessTurnTimeoutError",
]
