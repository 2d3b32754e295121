"""A Python interpreter in a sandbox, which keeps names between runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from openenv._internal.json import read_json
from openenv.errors import SandboxEnded
from openenv.sandbox.inside.frames import MAX_BODY, Decoder, FrameError, encode
from openenv.sandbox.sandbox import (
    ANSWER_TIMEOUT_S,
    INTERRUPT_GRACE_S,
    Completed,
    OnOutput,
    Running,
    Sandbox,
)

__all__ = ["Execution", "Interpreter"]

TIMED_OUT = 124  # the exit code of timeout(1)
GARBLED = "the code has written to the interpreter's own files, so the interpreter was ended\n"


@dataclass(frozen=True)
class Execution(Completed):
    """The result of a piece of code; see `Completed`.

    Attributes:
        names_are_gone: Whether the names of earlier pieces are lost, because the interpreter ended
            during or before this piece.
    """

    names_are_gone: bool = False


class Interpreter:
    """A CPython in a sandbox that keeps names, imports and files until it is closed.

        with Sandbox() as sandbox, Interpreter(sandbox) as python:
            python.run("x = 6")
            print(python.run("x * 7").stdout)  # 42

    The value of a final expression is printed, as at the prompt. A piece that exceeds its time
    limit is interrupted (`KeyboardInterrupt`). If it does not end within another second, the
    interpreter and all its processes are killed, and the next piece gets a new interpreter.

    Args:
        sandbox: The sandbox to run in.
        functions: Functions of this process that the code may call with keyword arguments.
            Arguments and results must be JSON. An exception becomes a RuntimeError in the code.
    """

    def __init__(
        self, sandbox: Sandbox, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self.sandbox = sandbox
        self.functions = dict(functions or {})
        self._numbers = itertools.count(1)
        self._job: Running | None = None
        self._begin()

    def _begin(self) -> None:
        """Start the interpreter, and wait until it is ready."""
        place = self.sandbox._place
        self._decoder, self._is_garbled, self._is_busy = Decoder(), False, False
        argv = [place.python, "-s", f"{place.guest}/interpreter.py"]
        self._job = self.sandbox.start(
            argv,
            environment={"PYTHONHASHSEED": "0"},  # so that sets have the same order each time
            has_channel=True,
            limit=self.sandbox.policy.output_bytes,
        )
        frame = self._next(time.monotonic() + ANSWER_TIMEOUT_S)
        if frame is None or frame[0].get("is") != "ready":
            text = self._job.text("stderr").strip()
            self.close()
            raise SandboxEnded(f"Python does not start in it: {text[-300:] or 'no answer'}")

    @property
    def is_running(self) -> bool:
        """Whether the interpreter runs; if not, the next piece of code starts a new one."""
        return self._job is not None and self._job.code is None

    def run(
        self, code: str, *, wall_s: float | None = None, on_output: OnOutput | None = None
    ) -> Execution:
        """Run a piece of code.

        Args:
            code: The code.
            wall_s: Time limit in seconds; by default `SandboxPolicy.wall_s`.
            on_output: Called with the stream's name and some text as output arrives.

        Returns:
            The result. Its `exit_code` is 0; 1 after an exception, whose traceback is in `stderr`;
            the argument of `exit`; 124 after a timeout; or 255 if the code broke the interpreter's
            channel.

        Raises:
            SandboxEnded: The sandbox has ended.
            ValueError: The code is longer than a frame, 1 MiB.
        """
        data = code.encode("utf-8", "surrogatepass")
        if len(data) > MAX_BODY:
            raise ValueError(f"code is {len(data)} bytes long; the limit is {MAX_BODY}")
        began_anew = not self.is_running
        if began_anew:
            self._begin()
        job, began = self._job, time.monotonic()
        assert job is not None
        job.forget()
        job._on_output = on_output
        wall_s = self.sandbox.policy.wall_s if wall_s is None else wall_s
        header = {
            "is": "run",
            "name": f"<step {next(self._numbers)}>",
            "names": sorted(self.functions),
        }
        job.say(encode(header, data), begins=True)
        exit_code = self._wait_for_the_end(job, began + wall_s)
        timed_out = exit_code is None and job.code is None
        if timed_out and not self._is_garbled:
            job.interrupt()
            self._wait_for_the_end(job, time.monotonic() + INTERRUPT_GRACE_S)
        was_ended = self._settle(job, was_interrupted=timed_out)
        if job.code is not None and exit_code is None and not timed_out:
            exit_code = 128 - job.code if job.code < 0 else job.code
        garbled = GARBLED if self._is_garbled else ""
        return Execution(
            exit_code=255 if garbled else TIMED_OUT if timed_out else exit_code or 0,
            stdout=job.text("stdout"),
            stderr=job.text("stderr") + garbled,
            timed_out=timed_out and not garbled,
            left_out=job.left_out,
            seconds=time.monotonic() - began,
            names_are_gone=began_anew or was_ended,
        )

    def _settle(self, job: Running, was_interrupted: bool) -> bool:
        """Receive all output, or end a stuck interpreter; return whether the interpreter ended."""
        if job.code is None and not (was_interrupted and self._is_busy):
            if job.has_more:
                job.settle()
            return False
        with contextlib.suppress(SandboxEnded):
            job.kill()
            job.wait(ANSWER_TIMEOUT_S)
        self._job = None
        if self.sandbox.is_over:
            raise SandboxEnded(self.sandbox._why or "")
        return True

    def _wait_for_the_end(self, job: Running, deadline: float) -> int | None:
        """Serve the code's calls until it ends; return its exit code, or None without one."""
        self._is_busy = True
        while (frame := self._next(deadline)) is not None:
            header, body = frame
            if header.get("is") == "done":
                self._is_busy = False
                code = header.get("exit_code")
                return code & 0xFF if isinstance(code, int) else 255
            if header.get("is") == "call":
                job.say(self._called(header.get("number"), body))
        return None

    def _called(self, number: Any, body: bytes) -> bytes:
        """Carry out a call of the code, and return the frame of the answer."""
        if not (isinstance(number, int) and 0 <= number < 2**63):
            number = 0  # the code may send anything
        try:
            asked = read_json(body)
            function = self.functions[asked["name"]]
            value = function(**asked["arguments"])
            return encode({"is": "answer", "number": number}, json.dumps(value).encode())
        except Exception as error:
            words = str(error) or type(error).__name__
            answer = {"is": "answer", "number": number, "failed": True}
            return encode(answer, words.encode()[: MAX_BODY // 2])

    def _next(self, deadline: float) -> tuple[dict[str, Any], bytes] | None:
        """Return the interpreter's next frame; None at the deadline or after its end."""
        job = self._job
        assert job is not None
        while True:
            try:
                frame = self._decoder.next()
            except FrameError:
                self._is_garbled = True
                return None
            if frame is not None:
                return frame
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            data = job.hear(left)
            if not data and job.code is not None:
                return None
            self._decoder.feed(data)

    def close(self) -> None:
        """End the interpreter; the sandbox stays open."""
        job, self._job = self._job, None
        if job is not None and job.code is None and not self.sandbox.is_over:
            with contextlib.suppress(SandboxEnded):
                job.signal(signal.SIGKILL)
                job.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
