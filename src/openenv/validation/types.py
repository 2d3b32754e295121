"""The words of a validation: levels, lanes, states and severities (RFC 008)."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "CheckStatus",
    "Lane",
    "Level",
    "ProviderCapability",
    "Severity",
    "SignatureKind",
    "Verdict",
]


class SignatureKind(str, Enum):
    """The forms of packages, by the file that tells one."""

    OPENENV_SERVED = "openenv.yaml"
    HARBOR_TASK = "task.toml"
    POSTTRAIN_TASK = "task.md"


class Level(IntEnum):
    """How deep a check looks; each costs more than the one before.

    STATIC reads the package. RUNTIME serves it and plays one scripted episode. SEMANTIC asks
    whether its reward means what it says. STATISTICAL trains on it: locally the checks
    ``learning.*`` alone, which `--learn` asks for; those named ``statistical.*`` are an operator's.
    """

    STATIC = 1
    RUNTIME = 2
    SEMANTIC = 3
    STATISTICAL = 4


class Lane(str, Enum):
    """Who can make a check turn green: the author here, or only who runs a hub."""

    LOCAL = "local"
    HUB = "hub"


class CheckStatus(str, Enum):
    """How a check ended: SKIP has not been measured, ERROR is a fault of the check itself."""

    PASS = "pass"  # nosec B105  # no password
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class Severity(str, Enum):
    """What a failed check makes of the verdict: FAIL fails it, WARN and ADVISORY warn."""

    FAIL = "fail"
    WARN = "warn"
    ADVISORY = "advisory"


class Verdict(str, Enum):
    """What a policy makes of all results."""

    PASS = "pass"  # nosec B105  # no password
    WARN = "warn"
    FAIL = "fail"


class ProviderCapability(str, Enum):
    """What a provider of sandboxes can do, beside starting and stopping."""

    NETWORK_POLICY = "network_policy"
    EXEC = "exec"
    IMAGE_BUILD = "image_build"
    GPU = "gpu"
    REMOTE = "remote"
    # Ours: what a process of this machine lacks, and a container has.
    CONTAINMENT = "containment"
    RESOURCE_LIMITS = "resource_limits"
