"""`openenv push`, `fork` and `deploy --space`, by huggingface_hub against a Hub on this machine."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import COMMAND, environ
from support.hub_server import HubServer, User
from support.hub_server import hub as hub_server
from support.waiting import wait_until
from support.zygote import PythonProcess, run_python

pytestmark = [
    pytest.mark.extended("of the hub; docs/guides/publishing.md pushes, forks and deploys"),
    pytest.mark.slow,
]

ENVS = Path(__file__).parents[2] / "envs"
SECRET = "k7mQ2xv9Rb4Lt8Wc" + "3Ny6Hd1Jf5Gs0Pa"


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ENVS / "echo_env", tmp_path / "echo_env", ignore=ignored))


def variables(hub: HubServer, folder: Path, **more: str) -> dict[str, str]:
    return {
        **environ(),
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }


def run(
    hub: HubServer, echo: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return run_python(
        [*COMMAND, *arguments],
        cwd=echo,
        env=variables(hub, echo.parent, **more),
        capture_output=True,
        text=True,
        timeout=50,
        stdin=subprocess.DEVNULL,
    )


def pushed(hub: HubServer, echo: Path, *arguments: str, **more: str) -> str:
    done = run(hub, echo, "push", *arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------ what is there afterwards


def test_an_environment_becomes_a_space_in_one_commit(hub: HubServer, echo: Path) -> None:
    with (echo / "openenv.yaml").open("a") as file:
        file.write("variables: {LEVEL: easy, MODE: plain}\n")
    told = ("-e", "LEVEL=hard", "--secret", "OTHER_KEY", "--secret", f"A_KEY={SECRET}", "--private")
    done = run(
        hub, echo, "push", "-H", "cpu-upgrade", *told, "-m", "The first", OTHER_KEY=SECRET[::-1]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{hub.url}/spaces/me/echo_env\n"
    for secret in (SECRET, SECRET[::-1], hub.token):
        assert secret not in done.stderr
    space = hub.repositories["me/echo_env"]
    assert (space.kind, space.private, space.hardware) == ("spaces", True, "cpu-upgrade")
    assert space.variables == {"LEVEL": "hard", "MODE": "plain"}
    assert space.secrets == {"A_KEY": SECRET, "OTHER_KEY": SECRET[::-1]}
    assert [one["summary"] for one in hub.commits] == ["The first"]
    files = hub.files["me/echo_env"]
    assert "ENABLE_WEB_INTERFACE=true" in files["Dockerfile"].decode()
    assert files["client.py"] == (echo / "client.py").read_bytes()
    assert "server/Dockerfile" not in files


def test_a_space_that_is_there_is_changed_no_more_than_it_must(hub: HubServer, echo: Path) -> None:
    pushed(hub, echo, "-e", "A=1", "-e", "B=2")
    (first,) = hub.commits
    hub.asked.clear()
    told = json.loads(pushed(hub, echo, "-e", "A=1", "-e", "B=3", "-H", "cpu-basic", "--json"))
    space = hub.repositories["me/echo_env"]
    assert hub.commits == [first] and told["is_new"] is False and told["commit"] == space.sha
    assert space.variables == {"A": "1", "B": "3"}
    posts = [one for one in hub.asked if one.startswith("POST")]
    assert [one for one in posts if one.endswith(("/variables", "/hardware", "/create"))] == [
        "POST /api/spaces/me/echo_env/variables"
    ]
    done = run(hub, echo, "push", "--private")
    assert done.returncode == 1 and "is public" in done.stderr and "/settings" in done.stderr


def test_files_that_are_gone_are_deleted_where_that_is_asked_for(
    hub: HubServer, echo: Path
) -> None:
    (echo / "old.py").write_text("x = 1\n")
    pushed(hub, echo)
    (echo / "old.py").unlink()
    pushed(hub, echo)
    assert "old.py" in hub.files["me/echo_env"]
    pushed(hub, echo, "--delete", "*.py", "--delete", ".git*")
    files = hub.files["me/echo_env"]
    assert "old.py" not in files and {"client.py", ".gitattributes"} <= set(files)


def test_several_spaces_are_numbered(hub: HubServer, echo: Path) -> None:
    assert pushed(hub, echo, "-r", "acme/game", "--count", "2").split() == [
        f"{hub.url}/spaces/acme/game-1",
        f"{hub.url}/spaces/acme/game-2",
    ]
    assert hub.files["acme/game-1"] == hub.files["acme/game-2"]


def test_a_reader_proposes_a_change(hub: HubServer, echo: Path) -> None:
    pushed(hub, echo, "-r", "acme/game")
    hub.users["hf_of_a_reader"] = User("reader", (), may_write=False)
    (echo / "client.py").write_text("# better\n")
    sha = hub.repositories["acme/game"].sha
    told = ("-r", "acme/game", "--create-pr")
    assert pushed(hub, echo, *told, HF_TOKEN="hf_of_a_reader") == (
        f"{hub.url}/spaces/acme/game/discussions/1\n"
    )
    assert hub.repositories["acme/game"].sha == sha
    done = run(hub, echo, "push", "-r", "me/none", "--create-pr")
    assert done.returncode == 1 and "no Space me/none" in done.stderr


def test_a_dry_run_shows_all_and_asks_nobody(hub: HubServer, echo: Path) -> None:
    told = ("--dry-run", "--json", "-e", "A=1", "--secret", f"B={SECRET}", "-b", "acme/base:2")
    shown = json.loads(pushed(hub, echo, *told, HF_TOKEN=""))
    assert shown["space"] == "<you>/echo_env" and shown["secrets"] == ["B"]
    assert shown["variables"] == {"A": "1"}
    assert "Dockerfile: its final stage starts from acme/base:2" in shown["changes"]
    assert {"path": "py.typed", "size_bytes": 0} in shown["files"]
    assert "client.py" in pushed(hub, echo, "--dry-run")
    assert hub.asked == []


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--interface", "--no-interface"), 2, "exclude each other"),
        (("--create-pr", "-e", "A=1"), 2, "excludes --env-var and --secret"),
        (("--create-pr", "-n", "2"), 1, "excludes --count 2"),
        (("--registry", "r.io/x", "--secret", "A=1"), 2, "excludes --env-var and --secret"),
        (("--registry", "r.io/x", "-n", "2"), 1, "excludes --count 2"),
        (("--registry", "https://r.io"), 2, "without its scheme"),
        (("--registry", "r.io", "--private"), 2, "excludes --private"),
        (("--engine", "podman"), 2, "require --registry"),
        (("-e", "A"), 2, "is not of the form NAME=VALUE"),
        (("--secret", "NOT_SET_ANYWHERE"), 2, "no variable NOT_SET_ANYWHERE"),
        (("--exclude", "none.txt"), 2, "none.txt does not exist"),
        (("nowhere",), 2, "is not a directory"),
        (("-r", "me/two words"), 2, "not a valid name of a Space"),
        (("server",), 1, "no openenv.yaml"),
        (("-e", f"API_KEY={SECRET}"), 1, "--env-var API_KEY: a value that looks random"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    hub: HubServer, echo: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run(hub, echo, "push", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr and SECRET not in done.stderr
    assert not [one for one in hub.asked if one.startswith("POST")]


def test_what_is_missing_is_named_at_once(hub: HubServer, echo: Path) -> None:
    for name in ("client.py", "README.md"):
        (echo / name).unlink()
    done = run(hub, echo, "push")
    assert done.returncode == 2 and "lacks client.py, README.md" in done.stderr


def test_a_secret_is_not_uploaded(hub: HubServer, echo: Path) -> None:
    (echo / "client.py").write_text(f'\nAPI_KEY = "{SECRET}"\n')
    done = run(hub, echo, "push")
    assert done.returncode == 1 and hub.asked == []
    assert "client.py:2: a value that looks random, for API_KEY" in done.stderr
    assert "--allow-secret client.py:2" in done.stderr and SECRET not in done.stderr
    pushed(hub, echo, "--allow-secret", "client.py:2")
    assert SECRET.encode() in hub.files["me/echo_env"]["client.py"]


# ------------------------------------------------------------------ what the Hub refuses


def test_a_wrong_token_is_named(hub: HubServer, echo: Path) -> None:
    done = run(hub, echo, "push", HF_TOKEN="hf_of_somebody_else")
    assert done.returncode == 1 and "hf auth login" in done.stderr
    assert "does not take the token" in done.stderr and "hf_of_somebody" not in done.stderr
    done = run(hub, echo, "push", HF_TOKEN="")
    assert done.returncode == 1 and "nobody is logged in" in done.stderr
    assert hub.repositories == {}


def test_a_namespace_of_others_is_named(hub: HubServer, echo: Path) -> None:
    done = run(hub, echo, "push", "-r", "others/game")
    assert done.returncode == 1 and "status 403" in done.stderr and "others" in done.stderr
    hub.make("others/hidden", {}, private=True)
    done = run(hub, echo, "push", "-r", "others/hidden")
    assert done.returncode == 1 and "may not do that" in done.stderr


def test_hardware_that_must_be_paid_for_is_named(hub: HubServer, echo: Path) -> None:
    done = run(hub, echo, "push", "-H", "t4-small")
    assert done.returncode == 1 and "paid for" in done.stderr and "cpu-basic" in done.stderr
    assert hub.repositories == {}


def test_a_quota_is_named(hub: HubServer, echo: Path) -> None:
    hub.quota_bytes = 2000
    done = run(hub, echo, "push")
    assert done.returncode == 1 and "quota" in done.stderr and "Storage limit" in done.stderr
    assert hub.commits == []


def test_a_hub_that_fails_is_said(hub: HubServer, echo: Path) -> None:
    hub.fail("POST /api/repos/create", 500, "Internal Error - we are working on it")
    done = run(hub, echo, "push")
    assert done.returncode == 1 and "the Hub failed (status 500)" in done.stderr
    assert "status.huggingface.co" in done.stderr and "Traceback" not in done.stderr


def test_a_name_that_is_taken_meanwhile_is_said(hub: HubServer, echo: Path) -> None:
    hub.fail("POST /api/repos/create", 409, "You already created this space repo")
    done = run(hub, echo, "push")
    assert done.returncode == 1 and "the name is taken" in done.stderr


def test_a_hub_that_is_busy_is_asked_again(hub: HubServer, echo: Path) -> None:
    hub.fail("POST /api/repos/create", 429, "slow down", times=1, Retry_After="1")
    done = run(hub, echo, "push")
    assert done.returncode == 0 and "the Hub is busy; next attempt in 1 s" in done.stderr
    hub.fail("GET /api/whoami", 429, "slow down", Retry_After="3600")
    began = time.monotonic()
    done = run(hub, echo, "push")
    assert done.returncode == 1 and "too many requests" in done.stderr
    assert time.monotonic() - began < 20


def test_a_hub_that_is_away_is_said(hub: HubServer, echo: Path) -> None:
    done = run(hub, echo, "push", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1 and "cannot be reached" in done.stderr
    done = run(hub, echo, "push", HF_HUB_OFFLINE="1")
    assert done.returncode == 1 and "HF_HUB_OFFLINE" in done.stderr


# ------------------------------------------------------------------ uploads that break off


def test_an_upload_that_is_killed_is_gone_on_with(hub: HubServer, echo: Path) -> None:
    hub.stalls = True
    command, env = [*COMMAND, "push"], variables(hub, echo.parent)
    with PythonProcess(command, cwd=echo, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(_puts(hub)) > 1 and len(hub.objects) == 1, 30)
        finally:
            process.kill()
    assert hub.commits == []
    assert set(hub.files["me/echo_env"]) == {".gitattributes"}  # nothing is half there
    (there,) = hub.objects
    hub.stalls = False
    hub.going_on.set()
    hub.asked.clear()
    pushed(hub, echo)
    assert f"PUT /lfs/{there}" not in _puts(hub)
    assert len(hub.commits) == 1 and "client.py" in hub.files["me/echo_env"]


@pytest.mark.extended("huggingface_hub tries again for 20 s")
def test_a_connection_that_is_cut_is_said_and_gone_on_with(hub: HubServer, echo: Path) -> None:
    (echo / "table.bin").write_bytes(b"\0" + os.urandom(3_000_000))
    hub.cuts_after, hub.cuts = 100_000, 1000
    done = run(hub, echo, "push")
    assert done.returncode == 1, done.stderr
    assert "broke off" in done.stderr and "run it again" in done.stderr
    assert hub.commits == []
    hub.cuts = 0
    pushed(hub, echo)
    assert hub.files["me/echo_env"]["table.bin"] == (echo / "table.bin").read_bytes()


@pytest.mark.extended("huggingface_hub tries again for 20 s")
def test_ctrl_c_says_that_it_can_go_on(hub: HubServer, echo: Path) -> None:
    hub.stalls = True
    command, env = [*COMMAND, "push"], variables(hub, echo.parent)
    with PythonProcess(command, cwd=echo, env=env, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(_puts(hub)) > 1, 30)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        hub.going_on.set()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "not sent again" in said and "Traceback" not in said


def _puts(hub: HubServer) -> list[str]:
    return [one for one in hub.asked if one.startswith("PUT")]


# ------------------------------------------------------------------ fork


def test_a_space_is_forked(hub: HubServer, echo: Path) -> None:
    pushed(hub, echo, "-r", "acme/game", "-e", "A=1", "-e", "B=2")
    told = ("-e", "B=3", "-s", f"KEY={SECRET}", "--private")
    done = run(hub, echo, "fork", "acme/game", *told)
    assert (done.returncode, done.stdout) == (0, f"{hub.url}/spaces/me/game\n"), done.stderr
    copy = hub.repositories["me/game"]
    assert copy.variables == {"A": "1", "B": "3"} and copy.secrets == {"KEY": SECRET}
    assert copy.private and copy.sha == hub.repositories["acme/game"].sha

    done = run(hub, echo, "fork", f"{hub.url}/spaces/acme/game", "-r", "acme/mine", "--json")
    assert json.loads(done.stdout)["space"] == "acme/mine" and not hub.private["acme/mine"]
    done = run(hub, echo, "fork", "acme/game")
    assert done.returncode == 1 and "name is taken" in done.stderr and "--repo-id" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("game",), 2, "names no Space"),
        (("acme/game@v1",), 2, "whole history, not v1"),
        (("acme/game", "-e", "A"), 2, "not of the form NAME=VALUE"),
        (("acme/game", "-r", "a/b/c"), 2, "not a valid name of a Space"),
        (("acme/nothing",), 1, "it does not exist"),
        (("acme/game", "-e", f"TOKEN={SECRET}"), 1, "--env-var TOKEN"),
        (("acme/game", "-H", "a100-large"), 1, "paid for"),
    ],
)
def test_a_fork_that_cannot_be_is_refused(
    hub: HubServer, echo: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    hub.make("acme/game", {"README.md": b"x"})
    done = run(hub, echo, "fork", *arguments)
    assert done.returncode == code and said in done.stderr, done.stderr
    assert list(hub.repositories) == ["acme/game"]


# ------------------------------------------------------------------ deploy


def test_a_space_is_deployed_and_waited_for(hub: HubServer, echo: Path) -> None:
    told = ("--space", "acme/game", "--hardware", "cpu-basic", "--secret", "MY_KEY", "--json")
    done = run(hub, echo, "deploy", *told, MY_KEY=SECRET)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stage"] == "RUNNING"
    words = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert words[-3:] == ["building", "app starting", "running"]
    assert hub.repositories["acme/game"].secrets == {"MY_KEY": SECRET}

    hub.stages = ("RUNNING_BUILDING", "RUNNING")
    (echo / "client.py").write_text("# newer\n")
    done = run(hub, echo, "deploy", str(echo), "--space", "acme/game")
    assert done.returncode == 0 and "running building" in done.stderr


def test_without_waiting_it_ends_at_once(hub: HubServer, echo: Path) -> None:
    hub.stages = ("BUILDING",)
    done = run(hub, echo, "deploy", "--space", "acme/game", "--no-wait")
    assert done.returncode == 0 and "building" not in done.stderr
    done = run(hub, echo, "deploy", "--space", "acme/game", "--timeout", "1")
    assert done.returncode == 1 and "within 1 s; it is BUILDING" in done.stderr


def test_a_build_that_fails_shows_its_last_lines(hub: HubServer, echo: Path) -> None:
    hub.stages, hub.build_error = ("BUILDING", "BUILD_ERROR"), "Job failed with exit code: 1"
    hub.build_log = ("Step 3 : RUN pip install .", "ERROR: No matching distribution")
    done = run(hub, echo, "deploy", "--space", "acme/game")
    assert done.returncode == 1 and "was not built: Job failed" in done.stderr
    assert "ERROR: No matching distribution" in done.stderr and "openenv build" in done.stderr
    hub.stages, hub.run_log = ("RUNTIME_ERROR",), ("ImportError: no module named nothing",)
    done = run(hub, echo, "deploy", "--space", "acme/game")
    assert done.returncode == 1 and "no module named nothing" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no destination is given"),
        (("--space", "a/b", "--kubernetes"), "exclude each other"),
        (("--space", "a/b", "--image", "x"), "--space excludes --image"),
        (("--space", "a/b", "--cpu", "2"), "--space excludes --cpu"),
        (("--space", "a/b", "--open-network"), "--space excludes --open-network"),
        (("--kubernetes",), "requires --image"),
        (("--kubernetes", "--image", "x", "--no-wait"), "--kubernetes excludes --no-wait"),
        (("--kubernetes", "--image", "x", "."), "--kubernetes excludes ENV_DIR"),
    ],
)
def test_where_it_goes_is_said_once(
    hub: HubServer, echo: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run(hub, echo, "deploy", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_stand_in_runs_by_hand() -> None:
    command = [sys.executable, "-m", "support.hub_server", "--port", "0"]
    tests = Path(__file__).parents[1]
    with PythonProcess(command, cwd=tests, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("export HF_ENDPOINT=http://127.0.0.1:")
        finally:
            process.terminate()


def test_what_is_too_large_to_be_looked_through_is_named(hub: HubServer, echo: Path) -> None:
    (echo / "weights.bin").write_bytes(b"a" * (16 * 2**20 + 1))
    done = run(hub, echo, "push", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "not scanned for secrets: weights.bin" in done.stderr


# ------------------------------------------------------------------ who pushes, and which OpenEnv


def test_a_push_from_a_terminal_asks_for_a_token(hub: HubServer, echo: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**variables(hub, echo.parent), "HF_TOKEN": ""}
    with subprocess.Popen(
        [*COMMAND, "push"],
        cwd=echo,
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        start_new_session=True,  # without a terminal of the tests'
    ) as program:
        os.close(theirs)
        shown = b""
        while b"Token: " not in shown:
            shown += os.read(ours, 2**16)
        os.write(ours, f"{hub.token}\n".encode())
        assert program.stdout is not None
        url = program.stdout.readline()
    os.close(ours)
    assert program.returncode == 0
    assert "me/echo_env" in url and hub.token.encode() not in shown
    done = run(hub, echo, "push", HF_TOKEN="")  # without a terminal nobody is asked
    assert done.returncode == 1 and "hf auth login" in done.stderr


def test_a_lock_with_another_openenv_is_told_before_anything_is_pushed(
    hub: HubServer, echo: Path
) -> None:
    lock = 'version = 1\n[[package]]\nname = "openenv"\nversion = "0.10.0"\n'
    (echo / "uv.lock").write_text(lock)
    for arguments in (("push",), ("deploy", "--space", "me/echo_env")):
        done = run(hub, echo, *arguments)
        assert done.returncode == 1 and "uv.lock has openenv 0.10.0" in done.stderr
    done = run(hub, echo, "push", "--registry", "localhost:9/x")
    assert done.returncode == 1 and "--openenv running" in done.stderr
    assert run(hub, echo, "push", "--openenv", "running").returncode == 2
    assert not hub.repositories
    assert pushed(hub, echo, "--openenv", "locked")
