"""The front matter of a README, which configures a Space on the Hub.

Edits change single values in place; comments, order and quotes of the other lines stay as they are.
Source: https://huggingface.co/docs/hub/spaces-config-reference
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from openenv._internal.yaml import UnreadableYAML, pairs_of, read_yaml
from openenv.hub.errors import StructureError

# The block begins on the first line and ends at the next line of three dashes.
_BLOCK = re.compile(r"\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)
TAG = "openenv"
WEB = "/web"


class FrontMatter:
    """A README's text and front matter.

    Raises:
        StructureError: The front matter is not a YAML mapping.
    """

    def __init__(self, text: str) -> None:
        found = _BLOCK.match(text)
        self._newline = "\r\n" if "\r\n" in text.partition("\n")[0] + "\n" else "\n"
        self._before = text[: found.start("yaml")] if found else f"---{self._newline}"
        self._after = text[found.end("yaml") :] if found else f"---{self._newline}{text}"
        self._yaml = found["yaml"] if found else ""
        self.values: dict[str, Any] = {}
        self._nodes: dict[str, tuple[Any, Any]] = {}
        self._read()

    @property
    def text(self) -> str:
        """Return the README with all changes."""
        return f"{self._before}{self._yaml}{self._after}"

    def set(self, key: str, value: str | int) -> None:
        """Set a key in place, or append a missing key."""
        written = f"{key}: {_scalar(value)}"
        if key not in self._nodes:
            self._append(written)
        else:
            name, node = self._nodes[key]
            self._replace(name.start_mark.index, node.end_mark.index, written)

    def remove(self, key: str) -> None:
        """Remove a key whose value is on the same line."""
        name, node = self._nodes[key]
        end = self._yaml.find("\n", node.end_mark.index)
        self._replace(name.start_mark.index, end + 1 if end >= 0 else len(self._yaml), "")

    def add(self, key: str, item: str) -> None:
        """Append an item to a list; create a missing list."""
        if not isinstance(self.values.get(key), list):
            if key in self._nodes:
                self.remove(key)
            self._append(f"{key}:{self._newline}  - {item}")
            return
        _, node = self._nodes[key]
        if node.flow_style:
            joined = ", ".join(_scalar(one) for one in [*self.values[key], item])
            self._replace(node.start_mark.index, node.end_mark.index, f"[{joined}]")
            return
        last = node.value[-1].end_mark.index
        end = self._yaml.find("\n", last)
        end = len(self._yaml) if end < 0 else end + 1
        self._replace(end, end, f"{' ' * node.start_mark.column}- {item}{self._newline}")

    def _append(self, line: str) -> None:
        end = len(self._yaml)
        gap = "" if not self._yaml or self._yaml.endswith("\n") else self._newline
        self._replace(end, end, f"{gap}{line}{self._newline}")

    def _replace(self, start: int, end: int, text: str) -> None:
        self._yaml = f"{self._yaml[:start]}{text}{self._yaml[end:]}"
        self._read()

    def _read(self) -> None:
        try:
            content, root = read_yaml(self._yaml)
        except UnreadableYAML as error:
            raise StructureError(
                f"README.md, line {error.line + 2}: the front matter is invalid YAML: {error.why}",
                hint="it stands between the first two lines of `---`",
            ) from error
        self.values = {} if content is None else content
        if not isinstance(self.values, dict):
            raise StructureError(
                f"README.md: the front matter is a {type(self.values).__name__}, not a mapping",
                hint="write lines such as `title: My environment`",
            )
        pairs = [] if root is None else pairs_of(root)
        self._nodes = {name.value: (name, node) for name, node in pairs}


def complete_front_matter(
    readme: str, manifest: Mapping[str, Any], *, interface: bool
) -> tuple[str, list[str]]:
    """Add the fields to a README that the Hub needs for a Space with an environment.

    Args:
        readme: The README's text.
        manifest: The environment's ``openenv.yaml``.
        interface: Whether the Space shows the web page.

    Returns:
        The new text and a description of each change.

    Raises:
        StructureError: The front matter cannot be read.
    """
    front = FrontMatter(readme)
    before = dict(front.values)
    if not front.values.get("title"):
        name = re.sub(r"[_-]env$", "", str(manifest.get("name") or "environment").lower())
        words = name.replace("_", " ").replace("-", " ").split()
        front.set("title", " ".join(map(str.capitalize, words)))
    if front.values.get("sdk") != "docker":
        front.set("sdk", "docker")
    if "app_port" not in front.values:
        front.set("app_port", int(manifest.get("port") or 8000))
    if interface and "base_path" not in front.values:
        front.set("base_path", WEB)
    if not interface and front.values.get("base_path") == WEB:
        front.remove("base_path")
    if TAG not in (front.values.get("tags") or []):
        front.add("tags", TAG)
    changes = []
    for key in dict.fromkeys([*before, *front.values]):
        if key not in front.values:
            changes.append(f"README.md: {key} removed")
        elif before.get(key) != front.values[key]:
            value = json.dumps(front.values[key], ensure_ascii=False)
            changes.append(f"README.md: {key}: {value}")
    return front.text, changes


def _scalar(value: Any) -> str:
    """Format a value as YAML on a single line."""
    import yaml

    return yaml.safe_dump(value, allow_unicode=True, width=10**6).partition("\n")[0]
