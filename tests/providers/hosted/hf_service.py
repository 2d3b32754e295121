"""A stand-in of Hugging Face: its jobs, and ``sbx-server`` in them, as huggingface_hub 2.4 speaks.

https://huggingface.co/docs/huggingface_hub/concepts/sandbox
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import ssl
import threading
from collections.abc import Iterator
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
from support.servers import serving

TOKEN = "hf_Q7mN2xVbT9kLw4Zs"
DOMAIN = "hf-jobs.test"
PROXIED = re.compile(r"(\S+) /v1/sandboxes/(\w+)/proxy/8000(\S*) (.*)")
SERVER = (
    "exec python -m uvicorn echo_env.server.app:app --ws websockets "
    '--uds "$SBX_PROXY_DIR/{port}.sock"'
)


@dataclass
class Job:
    """A machine that holds sandboxes."""

    asked: dict[str, Any]
    stage: str = "RUNNING"
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    def described(self) -> dict[str, Any]:
        return {
            **{key: value for key, value in self.asked.items() if key not in ("secrets", "expose")},
            "id": self.id,
            "owner": {"id": "1", "name": "me", "type": "user"},
            "initiator": {"type": "user", "id": "1", "name": "me"},
            "status": {
                "stage": self.stage,
                "message": None,
                "exposeUrls": [f"https://{self.id}--49983.{DOMAIN}"],
            },
        }


@dataclass
class Box:
    """A sandbox in one."""

    job: Job
    machine: Machine
    asked: dict[str, Any]
    token: str = field(default_factory=lambda: secrets.token_hex(16))


class HuggingFace:
    """The service: a hub, and a proxy that leads to its jobs.

    Attributes:
        jobs: By id, also those that have ended.
        boxes: The sandboxes there are, by id.
        made: What was asked of each creation of a sandbox.
        faults: What goes wrong.
        server: The image's command ``server``; none where it is None.
        manifest: Its ``openenv.yaml``.
        stage: What becomes of a new job.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.boxes: dict[str, Box] = {}
        self.made: list[dict[str, Any]] = []
        self.faults = Faults()
        self.server: str | None = SERVER
        self.manifest: str | None = MANIFEST
        self.stage = "RUNNING"
        self.url = self.proxy = ""
        hub = [
            Route("/api/whoami-v2", self._whoami),
            Route("/api/jobs/me", self._run_job, methods=["POST"]),
            Route("/api/jobs/me", self._list_jobs, methods=["GET"]),
            Route("/api/jobs/me/{id}", self._job),
            Route("/api/jobs/me/{id}/cancel", self._cancel, methods=["POST"]),
            Route("/api/jobs/me/{id}/logs", self._logs),
        ]
        host = [
            Route("/health", self._health),
            Route("/v1/sandboxes", self._create, methods=["POST"]),
            Route("/v1/sandboxes", self._list, methods=["GET"]),
            Route("/v1/sandboxes/{id}", self._delete, methods=["DELETE"]),
            Route("/v1/sandboxes/{id}/exec", self._exec, methods=["POST"]),
            Route("/v1/sandboxes/{id}/processes", self._processes),
            Route("/v1/sandboxes/{id}/files/write", self._write, methods=["PUT"]),
        ]
        faulty = Middleware(BaseHTTPMiddleware, dispatch=self.faults.middleware)
        guarded = Middleware(BaseHTTPMiddleware, dispatch=self._guard)
        self.hub = Starlette(routes=hub, middleware=[faulty, guarded])
        self.host = Starlette(routes=host, middleware=[faulty, guarded])

    @contextlib.contextmanager
    def serving(self, context: ssl.SSLContext) -> Iterator[None]:
        """Serve the hub, and jobs behind a proxy of HTTP by TLS with a certificate for them."""
        with serving(self.hub) as self.url, serving(self.host) as host, _front(host, self, context):
            yield

    def destroy(self) -> None:
        for box in list(self.boxes.values()):
            box.machine.destroy()
        self.boxes.clear()

    async def _guard(self, request: Request, call_next: Any) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": "Invalid credentials in Authorization header"}, 401)
        response: Response = await call_next(request)
        return response

    # ------------------------------------------------------------------ the hub

    async def _whoami(self, request: Request) -> Response:
        return JSONResponse({"name": "me", "id": "1", "type": "user"})

    async def _run_job(self, request: Request) -> Response:
        job = Job(await request.json(), self.stage)
        self.jobs[job.id] = job
        return JSONResponse(job.described())

    async def _list_jobs(self, request: Request) -> Response:
        wanted = dict(one.split("=", 1) for one in request.query_params.getlist("label"))
        stages = request.query_params.getlist("stage")
        return JSONResponse(
            [
                job.described()
                for job in self.jobs.values()
                if wanted.items() <= job.asked["labels"].items() and job.stage in stages
            ]
        )

    async def _job(self, request: Request) -> Response:
        return JSONResponse(self.jobs[request.path_params["id"]].described())

    async def _cancel(self, request: Request) -> Response:
        job = self.jobs[request.path_params["id"]]
        job.stage = "CANCELED"
        for id, box in list(self.boxes.items()):
            if box.job is job:
                await run_in_threadpool(box.machine.destroy)
                del self.boxes[id]
        return JSONResponse(job.described())

    async def _logs(self, request: Request) -> Response:
        data = json.dumps({"data": "exec format error", "timestamp": "2026-01-01T00:00:00Z"})
        return PlainTextResponse(f"data: {data}\n\n", media_type="text/event-stream")

    # ------------------------------------------------------------------ sbx-server

    async def _health(self, request: Request) -> Response:
        job = self._job_of(request.headers["host"])
        if job.stage != "RUNNING":
            return JSONResponse({"error": "starting"}, 502)
        return JSONResponse({"protocol": 3, "version": "0.7.0"})

    def _job_of(self, host: str) -> Job:
        return self.jobs[host.partition("--")[0]]

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        self.made.append(asked)
        machine = await run_in_threadpool(
            lambda: Machine(asked.get("env") or {}, self.manifest, server=self.server)
        )
        id = secrets.token_hex(4)
        box = Box(self._job_of(request.headers["host"]), machine, asked)
        self.boxes[id] = box
        return JSONResponse({"sandboxes": [{"id": id, "token": box.token}], "rejected": 0})

    async def _list(self, request: Request) -> Response:
        return JSONResponse([{"id": id} for id in self.boxes])

    def _box(self, request: Request) -> Box | Response:
        box = self.boxes.get(request.path_params["id"])
        if box is None:
            return JSONResponse({"error": "no such sandbox"}, 404)
        if request.headers.get("x-sandbox-token") != box.token:
            return JSONResponse({"error": "forbidden"}, 403)
        return box

    async def _delete(self, request: Request) -> Response:
        box = self._box(request)
        if isinstance(box, Response):
            return box
        await run_in_threadpool(box.machine.destroy)
        self.boxes.pop(request.path_params["id"], None)
        return JSONResponse({"deleted": True})

    async def _exec(self, request: Request) -> Response:
        box = self._box(request)
        if isinstance(box, Response):
            return box
        asked = await request.json()
        ran = await run_in_threadpool(
            box.machine.run, asked["cmd"], float(asked.get("timeout") or 600)
        )
        events = [
            {"event": "stdout", "data": ran.stdout.decode(errors="replace")},
            {"event": "ping"},
            {"event": "stderr", "data": ran.stderr.decode(errors="replace")},
            {"event": "exit", "exit_code": ran.code, "timed_out": ran.code is None},
        ]
        return PlainTextResponse("".join(json.dumps(one) + "\n" for one in events))

    async def _processes(self, request: Request) -> Response:
        box = self._box(request)
        return box if isinstance(box, Response) else JSONResponse([])

    async def _write(self, request: Request) -> Response:
        box = self._box(request)
        if isinstance(box, Response):
            return box
        path = f"{box.machine.root}/tmp/{request.query_params['path'].lstrip('/')}"
        box.machine.write(path, await request.body())
        return JSONResponse({})


