"""Tasks that end by sending a form: buttons, fields, lists, boxes, dates."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from ..sites import SiteRequest
from .base import Task, document, h
from .words import CITIES, COLOURS, FIRST_NAMES, LAST_NAMES, THINGS, VERBS

__all__ = [
    "CheckBoxes",
    "ChooseList",
    "ClickButton",
    "DragCard",
    "EnterText",
    "FillForm",
    "Login",
    "PickDate",
    "ScrollTerms",
    "WaitForButton",
]


def form(fields: str, button: str = "Submit", attributes: str = "") -> str:
    """Write a form that is posted to /send."""
    sending = f"<p><button {attributes}>{button}</button>"
    return f'<form method="post" action="/send">{fields}{sending}</form>'


def is_sent(request: SiteRequest) -> bool:
    """Return whether the form was posted."""
    return request.method == "POST" and request.path == "/send"


class ClickButton(Task):
    """Press the button of a given name among others."""

    kind = "click-button"
    max_steps = 5

    def build(self, rng: Random) -> None:
        self._labels = rng.sample(VERBS, rng.randint(4, 6))
        self._wanted = rng.choice(self._labels)
        self.goal = f"Press the button “{self._wanted}”."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=request.posted("pressed") == self._wanted)
        buttons = "".join(
            f'<button name="pressed" value="{h(x)}">{h(x)}</button>' for x in self._labels
        )
        return document("Buttons", f'<form method="post" action="/send">{buttons}</form>')


class EnterText(Task):
    """Type a text into a field and send it."""

    kind = "enter-text"

    def build(self, rng: Random) -> None:
        words = (rng.choice(COLOURS), rng.choice(THINGS), str(rng.randint(10, 99)))
        self._wanted = " ".join(words)
        self.goal = f"Enter “{self._wanted}” into the text field and press Submit."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=request.posted("text") == self._wanted)
        field = '<label>Text <input name="text" autocomplete="off"></label>'
        return document("A text", form(field))


class Login(Task):
    """Log in with a name and a password; three attempts."""

    kind = "login"
    attempts = 3

    def build(self, rng: Random) -> None:
        self._name = f"{rng.choice(FIRST_NAMES)}{rng.randint(10, 99)}".lower()
        self._password = "".join(rng.choices("abcdefghkmnpqrstuvwxyz23456789", k=10))
        self._failed = 0
        self.goal = f"Log in as “{self._name}” with the password “{self._password}”."

    def page(self, request: SiteRequest) -> str | None:
        note = ""
        if is_sent(request):
            given = request.posted("user"), request.posted("password")
            if given == (self._name, self._password):
                return self.finish(score=1)
            self._failed += 1
            if self._failed >= self.attempts:
                return self.finish(score=0)
            left = self.attempts - self._failed
            note = f'<p role="alert">Wrong name or password. Attempts left: {left}</p>'
        fields = (
            '<p><label>User <input name="user" autocomplete="off"></label>'
            '<p><label>Password <input name="password" type="password"></label>'
        )
        return document("Log in", note + form(fields, "Log in"))


class ChooseList(Task):
    """Choose an entry of a list and send it."""

    kind = "choose-list"

    def build(self, rng: Random) -> None:
        self._cities = rng.sample(CITIES, 10)
        self._wanted = rng.choice(self._cities)
        self.goal = f"Choose {self._wanted} from the list and press Submit."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=request.posted("city") == self._wanted)
        options = "".join(f"<option>{h(city)}</option>" for city in ("", *self._cities))
        return document(
            "Cities", form(f'<label>City <select name="city">{options}</select></label>')
        )


class CheckBoxes(Task):
    """Tick some boxes, and no others, and send them."""

    kind = "check-boxes"
    max_steps = 15

    def build(self, rng: Random) -> None:
        self._things = rng.sample(THINGS, 8)
        self._ticked = rng.choice(self._things)
        others = [thing for thing in self._things if thing != self._ticked]
        self._wanted = set(rng.sample(others, rng.randint(2, 4)))
        named = ", ".join(thing for thing in self._things if thing in self._wanted)
        self.goal = f"Tick exactly these boxes: {named}. Then press Submit."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=set(request.form.get("thing", [])) == self._wanted)
        boxes = "".join(
            f'<p><label><input type="checkbox" name="thing" value="{h(thing)}"'
            f"{' checked' if thing == self._ticked else ''}>{h(thing)}</label>"
            for thing in self._things
        )
        return document("Packing list", form(boxes))


CALENDAR = """
const form = document.forms[0], grid = document.getElementById("days");
let [year, month] = form.dataset.begin.split("-").map(Number);
const names = ["January", "February", "March", "April", "May", "June", "July", "August",
               "September", "October", "November", "December"];
