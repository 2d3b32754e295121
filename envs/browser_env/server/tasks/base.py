"""The base class of bundled tasks: a web site, a goal, and a grader on the server.

Python answers the requests for a task's pages, and the grader only reads these requests: posted
forms, followed links, and the answer in words. Neither a page's scripts nor a typed address can set
a score.
"""

from __future__ import annotations

from abc import abstractmethod
from html import escape
from random import Random
from typing import ClassVar
from urllib.parse import urlsplit

from ..sites import NOT_FOUND, Reply, Site, SiteRequest

__all__ = ["Task", "document", "h"]

STYLE = """
body { font: 16px/1.5 sans-serif; margin: 24px; max-width: 860px; color: #222; }
button, input, select { font: inherit; margin: 4px; padding: 4px 10px; }
table { border-collapse: collapse; } th, td { border: 1px solid #999; padding: 4px 12px; }
nav { margin: 12px 0; }
"""


def h(text: object) -> str:
    """Escape a text for HTML."""
    return escape(str(text))


def document(title: str, body: str, *, script: str = "", style: str = "") -> str:
    """Write an HTML page."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{h(title)}</title>'
        f"<style>{STYLE}{style}</style></head><body><h1>{h(title)}</h1>{body}"
        f"{f'<script>{script}</script>' if script else ''}</body></html>"
    )


class Task(Site):
    """An instance of a task.

    Args:
        rng: Determines all differences between instances.

    Attributes:
        kind: The name of the task, the same for all instances; with ``.test``, its host.
        max_steps: Steps after which an episode is truncated.
        goal: The goal in words; set by the constructor.
        score: The score from 0 to 1 once the task is over; None until then.
    """

    kind: ClassVar[str]
    max_steps: ClassVar[int] = 10

    goal: str
    score: float | None = None

    def __init__(self, rng: Random) -> None:
        self.build(rng)

    @abstractmethod
    def build(self, rng: Random) -> None:
        """Make the instance, including its `goal`."""

    @abstractmethod
    def page(self, request: SiteRequest) -> str | None:
        """Return the page that answers a request, as HTML, or None."""

    def judge(self, answer: str) -> float:
        """Score an answer in words, which ends the task; 0 if the task asks for none."""
        return 0.0

    @classmethod
    def host(cls) -> str:
        """Return the host of the task's pages."""
        return f"{cls.kind}.test"

    @property
    def start_url(self) -> str:
        """The address at which an episode starts."""
        return f"https://{self.host()}/"

    def answer(self, request: SiteRequest) -> Reply:
        """Answer with the task's page, or with 404."""
        page = self.page(request)
        return NOT_FOUND if page is None else Reply(page)

    def finish(self, *, score: float) -> str:
        """End the task with a score, unless it is over, and return the last page."""
        if self.score is None:
            self.score = float(score)
        return document("Done", "<p>Thank you.</p>")

    def came_from(self, request: SiteRequest, path: str) -> bool:
        """Return whether a request follows a link on the task's pages below `path`."""
        parts = urlsplit(request.referrer)
        return parts.hostname == self.host() and parts.path.startswith(path)
