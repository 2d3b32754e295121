"""The form that the page builds from a JSON schema, as a person fills it in, in a real browser."""

from __future__ import annotations

import datetime
import enum
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

import openenv
from openenv.types import Action

pytestmark = [
    pytest.mark.extended("of the web page; test_page.py fills a form in and plays"),
    pytest.mark.slow,
    # Playwright's synchronous face runs the test itself on its event loop.
    pytest.mark.blocks_the_loop,
]

ASSETS = Path(openenv.__file__).parent / "web" / "assets"
CHROMIUM = "/usr/bin/chromium"

# With trusted types, a page that sets `innerHTML` at all fails.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A form</title>
<link rel="stylesheet" href="form.css"><script type="module" src="start.js"></script></head>
<body><main></main></body></html>"""
START = """
import { buildForm, FormInvalid } from "./form.js";
window.submitted = 0;
window.show = ([schema, options]) => {
  const onSubmit = () => (window.submitted += 1);
  window.form = buildForm(JSON.parse(schema), { ...options, onSubmit });
  document.querySelector("main").replaceChildren(window.form.element);
};
// As text: what the browser sends is what is tested, and `__proto__` survives.
window.read = () => {
  try {
    return JSON.stringify({ value: window.form.value(), errors: [] });
  } catch (error) {
    if (!(error instanceof FormInvalid)) throw error;
    return JSON.stringify({ errors: error.errors });
  }
};
"""
KINDS = {"js": "text/javascript", "css": "text/css", "html": "text/html"}


class Assets(BaseHTTPRequestHandler):
    """The page under test, under the policy that the server will have."""

    def do_GET(self) -> None:
        name = self.path.lstrip("/") or "index.html"
        own = {"index.html": PAGE, "start.js": START}
        body = own[name].encode() if name in own else self.read_asset(name)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", KINDS.get(name.rpartition(".")[2], "text/plain"))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body or b"")

    @staticmethod
    def read_asset(name: str) -> bytes | None:
        path = ASSETS / name
        return path.read_bytes() if path.is_file() else None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Assets) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


class Form:
    """A form in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def read(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.page.evaluate("window.read()"))
        return read

    def value(self) -> Any:
        read = self.read()
        assert read["errors"] == []
        return read["value"]

    def errors(self) -> dict[str, str]:
        """What `value()` complains of, by place."""
        return {".".join(map(str, e["loc"])): e["msg"] for e in self.read()["errors"]}

    def call(self, method: str, value: Any = None) -> None:
        self.page.evaluate(f"text => window.form.{method}(JSON.parse(text))", json.dumps(value))

    def field(self, label: str) -> Locator:
        return self.page.get_by_label(label, exact=True)

    def group(self, legend: str) -> Locator:
        return self.page.get_by_role("group", name=legend, exact=True)

    def choose(self, group: str, choice: str) -> None:
        radios = self.page.get_by_role("radiogroup", name=group, exact=True)
        radios.get_by_label(choice, exact=True).check()

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def alert_at(self, control: Locator) -> str:
        """The error that a control is described by."""
        ids = (control.get_attribute("aria-describedby") or "").split()
        alerts = [self.page.locator(f"[id='{i}']").get_by_role("alert") for i in ids]
        return "; ".join(text for alert in alerts for text in alert.all_inner_texts())


Show = Callable[..., Form]


@pytest.fixture
def show(browser: Browser, address: str) -> Iterator[Show]:
    """Build the form of a model or a schema in a page of its own, which must have no errors."""
    page = browser.new_page(viewport={"width": 1000, "height": 800}, timezone_id="Europe/Berlin")
    page.set_default_timeout(5000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)

    def build(schema: type[BaseModel] | dict[str, Any], **options: Any) -> Form:
        if isinstance(schema, type):
            schema = schema.model_json_schema()
        page.evaluate("window.show", [json.dumps(schema), options])
        return Form(page)

    yield build
    page.close()
    assert complaints == []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int = Field(ge=0, le=9)
    y: int = 0


