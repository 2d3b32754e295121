"""Publishes environments as Hugging Face Spaces, and finds environments by name.

hub = Hub()
with stage_space(Path("my_env")) as copy:
    check_secrets(copy, {})
    publish(hub, copy, "me/my_env", SpaceSettings(private=True), message="The first")

`Hub` (``client.py``) sends requests, `stage_space` prepares an upload, `check_secrets` scans it,
and `publish` uploads it: read ``publishing.py`` first.

`AutoEnv` and `AutoAction` make clients and actions of an environment that is named: one that is
installed (``discovery.py``), a directory, a server, an image, or a Space (``installing.py``).
``catalog`` describes the environments of a repository without running them. Read ``auto_env.py``
first.

Above: the CLI, `openenv.rollouts` and `openenv.validation`. Below: `openenv.client`,
`openenv.providers`, `openenv.images` and `openenv.manifest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv._internal.lazy import lazy

if TYPE_CHECKING:
    from openenv.hub.client import Hub as Hub
    from openenv.hub.client import HubCommit as HubCommit
    from openenv.hub.client import SpaceRevision as SpaceRevision
    from openenv.hub.client import SpaceSettings as SpaceSettings
    from openenv.hub.client import SpaceStage as SpaceStage
    from openenv.hub.errors import AccessError as AccessError
    from openenv.hub.errors import HubError as HubError
    from openenv.hub.errors import HubUnreachableError as HubUnreachableError
    from openenv.hub.errors import QuotaError as QuotaError
    from openenv.hub.errors import RepositoryExistsError as RepositoryExistsError
    from openenv.hub.errors import RepositoryNotFoundError as RepositoryNotFoundError
    from openenv.hub.errors import SecretsFoundError as SecretsFoundError
    from openenv.hub.errors import StructureError as StructureError
    from openenv.hub.names import full_space_name as full_space_name
    from openenv.hub.publishing import check_secrets as check_secrets
    from openenv.hub.publishing import publish as publish
    from openenv.hub.publishing import wait_until_running as wait_until_running
    from openenv.hub.secrets import SecretFinding as SecretFinding
    from openenv.hub.secrets import find_secrets as find_secrets
    from openenv.hub.staging import StagedSpace as StagedSpace
    from openenv.hub.staging import check_structure as check_structure
    from openenv.hub.staging import merge_variables as merge_variables
    from openenv.hub.staging import stage_space as stage_space
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__, submodules=["client", "errors", "names", "publishing", "secrets", "staging"]
    )
