"""The old path `openenv.core.env_server.web_interface`; written by scripts/mirrors.py."""

from openenv.server.app import create_fastapi_app as create_fastapi_app
from openenv.server.web_interface import create_web_interface_app as create_web_interface_app
from openenv.types import EnvironmentMetadata as EnvironmentMetadata
from openenv.web.about import load_environment_metadata as load_environment_metadata
from openenv.web.episode import ActionLog as ActionLog
from openenv.web.episode import EpisodeState as EpisodeState
from openenv.web.episode import WebInterfaceManager as WebInterfaceManager
from openenv.web.fields import extract_action_fields as _extract_action_fields
from openenv.web.fields import is_chat_env as _is_chat_env
from openenv.web.quick_start import get_quick_start_markdown as get_quick_start_markdown

__all__ = [
    "ActionLog",
    "EnvironmentMetadata",
    "EpisodeState",
    "WebInterfaceManager",
    "_extract_action_fields",
    "_is_chat_env",
    "create_fastapi_app",
    "create_web_interface_app",
    "get_quick_start_markdown",
    "load_environment_metadata",
]
