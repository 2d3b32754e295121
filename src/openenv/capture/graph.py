"""The calls of a session as a graph: which call went on from which, with the tokens of each.

A call goes on from another where its messages begin with all that the other read and what it was
answered. So branches, retries, calls of sub-agents and a history that was written anew (compaction)
are told apart without help of the agent:

    a ── b ── c          one conversation
          └── d          a branch: d went on from b too
    e                    another one: a sub-agent, or a history that was summarized
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.json import read_json

__all__ = ["RolloutGraph", "TrainingSequence", "TurnNode", "common_prefix_len", "fingerprints"]


def common_prefix_len(a: Sequence[int], b: Sequence[int]) -> int:
    """With how many tokens both begin."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:  # nearly always, and fast
        return shorter
    return next(at for at in range(shorter) if a[at] != b[at])


@dataclass
class TurnNode:
    """One call of the model that was answered.

    Attributes:
        node_id: Its name, unique in the session.
        prompt_ids: The tokens that the model read; empty where the upstream does not tell them.
        sampled_ids: Those that it wrote.
        sampled_logprobs: The log-probability of each of these, in nats; None where unknown.
        parent_id: The call that it goes on from; None for the first of a conversation.
        index: Its place among the calls of the session, from 0, by when they were asked; below 0
            until it is in a graph.
        model: What the upstream calls the model.
        finish_reason: Why it stopped (``stop``, ``length``, ``tool_calls``).
        harness_session_id: What the agent itself calls its session, if it says so.
        system_digest: A digest of the system message.
        n_tools: How many tools the model could call.
        request_messages: What it was asked, as chat messages.
        request_tools: The tools, as chat completions have them.
        sampling_params: What the sampler was told.
        requested_sampling_params: What the agent wanted it to be told.
        response_message: What it answered, as a chat message.
        rerendered: It goes on from its parent in words, but its prompt does not begin with the
            parent's tokens: the chat template, or the agent, wrote the history otherwise.
        retry_of: The call before that asked just the same.
        no_tokens: Why it has no tokens, or none to rely on; None where it has.
    """

    node_id: str
    prompt_ids: list[int]
    sampled_ids: list[int]
    sampled_logprobs: list[float] | None = None
    parent_id: str | None = None
    index: int = -1
    model: str | None = None
    finish_reason: str | None = None
    harness_session_id: str | None = None
    system_digest: str | None = None
    n_tools: int = 0
    request_messages: list[dict[str, Any]] = field(default_factory=list)
    request_tools: list[dict[str, Any]] | None = None
    sampling_params: dict[str, Any] = field(default_factory=dict)
    requested_sampling_params: dict[str, Any] = field(default_factory=dict)
    response_message: dict[str, Any] = field(default_factory=dict)
    rerendered: bool = False
    retry_of: str | None = None
    no_tokens: str | None = None

    @property
    def end_ids(self) -> list[int]:
        """All tokens after the call: what was read, then what was written."""
        return self.prompt_ids + self.sampled_ids

    @property
    def has_tokens(self) -> bool:
        """Whether its tokens and their log-probabilities are known, one for each."""
        return bool(
            self.prompt_ids
            and self.sampled_logprobs is not None
            and len(self.sampled_logprobs) == len(self.sampled_ids)
            and self.no_tokens is None
        )

    def context_ids(self, parent: TurnNode | None) -> list[int]:
        """What it read beyond the end of `parent`; all that it read where it is not exact."""
        if parent is None or not _goes_on(self.prompt_ids, parent):
            return list(self.prompt_ids)
        return self.prompt_ids[len(parent.prompt_ids) + len(parent.sampled_ids) :]


@dataclass
class TrainingSequence:
    """Calls whose tokens are one sequence that only grew.

    Attributes:
        input_ids: All of its tokens.
        loss_mask: 1 for each that the model wrote and that no sequence before has, else 0.
        logprobs: One for each; 0.0 where the model did not write it.
        node_ids: The calls, in order.
        prompt_len: How many tokens stand before the first that the model wrote.
        root_id: The first call of the conversation.
        n_turns: How many calls.
    """

    input_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    node_ids: list[str]
    prompt_len: int
    root_id: str
    n_turns: int
    _turn_lengths: list[int] = field(default_factory=list)

    @property
    def n_trainable(self) -> int:
        """How many tokens are trained on."""
        return sum(self.loss_mask)

    def turn_lengths(self) -> list[int]:
        """How many tokens the model wrote in each call."""
        return list(self._turn_lengths)


