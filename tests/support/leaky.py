"""An environment that raises and logs what it is told, secrets included."""

from __future__ import annotations

import logging
import os
from typing import Any

from pydantic import field_validator

from openenv import Action, EnvClient, Environment, Observation, Refused, State

SECRET = "sk-planted-0123456789"
logger = logging.getLogger("leaky")


class Try(Action):
    """Do something that goes wrong."""

    what: str = "nothing"
    size: int = 0

    @field_validator("what")
    @classmethod
    def _is_known(cls, what: str) -> str:
        if what == "forbidden":
            raise ValueError(f"may not be used with {os.environ['PLANTED_API_KEY']}")
        return what


class Leaky(Environment[Try, Observation, State]):
    """Lets secrets of its process slip into exceptions."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, what: str = "nothing") -> Observation:  # type: ignore[override]
        return _do(what)

    def step(self, action: Try) -> Observation:  # type: ignore[override]
        return _do(action.what)

    @property
    def state(self) -> State:
        return _fail("state") if _STATE_FAILS else State()


_STATE_FAILS: list[bool] = []


class AsyncLeaky(Leaky):
    async def reset(self, what: str = "nothing") -> Observation:  # type: ignore[override]
        return _do(what)

    async def step(self, action: Try) -> Observation:  # type: ignore[override]
        return _do(action.what)


class LeakyFactory(Leaky):
    def __init__(self) -> None:
        _fail("factory")


class RefusingFactory(Leaky):
    def __init__(self) -> None:
        raise Refused("there is no licence")


class LeakyEnv(EnvClient[Try, Observation, State]):
    """A client."""


class Odd(Exception):
    """Cannot be pickled, and takes no text."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(f"{first} {second}")


class Mute(Exception):
    """Cannot say what it is about."""

    def __str__(self) -> str:
        raise RuntimeError(os.environ["PLANTED_API_KEY"])


def _fail(what: str) -> Any:
    secret = os.environ["PLANTED_API_KEY"]
    try:
        raise OSError(f"the inner one of {what}: {secret}")
    except OSError as error:
        raise KeyError(f"{what} of {secret}") from error


def _do(what: str) -> Observation:
    match what:
        case "raise":
            _fail("a step")
        case "odd":
            raise Odd(os.environ["PLANTED_API_KEY"], 2)
        case "mute":
            raise Mute
        case "exit":
            raise SystemExit(os.environ["PLANTED_API_KEY"])
        case "refuse":
            raise Refused("that square is taken")
        case "log":
            logger.warning("my key is %s", os.environ["PLANTED_API_KEY"])
        case "unencodable":
            return Observation(metadata={"value": object()})
    return Observation()
