"""Chess engines in processes of their own, by the Universal Chess Interface.

The protocol is that of Kahlen and Meyer-Kahlen, "UCI protocol", 2006. An opponent needs only
``position`` and ``go depth``. Every wait has a limit, there is no thread, and an engine that
is not closed ends with the program. `chess.engine.SimpleEngine` was rejected, since it waits
without limit for a search to a depth, and keeps a thread that the interpreter waits for at exit.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import chess

from openenv.errors import Refused
from openenv.settings import without_keys

__all__ = ["OpponentFailed", "UciEngine"]

_QUIT_TIMEOUT_S = 2.0
_READ_BYTES = 65536
_MAX_LINE_BYTES = 2**20


class OpponentFailed(Refused):
    """The opponent's engine ended, did not answer in time, or answered with no legal move.

    The game is as it was before. The same step may be made again, with a new engine process.
    """


class UciEngine:
    """An engine process, which starts with the first move, and again after a failure.

    Args:
        path: The program.
        timeout_s: Seconds within which the engine must be ready, and must move.

    Raises:
        ValueError: The program does not exist or may not be run.
    """

    def __init__(self, path: str, *, timeout_s: float) -> None:
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise ValueError(f"there is no chess engine {path!r} that may be run")
        self.path = path
        self.name = Path(path).name
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] | None = None
        self._read = b""

    @property
    def pid(self) -> int | None:
        """The id of the running process, or None."""
        return None if self._process is None else self._process.pid

    def move(self, board: chess.Board, depth: int) -> chess.Move:
        """Return the engine's best move.

        The engine is told to forget earlier searches before each move, and to use one thread. So
        its answer depends only on the game and the depth.

        Raises:
            OpponentFailed: The engine failed, and its process has been ended.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            self._prepare(deadline)
            moves = " ".join(move.uci() for move in board.move_stack)
            self._send(f"position fen {board.root().fen()}" + (f" moves {moves}" if moves else ""))
            self._send(f"go depth {depth}")
            answer = self._wait_for("bestmove", deadline)
            return self._parse_move(board, answer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. The next move starts another one."""
        end, self._end, self._process, self._read = self._end, None, None, b""
        if end is not None:
            end()

    def _prepare(self, deadline: float) -> None:
        if self._process is None:
            self._start()
            self._send("uci")
            self._wait_for("uciok", deadline)
            self._send("setoption name Threads value 1")
        self._send("ucinewgame")
        self._send("isready")
        self._wait_for("readyok", deadline)

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(  # nosec B603  # the server's own choice, no shell
                [self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=without_keys(os.environ),
                start_new_session=True,  # a Ctrl-C is for the server, which closes its engines
            )
        except OSError as error:
            raise OpponentFailed(
                f"the opponent's engine {self.name!r} could not be started: {error.strerror}"
            ) from error
        self._end = weakref.finalize(self, _end_process, self._process)

    def _send(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError as error:
            raise self._make_ended_error() from error

    def _wait_for(self, word: str, deadline: float) -> list[str]:
        """Read lines up to one that begins with a word, and return the words of that line."""
        while True:
            *lines, self._read = self._read.split(b"\n")
            for number, line in enumerate(lines):
                words = line.decode(errors="replace").split()
                if words[:1] == [word]:
                    self._read = b"\n".join([*lines[number + 1 :], self._read])
                    return words
            self._read += self._read_more(deadline)
            if len(self._read) > _MAX_LINE_BYTES:
                raise OpponentFailed(
                    f"the opponent's engine {self.name!r} wrote more than {_MAX_LINE_BYTES} bytes "
                    "without an end of a line; the position is as it was"
                )

    def _read_more(self, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        left_s = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            # The deadline also ends the wait for an engine that writes without end.
            if left_s <= 0 or not selector.select(left_s):
                raise OpponentFailed(
                    f"the opponent's engine {self.name!r} did not answer within "
                    f"{self.timeout_s:g} s; the position is as it was"
                )
        data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        if not data:
            raise self._make_ended_error()
        return data

    def _make_ended_error(self) -> OpponentFailed:
        return OpponentFailed(
            f"the process of the opponent's engine {self.name!r} has ended; the position is as it "
            "was"
        )

    def _parse_move(self, board: chess.Board, answer: list[str]) -> chess.Move:
        with contextlib.suppress(ValueError, IndexError):
            move = board.parse_uci(answer[1])
            if move in board.legal_moves:  # a null move can be parsed
                return move
        raise OpponentFailed(
            f"the opponent's engine {self.name!r} answered {' '.join(answer)!r:.80}, which is no "
            "legal move; the position is as it was"
        )


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to quit, and kill it if it does not."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.write(b"quit\n")
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_QUIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
