"""A session's part of the browser: its tabs, its network, its clock, and its events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeAlias

import anyio
from playwright.async_api import BrowserContext, Dialog, Download, Page, Route, WebSocket
from playwright.async_api import Error as PlaywrightError

from openenv.errors import Refused

from ..models import BrowserOptions, PageEvent
from .chromium import Lease
from .hosts import AllowedHosts, host_of, why_refused
from .scripts import script
from .sites import Site, SiteRequest
from .tab import POLL_S, Tab
from .texts import short

__all__ = ["START_OF_TIME", "ActionFailed", "Window"]

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["blocked", "dialog", "download", "popup", "stopped", "busy", "too_large"]

# The start of the pages' clock: 15 May 2024, 10:00 UTC, a Wednesday.
START_OF_TIME = 1_715_767_200
STEP_MS = 100  # the time that a step advances the pages' clock
REAL_PAUSE_S = 0.1  # the time that a step waits instead, if pages have real time
PATIENCE = 2 / 3  # the share of `load_timeout_s` after which a page that does not answer has hung
POPUP_COMES_WITHIN_S = 2.0

# Limits per step, against pages with very many events.
MAX_EVENTS = 20
MAX_DIALOGS = 20
MAX_REQUESTS = 1000
MAX_HOSTS = 100


class ActionFailed(Exception):
    """The action failed; the message is for the agent."""


class Window:
    """A browser context with the agent's tabs.

    Args:
        context: The browser context of the pages.
        options: The options of the session.
        allowed: Hosts that may be reached.
        sites: The sites that this process answers, by host.

    Attributes:
        tabs: The open tabs, the oldest first.
        events: The events of this step, up to a limit.
        events_left_out: The number of further events.
        blocked_hosts: The number of refused requests, by host.
        accepts_dialogs: Whether a page's dialogs are accepted.
        prompt_text: The text for a prompt if it is accepted.
    """

    def __init__(
        self,
        context: BrowserContext,
        options: BrowserOptions,
        allowed: AllowedHosts,
        sites: Mapping[str, Site],
    ) -> None:
        self.options = options
        self.tabs: list[Tab] = []
        self.events: list[PageEvent] = []
        self.events_left_out = 0
        self.blocked_hosts: dict[str, int] = {}
        self.accepts_dialogs = False
        self.prompt_text = ""
        self._context = context
        self._allowed = allowed
        self._sites = sites
        self._active: Tab | None = None
        self._fault: Exception | None = None
        self._patience_s = options.load_timeout_s * PATIENCE
        self._requests = self._dialogs = 0
        self._expected_popups = 0
        self._opening = 0
        self._work: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        lease: Lease,
        options: BrowserOptions,
        allowed: AllowedHosts,
        sites: Mapping[str, Site],
        seed: int,
    ) -> Window:
        """Make a context of its own in a browser, with one empty tab.

        Args:
            lease: The browser.
            options: The options of the session.
            allowed: Hosts that may be reached.
            sites: The sites that this process answers, by host.
            seed: The seed of the pages' random numbers; 32 bits.

        Raises:
            Refused: Chromium does not know the locale or the time zone.
            BrowserGone: The browser has died.
        """
        context = await _new_context(lease, options)
        window = cls(context, options, allowed, sites)
        try:
            await window._set_up(seed)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await window.close()
            if isinstance(error, PlaywrightError):
                await lease.check()
                raise _refused(error) from error
            raise
        return window

    async def _set_up(self, seed: int) -> None:
        context = self._context
        context.on("page", self._page_opened)
        context.on("dialog", lambda dialog: self._start(self._answer_dialog(dialog)))
        await context.route("**/*", self._route)
        if self.options.deterministic:
            await context.clock.install(time=START_OF_TIME)
            await context.clock.pause_at(START_OF_TIME)
            await context.add_init_script(script("seeded").replace("SEED", str(seed)))
        await context.add_init_script(script("fenced"))
        await self.open_tab()

    async def close(self) -> None:
        """Close all pages and the context. Safe to repeat."""
        for work in self._work:
            work.cancel()
        with contextlib.suppress(PlaywrightError):
            await self._context.close()

    # ------------------------------------------------------------------ tabs

    @property
    def active(self) -> Tab:
        """The active tab.

        Raises:
            ActionFailed: No tab is open.
        """
        if self._active is None:
            raise ActionFailed("no tab is open; open one with new_tab")
        return self._active

    @property
    def active_tab(self) -> Tab | None:
        """The active tab, or None if no tab is open."""
        return self._active

    @property
    def live(self) -> Tab:
        """The active tab, which must have a running page.

        Raises:
            ActionFailed: No tab is open, or the page was ended.
        """
        tab = self.active
        if tab.trouble:
            raise ActionFailed(
                f"the page of this tab was ended: {tab.trouble}; navigate somewhere, or use "
                "another tab"
            )
        return tab

    @property
    def page(self) -> Page:
        """The active tab's page; raises the same errors as `live`."""
        return self.live.page

    def tab(self, place: int) -> Tab:
        """Return the tab at an index.

        Raises:
            ActionFailed: There is no such tab.
        """
        if place >= len(self.tabs):
            raise ActionFailed(f"there is no tab {place}; there are {len(self.tabs)}, from 0")
        return self.tabs[place]

    def activate(self, tab: Tab) -> None:
        """Make a tab the active one."""
        self._active = tab

    async def open_tab(self) -> Tab:
        """Open an empty tab and make it the active one.

        Raises:
            ActionFailed: The maximum number of tabs is open.
        """
        self._refuse_another_tab()
        tab = await self._new_page_in(len(self.tabs))
        self._active = tab
        return tab

    def _refuse_another_tab(self) -> None:
        if len(self.tabs) >= self.options.max_tabs:
            raise ActionFailed(f"{len(self.tabs)} tabs are open, which is the most; close one")

    async def _new_page_in(self, place: int) -> Tab:
        self._opening += 1
        try:
            page = await self._context.new_page()
        finally:
            self._opening -= 1
        tab = Tab(page, self._patience_s)
        self.tabs.insert(place, tab)
        await self._adopt(tab)
        return tab

    async def renew_active(self) -> Tab:
        """Return the active tab, with a new page if its page was ended."""
        old = self.active
        if not old.trouble:
            return old
        place = self.tabs.index(old)
        del self.tabs[place]
        self._active = tab = await self._new_page_in(place)
        return tab

    async def close_tab(self, tab: Tab) -> None:
        """Close a tab; the previous tab becomes active.

        Raises:
            ActionFailed: The tab is the only one.
        """
        if len(self.tabs) == 1:
            raise ActionFailed("this is the only tab, and cannot be closed")
        self._remove(tab)
        if not tab.page.is_closed():
            await tab.page.close()

    def _remove(self, tab: Tab) -> None:
        if tab not in self.tabs:
            return
        place = self.tabs.index(tab)
        del self.tabs[place]
        if self._active is tab:
            self._active = self.tabs[max(0, place - 1)] if self.tabs else None

    def _page_opened(self, page: Page) -> None:
        """Add a tab for a page that another page has opened."""
        if self._opening:  # the session itself opens the page
            return
        self._expected_popups = max(0, self._expected_popups - 1)
        if len(self.tabs) >= self.options.max_tabs:
            self.note("popup", f"closed at once, since {len(self.tabs)} tabs are open: {page.url}")
            self._start(Tab(page, self._patience_s).stop("there are too many"))
            return
        self.note("popup", f"opened in a tab: {page.url}")
        tab = self._active = Tab(page, self._patience_s)
        self.tabs.append(tab)
        self._start(self._adopt(tab))

    async def _adopt(self, tab: Tab) -> None:
        page = tab.page
        page.on("close", lambda _: None if tab.trouble else self._remove(tab))
        page.on("crash", lambda _: self._start(self.stop(tab, "it crashed")))
        page.on("download", self._download_offered)
        page.on("websocket", self._socket_opened)
        with anyio.move_on_after(self._patience_s) as scope:
            await tab.attach(self._expect_popup)
        if scope.cancelled_caught:  # the page shares the process of a page that hangs
            await self.stop(tab, f"it did not answer for {self._patience_s:.3g} s")

    def _expect_popup(self) -> None:
        self._expected_popups += 1

    async def stop(self, tab: Tab, why: str) -> None:
        """End a tab's page, and record an event."""
        if not tab.trouble:
            self.note("stopped", f"the page {tab.page.url} was ended: {why}")
            await tab.stop(why)

    # ------------------------------------------------------------------ events

    def begin_step(self) -> None:
        """Reset the events and counters of a step."""
        self.events, self.events_left_out = [], 0
        self._requests = self._dialogs = 0

    def note(self, kind: Kind, text: str) -> None:
        """Record an event for the agent."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(PageEvent(kind=kind, text=short(text)))
        else:
            self.events_left_out += 1

    def raise_fault(self) -> None:
        """Raise the error of a site's code, which is a fault of the environment, not of a page."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PlaywrightError):  # a closed page is no news
            logger.warning("work for a page failed", exc_info=error)

    async def _answer_dialog(self, dialog: Dialog) -> None:
        self._dialogs += 1
        tab = next((tab for tab in self.tabs if tab.page is dialog.page), None)
        if self._dialogs > MAX_DIALOGS:
            if tab is not None:
                await self.stop(tab, f"it opened more than {MAX_DIALOGS} dialogs in a step")
            return
        accepts = self.accepts_dialogs or dialog.type in ("alert", "beforeunload")
        self.note(
            "dialog", f"{dialog.type}, {'accepted' if accepts else 'cancelled'}: {dialog.message}"
        )
        if accepts:
            await dialog.accept(self.prompt_text if dialog.type == "prompt" else None)
        else:
            await dialog.dismiss()

    def _download_offered(self, download: Download) -> None:
        self.note("download", f"not taken: {download.suggested_filename} from {download.url}")

    def _socket_opened(self, socket: WebSocket) -> None:
        if not self._allowed.let_in(host_of(socket.url)):
            self._block("WebSocket", socket.url)  # Chromium cannot resolve the host

    # ------------------------------------------------------------------ network

    def why_refused(self, url: str) -> str | None:
        """Return the reason why an address may not be opened, or None."""
        return why_refused(url, self._allowed, self._sites)

    async def _route(self, route: Route) -> None:
        request = route.request
        self._requests += 1
        try:
            site = self._sites.get(host_of(request.url))
            if self._requests > MAX_REQUESTS or self.why_refused(request.url) is not None:
                self._block(request.method, request.url)
                await route.abort("blockedbyclient")
            elif site is None:
                await route.continue_()
            else:
                await self._serve(route, site)
        except PlaywrightError:
            pass  # the page of the request was closed

    async def _serve(self, route: Route, site: Site) -> None:
        request = route.request
        referrer = request.headers.get("referer", "")
        body = request.post_data_buffer or b""
        try:
            reply = site.answer(SiteRequest.of(request.method, request.url, referrer, body))
        except Exception as error:  # a fault of a site's code, which `raise_fault` raises
            self._fault = error
            await route.abort("failed")
            return
        await route.fulfill(status=reply.status, content_type=reply.content_type, body=reply.body)

    def _block(self, method: str, url: str) -> None:
        many = f" (over {MAX_REQUESTS} requests in a step)" * (self._requests > MAX_REQUESTS)
        self.note("blocked", f"{method} {url}{many}")
        host = short(host_of(url))
        if host in self.blocked_hosts or len(self.blocked_hosts) < MAX_HOSTS:
            self.blocked_hosts[host] = self.blocked_hosts.get(host, 0) + 1

    # ------------------------------------------------------------------ rest

    async def settle(self, seconds: float) -> None:
        """Wait until nothing loads, let the pages' time move on, and wait again.

        Pages that do not answer are ended. The method takes at most `seconds`; a page that still
        loads then is reported as busy.
        """
        with anyio.move_on_after(seconds) as scope:
            await self._come_to_rest()
            await self.let_time_pass(STEP_MS / 1000 if self.options.deterministic else REAL_PAUSE_S)
            await self._come_to_rest()
        if scope.cancelled_caught:
            self.note("busy", f"a page was still loading or moving after {seconds:.3g} s")

    async def let_time_pass(self, seconds: float) -> None:
        """Advance the pages' clock, which runs all due timers; with real time, wait."""
        if not self.options.deterministic:
            await anyio.sleep(seconds)
            return
        with anyio.move_on_after(self._patience_s):
            # A page may close meanwhile; the next observation reports that.
            with contextlib.suppress(PlaywrightError):
                await self._context.clock.run_for(math.ceil(seconds * 1000))
            return
        self.note("busy", f"the timers of a page took longer than {self._patience_s:.3g} s")

    async def _come_to_rest(self) -> None:
        quiet = 0
        popups_until = anyio.current_time() + POPUP_COMES_WITHIN_S
        while quiet < 2:
            live = [tab for tab in self.tabs if tab.is_live]
            is_quiet = all([await tab.is_at_rest() for tab in live])
            for tab in live:
                if tab.has_hung:
                    await self.stop(tab, f"it did not answer for {self._patience_s:.3g} s")
            if anyio.current_time() > popups_until:
                self._expected_popups = 0
            is_quiet = is_quiet and not self._expected_popups and not self._work
            quiet = quiet + 1 if is_quiet else 0
            if not is_quiet:
                await anyio.sleep(POLL_S)


async def _new_context(lease: Lease, options: BrowserOptions) -> BrowserContext:
    width, height = options.viewport
    try:
        return await lease.new_context(
            viewport={"width": width, "height": height},
            screen={"width": width, "height": height},
            device_scale_factor=1,
            locale=options.locale,
            timezone_id=options.timezone,
            color_scheme="light",
            reduced_motion="reduce",
            service_workers="block",
            accept_downloads=False,
        )
    except PlaywrightError as error:
        await lease.check()
        raise _refused(error) from error


def _refused(error: PlaywrightError) -> Refused:
    return Refused(f"Chromium does not take these options: {error.message.splitlines()[0][:300]}")
