"""Draw the pictures of docs/concepts/architecture.md: `python scripts/drawings.py`.

``--check`` lists the pictures that differ from the output, and exits with 1 if there are any. A
drawing consists of boxes, rooms and arrows at given places, in pixels. It has a title and a
description for screen readers, and follows the light or dark color scheme on its own background, so
that it is legible on any page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape  # nosec B406  # writes XML, and parses none

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LINE = 17  # pixels between lines of text
STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #eef2ff; stroke: #4f5bd5 }
  .room { fill: none; stroke: #6e7781; stroke-dasharray: 5 4 }
  .yours { fill: #dcf5e3; stroke: #1a7f37 }
  .lost { fill: #ffe9e6; stroke: #c0362c }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .head { fill: #57606a }
  text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .bold { font-weight: 600 }
  .small { font-size: 12px }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14171c; stroke: #3d444d }
    .box { fill: #232a4d; stroke: #8f9bff }
    .room { stroke: #9198a1 }
    .yours { fill: #12351f; stroke: #4ac26b }
    .lost { fill: #4a1d1a; stroke: #ff8178 }
    .arrow { stroke: #b1bac4 }
    .head { fill: #b1bac4 }
    text { fill: #e6edf3 }
  }
"""


class Drawing:
    """An SVG of `width` by `height` pixels; shapes are added from back to front."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self._size = (width, height)
        self._about = (title, description)
        self._parts = [f'<rect class="ground" {at(0.5, 0.5, width - 1, height - 1)} rx="8"/>']

    def box(self, x: int, y: int, width: int, height: int, text: str, kind: str = "box") -> None:
        """Add a box with centered text; the first of several lines is bold."""
        self._parts.append(f'<rect class="{kind}" {at(x, y, width, height)} rx="6"/>')
        lines = text.split("\n")
        first = y + height / 2 - (len(lines) - 1) * LINE / 2 + 4.5
        for number, line in enumerate(lines):
            weight = "bold" if number == 0 else "small"
            self._write(x + width / 2, first + number * LINE, line, weight, "middle")

    def room(self, x: int, y: int, width: int, height: int, text: str) -> None:
        """Add a dashed frame around other shapes, with its name at the upper left."""
        self._parts.append(f'<rect class="room" {at(x, y, width, height)} rx="8"/>')
        self.text(x + 10, y + 18, text, "bold")

    def text(self, x: int, y: int, text: str, weight: str = "small", anchor: str = "start") -> None:
        for number, line in enumerate(text.split("\n")):
            self._write(x, y + number * LINE, line, weight, anchor)

    def _write(self, x: float, y: float, text: str, weight: str, anchor: str) -> None:
        where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{weight}" {where}>{escape(text)}</text>')

    def arrow(
        self, *points: tuple[int, int], label: str = "", both: bool = False, broken: bool = False
    ) -> None:
        """Add a line with an arrowhead at its last point; the label is above the first segment."""
        heads = 'marker-end="url(#head)"' + (' marker-start="url(#head)"' if both else "")
        heads += ' stroke-dasharray="4 4"' if broken else ""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="arrow" points="{path}" {heads}/>')
        if label:
            (x, y), (to_x, to_y) = points[:2]
            self.text((x + to_x) // 2, (y + to_y) // 2 - 7, label, anchor="middle")

    def svg(self) -> str:
        width, height = self._size
        title, description = self._about
        return "\n".join(
            [
                '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
                f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
                f'<title id="title">{escape(title)}</title>',
                f'<desc id="desc">{escape(description)}</desc>',
                f"<style>{STYLE}</style>",
                '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto-start-reverse">'
                '<path class="head" d="M0 0L8 4L0 8z"/></marker>',
                *self._parts,
                "</svg>\n",
            ]
        )


def at(x: float, y: float, width: float, height: float) -> str:
    """Return the attributes of a rectangle."""
    return f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'


# ------------------------------------------------------------------ the pictures


def layers() -> Drawing:
    """Draw the layers, and which of them may import which."""
    drawing = Drawing(
        760,
        532,
        "Layers",
        "Five rows. At the bottom the contract: types, environment, errors, rewards' values. Above "
        "it values and rules: protocol, tools, rewards, tasks. Above them execution and the "
        "contract of providers. Above these client, server and providers. At the top what is "
        "optional: pool, gateway, rollouts, evals, agents, capture, validation, integrations, "
        "wrappers, images, hub, web, testing and the command line. Arrows point down only.",
    )
    rows = [
        (
            "outer: optional, loaded when used",
            [
                "cli",
                "web",
                "validation",
                "evals",
                "rollouts",
                "agents",
                "capture",
                "integrations",
                "wrappers",
                "pool",
                "gateway",
                "images",
                "hub",
                "testing",
            ],
        ),
        ("sockets, ASGI, processes", ["client", "server", "providers", "sandbox"]),
        ("sessions, and where their code runs", ["execution", "contract of providers"]),
        ("values and rules, without I/O", ["protocol", "tools", "rewards", "tasks"]),
        ("what authors and trainers see", ["types", "environment", "reward", "errors"]),
    ]
    top = 20
    for number, (what, names) in enumerate(rows):
        lines = 3 if len(names) > 6 else 1
        height = 40 + 36 * lines
        drawing.room(20, top, 720, height, what)
        across = len(names) // lines
        width = (700 - 8 * (across - 1)) // across
        for index, name in enumerate(names):
            line, column = divmod(index, across)
            y = top + 30 + 36 * line
            drawing.box(30 + column * (width + 8), y, width, 30, name)
        top += height + 14 - (6 if lines > 1 else 0)
        if number + 1 < len(rows):
            drawing.arrow((380, top - 15 + (6 if lines > 1 else 0)), (380, top - 1))
    return drawing


def step() -> Drawing:
    """Draw the path of a step from a trainer to the author's code."""
    drawing = Drawing(
        760,
        410,
        "The path of a step",
        "In the trainer's process step goes through EnvClient, the client's session and the codec "
        "into a frame. The frame goes over a socket to the server's pump, to Session.handle, "
        "into an executor and to the environment's step. The observation goes the same way back. "
        "HTTP, MCP, the web page and the in-process transport end in the same Session.handle.",
    )
    drawing.room(20, 20, 270, 300, "the trainer's process")
    drawing.box(40, 50, 230, 44, "client.step(action)\nyour code", "yours")
    drawing.box(40, 120, 230, 44, "EnvClient\nmodels to fields, and back")
    drawing.box(40, 190, 230, 44, "client session\nids, deadlines, resume")
    drawing.box(40, 260, 230, 44, "protocol, transport\nfields to bytes, and back")
    drawing.room(400, 20, 340, 300, "the server's process")
    drawing.box(420, 260, 150, 44, "WebSocket pump\nbytes to a command")
    drawing.box(590, 260, 130, 44, "HTTP, MCP, page\nlikewise")
    drawing.box(420, 190, 300, 44, "Session.handle\norder, checks, deadline, recording")
    drawing.box(420, 120, 300, 44, "executor\nthe loop, a thread, or a worker process")
    drawing.box(420, 50, 300, 44, "environment.step(action)\nthe author's code", "yours")
    drawing.box(40, 346, 230, 44, "in one process\nmemory transport, no socket")
    for y in (94, 164, 234):
        drawing.arrow((155, y), (155, y + 26), both=True)
    drawing.arrow((270, 282), (420, 282), label="one frame", both=True)
    drawing.text(345, 304, "one frame back", anchor="middle")
    for y in (120, 190):
        drawing.arrow((570, y), (570, y - 26), both=True)
    drawing.arrow((495, 260), (495, 234), both=True)
    drawing.arrow((655, 260), (655, 234), both=True)
    drawing.arrow((270, 368), (580, 368), (580, 234), both=True)
    return drawing