class Rich(Action):
    suit: Literal["clubs", "diamonds", "hearts", "spades"]
    level: Literal[1, 2, 3, 4, 5, 6, 7]
    colour: Colour = Colour.RED
    stake: float = Field(gt=0, lt=1)
    double: bool
    move: str = Field(pattern="^[a-h][1-8]$", description="A square.")
    code: str = "pass"
    start: Point
    end: Point | None = None
    tools: set[Literal["read", "write", "run"]] = Field(default=set())
    pair: tuple[int, Annotated[str, Field(title="Side")]]
    target: int | str


def test_a_form_filled_in_by_its_labels_gives_what_the_model_accepts(show: Show) -> None:
    form = show(Rich)
    form.choose("Suit", "hearts")
    form.field("Level").select_option("7")
    form.field("Stake").fill("0.25")
    form.field("Double").check()
    form.field("Move").fill("e4")
    form.field("Code").fill("a = 1\nb = 2")
    form.group("Start").get_by_label("X").fill("3")
    form.field("End").check()
    form.group("End").get_by_label("X").fill("9")
    form.field("write").check()
    form.field("Pair 1").fill("-5")
    form.field("Side").fill("left")
    form.field("Kind of Target").select_option("text")
    form.field("Target").fill("7")
    value = form.value()
    filled = Rich.model_validate(value)
    assert filled == Rich(
        suit="hearts",
        level=7,
        stake=0.25,
        double=True,
        move="e4",
        code="a = 1\nb = 2",
        start=Point(x=3),
        end=Point(x=9),
        tools={"write"},
        pair=(-5, "left"),
        target="7",
    )
    # What was neither touched nor is required keeps the server's default.
    assert "colour" not in value and "metadata" not in value and value["start"] == {"x": 3}


def test_a_value_that_is_shown_is_the_value_that_is_read(show: Show) -> None:
    form = show(Rich, omit=[])
    shown = Rich(
        suit="clubs",
        level=1,
        stake=0.5,
        double=False,
        move="a1",
        start=Point(x=1, y=-3),
        end=Point(x=2),
        tools={"run"},
        pair=(1, "two\nlines"),
        target=12,
        metadata={"why": ["so", 1, None]},
    ).model_dump(mode="json")
    form.call("setValue", shown)
    assert form.value() == shown
    expect(form.field("Kind of Target")).to_have_value("0")
    form.call("reset")
    assert set(form.errors()) == {
        *("suit", "level", "stake", "move", "start.x", "pair.0", "pair.1", "target")
    }


def test_what_is_missing_is_told_at_its_field_and_the_first_is_focused(show: Show) -> None:
    class Asked(BaseModel):
        note: str = "none"
        guess: str = Field(description="Five letters.")
        card: Literal["hit", "stand"]
        place: Point

    form = show(Asked)
    guess, x = form.field("Guess"), form.field("X")
    cards = form.page.get_by_role("radiogroup", name="Card", exact=True)
    assert form.errors() == {"guess": "required", "card": "choose one", "place.x": "required"}
    expect(guess).to_be_focused()
    expect(guess).to_have_accessible_description("required Five letters.")
    for control in (guess, cards, x):
        expect(control).to_have_attribute("aria-invalid", "true")
        expect(control).to_have_attribute("aria-required", "true")
    assert form.alert_at(cards) == "choose one" and form.alert_at(x) == "required"
    guess.press_sequentially("crane")
    expect(guess).not_to_have_attribute("aria-invalid", "true")
    assert form.alert_at(guess) == ""
    form.page.evaluate("window.form.clearErrors()")
    expect(form.page.get_by_role("alert")).to_have_count(0)
    form.page.evaluate("window.form.focusFirst()")
    expect(form.field("Note")).to_be_focused()


class Bounded(BaseModel):
    level: int = Field(default=3, ge=1, le=10)
    share: float = Field(default=0.5, gt=0, lt=1)
    even: int = Field(default=2, multiple_of=2)
    any: int = 0


