"""`MCPHarnessAgent`: a harness that is an MCP server with a tool for taking turns.

codex = MCPHarnessAgent(
    HarnessConfig(name="codex", command=["codex", "mcp-server"], transport="mcp",
                  api_key_env_var="OPENAI_API_KEY"),
    tool="codex", argument="prompt",
    reply_tool="codex-reply", thread="threadId",
)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from openenv._internal.timing import Expired, within
from openenv.agents.config import HarnessConfig, HarnessTransport
from openenv.agents.errors import (
    HarnessCrashedError,
    HarnessError,
    HarnessStartupError,
    HarnessTurnError,
)
from openenv.agents.events import HarnessEvent, HarnessEventType
from openenv.agents.process import HarnessProcess
from openenv.agents.process_adapter import ProcessAdapter, fill_placeholders
from openenv.errors import OpenEnvError, how_it_ended, words
from openenv.tools.connections import ConnectionBroken, MCPConnection
from openenv.tools.results import extract_text
from openenv.tools.sources import Address, Program
from openenv.tools.transports import MCPServerProcess, connect_address, connect_process

__all__ = ["MCPHarnessAgent"]

TICK_S = 0.05
LATE_S = 0.2  # how long a process may take to end after its connection broke


class MCPHarnessAgent(ProcessAdapter):
    """A harness adapter for an MCP server that takes each turn as a tool call.

    With ``transport="mcp"`` the server uses standard input and output. With ``"http"`` it serves
    Streamable HTTP at ``http://127.0.0.1:{port}/mcp``. ``{port}`` in the command is replaced by a
    free port.

    Args:
        config: Configuration of the harness.
        tool: The tool that takes a turn.
        argument: The tool's argument for the message.
        arguments: Further constant arguments; placeholders in string values are replaced.
        reply_tool: The tool for later turns. Default: `tool`.
        thread: Key of the conversation's id in the structured result of a turn. Later turns pass
            the id as an argument with the same name.

    Raises:
        ValueError: The transport is neither ``mcp`` nor ``http``.
    """

    def __init__(
        self,
        config: HarnessConfig,
        *,
        tool: str,
        argument: str = "message",
        arguments: Mapping[str, Any] | None = None,
        reply_tool: str | None = None,
        thread: str | None = None,
    ) -> None:
        if config.transport is HarnessTransport.STDIO:
            raise ValueError("transport is 'stdio'; an MCPHarnessAgent speaks 'mcp' or 'http'")
        super().__init__(config)
        self._tool, self._reply_tool = tool, reply_tool or tool
        self._argument, self._arguments = argument, dict(arguments or {})
        self._thread_key = thread
        self._thread: Any = None
        self._turns = 0
        self._connection: MCPConnection | None = None
        self._server: MCPServerProcess | HarnessProcess | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self, working_directory: str) -> None:
        await self.stop()
        self._thread, self._turns = None, 0
        try:
            self._prepare(working_directory)
            if self.config.transport is HarnessTransport.MCP:
                server = self._server = MCPServerProcess(self._program(), self.config.name)
                speak = functools.partial(connect_process, server)
            else:
                address = Address(f"http://127.0.0.1:{await self._serve_http()}/mcp")
                speak = functools.partial(connect_address, address)
            timeout_s = self.config.startup_timeout_s
            self._connection = MCPConnection(speak, self.config.name, timeout_s)
            names = {tool["name"] for tool in await self._connection.tools()}
        except BaseException as error:
            said = self._last_words()
            await self.stop()
            if isinstance(error, OpenEnvError) and not isinstance(error, HarnessError):
                why = f"harness {self.config.name!r} was not started: {words(error)}{said}"
                raise HarnessStartupError(why) from error
            raise
        missing = {self._tool, self._reply_tool} - names
        if missing:
            await self.stop()
            raise HarnessStartupError(
                f"harness {self.config.name!r} has no tool {', '.join(sorted(missing))}; it has "
                f"{', '.join(sorted(names)) or 'none'}"
            )

    def _program(self) -> Program:
        command = fill_placeholders(self.config.command, self._placeholders())
        return Program(tuple(command), self._variables(), self._directory)

    async def _serve_http(self) -> int:
        """Start the harness on a free port, wait until it listens, and return the port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        self._server = process = self._process(self.config.command, port=str(port))
        await process.start()
        self._draining = asyncio.ensure_future(_drain(process))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.startup_timeout_s
        while not _is_open(port):
            if not process.is_running():
                how = how_it_ended(await process.wait())
                raise HarnessStartupError(
                    f"harness {self.config.name!r} ended during startup ({how}){self._last_words()}"
                )
            if loop.time() > deadline:
                raise HarnessStartupError(
                    f"harness {self.config.name!r} does not listen on its port {port} after "
                    f"{self.config.startup_timeout_s:g} s; does its command have the placeholder "
                    "{port}?"
                )
            await asyncio.sleep(TICK_S)
        return port

    async def stop(self) -> None:
        connection, self._connection = self._connection, None
        server, self._server = self._server, None
        draining, self._draining = self._draining, None
        try:
            if connection is not None:
                await connection.aclose()
        finally:
            if isinstance(server, MCPServerProcess):
                server.kill()
            elif server is not None:
                await server.stop()
            if draining is not None:
                draining.cancel()
            self._restore_mcp_config()

    async def is_alive(self) -> bool:
        return self._connection is not None

    def _last_words(self) -> str:
        server = self._server
        if isinstance(server, HarnessProcess):
            return server.last_words()
        said = "" if server is None else server.last_words
        return f". It wrote:\n{said}" if said else ""

    async def _exit_code(self) -> int | None:
        """Return the exit code of a harness that serves HTTP; None if it runs or is unknown."""
        if not isinstance(self._server, HarnessProcess):
            return None
        try:
            return await within(LATE_S, self._server.wait())
        except Expired:
            return None

    async def _turn(self, message: str) -> AsyncGenerator[HarnessEvent]:
        connection, name = self._connection, self.config.name
        assert connection is not None
        known = self._placeholders()
        arguments = {
            key: fill_placeholders([value], known)[0] if isinstance(value, str) else value
            for key, value in self._arguments.items()
        }
        arguments[self._argument] = message
        if self._thread is not None and self._thread_key is not None:
            arguments[self._thread_key] = self._thread
        tool = self._reply_tool if self._turns else self._tool
        try:
            result = await connection.call(tool, arguments)
        except OpenEnvError as error:
            code = await self._exit_code()
            if code is not None or isinstance(error, ConnectionBroken):
                how = words(error) if code is None else how_it_ended(code)
                why = f"harness {name!r} ended in the middle of a turn: {how}{self._last_words()}"
                raise HarnessCrashedError(why, code) from error
            raise HarnessTurnError(f"harness {name!r}: {tool}: {words(error)}") from error
        text = extract_text(result)
        if result.get("isError"):
            raise HarnessTurnError(f"harness {name!r}: {tool}: {text or 'it does not say why'}")
        structured = result.get("structuredContent") or {}
        if self._thread_key is not None:
            self._thread = structured.get(self._thread_key, self._thread)
        self._turns += 1
        if text:
            yield HarnessEvent(type=HarnessEventType.TEXT_OUTPUT, data={"text": text})
        yield HarnessEvent(type=HarnessEventType.TURN_COMPLETE, data={"response": text})


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(TICK_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def _drain(process: HarnessProcess) -> None:
    """Discard output, so that the process never blocks on a full pipe."""
    with contextlib.suppress(HarnessError):
        while True:
            await process.next_line()
