"""One call of an agent: put to the upstream, answered, and taken down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.capture.completions import Gathered, tokens_of
from openenv.capture.dialects.base import Dialect, Unsupported, text_of
from openenv.capture.graph import TurnNode, new_node_id
from openenv.capture.sessions import FailedCall, Session

__all__ = ["BUDGET_STOP_MESSAGE", "SAMPLING_KEYS", "Call", "budget_stop"]

BUDGET_STOP_MESSAGE = "Step budget exhausted; stopping."
SAMPLING_KEYS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)
# What bends the sampling of some tokens: the model was not free to write what it likes.
CONSTRAINING_KEYS = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_grammar",
    "logit_bias",
)
_KEPT = ("role", "content", "tool_calls", "reasoning_content", "reasoning", "refusal")


@dataclass
class Call:
    """One call, from when it is asked until it is taken down.

    Attributes:
        session: Whose it is.
        dialect: The API that it came by.
        body: What came.
        chat: The chat request that it amounts to, as the upstream is asked.
        wished: What is added to it unless the upstream refuses that.
        harness_session_id: What the agent calls its own session.
    """

    session: Session
    dialect: Dialect
    body: Mapping[str, Any]
    max_output_tokens: int | None = None
    harness_session_id: str | None = None
    chat: dict[str, Any] = field(default_factory=dict)
    wished: dict[str, Any] = field(default_factory=dict)
    requested_sampling: dict[str, Any] = field(default_factory=dict)
    index: int = -1

    def __post_init__(self) -> None:
        self.index = self.session.next_index()

    def read(self) -> None:
        """Make the chat request.

        Raises:
            Unsupported: There is none.
        """
        try:
            chat = self.dialect.to_chat(self.body, self._earlier)
        except (KeyError, TypeError, AttributeError) as error:
            raise Unsupported(f"malformed: {type(error).__name__}: {error}") from error
        self.requested_sampling = _sampling(chat)
        self.chat = {**self.session.eval_sampling, **chat, **self.session.sampling}
        self._limit_output()

    def answered(self, completion: Mapping[str, Any], answer_id: str | None = None) -> None:
        """Take down an answer: a call of the graph for each choice."""
        session = self.session
        for number, choice in enumerate(completion.get("choices") or ()):
            node = session.answered(self._node(completion, choice))
            session.n_tokens += len(node.prompt_ids) + len(node.sampled_ids) or _used(completion)
            if number == 0 and answer_id:
                has_instructions = bool(self.body.get("instructions"))
                session.responses[answer_id] = (node.node_id, has_instructions)

    def failed(
        self,
        kind: Literal["refused", "upstream", "broken", "abandoned"],
        status: int | None,
        message: str,
        gathered: Gathered | None = None,
    ) -> None:
        """Take down that there is no whole answer."""
        partial = None
        if gathered is not None and (choices := gathered.completion()["choices"]):
            partial = _message(choices[0]["message"])
        if kind in ("upstream", "broken"):
            self.session.upstream_errors += 1
        messages = self.chat.get("messages") or []
        self.session.failed(FailedCall(self.index, kind, status, message, messages, partial))

    def _node(self, completion: Mapping[str, Any], choice: Mapping[str, Any]) -> TurnNode:
        tokens = tokens_of(completion, choice)
        messages = self.chat["messages"]
        return TurnNode(
            new_node_id(),
            tokens.prompt_ids,
            tokens.completion_ids,
            tokens.logprobs if tokens.completion_ids or tokens.logprobs is None else [],
            index=self.index,
            model=completion.get("model"),
            finish_reason=choice.get("finish_reason"),
            harness_session_id=self.harness_session_id,
            system_digest=_system_digest(messages),
            n_tools=len(self.chat.get("tools") or ()),
            request_messages=list(messages),
            request_tools=self.chat.get("tools"),
            sampling_params=self._effective_sampling(),
            requested_sampling_params=self.requested_sampling,
            response_message=_message(choice.get("message") or {}),
            no_tokens=tokens.lacking,
        )

    def _effective_sampling(self) -> dict[str, Any]:
        bent = {name: True for name in CONSTRAINING_KEYS if self.chat.get(name)}
        choice = self.chat.get("tool_choice")
        if choice == "required" or isinstance(choice, Mapping):
            bent["tool_choice"] = True
        return {**_sampling(self.chat), **bent}

    def _limit_output(self) -> None:
        cap = self.max_output_tokens
        if not cap:
            return
        names = ("max_tokens", "max_completion_tokens")
        given = [name for name in names if isinstance(self.chat.get(name), int)]
        for name in given:
            self.chat[name] = min(self.chat[name], cap)
        if not given:
            self.wished["max_tokens"] = cap

    def _earlier(self, answer_id: str) -> list[dict[str, Any]]:
        """The conversation until an answer, without the instructions, which are each call's own."""
        node_id, has_instructions = self.session.responses.get(answer_id, (None, False))
        if node_id is None:
            raise Unsupported(f"previous_response_id={answer_id!r}: not of this session")
        node = self.session.graph.get(node_id)
        return [*node.request_messages[has_instructions:], node.response_message]


def budget_stop(model: str) -> dict[str, Any]:
    """What an agent is answered that has made all its calls: the end, in words. No model wrote it,
    and it is not taken down.
    """
    message = {"role": "assistant", "content": BUDGET_STOP_MESSAGE}
    return {
        "id": f"chatcmpl-{new_node_id()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A whole completion as the one chunk of a stream."""
    choices = [
        {
            "index": choice["index"],
            "delta": choice["message"],
            "finish_reason": choice["finish_reason"],
        }
        for choice in completion["choices"]
    ]
    return {**completion, "object": "chat.completion.chunk", "choices": choices}


def _sampling(chat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chat[name] for name in SAMPLING_KEYS if chat.get(name) is not None}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without its empty fields."""
    kept = {name: message[name] for name in _KEPT if message.get(name)}
    return {"role": "assistant", "content": message.get("content"), **kept}


def _system_digest(messages: list[dict[str, Any]]) -> str | None:
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        return None
    text = text_of(first.get("content"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _used(completion: Mapping[str, Any]) -> int:
    return int((completion.get("usage") or {}).get("total_tokens") or 0)
