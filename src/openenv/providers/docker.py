"""Servers in containers of this machine, run by Docker or Podman.

By default a container has a read-only root filesystem, no capabilities, a user id that is unknown
to the machine, limits on memory, processors and processes, and an internal network. Options grant
more.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from openenv._internal.redaction import redact
from openenv.errors import ProviderError, ProviderExited
from openenv.providers import _inside
from openenv.providers._pulls import Progress, fetch
from openenv.providers._readiness import LOG_TAIL_LINES
from openenv.providers._relay import Reach, Relay, Tunnel, through, to_host
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.engines import (
    EngineInfo,
    engine_errors,
    engine_info,
    find_engine,
    inspect_image,
    podmans_runtime,
    sdk,
)
from openenv.providers.options import ServerOptions, key_file, name_for
from openenv.providers.owners import OWNER, is_orphan, own_name, pid_of
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    MANAGED,
    Executed,
    ImageProvider,
    LaunchRequest,
    Server,
    last_lines,
)
from openenv.sandbox.proxy import CONNECT_TIMEOUT_S, Proxy, variables
from openenv.sandbox.proxy import PORT as PROXY_PORT

__all__ = ["ContainerOptions", "ListedContainer", "LocalDockerProvider", "listed", "prune"]

logger = logging.getLogger(__name__)

MIB = 2**20
PORT = 8000
STOP_GRACE_S = 10
NOBODY = "65532:65532"  # an id that no user of the machine has
NETWORK = "openenv-internal"
IMAGE, FOLDER = "dev.openenv.image", "dev.openenv.folder"
INSIDE = "/run/openenv"  # the directory in a container for the provider's files
ADDRESS_S = 5.0
LAST_WORDS_S = 1.0

# Starts `_inside`, which forwards the connections of a container without a network, and then the
# image's command.
_BEGIN = """
for python in python3 python; do
    if command -v "$python" >/dev/null; then
        "$python" -I -S "$1" "$2" "$3" && shift 3 && exec "$@"
        exit 127
    fi
done
echo "the image has no python3, by which a container without a network is reached" >&2
exit 127
"""

Network = Literal["internal", "bridge", "none"]
Pull = Literal["missing", "always", "never"]


@dataclass(frozen=True)
class ContainerOptions(ServerOptions):
    """The rights, limits and files of a container; few by default.

    Attributes:
        network: ``internal``: only this machine reaches the container. The container reaches only
            other containers in the network, and ports that the machine opens on all interfaces.
            ``bridge``: the container reaches everything that the machine reaches, and the server is
            published at a port of the loopback interface. ``none``: the container reaches nothing.
            This process forwards connections to the server through a socket in a shared directory,
            which needs ``sh`` and Python in the image. A list of hosts: like ``none``, plus an HTTP
            proxy in this process, set in the usual variables, that connects to these hosts only. A
            host is ``NAME:PORT``, ``*.NAME:PORT`` (public addresses only) or ``ADDRESS/BITS:PORT``.
            None selects ``internal``; ``none`` for rootless engines, whose networks this machine
            cannot reach; and ``bridge``, with a warning, for engines in a virtual machine, which
            cannot share sockets either.
        memory_bytes: Maximum memory, swap included. The engine kills a container that needs more.
        cpus: Maximum processor time, as a number of processors, capped at the machine's number.
        processes: Maximum number of processes and threads at one time.
        read_only: Make the root filesystem read-only.
        scratch: Writable in-memory directories, with the maximum bytes of each.
        user: The user, as ``uid:gid``. None: the image's user, or 65532:65532 if that is root.
        capabilities: Linux capabilities to keep; none by default.
        new_privileges: Allow programs to gain privileges, for example through ``setuid``.
        seccomp: A seccomp profile as JSON, or ``unconfined``. None: the engine's default.
        runtime: The OCI runtime, such as ``runsc``. None: the engine's default.
        secrets: Secrets by name. Each becomes a file in ``/run/openenv/secrets``, whose path is in
            the variable ``<NAME>_FILE``. Unlike environment variables, `inspect` does not show
            them.
        command: Command to run instead of the image's ``CMD``.
        container_port: Port that the server in the container listens on.
        labels: Additional labels of the container.
        pull: When to fetch the image: ``missing``, ``always`` or ``never``.
    """

    network: Network | Sequence[str] | None = None
    memory_bytes: int = 2048 * MIB
    cpus: float = 2.0
    processes: int = 512
    read_only: bool = True
    scratch: Mapping[str, int] = field(
        default_factory=lambda: {"/tmp": 512 * MIB, "/var/tmp": 64 * MIB, "/run": 16 * MIB}  # nosec B108  # the container's
    )
    user: str | None = None
    capabilities: Sequence[str] = ()
    new_privileges: bool = False
    seccomp: str | None = None
    runtime: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: Sequence[str] | None = None
    container_port: int = PORT
    labels: Mapping[str, str] = field(default_factory=dict)
    pull: Pull = "missing"

    def __post_init__(self) -> None:
        if self.hosts is not None:
            for one in self.hosts:
                _host(one)
        else:
            self._check_choice("network", (*get_args(Network), None))
        self._check_choice("pull", get_args(Pull))
        self._check_positive("memory_bytes", "cpus", "processes", "container_port")
        self._check_secrets(self.secrets)

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The hosts that `network` lists; None unless `network` is a list."""
        told = self.network
        return None if told is None or isinstance(told, str) else tuple(told)

    @property
    def is_apart(self) -> bool:
        """Whether the container is attached to none of the engine's networks."""
        return self.network == "none" or self.hosts is not None


