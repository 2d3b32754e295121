"""The notebooks of the tutorial are its pages, and do what they say in a kernel of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs.test_docs import _matches
from support.notebooks import JUPYTER, ROOT, carry_out
from support.venvs import python_of

NOTEBOOKS = sorted((ROOT / "tutorial").glob("*.ipynb"))
SCRIPT = ROOT / "scripts" / "notebooks.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cells(script: ModuleType, page: str, folder: Path) -> list[Any]:
    file = folder / "page.md"
    file.write_text(page)
    return list(script.cells_of(file))


# ------------------------------------------------------------------ how they are written


@pytest.mark.slow
def test_the_notebooks_are_those_of_the_pages() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_notebook_for_each_page(script: ModuleType) -> None:
    pages = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
    assert [path.stem for path in NOTEBOOKS] == [page.stem for page in pages]
    assert len(pages) == 6


def test_what_a_loop_of_its_own_would_run_is_awaited(script: ModuleType, tmp_path: Path) -> None:
    page = "# P\n\n```python\nx = 1\nprint(asyncio.run(go(1, x)), 'é', asyncio.run(go()))\n```\n"
    *_, cell = cells(script, page, tmp_path)
    assert cell.text == "x = 1\nprint(await go(1, x), 'é', await go())\n"


def test_a_server_has_a_cell_of_its_own_and_a_port(script: ModuleType, tmp_path: Path) -> None:
    page = "# P\n\n```console\n$ ls \\\n  -l\nfile\n$ A=1 openenv serve x\n$ ls\n```\n"
    _, setup, *code = cells(script, page, tmp_path)
    assert "def serve(" in setup.text
    served = 'serve("A=1 openenv serve x --port 8000")'
    assert [cell.text for cell in code] == ["%%bash\nls \\\n  -l", served, "%%bash\nls"]


def test_files_are_written_and_pictures_left_out(script: ModuleType, tmp_path: Path) -> None:
    page = (
        "# P\n\n```python\n# a.py\nx = 1\n```\n\n![p](../pictures/p.svg)\n\n[b](../guides/b.md#c)\n"
    )
    *_, file, text = cells(script, page, tmp_path)
    assert file.text == "%%writefile a.py\nx = 1\n"
    assert text.text.strip() == "[b](../docs/guides/b.md#c)"


def test_what_needs_a_package_is_tagged(script: ModuleType, tmp_path: Path) -> None:
    page = "# P\n\n<!-- needs: trl -->\n```python\nimport trl\n```\n\n```json\n{}\n```\n"
    *_, cell, text = cells(script, page, tmp_path)
    assert cell.tags == ["needs-trl"]
    assert text.text.strip() == "```json\n{}\n```"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one(notebook: Path) -> None:
    """nbformat 4.5: every cell has an id, which no other has, and code has no output yet."""
    data = json.loads(notebook.read_text())
    ids = [cell["id"] for cell in data["cells"]]
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    assert all(cell["outputs"] == [] for cell in data["cells"] if cell["cell_type"] == "code")


# ------------------------------------------------------------------ what they do


@pytest.fixture(scope="module")
def python() -> str:
    ours = ["-e", f"{ROOT}[eval]", "-e", str(ROOT / "envs" / "blackjack_env")]
    return python_of(ROOT / ".peers" / "notebooks", *JUPYTER, "pytest==9.2.0", *ours)


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.extended("test_docs.py carries out the pages that the notebooks are written from")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_does_what_it_says(notebook: Path, python: str, tmp_path: Path) -> None:
    done = carry_out(python, notebook, tmp_path)
    missing = [pair for cell in done for pair in _missing(cell["source"], cell["printed"])]
    assert missing == []


def _missing(source: str, printed: str) -> Iterator[tuple[str, str]]:
    """What a comment behind a print says, and was not printed in its turn."""
    lines = iter(printed.splitlines())
    for expected in re.findall(r"^ *print\(.*\)  # (.+)$", source, re.MULTILINE):
        if not any(_matches(expected, line) for line in lines):
            yield expected, printed


@pytest.mark.extended("installs a package into a virtual environment")
@pytest.mark.timeout(600)
def test_a_kernel_that_has_nothing_gets_it_from_the_clone(tmp_path: Path) -> None:
    """The first cell installs what is missing, and imports it without a new kernel."""
    python = python_of(tmp_path / "bare", "setuptools")
    setup = json.loads((ROOT / "tutorial" / "01-use.ipynb").read_text())["cells"][1]["source"]
    program = "".join([*setup, "\nimport blackjack_env, matplotlib, openenv\nprint(openenv)"])
    done = subprocess.run(
        [python, "-c", program],
        cwd=ROOT / "tutorial",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "bare") in done.stdout
