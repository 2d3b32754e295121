"""Optional packages, and commands that install missing packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from openenv.errors import OpenEnvError

COMMANDS = {
    "dm_env": "pip install dm-env gymnasium",
    "gymnasium": "pip install gymnasium",
    "numpy": "pip install numpy",
    "openspiel_env": "pip install openenv-openspiel-env",
    "pettingzoo": "pip install pettingzoo",
    "pyspiel": "pip install open_spiel",
    "reasoning_gym": "pip install reasoning-gym",
    "reasoning_gym_env": "pip install openenv-reasoning-gym-env",
    "textarena": "pip install textarena",
    "textarena_env": "pip install openenv-textarena-env",
    "verifiers": "pip install verifiers",
}


class MissingPackage(OpenEnvError, ModuleNotFoundError):
    """An optional package is missing; the text names the command to install the package."""


@contextmanager
def needs(needed_by: str, command: str | None = None) -> Iterator[None]:
    """Add the command that installs a missing package to errors of imports in the block.

    Args:
        needed_by: The feature that imports the package, for the message.
        command: The command that installs the package; by default that of `COMMANDS`.

    Raises:
        MissingPackage: The package is not installed.
    """
    try:
        yield
    except MissingPackage:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package == "openenv":
            raise
        command = command or COMMANDS.get(package)
        # For an unknown module, the package to install is not guessed.
        cure = f"is not installed: {command}" if command else "is no module that can be imported"
        raise MissingPackage(
            f"{needed_by} needs {package!r}, which {cure}", name=package
        ) from error


def check_installed(needed_by: str, packages: Iterable[str], command: str) -> None:
    """Check that packages are installed; nothing is imported.

    Args:
        needed_by: The feature that imports the packages, for the message.
        packages: The names that are imported.
        command: The command that installs the packages.

    Raises:
        MissingPackage: A package is not installed.
    """
    for package in packages:
        with needs(needed_by, command):
            if find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