@pytest.mark.parametrize(
    ("label", "typed", "complaint"),
    [
        ("Level", "11", "at least 1 and at most 10; you gave 11"),
        ("Level", "3.5", "a whole number; you gave 3.5"),
        ("Share", "0", "more than 0 and less than 1; you gave 0"),
        ("Even", "7", "a multiple of 2; you gave 7"),
        ("Any", "e", "a number"),
        ("Any", "9007199254740993", "not beyond ±9007199254740991"),
        ("Any", "-1e3", None),
    ],
)
def test_numbers_out_of_bounds_are_refused_with_the_bounds(
    show: Show, label: str, typed: str, complaint: str | None
) -> None:
    form = show(Bounded)
    form.field(label).clear()
    form.field(label).press_sequentially(typed)
    if complaint is None:
        assert form.value() == {label.lower(): float(typed)}
    else:
        assert form.errors()[label.lower()].startswith(complaint)


def test_a_slider_and_its_number_go_together(show: Show) -> None:
    form = show(Bounded)
    sliders = form.page.locator("input[type=range]")
    expect(sliders).to_have_count(2)
    form.field("Level").fill("8")
    expect(sliders.first).to_have_value("8")
    sliders.first.fill("4")
    expect(form.field("Level")).to_have_value("4")
    assert form.value() == {"level": 4}
    assert Bounded.model_json_schema()["properties"]["share"]["exclusiveMinimum"] == 0
    sliders.last.fill("0.01")
    assert form.value() == {"level": 4, "share": 0.01}


def test_texts_are_checked_as_python_counts_and_matches_them(show: Show) -> None:
    class Texts(BaseModel):
        word: str = Field(min_length=2, max_length=3)
        square: str = Field(pattern=r"^[a-h][1-8]\z")
        mail: str = Field(default="", json_schema_extra={"format": "email"})
        page: str = Field(default="", json_schema_extra={"format": "uri"})

    form = show(Texts)
    form.field("Word").fill("🂡🂱🃁")
    # `\z` means another thing in a browser: such a pattern is left to the server.
    form.field("Square").fill("e4")
    assert Texts.model_validate(form.value()).word == "🂡🂱🃁"
    form.field("Word").fill("abcd")
    form.field("Mail").fill("nobody")
    form.field("Page").fill("example")
    errors = form.errors()
    assert errors["word"] == "at least 2 and at most 3 characters; you gave 4"
    assert errors["mail"].startswith("an e-mail address") and errors["page"].startswith(
        "an address"
    )


def test_empty_means_null_or_left_out_as_the_schema_has_it(show: Show) -> None:
    class Nullable(BaseModel):
        text: str | None = None
        number: int | None = 5
        must: int | None
        flag: bool | None = None
        one: Literal["a"] | None = None
        names: list[str] | None = None
        title: str = "old"

    form = show(Nullable)
    assert form.value() == {"must": None}
    form.field("Number").clear()
    form.field("Title").clear()
    form.choose("Flag", "no")
    form.choose("One", "a")
    form.field("Names").check()
    expected: dict[str, Any] = {"number": None, "must": None, "one": "a", "title": ""}
    assert form.value() == {**expected, "flag": False, "names": []}
    form.choose("Flag", "none")
    form.field("Names").uncheck()
    assert form.value() == {**expected, "flag": None}
    Nullable.model_validate(form.value())


class Move(BaseModel):
    """Walk."""

    kind: Literal["move"] = "move"
    to: Point


class Say(BaseModel):
    kind: Literal["say"] = "say"
    text: str


class Turn(BaseModel):
    turn: Annotated[Move | Say, Field(discriminator="kind")]
    reply: Move | Say | None = None


def test_a_union_is_a_choice_that_remembers_the_branches_not_chosen(show: Show) -> None:
    form = show(Turn)
    form.group("Turn").get_by_label("X").fill("4")
    form.field("Kind of Turn").select_option("say")
    form.group("Turn").get_by_label("Text").fill("hello")
    assert form.value() == {"turn": {"kind": "say", "text": "hello"}}
    form.field("Kind of Turn").select_option("move")
    assert form.value() == {"turn": {"kind": "move", "to": {"x": 4}}}
    form.field("Kind of Reply").select_option("say")
    form.group("Reply").get_by_label("Text").fill("hi")
    assert Turn.model_validate(form.value()).reply == Say(text="hi")
    form.field("Kind of Reply").select_option("none")
    assert form.value()["reply"] is None
    form.call("setValue", {"turn": {"kind": "say", "text": "a"}, "reply": {"to": {"x": 1, "y": 2}}})
    expect(form.field("Kind of Reply")).to_have_value("1")
    assert form.value()["reply"] == {"kind": "move", "to": {"x": 1, "y": 2}}


