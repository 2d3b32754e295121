"""The old path `openenv.core.containers.runtime.aca_provider`; written by scripts/mirrors.py."""

from openenv.providers.aca import ACASandboxProvider as ACASandboxProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
