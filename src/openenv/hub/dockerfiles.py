"""Changing a Dockerfile for a Space: what its image starts from, and that it shows the web page."""

from __future__ import annotations

import re

from openenv.hub.errors import StructureError
from openenv.images.dockerfile import Dockerfile, Instruction

__all__ = ["with_base", "with_interface"]

VARIABLE = "ENABLE_WEB_INTERFACE"
_BASE = re.compile(
    r"(?P<before>\s*FROM\s+(?:--\S+\s+)*)(?P<base>\S+)(?P<after>.*)", re.IGNORECASE | re.DOTALL
)


def with_base(text: str, image: str) -> str:
    """Have the final stage start from another image; its name and the stages before it stay.

    Raises:
        StructureError: The final stage starts from another stage, which has a base of its own, or
            there is no FROM.
    """
    dockerfile = Dockerfile(text, "")
    starts = [one for one in dockerfile.instructions if one.name == "FROM"]
    if not starts:
        raise StructureError("the Dockerfile has no FROM, so it has no base to be replaced")
    final = dockerfile.stages[-1]
    if final.base.lower() in {stage.name for stage in dockerfile.stages[:-1] if stage.name}:
        raise StructureError(
            f"the Dockerfile's final stage starts from its stage {final.base}, which --base-image "
            "does not replace",
            hint=f"change the FROM of {final.base} itself",
        )
    lines = text.splitlines(keepends=True)
    first = starts[-1].line - 1
    found = _BASE.match("".join(lines[first:]))
    if found is None:
        raise StructureError(f"Dockerfile, line {first + 1}: this FROM names no image")
    return "".join([*lines[:first], found["before"], image, found["after"]])


def with_interface(text: str, shown: bool) -> str:
    """Have the image show the web page, or not: the variable is set before what it runs.

    One that the final stage sets already is left as it is, if it says the same.
    """
    dockerfile = Dockerfile(text, "")
    own = dockerfile.stages[-1].instructions if dockerfile.stages else ()
    value = "true" if shown else "false"
    pattern = re.compile(rf"\b{VARIABLE}[= ]\"?(\w+)")
    told = [
        found[1].lower() for one in own if one.name == "ENV" for found in pattern.finditer(one.text)
    ]
    is_on = bool(told) and told[-1] in ("1", "true", "yes")
    if is_on == shown:
        return text
    at = _place(own)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    place = len(lines) if at is None else at.line - 1
    return "".join([*lines[:place], f"ENV {VARIABLE}={value}\n", *lines[place:]])


def _place(stage: tuple[Instruction, ...]) -> Instruction | None:
    """Before which instruction a variable must be set to be there when the image runs."""
    return next((one for one in reversed(stage) if one.name in ("CMD", "ENTRYPOINT")), None)
