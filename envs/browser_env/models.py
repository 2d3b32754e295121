"""Actions, observations and state of the browser environment."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from openenv.arrays import Blob
from openenv.types import Action, Observation, State

__all__ = [
    "Answer",
    "AnyAction",
    "Back",
    "BrowserAction",
    "BrowserObservation",
    "BrowserOptions",
    "BrowserState",
    "BrowserTask",
    "Check",
    "Click",
    "CloseTab",
    "Dialogs",
    "Drag",
    "Element",
    "Evaluate",
    "Extract",
    "Fill",
    "Forward",
    "Hover",
    "Navigate",
    "NewTab",
    "PageEvent",
    "Press",
    "Reload",
    "Scroll",
    "Select",
    "SwitchTab",
    "Tab",
    "Type",
    "View",
    "Wait",
]

View: TypeAlias = Literal["tree", "text", "html", "screenshot"]

MAX_INPUT = 20_000
MAX_URL = 8_000
MAX_PIXELS = 100_000


class Element(BaseModel):
    """A reference to an element of the page, in one of four ways.

    The ways are `ref`, an id in the observation's tree, such as ``e5`` (``f1e2`` in a frame); a CSS
    `selector`; `role`, with or without the accessible `name`; and the `text` that the element
    shows.
    """

    model_config = ConfigDict(extra="forbid")

    ref: str | None = Field(
        default=None,
        pattern=r"^(f\d{1,6})?e\d{1,9}$",
        description="An id of the last observation's tree, such as e5.",
    )
    selector: str | None = Field(
        default=None, min_length=1, max_length=2000, description="A CSS selector."
    )
    role: str | None = Field(
        default=None, min_length=1, max_length=50, description="An ARIA role, such as button."
    )
    name: str | None = Field(
        default=None,
        max_length=2000,
        description="With role: the accessible name, or a part of it, in any case.",
    )
    text: str | None = Field(
        default=None, min_length=1, max_length=2000, description="Text that the element shows."
    )
    nth: int | None = Field(
        default=None, ge=0, description="Index, from 0, if several elements match."
    )

    @property
    def is_given(self) -> bool:
        """Whether the reference names an element."""
        return not (self.ref is None and self.selector is None and self.role is self.text is None)

    @property
    def words(self) -> str:
        """The element's description in messages."""
        ways = ("ref", "selector", "role", "name", "text", "nth")
        given = {way: getattr(self, way) for way in ways}
        return " ".join(f"{way}={value!r}" for way, value in given.items() if value is not None)


class BrowserAction(Action):
    """An action in the browser. The subclasses are the kinds of actions, which `kind` names."""

    kind: Any  # a Literal in each subclass


class _OnElement(BrowserAction, Element):
    """An action on an element."""

    @model_validator(mode="after")
    def _names_an_element_in_one_way(self) -> _OnElement:
        _check_element(self, is_needed=True)
        return self


class _OnElementOrPage(BrowserAction, Element):
    """An action on an element or on the page."""

    @model_validator(mode="after")
    def _names_an_element_in_one_way(self) -> _OnElementOrPage:
        _check_element(self, is_needed=False)
        return self


def _check_element(element: Element, *, is_needed: bool) -> None:
    ways = [way for way in ("ref", "selector", "role", "text") if getattr(element, way) is not None]
    if len(ways) > 1 or (is_needed and not ways):
        count = "one" if is_needed else "at most one"
        given = " and ".join(ways) or "none"
        raise ValueError(f"give {count} of ref, selector, role and text, not {given}")
    if element.name is not None and element.role is None:
        raise ValueError("name goes with role: give role too, such as role='button'")
    if element.nth is not None and not ways:
        raise ValueError("nth goes with selector, role or text")


class Navigate(BrowserAction):
    """Open an address in the active tab."""

    kind: Literal["navigate"] = "navigate"
    url: str = Field(min_length=1, max_length=MAX_URL, description="An http or https address.")


class Click(_OnElement):
    """Click on an element."""

    kind: Literal["click"] = "click"
    button: Literal["left", "right", "middle"] = "left"
    double: bool = Field(default=False, description="Click twice.")


class Fill(_OnElement):
    """Replace the content of a field by `value`."""

    kind: Literal["fill"] = "fill"
    value: str = Field(max_length=MAX_INPUT, description="The new content of the field.")


class Type(_OnElementOrPage):
    """Type `value` key by key, into an element or at the focus."""

    kind: Literal["type"] = "type"
    value: str = Field(max_length=2000, description="The text to type.")


