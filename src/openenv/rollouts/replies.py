"""Read a model's reply: thoughts, words and tool calls.

Every way to play an environment with a model reads replies here, so that a model is scored by its
actions and never by the format of its replies:

1. Thoughts are removed: the text between the markers of the model's family. If a thought is not
   closed, nothing of the reply is carried out.
2. Tool calls are read, in any format (`openenv.rollouts.formats`), and all of them are carried out,
   in order.
3. Without a call, the words are the action if an action is one text and nothing else. If that text
   is code, it may be in a Markdown fence.

Unreadable calls and cut-off replies are not carried out, and the model is told so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from openenv._internal.quoting import did_you_mean
from openenv.rollouts.formats import Region, has_unread_call, regions_in, typed_value
from openenv.rollouts.interfaces import AgentTool, Interface, resolve_reference

ActBy = Literal["auto", "tools", "json", "text"]
"""How a model acts: only by ``tools``, by ``json``, or by ``text``; ``auto`` allows all of them."""

CUT = "the reply was cut off before it was complete, and was not carried out"
OPEN_THOUGHT = "the reply ended before its thought did, so there is no action in it"


@dataclass
class ParsedCall:
    """A tool call of a model.

    Attributes:
        id: The id to which the result refers; empty if the model gave none.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ParsedReply:
    """The content of a model's reply.

    Attributes:
        thought: The thoughts, joined.
        text: The words: the reply without thoughts, calls and special tokens.
        calls: The tool calls, in order. Words that are an action count as a call.
        problem: Reason why the rest is not carried out; None if nothing is wrong.
        end: Position after the last written call in the reply, in characters; None without a
            written call.
    """

    thought: str
    text: str
    calls: Sequence[ParsedCall] = ()
    problem: str | None = None
    end: int | None = None

    @property
    def has_written_calls(self) -> bool:
        """True if the model wrote tool calls, rather than words that are an action."""
        return self.end is not None


def read_reply(
    text: str,
    interface: Interface,
    act_by: ActBy = "auto",
    *,
    is_cut: bool = False,
    in_thought: bool = False,
    specials: Sequence[str] = (),
) -> ParsedReply:
    """Read a reply.

    Args:
        text: The reply, special tokens included: markers of calls and thoughts often are some.
        interface: The environment's interface.
        act_by: The ways to act that count. `json` and `tools` both accept calls in any format.
        is_cut: True if the reply reached a limit before the model ended it; it has no calls then.
        in_thought: True if the prompt has already opened a thought, as some templates do.
        specials: Special tokens of the tokenizer, which do not count as words.
    """
    thought, masked, begin, is_open = split_thoughts(text, in_thought=in_thought)
    if is_cut or is_open:
        why = CUT if is_cut else OPEN_THOUGHT
        return ParsedReply(thought, _words(masked[begin:], specials), (), why)
    if act_by in ("auto", "tools", "json"):
        parsed = _calls(thought, masked, begin, interface, specials)
        if parsed is not None:
            return parsed
    words = _words(masked[begin:], specials)
    if act_by in ("auto", "text"):
        action = _action_of(words, interface)
        if action is not None:
            return ParsedReply(thought, words, [action])
    return ParsedReply(thought, words, (), describe_missing_action(interface, act_by))


def _calls(
    thought: str, masked: str, begin: int, interface: Interface, specials: Sequence[str]
) -> ParsedReply | None:
    regions = regions_in(masked)
    if not any(one.is_marked for one in regions):
        regions = _plain(regions, masked, interface)
    calls: list[ParsedCall] = []
    problem = None
    for region in regions:
        calls += [_typed(name, arguments, interface) for name, arguments in region.calls]
        if region.why is not None:
            problem = f"a call of a tool could not be read: {region.why}"
            break
    if problem is None and has_unread_call(masked, regions):
        problem = "a call of a tool could not be read: it is not complete"
    if not calls and problem is None:
        return None
    end = max((region.end for region in regions), default=len(masked))
    words = _words(_without(masked, regions)[begin:], specials)
    return ParsedReply(thought, words, calls, problem, end)


