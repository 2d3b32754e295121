"""Oumi finds our rollout function by its name, and its trainer trains by it.

Oumi is the real package, with the TRL that it wants; the model is tiny and random, and any text of
it presses a button.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES
from support.servers import serving
from support.venvs import python_of
from trainers.buttons import BREAKS, FINE, Buttons

from openenv.server.app import create_app

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
ROOT = SOURCES.parent

ROLLOUTS = """
from openenv.integrations.oumi import register

rows = [
    {{"prompt": [{{"role": "user", "content": "Obey."}}], "seed": {fine}}},
    {{"prompt": [{{"role": "user", "content": "Break."}}], "seed": {breaks}}},
]
register("buttons", environment={url!r}, rows=rows)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Oumi wants an older uvicorn than we do, for servers of its own, and is told otherwise."""
    override = tmp_path_factory.mktemp("oumi") / "override.txt"
    override.write_text("uvicorn>=0.50\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("UV_OVERRIDE", str(override))
        return python_of(ROOT / ".peers" / "trainers_oumi", "oumi==0.9", "-e", str(ROOT))


@pytest.fixture(scope="module")
def told(python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("oumi")
    with serving(create_app(Buttons, max_concurrent_envs=8)) as url:
        (folder / "rollouts.py").write_text(ROLLOUTS.format(fine=FINE, breaks=BREAKS, url=url))
        (folder / "registry.txt").write_text(f"{folder / 'rollouts.py'}\n")
        done = subprocess.run(
            [python, str(HERE / "oumi_play.py"), str(folder / "out")],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parent),
                "OMP_NUM_THREADS": "1",
                "OUMI_EXTRA_DEPS_FILE": str(folder / "registry.txt"),
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def test_its_trainer_trains_by_our_rollouts(told: dict[str, list[Any]]) -> None:
    """Two steps of four rollouts; the reward is what each has earned, by one press or by two."""
    assert len(told["prompts"]) == 8
    fine = [at for at, prompt in enumerate(told["prompts"]) if prompt == "Obey."]
    assert fine
    for at in fine:
        assert told["env_reward"][at] == 0.5 * told["env_steps"][at]
        assert told["env_steps"][at] in (1, 2)


def test_what_fails_has_no_reward(told: dict[str, list[Any]]) -> None:
    broken = [at for at, prompt in enumerate(told["prompts"]) if prompt == "Break."]
    assert broken
    for at in broken:
        assert told["env_reward"][at] is None
        assert "broke off" in told["env_unscored"][at]


# ------------------------------------------------------------------ its own example


def test_its_example_steps_a_client_for_each_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server by uvicorn, as its page says; the client at the address that it listens on."""
    monkeypatch.syspath_prepend(str(ROOT))  # where `envs` is
    from envs.echo_env import EchoEnv
    from envs.echo_env.models import EchoAction

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    served = ["uvicorn", "envs.echo_env.server.app:app", "--host", "0.0.0.0", "--port", str(port)]
    path = os.pathsep.join([str(ROOT), str(SOURCES)])
    process = subprocess.Popen(
        [sys.executable, "-m", *served], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        wait_for(f"http://0.0.0.0:{port}/health", process)
        client = EchoEnv(base_url=f"http://0.0.0.0:{port}")
        client.reset()
        rewards = [client.step(EchoAction(message=said)).reward for said in ("hi", "hello there")]
        client.close()
    finally:
        process.terminate()
        process.wait(10)
    assert all(isinstance(reward, float) for reward in rewards)
    assert rewards[1] > rewards[0]


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            assert answer.status == 200
            return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")
