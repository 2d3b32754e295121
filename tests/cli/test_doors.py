"""`openenv serve` with keys and certificates, as the operating system and strangers see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.certificates import Certificates, certificates
from support.commands import COMMAND, environ, openenv_running, run_openenv
from support.probe import Ask, ProbeEnv
from support.waiting import wait_until
from support.zygote import run_python

from openenv import AuthenticationError

TESTS = Path(__file__).parents[1]
PROBE = str(TESTS / "support" / "probe.py")
KEY = "planted-key-of-the-operator"
HEADERS = {"Authorization": f"Bearer {KEY}"}

pytestmark = pytest.mark.slow


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nkey = "{KEY}"\nname = "operator"\n')
    path.chmod(0o600)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates(tmp_path, "127.0.0.1")


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(line) for line in listed.stdout.split()]


def shown_of(pid: int) -> str:
    place = Path(f"/proc/{pid}")
    return ((place / "cmdline").read_bytes() + (place / "environ").read_bytes()).decode()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("workers", [(), ("--workers=2",)], ids=["in the server", "in workers"])
@pytest.mark.parametrize("by", ["variable", "file"])
def test_keys_are_asked_for_and_shown_nowhere(
    by: str, workers: tuple[str, ...], key_file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    if by == "variable":
        monkeypatch.setenv("OPENENV_API_KEY", KEY)
    options = () if by == "variable" else (f"--api-key-file={key_file}",)
    command = ("serve", PROBE, "--port=0", "--json", *options, *workers)
    monkeypatch.setenv("OPENENV_LOG_LEVEL", "trace")
    log = tmp_path / "log"
    with openenv_running(*command, cwd=tmp_path, log=log, is_forked=False) as server:
        monkeypatch.delenv("OPENENV_API_KEY", raising=False)
        url = server.first_line()["url"]
        with pytest.raises(AuthenticationError):
            ProbeEnv(url).reset()
        with ProbeEnv(url, api_key=KEY) as env:
            env.reset()
            for name in ("OPENENV_API_KEY", "OPENENV_API_KEY_FILE"):
                assert env.step(Ask(what="variable", value=name)).observation.value is None
            spawned = env.step(Ask(what="spawn")).observation.value
            assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
            assert httpx.get(f"{url}/schema", headers=HEADERS).status_code == 200
            processes = [server.process.pid, *children(server.process.pid), spawned]
            assert len(processes) > 2 or not workers
            assert not any(KEY in shown_of(pid) for pid in processes)
        os.kill(spawned, signal.SIGKILL)
        server.interrupt()
        assert KEY not in server.words() and "wanted of everybody" in server.words()


def test_a_server_that_starts_anew_on_changes_keeps_its_keys(
    tmp_path: Path, key_file: Path
) -> None:
    target = tmp_path / "probe_copy.py"
    target.write_text(Path(PROBE).read_text())
    command = ("serve", str(target), "--port=0", "--json", "--reload")
    log = tmp_path / "log"
    with openenv_running(*command, f"--api-key-file={key_file}", cwd=tmp_path, log=log) as server:
        url = server.first_line()["url"]

        def starts() -> int:
            return server.words().count("Application startup complete")

        wait_until(lambda: starts() == 1, 20)
        target.write_text(target.read_text() + "\n# changed\n")
        wait_until(lambda: starts() == 2, 20)
        assert httpx.get(f"{url}/schema").status_code == 401
        assert httpx.get(f"{url}/schema", headers=HEADERS).status_code == 200


def test_a_file_that_others_may_read_is_refused(key_file: Path, tmp_path: Path) -> None:
    key_file.chmod(0o644)
    done = run_openenv("serve", PROBE, f"--api-key-file={key_file}", cwd=tmp_path)
    assert done.returncode != 0 and "chmod 600" in done.stderr
    assert "Traceback" not in done.stderr and KEY not in done.stderr


@pytest.mark.parametrize("way", ["openenv serve", "openenv.server.run"])
def test_keys_that_nothing_would_ask_for_are_refused(
    way: str, key_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text("from fastapi import FastAPI\napp = FastAPI()\n")
    module = COMMAND if way == "openenv serve" else (sys.executable, "-m", "openenv.server.run")
    arguments = ["serve"] if way == "openenv serve" else []
    done = run_python(
        [*module, *arguments, "plain.py:app", "--port=0", f"--api-key-file={key_file}"],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode != 0 and "nothing would ask for them" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("host", "has_key", "warns"),
    [("0.0.0.0", False, True), ("0.0.0.0", True, False), ("127.0.0.1", False, False)],
)
def test_a_server_that_the_network_reaches_without_keys_says_so(
    host: str, has_key: bool, warns: bool, key_file: Path, tmp_path: Path
) -> None:
    options = (f"--api-key-file={key_file}",) if has_key else ()
    command = ("serve", PROBE, "--port=0", f"--host={host}", *options)
    with openenv_running(*command, cwd=tmp_path, log=tmp_path / "log") as server:
        wait_until(lambda: "Application startup complete" in server.words(), 20)
        assert ("every client that reaches it may use its environments" in server.words()) is warns
        assert ("NONE: every client that reaches this address" in server.words()) is warns


@pytest.mark.parametrize("way", ["uvicorn", "--reload", "openenv.server.run"])
def test_so_it_does_however_it_was_started(way: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    if way == "--reload":
        command: tuple[str, ...] = (*COMMAND, "serve", "plain.py:app", way)
    else:
        command = (sys.executable, "-m", way, "plain:app")
    log, options = tmp_path / "log", ("--host=0.0.0.0", "--port=0")
    with openenv_running(cwd=tmp_path, log=log, command=(*command, *options)) as server:
        wait_until(lambda: "Application startup complete" in server.words(), 20)
        assert server.words().count("every client that reaches it may use its environments") == 1


PLAIN = f"""
import sys
sys.path.append({str(TESTS)!r})
from support.probe import ProbeEnvironment
from openenv import create_app
app = create_app(ProbeEnvironment)
"""


@pytest.mark.parametrize("way", ["openenv serve", "openenv.server.run", "the script"])
def test_it_speaks_tls(way: str, made: Certificates, tmp_path: Path) -> None:
    tls = (f"--ssl-certfile={made.certificate}", f"--ssl-keyfile={made.private_key}")
    log, port_file = tmp_path / "log", tmp_path / "port"
    if way == "openenv serve":
        command: tuple[str, ...] = (*COMMAND, "serve", PROBE, "--port=0", "--json", *tls)
    elif way == "openenv.server.run":
        command = (sys.executable, "-m", way, PROBE, "--port=0", f"--port-file={port_file}", *tls)
    else:
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        command = (sys.executable, str(script), str(port_file), *tls)
    with openenv_running(cwd=tmp_path, log=log, command=command) as server:
        if way == "openenv serve":
            url = server.first_line()["url"]
            assert url.startswith("https://") and "wss://" in server.words()
        else:
            wait_until(port_file.exists, 20)
            url = f"https://127.0.0.1:{port_file.read_text()}"
        # The script's own port is listened on later than the others, which were bound before.
        up = "Uvicorn running" if way == "the script" else "Application startup complete"
        wait_until(lambda: up in server.words(), 20)
        with ProbeEnv(url, ca_file=made.authority) as env:
            env.reset()
            assert env.step(Ask(what="length", value="abc")).observation.value == 3


SCRIPT = f"""
import socket, sys
sys.path.append({str(TESTS)!r})
from support.probe import ProbeEnvironment
from openenv import create_app
from openenv.server.run import serve_from_command_line
port_file = sys.argv.pop(1)
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
open(port_file + ".part", "w").write(str(port))
import os
os.rename(port_file + ".part", port_file)
serve_from_command_line(create_app(ProbeEnvironment), host="127.0.0.1", port=port)
"""


@pytest.mark.parametrize("module", ["openenv.cli", "openenv.server.run"])
def test_certificates_that_do_not_fit_are_said_to(
    module: str, made: Certificates, tmp_path: Path
) -> None:
    arguments = ["serve"] if module == "openenv.cli" else []
    wrong: list[tuple[str, Callable[[str], bool]]] = [
        (f"--ssl-certfile={tmp_path / 'nowhere'}", lambda words: "nowhere" in words),
        (f"--ssl-keyfile={made.private_key}", lambda words: "--ssl-certfile" in words),
    ]
    for option, is_said in wrong:
        done = run_python(
            [sys.executable, "-m", module, *arguments, PROBE, "--port=0", option],
            cwd=tmp_path,
            env=environ(),
            capture_output=True,
            text=True,
            timeout=40,
        )
        assert done.returncode != 0 and is_said(done.stderr.replace("\n", ""))
        assert "Traceback" not in done.stderr
