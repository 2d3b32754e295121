"""The old path `openenv.core.containers.runtime.modal_provider`; written by scripts/mirrors.py."""

from openenv.providers.modal import ModalProvider as ModalProvider

__all__ = ["ModalProvider"]
