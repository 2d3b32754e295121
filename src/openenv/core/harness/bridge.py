"""The old path `openenv.core.harness.bridge`; written by scripts/mirrors.py."""

from openenv.agents.bridge import HarnessMCPBridge as HarnessMCPBridge
from openenv.agents.bridge import build_bridge_server as build_bridge_server

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
