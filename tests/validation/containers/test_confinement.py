"""What a probe sees from inside a real container, and that one thing less is caught."""

from __future__ import annotations

from typing import Any

import pytest
from validation.containers.parts import spec_of
from validation.subjects.threads import GOOD

from openenv.validation.manifest import AnyManifest
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.providers import docker
from openenv.validation.report import Judgment
from openenv.validation.runtime.confinement import probe_confinement
from openenv.validation.runtime.limits import (
    judge_host_containment,
    judge_network_policy,
    judge_resource_bounds,
)
from openenv.validation.types import CheckStatus

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

JUDGES = {
    "runtime.network_policy": judge_network_policy,
    "runtime.host_containment": judge_host_containment,
    "runtime.resource_bounds": judge_resource_bounds,
}


def judged(engine: Any) -> dict[str, Judgment]:
    """What the checks say of a container of the image for tests, as it is started now."""
    spec = spec_of(engine)
    declared = OpenEnvYamlParser().parse(GOOD)
    manifest: AnyManifest = declared.model_copy(
        update={"network": spec.network, "resources": spec.resources}
    )
    subject = docker.DockerValidationProvider().start(spec)
    try:
        confinement = probe_confinement(subject, subject.inspect(), spec.network)
    finally:
        subject.stop()
    return {name: judge(manifest, confinement) for name, judge in JUDGES.items()}


def test_a_container_of_ours_is_confined(engine: Any) -> None:
    found = judged(engine)
    assert {name: (result.status, list(result.evidence[:1])) for name, result in found.items()} == {
        "runtime.network_policy": (CheckStatus.PASS, ["its network is no-network"]),
        "runtime.host_containment": (
            CheckStatus.PASS,
            ["no rights, no mounts, a read-only root"],
        ),
        "runtime.resource_bounds": (CheckStatus.PASS, []),
    }


@pytest.mark.parametrize(
    ("check_id", "changes"),
    [
        ("runtime.network_policy", {"network": "bridge"}),
        ("runtime.host_containment", {"read_only": False, "user": "0"}),
        ("runtime.host_containment", {"new_privileges": True}),
        ("runtime.host_containment", {"user": "0", "capabilities": ["SYS_ADMIN"]}),
        ("runtime.resource_bounds", {"memory_bytes": 2**30}),
        ("runtime.resource_bounds", {"cpus": 2.0}),
    ],
    ids=["network", "root", "privileges", "capabilities", "memory", "cpus"],
)
def test_what_is_not_confined_is_caught_by_its_check_alone(
    engine: Any, monkeypatch: pytest.MonkeyPatch, check_id: str, changes: dict[str, Any]
) -> None:
    right = docker._options
    monkeypatch.setattr(docker, "_options", lambda spec: {**right(spec), **changes})
    found = judged(engine)
    assert found.pop(check_id).status is CheckStatus.FAIL
    assert {result.status for result in found.values()} == {CheckStatus.PASS}
