"""A Chromium that sessions of a process share.

Sessions take a `Lease`. The browser starts for the first one, and closes with the last one. Each
event loop has a browser of its own, and so has each set of allowed hosts, because Chromium gets the
hosts when it starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import weakref
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import Browser, BrowserContext, CDPSession, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from openenv.errors import OpenEnvError, Refused

__all__ = ["BrowserGone", "BrowserNotFound", "BrowserNotStarted", "LaunchSettings", "Lease"]

logger = logging.getLogger(__name__)

EXECUTABLE, SANDBOX = "BROWSER_EXECUTABLE", "BROWSER_SANDBOX"
NAMES_ON_PATH = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
LAUNCH_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0

# The limit of a page's JavaScript heap; a page beyond the limit only loses its own tab.
MAX_HEAP_MB = 512

ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-domain-reliability",
    "--no-pings",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    f"--js-flags=--max-old-space-size={MAX_HEAP_MB}",
)
# Playwright disables these guards for tests, but they help against many pop-ups and navigations.
GUARDS = ("--disable-popup-blocking", "--disable-ipc-flooding-protection")

FIND_ONE = (
    "install one (Debian: `apt-get install chromium`; anywhere: `playwright install chromium`) or "
    f"name one in {EXECUTABLE}"
)


class BrowserNotFound(OpenEnvError, FileNotFoundError):
    """There is no Chromium on this machine, or none at BROWSER_EXECUTABLE."""


class BrowserNotStarted(OpenEnvError, RuntimeError):
    """Chromium did not start; the message says why, and what may help."""


class BrowserGone(Refused):
    """The browser has died, and the episode is lost. The next reset starts another browser."""

    def __init__(self) -> None:
        super().__init__(
            "the browser of this episode has died, and the episode with it; call reset() to begin "
            "a new one, which starts another browser"
        )


@dataclass(frozen=True)
class LaunchSettings:
    """The settings with which a browser starts. Sessions with equal settings share a browser.

    Attributes:
        resolver_rules: Chromium's ``--host-resolver-rules``.
        executable: The program; None searches for one.
    """

    resolver_rules: str
    executable: str | None = None


def find_executable(playwright: Playwright, named: str | None) -> str | None:
    """Find the browser to start; None is Playwright's own download.

    Raises:
        BrowserNotFound: There is no browser.
    """
    named = named or os.environ.get(EXECUTABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BrowserNotFound(f"{EXECUTABLE} is {named!r}, which is no program; {FIND_ONE}")
        return found
    if Path(playwright.chromium.executable_path).is_file():
        return None
    for name in NAMES_ON_PATH:
        found = shutil.which(name)
        if found is not None:
            return found
    raise BrowserNotFound(f"there is no Chromium on this machine; {FIND_ONE}")


def wants_sandbox() -> bool:
    """Return whether to use Chromium's own sandbox: yes, except as root, where it cannot work.

    Raises:
        BrowserNotStarted: BROWSER_SANDBOX is neither 0 nor 1.
    """
    said = os.environ.get(SANDBOX, "")
    if said not in ("", "0", "1"):
        raise BrowserNotStarted(f"{SANDBOX} is {said!r}; expected 0 or 1")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return said == "1" or (said == "" and not is_root)


@dataclass(eq=False)
class _Shared:
    """A browser with the number of its sessions."""

    settings: LaunchSettings
    starting: asyncio.Task[None] | None = None
    playwright: Playwright | None = None
    browser: Browser | None = None
    line: CDPSession | None = None
    leases: int = 0
    is_gone: bool = False

    async def start(self) -> None:
        self.playwright = playwright = await async_playwright().start()
        executable = find_executable(playwright, self.settings.executable)
        sandbox = wants_sandbox()
        try:
            self.browser = await playwright.chromium.launch(
                executable_path=executable,
                headless=True,
                chromium_sandbox=sandbox,
                args=[*ARGUMENTS, f"--host-resolver-rules={self.settings.resolver_rules}"],
                ignore_default_args=list(GUARDS),
                timeout=LAUNCH_TIMEOUT_S * 1000,
            )
        except PlaywrightError as error:
            raise BrowserNotStarted(_why_not_started(error, executable, sandbox)) from error
        self.browser.on("disconnected", lambda _: self.lose())
        self.line = await self.browser.new_browser_cdp_session()

    def lose(self) -> None:
        """Record that the browser is gone."""
        if not self.is_gone and self.leases:
            logger.warning("the browser has died; %d sessions lose their episode", self.leases)
        self.is_gone = True

    @property
    def is_usable(self) -> bool:
        """Whether the browser runs or is starting."""
        if self.is_gone or _has_failed(self.starting):
            return False
        return self.browser is None or self.browser.is_connected()

    async def close(self) -> None:
        """End the browser and Playwright's own process, within a limit of time."""
        self.is_gone = True
        if self.browser is not None:
            await _within_reason(self.browser.close())
        if self.playwright is not None:
            await _within_reason(self.playwright.stop())


