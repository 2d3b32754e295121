from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import openenv_running, run_openenv

from openenv.cli._info import outline, read_files, server_address


def test_a_schema_is_a_line() -> None:
    move = {
        "title": "Move",
        "required": ["to"],
        "properties": {
            "to": {"type": "array", "items": {"type": "integer"}},
            "kind": {"enum": ["a", "b"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "place": {"$ref": "#/$defs/Place"},
            "reward": {"type": "number"},
        },
    }
    line = "Move(to: array of integer, kind?: 'a' or 'b', note?: string or null, place?: Place)"
    assert outline(move) == line
    either = {"anyOf": [{"$ref": "#/$defs/Move"}, {"title": "Pass"}], "$defs": {"Move": move}}
    assert outline(either) == f"{line} | Pass()"
    assert outline(None) == ""


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("http://localhost:8000/", "http://localhost:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("greeter:Greeter", None),
        ("echo", None),
    ],
)
def test_an_address_is_told_from_a_target(target: str, url: str | None) -> None:
    assert server_address(target) == url


def test_a_manifest_need_not_say_much(tmp_path: Path) -> None:
    (tmp_path / "openenv.yaml").write_text("name: my_env\nvalidation: none\n")
    assert read_files(str(tmp_path)) == {"name": tmp_path.name, "directory": str(tmp_path)}


@pytest.mark.extended("starts commands that start servers")
@pytest.mark.slow
def test_what_is_installed_is_listed(tmp_path: Path) -> None:
    done = run_openenv("info", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert "echo_env" in done.stdout and "Repeats what it is told" in done.stdout
    told = json.loads(run_openenv("info", "--json", cwd=tmp_path).stdout)["environments"]
    assert {"name", "package", "version", "description", "directory", "image"} == set(told[0])


@pytest.mark.slow
def test_the_files_of_an_environment_are_enough_for_some(tmp_path: Path) -> None:
    done = run_openenv("info", "echo", "--static", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["name"] == "echo_env" and told["limits"]["network"] == "no-network"
    assert "schema" not in told


@pytest.mark.extended("starts commands that start servers")
@pytest.mark.slow
def test_an_environment_is_served_for_the_rest(tmp_path: Path) -> None:
    done = run_openenv("info", "echo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:2] == ["echo_env 0.1.0", "Repeats what it is told"]
    assert "mode simulation" in lines
    assert "tools echo_message, echo_with_length" in lines
    assert "tasks train 2, test 1" in lines
    assert any(line.startswith("action EchoAction(message: string)") for line in lines)


@pytest.mark.extended("starts commands that start servers")
@pytest.mark.slow
def test_a_server_tells_it_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    keys.write_text("[[keys]]\nname = 'me'\nkey = 'a-long-enough-key-for-this-test'\n")
    keys.chmod(0o600)
    arguments = ("serve", "echo", "--port=0", "--json", "--api-key-file", str(keys))
    with openenv_running(*arguments, cwd=tmp_path, log=tmp_path / "log") as server:
        url = server.first_line()["url"]
        refused = run_openenv("info", url, cwd=tmp_path)
        assert refused.returncode == 1
        assert "set OPENENV_API_KEY" in refused.stderr
        monkeypatch.setenv("OPENENV_API_KEY", "a-long-enough-key-for-this-test")
        told = json.loads(run_openenv("info", url, "--json", cwd=tmp_path).stdout)
    assert told["url"] == url and told["health"] == "healthy"
    assert told["tasks"] == {"train": 2, "test": 1}
    assert told["sessions"]["most"] > 0
    assert told["schema"]["action"]["anyOf"]


@pytest.mark.extended("starts commands that start servers")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("ecko",), 1, "Did you mean 'echo'?"),
        (("http://127.0.0.1:1",), 1, "no server answers at http://127.0.0.1:1: "),
        (("http://127.0.0.1:1", "--static"), 2, "is a server, and has no files"),
        (("broken.py",), 1, "broken.py cannot be served: KeyError: 'x'\n"),
        (("nothing",), 1, "there is no environment 'nothing'"),
    ],
)
def test_what_cannot_be_known_is_said(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("{}['x']\n")
    done = run_openenv("info", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("Error: ") and says in done.stderr and "hint: " in done.stderr


@pytest.mark.slow
def test_another_kind_of_server_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "from fastapi import FastAPI\napp = FastAPI()\n"
        "@app.get('/health')\ndef health() -> dict[str, str]: return {'status': 'healthy'}\n"
    )
    arguments = ("serve", "plain.py", "--port=0", "--json")
    with openenv_running(*arguments, cwd=tmp_path, log=tmp_path / "log") as server:
        done = run_openenv("info", server.first_line()["url"], cwd=tmp_path)
    assert done.returncode == 1
    assert "is not an OpenEnv server: /metadata gave 404" in done.stderr


HOSTILE = "evil\x1b]0;pwned\x07\x1b[2J\x9b1m\u202e [link=http://x]y[/link]"


@contextlib.contextmanager
def hostile_server(answers: dict[str, Any]) -> Iterator[tuple[str, list[str | None]]]:
    """A server that says what it is told to, or sends elsewhere; and the keys that it was sent."""
    keys: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("Authorization"))
            answer = answers.get(self.path, {})
            if isinstance(answer, str):
                self.send_response(302)
                self.send_header("Location", answer + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SAID: dict[str, Any] = {
    "/metadata": {"name": HOSTILE, "description": HOSTILE, "version": "1"},
    "/health": {"status": "healthy"},
    "/schema": {"action": {"title": HOSTILE}, "observation": {}, "state": {}},
}


def test_what_a_server_says_of_itself_moves_nothing_on_the_terminal(tmp_path: Path) -> None:
    with hostile_server(SAID) as (url, _):
        done = run_openenv("info", url, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "\\x1b[2J" in said and "[link=http://x]y[/link]" in said
    assert not set("\x1b\x07\x9b\u202e") & set(said)


def test_a_key_is_sent_to_the_host_that_was_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", "a-key-for-one-host-0123")
    with hostile_server(SAID) as (elsewhere, seen):
        moved = dict.fromkeys(["/metadata", "/schema", "/health", "/openapi.json"], elsewhere)
        with hostile_server(moved) as (url, keys):
            done = run_openenv("info", url, cwd=tmp_path)
    assert keys and set(keys) == {"Bearer a-key-for-one-host-0123"}
    assert not seen and done.returncode == 1 and "gave 302" in done.stderr