def sessions() -> Drawing:
    """Draw the way from a connection to an executor."""
    drawing = Drawing(
        760,
        400,
        "Sessions and executors",
        "Connections on the left: a WebSocket that carries three sessions, one that carries one, "
        "an episode over HTTP and an agent over MCP. They lead to sessions, which the manager has "
        "slots and a queue for. Each session has one environment, which runs in an executor: the "
        "event loop, a thread of its own, a shared thread or a worker process.",
    )
    connections = [
        ("WebSocket, version 1\nmany sessions", 50),
        ("WebSocket, version 0\none session", 130),
        ("HTTP\ncookie or header", 210),
        ("MCP\nan agent's key or session_id", 290),
    ]
    drawing.room(20, 16, 210, 364, "connections")
    for text, y in connections:
        drawing.box(35, y, 180, 50, text)
    drawing.room(270, 16, 190, 364, "SessionManager")
    slots = [46, 88, 130, 172, 214]
    for number, y in enumerate(slots, start=1):
        drawing.box(285, y, 160, 34, f"session {number}")
    drawing.box(285, 270, 160, 44, "queue\nin turn, by connection")
    drawing.text(285, 340, "a slot for each session;\nkept while a socket is away")
    drawing.room(500, 16, 240, 364, "executors: where code runs")
    executors = [
        ("event loop\nasync methods, NEVER_BLOCKS", 46),
        ("a thread of its own\nthe default", 124),
        ("shared threads\nany thread; quick instances", 202),
        ("worker processes\nopenenv serve --workers N", 280),
    ]
    for text, y in executors:
        drawing.box(515, y, 210, 54, text, "yours")
    for y in slots[:3]:
        drawing.arrow((215, 75), (285, y + 17))
    drawing.arrow((215, 155), (285, 189))
    drawing.arrow((215, 235), (285, 231))
    drawing.arrow((215, 315), (285, 239))
    drawing.arrow((365, 270), (365, 249), broken=True)
    for y, to in zip(slots, (73, 73, 151, 229, 307), strict=True):
        drawing.arrow((445, y + 17), (515, to))
    return drawing


