"""What goes into the context of a build, and what does not."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths

from openenv.images import context
from openenv.images.context import copy_context, read_build_context, scratch_directory, set_times
from openenv.images.errors import BuildError

KEY = "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"


def tree(root: Path, *files: str) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)
    return root


def ignoring(root: Path, *lines: str) -> tuple[str, ...]:
    (root / ".dockerignore").write_text("\n".join(lines))
    return read_build_context(root).files


def test_what_tools_leave_behind_stays_out(tmp_path: Path) -> None:
    tree(
        tmp_path,
        "server/app.py",
        "server/data/build/keep.txt",
        ".git/HEAD",
        ".venv/bin/python",
        "server/__pycache__/app.cpython-311.pyc",
        "stray.pyc",
        "server/.mypy_cache/x.json",
        "outputs/logs/run.txt",
        "build/lib/app.py",
        "demo.egg-info/PKG-INFO",
        "web/node_modules/a/index.js",
    )
    seen = read_build_context(tmp_path)
    assert seen.files == ("server/app.py", "server/data/build/keep.txt")
    assert ".git/" in seen.left_out and "stray.pyc" in seen.left_out
    assert seen.secrets == ()
    assert seen.size_bytes == len("server/app.py") + len("server/data/build/keep.txt")


def test_secrets_stay_out_whatever_is_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, "a.py", ".env", "conf/.env.local", ".env.example", "id_rsa", ".ssh/config")
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "names_one.py").write_text('WANTED = "-----BEGIN PRIVATE KEY-----"\n')
    (tmp_path / ".dockerignore").write_text("!.env\n!key.pem\n")
    seen = read_build_context(tmp_path)
    assert seen.files == (".env.example", "a.py", "names_one.py")
    assert seen.secrets == (".env", ".ssh/", "conf/.env.local", "id_rsa", "key.pem")


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        (["**/d*"], ("a.txt", "b.md")),
        (["**/d*", "!docs/?.md"], ("a.txt", "b.md", "docs/a.md")),
        (["docs/**"], ("a.txt", "b.md")),
        (["*.md"], ("a.txt", "docs/a.md", "docs/deep/b.txt")),
        (["**/*.md"], ("a.txt", "docs/deep/b.txt")),
        (["docs"], ("a.txt", "b.md")),
        (["/docs/"], ("a.txt", "b.md")),
        (["./docs/deep/../deep"], ("a.txt", "b.md", "docs/a.md")),
        (["docs", "!docs/deep"], ("a.txt", "b.md", "docs/deep/b.txt")),
        (["*", "!a.txt"], ("a.txt",)),
        (["# docs", "", "  a.txt  "], ("b.md", "docs/a.md", "docs/deep/b.txt")),
        (["?.txt"], ("b.md", "docs/a.md", "docs/deep/b.txt")),
    ],
)
def test_the_ignore_file_is_read_as_docker_reads_it(
    lines: list[str], taken: tuple[str, ...], tmp_path: Path
) -> None:
    tree(tmp_path, "a.txt", "b.md", "docs/a.md", "docs/deep/b.txt")
    assert ignoring(tmp_path, *lines) == taken


@pytest.mark.slow
def test_the_rules_are_those_of_dockers_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any patterns, on any names: the same files go in as by Docker's own reading."""
    monkeypatch.setattr(context, "RUBBISH", ())
    parts = ["a", "b", "ab", "c.md", "d.txt"]
    choose = random.Random(7)
    for _ in range(40):
        path = "/".join([*choose.choices(parts[:3], k=choose.randint(0, 3)), choose.choice(parts)])
        if (
            not any(other.is_file() for other in (tmp_path / path).parents)
            and not (tmp_path / path).exists()
        ):
            tree(tmp_path, path)
    every = [one.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("*") if one.is_file()]
    assert len(every) > 15
    # Where ** stands, or an exception has a star, Docker's own implementations differ.
    words = [*parts, "*", "*.md", "?", "a*"]
    for _ in range(120):
        lines = []
        for _ in range(choose.randint(1, 4)):
            sign, pool = choose.choice((("", words), ("", words), ("!", parts)))
            lines.append(sign + "/".join(choose.choices(pool, k=choose.randint(1, 3))))
        theirs = {
            path
            for path in exclude_paths(str(tmp_path), list(lines))
            if (tmp_path / path).is_file() and path != ".dockerignore"
        }
        assert set(ignoring(tmp_path, *lines)) == theirs, lines


def test_links_stay_links_and_pipes_stay_out(tmp_path: Path) -> None:
    source, copy = tree(tmp_path / "source", "a.txt"), tmp_path / "copy"
    (source / "link").symlink_to("a.txt")
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))
        seen = read_build_context(source)
    copy_context(seen, copy)
    assert sorted(os.listdir(copy)) == ["a.txt", "link"]
    assert os.readlink(copy / "link") == "a.txt"
    assert {"pipe", "socket"} <= set(seen.left_out)


def test_modes_and_times_do_not_depend_on_who_copies(tmp_path: Path) -> None:
    source, copy = tree(tmp_path / "source", "deep/a.txt", "run.sh"), tmp_path / "copy"
    (source / "run.sh").chmod(0o700)
    (source / "deep" / "a.txt").chmod(0o600)
    copy_context(read_build_context(source), copy)
    set_times(copy, 1_700_000_000)
    modes = {
        path.relative_to(copy).as_posix(): path.stat().st_mode & 0o777 for path in copy.rglob("*")
    }
    assert modes == {"deep": 0o755, "deep/a.txt": 0o644, "run.sh": 0o755}
    assert {path.stat().st_mtime for path in (copy, *copy.rglob("*"))} == {1_700_000_000}


def test_a_scratch_directory_is_gone_afterwards_and_so_is_that_of_a_dead_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_directory() as mine:
        assert read_owner(mine)
        machine, boot, _, _ = read_owner(mine).split("/")
        dead = tree(tmp_path / "openenv-build-dead", "context/a.py")
        (dead / "owner").write_text(f"{machine}/{boot}/{2**22 + 1}/1")
        with pytest.raises(KeyboardInterrupt), scratch_directory():
            assert not dead.exists()
            assert mine.exists()
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def read_owner(directory: Path) -> str:
    return (directory / "owner").read_text()


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="nowhere cannot be read"):
        read_build_context(tmp_path / "nowhere")
