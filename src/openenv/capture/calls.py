"""A recorded model call: the request to the upstream, the answer and its record in the session."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.capture.completions import CompletionAssembler, extract_tokens
from openenv.capture.dialects.base import Dialect, UnsupportedRequest, extract_text
from openenv.capture.graph import TurnNode, new_node_id
from openenv.capture.sessions import CaptureSession, FailedCall

__all__ = ["BUDGET_STOP_MESSAGE", "SAMPLING_KEYS", "ModelCall", "build_budget_stop"]

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
# Parameters that constrain sampling: the tokens then do not follow the model's own distribution.
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
class ModelCall:
    """A model call of an agent, from the request to the record.

    Attributes:
        session: The agent's session.
        dialect: The model API of the request.
        body: The body of the request.
        chat: The equivalent chat request, as sent to the upstream.
        wished: Fields that are added to `chat` unless the upstream refuses them.
        harness_session_id: The agent's own id for its session.
    """

    session: CaptureSession
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
        """Convert the request to a chat request.

        Raises:
            UnsupportedRequest: There is no equivalent chat request.
        """
        try:
            chat = self.dialect.to_chat(self.body, self._earlier)
        except (KeyError, TypeError, AttributeError) as error:
            raise UnsupportedRequest(f"malformed: {type(error).__name__}: {error}") from error
        self.requested_sampling = _sampling(chat)
        self.chat = chat = {**self.session.eval_sampling, **chat, **self.session.sampling}
        if cap := self.max_output_tokens:
            names = ("max_tokens", "max_completion_tokens")
            given = [name for name in names if isinstance(chat.get(name), int)]
            for name in given:
                chat[name] = min(chat[name], cap)
            if not given:
                self.wished["max_tokens"] = cap

    def record_answer(self, completion: Mapping[str, Any], answer_id: str | None = None) -> None:
        """Record an answer, as one node of the graph for each choice."""
        session = self.session
        tokens = 0
        for number, choice in enumerate(completion.get("choices") or ()):
            node = session.record_answer(self._node(completion, choice))
            tokens += len(node.prompt_ids) + len(node.sampled_ids)
            if number == 0 and answer_id:
                has_instructions = bool(self.body.get("instructions"))
                session.responses[answer_id] = (node.node_id, has_instructions)
        # The usage counts the tokens of all choices.
        session.n_tokens += tokens or int((completion.get("usage") or {}).get("total_tokens") or 0)

    def record_failure(
        self,
        kind: Literal["refused", "upstream", "broken", "abandoned"],
        status: int | None,
        message: str,
        gathered: CompletionAssembler | None = None,
    ) -> None:
        """Record a call without a complete answer."""
        partial = None
        if gathered is not None and (choices := gathered.completion()["choices"]):
            partial = _strip_message(choices[0]["message"])
        if kind in ("upstream", "broken"):
            self.session.upstream_errors += 1
        messages = self.chat.get("messages") or []
        self.session.record_failure(
            FailedCall(self.index, kind, status, message, messages, partial)
        )

    def _node(self, completion: Mapping[str, Any], choice: Mapping[str, Any]) -> TurnNode:
        tokens = extract_tokens(completion, choice)
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
            sampling_params={**_sampling(self.chat), **_constraints(self.chat)},
            requested_sampling_params=self.requested_sampling,
            response_message=_strip_message(choice.get("message") or {}),
            no_tokens=tokens.lacking,
        )

    def _earlier(self, answer_id: str) -> list[dict[str, Any]]:
        """Return the conversation up to an answer, without the instructions, which apply to single
        calls only.
        """
        node_id, has_instructions = self.session.responses.get(answer_id, (None, False))
        if node_id is None:
            raise UnsupportedRequest(f"previous_response_id={answer_id!r}: not of this session")
        node = self.session.graph.get(node_id)
        return [*node.request_messages[has_instructions:], node.response_message]


def build_budget_stop(model: str) -> dict[str, Any]:
    """Return the completion for an agent without remaining calls: a text that ends the episode.

    The text does not come from a model and is not recorded.
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


def to_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a completion to one chunk of a stream."""
    choices = [
        {"index": one["index"], "delta": one["message"], "finish_reason": one["finish_reason"]}
        for one in completion["choices"]
    ]
    return {**completion, "object": "chat.completion.chunk", "choices": choices}


def _sampling(chat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chat[name] for name in SAMPLING_KEYS if chat.get(name) is not None}


def _constraints(chat: Mapping[str, Any]) -> dict[str, bool]:
    names = [name for name in CONSTRAINING_KEYS if chat.get(name)]
    choice = chat.get("tool_choice")
    if choice == "required" or isinstance(choice, Mapping):
        names.append("tool_choice")
    return dict.fromkeys(names, True)


def _strip_message(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: message[name] for name in _KEPT if message.get(name)}
    return {"role": "assistant", "content": message.get("content"), **kept}


def _system_digest(messages: list[dict[str, Any]]) -> str | None:
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        return None
    text = extract_text(first.get("content"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
