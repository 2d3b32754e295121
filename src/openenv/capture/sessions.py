"""Sessions of the proxy, identified by the API key that an agent sends."""

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
    "CaptureSession",
    "SessionLimitError",
    "SessionRegistry",
    "clean_session_id",
    "extract_api_key",
    "extract_harness_session",
    "rollout_type_for",
]

_PURPOSES = ("auto", "train", "eval")
_SESSION_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
# Headers in which agents send their own session ids.
_SESSION_HEADERS = ("x-session-id", "session_id", "x-claude-code-session-id", "x-session-affinity")


class SessionLimitError(OpenEnvError, RuntimeError):
    """An attempt to open more sessions than `max_sessions`."""


@dataclass
class FailedCall:
    """A call without a complete answer, which is never trained on.

    Attributes:
        index: Position among the calls of the session.
        kind: ``refused`` (the proxy did not pass it on), ``upstream`` (an error of the upstream),
            ``broken`` (the upstream's stream broke off) or ``abandoned`` (the agent disconnected).
        status: The HTTP status of the answer; None if the answer had begun or the agent had
            disconnected.
        message: A description of the failure.
        request_messages: The messages of the request.
        partial_message: The part of the answer that was received; None if there is none.
    """

    index: int
    kind: Literal["refused", "upstream", "broken", "abandoned"]
    status: int | None
    message: str
    request_messages: list[dict[str, Any]] = field(default_factory=list)
    partial_message: dict[str, Any] | None = None


OnCall = Callable[["CaptureSession", "TurnNode | FailedCall"], None]