def _plain(regions: Sequence[Region], answer: str, interface: Interface) -> list[Region]:
    """Keep the unmarked JSON regions that call a known tool, or fit the only tool."""
    found = []
    for region in regions:
        calls = [call for call in region.calls if interface.tool(call[0]) is not None]
        if not calls and len(interface.tools) == 1:
            value = _object_at(answer, region.start)
            if value is not None and _fits(value, interface.tools[0]):
                calls = [(interface.tools[0].name, value)]
        if calls:
            found.append(Region(region.start, region.end, calls, is_marked=False))
    return found


def _object_at(text: str, at: int) -> dict[str, Any] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _fits(value: Mapping[str, Any], tool: AgentTool) -> bool:
    properties = tool.input_schema.get("properties", {})
    required = set(tool.input_schema.get("required", ()))
    return bool(value) and required <= value.keys() <= set(properties)


def _typed(name: str, arguments: Mapping[str, Any], interface: Interface) -> ParsedCall:
    """Return a call whose values have the types in the tool's schema."""
    tool = interface.tool(name)
    root: dict[str, Any] = {} if tool is None else dict(tool.input_schema)
    properties = root.get("properties", {})
    made = {
        key: typed_value(value, resolve_reference(dict(properties.get(key, {})), root))
        for key, value in arguments.items()
    }
    return ParsedCall("", name, made)


def _without(text: str, regions: Sequence[Region]) -> str:
    """Return the text with regions replaced by spaces, at unchanged length."""
    for region in regions:
        text = text[: region.start] + " " * (region.end - region.start) + text[region.end :]
    return text


# ------------------------------------------------------------------ thoughts

# Markers that open and close a thought, by model family.
_THOUGHTS = [
    ("<think>", "</think>"),  # Qwen, DeepSeek, GLM, Kimi, Nemotron, SmolLM3, MiniMax, Hunyuan, ...
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<mm:think>", "</mm:think>"),  # MiniMax M3
    ("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    ("[THINK]", "[/THINK]"),  # Magistral, Ministral 3
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A, Command R7B
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi K3
    ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
    ("<|think|>", "<|end|>"),  # Solar Open
]
_OPEN = re.compile("|".join(re.escape(one) for one, _ in _THOUGHTS))
_CLOSE = re.compile("|".join(re.escape(one) for _, one in _THOUGHTS[:-1]))
_CLOSE_OF = dict(_THOUGHTS)
# gpt-oss writes each part of a reply as a message of a channel (the Harmony format).
_ANALYSIS = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis[^<]*<\|message\|>(?P<thought>.*?)"
    r"(?P<end><\|end\|>|<\|return\|>|(?=<\|start\|>)|(?=<\|channel\|>)|\Z)",
    re.DOTALL,
)


def opens_thought(prompt: str) -> bool:
    """Return whether a prompt ends in an open thought, in which the reply then begins.

    Args:
        prompt: The rendered prompt, or its end.
    """
    tail = prompt[-200:]
    ends = [one.end() for one in _OPEN.finditer(tail)]
    return bool(ends) and not tail[ends[-1] :].strip()


def split_thoughts(text: str, *, in_thought: bool = False) -> tuple[str, str, int, bool]:
    """Separate the thoughts of a reply from the rest.

    Args:
        text: The reply.
        in_thought: True if the reply begins within a thought.

    Returns:
        The thoughts, joined; the reply with its thoughts replaced by spaces, in which calls are
        looked for; the end of the last thought, after which the answer's words begin; and whether
        the last thought is still open.
    """
    spans, is_open = _thoughts(text, in_thought)
    masked, at = "", 0
    for start, end, _ in spans:
        masked += text[at:start] + " " * (end - start)
        at = end
    masked += text[at:]
    said = [thought.strip() for _, _, thought in spans]
    begin = spans[-1][1] if spans else 0
    return "\n".join(one for one in said if one), masked, begin, is_open


