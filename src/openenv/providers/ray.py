"""Servers on the nodes of a Ray cluster, each owned by an actor of the caller's job.

An actor starts a server in a separate process on the node where Ray placed the actor, and does
nothing else: clients connect directly to the node's address. The actor ends with its caller, and
the server ends with the actor, for any reason.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import random
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

from openenv._internal.packages import needs
from openenv._internal.redaction import redact, register_secrets_of
from openenv.errors import NotSupported, ProviderError, ProviderExited, ProviderTimeout
from openenv.manifest.directories import absolute_target
from openenv.providers.base import FRESH_KEY, Capabilities, FreshKey
from openenv.providers.options import (
    ServerOptions,
    check_positive,
    check_positive_or_none,
    key_of,
    name_for,
)
from openenv.providers.process import HostProvider, HostServer, ProcessLimits, ProcessProvider
from openenv.providers.servers import (
    EXECUTE_TIMEOUT_S,
    READY_TIMEOUT_S,
    Executed,
    ImageProvider,
    LaunchRequest,
    Server,
)

__all__ = ["RayOptions", "RayProvider", "RayServer"]

logger = logging.getLogger(__name__)

ANSWER_S = 10.0  # for an actor to answer a quick call
STOP_S = 30.0  # for an actor to end a server
LOOK_S = 0.05  # between two checks of a server by its actor
PROBE_S = 1.0  # for a connection to a port in the cluster
END_S = 0.3  # for an actor to report the server's end
VERDICT_S = 5.0  # for Ray to say why a server has ended
COMMANDS = 16  # at one time, per server
THREADS = COMMANDS + 8  # per actor
GIB = 2**30

Placement = Literal["spread", "pack"]


def sdk() -> Any:
    """Import Ray, or raise MissingPackage."""
    with needs("RayProvider", "pip install 'openenv[ray]'"):
        return importlib.import_module("ray")


@dataclass(frozen=True)
class RayOptions(ServerOptions):
    """A server's resources in a cluster, and its placement.

    Ray's resources are accounting: Ray places no more on a node than the node declares, and
    enforces nothing. Only `limits` are enforced.

    Attributes:
        num_cpus: Number of processors in Ray's accounting.
        num_gpus: Number of GPUs in Ray's accounting; the server sees its GPUs in
            CUDA_VISIBLE_DEVICES.
        memory_bytes: Memory in Ray's accounting; None for no accounting.
        resources: Custom resources of the cluster, such as ``{"simulator": 1}``.
        placement: ``spread``: use the node with the fewest servers of this provider. ``pack``: use
            the node with the most servers. In both cases, nodes with room come before full nodes.
        limits: Limits of the server process.
        max_restarts: How many times a server that ended by itself is restarted, at the same address
            and with the same key. Its sessions are lost. A lost actor or node is never replaced.
        runtime_env: Ray's runtime environment of the actor, such as packages and a working
            directory; by default the job's. Ray's dashboard shows the ``env_vars`` in it, but not
            those of `launch`.
    """

    num_cpus: float = 1
    num_gpus: float = 0
    memory_bytes: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: Placement = "spread"
    limits: ProcessLimits | None = None
    max_restarts: int = 0
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self._check_choice("placement", get_args(Placement))
        for name in ("num_cpus", "num_gpus", "max_restarts"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must not be below 0")
        self._check_positive_or_none("memory_bytes")
        for name, amount in self.resources.items():
            if name in _OWN_ARGUMENTS:
                raise ValueError(f"{name} is not a custom resource: pass {_OWN_ARGUMENTS[name]}")
            if not amount > 0:
                raise ValueError(f"resources[{name!r}] is {amount!r}; it must be above 0")

    def asked(self) -> dict[str, float]:
        """Return all requested resources by Ray's names, without zeros."""
        own = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory_bytes or 0}
        return {name: n for name, n in {**own, **self.resources}.items() if n}


_OWN_ARGUMENTS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory_bytes"}


