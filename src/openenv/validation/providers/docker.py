"""A provider that runs a package's image in a container with Docker or Podman."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError
from openenv.images import BuildError, build, find_builder
from openenv.providers.docker import INSIDE, LocalDockerProvider
from openenv.providers.engines import engine_info, find_engine
from openenv.validation.manifest import ExecutionDeclaration
from openenv.validation.providers import LaunchSpec, SubjectError, UnmetRequirement
from openenv.validation.providers.served import ServedSubject
from openenv.validation.static.builds import BuildSettings, is_machine_fault
from openenv.validation.static.package import read_package
from openenv.validation.types import ProviderCapability

MIB = 2**20
# The part of a package's disk limit that is reserved for Python's shared memory.
SHARED_MB = 16
PORTS = (443, 80)
# Read-only mounts made by the provider (the server's key) and by Podman (its init).
OWN_MOUNTS = [INSIDE, "/run/podman-init"]
TAG = "localhost/openenv-validate-{package}:subject"
CAPABILITIES = (
    ProviderCapability.NETWORK_POLICY,
    ProviderCapability.EXEC,
    ProviderCapability.IMAGE_BUILD,
    ProviderCapability.CONTAINMENT,
)


def find_engine_fault() -> str | None:
    """Return why no container can be built and run here, or None."""
    try:
        find_engine()
        find_builder()
    except (MissingPackage, ProviderError, BuildError) as error:
        return str(error)
    return None


class DockerValidationProvider:
    """A provider that runs packages in confined containers with `openenv.providers.docker`.

    A subject has no Linux capabilities, no new privileges, a read-only root filesystem, and the
    memory, processors and scratch space that its package declares. The subject inherits no
    variables of this process.
    """

    name = "docker"
    supported_network_modes = frozenset({"public", "no-network", "allowlist"})

    def __init__(
        self,
        settings: BuildSettings | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._settings = settings or BuildSettings()
        self._tell = tell
        found: set[ProviderCapability] = set(CAPABILITIES)
        with suppress(MissingPackage, ProviderError):
            if not engine_info(find_engine()).not_held:  # some engines enforce no limits
                found.add(ProviderCapability.RESOURCE_LIMITS)
        self.capabilities: frozenset[ProviderCapability] = frozenset(found)

    def build(self, root: Path, execution: ExecutionDeclaration) -> str:
        """Build a package's image like `openenv build`.

        Raises:
            SubjectError: The package cannot be built.
            UnmetRequirement: There is no engine, the base image is not available, or `openenv
                build` cannot build the package.
        """
        how = self._settings
        package = read_package(root, None, base=how.base)
        if package.plan is None:
            raise UnmetRequirement("image_build", package.why_no_plan)
        tag = TAG.format(package=package.plan.package.replace("_", "-").lower())
        try:
            built = build(
                package.plan,
                find_builder(),
                [tag],
                options=how.options,
                locking=how.locking,
                say=self._tell,
            )
        except BuildError as error:
            if is_machine_fault(error):
                raise UnmetRequirement("image_build", str(error)) from error
            raise SubjectError("build", str(error), logs=error.log) from error
        return f"sha256:{built.id}"

    def start(self, spec: LaunchSpec) -> DockerSubject:
        """Run an image and wait until the server is ready.

        Raises:
            SubjectError: The container ended, or did not answer in time.
            UnmetRequirement: The package needs GPUs, or there is no engine.
        """
        if spec.resources.gpus:
            raise UnmetRequirement("gpu", f"it declares {spec.resources.gpus} GPUs")
        try:
            provider = LocalDockerProvider(progress=False)
        except (MissingPackage, ProviderError) as error:
            raise UnmetRequirement("engine", str(error)) from error
        options = {"env_vars": spec.env_vars, **_options(spec)}
        return DockerSubject.begin(lambda: provider.launch(spec.image_ref, **options), spec)


def _options(spec: LaunchSpec) -> dict[str, Any]:
    scratch_mb = max(spec.resources.disk_mb - SHARED_MB, 1)
    hosts = [f"{host}:{port}" for host in spec.network.allowed_hosts for port in PORTS]
    networks: dict[str, str | list[str]] = {"public": "bridge", "no-network": "none"}
    return {
        "network": networks.get(spec.network.mode, hosts),
        "memory_bytes": spec.resources.memory_mb * MIB,
        "cpus": spec.resources.cpu,
        "scratch": {"/tmp": scratch_mb * MIB, "/run": SHARED_MB * MIB},  # nosec B108  # its own
        "labels": {"dev.openenv.validation": spec.run_id},
        "pull": "never",
    }


class DockerSubject(ServedSubject):
    """A package served from a container."""

    def inspect(self) -> dict[str, Any]:
        """Return the identity, limits and network in force."""
        options = _options(self._spec)
        state = find_engine().inspect_container(self._server.name)
        pid = (state.get("State") or {}).get("Pid")
        return {
            "provider": DockerValidationProvider.name,
            "isolation": "container",
            "container": self._server.name,
            "image": self._spec.image_ref,
            "network_mode": options["network"],
            **{name: options[name] for name in ("memory_bytes", "cpus", "scratch")},
            "own_mounts": OWN_MOUNTS,
            "read_only": bool((state.get("HostConfig") or {}).get("ReadonlyRootfs")),
            **({"pid": pid} if pid else {}),
        }
