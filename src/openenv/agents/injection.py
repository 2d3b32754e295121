"""Injection of an environment's tools into a harness: by file, variable or command line."""

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

__all__ = ["Injection", "fill_placeholders", "mcp_servers"]

MCP_URL = "OPENENV_MCP_URL"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def mcp_servers(url: str | None) -> dict[str, Any]:
    """Return the usual form: ``{"mcpServers": {"openenv": {"type": "http", "url": ...}}}``."""
    return {"mcpServers": {} if url is None else {"openenv": {"type": "http", "url": url}}}


class Injection:
    """The tools of an environment in the form that a harness reads.

    If the file of `HarnessConfig.mcp_config_path` exists, its content is extended, and restored at
    the end.

    Args:
        config: Configuration of the harness.
        written: Returns the content of the file for the URL of the tools.
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
        """Set the tools and the URL."""
        self.tools, self.url = list(tools), url

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that announce the tools."""
        return {} if self.url is None else {MCP_URL: self.url}

    def placeholders(self, working_directory: str) -> dict[str, str]:
        """Return the values of ``{mcp_url}``, ``{mcp_config}`` and so on in a command."""
        return {
            "mcp_url": self.url or "",
            "mcp_config": "" if self._path is None else str(self._path),
            "model": self._config.model or "",
            "working_directory": working_directory,
        }

    def write(self, working_directory: str, *, is_wanted: bool) -> None:
        """Write the configured file, or a temporary file if `is_wanted`.

        Raises:
            HarnessStartupError: The file cannot be written, or its content is no JSON object.
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
            path.write_text(json.dumps(_merge(known, self._written(self.url)), indent=2))
        except (OSError, ValueError, TypeError) as error:
            raise HarnessStartupError(
                f"mcp_config_path: {path} could not be written: {error}; name a file that may be "
                "written, with an object of JSON in it or none"
            ) from None
        self._path = path

    def remove(self) -> None:
        """Restore the file. Idempotent."""
        path, self._path = self._path, None
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        elif path is not None and self._before is not None:
            path.write_bytes(self._before)
        elif path is not None:
            path.unlink(missing_ok=True)
        self._before = None


def _merge(known: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(known, dict):
        raise TypeError(f"it holds {type(known).__name__}, not an object")
    merged = dict(known)
    for key, value in ours.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def fill_placeholders(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace the placeholders of a command; other braces stay."""

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    return [_PLACEHOLDER.sub(value, part) for part in command]
