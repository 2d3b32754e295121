"""The tree that `openenv init` writes: files of `template/`, with placeholders filled in.

Each file there ends in ``.tmpl``, so that no tool takes it for code. Placeholders stand in the
text and in the names:

    __ENV_NAME__         my_game_env      the package; everything else follows from it
    __ENV_CLASS_NAME__   MyGame           prefix of the classes
    __ENV_TITLE_NAME__   My Game          for people
    __ENV_IMAGE_NAME__   my-game-env      the image, and the distribution after ``openenv-``
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EnvironmentNames", "render", "write_tree"]

TEMPLATE = Path(__file__).with_name("template")
SUFFIX = ".tmpl"

# Directories that runs write to. The template cannot hold them: Git ignores every outputs/ here.
EMPTY_DIRECTORIES = ("outputs/logs", "outputs/evals")


@dataclass(frozen=True)
class EnvironmentNames:
    """The names that follow from a package's name."""

    package: str
    class_prefix: str
    title: str
    image: str

    @classmethod
    def of(cls, package: str) -> EnvironmentNames:
        """Derive them from the package's name, which is an identifier with a letter in it."""
        words = [w for w in (package.removesuffix("_env") or package).split("_") if w]
        prefix = "".join(word[0].upper() + word[1:] for word in words)
        return cls(
            package=package,
            class_prefix=prefix if prefix[0].isalpha() else f"Env{prefix}",
            title=" ".join(word[0].upper() + word[1:] for word in words),
            image="-".join(re.findall("[a-z0-9]+", package.lower())),
        )

    def fill(self, text: str) -> str:
        """Put the names where the placeholders stand."""
        for placeholder, value in (
            ("__ENV_NAME__", self.package),
            ("__ENV_CLASS_NAME__", self.class_prefix),
            ("__ENV_TITLE_NAME__", self.title),
            ("__ENV_IMAGE_NAME__", self.image),
        ):
            text = text.replace(placeholder, value)
        return text


def render(names: EnvironmentNames) -> dict[str, str]:
    """Render the tree: for each path, relative and with slashes, the text of the file."""
    rendered = {f"{directory}/.gitkeep": "" for directory in EMPTY_DIRECTORIES}
    for file in TEMPLATE.rglob(f"*{SUFFIX}"):
        path = names.fill(file.relative_to(TEMPLATE).as_posix()).removesuffix(SUFFIX)
        rendered[path] = names.fill(file.read_text(encoding="utf-8"))
    return dict(sorted(rendered.items()))


def write_tree(tree: Mapping[str, str], target: Path) -> None:
    """Write a tree to `target`, which is not there or is an empty directory: all of it or nothing.

    Raises:
        OSError: It could not be written; nothing is left behind.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".openenv-init-"))
    try:
        unfinished = scratch / target.name
        for path, text in tree.items():
            file = unfinished / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        os.replace(unfinished, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
