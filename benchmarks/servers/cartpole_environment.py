"""Gymnasium's CartPole, for any number of sessions: what `gymnasium_vector.py` steps."""

from __future__ import annotations

from openenv import create_app
from openenv.wrappers import from_gymnasium

app = create_app(from_gymnasium("CartPole-v1"), max_concurrent_envs=20_000)