class RayProvider(ImageProvider):
    """Serves environments from the nodes of a Ray cluster.

        provider = RayProvider("echo_env", num_cpus=0.5)
        servers = [provider.launch() for _ in range(64)]

    The provider works in a driver, a task or an actor. Servers end when the process that launched
    them ends, for any reason.

    Args:
        target: The environment, as for `ProcessProvider`: the name of a package that is installed
            on the nodes, a directory or a file there, or ``module:attribute``. A relative path is
            relative to this process's directory, or to the working directory of the runtime
            environment, if there is one.
        address: Address of the cluster, as for ``ray.init``. By default the cluster that this
            process is connected to, or else the one that ``ray.init()`` finds or starts. A
            connection that a provider opened is closed with the last provider; an existing
            connection stays open.
        replicas: Reserve resources for this number of servers when the first is launched, all or
            none. The reservation ends with the last server.
        env_vars: Environment variables of each server.
        api_key: Key that each server requires. By default each server gets a fresh key, which
            clients in this process find automatically. None: no key, so everybody who reaches the
            node can connect.
        start_timeout_s: Maximum seconds to get a place in the cluster, and again for the server to
            start.
        **options: The fields of `RayOptions`.

    Raises:
        MissingPackage: Ray is not installed.
        TypeError: An option does not exist.
        ValueError: An option's value is invalid.
    """

    capabilities: ClassVar[Capabilities] = HostProvider.capabilities

    def __init__(
        self,
        target: str | os.PathLike[str] | None = None,
        *,
        address: str | None = None,
        replicas: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        api_key: str | FreshKey | None = FRESH_KEY,
        start_timeout_s: float = 60.0,
        **options: Any,
    ) -> None:
        super().__init__(None, api_key)
        check_positive_or_none(replicas=replicas)
        check_positive(start_timeout_s=start_timeout_s)
        self.target = None if target is None else os.fspath(target)
        self.replicas = replicas
        self.start_timeout_s = start_timeout_s
        self._address = address
        self._env_vars = dict(env_vars or {})
        self._options = RayOptions().changed(options)
        self._places = _PlaceAllocator(self._options, replicas)
        sdk()

    def _launch(self, request: LaunchRequest) -> Server:
        target = request.image or self.target
        if target is None:
            raise ProviderError(
                "there is nothing to serve: launch(target), or pass one to the provider"
            )
        chosen = self._options.changed(request.options)
        key = key_of(self._wanted_key)
        variables = {**self._env_vars, **request.env_vars}
        register_secrets_of(variables)
        _connect(self, self._address)
        with _translated_errors(f"{target} could not be started"):
            environment = chosen.runtime_env
            if environment is None:  # the job's
                environment = sdk().get_runtime_context().runtime_env or {}
            name = name_for(target)
            actor, place, address = self._place(name, chosen)
            try:
                started = actor.start.remote(
                    target if environment.get("working_dir") else absolute_target(target),
                    request.port,
                    variables,
                    key,
                    chosen.limits,
                    self.start_timeout_s,
                    chosen.max_restarts,
                )
                url = sdk().get(started, timeout=self.start_timeout_s + ANSWER_S)
                return RayServer(url, f"{name} on {address}", key, actor, place)
            except BaseException:
                _take_away(actor, place)
                raise

    def _place(self, name: str, chosen: RayOptions) -> tuple[Any, _NodePlace, str]:
        """Return an actor that runs on a node, the actor's place, and the node's address."""
        ray = sdk()
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            place = self._places.take(chosen)
            actor = None
            try:
                left_s = max(0.0, deadline - time.monotonic())
                if place.group is not None and not place.group.wait(left_s):
                    raise _unplaced(chosen.asked(), self.start_timeout_s, place.bundles)
                actor = _actor(name, chosen, place)
                placed = actor.place.remote()
                left_s = max(0.0, deadline - time.monotonic())
                if not ray.wait([placed], timeout=left_s)[0]:
                    raise _unplaced(chosen.asked(), self.start_timeout_s)
                place.node_id, address = ray.get(placed)
                return actor, place, address
            except BaseException as error:
                _take_away(actor, place)
                is_lost = isinstance(error, ray.exceptions.ActorUnavailableError)
                is_lost = is_lost or "node has died" in str(error)
                if not is_lost or time.monotonic() > deadline:
                    raise
                logger.info("%s is placed again: %s", name, error)

    def close(self) -> None:
        """Stop all servers. The last provider also closes a connection that a provider opened.

        Raises:
            ProviderError: A server could not be stopped; all others are stopped.
        """
        try:
            super().close()
        finally:
            _disconnect(self)


