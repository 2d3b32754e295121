"""Resolution of name conflicts between an environment's tools and a harness's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from openenv.tools.types import Tool

__all__ = ["resolve_tool_conflicts"]


def resolve_tool_conflicts(
    env_tools: Sequence[Tool], harness_builtin_tools: Collection[str], prefix: str = "env_"
) -> list[Tool]:
    """Rename the environment's tools that have the name of a tool of the harness.

    Args:
        env_tools: The environment's tools.
        harness_builtin_tools: Names of the harness's own tools.
        prefix: Prefix of the new names.

    Raises:
        ValueError: The new name is taken too.
    """
    taken = {*harness_builtin_tools, *(tool.name for tool in env_tools)}
    resolved = []
    for tool in env_tools:
        if tool.name not in harness_builtin_tools:
            resolved.append(tool)
            continue
        name = f"{prefix}{tool.name}"
        if name in taken:
            raise ValueError(
                f"the tool {tool.name!r} has the name of one of the harness's own, and {name!r} is "
                "taken too; rename the environment's tool, or give another prefix"
            )
        resolved.append(tool.model_copy(update={"name": name}))
    return resolved
