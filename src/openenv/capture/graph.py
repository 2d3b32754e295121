"""The graph of a session's calls: which call continues which, with the tokens of each.

A call continues another if its messages begin with the other's request and answer. This recognizes
branches, retries, sub-agents and rewritten histories (compaction) without help from the agent:

    a ── b ── c          a conversation
          └── d          a branch: d continues b too
    e                    another conversation: a sub-agent, or a summarized history

Invariants:

- Parents are found by messages (`fingerprints`), since agents resend text and not tokens; tokens
  decide only between several candidates, or if there are no messages.
- A training sequence grows strictly: each call's prompt begins with all tokens of its parent. If
  the chat template or the agent rendered the history in different tokens (`rerendered`), a new
  sequence starts there, so that no token is trained on in a context that the model did not see.
- Each message and the shared prefix of each prompt are stored once, since agents resend their whole
  history with every call.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.json import read_json

__all__ = ["RolloutGraph", "TrainingSequence", "TurnNode", "common_prefix_len", "fingerprints"]


def common_prefix_len(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two token sequences."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:  # nearly always, and fast
        return shorter
    return next(at for at in range(shorter) if a[at] != b[at])


@dataclass
class TurnNode:
    """An answered model call.

    Attributes:
        node_id: Id, unique in the session.
        prompt_ids: The prompt's tokens; empty if the upstream does not return them.
        sampled_ids: The tokens that the model wrote.
        sampled_logprobs: The log-probability of each sampled token, in nats; None if unknown.
        parent_id: Id of the call that this call continues; None for the first of a conversation.
        index: Position among the calls of the session in order of request, from 0; negative until
            the call is in a graph.
        model: The upstream's name of the model.
        finish_reason: The reason why the model stopped (``stop``, ``length``, ``tool_calls``).
        harness_session_id: The agent's own id for its session, if known.
        system_digest: A digest of the system message; None if there is none.
        n_tools: Number of tools that the model could call.
        request_messages: The request, as chat messages.
        request_tools: The tools, in the format of chat completions.
        sampling_params: The sampling parameters that were used.
        requested_sampling_params: The sampling parameters that the agent requested.
        response_message: The answer, as a chat message.
        rerendered: True if the call continues its parent's messages, but its prompt does not begin
            with the parent's tokens: the chat template or the agent rendered the history
            differently.
        retry_of: Id of an earlier call with the same request; None if there is none.
        no_tokens: The reason why there are no reliable tokens; None if there are.
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
        """Return all tokens after the call: the prompt's and the sampled ones."""
        return self.prompt_ids + self.sampled_ids

    @property
    def has_tokens(self) -> bool:
        """True if all tokens and log-probabilities are known."""
        return bool(
            self.prompt_ids
            and self.sampled_logprobs is not None
            and len(self.sampled_logprobs) == len(self.sampled_ids)
            and self.no_tokens is None
        )

    def context_ids(self, parent: TurnNode | None) -> list[int]:
        """Return the prompt tokens that follow the tokens of `parent`; all prompt tokens if the
        prompt does not begin with those.
        """
        if parent is None or not _continues(self.prompt_ids, parent):
            return list(self.prompt_ids)
        return self.prompt_ids[_n_tokens(parent) :]


