"""The instructions, stages, base images and arguments of a Dockerfile.

Format: https://docs.docker.com/reference/dockerfile
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

OURS = ".openenv"
"""Directory in a build context for the files that `openenv build` adds."""

LOCK = f"{OURS}/requirements.lock"

# Arguments that every build accepts undeclared: https://docs.docker.com/reference/dockerfile/#arg
PREDEFINED = re.compile(
    "(https?|ftp|no|all)_proxy|(target|build)(platform|os|arch|variant)|source_date_epoch|"
    "buildkit_.*",
    re.IGNORECASE,
)
_FROM = re.compile(r"^(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*\w+\s*=")
_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_]\w*)\2")
_FLAG = re.compile(r"--[\w-]+=(?:\"[^\"]*\"|'[^']*'|\S)*")
_KEYWORD = re.compile(r"\s*([A-Za-z]+)(?=\s|$)")
_BETWEEN_FLAGS = re.compile(r"(?:[ \t]|[\\`][ \t]*\n)*")


@dataclass(frozen=True)
class DockerfileInstruction:
    """A Dockerfile instruction, or a line between instructions.

    Attributes:
        name: The keyword in upper case, such as ``RUN``; empty for comments and empty lines.
        text: The arguments on one line, with the commands of a RUN's here-document.
        line: The first line, from 1.
        source: The text as written, including the last line's end.
    """

    name: str
    text: str
    line: int
    source: str


@dataclass(frozen=True)
class DockerfileStage:
    """A build stage of a Dockerfile.

    Attributes:
        name: The name in lower case; empty if the stage has none.
        base: The base as written: an image, or the name of another stage.
        instructions: The instructions after FROM.
    """

    name: str
    base: str
    instructions: tuple[DockerfileInstruction, ...]


@dataclass(frozen=True)
class ParsedDockerfile:
    """A Dockerfile's text and source."""

    text: str
    source: str

    @cached_property
    def instructions(self) -> tuple[DockerfileInstruction, ...]:
        """Return all instructions in order."""
        return tuple(one for one in parse_instructions(self.text) if one.name)

    @cached_property
    def stages(self) -> tuple[DockerfileStage, ...]:
        """Return the stages in order."""
        starts = [place for place, one in enumerate(self.instructions) if one.name == "FROM"]
        found = []
        for start, end in zip(starts, [*starts[1:], len(self.instructions)], strict=False):
            match = _FROM.match(self.instructions[start].text)
            base, name = (match[1], match[2] or "") if match else ("", "")
            found.append(DockerfileStage(name.lower(), base, self.instructions[start + 1 : end]))
        return tuple(found)

    @cached_property
    def final(self) -> tuple[DockerfileInstruction, ...]:
        """Return the final stage's instructions, after those of the base stages."""
        found: tuple[DockerfileInstruction, ...] = ()
        wanted: str | None = None
        for stage in reversed(self.stages):
            if wanted is None or (stage.name and stage.name == wanted):
                found, wanted = (*stage.instructions, *found), stage.base.lower()
        return found

    @property
    def is_locked(self) -> bool:
        """Return whether the Dockerfile installs the packages that `openenv build` locks."""
        return OURS in self.text

    def arguments(self) -> dict[str, str | None]:
        """Return the declared arguments and the defaults."""
        found: dict[str, str | None] = {}
        for instruction in self.instructions:
            if instruction.name == "ARG":
                for word in instruction.text.split():
                    name, has_default, default = word.partition("=")
                    if has_default or name not in found:
                        found[name] = default.strip("\"'") if has_default else None
        return found

    def undeclared(self, given: Mapping[str, str]) -> list[str]:
        """Return the given arguments that the Dockerfile does not declare."""
        known = self.arguments()
        return [name for name in given if name not in known and not PREDEFINED.fullmatch(name)]

    def bases(self, given: Mapping[str, str]) -> list[str]:
        """Return the base images, each once, without the Dockerfile's own stages."""
        values = {name: value or "" for name, value in self.arguments().items()} | dict(given)
        stages, found = {"scratch"}, []
        for stage in self.stages:
            image = _VARIABLE.sub(
                lambda one: values.get(one[1] or one[3] or "") or one[2] or "", stage.base
            ).strip("\"'")
            if image and image.lower() not in stages and image not in found:
                found.append(image)
            if stage.name:
                stages.add(stage.name)
        return found


def parse_instructions(text: str) -> Iterator[DockerfileInstruction]:
    """Yield the instructions and the lines between them; the sources join to the whole text."""
    lines = text.splitlines(keepends=True)
    escape = _escape(lines)
    at = 0
    while at < len(lines):
        line = lines[at]
        start, at = at, at + 1
        keyword = _KEYWORD.match(line)
        if keyword is None or line.lstrip().startswith("#"):
            yield DockerfileInstruction("", "", at, line)
            continue
        name, value = keyword[1].upper(), line.rstrip()
        while value.endswith(escape) and at < len(lines):
            value = value[:-1].rstrip(" \t")
            following = lines[at].strip()
            at += 1
            if following and not following.startswith("#"):
                value += f" {following}"
            else:  # a comment or an empty line does not end the instruction
                value += escape
        if name in ("RUN", "COPY", "ADD"):
            for dash, _, word in _HEREDOC.findall(value):
                while at < len(lines):
                    document_line = lines[at].rstrip("\r\n")
                    at += 1
                    if (document_line.lstrip("\t") if dash else document_line) == word:
                        break
        source = "".join(lines[start:at])
        value = value[keyword.end() :].rstrip(escape).strip()
        if name == "RUN" and "<<" in value:
            value = _with_documents(source)
        yield DockerfileInstruction(name, value, start + 1, source)


def _escape(lines: list[str]) -> str:
    for line in lines:
        if not _DIRECTIVE.match(line):
            break
        found = _ESCAPE.match(line)
        if found:
            return found[1]
    return "\\"


def _with_documents(source: str) -> str:
    text = re.sub(r"\\\n", " ", source).strip().partition(" ")[2]
    return " ; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def strip_mounts(text: str) -> str:
    """Remove the flags ``--mount`` of ``RUN``, which only BuildKit supports."""
    return "".join(
        _without_mounts(one.source) if one.name == "RUN" else one.source
        for one in parse_instructions(text)
    )


def _without_mounts(text: str) -> str:
    keyword = _KEYWORD.match(text)
    assert keyword is not None
    at, kept = keyword.end(), [keyword[0]]
    has_mounts = False
    while True:
        space = _BETWEEN_FLAGS.match(text, at)
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
