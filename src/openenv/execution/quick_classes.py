"""Which classes had quick calls when a server of this machine last ran them.

A server puts the sessions of a class on shared threads once `LatencyClassifier` has measured that
its calls are quick. That takes 200 calls, and sessions that were opened before keep threads of
their own. So the verdict is kept in a file from one run to the next, and the sessions of a fresh
server share threads from the first one on.

A wrong verdict would make sessions wait for each other for as long as they live. So it counts only
for what is likely to behave the same: a class of a module, served by itself and not by a factory
that may pass arguments, whose module has the same contents, in a process with the same environment
variables (without those of `VOLATILE` and secrets). Anything else is measured anew, and a verdict
that proves wrong is forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import os
import re
import sys
import threading
from pathlib import Path

from openenv._internal.replacing import replace_text
from openenv.settings import cache_directory, looks_secret

logger = logging.getLogger(__name__)

# Variables that differ from run to run, and say nothing of what an environment does.
VOLATILE = re.compile(
    r"OPENENV_.*|SSH_.*|TERM.*|XDG_.*|PYTEST_.*|KUBERNETES_.*|.*_SERVICE_HOST|.*_SERVICE_PORT.*"
    r"|_|COLUMNS|HOSTNAME|INVOCATION_ID|JOURNAL_STREAM|LINES|OLDPWD|PWD|SHLVL|TMPDIR|WINDOWID"
)


def is_known_to_be_quick(cls: type) -> bool:
    """Return whether the calls of a class, as it is served here, were quick in an earlier run."""
    path = _path(cls)
    try:
        return path is not None and path.exists()
    except OSError:
        return False


def remember(cls: type, *, is_quick: bool) -> None:
    """Keep for later runs whether the calls of a class are quick; returns at once.

    Where nothing can be written, later runs measure anew.
    """
    path = _path(cls)
    if path is None:
        return

    def write() -> None:
        try:
            if is_quick:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_text(path, f"{cls.__module__}.{cls.__qualname__}\n")
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.debug("cannot keep whether calls of %s are quick: %s", cls.__name__, error)

    threading.Thread(target=write, name="openenv-remember", daemon=True).start()


def _path(cls: type) -> Path | None:
    """Return the file that stands for a class with quick calls; None if nothing can be kept."""
    directory = cache_directory()
    module = sys.modules.get(cls.__module__)
    if directory is None or getattr(module, cls.__qualname__, None) is not cls:
        return None
    digest = hashlib.sha256(f"{cls.__module__}.{cls.__qualname__}\0".encode())
    with contextlib.suppress(OSError, TypeError):  # of a class without a file
        source = inspect.getsourcefile(cls)
        if source is not None:
            digest.update(os.fsencode(os.path.realpath(source)))
            digest.update(Path(source).read_bytes())
            digest.update(repr(sorted(filter(_matters, os.environ.items()))).encode())
            return directory / "quick-classes" / digest.hexdigest()
    return None


def _matters(variable: tuple[str, str]) -> bool:
    name, _ = variable
    return VOLATILE.fullmatch(name) is None and not looks_secret(name)
