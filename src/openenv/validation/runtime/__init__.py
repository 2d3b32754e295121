"""The runtime level: the package serves, and one episode of it is measured (RFC 008, level 2)."""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.graders import Check, Grader, Subject
from openenv.validation.judging import DETERMINISM, STARTUP, judged
from openenv.validation.load import LoadReport, MemoryReport
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import CheckResult
from openenv.validation.run import Startup
from openenv.validation.runtime.bounding import (
    judge_host_containment,
    judge_latency,
    judge_memory,
    judge_network_policy,
    judge_oracle_containment,
    judge_resource_bounds,
)
from openenv.validation.runtime.collecting import collect_runtime
from openenv.validation.runtime.exposing import Exposure
from openenv.validation.runtime.protocol import (
    judge_observation_schema,
    judge_startup,
    judge_state_contract,
    judge_task_declaration_accuracy,
    judge_tool_declaration_accuracy,
    judge_trajectory_record,
)
from openenv.validation.runtime.reproducing import (
    judge_episode_determinism,
    judge_episode_isolation,
    judge_judged_determinism,
    judge_seed_control,
    judge_session_isolation,
)
from openenv.validation.runtime.rewards import (
    judge_reward_attribution,
    judge_reward_contract,
    judge_reward_well_formed,
    judge_rubric_introspectable,
)
from openenv.validation.runtime.seen import (
    Confinement,
    Judged,
    Recorded,
    Replays,
    Resets,
    SideBySide,
    Surface,
    TaskSurvey,
    ToolSurvey,
)
from openenv.validation.types import Level, ProviderCapability

__all__ = ["collect_runtime", "runtime_checks"]

RUBRIC = "runtime.rubric_introspectable"


def runtime_checks() -> Sequence[Grader]:
    """The graders of this level, those of RFC 008 and ours."""
    confined = frozenset({ProviderCapability.CONTAINMENT, ProviderCapability.EXEC})
    networked = frozenset({ProviderCapability.NETWORK_POLICY, ProviderCapability.EXEC})
    limited = frozenset({ProviderCapability.RESOURCE_LIMITS, ProviderCapability.EXEC})
    repeats = (STARTUP, DETERMINISM)
    return [
        judged(STARTUP, judge_startup, Startup, depends_on=()),
        Check("runtime.observation_schema", Level.RUNTIME, _observation_schema, (STARTUP,)),
        judged("runtime.state_contract", judge_state_contract, Surface, Replays),
        judged("runtime.reward_well_formed", judge_reward_well_formed, Replays),
        judged(RUBRIC, judge_rubric_introspectable, Replays),
        judged(
            "runtime.reward_attribution",
            judge_reward_attribution,
            Replays,
            depends_on=(STARTUP, RUBRIC),
        ),
        judged("runtime.reward_contract", judge_reward_contract, Replays),
        judged("runtime.tool_declaration_accuracy", judge_tool_declaration_accuracy, ToolSurvey),
        judged("runtime.task_declaration_accuracy", judge_task_declaration_accuracy, TaskSurvey),
        judged("runtime.seed_control", judge_seed_control, Replays, Resets),
        Check(DETERMINISM, Level.RUNTIME, _determinism, depends_on=(STARTUP,)),
        judged(
            "runtime.episode_isolation",
            judge_episode_isolation,
            Replays,
            depends_on=repeats,
            applies=_is_exact,
        ),
        judged(
            "runtime.session_isolation",
            judge_session_isolation,
            Replays,
            SideBySide,
            depends_on=repeats,
            applies=_is_exact,
        ),
        judged("runtime.trajectory_record", judge_trajectory_record, Recorded),
        judged("runtime.oracle_containment", judge_oracle_containment, Exposure),
        judged(
            "runtime.network_policy", judge_network_policy, Confinement, requires_provider=networked
        ),
        judged(
            "runtime.host_containment",
            judge_host_containment,
            Confinement,
            requires_provider=confined,
        ),
        judged(
            "runtime.resource_bounds",
            judge_resource_bounds,
            Confinement,
            requires_provider=limited,
        ),
        judged("runtime.latency", judge_latency, LoadReport),
        judged("runtime.memory", judge_memory, MemoryReport),
    ]


def _is_exact(manifest: AnyManifest) -> bool:
    """Nothing that judges says another thing each time."""
    return not manifest.capabilities.llm_judged


def _observation_schema(subject: Subject) -> CheckResult:
    """What the server tells of itself is judged even where nothing could be played."""
    check_id = "runtime.observation_schema"
    surface, replays = subject.evidence.get(Surface), subject.evidence.get(Replays)
    if surface is not None and replays is None and not surface.action_space.forms:
        return judge_observation_schema(check_id, subject.manifest, surface, None)
    return judged(check_id, judge_observation_schema, Surface, Replays).run(subject)


def _determinism(subject: Subject) -> CheckResult:
    if _is_exact(subject.manifest):
        return judged(DETERMINISM, judge_episode_determinism, Replays).run(subject)
    return judged(DETERMINISM, judge_judged_determinism, Judged).run(subject)
