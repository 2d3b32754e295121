"""An authority of these tests' own, and certificates that it signs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme


@dataclass(frozen=True)
class Certificates:
    """Files (PEM): the authority's certificate, and a server's with its private key."""

    authority: str
    certificate: str
    private_key: str

    @property
    def of_server(self) -> dict[str, Any]:
        """The options by which a server is given them."""
        return {"ssl_certfile": self.certificate, "ssl_keyfile": self.private_key}


def certificates(directory: Path, *names: str) -> Certificates:
    """Make an authority, and a certificate for a server of these names."""
    authority = trustme.CA()
    made = authority.issue_cert(*names)
    paths = [directory / name for name in ("authority.pem", "server.pem", "server.key")]
    authority.cert_pem.write_to_path(paths[0])
    paths[1].write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(paths[2])
    return Certificates(*map(str, paths))


@pytest.fixture(scope="module")
def of_loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    """For a server on 127.0.0.1."""
    yield certificates(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "localhost")
