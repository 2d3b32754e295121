"""Environments in services of Docker's Swarm: replicas of one server, which Swarm keeps running.

A session lives in one replica, so what shares connections out must not divide a session. Swarm's
own ways do: a virtual address sends each connection anywhere, and HTTP requests of one session
come by several. So a service is reached by a relay in this process, which knows its replicas: a
WebSocket goes as a whole to the replica that has the fewest, everything else to one and the same.
Each replica has an address of its own besides.
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
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from openenv._internal.redaction import redact, register_secrets_of
from openenv.errors import NotSupported, ProviderError, ProviderExited
from openenv.providers._asked import image_of, key_of, name_for, with_changes
from openenv.providers._readiness import LOG_TAIL_LINES, is_healthy, wait_until
from openenv.providers._relay import CHUNK, Onward, Reach, Relay, in_time
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.docker import (
    INSIDE,
    MIB,
    PORT,
    STOP_GRACE_S,
    execute_in,
    key_file,
    user_of,
)
from openenv.providers.engines import about, find_engine, sdk
from openenv.providers.owners import OWNER, is_orphan, own_name
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    READY_TIMEOUT_S,
    Executed,
    ImageProvider,
    Server,
)

__all__ = ["DockerSwarmProvider", "Service", "SwarmOptions", "prune"]

logger = logging.getLogger(__name__)

NETWORK = "openenv-swarm-internal"
LOOPBACK = "127.0.0.1"
NANO = 10**9
RESTART_AFTER_S, RESTARTS, RESTARTS_WITHIN_S = 1, 5, 300
HEALTH_TIMEOUT_S = 2.0
CONNECT_S = 5.0
HEAD_S = 60.0  # a client may connect before it asks
STOP_S = 3.0 * STOP_GRACE_S
LOGS_S = 10.0
NO_NODE = "no suitable node"
MAY_PASS = "insufficient resources"  # nosec B105  # others may end

ENDED = frozenset({"complete", "failed", "rejected", "shutdown", "orphaned", "remove"})

Network = Literal["internal", "published"]


@dataclass(frozen=True)
class SwarmOptions:
    """What a service is, and what its replicas may have. The defaults give them little.

    Attributes:
        replicas: How many servers.
        cpu_limit: So many processors' time a second, each; at most what the smallest node has.
        memory_limit: Of all of it, each: bytes, or a text such as ``"512m"`` or ``"2g"``.
        constraints: Where replicas may run, such as ``node.labels.gpu==yes``.
        labels: Of the service.
        command: What they run instead of what the image says; a text is split as a shell does.
        overlay_network: A network of the swarm that they join as well. It leads to what is there,
            and out of the machine unless it is an internal one.
        network: ``internal``: on this machine only; a replica is reached from it, and reaches
            nothing but others of the same kind, and ports that the machine opens to more than its
            loopback interface. ``published``: on any node; each replica is at a port of its node,
            open on all interfaces, and reaches whatever its node does. None is ``internal`` where
            the swarm is this machine alone, and else ``published``, and a warning says so.
        processes: At one time, threads included, each.
        read_only: The root filesystem cannot be written.
        scratch: Directories in memory that can be, with how many bytes each may hold.
        user: As ``uid:gid``. None: the image's own, where this machine has the image and that is
            not root; or else a user of no rights.
        capabilities: Of Linux, to be kept: none by default.
        new_privileges: Programs may gain rights, as by ``setuid``. Engines before Docker 25 cannot
            forbid it for services; without capabilities there is little to gain.
        secrets: Are Swarm's, and files of these names in ``/run/openenv/secrets``, whose paths are
            in the variables ``<NAME>_FILE``.
        container_port: The port that a server listens on.
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
        if self.network not in _NETWORKS:
            listed = ", ".join(map(repr, _NETWORKS))
            raise ValueError(f"network is {self.network!r}; expected one of {listed}")
        for name in ("replicas", "processes", "container_port"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        if not self.cpus > 0:
            raise ValueError(f"cpu_limit is {self.cpu_limit!r}; it must be above 0")
        if not self.memory_bytes > 0:
            raise ValueError(f"memory_limit is {self.memory_limit!r}; it must be above 0")
        if isinstance(self.constraints, str):
            raise ValueError(f"constraints is {self.constraints!r}; it must be a list of texts")
        for name in self.secrets:
            if not name.isidentifier():
                raise ValueError(f"a secret's name is {name!r}; it must be one of a variable")

    @property
    def cpus(self) -> float:
        """`cpu_limit`, as a number."""
        try:
            return float(self.cpu_limit)
        except ValueError:
            raise ValueError(f"cpu_limit is {self.cpu_limit!r}; it must be a number") from None

    @property
    def memory_bytes(self) -> int:
        """`memory_limit`, in bytes."""
        told = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmg]?)b?", str(self.memory_limit).strip().lower())
        if told is None:
            raise ValueError(f"memory_limit is {self.memory_limit!r}; such as '512m' or bytes")
        return int(float(told[1]) * 1024 ** "bkmg".index(told[2] or "b"))

    @property
    def words(self) -> list[str] | None:
        """`command`, word by word."""
        told = self.command
        return None if told is None else shlex.split(told) if isinstance(told, str) else list(told)


