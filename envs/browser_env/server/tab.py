"""A tab with its page, and the page's activity."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import anyio
from playwright.async_api import CDPSession, Page
from playwright.async_api import Error as PlaywrightError

from .scripts import script

__all__ = ["POLL_S", "Activity", "Tab"]

CLOSE_TIMEOUT_S = 5.0
STILL_WITHIN_S = 1.0
POLL_S = 0.01

WORLD = "openenv"
# Connections that stay open do not show whether a page is ready.
LASTING = frozenset({"EventSource", "WebSocket", "Ping", "Media", "Prefetch"})


class Activity:
    """The loads and requests of a page, from Chromium's own events (Chrome DevTools Protocol).

    Events and answers of one session come in the order of their causes. So after an answer, all
    loads that the page began before are known.
    """

    def __init__(self, cdp: CDPSession) -> None:
        self._cdp = cdp
        self._main_frame = ""
        self._loading: set[str] = set()
        self._requests: dict[str, str] = {}

    @classmethod
    async def of(cls, page: Page, expect_popup: Callable[[], None]) -> Activity:
        """Start to listen to a page; `expect_popup` is called when the page opens a window."""
        cdp = await page.context.new_cdp_session(page)
        activity = cls(cdp)
        activity._listen(expect_popup)
        await cdp.send("Page.enable")
        await cdp.send("Network.enable", {"maxTotalBufferSize": 0})
        frames = await cdp.send("Page.getFrameTree")
        activity._main_frame = frames["frameTree"]["frame"]["id"]
        return activity

    def _listen(self, expect_popup: Callable[[], None]) -> None:
        def opened(event: dict[str, Any]) -> None:
            if event.get("userGesture"):  # the popup blocker stops the others
                expect_popup()

        listeners: dict[str, Callable[[dict[str, Any]], None]] = {
            "Page.frameStartedLoading": lambda event: self._loading.add(event["frameId"]),
            "Page.frameStoppedLoading": lambda event: self._loading.discard(event["frameId"]),
            "Page.frameDetached": lambda event: self._loading.discard(event["frameId"]),
            "Page.frameNavigated": self._navigated,
            "Page.windowOpen": opened,
            "Network.requestWillBeSent": self._requested,
            "Network.loadingFinished": lambda event: self._ended(event["requestId"]),
            "Network.loadingFailed": lambda event: self._ended(event["requestId"]),
        }
        for name, listener in listeners.items():
            self._cdp.on(name, listener)

    def _requested(self, event: dict[str, Any]) -> None:
        if event.get("type") not in LASTING:
            self._requests[event["requestId"]] = event["loaderId"]

    def _ended(self, request: str) -> None:
        self._requests.pop(request, None)

    def _navigated(self, event: dict[str, Any]) -> None:
        """Forget the requests of the previous document, whose ends are not always reported."""
        frame = event["frame"]
        if "parentId" not in frame:
            kept = frame["loaderId"]
            self._requests = {id: by for id, by in self._requests.items() if by == kept}

    @property
    def is_idle(self) -> bool:
        """Whether nothing loads and no request is open."""
        return not self._loading and not self._requests

    async def evaluate(self, source: str) -> Any:
        """Evaluate our script in a world of the page that the page's own scripts cannot reach.

        Raises:
            PlaywrightError: The script failed, or the page has navigated meanwhile.
        """
        world = await self._cdp.send(
            "Page.createIsolatedWorld", {"frameId": self._main_frame, "worldName": WORLD}
        )
        answer = await self._cdp.send(
            "Runtime.evaluate",
            {
                "expression": source,
                "contextId": world["executionContextId"],
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        if "exceptionDetails" in answer:
            raise PlaywrightError(str(answer["exceptionDetails"].get("text", "it failed")))
        return answer["result"].get("value")

    async def stop_loading(self) -> None:
        """Stop loading, like the browser's stop button."""
        with contextlib.suppress(PlaywrightError):  # the page is navigating
            await self._cdp.send("Page.stopLoading")

    async def hold_still(self) -> None:
        """Finish loading with scripts disabled, so that no further page loads.

        This takes at most `STILL_WITHIN_S`.
        """
        await self._cdp.send("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            await self.stop_loading()
            with anyio.move_on_after(STILL_WITHIN_S):
                while not self.is_idle:  # noqa: ASYNC110  # several events change it
                    await anyio.sleep(POLL_S)
        finally:
            await self._cdp.send("Emulation.setScriptExecutionDisabled", {"value": False})

    async def go_in_history(self, by: int) -> bool:
        """Go forward or back in the history, and return whether it has that many pages."""
        history = await self._cdp.send("Page.getNavigationHistory")
        entries, place = history["entries"], history["currentIndex"] + by
        if not 0 <= place < len(entries) or entries[place]["url"] == "about:blank":
            return False
        await self._cdp.send("Page.navigateToHistoryEntry", {"entryId": entries[place]["id"]})
        return True


class Tab:
    """A tab, whose page may have been ended.

    Args:
        page: The page.
        patience_s: Seconds without an answer after which a page counts as hung.

    Attributes:
        page: The page; closed if there is trouble.
        trouble: The reason why the page was ended, or empty.
        url: The address at the latest observation.
        title: The title at the latest observation.
        is_silent: Whether the page has not answered the latest request.
        has_hung: Whether the page has not answered for `patience_s`.
    """

    def __init__(self, page: Page, patience_s: float) -> None:
        self.page = page
        self._patience_s = patience_s
        self.trouble = ""
        self.url = page.url
        self.title = ""
        self._activity: Activity | None = None
        self.is_silent = False
        self.has_hung = False

    async def attach(self, expect_popup: Callable[[], None]) -> None:
        """Start to listen to the page."""
        self._activity = await Activity.of(self.page, expect_popup)

    @property
    def is_live(self) -> bool:
        """Whether the tab has a running page."""
        return not self.trouble and not self.page.is_closed()

    @property
    def activity(self) -> Activity:
        """The loads and requests of the page.

        Raises:
            PlaywrightError: The tab is not attached yet.
        """
        if self._activity is None:
            raise PlaywrightError("the tab is only just opening")
        return self._activity

    async def is_at_rest(self) -> bool:
        """Return whether the page is loaded and idle, also after a moment.

        The method waits at most `patience_s` for the page's answer.
        """
        try:
            was_idle = self.activity.is_idle
            is_complete = await self._answer()
            return was_idle and is_complete and self.activity.is_idle
        except PlaywrightError:  # the page has navigated or closed meanwhile
            return not self.is_live

    async def _answer(self) -> bool:
        self.is_silent = True
        with anyio.move_on_after(self._patience_s):
            try:
                is_complete = await self.activity.evaluate(script("rest"))
            except PlaywrightError:
                self.is_silent = False  # an error is also an answer
                raise
            self.is_silent = False
            return is_complete is True
        self.has_hung = True
        return False

    async def look(self) -> None:
        """Read the address and the title."""
        self.url = self.page.url
        self.title = str(await self.activity.evaluate("document.title"))

    async def evaluate_with_limit(self, name: str, most: int) -> tuple[str, int]:
        """Run one of our scripts, and return at most `most` characters and the full length."""
        source = script(name).replace("MOST", json.dumps(most))
        text, length = await self.activity.evaluate(source)
        return str(text), int(length)

    async def stop(self, why: str) -> None:
        """End the page; the tab stays, with the reason."""
        self.trouble = self.trouble or why
        self.url = self.page.url
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            with contextlib.suppress(PlaywrightError):  # the page may be closed already
                await self.page.close()
