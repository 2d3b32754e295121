"""Export of recorded sessions as JSON documents and as training data.

    document = export_session(session)
    trace = to_training_trace(session.graph, document)

A session can be used for training if its upstream returned tokens. Otherwise `retokenize` computes
tokens from the text; these may differ from what the model sampled, and have no log-probabilities.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from openenv._internal.json import read_json
from openenv.capture.graph import RolloutGraph, TrainingSequence, TurnNode, common_prefix_len
from openenv.capture.sessions import CaptureSession, rollout_type_for
from openenv.capture.validate import check_rollout, check_sequence
from openenv.rollouts.harness.training import TrainingTrace, TrainingTurn

__all__ = [
    "TOKENS_REMEDY",
    "CapturedRollout",
    "export_session",
    "retokenize",
    "summarise",
    "to_rollouts",
    "to_trace_entries",
    "to_training_trace",
    "to_trl",
    "to_turn_records",
    "to_verifiers",
]

AGENT = "agent"
AUXILIARY = "auxiliary"
DISCARDED = "discarded"
TOKENS_REMEDY = (
    "the upstream must return tokens and log-probabilities: vLLM does with return_token_ids "
    "(0.10.2 and later), which the proxy requests if capture_level is 'tokens'; "
    "retokenize(...) makes tokens from the text, which may differ from the sampled ones"
)


class Tokenizer(Protocol):
    """The methods of a transformers tokenizer that this module uses."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render a conversation."""
        ...


@dataclass
class CapturedRollout:
    """A token sequence of one or more calls, in the format that trainers take.

    Attributes:
        prompt_ids: The tokens before the model's first token.
        completion_ids: All later tokens: the model's, and those it was given in between.
        completion_mask: 1 for each completion token that the model wrote and that is trained on,
            else 0.
        logprobs: One value in nats for each completion token; 0.0 where the mask is 0. None if
            unknown.
        node_ids: Ids of the calls.
        is_retokenized: True if the tokens were computed from text; the model may have sampled
            different tokens.
        metadata: Any other data.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    logprobs: list[float] | None
    node_ids: list[str]
    is_retokenized: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------ the document


def export_session(
    session: CaptureSession,
    *,
    include_discarded: bool = False,
    include_messages: bool = False,
    include_auxiliary: bool = False,
    capture_level: str | None = None,
) -> dict[str, Any]:
    """Export a session's calls as a JSON document.

    Args:
        session: The session.
        include_discarded: Also train on calls whose answers the agent dropped and requested again.
        include_messages: Include the messages.
        include_auxiliary: Also train on auxiliary calls: if some conversations have tools, those
            without tools, such as calls for a title or a summary.
        capture_level: Use this level instead of the session's.
    """
    graph = session.graph
    level = capture_level or session.capture_level or "tokens"
    kind = rollout_type_for(session.purpose, level)
    roles = _roles(graph)
    trained = {AGENT}
    trained |= {AUXILIARY} if include_auxiliary else set()
    trained |= {DISCARDED} if include_discarded else set()
    dropped = [] if include_discarded else [n for n, role in roles.items() if role == DISCARDED]
    sequences = [
        _sequence(sequence, roles[sequence.node_ids[-1]], trained, kind)
        for sequence in graph.sequences(without=dropped)
    ]
    report = check_rollout(graph, capture_level=level, budget_stop_count=session.budget_stop_count)
    fit = [one for one in sequences if one["trainable"]]
    of_failures = ["index", "kind", "status", "message"]
    of_failures += ["request_messages", "partial_message"] if include_messages else []
    return {
        "session_id": session.session_id,
        "metadata": session.metadata,
        "budget_stop_count": session.budget_stop_count,
        "turns": [
            _turn(graph, node, roles[node.node_id], include_messages) for node in graph.nodes()
        ],
        "failures": [_pick(one, *of_failures) for one in session.failures],
        "stats": {
            **graph.stats(),
            "n_failures": len(session.failures),
            "n_sequences": len(sequences),
            "n_trainable_sequences": len(fit),
            "n_trainable_tokens": sum(one["n_trainable"] for one in fit),
        },
        "sequences": sequences,
        "validation": [*session.findings, *map(str, report.findings)],
        "trainable": bool(fit) and kind == "train" and report.ok,
        "capture_level": level,
        "rollout_type": kind,
    }


def summarise(document: Mapping[str, Any]) -> str:
    """Summarize a document in one line."""
    stats = document["stats"]
    words = f"{stats['n_turns']} calls in {stats['n_roots']} conversations"
    if stats["n_failures"]:
        words += f", {stats['n_failures']} failed"
    if not document["trainable"]:
        return f"{document['session_id']}: {words}; not fit for training"
    return f"{document['session_id']}: {words}; {stats['n_trainable_tokens']} tokens to train on"


def _roles(graph: RolloutGraph) -> dict[str, str]:
    """Return the role of each call: the agent's own work, auxiliary, or discarded."""
    discarded = {node.node_id for node in graph.discarded_nodes()}
    root = {node.node_id: graph.root_of(node.node_id) for node in graph.nodes()}
    with_tools = {root[node.node_id] for node in graph.nodes() if node.n_tools}
    roles = {n: AGENT if not with_tools or r in with_tools else AUXILIARY for n, r in root.items()}
    return {**roles, **dict.fromkeys(discarded, DISCARDED)}


