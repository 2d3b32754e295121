"""What a shell completes beside commands, options and files."""

from __future__ import annotations

import contextlib

__all__ = ["environments", "templates"]


def environments(incomplete: str) -> list[str]:
    """The installed environments whose names begin so; none where they cannot be told."""
    with contextlib.suppress(Exception):  # a shell that completes is no place for errors
        from openenv.auto._discovery import get_discovery

        return [name for name in get_discovery().discover() if name.startswith(incomplete)]
    return []


def templates(incomplete: str) -> list[str]:
    """The templates of `openenv init` whose names begin so."""
    from openenv.cli._template import TEMPLATES

    return [name for name in TEMPLATES if name.startswith(incomplete)]
