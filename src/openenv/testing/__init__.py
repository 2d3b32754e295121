"""Conformance checks that plugin authors run on their own work, in any test runner or none.

`check_environment`, `check_provider` and `check_integration` check environments, providers and
trainers' integrations; `openenv.testing.escapes.check_sandbox` checks sandboxes. Each raises an
error that lists every broken promise, or returns a report.

Above `execution`, `server`, `client`, `providers` and `sandbox`; inside `openenv` only the lazy
face of the package names it. Read `environment.py` first.
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
