"""The implementation of actions, with one function for each kind."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from ..models import (
    Answer,
    Back,
    BrowserAction,
    Check,
    Click,
    CloseTab,
    Dialogs,
    Drag,
    Element,
    Evaluate,
    Extract,
    Fill,
    Forward,
    Hover,
    Navigate,
    NewTab,
    Press,
    Reload,
    Scroll,
    Select,
    SwitchTab,
    Type,
    Wait,
)
from .tab import Tab
from .texts import short, sound
from .window import ActionFailed, Window

__all__ = ["act", "explained"]

MAX_MATCHES = 100
ATTEMPTS = 10  # attempts to leave a page that navigates by itself

# The lines of Playwright's call log that name an obstacle.
_HINDRANCE = re.compile(
    r"element is not (visible|enabled|stable|editable)|element is outside of the viewport|"
    r"intercepts pointer events|did not find some options|not attached"
)
_WAIT = re.compile(r"waiting for .* to be")

# The errors of Playwright and Chromium if a page navigates by itself during a navigation.
_INTERRUPTION = re.compile(r"interrupted by another navigation|Not attached to an active page")

SCROLL = """(element, [dx, dy]) => {
    let box = element;
    const scrolls = (one) => {
        const style = getComputedStyle(one);
        return (one.scrollHeight > one.clientHeight && /auto|scroll/.test(style.overflowY)) ||
            (one.scrollWidth > one.clientWidth && /auto|scroll/.test(style.overflowX));
    };
    while (box && !scrolls(box)) box = box.parentElement;
    (box || window).scrollBy({left: dx, top: dy, behavior: "instant"});
}"""
EXTRACT = """(all, [what, attribute, most, chars]) => all.slice(0, most).map((element) => {
    const found = what === "text" ? element.innerText ?? element.textContent
        : what === "html" ? element.outerHTML
        : what === "value" ? element.value
        : element.getAttribute(attribute);
    return found === null || found === undefined ? "" : String(found).slice(0, chars);
})"""
OPTIONS = """(element) => element.tagName === "SELECT"
    ? Array.from(element.options).slice(0, 1000).map((one) => [one.value, one.label]) : null"""
EVALUATED = """([script, chars]) => Promise.resolve((0, eval)(script)).then((value) => {
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? String(value);
    return text.slice(0, chars);
})"""

ActionT = TypeVar("ActionT", bound=BrowserAction)
Actor = Callable[[Window, ActionT], Awaitable[list[str] | None]]


async def act(window: Window, action: BrowserAction) -> list[str] | None:
    """Carry out an action.

    Returns:
        The texts that the action has read, or None.

    Raises:
        ActionFailed: The action is not possible; the message says why.
        PlaywrightError: The action failed; see `explained`.
    """
    return await _ACTORS[type(action)](window, action)


def explained(error: PlaywrightError, action: BrowserAction) -> str:
    """Explain an error of Playwright in a line for the agent."""
    first, _, log = error.message.partition("\n")
    first = re.sub(r"^\w+\.\w+: ", "", first).strip()
    if not isinstance(error, PlaywrightTimeout):
        return short(f"{action.kind} failed: {first}", 1000)
    lines = [line.strip(" -") for line in log.splitlines()]
    # A retry that had no time to meet the obstacle again still counts as blocked by it.
    found = [line for kind in (_HINDRANCE, _WAIT) for line in reversed(lines) if kind.search(line)]
    because = found[0] if found else first
    element = f" {action.words}" if isinstance(action, Element) and action.is_given else ""
    return short(f"{action.kind}{element} did not succeed in time: {because}", 1000)


# ------------------------------------------------------------------ elements


async def _find(window: Window, element: Element) -> Locator:
    """Find the element of an action.

    Raises:
        ActionFailed: No element matches, or several do.
    """
    found = _locator(window.page, element)
    count = await _count(window, found, element)
    if count == 0:
        raise ActionFailed(_no_such(element))
    if element.nth is not None:
        if element.nth >= count:
            raise ActionFailed(f"{count} elements match {element.words}; nth counts from 0")
        return found.nth(element.nth)
    if count > 1:
        raise ActionFailed(
            f"{count} elements match {element.words}; say which by nth, from 0, or more closely"
        )
    return found


async def _count(window: Window, found: Locator, element: Element) -> int:
    if not window.options.deterministic:  # the element may still appear
        try:
            await found.first.wait_for(state="attached", timeout=_timeout(window))
        except PlaywrightTimeout:
            return 0
    try:
        return await found.count()
    except PlaywrightError as error:
        raise ActionFailed(f"{element.words} cannot be looked for: {_first_line(error)}") from None


def _first_line(error: PlaywrightError) -> str:
    return re.sub(r"^\w+\.\w+: ", "", error.message.splitlines()[0])[:300]


def _no_such(element: Element) -> str:
    if element.ref is not None:
        return f"there is no {element.ref!r}: refs are those of the active tab's latest tree"
    return f"no element matches {element.words}"


def _locator(page: Page, element: Element) -> Locator:
    if element.ref is not None:
        return page.locator(f"aria-ref={element.ref}")
    if element.selector is not None:
        return page.locator(f"css={element.selector}")
    if element.role is not None:
        role: Any = element.role
        return page.get_by_role(role, name=element.name)
    assert element.text is not None
    return page.get_by_text(element.text)


def _timeout(window: Window) -> float:
    """Return the time to wait for an element, in milliseconds."""
    return window.options.action_timeout_s * 1000


async def _ready(window: Window, element: Element, *, to_change: bool = True) -> Locator:
    """Find an element that accepts actions.

    While the pages' time stands still, no element becomes visible or enabled by itself, so there is
    nothing to wait for.

    Raises:
        ActionFailed: No element matches, or the element is hidden or disabled.
    """
    found = await _find(window, element)
    if window.options.deterministic:
        if not await found.is_visible():
            raise ActionFailed(f"{element.words} is not visible")
        if to_change and not await found.is_enabled():
            raise ActionFailed(f"{element.words} is disabled")
    return found


# ------------------------------------------------------------------ kinds of actions


async def _navigate(window: Window, action: Navigate) -> None:
    await _go_to(window, action.url)


async def _go_to(window: Window, url: str) -> None:
    why = window.why_refused(url)
    if why is not None:
        raise ActionFailed(why)
    tab = await window.renew_active()
    timeout = window.options.load_timeout_s * 1000
    for _ in range(ATTEMPTS):
        if await _is_opened(tab, url, timeout):
            return
        await tab.activity.hold_still()
    raise ActionFailed("the page kept leading elsewhere by itself; try again, or use another tab")


async def _is_opened(tab: Tab, url: str, timeout: float) -> bool:
    """Open an address, and return whether the page did not navigate elsewhere meanwhile."""
    try:
        if not tab.activity.is_idle:
            await tab.activity.stop_loading()
        await tab.page.goto(url, wait_until="commit", timeout=timeout)
    except PlaywrightError as error:
        if _INTERRUPTION.search(error.message):
            return False
        raise
    return True


async def _click(window: Window, action: Click) -> None:
    found = await _ready(window, action)
    count = 2 if action.double else 1
    await found.click(button=action.button, click_count=count, timeout=_timeout(window))


async def _fill(window: Window, action: Fill) -> None:
    found = await _ready(window, action)
    await found.fill(action.value, timeout=_timeout(window))


async def _type(window: Window, action: Type) -> None:
    if action.is_given:
        found = await _ready(window, action)
        await found.press_sequentially(action.value, timeout=_timeout(window))
    else:
        await window.page.keyboard.type(action.value)


async def _press(window: Window, action: Press) -> None:
    if action.is_given:
        found = await _ready(window, action)
        await found.press(action.key, timeout=_timeout(window))
    else:
        await window.page.keyboard.press(action.key)


async def _select(window: Window, action: Select) -> None:
    found = await _ready(window, action)
    options = await found.evaluate(OPTIONS)
    if options is None:
        raise ActionFailed(f"{action.words} is no list of options (no <select>)")
    known = {text for option in options for text in option}
    unknown = [value for value in action.values if value not in known]
    if unknown:
        labels = ", ".join(repr(label) for _, label in options[:30])
        raise ActionFailed(f"there is no option {unknown[0]!r}; there are {labels}")
    await found.select_option(action.values, timeout=_timeout(window))


async def _check(window: Window, action: Check) -> None:
    found = await _ready(window, action)
    await found.set_checked(action.checked, timeout=_timeout(window))


async def _hover(window: Window, action: Hover) -> None:
    found = await _ready(window, action, to_change=False)
    await found.hover(timeout=_timeout(window))


async def _drag(window: Window, action: Drag) -> None:
    found = await _ready(window, action, to_change=False)
    to = await _ready(window, action.to, to_change=False)
    await found.drag_to(to, timeout=_timeout(window))


async def _scroll(window: Window, action: Scroll) -> None:
    element = action if action.is_given else Element(selector="body")
    found = await _find(window, element)
    by = [action.dx, action.dy]
    if action.is_given and not any(by):
        await found.scroll_into_view_if_needed(timeout=_timeout(window))
    elif action.is_given:
        await found.evaluate(SCROLL, by)
    else:
        await window.page.evaluate(f"(by) => ({SCROLL})(null, by)", by)


async def _back(window: Window, action: Back) -> None:
    await _in_history(window, -1, "back")


async def _forward(window: Window, action: Forward) -> None:
    await _in_history(window, 1, "forward")


async def _in_history(window: Window, by: int, where: str) -> None:
    if not await window.live.activity.go_in_history(by):
        raise ActionFailed(f"there is no page to go {where} to")


async def _reload(window: Window, action: Reload) -> None:
    timeout = window.options.load_timeout_s * 1000
    await window.page.reload(wait_until="commit", timeout=timeout)


async def _wait(window: Window, action: Wait) -> None:
    await window.let_time_pass(action.seconds)


async def _extract(window: Window, action: Extract) -> list[str]:
    if action.is_given:
        found = _locator(window.page, action)
        if action.nth is not None:
            found = found.nth(action.nth)
        if await _count(window, found, action) == 0:
            raise ActionFailed(_no_such(action))
    else:
        found = window.page.locator("css=html")
    arguments = [action.what, action.attribute, MAX_MATCHES, window.options.max_chars]
    read: list[str] = await found.evaluate_all(EXTRACT, arguments)
    return [sound(text) for text in read]


async def _evaluate(window: Window, action: Evaluate) -> list[str]:
    read = await window.page.evaluate(EVALUATED, [action.script, window.options.max_chars])
    return [sound(str(read))]


async def _new_tab(window: Window, action: NewTab) -> None:
    why = None if action.url is None else window.why_refused(action.url)
    if why is not None:
        raise ActionFailed(why)
    await window.open_tab()
    if action.url is not None:
        await _go_to(window, action.url)


async def _switch_tab(window: Window, action: SwitchTab) -> None:
    tab = window.tab(action.tab)
    window.activate(tab)
    if tab.is_live:
        await tab.page.bring_to_front()


async def _close_tab(window: Window, action: CloseTab) -> None:
    await window.close_tab(window.active if action.tab is None else window.tab(action.tab))


async def _dialogs(window: Window, action: Dialogs) -> None:
    window.accepts_dialogs, window.prompt_text = action.accept, action.text


async def _answer(window: Window, action: Answer) -> None:
    """Do nothing in the browser."""


_ACTORS: dict[type[BrowserAction], Actor[Any]] = {
    Navigate: _navigate,
    Click: _click,
    Fill: _fill,
    Type: _type,
    Press: _press,
    Select: _select,
    Check: _check,
    Hover: _hover,
    Drag: _drag,
    Scroll: _scroll,
    Back: _back,
    Forward: _forward,
    Reload: _reload,
    Wait: _wait,
    Extract: _extract,
    Evaluate: _evaluate,
    NewTab: _new_tab,
    SwitchTab: _switch_tab,
    CloseTab: _close_tab,
    Dialogs: _dialogs,
    Answer: _answer,
}
