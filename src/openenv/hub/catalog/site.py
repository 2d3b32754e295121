"""Static site of a catalog: pages that need neither a server nor a network.

All texts are untrusted and escaped; READMEs are Markdown without HTML, and only pictures of the
environment's own directory are copied.
"""

from __future__ import annotations

import posixpath
import shutil
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from openenv._internal.reports.pages import rendered
from openenv.hub.catalog.building import PICTURES, convert_pictures, read_catalog
from openenv.hub.catalog.cards import CatalogError, CatalogSnapshot, EnvironmentCard
from openenv.hub.catalog.repository import GitSnapshot

__all__ = ["MARKER", "create_site_server", "write_site"]

ASSETS = ("catalog.css", "catalog.js")
MARKER = "catalog.json"
LINKS = ("https://", "http://", "mailto:", "#")


def write_site(
    repository: Path | str,
    directory: Path | str,
    *,
    repository_uri: str = "",
    publisher: str = "",
    namespace: str = "openenv",
    revision: str = "HEAD",
    root: str = "envs",
) -> CatalogSnapshot:
    """Write a site about the environments committed in a repository.

    Args:
        repository: A checkout, or a bare repository.
        directory: Target directory, created if missing; an earlier site there is replaced.
        repository_uri: Public clone address; omitted from the pages by default.
        publisher: The party responsible for the catalog.
        namespace: Prefix of identifiers.
        revision: A commit, a branch or a tag.
        root: Directory whose subdirectories are the environments.

    Raises:
        CatalogError: The repository cannot be read, or the directory holds other files.
        MissingPackage: The extra ``eval`` is not installed.
    """
    source = GitSnapshot(Path(repository), revision, root)
    snapshot = read_catalog(source, repository_uri, publisher, namespace)
    target = Path(directory)
    _prepare(target)
    for card in snapshot.entries:
        _write_page(source, snapshot, card, target)
    (target / "index.html").write_text(_index(snapshot), encoding="utf-8")
    for name in ASSETS:
        text = (resources.files("openenv.hub.catalog") / "templates" / name).read_text("utf-8")
        (target / name).write_text(text, encoding="utf-8")
    (target / MARKER).write_text(snapshot.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return snapshot


def _prepare(target: Path) -> None:
    if target.exists() and any(target.iterdir()):
        if not (target / MARKER).is_file():
            raise CatalogError(f"{target} holds other files than a catalog's site")
        for entry in target.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    target.mkdir(parents=True, exist_ok=True)


def _index(snapshot: CatalogSnapshot) -> str:
    entries = sorted(snapshot.entries, key=lambda card: card.title.lower())
    values = {
        "snapshot": snapshot,
        "entries": entries,
        "tags": sorted(Counter(tag for card in entries for tag in card.tags).items()),
        "licenses": sorted({card.license for card in entries}),
        "picture": _picture_name,
        "slug": _slug,
        "up": "",
    }
    return rendered("openenv.hub.catalog", "index.html", values)


def _write_page(
    source: GitSnapshot, snapshot: CatalogSnapshot, card: EnvironmentCard, target: Path
) -> None:
    directory = target / _slug(card)
    directory.mkdir()
    readme = _ReadmeRenderer(source, card, directory)
    if card.picture is not None:
        readme.copy_picture(card.picture)
    values = {
        "snapshot": snapshot,
        "card": card,
        "readme": readme.html(),
        "picture": _picture_name,
        "up": "../",
    }
    page = rendered("openenv.hub.catalog", "environment.html", values)
    (directory / "index.html").write_text(page, encoding="utf-8")


def _slug(card: EnvironmentCard) -> str:
    return PurePosixPath(card.path).name


def _picture_name(card: EnvironmentCard) -> str | None:
    """Return the file name of a card's picture, next to the page."""
    return None if card.picture is None else _copy_name(card.picture, card.path)


def _copy_name(path: str, directory: str) -> str:
    return posixpath.relpath(path, directory).replace("/", "-")


class _ReadmeRenderer:
    """Renders a README to HTML, and copies the pictures."""

    def __init__(self, source: GitSnapshot, card: EnvironmentCard, target: Path) -> None:
        self._source = source
        self._card = card
        self._target = target

    def html(self) -> Any:
        from markdown_it import MarkdownIt
        from markupsafe import Markup

        text = self._source.text(self._card.readme) if self._card.readme else ""
        if text.startswith("---\n"):
            text = text.partition("\n---\n")[2]
        parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        tokens = parser.parse(convert_pictures(text))
        if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
            tokens = tokens[3:]  # the page has a title
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(6, max(2, int(token.tag[1:])))}"
            if token.children:
                token.children = [self._checked(child) for child in token.children]
        html = parser.renderer.render(tokens, parser.options, {})
        html = html.replace("<pre>", '<pre tabindex="0">')  # focusable, so that keys can scroll it
        return Markup(html)  # nosec B704  # escaped by the parser

    def _checked(self, token: Any) -> Any:
        if token.type == "image":
            copy = self.copy_picture(posixpath.normpath(f"{self._card.path}/{_plain(token)}"))
            if copy is None:
                token.type, token.tag = "text", ""
                token.children = None
            else:
                token.attrs["src"] = copy
                token.attrs["loading"] = "lazy"
        elif token.type == "link_open":
            href = str(token.attrs.get("href", ""))
            if href.startswith(LINKS):
                token.attrs["rel"] = "noopener noreferrer"
            else:  # a file of the repository, which the site lacks
                token.attrs.pop("href", None)
        return token

    def copy_picture(self, path: str) -> str | None:
        """Copy a picture of the environment's directory; return the file name, or None."""
        inside = path.startswith(f"{self._card.path}/")
        if not inside or not path.lower().endswith(PICTURES):
            return None
        data = self._source.read(path)
        if data is None:
            return None
        name = _copy_name(path, self._card.path)
        (self._target / name).write_bytes(data)
        return name


def _plain(token: Any) -> str:
    return unquote(str(token.attrs.get("src", "")))


# ------------------------------------------------------------------ serving

# An SVG picture may hold scripts, which run if the picture is opened as a page.
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class _SiteHandler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        if self.path.partition("?")[0].lower().endswith(".svg"):  # a picture, never a page
            self.send_header("Content-Security-Policy", PICTURE_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def list_directory(self, path: object) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def create_site_server(directory: Path, host: str, port: int) -> ThreadingHTTPServer:
    """Create a listening server; call `serve_forever` to answer requests.

    Raises:
        CatalogError: The address is not available.
    """
    try:
        return ThreadingHTTPServer((host, port), partial(_SiteHandler, directory=str(directory)))
    except (OSError, OverflowError) as error:
        raise CatalogError(
            f"cannot listen on {host}:{port}: {error}; choose another --port"
        ) from error
