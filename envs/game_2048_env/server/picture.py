"""Pictures of the board."""

from __future__ import annotations

from .board import SIDE, Board

__all__ = ["board_svg"]

_CELL = 64  # pixels; a cell with the gap after it
_GAP = 6
_HEAD = 28

# From beige to orange, red and black, one step for each doubling.
_FILLS = (
    *("#eee4da", "#ede0c8", "#f2b179", "#f59563", "#f67c5f", "#f65e3b", "#edcf72", "#edcc61"),
    *("#edc850", "#edc53f", "#edc22e"),
)
_EMPTY, _HIGHER, _GROUND = "#cdc1b4", "#3c3a32", "#bbada0"
_DARK_TEXT_UP_TO = 4


def board_svg(board: Board, score: int) -> str:
    """Draw the board and the score as SVG."""
    width = SIDE * _CELL + _GAP
    height = width + _HEAD
    tiles = [_tile(cell, tile) for cell, tile in enumerate(board)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-weight="bold" '
        'text-anchor="middle">\n'
        f'<text x="{width // 2}" y="20" font-size="16" fill="#776e65">score {score}</text>\n'
        f'<rect y="{_HEAD}" width="{width}" height="{width}" rx="6" fill="{_GROUND}"/>\n'
        + "".join(tiles)
        + "</svg>\n"
    )


def _tile(cell: int, tile: int) -> str:
    row, column = divmod(cell, SIDE)
    x, y, side = column * _CELL + _GAP, _HEAD + row * _CELL + _GAP, _CELL - _GAP
    drawn = f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="4" fill="{_fill(tile)}"/>'
    if tile:
        size = 26 if tile < 1000 else 20 if tile < 10_000 else 16
        colour = "#776e65" if tile <= _DARK_TEXT_UP_TO else "#f9f6f2"
        place = f'x="{x + side // 2}" y="{y + side // 2 + size // 3}"'
        drawn += f'<text {place} font-size="{size}" fill="{colour}">{tile}</text>'
    return drawn + "\n"


def _fill(tile: int) -> str:
    if not tile:
        return _EMPTY
    doublings = tile.bit_length() - 2  # 0 for a 2
    return _FILLS[doublings] if doublings < len(_FILLS) else _HIGHER
