"""What these tests share beside fixtures."""

from __future__ import annotations

from typing import Any

from support.waiting import wait_until

from openenv.validation.manifest import NetworkPolicy, ResourceDeclaration
from openenv.validation.providers import LaunchSpec

__all__ = ["BASE", "IMAGE", "RESOURCES", "held", "names", "spec_of"]

BASE = "localhost/openenv-test-base:latest"
IMAGE = "localhost/openenv-test:latest"
RESOURCES = ResourceDeclaration(cpu=1, memory_mb=512, disk_mb=64, episode_timeout_s=60)


def spec_of(engine: Any, **changes: Any) -> LaunchSpec:
    """What a container of the image for tests is given."""
    values = {
        "image_ref": f"sha256:{str(engine.inspect_image(IMAGE)['Id']).removeprefix('sha256:')}",
        "resources": RESOURCES,
        "network": NetworkPolicy(mode="no-network"),
        "run_id": "validate-test",
        "startup_timeout_s": 60.0,
    }
    return LaunchSpec(**{**values, **changes})


def names(engine: Any) -> set[str]:
    """The names that validations have given to images of the package of these tests."""
    found = [name for image in _images(engine) for name in image.get("RepoTags") or ()]
    return {name for name in found if "openenv-validate-lamp-env" in name}


def _images(engine: Any) -> list[dict[str, Any]]:
    """What the engine lists: Podman cannot while it stores or removes an image (status 500)."""
    from docker.errors import APIError

    listed: list[dict[str, Any]] = []

    def can_list() -> bool:
        try:
            listed[:] = engine.images()
        except APIError as error:
            if not error.is_server_error():
                raise
            return False
        return True

    wait_until(can_list)
    return listed


def held(engine: Any) -> set[str]:
    """What validations hold: names of images of the package of these tests, and containers."""
    containers = engine.containers(all=True, filters={"label": "dev.openenv.validation"})
    return names(engine) | {container["Id"] for container in containers}
