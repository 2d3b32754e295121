"""A file server for viewing a catalog's site."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from openenv.auto.catalog.cards import CatalogError

__all__ = ["create_site_server"]


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
