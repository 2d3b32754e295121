"""Checks that plug-in authors run on their own work; no test runner is needed."""

from openenv.testing.environment import CheckFailed, CheckReport, check_environment
from openenv.testing.provider import check_provider

__all__ = ["CheckFailed", "CheckReport", "check_environment", "check_provider"]
