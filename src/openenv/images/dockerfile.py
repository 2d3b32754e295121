"""What a Dockerfile says of itself: its stages, their bases, the arguments that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from openenv.providers._dockerfiles import Instruction as Written
from openenv.providers._dockerfiles import instructions

__all__ = ["LOCK", "OURS", "Dockerfile", "Instruction", "Stage"]

OURS = ".openenv"
"""The directory in a build's context that holds what `openenv build` adds to it."""

LOCK = f"{OURS}/requirements.lock"

# What every build takes without being told: https://docs.docker.com/reference/dockerfile/#arg
PREDEFINED = re.compile(
    "(https?|ftp|no|all)_proxy|(target|build)(platform|os|arch|variant)|source_date_epoch|"
    "buildkit_.*",
    re.IGNORECASE,
)
_FROM = re.compile(r"^(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: Such as ``RUN``.
        text: What follows it, on one line; so are the commands of a here-document.
        line: The line that it begins on, from 1.
    """

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: In small letters; empty where it has none.
        base: What it starts from, as it is written: an image, or the name of another stage.
        instructions: What it consists of, without its FROM.
    """

    name: str
    base: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Dockerfile:
    """The text of a Dockerfile, and where it came from."""

    text: str
    source: str

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All that it says, in its order."""
        found, line = [], 1
        for one in instructions(self.text):
            if one.keyword:
                found.append(Instruction(one.keyword, _on_one_line(one), line))
            line += one.text.count("\n")
        return tuple(found)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its stages, in their order."""
        starts = [place for place, one in enumerate(self.instructions) if one.name == "FROM"]
        found = []
        for start, end in zip(starts, [*starts[1:], len(self.instructions)], strict=False):
            match = _FROM.match(self.instructions[start].text)
            base, name = (match[1], match[2] or "") if match else ("", "")
            found.append(Stage(name.lower(), base, self.instructions[start + 1 : end]))
        return tuple(found)

    @cached_property
    def final(self) -> tuple[Instruction, ...]:
        """What its image is made by: the last stage, after those that it is built on."""
        found: tuple[Instruction, ...] = ()
        wanted: str | None = None
        for stage in reversed(self.stages):
            if wanted is None or (stage.name and stage.name == wanted):
                found, wanted = (*stage.instructions, *found), stage.base.lower()
        return found

    @property
    def is_locked(self) -> bool:
        """Whether it installs what `openenv build` has locked."""
        return OURS in self.text

    def arguments(self) -> dict[str, str | None]:
        """The arguments that it declares, and their defaults."""
        found: dict[str, str | None] = {}
        for instruction in self.instructions:
            if instruction.name == "ARG":
                for word in instruction.text.split():
                    name, has_default, default = word.partition("=")
                    if has_default or name not in found:
                        found[name] = default.strip("\"'") if has_default else None
        return found

    def undeclared(self, given: Mapping[str, str]) -> list[str]:
        """Which of the arguments given it does not know."""
        known = self.arguments()
        return [name for name in given if name not in known and not PREDEFINED.fullmatch(name)]

    def bases(self, given: Mapping[str, str]) -> list[str]:
        """The images that it starts from, each once: stages of its own are none."""
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
    """What follows an instruction; of a RUN the here-documents too, which are its commands."""
    if written.keyword != "RUN" or "<<" not in written.value:
        return written.value
    text = re.sub(r"\\\n", " ", written.text).strip().partition(" ")[2]
    return " ; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
