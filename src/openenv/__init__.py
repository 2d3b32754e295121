"""OpenEnv: a common interface between trainers of agents and environments for agents.

An author writes `reset`, `step` and `state`; a trainer calls them from anywhere. Names are imported
on first use, so that a program imports only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv import cli as cli
    from openenv import core as core
    from openenv.arrays import Array as Array
    from openenv.arrays import Blob as Blob
    from openenv.arrays import NDArray as NDArray
    from openenv.arrays import Picture as Picture
    from openenv.client.client import EnvClient as EnvClient
    from openenv.client.generic import GenericAction as GenericAction
    from openenv.client.generic import GenericEnvClient as GenericEnvClient
    from openenv.client.sync import SyncEnvClient as SyncEnvClient
    from openenv.client.vector import AutoresetMode as AutoresetMode
    from openenv.client.vector import VectorEnv as VectorEnv
    from openenv.environment import Environment as Environment
    from openenv.environment import Transform as Transform
    from openenv.environment import restart as restart
    from openenv.environment import termination as termination
    from openenv.environment import transition as transition
    from openenv.environment import truncation as truncation
    from openenv.errors import AuthenticationError as AuthenticationError
    from openenv.errors import CapacityError as CapacityError
    from openenv.errors import ConnectError as ConnectError
    from openenv.errors import EnvironmentsFailed as EnvironmentsFailed
    from openenv.errors import ExecutionFailed as ExecutionFailed
    from openenv.errors import IgnoredArgumentWarning as IgnoredArgumentWarning
    from openenv.errors import InvalidSnapshot as InvalidSnapshot
    from openenv.errors import NotSupported as NotSupported
    from openenv.errors import OpenEnvError as OpenEnvError
    from openenv.errors import PermissionRefused as PermissionRefused
    from openenv.errors import RateLimited as RateLimited
    from openenv.errors import Refused as Refused
    from openenv.errors import ReplayDiverged as ReplayDiverged
    from openenv.errors import ResponseTimeout as ResponseTimeout
    from openenv.errors import ServerError as ServerError
    from openenv.errors import SessionBusy as SessionBusy
    from openenv.errors import SessionLost as SessionLost
    from openenv.errors import StepTimeout as StepTimeout
    from openenv.errors import TooLargeError as TooLargeError
    from openenv.errors import ToolFailed as ToolFailed
    from openenv.errors import Unscored as Unscored
    from openenv.errors import ValidationFailed as ValidationFailed
    from openenv.execution.limits import Limits as Limits
    from openenv.execution.manager import ConcurrencyConfig as ConcurrencyConfig
    from openenv.hub.auto_action import AutoAction as AutoAction
    from openenv.hub.auto_env import AutoEnv as AutoEnv
    from openenv.pool.pool import EnvPool as EnvPool
    from openenv.providers.process import ProcessLimits as ProcessLimits
    from openenv.providers.process import ProcessProvider as ProcessProvider
    from openenv.providers.uv import UVProvider as UVProvider
    from openenv.reward import RewardSpec as RewardSpec
    from openenv.reward import Score as Score
    from openenv.rewards.rubric import Rubric as Rubric
    from openenv.rollouts import RolloutLimits as RolloutLimits
    from openenv.rollouts import RolloutRun as RolloutRun
    from openenv.rollouts import RolloutsFailed as RolloutsFailed
    from openenv.rollouts import rollout as rollout
    from openenv.rollouts import rollout_async as rollout_async
    from openenv.server.app import HTTPEnvServer as HTTPEnvServer
    from openenv.server.app import create_app as create_app
    from openenv.settings import ServerMode as ServerMode
    from openenv.tasks import Task as Task
    from openenv.tasks import Taskset as Taskset
    from openenv.tasks import load_tasks as load_tasks
    from openenv.testing import check_environment as check_environment
    from openenv.types import Action as Action
    from openenv.types import EnvironmentMetadata as EnvironmentMetadata
    from openenv.types import Observation as Observation
    from openenv.types import Private as Private
    from openenv.types import State as State
    from openenv.types import StepResult as StepResult
    from openenv.types import public_view as public_view

    __version__: str
else:
    _lazy, __dir__, __all__ = lazy(
        __name__,
        submodules=[
            "auto",
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
    __all__ += ["__version__"]

    def __getattr__(name):
        if name != "__version__":
            return _lazy(name)
        from openenv._internal.version import version

        return version()
