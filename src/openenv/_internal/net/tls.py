"""TLS contexts of clients."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from openenv.settings import ca_file as configured_ca_file

if TYPE_CHECKING:
    import ssl

CERTIFICATE_HINT = (
    "if the server's certificate is signed by an authority of your own, name that authority's "
    "certificate (PEM): ca_file=..., or OPENENV_CA_FILE"
)


def client_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return the TLS context for a client's connections, which verifies host names.

    Args:
        ca_file: File with the certificates of trusted authorities (PEM). Default: OPENENV_CA_FILE,
            or the system's certificates.

    Raises:
        ValueError: The file cannot be read, or holds no certificates.
    """
    import ssl

    chosen = ca_file or configured_ca_file()
    if chosen is None:
        return _context(None, ssl.get_default_verify_paths())
    try:
        return _context(chosen, os.stat(chosen).st_mtime_ns)
    except OSError as error:  # SSLError is a subclass
        raise ValueError(f"the certificates in {chosen} cannot be used: {error}") from error


@functools.lru_cache(maxsize=16)
def _context(ca_file: str | None, version: Any) -> ssl.SSLContext:
    """Make a context, which takes 10 ms, once for each `version` of a file."""
    import ssl

    return ssl.create_default_context(cafile=ca_file)
