"""`check_provider`: our providers keep the contract, and who breaks it is found out."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openenv.errors import ProviderError
from openenv.providers import ProcessProvider
from openenv.providers.process import HostServer
from openenv.providers.servers import LaunchRequest
from openenv.testing import CheckFailed, check_provider, provider

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

HANGS = "import time\nprint('loading', flush=True)\ntime.sleep(1000)\n"
DIES = "print('no weights', flush=True)\nraise SystemExit(3)\n"


def kill(server: Any) -> None:
    os.kill(server.pid, signal.SIGKILL)


@pytest.fixture
def targets(tmp_path: Path) -> Callable[[str], ProcessProvider]:
    def write(program: str) -> ProcessProvider:
        path = tmp_path / f"target{len(list(tmp_path.iterdir()))}.py"
        path.write_text(program)
        return ProcessProvider(path)

    return write


def test_there_are_forty_promises_and_each_is_checked() -> None:
    assert len(provider.PROMISES) >= 40
    assert set(provider._CHECKS) == set(provider.PROMISES)


@pytest.mark.slow("starts a server for each of forty promises")
def test_processes_keep_all_of_them(targets: Callable[[str], ProcessProvider]) -> None:
    report = check_provider(
        ProcessProvider("echo_env"),
        kill=kill,
        dies=targets(DIES),
        hangs=targets(HANGS),
        missing=ProcessProvider("no_such_env"),
    )
    assert [one.promise for one in report.findings if one.kept is not True] == []


class Careless(ProcessProvider):
    """Takes whatever it is given, tells its key, and does not stop what it has started."""

    def _launch(self, request: LaunchRequest) -> HostServer:
        made = super()._launch(replace(request, port=None, options={}))
        made.name = f"server with {made.api_key}"
        made.stop = lambda: None  # type: ignore[method-assign]
        made._stop = lambda: None  # type: ignore[method-assign]
        started.append(made)
        return made


started: list[HostServer] = []


def test_one_that_breaks_them_is_found_out() -> None:
    only = {
        provider.UNKNOWN_OPTIONS_ARE_REFUSED,
        provider.A_PORT_IS_TAKEN,
        provider.KEYS_ARE_NOT_SHOWN,
        provider.STOP_ENDS_IT,
        provider.SERVERS_ARE_LISTED,
    }
    skip = {one: "not here" for one in provider.PROMISES if one not in only}
    try:
        with pytest.raises(CheckFailed) as caught:
            check_provider(Careless("echo_env"), skip=skip)
    finally:
        for one in started:
            one.process.stop()
    assert {one.promise for one in caught.value.report.broken} == only


def test_what_is_known_to_be_broken_is_data() -> None:
    skip = dict.fromkeys(provider.PROMISES[2:], "not here")
    first, second = provider.PROMISES[:2]

    class Broken(ProcessProvider):
        def _launch(self, *arguments: Any, **options: Any) -> Any:
            raise ProviderError("out of order")

    report = check_provider(Broken("echo_env"), skip=skip, known_failures={second: "issue 12"})
    (finding,) = [one for one in report.findings if one.promise == second]
    assert finding.kept is None and "issue 12 (ProviderError: out of order)" in finding.detail
    with pytest.raises(CheckFailed, match="it is kept, though it is known to be broken: issue 12"):
        check_provider(
            Broken("echo_env"), skip=skip, known_failures={first: "issue 12", second: ""}
        )


def test_a_promise_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="unknown promise 'It flies"):
        check_provider(ProcessProvider("echo_env"), skip={"It flies.": ""})
