"""`CLIHarnessAgent`: a harness with a command that runs for each turn.

claude = CLIHarnessAgent(
    HarnessConfig(
        name="claude-code",
        command=["claude", "-p", "{message}", "--session-id", "{session}",
                 "--mcp-config", "{mcp_config}"],
        api_key_env_var="ANTHROPIC_API_KEY",
    ),
    resume=["claude", "-p", "{message}", "--resume", "{session}",
            "--mcp-config", "{mcp_config}"],
)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Literal

from openenv.agents.config import HarnessConfig
from openenv.agents.errors import (
    HarnessCrashedError,
    HarnessNotRunningError,
    HarnessOutputTooLarge,
    HarnessStartupError,
    HarnessTurnError,
)
from openenv.agents.events import HarnessEvent, HarnessEventType
from openenv.agents.process import HarnessProcess
from openenv.agents.process_adapter import ProcessAdapter, parse_event
from openenv.errors import how_it_ended

__all__ = ["CLIHarnessAgent", "ParseLine"]

ParseLine = Callable[[str], Iterable[HarnessEvent]]
"""Parses a line of a command's standard output into events."""


class CLIHarnessAgent(ProcessAdapter):
    """A harness adapter that runs a command for each turn.

    In addition to the placeholders of `ProcessAdapter`, commands may contain ``{message}`` and
    ``{session}``. Without ``{message}``, the message is written to the command's standard input.
    ``{session}`` is an id by which the command can find its conversation again. Nothing is kept
    between turns except what the command stores itself.

    A turn is complete when the command has exited with code 0.

    Args:
        config: Configuration of the harness; `command` is the command of the first turn.
        resume: The command of later turns. Default: the command of the first turn.
        output: The format of standard output: ``"text"``, which is the response; ``"events"``, a
            `HarnessEvent` as JSON per line; or a function that parses each line into events. The
            response comes from the ``turn_complete`` event, or else is the text output.
        session_of: Reads the conversation's id from a line, if the command chooses the id; returns
            None for other lines.
    """

    def __init__(
        self,
        config: HarnessConfig,
        *,
        resume: Sequence[str] | None = None,
        output: Literal["text", "events"] | ParseLine = "text",
        session_of: Callable[[str], str | None] | None = None,
    ) -> None:
        super().__init__(config)
        self._resume = list(config.command if resume is None else resume)
        parsers: dict[object, ParseLine] = {"text": _text_event, "events": _parse_events}
        self._parse: ParseLine = parsers.get(output) or output  # type: ignore[assignment]
        self._session_of = session_of
        self._session: str | None = None
        self._turns = 0

    def _commands(self) -> Sequence[str]:
        return [*self.config.command, *self._resume]

    async def start(self, working_directory: str) -> None:
        await self.stop()
        self._check_directory(working_directory)
        variables = self._variables()
        for program in dict.fromkeys((self.config.command[0], self._resume[0])):
            path = os.path.join(working_directory, program) if os.sep in program else program
            if shutil.which(path, path=variables.get("PATH")) is None:
                raise HarnessStartupError(
                    f"harness {self.config.name!r}: no program {program!r}; install it where the "
                    "environment runs (in its Dockerfile), or give its full path"
                )
        self._prepare(working_directory)
        self._session, self._turns = str(uuid.uuid4()), 0

    async def stop(self) -> None:
        self._session = None
        await super().stop()

    async def is_alive(self) -> bool:
        return self._session is not None

    async def _turn(self, message: str) -> AsyncGenerator[HarnessEvent]:
        command = self._resume if self._turns else self.config.command
        is_asked = any("{message}" in part for part in command)
        process = self._process(command, message=message, session=self._session or "")
        self._running = process
        try:
            await process.start()
            if not is_asked:
                # The command may have ended without reading; its exit code is checked below.
                with contextlib.suppress(HarnessNotRunningError):
                    await process.write_line(message)
            await process.close_input()
            last: HarnessEvent | None = None
            said: list[str] = []
            async for event in self._events(process):
                if event.type is HarnessEventType.TURN_COMPLETE:
                    last = event
                else:
                    if event.type is HarnessEventType.TEXT_OUTPUT:
                        said.append(str(event.data.get("text", "")))
                    yield event
            if (code := await process.wait()) != 0:
                why = f"harness {self.config.name!r}: its command failed: {how_it_ended(code)}"
                why += process.last_words()
                raise HarnessCrashedError(why, code) if code < 0 else HarnessTurnError(why)
        finally:
            await process.stop()  # also ends background processes
            self._running = None
        self._turns += 1
        told = {"response": "".join(said).rstrip("\n")}
        yield last or HarnessEvent(type=HarnessEventType.TURN_COMPLETE, data=told)

    async def _events(self, process: HarnessProcess) -> AsyncGenerator[HarnessEvent]:
        size, limit = 0, self.config.max_output_bytes
        while True:
            try:
                line = await process.next_line()
            except HarnessCrashedError:  # end of output
                return
            size += len(line)
            if size > limit:
                raise HarnessOutputTooLarge(
                    f"harness {self.config.name!r} wrote over {limit} bytes in one turn; raise "
                    "max_output_bytes of its HarnessConfig, or have it write less"
                )
            if self._session_of is not None:
                self._session = self._session_of(line) or self._session
            for event in self._parse(line):
                yield event


def _text_event(line: str) -> Iterable[HarnessEvent]:
    return [HarnessEvent(type=HarnessEventType.TEXT_OUTPUT, data={"text": f"{line}\n"})]


def _parse_events(line: str) -> Iterable[HarnessEvent]:
    return [parse_event(line)] if line.strip() else []
