"""The old path `openenv.core.containers.runtime.hf_sandbox_provider`; written by scripts/mirrors.py."""

from openenv.providers.hf import HFSandboxProvider as HFSandboxProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