def _turn(graph: RolloutGraph, node: TurnNode, role: str, with_messages: bool) -> dict[str, Any]:
    return {
        **_pick(node, "node_id", "parent_id", "index"),
        "root_id": graph.root_of(node.node_id),
        "role": role,
        "n_sampled": len(node.sampled_ids),
        "n_prompt": len(node.prompt_ids),
        **_pick(node, "n_tools", "finish_reason", "harness_session_id", *_SAMPLING),
        "sampled_logprobs": node.sampled_logprobs,
        "discarded": role == DISCARDED,
        **_pick(node, "rerendered", "retry_of", "no_tokens"),
        **(_pick(node, *_MESSAGES) if with_messages else {}),
    }


_SAMPLING = ("sampling_params", "requested_sampling_params")
_MESSAGES = ("request_messages", "request_tools", "response_message")


def _pick(source: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _sequence(
    sequence: TrainingSequence, role: str, trained: set[str], kind: str
) -> dict[str, Any]:
    report = check_sequence(sequence)
    return {
        "role": role,
        **_pick(sequence, "root_id", "node_ids", "n_turns", "prompt_len", "n_trainable"),
        "turn_lengths": sequence.turn_lengths(),
        **_pick(sequence, "input_ids", "loss_mask", "logprobs"),
        "trainable": report.ok and role in trained and kind == "train",
        "validation": [str(finding) for finding in report.findings],
    }


# ------------------------------------------------------------------ training data


def to_trace_entries(graph: RolloutGraph, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an entry for each call to train on, in order of request.

    Raises:
        ValueError: The session is not fit for training; the message gives reason and remedy.
    """
    return [
        {
            "request": {
                "messages": node.request_messages,
                **({"tools": node.request_tools} if node.request_tools else {}),
            },
            "response": {
                "choices": [{"message": node.response_message, "finish_reason": node.finish_reason}]
            },
            "prompt_token_ids": list(node.prompt_ids),
            "completion_token_ids": list(node.sampled_ids),
            "per_token_logps": list(node.sampled_logprobs or ()),
            "loss_mask": [0] * len(node.prompt_ids) + [1] * len(node.sampled_ids),
            "metadata": _pick(
                node, "node_id", "index", "model", "n_tools", "harness_session_id", *_SAMPLING
            ),
        }
        for node in _nodes_to_train(graph, document)
    ]


def to_training_trace(graph: RolloutGraph, document: Mapping[str, Any]) -> TrainingTrace:
    """Return the calls to train on as a validated `TrainingTrace`.

    Raises:
        ValueError: The session is not fit for training, or no call can be trained on.
    """
    entries = to_trace_entries(graph, document)
    if not entries:
        raise ValueError(
            "the session has no call to train on: the agent never reached the proxy, or was never "
            "answered; look at its output, and at the base URL and the key that it was given"
        )
    return TrainingTrace(
        turns=[
            TrainingTurn(
                node_id=entry["metadata"]["node_id"],
                metadata={n: v for n, v in entry["metadata"].items() if n != "node_id"},
                **{name: value for name, value in entry.items() if name != "metadata"},
            )
            for entry in entries
        ]
    )


def to_turn_records(
    graph: RolloutGraph, document: Mapping[str, Any]
) -> list[tuple[list[int], list[int], list[float]]]:
    """Return prompt tokens, sampled tokens and log-probabilities of each call to train on.

    Raises:
        ValueError: The session is not fit for training.
    """
    return [
        (list(node.prompt_ids), list(node.sampled_ids), list(node.sampled_logprobs or ()))
        for node in _nodes_to_train(graph, document)
    ]


def to_rollouts(graph: RolloutGraph, document: Mapping[str, Any]) -> list[CapturedRollout]:
    """Return the sequences to train on. Each sampled token is trained on exactly once.

    Raises:
        ValueError: The session is not fit for training.
    """
    _nodes_to_train(graph, document)
    return [
        CapturedRollout(
            prompt_ids=one["input_ids"][: one["prompt_len"]],
            completion_ids=one["input_ids"][one["prompt_len"] :],
            completion_mask=one["loss_mask"][one["prompt_len"] :],
            logprobs=one["logprobs"][one["prompt_len"] :],
            node_ids=list(one["node_ids"]),
        )
        for one in document["sequences"]
        if one["trainable"]
    ]


def to_trl(rollouts: Sequence[CapturedRollout]) -> dict[str, list[Any]]:
    """Return the columns of a TRL ``rollout_func``, with an entry for each rollout.

    The columns are ``prompt_ids``, ``completion_ids``, ``env_mask`` and ``logprobs``.

    Raises:
        ValueError: A rollout has no log-probabilities.
    """
    if any(one.logprobs is None for one in rollouts):
        raise ValueError(f"logprobs: these rollouts have none, which TRL needs; {TOKENS_REMEDY}")
    return {
        "prompt_ids": [one.prompt_ids for one in rollouts],
        "completion_ids": [one.completion_ids for one in rollouts],
        "env_mask": [one.completion_mask for one in rollouts],
        "logprobs": [one.logprobs for one in rollouts],
    }


def to_verifiers(graph: RolloutGraph, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a verifiers trajectory.

    ``prompt`` and ``completion`` are messages, ``tokens`` is a ``TrajectoryStepTokens``.

    Raises:
        ValueError: The session is not fit for training.
    """
    return [
        {
            "prompt": list(node.request_messages),
            "completion": [node.response_message],
            "tokens": {
                "prompt_ids": list(node.prompt_ids),
                "prompt_mask": [0] * len(node.prompt_ids),
                "completion_ids": list(node.sampled_ids),
                "completion_mask": [1] * len(node.sampled_ids),
                "completion_logprobs": list(node.sampled_logprobs or ()),
                "overlong_prompt": False,
                "is_truncated": node.finish_reason == "length",
            },
            "reward": None,
            "advantage": None,
            "is_truncated": node.finish_reason == "length",
            "trajectory_id": str(document["session_id"]),
            "extras": {"node_id": node.node_id},
        }
        for node in _nodes_to_train(graph, document)
    ]


def _nodes_to_train(graph: RolloutGraph, document: Mapping[str, Any]) -> list[TurnNode]:
    """Return the calls to train on, in order.

    Raises:
        ValueError: The session is not fit for training.
    """
    if document["rollout_type"] != "train":
        raise ValueError(
            f"the session was not captured for training (capture_level="
            f"{document['capture_level']!r}): {TOKENS_REMEDY}"
        )
    agents = [one for one in document["turns"] if one["role"] == AGENT]
    lacking = [one for one in agents if not graph.get(one["node_id"]).has_tokens]
    if lacking:
        first = lacking[0]
        raise ValueError(
            f"{len(lacking)} of the session's {len(document['turns'])} calls have no tokens to "
            f"train on (call {first['index']}: {first['no_tokens'] or 'no log-probabilities'}): "
            f"{TOKENS_REMEDY}"
        )
    names = {n for one in document["sequences"] if one["trainable"] for n in one["node_ids"]}
    return [node for node in graph.nodes() if node.node_id in names]


# ------------------------------------------------------------------ retokenization


def retokenize(
    graph: RolloutGraph,
    tokenizer: Tokenizer,
    *,
    chat_template: str | None = None,
    **template_options: Any,
) -> list[CapturedRollout]:
    """Create a rollout for each answered call, with tokens computed from the text.

    The tokens are what the tokenizer yields for the conversation, not what the model sampled, and
    have no log-probabilities. They are fit for supervised learning, but not for algorithms that
    compare probabilities.

    Args:
        graph: The calls.
        tokenizer: Tokenizer of the model to train; must have a chat template.
        chat_template: A chat template to use instead of the tokenizer's.
        template_options: Options passed to the template.

    Raises:
        ValueError: With the template, the prompt's tokens are not a prefix of the whole call's.
    """
    rollouts = []
    for node in graph.nodes():
        prompt, whole = render_call(
            node, tokenizer, {"chat_template": chat_template, **template_options}
        )
        if whole[: len(prompt)] != prompt:
            raise ValueError(
                f"call {node.index}: the chat template renders the conversation with the answer in "
                f"other tokens than without; give another chat_template"
            )
        completion = whole[len(prompt) :]
        mask = [1] * len(completion)
        rollouts.append(CapturedRollout(prompt, completion, mask, None, [node.node_id], True))
    return rollouts


def render_call(
    node: TurnNode, tokenizer: Tokenizer, options: Mapping[str, Any]
) -> tuple[list[int], list[int]]:
    """Return the tokens of a call's messages, without and with the answer."""
    asked = [_to_template_message(message) for message in node.request_messages]
    answer = _to_template_message(node.response_message)
    shared = {"tools": node.request_tools, "tokenize": True, "return_dict": False, **options}
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, **shared)
    whole = tokenizer.apply_chat_template([*asked, answer], **shared)
    return list(prompt), list(whole)


def _to_template_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message for templates; the arguments of calls become objects."""
    told = {**message, "content": message.get("content") or ""}
    calls = []
    for call in message.get("tool_calls") or ():
        function = dict(call["function"])
        with contextlib.suppress(TypeError, ValueError):
            function["arguments"] = read_json(function.get("arguments") or "{}")
        calls.append({**call, "function": function})
    return {**told, "tool_calls": calls} if calls else told


def measure_retokenization_skew(
    graph: RolloutGraph,
    document: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    chat_template: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Compare tokens computed from text with the sampled tokens.

    Returns:
        ``turns`` and ``turns_skewed``, ``tokens`` (written by the model) and ``tokens_skewed``
        (those after the first difference), and ``skewed``, the ids of the calls that differ.

    Raises:
        ValueError: The session is not fit for training.
    """
    options = {"chat_template": chat_template, **(chat_template_kwargs or {})}
    nodes = _nodes_to_train(graph, document)
    skewed, lost = [], 0
    for node in nodes:
        prompt, whole = render_call(node, tokenizer, options)
        same = common_prefix_len(node.end_ids, whole)
        if node.prompt_ids != prompt or same < len(node.end_ids):
            skewed.append(node.node_id)
            lost += len(node.end_ids) - max(same, len(node.prompt_ids))
    return {
        "turns": len(nodes),
        "turns_skewed": len(skewed),
        "tokens": sum(len(node.sampled_ids) for node in nodes),
        "tokens_skewed": lost,
        "skewed": skewed,
    }
