"""Targets: the texts that name an environment, in commands, `AutoEnv` and trainers.

* A server: an address of ``http``, ``https``, ``ws`` or ``wss``, or ``host:port``.
* A container image: ``docker://IMAGE``.
* An environment of another library: ``gymnasium:CartPole-v1``, ``python:module:Class``, or another
  text that begins with one of `LIBRARY_SCHEMES`.
* A path: ``./my_env``, ``/srv/my_env``, ``~/my_env``, ``file.py``, each with or without
  ``:attribute``; or a `Path`.
* A repository of the Hub: ``https://huggingface.co/spaces/owner/name``, ``owner/name``.
* An attribute: ``module:attribute``.
* An installed environment or package: any other text.

Only the form decides, so that a target means the same in every directory. Commands parse their
arguments with `local_files`: then files in the current directory take precedence over the Hub and
over installed packages, as in `openenv serve envs/echo_env`.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from openenv._internal.addresses import URL, is_address, is_hub_address, over_http

IMAGE_PREFIX = "docker://"

LIBRARY_SCHEMES = (
    "gymnasium",
    "pettingzoo",
    "dm_env",
    "reasoning_gym",
    "textarena",
    "openspiel",
    "verifiers",
    "ors",
    "python",
)
"""The schemes of other libraries' environments; `openenv.wrappers.targets` parses the rest."""

_PATH = re.compile(r"\.{1,2}([/\\:]|$)|[/\\~]|[A-Za-z]:[/\\]|.*\.py(:|$)")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_MANIFEST = "openenv.yaml"


class TargetKind(Enum):
    """The kinds of things that a target names."""

    SERVER = "server"
    IMAGE = "image"
    LIBRARY = "library"
    PATH = "path"
    HUB = "hub"
    ATTRIBUTE = "attribute"
    INSTALLED = "installed"


class Target(NamedTuple):
    """A parsed target.

    Attributes:
        kind: The kind of the target.
        text: The target as given.
        name: A server's base URL for HTTP, an image, a path, a module, a package, or the text.
        attribute: The part after the ``:`` of a path or a module; empty without one.
    """

    kind: TargetKind
    text: str
    name: str
    attribute: str = ""

    @property
    def path(self) -> Path:
        """The path of the target, absolute and without symbolic links."""
        return Path(self.name).expanduser().resolve()


def parse_target(target: str | os.PathLike[str], *, local_files: bool = False) -> Target:
    """Parse a target, without network requests or imports.

    Args:
        target: A text in one of the forms above, or a `Path`.
        local_files: Treat the target as a path if a directory of this name exists. If the name is
            one of `LIBRARY_SCHEMES`, the directory must have an ``openenv.yaml``.
    """
    text = os.fspath(target)
    if isinstance(target, os.PathLike):
        return Target(TargetKind.PATH, text, text)
    if text.startswith(IMAGE_PREFIX) and text != IMAGE_PREFIX:
        return Target(TargetKind.IMAGE, text, text.removeprefix(IMAGE_PREFIX))
    name, _, attribute = text.partition(":")
    if (
        name in LIBRARY_SCHEMES
        and attribute
        and not (local_files and (Path(name) / _MANIFEST).exists())
    ):
        return Target(TargetKind.LIBRARY, text, text)
    if is_hub_address(text):
        return Target(TargetKind.HUB, text, text)
    if URL.match(text.strip()) or (is_address(text) and not _PATH.match(text)):
        return Target(TargetKind.SERVER, text, over_http(text))
    if _PATH.match(text) or (local_files and Path(name).is_dir()):
        if _DRIVE.match(text):
            tail, _, attribute = attribute.partition(":")
            name = f"{name}:{tail}"
        return Target(TargetKind.PATH, text, name, attribute)
    if "/" in text:
        return Target(TargetKind.HUB, text, text)
    if attribute:
        return Target(TargetKind.ATTRIBUTE, text, name, attribute)
    return Target(TargetKind.INSTALLED, text, text)
