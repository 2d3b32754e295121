"""`CLIHarnessAgent`: a harness whose command line is run once a turn.

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

from openenv.agents.config import HarnessConfig, environment_of
from openenv.agents.errors import (
    HarnessCrashedError,
    HarnessNotRunningError,
    HarnessOutputTooLarge,
    HarnessStartupError,
    HarnessTurnError,
)
from openenv.agents.events import HarnessEvent, HarnessEventType
from openenv.agents.process import HarnessProcess
from openenv.agents.running import ProcessAdapter, check_directory, event_in
from openenv.errors import how_it_ended

__all__ = ["CLIHarnessAgent", "ParseLine"]

ParseLine = Callable[[str], Iterable[HarnessEvent]]
"""Makes events of a line that a command writes to standard output."""


class CLIHarnessAgent(ProcessAdapter):
    """Drives a harness by running its command once a turn, to its end.

    Beside those of `ProcessAdapter` its commands have the placeholders ``{message}`` (without it,
    the message is the command's standard input) and ``{session}``, an id of the episode by which
    the command may know its conversation again. What it does not store is not kept between turns.

    A turn is complete when the command has ended with exit code 0.

    Args:
        config: How it is run; `command` is that of the first turn.
        resume: The command of each later turn; by default the same.
        output: What it writes to standard output: ``"text"``, which is the response; ``"events"``,
            a `HarnessEvent` as JSON a line; or a function that makes events of each line. The
            response is that of its ``turn_complete`` event, or else the texts that it told of.
        session_of: Takes the id of the conversation from a line, where the command chooses it;
            None is a line that does not say.
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
        self._parse: ParseLine = {"text": _text, "events": _event}.get(output) or output  # type: ignore[arg-type,assignment]
        self._session_of = session_of
        self._session: str | None = None
        self._turns = 0
        self._running: HarnessProcess | None = None

    def _commands(self) -> Sequence[str]:
        return [*self.config.command, *self._resume]

    async def start(self, working_directory: str) -> None:
        await self.stop()
        check_directory(self.config, working_directory)
        variables = environment_of(self.config, os.environ)
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
        process, self._running = self._running, None
        if process is not None:
            await process.stop()
        self._injection.remove()

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
                # One that does not read may be done already: its exit code tells how it went.
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
            self._check(await process.wait(), process)
        finally:
            await process.stop()  # also what it has left in the background
            self._running = None
        self._turns += 1
        yield last or _complete("".join(said))

    async def _events(self, process: HarnessProcess) -> AsyncGenerator[HarnessEvent]:
        size, limit = 0, self.config.max_output_bytes
        while True:
            try:
                line = await process.next_line()
            except HarnessCrashedError:  # its output has ended
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

    def _check(self, code: int, process: HarnessProcess) -> None:
        """Refuse a turn whose command has failed.

        Raises:
            HarnessTurnError: It says so by its exit code.
            HarnessCrashedError: A signal has ended it.
        """
        if code == 0:
            return
        why = f"harness {self.config.name!r}: its command failed: {how_it_ended(code)}"
        why += process.last_words()
        raise HarnessCrashedError(why, code) if code < 0 else HarnessTurnError(why)


def _text(line: str) -> Iterable[HarnessEvent]:
    return [HarnessEvent(type=HarnessEventType.TEXT_OUTPUT, data={"text": f"{line}\n"})]


def _event(line: str) -> Iterable[HarnessEvent]:
    return [event_in(line)] if line.strip() else []


def _complete(text: str) -> HarnessEvent:
    return HarnessEvent(type=HarnessEventType.TURN_COMPLETE, data={"response": text.rstrip("\n")})
