"""The address of a server, opened in a browser, where there is no page of the environment."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["open_docs_at_the_root"]


def open_docs_at_the_root(app: FastAPI) -> None:
    """Have ``/`` lead browsers to the routes' documentation, unless there is a page already.

    It is what is done where no route fits, and no route of its own: one that is added to the
    application later, by the web page or by a user, comes first.
    """
    app.router.default = _AtTheRoot(app, app.router.default)


class _AtTheRoot:
    def __init__(self, app: FastAPI, otherwise: ASGIApp) -> None:
        self._app = app
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._otherwise
        # Whatever else asks is answered as by the public package: there is nothing here.
        if scope["type"] == "http" and "text/html" in Headers(scope=scope).get("accept", ""):
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            is_read = scope["method"] in ("GET", "HEAD")
            if is_read and path in ("", "/") and self._app.docs_url:
                # Relative, so that it is right below the path at which a proxy has put this.
                answer = RedirectResponse(f".{self._app.docs_url}")
        await answer(scope, receive, send)
