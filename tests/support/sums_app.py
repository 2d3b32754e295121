"""`support.sums`, served."""

from __future__ import annotations

from openenv import create_app
from support.sums import SumAction, SumObservation, SumsEnvironment

app = create_app(SumsEnvironment, SumAction, SumObservation, max_concurrent_envs=16)