_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def _host(told: str) -> tuple[str | IPv4Network | IPv6Network, int]:
    """Parse an entry of a host list into a name or an address range, and a port.

    Raises:
        ValueError: The entry has none of the accepted forms.
    """
    host, _, port = told.lower().rpartition(":")
    if port.isascii() and port.isdigit() and 0 < int(port) < 2**16:
        with contextlib.suppress(ValueError):
            return ip_network(host.strip("[]"), strict=False), int(port)
        if _NAME.fullmatch(host):
            return host, int(port)
    raise ValueError(
        f"network lists {told!r}; expected NAME:PORT, *.NAME:PORT or ADDRESS/BITS:PORT"
    )


class LocalDockerProvider(ImageProvider):
    """Serves environments from containers on this machine.

        provider = LocalDockerProvider()
        async with EchoEnv.from_docker_image("echo-env:latest", provider=provider) as env: ...

    Args:
        image: The default image of `launch`.
        engine: Address of an engine, such as ``unix:///run/podman/podman.sock``. By default the
            first that `openenv.providers.engines.find_engine` finds.
        api_key: Key that each server requires. By default each server gets a fresh key, passed in a
            file, which clients in this process find automatically. None: no key. Servers of the
            public package check no keys.
        progress: Progress output while an image is fetched: True for a bar, False for none, or a
            function that is called with each line of the engine. By default a bar if stderr is a
            terminal.
        **options: The fields of `ContainerOptions`.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: No engine was found, or the engine does not answer.
        TypeError: An option does not exist.
        ValueError: An option's value is invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(
        MANAGED,
        isolation="container",
        own_files=True,
        read_only=True,
        unprivileged=True,
        networks=("internal", "bridge", "none", "listed hosts"),
        limits=("memory", "cpu", "processes"),
        orphans="end at the next start",
    )

    def __init__(
        self,
        image: str | None = None,
        *,
        engine: str | None = None,
        api_key: str | FreshKey | None = FRESH_KEY,
        progress: Progress = None,
        **options: Any,
    ) -> None:
        super().__init__(image, api_key)
        self._progress = progress
        self._options = ContainerOptions().changed(options)
        self._client = find_engine(engine)
        self._found: EngineInfo | None = None
        self._turn_of_engine = threading.Lock()
        self._turn_to_fetch = threading.Lock()

    def _launch(self, request: LaunchRequest) -> Server:
        image, chosen, key = self._resolve(request, self._options)
        engine = self._engine()
        if chosen.network is None:
            chosen = replace(chosen, network=_default_network(engine))
        elif chosen.network == "internal" and engine.is_rootless:
            raise ProviderError(
                "this machine cannot reach the networks of a rootless engine; network='none' "
                "keeps containers apart too, and network='bridge' publishes their ports"
            )
        with engine_errors(f"{image} could not be started"):
            return self._start(replace(request, image=image), chosen, engine, key)

    def _engine(self) -> EngineInfo:
        """Return the engine's properties; the first call prunes, and warns of missing limits."""
        with self._turn_of_engine:
            if self._found is None:
                prune(self._client)
                self._found = engine_info(self._client)
                if self._found.not_held:
                    logger.warning(
                        "this engine does not hold containers to limits of %s",
                        " and ".join(self._found.not_held),
                    )
            return self._found

    def _start(
        self, request: LaunchRequest, chosen: ContainerOptions, engine: EngineInfo, key: str | None
    ) -> Server:
        assert request.image is not None
        own = self._fetched(request.image, chosen.pull)
        folder = _folder(key, chosen.secrets)
        ways = contextlib.ExitStack()  # closes connections to the container, and out of it
        container = None
        try:
            reach = _ways_of(folder / "told", chosen, ways) if chosen.is_apart else None
            container = self._create(request, own, chosen, engine, folder)
            self._check_runtime(container, chosen, engine)
            self._client.start(container)
            host, port = "127.0.0.1", 0
            if reach is None:
                host, port = self._address(container, chosen)
                reach = to_host(host, port)
            if chosen.is_apart or (request.port is not None and chosen.network == "internal"):
                relay = Relay(request.port, through(reach))
                ways.callback(relay.close)
                host, port = "127.0.0.1", relay.port
            url = f"http://{host}:{port}"
            return _Container(self._client, container, url, key, str(folder), ways)
        except BaseException:
            ways.close()
            _remove(self._client, container, str(folder))
            raise

    # ------------------------------------------------------------------ the image

    def _fetched(self, image: str, pull: Pull) -> Any:
        """Return the engine's description of an image; fetch a missing image first."""
        if pull != "always" and (own := inspect_image(self._client, image)) is not None:
            return own
        if pull == "never":
            raise ProviderError(
                f"there is no image {image!r} on this machine; build it, or pass pull='missing'"
            )
        with self._turn_to_fetch:  # so that of concurrent starts only one fetches
            if pull != "always" and (own := inspect_image(self._client, image)) is not None:
                return own
            name, tag = _parts(image)
            fetch(image, self._client.pull(name, tag, stream=True, decode=True), self._progress)
            return self._client.inspect_image(image)

    # ------------------------------------------------------------------ the container

    def _create(
        self,
        request: LaunchRequest,
        own: Mapping[str, Any],
        chosen: ContainerOptions,
        engine: EngineInfo,
        folder: Path,
    ) -> str:
        client, image = self._client, request.image or ""
        inner = f"{chosen.container_port}/tcp"
        network = {"internal": NETWORK, "bridge": "bridge"}.get(str(chosen.network), "none")
        if network == NETWORK:
            make_internal_network(client, NETWORK)
        security = [] if chosen.new_privileges else ["no-new-privileges"]
        if (profile := chosen.seccomp) is not None:
            if profile != "unconfined" and engine.is_podman:  # Podman expects a path on its machine
                _write(folder / "seccomp.json", profile)
                profile = str(folder / "seccomp.json")
            security.append(f"seccomp={profile}")
        how = client.create_host_config(
            network_mode=network,
            port_bindings=(
                {inner: ("127.0.0.1", request.port)} if chosen.network == "bridge" else None
            ),
            read_only=chosen.read_only,
            tmpfs={path: f"size={size},mode=1777" for path, size in chosen.scratch.items()},
            binds={str(folder / "told"): {"bind": INSIDE, "mode": "ro"}},
            cap_drop=["ALL"],
            cap_add=list(chosen.capabilities),
            security_opt=security,
            pids_limit=chosen.processes,
            mem_limit=chosen.memory_bytes,
            memswap_limit=chosen.memory_bytes,
            nano_cpus=int(min(chosen.cpus, engine.processors or chosen.cpus) * 1e9),
            runtime=chosen.runtime,
            init=True,
        )
        config = client.create_container_config(
            image,
            _command(own, chosen),
            entrypoint=["/bin/sh", "-c", _BEGIN] if chosen.is_apart else None,
            user=user_of(own, chosen.user),
            environment=_environment(request.env_vars, chosen, folder),
            ports=[(chosen.container_port, "tcp")],
            labels={**chosen.labels, OWNER: own_name(), IMAGE: image, FOLDER: str(folder)},
            host_config=how,
        )
        made = client.create_container_from_config(config, name=name_for(image))
        return str(made["Id"])

    def _check_runtime(self, container: str, chosen: ContainerOptions, engine: EngineInfo) -> None:
        """Raise ProviderError if Podman has silently ignored the runtime option."""
        if chosen.runtime is None or not engine.is_podman:
            return
        given = podmans_runtime(self._client, container)
        if given != chosen.runtime:
            raise ProviderError(
                f"this engine ran the container by {given} instead of runtime={chosen.runtime!r}; "
                "Podman's runtime is set in its own configuration, containers.conf"
            )

    def _address(self, container: str, chosen: ContainerOptions) -> tuple[str, int]:
        deadline = time.monotonic() + ADDRESS_S
        while True:
            seen = self._client.inspect_container(container)
            networks = seen["NetworkSettings"]
            if chosen.network == "internal":
                found = (networks["Networks"].get(NETWORK) or {}).get("IPAddress")
                if found:
                    return found, chosen.container_port
            else:
                bound = (networks["Ports"] or {}).get(f"{chosen.container_port}/tcp")
                if bound:
                    return "127.0.0.1", int(bound[0]["HostPort"])
            if not seen["State"]["Running"]:
                raise _exited(self._client, container, seen["State"])
            if time.monotonic() > deadline:
                raise ProviderError(
                    f"the engine gave the container no address in network {chosen.network!r}"
                )
            time.sleep(0.01)


