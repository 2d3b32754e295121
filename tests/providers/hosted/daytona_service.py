"""A stand-in of Daytona: its API and its toolbox, as daytona's SDK 0.226 speaks with them.

https://www.daytona.io/docs/en/tools/api
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from providers.hosted.faults import Faults
from providers.hosted.machines import MANIFEST, Machine
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

KEY = "dtn_9f2c41d07be3a856"


@dataclass
class Box:
    """A sandbox as the service knows it."""

    asked: dict[str, Any]
    machine: Machine
    state: str = "started"
    reason: str | None = None
    id: str = field(default_factory=lambda: f"box-{secrets.token_hex(6)}")
    links: int = 0

    def described(self, base: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "organizationId": "organization",
            "name": self.asked.get("name") or self.id,
            "snapshot": self.asked.get("snapshot"),
            "user": "daytona",
            "env": self.asked.get("env") or {},
            "labels": self.asked.get("labels") or {},
            "public": bool(self.asked.get("public")),
            "networkBlockAll": False,
            "kvm": False,
            "target": self.asked.get("target") or "eu",
            "cpu": 1,
            "gpu": 0,
            "memory": 1,
            "disk": 3,
            "state": self.state,
            "errorReason": self.reason,
            "toolboxProxyUrl": f"{base}/toolbox",
        }


class Daytona:
    """The service.

    Attributes:
        boxes: The sandboxes there are, by id.
        made: What was asked of each creation.
        faults: What goes wrong.
        manifest: The ``openenv.yaml`` of every image.
        manifest_in: The directory of it.
        becomes: The state that a new sandbox is left in.
        log: Of a build.
    """

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.made: list[dict[str, Any]] = []
        self.faults = Faults()
        self.manifest: str | None = MANIFEST
        self.manifest_in = "app/env"
        self.becomes, self.reason = "started", ""
        self.first = ""
        self.log = "step 1\nstep 2\n"
        self.url = ""
        self._turn = threading.Lock()
        routes = [
            Route("/api/sandbox", self.create, methods=["POST"]),
            Route("/api/sandbox", self.list, methods=["GET"]),
            Route("/api/sandbox/{id}", self.get, methods=["GET"]),
            Route("/api/sandbox/{id}", self.delete, methods=["DELETE"]),
            Route("/api/sandbox/{id}/ports/{port}/signed-preview-url", self.link),
            Route("/api/sandbox/{id}/build-logs-url", self.log_url),
            Route("/build-logs/{id}", self.build_log),
            Route("/toolbox/{id}/process/execute", self.execute, methods=["POST"]),
            Route("/toolbox/{id}/files/bulk-upload", self.upload, methods=["POST"]),
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
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"statusCode": 401, "message": "Invalid credentials"}, 401)
        response: Response = await call_next(request)
        return response

    def _found(self, request: Request) -> Box | None:
        wanted = request.path_params["id"]
        for box in list(self.boxes.values()):
            if wanted in (box.id, box.asked.get("name")):
                return box
        return None

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        self.made.append(asked)
        machine = await run_in_threadpool(
            lambda: Machine(asked.get("env") or {}, self.manifest, self.manifest_in)
        )
        box = Box(asked, machine, self.becomes, self.reason or None)
        self.boxes[box.id] = box
        described = box.described(self.url)
        return JSONResponse({**described, "state": self.first or described["state"]})

    async def list(self, request: Request) -> Response:
        wanted = json.loads(request.query_params.get("labels") or "{}").items()
        items = [box.described(self.url) for box in self.boxes.values()]
        items = [one for one in items if wanted <= one["labels"].items()]
        return JSONResponse({"items": items, "nextCursor": None})

    async def get(self, request: Request) -> Response:
        box = self._found(request)
        return _missing() if box is None else JSONResponse(box.described(self.url))

    async def delete(self, request: Request) -> Response:
        box = self._found(request)
        if box is None:
            return _missing()
        await run_in_threadpool(box.machine.destroy)
        self.boxes.pop(box.id, None)
        return JSONResponse({**box.described(self.url), "state": "destroying"})

    async def link(self, request: Request) -> Response:
        box = self._found(request)
        if box is None:
            return _missing()
        box.links += 1
        box.asked["expires"] = request.query_params.get("expiresInSeconds")
        port = int(request.path_params["port"])
        assert port == 8000
        token = secrets.token_hex(12)
        body = {"sandboxId": box.id, "port": port, "token": token, "url": box.machine.link()}
        return JSONResponse(body)

    async def log_url(self, request: Request) -> Response:
        return JSONResponse({"url": f"{self.url}/build-logs/{request.path_params['id']}"})

    async def build_log(self, request: Request) -> Response:
        return PlainTextResponse(self.log)

    async def execute(self, request: Request) -> Response:
        box = self._found(request)
        if box is None:
            return _missing()
        if box.state != "started":
            return JSONResponse({"message": f"Sandbox is {box.state}"}, 400)
        asked = await request.json()
        ran = await run_in_threadpool(
            box.machine.run, ["sh", "-c", asked["command"]], float(asked.get("timeout") or 10)
        )
        if ran.code is None:
            return JSONResponse({"message": "command execution timeout"}, 408)
        return JSONResponse(
            {"exitCode": ran.code, "result": (ran.stdout + ran.stderr).decode(errors="replace")}
        )

    async def upload(self, request: Request) -> Response:
        box = self._found(request)
        if box is None:
            return _missing()
        async with request.form() as form:
            for name, value in form.multi_items():
                found = re.fullmatch(r"files\[(\d+)\]\.path", name)
                if found:
                    file: Any = form[f"files[{found[1]}].file"]
                    box.machine.write(str(value), await file.read())
        return JSONResponse({})


def _missing() -> Response:
    return JSONResponse({"statusCode": 404, "message": "Sandbox not found"}, 404)
