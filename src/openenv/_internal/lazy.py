"""Imports on first use: the names of a package (PEP 562), and whole modules.

`asyncio`, `futures`, `json` and `logging` here are stand-ins. Importing the real modules takes a
sixth of a client's import time, and they are needed only when a client is used.

A package lists its names once, in the imports that type checkers read:

    if TYPE_CHECKING:
        from openenv.tasks.load import load_tasks as load_tasks
    else:
        __getattr__, __dir__, __all__ = lazy(__name__)

Python compiles the imports under ``TYPE_CHECKING`` and never executes them, so `lazy` reads the
names from the compiled module. The source need not be there. ``as`` tells type checkers that the
name is public.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    import json
    import logging
    from concurrent import futures

__all__ = ["asyncio", "futures", "json", "lazy", "lazy_module", "logging"]


def lazy(
    package: str, submodules: Sequence[str] = (), *, unlisted: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` for the package that calls this.

    Args:
        package: The package's name.
        submodules: Modules of the package that are available as attributes.
        unlisted: Modules whose names `__all__` leaves out.
    """
    root = package.partition(".")[0]
    frame = sys._getframe(1)
    sources = {
        name: (module, attribute)
        for module, attribute, name in _imports_of(frame.f_code)
        if module.partition(".")[0] == root and name not in frame.f_globals
    }

    def __getattr__(name: str) -> Any:
        module, attribute = sources.get(name, (package, name))
        if name in submodules or (name in sources and module == package):
            value: Any = importlib.import_module(f"{package}.{name}")
        elif name in sources:
            value = getattr(importlib.import_module(module), attribute)
        else:
            from openenv._internal.quoting import closest

            close = closest(name, [*sources, *submodules])
            hint = f" Did you mean {close!r}?" if close else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*sources, *submodules, *own, *own.get("__all__", ())})

    listed = sorted(name for name, (module, _) in sources.items() if module not in unlisted)
    return __getattr__, __dir__, listed


def _imports_of(code: CodeType) -> Iterator[tuple[str, str, str]]:
    """Yield the module, the attribute and the new name of each ``from`` import in compiled code."""
    module = attribute = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM":
            attribute = step.argval
        elif step.opname == "STORE_NAME" and attribute:
            yield module, attribute, step.argval
            attribute = ""


def lazy_module(name: str) -> Any:
    """Return a stand-in for a module, which is imported when an attribute is first read.

    Python 3.15 will have ``lazy import`` for this (PEP 810).
    """
    return _LazyModule(name)


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if not TYPE_CHECKING:
    asyncio = lazy_module("asyncio")
    futures = lazy_module("concurrent.futures")
    json = lazy_module("json")
    logging = lazy_module("logging")
