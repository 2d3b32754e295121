"""Waiting until a server answers, or has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.proxies import proxy_for
from openenv._internal.redaction import redact
from openenv.errors import ProviderTimeout

LOG_TAIL_LINES = 30
HEALTH_TIMEOUT_S = 2.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.25


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float,
    what: str,
    check_running: Callable[[], None],
    logs: Callable[[int], str],
) -> None:
    """Wait until a condition on a server holds.

    Args:
        condition: Returns whether the wait is over.
        timeout_s: Maximum waiting time in seconds.
        what: What the server is expected to do, for the error message.
        check_running: Raises an error if the server has ended.
        logs: Returns the last lines of the server's output.

    Raises:
        ProviderTimeout: The condition did not hold within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    pause = FIRST_PAUSE_S
    while not condition():
        check_running()
        if time.monotonic() > deadline:
            raise ProviderTimeout(
                f"the server did not {what} within {timeout_s:g} s",
                logs=redact(logs(LOG_TAIL_LINES)),
            )
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE_S)
    check_running()  # the answer may have come from another server


def wait_until_healthy(
    base_url: str,
    timeout_s: float,
    check_running: Callable[[], None],
    logs: Callable[[int], str],
) -> None:
    """Wait until `/health` answers with status 200; raises the errors of `wait_until`."""
    patience = min(timeout_s, HEALTH_TIMEOUT_S)
    proxy = proxy_for(base_url)
    by = "" if proxy is None else f" through {proxy} ({proxy.hint})"
    what = f"answer at {base_url}/health{by}"
    wait_until(lambda: is_healthy(base_url, patience), timeout_s, what, check_running, logs)


def is_healthy(base_url: str, timeout_s: float) -> bool:
    """Return whether a server answers 200 at `/health`."""
    try:
        return ask(f"{base_url}/health", timeout_s=timeout_s).status == 200
    except FAILURES:
        return False
