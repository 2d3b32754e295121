"""Servers in Docker Swarm services: replicas of one server, which Swarm keeps running.

A session lives in one replica, so load balancing must not split a session. Swarm's own load
balancing does: its virtual address sends each connection to any replica, and the HTTP requests of
one session use several connections. So this process relays connections to the service: each
WebSocket goes to the replica with the fewest WebSockets, and everything else to one replica. In
addition, each replica has its own address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from openenv._internal.redaction import redact
from openenv.errors import NotSupported, ProviderError, ProviderExited
from openenv.providers._readiness import HEALTH_TIMEOUT_S, LOG_TAIL_LINES, is_healthy, wait_until
from openenv.providers._relay import CHUNK, Onward, Reach, Relay, in_time, through
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.docker import (
    INSIDE,
    MIB,
    PORT,
    STOP_GRACE_S,
    LocalDockerProvider,
    execute_in,
    make_internal_network,
    user_of,
)
from openenv.providers.engines import (
    engine_errors,
    engine_info,
    find_engine,
    inspect_image,
    sdk,
)
from openenv.providers.options import ServerOptions, key_file, name_for
from openenv.providers.owners import OWNER, is_orphan, own_name
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    READY_TIMEOUT_S,
    Executed,
    ImageProvider,
    LaunchRequest,
    Server,
)

__all__ = ["DockerSwarmProvider", "Service", "SwarmOptions", "prune"]

logger = logging.getLogger(__name__)

NETWORK = "openenv-swarm-internal"
LOOPBACK = "127.0.0.1"
NANO = 10**9
RESTART_AFTER_S, RESTARTS, RESTARTS_WITHIN_S = 1, 5, 300
CONNECT_S = 5.0
HEAD_S = 60.0  # a client may connect long before its first request
STOP_S = 3.0 * STOP_GRACE_S
LOGS_S = 10.0
NO_NODE = "no suitable node"
MAY_PASS = "insufficient resources"  # nosec B105  # other tasks may end

FAILED = frozenset({"complete", "failed", "rejected"})
ENDED = FAILED | {"shutdown", "orphaned", "remove"}

Network = Literal["internal", "published"]


@dataclass(frozen=True)
class SwarmOptions(ServerOptions):
    """The options of a service, and the rights and limits of the replicas; few by default.

    Attributes:
        replicas: Number of servers.
        cpu_limit: Maximum processor time of each replica, as a number of processors, capped at the
            number of the smallest node.
        memory_limit: Maximum memory of each replica, in bytes or as ``"512m"`` or ``"2g"``.
        constraints: Constraints on nodes, such as ``node.labels.gpu==yes``.
        labels: Labels of the service.
        command: Command to run instead of the image's; a text is split like a shell command.
        overlay_network: An additional network of the swarm that the replicas join. It leads out of
            the machine unless it is internal.
        network: ``internal``: replicas run on this machine only. Only this machine reaches them,
            and they reach only each other, and ports that the machine opens on more than the
            loopback interface. ``published``: replicas run on any node, each at a port of the node
            that is open on all interfaces, and reach everything that the node reaches. None:
            ``internal`` if this machine is the whole swarm, otherwise ``published``, with a
            warning.
        processes: Maximum number of processes and threads of each replica at one time.
        read_only: Make the root filesystem read-only.
        scratch: Writable in-memory directories, with the maximum bytes of each.
        user: The user, as ``uid:gid``. None: the image's user, if this machine has the image and
            the user is not root; otherwise an unprivileged user.
        capabilities: Linux capabilities to keep; none by default.
        new_privileges: Allow programs to gain privileges, for example through ``setuid``. Engines
            before Docker 25 cannot forbid this for services; without capabilities there is little
            to gain.
        secrets: Secrets by name, stored in Swarm. Each becomes a file in ``/run/openenv/secrets``,
            whose path is in the variable ``<NAME>_FILE``.
        container_port: Port that a server listens on.
    """

    replicas: int = 2
    cpu_limit: float | str = 2.0
    memory_limit: int | str = 2048 * MIB
    constraints: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] | str | None = None
    overlay_network: str | None = None
    network: Network | None = None
    processes: int = 512
    read_only: bool = True
    scratch: Mapping[str, int] = field(
        default_factory=lambda: {"/tmp": 512 * MIB, "/var/tmp": 64 * MIB, "/run": 16 * MIB}  # nosec B108  # the container's
    )
    user: str | None = None
    capabilities: Sequence[str] = ()
    new_privileges: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    container_port: int = PORT

    def __post_init__(self) -> None:
        self._check_choice("network", (*get_args(Network), None))
        self._check_positive("replicas", "processes", "container_port")
        if not self.cpus > 0:
            raise ValueError(f"cpu_limit is {self.cpu_limit!r}; it must be above 0")
        if not self.memory_bytes > 0:
            raise ValueError(f"memory_limit is {self.memory_limit!r}; it must be above 0")
        if isinstance(self.constraints, str):
            raise ValueError(f"constraints is {self.constraints!r}; it must be a list of texts")
        self._check_secrets(self.secrets)

    @property
    def cpus(self) -> float:
        """`cpu_limit` as a number."""
        try:
            return float(self.cpu_limit)
        except ValueError:
            raise ValueError(f"cpu_limit is {self.cpu_limit!r}; it must be a number") from None

    @property
    def memory_bytes(self) -> int:
        """`memory_limit` in bytes."""
        told = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmg]?)b?", str(self.memory_limit).strip().lower())
        if told is None:
            raise ValueError(
                f"memory_limit is {self.memory_limit!r}; expected bytes, or a text such as '512m'"
            )
        return int(float(told[1]) * 1024 ** "bkmg".index(told[2] or "b"))

    @property
    def words(self) -> list[str] | None:
        """`command` as a list."""
        told = self.command
        return None if told is None else shlex.split(told) if isinstance(told, str) else list(told)


class DockerSwarmProvider(ImageProvider):
    """Serves environments from services of Docker's Swarm.

        provider = DockerSwarmProvider("echo-env:latest", replicas=4)
        with provider.launch() as service:
            service.wait_for_ready()
            urls = [replica.url for replica in service.replicas]

    If the engine is in no swarm, the provider creates one that listens on the loopback interface
    only. The provider never leaves the swarm, since other programs may use it by then. A swarm
    costs one process of the engine; ``docker swarm leave --force`` ends it.

    Args:
        image: The default image of `launch`.
        auto_init_swarm: Create a swarm if the engine is in none.
        engine: Address of an engine, which must be a manager of its swarm. By default the first
            that `openenv.providers.engines.find_engine` finds.
        api_key: Key that each server requires. By default each service gets a fresh key, passed in
            a Swarm secret, which clients in this process find automatically. None: no key.
        **options: The fields of `SwarmOptions`, such as ``overlay_network``.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: No engine was found, or the engine is not a manager of a swarm.
        TypeError: An option does not exist.
        ValueError: An option's value is invalid.
    """

    capabilities: ClassVar[Capabilities] = replace(
        LocalDockerProvider.capabilities, networks=("internal", "published")
    )

    def __init__(
        self,
        image: str | None = None,
        *,
        auto_init_swarm: bool = True,
        engine: str | None = None,
        api_key: str | FreshKey | None = FRESH_KEY,
        **options: Any,
    ) -> None:
        super().__init__(image, api_key)
        self._options = SwarmOptions().changed(options)
        self._client = find_engine(engine)
        _join_swarm(self._client, auto_init_swarm)
        self._is_swept = False
        self._turn_of_engine = threading.Lock()

    def launch(
        self,
        image: str | None = None,
        *,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Service:
        """Start a service; see `ServerProvider.launch`."""
        service = super().launch(image, port=port, env_vars=env_vars, **options)
        assert isinstance(service, Service)
        return service

    def _launch(self, request: LaunchRequest) -> Server:
        image, chosen, key = self._resolve(request, self._options)
        with engine_errors(f"{image} could not be started"):
            with self._turn_of_engine:
                if not self._is_swept:
                    prune(self._client)
                    self._is_swept = True
            where = _Placement.of(self._client, chosen)
            made = _ServiceObjects(self._client, name_for(image))
            try:
                told = {f"secrets/{name}": value for name, value in chosen.secrets.items()}
                if key is not None:
                    told["key"] = key_file(key)
                references = [made.secret(file, value) for file, value in told.items()]
                variables = request.env_vars
                made.service(
                    _specification(self._client, image, where, variables, chosen, references)
                )
                fleet = _Fleet(self._client, made.id, chosen.replicas, where, chosen.container_port)
                return Service(fleet, made, request.port, key)
            except BaseException:
                made.remove()
                raise


# ---------------------------------------------------------------------- the swarm


def _join_swarm(client: Any, may_init: bool) -> None:
    """Check that an engine is a manager of a swarm; create a missing swarm if allowed.

    Raises:
        ProviderError: The engine does not support swarms, is in none, or is only a worker.
    """
    swarm = client.info().get("Swarm") or {}
    if swarm.get("LocalNodeState") in (None, "", "inactive"):
        if not may_init:
            raise ProviderError(
                "the engine is in no swarm: docker swarm init, or pass auto_init_swarm=True"
            )
        try:
            client.init_swarm(advertise_addr=LOOPBACK, listen_addr=f"{LOOPBACK}:2377")
        except sdk().errors.DockerException as error:
            swarm = client.info().get("Swarm") or {}
            if swarm.get("LocalNodeState") != "active":  # another process has created it meanwhile
                words = getattr(error, "explanation", None) or error
                raise ProviderError(f"the engine could not be made a swarm: {words}") from None
        swarm = client.info().get("Swarm") or {}
    if not swarm.get("ControlAvailable"):
        raise ProviderError(
            "the engine is not a manager of its swarm (state: "
            f"{swarm.get('LocalNodeState')}); set DOCKER_HOST to a manager"
        )


@dataclass(frozen=True)
class _Placement:
    """The nodes and the network of a service's replicas.

    Attributes:
        own_node: The id of the engine's node.
        is_alone: Whether the swarm has no other node.
        network: The network; see `SwarmOptions.network`.
        processors: The number of processors of the smallest node.
    """

    own_node: str
    is_alone: bool
    network: Network
    processors: float

    @classmethod
    def of(cls, client: Any, chosen: SwarmOptions) -> _Placement:
        nodes = client.nodes()
        own_node, is_alone = client.info()["Swarm"]["NodeID"], len(nodes) == 1
        engine = engine_info(client)
        is_reached = not engine.is_elsewhere and not engine.is_rootless
        network = chosen.network
        if network is None and is_alone and is_reached:
            network = "internal"
        elif network is None:
            network = "published"
            logger.warning(
                "replicas may run on other machines than this, so each is published at a port of "
                "its node, on all interfaces, and can reach what its node can; say "
                "network='published' if that is meant"
            )
        processors = min(node["Description"]["Resources"]["NanoCPUs"] / NANO for node in nodes)
        return cls(own_node, is_alone, network, processors)


def _specification(
    client: Any,
    image: str,
    where: _Placement,
    env_vars: Mapping[str, str],
    chosen: SwarmOptions,
    references: list[Any],
) -> dict[str, Any]:
    types = sdk().types
    here = inspect_image(client, image)
    files = {
        ("OPENENV_API_KEY" if at == "key" else at.removeprefix("secrets/")): f"{INSIDE}/{at}"
        for at in (one["File"]["Name"].removeprefix(f"{INSIDE}/") for one in references)
    }
    container = types.ContainerSpec(
        # No registry resolves an id, and an id names the same image for every replica.
        here["Id"] if where.is_alone and here else image,
        command=chosen.words,
        env={**{f"{name}_FILE": path for name, path in files.items()}, **env_vars},
        user=user_of(here or {}, chosen.user),
        mounts=[
            types.Mount(path, None, type="tmpfs", tmpfs_size=size, tmpfs_mode=0o1777)
            for path, size in chosen.scratch.items()
        ],
        secrets=references,
        stop_grace_period=STOP_GRACE_S * NANO,
        read_only=chosen.read_only,
        init=True,
        cap_drop=["ALL"],
        cap_add=list(chosen.capabilities),
    )
    container["Privileges"] = {"NoNewPrivileges": not chosen.new_privileges}
    resources = types.Resources(
        cpu_limit=int(min(chosen.cpus, where.processors) * NANO), mem_limit=chosen.memory_bytes
    )
    resources["Limits"]["Pids"] = chosen.processes
    is_internal = where.network == "internal"
    if is_internal:
        make_internal_network(client, NETWORK, scope="swarm")  # each node has its own
    networks = [NETWORK] if is_internal else []
    if chosen.overlay_network is not None:
        client.inspect_network(chosen.overlay_network)
        networks.append(chosen.overlay_network)
    constraints = list(chosen.constraints)
    if is_internal and not where.is_alone:
        constraints.append(f"node.id=={where.own_node}")
    at_node = {"Protocol": "tcp", "TargetPort": chosen.container_port, "PublishMode": "host"}
    return {
        "task_template": types.TaskTemplate(
            container,
            resources=resources,
            restart_policy=types.RestartPolicy(
                "any", RESTART_AFTER_S * NANO, RESTARTS, RESTARTS_WITHIN_S * NANO
            ),
            placement=types.Placement(constraints=constraints),
            networks=networks,
        ),
        "labels": {**chosen.labels, OWNER: own_name()},
        "mode": types.ServiceMode("replicated", chosen.replicas),
        "endpoint_spec": {"Mode": "dnsrr", **({} if is_internal else {"Ports": [at_node]})},
    }


class _ServiceObjects:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        self.id = ""
        self._secrets: list[str] = []
        self._owner = os.getpid()

    def secret(self, file: str, value: str) -> Any:
        """Create a secret, and return a reference for the service."""
        name = f"{self.name}-{len(self._secrets)}"
        made = self._client.create_secret(name, value.encode(), labels={OWNER: own_name()})
        self._secrets.append(made["ID"])
        return sdk().types.SecretReference(made["ID"], name, filename=f"{INSIDE}/{file}")

    def service(self, specification: Mapping[str, Any]) -> None:
        self.id = self._client.create_service(name=self.name, **specification)["ID"]

    def remove(self) -> None:
        """Remove all objects, and wait until the replicas have ended. Safe to repeat."""
        if self._owner != os.getpid():  # a forked child's copy
            return
        if self.id:
            _remove_service(self._client, self.id)
        for secret in self._secrets:
            with contextlib.suppress(sdk().errors.NotFound):
                self._client.remove_secret(secret)


def _remove_service(client: Any, service: str) -> None:
    with contextlib.suppress(sdk().errors.NotFound):
        client.remove_service(service)
    deadline = time.monotonic() + STOP_S
    while any(
        task["Status"]["State"] not in ENDED
        for task in client.tasks()
        if task["ServiceID"] == service
    ):
        if time.monotonic() > deadline:
            raise ProviderError(
                f"the replicas of service {service[:12]} have not ended within {STOP_S:g} s"
            )
        time.sleep(0.05)
    label = {"label": f"com.docker.swarm.service.id={service}"}
    while client.containers(all=True, filters=label):  # on this node; Swarm removes them
        if time.monotonic() > deadline:
            raise ProviderError(
                f"the containers of service {service[:12]} are still there after {STOP_S:g} s"
            )
        time.sleep(0.05)


def prune(client: Any) -> list[str]:
    """Remove services and secrets whose owner process was killed; return the services' names."""
    error = sdk().errors.APIError
    if not (client.info().get("Swarm") or {}).get("ControlAvailable"):
        return []
    removed = []
    for one in client.services(filters={"label": OWNER}):
        if is_orphan(one["Spec"]["Labels"][OWNER]):
            with contextlib.suppress(error, ProviderError):  # another process prunes as well
                _remove_service(client, one["ID"])
                removed.append(str(one["Spec"]["Name"]))
    for one in client.secrets(filters={"label": OWNER}):
        if is_orphan(one["Spec"]["Labels"][OWNER]):
            with contextlib.suppress(error):
                client.remove_secret(one["ID"])
    return removed


