"""The base class of adapters for harnesses that are local processes."""

from __future__ import annotations

import json
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from openenv._internal.json import read_json
from openenv.agents.adapter import AgenticHarnessAdapter
from openenv.agents.config import HarnessConfig, build_environment
from openenv.agents.errors import (
    HarnessBusyError,
    HarnessNotRunningError,
    HarnessOutputError,
    HarnessStartupError,
)
from openenv.agents.events import HarnessEvent
from openenv.agents.process import HarnessProcess
from openenv.tools.types import Tool

__all__ = ["ProcessAdapter", "fill_placeholders", "parse_event"]

MCP_URL = "OPENENV_MCP_URL"
SHOWN_CHARACTERS = 200
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class ProcessAdapter(AgenticHarnessAdapter):
    """A harness adapter that runs a process, with placeholders in its command.

    ``{mcp_url}``            URL of the environment's tools
    ``{mcp_config}``         file with that URL: `mcp_config_path`, or a temporary file
    ``{model}``              `HarnessConfig.model`
    ``{working_directory}``  the working directory

    The process also gets the URL in the environment variable OPENENV_MCP_URL. If the file
    `HarnessConfig.mcp_config_path` exists, it is extended, and restored at the end.
    """

    def __init__(self, config: HarnessConfig) -> None:
        super().__init__(config)
        self._directory = config.working_directory
        self._is_in_turn = False
        self._running: HarnessProcess | None = None
        self._url: str | None = None
        self._config_file: Path | None = None
        self._config_before: bytes | None = None
        self._config_folder: tempfile.TemporaryDirectory[str] | None = None

    def mcp_config(self, url: str | None) -> dict[str, Any]:
        """Return the content of the MCP configuration file; override for other formats."""
        return {"mcpServers": {} if url is None else {"openenv": {"type": "http", "url": url}}}

    async def inject_tools(self, tools: list[Tool], bridge_url: str | None = None) -> None:
        self._url = bridge_url

    async def stop(self) -> None:
        process, self._running = self._running, None
        if process is not None:
            await process.stop()
        self._restore_mcp_config()

    # ------------------------------------------------------------------ the MCP configuration

    def _prepare(self, working_directory: str) -> None:
        """Check the directory and write the MCP configuration.

        Raises:
            HarnessStartupError: The directory does not exist, or the MCP configuration file cannot
                be written or holds something other than a JSON object.
        """
        self._check_directory(working_directory)
        self._directory = working_directory
        self._restore_mcp_config()
        if self.config.mcp_config_path is not None:
            path = Path(working_directory) / self.config.mcp_config_path
        elif any("{mcp_config}" in part for part in self._commands()):
            self._config_folder = tempfile.TemporaryDirectory(prefix="openenv-harness-")
            path = Path(self._config_folder.name) / "mcp.json"
        else:
            return
        try:
            self._config_before = path.read_bytes() if path.exists() else None
            known = read_json(self._config_before) if self._config_before else {}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(_merge(known, self.mcp_config(self._url)), indent=2))
        except (OSError, ValueError, TypeError) as error:
            raise HarnessStartupError(
                f"mcp_config_path: {path} could not be written: {error}; name a file that may be "
                "written, with an object of JSON in it or none"
            ) from None
        self._config_file = path

    def _check_directory(self, working_directory: str) -> None:
        if not os.path.isdir(working_directory):
            raise HarnessStartupError(
                f"harness {self.config.name!r}: no directory {working_directory!r}; make it, or "
                "name another as working_directory"
            )

    def _restore_mcp_config(self) -> None:
        path, self._config_file = self._config_file, None
        folder, self._config_folder = self._config_folder, None
        before, self._config_before = self._config_before, None
        if folder is not None:
            folder.cleanup()
        elif path is not None and before is not None:
            path.write_bytes(before)
        elif path is not None:
            path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ processes and turns

    def _commands(self) -> Sequence[str]:
        """Return the parts of all commands that this adapter runs."""
        return self.config.command

    def _placeholders(self) -> dict[str, str]:
        return {
            "mcp_url": self._url or "",
            "mcp_config": "" if self._config_file is None else str(self._config_file),
            "model": self.config.model or "",
            "working_directory": self._directory,
        }

    def _variables(self) -> dict[str, str]:
        announced = {} if self._url is None else {MCP_URL: self._url}
        return {**build_environment(self.config, os.environ), **announced}

    def _process(self, command: Sequence[str], **values: str) -> HarnessProcess:
        """Create a process for a command, with placeholders replaced."""
        config = self.config
        return HarnessProcess(
            fill_placeholders(command, {**self._placeholders(), **values}),
            self._directory,
            self._variables(),
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


def _merge(known: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(known, dict):
        raise TypeError(f"it holds {type(known).__name__}, not an object")
    merged = dict(known)
    for key, value in ours.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def fill_placeholders(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace the placeholders of a command; other text in braces stays."""
    return [
        _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), part) for part in command
    ]


def parse_event(line: str) -> HarnessEvent:
    """Parse a line as an event.

    Raises:
        HarnessOutputError: The line is not an event.
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
