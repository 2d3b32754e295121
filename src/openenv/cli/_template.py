"""Rendering of the trees that `openenv init` and `openenv import` write.

A tree consists of layers, which are directories of `template/`: `common`, and the layers of one
template. A later layer's file replaces an earlier layer's, or is inserted there at a line
``__OWN__`` or ``# __OWN__``. Files end in ``.tmpl``, so that no tool takes them for code.
Placeholders in the text and in file names are filled in:

    __ENV_NAME__         my_game_env      the package; the other names derive from it
    __ENV_CLASS_NAME__   MyGame           prefix of the classes
    __ENV_TITLE_NAME__   My Game          for people
    __ENV_IMAGE_NAME__   my-game-env      the image, and the distribution after ``openenv-``

`DEFAULTS` has further placeholders; a layer sets them in ``template.yaml``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from openenv._internal.version import version


def minimum_version(version: str) -> str:
    """Return the version requirement of a new environment: at least the running OpenEnv.

    A development version also becomes a requirement. No index has it, so without the wheel the
    installation fails, instead of installing another package of the same name.
    """
    return "" if version == "0.0.0" else f">={version.partition('+')[0]}"


SINCE = minimum_version(version())
OPENENV = f"openenv{SINCE}"

TEMPLATE = Path(__file__).with_name("template")
FACTS = "template.yaml"
SUFFIX = ".tmpl"
OWN = re.compile("^(# )?__OWN__\n", re.MULTILINE)

TEMPLATES: Mapping[str, Sequence[str]] = {
    "gym": ("common", "gym"),
    "mcp": ("common", "tools", "mcp"),
    "text-game": ("common", "text-game"),
    "coding": ("common", "coding"),
    "package": ("common", "tools", "package"),
}
"""The layers of each template of `openenv init`, by its name."""

DEFAULTS = {
    "SUMMARY": "",  # a few words about the environment
    "STEP": "result = env.step(__ENV_CLASS_NAME__Action(__EXAMPLE__))",
    "EXAMPLE": "",  # the arguments of a sample action
    "DEPENDENCIES": f'"{OPENENV}"',
    "OPENENV": OPENENV,
    "SINCE": SINCE,
    "OPENENV_SOURCE": "",  # the place where uv finds OpenEnv if no index has it
    "FIND_LINKS": "",  # the place where pip finds OpenEnv if no index has it
    "REWARD": "{range: [0.0, 1.0], oracle_tolerance: 0.0, floor_margin: 0.5}",
    "TAGS": "example",
    "ALSO_IN_THE_WHEEL": "",
    "ALSO_OF_RUFF": "",
    "ALSO_OF_MYPY": "",
}
"""The other placeholders, such as ``__SUMMARY__``, and their default values."""

# Directories for output. The template cannot contain them, because Git ignores every outputs/ here.
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
        """Derive all names from the package's name, an identifier that contains a letter."""
        words = [w for w in (package.removesuffix("_env") or package).split("_") if w]
        prefix = "".join(word[0].upper() + word[1:] for word in words)
        return cls(
            package=package,
            class_prefix=prefix if prefix[0].isalpha() else f"Env{prefix}",
            title=" ".join(word[0].upper() + word[1:] for word in words),
            image="-".join(re.findall("[a-z0-9]+", package.lower())),
        )

    def fill(self, text: str, more: Mapping[str, str] = {}) -> str:  # read only
        """Replace the placeholders of names, and those in `more`."""
        for placeholder, value in (
            *((f"__{name}__", value) for name, value in more.items()),
            ("__ENV_NAME__", self.package),
            ("__ENV_CLASS_NAME__", self.class_prefix),
            ("__ENV_TITLE_NAME__", self.title),
            ("__ENV_IMAGE_NAME__", self.image),
        ):
            text = text.replace(placeholder, value)
        return text


class TemplateInputs(NamedTuple):
    """The inputs of `render` besides the names."""

    layers: Sequence[str]
    fills: Mapping[str, str]
    files: Mapping[str, str]


def probe_plan(actions: Sequence[Any]) -> dict[str, str]:
    """Return the file with the episode that `openenv validate` plays, by path."""
    plan = {
        "plan_schema_version": "1",
        "reset": {"episode_id": "validation-probe", "seed": 42, "options": {}},
        "actions": actions,
    }
    return {"validation/runtime.json": json.dumps(plan, indent=2) + "\n"}


def read_template(layer: str, path: str) -> str:
    """Return a layer's file with the name placeholders unfilled."""
    return OWN.sub("", (TEMPLATE / layer / f"{path}{SUFFIX}").read_text(encoding="utf-8"))


def template_summary(template: str) -> str:
    """Return a sentence about a template's purpose."""
    return _facts(TEMPLATES[template][-1])["about"]


def render(
    names: EnvironmentNames,
    layers: Sequence[str] = TEMPLATES["gym"],
    fills: Mapping[str, str] = {},  # read only
    written: Mapping[str, str] = {},  # read only
) -> dict[str, str]:
    """Render a tree: map each path (relative, with slashes) to the file's text.

    Later layers override earlier ones, and `written` all of them. `fills` are values of other
    placeholders; they override the layers' values and `DEFAULTS`.
    """
    known = dict(DEFAULTS)
    texts = {f"{directory}/.gitkeep": "" for directory in EMPTY_DIRECTORIES}
    for layer in layers:
        known |= {name.upper(): value for name, value in _facts(layer).items()}
        folder = TEMPLATE / layer
        for file in sorted(folder.rglob(f"*{SUFFIX}")):
            path = file.relative_to(folder).as_posix().removesuffix(SUFFIX)
            _put(texts, path, file.read_text(encoding="utf-8"))
    known |= fills
    filled = {names.fill(path): names.fill(text, known) for path, text in texts.items()}
    for path, text in written.items():
        _put(filled, path, text)
    return {path: OWN.sub("", text) for path, text in sorted(filled.items())}


@cache
def _facts(layer: str) -> dict[str, str]:
    import yaml

    file = TEMPLATE / layer / FACTS
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}


def _put(texts: dict[str, str], path: str, text: str) -> None:
    before = texts.get(path, "")
    texts[path] = OWN.sub(lambda _: text, before) if OWN.search(before) else text


def write_tree(tree: Mapping[str, str | bytes], target: Path) -> None:
    """Write a tree to a missing or empty directory, completely or not at all.

    Raises:
        OSError: The tree could not be written; no file is left behind.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".openenv-init-"))
    try:
        unfinished = scratch / target.name
        for path, content in tree.items():
            file = unfinished / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(unfinished, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
