"""Definitions of MCP servers: command lines, URLs, ``mcp.json`` files and server objects.

The format of ``mcp.json`` is that of Claude Code and Cursor:

    {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${T}"}},
                    "search": {"type": "http", "url": "https://...", "headers": {...}}}}

``${NAME}``, ``${NAME:-default}`` and ``${env:NAME}`` are replaced by environment variables.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.redaction import redact, register_secret, register_secrets_of
from openenv.tools.servers import is_server


@dataclass(frozen=True)
class Program:
    """An MCP server that runs as a process and talks over stdin and stdout.

    Attributes:
        command: The program and its arguments.
        env: Environment variables in addition to PATH, HOME and similar defaults.
        cwd: The working directory; None for that of this process.
    """

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None

    def __post_init__(self) -> None:
        register_secrets_of(self.env)
        register_secrets_of(_options(self.command))

    def __str__(self) -> str:
        return redact(shlex.join(self.command))


@dataclass(frozen=True)
class Address:
    """An MCP server that is reached by Streamable HTTP.

    Attributes:
        url: The URL.
        headers: Headers of every request.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for value in self.headers.values():
            register_secret(value)
            register_secret(value.rpartition(" ")[2])  # without the "Bearer"

    def __str__(self) -> str:
        return redact(self.url)


@dataclass(frozen=True)
class InProcess:
    """A server object of FastMCP or the official SDK in this process, or a factory of such objects.

    Attributes:
        server: The server object, or a function that makes one.
    """

    server: Any

    @property
    def is_shared(self) -> bool:
        """True if all sessions share the server object."""
        return is_server(self.server)

    def __str__(self) -> str:
        return getattr(self.server, "__name__", None) or type(self.server).__name__


Source = Program | Address | InProcess


@dataclass(frozen=True)
class _Defaults:
    """Default options for servers that have none."""

    env: Mapping[str, str]
    cwd: str | None
    headers: Mapping[str, str]


def read_sources(
    *sources: Any,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Source]:
    """Read definitions of MCP servers, by name.

    Args:
        sources: The servers, in any form that `openenv.tools.wrap` accepts.
        env: Environment variables for every process.
        cwd: Working directory of processes that have none.
        headers: Headers of every HTTP request.

    Raises:
        ValueError: A definition is incomplete or contradictory.
        TypeError: A value cannot be an MCP server.
    """
    defaults = _Defaults(dict(env or {}), None if cwd is None else os.fspath(cwd), headers or {})
    found: dict[str, Source] = {}
    for name, one in (named for source in sources for named in _read(source, defaults)):
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = one
    if not found:
        raise ValueError("no MCP server given; expected at least one")
    return found


def _read(source: Any, defaults: _Defaults) -> Iterable[tuple[str, Source]]:
    if isinstance(source, Program | Address | InProcess):
        return _with_name(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _names_file(source)):
        return _of_file(Path(source), defaults)
    if isinstance(source, str):
        return _with_name(_of_text(source, defaults))
    if isinstance(source, Mapping):
        return _of_mapping(source, defaults)
    if isinstance(source, Sequence):
        return _of_sequence(source, defaults)
    if is_server(source) or callable(source):
        return _with_name(InProcess(source))
    raise TypeError(
        f"{type(source).__name__} is no MCP server; expected a command line, a list of arguments, "
        "a URL, an mcp.json, a server of FastMCP or of the official SDK, a function that makes "
        "one, or a dict or a list of several of these"
    )


def _names_file(text: str) -> bool:
    return text.endswith(".json") and not text.startswith(("http://", "https://"))


def _of_text(text: str, defaults: _Defaults) -> Source:
    if text.startswith(("http://", "https://")):
        return Address(text, defaults.headers)
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{redact(text)!r} is no command line: {error}") from None
    return _program(command, defaults)


def _program(command: Sequence[str], defaults: _Defaults) -> Program:
    if not command:
        raise ValueError("an empty command line starts no MCP server")
    return Program(tuple(command), defaults.env, defaults.cwd)


def _of_sequence(source: Sequence[Any], defaults: _Defaults) -> Iterable[tuple[str, Source]]:
    if not all(isinstance(one, str) for one in source):
        return [named for one in source for named in _read(one, defaults)]
    command = _program(source, defaults)
    program = command.command[0]
    if "://" in program or (re.search(r"\s", program) and not os.path.exists(program)):
        raise ValueError(
            f"a list of strings is the command line of one program, but {redact(program)!r} is no "
            "program; several servers are a dict: {name: command line or URL}"
        )
    return _with_name(command)


