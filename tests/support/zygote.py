"""Python programs that cost a fork instead of a start.

Most of what ``python -m openenv.cli --help`` costs is imports, and the tests run hundreds of such
programs. So each worker of pytest has one process, the zygote, that has imported the command line,
the server and the client. `PythonProcess` asks it for a fork, which becomes what a new interpreter
would have been: a process with a directory, environment variables, standard streams, signal
handlers and an exit code of its own. `openenv._internal.forkserver`, by which the product itself
starts servers, does the work; see there for what a fork changes.

A program is started in the ordinary way if a fork would differ from it: if the variables that the
interpreter reads when it starts (``PYTHON*``, ``LD_*``, ...) are not the zygote's, if it is given
options for the interpreter, if it minds what is imported already (pytest, pip), or on a system
without process descriptors (any but Linux). Tests of starting itself (signals during imports, the
cost of imports, the script that pip installs) use `subprocess` directly.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openenv
from openenv._internal import children as _children
from openenv._internal import forkserver as _forkserver
from openenv._internal.forkserver import ForkRequest

__all__ = ["PythonProcess", "run_python"]

TESTS = Path(__file__).resolve().parents[1]
# Where the zygote finds this module, and the sources that are tested.
OWN_PATH = os.pathsep.join([str(TESTS), str(Path(openenv.__file__).parents[1])])
STARTS_WITHIN_S = 60.0
# Positions in the arguments of `Popen._execute_child`, which are the same from Python 3.10 to 3.14.
ARGS, CWD, ENV, PIPES = 0, 5, 6, slice(10, 16)


# ------------------------------------------------------------------ in the zygote


def main() -> int:
    """Import what the programs of the tests import, then fork on request."""
    commands = importlib.import_module("openenv.cli.commands")
    names = [f"openenv.cli.commands.{one.name}" for one in pkgutil.iter_modules(commands.__path__)]
    _forkserver.PRELOADED += (*names, "numpy", "typer.rich_utils")
    return _forkserver.main()


def become() -> int:
    """Run the program that `sys.argv` names as ``python ARGUMENTS`` would."""
    ours = _entries(os.environ.pop("OPENENV_ZYGOTE_PATH"))
    theirs = _entries(os.environ.get("PYTHONPATH", ""))
    sys.path[1:] = [*theirs, *(one for one in sys.path[1:] if one not in ours)]
    kind = sys.argv.pop(1) if sys.argv[1] in ("-m", "-c") else ""
    program, sys.argv[:] = sys.argv[1], sys.argv[1:]
    if kind == "-m":
        if not hasattr(sys.modules.get(program), "__path__"):
            sys.modules.pop(program, None)  # runpy warns of a module that it runs again
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[0] = "-c"
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), module.__dict__)
    else:
        sys.path[0] = str(Path(program).resolve().parent)
        runpy.run_path(program, run_name="__main__")
    return 0


def _entries(path: str) -> list[str]:
    return [os.path.abspath(one) for one in path.split(os.pathsep) if one]


# ------------------------------------------------------------------ in the tests


class Zygote:
    """The zygote of this process, as this process sees it."""

    def __init__(self) -> None:
        self.begins_as = begins_as(os.environ)
        self._turn = threading.Lock()
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.zygote"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                # A fork has the thread that forked it only; NumPy's BLAS is to start no others.
                env={**os.environ, "PYTHONPATH": OWN_PATH, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._link.settimeout(STARTS_WITHIN_S)
        threads, _ = _forkserver.receive(self._link, 0)
        assert threads == 1, f"the zygote has {threads} threads, so it cannot be forked safely"
        atexit.register(self._close, os.getpid())

    def fork(self, request: ForkRequest, streams: Sequence[int]) -> _children.Forked:
        """Fork a process whose standard streams are these descriptors."""
        told, report = os.pipe()
        try:
            with self._turn:
                _forkserver.send(self._link, request, [*streams, report])
                pid, given = _forkserver.receive(self._link, 1)
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(report)
        if pid < 0:
            os.close(told)
            raise OSError(-pid, os.strerror(-pid))
        os.set_blocking(told, False)
        return _children.Forked(pid, given[0], told)

    def _close(self, owner: int) -> None:
        if os.getpid() == owner:
            self._link.close()
            self._process.wait(STARTS_WITHIN_S)


_zygote: Zygote | None = None
_turn = threading.Lock()


def begins_as(environ: Mapping[str, str]) -> Any:
    """Return what decides how an interpreter starts, less its path for modules."""
    rest = {key: value for key, value in environ.items() if key != "PYTHONPATH"}
    return _children._begins_as(rest)


def zygote_for(command: Sequence[str], environ: Mapping[str, str]) -> Zygote | None:
    """Return the zygote if its fork would be as good as a new process."""
    global _zygote
    is_plain = (
        len(command) > 1
        and command[0] == sys.executable
        and (command[1] in ("-m", "-c") or not command[1].startswith("-"))
        and command[2:3] not in (["pytest"], ["pip"])  # which mind what is imported already
    )
    if not is_plain or not hasattr(os, "pidfd_open"):
        return None
    with _turn:
        if _zygote is None:
            _zygote = Zygote()
    return _zygote if _zygote.begins_as == begins_as(environ) else None


class PythonProcess(subprocess.Popen[Any]):
    """A `subprocess.Popen` whose program is forked off the zygote if it can be.

    It leads a session of its own, as with ``start_new_session=True``.
    """

    _forked: _children.Forked | None = None

    def _execute_child(self, *arguments: Any) -> None:
        command = [os.fspath(word) for word in arguments[ARGS]]
        given = arguments[ENV]
        environ = {os.fsdecode(k): os.fsdecode(v) for k, v in (given or os.environ).items()}
        zygote = zygote_for(command, environ)
        if zygote is None:
            super()._execute_child(*arguments)  # type: ignore[misc]  # typeshed leaves it out
            return
        pipes = arguments[PIPES]
        streams = [pipes[0], pipes[3], pipes[5]]
        request = ForkRequest(
            "support.zygote:become",
            command[1:],
            {**environ, "OPENENV_ZYGOTE_PATH": OWN_PATH},
            os.path.abspath(arguments[CWD] or os.getcwd()),
            outlives_s=0,
            processors=sorted(os.sched_getaffinity(0)),
        )
        try:
            ours = [given if given != -1 else number for number, given in enumerate(streams)]
            self._forked = zygote.fork(request, ours)
            self.pid = self._forked.pid
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._forked is None:
            return super()._internal_poll(*arguments, **options)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            self.returncode = self._forked.poll()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._forked is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            try:
                self.returncode = self._forked.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise subprocess.TimeoutExpired(self.args, error.timeout) from None
        return self.returncode


def run_python(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: str | None = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with PythonProcess(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


if __name__ == "__main__":
    sys.exit(main())
