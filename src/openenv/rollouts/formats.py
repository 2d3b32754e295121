"""Read the tool calls in a model's reply, in the formats that chat templates teach models.

Each format is recognized by its own markers, so that a reply can be read without knowing which
model wrote it. `tests/trainers/families/` holds one reply of each family of models.

Three shapes cover nearly all formats:

- JSON that names the tool itself: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``
  (Hermes, Qwen 2.5 and 3), a list of such objects (Mistral, Granite, Command R), or JSON without a
  marker (Llama 3).
- A header that names the tool, followed by JSON: ``[TOOL_CALLS]NAME[ARGS]{...}`` (Mistral),
  DeepSeek, Kimi K2, gpt-oss, Functionary, Solar.
- Tags around plain-text values, whose type only the tool's schema knows (Qwen 3.5 and Coder,
  Nemotron 3, Seed-OSS, GLM, MiniMax, DeepSeek 3.2).

LFM2 and Llama 4 write Python, Gemma 4 a notation of its own.

A policy may write anything, and its reply may be cut off at any place. Reading takes time
proportional to the length of the reply, for any content.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

NAMES = ("name", "tool", "tool_name")
ARGUMENTS = ("arguments", "args", "parameters")
MAX_DEPTH = 50
MOST_UNCLOSED = 8  # unclosed calls after which the rest of a reply is not read
IN_VAIN = 16  # times the reply's length that may be spent on invalid JSON
TRY = 64  # minimum cost of one attempt, in characters
WINDOW = 512  # characters tried first: reporting an error takes time for all the text before it
DEEPEST = 10_000  # brackets that a JSON parser follows before it gives up

Called = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""


@dataclass(frozen=True)
class Region:
    """A part of a reply in which tools are called.

    Attributes:
        start: The beginning in characters, opening markers included.
        end: The end in characters, closing markers included.
        calls: The calls, in order. Values are `Text` if the format writes them as plain text.
        why: Reason why the rest could not be read; None if everything was read.
        is_marked: True if a format's markers enclose the part; False for JSON in running text.
    """

    start: int
    end: int
    calls: Sequence[Called] = ()
    why: str | None = None
    is_marked: bool = True


class Text(str):
    """A value written as plain text, whose type only the tool's schema knows."""

    __slots__ = ()


def typed_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """Convert a value of a plain-text format to the type in the tool's schema.

    Args:
        value: The value. Only `Text` is converted.
        schema: The JSON schema of the parameter, with references resolved.
    """
    if not isinstance(value, Text):
        return value
    kinds = _kinds(schema)
    if "string" in kinds and len(kinds) == 1:
        return str(value)
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        read = {"True": True, "False": False, "None": None}.get(value, str(value))
    if "string" in kinds and not _fits(read, kinds):
        return str(value)
    return read


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows; ``any`` if the schema does not restrict them."""
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return {_kind(value) for value in values}
    inner = schema.get("anyOf") or schema.get("oneOf")
    if inner:
        return set().union(*(_kinds(one) for one in inner))
    kind = schema.get("type")
    return set(kind) if isinstance(kind, list) else {kind or "any"}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    of_type = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return of_type.get(type(value), "object")


def _fits(value: Any, kinds: set[str]) -> bool:
    kind = _kind(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def regions_in(text: str) -> list[Region]:
    """Return the parts of a reply in which tools are called, in textual order.

    If a reply has calls between markers, JSON elsewhere in the reply does not count as a call.

    Args:
        text: The reply without its thoughts, special tokens included.
    """
    found: list[Region] = []
    for read in FORMATS:
        taken = _ReadSpans(found)
        found += [one for one in read(text) if not taken.overlaps(one.start, one.end)]
    found.sort(key=lambda one: one.start)
    marked = [one for one in found if one.is_marked]
    return marked or found


class _ReadSpans:
    """The parts of a text that regions cover."""

    def __init__(self, regions: Iterable[Region]) -> None:
        spans = sorted((one.start, one.end) for one in regions)
        self._starts = [start for start, _ in spans]
        self._furthest = list(accumulate((end for _, end in spans), max))

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether a region overlaps the text between two positions."""
        before = bisect_left(self._starts, end)
        return before > 0 and self._furthest[before - 1] > start


# ------------------------------------------------------------------ a header followed by JSON

