"""What a Dockerfile says of itself: the base it starts from, the arguments that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LOCK", "OURS", "Dockerfile"]

OURS = ".openenv"
"""The directory in a build's context that holds what `openenv build` adds to it."""

LOCK = f"{OURS}/requirements.lock"

# What every build takes without being told: https://docs.docker.com/reference/dockerfile/#arg
PREDEFINED = re.compile(
    "(https?|ftp|no|all)_proxy|(target|build)(platform|os|arch|variant)|source_date_epoch|"
    "buildkit_.*",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(r"^\s*([A-Za-z]+)\s+(.*)$", re.DOTALL)
_FROM = re.compile(r"^(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")


@dataclass(frozen=True)
class Dockerfile:
    """The text of a Dockerfile, and where it came from."""

    text: str
    source: str

    @property
    def is_locked(self) -> bool:
        """Whether it installs what `openenv build` has locked."""
        return OURS in self.text

    def arguments(self) -> dict[str, str | None]:
        """The arguments that it declares, and their defaults."""
        found: dict[str, str | None] = {}
        for instruction, rest in self._instructions():
            if instruction == "ARG":
                for word in rest.split():
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
        for instruction, rest in self._instructions():
            if instruction != "FROM" or not (match := _FROM.match(rest)):
                continue
            image = _VARIABLE.sub(
                lambda one: values.get(one[1] or one[3] or "") or one[2] or "", match[1]
            ).strip("\"'")
            if image.lower() not in stages and image not in found:
                found.append(image)
            if match[2]:
                stages.add(match[2].lower())
        return found

    def _instructions(self) -> list[tuple[str, str]]:
        lines = [line for line in self.text.splitlines() if not line.lstrip().startswith("#")]
        return [
            (match[1].upper(), match[2].replace("\\\n", " ").strip())
            for statement in re.split(r"(?<!\\)\n", "\n".join(lines))
            if (match := _INSTRUCTION.match(statement))
        ]
