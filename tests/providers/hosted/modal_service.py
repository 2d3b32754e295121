"""A stand-in of Modal: its control plane and the command routers of its workers, by gRPC.

It speaks by the messages of the SDK's own package, as modal 1.6 does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_pb2, task_command_router_pb2
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase
from providers.hosted.doors import Doors
from providers.hosted.machines import MANIFEST, Machine, Ran

TOKEN = ("ak-5d1e", "as-8c77b0d2e4f94a11")
PORT = 8000


def _jwt() -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': time.time() + 3600})}.{part({})}"


@dataclass
class Box:
    """A sandbox as the service knows it."""

    definition: Any
    machine: Machine
    id: str
    code: int | None = None
    given: dict[str, bytes] = field(default_factory=dict)
    ends: dict[str, asyncio.Event] = field(default_factory=dict)
    ran: dict[str, asyncio.Future[Ran]] = field(default_factory=dict)


class Modal:
    """The service.

    Attributes:
        boxes: The sandboxes there are, by id.
        made: The definition of each that was asked for.
        images: The commands of each image's Dockerfile, by id.
        manifest: The ``openenv.yaml`` of every image.
        faults: What calls fail with: a pattern of their names, a status and words, and how often.
        starts: A sandbox gets a worker.
    """

    def __init__(self, doors: Doors) -> None:
        self.boxes: dict[str, Box] = {}
        self.made: list[Any] = []
        self.images: dict[str, list[str]] = {}
        self.manifest: str | None = MANIFEST
        self.faults: list[list[Any]] = []
        self.asked: list[str] = []
        self.starts = True
        self.url = ""
        self._doors = doors
        self._secrets: dict[str, dict[str, str]] = {}
        self._loop = asyncio.new_event_loop()

    def fail(self, pattern: str, status: Status, words: str, times: int = 1) -> None:
        """Have calls fail whose name has `pattern` in it."""
        self.faults.append([pattern, status, words, times])

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve by gRPC, on a free port of the loopback interface."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        protocols: list[Any] = []

        async def start() -> Server:
            handlers = [_handler(ModalClientBase, self), _handler(TaskCommandRouterBase, self)]
            server = Server(handlers)
            make = server._protocol_factory

            def noted() -> Any:
                protocols.append(make())
                return protocols[-1]

            server._protocol_factory = noted  # to close them
            await server.start("127.0.0.1", 0)
            assert server._server is not None
            port = server._server.sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            return server

        server = asyncio.run_coroutine_threadsafe(start(), self._loop).result(10)

        async def stop() -> None:
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()
            for protocol in protocols:
                transport = getattr(protocol.connection, "_transport", None)
                if transport is not None:
                    transport.abort()
            for _ in range(5):
                await asyncio.sleep(0)

        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    def destroy(self) -> None:
        for box in self.boxes.values():
            box.machine.destroy()
        self.boxes.clear()

    def _box(self, id: str) -> Box:
        box = self.boxes.get(id.replace("ta-", "sb-").removesuffix("V"))
        if box is None:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox {id} not found")
        return box

    # ------------------------------------------------------------------ the control plane

    async def ClientHello(self, _: Any, metadata: Any) -> Any:
        return api_pb2.ClientHelloResponse(image_builder_version="2025.06")

    async def AuthTokenGet(self, _: Any, metadata: Any) -> Any:
        return api_pb2.AuthTokenGetResponse(token=_jwt())

    async def EnvironmentGetOrCreate(self, _: Any, metadata: Any) -> Any:
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        return api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-1",
            metadata=api_pb2.EnvironmentMetadata(name="main", settings=settings),
        )

    async def AppGetOrCreate(self, asked: Any, metadata: Any) -> Any:
        return api_pb2.AppGetOrCreateResponse(app_id=f"ap-{asked.app_name}")

    async def SecretGetOrCreate(self, asked: Any, metadata: Any) -> Any:
        id = f"st-{secrets.token_hex(4)}"
        self._secrets[id] = dict(asked.env_dict)
        return api_pb2.SecretGetOrCreateResponse(secret_id=id)

    async def ImageGetOrCreate(self, asked: Any, metadata: Any) -> Any:
        id = f"im-{secrets.token_hex(4)}"
        bases = [line for one in asked.image.base_images for line in self.images[one.image_id]]
        self.images[id] = bases + list(asked.image.dockerfile_commands)
        result = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
        return api_pb2.ImageGetOrCreateResponse(image_id=id, result=result)

    async def SandboxCreate(self, asked: Any, metadata: Any) -> Any:
        ids = list(asked.definition.secret_ids)
        told = {name: value for id in ids for name, value in self._secrets[id].items()}
        box = await self._create(asked.definition, told)
        return api_pb2.SandboxCreateResponse(sandbox_id=box.id)

    async def SandboxCreateV2(self, asked: Any, metadata: Any) -> Any:
        told: dict[str, str] = {}
        for source in asked.secret_sources:
            told |= self._secrets[source.secret_id] if source.secret_id else {}
            told |= dict(source.env.contents)
        box = await self._create(asked.definition, told, generation=2)
        return api_pb2.SandboxCreateV2Response(sandbox_id=box.id, task_id=self._task_of(box))

    async def _create(self, definition: Any, variables: dict[str, str], generation: int = 1) -> Box:
        self.made.append(definition)
        machine = await asyncio.to_thread(Machine, variables, self.manifest)
        # The SDK tells them by the length.
        box = Box(definition, machine, f"sb-{secrets.token_hex(11 if generation == 1 else 12)}")
        self.boxes[box.id] = box
        return box

    def _task_of(self, box: Box) -> str:
        return box.id.replace("sb-", "ta-") + ("V" if len(box.id) > 25 else "")

    async def SandboxGetTaskId(self, asked: Any, metadata: Any) -> Any:
        if not self.starts:
            return api_pb2.SandboxGetTaskIdResponse(
                task_result=api_pb2.GenericResult(
                    status=api_pb2.GenericResult.GENERIC_STATUS_FAILURE,
                    exception="Image has no /bin/sh",
                )
            )
        return api_pb2.SandboxGetTaskIdResponse(task_id=self._task_of(self._box(asked.sandbox_id)))

    async def TaskGetCommandRouterAccess(self, asked: Any, metadata: Any) -> Any:
        return api_pb2.TaskGetCommandRouterAccessResponse(jwt=_jwt(), url=self.url)

    async def SandboxGetCommandRouterAccess(self, asked: Any, metadata: Any) -> Any:
        return api_pb2.SandboxGetCommandRouterAccessResponse(jwt=_jwt(), url=self.url)

    async def SandboxGetTunnels(self, asked: Any, metadata: Any) -> Any:
        box = self._box(asked.sandbox_id)
        assert [one.port for one in box.definition.open_ports.ports] == [PORT]
        port = await asyncio.to_thread(self._doors.to, box.machine.port)
        tunnel = api_pb2.TunnelData(host="127.0.0.1", port=port, container_port=PORT)
        return api_pb2.SandboxGetTunnelsResponse(tunnels=[tunnel])

    SandboxGetTaskIdV2 = SandboxGetTaskId
    SandboxGetTunnelsV2 = SandboxGetTunnels

    async def SandboxWait(self, asked: Any, metadata: Any) -> Any:
        box = self._box(asked.sandbox_id)
        result = api_pb2.GenericResult()
        if box.code is not None:
            failed = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
            result = api_pb2.GenericResult(status=failed, exitcode=box.code)
        return api_pb2.SandboxWaitResponse(result=result)

    SandboxWaitV2 = SandboxWait

    async def SandboxTerminate(self, asked: Any, metadata: Any) -> Any:
        box = self._box(asked.sandbox_id)
        await asyncio.to_thread(box.machine.destroy)
        self.boxes.pop(box.id, None)
        return api_pb2.SandboxTerminateResponse()

    SandboxTerminateV2 = SandboxTerminate

    async def SandboxGetFromName(self, asked: Any, metadata: Any) -> Any:
        for box in self.boxes.values():
            if box.definition.name == asked.sandbox_name:
                return api_pb2.SandboxGetFromNameResponse(sandbox_id=box.id)
        raise GRPCError(Status.NOT_FOUND, f"Sandbox with name {asked.sandbox_name} not found")

    SandboxGetFromNameV2 = SandboxGetFromName

    # ------------------------------------------------------------------ a command router

    async def TaskExecStart(self, asked: Any, metadata: Any) -> Any:
        box = self._box(asked.task_id)
        if box.code is not None:
            raise GRPCError(Status.FAILED_PRECONDITION, "Sandbox already completed")
        box.given[asked.exec_id] = b""
        box.ends[asked.exec_id] = asyncio.Event()
        box.ran[asked.exec_id] = asyncio.ensure_future(self._run(box, asked))
        return task_command_router_pb2.TaskExecStartResponse()

    async def _run(self, box: Box, asked: Any) -> Ran:
        command = list(asked.command_args)
        if "cat >" in command[-1]:  # the only ones that are given anything
            await box.ends[asked.exec_id].wait()
            path = re.search(r"cat >(\S+)", command[-1])
            assert path is not None
            box.machine.write(path[1], box.given[asked.exec_id])
            return Ran(0, b"", b"")
        seconds = float(asked.timeout_secs or 600)
        return await asyncio.to_thread(box.machine.run, command, seconds)

    async def _ran(self, asked: Any) -> Ran:
        ran: Ran = await asyncio.shield(self._box(asked.task_id).ran[asked.exec_id])
        if ran.code is None:
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the command took too long")
        return ran

    async def TaskExecStdinWrite(self, asked: Any, metadata: Any) -> Any:
        box = self._box(asked.task_id)
        box.given[asked.exec_id] = box.given[asked.exec_id][: asked.offset] + asked.data
        if asked.eof:
            box.ends[asked.exec_id].set()
        return task_command_router_pb2.TaskExecStdinWriteResponse()

    async def TaskExecStdioRead(self, asked: Any, metadata: Any) -> Any:
        ran = await self._ran(asked)
        is_first = asked.file_descriptor == (
            task_command_router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        )
        data = (ran.stdout if is_first else ran.stderr)[asked.offset :]
        if not data:
            return None
        return task_command_router_pb2.TaskExecStdioReadResponse(data=data)

    async def TaskExecWait(self, asked: Any, metadata: Any) -> Any:
        ran = await self._ran(asked)
        return task_command_router_pb2.TaskExecWaitResponse(code=ran.code)


def _handler(kind: Any, service: Modal) -> Any:
    """What a server of grpclib calls: methods of the service by their names, or nothing."""

    def method(name: str) -> Any:
        async def handle(self: Any, stream: Any) -> None:
            service.asked.append(name)
            metadata = stream.metadata
            asked = await stream.recv_message()
            is_control_plane = kind is ModalClientBase
            told = (metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret"))
            if is_control_plane and told != TOKEN:
                raise GRPCError(Status.UNAUTHENTICATED, "Token ID is malformed or revoked")
            for fault in service.faults:
                if fault[3] > 0 and re.fullmatch(fault[0], name):
                    fault[3] -= 1
                    raise GRPCError(fault[1], fault[2])
            answer = getattr(service, name, None)
            if answer is None:
                raise GRPCError(Status.UNIMPLEMENTED, name)
            said = await answer(asked, metadata)
            if said is not None:
                await stream.send_message(said)

        return handle

    methods = {name: method(name) for name in kind.__abstractmethods__}
    return type(f"Served{kind.__name__}", (kind,), methods)()
