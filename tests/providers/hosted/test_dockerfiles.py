"""Dockerfiles, as providers of hosted sandboxes read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openenv._internal.dockerfile import parse_instructions, strip_mounts
from openenv.providers._dockerfiles import parse, register, registered


def command_of(text: str) -> str | None:
    return parse(text, Path("Dockerfile"), Path()).command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("FROM a\n", None),
        ("FROM a\nCMD run --port 8000\n", "run --port 8000"),
        ('FROM a\nCMD ["run", "a b"]\n', "run 'a b'"),
        ('FROM a\ncmd ["sh", "-c", "cd /app && run"]', "sh -c 'cd /app && run'"),
        ('FROM a\nCMD ["one"]\nCMD ["two"]\n', "two"),
        ("FROM a\nCMD []\n", None),
        ('FROM a\nENTRYPOINT ["run"]\nCMD ["--fast"]\n', "run --fast"),
        ('FROM a\nCMD ["--fast"]\nENTRYPOINT ["run"]\n', "run"),
        ("FROM a\nENTRYPOINT run me\nCMD ignored\n", "run me"),
        ('FROM a\nENTRYPOINT ["run"]\nCMD echo hi\n', "run /bin/sh -c 'echo hi'"),
        ("FROM a AS base\nCMD one\nFROM b\nRUN x\n", None),
        ("FROM a AS base\nCMD one\nFROM base\nRUN x\n", "one"),
        ("FROM a AS Base\nCMD one\nFROM base AS last\nCMD two\n", "two"),
        ("FROM --platform=linux/amd64 a\nCMD one\n", "one"),
        ("ARG V=1\nFROM a:$V\nCMD one \\\n  # a comment\n\n  two\n", "one two"),
        ("# escape=`\nFROM a\nCMD one `\n  two\n", "one two"),
        ("FROM a\nRUN <<EOF\nCMD no\nEOF\nCMD yes\n", "yes"),
        ("FROM a\nRUN <<-'EOF'\n\tCMD no\n\tEOF\nCMD yes\n", "yes"),
        ("FROM a\n# CMD no\nCMD yes", "yes"),
    ],
)
def test_the_command_is_that_of_the_last_stage(text: str, command: str | None) -> None:
    assert command_of(text) == command


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("FROM a\n", None),
        ("FROM a\nWORKDIR /app\nWORKDIR env\n", "/app/env"),
        ('FROM a\nWORKDIR "/with space"\n', "'/with space'"),
        ("FROM a\nWORKDIR $HOME/env\n", '"/$HOME/env"'),
        ("FROM a AS one\nWORKDIR /one\nFROM one\nWORKDIR two\n", "/one/two"),
    ],
)
def test_the_folder_is_for_a_shell(text: str, folder: str | None) -> None:
    assert parse(text, Path("Dockerfile"), Path()).folder == folder


@pytest.mark.parametrize("text", ["", "CMD run\n", "ARG A\n", "hello\n", "FROM\n"])
def test_what_builds_no_image_is_no_dockerfile(text: str) -> None:
    with pytest.raises(ValueError, match="FROM"):
        command_of(text)


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("FROM a\nRUN pip install x\n", "FROM a\nRUN pip install x\n"),
        ("RUN --mount=type=cache,target=/c pip install x\n", "RUN pip install x\n"),
        (
            "RUN --mount=type=cache,target=/c \\\n    --mount=type=bind \\\n    go a \\\n  b\n",
            "RUN go a \\\n  b\n",
        ),
        ("run --network=none --mount=type=ssh ls\n", "run --network=none ls\n"),
        ('RUN --mount=type=bind,target="/a b" ls\n', "RUN ls\n"),
        ("RUN echo --mount=type=x\n", "RUN echo --mount=type=x\n"),
        ("RUN <<EOF\nRUN --mount=type=x\nEOF\n", "RUN <<EOF\nRUN --mount=type=x\nEOF\n"),
        ("# RUN --mount=type=x ls\n", "# RUN --mount=type=x ls\n"),
        ("CMD --mount=type=x\n", "CMD --mount=type=x\n"),
    ],
)
def test_mounts_are_left_out_of_what_is_run(text: str, stripped: str) -> None:
    assert strip_mounts(text) == stripped


def test_every_dockerfile_of_this_repository_is_read() -> None:
    files = sorted((Path(__file__).parents[3] / "envs").glob("*/server/Dockerfile"))
    assert len(files) > 5
    for file in files:
        text = file.read_text()
        assert "".join(one.source for one in parse_instructions(text)) == text
        read = parse(text, file, file.parent)
        assert read.command is not None and "--mount" not in read.text


def test_a_dockerfile_is_registered_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server" / "Dockerfile"
    file.parent.mkdir()
    file.write_text("FROM a\nCMD one\n")
    name = register(str(file), str(tmp_path))
    assert name == f"dockerfile:{file}"
    found = registered(name)
    assert found is not None and (found.context, found.command) == (tmp_path, "one")
    file.write_text("FROM a\nCMD two\n")
    assert registered(name) == found
    again = registered(register(str(file), None))
    assert again is not None and again.context == file.parent
    with pytest.raises(ValueError, match="image_from_dockerfile"):
        registered("dockerfile:/nowhere")
    with pytest.raises(FileNotFoundError, match="no Dockerfile"):
        register(str(tmp_path / "none"), None)
    with pytest.raises(FileNotFoundError, match="no directory"):
        register(str(file), str(tmp_path / "none"))
