"""The rules of 2048 (Gabriele Cirulli, 2014).

A board is a tuple of its 16 tiles, row by row; 0 is an empty cell. A line of four tiles slides in
one way only, so `slide` computes each line that occurs once, and a move is four look-ups.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

from ..models import Move

__all__ = [
    "CELLS",
    "HIGHEST",
    "SIDE",
    "Board",
    "add_tile",
    "legal_moves",
    "slide_board",
    "rows",
    "slide",
]

Board = tuple[int, ...]
Line = tuple[int, int, int, int]

SIDE = 4
CELLS = SIDE * SIDE
HIGHEST = 2**17  # the highest tile that a game can make
_FOURS = 0.1  # the share of fours among the tiles that are added; the others are twos

# For each move the cells of its four lines, from the edge that the tiles slide to.
_LINES: dict[Move, list[Line]] = {
    "up": [(c, c + 4, c + 8, c + 12) for c in range(SIDE)],
    "right": [(r + 3, r + 2, r + 1, r) for r in range(0, CELLS, SIDE)],
    "down": [(c + 12, c + 8, c + 4, c) for c in range(SIDE)],
    "left": [(r, r + 1, r + 2, r + 3) for r in range(0, CELLS, SIDE)],
}


@lru_cache(maxsize=2**16)
def slide(line: Line) -> tuple[Line, int]:
    """Slide a line of four tiles to its first cell.

    Equal neighbors merge, from the first cell on. A tile that has just been merged does not merge
    again.

    Returns:
        The line, and the sum of the merged tiles.
    """
    out: list[int] = []
    score, may_merge = 0, False
    for tile in filter(None, line):
        if may_merge and out[-1] == tile:
            out[-1] += tile
            score += out[-1]
            may_merge = False
        else:
            out.append(tile)
            may_merge = True
    first, second, third, fourth = (*out, *(0,) * (SIDE - len(out)))
    return (first, second, third, fourth), score


def slide_board(board: Board, move: Move) -> tuple[Board, int]:
    """Slide all lines of a board.

    Returns:
        The board before a tile is added, and the sum of the merged tiles.
    """
    cells, score = list(board), 0
    for a, b, c, d in _LINES[move]:
        line, made = slide((board[a], board[b], board[c], board[d]))
        cells[a], cells[b], cells[c], cells[d] = line
        score += made
    return tuple(cells), score


def legal_moves(board: Board) -> list[Move]:
    """Return the moves that change the board."""
    return [
        move
        for move, lines in _LINES.items()
        if any(
            slide(line)[0] != line
            for line in ((board[a], board[b], board[c], board[d]) for a, b, c, d in lines)
        )
    ]


def add_tile(board: Board, rng: Random) -> Board:
    """Add a 2, or sometimes a 4, to a random empty cell."""
    empty = [cell for cell, tile in enumerate(board) if not tile]
    cell = empty[rng.randrange(len(empty))]
    tile = 4 if rng.random() < _FOURS else 2
    return (*board[:cell], tile, *board[cell + 1 :])


def rows(board: Board) -> list[list[int]]:
    """Return the rows of a board, the upper row first."""
    return [list(board[start : start + SIDE]) for start in range(0, CELLS, SIDE)]
