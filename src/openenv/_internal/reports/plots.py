"""Plots of reports, as SVG within a page.

The colors are those of Okabe and Ito (2008), which color-blind people can tell apart. No fact is
shown by color alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openenv._internal.packages import needs

with needs("a report", "pip install 'openenv[eval]'"):
    import matplotlib as mpl
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#595959"

STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "openenv",
    "text.parse_math": False,  # names of tasks are not formulas
}

# Metadata to leave out, so that the files of equal plots are identical.
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Plot:
    """A plot.

    Attributes:
        name: The plot's name, unique within the page.
        caption: The caption: what the plot shows, and how to read it.
        svg: The plot as SVG.
    """

    name: str
    caption: str
    svg: str


def styled() -> AbstractContextManager[None]:
    """Return a context in which plots are drawn and written in the reports' style."""
    return mpl.rc_context(STYLE)


@contextmanager
def drawn(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure and axes to draw in; sizes are in inches of 72 points."""
    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure, figure.subplots()


def plot(figure: Figure, name: str, caption: str) -> Plot:
    """Convert a figure to a plot; `name` must be unique within the page."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=METADATA, transparent=True)
    svg = written.getvalue()
    # Prefix the ids, since a page has several plots.
    own = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])
    return Plot(name, caption, own)
