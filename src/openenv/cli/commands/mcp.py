"""`openenv mcp`: an environment as an MCP server over standard input and output."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from openenv._internal.logs import set_up_logs
from openenv.cli._console import CommandError, emit
from openenv.cli._options import option, takes_options
from openenv.cli.commands.serve import DEBUG, RECORD, TARGET, load_application, recording_of

if TYPE_CHECKING:
    from openenv.execution.manager import SessionManager


@takes_options
def mcp(
    target: str = TARGET,
    record: Path | None = RECORD,
    debug: bool = DEBUG,
    config: bool = option(
        False,
        help="Print the mcp.json entry for Claude Code, Cursor and similar programs, and exit.",
    ),
) -> None:
    """Serve an environment's tools to an agent as an MCP server over stdin and stdout.

    The program that runs the agent starts this command; for Claude Code, enter: claude mcp add
    my_env -- openenv mcp my_env

    Examples:
        openenv mcp my_env
        openenv mcp my_env --config  # the entry for mcp.json
    """
    if config:
        from openenv.manifest.directories import absolute_target
        from openenv.server.loading import RunsElsewhere, check_runs_here

        try:
            check_runs_here(target)
        except RunsElsewhere as error:
            raise CommandError(error.reason, hint=error.hint) from error
        name = Path(target.partition(":")[0]).resolve().stem or "openenv"
        beside_python = os.path.join(os.path.dirname(sys.executable), "openenv")
        command = shutil.which("openenv") or beside_python
        entry = {"command": command, "args": ["mcp", absolute_target(target)]}
        emit({"mcpServers": {name: entry}})
        return
    sys.path.insert(0, str(Path.cwd()))
    set_up_logs()
    with _printing_elsewhere():
        application = load_application(target, None, recording_of(record), debug)
        from openenv.server.workers import managers_of

        managers = managers_of(application)
    if not managers:
        raise CommandError(
            f"{target} serves no environment",
            hint="name an application made by create_app, or an Environment class",
        )
    import asyncio

    asyncio.run(_serve(managers[0]))


async def _serve(manager: SessionManager) -> None:
    """Serve until stdin ends or a signal arrives, and close the environments in any case.

    A thread that reads stdin cannot be interrupted, except by the end of the process.
    """
    import asyncio

    from openenv.server.mcp.bridge import Bridge

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    told: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        told.append(number)
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    bridge = Bridge(manager)
    serving = asyncio.ensure_future(bridge.serve_stdio())
    stopping = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        else:
            serving.cancel()
    finally:
        with _printing_elsewhere():
            await bridge.aclose()
            await manager.aclose()
    if told:
        signal.signal(told[0], signal.SIG_DFL)
        signal.raise_signal(told[0])


@contextlib.contextmanager
def _printing_elsewhere() -> Iterator[None]:
    """Redirect stdout to stderr, since an environment's output would corrupt the protocol.

    The SDK redirects while it serves; this covers the time before and after.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
