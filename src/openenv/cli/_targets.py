"""Hints for unknown targets."""

from __future__ import annotations

from openenv.cli._console import did_you_mean


def target_hint(target: str) -> str:
    """Suggest the intended target, or a way to list the environments."""
    from openenv.auto._discovery import get_discovery
    from openenv.server.loading import TARGET_SCHEMES

    scheme, colon, rest = target.partition(":")
    if colon:
        meant = did_you_mean(scheme, [*TARGET_SCHEMES, "docker", "http", "https"])
        return meant.replace("?", f":{rest}?") if meant else _LISTED
    found = get_discovery().discover()
    return did_you_mean(target, [*found, *(info.module for info in found.values())]) or _LISTED


_LISTED = "`openenv info` lists the environments that are installed"
