"""Conformance checks for authors of plugins, which run in any test runner or without one.

`check_environment`, `check_provider` and `check_integration` check environments, providers and
trainers' integrations. They return a report, or raise an error that lists every broken promise.
`openenv.testing.escapes.check_sandbox` checks sandboxes and returns a report.

This package builds on `execution`, `server`, `client`, `providers` and `sandbox`. Within `openenv`
only the package's lazy exports refer to it. Read `environment.py` first.
"""

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