class RolloutGraph:
    """The answered calls of a session."""

    def __init__(self) -> None:
        self._nodes: dict[str, TurnNode] = {}
        self._children: dict[str, list[str]] = {}
        self._by_end: dict[bytes, list[str]] = {}  # of the messages after a call
        self._by_request: dict[bytes, str] = {}  # of those that it asked, and its tools
        self._messages: dict[bytes, dict[str, Any]] = {}  # each once, however often it is sent

    def add_turn(self, node: TurnNode) -> TurnNode:
        """Take a call in, and find which it goes on from, unless it says so itself.

        Raises:
            ValueError: There is a call of this name, or none of the name of its parent.
        """
        if node.node_id in self._nodes:
            raise ValueError(f"node_id={node.node_id!r}: there is such a call")
        if node.parent_id is not None and node.parent_id not in self._nodes:
            raise ValueError(f"parent_id={node.parent_id!r}: there is no such call")
        chain = fingerprints(node.request_messages)
        self._share(node)
        if node.parent_id is None:
            node.parent_id = self._parent(node, chain)
        parent = self._nodes[node.parent_id] if node.parent_id is not None else None
        if parent is not None:
            if _goes_on(node.prompt_ids, parent):  # share the numbers: a list of them is short
                rest = node.context_ids(parent)
                node.prompt_ids = parent.prompt_ids + parent.sampled_ids + rest
            else:
                node.rerendered = bool(node.prompt_ids and parent.prompt_ids)
        self._retries(node, chain)
        if node.index < 0:
            node.index = len(self._nodes)
        self._nodes[node.node_id] = node
        self._children[node.node_id] = []
        if node.parent_id is not None:
            self._children[node.parent_id].append(node.node_id)
        if chain:
            end = _next(chain[-1], _told(node.response_message))
            self._by_end.setdefault(end, []).append(node.node_id)
        return node

    def nodes(self) -> list[TurnNode]:
        """The calls, in the order in which they were asked."""
        return sorted(self._nodes.values(), key=lambda node: node.index)

    def get(self, node_id: str) -> TurnNode:
        """A call by its name.

        Raises:
            KeyError: There is none.
        """
        return self._nodes[node_id]

    def children(self, node_id: str) -> list[TurnNode]:
        """The calls that go on from one."""
        return [self._nodes[name] for name in self._children[node_id]]

    def roots(self) -> list[TurnNode]:
        """The first call of each conversation."""
        return [node for node in self.nodes() if node.parent_id is None]

    def leaves(self) -> list[TurnNode]:
        """The calls that none goes on from."""
        return [node for node in self.nodes() if not self._children[node.node_id]]

    def root_of(self, node_id: str) -> str:
        """The name of the first call of a call's conversation."""
        return self.path_to(node_id)[0].node_id

    def path_to(self, leaf_id: str) -> list[TurnNode]:
        """The calls from the first of its conversation to this one."""
        path = [self._nodes[leaf_id]]
        while path[-1].parent_id is not None:
            path.append(self._nodes[path[-1].parent_id])
        return path[::-1]

    def paths(self) -> Iterator[list[TurnNode]]:
        """The path to each leaf."""
        for leaf in self.leaves():
            yield self.path_to(leaf.node_id)

    def forks(self) -> list[tuple[str, list[str]]]:
        """The calls that more than one goes on from, and which."""
        return [(name, list(after)) for name, after in self._children.items() if len(after) > 1]

    def discarded_nodes(self) -> list[TurnNode]:
        """The calls whose answer led nowhere, since the agent asked just the same again."""
        asked_again = {node.retry_of for node in self._nodes.values() if node.retry_of}
        groups: dict[str, list[TurnNode]] = {}
        for node in self.nodes():
            if node.retry_of or node.node_id in asked_again:
                groups.setdefault(node.retry_of or node.node_id, []).append(node)
        discarded = []
        for tried in groups.values():
            kept = [node for node in tried if self._children[node.node_id]] or tried[-1:]
            discarded += [node for node in tried if node not in kept]
        return discarded

    def sequence_for(self, leaf_id: str) -> TrainingSequence:
        """The sequence of tokens that ends with a call.

        It begins at the first call of the conversation, or where the history was written in other
        tokens than before: what came earlier is then context that was read, and no more.
        """
        return self._sequence(self._exact_path(leaf_id), set())

    def sequences(self, *, without: Collection[str] = ()) -> list[TrainingSequence]:
        """One for each call that no other goes on from in just its tokens.

        A call that several of them share is trained on in the first of them only.

        Args:
            without: Calls that none is to end with.
        """
        on_from = {node.parent_id for node in self._nodes.values() if not self._is_first(node)}
        left_out = {*on_from, *without}
        ends = [node for node in self.nodes() if node.node_id not in left_out]
        trained: set[str] = set()
        return [self._sequence(self._exact_path(end.node_id), trained) for end in ends]

    def stats(self) -> dict[str, Any]:
        """How many calls, conversations, ends, branches and retries."""
        return {
            "n_turns": len(self._nodes),
            "n_roots": len(self.roots()),
            "n_leaves": len(self.leaves()),
            "n_forks": len(self.forks()),
            "n_discarded": len(self.discarded_nodes()),
        }

    # ------------------------------------------------------------------ finding the parent

    def _parent(self, node: TurnNode, chain: list[bytes]) -> str | None:
        for at in range(len(chain) - 1, -1, -1):
            if ends := self._by_end.get(chain[at]):
                exact = [one for one in ends if _goes_on(node.prompt_ids, self._nodes[one])]
                return (exact or ends)[-1]
        return self._parent_by_tokens(node)

    def _parent_by_tokens(self, node: TurnNode) -> str | None:
        """Where the messages tell nothing, tokens may: those of the longest call before."""
        before = [one for one in self._nodes.values() if _goes_on(node.prompt_ids, one)]
        longest = max(
            before, key=lambda one: len(one.prompt_ids) + len(one.sampled_ids), default=None
        )
        return None if longest is None else longest.node_id

    def _retries(self, node: TurnNode, chain: list[bytes]) -> None:
        tools = json.dumps(node.request_tools, sort_keys=True, default=str)
        last = chain[-1] if chain else json.dumps(node.prompt_ids).encode()
        asked = _next(last, tools)
        if (chain or node.prompt_ids) and asked in self._by_request:
            node.retry_of = self._by_request[asked]
        else:
            self._by_request[asked] = node.node_id

    def _share(self, node: TurnNode) -> None:
        """An agent sends its whole history with each call: keep each message of it once."""
        shared = []
        for message in node.request_messages:
            key = hashlib.blake2b(
                json.dumps(message, sort_keys=True, default=str).encode(), digest_size=16
            ).digest()
            shared.append(self._messages.setdefault(key, message))
        node.request_messages = shared

    # ------------------------------------------------------------------ tokens

    def _is_first(self, node: TurnNode) -> bool:
        """No call before it ends in the tokens that it begins with."""
        if node.parent_id is None or node.rerendered:
            return True
        return bool(node.prompt_ids) != bool(self._nodes[node.parent_id].prompt_ids)

    def _exact_path(self, leaf_id: str) -> list[TurnNode]:
        path = self.path_to(leaf_id)
        first = max(at for at, node in enumerate(path) if at == 0 or self._is_first(node))
        return path[first:]

    def _sequence(self, path: list[TurnNode], trained: set[str]) -> TrainingSequence:
        ids: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        for node in path:
            read = node.prompt_ids[len(ids) :]
            written = len(node.sampled_ids)
            is_trained = node.has_tokens and node.node_id not in trained
            ids = ids + read + node.sampled_ids
            mask += [0] * len(read) + [int(is_trained)] * written
            known = node.sampled_logprobs if node.has_tokens else None
            logprobs += [0.0] * len(read) + list(known or [0.0] * written)
            trained.add(node.node_id)
        return TrainingSequence(
            input_ids=ids,
            loss_mask=mask,
            logprobs=logprobs,
            node_ids=[node.node_id for node in path],
            prompt_len=len(path[0].prompt_ids),
            root_id=self.root_of(path[0].node_id),
            n_turns=len(path),
            _turn_lengths=[len(node.sampled_ids) for node in path],
        )