class Press(_OnElementOrPage):
    """Press a key, on an element or at the focus."""

    kind: Literal["press"] = "press"
    key: str = Field(
        min_length=1,
        max_length=50,
        description="The key, such as Enter, ArrowDown, a or Control+a.",
    )


class Select(_OnElement):
    """Choose options of a list by their values or labels, and deselect all others."""

    kind: Literal["select"] = "select"
    values: list[str] = Field(max_length=100, description="Values or labels of the options.")


class Check(_OnElement):
    """Tick a checkbox or a radio button, or clear a checkbox."""

    kind: Literal["check"] = "check"
    checked: bool = Field(default=True, description="The state afterwards.")


class Hover(_OnElement):
    """Move the mouse onto an element."""

    kind: Literal["hover"] = "hover"


class Drag(_OnElement):
    """Drag an element onto another one."""

    kind: Literal["drag"] = "drag"
    to: Element = Field(description="The element to drop it on.")

    @field_validator("to")
    @classmethod
    def _names_where_to(cls, to: Element) -> Element:
        _check_element(to, is_needed=True)
        return to


class Scroll(_OnElementOrPage):
    """Scroll the page, or the scrollable box of an element, by CSS pixels."""

    kind: Literal["scroll"] = "scroll"
    dx: int = Field(default=0, ge=-MAX_PIXELS, le=MAX_PIXELS, description="Pixels to the right.")
    dy: int = Field(default=0, ge=-MAX_PIXELS, le=MAX_PIXELS, description="Pixels down.")


class Back(BrowserAction):
    """Go back in the active tab's history."""

    kind: Literal["back"] = "back"


class Forward(BrowserAction):
    """Go forward in the active tab's history."""

    kind: Literal["forward"] = "forward"


class Reload(BrowserAction):
    """Load the active tab's page again."""

    kind: Literal["reload"] = "reload"


class Wait(BrowserAction):
    """Let time pass. In a deterministic session, this is the pages' time, and takes none."""

    kind: Literal["wait"] = "wait"
    seconds: float = Field(default=1.0, gt=0, le=60, allow_inf_nan=False)


class Extract(_OnElementOrPage):
    """Read all elements that match, or the whole page, into the observation's `extracted`."""

    kind: Literal["extract"] = "extract"
    what: Literal["text", "html", "value", "attribute"] = "text"
    attribute: str | None = Field(
        default=None, max_length=200, description="With what='attribute': the attribute's name."
    )

    @model_validator(mode="after")
    def _names_an_attribute(self) -> Extract:
        if (self.what == "attribute") != (self.attribute is not None):
            raise ValueError("attribute goes with what='attribute'")
        return self


class Evaluate(BrowserAction):
    """Evaluate JavaScript in the active tab, if the server allows it; see `extracted`."""

    kind: Literal["evaluate"] = "evaluate"
    script: str = Field(min_length=1, max_length=MAX_INPUT)


class NewTab(BrowserAction):
    """Open a tab, which becomes the active one."""

    kind: Literal["new_tab"] = "new_tab"
    url: str | None = Field(
        default=None, max_length=MAX_URL, description="The address; null for an empty tab."
    )


class SwitchTab(BrowserAction):
    """Make another tab the active one."""

    kind: Literal["switch_tab"] = "switch_tab"
    tab: int = Field(ge=0, description="The tab's index in the observation's tabs.")


class CloseTab(BrowserAction):
    """Close a tab."""

    kind: Literal["close_tab"] = "close_tab"
    tab: int | None = Field(
        default=None, ge=0, description="The tab's index; null for the active tab."
    )


class Dialogs(BrowserAction):
    """Set the answer to further dialogs of pages (confirm, prompt)."""

    kind: Literal["dialogs"] = "dialogs"
    accept: bool = Field(description="true for OK, false for Cancel, which is the initial setting.")
    text: str = Field(default="", max_length=2000, description="The text for a prompt.")


class Answer(BrowserAction):
    """End the episode with an answer in words."""

    kind: Literal["answer"] = "answer"
    text: str = Field(default="", max_length=MAX_INPUT)


AnyAction = Annotated[
    Navigate
    | Click
    | Fill
    | Type
    | Press
    | Select
    | Check
    | Hover
    | Drag
    | Scroll
    | Back
    | Forward
    | Reload
    | Wait
    | Extract
    | Evaluate
    | NewTab
    | SwitchTab
    | CloseTab
    | Dialogs
    | Answer,
    Field(discriminator="kind"),
]
"""Any of the actions, as an argument of `step`."""


