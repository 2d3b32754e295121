"""Checks that plug-in authors run on their own work; no test runner is needed."""

from openenv.testing.environment import CheckFailed, CheckReport, check_environment
from openenv.testing.provider import check_provider
from openenv.testing.trainers import IntegrationFailed, IntegrationReport, check_integration

__all__ = [
    "CheckFailed",
    "CheckReport",
    "IntegrationFailed",
    "IntegrationReport",
    "check_environment",
    "check_integration",
    "check_provider",
]
