"""What adapters have in common whose harness is a process of this machine."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from openenv.agents.adapter import AgenticHarnessAdapter
from openenv.agents.config import HarnessConfig, environment_of
from openenv.agents.errors import (
    HarnessBusyError,
    HarnessNotRunningError,
    HarnessOutputError,
    HarnessStartupError,
)
from openenv.agents.events import HarnessEvent
from openenv.agents.injection import Injection, filled, mcp_servers
from openenv.agents.process import HarnessProcess
from openenv.tools.types import Tool

__all__ = ["ProcessAdapter", "event_in"]

SHOWN_CHARACTERS = 200


class ProcessAdapter(AgenticHarnessAdapter):
    """Drives a harness that is a process. Placeholders in its command are replaced:

    ``{mcp_url}``            where the environment's tools are served
    ``{mcp_config}``         the file that says so: that of `mcp_config_path`, or a temporary one
    ``{model}``              `HarnessConfig.model`
    ``{working_directory}``  where it runs

    It also gets the first of them as the environment variable OPENENV_MCP_URL.
    """

    def __init__(self, config: HarnessConfig) -> None:
        super().__init__(config)
        self._injection = Injection(config, self.mcp_config)
        self._directory = config.working_directory
        self._is_in_turn = False

    def mcp_config(self, url: str | None) -> dict[str, Any]:
        """What stands in the file of MCP servers; override it for a harness that reads another
        form.
        """
        return mcp_servers(url)

    async def inject_tools(self, tools: list[Tool], bridge_url: str | None = None) -> None:
        self._injection.offer(tools, bridge_url)

    def _prepare(self, working_directory: str) -> None:
        """Write what the harness is to find.

        Raises:
            HarnessStartupError: It cannot be written, or there is no such directory.
        """
        self._directory = working_directory
        check_directory(self.config, working_directory)
        is_wanted = any("{mcp_config}" in part for part in self._commands())
        self._injection.write(working_directory, is_wanted=is_wanted)

    def _commands(self) -> Sequence[str]:
        """The parts of every command that is run."""
        return self.config.command

    def _process(self, command: Sequence[str], **values: str) -> HarnessProcess:
        """A process of `command`, whose placeholders are replaced by what is known and `values`."""
        config = self.config
        known = self._injection.placeholders(self._directory)
        return HarnessProcess(
            filled(command, {**known, **values}),
            self._directory,
            {**environment_of(config, os.environ), **self._injection.variables},
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
        """The events of one turn."""

    def _why_not_alive(self) -> str:
        return f"harness {self.config.name!r} is not running: start it first"


def check_directory(config: HarnessConfig, working_directory: str) -> None:
    """See that there is such a directory.

    Raises:
        HarnessStartupError: There is none.
    """
    if not os.path.isdir(working_directory):
        raise HarnessStartupError(
            f"harness {config.name!r}: no directory {working_directory!r}; make it, or name "
            "another as working_directory"
        )


def event_in(line: str) -> HarnessEvent:
    """The event that a line is.

    Raises:
        HarnessOutputError: It is none.
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
