"""Scorers that are called over HTTP; `wire` defines the request and the response."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.net.http import HTTPClient
from openenv._internal.net.tls import client_context
from openenv._internal.timing import within
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer
from openenv.rewards.external.conversation import Message, as_messages
from openenv.rewards.external.scorers import TEMPORARY_STATUS, TemporarilyUnscored, extend_identity
from openenv.rewards.external.wire import answer_request, read_response, write_request

TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 2**20
MAX_QUESTION_BYTES = 64 * 2**20
OF_WHO_ASKS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


class HTTPScorer:
    """A scorer that asks a server, created by `http_scorer`."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        headers: Mapping[str, str],
        ca_file: str | None,
        max_bytes: int,
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected an http or https address, got {url!r}")
        self.url = url
        self.name = f"{parts.hostname}{parts.path}"
        self.identity = extend_identity(f"http:{url}{_says(headers)}", messages)
        self._timeout_s = timeout_s
        self._headers = {"content-type": "application/json", **headers}
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        self._ca_file = ca_file
        if parts.scheme == "https":
            client_context(ca_file)  # fail early on unusable certificates
        self._max_bytes = max_bytes
        self._messages = messages

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Ask the server to score an episode.

        Raises:
            TemporarilyUnscored: The server did not answer in time, or answered with a temporary
                error status.
            Unscored: The response is invalid or too large, has another error status, or gives a
                reason for no score.
        """
        request = write_request(trajectory, self._messages)
        try:
            answer = await within(self._timeout_s, self._answer(request))
        except asyncio.TimeoutError:
            raise TemporarilyUnscored(
                f"{self.name} did not answer within {self._timeout_s:g} s"
            ) from None
        return read_response(answer, len(trajectory))

    async def _answer(self, request: bytes) -> bytes:
        # Each call opens a client, since connections belong to an event loop and this object does
        # not. `__call__` limits the time of the whole answer, so the client has no limit per read.
        client = HTTPClient(self._origin, timeout_s=None, ca_file=self._ca_file)
        try:
            async with client.request("POST", self._path, self._headers, request) as answer:
                body = await answer.read(self._max_bytes + 1)
        except OSError as error:
            why = f"{self.name} does not answer: {type(error).__name__}"
            raise TemporarilyUnscored(f"{why}: {error}" if str(error) else why) from error
        finally:
            await client.aclose()
        if len(body) > self._max_bytes:
            raise Unscored(f"{self.name} answered with more than {self._max_bytes} bytes")
        if answer.status == 200:
            return body
        words = body[:200].decode("utf-8", "replace")
        why = f"{self.name} answered {answer.status}: {words}"
        if answer.status in TEMPORARY_STATUS:
            pause = answer.headers.get("retry-after", "")  # seconds, or a date, which is ignored
            raise TemporarilyUnscored(why, float(pause) if pause.isdecimal() else None)
        raise Unscored(why)


def _says(headers: Mapping[str, str]) -> str:
    """Return a digest of the headers that may affect a score, which credentials do not."""
    said = sorted((name.lower(), value) for name, value in headers.items())
    kept = [(name, value) for name, value in said if name not in OF_WHO_ASKS]
    return f":{hashlib.sha256(repr(kept).encode()).hexdigest()}" if kept else ""


def http_scorer(
    url: str,
    *,
    timeout_s: float = TIMEOUT_S,
    headers: Mapping[str, str] | None = None,
    ca_file: str | None = None,
    max_bytes: int = MAX_ANSWER_BYTES,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
) -> HTTPScorer:
    """Make a scorer that POSTs each episode to a URL.

        scorer = bounded(http_scorer("https://grader.example/score"), cache="scores")

    Redirects are not followed. Wrap the scorer in `bounded` to retry when the server is busy.

    Args:
        url: The address, ``http`` or ``https``.
        timeout_s: Time limit in seconds for the whole response. Default: 60.
        headers: Headers to send, such as an API key.
        ca_file: File of CA certificates (PEM) that verify the server. Default: the file that
            OPENENV_CA_FILE names, or else the system's certificates.
        max_bytes: Maximum size of the response in bytes. Default: 1 MiB.
        messages: Function that converts an episode to a conversation.

    Raises:
        ValueError: `url` is not an http or https address.
    """
    return HTTPScorer(url, timeout_s, headers or {}, ca_file, max_bytes, messages)


# ------------------------------------------------------------------ the reverse direction


Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ScoringApp:
    """An ASGI application that scores episodes, created by `scoring_app`."""

    def __init__(self, scorer: TrajectoryScorer, max_bytes: int) -> None:
        self._scorer = scorer
        self._max_bytes = max_bytes

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            kind = ""
            while kind != "lifespan.shutdown":
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
        elif scope["type"] == "http":
            status, body, media = await self._answer(scope, receive)
            headers = [(b"content-type", media), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close"})

    async def _answer(self, scope: Any, receive: Receive) -> tuple[int, bytes, bytes]:
        if scope["method"] != "POST":
            return 405, b"expected POST", b"text/plain"
        body = await self._read(receive)
        if body is None:
            return 413, b"the episode has more than %d bytes" % self._max_bytes, b"text/plain"
        try:
            return 200, await answer_request(self._scorer, body), b"application/json"
        except (ValueError, KeyError, TypeError) as error:
            return 422, f"this is no request: {error}".encode(), b"text/plain"

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body of a request, or None if the body exceeds the limit."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                return None
        return bytes(body)


def scoring_app(scorer: TrajectoryScorer, *, max_bytes: int = MAX_QUESTION_BYTES) -> ScoringApp:
    """Make an ASGI application that scores the episodes that an `http_scorer` POSTs.

        uvicorn.run(scoring_app(from_rubric(MyRubric)), port=9000)

    Actions, observations and tasks are `Fields`: JSON objects whose fields are attributes too. The
    application does not authenticate requests; restrict access to it yourself.

    Args:
        scorer: The scorer; use `from_rubric` for a rubric.
        max_bytes: Maximum size of a request in bytes. Default: 64 MiB.
    """
    return ScoringApp(scorer, max_bytes)