async def _within_reason(ending: Coroutine[Any, Any, None]) -> None:
    try:
        with anyio.fail_after(CLOSE_TIMEOUT_S):
            await ending
    except Exception:  # the process is ending anyway
        logger.warning("a browser did not end in good order", exc_info=True)


def _has_failed(task: asyncio.Task[None] | None) -> bool:
    if task is None or not task.done():
        return False
    return task.cancelled() or task.exception() is not None


def _why_not_started(error: PlaywrightError, executable: str | None, sandbox: bool) -> str:
    program = executable or "Playwright's Chromium"
    if sandbox and "sandbox" in str(error).lower():
        return (
            f"{program} cannot set up its sandbox here. Allow user namespaces (in Docker, by a "
            f"seccomp profile), do not run it as root, or set {SANDBOX}=0 where the container "
            "itself is the fence"
        )
    return f"{program} would not start: {str(error)[:2000]}"


_browsers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[LaunchSettings, _Shared]] = (
    weakref.WeakKeyDictionary()
)


class Lease:
    """A session's right to use a browser, until `release`."""

    def __init__(self, shared: _Shared) -> None:
        self._shared: _Shared | None = shared

    @classmethod
    async def take(cls, settings: LaunchSettings) -> Lease:
        """Take a lease of the browser with these settings, and start one if there is none.

        Raises:
            BrowserNotFound: There is no Chromium on this machine.
            BrowserNotStarted: Chromium did not start.
        """
        shared = _shared(settings)
        lease = cls(shared)
        shared.leases += 1
        try:
            if shared.starting is None:
                shared.starting = asyncio.create_task(shared.start())
            # Other sessions wait for the same start, so a canceled session must not cancel it.
            await asyncio.shield(shared.starting)
        except BaseException:
            await asyncio.shield(lease.release())
            raise
        return lease

    @property
    def settings(self) -> LaunchSettings | None:
        """The browser's settings, or None after the release of the lease."""
        return None if self._shared is None else self._shared.settings

    async def check(self) -> None:
        """Check that the browser and Playwright's process answer.

        Raises:
            BrowserGone: The browser has died, or does not answer.
        """
        shared = self._shared
        if shared is None or shared.line is None or not shared.is_usable:
            raise BrowserGone
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                await shared.line.send("Browser.getVersion")
        except (PlaywrightError, TimeoutError) as error:
            shared.lose()
            raise BrowserGone from error

    async def new_context(self, **arguments: Any) -> BrowserContext:
        """Make a browser context: cookies, storage and pages of its own.

        Raises:
            BrowserGone: The browser has died.
        """
        shared = self._shared
        if shared is None or shared.browser is None or not shared.is_usable:
            raise BrowserGone
        return await shared.browser.new_context(**arguments)

    async def release(self) -> None:
        """End the lease; the last one closes the browser. Safe to repeat."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        shared.leases -= 1
        if shared.leases == 0:
            here = _browsers.get(asyncio.get_running_loop(), {})
            if here.get(shared.settings) is shared:
                del here[shared.settings]  # the next session starts another browser
            if shared.starting is not None:
                await asyncio.wait([shared.starting])
            await shared.close()


def _shared(settings: LaunchSettings) -> _Shared:
    here = _browsers.setdefault(asyncio.get_running_loop(), {})
    shared = here.get(settings)
    if shared is None or not shared.is_usable:
        shared = here[settings] = _Shared(settings)
    return shared
