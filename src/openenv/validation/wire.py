"""Episodes played on a subject's server, with every frame kept exactly as on the wire.

Sessions use protocol version 0, whose frames are text, so that the record is what a client of the
public package would receive. A session is one WebSocket; the record holds all of its frames.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json
from typing_extensions import Self

from openenv._internal.addresses import over_http
from openenv._internal.net.http import FAILURES, ask
from openenv._internal.net.keys import key_for, key_headers
from openenv.client.transports.base import TransportClosed
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport, websocket_url
from openenv.errors import OpenEnvError
from openenv.validation.evidence import Exchange, FetchedPage, Transcript
from openenv.validation.probes import Policy, ProbeView

# RFC 008: "Collection shares a 300-second deadline and retains at most 32 MiB".
DEADLINE_S, MAX_KEPT_BYTES = 300.0, 32 * 2**20
ANSWER_S = 60.0
HTTP_S = 15.0
MAX_BODY_BYTES = 8 * 2**20
CHUNK_BYTES = 2**20


class BudgetSpent(OpenEnvError):
    """An error raised when the time or space for observing a subject is used up."""


class Budget:
    """The limits of a run: seconds from now on, and bytes of kept frames."""

    def __init__(self, seconds: float = DEADLINE_S, kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._kept_bytes = self._left_bytes = kept_bytes

    def without_size_limit(self) -> Budget:
        """Return a budget with the same deadline and no limit of bytes, for discarded frames."""
        other = Budget(kept_bytes=sys.maxsize)
        other._until, other._seconds = self._until, self._seconds
        return other

    def seconds_left(self) -> float:
        """Return the remaining seconds.

        Raises:
            BudgetSpent: The time is up.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise BudgetSpent(f"the time limit of {self._seconds:g} s is over")
        return left

    def count_bytes(self, size_bytes: int) -> None:
        """Count kept bytes.

        Raises:
            BudgetSpent: The limit is exceeded.
        """
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise BudgetSpent(f"the frames exceed the limit of {self._kept_bytes} bytes")


class RawSession:
    """A session on a server with protocol version 0, as an asynchronous context manager."""

    def __init__(self, url: str, budget: Budget | None = None, answer_s: float = ANSWER_S) -> None:
        self._budget = budget or Budget()
        self._answer_s = answer_s
        self._transport = WebSocketTransport(websocket_url(url), WebSocketOptions(subprotocols=()))
        self._exchanges: list[Exchange] = []
        self._stopped: str | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._transport.connect()
        except OpenEnvError as error:
            self._stopped = f"no connection: {error}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.shield(self._transport.close())

    @property
    def transcript(self) -> Transcript:
        """All exchanges so far."""
        return Transcript(tuple(self._exchanges), self._stopped)

    @property
    def is_over(self) -> bool:
        """True if the connection is lost."""
        return self._stopped is not None

    def since(self, count: int) -> Transcript:
        """Return the exchanges after the first `count`."""
        return Transcript(tuple(self._exchanges[count:]), self._stopped)

    def __len__(self) -> int:
        return len(self._exchanges)

    async def ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Exchange:
        """Send a request and wait for the answer.

        Raises:
            BudgetSpent: The time or space is used up.
        """
        message: dict[str, Any] = {"type": kind}
        if kind not in ("state", "close"):
            message["data"] = dict(data or {})
        request = to_json(message, inf_nan_mode="constants").decode()
        exchange = await self._send_and_receive(request)
        self._budget.count_bytes(exchange.size_bytes)
        self._exchanges.append(exchange)
        return exchange

    async def _send_and_receive(self, request: str) -> Exchange:
        if self._stopped is not None:
            return Exchange(request, None, 0.0, self._stopped)
        limit = min(self._answer_s, self._budget.seconds_left())
        began, response = time.perf_counter(), None
        try:
            with suppress(TransportClosed):  # the server may have sent a reason before closing
                self._transport.send(request.encode())
            frame = await self._transport.receive(limit)
            response = frame if isinstance(frame, str) else bytes(frame).decode("utf-8", "replace")
        except asyncio.TimeoutError:
            self._stopped = f"no answer came within {limit:g} s"
        except (TransportClosed, OpenEnvError, OSError) as error:
            self._stopped = f"the connection was lost: {error}"
        return Exchange(request, response, time.perf_counter() - began, self._stopped)

    async def reset(self, arguments: Mapping[str, Any]) -> Exchange:
        """Begin an episode with these arguments of reset."""
        return await self.ask("reset", arguments)


