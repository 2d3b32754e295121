"""Tasks of several pages: links, search, tables, tabs, menus, pages, a basket."""

from __future__ import annotations

from random import Random

from ..sites import SiteRequest
from .base import Task, document, h
from .words import CITIES, COLOURS, FIRST_NAMES, LAST_NAMES, THINGS, VERBS

__all__ = [
    "Checkout",
    "ClickLink",
    "DeleteEntry",
    "HoverMenu",
    "Pages",
    "Search",
    "TableLookup",
    "Voucher",
]


def number_in(path: str, prefix: str) -> int | None:
    """Return the number after a prefix of a path, or None."""
    tail = path.removeprefix(prefix)
    is_number = path.startswith(prefix) and tail.isascii() and tail.isdigit() and len(tail) < 6
    return int(tail) if is_number else None


def some_goods(rng: Random, count: int) -> list[str]:
    """Choose different goods, such as “red lamp”."""
    pairs = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
    return rng.sample(pairs, count)


class ClickLink(Task):
    """Follow the link of a given name in a text."""

    kind = "click-link"
    max_steps = 5

    def build(self, rng: Random) -> None:
        self._links = rng.sample(THINGS, 6)
        self._wanted = rng.randrange(6)
        self._writers = rng.sample(FIRST_NAMES, 6)
        self.goal = f"Follow the link “{self._links[self._wanted]}”."

    def page(self, request: SiteRequest) -> str | None:
        number = number_in(request.path, "/about/")
        if number is not None and self.came_from(request, "/"):
            return self.finish(score=number == self._wanted)
        lines = "".join(
            f'<p>{h(writer)} wrote about the <a href="/about/{i}">{h(link)}</a>.'
            for i, (writer, link) in enumerate(zip(self._writers, self._links, strict=True))
        )
        return document("Notes", lines)


class Search(Task):
    """Search a catalog and open one of the results."""

    kind = "search"

    def build(self, rng: Random) -> None:
        self._thing = rng.choice(THINGS)
        colours = rng.sample(COLOURS, 4)
        self._goods = [f"{colour} {self._thing}" for colour in colours]
        self._goods += [one for one in some_goods(rng, 30) if self._thing not in one]
        rng.shuffle(self._goods)
        self._wanted = f"{rng.choice(colours)} {self._thing}"
        self.goal = f"Search for “{self._thing}” and open the result “{self._wanted}”."

    def page(self, request: SiteRequest) -> str | None:
        number = number_in(request.path, "/goods/")
        if number is not None and number < len(self._goods):
            if self.came_from(request, "/search"):
                return self.finish(score=self._goods[number] == self._wanted)
            return document(self._goods[number], "<p>In stock.</p>")
        asked = request.query.get("q", "").strip().lower()
        results = "".join(
            f'<li><a href="/goods/{i}">{h(one)}</a>'
            for i, one in enumerate(self._goods)
            if asked and asked in one
        )
        found = f"<ul>{results}</ul>" if results else f"<p>{'Nothing found.' if asked else ''}</p>"
        field = f'<label>Search <input type="search" name="q" value="{h(asked)}"></label>'
        return document(
            "Catalogue", f'<form action="/search">{field}<button>Search</button></form>{found}'
        )


class TableLookup(Task):
    """Find a value in a table, and answer with it."""

    kind = "table-lookup"
    max_steps = 5

    def build(self, rng: Random) -> None:
        names = rng.sample([f"{a} {b}" for a in FIRST_NAMES for b in LAST_NAMES], 15)
        self._rows = [
            (name, rng.choice(CITIES), str(extension))
            for name, extension in zip(names, rng.sample(range(1000, 9999), 15), strict=True)
        ]
        name, city, extension = rng.choice(self._rows)
        if rng.random() < 0.5:
            self._wanted, self.goal = extension, f"What is the extension of {name}?"
        else:
            self._wanted, self.goal = city, f"In which city does {name} work?"
        self.goal += " Answer with that alone."

    def judge(self, answer: str) -> float:
        return float(answer.strip().rstrip(".").casefold() == self._wanted.casefold())

    def page(self, request: SiteRequest) -> str | None:
        head = "<tr><th>Name<th>City<th>Extension"
        rows = "".join("<tr>" + "".join(f"<td>{h(x)}" for x in row) for row in self._rows)
        return document("Directory", f"<table>{head}{rows}</table>")


class Voucher(Task):
    """Read a code in another tab, and enter it in the first."""

    kind = "voucher"

    def build(self, rng: Random) -> None:
        self._code = "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=8))
        self.goal = (
            "Open the voucher, which comes in another tab, go back to the tab of the shop, enter "
            "the voucher's code there and press Redeem."
        )

    def page(self, request: SiteRequest) -> str | None:
        if request.path == "/voucher":
            return document("Voucher", f"<p>Your code is <b>{h(self._code)}</b>.</p>")
        if request.path == "/redeem" and request.method == "POST":
            return self.finish(score=request.posted("code").strip().upper() == self._code)
        body = (
            '<p><a href="/voucher" target="_blank">Show my voucher</a>'
            '<form method="post" action="/redeem"><label>Code <input name="code"></label>'
            "<button>Redeem</button></form>"
        )
        return document("Shop", body)


MENU = """
li { list-style: none; }
.menu > li { display: inline-block; position: relative; padding: 6px 14px; }
.menu ul { display: none; position: absolute; left: 0; background: #eee; padding: 6px; }
.menu > li:hover > ul { display: block; }
"""


