"""A Python interpreter that keeps names between pieces of code.

A stand-alone program (``python -I interpreter.py``) that exchanges frames on its files 3 and 4:

    run     (received) code as bytes; name, for tracebacks; names of the holder's functions
    answer  (received) number of a call; value, or error
    call    (sent) number; name and arguments of a call of the holder's function
    done    (sent) exit_code
    ready   (sent) once
"""

from __future__ import annotations

import ast
import builtins
import io
import itertools
import json
import linecache
import os
import select
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

_here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, _here)

# These modules are next to this file, which is not in a package inside the sandbox.
from frames import MAX_BODY, Decoder, encode  # noqa: E402  # pyright: ignore[reportMissingImports]

TOLD, TELLS = 3, 4


class ToolError(RuntimeError):
    """Raised if a function of the holder fails, with the holder's text."""


class CodeRunner:
    """Runs pieces of code in a module, and calls the holder's functions for the code."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.module = types.ModuleType("__main__")
        self.module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        self.calls = itertools.count(1)
        self.turn = threading.Lock()  # for threads that call functions

    def next(self) -> tuple[dict[str, Any], bytes]:
        """Wait for the next frame; an interrupt never comes between the parts of a frame."""
        while True:
            frame: tuple[dict[str, Any], bytes] | None = self.undisturbed(self.decoder.next)
            if frame is not None:
                return frame
            select.select([TOLD], [], [])
            self.undisturbed(self.take)

    def take(self) -> None:
        data = os.read(TOLD, 2**20)
        if not data:
            os._exit(0)
        self.decoder.feed(data)

    @staticmethod
    def undisturbed(work: Callable[[], Any]) -> Any:
        """Call `work`; delay an interrupt that arrives during the call until after it."""
        if threading.current_thread() is not threading.main_thread():
            return work()  # no interrupt arrives here
        late: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, frame: late.append(number))
        try:
            result = work()
        finally:
            signal.signal(signal.SIGINT, before)
        if late and callable(before):
            before(late[0], None)
        return result

    def tell(self, header: dict[str, Any], body: bytes = b"") -> None:
        data = memoryview(encode(header, body))
        while data:
            data = data[os.write(TELLS, data) :]

    def serve(self) -> None:
        """Run code as it is received, until the input ends."""
        self.tell({"is": "ready"})
        while True:
            header, body = self.next()
            if header["is"] != "run":
                continue  # the answer to a call that was interrupted
            for name in header.get("names", ()):
                self.module.__dict__[name] = self._function(name)
            code = self._run(body.decode("utf-8", "surrogatepass"), header["name"])
            if not self._flush():
                code = code or 120  # Python's own exit code for output that is lost
            self.tell({"is": "done", "exit_code": code})

    @staticmethod
    def _flush() -> bool:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return False
        return True

    def _run(self, source: str, name: str) -> int:
        """Run a piece of code, and print the value of a last expression."""
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        names = self.module.__dict__
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            tree: Any = compile(source, name, "exec", ast.PyCF_ONLY_AST)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), names)  # nosec B102  # what a sandbox is for
            if isinstance(last, ast.Expr):
                code = compile(ast.Expression(last.value), name, "eval")
                value = eval(code, names)  # nosec B307  # likewise
                if value is not None:
                    print(repr(value))
        except SystemExit as ended:
            return self._exit_code(ended)
        except BaseException as error:
            self._show(error)
            return 1
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a late interrupt must not end anything
        return 0

    @staticmethod
    def _exit_code(ended: SystemExit) -> int:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1

    @staticmethod
    def _show(error: BaseException) -> None:
        """Print a traceback, without the frames of this program."""
        try:
            shown = traceback.TracebackException.from_exception(error, compact=True)
            frames = [one for one in shown.stack if not one.filename.startswith(_here)]
            shown.stack[:] = traceback.StackSummary.from_list(frames)
            text = "".join(shown.format())
        except BaseException as failed:  # its own __str__, or no stack left
            text = f"{type(error).__name__} (its traceback could not be written: {failed!r:.200})\n"
        sys.stderr.write(text)

    # ------------------------------------------------------------------ functions of the holder

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **arguments: Any) -> Any:
            if values:
                raise TypeError(f"{name}() takes its arguments by name")
            return self._call(name, arguments)

        call.__name__ = call.__qualname__ = name
        return call

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        body = json.dumps({"name": name, "arguments": arguments}).encode()
        if len(body) > MAX_BODY:
            raise ValueError(f"the arguments of {name} are {len(body)} bytes, over {MAX_BODY}")
        with self.turn:
            number = next(self.calls)
            self._flush()
            self.tell({"is": "call", "number": number}, body)
            header, answer = self.next()
            while header.get("number") != number:  # the answer to an interrupted call
                header, answer = self.next()
        if header.get("failed"):
            raise ToolError(answer.decode())
        return json.loads(answer)


def main() -> None:
    """Run as a job of a sandbox, with a channel."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True, encoding="utf-8")
    sys.path[:] = [os.getcwd(), *(one for one in sys.path if one != _here)]
    sys.modules.pop("frames", None)
    sys.argv = [""]
    # Nobody types on standard input, and `input()` would wait forever: an empty pipe ends it.
    reads, writes = os.pipe()
    os.close(writes)
    os.dup2(reads, 0)
    os.close(reads)
    os.set_inheritable(TOLD, False)
    os.set_inheritable(TELLS, False)
    CodeRunner().serve()


if __name__ == "__main__":
    main()
