"""Carry out every import, wherever it stands in openenv, of the packages that are named.

    python -I imports.py PACKAGE...

Integrations are left out: a trainer brings what it works with.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import openenv


def main() -> None:
    """Import; the first that cannot be is the finding."""
    packages, done = set(sys.argv[1:]), set()
    root = Path(openenv.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] == "integrations":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for package in named(node) & packages:
                exec(compile(ast.unparse(node), str(path), "exec"), {})
                done.add(package)
    assert done == packages, packages - done


def named(node: ast.AST) -> set[str]:
    """The packages that a node imports from."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.partition(".")[0]}
    return set()


if __name__ == "__main__":
    main()
