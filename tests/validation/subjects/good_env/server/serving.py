"""Making the application, of the good environment or of one in which one thing is wrong."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from openenv.server import create_app

from ..models import SignAction, SignObservation, SignState
from .environment import SignpostEnvironment

__all__ = ["application"]


def application(mutant: str | None, variables: Mapping[str, str]) -> Any:
    """The application, on a machine that has these variables."""
    environment, record = SignpostEnvironment, variables.get("OPENENV_RECORD")
    if mutant:
        from .mutants import MUTANTS

        environment = MUTANTS[mutant]()
    if getattr(environment, "RECORDS", True) is False:
        record = None
    return create_app(
        functools.partial(environment, machine=variables),
        SignAction,
        SignObservation,
        env_name="good_env",
        state_cls=SignState,
        record=record,
    )
