"""Enumerations of validation: levels, lanes, statuses and severities (RFC 008)."""

from __future__ import annotations

from enum import Enum, IntEnum


class SignatureKind(str, Enum):
    """Package formats, named by the file that identifies each."""

    OPENENV_SERVED = "openenv.yaml"
    HARBOR_TASK = "task.toml"
    POSTTRAIN_TASK = "task.md"


class Level(IntEnum):
    """Depth of a check; each level costs more than the last.

    STATIC reads the package. RUNTIME serves it and plays one scripted episode. SEMANTIC checks
    whether the reward means what the package claims. STATISTICAL trains in it: on an author's
    machine only the checks ``learning.*``, by `--learn`; ``statistical.*`` belong to operators.
    """

    STATIC = 1
    RUNTIME = 2
    SEMANTIC = 3
    STATISTICAL = 4


class Lane(str, Enum):
    """Owners of checks: LOCAL ones an author can fix, HUB ones only a hub's operator."""

    LOCAL = "local"
    HUB = "hub"


class CheckStatus(str, Enum):
    """Outcomes of a check; SKIP was not measured, ERROR is a fault of the check itself."""

    PASS = "pass"  # nosec B105  # no password
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class Severity(str, Enum):
    """Effects of a failed check: FAIL fails the verdict, WARN and ADVISORY warn."""

    FAIL = "fail"
    WARN = "warn"
    ADVISORY = "advisory"


class Verdict(str, Enum):
    """Outcomes of a policy for all results."""

    PASS = "pass"  # nosec B105  # no password
    WARN = "warn"
    FAIL = "fail"


class ProviderCapability(str, Enum):
    """Optional capabilities of a validation provider."""

    NETWORK_POLICY = "network_policy"
    EXEC = "exec"
    IMAGE_BUILD = "image_build"
    GPU = "gpu"
    REMOTE = "remote"
    # Our additions: containers have these capabilities, local processes do not.
    CONTAINMENT = "containment"
    RESOURCE_LIMITS = "resource_limits"
