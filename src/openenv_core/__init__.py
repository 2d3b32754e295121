"""The package's name of old. Each module below it is that of `openenv.core`, not a copy."""

import importlib
import importlib.util
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Alias:
    """Finds ``openenv_core.x.y`` to be the module ``openenv.core.x.y`` itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = name.startswith("openenv_core.") and importlib.util.find_spec(_real(name))
        return ModuleSpec(name, self) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_real(module.__name__))


def _real(name: str) -> str:
    return name.replace("openenv_core", "openenv.core", 1)


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("openenv.core"), name)


sys.meta_path.insert(0, _Alias())
warnings.warn("openenv_core is now openenv.core", DeprecationWarning, stacklevel=2)
