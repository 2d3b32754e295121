"""Conditions of another system, for processes that a test starts.

A directory with a ``sitecustomize.py``, put onto PYTHONPATH, changes what every Python process
finds when it begins, and so every worker of a server too.
"""

from __future__ import annotations

import os
from pathlib import Path

# What macOS lacks of Linux, as far as Python shows it. (`os.waitid` is there from 3.13 on.)
LIKE_MACOS = """
import builtins, io, os, signal, socket

for name in ("pidfd_open", "sched_getaffinity", "sched_setaffinity", "waitid", "P_PIDFD"):
    if hasattr(os, name):
        delattr(os, name)
if hasattr(signal, "pidfd_send_signal"):
    del signal.pidfd_send_signal
if hasattr(socket, "SO_PEERCRED"):
    del socket.SO_PEERCRED


def without_proc(function):
    def looked_for(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and str(path).startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *arguments, **options)
    return looked_for


builtins.open = io.open = without_proc(builtins.open)
os.listdir = without_proc(os.listdir)
os.readlink = without_proc(os.readlink)


class WithoutAbstractNames(socket.socket):
    def bind(self, address):
        if address and address[0] in ("\\0", 0):
            raise FileNotFoundError(2, "No such file or directory")
        return super().bind(address)


socket.socket = WithoutAbstractNames
"""


def conditions(directory: Path, program: str, path: str) -> dict[str, str]:
    """Write a program that every Python process begins with.

    Args:
        directory: Where it is written.
        program: It.
        path: What else is to be on PYTHONPATH.

    Returns:
        The environment variables of such a process.
    """
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(program)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), path])}
