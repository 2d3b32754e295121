"""Directories of environments as people lay them out are served in every way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from server.layouts import FLAT, LAYOUTS, PACKAGES, write_layout
from support.commands import environ
from support.zygote import run_python

from openenv.server.loading import TargetError, load_target

# Takes a step over HTTP, so that the models of the application and of the environment have to be
# the same classes.
PLAY = """
import asyncio, json, os, sys

async def post(app, path, body):
    sent = []
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": [(b"content-type", b"application/json"),
             (b"host", b"localhost")], "http_version": "1.1", "scheme": "http",
             "server": ("localhost", 80), "client": ("127.0.0.1", 1), "root_path": ""}
    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    body = b"".join(one.get("body", b"") for one in sent)
    assert sent[0]["status"] == 200, (sent, body)
    return json.loads(body)

def play(app):
    async def episode():
        await post(app, "/reset", {})
        return await post(app, "/step", {"action": {"shoot": True}})
    answer = asyncio.run(episode())
    assert answer["observation"]["hit"] is True and answer["reward"] == 1.0, answer
    print("served")

"""
BY_TARGET = "from openenv.server.loading import load_target\nplay(load_target(sys.argv[1]))\n"
BY_UVICORN = (
    "from uvicorn.importer import import_from_string\n"
    "sys.path.insert(0, os.getcwd())\nplay(import_from_string(sys.argv[1]))\n"
)
BY_AUTO = (
    "from openenv import AutoEnv\n"
    "client = AutoEnv.from_env(sys.argv[1])\n"
    "print(type(client).__name__)\nassert type(client) is type(AutoEnv.from_env(sys.argv[1]))\n"
)


def told(code: str, target: str, cwd: Path) -> str:
    done = run_python(
        [sys.executable, "-c", PLAY + code, target],
        cwd=cwd,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return str(done.stdout).strip() if done.returncode == 0 else str(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_served_by_dot_and_by_its_directory(name: str, tmp_path: Path) -> None:
    directory = write_layout(name, tmp_path)
    assert told(BY_TARGET, ".", directory) == "served"
    assert told(BY_TARGET, str(directory), tmp_path) == "served"


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_a_client(name: str, tmp_path: Path) -> None:
    directory = write_layout(name, tmp_path)
    expected = "DuelEnv" if (directory / "client.py").exists() else "GenericEnvClient"
    assert told(BY_AUTO, str(directory), tmp_path) == expected


@pytest.mark.extended("shows that the layouts are what uvicorn serves, which is not ours")
@pytest.mark.parametrize("name", [*FLAT, *PACKAGES])
def test_every_layout_with_an_application_is_served_by_uvicorn(name: str, tmp_path: Path) -> None:
    directory = write_layout(name, tmp_path)
    if name in FLAT:
        assert told(BY_UVICORN, "server.app:app", directory) == "served"
    elif name != "both ways":
        assert told(BY_UVICORN, f"{directory.name}.server.app:app", tmp_path) == "served"


@pytest.mark.slow
def test_two_directories_with_modules_of_the_same_names_keep_apart(tmp_path: Path) -> None:
    """As do the modules of the program."""
    first = write_layout("a flat client", tmp_path / "one")
    second = write_layout("a flat client", tmp_path / "other")
    (tmp_path / "models.py").write_text("OWN = 1\n")
    code = """
sys.path.insert(0, os.getcwd())
import models
from openenv import AutoEnv
one, other = (type(AutoEnv.from_env(place)) for place in sys.argv[1].split(":"))
assert one is not other, "the same client"
assert sys.modules["models"] is models and models.OWN == 1
from openenv.server.loading import load_target
for place in sys.argv[1].split(":"):
    play(load_target(place))
"""
    assert told(code, f"{first}:{second}", tmp_path) == "served\nserved"


def test_a_directory_without_anything_to_serve_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"has no openenv\.yaml; expected an environment's"):
        load_target(str(tmp_path))
    (tmp_path / "openenv.yaml").write_text("name: duel\n")
    with pytest.raises(TargetError, match=r"no server/app\.py and no Environment class"):
        load_target(str(tmp_path))
    text = "from openenv import Environment\n"
    for name in ("One", "Other"):
        text += f"class {name}(Environment):\n    def reset(self): ...\n"
        text += "    def step(self, action): ...\n    @property\n    def state(self): ...\n"
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "environment.py").write_text(text)
    with pytest.raises(TargetError, match="several Environment classes: One, Other"):
        load_target(str(tmp_path))
