"""The server's web page, where people play, watch and debug an environment.

    openenv serve my_env --web          # http://localhost:8000/web/

The page is a client of the server: it speaks version 1 of the protocol, and each visitor has
separate sessions. The browser's files are in ``assets``. Above: `openenv.server`, whose
`create_app` mounts the routes, and the CLI. Below: `openenv.execution`. Read ``pages.py`` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.web.about import load_environment_metadata as load_environment_metadata
    from openenv.web.episode import ActionLog as ActionLog
    from openenv.web.episode import EpisodeState as EpisodeState
    from openenv.web.episode import WebInterfaceManager as WebInterfaceManager
    from openenv.web.pages import add_web_page as add_web_page
    from openenv.web.quick_start import get_quick_start_markdown as get_quick_start_markdown
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