def test_lists_of_models_grow_shrink_and_are_sorted_by_keyboard(show: Show) -> None:
    class Message(BaseModel):
        role: Literal["user", "assistant"] = "user"
        content: str

    class Chat(BaseModel):
        messages: list[Message] = Field(min_length=2, max_length=3)

    form = show(Chat)
    expect(form.page.get_by_label("Content", exact=True)).to_have_count(2)
    form.press("Add to Messages")
    expect(form.page.get_by_role("button", name="Add to Messages")).to_be_disabled()
    for number, text in enumerate(("one", "two", "three"), start=1):
        form.group(f"Message {number}").get_by_label("Content").fill(text)
    form.page.get_by_role("button", name="Move Message 3 up", exact=True).focus()
    form.page.keyboard.press("Enter")
    expect(form.page.get_by_role("button", name="Move Message 2 up", exact=True)).to_be_focused()
    form.page.keyboard.press("Enter")
    assert [m.content for m in Chat.model_validate(form.value()).messages] == [
        "three",
        "one",
        "two",
    ]
    form.press("Remove Message 1")
    expect(form.page.get_by_role("button", name="Remove Message 1", exact=True)).to_be_focused()
    assert [m["content"] for m in form.value()["messages"]] == ["one", "two"]
    form.press("Remove Message 2")
    assert form.errors() == {"messages": "at least 2 and at most 3 items; you gave 1"}
    assert form.alert_at(form.group("Messages")).startswith("at least 2")


def test_numbers_may_be_pasted_as_text(show: Show) -> None:
    class Orders(BaseModel):
        actions: list[Annotated[float, Field(ge=-1, le=1)]]
        cells: Annotated[list[int], Field(min_length=3, max_length=3)] = [1, 2, 3]
        words: Annotated[list[str], Field(json_schema_extra={"uniqueItems": True})] = ["a", "a"]

    form = show(Orders)
    assert form.value() == {"actions": []}
    form.press("Actions as text")
    form.page.get_by_role("textbox", name="Actions as text").fill("[0.5, -1,\n 1e-1]")
    assert form.value()["actions"] == [0.5, -1, 0.1]
    form.press("Actions as rows")
    form.field("Actions 2").fill("1")
    assert form.value()["actions"] == [0.5, 1, 0.1]
    form.press("Actions as text")
    form.page.get_by_role("textbox", name="Actions as text").fill("0 2")
    form.field("Words 1").fill("b")
    form.field("Words 1").fill("a")
    assert form.errors() == {
        "actions": "2: at least -1 and at most 1; you gave 2",
        "words": "each once; 2 repeats 1",
    }
    expect(form.page.get_by_role("button", name="Add to Cells")).to_have_count(0)


class Node(BaseModel):
    name: str
    children: list[Node] = []
    parent: Node | None = None


class Plus(BaseModel):
    left: Plus | int
    right: Plus | int


def test_a_recursive_model_is_built_as_far_as_it_is_opened(show: Show) -> None:
    form = show(Node)
    form.field("Name").fill("root")
    form.press("Add to Children")
    child = form.group("Node 1")
    child.get_by_label("Name").fill("leaf")
    child.get_by_label("Parent").check()
    child.get_by_role("group", name="Parent").get_by_label("Name").fill("other")
    tree = Node(name="root", children=[Node(name="leaf", parent=Node(name="other"))])
    assert Node.model_validate(form.value()) == tree
    tree.children[0].children = [Node(name="deep")]
    form.call("setValue", tree.model_dump())
    assert form.value() == tree.model_dump()
    form = show(Plus)
    form.field("Kind of Left").select_option("Plus")
    form.group("Left").get_by_label("Left", exact=True).fill("1")
    form.group("Left").get_by_label("Right", exact=True).fill("2")
    form.field("Right").last.fill("3")
    assert form.value() == {"left": {"left": 1, "right": 2}, "right": 3}


