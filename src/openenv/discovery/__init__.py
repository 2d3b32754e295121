"""Catalogues of environments: what a repository has, by its manifests, and finding what fits.

Nothing of an environment is imported or run; `openenv.auto` is what uses one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._lazy import lazy

if TYPE_CHECKING:
    from openenv.discovery.building import build_catalog as build_catalog
    from openenv.discovery.cards import PROFILE_VERSION as PROFILE_VERSION
    from openenv.discovery.cards import CatalogChanges as CatalogChanges
    from openenv.discovery.cards import CatalogError as CatalogError
    from openenv.discovery.cards import CatalogSnapshot as CatalogSnapshot
    from openenv.discovery.cards import EnvironmentCard as EnvironmentCard
    from openenv.discovery.cards import SearchMatch as SearchMatch
    from openenv.discovery.searching import resolve_entry as resolve_entry
    from openenv.discovery.searching import search_catalog as search_catalog
    from openenv.discovery.site import write_site as write_site
    from openenv.discovery.snapshots import compare_catalogs as compare_catalogs
    from openenv.discovery.snapshots import load_catalog as load_catalog
    from openenv.discovery.snapshots import write_catalog as write_catalog
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.discovery.building": ["build_catalog"],
            "openenv.discovery.cards": [
                "PROFILE_VERSION",
                "CatalogChanges",
                "CatalogError",
                "CatalogSnapshot",
                "EnvironmentCard",
                "SearchMatch",
            ],
            "openenv.discovery.searching": ["resolve_entry", "search_catalog"],
            "openenv.discovery.site": ["write_site"],
            "openenv.discovery.snapshots": ["compare_catalogs", "load_catalog", "write_catalog"],
        },
    )

__all__ = [
    "PROFILE_VERSION",
    "CatalogChanges",
    "CatalogError",
    "CatalogSnapshot",
    "EnvironmentCard",
    "SearchMatch",
    "build_catalog",
    "compare_catalogs",
    "load_catalog",
    "resolve_entry",
    "search_catalog",
    "write_catalog",
    "write_site",
]
