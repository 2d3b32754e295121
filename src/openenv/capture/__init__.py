"""A proxy in front of a model that records agents' calls, with the exact tokens to train on.

The agent is any program that calls a model through OpenAI's, Anthropic's or Google's API. It gets
the proxy's address as its base URL, and a session id as its API key. The session id separates its
calls from those of other agents.

Below: `rollouts.harness` (training traces, sessions) and `agents` (the MCP bridge). Above: `cli`
and trainers. Read `server.py` first (the path of a call), then `graph.py` (how calls form
conversations) and `export.py` (training data).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.capture.detection import APIType as APIType
    from openenv.capture.detection import detect as detect
    from openenv.capture.export import CapturedRollout as CapturedRollout
    from openenv.capture.export import export_session as export_session
    from openenv.capture.export import measure_retokenization_skew as measure_retokenization_skew
    from openenv.capture.export import retokenize as retokenize
    from openenv.capture.export import to_rollouts as to_rollouts
    from openenv.capture.export import to_trace_entries as to_trace_entries
    from openenv.capture.export import to_training_trace as to_training_trace
    from openenv.capture.export import to_trl as to_trl
    from openenv.capture.export import to_turn_records as to_turn_records
    from openenv.capture.export import to_verifiers as to_verifiers
    from openenv.capture.files import Recorder as Recorder
    from openenv.capture.files import read_sessions as read_sessions
    from openenv.capture.graph import RolloutGraph as RolloutGraph
    from openenv.capture.graph import TrainingSequence as TrainingSequence
    from openenv.capture.graph import TurnNode as TurnNode
    from openenv.capture.probing import LLMReport as LLMReport
    from openenv.capture.probing import require_llm as require_llm
    from openenv.capture.probing import validate_llm as validate_llm
    from openenv.capture.programs import AgentFailed as AgentFailed
    from openenv.capture.programs import ProgramSession as ProgramSession
    from openenv.capture.programs import ProgramSessionFactory as ProgramSessionFactory
    from openenv.capture.programs import run_program as run_program
    from openenv.capture.runner import CaptureServer as CaptureServer
    from openenv.capture.server import create_app as create_app
    from openenv.capture.sessions import CaptureSession as CaptureSession
    from openenv.capture.sessions import FailedCall as FailedCall
    from openenv.capture.sessions import SessionRegistry as SessionRegistry
    from openenv.capture.upstream import InferenceClient as InferenceClient
    from openenv.capture.upstream import UpstreamError as UpstreamError
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
