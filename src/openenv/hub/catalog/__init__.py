"""Catalogs of environments, built from the manifests of a repository.

Environments are neither imported nor run; `openenv.hub.auto_env` makes clients. Read ``cards.py``
first, then ``building.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.hub.catalog.building import build_catalog as build_catalog
    from openenv.hub.catalog.cards import PROFILE_VERSION as PROFILE_VERSION
    from openenv.hub.catalog.cards import CatalogChanges as CatalogChanges
    from openenv.hub.catalog.cards import CatalogError as CatalogError
    from openenv.hub.catalog.cards import CatalogSnapshot as CatalogSnapshot
    from openenv.hub.catalog.cards import EnvironmentCard as EnvironmentCard
    from openenv.hub.catalog.cards import SearchMatch as SearchMatch
    from openenv.hub.catalog.cards import compare_catalogs as compare_catalogs
    from openenv.hub.catalog.cards import load_catalog as load_catalog
    from openenv.hub.catalog.cards import write_catalog as write_catalog
    from openenv.hub.catalog.searching import resolve_entry as resolve_entry
    from openenv.hub.catalog.searching import search_catalog as search_catalog
    from openenv.hub.catalog.site import write_site as write_site
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
