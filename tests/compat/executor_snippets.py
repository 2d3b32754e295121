"""Runs pieces of code by `PyExecutor`, and prints what came of each.

`python executor_snippets.py` is run by a Python that has the public package and smolagents, and by
ours: it prints the same.
"""

import json

from openenv.core.tools import PyExecutor

# Those of a row share their names.
ROWS = {
    "names": [
        "x = 6\nprint(x)",
        "x * 7",
        "def f(n):\n    return n + x\nf(1)",
        "[f(n) for n in range(3)]",
    ],
    "values": [
        "'text'",
        "None",
        "{'a': [1, 2.5, None, True]}",
        "(1, 2)",
        "{1, 2}",
        "object",
        "print('first')\nprint('second')\n'value'",
        "",
        "x = 1",
        "float('nan')",
        "'Grüße 世界'",
    ],
    "errors": [
        "1 / 0",
        "print('lost')\nraise ValueError('mine')",
        "missing",
        "x = (",
        "assert False, 'words'",
        "int('a')",
    ],
    "imports": [
        "import math\nmath.floor(2.5)",
        "import os",
        "import subprocess",
        "open('file')",
        "__import__('os')",
        "eval('1 + 1')",
    ],
    "ours": [
        "safe_json_dumps({'a': 1})",
        "print(safe_json_dumps([1, 'ä', None]))",
        "try:\n    1 / 0\nexcept Exception:\n    print('ZeroDivisionError' in format_exc())",
    ],
    "output": ["print('x' * 100)", "for n in range(3):\n    print(n, end=',')", "print()"],
}


def outcome(done):
    last_line = (done.stderr.strip().splitlines() or [""])[-1]
    return [done.stdout, sorted_list(last_line), done.exit_code]


def sorted_list(line):
    """The line, whose list of modules is in another order each time."""
    words, bracket, modules = line.partition("are: [")
    return words + bracket + ", ".join(sorted(modules.rstrip("]").split(", ")))


def run(row):
    executor = PyExecutor()
    return {code: outcome(executor.run(code)) for code in row}


def extended():
    """With a module more."""
    executor = PyExecutor(additional_imports=["json"])
    return [
        outcome(executor.run(code)) for code in ("import json\njson.dumps([1])", "import shutil")
    ]


if __name__ == "__main__":
    seen = {name: run(row) for name, row in ROWS.items()}
    print(json.dumps({**seen, "extended": extended()}))  # noqa: T201