def _thoughts(text: str, in_thought: bool) -> tuple[list[tuple[int, int, str]], bool]:
    """Return the spans of thoughts, markers included, with their texts; and whether the last one is
    open.
    """
    spans: list[tuple[int, int, str]] = []
    at = 0
    close, opened = _CLOSE.search(text), _OPEN.search(text)
    if in_thought and close is None:
        return [(0, len(text), text)], True
    if close is not None and (
        in_thought or opened is None or close.start() < opened.start()
    ):  # the prompt has opened the thought
        spans.append((0, close.end(), text[: close.start()]))
        at = close.end()
    opened, analysis = _OPEN.search(text, at), _ANALYSIS.search(text, at)
    while True:
        if opened is not None and opened.start() < at:
            opened = _OPEN.search(text, at)
        if analysis is not None and analysis.start() < at:
            analysis = _ANALYSIS.search(text, at)
        if analysis is not None and (opened is None or analysis.start() < opened.start()):
            start, end, thought = analysis.start(), analysis.end(), analysis["thought"]
            is_open = end == len(text) and not analysis["end"]
        elif opened is not None:
            closes = _CLOSE_OF[opened[0]]
            start, found = opened.start(), text.find(closes, opened.end())
            is_open = found < 0
            end = len(text) if is_open else found + len(closes)
            thought = text[opened.end() :] if is_open else text[opened.end() : found]
        else:
            return spans, False
        spans.append((start, end, thought))
        if is_open:
            return spans, True
        at = end


# ------------------------------------------------------------------ words that are an action

# Markers around the words of an answer.
_WRAPPERS = re.compile(
    r"<\|START_RESPONSE\|>|<\|END_RESPONSE\|>|</?response>|\[END FINAL RESPONSE\]"
    r"|<\|start\|>(?:assistant)?|<\|(?:end|return)\|>|<\|channel\|>(?:final|commentary)[^<]*<\|message\|>"
    r"|<\|open\|>response<\|sep\|>|<\|close\|>(?:response|message)<\|sep\|>|<\|outer_suffix\|>"
)
_FENCE = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[^\n`]*\n(?P<code>.*?)^[ \t]*(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def _words(answer: str, specials: Sequence[str]) -> str:
    """Return the words of an answer without special tokens and wrappers.

    Blank lines at both ends are removed, but not the spaces before the first word: they may indent
    code.
    """
    answer = _WRAPPERS.sub("", answer)
    for special in specials:
        answer = answer.replace(special, "")
    return re.sub(r"\A(?:[ \t\r]*\n)+", "", answer).rstrip()


def _action_of(words: str, interface: Interface) -> ParsedCall | None:
    """Return words as a call of the only tool, if the tool needs one text and nothing else."""
    field = interface.text_field
    if field is None or not words:
        return None
    if interface.takes_code:
        words = strip_fences(words)
    return ParsedCall("", interface.tools[0].name, {field: words})


def strip_fences(words: str) -> str:
    """Return the content of Markdown fences, joined; the whole text if there are no fences."""
    found = [fence["code"] for fence in _FENCE.finditer(words)]
    return "".join(found).rstrip("\n") if found else words


# ------------------------------------------------------------------ messages to the model


def describe_missing_action(interface: Interface, act_by: ActBy = "auto") -> str:
    """Describe to a model that its reply has no action."""
    names = ", ".join(tool.name for tool in interface.tools)
    if act_by == "json":
        return f'the reply holds no JSON object {{"name": ..., "arguments": ...}} of {names}'
    return f"the reply is no action; call one of these tools: {names}"


def describe_unknown_tool(name: str, interface: Interface) -> str:
    """Describe to a model that no tool has this name."""
    known = [tool.name for tool in interface.tools]
    return f"there is no tool {name!r}; there are {', '.join(known)}{did_you_mean(name, known)}"


def describe_tools(interface: Interface, *, as_json: bool = False) -> str:
    """Describe in words how to act.

    Args:
        interface: The environment's interface.
        as_json: Ask for a call as JSON, even if a whole reply can be the action.
    """
    if interface.takes_any_text and not as_json:
        field = interface.text_field
        about = interface.tools[0].input_schema["properties"][field].get("description")
        return f"Your whole reply is taken as the {field}. {about}" if about else ""
    tools = "\n".join(
        f"- {tool.name}: {tool.description}\n  arguments: {json.dumps(tool.input_schema)}"
        for tool in interface.tools
    )
    return (
        f"You act by one of these tools:\n{tools}\n"
        'Answer with one JSON object and nothing else: {"name": TOOL, "arguments": {...}}'
    )
