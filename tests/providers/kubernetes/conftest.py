"""A cluster for these tests: its control plane is real, and so are its containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.kubernetes.agent import MARK, Agent, podman
from providers.kubernetes.cluster import TRAINER, ControlPlane, control_plane, created

IMAGE = "localhost/openenv-test:latest"


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def agent(plane: ControlPlane) -> Iterator[Agent]:
    assert podman("image", "exists", IMAGE, check=False).returncode == 0, "run scripts/kubernetes"
    with contextlib.closing(Agent(plane)) as agent:
        yield agent
    own = f"label={MARK}={agent.mark}"
    assert podman("ps", "--all", "--quiet", "--filter", own).stdout == ""


@pytest.fixture(scope="session")
def trainer(plane: ControlPlane) -> Path:
    """A kubeconfig of who has the rights of deploy/kubernetes/rbac.yaml, and no others."""
    rules = Path(__file__).parents[3] / "deploy" / "kubernetes" / "rbac.yaml"
    done = plane.kubectl("apply", "--filename", str(rules))
    assert done.returncode == 0, done.stderr
    binding = {
        "metadata": {"name": "trainer", "namespace": "default"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": "openenv-provider",
        },
        "subjects": [{"kind": "User", "name": "trainer"}],
    }
    with plane.client() as client:
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        created(client, path, binding)
    return plane.kubeconfig(TRAINER)
