"""Files of catalogs; a file changed after writing is refused."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from openenv._internal.json import read_json
from openenv._internal.replacing import replace_text
from openenv.auto.catalog.cards import (
    PROFILE_VERSION,
    CatalogChanges,
    CatalogError,
    CatalogSnapshot,
)

__all__ = ["compare_catalogs", "load_catalog", "write_catalog"]

MOST_BYTES = 16 * 2**20


def load_catalog(path: Path | str) -> CatalogSnapshot:
    """Read a catalog and verify the digest.

    Raises:
        CatalogError: The file cannot be read, has another format, or was changed.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CatalogError(f"{path} is larger than {MOST_BYTES // 2**20} MiB")
        content = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CatalogError(f"{path} is not valid JSON: {error}") from error
    version = content.get("profile_version") if isinstance(content, dict) else None
    if version != PROFILE_VERSION:
        raise CatalogError(
            f"{path} has profile_version {version!r:.100}; expected {PROFILE_VERSION!r}"
        )
    try:
        snapshot = CatalogSnapshot.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CatalogError(f"{path} is not a catalog: {where}: {first['msg']}") from error
    if snapshot.digest != (digest := snapshot.compute_digest()):
        raise CatalogError(
            f"{path} was changed after it was made: its digest is {digest}, and it says "
            f"{snapshot.digest or 'none'}"
        )
    return snapshot


def write_catalog(snapshot: CatalogSnapshot, path: Path | str) -> None:
    """Write a catalog atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, snapshot.model_dump_json(indent=2) + "\n")


def compare_catalogs(previous: CatalogSnapshot, current: CatalogSnapshot) -> CatalogChanges:
    """Return the changes from an older catalog of the same repository.

    Raises:
        CatalogError: The repositories or the publishers differ.
    """
    whose = [(one.publisher, one.repository_uri, one.root) for one in (previous, current)]
    if whose[0] != whose[1]:
        raise CatalogError(f"catalogs of {whose[0]} and {whose[1]} cannot be compared")
    before = {card.identifier: card for card in previous.entries}
    now = {card.identifier: card for card in current.entries}
    return CatalogChanges(
        added=tuple(card for name, card in now.items() if name not in before),
        withdrawn=tuple(card for name, card in before.items() if name not in now),
        changed=tuple(card for name, card in now.items() if before.get(name, card) != card),
    )