class Tab(BaseModel):
    """An open tab."""

    url: str
    title: str = ""
    is_active: bool = Field(default=False, description="Whether actions go to this tab.")
    trouble: str = Field(default="", description="The reason why its page was ended, or empty.")


class PageEvent(BaseModel):
    """A further event of a step, beside the action."""

    kind: Literal["blocked", "dialog", "download", "popup", "stopped", "busy", "too_large"] = Field(
        description="blocked: a request was refused; dialog: a page asked something, and how it "
        "was answered; download: a file was offered, and not taken; popup: a page opened a tab; "
        "stopped: a page crashed or hung and was ended; busy: a page was still loading or moving "
        "when it was looked at; too_large: a page was too large to be looked at in full."
    )
    text: str


class BrowserObservation(Observation):
    """The active tab, and the events of the step.

    The options' `observe` determines which of `tree`, `text`, `html` and `screenshot` are present;
    the others are empty. Texts are cut at the options' `max_chars`, and `cut` reports that.
    """

    goal: str = Field(default="", description="The task, in words; empty without one.")
    url: str = Field(default="", description="Address of the active tab.")
    title: str = Field(default="", description="Title of the active tab.")
    tree: str = Field(
        default="",
        description="The accessibility tree: roles, names, states, and refs for actions, as YAML.",
    )
    text: str = Field(default="", description="The text that the page shows.")
    html: str = Field(
        default="", description="The document without scripts, styles and what is not shown."
    )
    screenshot: Annotated[bytes, Blob("image/png")] | None = Field(
        default=None, description="The visible part of the page, as PNG."
    )
    scroll_y: int = Field(default=0, description="CSS pixels that the page is scrolled down.")
    page_height: int = Field(default=0, description="Height of the whole page, in CSS pixels.")
    tabs: list[Tab] = Field(default_factory=list, description="Open tabs, the oldest first.")
    error: str = Field(default="", description="The reason why the last action failed, or empty.")
    extracted: list[str] | None = Field(
        default=None, description="The result of extract or evaluate; null after other actions."
    )
    events: list[PageEvent] = Field(
        default_factory=list, description="Further events of this step."
    )
    events_left_out: int = Field(default=0, ge=0, description="Further events, not listed.")
    cut: dict[str, int] = Field(
        default_factory=dict,
        description="Fields that were cut, with their full lengths.",
    )


class BrowserOptions(BaseModel):
    """The options of a session, set for a server and for an episode by `reset`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    observe: tuple[View, ...] = Field(default=("tree",), description="The views in observations.")
    viewport: tuple[
        Annotated[int, Field(ge=200, le=4096)], Annotated[int, Field(ge=200, le=4096)]
    ] = Field(default=(1024, 768), description="Width and height of the page, in CSS pixels.")
    locale: str = Field(default="en-US", min_length=2, max_length=35, description="BCP 47.")
    timezone: str = Field(
        default="UTC", min_length=1, max_length=64, description="The time zone's IANA name."
    )
    deterministic: bool = Field(
        default=True,
        description="Pages have a clock that moves only in steps, and seeded random numbers. False "
        "gives them real time and randomness.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Hosts that may be reached: example.org, *.example.org, or * for all public "
        "hosts. By default only bundled pages. An episode may narrow the server's list.",
    )
    max_steps: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Maximum steps; null is the task's limit, or 100.",
    )
    max_chars: int = Field(
        default=20_000, ge=100, le=500_000, description="Maximum characters of each text."
    )
    max_tabs: int = Field(default=5, ge=1, le=20, description="Maximum tabs at a time.")
    action_timeout_s: float = Field(
        default=10.0, gt=0, le=60, description="Seconds for an element to take an action."
    )
    load_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=120,
        description="Seconds for a page to load and come to rest. A page that does not answer for "
        "two thirds of this time is ended.",
    )


class BrowserTask(BaseModel):
    """A task of the task set, by its `id` for `reset(task=...)`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: str
    instance: int
    split: str
    goal: str
    max_steps: int


class BrowserState(State):
    """The state of the episode."""

    task: str | None = Field(default=None, description="The task's id; null without one.")
    goal: str = Field(default="", description="The task, in words.")
    url: str = Field(default="", description="Address of the active tab, when last looked at.")
    max_steps: int = Field(default=0, ge=0, description="Steps after which it is truncated.")
    is_done: bool = Field(default=False, description="Whether the episode is over.")
    blocked_hosts: dict[str, int] = Field(
        default_factory=dict,
        description="Requests that were refused in this episode, by host; 100 hosts at most.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The options in force.")
