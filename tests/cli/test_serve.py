from __future__ import annotations

import contextlib
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands import Running, openenv_running, run_openenv
from support.waiting import wait_until

from openenv import GenericEnvClient
from openenv.errors import CapacityError

pytestmark = pytest.mark.slow  # most start servers in processes of their own

ONE_ENVIRONMENT = """
from openenv import Action, Environment, Observation, State


class Greeting(Observation):
    text: str = ""


class Greeter(Environment[Action, Greeting, State]):
    def reset(self) -> Greeting:
        return Greeting(text="good morning")

    def step(self, action: Action) -> Greeting:
        return Greeting(text="good night", done=True)

    @property
    def state(self) -> State:
        return State()
"""

ANSWERS_WITHIN_S = 15.0


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    """A file that holds one environment class and nothing else."""
    file = tmp_path / "greeter.py"
    file.write_text(ONE_ENVIRONMENT)
    return file


@contextlib.contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[tuple[Running, dict[str, Any]]]:
    command = ("serve", *arguments, "--port=0", "--json")
    with openenv_running(*command, cwd=cwd, log=cwd / "log") as server:
        yield server, server.first_line()


def get(url: str) -> Any:
    """Fetch JSON; None while there is no server."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWERS_WITHIN_S) as answer:
            return json.load(answer)
    except OSError:
        return None


def post(url: str, body: Any, headers: Mapping[str, str] | None = None) -> Any:
    """Send JSON."""
    told = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), told)
    with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
        return answer


# ------------------------------------------------------------------ serving


def test_stdout_is_one_line_of_json_and_words_go_to_stderr(greeter: Path) -> None:
    with serving("greeter.py", cwd=greeter.parent) as (server, told):
        with urllib.request.urlopen(f"{told['url']}/health") as answer:  # at once: no retries
            assert answer.status == 200
        code, more = server.interrupt()
        assert told == {"url": told["url"], "pid": server.process.pid, "target": "greeter.py"}
        assert more == ""
        assert code == 130
        words = server.words()
    for row in ("greeter.py", f"{told['url']}/docs", f"{told['url']}/health", "/ws", "GET /health"):
        assert row in words
    assert f'with GenericEnvClient(base_url="{told["url"]}") as env:' in words


def test_without_json_stdout_stays_empty(greeter: Path) -> None:
    with openenv_running(
        "serve", "greeter.py", "-p", "0", cwd=greeter.parent, log=greeter.parent / "log"
    ) as server:
        wait_until(
            lambda: "Application startup complete" in server.words(),
            ANSWERS_WITHIN_S,
            server.words,
        )
        assert server.interrupt() == (130, "")


def test_the_script_of_an_environment_serves_it_too(my_game_env: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "my_game_env.server.app")
    cwd, log = my_game_env.parent, tmp_path / "log"
    with openenv_running("--port=0", cwd=cwd, log=log, command=command) as server:
        wait_until(
            lambda: "Application startup complete" in server.words(),
            ANSWERS_WITHIN_S,
            server.words,
        )
        assert server.interrupt() == (130, "")
        assert "Traceback" not in server.words()


@pytest.mark.parametrize(
    "target", ["greeter.py", "greeter.py:Greeter", "greeter:Greeter", "echo_env", "here"]
)
def test_whatever_a_target_may_be_is_served(target: str, greeter: Path, my_game_env: Path) -> None:
    arguments = ("serve", "." if target == "here" else target, "--port=0", "--json")
    cwd = my_game_env if target == "here" else greeter.parent
    with openenv_running(*arguments, cwd=cwd, log=greeter.parent / "log") as server:
        url = server.first_line()["url"]
        with GenericEnvClient(base_url=url) as env:
            greeting = str(env.reset().observation)
            assert "good morning" in greeting or "ready!" in greeting


@pytest.mark.parametrize("target", ["echo_env", "shared.py"])
def test_the_command_limits_the_sessions_of_a_server(target: str, greeter: Path) -> None:
    text = ONE_ENVIRONMENT.replace("State]):", "State]):\n    SUPPORTS_CONCURRENT_SESSIONS = True")
    (greeter.parent / "shared.py").write_text(text)
    with serving(target, "--max-concurrent-envs=2", cwd=greeter.parent) as (_, told):
        url = told["url"]
        with GenericEnvClient(base_url=url) as one, GenericEnvClient(base_url=url) as two:
            one.reset()
            two.reset()
            with (
                pytest.raises(CapacityError, match="2"),
                GenericEnvClient(base_url=url, queue_timeout_s=0) as three,
            ):
                three.reset()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("greeter.py", "greeter.py serves 1 at once"),
        ("fixed.py", "fixed.py serves 8 at once"),
        ("other.py", "other.py does not say how many"),
    ],
)
def test_a_limit_that_a_target_does_not_keep_is_refused(
    target: str, words: str, greeter: Path
) -> None:
    (greeter.parent / "fixed.py").write_text(
        ONE_ENVIRONMENT.replace("State]):", "State]):\n    SUPPORTS_CONCURRENT_SESSIONS = True")
        + "from openenv import create_app\napp = create_app(Greeter, max_concurrent_envs=8)\n"
    )
    (greeter.parent / "other.py").write_text("from fastapi import FastAPI\napp = FastAPI()\n")
    done = run_openenv("serve", target, "--max-concurrent-envs=2", "-p0", cwd=greeter.parent)
    assert done.returncode == 2
    assert f"--max-concurrent-envs 2 has no effect: {words}" in done.stderr


@pytest.mark.parametrize("target", ["greeter.py", "greeter:Greeter", "echo_env"])
def test_workers_hold_the_environments_of_one_server(target: str, greeter: Path) -> None:
    with serving(target, "--workers=2", cwd=greeter.parent) as (server, told):
        assert "2 processes" in server.words()
        with GenericEnvClient(base_url=told["url"]) as env:
            env.reset()
            assert env.step({"message": "hi"} if target == "echo_env" else {}).observation
        # Whichever worker has it: a session over HTTP is found again.
        session = post(f"{told['url']}/reset", {}).headers["OpenEnv-Session-Id"]
        for _ in range(3):
            action = {"message": "hi"} if target == "echo_env" else {}
            answer = post(
                f"{told['url']}/step", {"action": action}, {"OpenEnv-Session-Id": session}
            )
            assert answer.status == 200
        assert get(f"{told['url']}/health") == {"status": "healthy"}
        assert server.interrupt()[0] == 130
        assert "Traceback" not in server.words()


def test_a_target_without_an_environment_has_nothing_for_workers(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("async def app(scope, receive, send): ...\n")
    done = run_openenv("serve", "plain.py", "--workers=2", cwd=tmp_path)
    assert done.returncode == 1
    assert "Error: plain.py serves no environment" in done.stderr


@pytest.mark.slow
def test_reload_serves_what_the_file_has_become(greeter: Path) -> None:
    with serving("greeter.py", "--reload", cwd=greeter.parent) as (server, told):
        wait_until(
            lambda: "Greeter" in str(get(f"{told['url']}/metadata")),
            ANSWERS_WITHIN_S,
            server.words,
        )
        greeter.write_text(ONE_ENVIRONMENT.replace("Greeter", "Welcomer"))
        wait_until(
            lambda: "Welcomer" in str(get(f"{told['url']}/metadata")),
            ANSWERS_WITHIN_S,
            server.words,
        )


# ------------------------------------------------------------------ refusing


def test_a_misspelt_target_is_answered_with_what_is_there(my_game_env: Path) -> None:
    done = run_openenv("serve", "my_gmae_env", cwd=my_game_env.parent)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "hint: did you mean my_game_env?" in done.stderr


@pytest.mark.parametrize(("typed", "meant"), [("ecko_env", "echo_env"), ("ecko", "echo")])
def test_a_misspelt_package_is_answered_with_what_is_installed(
    typed: str, meant: str, tmp_path: Path
) -> None:
    done = run_openenv("serve", typed, cwd=tmp_path)
    assert done.returncode == 1
    assert f"hint: did you mean {meant}?" in done.stderr


@pytest.mark.parametrize("target", [".", "no.such.package", "missing.py", "greeter.py:Gretter"])
def test_a_target_that_is_nothing_is_an_error_with_a_hint(target: str, greeter: Path) -> None:
    done = run_openenv("serve", target, cwd=greeter.parent)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "says"), [("name: [", "cannot be read"), ("- a\n", "must hold a mapping, not list")]
)
def test_a_broken_manifest_is_named(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "openenv.yaml").write_text(content)
    done = run_openenv("serve", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {tmp_path / 'openenv.yaml'} {says}")
    assert "Traceback" not in done.stderr


def test_an_environment_that_fails_to_import_shows_where_and_what_to_install(
    tmp_path: Path,
) -> None:
    (tmp_path / "needy.py").write_text("\nimport surely_not_installed\n")
    done = run_openenv("serve", "needy.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "(needy.py, line 2)\n" in done.stderr
    assert "Traceback" not in done.stderr
    # The package of a module's name may be a stranger's.
    assert "pip install" not in done.stderr
    assert "hint: no package that is installed" in done.stderr
    (tmp_path / "requirements.txt").write_text("surely-not-installed\n")
    done = run_openenv("serve", "needy.py", cwd=tmp_path)
    assert "hint: install what it depends on: pip install -r requirements.txt" in done.stderr


def test_a_port_in_use_is_named(greeter: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run_openenv("serve", "greeter.py", f"--port={port}", cwd=greeter.parent)
    assert done.returncode == 1
    assert f"Error: port {port}" in done.stderr
    assert "hint: " in done.stderr
    assert done.stdout == ""


def test_an_address_of_another_machine_is_refused(greeter: Path) -> None:
    done = run_openenv("serve", "greeter.py", "--host=192.0.2.1", cwd=greeter.parent)
    assert done.returncode == 1
    assert "192.0.2.1" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("--reload", "--workers=2"), ("--workers=0",), ("--port=70000",)]
)
def test_options_that_make_no_sense_are_misuse(arguments: tuple[str, ...], greeter: Path) -> None:
    assert run_openenv("serve", "greeter.py", *arguments, cwd=greeter.parent).returncode == 2


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("2048", "game_2048_env"),
        ("blackjack", "blackjack_env"),
        ("chess", "chess_env"),
        ("openspiel-env", "openspiel_env"),
        ("nothing", "nothing"),
        ("json.tool", "json.tool"),
        ("gymnasium:CartPole-v1", "gymnasium:CartPole-v1"),
    ],
)
def test_an_environment_is_served_by_its_short_name(name: str, package: str) -> None:
    from openenv.cli.commands.serve import package_called

    assert package_called(name) == package
