"""What a text names, for every command, for `AutoEnv` and for trainers' libraries alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from openenv import AutoEnv
from openenv._internal.targets import LIBRARY_SCHEMES, TargetKind, parse_target
from openenv.cli._info import server_address
from openenv.errors import OpenEnvError
from openenv.hub.auto_env import ServerUnreachableError
from openenv.hub.names import parse_space_reference
from openenv.integrations import _sources
from openenv.server.loading import RunsElsewhere, TargetError, load_target
from openenv.wrappers.targets import SCHEMES

K = TargetKind

# A text; what it names by its form; the same where a command reads it in a directory that holds
# the directories `echo_env`, `envs/echo_env` and `gymnasium/openenv.yaml`; what its name is.
TABLE: list[tuple[str | Path, TargetKind, TargetKind, str]] = [
    ("http://localhost:8000", K.SERVER, K.SERVER, "http://localhost:8000"),
    ("https://gate.example/a/b/ws?x=1", K.SERVER, K.SERVER, "https://gate.example/a/b"),
    ("WS://localhost:8000", K.SERVER, K.SERVER, "http://localhost:8000"),
    (" wss://host/web/#a ", K.SERVER, K.SERVER, "https://host"),
    ("https://owner-echo-env.hf.space", K.SERVER, K.SERVER, "https://owner-echo-env.hf.space"),
    ("localhost:8000", K.SERVER, K.SERVER, "http://localhost:8000"),
    ("10.0.0.1:8000/web", K.SERVER, K.SERVER, "http://10.0.0.1:8000"),
    ("[::1]:8000", K.SERVER, K.SERVER, "http://[::1]:8000"),
    ("http://docker://x", K.SERVER, K.SERVER, "http://docker://x"),
    ("docker://ghcr.io/me/echo-env:1", K.IMAGE, K.IMAGE, "ghcr.io/me/echo-env:1"),
    ("gymnasium:CartPole-v1", K.LIBRARY, K.PATH, "gymnasium:CartPole-v1"),
    ("pettingzoo:classic/tictactoe_v3", K.LIBRARY, K.LIBRARY, "pettingzoo:classic/tictactoe_v3"),
    ("ors:http://host:8000/name", K.LIBRARY, K.LIBRARY, "ors:http://host:8000/name"),
    ("python:./mine.py:Game?n=2", K.LIBRARY, K.LIBRARY, "python:./mine.py:Game?n=2"),
    (".", K.PATH, K.PATH, "."),
    (".:app", K.PATH, K.PATH, "."),
    ("..", K.PATH, K.PATH, ".."),
    ("./echo_env", K.PATH, K.PATH, "./echo_env"),
    ("../echo_env:app", K.PATH, K.PATH, "../echo_env"),
    ("./docker://x", K.PATH, K.PATH, "./docker"),
    ("/srv/echo_env", K.PATH, K.PATH, "/srv/echo_env"),
    ("~/echo_env", K.PATH, K.PATH, "~/echo_env"),
    ("C:\\echo_env", K.PATH, K.PATH, "C:\\echo_env"),
    ("C:\\echo.py:app", K.PATH, K.PATH, "C:\\echo.py"),
    ("game.py", K.PATH, K.PATH, "game.py"),
    ("envs/game.py:Game", K.PATH, K.PATH, "envs/game.py"),
    (Path("owner/echo-env"), K.PATH, K.PATH, "owner/echo-env"),
    ("owner/echo-env", K.HUB, K.HUB, "owner/echo-env"),
    ("owner/echo-env@main", K.HUB, K.HUB, "owner/echo-env@main"),
    ("hf.co/spaces/owner/echo-env", K.HUB, K.HUB, "hf.co/spaces/owner/echo-env"),
    (
        "https://huggingface.co/spaces/owner/echo-env",
        K.HUB,
        K.HUB,
        "https://huggingface.co/spaces/owner/echo-env",
    ),
    ("envs/echo_env", K.HUB, K.PATH, "envs/echo_env"),
    ("echo_env", K.INSTALLED, K.PATH, "echo_env"),
    ("echo_env:app", K.ATTRIBUTE, K.PATH, "echo_env"),
    ("echo", K.INSTALLED, K.INSTALLED, "echo"),
    ("openenv-echo-env", K.INSTALLED, K.INSTALLED, "openenv-echo-env"),
    ("package.module:Class", K.ATTRIBUTE, K.ATTRIBUTE, "package.module"),
    ("docker:echo", K.ATTRIBUTE, K.ATTRIBUTE, "docker"),
]
IDS = [str(row[0]) for row in TABLE]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("echo_env", "envs/echo_env", "gymnasium"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "gymnasium" / "openenv.yaml").write_text("name: gymnasium\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("text", "by_form", "by_files", "name"), TABLE, ids=IDS)
def test_a_target_names_one_thing(
    text: str | Path, by_form: TargetKind, by_files: TargetKind, name: str, here: None
) -> None:
    found = parse_target(text)
    assert (found.kind, found.name) == (by_form, name)
    assert parse_target(text, local_files=True).kind is by_files


@pytest.mark.parametrize(("text", "by_form", "by_files", "name"), TABLE, ids=IDS)
def test_all_who_read_a_target_agree(
    text: str | Path,
    by_form: TargetKind,
    by_files: TargetKind,
    name: str,
    here: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if isinstance(text, Path):
        return
    monkeypatch.setattr("sys.path", [])
    assert (server_address(text) is not None) is (by_form is K.SERVER)
    assert _sources._is_server(text) is (by_form is K.SERVER)
    if by_files in (K.SERVER, K.IMAGE, K.HUB):
        with pytest.raises(RunsElsewhere):
            load_target(text)
    if by_form is K.HUB:
        assert text == "envs/echo_env" or parse_space_reference(text).repo_id == "owner/echo-env"


def test_an_address_without_a_scheme_is_a_server_for_autoenv_too() -> None:
    """It used to be an unknown environment, while every command took it."""
    with pytest.raises(ServerUnreachableError):
        AutoEnv.from_env("127.0.0.1:9")


@pytest.mark.parametrize("text", ["https://huggingface.co/spaces/owner/echo-env", "owner/echo-env"])
def test_a_repository_of_the_hub_is_no_server(text: str, here: None) -> None:
    """Commands used to connect to the page of the Hub."""
    with pytest.raises(RunsElsewhere, match=r"AutoEnv\.from_env"):
        load_target(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [("./nothing", "no directory ./nothing"), ("nothing.py", "no file nothing.py")],
)
def test_a_path_that_is_not_there_is_told_as_one(text: str, why: str, here: None) -> None:
    with pytest.raises(TargetError, match=why):
        load_target(text)


def test_a_text_of_nothing_is_no_server() -> None:
    for text in ("", "http://", "docker://", "host:", ":8000"):
        assert parse_target(text).kind not in (K.SERVER, K.IMAGE)
        with pytest.raises((OpenEnvError, ValueError)):
            load_target(text or "nothing_of_this_name")


def test_the_schemes_are_those_of_the_wrappers() -> None:
    assert set(LIBRARY_SCHEMES) == set(SCHEMES)
