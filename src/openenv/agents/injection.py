"""How a harness learns of the environment's tools: a file, a variable, or its command."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openenv._internal.json import read_json
from openenv.agents.config import HarnessConfig
from openenv.agents.errors import HarnessStartupError
from openenv.tools.types import Tool

__all__ = ["Injection", "filled", "mcp_servers"]

MCP_URL = "OPENENV_MCP_URL"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def mcp_servers(url: str | None) -> dict[str, Any]:
    """What most harnesses read: ``{"mcpServers": {"openenv": {"type": "http", "url": ...}}}``."""
    return {"mcpServers": {} if url is None else {"openenv": {"type": "http", "url": url}}}


class Injection:
    """The environment's tools, as one harness is told of them.

    Where the file of `HarnessConfig.mcp_config_path` is there already, what it holds stays, and it
    is put back at the end.

    Args:
        config: Of the harness.
        written: What stands in the file, for the URL that the tools are served at.
    """

    def __init__(
        self,
        config: HarnessConfig,
        written: Callable[[str | None], dict[str, Any]] = mcp_servers,
    ) -> None:
        self._config = config
        self._written = written
        self.tools: list[Tool] = []
        self.url: str | None = None
        self._path: Path | None = None
        self._before: bytes | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def offer(self, tools: Sequence[Tool], url: str | None) -> None:
        """Note what the environment offers, and where."""
        self.tools, self.url = list(tools), url

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that tell of it."""
        return {} if self.url is None else {MCP_URL: self.url}

    def placeholders(self, working_directory: str) -> dict[str, str]:
        """What stands for ``{mcp_url}``, ``{mcp_config}`` and so on in a command."""
        return {
            "mcp_url": self.url or "",
            "mcp_config": "" if self._path is None else str(self._path),
            "model": self._config.model or "",
            "working_directory": working_directory,
        }

    def write(self, working_directory: str, *, is_wanted: bool) -> None:
        """Write the file, if the configuration names one, or `is_wanted` in a place of its own.

        Raises:
            HarnessStartupError: It cannot be written, or what is there is no object of JSON.
        """
        self.remove()
        if self._config.mcp_config_path is not None:
            path = Path(working_directory) / self._config.mcp_config_path
        elif is_wanted:
            self._folder = tempfile.TemporaryDirectory(prefix="openenv-harness-")
            path = Path(self._folder.name) / "mcp.json"
        else:
            return
        try:
            self._before = path.read_bytes() if path.exists() else None
            known = read_json(self._before) if self._before else {}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(_merged(known, self._written(self.url)), indent=2))
        except (OSError, ValueError, TypeError) as error:
            raise HarnessStartupError(
                f"mcp_config_path: {path} could not be written: {error}; name a file that may be "
                "written, with an object of JSON in it or none"
            ) from None
        self._path = path

    def remove(self) -> None:
        """Put the file back as it was. Safe to repeat."""
        path, self._path = self._path, None
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        elif path is not None and self._before is not None:
            path.write_bytes(self._before)
        elif path is not None:
            path.unlink(missing_ok=True)
        self._before = None


def _merged(known: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(known, dict):
        raise TypeError(f"it holds {type(known).__name__}, not an object")
    merged = dict(known)
    for key, value in ours.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def filled(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command with its placeholders replaced; braces around any other word stay."""

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    return [_PLACEHOLDER.sub(value, part) for part in command]