# ---------------------------------------------------------------------- its tasks

Task = Mapping[str, Any]


def container_of(task: Task) -> str:
    """Return the container id of a task; an empty string if there is none."""
    return (task["Status"].get("ContainerStatus") or {}).get("ContainerID") or ""


class _Fleet:
    """The replicas of a service, as reported by Swarm. Each slot has one task after another."""

    def __init__(
        self, client: Any, service: str, replicas: int, where: _Placement, port: int
    ) -> None:
        self.client = client
        self.service = service
        self.replicas = replicas
        self.own_node = where.own_node
        self._is_internal = where.network == "internal"
        self._port = port
        self._nodes: dict[str, str] = {}

    def tasks(self) -> dict[int, list[Task]]:
        """Return the tasks of every slot, the newest first.

        Raises:
            ProviderExited: The service no longer exists.
        """
        try:
            found = self.client.tasks(filters={"service": self.service})
        except sdk().errors.NotFound:
            raise ProviderExited("somebody has removed the service", exit_code=None) from None
        slots: dict[int, list[Task]] = {slot: [] for slot in range(1, self.replicas + 1)}
        for task in sorted(found, key=lambda one: str(one["CreatedAt"]), reverse=True):
            slots.setdefault(task["Slot"], []).append(task)
        return slots

    def running(self) -> dict[int, Task]:
        return {
            slot: task
            for slot, tasks in self.tasks().items()
            for task in tasks
            if task["Status"]["State"] == task["DesiredState"] == "running"
        }

    def address(self, task: Task) -> tuple[str, int]:
        """Return the host and the port of a task's server.

        Raises:
            OSError: The server has no address, or no longer has one.
        """
        if not self._is_internal:
            node = task["NodeID"]
            for port in (task["Status"].get("PortStatus") or {}).get("Ports") or ():
                if port["TargetPort"] == self._port:
                    if node == self.own_node:
                        return LOOPBACK, port["PublishedPort"]
                    if node not in self._nodes:
                        self._nodes[node] = str(self.client.inspect_node(node)["Status"]["Addr"])
                    return self._nodes[node], port["PublishedPort"]
            raise OSError("it is published at no port")
        try:
            seen = self.client.inspect_container(container_of(task))
        except sdk().errors.NotFound:
            raise OSError("its container is gone") from None
        networks = seen["NetworkSettings"]["Networks"] or {}
        address = (networks.get(NETWORK) or {}).get("IPAddress")
        if not address or not seen["State"]["Running"]:
            raise OSError("its container has no address")
        return str(address), self._port

    # ------------------------------------------------------------------ ended replicas

    def check_new(self) -> None:
        """Raise an error if a replica of a new service has ended, or has no node to run on."""
        for slot, tasks in self.tasks().items():
            for task in tasks:
                words = task["Status"].get("Err") or ""
                if task["Status"]["State"] in FAILED:
                    raise self.exited(slot, task)
                if words.startswith(NO_NODE) and MAY_PASS not in words:
                    raise ProviderError(f"replica {slot} has no place to run: {words}")

    def given_up(self, slot: int, tasks: Sequence[Task]) -> ProviderExited | None:
        """Return the error of a replica that Swarm does not restart, or None."""
        if not tasks or any(one["DesiredState"] in ("running", "ready") for one in tasks):
            return None
        return self.exited(slot, tasks[0])

    def exited(self, slot: int, task: Task) -> ProviderExited:
        status = task["Status"]
        code = status["ContainerStatus"].get("ExitCode") if container_of(task) else None
        words = status.get("Err") or status["State"]
        logs = redact(self.logs(LOG_TAIL_LINES, {str(task["ID"])}))
        return ProviderExited(
            redact(f"replica {slot} has ended ({words})"), exit_code=code, logs=logs
        )

    def states(self) -> str:
        lines = []
        for slot, tasks in self.tasks().items():
            status = tasks[0]["Status"] if tasks else {"State": "not there yet"}
            if status["State"] != "running":
                words = status.get("Err") or status.get("Message") or ""
                lines.append(f"replica {slot} is {status['State']}: {words}".rstrip(": "))
        return "\n".join(lines)

    # ------------------------------------------------------------------ logs

    def logs(self, lines: int | None, tasks: set[str] | None = None) -> str:
        """Return the output of the service, or of some of the tasks.

        The output comes from Swarm, since tasks run on any node. Swarm may wait for a node that
        does not answer, so after 10 s only the output received until then is returned.
        """
        found: list[str] = []

        def read() -> None:
            with contextlib.suppress(sdk().errors.DockerException, OSError):
                stream = self.client.service_logs(
                    self.service, details=True, stdout=True, stderr=True, timestamps=True
                )
                found.extend(bytes(line).decode(errors="replace").rstrip("\n") for line in stream)

        reading = threading.Thread(target=read, name="openenv-logs", daemon=True)
        reading.start()
        reading.join(LOGS_S)
        # A row has a time, labels and a text.
        rows = sorted(tuple((line + "  ").split(" ", 2)) for line in list(found))
        texts = [
            text.removesuffix("  ").removesuffix(" ")
            for _, labels, text in rows
            if tasks is None or any(f"task.id={task}" in labels for task in tasks)
        ]
        return redact("\n".join(texts if lines is None else texts[-lines:]))


