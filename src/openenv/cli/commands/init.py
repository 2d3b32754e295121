"""`openenv init`: a new environment, which runs and passes its tests as it is written."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from openenv.cli._console import MISUSED, CommandError, emit, say
from openenv.cli._template import EnvironmentNames, render, write_tree

__all__ = ["init"]


def init(
    name: Annotated[
        str, typer.Argument(help="Name of the Python package, for example my_env.", metavar="NAME")
    ],
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", help="Directory to create it in.")
    ] = Path(),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Create a new environment, ready to run."""
    _check_name(name)
    target = output_dir / name
    _check_target(target)
    names = EnvironmentNames.of(name)
    tree = render(names)
    try:
        write_tree(tree, target)
    except OSError as error:
        raise CommandError(f"{target} could not be written: {error}") from error
    _say_what_next(target, tree)
    if as_json:
        emit({"name": name, "path": str(target.resolve()), "files": list(tree)})


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or not re.search("[A-Za-z]", name):
        raise CommandError(
            f"{name!r} cannot be the name of a Python package: letters, digits and underscores, "
            "and no digit first",
            hint=_proposal(name),
            exit_code=MISUSED,
        )
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or _is_installed(name):
        raise CommandError(
            f"{name!r} is taken: Python, or a package that is installed, has a meaning for it",
            hint=_proposal(f"{name}_env"),
            exit_code=MISUSED,
        )


def _is_installed(name: str) -> bool:
    """Whether a package of this name would be hidden by the new one, and OpenEnv break by it."""
    found = importlib.util.find_spec(name)
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return name == "openenv" or (
        found is not None and any(str(found.origin).startswith(place) for place in places)
    )


def _proposal(name: str) -> str:
    words = "_".join(re.findall("[A-Za-z0-9]+", name)).lower()
    if not re.search("[a-z]", words):
        words = "my_env"
    elif words[0].isdigit():
        words = f"env_{words}"
    return f"use {words}: openenv init {words}"


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        kind = "is not empty" if target.is_dir() else "is in the way"
        raise CommandError(
            f"{target} {kind}",
            hint="choose another name, or another place with --output-dir",
            exit_code=MISUSED,
        )


def _say_what_next(target: Path, tree: dict[str, str]) -> None:
    steps = {
        f"cd {shlex.quote(str(target))} && pip install -e . && pytest": "install and test it",
        "openenv serve": "serve it",
    }
    width = max(map(len, steps))
    say(f"Environment initialized: {target} ({len(tree)} files)", style="green")
    say("\nNext:\n" + "\n".join(f"  {step:<{width}}  # {why}" for step, why in steps.items()))
    say(f"\nMake it yours in models.py and server/{target.name}_environment.py.")
