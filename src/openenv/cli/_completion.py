"""Shell completion of environment and template names."""

from __future__ import annotations

import contextlib


def complete_environments(incomplete: str) -> list[str]:
    """Return the installed environments that match a prefix; none on any error."""
    with contextlib.suppress(Exception):  # errors must not disturb the shell
        from openenv.auto._discovery import get_discovery

        return [name for name in get_discovery().discover() if name.startswith(incomplete)]
    return []


def complete_templates(incomplete: str) -> list[str]:
    """Return the templates of `openenv init` that match a prefix."""
    from openenv.cli._template import TEMPLATES

    return [name for name in TEMPLATES if name.startswith(incomplete)]
