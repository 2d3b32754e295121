"""Routes of the web page: assets, description, and the public package's routes below `/web`."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from openenv._internal.json import read_json
from openenv._internal.net.responses import JSON, error_response, read_body
from openenv.errors import InvalidMessageError
from openenv.execution.manager import SessionManager
from openenv.settings import ServerMode
from openenv.types import EnvironmentMetadata
from openenv.web.about import PageDescription, PageTab, describe_page
from openenv.web.custom import GradioBuilder, mount_custom_tab
from openenv.web.episode import EpisodeNotStarted, WebInterfaceManager
from openenv.web.watch import watch_route

ASSETS = resources.files("openenv.web") / "assets"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Observations are untrusted: scripts in them never run, and no other host is contacted. Styles may
# be inline, since frames with an environment's HTML inherit this policy.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
# The Hub's page shows a Space in a frame.
FRAMED_BY_THE_HUB = "'self' https://huggingface.co https://*.hf.space"

Endpoint = Callable[[Request], Awaitable[Response]]


def add_web_page(
    app: FastAPI,
    manager: SessionManager,
    *,
    title: str | None = None,
    gradio_builder: GradioBuilder | None = None,
    custom_tab_name: str = "Custom",
    custom_tab_primary: bool = False,
    show_default_tab: bool = True,
) -> WebInterfaceManager:
    """Add the page to an application that serves `manager`.

    The tab that `gradio_builder` builds is shown next to the generated page, or instead of it if
    `show_default_tab` is False; see `openenv.web.custom.mount_custom_tab`.

    Returns:
        The manager of the shared episode, for clients without a session id.

    Raises:
        MissingPackage: `gradio_builder` is given, but Gradio is not installed.
        TypeError: The builder did not return `gradio.Blocks`.
    """
    spec = manager.spec
    metadata = EnvironmentMetadata(name=spec.name, description="")
    shared = WebInterfaceManager(
        spec.factory, spec.action_cls, spec.observation_cls, metadata, manager=manager
    )
    tabs: list[PageTab] = []
    told = functools.partial(describe_page, manager, title, tabs, shows_playground=show_default_tab)
    routes = [
        Route("/", _redirect_to_page, include_in_schema=False),
        Route("/web", _redirect_to_page, include_in_schema=False),
        Route("/web/", _serve_page, include_in_schema=False),
        Route("/web/assets/{name:path}", _serve_asset, include_in_schema=False),
        Route("/web/about", _description_endpoint(told, manager), include_in_schema=False),
        watch_route(manager),
        *_legacy_routes(shared, told, manager),
    ]
    # The routes run on the event loop of the sessions, as the server's routes do.
    for home in getattr(app.state, "openenv_homes", ()):
        if home.manager is manager:
            home.keep(routes)
    app.router.routes.extend(routes)
    if gradio_builder is not None:
        tabs.append(
            mount_custom_tab(
                app,
                shared,
                gradio_builder,
                name=custom_tab_name,
                is_primary=custom_tab_primary,
                title=title or spec.name,
                metadata=metadata,
            )
        )
    return shared


async def _redirect_to_page(request: Request) -> Response:
    """Redirect to the page, below the path prefix of a proxy or a mounting application."""
    return RedirectResponse(f"{_prefix(request)}/web/", 307)


# A path: neither a host ("//elsewhere") nor a line break in the header.
SAFE_PREFIX = re.compile(r"(/[A-Za-z0-9._~%@:+-]+)+")


def _prefix(request: Request) -> str:
    mounted: str = request.scope.get("root_path", "").rstrip("/")
    said = request.headers.get("x-forwarded-prefix", "").split(",")[0].strip().rstrip("/")
    is_known = mounted == said or mounted.startswith(f"{said}/")
    return mounted if is_known or not SAFE_PREFIX.fullmatch(said) else said + mounted


async def _serve_page(request: Request) -> Response:
    ancestors = FRAMED_BY_THE_HUB if os.environ.get("SPACE_ID") else "'self'"
    headers = {"Content-Security-Policy": POLICY.format(ancestors=ancestors)}
    return _serve_file(request, "index.html", headers)


async def _serve_asset(request: Request) -> Response:
    return _serve_file(request, request.path_params["name"], {})


def _serve_file(request: Request, name: str, headers: dict[str, str]) -> Response:
    """Serve an asset; browsers revalidate on each request."""
    if name not in _files():
        return Response("there is no such file", 404, media_type="text/plain")
    content = _read(_files()[name])
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        **headers,
        "ETag": tag,
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    media_type = MEDIA_TYPES.get(os.path.splitext(name)[1], "text/plain; charset=utf-8")
    return Response(content, headers=headers, media_type=media_type)


@functools.cache
def _files() -> dict[str, Any]:
    """Return all servable files by name; no other path is reachable."""
    found = {}
    folders: list[tuple[str, Any]] = [("", ASSETS)]
    for path, folder in folders:
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{path}{entry.name}/", entry))
            else:
                found[f"{path}{entry.name}"] = entry
    return found


@functools.cache
def _read(file: Any) -> bytes:
    content: bytes = file.read_bytes()
    return content


def _description_endpoint(told: Callable[[], Awaitable[Any]], manager: SessionManager) -> Endpoint:
    """Build the endpoint of the page's description, which is computed once."""
    found: list[bytes] = []

    async def endpoint(request: Request) -> Response:
        if not found:
            try:
                found.append((await told()).model_dump_json().encode())
            except Exception as error:
                return _count_error(error, manager)
        return Response(found[0], media_type=JSON)

    return endpoint


