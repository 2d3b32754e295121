"""The old path `openenv.core.harness.capture.upstream`; written by scripts/mirrors.py."""

from openenv.harness.training import training_sampling as training_sampling

__all__ = ["training_sampling"]
