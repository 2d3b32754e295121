"""What is uploaded is a copy of the environment's directory, changed as a Space needs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from openenv.hub import (
    SecretsFoundError,
    StructureError,
    check_secrets,
    check_structure,
    merge_variables,
    stage_space,
)

ENVS = Path(__file__).parents[2] / "envs"
INTERFACE = "ENV ENABLE_WEB_INTERFACE=true\n"


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ENVS / "echo_env", tmp_path / "echo_env", ignore=ignored))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(one.name for one in ENVS.iterdir() if one.is_dir()))
def test_our_environments_can_be_pushed(name: str) -> None:
    with stage_space(ENVS / name) as copy:
        assert check_secrets(copy, {}) == []
        matter = yaml.safe_load((copy.folder / "README.md").read_text().split("---\n")[1])
        assert (matter["sdk"], matter["base_path"]) == ("docker", "/web")
        assert "ENV ENABLE_WEB_INTERFACE=true" in (copy.folder / "Dockerfile").read_text()


def test_the_directory_itself_stays_as_it_is(echo: Path) -> None:
    for name, line in (("README.md", "base_path: /web\n"), ("server/Dockerfile", INTERFACE)):
        text = (echo / name).read_text()
        assert line in text
        (echo / name).write_text(text.replace(line, ""))
    before = {one: one.read_bytes() for one in echo.rglob("*") if one.is_file()}
    with stage_space(echo, base_image="acme/base:1") as copy:
        folder = copy.folder
        assert "server/Dockerfile" not in copy.files and "Dockerfile" in copy.files
        assert copy.changes == (
            "server/Dockerfile moved to Dockerfile",
            "Dockerfile: its final stage starts from acme/base:1",
            "Dockerfile: ENV ENABLE_WEB_INTERFACE=true",
            'README.md: base_path: "/web"',
        )
    assert not folder.exists()
    assert {one: one.read_bytes() for one in echo.rglob("*") if one.is_file()} == before


def test_what_does_not_belong_is_left_out(echo: Path) -> None:
    for name in (
        ".env",
        ".git/config",
        ".venv/x.py",
        "a/__pycache__/b.pyc",
        "build/c",
        "d.egg-info/e",
    ):
        (echo / name).parent.mkdir(parents=True, exist_ok=True)
        (echo / name).write_text("x")
    (echo / "notes.txt").write_text("mine")
    (echo / "away").symlink_to("/etc")
    exclude = echo.parent / "exclude"
    exclude.write_text("# mine\nnotes.*\ntests/\n")
    with stage_space(echo, exclude=exclude) as copy:
        assert not [
            one for one in copy.files if one.startswith(("tests", "notes", "away", "build"))
        ]
        assert ".dockerignore" in copy.files  # which is for the Space's build, and leaves in here
        assert "validation/oracle.py" in copy.files
        assert {".env", ".git/", "a/__pycache__/", "away/", "build/", "notes.txt", "tests/"} <= set(
            copy.left_out
        )


def test_a_hidden_file_that_is_taken_back_is_looked_at(echo: Path) -> None:
    (echo / ".env").write_text("A=1\n")
    exclude = echo.parent / "exclude"
    exclude.write_text("!.env\n")
    with stage_space(echo, exclude=exclude) as copy:
        with pytest.raises(SecretsFoundError, match=r"\.env: a file for secrets, by its name"):
            check_secrets(copy, {})
        assert check_secrets(copy, {}, [".env", "none.py"]) == ["none.py"]


def test_a_secret_is_named_by_its_place_in_the_directory(echo: Path) -> None:
    secret = "k7mQ2xv9Rb4Lt8Wc3Ny6" + "Hd1Jf5Gs0Pa"
    dockerfile = echo / "server" / "Dockerfile"
    text = dockerfile.read_text()
    dockerfile.write_text(text.replace('CMD ["server"', f'ENV API_KEY={secret}\nCMD ["server"'))
    (echo / "README.md").write_text(f"# Echo\n\nAPI_KEY={secret}\n")
    (echo / "openenv.yaml").write_text(f"name: echo_env\nvariables:\n  API_KEY: {secret}\n")
    line = dockerfile.read_text().splitlines().index(f"ENV API_KEY={secret}") + 1
    with stage_space(echo) as copy, pytest.raises(SecretsFoundError) as caught:
        check_secrets(copy, {"TOKEN": secret})
    assert {(one.path, one.line) for one in caught.value.findings} == {
        ("server/Dockerfile", line),
        ("README.md", 3),
        ("openenv.yaml", 3),
        ("--env-var TOKEN", 0),
    }
    assert secret not in str(caught.value)


def test_a_directory_that_is_no_environment_says_what_it_lacks(echo: Path) -> None:
    with pytest.raises(StructureError, match="not a directory"):
        check_structure(echo / "nothing")
    for name in ("client.py", "server/Dockerfile", "server/app.py"):
        (echo / name).unlink()
    with pytest.raises(StructureError) as caught:
        check_structure(echo)
    assert caught.value.missing == (
        "client.py",
        "server/app.py",
        "server/Dockerfile (or Dockerfile)",
    )
    (echo / "Dockerfile").write_text("FROM a\nCMD b\n")
    (echo / "client.py").touch()
    check_structure(echo)  # with a Dockerfile of its own, what it starts is its own matter
    for text, said in (("a: [", "cannot be read"), ("- a", "mapping"), ("version: 1", "no name")):
        (echo / "openenv.yaml").write_text(text)
        with pytest.raises(StructureError, match=said):
            check_structure(echo)
    (echo / "openenv.yaml").unlink()
    with pytest.raises(StructureError, match="not an environment") as caught:
        check_structure(echo)
    assert not caught.value.is_environment


def test_what_is_needed_cannot_be_excluded(echo: Path) -> None:
    exclude = echo.parent / "exclude"
    exclude.write_text("*.md\nDockerfile\n")
    with (
        pytest.raises(StructureError, match=r"leaves out README\.md, Dockerfile"),
        stage_space(echo, exclude=exclude),
    ):
        pass


def test_variables_are_texts_and_the_told_ones_win() -> None:
    manifest = {"variables": {"A": True, "B": 2, "C": None, "D": "x"}}
    assert merge_variables(manifest, {"D": "y"}) == {"A": "true", "B": "2", "C": "", "D": "y"}
    with pytest.raises(StructureError, match="variables must map"):
        merge_variables({"variables": ["A"]}, {})