async def play_episode(
    session: RawSession,
    reset: Mapping[str, Any],
    policy: Policy,
    *,
    reads_state: bool = True,
    max_steps: int = 1000,
) -> Transcript:
    """Play an episode to the end, or until the policy returns None; return the exchanges.

    A step that is answered with an error does not end the episode; the policy is called again. If
    `reads_state` is true, the state is read after the reset and after every step that succeeds.

    Raises:
        BudgetSpent: The time or space is used up.
    """
    before = len(session)
    player = _EpisodePlayer(session, reset, policy, reads_state, max_steps)
    while not player.is_over:
        await player.move()
    return session.since(before)


async def play_alone(
    url: str,
    budget: Budget,
    reset: Mapping[str, Any],
    policy: Policy,
    *,
    reads_state: bool = True,
) -> Transcript:
    """Play an episode in its own session.

    Raises:
        BudgetSpent: The time or space is used up.
    """
    async with RawSession(url, budget) as session:
        return await play_episode(session, reset, policy, reads_state=reads_state)


async def play_together(
    sessions: Sequence[RawSession],
    resets: Sequence[Mapping[str, Any]],
    policies: Sequence[Policy],
) -> list[Transcript]:
    """Play one episode on each session in lockstep, reading the state after every step.

    Raises:
        BudgetSpent: The time or space is used up.
    """
    before = [len(session) for session in sessions]
    players = [
        _EpisodePlayer(session, reset, policy)
        for session, reset, policy in zip(sessions, resets, policies, strict=True)
    ]
    while playing := [player for player in players if not player.is_over]:
        await asyncio.gather(*(player.move() for player in playing))
    return [session.since(count) for session, count in zip(sessions, before, strict=True)]


@dataclass
class _EpisodePlayer:
    session: RawSession
    reset: Mapping[str, Any]
    policy: Policy
    reads_state: bool = True
    max_steps: int = 1000
    step: int = -1  # -1 is the reset
    observation: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    is_over: bool = False

    async def move(self) -> None:
        """Take the next step, or the reset."""
        if self.step < 0:
            exchange = await self.session.reset(self.reset)
            self.is_over = exchange.kind != "observation"
        else:
            action = self.policy(ProbeView(self.observation, self.step, self.state, self.reset))
            if action is None or self.step >= self.max_steps or self.session.is_over:
                self.is_over = True
                return
            exchange = await self.session.ask("step", action)
        self.step += 1
        if exchange.kind == "observation":
            seen = exchange.data.get("observation")
            self.observation = seen if isinstance(seen, dict) else {}
            self.is_over = exchange.data.get("done") is True
            if self.reads_state:
                self.state = (await self.session.ask("state")).data


def fetch_page(url: str, path: str, body: Any = None, *, timeout_s: float = HTTP_S) -> FetchedPage:
    """Request a route of a server with GET, or with POST if there is a body.

    Failures are returned in `FetchedPage.failure`, not raised.

    Raises:
        ValueError: The URL is not an HTTP URL.
    """
    target = over_http(url) + path
    if not target.lower().startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not an HTTP URL")
    data, headers = None, {"Accept": "application/json"}
    if body is not None:
        data, headers["Content-Type"] = to_json(body), "application/json"
    try:
        headers |= key_headers(key_for(target), {})
        answer = ask(target, headers, data, timeout_s=timeout_s, max_bytes=MAX_BODY_BYTES + 1)
        if len(answer.body) > MAX_BODY_BYTES:
            return FetchedPage(path, failure=f"the answer has more than {MAX_BODY_BYTES} bytes")
        return FetchedPage(path, answer.status, answer.body.decode("utf-8", "replace"))
    except FAILURES as error:
        return FetchedPage(path, failure=f"{type(error).__name__}: {error}")
