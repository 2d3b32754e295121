"""Wire evidence of a subject: frames as they were sent, and methods to read them.

Graders read episodes only from here. Requests and answers are kept as strings, so that no default
of a client or a model can hide a fault. The standard library parses them strictly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openenv.reward import REWARD_INFO, RewardSpec


class InvalidJSON(ValueError):
    """Text that is not JSON by RFC 8259, which excludes NaN, infinities and duplicate keys."""


def strict_json(text: str) -> Any:
    """Parse JSON by RFC 8259.

    Raises:
        InvalidJSON: The text is not valid; the message gives the reason.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise InvalidJSON(str(error)) from error


def _no_constant(name: str) -> Any:
    raise InvalidJSON(f"{name} is not valid JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidJSON(f"the key {twice!r} is given twice")
    return found


@dataclass(frozen=True)
class Exchange:
    """A request and the answer."""

    request: str  # the frame that was sent
    response: str | None  # the frame that was received, or None
    seconds: float  # the time until the answer
    failure: str | None = None  # why no frame was received

    @property
    def size_bytes(self) -> int:
        """The size of both frames in UTF-8."""
        return len(self.request.encode()) + len((self.response or "").encode())

    @cached_property
    def message(self) -> Any:
        """The parsed request, an object."""
        return json.loads(self.request)

    @cached_property
    def answer(self) -> tuple[str, Any, str | None]:
        """The response's type and data, and an error if the response cannot be read."""
        if self.response is None:
            return "", None, self.failure or "no answer came"
        try:
            frame = strict_json(self.response)
        except InvalidJSON as error:
            return "", None, f"the frame is not valid JSON: {error}"
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            return "", None, f"the frame is no object with a type: {self.response:.200}"
        return frame["type"], frame.get("data"), None

    @property
    def kind(self) -> str:
        """The response's type; empty if the response cannot be read."""
        return self.answer[0]

    @property
    def data(self) -> dict[str, Any]:
        """The response's data; empty if the data is not an object."""
        data = self.answer[1]
        return data if isinstance(data, dict) else {}

    @property
    def error(self) -> str | None:
        """The code and message of an error frame, or why there is no frame; None if no error."""
        kind, data, trouble = self.answer
        if trouble is not None:
            return trouble
        if kind != "error":
            return None
        told = data if isinstance(data, dict) else {}
        return f"{told.get('code', 'an error')}: {told.get('message', '')}"


@dataclass(frozen=True)
class Moment:
    """A reset or step that was answered with an observation, and the state afterwards."""

    exchange: Exchange
    # The readings of the state afterwards, including readings after refused actions, but not those
    # after a step that failed halfway.
    states: tuple[Exchange, ...] = ()

    @property
    def is_reset(self) -> bool:
        """True if the moment begins an episode."""
        return bool(self.exchange.message["type"] == "reset")

    @property
    def sent(self) -> dict[str, Any]:
        """The arguments of a reset, or the action of a step."""
        sent: dict[str, Any] = self.exchange.message.get("data") or {}
        return sent

    @property
    def frame(self) -> dict[str, Any]:
        """The response's ``observation``, ``reward``, ``done`` and optional ``metadata``."""
        return self.exchange.data

    @property
    def observation(self) -> dict[str, Any]:
        """The observation; empty if not an object."""
        seen = self.frame.get("observation")
        return seen if isinstance(seen, dict) else {}

    @property
    def reward(self) -> Any:
        """The reward as received, of any type."""
        return self.frame.get("reward")

    @property
    def is_done(self) -> bool:
        """True if the episode is over."""
        return self.frame.get("done") is True

    @property
    def reward_info(self) -> dict[str, Any]:
        """The information that accompanies the reward (see `openenv.reward`)."""
        info = self.metadata.get(REWARD_INFO)
        return info if isinstance(info, dict) else {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that accompanies the observation."""
        told = self.frame.get("metadata")
        return told if isinstance(told, dict) else {}


@dataclass(frozen=True)
class Transcript:
    """All exchanges of a session, in order."""

    exchanges: tuple[Exchange, ...] = ()  # requests with their answers
    stopped: str | None = None  # why the session was lost; None if it was not

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """The resets and steps that were answered with observations."""
        found: list[tuple[Exchange, list[Exchange]]] = []
        is_known = False  # whether a reading of the state belongs to the last moment
        for exchange in self.exchanges:
            if exchange.kind == "observation":
                found.append((exchange, []))
                is_known = True
            elif exchange.message["type"] == "state" and is_known:
                found[-1][1].append(exchange)
            elif exchange.response is None or "incident" in exchange.data:
                is_known = False
        return tuple(Moment(exchange, tuple(states)) for exchange, states in found)

    @property
    def steps(self) -> tuple[Moment, ...]:
        """The steps among the moments."""
        return tuple(moment for moment in self.moments if not moment.is_reset)

    @property
    def first(self) -> Moment | None:
        """The moment of the first reset, or None."""
        return next((moment for moment in self.moments if moment.is_reset), None)

    @property
    def errors(self) -> list[str]:
        """Descriptions of all errors, in order."""
        found = []
        for number, exchange in enumerate(self.exchanges):
            if exchange.error is not None:
                found.append(f"{exchange.message['type']} {number}: {exchange.error}")
            if exchange.response is None:
                return found  # later requests fail for the same reason
        return found + ([self.stopped] if self.stopped else [])

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The actions of the steps."""
        return [m.sent for m in self.steps]

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The actions of all requested steps, including refused ones."""
        asked = [exchange.message for exchange in self.exchanges]
        return [message["data"] for message in asked if message["type"] == "step"]

    def name(self, moment: Moment) -> str:
        """Return the name of a moment: ``reset``, or ``step`` and the number."""
        number = next(i for i, one in enumerate(self.moments) if one is moment)
        return "reset" if moment.is_reset else f"step {number}"

    @cached_property
    def trace(self) -> tuple[Any, ...]:
        """The content that a replay must repeat: every answer, without ids.

        The episode's id is left out, since `runtime.state_contract` checks it. Errors are compared
        by code only.
        """
        return tuple(_comparable(exchange) for exchange in self.exchanges)

    @property
    def spec(self) -> RewardSpec | None:
        """The reward specification that the reset returned; None if missing or invalid."""
        told = self.first.reward_info.get("spec") if self.first else None
        try:
            return RewardSpec.from_data(told) if isinstance(told, dict) else None
        except ValueError:
            return None

    @property
    def size_bytes(self) -> int:
        """The size of all frames."""
        return sum(exchange.size_bytes for exchange in self.exchanges)


def _comparable(exchange: Exchange) -> Any:
    kind, data, trouble = exchange.answer
    if trouble is not None:
        return ("", trouble)
    if kind == "error" and isinstance(data, dict):
        return (kind, data.get("code"))  # incident ids differ every time
    if kind == "state" and isinstance(data, dict):
        return (kind, {name: value for name, value in data.items() if name != "episode_id"})
    return (kind, data)


def first_difference(one: Transcript, other: Transcript) -> str | None:
    """Describe the first difference of two transcripts, or return None."""
    for number, (a, b) in enumerate(zip(one.trace, other.trace, strict=False)):
        if a != b:
            asked = one.exchanges[number].message["type"]
            return f"{asked} (exchange {number}): {_describe_difference(a, b)}"
    if len(one.trace) != len(other.trace):
        return f"one has {len(one.trace)} exchanges, the other {len(other.trace)}"
    return None


def _describe_difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one | other:
            if one.get(name, _MISSING) != other.get(name, _MISSING):
                at = f"{path}.{name}" if path else str(name)
                return _describe_difference(one.get(name, _MISSING), other.get(name, _MISSING), at)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return _describe_difference(a, b, f"{path}[{place}]" if path else "")
    return f"{path or 'it'} was {one!r:.120} and then {other!r:.120}"


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING = _Missing()


def episode_reward(transcript: Transcript, spec: RewardSpec | None = None) -> float | None:
    """Return the total reward of an episode, or None if a reward that counts is unknown.

    By default the specification is the one that the reset returned, or else a reward per step.
    """
    meaning = spec or transcript.spec or RewardSpec()
    rewards = [number_of(moment.reward) for moment in transcript.steps]
    told = [moment.reward_info.get("unscored") for moment in transcript.steps]
    unscored = [why if isinstance(why, str) and why else None for why in told]
    return meaning.total(rewards, unscored)


def number_of(value: Any) -> float | None:
    """Return a finite JSON number as a float; None for other values, including booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True)
class FetchedPage:
    """The answer of an HTTP route."""

    path: str
    status: int | None = None  # the status; None if there was no answer
    body: str = field(default="", repr=False)
    failure: str | None = None  # why there was no answer

    @cached_property
    def json(self) -> Any:
        """The parsed body; None if the body is not JSON."""
        try:
            return strict_json(self.body)
        except InvalidJSON:
            return None

    @property
    def object(self) -> dict[str, Any]:
        """The parsed body if it is an object and the status is 200; else an empty dict."""
        return self.json if self.status == 200 and isinstance(self.json, dict) else {}


def string_leaves(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from string_leaves(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from string_leaves(inner)
