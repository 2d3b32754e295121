"""Cards of the environments that are installed here."""

from __future__ import annotations

from openenv.auto._discovery import EnvironmentInfo, get_discovery
from openenv.auto.catalog.cards import EnvironmentCard
from openenv.manifest import MANIFEST, Manifest
from openenv.manifest.checking import check_manifest

__all__ = ["list_installed_cards"]


def list_installed_cards() -> list[EnvironmentCard]:
    """Describe each environment that `AutoEnv` finds, without imports."""
    return [_card(info) for info in get_discovery().discover().values()]


def _card(info: EnvironmentInfo) -> EnvironmentCard:
    manifest = _manifest(info)
    declared = manifest.validation if manifest else None
    tags = (*manifest.tags, *(declared.types.tags if declared else ())) if manifest else ()
    return EnvironmentCard(
        identifier=info.env_key,
        name=info.name,
        title=info.name,
        description=info.description,
        type=manifest.type if manifest else "space",
        version=info.version,
        license=(manifest.license if manifest else None) or "unknown",
        tags=tuple(dict.fromkeys(tags)),
        provider="installed",
        artifact_availability="resolvable",
        path=str(info.directory or ""),
        package=info.package_name,
        tools=tuple(declared.capabilities.declared_tools) if declared else (),
        tasks=dict(declared.capabilities.declared_task_count) if declared else {},
    )


def _manifest(info: EnvironmentInfo) -> Manifest | None:
    path = None if info.directory is None else info.directory / MANIFEST
    return check_manifest(path).manifest if path is not None and path.is_file() else None
