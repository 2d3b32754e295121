"""Records of transitions: text in recordings, digests in journals.

JSON text is that of version 1: an array is ``{"dtype", "shape", "data"}`` with base64 data.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from openenv._internal.incidents import error_data
from openenv.arrays import as_base64, holds_arrays
from openenv.protocol.messages import TRUNCATED, Transition
from openenv.protocol.values import outer_fields, to_wire_value
from openenv.types import is_observation

_writer = msgspec.json.Encoder(enc_hook=as_base64)
_digester = msgspec.json.Encoder(enc_hook=as_base64, order="deterministic")

DIGEST_BYTES = 16


# ------------------------------------------------------------------ text


def json_text(value: Any, exclude: set[str] | None = None) -> bytes:
    """Write a value as JSON, without the excluded fields of a model.

    Raises:
        ValueError: The value cannot be written as JSON.
        TypeError: The value cannot be written as JSON.
    """
    cls = type(value)
    if isinstance(value, BaseModel) and not holds_arrays(cls):
        try:
            text: bytes = cls.__pydantic_serializer__.to_json(value, exclude=exclude)
            return text
        except (PydanticSerializationError, UnicodeEncodeError):
            pass  # it may still hold arrays
    return _writer.encode(to_wire_value(value, exclude))


def json_value(value: Any) -> Any:
    """Return a value as reading its JSON would give it back."""
    return msgspec.json.decode(_writer.encode(to_wire_value(value)))


def transition_text(transition: Transition) -> bytes:
    """Write a transition as members of a JSON object, without the braces."""
    observation, cls = transition.observation, type(transition.observation)
    ended, truncated = transition.done, transition.truncated
    return b'"observation":%b,"reward":%b,"terminated":%b,"truncated":%b,"info":%b,%b%b%b' % (
        json_text(observation, outer_fields(cls) if is_observation(cls) else None),
        json_text(transition.reward),
        b"true" if ended and not truncated else b"false",
        b"true" if truncated else b"false",
        b"null" if transition.info is None else json_text(transition.info),
        b'"metadata":' + (json_text(transition.metadata) if transition.metadata else b"{}"),
        b',"reward_info":' + json_text(transition.reward_info) if transition.reward_info else b"",
        b',"ignored_arguments":' + json_text(list(transition.ignored))
        if transition.ignored
        else b"",
    )


def error_text(error: BaseException) -> bytes:
    """Write an error as a JSON object, with the details that clients may see."""
    data = error_data(error)
    shown = {"type": type(error).__name__, "code": data["code"], "message": data["message"]}
    return _writer.encode(shown)


# ------------------------------------------------------------------ comparison of replays


class StepOutcome(msgspec.Struct, frozen=True):
    """The part of a result that must be the same when a step is replayed.

    Attributes:
        observation: The fields of the observation, without `metadata`.
        reward: The reward.
        done: Whether the episode is over.
        truncated: Whether the episode was truncated.
    """

    observation: Any
    reward: Any
    done: bool
    truncated: bool

    @classmethod
    def of(cls, payload: dict[str, Any]) -> StepOutcome:
        """Return the outcome in the payload of a client's `ObservationReply`."""
        observation = payload.get("observation")
        if isinstance(observation, dict):
            observation = {k: v for k, v in observation.items() if k != "metadata"}
        done = bool(payload.get("done", False))
        truncated = done and (payload.get("metadata") or {}).get(TRUNCATED) is True
        return cls(observation, payload.get("reward"), done, truncated)


def digest(value: Any) -> bytes:
    """Return a 16-byte digest of a value's JSON. Equal JSON gives equal digests.

    The order of keys does not matter, and 1 differs from 1.0.
    """
    return hashlib.blake2b(_digester.encode(value), digest_size=DIGEST_BYTES).digest()
