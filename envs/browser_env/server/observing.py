"""Observations of a window: texts of limited length, with a note of what was cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
from playwright.async_api import Error as PlaywrightError

from ..models import BrowserOptions
from ..models import Tab as TabView
from .scripts import script
from .tab import Tab
from .texts import sound
from .window import Window

__all__ = ["Sight", "look", "take_screenshot"]

LOOK_TIMEOUT_S = 10.0
# The tree of a larger page takes seconds, and is too long to be useful.
MAX_ELEMENTS = 20_000
MAX_TITLE = 300
MAX_URL = 2000


@dataclass
class Sight:
    """Fields of an observation, and the fields that were cut.

    Attributes:
        fields: The values, by the names of the observation's fields.
        cut: The full lengths of the fields that were cut.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, text: str, most: int, length: int | None = None) -> None:
        """Add a text of at most `most` characters; `length` is its length before a cut."""
        text = sound(text)
        length = len(text) if length is None else length
        if length > most:
            self.cut[name] = length
        self.fields[name] = text[:most]


async def look(window: Window) -> Sight:
    """Observe the active tab and the list of all tabs.

    If a page navigates, hangs or is too large, the observation is incomplete, and the window's
    events say so.
    """
    sight = Sight()
    for tab in window.tabs:
        await _note_title(tab)
    active = window.active_tab
    if active is not None:
        sight.put("url", active.url, MAX_URL)
        sight.put("title", active.title, MAX_TITLE)
        if active.is_live and not active.is_silent:
            await _look_at(active, window, sight)
    sight.fields["tabs"] = [_view(tab, is_active=tab is active) for tab in window.tabs]
    return sight


async def _note_title(tab: Tab) -> None:
    if tab.is_live and not tab.is_silent:
        with anyio.move_on_after(LOOK_TIMEOUT_S):
            try:
                await tab.look()
            except PlaywrightError:
                tab.url, tab.title = tab.page.url, ""  # the page is navigating


def _view(tab: Tab, *, is_active: bool) -> TabView:
    return TabView(
        url=sound(tab.url)[:MAX_URL],
        title=sound(tab.title)[:MAX_TITLE],
        is_active=is_active,
        trouble=tab.trouble,
    )


async def _look_at(tab: Tab, window: Window, sight: Sight) -> None:
    with anyio.move_on_after(LOOK_TIMEOUT_S) as scope:
        try:
            await _look_at_parts(tab, window, sight)
        except PlaywrightError as error:
            window.note("busy", f"the page could not be looked at: {error.message.splitlines()[0]}")
    if scope.cancelled_caught:
        window.note("busy", f"the page could not be looked at within {LOOK_TIMEOUT_S:g} s")


async def _look_at_parts(tab: Tab, window: Window, sight: Sight) -> None:
    options = window.options
    measures = await tab.activity.evaluate(script("measure"))
    sight.fields["scroll_y"] = int(measures["scrollY"])
    sight.fields["page_height"] = int(measures["pageHeight"])
    is_huge = measures["elements"] > MAX_ELEMENTS
    if is_huge and {"tree", "html"} & set(options.observe):
        window.note(
            "too_large",
            f"the page has {measures['elements']} elements; neither tree nor html are made of "
            f"more than {MAX_ELEMENTS}. See text, or extract what you need",
        )
    for view in options.observe:
        if view == "screenshot":
            sight.fields["screenshot"] = await take_screenshot(tab)
        elif view == "text" or (view == "html" and not is_huge):
            await _read(tab, view, options, sight)
        elif not is_huge:
            tree = await tab.page.aria_snapshot(mode="ai", timeout=LOOK_TIMEOUT_S * 1000)
            sight.put("tree", _cut_at_line(tree, options.max_chars), options.max_chars, len(tree))


async def _read(tab: Tab, view: str, options: BrowserOptions, sight: Sight) -> None:
    text, length = await tab.evaluate_with_limit(view, options.max_chars)
    sight.put(view, text, options.max_chars, length)


def _cut_at_line(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = text.rfind("\n", 0, most)
    return text[: end if end > 0 else most]


async def take_screenshot(tab: Tab) -> bytes:
    """Return the visible part of a page as PNG, without animations and the text cursor."""
    return await tab.page.screenshot(
        animations="disabled", caret="hide", scale="css", timeout=LOOK_TIMEOUT_S * 1000
    )
