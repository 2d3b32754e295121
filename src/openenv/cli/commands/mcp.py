"""`openenv mcp`: an environment as an MCP server over standard input and output."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openenv._children import absolute_target
from openenv._logs import set_up_logs
from openenv.cli._console import CommandError, emit
from openenv.cli.commands.serve import Debug, Record, Target, load_application, recording_of

if TYPE_CHECKING:
    from openenv.sessions.manager import SessionManager

__all__ = ["mcp"]


def mcp(
    target: Target = ".",
    record: Record = None,
    debug: Debug = False,
    config: Annotated[
        bool,
        typer.Option(
            "--config",
            help="Print what Claude Code, Cursor and the like want in their mcp.json, and exit.",
        ),
    ] = False,
) -> None:
    """Be an MCP server for one agent, over standard input and output.

    Its tools are the environment's. It is started by whoever runs the agent:

        claude mcp add my_env -- openenv mcp my_env
    """
    if config:
        emit({"mcpServers": {_name(target): _entry(target)}})
        return
    sys.path.insert(0, str(Path.cwd()))
    set_up_logs()
    # What the environment prints would be taken for the protocol.
    with contextlib.redirect_stdout(sys.stderr):
        application = load_application(target, None, recording_of(record), debug)
        from openenv.server.workers import managers_of

        managers = managers_of(application)
    if not managers:
        raise CommandError(
            f"{target} serves no environment",
            hint="name an application made by create_app, or an Environment class",
        )
    import asyncio

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(managers[0]))


async def _serve(manager: SessionManager) -> None:
    from openenv.mcp.bridge import Bridge

    try:
        await Bridge(manager).serve_stdio()
    finally:
        await manager.aclose()


def _name(target: str) -> str:
    return Path(target.partition(":")[0]).resolve().stem or "openenv"


def _entry(target: str) -> dict[str, object]:
    command = shutil.which("openenv") or os.path.join(os.path.dirname(sys.executable), "openenv")
    return {"command": command, "args": ["mcp", absolute_target(target)]}
