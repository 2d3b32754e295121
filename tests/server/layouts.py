"""Directories of environments, laid out as people lay them out.

Each layout maps file names to text. `FLAT` are those that ``uvicorn server.app:app`` serves when it
is started in the directory; `PACKAGES` are imported by the name of the directory, so that uvicorn
is started beside it; `NO_APP` have no application that uvicorn could name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

__all__ = ["DIRECTORIES", "FLAT", "LAYOUTS", "NO_APP", "PACKAGES", "write_layout"]

Files = Mapping[str, str]

MANIFEST = "spec_version: 1\nname: duel\ntype: space\nruntime: fastapi\napp: server.app:app\n"
MODELS = """
    from openenv.core.env_server.types import Action, Observation
    class DuelAction(Action):
        shoot: bool = False
    class DuelObservation(Observation):
        hit: bool = False
    """
GAME = """
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import State
    {models}
    {more}
    class Duel(Environment):
        def __init__(self):
            super().__init__()
            self._state = State()
        def reset(self, seed=None, episode_id=None, **kwargs):
            return DuelObservation()
        def step(self, action: DuelAction, timeout_s=None, **kwargs) -> DuelObservation:
            assert type(action) is DuelAction
            return DuelObservation(hit=action.shoot, reward=1.0)
        @property
        def state(self):
            return self._state
    """
APP = """
    from openenv.core.env_server.http_server import create_app
    {models}
    {game}
    app = create_app(Duel, DuelAction, DuelObservation, env_name="duel")
    """
CLIENT = """
    from openenv.core.env_client import EnvClient
    {models}
    class DuelEnv(EnvClient):
        def _step_payload(self, action): return action.model_dump()
        def _parse_result(self, payload): return payload
        def _parse_state(self, payload): return payload
    """
OFFERED = (
    "try:\n    from {package} import {names}\nexcept ImportError:\n    from {flat} import {names}\n"
)
NAMES = "DuelAction, DuelObservation"


def source(template: str, **parts: str) -> str:
    """Fill in a template; what is put in may have several lines."""
    text = textwrap.dedent(template)
    for name in ("models", "game", "more"):
        text = text.replace(f"{{{name}}}", parts.get(name, ""))
    return text


def files(
    models: str = f"from models import {NAMES}",
    game: str = "from server.duel import Duel",
    more: str = "",
    **others: str | None,
) -> Files:
    """The files of a layout; `others` are further ones, or None for one that it has not."""
    made: dict[str, str | None] = {
        "openenv.yaml": MANIFEST,
        "models.py": source(MODELS),
        "server/__init__.py": "",
        "server/duel.py": source(GAME, models=models, more=more),
        "server/app.py": source(APP, models=models, game=game),
    }
    made |= {name.replace("__", "/"): text for name, text in others.items()}
    return {name: text for name, text in made.items() if text is not None}


def offered(package: str, flat: str, names: str) -> str:
    return OFFERED.format(package=package, flat=flat, names=names)


def with_files(base: Files, extra: Files) -> Files:
    return {**base, **extra}


def without(base: Files, *names: str) -> Files:
    return {name: text for name, text in base.items() if name not in names}


FLAT_FILES = files()
OFFICIAL = files(
    models=offered("..models", "models", NAMES),
    game=offered(".duel", "server.duel", "Duel"),
)
RELATIVE = files(models=f"from ..models import {NAMES}", game="from .duel import Duel")
INSERTS = """\
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
"""

FLAT: dict[str, Files] = {
    "no __init__.py": FLAT_FILES,
    "an empty __init__.py": with_files(FLAT_FILES, {"__init__.py": ""}),
    "server without __init__.py": without(FLAT_FILES, "server/__init__.py"),
    "no openenv.yaml": without(FLAT_FILES, "openenv.yaml"),
    "a sibling by one dot": files(game="from .duel import Duel"),
    "models in server": {
        **without(
            files(models=f"from .models import {NAMES}", game="from .duel import Duel"), "models.py"
        ),
        "server/models.py": source(MODELS),
    },
    "models as a package": {
        **without(FLAT_FILES, "models.py"),
        "models/__init__.py": (
            "from models.action import DuelAction\nfrom models.seen import DuelObservation\n"
        ),
        "models/action.py": source(MODELS),
        "models/seen.py": "from models.action import DuelObservation\n",
    },
    "it changes sys.path itself": files(models=f"{INSERTS}from models import {NAMES}"),
    "imports in functions": files(
        more="def late():\n    from models import DuelAction\n    return DuelAction"
    ),
    "a file beside it is read": with_files(
        files(more="WORDS = open('data/words.txt').read()"), {"data/words.txt": "bang"}
    ),
    "the official template": with_files(
        OFFICIAL,
        {
            "__init__.py": f"from .client import DuelEnv\nfrom .models import {NAMES}\n",
            "client.py": source(CLIENT, models=f"from .models import {NAMES}"),
        },
    ),
    "the official template without __init__.py": OFFICIAL,
    "a flat client": with_files(
        FLAT_FILES,
        {
            "__init__.py": "from client import DuelEnv\n",
            "client.py": source(CLIENT, models=f"from models import {NAMES}"),
        },
    ),
    "an __init__.py that needs what is not there": with_files(
        FLAT_FILES, {"__init__.py": "from models import DuelAction\nimport trainer_of_theirs\n"}
    ),
    "a library of its name": with_files(
        files(more="from chess import Board"), {"openenv.yaml": MANIFEST.replace("duel", "chess")}
    ),
    "helpers of common names": with_files(
        files(more="import utils, config\nassert utils.WIDTH + config.HEIGHT == 3"),
        {"utils.py": "WIDTH = 1\n", "config.py": "HEIGHT = 2\n"},
    ),
}

PACKAGES: dict[str, Files] = {
    "relative imports": with_files(RELATIVE, {"__init__.py": ""}),
    "relative imports without __init__.py": RELATIVE,
    "by its own name": with_files(
        files(models=f"from duel.models import {NAMES}", game="from duel.server.duel import Duel"),
        {"__init__.py": ""},
    ),
    "both ways": with_files(
        files(
            models=f"from ..models import {NAMES}",
            game="from .duel import Duel",
            more="import utils",
        ),
        {"__init__.py": "", "utils.py": ""},
    ),
    "by the name of the directory": {
        **files(
            models=f"from duel.models import {NAMES}", game="from duel.server.duel import Duel"
        ),
        "openenv.yaml": MANIFEST.replace("name: duel", "name: the-duel"),
        "__init__.py": f"from .models import {NAMES}\n",
    },
}

NO_APP: dict[str, Files] = {
    "the tutorial: server/environment.py": {
        **without(FLAT_FILES, "server/app.py", "server/duel.py"),
        "server/environment.py": FLAT_FILES["server/duel.py"],
        "Dockerfile": "FROM python:3.12-slim\n",
    },
    "an environment.py at the root": {
        "openenv.yaml": MANIFEST,
        "models.py": source(MODELS),
        "environment.py": source(GAME, models=f"from models import {NAMES}"),
    },
}

LAYOUTS = {**FLAT, **PACKAGES, **NO_APP}

DIRECTORIES = {"a library of its name": "chess"}
"""The name of the directory, where it is not ``duel``."""


def write_layout(name: str, home: Path) -> Path:
    """Write a layout into a directory below `home`, which it returns."""
    directory = home / DIRECTORIES.get(name, "duel")
    for file, text in LAYOUTS[name].items():
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory
