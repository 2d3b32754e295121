"""The runtime level: serves the package and compares a measured episode (RFC 008, level 2).

`collector.py` plays, `evidence.py` defines the evidence, and the other modules judge the evidence
by topic. Read `collector.py` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openenv.validation.evidence import Transcript
from openenv.validation.graders import (
    DETERMINISM,
    STARTUP,
    FunctionGrader,
    Grader,
    Subject,
    make_grader,
)
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import Judgment
from openenv.validation.runtime import limits, protocol, reproducibility, rewards
from openenv.validation.runtime.collector import collect_runtime
from openenv.validation.runtime.evidence import Replays, ServerSurface
from openenv.validation.types import Level
from openenv.validation.types import ProviderCapability as Can

__all__ = ["collect_runtime", "runtime_checks"]

OBSERVATIONS, RUBRIC = "runtime.observation_schema", "runtime.rubric_introspectable"


def runtime_checks() -> Sequence[Grader]:
    """Return the graders of this level: those of RFC 008 and our own."""

    def probe(check_id: str, judge: Callable[..., Judgment], capability: Can) -> Grader:
        needed = frozenset({capability, Can.EXEC})
        return make_grader(check_id, judge, requires_provider=needed)

    def compare(check_id: str, judge: Callable[..., Judgment]) -> Grader:
        return make_grader(check_id, judge, depends_on=(STARTUP, DETERMINISM), applies=_is_exact)

    return [
        make_grader(STARTUP, protocol.judge_startup, depends_on=()),
        FunctionGrader(OBSERVATIONS, Level.RUNTIME, _observation_schema, (STARTUP,)),
        make_grader("runtime.state_contract", protocol.judge_state_contract),
        make_grader("runtime.reward_well_formed", rewards.judge_reward_well_formed),
        make_grader(RUBRIC, rewards.judge_rubric_introspectable),
        make_grader(
            "runtime.reward_attribution",
            rewards.judge_reward_attribution,
            depends_on=(STARTUP, RUBRIC),
        ),
        make_grader("runtime.reward_contract", rewards.judge_reward_contract),
        make_grader("runtime.tool_declaration_accuracy", protocol.judge_tool_declaration_accuracy),
        make_grader("runtime.task_declaration_accuracy", protocol.judge_task_declaration_accuracy),
        make_grader("runtime.seed_control", reproducibility.judge_seed_control),
        FunctionGrader(DETERMINISM, Level.RUNTIME, _determinism, depends_on=(STARTUP,)),
        compare("runtime.episode_isolation", reproducibility.judge_episode_isolation),
        compare("runtime.session_isolation", reproducibility.judge_session_isolation),
        make_grader("runtime.trajectory_record", protocol.judge_trajectory_record),
        make_grader("runtime.oracle_containment", limits.judge_oracle_containment),
        probe("runtime.network_policy", limits.judge_network_policy, Can.NETWORK_POLICY),
        probe("runtime.host_containment", limits.judge_host_containment, Can.CONTAINMENT),
        probe("runtime.resource_bounds", limits.judge_resource_bounds, Can.RESOURCE_LIMITS),
        make_grader("runtime.latency", limits.judge_latency),
        make_grader("runtime.memory", limits.judge_memory),
    ]


def _is_exact(manifest: AnyManifest) -> bool:
    """Return whether no language model scores, so that results repeat exactly."""
    return not manifest.capabilities.llm_judged


def _observation_schema(subject: Subject) -> Judgment:
    """Judge the server's schema even if no episode could be played."""
    surface, replays = subject.evidence.get(ServerSurface), subject.evidence.get(Replays)
    if surface is not None and replays is None and not surface.action_space.forms:
        nothing = Replays(Transcript(), Transcript(), Transcript())
        return protocol.judge_observation_schema(subject.manifest, surface, nothing)
    return make_grader(OBSERVATIONS, protocol.judge_observation_schema).judge(subject)


def _determinism(subject: Subject) -> Judgment:
    judge = (
        reproducibility.judge_episode_determinism
        if _is_exact(subject.manifest)
        else reproducibility.judge_judged_determinism
    )
    return make_grader(DETERMINISM, judge).judge(subject)
