"""Keyword search in a catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from openenv._internal.quoting import closest
from openenv.hub.catalog.cards import (
    FILTERS,
    CatalogError,
    CatalogSnapshot,
    EnvironmentCard,
    SearchMatch,
)

__all__ = ["did_you_mean", "resolve_entry", "search_catalog"]

# Weight of a match by place; a match of a word's beginning counts half.
WEIGHTS = {"name": 4.0, "title": 4.0, "tags": 3.0, "description": 2.0, "rest": 1.0}


def search_catalog(
    entries: Iterable[EnvironmentCard],
    query: str,
    *,
    filters: Mapping[str, str] | None = None,
    limit: int = 20,
) -> list[SearchMatch]:
    """Search cards, best matches first; an empty query matches everything.

    Raises:
        CatalogError: A filter is unknown.
    """
    wanted = filters or {}
    for name in wanted:
        if name not in FILTERS:
            close = closest(name, FILTERS)
            hint = f"did you mean {close}?" if close else f"there are {', '.join(FILTERS)}"
            raise CatalogError(f"there is no filter {name!r}; {hint}")
    kept = [card for card in entries if all(_has(card, *one) for one in wanted.items())]
    words = _words(query)
    matches = [SearchMatch(entry=card, score=_score(card, words)) for card in kept]
    found = [match for match in matches if match.score > 0 or not words]
    return sorted(found, key=lambda match: (-match.score, match.entry.name))[:limit]


def did_you_mean(entries: Iterable[EnvironmentCard], query: str) -> str | None:
    """Return the catalog's closest word to a query without matches, or None."""
    known = {word for card in entries for text in _texts(card).values() for word in _words(text)}
    found = (closest(word, sorted(known)) for word in _words(query))
    return next(filter(None, found), None)


def resolve_entry(snapshot: CatalogSnapshot, identifier: str) -> EnvironmentCard:
    """Return the card with this identifier or unambiguous name.

    Raises:
        CatalogError: No card matches, or several do.
    """
    exact = [card for card in snapshot.entries if card.identifier == identifier]
    named = [card for card in snapshot.entries if card.name == identifier]
    found = exact or named
    if len(found) == 1:
        return found[0]
    close = closest(identifier, (card.identifier for card in snapshot.entries), cutoff=0.4)
    hint = f"; did you mean {close}?" if close else ""
    raise CatalogError(f"the catalog has no {identifier!r}{hint}")


def _has(card: EnvironmentCard, name: str, value: str) -> bool:
    own = getattr(card, name)
    values = own if isinstance(own, tuple) else (own,)
    return value.lower() in (str(one).lower() for one in values)


def _score(card: EnvironmentCard, words: list[str]) -> float:
    """Return a card's relevance; 0 if a word is missing."""
    texts = {place: _words(text) for place, text in _texts(card).items()}
    total = 0.0
    for word in words:
        best = max(WEIGHTS[place] * _fit(word, there) for place, there in texts.items())
        if not best:
            return 0.0
        total += best
    return total


def _fit(word: str, there: list[str]) -> float:
    if word in there:
        return 1.0
    return 0.5 if any(other.startswith(word) for other in there) else 0.0


def _texts(card: EnvironmentCard) -> dict[str, str]:
    models = [model.name for model in (card.action, card.observation) if model]
    return {
        "name": card.name,
        "title": card.title,
        "tags": " ".join(card.tags),
        "description": card.description,
        "rest": " ".join([*card.tools, *models, card.package or "", card.license, card.path]),
    }


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
