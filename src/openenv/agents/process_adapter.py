"""The base class of adapters for harnesses that are local processes."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from openenv.agents.adapter import AgenticHarnessAdapter
from openenv.agents.config import HarnessConfig, build_environment
from openenv.agents.errors import (
    HarnessBusyError,
    HarnessNotRunningError,
    HarnessOutputError,
    HarnessStartupError,
)
from openenv.agents.events import HarnessEvent
from openenv.agents.injection import Injection, fill_placeholders, mcp_servers
from openenv.agents.process import HarnessProcess
from openenv.tools.types import Tool

__all__ = ["ProcessAdapter", "parse_event"]

SHOWN_CHARACTERS = 200


class ProcessAdapter(AgenticHarnessAdapter):
    """A driver of a harness process, with placeholders in the command.

    ``{mcp_url}``            URL of the environment's tools
    ``{mcp_config}``         file with that URL: that of `mcp_config_path`, or a temporary file
    ``{model}``              `HarnessConfig.model`
    ``{working_directory}``  the working directory

    The process also gets the URL as the environment variable OPENENV_MCP_URL.
    """

    def __init__(self, config: HarnessConfig) -> None:
        super().__init__(config)
        self._injection = Injection(config, self.mcp_config)
        self._directory = config.working_directory
        self._is_in_turn = False

    def mcp_config(self, url: str | None) -> dict[str, Any]:
        """Return the content of the MCP configuration file; override for other formats."""
        return mcp_servers(url)

    async def inject_tools(self, tools: list[Tool], bridge_url: str | None = None) -> None:
        self._injection.offer(tools, bridge_url)

    def _prepare(self, working_directory: str) -> None:
        """Check the directory and write the MCP configuration.

        Raises:
            HarnessStartupError: The file cannot be written, or the directory does not exist.
        """
        self._directory = working_directory
        check_directory(self.config, working_directory)
        is_wanted = any("{mcp_config}" in part for part in self._commands())
        self._injection.write(working_directory, is_wanted=is_wanted)

    def _commands(self) -> Sequence[str]:
        """Return the parts of all commands that are run."""
        return self.config.command

    def _process(self, command: Sequence[str], **values: str) -> HarnessProcess:
        """Make a process for a command, with placeholders replaced."""
        config = self.config
        known = self._injection.placeholders(self._directory)
        return HarnessProcess(
            fill_placeholders(command, {**known, **values}),
            self._directory,
            {**build_environment(config, os.environ), **self._injection.variables},
            config.startup_timeout_s,
            config.terminate_grace_s,
            max_line_bytes=config.max_output_bytes,
        )

    async def send_message_streaming(self, message: str) -> AsyncIterator[HarnessEvent]:
        if self._is_in_turn:
            raise HarnessBusyError(
                f"harness {self.config.name!r}: a turn is running; wait for its 'turn_complete'"
            )
        if not await self.is_alive():
            raise HarnessNotRunningError(self._why_not_alive())
        self._is_in_turn = True
        try:
            async with aclosing(self._turn(message)) as events:
                async for event in events:
                    yield event
        finally:
            self._is_in_turn = False

    @abstractmethod
    def _turn(self, message: str) -> AsyncGenerator[HarnessEvent]:
        """Run a turn and yield the events."""

    def _why_not_alive(self) -> str:
        return f"harness {self.config.name!r} is not running: start it first"


def check_directory(config: HarnessConfig, working_directory: str) -> None:
    """Check that the directory exists.

    Raises:
        HarnessStartupError: The directory does not exist.
    """
    if not os.path.isdir(working_directory):
        raise HarnessStartupError(
            f"harness {config.name!r}: no directory {working_directory!r}; make it, or name "
            "another as working_directory"
        )


def parse_event(line: str) -> HarnessEvent:
    """Parse a line as an event.

    Raises:
        HarnessOutputError: The line is no event.
    """
    try:
        return HarnessEvent.model_validate(from_json(line))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "(line)"
        why = f"{where}: {first['msg']}"
    except ValueError as error:
        why = f"no JSON ({error})"
    raise HarnessOutputError(
        f"the harness wrote a line that is no event: {line[:SHOWN_CHARACTERS]!r}: {why}. Expected "
        'an object a line, such as {"type": "text_output", "data": {"text": "..."}}; have it write '
        "anything else to standard error"
    )
