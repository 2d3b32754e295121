"""Install packages with uv, which takes seconds where pip takes a minute, from pip's indexes.

    python scripts/install.py PYTHON ARGUMENT...

The arguments are those of `pip install`; PYTHON is the interpreter to install for. uv does not read
pip's configuration, such as a company's index, so the script passes it on. uv is the program beside
the Python that runs this script; `scripts/setup` installs it with pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Settings of pip, and the environment variables of uv with the same meaning.
NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}


def told(python: str) -> dict[str, str]:
    """Return pip's configuration as environment variables of uv."""
    command = [python, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # nosec B603  # no shell
    # pip does not order its indexes. UV_NATIVE_TLS makes uv trust the machine's certificates.
    environ = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_NATIVE_TLS": "1"}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        if variable := NAMES.get(name.rpartition(".")[2]):
            words = value.strip("'\"").replace("\\n", " ")
            environ[variable] = ",".join(words.split()) if variable == "UV_FIND_LINKS" else words
    return environ


def main() -> int:
    """Install the packages, and return uv's exit status."""
    python, *asked = sys.argv[1:]
    uv = Path(sys.executable).with_name("uv")
    environ = {**told(sys.executable), **os.environ}
    if "--require-hashes" in asked:  # all is pinned, and uv would want hashes of constraints
        environ.pop("UV_CONSTRAINT", None)
    command = [str(uv), "pip", "install", "--quiet", "--python", python, *asked]
    return subprocess.run(command, env=environ, check=False).returncode  # nosec B603  # no shell


if __name__ == "__main__":
    sys.exit(main())
