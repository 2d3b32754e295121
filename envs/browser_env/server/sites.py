"""Web sites that this process answers, without a server, a port or a network.

A site answers the requests for one host, with any scheme. The browser's request is intercepted,
passed to `Site.answer` as a value, and fulfilled with the reply.
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
    """A request of a page to a site.

    Attributes:
        method: The method in capitals, such as ``GET``.
        path: The decoded path, which starts with a slash.
        query: The last value of each name in the query.
        form: The fields of a posted form, with all their values.
        referrer: The page that made the request; empty for a typed address.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, list[str]] = field(default_factory=dict)
    referrer: str = ""

    @classmethod
    def of(cls, method: str, url: str, referrer: str, body: bytes) -> SiteRequest:
        """Make a request from its parts; a body of more than 1 MB counts as empty."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in _fields(parts.query).items()}
        text = body.decode("utf-8", "replace") if len(body) <= MAX_FORM else ""
        return cls(method, unquote(parts.path) or "/", query, _fields(text), referrer)

    def posted(self, name: str) -> str:
        """Return the last value of a posted field, or an empty text."""
        return (self.form.get(name) or [""])[-1]


def _fields(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    except ValueError:  # more than 1000 fields
        return {}


@dataclass(frozen=True)
class Reply:
    """The reply of a site."""

    body: str | bytes
    status: int = 200
    content_type: str = "text/html; charset=utf-8"


NOT_FOUND = Reply("<!doctype html><title>Not found</title><h1>There is no such page</h1>", 404)


class Site(ABC):
    """A web site that answers the requests for one host."""

    @abstractmethod
    def answer(self, request: SiteRequest) -> Reply:
        """Answer a request without waiting."""


class Folder(Site):
    """The files of a directory, as a web server would serve them.

    Args:
        directory: The directory; ``index.html`` stands for a directory in it.

    Raises:
        Refused: The directory does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory.resolve()
        if not self._root.is_dir():
            raise Refused(f"a site needs a directory, and {directory} is none")

    def answer(self, request: SiteRequest) -> Reply:
        """Send a file, or 404 if the file is missing or outside the directory."""
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