class RayServer(Server):
    """A server that an actor runs.

    Attributes:
        node_id: Ray's id of the server's node.
    """

    def __init__(self, url: str, name: str, key: str | None, actor: Any, place: _NodePlace) -> None:
        super().__init__(url, name, key)
        self.node_id: str = place.node_id or ""
        self._actor = actor
        self._place = place
        self._connection = _connection()
        self._end: tuple[str, int | None, str] | None = None
        self._turn_of_watch = threading.Lock()
        self._watch = actor.watch.remote()
        self._abandon = weakref.finalize(self, _abandon, actor, place, _connection(), os.getpid())
        self._abandon.atexit = False  # Ray ends the remaining actors at exit

    @property
    def pid(self) -> int:
        """The id of the server's process on its node.

        Raises:
            ProviderError: The server does not run.
        """
        return int(self._ask("tell the process's id", self._actor.pid))

    def _ask(self, what: str, method: Any, *arguments: Any, timeout_s: float = ANSWER_S) -> Any:
        if not self._is_connected():
            raise ProviderError(f"{self.name} could not {what}: its Ray job is over")
        with _translated_errors(f"{self.name} could not {what}"):
            return sdk().get(method.remote(*arguments), timeout=timeout_s)

    def _is_connected(self) -> bool:
        """Return whether this process still has the connection that made the actor."""
        return self._connection == _connection()

    # ------------------------------------------------------------------ status

    def check_running(self) -> None:
        if self.is_stopped or self._owner != os.getpid():
            return
        began = time.monotonic()
        while True:
            with self._turn_of_watch:
                self._end = self._end or self._look()
            if self._end is None:
                if not self._is_refused():
                    return
                waited_s = time.monotonic() - began
                if waited_s > END_S and self._is_node_lost():
                    self._end = "its node is lost", None, ""
                elif waited_s > VERDICT_S:
                    self._end = f"nobody listens at {self.url}; Ray does not say why", None, ""
            if self._end is not None:
                why, code, log = self._end
                raise ProviderExited(redact(why), exit_code=code, logs=redact(log))
            time.sleep(LOOK_S)

    def _look(self) -> tuple[str, int | None, str] | None:
        """Return how the server has ended (reason, exit code, last lines); None if it runs."""
        if not self._is_connected():
            return "it has ended with the Ray job that it was of", None, ""
        ray = sdk()
        if not ray.wait([self._watch], timeout=0)[0]:
            return None
        try:
            code, how, log = ray.get(self._watch)
            return f"the server process has ended ({how})", code, log
        except ray.exceptions.ActorUnavailableError as error:
            # Ray lost the connection to the actor, and may not know yet whether the node is alive.
            if self._is_refused():
                return f"its node is lost, or its actor: {_words(error)}", None, ""
            self._watch = self._actor.watch.remote()
            return None
        except ray.exceptions.RayError as error:
            return f"its actor is dead: {_words(error)}", None, ""

    def _is_refused(self) -> bool:
        place = urlsplit(self.url)
        return _answers(place.hostname or "", place.port or 0) is False

    def _is_node_lost(self) -> bool:
        """Return whether the node does not answer. Ray itself may take 15 s to notice."""
        node = next((n for n in sdk().nodes() if n["NodeID"] == self.node_id), None)
        return node is None or not node["Alive"] or not _is_there(node)

    def wait_for_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        super().wait_for_ready(timeout_s)
        self._ask("be told to forget its file", self._actor.forget_key)

    # ------------------------------------------------------------------ logs, commands, stop

    def _read_log(self, lines: int | None) -> str:
        try:
            return redact(self._ask("tell its log", self._actor.logs, lines))
        except ProviderError as error:
            if self._end is not None and self._end[2]:
                return redact(self._end[2])
            raise NotSupported(f"{error}; its log is lost with it", feature="logs") from None

    def execute(self, command: Sequence[str], timeout_s: float = EXECUTE_TIMEOUT_S) -> Executed:
        done: Executed = self._ask(
            f"run {command[0]}",
            self._actor.execute,
            list(command),
            timeout_s,
            timeout_s=timeout_s + ANSWER_S,
        )
        return done

    def _stop(self) -> None:
        if not self._is_connected():  # Ray has ended the server
            return
        ray = sdk()
        try:
            with contextlib.suppress(ray.exceptions.RayActorError):  # the actor is dead already
                log = ray.get(self._actor.stop.remote(), timeout=STOP_S)
                self._kept_log = redact(log)
        except ray.exceptions.RayError as error:
            raise ProviderError(
                redact(f"{self.name} could not be stopped cleanly, and was killed: {_words(error)}")
            ) from None
        finally:
            with _translated_errors(f"{self.name} could not be taken away"):
                _take_away(self._actor, self._place)


def _take_away(actor: Any, place: _NodePlace) -> None:
    try:
        if actor is not None:
            sdk().kill(actor)
    finally:
        place.leave()


