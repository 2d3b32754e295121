"""The routes of the page: what it is made of, what it tells, and what of old was below `/web`."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from importlib import resources
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from openenv._internal.json import read_json
from openenv.errors import InvalidMessageError
from openenv.execution.manager import SessionManager
from openenv.server.bodies import read_body
from openenv.server.home import keep_at_home
from openenv.server.refusals import JSON, error_response
from openenv.settings import ServerMode
from openenv.types import EnvironmentMetadata
from openenv.web.about import About, Tab, about
from openenv.web.custom import GradioBuilder, custom_tab
from openenv.web.episode import NoEpisode, WebInterfaceManager
from openenv.web.watch import watch_route

__all__ = ["add_web_page"]

ASSETS = resources.files("openenv.web") / "assets"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Observations are hostile input: nothing that they hold is run, and nothing is asked of elsewhere.
# Styles may be inline, since frames whose HTML an environment has written inherit this.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
# A Space is shown in a frame of the hub's page.
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

    Args:
        app: The application.
        manager: Its sessions.
        title: Of the page; by default the environment's name.
        gradio_builder: Builds a page of its own, which is a further tab; see
            `openenv.web.custom.custom_tab`.
        custom_tab_name: Title of that tab.
        custom_tab_primary: Show it first.
        show_default_tab: Show the generated page beside it.

    Returns:
        The episode that those share who name no session.

    Raises:
        MissingPackage: There is a `gradio_builder`, and Gradio is not installed.
        TypeError: It has built no `gradio.Blocks`.
    """
    spec = manager.spec
    metadata = EnvironmentMetadata(name=spec.name, description="")
    shared = WebInterfaceManager(
        spec.factory, spec.action_cls, spec.observation_cls, metadata, manager=manager
    )
    tabs: list[Tab] = []
    told = functools.partial(about, manager, title, tabs, shows_playground=show_default_tab)
    routes = [
        Route("/", _to_page, include_in_schema=False),
        Route("/web", _to_page, include_in_schema=False),
        Route("/web/", _page, include_in_schema=False),
        Route("/web/assets/{name:path}", _asset, include_in_schema=False),
        Route("/web/about", _about(told, manager), include_in_schema=False),
        watch_route(manager),
        *_routes_of_old(shared, told, manager),
    ]
    keep_at_home(app, manager, routes)
    app.router.routes.extend(routes)
    if gradio_builder is not None:
        tabs.append(
            custom_tab(
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


async def _to_page(request: Request) -> Response:
    """Go to the page, below the path at which a proxy or another application has put this one."""
    return RedirectResponse(f"{_prefix(request)}/web/", 307)


# A path, and neither a host ("//elsewhere") nor an end of the header.
SAFE_PREFIX = re.compile(r"(/[A-Za-z0-9._~%@:+-]+)+")


def _prefix(request: Request) -> str:
    mounted: str = request.scope.get("root_path", "").rstrip("/")
    said = request.headers.get("x-forwarded-prefix", "").split(",")[0].strip().rstrip("/")
    is_known = mounted == said or mounted.startswith(f"{said}/")
    return mounted if is_known or not SAFE_PREFIX.fullmatch(said) else said + mounted


async def _page(request: Request) -> Response:
    ancestors = FRAMED_BY_THE_HUB if os.environ.get("SPACE_ID") else "'self'"
    headers = {"Content-Security-Policy": POLICY.format(ancestors=ancestors)}
    return _served(request, "index.html", headers)


async def _asset(request: Request) -> Response:
    return _served(request, request.path_params["name"], {})


def _served(request: Request, name: str, headers: dict[str, str]) -> Response:
    """A file of the page; the browser asks each time whether it is still the same."""
    content = _content(name)
    if content is None:
        return Response("there is no such file", 404, media_type="text/plain")
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


def _content(name: str) -> bytes | None:
    file = _files().get(name)
    return None if file is None else _read(file)


@functools.cache
def _files() -> dict[str, Any]:
    """What there is to be served. Nobody reaches anything else, whatever name is asked for."""
    return dict(_files_in(ASSETS, ""))


def _files_in(folder: Any, path: str) -> Iterator[tuple[str, Any]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_in(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry


@functools.cache
def _read(file: Any) -> bytes:
    content: bytes = file.read_bytes()
    return content


def _about(told: Callable[[], Awaitable[Any]], manager: SessionManager) -> Endpoint:
    """What the page tells; found out once."""
    found: list[bytes] = []

    async def endpoint(request: Request) -> Response:
        if not found:
            try:
                found.append((await told()).model_dump_json().encode())
            except Exception as error:
                return error_response(error, manager)
        return Response(found[0], media_type=JSON)

    return endpoint


def _routes_of_old(
    shared: WebInterfaceManager, told: Callable[[], Awaitable[About]], manager: SessionManager
) -> list[BaseRoute]:
    """The routes by which pages and programs of old act; in production nobody does."""

    def answering(act: Callable[[Request], Awaitable[dict[str, Any]]]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await act(request))
            except ClientDisconnect:  # nobody is there to read the answer
                return Response(status_code=400)
            except NoEpisode as error:
                return JSONResponse({"detail": str(error)}, 409)
            except Exception as error:
                return error_response(error, manager)

        return endpoint

    async def metadata(request: Request) -> dict[str, Any]:
        return (await told()).metadata.model_dump()

    async def reset(request: Request) -> dict[str, Any]:
        return await shared.reset_environment(await _object(request))

    async def step(request: Request) -> dict[str, Any]:
        body = await _object(request)
        if "message" in body and "action" not in body:
            return await shared.act_on_message(body["message"])
        action = body.get("action")
        if not isinstance(action, dict):
            raise _not(action, "action", "an object with the fields of the action")
        return await shared.step_environment(action)

    async def state(request: Request) -> dict[str, Any]:
        return shared.get_state()

    routes: list[BaseRoute] = [
        Route("/web/metadata", answering(metadata), include_in_schema=False),
    ]
    if manager.spec.mode is ServerMode.SIMULATION:
        routes += [
            Route("/web/reset", answering(reset), methods=["POST"], include_in_schema=False),
            Route("/web/step", answering(step), methods=["POST"], include_in_schema=False),
            Route("/web/state", answering(state), include_in_schema=False),
            WebSocketRoute("/ws/ui", shared.listen),
        ]
    return routes


async def _object(request: Request) -> dict[str, Any]:
    """The JSON object that a request has; an empty one where it has nothing."""
    (manager, *_) = request.app.state.openenv_managers
    body = await read_body(request, manager.limits.max_message_bytes)
    if not body.strip():
        return {}
    try:
        found = read_json(body)
    except ValueError as error:
        raise _not(None, "body", f"JSON ({error})") from None
    if not isinstance(found, dict):
        raise _not(found, "body", "a JSON object")
    return found


def _not(found: Any, name: str, expected: str) -> InvalidMessageError:
    why = f"Input should be {expected}"
    return InvalidMessageError([{"type": "value_error", "loc": [name], "msg": why, "input": found}])