def new_node_id() -> str:
    """A name for a call."""
    return uuid.uuid4().hex[:12]


def _goes_on(prompt: Sequence[int], parent: TurnNode) -> bool:
    """Whether a prompt begins with all tokens of a call, and has some more."""
    read, end = len(parent.prompt_ids), len(parent.prompt_ids) + len(parent.sampled_ids)
    return (
        0 < end < len(prompt)
        and prompt[end - 1] == (parent.sampled_ids or parent.prompt_ids)[-1]
        and prompt[read:end] == parent.sampled_ids
        and prompt[:read] == parent.prompt_ids
    )


# ------------------------------------------------------------------ messages


def fingerprints(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """For each message, a digest of it and all before it.

    Two messages are the same if they say the same: agents send back what they were answered without
    its empty fields, with text in blocks, or with the arguments of a call written anew.
    """
    chain: list[bytes] = []
    before = b""
    for message in messages:
        before = _next(before, _told(message))
        chain.append(before)
    return chain


def _next(before: bytes, told: str) -> bytes:
    return hashlib.blake2b(before + told.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _told(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    calls = [_called(call) for call in message.get("tool_calls") or ()]
    told = [
        "system" if role == "developer" else role,
        _content(message.get("content")),
        calls,
        message.get("tool_call_id"),
    ]
    return json.dumps(told, sort_keys=True, default=str)


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        if all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
            return "\n".join(part["text"] for part in content).strip()
        return content
    return content or ""


def _called(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    with contextlib.suppress(ValueError):
        arguments = read_json(arguments) if isinstance(arguments, str) else arguments
    return [call.get("id"), function.get("name"), arguments]
