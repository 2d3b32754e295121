"""The OpenEnv dependency of a new environment: the running version.

A released version is named by number. A development version is on no index, where the name would
mean another package. So an environment inside the checkout depends on the checkout, and any other
gets a wheel beside the ``pyproject.toml``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import openenv
from openenv._internal.version import version
from openenv.cli._console import warn


class Origin(NamedTuple):
    """The source of an environment's OpenEnv."""

    fills: Mapping[str, str]  # ``__OPENENV_SOURCE__`` and ``__FIND_LINKS__`` of the template
    files: Mapping[str, bytes]  # to add to the environment, by path
    words: str  # a message for the user; empty for a released version


def origin_for(target: Path) -> Origin:
    """Choose the OpenEnv for an environment in this directory."""
    from openenv.images import BuildError
    from openenv.images.plan import workspace_of
    from openenv.images.running import WHEELS, is_released, write_wheel

    if is_released():
        return Origin({}, {}, "")
    number = version()
    checkout = workspace_of(target.resolve())
    if checkout is not None and Path(openenv.__file__).resolve().is_relative_to(checkout):
        path = Path(os.path.relpath(checkout, target.resolve())).as_posix()
        value = f'{{ path = "{path}", editable = true }}'
        source = SOURCE.format(number=number, what="the checkout", value=value)
        words = f"openenv {number} is not released: this environment uses the checkout {checkout}"
        return Origin({"OPENENV_SOURCE": source}, {}, words)
    with tempfile.TemporaryDirectory(prefix="openenv-wheel-") as folder:
        try:
            wheel = write_wheel(Path(folder))
        except BuildError as error:
            warn(f"warning: {error}")
            return Origin({}, {}, "")
        name, data = f"{WHEELS}/{wheel.name}", wheel.read_bytes()
    value = f'{{ path = "{name}" }}'
    source = SOURCE.format(number=number, what=f"the wheel in {WHEELS}/", value=value)
    words = f"openenv {number} is not released: a wheel of it is in {name}, for uv, pip and builds"
    fills = {"OPENENV_SOURCE": source, "FIND_LINKS": f"--find-links ../{WHEELS}\n"}
    return Origin(fills, {name: data}, words)


SOURCE = """
# openenv {number} is not released, so no index has it: uv takes {what}.
[tool.uv.sources]
openenv = {value}
"""
