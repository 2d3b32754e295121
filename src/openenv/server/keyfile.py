"""Key files: TOML with a table ``[[keys]]`` for each key; or JSON with one object per line; or only
the key of an orchestrator, as secrets are mounted.

    [[keys]]
    key = "..."                 # 16 characters or more
    role = "orchestrator"       # or agent, or observer
    name = "trainer"
    max_sessions = 64           # limits, each of which may be left out
    requests_per_s = 1000
    bytes_per_s = 10e6

    {"key": "...", "role": "agent", "name": "a", "session": "the id of its session"}

Error messages never quote the contents of a key file.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import Self

from openenv import settings
from openenv._internal.json import read_json
from openenv.errors import KeyFileError
from openenv.execution.principal import Key, KeyLimits, Keyring, Role

OPEN_TO_OTHERS = 0o027  # any access for others, write access for the group


class _KeyFileEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    key: str = Field(min_length=16)
    role: Role = Role.ORCHESTRATOR
    name: str = ""
    session: str | None = None
    max_sessions: int | None = None
    requests_per_s: float | None = None
    bytes_per_s: float | None = None

    @model_validator(mode="after")
    def _can_be_a_key(self) -> Self:
        self.to_key()
        return self

    def to_key(self) -> Key:
        limits = KeyLimits(self.max_sessions, self.requests_per_s, self.bytes_per_s)
        return Key(self.key, self.role, self.name, self.session, limits)


_ENTRIES = TypeAdapter(list[_KeyFileEntry])


def make_keyring(keys: Iterable[Key | str] | None) -> Keyring | None:
    """Make the keyring of a server.

    Args:
        keys: The keys to accept; a string is the key of an orchestrator. Default: the keys of
            OPENENV_API_KEY and OPENENV_API_KEY_FILE.

    Returns:
        The keyring; None if there are no keys and the server admits everyone.

    Raises:
        KeyFileError: The file or the variable holds no valid keys.
        TypeError: `keys` is a single string, or holds a value that is not a key.
        ValueError: A key is given twice, or a header cannot carry it.
    """
    if isinstance(keys, str | bytes):
        raise TypeError("keys is a single text; expected a list of keys: keys=[KEY]")
    found = [_as_key(key) for key in (_configured() if keys is None else keys)]
    return Keyring(found) if found else None


def _as_key(key: Any) -> Key:
    if isinstance(key, str):
        return Key(key)
    if not isinstance(key, Key):
        kind = type(key).__name__  # never the value, which may be a secret
        raise TypeError(f"keys holds a value of type {kind}; expected texts, or openenv.server.Key")
    return key


def _configured() -> Iterable[Key]:
    key, path = settings.api_key(), settings.api_key_file()
    listed = [] if path is None else read_key_file(path)
    if key is not None and key not in [one.key for one in listed]:
        try:
            yield Key(key, name="OPENENV_API_KEY")
        except ValueError as error:
            raise KeyFileError(f"OPENENV_API_KEY holds no key: {error}") from None
    yield from listed


def read_key_file(path: str | os.PathLike[str]) -> list[Key]:
    """Read a key file: TOML, JSON lines, or a single line with the key of an orchestrator.

    If the file is on a read-only file system, its permissions are not checked: container engines
    mount secrets in this way, and they decide who may read them.

    Raises:
        KeyFileError: The file cannot be read, others may read or change it, or it is invalid.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            is_posix = os.name == "posix"
            is_mounted = is_posix and os.fstatvfs(file.fileno()).f_flag & os.ST_RDONLY
            content = file.read()
    except OSError as error:
        raise KeyFileError(f"the file of keys cannot be read: {error}") from None
    if is_posix and mode & OPEN_TO_OTHERS and not is_mounted:
        raise KeyFileError(
            f"{path} holds keys, and others may read or change it (its mode is {mode & 0o777:o}); "
            f"say: chmod 600 {path}"
        )
    try:
        entries = _ENTRIES.validate_python(_parse(content.decode()))
        keys = [entry.to_key() for entry in entries]
        Keyring(keys)  # raises for a duplicate
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise KeyFileError(f"{path}: {where}: {first['msg']}") from None
    except ValueError as error:
        words = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise KeyFileError(f"{path} is no file of keys: {words}") from None
    if not keys:
        raise KeyFileError(f"{path} holds no keys")
    return keys


def _parse(text: str) -> Any:
    alone = text.strip()
    if re.fullmatch(r"[^\[{#=\n\0][^=\n\0]*={0,2}", alone):  # base64 ends in up to two "="
        return [{"key": alone}]
    if text.lstrip().startswith("{"):
        return [read_json(line) for line in text.splitlines() if line.strip()]
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    document = tomllib.loads(text)
    if document.keys() != {"keys"}:
        raise ValueError("expected tables [[keys]], and nothing else at the top")
    return document["keys"]
