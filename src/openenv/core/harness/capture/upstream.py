"""The old path `openenv.core.harness.capture.upstream`; written by scripts/mirrors.py."""

from openenv.capture.upstream import CAPTURE_LEVELS as CAPTURE_LEVELS
from openenv.capture.upstream import InferenceClient as InferenceClient
from openenv.capture.upstream import UpstreamError as UpstreamError
from openenv.capture.upstream import UpstreamHTTPError as UpstreamHTTPError
from openenv.capture.upstream import UpstreamRequestError as UpstreamRequestError
from openenv.capture.upstream import UpstreamTimeoutError as UpstreamTimeoutError
from openenv.capture.upstream import UpstreamTransportError as UpstreamTransportError
from openenv.capture.upstream import auth_headers as auth_headers
from openenv.capture.upstream import openai_api_base as openai_api_base
from openenv.rollouts.harness.training import training_sampling as training_sampling

__all__ = [name for name in dir() if not name.startswith("__")]  # pyright: ignore[reportUnsupportedDunderAll]