def resume() -> Drawing:
    """Draw the messages after a socket breaks."""
    drawing = Drawing(
        760,
        440,
        "A connection breaks, and the step runs once",
        "The server greets the client with a hello that holds a resume token. The client sends "
        "step 7. The socket breaks while the environment runs the step. The client opens a second "
        "socket and sends resume with the token and how many frames it has. The server answers "
        "resumed, and sends the observation of step 7, which was run once.",
    )
    drawing.box(40, 20, 150, 34, "client")
    drawing.box(400, 20, 150, 34, "server")
    drawing.box(590, 20, 130, 34, "environment", "yours")
    for x in (115, 475, 655):
        drawing.arrow((x, 54), (x, 424), broken=True)
    drawing.arrow((475, 90), (115, 90), label="hello: connection, resume_token, grace_s")
    drawing.arrow((115, 130), (475, 130), label="step 7")
    drawing.arrow((475, 150), (655, 150), label="step, once")
    drawing.box(225, 165, 140, 40, "the socket breaks", "lost")
    drawing.arrow((655, 220), (475, 220), label="observation")
    drawing.text(486, 246, "kept: nobody has\nacknowledged it")
    drawing.arrow((115, 270), (475, 270), label="a second socket")
    drawing.arrow((475, 300), (115, 300), label="hello: the same server")
    drawing.arrow((115, 335), (475, 335), label="resume: connection, token, received")
    drawing.arrow((475, 370), (115, 370), label="resumed: received")
    drawing.arrow((475, 405), (115, 405), label="observation 7, again")
    return drawing


def shapes() -> Drawing:
    """Draw the places where clients and servers may run."""
    drawing = Drawing(
        760,
        470,
        "Six shapes of one program",
        "In one process, client and environment without a socket. One server for many clients. One "
        "server with worker processes. A provider that starts a server in a container for the "
        "trainer. A pool that leases sessions of many servers. A gateway as one address in front "
        "of many servers. The trainer's code is the same in all of them.",
    )
    panels = [
        "in one process",
        "one server",
        "a server with workers",
        "a provider",
        "a pool",
        "a gateway",
    ]
    for number, name in enumerate(panels):
        row, column = divmod(number, 3)
        drawing.room(16 + 246 * column, 16 + 226 * row, 236, 212, name)
    drawing.box(32, 60, 204, 40, "Env.local(Environment)", "yours")
    drawing.box(32, 140, 204, 40, "the environment", "yours")
    drawing.arrow((134, 100), (134, 140), both=True)
    drawing.text(32, 206, "tests, Gymnasium, small runs")

    for x in (278, 352, 426):
        drawing.box(x, 60, 60, 34, "client")
        drawing.arrow((x + 30, 94), (x // 2 + 205, 140))
    drawing.box(278, 140, 208, 40, "openenv serve")
    drawing.text(278, 206, "up to 64 sessions by default")

    drawing.box(524, 50, 208, 34, "client")
    drawing.box(524, 104, 208, 34, "openenv serve --workers 3")
    drawing.arrow((628, 84), (628, 104))
    for x in (524, 598, 672):
        drawing.box(x, 158, 60, 34, "worker", "yours")
        drawing.arrow((628, 138), (x + 30, 158))
    drawing.text(524, 212, "N cores, crashes kept apart")

    drawing.box(32, 280, 204, 34, "Env.with_provider(...)")
    drawing.box(32, 346, 204, 54, "a server\nprocess, container, pod, hosted", "yours")
    drawing.arrow((134, 314), (134, 346))
    drawing.text(32, 420, "starts it, gives it a key, ends it")

    drawing.box(278, 280, 208, 34, "EnvPool")
    for x in (278, 352, 426):
        drawing.box(x, 356, 60, 34, "server")
        drawing.arrow((382, 314), (x + 30, 356))
    drawing.text(278, 420, "leases, watches, replaces")

    drawing.box(524, 270, 208, 30, "clients anywhere")
    drawing.box(524, 318, 208, 34, "openenv gateway")
    drawing.arrow((628, 300), (628, 318))
    for x in (524, 598, 672):
        drawing.box(x, 374, 60, 34, "server")
        drawing.arrow((628, 352), (x + 30, 374))
    drawing.text(524, 430, "one address for all of them")
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "layers": layers,
    "step": step,
    "sessions": sessions,
    "resume": resume,
    "shapes": shapes,
}


def main() -> int:
    """Write the drawings, or check them with ``--check``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for name, draw in DRAWINGS.items():
        path, svg = PICTURES / f"architecture-{name}.svg", draw().svg()
        if check and (not path.exists() or path.read_text("utf-8") != svg):
            print(f"{path.name} is not what scripts/drawings.py draws", file=sys.stderr)
            stale = 1
        elif not check:
            path.write_text(svg, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
