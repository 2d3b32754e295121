"""A proxy in front of a model, which takes down what agents ask it: exact tokens to train on.

The agent is any program that calls a model by OpenAI's, Anthropic's or Google's API. It gets the
proxy's address as its base URL, and as its API key the id of a session, by which its calls are told
from those of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.harness.capture.detection import APIType, detect
    from openenv.harness.capture.export import (
        Rollout,
        export_session,
        measure_retokenization_skew,
        retokenized,
        to_rollouts,
        to_trace_entries,
        to_training_trace,
        to_trl,
        to_turn_records,
        to_verifiers,
    )
    from openenv.harness.capture.files import Recorder, read_sessions
    from openenv.harness.capture.graph import RolloutGraph, TrainingSequence, TurnNode
    from openenv.harness.capture.probing import LLMReport, require_llm, validate_llm
    from openenv.harness.capture.programs import (
        AgentFailed,
        ProgramSession,
        ProgramSessionFactory,
        run_program,
    )
    from openenv.harness.capture.runner import CaptureServer
    from openenv.harness.capture.server import create_app
    from openenv.harness.capture.sessions import FailedCall, Session, SessionRegistry
    from openenv.harness.capture.upstream import InferenceClient, UpstreamError

__all__ = [
    "APIType",
    "AgentFailed",
    "CaptureServer",
    "FailedCall",
    "InferenceClient",
    "LLMReport",
    "ProgramSession",
    "ProgramSessionFactory",
    "Recorder",
    "Rollout",
    "RolloutGraph",
    "Session",
    "SessionRegistry",
    "TrainingSequence",
    "TurnNode",
    "UpstreamError",
    "create_app",
    "detect",
    "export_session",
    "measure_retokenization_skew",
    "read_sessions",
    "require_llm",
    "retokenized",
    "run_program",
    "to_rollouts",
    "to_trace_entries",
    "to_training_trace",
    "to_trl",
    "to_turn_records",
    "to_verifiers",
    "validate_llm",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.harness.capture.detection": ["APIType", "detect"],
        "openenv.harness.capture.export": [
            "Rollout",
            "export_session",
            "measure_retokenization_skew",
            "retokenized",
            "to_rollouts",
            "to_trace_entries",
            "to_training_trace",
            "to_trl",
            "to_turn_records",
            "to_verifiers",
        ],
        "openenv.harness.capture.files": ["Recorder", "read_sessions"],
        "openenv.harness.capture.graph": ["RolloutGraph", "TrainingSequence", "TurnNode"],
        "openenv.harness.capture.programs": [
            "AgentFailed",
            "ProgramSession",
            "ProgramSessionFactory",
            "run_program",
        ],
        "openenv.harness.capture.runner": ["CaptureServer"],
        "openenv.harness.capture.server": ["create_app"],
        "openenv.harness.capture.sessions": ["FailedCall", "Session", "SessionRegistry"],
        "openenv.harness.capture.upstream": ["InferenceClient", "UpstreamError"],
        "openenv.harness.capture.probing": ["LLMReport", "require_llm", "validate_llm"],
    },
)