const two = (number) => String(number).padStart(2, "0");
const show = () => {
    document.getElementById("month").textContent = `${names[month - 1]} ${year}`;
    grid.replaceChildren();
    for (let day = 1; day <= new Date(Date.UTC(year, month, 0)).getUTCDate(); day++) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = day;
        button.onclick = () => {
            form.date.value = `${year}-${two(month)}-${two(day)}`;
            document.getElementById("chosen").textContent = form.date.value;
        };
        grid.append(button);
    }
};
const turn = (by) => {
    month += by;
    if (month < 1) { month = 12; year--; }
    if (month > 12) { month = 1; year++; }
    show();
};
document.getElementById("earlier").onclick = () => turn(-1);
document.getElementById("later").onclick = () => turn(1);
show();
"""


class PickDate(Task):
    """Turn the pages of a calendar, and choose a day."""

    kind = "pick-date"
    max_steps = 15
    begin = date(2024, 5, 15)  # the day on which the pages' clock begins

    def build(self, rng: Random) -> None:
        day = self.begin + timedelta(days=rng.randint(-120, 120))
        self._wanted = day.isoformat()
        self.goal = f"Choose {day.day} {day:%B} {day.year} in the calendar and press Submit."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=request.posted("date") == self._wanted)
        body = (
            f'<form method="post" action="/send" data-begin="{self.begin.isoformat()}">'
            '<p><button type="button" id="earlier">Earlier</button> <b id="month"></b> '
            '<button type="button" id="later">Later</button><div id="days"></div>'
            '<p>Chosen: <output id="chosen">none</output><input type="hidden" name="date">'
            "<p><button>Submit</button></form>"
        )
        return document("Calendar", body, script=CALENDAR)


DRAGGING = """
for (const card of document.querySelectorAll(".card")) {
    card.ondragstart = (event) => event.dataTransfer.setData("text/plain", card.id);
}
for (const box of document.querySelectorAll(".box")) {
    box.ondragover = (event) => event.preventDefault();
    box.ondrop = (event) => {
        event.preventDefault();
        const card = document.getElementById(event.dataTransfer.getData("text/plain"));
        if (!card) return;
        box.append(card);
        document.forms[0].elements[card.dataset.thing].value = box.dataset.colour;
    };
}
"""
CARDS = """
.card { display: inline-block; border: 1px solid #555; padding: 8px 16px; margin: 6px; }
.box { border: 2px dashed #777; min-height: 60px; margin: 8px 0; padding: 6px; }
"""


class DragCard(Task):
    """Drag a card into a box; the others stay where they are."""

    kind = "drag-card"

    def build(self, rng: Random) -> None:
        self._things, self._colours = rng.sample(THINGS, 3), rng.sample(COLOURS, 3)
        self._thing, self._colour = rng.choice(self._things), rng.choice(self._colours)
        self.goal = (
            f"Drag the card “{self._thing}” into the {self._colour} box, leave the other cards "
            "alone, and press Submit."
        )

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            placed = {thing: request.posted(thing) for thing in self._things}
            wanted = dict.fromkeys(self._things, "") | {self._thing: self._colour}
            return self.finish(score=placed == wanted)
        cards = "".join(
            f'<div class="card" draggable="true" id="card-{h(x)}" data-thing="{h(x)}">{h(x)}</div>'
            for x in self._things
        )
        boxes = "".join(
            f'<div class="box" role="group" aria-label="{h(colour)} box" data-colour="{h(colour)}">'
            f"{h(colour)} box: </div>"
            for colour in self._colours
        )
        hidden = "".join(f'<input type="hidden" name="{h(thing)}">' for thing in self._things)
        return document("Cards", cards + boxes + form(hidden), script=DRAGGING, style=CARDS)


TERMS = """
const terms = document.getElementById("terms"), button = document.forms[0].querySelector("button");
terms.onscroll = () => {
    if (terms.scrollTop + terms.clientHeight >= terms.scrollHeight - 4) button.disabled = false;
};
"""


class ScrollTerms(Task):
    """Scroll a box to its end, which enables the button, and press that."""

    kind = "scroll-terms"

    def build(self, rng: Random) -> None:
        self._lines = [f"{i}. {rng.choice(VERBS)} the {rng.choice(THINGS)}." for i in range(1, 61)]
        self.goal = "Scroll the terms to their end, so that Accept can be pressed, and press it."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=1)
        lines = "".join(f"<p>{h(line)}" for line in self._lines)
        body = (
            '<div id="terms" role="region" aria-label="Terms" tabindex="0" '
            f'style="height:200px;overflow-y:scroll;border:1px solid">{lines}</div>'
        )
        return document("Terms", body + form("", "Accept", "disabled"), script=TERMS)


class FillForm(Task):
    """Put the parts of a text into the fields of a form; scored by the share that is right."""

    kind = "fill-form"
    max_steps = 15

    def build(self, rng: Random) -> None:
        first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
        self._wanted = {
            "first": first,
            "last": last,
            "city": rng.choice(CITIES),
            "colour": rng.choice(COLOURS),
            "count": str(rng.randint(2, 40)),
        }
        self.goal = (
            "Enter this order into the form and press Submit: “{count} {colour} boxes, please, to "
            "{city}. Yours, {first} {last}.”"
        ).format(**self._wanted)

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            right = sum(request.posted(name).strip() == x for name, x in self._wanted.items())
            return self.finish(score=right / len(self._wanted))
        colours = "".join(f"<option>{colour}</option>" for colour in ("", *COLOURS))
        fields = (
            '<p><label>First name <input name="first"></label>'
            '<p><label>Last name <input name="last"></label>'
            '<p><label>City <input name="city"></label>'
            f'<p><label>Colour <select name="colour">{colours}</select></label>'
            '<p><label>How many <input name="count" type="number"></label>'
        )
        return document("Order", form(fields))


WAITING = """
const form = document.forms[0];
setTimeout(() => {
    document.getElementById("note").textContent = "Ready.";
    const button = document.createElement("button");
    button.textContent = "Collect";
    form.append(button);
}, Number(form.dataset.after));
"""


class WaitForButton(Task):
    """Wait for a button that comes after some seconds, and press it."""

    kind = "wait-for-button"

    def build(self, rng: Random) -> None:
        self._after_ms = rng.randint(30, 120) * 100
        self._thing = rng.choice(THINGS)
        self.goal = f"Wait until the {self._thing} is ready, then press Collect."

    def page(self, request: SiteRequest) -> str | None:
        if is_sent(request):
            return self.finish(score=1)
        body = (
            f'<p id="note">The {h(self._thing)} is being made, which takes some seconds.</p>'
            f'<form method="post" action="/send" data-after="{self._after_ms}"></form>'
        )
        return document("Workshop", body, script=WAITING)