class HoverMenu(Task):
    """Open a menu by moving the mouse onto it, and choose an entry."""

    kind = "hover-menu"

    def build(self, rng: Random) -> None:
        entries = rng.sample(VERBS, 12)
        cities = rng.sample(CITIES, 3)
        self._menus = {city: entries[4 * i : 4 * i + 4] for i, city in enumerate(cities)}
        self._menu = rng.choice(list(self._menus))
        self._wanted = rng.choice(self._menus[self._menu])
        self.goal = f"Choose “{self._wanted}” in the menu “{self._menu}”."

    def page(self, request: SiteRequest) -> str | None:
        if request.path == "/choose" and request.method == "POST":
            return self.finish(score=request.posted("entry") == self._wanted)
        menus = "".join(
            f"<li>{h(menu)}<ul>"
            + "".join(f'<li><button name="entry" value="{h(x)}">{h(x)}</button>' for x in entries)
            + "</ul>"
            for menu, entries in self._menus.items()
        )
        body = f'<form method="post" action="/choose"><ul class="menu">{menus}</ul></form>'
        return document("Menus", body, style=MENU)


class Pages(Task):
    """Turn the pages of a catalog until an article appears, and order it."""

    kind = "pages"
    a_page = 6

    def build(self, rng: Random) -> None:
        self._goods = some_goods(rng, 5 * self.a_page)
        self._wanted = rng.randrange(len(self._goods))
        self.goal = (
            f"Find “{self._goods[self._wanted]}” in the catalogue and press its Order button."
        )

    def page(self, request: SiteRequest) -> str | None:
        if request.path == "/order" and request.method == "POST":
            return self.finish(score=request.posted("number") == str(self._wanted))
        place = number_in(request.path, "/page/") or 0
        first, last = place * self.a_page, (place + 1) * self.a_page
        rows = "".join(
            f'<tr><td>{h(one)}<td><form method="post" action="/order">'
            f'<button name="number" value="{first + i}">Order</button></form>'
            for i, one in enumerate(self._goods[first:last])
        )
        if not rows:
            return None
        earlier = f'<a href="/page/{place - 1}">Earlier</a> ' if place else ""
        later = f'<a href="/page/{place + 1}">Later</a>' if last < len(self._goods) else ""
        return document(
            "Catalogue", f"<table>{rows}</table><nav>Page {place + 1}: {earlier}{later}</nav>"
        )


class DeleteEntry(Task):
    """Delete an entry of a list, and confirm it in the page's dialog."""

    kind = "delete-entry"

    def build(self, rng: Random) -> None:
        self._entries = rng.sample(THINGS, 6)
        self._wanted = rng.choice(self._entries)
        self.goal = (
            f"Delete the entry “{self._wanted}”. The page asks whether you are sure: confirm it."
        )

    def page(self, request: SiteRequest) -> str | None:
        if request.path == "/delete" and request.method == "POST":
            return self.finish(score=request.posted("entry") == self._wanted)
        rows = "".join(
            f'<li>{h(entry)} <button name="entry" value="{h(entry)}" '
            f'aria-label="Delete {h(entry)}">Delete</button>'
            for entry in self._entries
        )
        body = f'<form method="post" action="/delete"><ul>{rows}</ul></form>'
        sure = 'document.forms[0].onsubmit = () => confirm("Are you sure?");'
        return document("Entries", body, script=sure)


class Checkout(Task):
    """Put two articles into a basket, and check out with these alone."""

    kind = "checkout"
    max_steps = 15

    def build(self, rng: Random) -> None:
        self._goods = some_goods(rng, 8)
        self._wanted = set(rng.sample(range(8), 2))
        self._basket: set[int] = set()
        names = " and the ".join(self._goods[i] for i in sorted(self._wanted))
        self.goal = f"Put the {names} into the basket, go to the basket and press Check out."

    def page(self, request: SiteRequest) -> str | None:
        if request.method == "POST" and request.path == "/check-out":
            return self.finish(score=self._basket == self._wanted)
        if request.method == "POST" and request.path in ("/add", "/remove"):
            self._change(request)
        return self._show_basket() if request.path in ("/basket", "/remove") else self._show_goods()

    def _change(self, request: SiteRequest) -> None:
        number = number_in(request.posted("number"), "")
        if number is None or number >= len(self._goods):
            return
        if request.path == "/add":
            self._basket.add(number)
        else:
            self._basket.discard(number)

    def _show_goods(self) -> str:
        rows = self._rows(range(len(self._goods)), "/add", "Add")
        link = f'<nav><a href="/basket">Basket ({len(self._basket)})</a></nav>'
        return document("Shop", f"<table>{rows}</table>{link}")

    def _show_basket(self) -> str:
        rows = self._rows(sorted(self._basket), "/remove", "Remove")
        return document(
            "Basket",
            f'<table>{rows}</table><nav><a href="/">Shop</a></nav>'
            '<form method="post" action="/check-out"><button>Check out</button></form>',
        )

    def _rows(self, numbers: range | list[int], path: str, button: str) -> str:
        return "".join(
            f'<tr><td>{h(self._goods[i])}<td><form method="post" action="{path}"><button '
            f'name="number" value="{i}" aria-label="{button} {h(self._goods[i])}">{button}</button>'
            "</form>"
            for i in numbers
        )
