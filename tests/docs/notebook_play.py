"""Carries out a notebook in a kernel of its own: a program for an environment that has nbclient.

    python notebook_play.py NOTEBOOK DIRECTORY [TAG]

A cell with a tag is left out unless TAG is it. Prints a list of JSON: of each cell of code its
source, and what it printed. It ends with 1 at the first cell that raises.
"""

from __future__ import annotations

import json
import sys

import nbformat
from nbclient import NotebookClient


def main() -> None:
    notebook = nbformat.read(sys.argv[1], as_version=4)
    wanted = sys.argv[3:]
    notebook.cells = [c for c in notebook.cells if set(c.metadata.get("tags", ())) <= set(wanted)]
    options = {"metadata": {"path": sys.argv[2]}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=options).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    sys.stdout.write(
        json.dumps([{"source": cell.source, "printed": printed_by(cell)} for cell in code])
    )


def printed_by(cell: nbformat.NotebookNode) -> str:
    return "".join(out.text for out in cell.outputs if out.get("name") == "stdout")


if __name__ == "__main__":
    main()
