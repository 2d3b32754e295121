"""Dockerfiles that hosted sandboxes are built from, by image name."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv._internal.dockerfile import ParsedDockerfile, strip_mounts
from openenv.providers._hosted import HostedProvider, as_command

SCHEME = "dockerfile:"


@dataclass(frozen=True)
class RegisteredDockerfile:
    """A registered Dockerfile.

    Attributes:
        path: The path of the file.
        context: The build context.
        text: The content without ``--mount`` flags.
        command: The image's command, for a shell; None if the Dockerfile has none.
        folder: The image's ``WORKDIR``, for a shell; None if the Dockerfile has none.
    """

    path: Path
    context: Path
    text: str
    command: str | None
    folder: str | None


_registered: dict[str, RegisteredDockerfile] = {}


class DockerfileProvider(HostedProvider):
    """Base class of providers whose services build images from Dockerfiles."""

    @classmethod
    def image_from_dockerfile(cls, dockerfile_path: str, context_dir: str | None = None) -> str:
        """Read and register a Dockerfile, and return the name of its image.

        Args:
            dockerfile_path: The path of the Dockerfile.
            context_dir: The build context; by default the Dockerfile's directory.

        Raises:
            FileNotFoundError: The file or the directory does not exist.
            ValueError: The file is not a valid Dockerfile.
        """
        return register(dockerfile_path, context_dir)

    def _command_of_image(self, image: str) -> str | None:
        file = registered(image)
        return (
            None if file is None or file.command is None else as_command(file.command, file.folder)
        )


def register(path: str, context: str | None) -> str:
    """Register a Dockerfile; see `DockerfileProvider.image_from_dockerfile`."""
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no Dockerfile {path}")
    folder = file.parent if context is None else Path(context).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no directory {context} to copy from")
    name = f"{SCHEME}{file}"
    _registered[name] = parse(file.read_text("utf-8"), file, folder)
    return name


def registered(image: str) -> RegisteredDockerfile | None:
    """Return the Dockerfile of an image; None if the image is not built from a Dockerfile.

    Raises:
        ValueError: The Dockerfile has not been registered.
    """
    if image.startswith(SCHEME) and image not in _registered:
        raise ValueError(
            f"{image} has not been registered: pass what image_from_dockerfile(path) returns"
        )
    return _registered.get(image)


def parse(text: str, path: Path, context: Path) -> RegisteredDockerfile:
    """Parse a Dockerfile.

    Raises:
        ValueError: The Dockerfile has no valid FROM.
    """
    dockerfile = ParsedDockerfile(text, str(path))
    if not dockerfile.stages:
        raise ValueError(f"{path} is not a Dockerfile: it has no FROM")
    if not all(stage.base for stage in dockerfile.stages):
        raise ValueError(
            f"{path}: a FROM cannot be read; expected FROM IMAGE, or FROM IMAGE AS NAME"
        )
    entrypoint: Any = None
    command: Any = None
    folder: str | None = None
    for one in dockerfile.final:
        if one.name == "CMD":
            command = _form(one.text)
        elif one.name == "ENTRYPOINT":
            entrypoint, command = _form(one.text), None
        elif one.name == "WORKDIR":
            words = shlex.split(one.text) if one.text[:1] in "'\"" else [one.text]
            joined = posixpath.join(folder or "/", words[0] if words else ".")
            folder = posixpath.normpath(joined)
    if isinstance(entrypoint, str):  # shell form, which takes no arguments
        command = entrypoint
    elif entrypoint is not None:
        after = ["/bin/sh", "-c", command] if isinstance(command, str) else command or []
        command = [*entrypoint, *after]
    return RegisteredDockerfile(
        path,
        context,
        strip_mounts(text),
        shlex.join(command) if isinstance(command, list) else command,
        None if folder is None else _quoted(folder),
    )


def _form(value: str) -> str | list[str] | None:
    """Parse CMD or ENTRYPOINT: a list of words, or a text for a shell; None if empty."""
    try:
        words = json.loads(value)
    except ValueError:
        return value
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words or None
    return value


def _quoted(folder: str) -> str:
    """Quote a directory for a shell that expands the image's variables."""
    if "$" not in folder:
        return shlex.quote(folder)
    return '"' + re.sub(r'(["\\`])', r"\\\1", folder) + '"'
