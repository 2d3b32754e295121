"""Reading of untrusted YAML.

A document is refused before any value is constructed if its aliases expand to too many values, if
it contains itself, or if it is nested too deeply.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

MAX_VALUES = 20_000
MAX_DEPTH = 50


class UnreadableYAML(ValueError):
    """A text is not YAML, or is refused.

    Attributes:
        why: The reason.
        line: The line of the error, from 0.
        column: The column of the error in characters, from 0.
    """

    def __init__(self, why: str, line: int = 0, column: int = 0) -> None:
        self.why = why
        self.line = line
        self.column = column
        where = f"line {line + 1}, column {column + 1}: " if line or column else ""
        super().__init__(f"{where}{why}")


def read_yaml(text: str) -> tuple[Any, Any]:
    """Read a document; return the value, and PyYAML's root node, which has positions.

    Raises:
        UnreadableYAML: The text is not YAML, or is refused.
    """
    import yaml

    try:
        loader = _loader()(text)
        try:
            root = loader.get_single_node()
            if root is not None:
                _check_size(root)
            return None if root is None else loader.construct_document(root), root
        finally:
            loader.dispose()
    except UnreadableYAML:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = str(error.problem or error.context or error)
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        raise UnreadableYAML(why, line, column) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        why = f"the character U+{int(error.character):04X} may not stand in YAML"
        line, column = before.count("\n"), len(before.rpartition("\n")[2])
        raise UnreadableYAML(why, line, column) from error
    except RecursionError:
        raise UnreadableYAML("it is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:  # an invalid date, or too long a number
        raise UnreadableYAML(str(error)) from error


@cache
def _loader() -> Any:
    """Return PyYAML's safe loader with a limit on nested brackets.

    The time for nested brackets grows with the square of the depth.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, TokenClass: Any) -> None:
            if self.flow_level > MAX_DEPTH:
                raise RecursionError
            super().fetch_flow_collection_start(TokenClass)

    return Loader


def _check_size(root: Any) -> None:
    """Refuse a document that is endless or enormous once aliases are followed."""
    sizes: dict[int, int] = {}

    def size(node: Any, above: tuple[int, ...]) -> int:
        if id(node) in above or len(above) > MAX_DEPTH:
            why = "it contains itself" if id(node) in above else "it is nested too deeply"
            raise UnreadableYAML(why, node.start_mark.line, node.start_mark.column)
        if id(node) not in sizes:
            inner = (*above, id(node))
            sizes[id(node)] = 1 + sum(size(child, inner) for child in _children(node))
            if sizes[id(node)] > MAX_VALUES:
                why = f"it holds more than {MAX_VALUES} values, with every alias followed"
                raise UnreadableYAML(why, node.start_mark.line, node.start_mark.column)
        return sizes[id(node)]

    size(root, ())


def _children(node: Any) -> Iterator[Any]:
    if node.id == "sequence":
        yield from node.value
    for pair in pairs_of(node):
        yield from pair


def pairs_of(node: Any) -> list[tuple[Any, Any]]:
    """Return the nodes of a mapping's keys and values; an empty list for another node."""
    return node.value if node.id == "mapping" else []
