"""The program that serves the functions of a package's oracle; see `openenv.validation.oracle`.

The program reads requests, one line of JSON each, and answers each with one line. Output that the
oracle's file prints goes to standard error. The program does not import openenv.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

FUNCTIONS = ("oracle", "do_nothing", "secrets", "candidates")
CONSTANTS = ("EPISODES", "CANARIES", "LEARNING")


def main(file: str, root: str) -> None:
    """Serve the functions of a file until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    oracle = OracleServer(Path(file), Path(root))
    for line in sys.stdin:
        answers.write(json.dumps(oracle.answer(json.loads(line))) + "\n")
        answers.flush()


class OracleServer:
    """The functions of an oracle's file, imported at the first request."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file, self._root = file, root
        self._module: ModuleType | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._module is None:
                self._module = _import_file(self._file, self._root)
            if request["call"] == "describe":
                return _describe_module(self._module)
            view = SimpleNamespace(**request["view"])
            result = getattr(self._module, request["call"])(view)
            return {"result": json.loads(json.dumps(result, default=_to_json))}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _import_file(file: Path, root: Path) -> ModuleType:
    """Import a file under its module name in the package, so that relative imports work."""
    parts = file.relative_to(root).with_suffix("").parts
    name = ".".join((root.name, *parts))
    if (root / "__init__.py").is_file() and name.replace(".", "").isidentifier():
        sys.path.insert(0, str(root.parent))
        importlib.import_module(root.name)
    else:
        name = file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _describe_module(module: ModuleType) -> dict[str, Any]:
    told = {name: getattr(module, name) for name in CONSTANTS if hasattr(module, name)}
    functions = [name for name in FUNCTIONS if callable(getattr(module, name, None))]
    plain: dict[str, Any] = json.loads(
        json.dumps({**told, "functions": functions}, default=_to_json)
    )
    return plain


def _to_json(value: Any) -> Any:
    """Convert a model to JSON data without unset fields."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


if __name__ == "__main__":
    main(*sys.argv[1:3])
