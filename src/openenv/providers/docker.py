"""Environments in containers of this machine, by Docker or Podman.

A container is given little: its root filesystem cannot be written, it has no capability and gets
none, its user is none of the machine's, memory, processors and processes are limited, and its
network leads nowhere. Whoever needs more says so by name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from openenv._internal.redaction import redact, register_secrets_of
from openenv.errors import ProviderError, ProviderExited
from openenv.providers import _inside
from openenv.providers._asked import image_of, key_of, name_for, with_changes
from openenv.providers._pulls import Progress, fetch
from openenv.providers._readiness import LOG_TAIL_LINES
from openenv.providers._relay import Reach, Relay, Tunnel, to_host
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.engines import About, about, find_engine, podmans_runtime, sdk
from openenv.providers.owners import OWNER, is_orphan, own_name, pid_of
from openenv.providers.servers import EXECUTE_TIMEOUT_S, Executed, ImageProvider, Server
from openenv.sandbox.proxy import CONNECT_TIMEOUT_S, Proxy, variables
from openenv.sandbox.proxy import PORT as PROXY_PORT

if TYPE_CHECKING:
    pass

__all__ = ["ContainerOptions", "Listed", "LocalDockerProvider", "listed", "prune"]

logger = logging.getLogger(__name__)

MIB = 2**20
PORT = 8000
STOP_GRACE_S = 10
NOBODY = "65532:65532"  # an id that no user of the machine has
NETWORK = "openenv-internal"
IMAGE, FOLDER = "dev.openenv.image", "dev.openenv.folder"
INSIDE = "/run/openenv"  # what a container is told by files is there
ADDRESS_S = 5.0
LAST_WORDS_S = 1.0

# What a container that has no network begins with: the ways out of it and into it.
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
class ContainerOptions:
    """What a container may have. The defaults give it little.

    Attributes:
        network: ``internal``: it is reached from this machine only, and reaches nothing but other
            containers of the same kind, and ports that the machine opens to all of its own
            interfaces. ``bridge``: it reaches whatever the machine does, and its server is
            published at a port of the loopback interface. ``none``: it reaches nothing at all, and
            is reached by a socket in a directory that it shares with this process, which passes
            connections on; that needs ``sh`` and Python in the image. A list of hosts is ``none``
            with a way out: an HTTP proxy in this process, which the usual variables name, connects
            it to these and to no others. One is ``NAME:PORT``, ``*.NAME:PORT`` (which leads to
            public addresses only) or ``ADDRESS/BITS:PORT``. The default, None, is ``internal``; for
            rootless engines, whose networks this machine cannot reach, it is ``none``; for those in
            a virtual machine, which share no sockets either, ``bridge``, and a warning says so.
        memory_bytes: Of all of it; more ends it.
        cpus: So many processors' time a second; at most what the machine has.
        processes: At one time, threads included.
        read_only: Its root filesystem cannot be written.
        scratch: Directories in memory that can be, with how many bytes each may hold.
        user: As ``uid:gid``. None: the image's own, or where that is root a user of no rights.
        capabilities: Of Linux, to be kept: none by default.
        new_privileges: Programs in it may gain rights, as by ``setuid``.
        seccomp: A profile, as JSON, or ``unconfined``; None is the engine's.
        runtime: Such as ``runsc``; None is the engine's.
        secrets: Are files of these names in ``/run/openenv/secrets``, and their paths in the
            variables ``<NAME>_FILE``, where environment variables could be read by `inspect`.
        command: What it runs instead of what the image says.
        container_port: The port that its server listens on.
        labels: For whoever looks at the engine.
        pull: When to fetch the image: where it is ``missing``, ``always``, or ``never``.
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
        elif self.network not in _NETWORKS:
            raise ValueError(_unexpected("network", self.network, _NETWORKS))
        if self.pull not in _PULLS:
            raise ValueError(_unexpected("pull", self.pull, _PULLS))
        for name in ("memory_bytes", "cpus", "processes", "container_port"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        for name in self.secrets:
            if not name.isidentifier():
                raise ValueError(f"a secret's name is {name!r}; it must be one of a variable")

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The hosts that `network` lists; None where it is no list."""
        told = self.network
        return None if told is None or isinstance(told, str) else tuple(told)

    @property
    def is_apart(self) -> bool:
        """It has no network of the engine's."""
        return self.network == "none" or self.hosts is not None


_PULLS = ("missing", "always", "never")
_NETWORKS = ("internal", "bridge", "none", None)


def _unexpected(name: str, value: object, allowed: Sequence[object]) -> str:
    return f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}"


