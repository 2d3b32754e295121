"""The old path `openenv.core.harness.capture`; written by scripts/mirrors.py."""

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.capture.detection import APIType as APIType
    from openenv.capture.detection import detect as detect
    from openenv.capture.export import measure_retokenization_skew as measure_retokenization_skew
    from openenv.capture.export import to_trace_entries as to_trace_entries
    from openenv.capture.export import to_training_trace as to_training_trace
    from openenv.capture.export import to_turn_records as to_turn_records
    from openenv.capture.graph import RolloutGraph as RolloutGraph
    from openenv.capture.graph import TurnNode as TurnNode
    from openenv.capture.probing import LLMReport as LLMReport
    from openenv.capture.probing import require_llm as require_llm
    from openenv.capture.probing import validate_llm as validate_llm
    from openenv.capture.runner import CaptureServer as CaptureServer
    from openenv.capture.upstream import InferenceClient as InferenceClient
    from openenv.capture.upstream import UpstreamError as UpstreamError
    from openenv.core.harness.capture import contract as contract
    from openenv.core.harness.capture import detection as detection
    from openenv.core.harness.capture import export as export
    from openenv.core.harness.capture import graph as graph
    from openenv.core.harness.capture import runner as runner
    from openenv.core.harness.capture import server as server
    from openenv.core.harness.capture import sessions as sessions
    from openenv.core.harness.capture import upstream as upstream
    from openenv.core.harness.capture import validate as validate
else:
    __getattr__, __dir__, __all__ = lazy(__name__, unlisted=["openenv.core.harness.capture"])
