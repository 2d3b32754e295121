"""Progress reports from inside a tool."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

__all__ = ["REPORTER", "report_progress"]

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]

# The callback for progress and its event loop; None if the agent did not ask for progress.
REPORTER: contextvars.ContextVar[tuple[OnProgress, asyncio.AbstractEventLoop] | None] = (
    contextvars.ContextVar("openenv.tools.reporter", default=None)
)


def report_progress(
    progress: float, total: float | None = None, message: str | None = None
) -> None:
    """Report the progress of the running tool call to the agent, from plain or async code.

    The function returns at once. It does nothing if the agent has not asked for progress or the
    environment runs in a worker process.

    Args:
        progress: Amount of work done; must grow with each report.
        total: Total amount of work, if known.
        message: Description of the current work.
    """
    known = REPORTER.get()
    if known is None:
        return
    report, loop = known
    asyncio.run_coroutine_threadsafe(_report(report, progress, total, message), loop)


async def _report(
    report: OnProgress, progress: float, total: float | None, message: str | None
) -> None:
    await report(progress, total, message)
