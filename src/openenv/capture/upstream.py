"""The client of the model behind the proxy, which also requests tokens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from pydantic_core import from_json

from openenv._internal.json import read_json
from openenv._internal.net.http import HTTPClient, NoAnswerError, StreamedAnswer
from openenv.errors import OpenEnvError

__all__ = [
    "CAPTURE_LEVELS",
    "CaptureLevel",
    "InferenceClient",
    "Provider",
    "UpstreamError",
    "UpstreamHTTPError",
    "UpstreamRequestError",
    "UpstreamTimeoutError",
    "UpstreamTransportError",
    "auth_headers",
    "read_events",
    "parse_object",
    "openai_api_base",
    "read_body",
]

CaptureLevel = Literal["tokens", "logprobs", "text"]
Provider = Literal["openai", "anthropic"]
CAPTURE_LEVELS: tuple[CaptureLevel, ...] = ("tokens", "logprobs", "text")
ANTHROPIC_VERSION = "2023-06-01"

# Parameters added to the agent's request, by capture level.
_ASKED: dict[str, dict[str, Any]] = {  # nosec B105  # no password
    "tokens": {"logprobs": True, "top_logprobs": 0, "return_token_ids": True},  # nosec B105
    "logprobs": {"logprobs": True, "top_logprobs": 0},
    "text": {},
}
_LONGEST_ERROR = 2**16
MAX_ANSWER_BYTES = 256 * 2**20  # of an answer, and of an event of a stream


class UpstreamError(OpenEnvError, RuntimeError):
    """A call that the upstream model did not answer."""


class UpstreamRequestError(UpstreamError):
    """A call that cannot be sent to this upstream."""


class UpstreamHTTPError(UpstreamError):
    """An error status from the upstream.

    Attributes:
        status_code: The HTTP status.
        body: The body: a JSON object or text.
        retry_after: The ``Retry-After`` header, if any.
    """

    def __init__(
        self,
        status_code: int,
        body: dict[str, Any] | str | None = None,
        *,
        retry_after: str | None = None,
    ) -> None:
        self.status_code = status_code
        self.body = body
        self.retry_after = retry_after
        super().__init__(f"the upstream answered {status_code}: {self.text}")

    @property
    def text(self) -> str:
        """Return the message in the error's body."""
        body: Any = self.body
        for name in ("error", "message"):
            if isinstance(body, dict) and name in body:
                body = body[name]
        return body if isinstance(body, str) else json.dumps(body)


class UpstreamTimeoutError(UpstreamError, TimeoutError):
    """An upstream that was silent for too long."""


class UpstreamTransportError(UpstreamError, ConnectionError):
    """An upstream that cannot be reached, or broke off its answer."""


def auth_headers(api_key: str | None, header: str = "Authorization") -> dict[str, str]:
    """Return the header for a key: ``Bearer`` in Authorization, the bare key in other headers."""
    if not api_key:
        return {}
    return {header: f"Bearer {api_key}" if header.lower() == "authorization" else api_key}


def openai_api_base(url: str) -> str:
    """Return the base URL of an OpenAI-compatible API: with ``/v1``, unless the URL has a path."""
    url = url.rstrip("/")
    _, _, behind = url.partition("://")
    return url if "/" in behind else f"{url}/v1"