def _abandon(actor: Any, place: _NodePlace, connection: object, owner: int) -> None:
    """Kill the actor of a server whose server object was garbage-collected."""

    def take_away() -> None:
        with contextlib.suppress(Exception):  # Ray may be gone, and no caller is left to tell
            if connection == _connection():
                _take_away(actor, place)

    if os.getpid() == owner:
        with contextlib.suppress(RuntimeError):  # the interpreter is about to end
            # In a thread, since garbage collection may begin while Ray holds its own locks.
            threading.Thread(target=take_away, name="openenv-ray", daemon=True).start()


# ---------------------------------------------------------------------- in the actor


class _ServerActor:
    """The actor that runs a server on its node."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._commands = threading.BoundedSemaphore(COMMANDS)
        self._is_stopped = False
        self._restarts_left = 0

    def place(self) -> tuple[str, str]:
        """Return the id and the address of the actor's node."""
        ray = sdk()
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def start(
        self,
        target: str,
        port: int | None,
        env_vars: Mapping[str, str],
        key: str | None,
        limits: ProcessLimits | None,
        timeout_s: float,
        max_restarts: int,
    ) -> str:
        self._provider = ProcessProvider(
            target,
            env_vars=env_vars,
            limits=limits,
            host=self.place()[1],
            ready_timeout_s=timeout_s,
            api_key=key,
        )
        self._restarts_left = max_restarts
        self._server = self._launched(port)
        return self._server.url

    def _launched(self, port: int | None) -> HostServer:
        server = self._provider.launch(port=port)
        assert isinstance(server, HostServer)
        return server

    def watch(self) -> tuple[int | None, str, str]:
        """Wait until the server has ended for good; return exit code, reason and last lines."""
        while True:
            try:
                while not self._is_stopped:
                    self._server.check_running()
                    time.sleep(LOOK_S)
                return None, "it has been stopped", ""
            except ProviderExited as ended:
                with self._turn:
                    if self._is_stopped or not self._restarts_left:
                        return _how(ended)
                    self._restarts_left -= 1
                    logger.warning("the server is started again: %s", ended)
                    port = urlsplit(self._server.url).port
                    self._server.stop()
                    try:
                        self._server = self._launched(port)
                    except ProviderError as failed:
                        return _how(failed)
            with contextlib.suppress(ProviderError):
                self._server.wait_for_ready()

    def pid(self) -> int:
        return self._server.pid

    def forget_key(self) -> None:
        self._server.process.forget_key()

    def logs(self, lines: int | None) -> str:
        return self._server.logs(lines)

    def execute(self, command: Sequence[str], timeout_s: float) -> Executed:
        if not self._commands.acquire(blocking=False):  # so that a stop always finds a thread
            raise ProviderError(f"{COMMANDS} commands are running already")
        try:
            return self._server.execute(command, timeout_s)
        finally:
            self._commands.release()

    def stop(self) -> str:
        self._is_stopped = True
        with self._turn:
            self._server.stop()
            return self._server.logs()


def _how(ended: ProviderError) -> tuple[int | None, str, str]:
    code = ended.exit_code if isinstance(ended, ProviderExited) else None
    first = str(ended).partition("\n")[0]
    return code, first.removeprefix("the server process has ended (").removesuffix(")"), ended.logs


@functools.cache
def _actor_class() -> Any:  # exported to the cluster once
    return sdk().remote(_ServerActor)


def _actor(name: str, chosen: RayOptions, place: _NodePlace) -> Any:
    environment = {} if chosen.runtime_env is None else {"runtime_env": dict(chosen.runtime_env)}
    options = {
        "name": name,
        "num_cpus": chosen.num_cpus,
        "num_gpus": chosen.num_gpus or None,
        "memory": chosen.memory_bytes,
        "resources": dict(chosen.resources) or None,
        "scheduling_strategy": place.strategy,
        "lifetime": "non_detached",  # even if the job's actors are detached by default
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": THREADS,
        **environment,
    }
    return _actor_class().options(**options).remote()


# ---------------------------------------------------------------------- places in the cluster