_NETWORKS = ("internal", "published", None)


class DockerSwarmProvider(ImageProvider):
    """Serves environments from services of Docker's Swarm.

        provider = DockerSwarmProvider("echo-env:latest", replicas=4)
        with provider.launch() as service:
            service.wait_for_ready()
            urls = [replica.url for replica in service.replicas]

    Where the engine is in no swarm it is made one of its own, which listens on the loopback
    interface only. That is never left again: others may use it by then. What it costs is a process
    of the engine, and ``docker swarm leave --force`` ends it.

    Args:
        image: What `launch` runs where it is not told.
        auto_init_swarm: Make a swarm where there is none.
        engine: The address of an engine, which must be a manager of its swarm; by default the
            first that is found, see `openenv.providers.engines.find_engine`.
        api_key: The key that each server wants: by default a fresh one for each service, told by
            a secret of Swarm's, which clients in this process find by themselves; None is none.
        **options: The fields of `SwarmOptions`, such as ``overlay_network``.

    Raises:
        MissingPackage: Docker's SDK is not installed.
        ProviderError: There is no engine, or it is in no swarm.
        TypeError: There is no such option.
        ValueError: An option means nothing.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        isolation="container",
        own_files=True,
        read_only=True,
        unprivileged=True,
        networks=("internal", "published"),
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
        auto_init_swarm: bool = True,
        engine: str | None = None,
        api_key: str | FreshKey | None = FRESH_KEY,
        **options: Any,
    ) -> None:
        super().__init__()
        self.image = image
        self._wanted_key = api_key
        self._options = with_changes(SwarmOptions(), options)
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

    def _launch(
        self,
        image: str | None,
        port: int | None,
        env_vars: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Server:
        image = image_of(image, self.image)
        chosen = with_changes(self._options, options)
        key = key_of(self._wanted_key)
        register_secrets_of(env_vars)
        register_secrets_of(chosen.secrets)
        try:
            with self._turn_of_engine:
                if not self._is_swept:
                    prune(self._client)
                    self._is_swept = True
            return self._start(image, port, env_vars, chosen, key)
        except sdk().errors.DockerException as error:
            words = getattr(error, "explanation", None) or error
            raise ProviderError(redact(f"{image} could not be started: {words}")) from None

    def _start(
        self,
        image: str,
        port: int | None,
        env_vars: Mapping[str, str],
        chosen: SwarmOptions,
        key: str | None,
    ) -> Service:
        where = _Where.of(self._client, chosen)
        name = name_for(image)
        made = _Made(self._client, name)
        try:
            told = {f"secrets/{name}": value for name, value in chosen.secrets.items()}
            if key is not None:
                told["key"] = key_file(key)
            references = [made.secret(file, value) for file, value in told.items()]
            made.service(_specification(self._client, image, where, env_vars, chosen, references))
            fleet = _Fleet(self._client, made.id, chosen.replicas, where, chosen.container_port)
            return Service(fleet, made, port, key)
        except BaseException:
            made.remove()
            raise


# ---------------------------------------------------------------------- the swarm


def _join_swarm(client: Any, may_init: bool) -> None:
    """Be a manager of a swarm.

    Raises:
        ProviderError: The engine knows no swarms, or is in none, or only a worker there.
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
            if swarm.get("LocalNodeState") != "active":  # another has made it meanwhile
                words = getattr(error, "explanation", None) or error
                raise ProviderError(f"the engine could not be made a swarm: {words}") from None
        swarm = client.info().get("Swarm") or {}
    if not swarm.get("ControlAvailable"):
        raise ProviderError(
            f"the engine is no manager of its swarm (it is {swarm.get('LocalNodeState')}); name "
            "one that is by DOCKER_HOST"
        )


