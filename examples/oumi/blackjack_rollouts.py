"""Blackjack for Oumi's registry; see `registry.txt`."""

from __future__ import annotations

import os

from openenv.integrations.oumi import register

register(
    "blackjack",
    environment=os.environ.get("OPENENV_ADDRESS", "http://localhost:8000"),
    max_turns=8,
)