_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def _host(told: str) -> tuple[str | IPv4Network | IPv6Network, int]:
    """A host of a list: a name, or addresses, and a port.

    Raises:
        ValueError: It is none.
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
    """Serves environments from containers of this machine.

        provider = LocalDockerProvider()
        async with EchoEnv.from_docker_image("echo-env:latest", provider=provider) as env: ...

    Args:
        image: What `launch` runs where it is not told.
        engine: The address of an engine, such as ``unix:///run/podman/podman.sock``; by default
            the first that is found, see `openenv.providers.engines.find_engine`.
        api_key: The key that each server wants: by default a fresh one for each, told by a file
            in the container, which clients in this process find by themselves; None is none.
            A server of the public package lets everybody in all the same.
        progress: While an image is fetched: True for a bar, False for nothing, or called with
            each line that the engine says. By default a bar where stderr is a terminal.
        **options: The fields of `ContainerOptions`.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: There is no engine, or it does not answer.
        TypeError: There is no such option.
        ValueError: An option means nothing.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        isolation="container",
        own_files=True,
        read_only=True,
        unprivileged=True,
        networks=("internal", "bridge", "none", "listed hosts"),
        limits=("memory", "cpu", "processes"),
        fresh_keys=True,
        many=True,
        detects_exit=True,
        has_logs=True,
        can_execute=True,
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
        super().__init__()
        self.image = image
        self._wanted_key = api_key
        self._progress = progress
        self._options = with_changes(ContainerOptions(), options)
        self._client = find_engine(engine)
        self._engine: About | None = None
        self._is_swept = False
        self._turn_of_engine = threading.Lock()
        self._turn_to_fetch = threading.Lock()

    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Server:
        image = image_of(image, self.image)
        chosen = with_changes(self._options, options)
        with self._turn_of_engine:
            if not self._is_swept:
                prune(self._client)
                self._is_swept = True
            if self._engine is None:
                self._engine = _asked(self._client)
            if chosen.network is None:
                chosen = replace(chosen, network=_network(self._engine))
            elif chosen.network == "internal" and self._engine.is_rootless:
                raise ProviderError(
                    "this machine cannot reach the networks of a rootless engine; network='none' "
                    "keeps containers apart too, and network='bridge' publishes their ports"
                )
        key = key_of(self._wanted_key)
        register_secrets_of(env_vars)
        register_secrets_of(chosen.secrets)
        try:
            return self._start(image, port, env_vars, chosen, key)
        except sdk().errors.DockerException as error:
            words = getattr(error, "explanation", None) or error
            raise ProviderError(redact(f"{image} could not be started: {words}")) from None

    def _start(
        self,
        image: str,
        port: int | None,
        env_vars: Mapping[str, str],
        chosen: ContainerOptions,
        key: str | None,
    ) -> Server:
        own = self._image_of(image, chosen.pull)
        folder = _folder(key, chosen.secrets)
        ways = contextlib.ExitStack()  # to the container, and out of it
        container = None
        try:
            reach = _ways_of(folder / "told", chosen, ways) if chosen.is_apart else None
            container = self._create(image, own, port, env_vars, chosen, folder)
            self._check_runtime(container, chosen)
            self._client.start(container)
            host, at = "127.0.0.1", 0
            if reach is None:
                host, at = self._address(container, chosen)
                reach = to_host(host, at)
            if chosen.is_apart or (port is not None and chosen.network == "internal"):
                relay = Relay(port, reach)
                ways.callback(relay.close)
                host, at = "127.0.0.1", relay.port
            url = f"http://{host}:{at}"
            return _Container(self._client, container, url, key, str(folder), ways)
        except BaseException:
            ways.close()
            _remove(self._client, container, str(folder))
            raise

    # ------------------------------------------------------------------ the image

    def _image_of(self, image: str, pull: Pull) -> Mapping[str, Any]:
        """What the engine says of an image, which it has afterwards."""
        if pull != "always" and (own := self._inspected(image)) is not None:
            return own
        if pull == "never":
            raise ProviderError(
                f"there is no image {image!r} on this machine; build it, or pass pull='missing'"
            )
        with self._turn_to_fetch:  # those that start at the same time wait for one of them
            if pull != "always" and (own := self._inspected(image)) is not None:
                return own
            name, tag = _parts(image)
            fetch(image, self._client.pull(name, tag, stream=True, decode=True), self._progress)
            return self._client.inspect_image(image)  # type: ignore[no-any-return]

    def _inspected(self, image: str) -> Mapping[str, Any] | None:
        try:
            return self._client.inspect_image(image)  # type: ignore[no-any-return]
        except sdk().errors.ImageNotFound:
            return None

    # ------------------------------------------------------------------ the container

    def _create(
        self,
        image: str,
        own: Mapping[str, Any],
        port: int | None,
        env_vars: Mapping[str, str],
        chosen: ContainerOptions,
        folder: Path,
    ) -> str:
        client = self._client
        inner = f"{chosen.container_port}/tcp"
        network = {"internal": NETWORK, "bridge": "bridge"}.get(str(chosen.network), "none")
        if network == NETWORK:
            _make_network(client)
        processors = (self._engine and self._engine.processors) or chosen.cpus
        how = client.create_host_config(
            network_mode=network,
            port_bindings={inner: ("127.0.0.1", port)} if chosen.network == "bridge" else None,
            read_only=chosen.read_only,
            tmpfs={path: f"size={size},mode=1777" for path, size in chosen.scratch.items()},
            binds={str(folder / "told"): {"bind": INSIDE, "mode": "ro"}},
            cap_drop=["ALL"],
            cap_add=list(chosen.capabilities),
            security_opt=_security(chosen, self._profile(chosen, folder)),
            pids_limit=chosen.processes,
            mem_limit=chosen.memory_bytes,
            memswap_limit=chosen.memory_bytes,
            nano_cpus=int(min(chosen.cpus, processors) * 1e9),
            runtime=chosen.runtime,
            init=True,
        )
        config = client.create_container_config(
            image,
            _command(own, chosen),
            entrypoint=_entrypoint(chosen),
            user=user_of(own, chosen.user),
            environment=_environment(env_vars, chosen, folder),
            ports=[(chosen.container_port, "tcp")],
            labels={
                **chosen.labels,
                OWNER: own_name(),
                IMAGE: image,
                FOLDER: str(folder),
            },
            host_config=how,
        )
        made = client.create_container_from_config(config, name=name_for(image))
        return str(made["Id"])

    def _profile(self, chosen: ContainerOptions, folder: Path) -> str | None:
        """The profile of seccomp, as the engine wants it: Podman reads a file of its machine."""
        told = chosen.seccomp
        if told is None or told == "unconfined" or self._engine is None:
            return told
        if not self._engine.is_podman:
            return told
        _write(folder / "seccomp.json", told)
        return str(folder / "seccomp.json")

    def _check_runtime(self, container: str, chosen: ContainerOptions) -> None:
        """Refuse the runtime that Podman gives instead of another, without a word."""
        if chosen.runtime is None or self._engine is None or not self._engine.is_podman:
            return
        given = podmans_runtime(self._client, container)
        if given != chosen.runtime:
            raise ProviderError(
                f"this engine runs containers by {given}, and not by runtime={chosen.runtime!r}; "
                "Podman is told that in its own configuration, containers.conf"
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
    """A reference as the engine wants it to fetch an image: its name; its tag, or its digest."""
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
        self._kept_log: str | None = None
        self._abandon = weakref.finalize(
            self, _abandon, client, container, folder, ways, os.getpid()
        )

    def check_running(self) -> None:
        if self.is_stopped:
            return
        try:
            state = self._client.inspect_container(self._id)["State"]
        except sdk().errors.NotFound:
            raise ProviderExited("somebody has removed the container", exit_code=None) from None
        if not state["Running"]:
            raise _exited(self._client, self._id, state)

    def logs(self, lines: int | None = None) -> str:
        if self._kept_log is not None:
            return "\n".join(self._kept_log.splitlines()[-lines:]) if lines else self._kept_log
        return _logs(self._client, self._id, lines)

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        return execute_in(self._client, self._id, command, timeout_s)

    def _stop(self) -> None:
        docker = sdk()
        self._ways.close()
        try:
            with contextlib.suppress(docker.errors.NotFound):
                with contextlib.suppress(docker.errors.APIError):
                    self._client.stop(self._id, timeout=STOP_GRACE_S)
                self._kept_log = _logs(self._client, self._id, None)
        finally:
            try:
                _remove(self._client, self._id, self._folder)
            except docker.errors.DockerException as error:
                raise ProviderError(redact(f"{self.name} could not be removed: {error}")) from None
        self._abandon.detach()


# ---------------------------------------------------------------------- what is left behind


@dataclass(frozen=True)
class Listed:
    """A container that this package has started, as its engine knows it.

    Attributes:
        id: The engine's name of it.
        image: What it runs.
        status: The engine's words for how it is.
        pid: The process that holds it, or has held it.
        is_held: Whether that process lives, or is of another machine, where nobody here can tell.
        folder: Where what it is told lies.
    """

    id: str
    image: str
    status: str
    pid: str
    is_held: bool
    folder: str


def listed(client: Any) -> Iterator[Listed]:
    """Name the containers of this package that an engine has."""
    for one in client.containers(all=True, filters={"label": OWNER}):
        labels = one.get("Labels") or {}
        owner = labels[OWNER]
        yield Listed(
            str(one["Id"]),
            labels.get(IMAGE, ""),
            str(one.get("Status") or one.get("State")),
            pid_of(owner),
            not is_orphan(owner),
            labels.get(FOLDER, ""),
        )


def prune(client: Any) -> list[str]:
    """Remove the containers whose holder was killed; gives their ids."""
    removed = []
    for one in listed(client):
        if not one.is_held:
            with contextlib.suppress(sdk().errors.APIError):  # another prunes as well
                _remove(client, one.id, one.folder)
                removed.append(one.id)
    return removed


def _remove(client: Any, container: str | None, folder: str) -> None:
    if container is not None:
        with contextlib.suppress(sdk().errors.NotFound):
            client.remove_container(container, v=True, force=True)
    if Path(folder).name.startswith("openenv-container-"):
        shutil.rmtree(folder, ignore_errors=True)


def _abandon(
    client: Any, container: str, folder: str, ways: contextlib.ExitStack, owner: int
) -> None:
    """Remove a container that nobody can stop any more."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(Exception):  # the engine may be gone, and so is whoever could know
        _remove(client, container, folder)
    with contextlib.suppress(Exception):
        ways.close()


# ---------------------------------------------------------------------- parts of a container


def _folder(key: str | None, told: Mapping[str, str]) -> Path:
    """What a container is told by files: in a directory that no other user may enter."""
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


def key_file(key: str) -> str:
    """What a server is told of its key: a line of OPENENV_API_KEY_FILE."""
    return json.dumps({"key": key, "role": "orchestrator", "name": "provider"})


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


def _asked(client: Any) -> About:
    """What an engine is; warns of what it does not do."""
    engine = about(client)
    if engine.not_held:
        logger.warning(
            "this engine does not hold containers to limits of %s", " and ".join(engine.not_held)
        )
    return engine


def _network(engine: About) -> Network:
    """What is meant where nobody has said."""
    if engine.is_elsewhere:
        logger.warning(
            "containers of this engine cannot be reached in a network of their own, so theirs is "
            "'bridge': they can reach what this machine can; say network='bridge' if that is meant"
        )
        return "bridge"
    return "none" if engine.is_rootless else "internal"


# ---------------------------------------------------------------------- without a network


class _Listed(Proxy):
    """The proxy of a container: it connects to listed names, and to listed addresses."""

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
    """Make the ways of a container that has no network; gives the one to its server.

    Args:
        told: The directory that it shares with this machine, and cannot write to.
        ways: Ends them.
    """
    tunnel = Tunnel(told / "server.sock")
    ways.callback(tunnel.close)
    if chosen.hosts is not None:
        proxy = _Listed(chosen.hosts)
        ways.callback(proxy.close)
        proxy.path.replace(told / "proxy.sock")
        proxy.path.parent.rmdir()
    _write(told / "inside.py", Path(_inside.__file__).read_text("utf-8"))
    return tunnel


def _entrypoint(chosen: ContainerOptions) -> list[str] | None:
    return ["/bin/sh", "-c", _BEGIN] if chosen.is_apart else None


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


def _security(chosen: ContainerOptions, profile: str | None) -> list[str]:
    options = [] if chosen.new_privileges else ["no-new-privileges"]
    return options + ([] if profile is None else [f"seccomp={profile}"])


def user_of(own: Mapping[str, Any], wanted: str | None) -> str | None:
    """Whom a container runs as; None is whom its image says.

    Args:
        own: What the engine says of the image.
        wanted: Whom somebody has asked for.
    """
    if wanted is not None:
        return wanted
    of_image = str((own.get("Config") or {}).get("User") or "")
    return NOBODY if of_image.partition(":")[0] in ("", "0", "root") else None


def _make_network(client: Any) -> None:
    """Have the network that leads nowhere."""
    docker = sdk()
    try:
        client.inspect_network(NETWORK)
    except docker.errors.NotFound:
        try:
            client.create_network(NETWORK, driver="bridge", internal=True, labels={OWNER: "shared"})
        except docker.errors.APIError:
            client.inspect_network(NETWORK)  # another has made it meanwhile


def execute_in(client: Any, container: str, command: Sequence[str], timeout_s: float) -> Executed:
    """Do as `Server.execute`, in a container of an engine."""
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
    # All of it: of Podman's, the last lines alone are sometimes none, and sometimes in disorder.
    data = client.logs(container, stdout=True, stderr=True)
    text = redact(bytes(data).decode(errors="replace"))
    return text if lines is None else "\n".join(text.splitlines()[-lines:])


def _exited(client: Any, container: str, state: Mapping[str, Any]) -> ProviderExited:
    code = state.get("ExitCode")
    how = "it took more memory than it may" if state.get("OOMKilled") else f"exit code {code}"
    logs, deadline = "", time.monotonic() + LAST_WORDS_S
    with contextlib.suppress(sdk().errors.APIError):
        # What it printed last may come to the engine's log after its end.
        while not logs.strip() and time.monotonic() < deadline:
            logs = _logs(client, container, LOG_TAIL_LINES)
            time.sleep(0.02)
    return ProviderExited(f"the container has ended ({how})", exit_code=code, logs=logs)
