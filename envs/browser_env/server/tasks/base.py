"""What a task of the bundled set is: a web site, a goal, and a judge that lives on the server.

A task's pages are answered by Python, and what is judged is what they were asked: forms that were
posted, links that were followed, an answer in words. Whatever a page's scripts do, and whatever an
address that is typed says, they cannot set a score.
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
    """Write a text such that HTML means it literally."""
    return escape(str(text))


def document(title: str, body: str, *, script: str = "", style: str = "") -> str:
    """Write a page."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{h(title)}</title>'
        f"<style>{STYLE}{style}</style></head><body><h1>{h(title)}</h1>{body}"
        f"{f'<script>{script}</script>' if script else ''}</body></html>"
    )


class Task(Site):
    """One instance of a task.

    Args:
        rng: Decides all that differs between instances.

    Attributes:
        kind: The name of the task, the same for all instances; with ``.test``, its host.
        max_steps: Steps after which an episode is cut off.
        goal: What to do, in words; set by the constructor.
        score: What was reached, from 0 to 1, once the task is over; None until then.
    """

    kind: ClassVar[str]
    max_steps: ClassVar[int] = 10

    goal: str
    score: float | None = None

    def __init__(self, rng: Random) -> None:
        self.build(rng)

    @abstractmethod
    def build(self, rng: Random) -> None:
        """Make up an instance, its `goal` among."""

    @abstractmethod
    def page(self, request: SiteRequest) -> str | None:
        """The page that answers a request, as HTML; None where there is none."""

    def judge(self, answer: str) -> float:
        """Score an answer in words, which ends the task; 0 where none was asked for."""
        return 0.0

    @classmethod
    def host(cls) -> str:
        """The host that the task's pages are at."""
        return f"{cls.kind}.test"

    @property
    def start_url(self) -> str:
        """Where an episode begins."""
        return f"https://{self.host()}/"

    def answer(self, request: SiteRequest) -> Reply:
        """Answer with the task's page; 404 where there is none."""
        page = self.page(request)
        return NOT_FOUND if page is None else Reply(page)

    def finish(self, *, score: float) -> str:
        """End the task with a score, unless it is over; gives the page that says so."""
        if self.score is None:
            self.score = float(score)
        return document("Done", "<p>Thank you.</p>")

    def came_from(self, request: SiteRequest, path: str) -> bool:
        """Whether a link on one of the task's own pages was followed, not an address typed."""
        parts = urlsplit(request.referrer)
        return parts.hostname == self.host() and parts.path.startswith(path)