@dataclass(frozen=True)
class _Where:
    """Where replicas run, and how they are reached from here.

    Attributes:
        own_node: The engine's own name in the swarm.
        is_alone: There is no other node.
        network: Which of `SwarmOptions.network` is meant.
        processors: Of the smallest node.
    """

    own_node: str
    is_alone: bool
    network: Network
    processors: float

    @classmethod
    def of(cls, client: Any, chosen: SwarmOptions) -> _Where:
        nodes = client.nodes()
        own_node, is_alone = client.info()["Swarm"]["NodeID"], len(nodes) == 1
        engine = about(client)
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


def _make_network(client: Any) -> None:
    """Have the network that leads nowhere; each node has its own."""
    docker = sdk()
    try:
        client.inspect_network(NETWORK)
    except docker.errors.NotFound:
        try:
            client.create_network(
                NETWORK, driver="bridge", internal=True, scope="swarm", labels={OWNER: "shared"}
            )
        except docker.errors.APIError:
            client.inspect_network(NETWORK)  # another has made it meanwhile


def _specification(
    client: Any,
    image: str,
    where: _Where,
    env_vars: Mapping[str, str],
    chosen: SwarmOptions,
    references: list[Any],
) -> dict[str, Any]:
    """What `create_service` is told."""
    types = sdk().types
    here = _own_image(client, image)
    files = {
        ("OPENENV_API_KEY" if at == "key" else at.removeprefix("secrets/")): f"{INSIDE}/{at}"
        for at in (one["File"]["Name"].removeprefix(f"{INSIDE}/") for one in references)
    }
    container = types.ContainerSpec(
        # By its id no registry is asked, and every replica is this one.
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
        _make_network(client)
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


def _own_image(client: Any, image: str) -> Mapping[str, Any] | None:
    """What this machine's engine says of an image, if it has it."""
    try:
        return client.inspect_image(image)  # type: ignore[no-any-return]
    except sdk().errors.ImageNotFound:
        return None


class _Made:
    """What was made in a swarm for one service."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        self.id = ""
        self._secrets: list[str] = []
        self._owner = os.getpid()

    def secret(self, file: str, value: str) -> Any:
        """Make a secret; gives how a service refers to it."""
        name = f"{self.name}-{len(self._secrets)}"
        made = self._client.create_secret(name, value.encode(), labels={OWNER: own_name()})
        self._secrets.append(made["ID"])
        return sdk().types.SecretReference(made["ID"], name, filename=f"{INSIDE}/{file}")

    def service(self, specification: Mapping[str, Any]) -> None:
        """Make the service."""
        self.id = self._client.create_service(name=self.name, **specification)["ID"]

    def remove(self) -> None:
        """Take all of it away, and wait for the end of what runs. Safe to repeat."""
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
    while any(_runs(task) for task in client.tasks() if task["ServiceID"] == service):
        if time.monotonic() > deadline:
            raise ProviderError(f"the replicas of service {service[:12]} do not end")
        time.sleep(0.05)
    label = {"label": f"com.docker.swarm.service.id={service}"}
    while client.containers(all=True, filters=label):  # on this node; Swarm removes them
        if time.monotonic() > deadline:
            raise ProviderError(f"the containers of service {service[:12]} do not go")
        time.sleep(0.05)


def prune(client: Any) -> list[str]:
    """Remove the services and secrets whose holder was killed; gives the names of the services."""
    error = sdk().errors.APIError
    if not (client.info().get("Swarm") or {}).get("ControlAvailable"):
        return []
    removed = []
    for one in client.services(filters={"label": OWNER}):
        if is_orphan(one["Spec"]["Labels"][OWNER]):
            with contextlib.suppress(error, ProviderError):  # another prunes as well
                _remove_service(client, one["ID"])
                removed.append(str(one["Spec"]["Name"]))
    for one in client.secrets(filters={"label": OWNER}):
        if is_orphan(one["Spec"]["Labels"][OWNER]):
            with contextlib.suppress(error):
                client.remove_secret(one["ID"])
    return removed


# ---------------------------------------------------------------------- its tasks

Task = Mapping[str, Any]


def _runs(task: Task) -> bool:
    return task["Status"]["State"] not in ENDED


def _has_failed(task: Task) -> bool:
    return task["Status"]["State"] in ("complete", "failed", "rejected")


def container_of(task: Task) -> str:
    """The container of a task; empty where there is none."""
    return (task["Status"].get("ContainerStatus") or {}).get("ContainerID") or ""


class _Fleet:
    """The replicas of a service, as Swarm knows them: each slot has one task after the other."""

    def __init__(self, client: Any, service: str, replicas: int, where: _Where, port: int) -> None:
        self.client = client
        self.service = service
        self.replicas = replicas
        self.own_node = where.own_node
        self._is_internal = where.network == "internal"
        self._port = port
        self._nodes: dict[str, str] = {}

    def tasks(self) -> dict[int, list[Task]]:
        """The tasks of every slot, the newest first.

        Raises:
            ProviderExited: There is no such service any more.
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
        """The task of each slot whose server runs."""
        return {
            slot: task
            for slot, tasks in self.tasks().items()
            for task in tasks
            if task["Status"]["State"] == task["DesiredState"] == "running"
        }

    def address(self, task: Task) -> tuple[str, int]:
        """Where the server of a task is.

        Raises:
            OSError: It has none, or none any more.
        """
        if self._is_internal:
            return self._in_network(container_of(task)), self._port
        for port in (task["Status"].get("PortStatus") or {}).get("Ports") or ():
            if port["TargetPort"] == self._port:
                return self._of_node(task["NodeID"]), port["PublishedPort"]
        raise OSError("it is published at no port")

    def _in_network(self, container: str) -> str:
        try:
            seen = self.client.inspect_container(container)
        except sdk().errors.NotFound:
            raise OSError("its container is gone") from None
        networks = seen["NetworkSettings"]["Networks"] or {}
        address = (networks.get(NETWORK) or {}).get("IPAddress")
        if not address or not seen["State"]["Running"]:
            raise OSError("its container has no address")
        return str(address)

    def _of_node(self, node: str) -> str:
        if node == self.own_node:
            return LOOPBACK
        if node not in self._nodes:
            self._nodes[node] = str(self.client.inspect_node(node)["Status"]["Addr"])
        return self._nodes[node]

    # ------------------------------------------------------------------ what has ended

    def check_new(self) -> None:
        """Raise what keeps a service from getting ready: a server that ended, or has no place."""
        for slot, tasks in self.tasks().items():
            for task in tasks:
                words = task["Status"].get("Err") or ""
                if _has_failed(task):
                    raise self.exited(slot, task)
                if words.startswith(NO_NODE) and MAY_PASS not in words:
                    raise ProviderError(f"replica {slot} has no place to run: {words}")

    def given_up(self, slot: int, tasks: Sequence[Task]) -> ProviderExited | None:
        """What ended a replica that Swarm does not start again."""
        if not tasks or any(one["DesiredState"] in ("running", "ready") for one in tasks):
            return None
        return self.exited(slot, tasks[0])

    def exited(self, slot: int, task: Task) -> ProviderExited:
        """The error of a task that has ended."""
        status = task["Status"]
        code = status["ContainerStatus"].get("ExitCode") if container_of(task) else None
        words = status.get("Err") or status["State"]
        logs = redact(self.logs(LOG_TAIL_LINES, {str(task["ID"])}))
        return ProviderExited(
            redact(f"replica {slot} has ended ({words})"), exit_code=code, logs=logs
        )

    def states(self) -> str:
        """What Swarm says of each replica that does not run, for an error."""
        lines = []
        for slot, tasks in self.tasks().items():
            status = tasks[0]["Status"] if tasks else {"State": "not there yet"}
            if status["State"] != "running":
                words = status.get("Err") or status.get("Message") or ""
                lines.append(f"replica {slot} is {status['State']}: {words}".rstrip(": "))
        return "\n".join(lines)

    # ------------------------------------------------------------------ what they have printed

    def logs(self, lines: int | None, tasks: set[str] | None = None) -> str:
        """What the service has printed, or some of its tasks.

        It goes through Swarm, so that it is found wherever they run. Swarm may wait for a node
        that does not answer: then this is what has come.
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
        # A line: when, whose, and what.
        rows = sorted(tuple((line + "  ").split(" ", 2)) for line in list(found))
        texts = [
            text.removesuffix("  ").removesuffix(" ")
            for _, labels, text in rows
            if tasks is None or any(f"task.id={task}" in labels for task in tasks)
        ]
        return redact("\n".join(texts if lines is None else texts[-lines:]))


# ---------------------------------------------------------------------- how they are reached

SESSION = re.compile(rb"session[-_]id", re.IGNORECASE)
UPGRADE = re.compile(rb"\r\nupgrade: *websocket", re.IGNORECASE)


class _Spread:
    """Shares the connections of a relay out over the replicas.

    A WebSocket goes to the replica that has the fewest, since a session lives in it. What else
    comes may name a session, made by an earlier request: all of that goes to one replica, for as
    long as that runs.
    """

    def __init__(self, fleet: _Fleet) -> None:
        self._fleet = fleet
        self._open: Counter[int] = Counter()
        self._for_http = ""  # the task

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
    """Reach one replica, and no other."""

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
        raise OSError("nobody can tell where the replicas are") from error


async def _connected(fleet: _Fleet, task: Task) -> Onward:
    host, port = await asyncio.to_thread(fleet.address, task)
    return await in_time(asyncio.open_connection(host, port, limit=CHUNK), CONNECT_S)


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The head of the first request."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise OSError("the head of a request is too long") from None


# ---------------------------------------------------------------------- as a caller has them


class Service(Server):
    """A service: one server in several replicas.

    Its `url` shares sessions over WebSockets out over the replicas, each as a whole; all that
    comes over plain HTTP goes to one of them. A session whose connection broke is found again at
    the `url` of its own replica only: at that of the service, the client is told that it is lost.

    Attributes:
        replicas: A server each, with a `url` that leads to it alone. They last as long as the
            service.
    """

    def __init__(self, fleet: _Fleet, made: _Made, port: int | None, key: str | None) -> None:
        self._fleet = fleet
        self._made = made
        self._was_ready = False
        self._kept_log: str | None = None
        relays: list[Relay] = []
        self.replicas: tuple[Server, ...] = ()
        try:
            for slot in range(1, fleet.replicas + 1):
                relay = Relay(port if fleet.replicas == 1 else None, _to_slot(fleet, slot))
                relays.append(relay)
                self.replicas += (_Replica(fleet, slot, f"{made.name}.{slot}", relay, key),)
            if fleet.replicas > 1:
                relays.append(Relay(port, _Spread(fleet)))
        except BaseException:
            _close_all(relays)
            raise
        self._relays = relays
        super().__init__(f"http://{LOOPBACK}:{relays[-1].port}", made.name, key)
        self._abandon = weakref.finalize(self, _abandon, made, relays, os.getpid())

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
        """Raise what has ended it.

        Until `wait_for_ready` has succeeded, that is the end of any replica; then that of all of
        them, since Swarm starts one again that ends.

        Raises:
            ProviderExited: It has ended by itself.
            ProviderError: No node may run it.
        """
        if self.is_stopped:
            return
        if not self._was_ready:
            self._fleet.check_new()
            return
        ends = [self._fleet.given_up(*slot) for slot in self._fleet.tasks().items()]
        if ends and ends[0] is not None and None not in ends:
            raise ends[0]

    def logs(self, lines: int | None = None) -> str:
        if self._kept_log is not None:
            return "\n".join(self._kept_log.splitlines()[-lines:]) if lines else self._kept_log
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
        try:
            self._made.remove()
        except sdk().errors.DockerException as error:
            raise ProviderError(redact(f"{self.name} could not be removed: {error}")) from None
        self._abandon.detach()


class _Replica(Server):
    """One replica of a service. Stopped, it is not reached any more; it ends with its service."""

    def __init__(self, fleet: _Fleet, slot: int, name: str, relay: Relay, key: str | None) -> None:
        super().__init__(f"http://{LOOPBACK}:{relay.port}", name, key)
        self._fleet = fleet
        self._slot = slot
        self._relay = relay

    def check_running(self) -> None:
        """Raise what has ended it for good: Swarm starts one again that ends."""
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


def _abandon(made: _Made, relays: Sequence[Relay], owner: int) -> None:
    """Remove a service that nobody can stop any more."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(Exception):  # the engine may be gone, and so is whoever could know
        made.remove()
    with contextlib.suppress(Exception):
        _close_all(relays)