# ---------------------------------------------------------------------- routing

SESSION = re.compile(rb"session[-_]id", re.IGNORECASE)
UPGRADE = re.compile(rb"\r\nupgrade: *websocket", re.IGNORECASE)


class _Spread:
    """Distributes the connections of a relay over the replicas.

    A WebSocket is a session, and goes to the replica with the fewest WebSockets. Any other request
    may name a session of an earlier request, so all of these go to one replica while it runs.
    """

    def __init__(self, fleet: _Fleet) -> None:
        self._fleet = fleet
        self._open: Counter[int] = Counter()
        self._for_http = ""  # the id of the task for plain HTTP

    @asynccontextmanager
    async def __call__(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        head = await in_time(_head(reader), HEAD_S)
        is_session = bool(UPGRADE.search(head)) and not SESSION.search(head)
        running = await asyncio.to_thread(_running, self._fleet)
        for slot in self._fewest(running) if is_session else self._same(running):
            self._open[slot] += 1
            try:
                onward = await _connected(self._fleet, running[slot])
            except OSError:
                self._open[slot] -= 1
                continue
            try:
                with contextlib.closing(onward[1]):
                    yield onward, head
                    return
            finally:
                self._open[slot] -= 1
        raise OSError("no replica can be reached")

    def _fewest(self, running: Mapping[int, Task]) -> list[int]:
        return sorted(running, key=lambda slot: (self._open[slot], slot))

    def _same(self, running: Mapping[int, Task]) -> list[int]:
        tasks = {str(running[slot]["ID"]): slot for slot in sorted(running)}
        if self._for_http not in tasks and tasks:
            self._for_http = next(iter(tasks))
        return [tasks[self._for_http]] if tasks else []


def _to_slot(fleet: _Fleet, slot: int) -> Reach:

    @asynccontextmanager
    async def reach(_: asyncio.StreamReader) -> AsyncIterator[tuple[Onward, bytes]]:
        running = await asyncio.to_thread(_running, fleet)
        if slot not in running:
            raise OSError("it does not run")
        onward = await _connected(fleet, running[slot])
        with contextlib.closing(onward[1]):
            yield onward, b""

    return reach


def _running(fleet: _Fleet) -> dict[int, Task]:
    try:
        return fleet.running()
    except (ProviderError, sdk().errors.DockerException) as error:
        raise OSError("the engine does not say where the replicas are") from error


async def _connected(fleet: _Fleet, task: Task) -> Onward:
    host, port = await asyncio.to_thread(fleet.address, task)
    return await in_time(asyncio.open_connection(host, port, limit=CHUNK), CONNECT_S)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise OSError("the head of a request is too long") from None


# ---------------------------------------------------------------------- the service


class Service(Server):
    """A service: one server in several replicas.

    The service's `url` distributes WebSockets over the replicas, and sends all plain HTTP to one
    replica. A session whose connection broke can continue only at the `url` of its replica. At the
    service's `url`, the client learns that the session is lost.

    Attributes:
        replicas: The replicas, each a server with its own `url`. They last as long as the service.
    """

    def __init__(
        self, fleet: _Fleet, made: _ServiceObjects, port: int | None, key: str | None
    ) -> None:
        self._fleet = fleet
        self._made = made
        self._was_ready = False
        relays: list[Relay] = []
        self.replicas: tuple[Server, ...] = ()
        try:
            for slot in range(1, fleet.replicas + 1):
                relay = Relay(port if fleet.replicas == 1 else None, through(_to_slot(fleet, slot)))
                relays.append(relay)
                self.replicas += (_Replica(fleet, slot, f"{made.name}.{slot}", relay, key),)
            if fleet.replicas > 1:
                relays.append(Relay(port, through(_Spread(fleet))))
        except BaseException:
            _close_all(relays)
            raise
        self._relays = relays
        super().__init__(f"http://{LOOPBACK}:{relays[-1].port}", made.name, key)
        self._clean_up_with(made.remove, partial(_close_all, relays))

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every replica answers `/health`; raises as `Server.wait_for_ready` does."""
        what = f"answer from every one of {self._fleet.replicas} replicas"
        wait_until(self._are_healthy, timeout_s, what, self._check_wanted, self._last_lines)
        self._was_ready = True

    def _are_healthy(self) -> bool:
        running = self._fleet.running()
        if len(running) < self._fleet.replicas:
            return False
        try:
            addresses = [self._fleet.address(task) for task in running.values()]
        except OSError:
            return False
        return all(is_healthy(f"http://{host}:{at}", HEALTH_TIMEOUT_S) for host, at in addresses)

    def check_running(self) -> None:
        """Raise an error if the service has ended.

        Until `wait_for_ready` has succeeded, the service has ended as soon as one replica has
        ended. Later, Swarm restarts replicas, so the service has ended when all have ended for
        good.

        Raises:
            ProviderExited: The service has ended by itself.
            ProviderError: No node can run a replica.
        """
        if self.is_stopped:
            return
        if not self._was_ready:
            self._fleet.check_new()
            return
        ends = [self._fleet.given_up(*slot) for slot in self._fleet.tasks().items()]
        if ends and ends[0] is not None and None not in ends:
            raise ends[0]

    def _read_log(self, lines: int | None) -> str:
        return self._fleet.logs(lines)

    def _last_lines(self, lines: int) -> str:
        return "\n".join(filter(None, [self._fleet.states(), self.logs(lines)]))

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        if len(self.replicas) > 1:
            raise NotSupported(
                "a service of several replicas does not say where to run a command; "
                "ask one of service.replicas",
                feature="execute",
            )
        return next(iter(self.replicas)).execute(command, timeout_s)

    def _stop(self) -> None:
        for replica in self.replicas:
            replica.stop()
        _close_all(self._relays)
        if self._kept_log is None:
            self._kept_log = self._fleet.logs(None)
        with engine_errors(f"{self.name} could not be removed"):
            self._made.remove()


class _Replica(Server):
    """One replica of a service. A stop closes only its address; it ends with the service."""

    def __init__(self, fleet: _Fleet, slot: int, name: str, relay: Relay, key: str | None) -> None:
        super().__init__(f"http://{LOOPBACK}:{relay.port}", name, key)
        self._fleet = fleet
        self._slot = slot
        self._relay = relay

    def check_running(self) -> None:
        """Raise an error if the replica has ended and Swarm does not start it again."""
        tasks = self._fleet.tasks().get(self._slot, [])
        if not self.is_stopped and (end := self._fleet.given_up(self._slot, tasks)):
            raise end

    def logs(self, lines: int | None = None) -> str:
        tasks = self._fleet.tasks().get(self._slot, [])
        return self._fleet.logs(lines, {str(task["ID"]) for task in tasks})

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        task = self._fleet.running().get(self._slot)
        if task is None:
            raise ProviderError(f"{self.name} does not run")
        if task["NodeID"] != self._fleet.own_node:
            raise NotSupported(f"{self.name} runs on another machine", feature="execute")
        return execute_in(self._fleet.client, container_of(task), command, timeout_s)

    def _stop(self) -> None:
        self._relay.close()


def _close_all(relays: Sequence[Relay]) -> None:
    for relay in relays:
        relay.close()