def _of_mapping(source: Mapping[str, Any], defaults: _Defaults) -> Iterable[tuple[str, Source]]:
    if "mcpServers" in source:
        return _of_entries(source["mcpServers"], "mcpServers", defaults)
    if {"command", "url"} & source.keys() and all(
        key not in source or isinstance(source[key], str) for key in ("command", "url")
    ):
        return _with_name(_of_entry(source, "the server", defaults))
    found: list[tuple[str, Source]] = []
    for name, one in source.items():
        if isinstance(one, Mapping):
            found += _of_entries({name: one}, "the servers", defaults)
            continue
        inner = [source for _, source in _read(one, defaults)]
        if len(inner) != 1:
            raise ValueError(f"{name!r} defines {len(inner)} servers; expected one per name")
        found.append((str(name), inner[0]))
    return found


def _of_file(path: Path, defaults: _Defaults) -> Iterable[tuple[str, Source]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict) or "mcpServers" not in content:
        raise ValueError(f'{path} has no "mcpServers"; expected an mcp.json as Claude Code has it')
    return _of_entries(content["mcpServers"], str(path), defaults)


def _of_entries(entries: Any, where: str, defaults: _Defaults) -> Iterable[tuple[str, Source]]:
    if not isinstance(entries, Mapping):
        raise ValueError(f"{where}: expected an object of servers by their names")
    return [
        (str(name), _of_entry(entry, f"{where}: {name}", defaults))
        for name, entry in entries.items()
        if not (isinstance(entry, Mapping) and entry.get("disabled") is True)
    ]


def _of_entry(entry: Any, where: str, defaults: _Defaults) -> Source:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}: expected an object with a command or a url")
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise ValueError(f"{where}: type 'sse' is not supported; expected stdio or http")
    if "url" in entry and "command" not in entry:
        headers = _texts(entry.get("headers", {}), f"{where}.headers")
        return Address(_text(entry["url"], f"{where}.url"), {**defaults.headers, **headers})
    if "command" not in entry or "url" in entry:
        raise ValueError(f"{where}: expected either a command or a url; got {sorted(entry)}")
    args = entry.get("args", [])
    if not isinstance(args, list | tuple):
        raise ValueError(f"{where}.args: expected a list of texts; got {type(args).__name__}")
    given = [_text(one, f"{where}.args") for one in args]
    cwd = entry.get("cwd")
    return Program(
        (_text(entry["command"], f"{where}.command"), *given),
        {**defaults.env, **_texts(entry.get("env", {}), f"{where}.env")},
        defaults.cwd if cwd is None else _text(cwd, f"{where}.cwd"),
    )


def _texts(values: Any, where: str) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected an object of texts; got {type(values).__name__}")
    return {str(name): _text(value, f"{where}.{name}") for name, value in values.items()}


_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>\w+)(?P<default>:-[^}]*)?\}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: expected a text; got {type(value).__name__}")

    def filled(match: re.Match[str]) -> str:
        found = os.environ.get(match["name"])
        if found is None and match["default"] is None:
            raise ValueError(f"{where}: environment variable {match['name']} is not set")
        return (match["default"] or "")[2:] if found is None else found

    return _VARIABLE.sub(filled, value)


def _options(command: Sequence[str]) -> dict[str, str]:
    """Return the options of a command line with their values, as far as they are recognizable."""
    options = {}
    for number, one in enumerate(command[1:], 1):
        name, equals, value = one.partition("=")
        if equals:
            options[name] = value
        elif one.startswith("-") and number + 1 < len(command):
            options[one] = command[number + 1]
    return options


# ------------------------------------------------------------------ names

# Programs that start others, so that their names say nothing about the server.
LAUNCHERS = re.compile(
    r"(npx(-cli\.js)?|npm|node|bunx?|deno|pnpm|uvx?|pipx|python[\d.]*|docker|podman|env|bash|sh|exec|run|tool)"
)


def _with_name(source: Source) -> list[tuple[str, Source]]:
    """Return a source with a short name: the program's, package's, host's or function's."""
    if isinstance(source, Address):
        name = urlsplit(source.url).hostname or "server"
    elif isinstance(source, InProcess):
        name = str(getattr(source.server, "name", None) or source)
    else:
        words = (one for one in source.command if not one.startswith("-") and "=" not in one)
        chosen = (one for one in words if not LAUNCHERS.fullmatch(_last(one)))
        program = _last(next(chosen, source.command[0]))
        name = re.sub(r"(?<=.)@[\w.^~-]*$|\.(py|m?js|ts|exe)$", "", program)
    return [(re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "server", source)]


def _last(path: str) -> str:
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2]