_WORD = r"[\w.\-]+"
_BAR = "\uff5c"  # the wide bar of DeepSeek's markers
HEADERS = [
    re.compile(pattern)
    for pattern in (
        rf"<function=(?P<name>{_WORD})>\s*(?=\{{)",  # Functionary 3.1
        rf"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>{_WORD}?)(?::\d+)?\s*"
        r"<\|tool_call_argument_begin\|>\s*(?=\{)",  # Kimi K2
        rf"to=(?:functions\.)?(?P<name>{_WORD})[^{{]{{0,80}}?<\|message\|>\s*(?=\{{)",  # gpt-oss
        rf"\[TOOL_CALLS\]\s*(?P<name>{_WORD})(?:\[CALL_ID\]\w+)?\s*(?:\[ARGS\])?\s*(?=\{{)",
        rf"<{_BAR}tool▁call▁begin{_BAR}>(?:function<{_BAR}tool▁sep{_BAR}>)?(?P<name>{_WORD})"
        rf"(?:<{_BAR}tool▁sep{_BAR}>|\s*```json)\s*(?=\{{)",  # DeepSeek
        rf">>>(?P<name>{_WORD})[^\S\n]*\n\s*(?=\{{)",  # Functionary 3.2
        rf"<\|tool_call:name\|>(?P<name>{_WORD})<\|tool_call:args\|>\s*(?=\{{)",  # Solar
    )
]
# Closing markers: they belong to the calls before them, not to the words after them.
CLOSERS = re.compile(
    rf"(?:[\s\],]|```|</(?:\w+:|{_BAR}DSML{_BAR})?(?:tool_calls?|TOOLCALL|function_calls?|function|invoke)"
    r"(?::\w+)?>|<\|END_ACTION\|>|<\|tools_suffix\|>|<\|tool_call_end\|>|<\|/tool_call\|>"
    rf"|<\|tool_calls_section_end\|>|<{_BAR}tool▁calls?▁end{_BAR}>|<\|tool_call:end\|>"
    r"|<\|calls\|>|<tool_call\|>|<end_function_call>)*"
)


def _closed(text: str, end: int) -> int:
    """Return the end of a call, after the closing markers that follow `end`, without whitespace."""
    found = CLOSERS.match(text, end)
    assert found is not None
    return end + len(found[0].rstrip())


def _by_headers(text: str) -> Iterator[Region]:
    for header in HEADERS:
        for found in header.finditer(text):
            value, end, why = _json_at(text, found.end())
            if why is None and not isinstance(value, dict):
                why = "its arguments are no JSON object"
            if why is not None:
                yield Region(found.start(), found.end(), why=why)
            else:
                yield Region(found.start(), _closed(text, end), [(found["name"], value)])


# ------------------------------------------------------------------ JSON that names the tool

_OPENERS = re.compile(
    r"<tool_call>\s*(?=[\[{])|<tool_calls>\s*(?=[\[{])|<\|tool_call\|>\s*(?=[\[{])"
    r"|<\|tool_call>\s*(?=[\[{])|\[TOOL_CALLS\]\s*(?=[\[{])|<\|START_ACTION\|>\s*(?=[\[{])"
    r"|<\|tools_prefix\|>\s*(?=[\[{])|<TOOLCALL>\s*(?=[\[{])|<function_call>\s*(?=[\[{])"
    r"|<\|function_call\|>\s*(?=[\[{])|<\|python_tag\|>\s*(?=[\[{])|functools\s*(?=\[)"
    r"|function call<\|role_sep\|>\s*(?=[\[{])"
)


def _by_marked_json(text: str) -> Iterator[Region]:
    at, unclosed = 0, 0
    while unclosed < MOST_UNCLOSED and (opener := _OPENERS.search(text, at)):
        start, at = opener.start(), opener.end()
        keyed_by_name = opener[0].startswith("<|tools_prefix|>")
        while at < len(text) and text[at] in "[{":  # several calls in a row
            value, end, why = _json_at(text, at)
            if why is not None:
                if start >= 0:
                    yield Region(start, at + 1, why=why)
                    unclosed += end == len(text)
                break
            first, at = (at if start < 0 else start), _closed(text, end)
            yield _region(first, at, value, keyed_by_name=keyed_by_name)
            start, at = -1, _skip(text, at)


def _by_plain_json(text: str) -> Iterator[Region]:
    found = _BRACKET.search(text)
    patience = IN_VAIN * len(text) + WINDOW * TRY
    while found is not None and patience >= 0:
        value, end, why = _json_at(text, found.start())
        if why is not None:
            patience -= end - found.start() + TRY
            end = found.end()
        else:
            values = value if isinstance(value, list) else [value]
            if any(isinstance(one, dict) for one in values):
                region = _region(found.start(), _closed(text, end), value)
                yield replace(region, is_marked=False)
        found = _BRACKET.search(text, end)


