"""The old path `openenv.core.harness.events`; written by scripts/mirrors.py."""

from openenv.agents.events import HarnessClientMessage as HarnessClientMessage
from openenv.agents.events import HarnessEvent as HarnessEvent
from openenv.agents.events import HarnessEventType as HarnessEventType
from openenv.agents.events import HarnessProtocolError as HarnessProtocolError
from openenv.agents.events import HarnessResponse as HarnessResponse
from openenv.agents.events import events_to_metadata as events_to_metadata

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
