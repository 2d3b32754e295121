"""Pictures of the table."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import Rank

__all__ = ["HIDDEN", "table_svg"]

HIDDEN = "?"

_CARD = (44, 62)  # pixels, wide and high
_STEP = 52  # from one card to the next
_LEFT, _TOP, _ROW = 16, 34, 104


def table_svg(rows: Sequence[tuple[str, Sequence[Rank | str]]]) -> str:
    """Draw rows of cards under their captions as SVG; the card `HIDDEN` lies face down."""
    longest = max(len(cards) for _, cards in rows)
    width, height = max(2 * _LEFT + longest * _STEP, 220), len(rows) * _ROW + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#2f6b4a"/>\n'
    ]
    for row, (caption, cards) in enumerate(rows):
        y = _TOP + row * _ROW
        parts.append(
            f'<text x="{_LEFT}" y="{y - 10}" font-size="14" fill="#fff">{caption}</text>\n'
        )
        parts += [_card(_LEFT + i * _STEP, y, card) for i, card in enumerate(cards)]
    return "".join([*parts, "</svg>\n"])


def _card(x: int, y: int, card: str) -> str:
    width, height = _CARD
    fill = "#8aa0b4" if card == HIDDEN else "#fff"
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}"/>'
        f'<text x="{x + width // 2}" y="{y + height // 2 + 8}" font-size="22" '
        f'text-anchor="middle">{card}</text>\n'
    )
