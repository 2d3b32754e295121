"""The old path `openenv.core.containers.runtime.modal_provider`; written by scripts/mirrors.py."""

from openenv.providers.modal import ModalProvider as ModalProvider

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
