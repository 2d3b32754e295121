"""Dockerfiles that hosted sandboxes are built from.

A provider is told of one by a name that stands for it, `register` gives the name, and `registered`
finds it again. Format: https://docs.docker.com/reference/dockerfile
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = [
    "Dockerfile",
    "Instruction",
    "instructions",
    "is_registered_name",
    "parse",
    "register",
    "registered",
    "strip_mounts",
]

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*\w+\s*=")
_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_]\w*)\2")
_FLAG = re.compile(r"--[\w-]+=(?:\"[^\"]*\"|'[^']*'|\S)*")
_KEYWORD = re.compile(r"\s*([A-Za-z]+)(?=\s|$)")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile.

    Attributes:
        keyword: Such as ``RUN``, in upper case; empty for what is none: comments, empty lines.
        value: All that follows, as one line; documents within it are left out.
        text: As it is written, with the end of its last line.
    """

    keyword: str
    value: str
    text: str


@dataclass(frozen=True)
class _Stage:
    entrypoint: str | list[str] | None = None
    command: str | list[str] | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile that was registered.

    Attributes:
        path: Where it is.
        context: The directory that ``COPY`` copies from.
        text: What is in it, without mounts.
        command: What its image runs, for a shell; None where it does not say.
        folder: Where its image runs that: ``WORKDIR``, for a shell; None where it does not say.
    """

    path: Path
    context: Path
    text: str
    command: str | None
    folder: str | None


_registered: dict[str, Dockerfile] = {}


def register(path: str, context: str | None, scheme: str) -> str:
    """Note a Dockerfile, as it is now; gives the name that stands for it.

    Args:
        path: Where it is.
        context: The directory that it copies from; its own by default.
        scheme: What the name begins with.

    Raises:
        FileNotFoundError: One of the two does not exist.
        ValueError: It is no Dockerfile.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no Dockerfile {path}")
    folder = file.parent if context is None else Path(context).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no directory {context} to copy from")
    text = file.read_text("utf-8")
    name = f"{scheme}:{file}"
    _registered[name] = parse(text, file, folder)
    return name


def is_registered_name(image: str, scheme: str) -> bool:
    """Whether a name is one that `register` gives."""
    return image.startswith(f"{scheme}:")


def registered(name: str) -> Dockerfile:
    """What a name stands for.

    Raises:
        ValueError: Nothing.
    """
    try:
        return _registered[name]
    except KeyError:
        raise ValueError(
            f"{name} has not been registered: pass what image_from_dockerfile(path) returns"
        ) from None


def parse(text: str, path: Path, context: Path) -> Dockerfile:
    """Read a Dockerfile.

    Raises:
        ValueError: It builds no image.
    """
    stages: dict[str, _Stage] = {}
    stage: _Stage | None = None
    name = ""
    for one in instructions(text):
        if one.keyword == "FROM":
            words = [word for word in one.value.split() if not word.startswith("--")]
            if not words:
                raise ValueError(f"{path}: FROM names no image")
            stage = stages.get(words[0].lower(), _Stage())
            is_named = len(words) == 3 and words[1].upper() == "AS"
            name = words[2].lower() if is_named else str(len(stages))
        elif stage is None:
            continue
        elif one.keyword == "CMD":
            stage = replace(stage, command=_form(one.value))
        elif one.keyword == "ENTRYPOINT":
            stage = replace(stage, entrypoint=_form(one.value), command=None)
        elif one.keyword == "WORKDIR":
            stage = replace(stage, folder=_joined(stage.folder, one.value))
        if stage is not None:
            stages[name] = stage
    if stage is None:
        raise ValueError(f"{path} is no Dockerfile: it has no FROM")
    folder = None if stage.folder is None else _quoted(stage.folder)
    return Dockerfile(path, context, strip_mounts(text), _command(stage), folder)


def _form(value: str) -> str | list[str] | None:
    """What CMD and ENTRYPOINT name: words, or a text for a shell."""
    try:
        words = json.loads(value)
    except ValueError:
        return value
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words or None
    return value


def _command(stage: _Stage) -> str | None:
    first, then = stage.entrypoint, stage.command
    if first is None:
        return then if then is None or isinstance(then, str) else shlex.join(then)
    if isinstance(first, str):  # a shell's, which takes no arguments
        return first
    after = ["/bin/sh", "-c", then] if isinstance(then, str) else then or []
    return shlex.join([*first, *after])


def _joined(folder: str | None, value: str) -> str:
    words = shlex.split(value) if value[:1] in "'\"" else [value]
    return posixpath.normpath(posixpath.join(folder or "/", words[0] if words else "."))


def _quoted(folder: str) -> str:
    """For a shell, which shall put in the variables of the image."""
    if "$" not in folder:
        return shlex.quote(folder)
    return '"' + re.sub(r'(["\\`])', r"\\\1", folder) + '"'


def strip_mounts(text: str) -> str:
    """Leave out the flags ``--mount`` of ``RUN``, which BuildKit alone knows."""
    return "".join(
        _without_mounts(one.text) if one.keyword == "RUN" else one.text
        for one in instructions(text)
    )


def _without_mounts(text: str) -> str:
    keyword = _KEYWORD.match(text)
    assert keyword is not None
    at, kept = keyword.end(), [keyword[0]]
    has_mounts = False
    between = re.compile(r"(?:[ \t]|[\\`][ \t]*\n)*")
    while True:
        space = between.match(text, at)
        assert space is not None
        flag = _FLAG.match(text, space.end())
        if flag is None:
            break
        if flag[0].startswith("--mount="):
            has_mounts = True
        else:
            kept.append(f" {flag[0]}")
        at = flag.end()
    if not has_mounts:
        return text
    return "".join(kept) + " " + text[space.end() :].lstrip(" \t")


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, with all that is between them: the texts make up the
    whole.
    """
    lines = text.splitlines(keepends=True)
    escape = _escape(lines)
    at = 0
    while at < len(lines):
        line = lines[at]
        start, at = at, at + 1
        keyword = _KEYWORD.match(line)
        if keyword is None or line.lstrip().startswith("#"):
            yield Instruction("", "", line)
            continue
        value = line.rstrip()
        while value.endswith(escape) and at < len(lines):
            value = value[:-1].rstrip(" \t")
            following = lines[at].strip()
            at += 1
            if following and not following.startswith("#"):
                value += f" {following}"
            else:  # a comment, or nothing, does not end it
                value += escape
        if keyword[1].upper() in ("RUN", "COPY", "ADD"):
            for dash, _, word in _HEREDOC.findall(value):
                at = _after_document(lines, at, word, bool(dash))
        written = "".join(lines[start:at])
        yield Instruction(
            keyword[1].upper(), value[keyword.end() :].rstrip(escape).strip(), written
        )


def _escape(lines: list[str]) -> str:
    for line in lines:
        if not _DIRECTIVE.match(line):
            break
        found = _ESCAPE.match(line)
        if found:
            return found[1]
    return "\\"


def _after_document(lines: list[str], at: int, word: str, is_indented: bool) -> int:
    for index in range(at, len(lines)):
        line = lines[index].rstrip("\r\n")
        if (line.lstrip("\t") if is_indented else line) == word:
            return index + 1
    return len(lines)
