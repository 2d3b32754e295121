"""Pictures of the board."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import WORD_LENGTH, Mark, MarkedGuess

__all__ = ["board_svg"]

_FILLS: dict[Mark, str] = {"green": "#3a8f4f", "yellow": "#c9a227", "grey": "#6b7177"}
_EMPTY = "#e6e8ea"
_SIDE = 48  # pixels; a tile with the gap after it
_GAP = 4


def board_svg(guesses: Sequence[MarkedGuess], rows: int) -> str:
    """Draw the guesses as SVG, with empty tiles for the guesses that are left."""
    width, height = WORD_LENGTH * _SIDE + _GAP, rows * _SIDE + _GAP
    tiles = []
    for row in range(rows):
        guess = guesses[row] if row < len(guesses) else None
        for column in range(WORD_LENGTH):
            letter = guess.word[column].upper() if guess else ""
            fill = _FILLS[guess.marks[column]] if guess else _EMPTY
            tiles.append(_tile(row, column, letter, fill))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="26" '
        f'font-weight="bold" fill="#fff" text-anchor="middle">\n' + "".join(tiles) + "</svg>\n"
    )


def _tile(row: int, column: int, letter: str, fill: str) -> str:
    x, y, side = column * _SIDE + _GAP, row * _SIDE + _GAP, _SIDE - _GAP
    tile = f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="4" fill="{fill}"/>'
    if letter:
        tile += f'<text x="{x + side // 2}" y="{y + side // 2 + 9}">{letter}</text>'
    return tile + "\n"