def test_dictionaries_are_rows_of_names_and_values(show: Show) -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        scores: dict[str, int]
        sizes: dict[Literal["small", "large"], bool] = {}
        arguments: dict[str, Any] = {}

    form = show(Open)
    form.press("Add to Scores")
    form.field("Name 1 of Scores").fill("anna")
    form.field("Value 1 of Scores").fill("3")
    form.press("Add to Scores")
    form.field("Name 2 of Scores").fill("anna")
    form.press("Add to Sizes")
    form.field("Name 1 of Sizes").select_option("large")
    form.press("Add to Arguments")
    form.field("Name 1 of Arguments").fill("path")
    form.field("Value 1 of Arguments").fill("hello")
    form.press("Add to More")
    form.field("Name 1 of More").fill("scores")
    form.field("Value 1 of More").fill("1")
    errors = form.errors()
    assert errors["scores.anna.[key]"] == "is there already"
    assert 'text needs quotes: "hello"' in errors["arguments.path"]
    assert errors["scores.[key]"] == "is there already"
    assert form.alert_at(form.field("Name 2 of Scores")) == "is there already"
    form.press("Remove 2 of Scores")
    form.field("Value 1 of Arguments").fill('{"deep": [1]}')
    form.field("Name 1 of More").fill("extra")
    filled = Open.model_validate(form.value())
    assert filled.scores == {"anna": 3} and filled.sizes == {"large": False}
    assert filled.arguments == {"path": {"deep": [1]}}
    assert filled.model_extra == {"extra": 1}


def test_a_hostile_schema_is_only_text(show: Show) -> None:
    bad = "<img src=x onerror=\"document.title='owned'\">"
    schema: dict[str, Any] = {
        "type": "object",
        "title": bad,
        "description": bad,
        "properties": {
            "__proto__": {"type": "string", "title": bad, "description": bad},
            "constructor": {"enum": [bad, "b"], "default": "b"},
            "toString": {"$ref": "#/$defs/__proto__"},
            "text": {"type": "string", "pattern": "(", "examples": {"a": bad}, "title": {"a": 1}},
            "junk": {"type": "__proto__", "enum": 3, "anyOf": "x", "properties": [1]},
            "many": {"type": "array", "minItems": 1e9, "items": {"const": bad}},
            "map": {"type": "object", "additionalProperties": True},
        },
        "required": ["__proto__", "constructor", "toString", "many", 7],
        "$defs": {"__proto__": {"type": "integer", "title": "Own"}},
    }
    form = show(schema)
    form.page.get_by_label(bad, exact=True).first.fill("x")
    form.field("ToString").fill("1")
    form.press("Add to Map")
    form.field("Name 1 of Map").fill("__proto__")
    form.field("Value 1 of Map").fill('{"polluted": true}')
    form.field("Text").fill(bad)
    form.call("setErrors", [{"loc": ["__proto__"], "msg": bad}, {"loc": 3}, 4, {"msg": {}}])
    errors = form.page.get_by_role("alert")
    assert errors.all_inner_texts() == ["not valid", "not valid", bad]
    errors = form.read()["errors"]
    assert [error["loc"] for error in errors] == [["many"]]
    while form.page.get_by_role("button", name="Remove Many").count():
        form.page.evaluate("document.querySelectorAll('button[aria-label^=Remove]')[0].click()")
    form.call("setValue", json.loads('{"__proto__": "p", "map": {"__proto__": {"polluted": 1}}}'))
    form.page.evaluate("window.read()")
    assert form.page.evaluate("({}).polluted") is None
    assert form.page.evaluate("Object.hasOwn(Object.prototype, 'p')") is False
    expect(form.page.locator("img")).to_have_count(0)
    expect(form.page).to_have_title("A form")


