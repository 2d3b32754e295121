"""Public examples of trainers train on our environments, unmodified but for the hardware.

TRL's scripts are in none of its packages, nor are the files of SkyRL, ART and verifiers that are
tried here: they are taken from checkouts in the folder that ``PUBLIC_SOURCES`` names, such as
``git clone https://github.com/huggingface/trl``, where there are any. Without them, the same calls
in the same order are made by `public_patterns`, and by `skyrl_play` and `art_play`. Oumi's notebook
is in its package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.commands import SOURCES, environ
from support.llm_server import Asked, Reply, llm_server
from support.locks import exclusive
from support.servers import serving
from support.venvs import python_of
from trainers import test_trl

from openenv.server.loading import load_target

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TEXTARENA = ROOT / "envs" / "textarena_env"
WORDS = ["crane", "house", "table", "apple", "water"]

ECHO = {"": [["echo", {"message": "Hello World!"}], ["echo", {"message": "Hi"}]]}
CATCH = {"Catch": [["move", {"direction": "left"}], ["move", {"direction": "right"}], ["stay", {}]]}
WORDLE = {"Wordle": [["guess", {"guess": f"[{word}]"}] for word in (*WORDS[:3], "zzzzz")]}


def public(repository: str, path: str) -> Path:
    """Return the path of a file or folder of a checkout; skip the test if there is none."""
    folder = os.environ.get("PUBLIC_SOURCES")
    if folder is None:
        pytest.skip(f"PUBLIC_SOURCES names no folder with a checkout of github.com/{repository}")
    found = Path(folder) / repository.rpartition("/")[2] / path
    assert found.exists(), f"{found} is not there: clone https://github.com/{repository} anew"
    return found


# ------------------------------------------------------------------ servers


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with serving(load_target("echo_env")) as url:
        yield url


@pytest.fixture(scope="module")
def catch() -> Iterator[str]:
    with serving(load_target("openspiel_env")) as url:
        yield url


@pytest.fixture(scope="module")
def nltk_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of NLTK that Wordle reads, of five words."""
    folder = tmp_path_factory.mktemp("nltk_data")
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    for name in ("en", "en-basic", "README"):
        (corpus / name).write_text("\n".join(WORDS) + "\n")
    name = "averaged_perceptron_tagger_eng"
    tagger = folder / "taggers" / name
    tagger.mkdir(parents=True)
    parts = {"weights": {}, "tagdict": dict.fromkeys(WORDS, "NN"), "classes": ["NN"]}
    for part, content in parts.items():
        (tagger / f"{name}.{part}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def wordle(nltk_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server by uvicorn, as TRL's page says, of a Python that has TextArena."""
    wanted = (ROOT / "pyproject.toml").read_text() + (TEXTARENA / "pyproject.toml").read_text()
    editable = [word for path in (ROOT, TEXTARENA) for word in ("--editable", str(path))]
    packages = [*editable, "numpy", "pytest", "pytest-timeout"]  # as its own tests have it
    python = python_of(ROOT / ".peers" / "textarena", *packages, made_of=wanted)
    command = [python, "-m", "uvicorn", "textarena_env.server.app:app"]
    with run_server(command, {**environ(), "NLTK_DATA": str(nltk_data)}) as url:
        yield url


@contextmanager
def run_server(command: list[str], env: dict[str, str], cwd: Path = ROOT) -> Iterator[str]:
    """Run a command that takes ``--port`` until the block ends; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    program = shutil.which(command[0], path=env["PATH"])
    assert program is not None, f"{command[0]} is not installed"
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [program, *command[1:], "--port", str(port)],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            ready = answers(f"{url}/health", process)
            if ready:
                yield url
            if not ready or process.poll() is not None:
                log.seek(0)
                raise AssertionError(f"the server has ended, or never was up:\n{log.read()}")
        finally:
            process.terminate()
            process.wait(30)


def answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a server answers, three minutes at most."""
    until = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
        time.sleep(0.2)
    return False


# ------------------------------------------------------------------ TRL


def trained(folder: Path, speech: dict[str, Any], script: Path, *arguments: str) -> Any:
    """Run a script by TRL, with a tiny model that makes the calls of `speech`."""
    done = subprocess.run(
        [
            test_trl.python(),
            *(str(HERE / "public_run.py"), str(folder), json.dumps(speech), str(script)),
            *arguments,
        ],
        env=environ(HERE.parent) | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    steps = [log for log in found["logs"] if "reward" in log]
    assert len(steps) == 2
    assert all(log["tools/call_frequency"] > 0.5 for log in steps)
    return found


def rollouts(found: Any, by: str) -> list[tuple[list[tuple[str, Any, str]], float]]:
    """Return the calls of each rollout that a function rewarded, with answers, and its reward.

    A rollout whose last call TRL made, and whose answer it left out as too long for the completion,
    is not among them: the reward knows of the call, and nobody else.
    """
    listed = []
    for one in found["rollouts"]:
        if one["by"] == by and one["reward"] is not None:
            asked = [call["function"] for said in one["messages"] for call in calls_of(said)]
            told = [said["content"] for said in one["messages"] if said["role"] == "tool"]
            if len(told) == len(asked) - 1 and one["messages"][-1]["role"] == "assistant":
                continue
            calls = [
                (call["name"], call["arguments"], answer)
                for call, answer in zip(asked, told, strict=True)
            ]
            listed.append((calls, one["reward"]))
    assert len(listed) >= 16
    return listed


def calls_of(said: dict[str, Any]) -> list[dict[str, Any]]:
    return said.get("tool_calls") or []


def check_echo(found: Any, by: str) -> None:
    """Each message came back, and the last one's length is the reward."""
    for calls, reward in rollouts(found, by):
        sent = [arguments.get("message") for _, arguments, _ in calls]
        assert [told for _, _, told in calls if "error" not in told] == [
            one for one, (_, _, told) in zip(sent, calls, strict=True) if "error" not in told
        ]
        last = next((told for _, _, told in reversed(calls) if "error" not in told), "")
        assert reward == pytest.approx(0.1 * len(last))
    assert len({reward for _, reward in rollouts(found, by)}) > 1
    assert any(log["grad_norm"] > 0 for log in found["logs"] if "grad_norm" in log)


def check_wordle(found: Any, by: str) -> None:
    """Each answer tells what became of the guess, and no more; guesses are worth something."""
    kinds: Counter[str] = Counter()
    for calls, reward in rollouts(found, by):
        assert 0 <= reward <= 1
        answers = [(arguments, told) for _, arguments, told in calls if "'error'" not in told]
        for arguments, told in answers:
            assert told.startswith("\n[GAME] ") and arguments["guess"] in told
            kinds["feedback"] += "Feedback:" in told
            kinds["invalid"] += "You attempted an invalid move" in told
        if answers and "You attempted an invalid move" in answers[-1][1]:
            assert reward == 0
        kinds["rewarded"] += reward > 0
    assert all(kinds[kind] for kind in ("feedback", "invalid", "rewarded")), kinds


def check_catch(found: Any, by: str) -> None:
    """Balls fall by a row, and those that are caught are worth 1."""
    finished = 0
    for calls, reward in rollouts(found, by):
        shown = [
            (call, arguments, told) for call, arguments, told in calls if "'error'" not in told
        ]
        rows = [int(row) for _, _, told in shown for row in re.findall(r"Ball: row (\d+)", told)]
        assert rows == list(range(2, 2 + len(rows)))
        if len(shown) < 9:
            assert reward == 0
            continue
        finished += 1
        before, (call, arguments, _) = shown[-2][2], shown[-1]
        ((ball,),) = (re.findall(r"Ball: row 9\D+(?:10, column )?(\d)", before),)
        ((paddle,),) = (re.findall(r"Paddle:.*? column (\d)", before),)
        step = 0 if call == "stay" else {"left": -1, "right": 1}[arguments["direction"]]
        caught = int(ball) == min(max(int(paddle) + step, 1), 5)
        assert reward == caught
    assert finished


def test_a_client_that_was_never_reset_is_stepped(echo: str, tmp_path: Path) -> None:
    found = trained(tmp_path, ECHO, HERE / "public_patterns.py", "echo", "--echo", echo)
    check_echo(found, "echo_reward")


@pytest.mark.parametrize("way", ["kept", "remade"])
def test_two_games_in_one_run(way: str, wordle: str, catch: str, tmp_path: Path) -> None:
    addresses = ["--wordle", wordle, "--catch", catch]
    found = trained(tmp_path, WORDLE | CATCH, HERE / "public_patterns.py", way, *addresses)
    check_wordle(found, "wordle_reward")
    check_catch(found, "catch_reward")


def trl_script(name: str) -> Path:
    return public("huggingface/trl", f"examples/scripts/openenv/{name}.py")


def test_trls_echo_trains(echo: str, tmp_path: Path) -> None:
    found = trained(tmp_path, ECHO, trl_script("echo"), "--env-host", echo)
    check_echo(found, "reward_func")


def test_trls_catch_trains(catch: str, tmp_path: Path) -> None:
    options = ["--env-mode", "space", "--env-host", catch]
    check_catch(trained(tmp_path, CATCH, trl_script("catch"), *options), "reward_from_env")


def test_trls_wordle_trains(wordle: str, tmp_path: Path) -> None:
    found = trained(tmp_path, WORDLE, trl_script("wordle"), "--env-url", wordle)
    check_wordle(found, "reward_func")


def test_trls_two_environments_train(wordle: str, catch: str, tmp_path: Path) -> None:
    options = ["--wordle-url", wordle, "--catch-url", catch]
    found = trained(tmp_path, WORDLE | CATCH, trl_script("multi_env"), *options)
    check_wordle(found, "wordle_reward")
    check_catch(found, "catch_reward")


# ------------------------------------------------------------------ SkyRL and ART


def played(python: str, way: str, file: Path, given: dict[str, Any]) -> Any:
    """Run `public_play`; return what it prints."""
    done = subprocess.run(
        [python, str(HERE / "public_play.py"), way, str(file), json.dumps(given)],
        env={**environ(HERE.parent), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_skyrls_environment_plays_five_of_ours(
    echo: str, catch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it shows the model has each field of our observations."""
    file = public("NovaSky-AI/SkyRL", "examples/train_integrations/openenv/env.py")
    monkeypatch.setenv("CODING_SANDBOX", "bubblewrap")
    python = python_of(ROOT / ".peers" / "trainers_skyrl", "skyrl-gym==0.4.0", "-e", str(ROOT))
    with (
        serving(load_target("coding_env")) as coding,
        serving(load_target("atari_env")) as atari,
        serving(load_target("finrl_env")) as finrl,
    ):
        given: dict[str, Any] = {
            "echo_env": {"address": echo, "said": ["hello", "hi", "bye"]},
            "coding_env": {"address": coding, "said": ["print(6 * 7)"]},
            "openspiel-env": {"address": catch, "said": ["1"], "extras": {"game_name": "catch"}},
            "atari-env": {"address": atari, "said": ["0"]},
            "finrl-env": {"address": finrl, "said": ["[0.5]"]},
        }
        for episode in given.values():
            episode["said"] = [f"<action>{one}</action>" for one in episode["said"]]
        found = played(python, "skyrl", file, given)
    assert [step["reward"] for step in found["echo_env"]] == pytest.approx([0.5, 0.2, 0.3])
    assert [step["done"] for step in found["echo_env"]] == [False, False, True]
    for name, shown in {
        "echo_env": "echoed_message: hello\nmessage_length: 5\n",
        "coding_env": "stdout: 42\n\nstderr: \nexit_code: 0\n",
        "openspiel-env": "legal_actions: [0, 1, 2] (len=3)\n",
        "atari-env": "screen_shape: [210, 160, 3] (len=3)\n",
        "finrl-env": "date: 2020-01-02\n",
    }.items():
        assert shown in found[name][0]["observations"][0]["content"]
        assert found[name][0]["reward"] != -1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ART 0.5 needs Python 3.11")
def test_the_rollout_of_arts_page_gathers_trajectories(echo: str) -> None:
    file = public("OpenPipe/ART", "docs/integrations/openenv-integration.mdx")
    wanted = ("openpipe-art==0.5.18", "openai==2.14.0", "-e", str(ROOT))
    python = python_of(ROOT / ".peers" / "trainers_art", *wanted)
    with llm_server("seventeen letters") as model:
        found = played(python, "art", file, {"model": model.url, "echo": echo})
    assert found == [[pytest.approx(1.7)] * 4] * 2


# ------------------------------------------------------------------ Oumi


def notebook_of_oumi() -> dict[str, Any]:
    """Return the notebook on OpenEnv of Oumi's source distribution, which is downloaded once."""
    folder = ROOT / ".peers" / "oumi-sources"
    with exclusive(folder.with_name("oumi-sources.lock")):
        if not list(folder.glob("oumi-0.9.tar.gz")):
            wanted = ["--no-deps", "--no-binary", "oumi", "--dest", str(folder), "oumi==0.9"]
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", *wanted],
                capture_output=True,
                text=True,
                timeout=600,
            )
            if "Could not find a version" in done.stderr or "ConnectionError" in done.stderr:
                pytest.skip("the package index has no source distribution of oumi 0.9")
            assert done.returncode == 0, done.stderr
    with tarfile.open(folder / "oumi-0.9.tar.gz") as archive:
        member = archive.extractfile("oumi-0.9/notebooks/Oumi - OpenEnv GRPO with trl.ipynb")
        assert member is not None
        notebook: dict[str, Any] = json.load(member)
    return notebook


def test_oumis_notebook_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its server, its rollout function and its reward function."""
    cells = ["".join(cell["source"]) for cell in notebook_of_oumi()["cells"]]
    first = "%%writefile $tutorial_dir/train.py\n"
    (code,) = (cell.removeprefix(first) for cell in cells if cell.startswith(first))
    (tmp_path / "train.py").write_text(code)
    server = ["-m", "uvicorn", "envs.echo_env.server.app:app", "--host", "0.0.0.0"]
    (starting,) = (
        cell for cell in cells if "start_openenv_server.py" in cell and "uvicorn" in cell
    )
    assert all(f'"{word}"' in starting for word in server)
    (tmp_path / "override.txt").write_text("uvicorn>=0.50\n")  # for servers of Oumi's own
    monkeypatch.setenv("UV_OVERRIDE", str(tmp_path / "override.txt"))
    python = python_of(ROOT / ".peers" / "trainers_oumi", "oumi==0.9", "-e", str(ROOT))
    with run_server([sys.executable, *server], {**environ(), "PYTHONPATH": str(SOURCES)}) as url:
        done = subprocess.run(
            [python, str(HERE / "public_oumi.py"), str(tmp_path), str(tmp_path / "train.py"), url],
            env=environ(ROOT) | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["rewards"]) == 16
    lengths = [len(completion) for completion in found["completions"]]
    assert found["rewards"] == pytest.approx([0.1 * length for length in lengths])
    assert any(log["grad_norm"] > 0 for log in found["logs"] if "grad_norm" in log)


# ------------------------------------------------------------------ verifiers

GUIDE = ROOT / "docs" / "guides" / "training" / "verifiers.md"
PACKAGES = {"openenv", "openenv-blackjack-env", "verifiers", "uv"}  # uv is beside our Python


def files_and_commands(page: Path) -> tuple[dict[str, str], list[str]]:
    """Return what a page's text blocks say: files, which a first line ``# name`` names, and
    commands.
    """
    blocks = re.findall(r"^```text\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    files, commands = {}, []
    for block in blocks:
        if named := re.match(r"# (\S+)\n", block):
            files[named[1]] = block
        else:
            commands.append(block)
    return files, commands


@pytest.mark.skipif(sys.version_info < (3, 11), reason="verifiers 0.4 needs Python 3.11")
def test_the_commands_of_verifiers_guide_play_what_they_say(tmp_path: Path) -> None:
    """They named a command that verifiers has not, a module that it did not find, and an option
    that it reads too late.
    """
    ours = [word for path in (ROOT, ROOT / "envs" / "blackjack_env") for word in ("-e", str(path))]
    python = python_of(ROOT / ".peers" / "trainers_verifiers", "verifiers==0.4.0", *ours)
    path = os.pathsep.join([str(Path(python).parent), str(Path(sys.executable).parent)])
    env = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": os.pathsep.join([path, os.environ["PATH"]]),
    }
    files, (install, own, serve, theirs) = files_and_commands(GUIDE)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert install.startswith("pip install ") and set(install.split()[2:]) == PACKAGES
    assert serve == "openenv serve blackjack\n"

    def answer(asked: Asked) -> Reply:
        tools = asked.body.get("tools") or ()
        calls = [(tool["function"]["name"], {"action": "stand"}) for tool in tools]
        return Reply("", calls=calls) if calls else Reply('{"action": "stand"}')

    with llm_server(answer) as model, run_server(["openenv", "serve", "blackjack"], env) as url:
        commands = own + theirs
        assert "http://localhost:9000/v1" in own and "http://localhost:9000/v1" in theirs
        served = (tmp_path / "served.toml").read_text()
        assert "http://localhost:8000" in served
        (tmp_path / "served.toml").write_text(served.replace("http://localhost:8000", url))
        done = subprocess.run(
            ["bash", "-euc", commands.replace("http://localhost:9000", model.url)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rewards = {
        path.parent.name.partition("--")[0]: [
            score["score"]
            for line in path.read_text().splitlines()
            for trace in json.loads(line)["traces"]
            for score in trace["rewards"].values()
        ]
        for path in tmp_path.glob("outputs/*/traces.jsonl")
    }
    assert {name: len(scores) for name, scores in rewards.items()} == {
        "my_blackjack": 8,
        "openenv": 2,
    }
    for scores in rewards.values():
        assert set(scores) <= {-1.0, 0.0, 1.0}
