"""The instructions, stages, base images and arguments of a Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from openenv.providers._dockerfiles import Instruction as Written
from openenv.providers._dockerfiles import instructions

__all__ = ["LOCK", "OURS", "ParsedDockerfile", "DockerfileInstruction", "DockerfileStage"]

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


@dataclass(frozen=True)
class DockerfileInstruction:
    """A Dockerfile instruction with a line number.

    Attributes:
        name: The keyword, such as ``RUN``.
        text: The arguments on one line, with the commands of a here-document.
        line: The first line, from 1.
    """

    name: str
    text: str
    line: int


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
        found, line = [], 1
        for one in instructions(self.text):
            if one.keyword:
                found.append(DockerfileInstruction(one.keyword, _on_one_line(one), line))
            line += one.text.count("\n")
        return tuple(found)

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


def _on_one_line(written: Written) -> str:
    """Return an instruction's arguments on one line, including a RUN's here-documents."""
    if written.keyword != "RUN" or "<<" not in written.value:
        return written.value
    text = re.sub(r"\\\n", " ", written.text).strip().partition(" ")[2]
    return " ; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