def test_names_of_properties_may_be_those_of_every_object(show: Show) -> None:
    names = ["__proto__", "constructor", "hasOwnProperty"]
    text = {"type": "string"}
    form = show({"type": "object", "properties": dict.fromkeys(names, text), "required": names})
    value = dict.fromkeys(names, "x")
    form.call("setValue", value)
    assert form.value() == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "object", "properties": {"a": {"$ref": "#", "default": {}}}},
        {
            # Each level has twice as many fields as the one above.
            "$ref": "#/$defs/0",
            "$defs": {
                str(level): {
                    "type": "object",
                    "properties": {
                        name: {"$ref": f"#/$defs/{level + 1}"} if level < 30 else {"type": "string"}
                        for name in "ab"
                    },
                    "required": ["a", "b"],
                }
                for level in range(31)
            },
        },
        {"allOf": [{"$ref": "#"}, {"properties": {"a": {"$ref": "#/nowhere"}}}]},
        {"type": ["object", "array", "null", 3]},
    ],
)
def test_endless_schemas_come_to_an_end(show: Show, schema: dict[str, Any]) -> None:
    form = show(schema)
    assert form.page.locator("input, select, textarea, button").count() < 5000
    form.read()
    form.call("setValue", {"a": {"a": [{"a": None}]}})
    form.call("reset")


def test_errors_of_the_model_are_shown_at_their_fields(show: Show) -> None:
    class Checked(BaseModel):
        kind: Literal["checked"] = "checked"
        text: str

        @field_validator("text")
        @classmethod
        def has_no_space(cls, text: str) -> str:
            if " " in text:
                raise ValueError("no spaces")
            return text

        @model_validator(mode="after")
        def is_short(self) -> Checked:
            if len(self.text) > 3:
                raise ValueError("too long")
            return self

    class Plan(BaseModel):
        model_config = ConfigDict(extra="forbid")
        points: list[Point]
        turn: Annotated[Move | Say, Field(discriminator="kind")]
        reply: Move | Checked
        scores: dict[str, int]
        level: int | str | None = None

    def errors_of(value: dict[str, Any]) -> Any:
        with pytest.raises(ValidationError) as caught:
            Plan.model_validate(value)
        return json.loads(caught.value.json())

    form = show(Plan)
    form.call("setValue", {"reply": {"kind": "checked", "text": "a b"}, "scores": {"anna": 1}})
    form.press("Add to Points")
    form.press("Add to Points")
    value = {
        "points": [{"x": 1}, {"x": 99}],
        "turn": {"kind": "move", "to": {"x": "q"}},
        "reply": {"kind": "checked", "text": "a b"},
        "scores": {"anna": "many"},
        "level": [],
        "unknown": 1,
    }
    form.call("setErrors", errors_of(value))
    alert = form.alert_at
    assert alert(form.group("Point 2").get_by_label("X")).startswith("Input should be less than")
    assert alert(form.group("Turn").get_by_label("X")).startswith("Input should be a valid integer")
    assert "no spaces" in alert(form.group("Reply").get_by_label("Text"))
    assert alert(form.field("Value 1 of Scores")).startswith("Input should be a valid integer")
    level = form.group("Level").get_by_role("alert")
    assert "valid" in " ".join(level.all_inner_texts())
    top = form.page.get_by_role("alert").first
    expect(top).to_have_text("unknown: Extra inputs are not permitted")
    # The branches that are not chosen have errors of their own, which nobody needs.
    expect(form.group("Reply").get_by_role("alert")).to_have_count(1)

    value["reply"] = {"kind": "checked", "text": "long"}
    form.call("setErrors", [e for e in errors_of(value) if e["loc"][0] == "reply"])
    expect(form.page.get_by_role("alert")).to_have_text(["Value error, too long"])
    expect(form.group("Reply").get_by_role("alert")).to_have_count(1)


