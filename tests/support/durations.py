"""A pytest plugin that measures what a run of the tests costs.

``pytest --durations-file FILE`` loads it (see ``conftest.py``). It records, for each test, the
wall time of its set-up, call and teardown, the CPU time of the worker process (and of the child
processes that were waited for), and the number of processes that it started; for each fixture, the
number of set-ups and their wall time; for each module, the wall time of its import.
``scripts/durations.py`` turns these records into a table and a plot.

With xdist, each worker sends its records to the controller when it ends, and the controller adds
them up.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.fixtures import FixtureDef, SubRequest

from openenv._internal import children as _children

# What the interpreter says when a program starts another process.
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
COUNT, SECONDS = 0, 1
SLOW_FROM_S = 5.0  # a test that takes longer says why: pytest.mark.slow(REASON)


class Durations:
    """The records of one process: the worker's, or the controller's sum of all workers'."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self.file = file
        self.is_worker = hasattr(config, "workerinput")
        self.config = config
        self.tests: dict[str, dict[str, float]] = {}
        self.fixtures: dict[str, list[float]] = {}
        self.modules: dict[str, float] = {}
        self.starts = 0
        self.began = time.perf_counter()
        sys.addaudithook(self._count_start)
        self._count_forks()

    # ------------------------------------------------------------------ measuring

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        record = self.tests.setdefault(item.nodeid, {})
        cpu, starts = _cpu_seconds(), self.starts
        try:
            return (yield)
        finally:
            record["cpu"] = _cpu_seconds() - cpu
            record["processes"] = self.starts - starts

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        self.tests.setdefault(item.nodeid, {})[call.when] = call.duration
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: FixtureDef[Any], request: SubRequest
    ) -> Iterator[None]:
        name = f"{fixturedef.baseid}::{fixturedef.argname}".removeprefix("::")
        sums = self.fixtures.setdefault(name, [0, 0.0, 0.0])
        torn_down = 0.0

        def ended() -> None:
            sums[2] += time.perf_counter() - torn_down

        def ending() -> None:
            nonlocal torn_down
            torn_down = time.perf_counter()

        fixturedef.addfinalizer(ended)  # finalizers run in reverse, so this is the last
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            sums[COUNT] += 1
            sums[SECONDS] += time.perf_counter() - began
            fixturedef.addfinalizer(ending)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            if isinstance(collector, pytest.Module):
                self.modules[collector.nodeid] = time.perf_counter() - began

    def _count_start(self, event: str, arguments: object) -> None:
        self.starts += event in STARTS

    def _count_forks(self) -> None:
        fork: Callable[..., Any] = _children.fork

        def counted(*arguments: Any, **options: Any) -> Any:
            self.starts += 1
            return fork(*arguments, **options)

        _children.fork = counted

    # ------------------------------------------------------------------ adding up

    def pytest_sessionfinish(self) -> None:
        if self.is_worker:
            output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined]
            output["durations"] = self._records()
        else:
            records = self._records() | {"wall": time.perf_counter() - self.began}
            self.file.write_text(json.dumps(records), encoding="utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        records = getattr(node, "workeroutput", {}).get("durations")
        if records is None:  # the worker crashed; its tests are missing
            return
        self.tests.update(records["tests"])
        self.modules.update(records["modules"])
        for name, sums in records["fixtures"].items():
            known = self.fixtures.setdefault(name, [0, 0.0, 0.0])
            self.fixtures[name] = [a + b for a, b in zip(known, sums, strict=True)]

    def _records(self) -> dict[str, Any]:
        return {"tests": self.tests, "fixtures": self.fixtures, "modules": self.modules}


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
