"""The old path `openenv.core.harness.capture.sessions`; written by scripts/mirrors.py."""

from openenv.capture.sessions import CaptureSession as Session
from openenv.capture.sessions import SessionRegistry as SessionRegistry
from openenv.capture.sessions import clean_session_id as clean_session_id
from openenv.capture.sessions import extract_api_key as extract_api_key
from openenv.capture.sessions import extract_harness_session as extract_harness_session
from openenv.capture.sessions import rollout_type_for as rollout_type_for

__all__ = [
    "Session",
    "SessionRegistry",
    "clean_session_id",
    "extract_api_key",
    "extract_harness_session",
    "rollout_type_for",
]