@dataclass
class CaptureSession:
    """The recorded calls and limits of an agent.

    Attributes:
        session_id: The id. If the session was created beforehand, the id is also its API key.
            Otherwise it is a digest of the agent's key, which may be a secret elsewhere.
        created_at: Start time in seconds since 1970.
        graph: The answered calls.
        metadata: Data that the session was created with.
        findings: Noteworthy events, as sentences.
        last_turn_at: Time of the latest answer.
        upstream_errors: Number of calls that the upstream did not answer.
        capture_level: ``tokens``, ``logprobs`` or ``text``; empty for the server's level.
        purpose: ``auto``, ``train`` or ``eval``.
        eval_sampling: Default sampling parameters for calls that have none.
        model_calls: Number of calls made.
        max_model_calls: Maximum number of calls; 0 for no limit.
        max_tokens: Maximum number of tokens read and written; 0 for no limit.
        budget_stop_count: Number of calls answered with a stop, because a limit was reached.
        sampling: Sampling parameters that override the agent's, so that the data is sampled as the
            trainer assumes; see `training_sampling`.
        failures: The failed calls.
        n_tokens: Number of tokens read and written.
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
        """True if the maximum number of calls or tokens is reached."""
        return 0 < self.max_model_calls <= self.model_calls or (
            0 < self.max_tokens <= self.n_tokens
        )

    @property
    def idle_seconds(self) -> float:
        """Return the seconds since the latest answer, or since the start."""
        return time.time() - (self.last_turn_at or self.created_at)

    def record_answer(self, node: TurnNode) -> TurnNode:
        """Record an answered call."""
        self.graph.add_turn(node)
        self.last_turn_at = time.time()
        if self.on_call is not None:
            self.on_call(self, node)
        return node

    def record_failure(self, call: FailedCall) -> None:
        """Record a failed call."""
        self.failures.append(call)
        if self.on_call is not None:
            self.on_call(self, call)

    def next_index(self) -> int:
        """Return the index for a new call."""
        self._calls += 1
        return self._calls - 1


@dataclass(kw_only=True, eq=False)
class SessionRegistry:
    """The sessions of a proxy by key. Thread-safe.

    Args:
        require_registered: Accept only keys of sessions created with `create`. If False, any key
            opens a session with its first call.
        max_sessions: Maximum number of sessions.
        capture_level: Default capture level of sessions.
        max_model_calls: Default maximum number of calls of a session; 0 for no limit.
        max_tokens: Default maximum number of tokens of a session; 0 for no limit.
        on_call: Called with the session and each call that is answered or has failed.
    """

    require_registered: bool = True
    max_sessions: int = 4096
    capture_level: str = "tokens"
    max_model_calls: int = 0
    max_tokens: int = 0
    on_call: OnCall | None = None

    def __post_init__(self) -> None:
        self._by_key: dict[str, CaptureSession] = {}
        self._by_id: dict[str, CaptureSession] = {}
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
    ) -> CaptureSession:
        """Create a session; the agent must send its id as the API key.

        Args:
            session_id: The id. Default: an id that cannot be guessed.
            capture_level: Level of this session; empty for the server's level.
            purpose: ``train`` for a session that must have tokens, ``eval`` for one that is not
                trained on, ``auto`` to decide by the capture level.
            eval_sampling: Default sampling parameters for calls that have none.
            max_model_calls: Maximum number of calls; None for the server's limit, 0 for no limit.
            max_tokens: Maximum number of tokens; None for the server's limit, 0 for no limit.
            sampling: Sampling parameters that override the agent's.
            metadata: Data to store with the session.

        Raises:
            ValueError: The id is taken, or a value is invalid.
            SessionLimitError: The maximum number of sessions is reached.
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
            key,
            key,
            metadata=dict(metadata),
            capture_level=capture_level or self.capture_level,
            purpose=purpose,
            eval_sampling=dict(eval_sampling or {}),
            max_model_calls=_limit("max_model_calls", max_model_calls, self.max_model_calls),
            max_tokens=_limit("max_tokens", max_tokens, self.max_tokens),
            sampling=training_sampling(sampling),
        )

    def get(self, session_id: str | None) -> CaptureSession | None:
        """Return a session by id, or None."""
        return self._by_id.get(session_id or "")

    def resolve(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> CaptureSession | None:
        """Return the session for the API key in a call's headers, or None.

        Raises:
            SessionLimitError: The key would open a session beyond the maximum number.
        """
        del body
        key = extract_api_key(headers)
        if not key:
            return None
        session = self._by_key.get(key)
        if session is not None or self.require_registered:
            return session
        names = ("capture_level", "max_model_calls", "max_tokens")
        limits = {name: getattr(self, name) for name in names}
        return self._add("k" + hashlib.sha256(key.encode()).hexdigest()[:16], key, **limits)

    def list_ids(self) -> list[str]:
        """Return the ids of all sessions."""
        return list(self._by_id)

    def sessions(self) -> list[CaptureSession]:
        """Return all sessions."""
        return list(self._by_id.values())

    def delete(self, session_id: str) -> bool:
        """Remove a session; return whether it existed."""
        with self._lock:
            session = self._by_id.pop(session_id, None)
            if session is not None:
                self._by_key.pop(session.key, None)
        return session is not None

    def summary(self) -> list[dict[str, Any]]:
        """Return a summary of each session."""
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

    def _add(self, session_id: str, key: str, **options: Any) -> CaptureSession:
        session = CaptureSession(session_id, key=key, on_call=self.on_call, **options)
        with self._lock:
            if session.session_id in self._by_id:
                if session.session_id != session.key:  # another thread opened it for the same key
                    return self._by_id[session.session_id]
                raise ValueError(f"session_id={session.session_id!r}: the session exists")
            if len(self._by_id) >= self.max_sessions:
                raise SessionLimitError(
                    f"there are {self.max_sessions} sessions, which is the limit (max_sessions): "
                    f"delete finished ones"
                )
            self._by_id[session.session_id] = self._by_key[session.key] = session
        return session


def rollout_type_for(purpose: str, capture_level: str) -> str:
    """Return ``train`` if tokens are captured and may be trained on, else ``eval``."""
    return "train" if capture_level == "tokens" and purpose != "eval" else "eval"


def clean_session_id(value: Any) -> str | None:
    """Return the value if it is a valid session id, else None."""
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


def extract_api_key(headers: Mapping[str, str]) -> str | None:
    """Return the API key of a call, from the header that its API uses, or None."""
    lower = {name.lower(): value for name, value in headers.items()}
    scheme, _, bearer = lower.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    names = ("x-api-key", "x-goog-api-key", "api-key")
    return next((lower[name] for name in names if lower.get(name)), None)


def extract_harness_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Return the agent's own id for its session, or None; sub-agents may have different ids."""
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
    """Compare two keys in constant time."""
    return hmac.compare_digest((offered or "").encode(), expected.encode())


def _limit(name: str, given: int | None, default: int) -> int:
    limit = default if given is None else given
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"{name}={limit!r}: expected a whole number from 0 (no limit)")
    return limit
