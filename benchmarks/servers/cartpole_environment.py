"""Gymnasium's CartPole for any number of sessions, for `gymnasium_vector.py`."""

from __future__ import annotations

from openenv import create_app
from openenv.wrappers import from_gymnasium

app = create_app(from_gymnasium("CartPole-v1"), max_concurrent_envs=20_000)