def _parts(image: str) -> tuple[str, str]:
    """Split an image reference into its name, and its tag or digest."""
    name, _, digest = image.partition("@")
    if digest:
        return name, digest
    name, _, tag = image.rpartition(":")
    return (name, tag) if name and "/" not in tag else (image, "latest")


class _Container(Server):
    """A container that runs, or has run."""

    def __init__(
        self,
        client: Any,
        container: str,
        url: str,
        key: str | None,
        folder: str,
        ways: contextlib.ExitStack,
    ) -> None:
        super().__init__(url, container[:12], key)
        self._ways = ways
        self._client = client
        self._id = container
        self._folder = folder
        self._clean_up_with(partial(_remove, client, container, folder), ways.close)

    def check_running(self) -> None:
        if self.is_stopped:
            return
        try:
            state = self._client.inspect_container(self._id)["State"]
        except sdk().errors.NotFound:
            raise ProviderExited("somebody has removed the container", exit_code=None) from None
        if not state["Running"]:
            raise _exited(self._client, self._id, state)

    def _read_log(self, lines: int | None) -> str:
        return _logs(self._client, self._id, lines)

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        return execute_in(self._client, self._id, command, timeout_s)

    def _stop(self) -> None:
        errors = sdk().errors
        self._ways.close()
        try:
            with contextlib.suppress(errors.NotFound):
                with contextlib.suppress(errors.APIError):
                    self._client.stop(self._id, timeout=STOP_GRACE_S)
                self._kept_log = _logs(self._client, self._id, None)
        finally:
            with engine_errors(f"{self.name} could not be removed"):
                _remove(self._client, self._id, self._folder)


