"""The capture proxy: an application that forwards agents' model calls and records each.

agent  ── POST /v1/chat/completions (or responses, messages, :generateContent) ──▶  proxy
       ◀─────────────────────────── the same API, streamed or not ─────────────────
proxy  ── POST /v1/chat/completions, with logprobs and return_token_ids ──▶  upstream model

Invariants: A call is recorded before the agent learns that its answer is complete, so that no agent
acts on an unrecorded answer. A call that cannot be recorded is answered with an error. If an agent
disconnects, work for it is cancelled, including the upstream request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from openenv._internal.json import read_json
from openenv._internal.net.responses import read_body
from openenv.capture.answers import (
    EVENTS,
    AgentDisconnected,
    EventResponse,
    build_error,
    build_upstream_error,
    cancel_on_disconnect,
    error_status,
)
from openenv.capture.calls import ModelCall, build_budget_stop, to_chunk
from openenv.capture.completions import CompletionAssembler
from openenv.capture.detection import APIType, detect
from openenv.capture.dialects import DIALECTS
from openenv.capture.dialects.base import Dialect, EventStream, UnsupportedRequest
from openenv.capture.export import export_session, to_trace_entries
from openenv.capture.forwarding import forward_call
from openenv.capture.sessions import (
    CaptureSession,
    OnCall,
    SessionLimitError,
    SessionRegistry,
    extract_api_key,
    extract_harness_session,
    rollout_type_for,
    same_key,
)
from openenv.capture.upstream import InferenceClient, UpstreamError, UpstreamTransportError
from openenv.errors import RequestTooLargeError

__all__ = ["DEFAULT_MAX_BODY_BYTES", "create_app"]

logger = logging.getLogger(__name__)

DEFAULT_MAX_BODY_BYTES = 64 * 2**20
OnEnd = Callable[[CaptureSession], None]


def create_app(
    *,
    llm_url: str = "",
    model: str | None = None,
    require_registered: bool = True,
    max_output_tokens: int | None = 8192,
    api_key: str | None = None,
    auth_header: str = "Authorization",
    provider: str = "openai",
    capture_level: str = "tokens",
    admin_key: str | None = None,
    max_model_calls: int = 0,
    max_session_tokens: int = 0,
    max_sessions: int = 4096,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    timeout_s: float = 600.0,
    on_end: OnEnd | None = None,
    on_call: OnCall | None = None,
) -> Starlette:
    """Create the proxy's application.

    The application's `state` has the `registry` of sessions and the `inference` client.

    Args:
        llm_url: Base URL of the upstream's API, such as ``http://localhost:8000/v1``.
        model: The model's name on the upstream; None to pass on the name that the agent sends.
        require_registered: Accept only keys of sessions created with ``POST /sessions``. If False,
            any key opens a session with its first call.
        max_output_tokens: Maximum number of tokens of an answer; None for no limit.
        api_key: The upstream's key. Agents never see it.
        auth_header: The header in which the upstream expects the key.
        provider: ``openai`` for an OpenAI-compatible upstream, ``anthropic`` for Anthropic's API.
        capture_level: What to request from the upstream: ``tokens``, ``logprobs`` or ``text``.
        admin_key: The key required to create and read sessions. If None, anybody may create a
            session and read one by id, but nobody may list them.
        max_model_calls: Maximum number of calls of a session; 0 for no limit.
        max_session_tokens: Maximum number of tokens read and written in a session; 0 for no limit.
        max_sessions: Maximum number of sessions at a time.
        max_body_bytes: Maximum size of a request, in bytes.
        timeout_s: Time in seconds that the upstream may be silent.
        on_end: Called with each session that is deleted or still open when the proxy ends.
        on_call: Called with the session and each call that is answered or has failed.

    Raises:
        ValueError: `llm_url` is not a URL, or an option is invalid.
    """
    client = InferenceClient(
        llm_url,
        served_model=model,
        api_key=api_key,
        auth_header=auth_header,
        capture_level=capture_level,
        provider=provider,
        timeout_s=timeout_s,
    )
    registry = SessionRegistry(
        require_registered=require_registered,
        max_sessions=max_sessions,
        capture_level=client.capture_level,
        max_model_calls=max_model_calls,
        max_tokens=max_session_tokens,
        on_call=on_call,
    )
    admin = _SessionEndpoints(registry, client, admin_key, on_end or (lambda session: None))
    proxy = _AgentEndpoints(registry, client, max_output_tokens, max_body_bytes)
    app = Starlette(
        routes=[
            Route("/health", admin.health),
            Route("/sessions", admin.make, methods=["POST"]),
            Route("/sessions", admin.list),
            Route("/sessions/{session_id}", admin.session),
            Route("/sessions/{session_id}", admin.delete, methods=["DELETE"]),
            Route("/sessions/{session_id}/rollout", admin.rollout),
            Route("/sessions/{session_id}/trace_entries", admin.entries),
            Route("/v1/models", proxy.models),
            Route("/models", proxy.models),
            Route("/{path:path}", proxy.call, methods=["POST"]),
        ],
        lifespan=admin.lifespan,
    )
    app.state.registry, app.state.inference, app.state.admin_key = registry, client, admin_key
    return app


# ------------------------------------------------------------------ endpoints for agents


@dataclass(frozen=True)
class _AgentEndpoints:
    """The endpoints for agents."""

    registry: SessionRegistry
    client: InferenceClient
    max_output_tokens: int | None
    max_body_bytes: int

    async def models(self, request: Request) -> Response:
        """List the models, for agents that ask for the list first."""
        if self._session(request) is None:
            return _unknown_key(DIALECTS[detect(request.url.path, request.headers, {})])
        if self.client.served_model:
            data = [{"id": self.client.served_model, "object": "model", "owned_by": "upstream"}]
            return JSONResponse({"object": "list", "data": data})
        try:
            return JSONResponse(await self.client.list_models())
        except UpstreamError as error:
            return build_upstream_error(DIALECTS[APIType.OPENAI_CHAT], error)

    async def call(self, request: Request) -> Response:
        """Answer a model call."""
        path = request.url.path
        guessed = DIALECTS[detect(path, request.headers, {})]
        try:
            session = self._session(request)
            if session is None:
                return _unknown_key(guessed)
            raw = await read_body(request, self.max_body_bytes)
            body = read_json(raw)
        except SessionLimitError as error:
            return build_error(guessed, 429, str(error))
        except RequestTooLargeError:
            return build_error(guessed, 413, f"the request is over {self.max_body_bytes} bytes")
        except ClientDisconnect:
            return Response(status_code=499)
        except ValueError as error:
            return build_error(guessed, 400, f"the request is no JSON: {error}")
        if not isinstance(body, dict):
            return build_error(guessed, 400, "the request is no JSON object")
        if path.rstrip("/").endswith("/count_tokens"):
            return await self._count_tokens(body)
        dialect = DIALECTS[detect(path, request.headers, body)]
        try:
            return await self._answer(request, session, dialect, body, raw)
        except OSError as error:  # from `on_call`: a call that cannot be recorded is not answered
            logger.error("a call could not be recorded: %s", error)
            return build_error(dialect, 500, f"the call could not be recorded: {error.strerror}")

    async def _answer(
        self,
        request: Request,
        session: CaptureSession,
        dialect: Dialect,
        body: dict[str, Any],
        raw: bytes,
    ) -> Response:
        names = extract_harness_session(request.headers, body)
        streams = dialect.wants_stream(request.url.path, body)
        if session.over_budget:
            session.budget_stop_count += 1
            completion = build_budget_stop(str(body.get("model") or ""))
            if not streams:
                return JSONResponse(dialect.from_chat(completion, body))
            events = dialect.stream(body)
            text = events.chunk(to_chunk(completion)) + events.end(completion)
            return Response(text, headers=EVENTS)
        call = ModelCall(session, dialect, body, self.max_output_tokens, names)
        session.model_calls += 1
        if self.client.provider == "anthropic":
            if dialect is not DIALECTS[APIType.ANTHROPIC]:
                words = "the upstream is Anthropic's: it is called by POST /v1/messages only"
                call.record_failure("refused", 400, words)
                return build_error(dialect, 400, words)
            answering = forward_call(call, self.client, request.headers, raw)
        else:
            try:
                call.read()
            except UnsupportedRequest as error:
                call.record_failure("refused", 400, str(error))
                return build_error(dialect, 400, str(error))
            answering = self._stream(call) if streams else self._complete(call)
        try:
            return await cancel_on_disconnect(request, answering)
        except AgentDisconnected:
            call.record_failure("abandoned", None, "the agent disconnected before it was answered")
            return Response(status_code=499)
        except UpstreamError as error:
            call.record_failure("upstream", error_status(error), str(error))
            return build_upstream_error(dialect, error)

    async def _complete(self, call: ModelCall) -> Response:
        completion = await self.client.completion(call.chat, call.wished)
        if not completion.get("choices"):
            told = json.dumps(completion)[:200]
            raise UpstreamTransportError(f"the upstream answered no choices: {told}")
        answer = call.dialect.from_chat(completion, call.body)
        call.record_answer(completion, call.dialect.response_id(answer))
        return JSONResponse(answer)

    async def _stream(self, call: ModelCall) -> Response:
        """Stream an answer, once the first chunk from the upstream has arrived."""
        async with contextlib.AsyncExitStack() as stack:
            chunks = await stack.enter_async_context(self.client.stream(call.chat, call.wished))
            first = await anext(chunks, None)
            if first is None:
                raise UpstreamTransportError("the upstream answered an empty stream")
            events = _events(call, first, chunks, stack.pop_all())
            await anext(events)  # start the generator, so that its cleanup always runs
            return EventResponse(events)

    async def _count_tokens(self, body: dict[str, Any]) -> Response:
        """Count tokens with vLLM's endpoint or Anthropic's; other upstreams answer 404."""
        dialect = DIALECTS[APIType.ANTHROPIC]
        try:
            if self.client.provider == "anthropic":
                return JSONResponse(await self.client.post("/messages/count_tokens", body))
            chat = dialect.to_chat(body, lambda number: ())
            told: dict[str, Any] = {n: chat[n] for n in ("messages", "tools") if n in chat}
            model = self.client.served_model or chat.get("model")
            counted = await self.client.post("/../tokenize", {"model": model, **told})
            return JSONResponse({"input_tokens": int(counted["count"])})
        except (UpstreamError, KeyError, ValueError):
            return build_error(dialect, 404, "this upstream does not count tokens")

    def _session(self, request: Request) -> CaptureSession | None:
        headers = dict(request.headers)
        if "key" in request.query_params:  # Google's clients may send the key in the query
            headers.setdefault("x-goog-api-key", request.query_params["key"])
        return self.registry.resolve(headers, {})


async def _events(
    call: ModelCall,
    first: list[dict[str, Any]],
    rest: AsyncIterator[list[dict[str, Any]]],
    stack: contextlib.AsyncExitStack,
) -> AsyncGenerator[str, None]:
    """Yield the events of an answer; record the call before the final event."""
    gathered, events = CompletionAssembler(), call.dialect.stream(call.body)
    try:
        async with stack:
            yield ""
            yield _add_chunks(gathered, events, first)
            async for chunks in rest:
                yield _add_chunks(gathered, events, chunks)
        if not gathered.is_ended:
            raise UpstreamTransportError("the upstream's stream does not say why it ended")
        completion = gathered.completion()
        ending = events.end(completion)
        call.record_answer(completion, events.answer_id)
    except UpstreamError as error:
        call.record_failure("broken", None, str(error), gathered)
        yield events.error(str(error))
    except OSError as error:  # from `on_call`
        logger.error("a call could not be recorded: %s", error)
        yield events.error(f"the call could not be recorded: {error.strerror}")
    except (asyncio.CancelledError, GeneratorExit):
        call.record_failure("abandoned", None, "the agent disconnected during its answer", gathered)
        raise
    else:
        yield ending


def _add_chunks(
    gathered: CompletionAssembler, events: EventStream, chunks: list[dict[str, Any]]
) -> str:
    """Add chunks to the completion and return the resulting events."""
    told = []
    for chunk in chunks:
        gathered.add(chunk)
        told.append(events.chunk(chunk))
    return "".join(told)


def _unknown_key(dialect: Dialect) -> Response:
    words = "unknown API key: expected the id of a session made by POST /sessions"
    return build_error(dialect, 401, words)


# ------------------------------------------------------------------ endpoints for sessions


@dataclass(frozen=True)
class _SessionEndpoints:
    """The endpoints for creating and reading sessions."""

    registry: SessionRegistry
    client: InferenceClient
    admin_key: str | None
    on_end: OnEnd

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        for session in self.registry.sessions():
            self.on_end(session)
        await self.client.aclose()

    async def health(self, request: Request) -> Response:
        level = self.client.capture_level
        return JSONResponse(
            {
                "status": "ok",
                "model": self.client.served_model,
                "provider": self.client.provider,
                "sessions": len(self.registry.list_ids()),
                "require_registered": self.registry.require_registered,
                "capture_level": level,
                "rollout_type": rollout_type_for("auto", level),
                "refused_by_upstream": sorted(self.client.refused),
            }
        )

    async def make(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        try:
            body = read_json(await read_body(request, 2**20) or b"{}")
            if not isinstance(body, dict):
                raise ValueError("expected an object")
            metadata = body.pop("metadata", {})
            if not isinstance(metadata, dict):
                raise ValueError(f"metadata={metadata!r}: expected an object")
            session = self.registry.create(**{**metadata, **body})
        except SessionLimitError as error:
            return _error(429, str(error))
        except RequestTooLargeError:
            return _error(413, "the request is over 1 MiB")
        except (TypeError, ValueError) as error:
            return _error(400, str(error))
        level = session.capture_level
        return JSONResponse(
            {
                "session_id": session.session_id,
                "capture_level": level,
                "rollout_type": rollout_type_for(session.purpose, level),
                "max_model_calls": session.max_model_calls,
                "max_tokens": session.max_tokens,
                "model": self.client.served_model,
            }
        )

    async def list(self, request: Request) -> Response:
        if self.admin_key is None:
            return _error(403, "listing sessions needs an admin key, and the proxy has none")
        refusal = self._refusal(request)
        return refusal or JSONResponse({"sessions": self.registry.summary()})

    async def session(self, request: Request) -> Response:
        def summary(session: CaptureSession) -> dict[str, Any]:
            return {
                "session_id": session.session_id,
                "idle_s": round(session.idle_seconds, 1),
                "upstream_errors": session.upstream_errors,
                "failures": len(session.failures),
                "n_tokens": session.n_tokens,
                **session.graph.stats(),
            }

        return self._show(request, summary)

    async def rollout(self, request: Request) -> Response:
        names = ("include_discarded", "include_messages", "include_auxiliary")
        asked = request.query_params
        wanted: dict[str, Any] = {name: asked.get(name) in ("1", "true") for name in names}
        return self._show(request, partial(export_session, **wanted))

    async def entries(self, request: Request) -> Response:
        def entries(session: CaptureSession) -> dict[str, Any]:
            found = to_trace_entries(session.graph, export_session(session))
            return {"session_id": session.session_id, "entries": found}

        return self._show(request, entries)

    async def delete(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        session = self.registry.get(request.path_params["session_id"])
        if session is None or not self.registry.delete(session.session_id):
            return _error(404, "unknown session")
        self.on_end(session)
        return JSONResponse({"deleted": True})

    def _show(self, request: Request, show: Callable[[CaptureSession], dict[str, Any]]) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        session = self.registry.get(request.path_params["session_id"])
        if session is None:
            return _error(404, "unknown session")
        try:
            return JSONResponse(show(session))
        except ValueError as error:  # the session lacks the data
            return _error(409, str(error))

    def _refusal(self, request: Request) -> Response | None:
        if self.admin_key is None or same_key(extract_api_key(request.headers), self.admin_key):
            return None
        return _error(401, "this needs the admin key of the proxy")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)
