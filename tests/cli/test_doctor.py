from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, environ
from support.zygote import run_python

from openenv.cli import _doctor
from openenv.cli._doctor import DoctorFinding, FindingStatus

pytestmark = pytest.mark.slow

TOKEN = "hf_a-token-that-nobody-may-see"
CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
users: [{name: a, user: {token: a-token-of-the-cluster}}]
"""


class Machine:
    """A machine of which the programs and the variables are known."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.variables: dict[str, str] = {"HF_HOME": str(folder)}

    def has(self, program: str, script: str) -> None:
        path = self.programs / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)

    def examined(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """The exit code, what was found by its name, and all that was said."""
        known = {name: value for name, value in environ().items() if name != "KUBECONFIG"}
        # Without what this machine has: only what Python itself and a sandbox need.
        path = os.pathsep.join((str(self.programs), "/usr/sbin"))
        done = run_python(
            [*COMMAND, "doctor", "--json", *options],
            env={**known, "PATH": path, **self.variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = json.loads(done.stdout)
        assert said["ok"] is (done.returncode == 0)
        return done.returncode, {one["name"]: one for one in said["findings"]}, done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.extended("starts commands and programs of this machine")
def test_what_is_missing_is_no_failure_and_has_a_cure(machine: Machine) -> None:
    code, found, _ = machine.examined()
    assert found["docker"]["status"] == found["podman"]["status"] == "missing"
    assert found["podman"]["cure"] == "sudo apt-get install podman"
    assert found["login"]["detail"] == "there is no token"
    assert found["login"]["cure"] == "hf auth login"
    assert found["git"]["status"] == "missing"
    assert code == (1 if any(one["status"] == "broken" for one in found.values()) else 0)
    assert machine.examined("--strict")[0] == 1


def test_what_is_installed_and_does_not_work_is_a_failure(machine: Machine) -> None:
    machine.has("docker", 'echo "Cannot connect to the Docker daemon." >&2; exit 1')
    machine.has("nvidia-smi", 'echo "NVIDIA-SMI has failed." ; exit 9')
    machine.has("git", "exec /nowhere/at/all")
    code, found, _ = machine.examined()
    assert code == 1
    assert found["docker"]["detail"] == "Cannot connect to the Docker daemon."
    assert found["docker"]["cure"] == "sudo systemctl start docker"
    assert found["nvidia"]["detail"] == "NVIDIA-SMI has failed."
    assert found["git"]["status"] == "broken"


def test_what_works_says_its_version(machine: Machine) -> None:
    machine.has("podman", "echo 5.1.2")
    machine.has("docker", "echo 27.0.3")
    machine.has("nvidia-smi", "echo 'NVIDIA H100, 81559 MiB, 550.54'")
    found = machine.examined()[1]
    assert [found[name]["detail"] for name in ("podman", "docker")] == ["5.1.2", "27.0.3"]
    assert found["nvidia 0"]["detail"] == "NVIDIA H100, 81559 MiB, driver 550.54"


def test_a_program_that_hangs_is_broken(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.has("podman", "exec sleep 20")
    monkeypatch.setattr(_doctor, "PROGRAM_S", 0.5)
    monkeypatch.setenv("PATH", f"{machine.programs}:{os.environ['PATH']}")
    (found,) = _doctor._podman()
    assert (found.status, found.detail) == (FindingStatus.BROKEN, "it does not answer within 0.5 s")


def test_a_check_that_hangs_or_fails_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def hangs() -> Iterator[DoctorFinding]:
        over.wait(20)
        yield from ()

    def fails() -> Iterator[DoctorFinding]:
        raise KeyError("x")
        yield

    def works() -> Iterator[DoctorFinding]:
        yield DoctorFinding("C", "c", FindingStatus.OK, "fine")

    checks = [_doctor.DoctorCheck(*one) for one in (("A", "a", hangs), ("B", "b", fails))]
    monkeypatch.setattr(_doctor, "CHECKS", [*checks, _doctor.DoctorCheck("C", "c", works)])
    monkeypatch.setattr(_doctor, "CHECK_S", 0.2)
    found = _doctor.run_checks()
    over.set()
    assert found == [
        DoctorFinding("A", "a", FindingStatus.BROKEN, "no answer within 0.2 s"),
        DoctorFinding("B", "b", FindingStatus.BROKEN, "it cannot be told: KeyError: 'x'"),
        DoctorFinding("C", "c", FindingStatus.OK, "fine"),
    ]


# ------------------------------------------------------------------ what is elsewhere


@pytest.fixture
def hub() -> Iterator[str]:
    """A hub that knows one token."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
            assert self.path == "/api/whoami-v2"
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(b'{"name": "somebody"}' if is_known else b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_hub_says_who_one_is(machine: Machine, hub: str) -> None:
    machine.variables |= {"HF_ENDPOINT": hub, "HF_TOKEN": TOKEN}
    login = machine.examined()[1]["login"]
    assert (login["status"], login["detail"]) == ("ok", "as somebody")


def test_a_token_that_the_hub_refuses_is_broken(machine: Machine, hub: str) -> None:
    machine.variables |= {"HF_ENDPOINT": hub, "HF_TOKEN": "hf_another"}
    code, found, _ = machine.examined()
    assert (code, found["login"]["status"]) == (1, "broken")
    assert found["login"]["detail"] == f"{hub} refuses the token (status 401)"


@pytest.mark.extended("starts commands and programs of this machine")
@pytest.mark.parametrize(
    "variables", [{"HF_ENDPOINT": "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE": "1"}]
)
def test_being_offline_is_said_and_no_failure(machine: Machine, variables: dict[str, str]) -> None:
    machine.variables |= {"HF_TOKEN": TOKEN, **variables}
    login = machine.examined()[1]["login"]
    assert login["status"] == "missing"
    assert "cannot be reached" in login["detail"] and TOKEN not in login["detail"]


@pytest.mark.extended("starts commands and programs of this machine")
def test_a_cluster_that_does_not_answer_is_broken(machine: Machine, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    config = tmp_path / "config"
    config.write_text(CONFIG)
    machine.variables["KUBECONFIG"] = str(config)
    found = machine.examined()[1]["kubernetes"]
    assert found["status"] == "broken"
    assert "http://127.0.0.1:1" in found["detail"] and "a-token" not in found["detail"]


def test_a_port_that_is_taken_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(_doctor, "PORT", other.getsockname()[1])
        assert _doctor._port().cure == "openenv serve --port 0"


def test_people_read_a_line_each_and_the_cure_below(machine: Machine) -> None:
    done = run_python(
        [*COMMAND, "doctor"],
        env={**environ(), "PATH": str(machine.programs)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.split()[:2] == ["missing", "podman"])
    assert lines[at].split(maxsplit=2)[2] == "not installed"
    assert lines[at + 1].strip() == "sudo apt-get install podman"
    assert "looking: " in done.stderr