_BRACKET = re.compile(r"""\{(?=\s*["}])|\[(?=\s*["\]\[{\-\dtfnNI])""")


def _region(start: int, end: int, value: Any, *, keyed_by_name: bool = False) -> Region:
    """Return the calls of a JSON object that names a tool, or of a list of such objects."""
    calls: list[Called] = []
    for one in value if isinstance(value, list) else [value]:
        try:
            calls.append(_named(one, keyed_by_name=keyed_by_name))
        except ValueError as error:  # noqa: PERF203 - of few calls
            return Region(start, end, calls, str(error))
    return Region(start, end, calls)


def _named(value: Any, *, keyed_by_name: bool) -> Called:
    """Return the call that a JSON object describes."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if isinstance(value.get("function"), dict):  # as OpenAI's API has it
        value = value["function"]
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), None)
    arguments: Any = next((value[key] for key in ARGUMENTS if key in value), {})
    if name is None and keyed_by_name and len(value) == 1:
        ((name, arguments),) = value.items()
    if name is None:
        raise ValueError("it names no tool")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name} are no JSON object")
    return name, arguments


def _json_at(text: str, at: int) -> tuple[Any, int, str | None]:
    """Return the JSON value at a position, its end, and None; or None, the position where parsing
    stopped, and the error.
    """
    window = text[at : at + WINDOW]
    try:
        value, end = _JSON.raw_decode(window)
        if end < len(window):  # otherwise a number may continue after the window
            return value, at + end, None
    except json.JSONDecodeError as error:
        if error.pos < len(window) - len("-Infinity") and not error.msg.startswith("Unterm"):
            return None, at + error.pos, _no_json(error.msg, error.pos)
    except (ValueError, RecursionError):
        pass  # parsing the whole text gives the reason
    try:
        value, end = _JSON.raw_decode(text, at)
    except RecursionError:
        return None, min(at + DEEPEST, len(text)), "it is nested too deeply"
    except json.JSONDecodeError as error:
        # An unterminated string was read to the end of the text, but `pos` is its beginning.
        end = len(text) if error.msg.startswith("Unterm") else error.pos
        return None, end, _no_json(error.msg, error.pos - at)
    except ValueError as error:  # a number with thousands of digits
        return None, len(text), f"it is no valid JSON ({error})"
    return value, end, None


_JSON = json.JSONDecoder()


def _no_json(what: str, at: int) -> str:
    return f"it is no valid JSON ({what.removesuffix(' at')} at character {at} of it)"


# ------------------------------------------------------------------ tags around plain text

_PREFIX = rf"(?:\w{{1,40}}:|{_BAR}DSML{_BAR})?"


@dataclass(frozen=True)
class _Tag:
    """A pattern for opening tags, with the pattern of the matching closing tags.

    Attributes:
        closing: Returns the pattern that closes a match of `opening`; searched after the match.
    """

    opening: re.Pattern[str]
    closing: Callable[[re.Match[str]], str]

    def read(self, text: str) -> Iterator[tuple[re.Match[str], str, int]]:
        """Yield each opening that is closed, with the text inside and the end."""
        unclosed = set[str]()  # closing patterns that do not occur in the rest of the text
        at = 0
        while len(unclosed) < MOST_UNCLOSED and (found := self.opening.search(text, at)):
            at = found.end()
            pattern = self.closing(found)
            if pattern in unclosed:
                continue
            closed = re.compile(pattern).search(text, at)
            if closed is None:
                unclosed.add(pattern)
            else:
                yield found, text[at : closed.start()], closed.end()
                at = closed.end()


def _always(closing: str) -> Callable[[re.Match[str]], str]:
    return lambda _: closing


def _closing_of_glm(found: re.Match[str]) -> str:
    suffix = f"(?:{re.escape(found['suffix'])})?" if found["suffix"] else ""
    last = rf"</arg_value{suffix}>\s*" if found.string.startswith("<arg_key", found.end()) else ""
    return rf"{last}</tool_call{suffix}>"


_FUNCTION = _Tag(
    re.compile(r"(?:<(?:\w{1,40}:)?tool_call>\s*)?<function=(?P<name>[^\s>]{1,200})>"),
    _always(r"</function>(?:\s*</(?:\w{1,40}:)?tool_call>)?|</(?:\w{1,40}:)?tool_call>"),
)
_PARAMETER = _Tag(
    re.compile(r"<parameter=(?P<key>[^>\n]{1,200})>\n?"),
    _always(r"\n?(?:</parameter>|(?=<parameter=)|\Z)"),
)
_INVOKE = _Tag(
    re.compile(
        rf"(?:<{_PREFIX}(?:function_calls|tool_calls?)>\s*)?<(?P<tag>{_PREFIX}(?:invoke|function)) "
        r'name="(?P<name>[^"]+)">'
    ),
    lambda found: (
        rf"</{re.escape(found['tag'])}>(?:\s*</{_PREFIX}(?:function_calls|tool_calls?)>)?"
    ),
)
_NAMED = _Tag(
    re.compile(
        rf'<(?P<tag>{_PREFIX}param(?:eter)?) name="(?P<key>[^"]+)"'
        r'(?: string="(?P<is_text>true|false)")?>'
    ),
    lambda found: rf"</{re.escape(found['tag'])}>",
)
_GLM = _Tag(
    re.compile(
        r"<tool_call(?P<suffix>:\w{1,40})?>\s*(?P<name>[\w.\-]{1,200})\s*"
        r"(?:<tool_sep(?:(?P=suffix))?>\s*)?(?=<arg_key|</tool_call)"
    ),
    _closing_of_glm,
)
_PAIR = _Tag(
    re.compile(
        r"<arg_key(?::\w{1,40})?>(?P<key>[^<]*)</arg_key(?::\w{1,40})?>\s*"
        r"<arg_value(?::\w{1,40})?>"
    ),
    _always(r"</arg_value(?::\w{1,40})?>|\Z"),  # the last closing tag has closed the call
)
# Kimi K3
_OPEN = _Tag(
    re.compile(r'(?:<\|open\|>tools<\|sep\|>)?<\|open\|>call tool="(?P<name>[^"]+)"[^<]*<\|sep\|>'),
    _always(r"<\|close\|>call<\|sep\|>(?:<\|close\|>tools<\|sep\|>)?"),
)
_OPEN_ARGUMENT = _Tag(
    re.compile(r'<\|open\|>argument key="(?P<key>[^"]+)" type="(?P<type>\w+)"<\|sep\|>'),
    _always(r"<\|close\|>argument<\|sep\|>"),
)

TAGS = [
    (_FUNCTION, _PARAMETER),
    (_INVOKE, _NAMED),
    (_GLM, _PAIR),
    (_OPEN, _OPEN_ARGUMENT),
]


def _by_tags(text: str) -> Iterator[Region]:
    for call, parameter in TAGS:
        for found, body, closed in call.read(text):
            if call is _FUNCTION and body.lstrip().startswith("{"):
                continue  # JSON after a header
            arguments, beside, at = dict[str, Any](), list[str](), 0
            body = body.rstrip()
            for named, value, end in parameter.read(body):
                arguments[named["key"].strip()] = _plain(named, value)
                beside.append(body[at : named.start()])
                at = end
            rest = "".join([*beside, body[at:]]).strip()
            why = f"it holds {rest[:100]!r} beside its parameters" if rest else None
            calls = [] if why else [(found["name"], arguments)]
            yield Region(found.start(), _closed(text, closed), calls, why)


def _plain(named: re.Match[str], value: str) -> Any:
    """Return the value of a parameter, as plain text if the tag says so."""
    said = named.groupdict()
    is_text = said.get("is_text") == "true" or said.get("type") == "string"
    return value if is_text else Text(value)


# ------------------------------------------------------------------ Python, and Gemma's notation

_PYTHON = re.compile(
    r"<\|tool_call_start\|>(?P<marked>.*?)(?:<\|tool_call_end\|>|\Z)"
    r"|\A\s*(?:<\|python_start\|>)?(?P<alone>\[\s*[\w.]+\(.*\)\s*\])(?:<\|python_end\|>)?\s*\Z",
    re.DOTALL,
)


def _by_python(text: str) -> Iterator[Region]:
    for found in _PYTHON.finditer(text):
        source = (found["marked"] or found["alone"] or "").strip()
        is_marked = found["marked"] is not None
        start, end = found.span()
        if source.startswith(("{", "[{")):  # LFM2 writes JSON here if asked for JSON
            value, _, why = _json_at(source, 0)
            if why is None:
                yield _region(start, end, value)
                continue
        try:
            yield Region(start, end, _python_calls(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if is_marked:
                yield Region(start, end, why=f"it is no call in Python ({error})")


def _python_calls(source: str) -> list[tuple[str, dict[str, Any]]]:
    if len(source) > 100_000:
        raise ValueError("it is too long")
    body = ast.parse(source, mode="eval").body
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call) or node.args:
            raise ValueError("expected calls with named arguments, as [tool(key=value)]")
        arguments = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError("expected named arguments, not **")
            arguments[keyword.arg] = _literal(keyword.value)
        calls.append((ast.unparse(node.func), arguments))
    return calls


def _literal(node: ast.expr) -> Any:
    """Evaluate a Python literal that may also contain JSON's `true`, `false` and `null`."""
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    if isinstance(node, ast.List):
        return [_literal(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {
            ast.literal_eval(key): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return ast.literal_eval(node)


_GEMMA = re.compile(
    r"(?:<\|tool_call>|<start_function_call>)\s*call:\s*(?P<name>[\w.\-]+)\s*(?=\{)"
)
_GEMMA_QUOTE = re.compile(r'<\|"\|>|<escape>|"')


def _by_gemma(text: str) -> Iterator[Region]:
    unclosed = 0
    for found in _GEMMA.finditer(text):
        if unclosed == MOST_UNCLOSED:
            return
        try:
            arguments, end = _gemma_value(text, found.end(), 0)
        except ValueError as error:
            unclosed += 1
            yield Region(found.start(), found.end(), why=str(error))
        else:
            yield Region(found.start(), _closed(text, end), [(found["name"], arguments)])


def _gemma_value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """Return a value of Gemma's notation, JSON with bare keys and special quotes, and the end."""
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    at = _skip(text, at)
    quote = _GEMMA_QUOTE.match(text, at)
    if quote is not None:
        close = text.find(quote[0], quote.end())
        if close < 0:
            raise ValueError("a text in it is not closed")
        return text[quote.end() : close], close + len(quote[0])
    if text.startswith(("{", "["), at):
        return _gemma_items(text, at, depth)
    found = re.compile(r"[^,}\]\s]+").match(text, at)
    if found is None:
        raise ValueError("a value is missing in it")
    words = {"true": True, "false": False, "null": None, "None": None}
    word = found[0]
    if word in words:
        return words[word], found.end()
    try:
        return json.loads(word), found.end()
    except ValueError:
        return Text(word), found.end()


def _gemma_items(text: str, at: int, depth: int) -> tuple[Any, int]:
    is_object, close = text[at] == "{", "}" if text[at] == "{" else "]"
    values: Any = {} if is_object else []
    at = _skip(text, at + 1)
    while not text.startswith(close, at):
        if is_object:
            key = re.compile(r'(?:<\|"\|>|<escape>|")?([\w.\-]+)(?:<\|"\|>|<escape>|")?\s*:').match(
                text, at
            )
            if key is None:
                raise ValueError("a key is missing in it")
            values[key[1]], at = _gemma_value(text, key.end(), depth + 1)
        else:
            value, at = _gemma_value(text, at, depth + 1)
            values.append(value)
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(close, at):
            raise ValueError("it is not closed")
    return values, at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


# In order of precedence: the first format that reads a part of the text keeps it.
FORMATS: list[Callable[[str], Iterator[Region]]] = [
    _by_headers,
    _by_gemma,
    _by_tags,
    _by_python,
    _by_marked_json,
    _by_plain_json,
]

# Beginnings of calls, to find calls that are not closed or cannot be read.
_BEGINNINGS = re.compile(
    r"<(?:\w+:)?tool_calls?(?::\w+)?>|<\|tool_call(?:_start|_begin)?\|?>|\[TOOL_CALLS\]"
    r"|<\|START_ACTION\|>|<\|tools_prefix\|>|<TOOLCALL>|<start_function_call>"
    rf"|<{_BAR}tool▁call▁begin{_BAR}>|<(?:\w+:|{_BAR}DSML{_BAR})?(?:invoke|function_calls)\b"
    r"|<\|open\|>call\b"
)


def has_unread_call(text: str, regions: Sequence[Region]) -> bool:
    """Return whether a call, such as an unclosed one, begins outside of all regions."""
    marked = [one for one in regions if one.is_marked]
    starts, taken = {one.start for one in marked}, _ReadSpans(marked)
    for found in _BEGINNINGS.finditer(text):
        is_read = taken.overlaps(found.start(), found.start() + 1)
        if not is_read and _skip(text, found.end()) not in starts:  # a marker that wraps calls
            return True
    return False
