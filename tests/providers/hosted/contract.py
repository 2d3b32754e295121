"""What all providers promise, asked of those of hosted services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openenv.providers.servers import Server, ServerProvider
from openenv.testing import check_provider
from openenv.testing import provider as promises

# A service has ports of its own, and its stand-in every image.
SAYS_NOTHING = {promises.A_PORT_IS_TAKEN, promises.WHAT_IS_NOT_THERE_IS_NAMED}


def check(provider: ServerProvider, boxes: Mapping[str, Any]) -> None:
    """Check that a provider keeps all of them.

    Args:
        provider: The provider.
        boxes: The sandboxes of the service, by their ids.
    """

    def kill(server: Server) -> None:
        (box,) = [box for id, box in boxes.items() if id in server.name]
        box.machine.kill()

    report = check_provider(
        provider,
        kill=kill,
        dies={"cmd": "echo no weights; exit 3"},
        hangs={"cmd": "sleep 1000"},
    )
    assert {one.promise for one in report.findings if one.kept is not True} == SAYS_NOTHING