# ---------------------------------------------------------------------- listing and pruning


@dataclass(frozen=True)
class ListedContainer:
    """A container that this package has started.

    Attributes:
        id: The container's id.
        image: The image's name.
        status: The engine's description of the state.
        pid: The id of the process that owns, or owned, the container.
        is_held: Whether that process is alive, or is on another machine and may be alive.
        folder: The directory with the container's files.
    """

    id: str
    image: str
    status: str
    pid: str
    is_held: bool
    folder: str


def listed(client: Any) -> Iterator[ListedContainer]:
    """Yield an engine's containers that this package has started."""
    for one in client.containers(all=True, filters={"label": OWNER}):
        labels = one.get("Labels") or {}
        owner = labels[OWNER]
        yield ListedContainer(
            str(one["Id"]),
            labels.get(IMAGE, ""),
            str(one.get("Status") or one.get("State")),
            pid_of(owner),
            not is_orphan(owner),
            labels.get(FOLDER, ""),
        )


def prune(client: Any) -> list[str]:
    """Remove the containers whose owner process was killed, and return their ids."""
    removed = []
    for one in listed(client):
        if not one.is_held:
            with contextlib.suppress(sdk().errors.APIError):  # another process may prune too
                _remove(client, one.id, one.folder)
                removed.append(one.id)
    return removed


