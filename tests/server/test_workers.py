"""Worker processes behind a server: what callers see of them, and of a crash."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.probe import Ask, ProbeEnv, ProbeEnvironment
from support.processes import is_alive
from support.waiting import wait_until
from support.workers import OneSession, Unmakeable

from openenv import EnvironmentsFailed, VectorEnv, create_app
from openenv.errors import FactoryFailed, SessionFailed
from openenv.protocol.http import SESSION_HEADER
from openenv.server.workers import managers_of

Serve = Callable[[Any], str]


@pytest.mark.anyio
@pytest.mark.parametrize("version", ["0", "1"])
async def test_a_crash_is_an_error_of_the_session_and_others_go_on(
    serve: Serve, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    url = serve(create_app(ProbeEnvironment, workers=2))
    async with ProbeEnv(url) as env:
        other = await env.new_session()
        await env.reset()
        await other.reset()
        with pytest.raises(SessionFailed, match="SIGKILL") as failed:
            await asyncio.wait_for(_ask(env, "kill"), 10)
        assert failed.value.data["exit_code"] == -signal.SIGKILL
        assert await _ask(other, "length", "abc") == 3
        await env.reset()  # an episode that was asked for is no silent one
        assert await _ask(env, "length", "abc") == 3
        await other.close()


@pytest.mark.parametrize("version", ["0", "1"])
def test_a_batch_whose_workers_died_is_reset_on_the_same_connection(
    serve: Serve, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    url = serve(create_app(ProbeEnvironment, workers=2))
    options: dict[str, Any] = {"client": ProbeEnv, "stack": False, "autoreset_mode": "Disabled"}
    with VectorEnv(url, 3, **options) as envs:
        envs.reset()
        with pytest.raises(EnvironmentsFailed, match="SIGKILL"):
            envs.step([Ask(what="kill")] * 3)
        # The workers are replaced meanwhile, so a reset may meet one that dies.
        wait_until(lambda: _begun(envs))
        seen = envs.step([Ask(what="length", value="abc")] * 3)[0]
        assert [one.value for one in seen] == [3, 3, 3]
    with ProbeEnv(url).sync() as env:  # the sessions that died have given their slots back
        env.reset()
    wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "healthy")


def _begun(envs: VectorEnv) -> bool:
    try:
        envs.reset()
    except EnvironmentsFailed as failed:
        assert "is open already" not in str(failed)
        return False
    return True


async def _ask(env: ProbeEnv, what: str, value: Any = None) -> Any:
    return (await env.step(Ask(what=what, value=value))).observation.value


@pytest.mark.slow
def test_a_session_over_http_ends_with_the_crash(serve: Serve) -> None:
    url = serve(create_app(OneSession, workers=2))
    for _ in range(2):  # its slot comes free
        headers = {SESSION_HEADER: httpx.post(f"{url}/reset").headers[SESSION_HEADER]}
        step = {"json": {"action": {"what": "kill"}}, "headers": headers}
        crashed = httpx.post(f"{url}/step", **step)  # type: ignore[arg-type]
        assert (crashed.status_code, crashed.json()["code"]) == (500, "SESSION_ERROR")
        assert crashed.json()["exit_code"] == -signal.SIGKILL
        gone = httpx.post(f"{url}/step", **step)  # type: ignore[arg-type]
        assert (gone.status_code, gone.json()["code"]) == (404, "SESSION_ERROR")


def test_a_crash_is_seen_at_health_until_it_is_mended(serve: Serve) -> None:
    url = serve(create_app(ProbeEnvironment, workers=1))
    crashed = httpx.post(f"{url}/step", json={"action": {"what": "exit", "value": 3}})
    assert crashed.json()["exit_code"] == 3
    health = httpx.get(f"{url}/health").json()
    assert health["status"] == "healthy" or "exit code 3" in health["message"]
    wait_until(lambda: httpx.get(f"{url}/health").json() == {"status": "healthy"}, 10)


def test_a_crash_of_a_constructor_is_the_factorys(serve: Serve) -> None:
    url = serve(create_app(Unmakeable, workers=1))
    with ProbeEnv(url) as env, pytest.raises(FactoryFailed, match="exit code 7"):
        _ = env.reset().observation
    health = httpx.get(f"{url}/health").json()
    assert health["status"] == "degraded" and "Unmakeable" in health["message"]
    assert httpx.get(f"{url}/metadata").status_code == 500


def test_what_the_program_itself_defines_is_refused() -> None:
    class Local(ProbeEnvironment):
        pass

    with pytest.raises(TypeError, match="worker processes cannot import Local"):
        create_app(Local, workers=2)
    with pytest.raises(ValueError, match="workers=0"):
        create_app(ProbeEnvironment, workers=0)


def test_those_of_an_application_that_nobody_can_call_end() -> None:
    def used() -> int:
        with ProbeEnv.local(create_app(ProbeEnvironment, workers=1)).sync() as env:
            env.reset()
            return int(env.step(Ask(what="where")).observation.value["pid"])

    pid = used()
    gc.collect()
    wait_until(lambda: not is_alive(pid))


def test_those_of_an_application_that_is_gone_keep_the_sessions_that_they_have() -> None:
    app = create_app(ProbeEnvironment, workers=1)
    (manager,) = managers_of(app)
    with ProbeEnv.local(app).sync() as env:
        env.reset()
        where = env.step(Ask(what="where")).observation.value
        manager.executors.abandon(os.getpid())  # type: ignore[attr-defined]  # of worker processes
        assert env.step(Ask(what="where")).observation.value == where
