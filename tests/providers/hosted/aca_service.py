"""A stand-in of Azure Container Apps' sandboxes, as azure-containerapps-sandbox 0.1 speaks.

https://learn.microsoft.com/azure/container-apps/sandboxes-overview
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from providers.hosted.doors import Doors
from providers.hosted.faults import Faults
from providers.hosted.machines import MANIFEST, Machine
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "eyJ0eXAi.of-azure.8c77b0d2"
GROUP = "/subscriptions/sub/resourceGroups/rg/sandboxGroups/group/sandboxes"


@dataclass
class Box:
    """A sandbox as the service knows it."""

    asked: dict[str, Any]
    machine: Machine
    state: str = "Running"
    reason: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def described(self) -> dict[str, Any]:
        details = None if self.reason is None else {"stoppedReason": self.reason}
        return {**self.asked, "id": self.id, "state": self.state, "stateDetails": details}


class Azure:
    """The service.

    Attributes:
        boxes: The sandboxes there are, by id.
        made: What was asked of each creation.
        faults: What goes wrong.
        manifest: The ``openenv.yaml`` of every disk.
        becomes: The state that a new sandbox is left in.
    """

    def __init__(self, doors: Doors) -> None:
        self.boxes: dict[str, Box] = {}
        self.made: list[dict[str, Any]] = []
        self.faults = Faults()
        self.manifest: str | None = MANIFEST
        self.becomes = "Running"
        self._doors = doors
        one = f"{GROUP}/{{id}}"
        routes = [
            Route(GROUP, self.create, methods=["PUT"]),
            Route(GROUP, self.list, methods=["GET"]),
            Route(one, self.get, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/ports/add", self.add_port, methods=["POST"]),
            Route(f"{one}/executeShellCommand", self.execute, methods=["POST"]),
            Route(f"{one}/files", self.write, methods=["PUT"]),
        ]
        middleware = [
            Middleware(BaseHTTPMiddleware, dispatch=self.faults.middleware),
            Middleware(BaseHTTPMiddleware, dispatch=self._guard),
        ]
        self.app = Starlette(routes=routes, middleware=middleware)

    def destroy(self) -> None:
        for box in self.boxes.values():
            box.machine.destroy()
        self.boxes.clear()

    async def _guard(self, request: Request, call_next: Any) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _error(401, "Unauthorized", "The access token is invalid")
        response: Response = await call_next(request)
        return response

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        self.made.append(asked)
        machine = await run_in_threadpool(Machine, asked.get("environment") or {}, self.manifest)
        box = Box(asked, machine, self.becomes)
        self.boxes[box.id] = box
        return JSONResponse({**box.described(), "state": "Creating"}, 201)

    async def list(self, request: Request) -> Response:
        told = request.query_params.get("labels")
        wanted = dict(one.split("=", 1) for one in told.split(",")) if told else {}
        boxes = [
            one for one in self.boxes.values() if wanted.items() <= one.asked["labels"].items()
        ]
        return JSONResponse({"value": [one.described() for one in boxes]})

    def _box(self, request: Request) -> Box | None:
        return self.boxes.get(request.path_params["id"])

    async def get(self, request: Request) -> Response:
        box = self._box(request)
        return _missing() if box is None else JSONResponse(box.described())

    async def delete(self, request: Request) -> Response:
        box = self._box(request)
        if box is None:
            return _missing()
        await run_in_threadpool(box.machine.destroy)
        self.boxes.pop(box.id, None)
        return Response(status_code=204)

    async def add_port(self, request: Request) -> Response:
        box = self._box(request)
        if box is None:
            return _missing()
        asked = await request.json()
        assert asked == {"port": 8000, "auth": {"anonymous": True}}
        port = await run_in_threadpool(self._doors.to, box.machine.port)
        return JSONResponse({"ports": [{**asked, "url": f"https://127.0.0.1:{port}/"}]})

    async def execute(self, request: Request) -> Response:
        box = self._box(request)
        if box is None:
            return _missing()
        if box.state not in ("Running", "Suspended"):
            return _error(409, "Conflict", f"The sandbox is {box.state}")
        asked = await request.json()
        ran = await run_in_threadpool(box.machine.run, ["sh", "-c", asked["command"]], 240.0)
        return JSONResponse(
            {
                "exitCode": ran.code,
                "stdout": ran.stdout.decode(errors="replace"),
                "stderr": ran.stderr.decode(errors="replace"),
            }
        )

    async def write(self, request: Request) -> Response:
        box = self._box(request)
        if box is None:
            return _missing()
        assert request.query_params["mode"] == "0600"
        box.machine.write(request.query_params["path"], await request.body())
        return Response(status_code=204)


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status)


def _missing() -> Response:
    return _error(404, "NotFound", "The sandbox was not found")