def _remove(client: Any, container: str | None, folder: str) -> None:
    if container is not None:
        with contextlib.suppress(sdk().errors.NotFound):
            client.remove_container(container, v=True, force=True)
    if Path(folder).name.startswith("openenv-container-"):
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------- parts of a container


def _folder(key: str | None, told: Mapping[str, str]) -> Path:
    """Create a directory with a container's files, which no other user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="openenv-container-"))
    inside = folder / "told"
    try:
        (inside / "secrets").mkdir(parents=True)
        if key is not None:
            _write(inside / "key", key_file(key))
        for name, value in told.items():
            _write(inside / "secrets" / name, value)
        for path in (inside, inside / "secrets"):
            path.chmod(0o755)  # in `folder`, whose mode is 0700
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o444)


def _environment(
    env_vars: Mapping[str, str], chosen: ContainerOptions, folder: Path
) -> dict[str, str]:
    files = {f"{name}_FILE": f"{INSIDE}/secrets/{name}" for name in chosen.secrets}
    if (folder / "told" / "key").exists():
        files["OPENENV_API_KEY_FILE"] = f"{INSIDE}/key"
    proxy = variables() if chosen.hosts is not None else {}
    return {**proxy, **files, **env_vars}


def _default_network(engine: EngineInfo) -> Network:
    if engine.is_elsewhere:
        logger.warning(
            "containers of this engine cannot be reached in a network of their own, so theirs is "
            "'bridge': they can reach what this machine can; say network='bridge' if that is meant"
        )
        return "bridge"
    return "none" if engine.is_rootless else "internal"


# ---------------------------------------------------------------------- without a network


class _HostListProxy(Proxy):
    """A container's proxy, which connects only to the listed names and addresses."""

    def __init__(self, hosts: Sequence[str]) -> None:
        told = [_host(one) for one in hosts]
        self._addresses = [(host, port) for host, port in told if not isinstance(host, str)]
        super().__init__(f"{host}:{port}" for host, port in told if isinstance(host, str))

    def connect(self, host: str, port: int) -> socket.socket:
        with contextlib.suppress(ValueError):  # a name
            address = ip_address(host)
            if any(port == at and address in network for network, at in self._addresses):
                return socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        return super().connect(host, port)


