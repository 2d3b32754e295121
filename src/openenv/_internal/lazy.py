"""What is imported when it is first asked for: names of packages (PEP 562), whole modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["lazy", "lazy_module"]


def lazy(
    package: str, names: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` for a package.

    Args:
        package: Its name.
        names: For each module, the names that come from it.
        submodules: Modules of the package that can be reached as its attributes.
    """
    sources = {name: module for module, listed in names.items() for name in listed}

    def __getattr__(name: str) -> Any:
        if name in sources:
            value = getattr(importlib.import_module(sources[name]), name)
        elif name in submodules:
            value = importlib.import_module(f"{package}.{name}")
        else:
            import difflib

            known = [*sources, *submodules]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*sources, *submodules, *own, *own.get("__all__", ())})

    return __getattr__, __dir__


def lazy_module(name: str) -> Any:
    """Stand for a module that is imported when one of its attributes is first read.

    It is what ``lazy import`` will be in Python 3.15 (PEP 810).
    """
    return _LazyModule(name)


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value