@dataclass
class TrainingSequence:
    """A growing token sequence of one or more calls.

    Attributes:
        input_ids: All tokens.
        loss_mask: 1 for each token that the model wrote and that no earlier sequence contains, else
            0.
        logprobs: One value for each token, in nats; 0.0 for tokens that the model did not write.
        node_ids: Ids of the calls, in order.
        prompt_len: Number of tokens before the model's first token.
        root_id: Id of the first call of the conversation.
        n_turns: Number of calls.
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
        """Return the number of tokens to train on."""
        return sum(self.loss_mask)

    def turn_lengths(self) -> list[int]:
        """Return the number of sampled tokens of each call."""
        return list(self._turn_lengths)


class RolloutGraph:
    """The answered calls of a session, each linked to a parent."""

    def __init__(self) -> None:
        self._nodes: dict[str, TurnNode] = {}
        self._children: dict[str, list[str]] = {}
        self._by_end: dict[bytes, list[str]] = {}  # by the messages up to and including the answer
        self._by_request: dict[bytes, str] = {}  # by the messages and tools of the request
        self._messages: dict[bytes, dict[str, Any]] = {}  # each stored once, however often sent

    def add_turn(self, node: TurnNode) -> TurnNode:
        """Add a call and find its parent, unless the call already names one.

        Raises:
            ValueError: The id is taken, or the named parent does not exist.
        """
        if node.node_id in self._nodes:
            raise ValueError(f"node_id={node.node_id!r}: the call exists")
        if node.parent_id is not None and node.parent_id not in self._nodes:
            raise ValueError(f"parent_id={node.parent_id!r}: the call does not exist")
        chain = fingerprints(node.request_messages)
        self._share(node)
        if node.parent_id is None:
            node.parent_id = self._parent(node, chain)
        parent = self._nodes[node.parent_id] if node.parent_id is not None else None
        if parent is not None:
            if _continues(node.prompt_ids, parent):
                # Share the int objects with the parent, to save memory.
                node.prompt_ids = parent.end_ids + node.context_ids(parent)
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
            end = _chain_digest(chain[-1], _canonical_text(node.response_message))
            self._by_end.setdefault(end, []).append(node.node_id)
        return node

    def nodes(self) -> list[TurnNode]:
        """Return the calls in order of request."""
        return sorted(self._nodes.values(), key=lambda node: node.index)

    def get(self, node_id: str) -> TurnNode:
        """Return a call by id.

        Raises:
            KeyError: There is no call with this id.
        """
        return self._nodes[node_id]

    def children(self, node_id: str) -> list[TurnNode]:
        """Return the calls that continue a call."""
        return [self._nodes[name] for name in self._children[node_id]]

    def roots(self) -> list[TurnNode]:
        """Return the first call of each conversation."""
        return [node for node in self.nodes() if node.parent_id is None]

    def leaves(self) -> list[TurnNode]:
        """Return the calls without continuation."""
        return [node for node in self.nodes() if not self._children[node.node_id]]

    def root_of(self, node_id: str) -> str:
        """Return the id of the first call of a call's conversation."""
        return self.path_to(node_id)[0].node_id

    def path_to(self, leaf_id: str) -> list[TurnNode]:
        """Return the calls from the first of the conversation to this call."""
        path = [self._nodes[leaf_id]]
        while path[-1].parent_id is not None:
            path.append(self._nodes[path[-1].parent_id])
        return path[::-1]

    def paths(self) -> Iterator[list[TurnNode]]:
        """Yield the path to each leaf."""
        for leaf in self.leaves():
            yield self.path_to(leaf.node_id)

    def forks(self) -> list[tuple[str, list[str]]]:
        """Return the ids of calls with several continuations, each with its continuations' ids."""
        return [(name, list(after)) for name, after in self._children.items() if len(after) > 1]

    def discarded_nodes(self) -> list[TurnNode]:
        """Return the calls whose answers the agent dropped and requested again."""
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
        """Return the token sequence that ends with a call.

        The sequence begins at the first call of the conversation, or where the history was last
        rendered in different tokens. Everything before that point is context only.
        """
        return self._sequence(self._exact_path(leaf_id), set())

    def sequences(self, *, without: Collection[str] = ()) -> list[TrainingSequence]:
        """Return a sequence for each call whose exact tokens no other call continues.

        A call that several sequences share is trained on only in the first of them.

        Args:
            without: Ids of calls that no sequence may end with.
        """
        on_from = {node.parent_id for node in self._nodes.values() if not self._is_first(node)}
        left_out = {*on_from, *without}
        ends = [node for node in self.nodes() if node.node_id not in left_out]
        trained: set[str] = set()
        return [self._sequence(self._exact_path(end.node_id), trained) for end in ends]

    def stats(self) -> dict[str, Any]:
        """Return the numbers of calls, conversations, leaves, forks and discarded calls."""
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
                exact = [one for one in ends if _continues(node.prompt_ids, self._nodes[one])]
                return (exact or ends)[-1]
        before = [one for one in self._nodes.values() if _continues(node.prompt_ids, one)]
        longest = max(before, key=_n_tokens, default=None)
        return None if longest is None else longest.node_id

    def _retries(self, node: TurnNode, chain: list[bytes]) -> None:
        tools = json.dumps(node.request_tools, sort_keys=True, default=str)
        last = chain[-1] if chain else json.dumps(node.prompt_ids).encode()
        asked = _chain_digest(last, tools)
        if (chain or node.prompt_ids) and asked in self._by_request:
            node.retry_of = self._by_request[asked]
        else:
            self._by_request[asked] = node.node_id

    def _share(self, node: TurnNode) -> None:
        """Replace messages with equal messages of earlier calls, so that each is stored once."""
        shared = []
        for message in node.request_messages:
            key = _chain_digest(b"", json.dumps(message, sort_keys=True, default=str))
            shared.append(self._messages.setdefault(key, message))
        node.request_messages = shared

    # ------------------------------------------------------------------ tokens

    def _is_first(self, node: TurnNode) -> bool:
        """Return whether a call starts a new token sequence."""
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
    """Return a new id of a call."""
    return uuid.uuid4().hex[:12]


def _n_tokens(node: TurnNode) -> int:
    return len(node.prompt_ids) + len(node.sampled_ids)


def _continues(prompt: Sequence[int], parent: TurnNode) -> bool:
    """Return whether a prompt begins with all tokens of a call and is longer."""
    read, end = len(parent.prompt_ids), _n_tokens(parent)
    return (
        0 < end < len(prompt)
        and prompt[end - 1] == (parent.sampled_ids or parent.prompt_ids)[-1]
        and prompt[read:end] == parent.sampled_ids
        and prompt[:read] == parent.prompt_ids
    )


# ------------------------------------------------------------------ messages


def fingerprints(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return, for each message, a digest of the conversation up to that message.

    Messages with the same content count as equal: agents send answers back without empty fields,
    with text in blocks, or with reformatted arguments of calls.
    """
    texts = map(_canonical_text, messages)
    return list(itertools.accumulate(texts, _chain_digest, initial=b""))[1:]


def _chain_digest(before: bytes, told: str) -> bytes:
    return hashlib.blake2b(before + told.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _canonical_text(message: Mapping[str, Any]) -> str:
    role, content = message.get("role"), message.get("content") or ""
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        content = "\n".join(part["text"] for part in content)
    told = [
        "system" if role == "developer" else role,
        content.strip() if isinstance(content, str) else content,
        [_canonical_call(call) for call in message.get("tool_calls") or ()],
        message.get("tool_call_id"),
    ]
    return json.dumps(told, sort_keys=True, default=str)


def _canonical_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    with contextlib.suppress(ValueError):
        arguments = read_json(arguments) if isinstance(arguments, str) else arguments
    return [call.get("id"), function.get("name"), arguments]
