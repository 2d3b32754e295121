"""The names of an environment's tools beside those that a harness has by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from openenv.tools.types import Tool

__all__ = ["resolve_tool_conflicts"]


def resolve_tool_conflicts(
    env_tools: Sequence[Tool], harness_builtin_tools: Collection[str], prefix: str = "env_"
) -> list[Tool]:
    """The environment's tools, those under another name that the harness has one of itself.

    Args:
        env_tools: The environment's tools.
        harness_builtin_tools: The names of the harness's own.
        prefix: What such a tool's name begins with then.

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
                f"the tool {tool.name!r} is called as one of the harness's own, and {name!r} is "
                "taken too; rename the environment's tool, or give another prefix"
            )
        resolved.append(tool.model_copy(update={"name": name}))
    return resolved
