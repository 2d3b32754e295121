"""Ask a chat template what stands between a model's replies, and check that nothing is lost.

A rollout is a sequence of tokens that only grows, so a conversation is never rendered again. The
text that follows a reply is found by rendering a short conversation with marks in place of the
messages, and cutting out the text between the marks:

    <user>-</user><assistant>MARK</assistant><user>TOLD</user><assistant>
                                 ^---------- cut out ----------^

Tool results are rendered after a message with real calls of these tools, since many templates omit
results, or raise, if no tool was called.

Templates differ in ways that silently spoil a rollout. Therefore each is tried once before the
first episode: every message must be rendered exactly once, tools must be listed, and results must
be shown. A template that fails is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from openenv.rollouts.formats import regions_in
from openenv.rollouts.replies import ParsedCall

# Marks that stand for messages in a probe. No template changes a word of letters.
REPLY, TOLD, TASK, RULES = "ReplyOfTheModel", "ToldToTheModel", "TaskOfTheModel", "RulesOfTheModel"
CALL_ID = "call00001"  # Mistral expects nine letters or digits


class TemplateError(ValueError):
    """A chat template does not render a message that the model must see."""


class ChatTokenizer(Protocol):
    """The methods of a transformers tokenizer that rollouts use."""

    eos_token: Any
    eos_token_id: Any
    chat_template: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render a conversation."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, token_ids: Any, **options: Any) -> Any:
        """Return the text of tokens."""
        ...


class ChatTemplate:
    """A tokenizer's chat template.

    Args:
        tokenizer: The model's tokenizer.
        options: Further arguments of the template, such as ``enable_thinking``; or
            ``chat_template`` itself.

    Attributes:
        closing: The tokens that close a turn of the model, such as ``<|im_end|>``; empty if only
            the beginning of the next turn closes it.
        ends: The tokens that end a reply: the last token of `closing`; if it is the only one, also
            the special token between a reply and the next message. `check_tools` adds the token
            that follows tool calls, such as ``<|observation|>`` of GLM and ``<|tool_response>`` of
            Gemma 4, with which these models end a call.
        has_system: True if the template shows a system message.

    Raises:
        TemplateError: The tokenizer has no chat template, or the template does not show a
            conversation of a user and a model.
    """

    def __init__(self, tokenizer: ChatTokenizer, options: Mapping[str, Any]) -> None:
        if not (options.get("chat_template") or tokenizer.chat_template):
            raise TemplateError(
                "the tokenizer has no chat template, so nobody knows how its model is spoken to; "
                "set tokenizer.chat_template"
            )
        self._tokenizer = tokenizer
        self._options = dict(options)
        self._no_tools: list[Any] | None = None
        self._has_parts = False
        self._find_form()
        talk = [_said("user", TASK), _said("assistant", REPLY)]
        self._once(self.rendered([_said("user", TASK)]), "the user's message", TASK)
        behind = self._behind([*talk, _said("user", TOLD)], None)
        self._once(behind, "a user's message behind a reply", TOLD)
        alone = _cut(self.rendered(talk, add_generation_prompt=False))
        self.closing = self._closing(alone)
        before, specials = self.encoded(behind[: behind.index(TOLD)]), self._specials()
        self._closing_between = next((token for token in before if token in specials), None)
        self.ends = frozenset(self.closing[-1:])
        if len(self.closing) == 1 and self._closing_between:
            self.ends |= {self._closing_between}
        self.has_system = self._shows_system()

    # ------------------------------------------------------------------ rendering

    def rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Render a conversation."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [self._formed(message) for message in messages],
                    tools=self._no_tools if tools is None else list(tools),
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    **self._options,
                )
            )
        except Exception as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise TemplateError(
                f"the chat template cannot render messages of {roles}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def opening(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Render the text that precedes a model's first reply.

        If the template has no system messages, their text is put before the user's.
        """
        if not self.has_system:
            messages = _without_system(messages)
        return self.rendered(messages, tools)

    def behind_words(self, told: str, tools: Sequence[Mapping[str, Any]] | None) -> str:
        """Render what follows a reply without tool calls: its end, a user's message, and the
        beginning of the next reply.

        Raises:
            TemplateError: The template does not show the message.
        """
        talk = [_said("user", "-"), _said("assistant", REPLY), _said("user", told)]
        behind = self._behind(talk, tools)
        self._check_shown(behind, told)
        return behind

    def behind_calls(
        self, calls: Sequence[ParsedCall], told: Sequence[str], tools: Sequence[Mapping[str, Any]]
    ) -> str:
        """Render what follows a reply with tool calls: its end, the results, and the beginning of
        the next reply.

        Raises:
            TemplateError: The template does not show each result.
        """
        try:
            behind = self._behind_several(calls, told, tools)
        except TemplateError:
            if len(calls) == 1:
                raise
            # Llama 3 takes one call per message: show all results as that of the last call.
            behind = self._behind_several(calls[-1:], ["\n\n".join(told)], tools)
        return behind

    def _behind_several(
        self, calls: Sequence[ParsedCall], told: Sequence[str], tools: Sequence[Mapping[str, Any]]
    ) -> str:
        ids = [call.id or f"{CALL_ID[:-1]}{number % 10}" for number, call in enumerate(calls, 1)]
        results = [
            {"role": "tool", "tool_call_id": id, "name": call.name, "content": text}
            for id, call, text in zip(ids, calls, told, strict=True)
        ]
        # The arguments are only a mark, by which the end of the last call is found.
        made = [
            {
                "id": id,
                "type": "function",
                "function": {"name": call.name, "arguments": {"value": REPLY}},
            }
            for id, call in zip(ids, calls, strict=True)
        ]
        errors: list[TemplateError] = []
        for said in (
            {"role": "assistant", "content": "", "tool_calls": made},
            _said("assistant", REPLY),  # for a template that does not render calls
        ):
            try:
                text = self.rendered([_said("user", "-"), said, *results], tools)
                behind = _behind_last_call(text) if "tool_calls" in said else _cut(text)
                for one in told:
                    self._check_shown(behind, one)
            except TemplateError as error:  # noqa: PERF203 - of two ways
                errors.append(error)
            else:
                return behind
        raise errors[0]

    # ------------------------------------------------------------------ tokens

    def encoded(self, text: str) -> list[int]:
        """Return the tokens of a text that follows other text.

        Some tokenizers put a space before any text that they encode. They do not do so after a
        known token, so the text is encoded after one, which is then cut away.
        """
        encode = self._tokenizer.encode
        anchor = str(self._tokenizer.eos_token or "")
        known = encode(anchor, add_special_tokens=False) if anchor else []
        found = encode(anchor + text, add_special_tokens=False)
        if found[: len(known)] == known:
            return list(found[len(known) :])
        return list(encode(text, add_special_tokens=False))

    def without_end(self, behind: Sequence[int], last: int) -> list[int]:
        """Return the tokens that follow a reply, without the end that the reply already has.

        Args:
            behind: The tokens that follow a reply, its end included.
            last: The reply's last token, which ends it.
        """
        begin = self._skip_blank(behind, 0)
        for length in range(len(self.closing), 0, -1):
            # After calls, a template may write only the last of the closing tokens.
            if tuple(behind[begin : begin + length]) == self.closing[-length:]:
                return list(behind[begin + length :])
        first = behind[begin] if begin < len(behind) else None
        closes_between = len(self.closing) == 1 and first == self._closing_between
        if first == last or closes_between:
            return list(behind[begin + 1 :])
        return list(behind)

    def _closing(self, alone: str) -> tuple[int, ...]:
        """Return the tokens that close a turn, from the text after a final reply."""
        specials, end = self._specials(), self._tokenizer.eos_token_id
        ids = self.encoded(alone)
        places = [number for number, token in enumerate(ids) if token in specials]
        if not places:
            return ()
        until = ids.index(end) if end in ids else places[-1]
        return tuple(ids[self._skip_blank(ids, 0) : until + 1])

    def _specials(self) -> frozenset[int]:
        tokenizer = self._tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        ids = getattr(tokenizer, "all_special_ids", None) or ()
        return frozenset([*added, *ids, tokenizer.eos_token_id])

    def _skip_blank(self, ids: Sequence[int], at: int) -> int:
        while at < len(ids) and not str(self._tokenizer.decode([ids[at]])).strip():
            if ids[at] in self._specials():
                break
            at += 1
        return at

    # ------------------------------------------------------------------ probing

    def _find_form(self) -> None:
        """Find the form of messages that the template accepts: some templates take lists of parts
        instead of texts; some fail without a list of tools.
        """
        errors: list[TemplateError] = []
        for has_parts, no_tools in ((False, None), (False, []), (True, None)):
            self._has_parts, self._no_tools = has_parts, no_tools
            try:
                if TASK in self.rendered([_said("user", TASK)]):
                    return
            except TemplateError as error:
                errors.append(error)
        self._has_parts, self._no_tools = False, None
        if errors:
            raise errors[0]

    def _formed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if self._has_parts and isinstance(content, str):
            return {**message, "content": [{"type": "text", "text": content}]}
        return dict(message)

    def check_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Check that the template shows tools and tool results.

        Raises:
            TemplateError: It does not; the message gives the reason.
        """
        names = [str(tool["function"]["name"]) for tool in tools]
        opening = self.rendered([_said("user", TASK)], tools)
        self._once(opening, "the user's message beside tools", TASK)
        without = self.rendered([_said("user", TASK)])
        missing = [name for name in names if opening.count(name) <= without.count(name)]
        if missing:
            raise TemplateError(f"the chat template does not list the tool {missing[0]!r}")
        self._check_calls(names, tools)
        behind = self.behind_calls([ParsedCall("", names[0], {})], [TOLD], tools)
        self._once(behind, "the result of a tool", TOLD)
        ids = self.encoded(behind)
        at = self._skip_blank(ids, 0)
        if at < len(ids) and ids[at] in self._specials():
            self.ends |= {ids[at]}

    def _check_calls(self, names: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> None:
        function = {"name": names[0], "arguments": {"value": REPLY}}
        said = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": CALL_ID, "type": "function", "function": function}],
        }
        talk = [_said("user", "-"), said]
        try:
            text = self.rendered(talk, tools, add_generation_prompt=False)
        except TemplateError:
            return  # it cannot render calls; the model's calls are read by their own markers
        if REPLY not in text:
            return
        beside = text.rindex(REPLY)
        for region in regions_in(text):
            if region.start <= beside < region.end and region.why is None:
                read = [(name, dict(arguments)) for name, arguments in region.calls]
                if read == [(names[0], {"value": REPLY})]:
                    return
        raise TemplateError(
            "the chat template writes calls of tools in a format that is not known here: "
            f"{text[max(0, beside - 120) : beside + 60]!r}"
        )

    def _shows_system(self) -> bool:
        try:
            text = self.rendered([_said("system", RULES), _said("user", TASK)])
        except TemplateError:
            return False
        return text.count(RULES) == 1 and text.count(TASK) == 1

    def _behind(
        self, talk: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> str:
        return _cut(self.rendered(talk, tools))

    def _once(self, text: str, what: str, mark: str) -> None:
        count = text.count(mark)
        if count != 1:
            times = "not" if count == 0 else f"{count} times"
            raise TemplateError(f"the chat template shows {what} {times}, where once is expected")

    @staticmethod
    def _check_shown(text: str, told: str) -> None:
        """Check that a text contains what the model must see, verbatim or as JSON."""
        forms = (
            told,
            told.strip(),
            json.dumps(told)[1:-1],
            json.dumps(told, ensure_ascii=False)[1:-1],
        )
        if not any(form in text for form in forms):
            raise TemplateError(f"the chat template does not show {told[:80]!r} behind a reply")


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _cut(text: str) -> str:
    if text.count(REPLY) != 1:
        raise TemplateError("the chat template does not show a model's reply once")
    return text[text.index(REPLY) + len(REPLY) :]


def _behind_last_call(text: str) -> str:
    if REPLY not in text:
        raise TemplateError("the chat template does not show a model's calls of tools")
    mark = text.rindex(REPLY)
    for region in regions_in(text):
        if region.start <= mark < region.end:
            return text[region.end :]
    raise TemplateError(
        "the chat template writes calls of tools in a format that is not known here"
    )


def _without_system(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with system messages moved to the beginning of the first user message."""
    rules: list[str] = []
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            rules.append(str(message["content"]))
        elif rules and message["role"] == "user" and isinstance(message["content"], str):
            found.append({**message, "content": "\n\n".join([*rules, message["content"]])})
            rules = []
        else:
            found.append(dict(message))
    if rules:
        found.insert(0, _said("user", "\n\n".join(rules)))
    return found
