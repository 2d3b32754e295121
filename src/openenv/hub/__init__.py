"""Environments on the Hugging Face Hub: `openenv push`, for programs.

hub = Hub()
with staged(Path("my_env")) as copy:
    check_secrets(copy, {})
    publish(hub, copy, "me/my_env", Settings(private=True), message="The first")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

__all__ = [
    "AccessError",
    "Commit",
    "Finding",
    "Hub",
    "HubError",
    "NotThereError",
    "QuotaError",
    "Revision",
    "SecretsFoundError",
    "Settings",
    "Stage",
    "Staged",
    "StructureError",
    "TakenError",
    "UnreachableError",
    "check_secrets",
    "check_structure",
    "publish",
    "scan",
    "space_name",
    "staged",
    "variables_of",
    "wait_until_it_runs",
]

if TYPE_CHECKING:
    from openenv.hub.client import Commit as Commit
    from openenv.hub.client import Hub as Hub
    from openenv.hub.client import Revision as Revision
    from openenv.hub.client import Stage as Stage
    from openenv.hub.errors import AccessError as AccessError
    from openenv.hub.errors import HubError as HubError
    from openenv.hub.errors import NotThereError as NotThereError
    from openenv.hub.errors import QuotaError as QuotaError
    from openenv.hub.errors import SecretsFoundError as SecretsFoundError
    from openenv.hub.errors import StructureError as StructureError
    from openenv.hub.errors import TakenError as TakenError
    from openenv.hub.errors import UnreachableError as UnreachableError
    from openenv.hub.names import space_name as space_name
    from openenv.hub.publishing import Settings as Settings
    from openenv.hub.publishing import check_secrets as check_secrets
    from openenv.hub.publishing import publish as publish
    from openenv.hub.publishing import wait_until_it_runs as wait_until_it_runs
    from openenv.hub.secrets import Finding as Finding
    from openenv.hub.secrets import scan as scan
    from openenv.hub.staging import Staged as Staged
    from openenv.hub.staging import check_structure as check_structure
    from openenv.hub.staging import staged as staged
    from openenv.hub.staging import variables_of as variables_of
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "openenv.hub.client": ["Commit", "Hub", "Revision", "Stage"],
            "openenv.hub.errors": [
                "AccessError",
                "HubError",
                "NotThereError",
                "QuotaError",
                "SecretsFoundError",
                "StructureError",
                "TakenError",
                "UnreachableError",
            ],
            "openenv.hub.names": ["space_name"],
            "openenv.hub.publishing": [
                "Settings",
                "check_secrets",
                "publish",
                "wait_until_it_runs",
            ],
            "openenv.hub.secrets": ["Finding", "scan"],
            "openenv.hub.staging": ["Staged", "check_structure", "staged", "variables_of"],
        },
        submodules=["client", "errors", "names", "publishing", "secrets", "staging"],
    )
