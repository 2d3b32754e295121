"""Write tutorial/*.ipynb from docs/tutorial/*.md, one notebook per page.

`python scripts/notebooks.py` writes them. ``--check`` lists those that differ from the output, and
exits with 1 if there are any.

The page is the only source; `tests/docs/test_docs.py` defines the kinds of its blocks. In a
notebook

* ``python`` becomes a cell, and ``asyncio.run(...)`` becomes ``await ...``, since a notebook
* already has an event loop;
* the content of a file is written by ``%%writefile``;
* ``console`` becomes ``%%bash``, without the output, which the cell itself will show. Servers run
* in the background until the notebook ends;
* all other blocks and all prose are text. Links lead to the same pages, seen from the notebook.
* Pictures are left out, because the cell above draws them.

A comment ``<!-- needs: trl -->`` above a block gives its cell the tag ``needs-trl``.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "tutorial"
NOTEBOOKS = ROOT / "tutorial"

PART = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\]\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
SERVER = re.compile(r"(?:\w+=\S+ )*openenv (?:serve|gateway)\b")

# Packages that a page may use besides openenv itself: import name, and requirement.
PACKAGES = {"blackjack_env": "openenv-blackjack-env", "pytest": "pytest"}

SETUP = """\
# Install missing packages, and make a directory for the files of this notebook.
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

needed = {needed}
clone = Path.cwd().parent
if (clone / "src" / "openenv").is_dir():
    needed["openenv"] = f"{{clone}}[eval]"
    needed |= {{name: f"{{clone}}/envs/{{name}}" for name in needed if name.endswith("_env")}}
missing = [wanted for name, wanted in needed.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *missing], check=True)
    importlib.invalidate_caches()

os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
os.chdir(tempfile.mkdtemp(prefix="openenv-tutorial-"))
sys.path.insert(0, os.getcwd())
"""

SERVE = """

def serve(command):
    \"\"\"Run a server in the background until this notebook ends.\"\"\"
    log = open("server.log", "a")
    command = ["bash", "-c", f"exec env {command} --json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    atexit.register(server.terminate)
    announced = server.stdout.readline()
    if not announced:
        raise RuntimeError(Path("server.log").read_text())
    print(announced, end="")
"""


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook."""

    kind: str
    text: str
    tags: list[str] = field(default_factory=list)

    def as_data(self, name: str) -> dict[str, Any]:
        """Return the cell in the format of nbformat 4.5."""
        metadata = {"tags": self.tags} if self.tags else {}
        data: dict[str, Any] = {"cell_type": self.kind, "id": name, "metadata": metadata}
        if self.kind == "code":
            data |= {"execution_count": None, "outputs": []}
        return data | {"source": self.text.strip("\n").splitlines(keepends=True)}


# ------------------------------------------------------------------ parts of a page


def cells_of(page: Path) -> Iterator[Cell]:
    """Yield the cells of a page; the setup cell follows the first text."""
    content = page.read_text(encoding="utf-8")
    parts = list(_parts(content))
    yield parts[0]
    yield Cell("code", _setup(content))
    yield from parts[1:]


def _parts(content: str) -> Iterator[Cell]:
    prose, end = "", 0
    for found in PART.finditer(content):
        prose += _prose(content[end : found.start()])
        end = found.end()
        cells = list(_cells(found["language"], found["text"], found["needs"]))
        if not cells:
            prose += found[0]
            continue
        if prose.strip():
            yield Cell("markdown", prose)
        prose = ""
        yield from cells
    prose += _prose(content[end:])
    if prose.strip():
        yield Cell("markdown", prose)


def _prose(text: str) -> str:
    return LINK.sub(_from_there, PICTURE.sub("", text))


def _from_there(link: re.Match[str]) -> str:
    path, anchor = link["path"], link["anchor"] or ""
    if "://" in path:
        return link[0]
    target = (PAGES / path).resolve()
    if target.parent == PAGES:
        return f"]({target.stem}.ipynb)"
    return f"]({os.path.relpath(target, NOTEBOOKS)}{anchor})"


def _setup(content: str) -> str:
    used = {name: wanted for name, wanted in PACKAGES.items() if name in content}
    setup = SETUP.format(needed=json.dumps({"openenv": "openenv[eval]>=0.11"} | used))
    if re.search(rf"^\$ {SERVER.pattern}", content, re.MULTILINE):
        setup = setup.replace("import importlib\n", "import atexit\nimport importlib\n") + SERVE
    return setup


def _cells(language: str, text: str, needs: str | None) -> Iterator[Cell]:
    """Yield the cells of a block; none for a block that is only for reading."""
    tags = [f"needs-{needs}"] if needs else []
    file = FILE.match(text)
    if language in ("python", "yaml", "toml") and file:
        yield Cell("code", f"%%writefile {file['name']}\n{text[file.end() :]}", tags)
    elif language == "python":
        yield Cell("code", _awaited(text), tags)
    elif language == "console":
        yield from (Cell("code", cell, tags) for cell in _commands(text))


def _commands(text: str) -> Iterator[str]:
    """Yield the cells of console commands: each server has a cell of its own."""
    together: list[str] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command = _command(part)
        if not SERVER.match(command):
            together.append(command)
            continue
        if together:
            yield "\n".join(["%%bash", *together])
        together = []
        port = "" if "--port" in command else " --port 8000"
        yield f"serve({json.dumps(command + port)})"
    if together:
        yield "\n".join(["%%bash", *together])


def _command(part: str) -> str:
    """Return a command without its output; a backslash continues the line."""
    lines = part.splitlines()
    length = 1 + next(i for i, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[:length])


def _awaited(text: str) -> str:
    """Return the program with ``await x`` in place of ``asyncio.run(x)``."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    source = b"".join(lines)
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    runs = [call for call in calls if ast.unparse(call.func) == "asyncio.run"]
    for call in sorted(runs, key=lambda call: (call.lineno, call.col_offset), reverse=True):
        (argument,) = call.args
        first, last = _place(starts, call)
        inner = source[slice(*_place(starts, argument))]
        source = source[:first] + b"await " + inner + source[last:]
    return source.decode()


def _place(starts: list[int], node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    first = starts[node.lineno - 1] + node.col_offset
    return first, starts[node.end_lineno - 1] + node.end_col_offset


# ------------------------------------------------------------------ a notebook


def notebook_of(page: Path) -> str:
    """Return the notebook of a page as JSON; the same page gives the same bytes."""
    cells = [cell.as_data(f"{page.stem}-{n}") for n, cell in enumerate(cells_of(page))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    data = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> dict[Path, str]:
    """Return the content of each file."""
    pages = sorted(PAGES.glob("*.md"))
    return {NOTEBOOKS / f"{page.stem}.ipynb": notebook_of(page) for page in pages}


def _is_stale(path: Path, content: str | None) -> bool:
    return content is None or not path.exists() or path.read_text(encoding="utf-8") != content


def main() -> int:
    """Write the notebooks, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one differs")
    check = parser.parse_args().check
    wanted = notebooks()
    there = [*wanted, *(path for path in NOTEBOOKS.glob("*.ipynb") if path not in wanted)]
    stale = [path for path in there if _is_stale(path, wanted.get(path))]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is {'stale; run `make notebooks`' if check else 'new'}")
        if not check:
            _write(path, wanted.get(path))
    return int(check and bool(stale))


def _write(path: Path, content: str | None) -> None:
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