def test_enter_submits_and_in_texts_of_many_lines_with_control(show: Show) -> None:
    class Asked(BaseModel):
        word: str
        code: str
        card: Literal["hit", "stand"]

    form = show(Asked)
    submitted: Callable[[], int] = lambda: form.page.evaluate("window.submitted")  # noqa: E731
    form.field("Word").press("Enter")
    assert submitted() == 1
    form.field("Code").press("Enter")
    assert submitted() == 1 and form.field("Code").input_value() == "\n"
    form.field("Code").press("Control+Enter")
    assert submitted() == 2 and form.field("Code").input_value() == "\n"
    form.choose("Card", "hit")
    form.page.keyboard.press("ArrowRight")
    form.page.keyboard.press("Enter")
    expect(form.field("stand")).to_be_checked()
    assert submitted() == 3


def test_times_are_sent_as_the_model_had_them_or_with_their_offset(show: Show) -> None:
    class Times(BaseModel):
        at: AwareDatetime
        local: datetime.datetime = datetime.datetime(2024, 2, 3, 4, 5)
        day: datetime.date
        hour: datetime.time
        fine: AwareDatetime | None = None

    form = show(Times)
    form.field("At").fill("2024-07-01T12:00:00")
    form.field("Local").fill("2024-02-03T04:06:00")
    form.field("Day").fill("2024-02-29")
    form.field("Hour").fill("13:14:15")
    berlin = datetime.timezone(datetime.timedelta(hours=2))
    times = Times.model_validate(form.value())
    assert times == Times(
        at=datetime.datetime(2024, 7, 1, 12, tzinfo=berlin),
        local=datetime.datetime(2024, 2, 3, 4, 6),
        day=datetime.date(2024, 2, 29),
        hour=datetime.time(13, 14, 15),
    )
    times.fine = datetime.datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=berlin)
    form.call("setValue", times.model_dump(mode="json"))
    assert Times.model_validate(form.value()) == times


def test_schemas_that_say_nothing_take_json_and_empty_ones_nothing(show: Show) -> None:
    form = show({"properties": {"any": {}}, "required": ["any"]})
    form.field("Any").fill('{"id": 9007199254740993}')
    assert "9007199254740993" in form.errors()["any"]
    form.field("Any").fill('{"id": "9007199254740993", "x": 1e30}')
    assert form.value() == {"any": {"id": "9007199254740993", "x": 1e30}}

    class Nothing(Action):
        kind: Literal["wait"] = "wait"

    for schema, value in (
        (Action.model_json_schema(), {}),
        ({"type": "object"}, {}),
        (Nothing.model_json_schema(), {"kind": "wait"}),
    ):
        form = show(schema)
        assert form.page.evaluate("window.form.isEmpty") is True
        assert form.value() == value
    form = show({"type": "integer", "title": "Choice", "maximum": 3, "minimum": 0})
    form.field("Choice").fill("2")
    assert form.value() == 2 and form.page.evaluate("window.form.isEmpty") is False


def test_every_control_has_a_name_and_fits_a_small_screen(show: Show) -> None:
    class Everything(Rich):
        turn: Annotated[Move | Say, Field(discriminator="kind")]
        scores: dict[str, Point] = Field(default={"anna": Point(x=1)})
        weights: list[float] = Field(default=[1.5])
        points: list[list[Point]] = Field(default=[[Point(x=1)]])
        a_very_long_name_without_any_end_that_has_to_be_broken_somewhere: str = "x" * 300
        anything: Any = None

    form = show(Everything)
    form.page.set_viewport_size({"width": 320, "height": 700})
    assert form.page.evaluate("document.documentElement.scrollWidth") <= 320
    unnamed = """() => [...document.querySelectorAll("input, select, textarea, output")]
      .filter((control) => control.getAttribute("aria-hidden") !== "true")
      .filter((control) => !control.labels?.length || !control.labels[0].textContent.trim())
      .map((control) => control.outerHTML)"""
    assert form.page.evaluate(unnamed) == []
    ids: list[str] = form.page.evaluate(
        "[...document.querySelectorAll('[id]')].map((element) => element.id)"
    )
    assert len(ids) == len(set(ids))
    before = form.page.evaluate("document.activeElement.tagName")
    for _ in range(4):
        form.page.keyboard.press("Tab")
    assert before == "BODY" and form.page.evaluate("document.activeElement.tagName") != "BODY"
    outline = form.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
