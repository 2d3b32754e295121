"""Checks that plug-in authors run on their own work; no test runner is needed."""

from openenv.testing.environment import CheckFailed, check_environment

__all__ = ["CheckFailed", "check_environment"]
