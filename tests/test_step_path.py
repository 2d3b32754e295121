"""How many calls of ours a step passes through, and that the docs show its path as it is."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "step_path.py"

# The largest number of calls of functions of ours: on the client, on the server, and of the
# server's those from the environment's return until the frame is given to the socket.
LIMITS = {
    "v1-async": (25, 22, 10),
    "v0-async": (25, 20, 8),
    "sync": (46, 22, 10),
    "async-environment": (25, 25, 10),
    "inline-environment": (25, 21, 9),
    "vector": (100, 80, 34),  # of four environments together
}


@pytest.fixture(scope="module")
def step_path() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("step_path", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["step_path"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["step_path"]


@pytest.fixture(scope="module")
def traced(step_path: Any) -> Callable[[str], Any]:
    return functools.cache(step_path.trace)


def test_every_kind_of_step_has_a_limit(step_path: Any) -> None:
    assert set(LIMITS) == set(step_path.KINDS)


@pytest.mark.parametrize("kind", LIMITS)
def test_a_step_passes_few_calls_of_ours(
    step_path: Any, traced: Callable[[str], Any], kind: str
) -> None:
    path, (client, server, way_back) = traced(kind), LIMITS[kind]
    shown = step_path.table(path)
    assert path.of("client") <= client, shown
    assert path.of("server") <= server, shown
    assert path.way_back <= way_back, shown


def test_the_docs_show_the_path_of_a_step(step_path: Any, traced: Callable[[str], Any]) -> None:
    if sys.version_info[:2] != step_path.PYTHON:
        pytest.skip("the page shows the path under another version of Python")
    page = step_path.PAGE.read_text("utf-8")
    shown = {name: traced(name) for name, kind in step_path.KINDS.items() if kind.is_shown}
    assert page == step_path.replaced(page, step_path.section(shown)), "run scripts/step_path.py"


def test_a_coroutine_counts_once(step_path: Any) -> None:
    import asyncio

    begins: list[bool] = []

    async def waits() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def hook(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is waits.__code__:
            begins.append(step_path._begins(frame))

    async def main() -> None:
        sys.setprofile(hook)
        try:
            await waits()
        finally:
            sys.setprofile(None)

    asyncio.run(main())
    assert begins == [True, False, False]
