"""Edits of a Dockerfile for a Space: the base image, and the variable for the web page."""

from __future__ import annotations

import re

from openenv._internal.dockerfile import ParsedDockerfile
from openenv.hub.errors import StructureError

VARIABLE = "ENABLE_WEB_INTERFACE"
_BASE = re.compile(
    r"(?P<before>\s*FROM\s+(?:--\S+\s+)*)(?P<base>\S+)(?P<after>.*)", re.IGNORECASE | re.DOTALL
)


def replace_base(text: str, image: str) -> str:
    """Replace the base image of the final stage, and nothing else.

    Raises:
        StructureError: The final stage starts from another stage, or the Dockerfile has no FROM.
    """
    dockerfile = ParsedDockerfile(text, "")
    starts = [one for one in dockerfile.instructions if one.name == "FROM"]
    if not starts:
        raise StructureError("the Dockerfile has no FROM, so there is no base image to replace")
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


def set_interface(text: str, shown: bool) -> str:
    """Set the environment variable that shows or hides the web page, before the image's command.

    A Dockerfile whose final stage sets the same value is returned unchanged.
    """
    dockerfile = ParsedDockerfile(text, "")
    own = dockerfile.stages[-1].instructions if dockerfile.stages else ()
    value = "true" if shown else "false"
    pattern = re.compile(rf"\b{VARIABLE}[= ]\"?(\w+)")
    told = [
        found[1].lower() for one in own if one.name == "ENV" for found in pattern.finditer(one.text)
    ]
    is_on = bool(told) and told[-1] in ("1", "true", "yes")
    if is_on == shown:
        return text
    # Set before the command, so that the variable exists when the server starts.
    at = next((one for one in reversed(own) if one.name in ("CMD", "ENTRYPOINT")), None)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    place = len(lines) if at is None else at.line - 1
    return "".join([*lines[:place], f"ENV {VARIABLE}={value}\n", *lines[place:]])
