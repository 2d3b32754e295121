"""Sessions of the proxy: whose calls are whose. The key that an agent sends names its session."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.capture.graph import RolloutGraph, TurnNode
from openenv.capture.upstream import CAPTURE_LEVELS
from openenv.errors import OpenEnvError
from openenv.rollouts.harness.training import training_sampling

__all__ = [
    "FailedCall",
    "OnCall",
    "Session",
    "SessionLimitError",
    "SessionRegistry",
    "clean_session_id",
    "extract_api_key",
    "extract_harness_session",
    "rollout_type_for",
]

_PURPOSES = ("auto", "train", "eval")
_SESSION_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
# Where agents say what they call their own session.
_SESSION_HEADERS = ("x-session-id", "session_id", "x-claude-code-session-id", "x-session-affinity")


class SessionLimitError(OpenEnvError, RuntimeError):
    """There are as many sessions as there may be."""


@dataclass
class FailedCall:
    """A call that was not answered in full; nothing of it is trained on.

    Attributes:
        index: Its place among the calls of the session.
        kind: ``refused`` (the proxy did not pass it on), ``upstream`` (an error of the upstream),
            ``broken`` (the upstream's stream broke off) or ``abandoned`` (the agent hung up).
        status: The status that the agent was answered; None where its answer had begun, or it had
            gone.
        message: What happened.
        request_messages: What was asked.
        partial_message: What had come of the answer.
    """

    index: int
    kind: Literal["refused", "upstream", "broken", "abandoned"]
    status: int | None
    message: str
    request_messages: list[dict[str, Any]] = field(default_factory=list)
    partial_message: dict[str, Any] | None = None


OnCall = Callable[["Session", "TurnNode | FailedCall"], None]


@dataclass
class Session:
    """What is known of one agent's calls.

    Attributes:
        session_id: Its name. It is the key too, where the session was made beforehand; else a
            digest of it, since an agent may have sent a key that is a secret elsewhere.
        created_at: When it began; seconds since 1970.
        graph: Its answered calls.
        metadata: Whatever it was made with.
        findings: What happened that one should know, in words.
        last_turn_at: When a call was last answered.
        upstream_errors: How many calls the upstream did not answer.
        capture_level: ``tokens``, ``logprobs`` or ``text``; empty for the server's.
        purpose: ``auto``, ``train`` or ``eval``.
        eval_sampling: Settings of the sampler for calls that do not say otherwise.
        model_calls: How many calls it made.
        max_model_calls: How many it may make; 0 for no limit.
        max_tokens: How many tokens it may read and write in all; 0 for no limit.
        budget_stop_count: How many calls were told to stop since it had made or read that many.
        sampling: Settings of the sampler that stand before the agent's own, so that what is trained
            on was sampled as the trainer thinks; see `training_sampling`.
        failures: The calls that failed.
        n_tokens: How many tokens it has read and written.
        on_call: Called with each call that is answered or has failed.
    """

    session_id: str
    created_at: float = field(default_factory=time.time)
    graph: RolloutGraph = field(default_factory=RolloutGraph)
    metadata: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    last_turn_at: float | None = None
    upstream_errors: int = 0
    capture_level: str = ""
    purpose: str = "auto"
    eval_sampling: dict[str, Any] = field(default_factory=dict)
    model_calls: int = 0
    max_model_calls: int = 0
    max_tokens: int = 0
    budget_stop_count: int = 0
    sampling: dict[str, float | int] = field(default_factory=dict)
    failures: list[FailedCall] = field(default_factory=list)
    n_tokens: int = 0
    on_call: OnCall | None = field(default=None, repr=False)
    key: str = field(default="", repr=False)
    responses: dict[str, tuple[str, bool]] = field(default_factory=dict, repr=False)
    _calls: int = 0

    @property
    def over_budget(self) -> bool:
        """It has made all the calls, or used all the tokens, that it may."""
        return 0 < self.max_model_calls <= self.model_calls or (
            0 < self.max_tokens <= self.n_tokens
        )

    @property
    def idle_seconds(self) -> float:
        """Seconds since a call was answered, or since it began."""
        return time.time() - (self.last_turn_at or self.created_at)

    def answered(self, node: TurnNode) -> TurnNode:
        """Take a call in that was answered."""
        self.graph.add_turn(node)
        self.last_turn_at = time.time()
        if self.on_call is not None:
            self.on_call(self, node)
        return node

    def failed(self, call: FailedCall) -> None:
        """Take a call in that was not."""
        self.failures.append(call)
        if self.on_call is not None:
            self.on_call(self, call)

    def next_index(self) -> int:
        """The place of a call that begins now."""
        self._calls += 1
        return self._calls - 1


class SessionRegistry:
    """All sessions of a proxy, by their keys. It may be used from any thread.

    Args:
        require_registered: Whether a session has to be made before its key is let in; otherwise
            any key is a session's from its first call on.
        max_sessions: How many there may be.
        capture_level: That of a session that names none.
        max_model_calls: That of a session that names none.
        max_tokens: Likewise.
        on_call: Called with each call that is answered or has failed.
    """

    def __init__(
        self,
        *,
        require_registered: bool = True,
        max_sessions: int = 4096,
        capture_level: str = "tokens",
        max_model_calls: int = 0,
        max_tokens: int = 0,
        on_call: OnCall | None = None,
    ) -> None:
        self.on_call = on_call
        self.require_registered = require_registered
        self.max_sessions = max_sessions
        self.capture_level = capture_level
        self.max_model_calls = max_model_calls
        self.max_tokens = max_tokens
        self._by_key: dict[str, Session] = {}
        self._by_id: dict[str, Session] = {}
        self._lock = threading.Lock()

    def create(
        self,
        session_id: str | None = None,
        *,
        capture_level: str = "",
        purpose: str = "auto",
        eval_sampling: Mapping[str, Any] | None = None,
        max_model_calls: int | None = None,
        max_tokens: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> Session:
        """Make a session; its id is the key that its agent has to send.

        Args:
            session_id: The id; by default one that cannot be guessed.
            capture_level: Of this session; empty for the server's.
            purpose: ``train`` for a session that has to give tokens, ``eval`` for one that is not
                trained on, ``auto`` for whatever the level of capture allows.
            eval_sampling: Settings of the sampler for calls that do not say otherwise.
            max_model_calls: How many calls it may make; None for the server's limit, 0 for none.
            max_tokens: How many tokens it may read and write; likewise.
            sampling: Settings of the sampler that stand before the agent's own.
            metadata: Kept with it.

        Raises:
            ValueError: There is such a session, or a value cannot be.
            SessionLimitError: There are as many sessions as there may be.
        """
        if session_id is not None and clean_session_id(session_id) is None:
            raise ValueError(
                f"session_id={session_id!r}: expected 1 to 128 letters, digits, and any of . _ : -"
            )
        if capture_level and capture_level not in CAPTURE_LEVELS:
            legal = ", ".join(CAPTURE_LEVELS)
            raise ValueError(f"capture_level={capture_level!r}: expected one of {legal}")
        if purpose not in _PURPOSES:
            raise ValueError(f"purpose={purpose!r}: expected one of {', '.join(_PURPOSES)}")
        key = session_id or f"s{secrets.token_hex(16)}"
        return self._add(
            Session(
                key,
                metadata=dict(metadata),
                capture_level=capture_level or self.capture_level,
                purpose=purpose,
                eval_sampling=dict(eval_sampling or {}),
                max_model_calls=_limit("max_model_calls", max_model_calls, self.max_model_calls),
                max_tokens=_limit("max_tokens", max_tokens, self.max_tokens),
                sampling=training_sampling(sampling),
                key=key,
            )
        )

    def get(self, session_id: str | None) -> Session | None:
        """A session by its id."""
        return self._by_id.get(session_id or "")

    def resolve(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Session | None:
        """The session of a call, by the key that it came with.

        Raises:
            SessionLimitError: It would be a new one, and there are as many as there may be.
        """
        del body
        key = extract_api_key(headers)
        if not key:
            return None
        session = self._by_key.get(key)
        if session is not None or self.require_registered:
            return session
        name = "k" + hashlib.sha256(key.encode()).hexdigest()[:16]
        return self._add(
            Session(
                name,
                capture_level=self.capture_level,
                max_model_calls=self.max_model_calls,
                max_tokens=self.max_tokens,
                key=key,
            )
        )

    def list_ids(self) -> list[str]:
        """The ids of all sessions."""
        return list(self._by_id)

    def sessions(self) -> list[Session]:
        """All sessions."""
        return list(self._by_id.values())

    def delete(self, session_id: str) -> bool:
        """Forget a session; whether there was one."""
        with self._lock:
            session = self._by_id.pop(session_id, None)
            if session is not None:
                self._by_key.pop(session.key, None)
        return session is not None

    def summary(self) -> list[dict[str, Any]]:
        """A line for each session."""
        return [
            {
                "session_id": session.session_id,
                "turns": len(session.graph.nodes()),
                "roots": len(session.graph.roots()),
                "idle_s": round(session.idle_seconds, 1),
                "upstream_errors": session.upstream_errors,
                "failures": len(session.failures),
                **session.metadata,
            }
            for session in self.sessions()
        ]

    def _add(self, session: Session) -> Session:
        session.on_call = self.on_call
        with self._lock:
            if session.session_id in self._by_id:
                if session.session_id != session.key:  # of the same key, from another thread
                    return self._by_id[session.session_id]
                raise ValueError(f"session_id={session.session_id!r}: there is such a session")
            if len(self._by_id) >= self.max_sessions:
                raise SessionLimitError(
                    f"there are {self.max_sessions} sessions, which is the limit (max_sessions): "
                    f"delete those that are over"
                )
            self._by_id[session.session_id] = self._by_key[session.key] = session
        return session


def rollout_type_for(purpose: str, capture_level: str) -> str:
    """``train`` where there are tokens to train on, and they are meant for it; else ``eval``."""
    return "train" if capture_level == "tokens" and purpose != "eval" else "eval"


def clean_session_id(value: Any) -> str | None:
    """A session's id, if it can be one."""
    if isinstance(value, str) and _SESSION_ID.fullmatch(value):
        return value
    return None


def extract_api_key(headers: Mapping[str, str]) -> str | None:
    """The key of a call, in whichever header its API has it."""
    lower = {name.lower(): value for name, value in headers.items()}
    scheme, _, bearer = lower.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    for name in ("x-api-key", "x-goog-api-key", "api-key"):
        if lower.get(name):
            return lower[name]
    return None


def extract_harness_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """What an agent calls its own session, if it says so: an agent may have sub-agents."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name in _SESSION_HEADERS:
        if lower.get(name):
            return lower[name]
    metadata = body.get("metadata")
    for place in (body, metadata if isinstance(metadata, Mapping) else {}):
        for name in ("session_id", "prompt_cache_key", "user_id"):
            if isinstance(place.get(name), str) and place[name]:
                return str(place[name])
    return None


def same_key(offered: str | None, expected: str) -> bool:
    """Whether two keys are the same, in a time that tells nothing of them."""
    return hmac.compare_digest((offered or "").encode(), expected.encode())


def _limit(name: str, given: int | None, default: int) -> int:
    limit = default if given is None else given
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"{name}={limit!r}: expected a whole number from 0 (no limit)")
    return limit