def _ways_of(told: Path, chosen: ContainerOptions, ways: contextlib.ExitStack) -> Reach:
    """Set up the tunnel and the proxy of a container without a network; return the tunnel.

    Args:
        told: The directory that is mounted in the container.
        chosen: The container's options.
        ways: Receives callbacks that close the connections.
    """
    tunnel = Tunnel(told / "server.sock")
    ways.callback(tunnel.close)
    if chosen.hosts is not None:
        proxy = _HostListProxy(chosen.hosts)
        ways.callback(proxy.close)
        proxy.path.replace(told / "proxy.sock")
        proxy.path.parent.rmdir()
    _write(told / "inside.py", Path(_inside.__file__).read_text("utf-8"))
    return tunnel


def _command(own: Mapping[str, Any], chosen: ContainerOptions) -> list[str] | None:
    wanted = None if chosen.command is None else list(chosen.command)
    if not chosen.is_apart:
        return wanted
    image = own.get("Config") or {}
    runs = [
        *(image.get("Entrypoint") or []),
        *((image.get("Cmd") or []) if wanted is None else wanted),
    ]
    if not runs:
        raise ProviderError("the image does not say what to run; pass command=[...]")
    proxy = PROXY_PORT if chosen.hosts is not None else 0
    return ["openenv", f"{INSIDE}/inside.py", str(chosen.container_port), str(proxy), *runs]


def user_of(own: Mapping[str, Any], wanted: str | None) -> str | None:
    """Return the user that a container runs as; None for the image's own.

    Args:
        own: The engine's description of the image.
        wanted: The requested user.
    """
    if wanted is not None:
        return wanted
    of_image = str((own.get("Config") or {}).get("User") or "")
    return NOBODY if of_image.partition(":")[0] in ("", "0", "root") else None


def make_internal_network(client: Any, name: str, **options: Any) -> None:
    """Create a network without access outside of the machine, unless it exists."""
    docker = sdk()
    try:
        client.inspect_network(name)
    except docker.errors.NotFound:
        try:
            client.create_network(
                name, driver="bridge", internal=True, labels={OWNER: "shared"}, **options
            )
        except docker.errors.APIError:
            client.inspect_network(name)  # another process has created it meanwhile


def execute_in(client: Any, container: str, command: Sequence[str], timeout_s: float) -> Executed:
    """Run a command in a container; see `Server.execute`."""
    done: list[Executed | BaseException] = []

    def run() -> None:
        try:
            made = client.exec_create(container, list(command))
            stdout, stderr = client.exec_start(made["Id"], demux=True)
            code = client.exec_inspect(made["Id"])["ExitCode"]
            done.append(
                Executed(
                    code,
                    (stdout or b"").decode(errors="replace"),
                    (stderr or b"").decode(errors="replace"),
                )
            )
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=run, name="openenv-execute", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not done:
        raise ProviderError(f"{command[0]} took longer than {timeout_s:g} s")
    if isinstance(done[0], Executed):
        return done[0]
    raise ProviderError(redact(f"{command[0]} could not be run: {done[0]}")) from done[0]


def _logs(client: Any, container: str, lines: int | None) -> str:
    # Read the whole log, since Podman's `tail` is sometimes empty and sometimes out of order.
    data = client.logs(container, stdout=True, stderr=True)
    text = redact(bytes(data).decode(errors="replace"))
    return last_lines(text, lines)


def _exited(client: Any, container: str, state: Mapping[str, Any]) -> ProviderExited:
    code = state.get("ExitCode")
    how = "it took more memory than it may" if state.get("OOMKilled") else f"exit code {code}"
    logs, deadline = "", time.monotonic() + LAST_WORDS_S
    with contextlib.suppress(sdk().errors.APIError):
        # The last output may reach the engine's log only after the container has ended.
        while not logs.strip() and time.monotonic() < deadline:
            logs = _logs(client, container, LOG_TAIL_LINES)
            time.sleep(0.02)
    return ProviderExited(f"the container has ended ({how})", exit_code=code, logs=logs)
