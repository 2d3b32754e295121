"""Every page of the documentation does what it says.

The blocks of a page are carried out from top to bottom, in one namespace and one directory:

* ``python`` is run. A first line ``# name.py`` writes the block to that file instead. Where a
  line ends in ``print(...)  # words``, these words must be printed, in the order of the lines
  (``...`` stands for anything).
* ``pycon`` is a doctest in a namespace of its own.
* ``console`` is run too: what follows ``$ `` is a command, and the lines below it, if there are
  any, are what it must print. ``openenv serve`` and ``openenv gateway`` go on in the background,
  on free ports, until the page ends; the addresses that the page gives for them are replaced by
  those ports'.
* ``yaml`` and ``toml`` with such a first line are written to that file; ``json`` must be JSON,
  and so must each line of ``jsonl``.
* ``ts`` is a module, whose first line names its file (``// play.ts``). Its types are checked, and
  it is run by Node; a line ``console.log(...); // expected`` prints that, as in Python.
* ``text`` is for reading.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from fastapi import FastAPI
from support.typescript import followed
from support.zygote import PythonProcess, run_python

from openenv import IgnoredArgumentWarning
from openenv.client import background
from openenv.server.workers import managers_of

ROOT = Path(__file__).resolve().parents[2]
SKILL = ROOT / "src" / "openenv" / "cli" / "skill.md"
WALK = ROOT / "docs" / "guides" / "ten-minutes.md"  # wants an engine; test_ten_minutes.py
PAGES = [
    ROOT / "README.md",
    SKILL,
    *sorted({*(ROOT / "docs").rglob("*.md")} - {WALK}),
    ROOT / "envs" / "README.md",
    *sorted((ROOT / "envs").glob("*/README.md")),
]
LINKED = sorted(
    {
        *PAGES,
        WALK,
        *ROOT.glob("*.md"),
        *(ROOT / "rfcs").glob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        ROOT / "tutorial" / "README.md",
    }
)
# Pages of the tutorial that start dozens of servers; test_notebooks.py carries them out as well.
LONG = {"02-build.md", "05-scale.md", "06-validate.md"}
SLOW_PAGES = pytest.mark.extended("starts dozens of servers")
COMMAND_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
SHELLS = re.compile(r"[|&;<>()$`*?\[\n]")  # what only a shell can do
SERVER = re.compile(r"((?:\w+=\S+ )*)openenv (?:serve|gateway)\b")  # with variables of its own

# Blocks that are not run, by page and first line, each with its reason.
EXCLUDED = {
    ("README.md", "$ make demo"): "takes longer than all other tests; CI runs the two commands",
    ("docs/tutorial/04-train.md", "$ python grpo.py"): "wants TRL; tests/trainers/test_tutorial.py",
    (
        "docs/tutorial/04-train.md",
        "$ python -m pip install --quiet 'trl>=1.16' torch",
    ): "from the network; the test of the one above has it",
    ("docs/guides/providers.md", "from openenv import UVProvider"): "uv installs from the network",
    **{
        (f"envs/{name}_env/README.md", line): "its library is installed for its own tests only"
        for name, line in [
            ("reasoning_gym", "$ openenv serve reasoning_gym_env"),
            ("reasoning_gym", "from reasoning_gym_env import ReasoningGymAction, ReasoningGymEnv"),
            ("textarena", "$ openenv serve textarena_env"),
            ("textarena", "from textarena_env import TextArenaAction, TextArenaEnv"),
        ]
    },
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is that of its fence, from 1."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def file(self) -> str | None:
        """The file that the block is to be written to."""
        named = re.fullmatch(r"(?:#|//) ([\w./-]+\.\w+)", self.first_line)
        return named[1] if named else None

    @property
    def is_excluded(self) -> bool:
        return (name_of(self.page), self.first_line) in EXCLUDED


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    fence = r"^```(?P<language>\w*)\n(?P<text>.*?)^```$"
    content = page.read_text(encoding="utf-8")
    for match in re.finditer(fence, content, re.DOTALL | re.MULTILINE):
        line = content.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["language"], match["text"])


class Reader:
    """Somebody who follows a page word by word, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self._here = directory
        self._addresses: dict[str, str] = {}
        self._stack = contextlib.ExitStack()
        self._environment = os.environ | {
            "PATH": f"{self._programs()}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT / "envs"), os.environ.get("PYTHONPATH", "")]
            ),
        }

    def _programs(self) -> Path:
        """Put `openenv` and `python` of this interpreter where commands find them first."""
        programs = self.directory / ".programs"
        programs.mkdir()
        for name, arguments in (("openenv", "-m openenv.cli"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            program.chmod(0o755)
        return programs

    def close(self) -> None:
        self._stack.close()
        for made in self.namespace.values():  # the program that a page is would end here
            for manager in managers_of(made) if isinstance(made, FastAPI) else ():
                background.run(manager.aclose())

    def follow(self, block: Block) -> None:
        match block.language:
            case "python" | "yaml" | "toml" if block.file:
                self._write(block.file, self._addressed(block.text))
            case "python":
                self._run_python(block)
            case "pycon":
                self._run_doctest(block)
            case "console":
                self._run_console(block)
            case "ts" if block.file:
                self._write(block.file, self._addressed(block.text))
                printed = followed(self._here, block.file)
                _expect_prints(block, printed.splitlines())
            case "json":
                json.loads(block.text)
            case "jsonl":
                for line in block.text.splitlines():
                    json.loads(line)
            case "text":
                pass
            case other:
                raise AssertionError(f"{_place(block)}: nobody knows how to follow {other!r}")

    def _write(self, name: str, text: str) -> None:
        file = self._here / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _addressed(self, text: str) -> str:
        """Replace the addresses that the page gives by those of the servers that it started."""
        for written, actual in self._addresses.items():
            text = text.replace(f"localhost:{written}", actual)
        return text

    # ------------------------------------------------------------------ python

    def _run_python(self, block: Block) -> None:
        text = self._addressed(block.text)
        padded = "\n" * block.line + text  # so that a traceback names the page's own lines
        code = compile(padded, str(block.page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore", IgnoredArgumentWarning)
            exec(code, self.namespace)
        _expect_prints(block, printed.getvalue().splitlines())

    def _run_doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, {"__name__": "__main__"}, _place(block), str(block.page), block.line
        )
        assert test.examples, f"{_place(block)}: a pycon block has lines that begin with '>>>'"
        told: list[str] = []
        failed = doctest.DocTestRunner(verbose=False).run(test, out=told.append).failed
        assert not failed, "".join(told)

    # ------------------------------------------------------------------ console

    def _run_console(self, block: Block) -> None:
        for command, expected in _commands(block):
            if command.startswith("cd "):
                self._here = self._here / command[3:].strip()
            elif SERVER.match(command):
                assert not expected, f"{_place(block)}: a server's words are not compared"
                self._serve(command)
            else:
                _expect_output(block, expected, self._run(command))

    def _run(self, command: str) -> str:
        program = command.split()[0]
        if shutil.which(program, path=self._environment["PATH"]) is None:
            pytest.skip(f"{program} is not installed on this machine")
        done = run_python(
            _words(self._addressed(command)),
            cwd=self._here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"$ {command}\nexited with {done.returncode}:\n{done.stdout}"
        printed: str = done.stdout
        return printed

    def _serve(self, command: str) -> None:
        given = re.search(r"\s--port[ =](\d+)", command)
        asked = self._addressed(command.replace(given[0], "") if given else command)
        named = SERVER.match(asked)
        variables = named[1] if named else ""
        log = self._stack.enter_context((self.directory / ".server.log").open("w+"))
        server = PythonProcess(
            _words(f"{asked.removeprefix(variables)} --port 0 --json", f"{variables}exec "),
            cwd=self._here,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._stack.callback(_stop, server)
        url = _announced_url(server)
        assert url, f"$ {command}\ndid not start:\n{(self.directory / '.server.log').read_text()}"
        self._addresses[given[1] if given else "8000"] = url.partition("://")[2]


def _words(command: str, by_shell: str = "") -> list[str]:
    """Return the arguments of a process that carries out a command.

    A shell does (behind what `by_shell` says), unless all it would do is start `openenv` or
    `python`: these are started directly, so that they can be forked (see `support.zygote`).
    """
    if by_shell in ("", "exec ") and not SHELLS.search(command):
        match shlex.split(command):
            case ["openenv", *arguments]:
                return [sys.executable, "-m", "openenv.cli", *arguments]
            case ["python", *arguments]:
                return [sys.executable, *arguments]
    return ["bash", "-c", f"{by_shell}{command}"]


def _announced_url(server: subprocess.Popen[str]) -> str | None:
    """The address on the server's first line; it serves once that is out. None if it ended."""
    assert server.stdout is not None
    lines: list[str] = []
    reading = threading.Thread(target=_read_line, args=(server.stdout, lines), daemon=True)
    reading.start()
    reading.join(COMMAND_TIMEOUT_S)
    return json.loads(lines[0])["url"] if lines and lines[0] else None


def _read_line(stream: IO[str], lines: list[str]) -> None:
    lines.append(stream.readline())


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _place(block: Block) -> str:
    return f"{name_of(block.page)}:{block.line}"


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what it is to print."""
    assert block.text.startswith("$ "), f"{_place(block)}: a console block begins with '$ '"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        length = 1 + next(i for i, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[:length]).strip(), "".join(lines[length:])


def _matches(expected: str, actual: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, actual, flags)


def _expect_output(block: Block, expected: str, actual: str) -> None:
    if expected.strip():
        assert _matches(expected, actual), f"{_place(block)}: expected\n{expected}\ngot\n{actual}"


def _expect_prints(block: Block, printed: list[str]) -> None:
    remaining = iter(printed)
    says = r"^ *(?:print\(.*\)  #|console\.log\(.*\); //) (.+)$"
    for expected in re.findall(says, block.text, re.MULTILINE):
        found = any(_matches(expected, line) for line in remaining)
        assert found, f"{_place(block)}: {expected!r} was not printed in its turn; but: {printed}"


# ------------------------------------------------------------------ the tests


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "envs"))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    reader = Reader(tmp_path)
    yield reader
    reader.close()
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.slow("follows a page from top to bottom, and its servers start")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=SLOW_PAGES if page.name in LONG else ()) for page in PAGES],
    ids=name_of,
)
def test_a_page_does_what_it_says(page: Path, reader: Reader) -> None:
    for block in blocks_of(page):
        if not block.is_excluded:
            reader.follow(block)


def test_every_block_that_is_left_out_is_there() -> None:
    there = [(name_of(b.page), b.first_line) for page in PAGES for b in blocks_of(page)]
    assert {key: there.count(key) for key in EXCLUDED} == dict.fromkeys(EXCLUDED, 1)


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [target for target in _relative_links(page) if not _leads_somewhere(page, target)]
    assert broken == []


def _relative_links(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets: list[str] = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target for target in targets if "://" not in target]


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(page: Path) -> list[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings: list[str] = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["reference.py", "drawings.py"])
def test_what_is_generated_is_fresh(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------ the harness itself


@pytest.fixture
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Block]]:
    def page_of(content: str) -> list[Block]:
        page = ROOT / "docs" / "a-page-that-is-not-there.md"
        file = tmp_path_factory.mktemp("page") / "page.md"
        file.write_text(content)
        return [Block(page, b.line, b.language, b.text) for b in blocks_of(file)]

    return page_of


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "```python\nassert False\n```\n",
        "```python\nprint(1)  # 2\n```\n",
        "```python\nif False:\n    print(1)  # 1\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ openenv serve no_such_environment\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```pycon\n1 + 1\n```\n",
        "```fortran\nPRINT *, 1\n```\n",
        "```json\n{'a': 1}\n```\n",
    ],
)
def test_a_page_that_is_wrong_fails(
    content: str, page_of: Callable[[str], list[Block]], reader: Reader
) -> None:
    blocks = page_of(content)
    assert blocks
    with pytest.raises((AssertionError, json.JSONDecodeError)):
        for block in blocks:
            reader.follow(block)
