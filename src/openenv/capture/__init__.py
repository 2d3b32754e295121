"""A proxy in front of a model, which takes down what agents ask it: exact tokens to train on.

The agent is any program that calls a model by OpenAI's, Anthropic's or Google's API. It gets the
proxy's address as its base URL, and as its API key the id of a session, by which its calls are told
from those of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.capture.detection import APIType, detect
    from openenv.capture.export import (
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
    from openenv.capture.files import Recorder, read_sessions
    from openenv.capture.graph import RolloutGraph, TrainingSequence, TurnNode
    from openenv.capture.probing import LLMReport, require_llm, validate_llm
    from openenv.capture.programs import (
        AgentFailed,
        ProgramSession,
        ProgramSessionFactory,
        run_program,
    )
    from openenv.capture.runner import CaptureServer
    from openenv.capture.server import create_app
    from openenv.capture.sessions import FailedCall, Session, SessionRegistry
    from openenv.capture.upstream import InferenceClient, UpstreamError

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
        "openenv.capture.detection": ["APIType", "detect"],
        "openenv.capture.export": [
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
        "openenv.capture.files": ["Recorder", "read_sessions"],
        "openenv.capture.graph": ["RolloutGraph", "TrainingSequence", "TurnNode"],
        "openenv.capture.programs": [
            "AgentFailed",
            "ProgramSession",
            "ProgramSessionFactory",
            "run_program",
        ],
        "openenv.capture.runner": ["CaptureServer"],
        "openenv.capture.server": ["create_app"],
        "openenv.capture.sessions": ["FailedCall", "Session", "SessionRegistry"],
        "openenv.capture.upstream": ["InferenceClient", "UpstreamError"],
        "openenv.capture.probing": ["LLMReport", "require_llm", "validate_llm"],
    },
)
