"""Pages that are answered by this process: no server, no port, no network.

A site answers requests for one host, whatever their scheme. What a browser asks it reaches
`Site.answer` as a value, and its answer goes back by interception of the request.
"""

from __future__ import annotations

import mimetypes
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from openenv.errors import Refused

__all__ = ["Folder", "Reply", "Site", "SiteRequest"]

MAX_FORM = 1_000_000
MAX_FILE = 50_000_000
INDEX = "index.html"


@dataclass(frozen=True)
class SiteRequest:
    """What a page asked of a site.

    Attributes:
        method: In capitals, such as ``GET``.
        path: Decoded, beginning with a slash.
        query: What follows the question mark: the last value of each name.
        form: The fields of a form that was posted, with all their values.
        referrer: The page that it was asked from; empty for an address that was typed.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, list[str]] = field(default_factory=dict)
    referrer: str = ""

    @classmethod
    def of(cls, method: str, url: str, referrer: str, body: bytes) -> SiteRequest:
        """Read a request off its parts; a body of more than 1 MB is taken for none."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in _fields(parts.query).items()}
        text = body.decode("utf-8", "replace") if len(body) <= MAX_FORM else ""
        return cls(method, unquote(parts.path) or "/", query, _fields(text), referrer)

    def posted(self, name: str) -> str:
        """The last value of a field that was posted; empty if there is none."""
        return (self.form.get(name) or [""])[-1]


def _fields(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    except ValueError:  # too many of them
        return {}


@dataclass(frozen=True)
class Reply:
    """What a site answers."""

    body: str | bytes
    status: int = 200
    content_type: str = "text/html; charset=utf-8"


NOT_FOUND = Reply("<!doctype html><title>Not found</title><h1>There is no such page</h1>", 404)


class Site(ABC):
    """Answers the requests for one host."""

    @abstractmethod
    def answer(self, request: SiteRequest) -> Reply:
        """Answer a request, at once."""


class Folder(Site):
    """The files of a directory, as a web server shows them.

    Args:
        directory: The directory; ``index.html`` stands for a directory in it.

    Raises:
        Refused: There is no such directory.
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory.resolve()
        if not self._root.is_dir():
            raise Refused(f"a site needs a directory, and {directory} is none")

    def answer(self, request: SiteRequest) -> Reply:
        """Send a file; 404 where there is none, or where the path leads out of the directory."""
        if "\0" in request.path or request.method not in ("GET", "HEAD"):
            return NOT_FOUND
        path = (self._root / request.path.lstrip("/")).resolve()
        if path.is_dir():
            path /= INDEX
        if not path.is_relative_to(self._root) or not path.is_file():
            return NOT_FOUND
        if path.stat().st_size > MAX_FILE:
            return Reply(f"more than {MAX_FILE} bytes", 413, "text/plain")
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return Reply(path.read_bytes(), content_type=kind)
