"""Applications, served from this file, whose environments note in a directory what they do."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from openenv import create_app
from openenv.server import HTTPEnvServer
from support.environments import Counter, Do, Seen

DIRECTORY = "NOTES_OF_ENVIRONMENTS"


def note(word: str) -> None:
    (Path(os.environ[DIRECTORY]) / f"{word}.{uuid.uuid4()}").touch()


def notes(directory: Path) -> list[str]:
    """The words noted there, in the order of the alphabet."""
    return sorted(path.stem for path in directory.iterdir())


class Noted(Counter):
    """Notes its steps and its end. It hangs in a step that says "hang", or "hang at close"."""

    hangs_at_close = False

    def step(self, action: Do, *more: Any, **arguments: Any) -> Seen:
        note("begun")
        if action.what == "hang":
            threading.Event().wait()
        self.hangs_at_close = action.what == "hang at close"
        seen = super().step(action, *more, **arguments)
        note("stepped")
        return seen

    def close(self) -> None:
        note("closed")
        if self.hangs_at_close:
            threading.Event().wait()


app = create_app(Noted)


@contextlib.asynccontextmanager
async def noting(app: FastAPI) -> AsyncIterator[None]:
    note("up")
    yield
    note("down")


with_lifespan = FastAPI(lifespan=noting)
HTTPEnvServer(Noted).register_routes(with_lifespan)

mounted = create_app(Noted)


@contextlib.asynccontextmanager
async def of_the_mounted(app: FastAPI) -> AsyncIterator[None]:
    async with mounted.router.lifespan_context(mounted):
        yield


mounting = FastAPI(lifespan=of_the_mounted)
mounting.mount("/env", mounted)
