"""OpenEnv: one socket between whatever trains an agent and whatever the agent acts in.

An author writes `reset`, `step` and `state`; a trainer calls them from anywhere. Names are
imported when they are first used, so that a client pays for a client only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv import cli, core
    from openenv.arrays import Array, Blob, NDArray, Picture
    from openenv.auto.auto_action import AutoAction
    from openenv.auto.auto_env import AutoEnv
    from openenv.client.client import EnvClient
    from openenv.client.generic import GenericAction, GenericEnvClient
    from openenv.client.sync import SyncEnvClient
    from openenv.client.vector import AutoresetMode, VectorEnv
    from openenv.environment import (
        Environment,
        Transform,
        restart,
        termination,
        transition,
        truncation,
    )
    from openenv.errors import (
        AuthenticationError,
        CapacityError,
        ConnectError,
        EnvironmentsFailed,
        ExecutionFailed,
        IgnoredArgumentWarning,
        InvalidSnapshot,
        NotSupported,
        OpenEnvError,
        PermissionRefused,
        RateLimited,
        Refused,
        ReplayDiverged,
        ResponseTimeout,
        ServerError,
        SessionBusy,
        SessionLost,
        StepTimeout,
        TooLargeError,
        ToolFailed,
        Unscored,
        ValidationFailed,
    )
    from openenv.execution.limits import Limits
    from openenv.execution.manager import ConcurrencyConfig
    from openenv.pool.pool import EnvPool
    from openenv.providers.process import ProcessLimits, ProcessProvider
    from openenv.providers.uv import UVProvider
    from openenv.reward import RewardSpec, Score
    from openenv.rewards.rubric import Rubric
    from openenv.rollouts import RolloutLimits, RolloutRun, RolloutsFailed, rollout, rollout_async
    from openenv.server.app import HTTPEnvServer, create_app
    from openenv.settings import ServerMode
    from openenv.tasks import Task, Taskset, load_tasks
    from openenv.testing import check_environment
    from openenv.types import (
        Action,
        EnvironmentMetadata,
        Observation,
        Private,
        State,
        StepResult,
        public_view,
    )

    __version__: str

__all__ = [
    "Action",
    "Array",
    "AuthenticationError",
    "AutoAction",
    "AutoEnv",
    "AutoresetMode",
    "Blob",
    "CapacityError",
    "ConcurrencyConfig",
    "ConnectError",
    "EnvClient",
    "EnvPool",
    "Environment",
    "EnvironmentMetadata",
    "EnvironmentsFailed",
    "ExecutionFailed",
    "GenericAction",
    "GenericEnvClient",
    "HTTPEnvServer",
    "IgnoredArgumentWarning",
    "InvalidSnapshot",
    "Limits",
    "NDArray",
    "NotSupported",
    "Observation",
    "OpenEnvError",
    "PermissionRefused",
    "Picture",
    "Private",
    "ProcessLimits",
    "ProcessProvider",
    "RateLimited",
    "Refused",
    "ReplayDiverged",
    "ResponseTimeout",
    "RewardSpec",
    "RolloutLimits",
    "RolloutRun",
    "RolloutsFailed",
    "Rubric",
    "Score",
    "ServerError",
    "ServerMode",
    "SessionBusy",
    "SessionLost",
    "State",
    "StepResult",
    "StepTimeout",
    "SyncEnvClient",
    "Task",
    "Taskset",
    "TooLargeError",
    "ToolFailed",
    "Transform",
    "UVProvider",
    "Unscored",
    "ValidationFailed",
    "VectorEnv",
    "__version__",
    "check_environment",
    "cli",
    "core",
    "create_app",
    "load_tasks",
    "public_view",
    "restart",
    "rollout",
    "rollout_async",
    "termination",
    "transition",
    "truncation",
]

_names, __dir__ = lazy(
    __name__,
    {
        "openenv.arrays": ["Array", "Blob", "NDArray", "Picture"],
        "openenv.auto.auto_action": ["AutoAction"],
        "openenv.auto.auto_env": ["AutoEnv"],
        "openenv.client.client": ["EnvClient"],
        "openenv.client.generic": ["GenericAction", "GenericEnvClient"],
        "openenv.client.sync": ["SyncEnvClient"],
        "openenv.client.vector": ["AutoresetMode", "VectorEnv"],
        "openenv.environment": [
            "Environment",
            "Transform",
            "restart",
            "termination",
            "transition",
            "truncation",
        ],
        "openenv.errors": [
            "AuthenticationError",
            "CapacityError",
            "ConnectError",
            "EnvironmentsFailed",
            "ExecutionFailed",
            "IgnoredArgumentWarning",
            "InvalidSnapshot",
            "NotSupported",
            "OpenEnvError",
            "PermissionRefused",
            "RateLimited",
            "Refused",
            "ReplayDiverged",
            "ResponseTimeout",
            "ServerError",
            "SessionBusy",
            "SessionLost",
            "StepTimeout",
            "TooLargeError",
            "ToolFailed",
            "Unscored",
            "ValidationFailed",
        ],
        "openenv.pool.pool": ["EnvPool"],
        "openenv.providers.process": ["ProcessLimits", "ProcessProvider"],
        "openenv.providers.uv": ["UVProvider"],
        "openenv.reward": ["RewardSpec", "Score"],
        "openenv.rewards.rubric": ["Rubric"],
        "openenv.rollouts": [
            "RolloutLimits",
            "RolloutRun",
            "RolloutsFailed",
            "rollout",
            "rollout_async",
        ],
        "openenv.server.app": ["HTTPEnvServer", "create_app"],
        "openenv.execution.limits": ["Limits"],
        "openenv.execution.manager": ["ConcurrencyConfig"],
        "openenv.settings": ["ServerMode"],
        "openenv.tasks": ["Task", "Taskset", "load_tasks"],
        "openenv.testing": ["check_environment"],
        "openenv.types": [
            "Action",
            "EnvironmentMetadata",
            "Observation",
            "Private",
            "State",
            "StepResult",
            "public_view",
        ],
    },
    submodules=[
        "auto",
        "cli",
        "core",
        "evals",
        "providers",
        "rewards",
        "rollouts",
        "server",
        "tasks",
        "testing",
        "validation",
    ],
)


if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "__version__":
            return _names(name)
        from openenv._internal.version import version

        return version()
