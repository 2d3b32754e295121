"""The server's web page, on which people play, watch and debug an environment.

    openenv serve my_env --web          # http://localhost:8000/web/

The page is a client of the server: it speaks version 1 of the protocol, and each visitor has
separate sessions. The browser's files are in ``assets``. Above: the CLI. Below: `openenv.server`,
which mounts the routes, and `openenv.execution`. Read ``pages.py`` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.web.about import load_environment_metadata
    from openenv.web.app import create_web_interface_app
    from openenv.web.episode import ActionLog, EpisodeState, WebInterfaceManager
    from openenv.web.pages import add_web_page
    from openenv.web.quick_start import get_quick_start_markdown

__all__ = [
    "ActionLog",
    "EpisodeState",
    "WebInterfaceManager",
    "add_web_page",
    "create_web_interface_app",
    "get_quick_start_markdown",
    "load_environment_metadata",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "openenv.web.describe_page": ["load_environment_metadata"],
        "openenv.web.app": ["create_web_interface_app"],
        "openenv.web.episode": ["ActionLog", "EpisodeState", "WebInterfaceManager"],
        "openenv.web.pages": ["add_web_page"],
        "openenv.web.quick_start": ["get_quick_start_markdown"],
    },
)
