"""Install packages by uv, which takes seconds where pip takes a minute, from where pip would.

    python scripts/install.py PYTHON ARGUMENT...

The arguments are those of `pip install`; PYTHON is whose they are to be. uv does not read pip's
configuration, such as a company's index: it is told what that says. uv is the one beside the
Python that runs this; `scripts/setup` has pip install it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# What pip is told, and the variable by which uv is told the same.
NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}


def told(python: str) -> dict[str, str]:
    """What pip is configured to, as uv is told it by variables."""
    command = [python, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # nosec B603  # no shell
    # One pip has no order among indexes; UV_NATIVE_TLS is to trust whom the machine trusts.
    environ = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_NATIVE_TLS": "1"}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        if variable := NAMES.get(name.rpartition(".")[2]):
            words = value.strip("'\"").replace("\\n", " ")
            environ[variable] = ",".join(words.split()) if variable == "UV_FIND_LINKS" else words
    return environ


def main() -> int:
    """Install; the exit status is uv's."""
    python, *asked = sys.argv[1:]
    uv = Path(sys.executable).with_name("uv")
    environ = {**told(sys.executable), **os.environ}
    if "--require-hashes" in asked:  # all is decided; uv wants hashes of constraints too
        environ.pop("UV_CONSTRAINT", None)
    command = [str(uv), "pip", "install", "--quiet", "--python", python, *asked]
    return subprocess.run(command, env=environ, check=False).returncode  # nosec B603  # no shell


if __name__ == "__main__":
    sys.exit(main())
