"""Rewards of a wrapped server, which worker processes import."""

from __future__ import annotations

from openenv.tools import CallToolAction, CallToolObservation


def scored(call: CallToolAction, seen: CallToolObservation) -> float | None:
    if call.tool_name != "add" or seen.error is not None:
        return None
    return float(seen.result["data"]["sum"])


def is_done(call: CallToolAction, seen: CallToolObservation) -> bool:
    return call.tool_name == "add" and bool(seen.result["data"]["sum"] >= 5)
