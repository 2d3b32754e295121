"""The key of a server that a provider starts: fresh, and told by a file that goes away."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.probe import Ask, ProbeEnv
from support.zygote import run_python

from echo_env import EchoAction, EchoEnv
from openenv import AuthenticationError, VectorEnv
from openenv._internal.redaction import redact
from openenv.providers import ProcessProvider
from openenv.providers.process import HostServer, ServerProcess

pytestmark = pytest.mark.slow  # most start servers in processes of their own

REPOSITORY = Path(__file__).parents[2]
PROBE = REPOSITORY / "tests" / "support" / "probe.py"
PLANTED = "planted-key-of-the-program"
VARIABLES = ("OPENENV_API_KEY", "OPENENV_API_KEY_FILE")


def ask(provider: ProcessProvider, what: str, value: Any = None) -> Any:
    with ProbeEnv(base_url=provider.base_url) as env:
        env.reset()
        return env.step(Ask(what=what, value=value)).observation.value


def shown_of(pid: int) -> str:
    """What the system shows of a process to its user."""
    place = Path(f"/proc/{pid}")
    return ((place / "cmdline").read_bytes() + (place / "environ").read_bytes()).decode()


def test_clients_of_this_process_find_it_and_others_are_refused() -> None:
    with ProcessProvider("echo_env") as provider:
        provider.wait_for_ready()
        key = provider.api_key
        assert key is not None and len(key) >= 32
        with EchoEnv(base_url=provider.base_url) as env:
            env.reset()
            assert env.step(EchoAction(message="hi")).observation.echoed_message == "hi"
        with VectorEnv(provider.base_url, 2) as envs:
            envs.reset()
        with pytest.raises(AuthenticationError, match="api_key"):
            EchoEnv(base_url=provider.base_url, api_key="another").reset()
        assert httpx.get(f"{provider.base_url}/health").json() == {"status": "healthy"}
        assert httpx.get(f"{provider.base_url}/schema").status_code == 200
        assert httpx.get(f"{provider.base_url}/metadata").status_code == 401
        headers = {"X-API-Key": key}
        assert httpx.get(f"{provider.base_url}/metadata", headers=headers).status_code == 200


OTHER_PROCESS = """
import sys
from echo_env import EchoEnv

with EchoEnv(sys.argv[1], api_key=sys.stdin.read() or None) as env:
    env.reset()
"""


@pytest.mark.slow
def test_another_process_is_let_in_with_it_only() -> None:
    with ProcessProvider("echo_env") as provider:
        provider.wait_for_ready()
        for key, wanted in ((provider.api_key, 0), ("", 1)):
            done = run_python(
                [sys.executable, "-c", OTHER_PROCESS, provider.base_url],
                input=key,
                env=_environ(),
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert done.returncode == wanted, done.stderr
        assert "AuthenticationError" in done.stderr


def _environ() -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "envs")])
    return {**os.environ, "PYTHONPATH": path}


def test_each_start_has_one_of_its_own() -> None:
    provider = ProcessProvider("echo_env")
    keys: list[str | None] = []
    assert provider.api_key is None
    for _ in range(2):
        provider.start()
        keys.append(provider.api_key)
        provider.stop()
        assert provider.api_key is None
    assert len(set(keys)) == 2 and None not in keys


def test_it_is_told_by_a_file_for_nobody_else_which_is_gone_once_it_is_ready() -> None:
    with ProcessProvider("echo_env") as provider:
        assert isinstance(provider._server, HostServer)
        file = provider._server.process.directory / "key"
        mode = stat.S_IMODE(file.stat().st_mode)
        provider.wait_for_ready()
        assert (mode, file.exists()) == (0o600, False)


def test_the_file_of_a_server_that_never_reads_it_is_gone_with_it() -> None:
    server = ServerProcess(["sleep", "60"], api_key=PLANTED)
    file = server.directory / "key"
    assert PLANTED in file.read_text() and PLANTED not in shown_of(server.pid)
    assert redact(f"x {PLANTED}") == "x ***"
    server.stop()
    assert not file.exists() and PLANTED not in server.logs()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_no_key_is_shown_by_the_system_nor_found_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither that of the server nor that of this program; in new servers and forked ones."""
    monkeypatch.setenv("OPENENV_API_KEY", PLANTED)
    providers = [ProcessProvider(PROBE) for _ in range(3)]
    try:
        for provider in providers:
            provider.start()
            provider.wait_for_ready()
            assert provider.api_key is not None
            shown = shown_of(provider.pid or 0)
            assert PLANTED not in shown and provider.api_key not in shown
            assert [ask(provider, "variable", name) for name in VARIABLES] == [None, None]
            child = ask(provider, "spawn")
            inherited = shown_of(child)
            assert not any(name in inherited for name in VARIABLES)
            assert provider.api_key not in provider.logs() and PLANTED not in provider.logs()
            assert isinstance(provider._server, HostServer)
            assert provider.api_key not in repr(vars(provider._server.process))
    finally:
        for provider in providers:
            provider.stop()
    assert os.environ["OPENENV_API_KEY"] == PLANTED


def test_it_may_be_given() -> None:
    with ProcessProvider("echo_env", api_key=PLANTED) as provider:
        provider.wait_for_ready()
        assert provider.api_key == PLANTED
        with EchoEnv(base_url=provider.base_url) as env:
            env.reset()
        with pytest.raises(AuthenticationError):
            EchoEnv(base_url=provider.base_url, api_key="another").reset()


def test_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", PLANTED)
    with ProcessProvider("echo_env", api_key=None) as provider:
        provider.wait_for_ready()
        assert provider.api_key is None
        assert httpx.get(f"{provider.base_url}/schema").status_code == 200


def test_an_application_that_would_ask_for_none_is_not_served(tmp_path: Path) -> None:
    target = tmp_path / "open.py"
    target.write_text("from fastapi import FastAPI\napp = FastAPI()\n")
    provider = ProcessProvider(f"{target}:app")
    with pytest.raises(Exception, match="api_key=None"), provider:
        provider.wait_for_ready()
    with ProcessProvider(f"{target}:app", api_key=None) as provider:
        assert httpx.get(f"{provider.base_url}/docs").status_code == 200
