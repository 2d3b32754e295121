"""The runtime level: the package is served and a measured episode is compared (RFC 008, level 2).

`collector.py` plays, `evidence.py` holds what was seen, and the other modules judge it by topic.
Read `collector.py` first.
"""

from __future__ import annotations

from collections.abc import Sequence

from openenv.validation.check_factory import DETERMINISM, STARTUP, make_grader
from openenv.validation.context import Startup
from openenv.validation.graders import FunctionGrader, Grader, Subject
from openenv.validation.load_tests import LoadReport, MemoryReport
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import Judgment
from openenv.validation.runtime.collector import collect_runtime
from openenv.validation.runtime.evidence import (
    ConcurrentSessions,
    Confinement,
    JudgedReplays,
    Replays,
    SeedTrials,
    ServerSurface,
    SubjectRecording,
    TaskSurvey,
    ToolSurvey,
)
from openenv.validation.runtime.exposure import Exposure
from openenv.validation.runtime.limits import (
    judge_host_containment,
    judge_latency,
    judge_memory,
    judge_network_policy,
    judge_oracle_containment,
    judge_resource_bounds,
)
from openenv.validation.runtime.protocol import (
    judge_observation_schema,
    judge_startup,
    judge_state_contract,
    judge_task_declaration_accuracy,
    judge_tool_declaration_accuracy,
    judge_trajectory_record,
)
from openenv.validation.runtime.reproducibility import (
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
from openenv.validation.types import Level, ProviderCapability

__all__ = ["collect_runtime", "runtime_checks"]

OBSERVATIONS, RUBRIC = "runtime.observation_schema", "runtime.rubric_introspectable"


def runtime_checks() -> Sequence[Grader]:
    """Return the graders of this level, those of RFC 008 and ours."""
    confined = frozenset({ProviderCapability.CONTAINMENT, ProviderCapability.EXEC})
    networked = frozenset({ProviderCapability.NETWORK_POLICY, ProviderCapability.EXEC})
    limited = frozenset({ProviderCapability.RESOURCE_LIMITS, ProviderCapability.EXEC})
    repeats = (STARTUP, DETERMINISM)
    return [
        make_grader(STARTUP, judge_startup, Startup, depends_on=()),
        FunctionGrader(
            "runtime.observation_schema", Level.RUNTIME, _observation_schema, (STARTUP,)
        ),
        make_grader("runtime.state_contract", judge_state_contract, ServerSurface, Replays),
        make_grader("runtime.reward_well_formed", judge_reward_well_formed, Replays),
        make_grader(RUBRIC, judge_rubric_introspectable, Replays),
        make_grader(
            "runtime.reward_attribution",
            judge_reward_attribution,
            Replays,
            depends_on=(STARTUP, RUBRIC),
        ),
        make_grader("runtime.reward_contract", judge_reward_contract, Replays),
        make_grader(
            "runtime.tool_declaration_accuracy", judge_tool_declaration_accuracy, ToolSurvey
        ),
        make_grader(
            "runtime.task_declaration_accuracy", judge_task_declaration_accuracy, TaskSurvey
        ),
        make_grader("runtime.seed_control", judge_seed_control, Replays, SeedTrials),
        FunctionGrader(DETERMINISM, Level.RUNTIME, _determinism, depends_on=(STARTUP,)),
        make_grader(
            "runtime.episode_isolation",
            judge_episode_isolation,
            Replays,
            depends_on=repeats,
            applies=_is_exact,
        ),
        make_grader(
            "runtime.session_isolation",
            judge_session_isolation,
            Replays,
            ConcurrentSessions,
            depends_on=repeats,
            applies=_is_exact,
        ),
        make_grader("runtime.trajectory_record", judge_trajectory_record, SubjectRecording),
        make_grader("runtime.oracle_containment", judge_oracle_containment, Exposure),
        make_grader(
            "runtime.network_policy", judge_network_policy, Confinement, requires_provider=networked
        ),
        make_grader(
            "runtime.host_containment",
            judge_host_containment,
            Confinement,
            requires_provider=confined,
        ),
        make_grader(
            "runtime.resource_bounds",
            judge_resource_bounds,
            Confinement,
            requires_provider=limited,
        ),
        make_grader("runtime.latency", judge_latency, LoadReport),
        make_grader("runtime.memory", judge_memory, MemoryReport),
    ]


def _is_exact(manifest: AnyManifest) -> bool:
    """Return whether no language model judges, so that results repeat exactly."""
    return not manifest.capabilities.llm_judged


def _observation_schema(subject: Subject) -> Judgment:
    """Judge the server's own schema even if nothing could be played."""
    surface, replays = subject.evidence.get(ServerSurface), subject.evidence.get(Replays)
    if surface is not None and replays is None and not surface.action_space.forms:
        return judge_observation_schema(subject.manifest, surface, None)
    grader = make_grader(OBSERVATIONS, judge_observation_schema, ServerSurface, Replays)
    return grader.judge(subject)


def _determinism(subject: Subject) -> Judgment:
    if _is_exact(subject.manifest):
        return make_grader(DETERMINISM, judge_episode_determinism, Replays).judge(subject)
    return make_grader(DETERMINISM, judge_judged_determinism, JudgedReplays).judge(subject)