@dataclass(eq=False)
class _NodePlace:
    """The place of a server in the cluster, existing or planned.

    Attributes:
        allocator: The allocator that assigned the place, and takes it back.
        asked: The resources that the server requests.
        node_id: The node, if known.
        group: The placement group, or None.
        bundle: The index of the group's bundle.
        bundles: The number of the group's bundles.
    """

    allocator: _PlaceAllocator
    asked: Mapping[str, float]
    node_id: str | None = None
    group: Any = None
    bundle: int = 0
    bundles: int = 1

    @property
    def strategy(self) -> Any:
        """Ray's scheduling strategy."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        if self.group is not None:
            return strategies.PlacementGroupSchedulingStrategy(
                self.group, placement_group_bundle_index=self.bundle
            )
        if self.node_id is not None:
            return strategies.NodeAffinitySchedulingStrategy(
                self.node_id, soft=True, _spill_on_unavailable=True
            )
        return "DEFAULT"

    def leave(self) -> None:
        """Return the place to the allocator. Safe to repeat."""
        self.allocator.leave(self)


class _PlaceAllocator:
    """Assigns nodes to the servers of a provider.

    Ray's own SPREAD strategy would use dead nodes too, since Ray takes about 15 s to notice that a
    node has ended.

    Args:
        own: The provider's default options.
        replicas: Number of servers with these options to reserve in a placement group.
    """

    def __init__(self, own: RayOptions, replicas: int | None) -> None:
        self._own = own
        self._replicas = replicas if own.asked() else None
        self._turn = threading.Lock()
        self._connection: object = None
        self._taken: list[_NodePlace] = []
        self._group: Any = None

    def take(self, chosen: RayOptions) -> _NodePlace:
        """Return a place, or the best guess if no node is known to be free."""
        asked = chosen.asked()
        with self._turn:
            if self._connection != (now := _connection()):  # the servers of another job have ended
                self._connection, self._taken, self._group = now, [], None
            as_reserved = (asked, chosen.placement) == (self._own.asked(), self._own.placement)
            if self._replicas and as_reserved and (place := self._reserved(self._replicas)):
                return place
        gone: set[str] = set()
        while True:
            nodes = {n["NodeID"]: n for n in sdk().nodes() if n["Alive"] and _fits(n, asked)}
            with self._turn:
                ranked = self._ranked(nodes, asked, chosen.placement)
                there = [node_id for node_id in ranked if node_id not in gone]
                best = next(iter([*there, *ranked]), None)
                place = _NodePlace(self, asked, node_id=best)
                self._taken.append(place)
            if not there or _is_there(nodes[there[0]]):
                return place
            gone.add(there[0])
            place.leave()

    def _reserved(self, replicas: int) -> _NodePlace | None:
        """Return a free bundle of the placement group; None if all bundles are taken."""
        taken = {place.bundle for place in self._taken if place.group is not None}
        free = [bundle for bundle in range(replicas) if bundle not in taken]
        if not free:
            return None
        asked = self._own.asked()
        if self._group is None:
            groups = importlib.import_module("ray.util.placement_group")
            strategy = self._own.placement.upper()
            self._group = groups.placement_group([asked] * replicas, strategy=strategy)
        place = _NodePlace(self, asked, group=self._group, bundle=free[0], bundles=replicas)
        self._taken.append(place)
        return place

    def _ranked(
        self, nodes: Mapping[str, Any], asked: Mapping[str, float], placement: Placement
    ) -> list[str]:
        """Return the nodes' ids, the best first."""
        load = Counter(place.node_id for place in self._taken)
        taken: dict[str | None, Counter[str]] = {}
        for place in self._taken:
            taken.setdefault(place.node_id, Counter()).update(place.asked)

        def rank(node_id: str) -> tuple[bool, float, float | str]:
            free = Counter(nodes[node_id]["Resources"])
            free.subtract(taken.get(node_id, Counter()))
            is_full = any(free[name] < amount for name, amount in asked.items())
            if placement == "pack":
                return is_full, -load[node_id], node_id
            return is_full, load[node_id], random.random()  # nosec B311  # no secret

        return sorted(nodes, key=rank)

    def leave(self, place: _NodePlace) -> None:
        with self._turn:
            if place not in self._taken:
                return
            self._taken.remove(place)
            group = self._group
            if group is None or any(one.group is not None for one in self._taken):
                return
            self._group = None
        importlib.import_module("ray.util.placement_group").remove_placement_group(group)


def _fits(node: Mapping[str, Any], asked: Mapping[str, float]) -> bool:
    return all(node["Resources"].get(name, 0) >= amount for name, amount in asked.items())


def _is_there(node: Mapping[str, Any]) -> bool:
    """Return whether a node answers; True if this process cannot tell."""
    if importlib.import_module("ray.util.client").ray.is_connected():
        return True  # a client outside of the cluster cannot tell
    return _answers(node["NodeManagerAddress"], node["NodeManagerPort"]) is True