def _count_error(error: Exception, manager: SessionManager) -> Response:
    manager.counters.failed(error)
    return error_response(error, debug=manager.debug)


def _legacy_routes(
    shared: WebInterfaceManager,
    told: Callable[[], Awaitable[PageDescription]],
    manager: SessionManager,
) -> list[BaseRoute]:
    """Return the public package's routes; those that act are absent in production mode."""

    def answering(act: Callable[[Request], Awaitable[dict[str, Any]]]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await act(request))
            except ClientDisconnect:  # the client is gone
                return Response(status_code=400)
            except EpisodeNotStarted as error:
                return JSONResponse({"detail": str(error)}, 409)
            except Exception as error:
                return _count_error(error, manager)

        return endpoint

    async def metadata(request: Request) -> dict[str, Any]:
        return (await told()).metadata.model_dump()

    async def reset(request: Request) -> dict[str, Any]:
        return await shared.reset_environment(await _read_object(request))

    async def step(request: Request) -> dict[str, Any]:
        body = await _read_object(request)
        if "message" in body and "action" not in body:
            return await shared.act_on_message(body["message"])
        action = body.get("action")
        if not isinstance(action, dict):
            raise _invalid_field(action, "action", "an object with the fields of the action")
        return await shared.step_environment(action)

    async def state(request: Request) -> dict[str, Any]:
        return shared.get_state()

    routes: list[BaseRoute] = [
        Route("/web/metadata", answering(metadata), include_in_schema=False),
        Route("/web/reset", answering(reset), methods=["POST"], include_in_schema=False),
        Route("/web/step", answering(step), methods=["POST"], include_in_schema=False),
        Route("/web/state", answering(state), include_in_schema=False),
        WebSocketRoute("/ws/ui", shared.listen),
    ]
    return routes if manager.spec.mode is ServerMode.SIMULATION else routes[:1]


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body; empty for an empty body."""
    (manager, *_) = request.app.state.openenv_managers
    body = await read_body(request, manager.limits.max_message_bytes)
    if not body.strip():
        return {}
    try:
        found = read_json(body)
    except ValueError as error:
        raise _invalid_field(None, "body", f"JSON ({error})") from None
    if not isinstance(found, dict):
        raise _invalid_field(found, "body", "a JSON object")
    return found


def _invalid_field(found: Any, name: str, expected: str) -> InvalidMessageError:
    why = f"Input should be {expected}"
    return InvalidMessageError([{"type": "value_error", "loc": [name], "msg": why, "input": found}])
