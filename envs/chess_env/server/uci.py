"""A chess engine in a process of its own, spoken to by the Universal Chess Interface.

The protocol: Kahlen and Meyer-Kahlen, "UCI protocol", 2006. Of it is used what an opponent needs:
``position`` and ``go depth``. Every wait is bounded, no thread is kept, and an engine that nobody
closes ends with the program: `chess.engine.SimpleEngine` waits for as long as an engine searches
to a depth, and keeps a thread that the interpreter waits for when it ends.
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
_LONGEST_LINE = 2**20


class OpponentFailed(Refused):
    """The opponent's engine ended, did not answer in time, or answered with no legal move.

    The game is where it was before: the same step may be made again, with a fresh engine.
    """


class UciEngine:
    """One engine process; it starts when it is first asked for a move, and again after it failed.

    Args:
        path: The program.
        timeout_s: Seconds within which it has to be ready, and to move.

    Raises:
        ValueError: There is no such program, or it may not be run.
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
        """The process id, while it runs."""
        return None if self._process is None else self._process.pid

    def move(self, board: chess.Board, depth: int) -> chess.Move:
        """Ask for the best move.

        The engine forgets what it knows before each move, so that its answer depends on the game
        and the depth alone (as far as it has one thread, which is what is asked of it).

        Raises:
            OpponentFailed: It failed; its process has been ended.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            self._be_ready(deadline)
            moves = " ".join(move.uci() for move in board.move_stack)
            self._say(f"position fen {board.root().fen()}" + (f" moves {moves}" if moves else ""))
            self._say(f"go depth {depth}")
            answer = self._wait_for("bestmove", deadline)
            return self._legal(board, answer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. It may start again."""
        end, self._end, self._process, self._read = self._end, None, None, b""
        if end is not None:
            end()

    def _be_ready(self, deadline: float) -> None:
        if self._process is None:
            self._start()
            self._say("uci")
            self._wait_for("uciok", deadline)
            self._say("setoption name Threads value 1")
        self._say("ucinewgame")
        self._say("isready")
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

    def _say(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError as error:
            raise self._ended() from error

    def _wait_for(self, word: str, deadline: float) -> list[str]:
        """Read lines up to one that begins with a word, and give its words."""
        while True:
            *lines, self._read = self._read.split(b"\n")
            for number, line in enumerate(lines):
                words = line.decode(errors="replace").split()
                if words[:1] == [word]:
                    self._read = b"\n".join([*lines[number + 1 :], self._read])
                    return words
            self._read += self._more(deadline)
            if len(self._read) > _LONGEST_LINE:
                raise OpponentFailed(
                    f"the opponent's engine {self.name!r} wrote more than {_LONGEST_LINE} bytes "
                    "without an end of a line; the position is as it was"
                )

    def _more(self, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        left_s = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            # One that talks without end is no better than one that is silent.
            if left_s <= 0 or not selector.select(left_s):
                raise OpponentFailed(
                    f"the opponent's engine {self.name!r} did not answer within "
                    f"{self.timeout_s:g} s; the position is as it was"
                )
        data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        if not data:
            raise self._ended()
        return data

    def _ended(self) -> OpponentFailed:
        return OpponentFailed(
            f"the process of the opponent's engine {self.name!r} has ended; the position is as it "
            "was"
        )

    def _legal(self, board: chess.Board, answer: list[str]) -> chess.Move:
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