def _answers(host: str, port: int) -> bool | None:
    """Return whether a port accepts connections; None if there is no answer in time."""
    try:
        socket.create_connection((host, port), PROBE_S).close()
    except ConnectionError:
        return False
    except OSError:
        return None
    return True


# ---------------------------------------------------------------------- the connection to Ray

_turn = threading.Lock()
_providers: weakref.WeakSet[RayProvider] = weakref.WeakSet()  # those that launched a server
_made: tuple[str | None, object] | None = None  # address and identity of our own connection


def _connection() -> object:
    """Return an identity of this process's connection to Ray; None without a connection."""
    ray = sdk()
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id(), context.get_worker_id()


def _connect(provider: RayProvider, address: str | None) -> None:
    """Connect this process to Ray unless it is connected.

    Raises:
        ProviderError: Ray does not answer, or this process is connected to another cluster.
    """
    global _made
    ray = sdk()
    with _turn:
        if not ray.is_initialized():
            _check_address(address or os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                where = "the Ray that was to be found" if address is None else f"Ray at {address}"
                raise ProviderError(redact(f"{where} cannot be reached: {error}")) from None
            _made = address, _connection()
        elif address is not None:
            here = ray.get_runtime_context().gcs_address
            same = {"auto", here} | ({_made[0]} if _made and _made[1] == _connection() else set())
            if address not in same:
                raise ProviderError(
                    f"this process is connected to the Ray at {here} already, and not to {address};"
                    " leave address out to use that one"
                )
        _providers.add(provider)


def _check_address(address: str) -> None:
    """Raise ProviderError if nothing listens at an address; Ray would retry for minutes."""
    place = urlsplit(address if "://" in address else f"ray://{address}")
    if place.port is not None and _answers(place.hostname or "", place.port) is not True:
        raise ProviderError(f"Ray at {address} cannot be reached: nothing answers there")


def _disconnect(provider: RayProvider) -> None:
    global _made
    with _turn:
        _providers.discard(provider)
        if _made is not None and not _providers:
            is_still_ours = _made[1] == _connection()
            _made = None
            if is_still_ours:
                sdk().shutdown()


# ---------------------------------------------------------------------- errors and messages


@contextlib.contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    """Convert Ray's errors in the block to provider errors."""
    errors = sdk().exceptions
    try:
        yield
    except errors.RayTaskError as error:
        if isinstance(error.cause, ProviderError):
            raise error.cause from None
        raise ProviderError(redact(f"{what}: {error.cause!r}")) from None
    except errors.GetTimeoutError:
        raise ProviderTimeout(f"{what}: the actor did not answer in time") from None
    except errors.RayActorError as error:
        raise ProviderExited(redact(f"{what}: {_words(error)}"), exit_code=None) from None
    except (errors.RayError, ValueError) as error:
        raise ProviderError(redact(f"{what}: {_words(error)}")) from None


def _words(error: BaseException) -> str:
    """Return the message of a Ray error without the debugging details."""
    lines = [line.strip() for line in str(error).splitlines()]
    aside = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:")
    return " ".join(line for line in lines if line and not line.startswith(aside))


def _unplaced(asked: Mapping[str, float], waited_s: float, times: int = 1) -> ProviderTimeout:
    """Return the error for a server that got no place, with the cluster's resources."""
    ray = sdk()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    able = [node for node in nodes if _fits(node, asked)]
    each = f"{_amounts(asked)}" if times == 1 else f"{times} times {_amounts(asked)}"
    has = "; ".join(f"{n['NodeManagerAddress']} {_amounts(n['Resources'])}" for n in nodes)
    free = _amounts(ray.available_resources())
    if not able:
        why = "no node has that much, so it waits for the cluster to grow"
    elif times > 1:
        why = "the nodes do not have that much, or others hold it"
    else:
        why = "others hold it, or the runtime environment is still being made"
    return ProviderTimeout(
        f"the cluster gave no place within {waited_s:g} s to what asks for {each}: {why}. "
        f"Its nodes have: {has}. Free in total: {free}"
    )


def _amounts(resources: Mapping[str, float]) -> str:
    """Format resources for people, without those that Ray adds to every node."""
    said = []
    for name, amount in sorted(resources.items()):
        if name in ("memory", "object_store_memory"):
            if name == "memory":
                said.append(f"{amount / GIB:.3g} GiB of memory")
        elif not name.startswith("node:") and "_group_" not in name:
            said.append(f"{amount:g} {name}")
    return ", ".join(said) or "nothing"