class InferenceClient:
    """A client of an upstream model.

    If the upstream answers 400 or 422 and names a parameter that the proxy added, the request is
    repeated without that parameter. `refused` holds these parameters. The agent's own parameters
    are never dropped.

    Args:
        base_url: Base URL of an OpenAI-compatible API (``http://localhost:8000/v1``), or
            Anthropic's.
        served_model: The model's name on the upstream; None to keep the agent's name.
        api_key: The API key.
        auth_header: The HTTP header that carries the key.
        capture_level: What to request: ``tokens`` (with log-probabilities), ``logprobs``, or
            ``text``.
        provider: ``openai`` for an OpenAI-compatible API, ``anthropic`` for Anthropic's.
        timeout_s: Time in seconds that the upstream may be silent during an answer.

    Raises:
        ValueError: `base_url` is not a URL, or `capture_level` or `provider` is unknown.
    """

    def __init__(
        self,
        base_url: str,
        *,
        served_model: str | None = None,
        api_key: str | None = None,
        auth_header: str = "Authorization",
        capture_level: str = "tokens",
        provider: str = "openai",
        timeout_s: float = 600.0,
    ) -> None:
        if capture_level not in CAPTURE_LEVELS:
            legal = ", ".join(CAPTURE_LEVELS)
            raise ValueError(f"capture_level={capture_level!r}: expected one of {legal}")
        if provider not in ("openai", "anthropic"):
            raise ValueError(f"provider={provider!r}: expected openai or anthropic")
        self.base_url = openai_api_base(base_url)
        self.served_model = served_model
        self.capture_level = capture_level if provider == "openai" else "text"
        self.provider = provider
        self.refused: set[str] = set()
        self._headers = {"content-type": "application/json", "accept": "*/*"}
        if provider == "anthropic":
            auth_header = "x-api-key" if auth_header == "Authorization" else auth_header
            self._headers["anthropic-version"] = ANTHROPIC_VERSION
        self._headers |= auth_headers(api_key, auth_header)
        self._connections = HTTPClient(self.base_url, timeout_s=timeout_s)

    async def completion(
        self, request: Mapping[str, Any], wished: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Request a chat completion.

        Args:
            request: The agent's request.
            wished: Fields to add, unless the upstream refuses them.

        Raises:
            UpstreamError: The upstream did not return a completion.
        """
        asked = {**request, "stream": False}
        async with self._open_answer("/chat/completions", asked, wished or {}) as answer:
            return parse_object(await read_body(answer))

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Mapping[str, Any], wished: Mapping[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[list[dict[str, Any]]]]:
        """Request a streamed chat completion, and yield lists of chunks on arrival.

        See `completion` for the arguments.

        Raises:
            UpstreamError: The upstream did not return a completion, or, inside the block, the
                stream broke off.
        """
        options = {**(request.get("stream_options") or {}), "include_usage": True}
        asked = {**request, "stream": True, "stream_options": options}
        async with self._open_answer("/chat/completions", asked, wished or {}) as answer:
            yield _chunks(answer)

    async def list_models(self) -> dict[str, Any]:
        """Return the upstream's list of models, in the upstream's format.

        Raises:
            UpstreamError: The upstream does not answer.
        """
        async with self.request("GET", "/models") as answer:
            return parse_object(await read_body(answer))

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST to a path of the upstream's API and return the answer; ``/..`` leaves ``/v1``.

        Raises:
            UpstreamError: The upstream does not answer.
        """
        async with self.request("POST", path, json.dumps(body).encode()) as answer:
            return parse_object(await read_body(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    def _prepare(self, request: Mapping[str, Any], wished: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request to send, with the parameters that capture adds."""
        asked = {**wished, **_ASKED[self.capture_level]}
        added = {name: value for name, value in asked.items() if name not in self.refused}
        if self.served_model:
            added["model"] = self.served_model
        top = request.get("top_logprobs")
        if top and "top_logprobs" in added:
            added["top_logprobs"] = top  # requested by the agent
        return {**request, **added}

    @contextlib.asynccontextmanager
    async def _open_answer(
        self, path: str, request: dict[str, Any], wished: Mapping[str, Any]
    ) -> AsyncIterator[StreamedAnswer]:
        while True:
            sent = json.dumps(self._prepare(request, wished)).encode()
            refused: set[str] = set()
            async with contextlib.AsyncExitStack() as stack:
                try:
                    answer = await stack.enter_async_context(self.request("POST", path, sent))
                except UpstreamHTTPError as error:
                    refused = self._refused_in(error, wished)
                    if not refused:
                        raise
                else:
                    yield answer
                    return
            self.refused |= refused

    def _refused_in(self, error: UpstreamHTTPError, wished: Mapping[str, Any]) -> set[str]:
        """Return the added parameters that an error of the upstream names."""
        if error.status_code not in (400, 422):
            return set()
        added = ({*_ASKED[self.capture_level]} | {*wished}) - self.refused
        named = {name for name in added if name in json.dumps(error.body)}
        if "logprobs" in named:  # without logprobs, their number is an error
            named |= {"top_logprobs"} & added
        return named

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[StreamedAnswer]:
        """Send a request, with further headers, and yield the answer.

        Raises:
            UpstreamError: The upstream answered with an error, or not at all.
        """
        sent = {**self._headers, **(headers or {})}
        try:
            async with self._connections.request(method, path, sent, body) as answer:
                if answer.status >= 400:
                    text = (await answer.read(_LONGEST_ERROR)).decode("utf-8", "replace")
                    told: dict[str, Any] | str = text
                    with contextlib.suppress(ValueError):
                        told = value if isinstance(value := read_json(text), dict) else text
                    again = answer.headers.get("retry-after")
                    raise UpstreamHTTPError(answer.status, told, retry_after=again)
                yield answer
        except UpstreamError:
            raise
        except NoAnswerError as error:
            raise UpstreamTransportError(f"{self.base_url}: {error}") from error
        except TimeoutError as error:
            raise UpstreamTimeoutError(f"{self.base_url}: {error}") from error


async def read_body(answer: StreamedAnswer) -> bytes:
    """Read the whole body of an answer.

    Raises:
        UpstreamTransportError: The body is larger than `MAX_ANSWER_BYTES`.
    """
    body = await answer.read(MAX_ANSWER_BYTES + 1)
    if len(body) > MAX_ANSWER_BYTES:
        raise UpstreamTransportError(f"the upstream's answer has over {MAX_ANSWER_BYTES} bytes")
    return body


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object from the upstream.

    Raises:
        UpstreamTransportError: The data is not a JSON object.
    """
    try:
        value = from_json(body)
    except ValueError:
        try:  # again, with lone surrogates, which some servers send
            value = read_json(body)
        except ValueError as error:
            words = f"the upstream answered no JSON: {body[:200]!r}"
            raise UpstreamTransportError(words) from error
    if not isinstance(value, dict):
        raise UpstreamTransportError(f"the upstream answered no JSON object: {body[:200]!r}")
    return value


async def _chunks(answer: StreamedAnswer) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the chunks of a stream on arrival, in lists.

    Raises:
        UpstreamTransportError: The answer is not a stream, contains an error, or ended without
            ``[DONE]``.
    """
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        raise UpstreamTransportError("the upstream's answer is no event stream")
    async for events in read_events(answer):
        is_over = events[-1] == b"[DONE]"
        chunks = [parse_object(data) for data in (events[:-1] if is_over else events)]
        for chunk in chunks:
            if "error" in chunk:
                words = f"the upstream failed during the stream: {chunk['error']}"
                raise UpstreamTransportError(words)
        if chunks:
            yield chunks
        if is_over:
            await answer.read(_LONGEST_ERROR)  # so that the connection can be used again
            return
    raise UpstreamTransportError("the upstream's stream ended early")


async def read_events(answer: StreamedAnswer) -> AsyncIterator[list[bytes]]:
    """Yield the data of server-sent events (WHATWG HTML, 9.2) on arrival, in lists.

    Raises:
        UpstreamTransportError: An event is larger than `MAX_ANSWER_BYTES`.
    """
    unread, data = list[bytes](), list[bytes]()
    async for part in answer.parts():
        unread.append(part)
        if sum(map(len, unread)) + sum(map(len, data)) > MAX_ANSWER_BYTES:
            words = f"the upstream's event has over {MAX_ANSWER_BYTES} bytes"
            raise UpstreamTransportError(words)
        if b"\n" not in part:  # joined once per line, which may arrive in very many parts
            continue
        *lines, last = b"".join(unread).replace(b"\r\n", b"\n").split(b"\n")
        unread, events = [last], []
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                events.append(b"\n".join(data))
                data = []
        if events:
            yield events