# ---------------------------------------------------------------------- the way to jobs


@contextlib.contextmanager
def _front(host: str, service: HuggingFace, context: ssl.SSLContext) -> Iterator[None]:
    """A proxy that leads every name to one place that speaks TLS, and knows sandboxes' sockets."""
    loop = asyncio.new_event_loop()
    up = threading.Event()
    closing: list[asyncio.Server] = []
    open_ones: list[asyncio.StreamWriter] = []

    async def start() -> None:
        inner = await asyncio.start_server(terminate, "127.0.0.1", 0, ssl=context)
        place = inner.sockets[0].getsockname()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_ones.append(writer)
            line = await reader.readuntil(b"\r\n\r\n")
            assert line.startswith(b"CONNECT "), line
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            onward = await asyncio.open_connection(*place)
            open_ones.append(onward[1])
            await _join(reader, writer, *onward)

        outer = await asyncio.start_server(connect, "127.0.0.1", 0)
        service.proxy = f"http://127.0.0.1:{outer.sockets[0].getsockname()[1]}"
        closing.extend((inner, outer))
        up.set()

    async def terminate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        found = PROXIED.match(head)
        if found is None:
            port = int(host.rpartition(":")[2])
            onward = await asyncio.open_connection("127.0.0.1", port)
            open_ones.append(onward[1])
            onward[1].write(head.encode("latin-1"))
            await _join(reader, writer, *onward)
            return
        method, id, path, rest = found.groups()
        box = service.boxes.get(id)
        is_known = f"authorization: bearer {TOKEN}".lower() in head.lower()
        if box is None or not is_known or f"X-Sandbox-Token: {box.token}" not in head:
            writer.write(
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            writer.close()
            return
        try:
            socket = box.machine.root / "tmp" / "proxy" / f"{box.machine.port}.sock"
            onward = await asyncio.open_unix_connection(str(socket))
        except OSError:
            writer.write(
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            writer.close()
            return
        head = f"{method} {path} {rest}" + head[found.end() :]
        # The hub's own credentials go no further.
        head = re.sub(r"(?i)\r\n(authorization|x-sandbox-token):[^\r]*", "", head)
        open_ones.append(onward[1])
        onward[1].write(head.encode("latin-1"))
        await _join(reader, writer, *onward)

    async def stop() -> None:
        for server in closing:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in open_ones:
            writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert up.wait(10), "the proxy did not start"
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    onward_reader: asyncio.StreamReader,
    onward_writer: asyncio.StreamWriter,
) -> None:
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(pump(reader, onward_writer), pump(onward_reader, writer))
