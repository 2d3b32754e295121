"""`VectorEnv`: many environments of one server, stepped together."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from enum import Enum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel
from typing_extensions import Self, Unpack

from openenv._internal.generics import once_per_class
from openenv._internal.lazy import lazy_module
from openenv.client import background, codec
from openenv.client._batches import gather_infos, info_of, plain_value, rows_of, stack_observations
from openenv.client.client import EnvClient, warn_of_queue
from openenv.client.connection import Outcome, connect_transport
from openenv.client.generic import GenericEnvClient
from openenv.client.session_group import Answers, EndpointProvider, ServerEndpoint, SessionGroup
from openenv.client.transports.base import Transport
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport, websocket_url
from openenv.errors import EnvironmentsFailed, OpenEnvError, ProtocolError, SessionLost
from openenv.protocol.messages import ObservationReply, RenderReply, Request
from openenv.protocol.renderings import check_can_render
from openenv.protocol.v1.codec import offered
from openenv.protocol.v1.messages import Queued
from openenv.protocol.values import outer_fields
from openenv.reward import REWARD_INFO
from openenv.settings import protocol_version
from openenv.settings import queue_timeout_s as queue_timeout_s_of_settings
from openenv.types import Observation, StepResult

if TYPE_CHECKING:
    import numpy as np

    from openenv.arrays import Rendering
    from openenv.client.launch import Launch
    from openenv.client.options import VectorOptions
    from openenv.client.transports.asgi import ASGIApp
    from openenv.providers.base import Provider
    from openenv.reward import RewardSpec
    from openenv.tasks import Task

    EachTask = Task | str | Mapping[str, Any] | None
else:
    np = lazy_module("numpy")

__all__ = ["AutoresetMode", "VectorEnv"]

SESSIONS_A_CONNECTION = 256


class AutoresetMode(Enum):
    """The reset rule for environments whose episodes are over, in Gymnasium's names and values.

    `NEXT_STEP`: the next step resets the environment. Its action is ignored; the reward is 0.
    `SAME_STEP`: the environment is reset at once. The last observation and info are in
    ``infos["final_obs"]`` and ``infos["final_info"]``.
    `DISABLED`: only the caller resets the environment:
    ``reset(options={"reset_mask": terminations | truncations})``.

    Example:
        >>> from openenv import AutoresetMode
        >>> [mode.value for mode in AutoresetMode]
        ['NextStep', 'SameStep', 'Disabled']
    """

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


class Batch(NamedTuple):
    """The results of a step of many environments."""

    observations: Any
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, Any]


class VectorEnv:
    """Many environments of one server, with the interface of `gymnasium.vector.VectorEnv`.

        with VectorEnv("http://localhost:8000", num_envs=64) as envs:
            observations, infos = envs.reset(seed=0)
            for _ in range(1000):
                actions = policy(observations)
                observations, rewards, terminations, truncations, infos = envs.step(actions)

    The sessions share a few connections, and the steps of a batch travel in one frame. A server
    of the public package gets one connection per session.

    `VectorEnv` also has EnvPool's asynchronous interface (Weng et al. 2022): `send` gives actions
    to some environments, and `recv` returns as soon as `batch_size` of them have answered.

    A batch of observations is a dict with an entry for each field: an array if the values are
    numbers or arrays of one shape, otherwise a list. With ``stack=False`` it is a list of
    observations of the client's model. Rewards are float64, NaN for unscored steps.

    Args:
        base_url: The server's address; None with a provider.
        num_envs: Number of environments, each with its own session.
        client: The client class whose models and hooks are used.
        autoreset_mode: What happens when an episode is over.
        stack: Stack the observations.
        batch_size: Number of environments that `recv` waits for; by default all.
        connections: Number of connections that they share; by default one per 256 environments.
        connect_timeout_s: Seconds to wait for a connection.
        message_timeout_s: Seconds to wait for a batch; None for no limit.
        max_message_size_mb: Size limit of a received frame, in MiB.
        provider: Starts the server on first use. Closing the `VectorEnv` stops the server.
        headers: Headers of the handshake, for example for a gateway.
        queue_timeout_s: Seconds that each environment waits for a slot of a full server; 0 does
            not wait. Default: OPENENV_QUEUE_TIMEOUT_S, else 150.
        on_queue: Called with the number of a waiting environment and its place in the queue, a
            `Queued`. By default one warning is logged.
        api_key: The server's key. Default: the key of the provider that started the server, else
            OPENENV_API_KEY.
        ca_file: Certificates (PEM) that ``https`` and ``wss`` servers are verified with. Default:
            OPENENV_CA_FILE, else the system's certificates.
        record: Ask the server to record the sessions, if it records on request.

    Raises:
        ValueError: A number is out of range, or neither base_url nor provider is given.

    Example:
        >>> from openenv import ProcessProvider, VectorEnv
        >>> with VectorEnv(provider=ProcessProvider("blackjack_env"), num_envs=3) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     actions = [{"action": "stand"}] * 3
        ...     observations, rewards, terminations, truncations, infos = envs.step(actions)
        >>> terminations.tolist()
        [True, True, True]
    """

    def __init__(
        self,
        base_url: str | None = None,
        num_envs: int = 1,
        *,
        client: type[EnvClient[Any, Any, Any]] = GenericEnvClient,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        stack: bool = True,
        batch_size: int | None = None,
        connections: int | None = None,
        connect_timeout_s: float = 30.0,
        message_timeout_s: float | None = 60.0,
        max_message_size_mb: float = 1000.0,
        provider: Provider | None = None,
        headers: Mapping[str, str] | None = None,
        queue_timeout_s: float | None = None,
        on_queue: Callable[[int, Queued], None] | None = None,
        api_key: str | None = None,
        ca_file: str | None = None,
        record: bool = False,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; it must be at least 1")
        if batch_size is not None and not 1 <= batch_size <= num_envs:
            raise ValueError(f"batch_size is {batch_size}; it must be 1 to num_envs ({num_envs})")
        if connections is not None and connections < 1:
            raise ValueError(f"connections is {connections}; it must be at least 1")
        if base_url is None and provider is None:
            raise ValueError("a VectorEnv needs a base_url or a provider that starts a server")
        import_module("numpy")  # not in the first call: a signal during the import breaks numpy
        self.num_envs = num_envs
        self.batch_size = batch_size or num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata: dict[str, Any] = {"autoreset_mode": self.autoreset_mode}
        self.closed = False
        self._reward_spec: RewardSpec | None = None
        self._stacks = stack
        self._hooks = client(base_url="http://vector.invalid")
        self._client = client
        self._has_own_payload = client._step_payload is not EnvClient._step_payload
        self._timeout_s = message_timeout_s
        self._options = WebSocketOptions(
            connect_timeout_s,
            max_message_bytes=int(max_message_size_mb * 2**20),
            headers=dict(headers or {}),
            subprotocols=offered(protocol_version()),
            api_key=api_key,
            ca_file=ca_file,
        )
        wait_s = queue_timeout_s_of_settings() if queue_timeout_s is None else queue_timeout_s
        self._endpoint = _VectorEndpoint(
            base_url, provider, self._options, wait_s, on_queue, is_recorded=record
        )
        self._connections = min(connections or -(-num_envs // SESSIONS_A_CONNECTION), num_envs)
        self._elsewhere: EndpointProvider | None = None
        self._begin_unconnected()
        self._needs_reset = [False] * num_envs
        self._observations: list[Any] = [None] * num_envs
        # Values are stacked as they arrive: models would be built only to be taken apart again.
        # But version 0 carries arrays as lists, and only the model knows their dtype.
        self._is_plain = (
            stack
            and client._parse_result is EnvClient._parse_result
            and not codec.shows_arrays(client)
        )

    @classmethod
    def local(
        cls,
        environment: Callable[[], Any] | ASGIApp,
        num_envs: int = 1,
        **options: Unpack[VectorOptions],
    ) -> Self:
        """Run the environments in this process, with the server's session code and no socket."""
        from openenv.client.launch import local_transport

        envs = cls("local://", num_envs, **options)
        envs._endpoint.make_transport = local_transport(
            environment,
            *codec.models(envs._client),
            envs._options.subprotocols,
            envs._options.api_key,
        )
        return envs

    def connect_by(
        self, provide: Callable[[EndpointProvider, WebSocketOptions], EndpointProvider]
    ) -> None:
        """Let another provider choose the servers; call this before connecting.

        Args:
            provide: Returns the provider, given the current one and the connection options.
        """
        provider = provide(self._endpoint, self._options)
        self._abandonment.detach()
        self._elsewhere = provider
        self._begin_unconnected()

    def _begin_unconnected(self) -> None:
        self._process = os.getpid()
        provider = self._elsewhere or self._endpoint
        self._own_group = group = SessionGroup(provider, self._connections)
        self._abandonment = weakref.finalize(self, _abandon, group, self._endpoint, self._process)
        self._abandonment.atexit = False

    @property
    def _group(self) -> SessionGroup:
        if self._process != os.getpid():  # a forked child: the connections belong to the parent
            self._begin_unconnected()
        return self._own_group

    # ------------------------------------------------------------------ Gymnasium interface

    @property
    def reward_spec(self) -> RewardSpec | None:
        """The meaning of rewards, from the first `reset`; None if unknown."""
        return self._reward_spec

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
        task: EachTask | Sequence[EachTask] = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: A seed for each environment; a number gives the i-th environment ``seed + i``.
            options: Other arguments of the environments' `reset`, the same for all; and
                ``reset_mask``, a sequence of bool that selects the environments to reset.
            task: The task, as for `EnvClient.reset`: a `openenv.tasks.Task` or its id, for all
                environments; or a list with one per environment, None for no task. May be given as
                ``options["task"]`` instead. Episodes that `step` begins have no task.

        Returns:
            Observations and infos. An environment that was not reset keeps its last observation.

        Raises:
            ConnectError: No server answers.
            EnvironmentsFailed: Some environments could not be reset; `errors` lists them with the
                reasons.
            Refused: Another argument contradicts a task; no environment is reset.
            ValueError: The number of seeds or tasks differs from the number of environments, or
                `options` has a task too, or `reset_mask` does not fit.
        """
        given = dict(options or {})
        mask = given.pop("reset_mask", None)
        which = range(self.num_envs) if mask is None else self._masked(mask)
        seeds, tasks = self._seeds(seed), self._tasks(given.pop("task", None), task)
        requests = {
            i: Request("reset", _arguments_of_reset(given, seeds[i], tasks[i])) for i in which
        }
        answers = self._run(self._exchange(requests))
        try:
            return self._begun(which, answers.outcomes)
        except BaseException as error:
            self._keep(error, [answers])
            raise

    def _begun(
        self, which: Sequence[int], outcomes: dict[int, Outcome]
    ) -> tuple[Any, dict[str, Any]]:
        self._check(outcomes, "reset")
        columns = self._columns(which, outcomes, "reset")
        infos: list[dict[str, Any] | None] = [None] * self.num_envs
        needs_reset, observations = self._standing(which, columns)
        for i, info in zip(which, columns.infos, strict=True):
            needs_reset[i], infos[i] = False, info
        begun = self._batch(observations), gather_infos(infos, self.num_envs)
        self._needs_reset, self._observations = needs_reset, observations
        return begun

    def _masked(self, mask: Sequence[bool]) -> list[int]:
        which = [i for i, chosen in enumerate(mask) if chosen]
        if len(mask) != self.num_envs or not which:
            raise ValueError(
                f"reset_mask has {len(mask)} values of which {len(which)} are true, for "
                f"{self.num_envs} environments; there must be one for each, and one that is true"
            )
        return which

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        return seed

    def _tasks(self, of_options: Any, task: Any) -> Sequence[EachTask]:
        if of_options is not None:
            if task is not None:
                raise ValueError("options has a task, and there is task= too: give one of them")
            task = of_options
        if hasattr(task, "tolist"):  # a NumPy array
            task = task.tolist()
        if not isinstance(task, Sequence) or isinstance(task, str):
            return [task] * self.num_envs
        if len(task) != self.num_envs:
            raise ValueError(f"{len(task)} tasks for {self.num_envs} environments")
        return task

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment.

        If a signal interrupts the call (Ctrl-C), stepping again with the same actions returns the
        answers of the first call; no environment steps twice. The same holds for `reset`. A `recv`
        after an interrupted `recv` returns the same results.

        Args:
            actions: A sequence of actions (models, or dicts of their fields); or a dict of
                batches, one per field; or an array, if the action has one field.

        Returns:
            Observations, rewards, terminations, truncations and infos.

        Raises:
            ValueError: The number of actions differs from the number of environments.
            EnvironmentsFailed: Some environments raised, are lost, or missed the time limit.
                `errors` lists them with the reasons; `results` has the results of the others.
                Environments that missed the time limit are still stepping: give them the same
                actions with `send` and their `env_ids`, and `recv` returns their answers; or reset
                them. Any other action gives `SessionLost`. Under version 0 they must be reset.
        """
        requests = self._step_requests(range(self.num_envs), actions)
        resets: list[Answers] = []
        answers = self._run(self._exchange(requests))
        try:
            return self._transitions(range(self.num_envs), answers, resets)
        except BaseException as error:
            self._keep(error, [answers, *resets])
            raise

    def _step_requests(self, which: Sequence[int], actions: Any) -> dict[int, Request]:
        told = self._group.capabilities if codec.names_kinds(self._client) else ()
        payload_of = partial(self._payload, binary=self._group.version == 1, capabilities=told)
        payloads = rows_of(actions, len(which), payload_of)
        requests = {i: Request("step", payload) for i, payload in zip(which, payloads, strict=True)}
        if len(requests) < len(payloads):
            raise ValueError("env_ids names an environment twice")
        # With SAME_STEP only if the reset that belonged to the step has failed.
        if self.autoreset_mode is not AutoresetMode.DISABLED and True in self._needs_reset:
            resets = (i for i in which if self._needs_reset[i])
            requests |= {i: Request("reset") for i in resets}
        return requests

    def _payload(self, action: Any, *, binary: bool, capabilities: Collection[str]) -> Any:
        if _has_fields(type(action)):
            if self._has_own_payload:
                return self._hooks._step_payload(action)
            return codec.action_payload(
                action, self._client, binary=binary, capabilities=capabilities
            )
        return {self._only_field(): plain_value(action)}

    def _only_field(self) -> str:
        actions = codec.models(self._client)[0]
        fields = [name for name in getattr(actions, "model_fields", ()) if name != "metadata"]
        if len(fields) != 1:
            raise TypeError(
                f"an action of {self._client.__name__} has not just one field; give actions, dicts "
                "of their fields, or a dict of batches"
            )
        return str(fields[0])

    def render(self) -> tuple[Rendering, ...]:
        """Render every environment; see `EnvClient.render`.

        Raises:
            NotSupported: The server speaks protocol version 0, or is too old.
            EnvironmentsFailed: Some environments cannot render, failed to, or are lost. `errors`
                lists them with the reasons; `results` has the pictures of the others.
        """
        if self._group.is_open:  # without a connection, the missing episode is the error
            check_can_render(self._group.capabilities)
        requests = {i: Request("render") for i in range(self.num_envs)}
        outcomes = self._run(self._exchange(requests)).outcomes
        errors = _errors(outcomes, RenderReply)
        drawn = {i: outcomes[i].rendering for i in requests if i not in errors}
        if errors:
            raise EnvironmentsFailed(errors, drawn)
        return tuple(drawn.values())

    # ------------------------------------------------------------------ EnvPool interface

    def send(self, actions: Any, env_ids: Sequence[int] | np.ndarray | None = None) -> None:
        """Send actions to some environments without waiting; `recv` returns the results.

        Args:
            actions: The actions, one for each of `env_ids`; see `step`.
            env_ids: The environments; by default all. None of them may have an unanswered action.
        """
        which = list(range(self.num_envs) if env_ids is None else map(int, env_ids))
        self._run(self._group.submit(self._step_requests(which, actions)))

    def recv(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Wait for the first `batch_size` environments that answer.

        Returns:
            The values that `step` returns, for these environments only; ``infos["env_id"]`` lists
            them.

        Raises:
            RuntimeError: Fewer than `batch_size` environments have an action under way.
        """
        resets: list[Answers] = []
        answers = self._run(self._group.first(self.batch_size, self._timeout_s))
        try:
            which = list(answers.outcomes)
            return self._transitions(which, answers, resets, env_id=np.array(which))
        except BaseException as error:
            self._keep(error, resets, put_back=answers)
            raise

    # ------------------------------------------------------------------ results of a batch

    async def _exchange(self, requests: dict[int, Request]) -> Answers:
        await self._group.submit(requests)
        return await self._group.answers(list(requests), self._timeout_s)

    def _transitions(
        self,
        which: Sequence[int],
        answers: Answers,
        resets: list[Answers],
        **infos: Any,
    ) -> Batch:
        outcomes = answers.outcomes
        self._check(outcomes)
        columns = self._columns(which, outcomes)
        done, truncated = (
            np.array(columns.done, dtype=bool),
            np.array(columns.truncated, dtype=bool),
        )
        rewards = np.array(columns.rewards, dtype=float)  # None is NaN
        if any(was_reset := [answers.sent[i].request.type == "reset" for i in which]):
            rewards[was_reset] = 0.0
        is_same_step = self.autoreset_mode is AutoresetMode.SAME_STEP and any(columns.done)
        errors = self._reset_now(which, columns, resets) if is_same_step else {}
        standing = self._standing(which, columns)
        if errors:
            failure = EnvironmentsFailed(errors, columns.results(which, errors))
            self._needs_reset, self._observations = standing
            raise failure
        batch = Batch(
            self._batch(columns.observations),
            rewards,
            done & ~truncated,
            truncated,
            {**gather_infos(columns.infos, len(which)), **infos},
        )
        self._needs_reset, self._observations = standing
        return batch

    def _standing(self, which: Sequence[int], columns: _Columns) -> tuple[list[bool], list[Any]]:
        """Return which environments need a reset after a step, and the last observations."""
        needs_reset, observations = list(self._needs_reset), list(self._observations)
        for i, is_over, seen in zip(which, columns.done, columns.observations, strict=True):
            needs_reset[i], observations[i] = is_over, seen
        return needs_reset, observations

    def _keep(
        self, error: BaseException, exchanges: list[Answers], put_back: Answers | None = None
    ) -> None:
        """Keep answers that the caller does not get, unless `error` reports them.

        Args:
            error: The error that the caller gets.
            exchanges: Answers for a caller that repeats the call.
            put_back: Answers for the next `recv`.
        """
        if isinstance(error, OpenEnvError):
            return
        group, loop = self._group, background.background_loop()

        def keep() -> None:
            for answers in exchanges:
                answers.give_back()
            if put_back is not None:
                group.put_back(put_back)

        # In the next tick: by then a call that is being canceled has noted what it gave up.
        loop.call_soon_threadsafe(loop.call_soon, keep)

    def _reset_now(
        self, which: Sequence[int], columns: _Columns, resets: list[Answers]
    ) -> dict[int, OpenEnvError]:
        """Reset the environments that are done, and add the answers to `resets`.

        Returns:
            The errors of the environments that could not be reset.
        """
        places = {which[place]: place for place, is_over in enumerate(columns.done) if is_over}
        requests = {i: Request("reset") for i in places}
        answers = self._run(self._exchange(requests))
        resets.append(answers)
        outcomes = answers.outcomes
        errors = _errors(outcomes)
        over = [i for i in places if i not in errors]
        fresh = self._columns(over, outcomes, "reset")
        for i, observation, info in zip(over, fresh.observations, fresh.infos, strict=True):
            place = places[i]
            final = {
                "final_obs": columns.observations[place],
                "final_info": columns.infos[place] or {},
            }
            columns.observations[place] = observation
            columns.infos[place] = {**(info or {}), **final}
            columns.done[place] = False
        return errors

    def _columns(
        self, which: Sequence[int], outcomes: dict[int, Any], method: str = "step"
    ) -> _Columns:
        payloads = [outcomes[i].payload for i in which]
        count = len(payloads)
        if self._is_plain and not any(p.get("metadata") for p in payloads):
            return _Columns(
                [p.get("observation") for p in payloads],
                [p.get("reward") for p in payloads],
                [bool(p.get("done")) for p in payloads],
                [False] * count,
                [None] * count,
            )
        results = [self._result(payload, method) for payload in payloads]
        observations = [r.observation for r in results]
        if self._stacks:
            observations = [_fields(o) if isinstance(o, BaseModel) else o for o in observations]
        return _Columns(
            observations,
            [r.reward for r in results],
            [r.done for r in results],
            [r.truncated for r in results],
            [info_of(r) for r in results],
        )

    def _result(self, payload: dict[str, Any], method: str) -> StepResult[Any]:
        if self._is_plain:
            result: StepResult[Any] = StepResult(
                payload.get("observation"), payload.get("reward"), bool(payload.get("done"))
            )
        else:
            result = self._hooks._parse_result(payload)
        result = codec.complete(result, payload, method)
        if method == "reset" and self._reward_spec is None:
            self._reward_spec = codec.reward_spec(result)
        return result

    def _batch(self, observations: Sequence[Any]) -> Any:
        if not self._stacks:
            return list(observations)
        return stack_observations(observations)

    def _check(self, outcomes: dict[int, Outcome], method: str = "step") -> None:
        """Raise the errors, if any, and record the results of the other environments."""
        errors = _errors(outcomes)
        if not errors:
            return
        which = [i for i in outcomes if i not in errors]
        columns = self._columns(which, outcomes, method)
        standing = self._standing(which, columns)
        failure = EnvironmentsFailed(errors, columns.results(which))
        # Together with the error: if a signal handler raises another error, nothing is recorded.
        self._needs_reset, self._observations = standing
        raise failure

    # ------------------------------------------------------------------ closing

    @background.interruptible
    def _run(self, coroutine: Any) -> Any:
        if self.closed:
            coroutine.close()
            raise SessionLost("this VectorEnv is closed")
        return background.run(coroutine)

    def close(self) -> None:
        """Close every session, and stop a provider's server. Safe to repeat."""
        if self.closed:
            return
        try:
            self._run(self._group.close())
        finally:
            self.closed = True
            self._abandonment.detach()
            if self._endpoint.launch is not None:
                background.run(self._endpoint.launch.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Columns(NamedTuple):
    observations: list[Any]
    rewards: list[float | None]
    done: list[bool]
    truncated: list[bool]
    infos: list[dict[str, Any] | None]

    def results(
        self, which: Sequence[int], but_not: Container[int] = ()
    ) -> dict[int, StepResult[Any]]:
        """Return the results by the environments' numbers, without those of `but_not`."""
        return {
            i: StepResult(
                observation, reward, done, info, truncated, info, (info or {}).get(REWARD_INFO)
            )
            for i, observation, reward, done, truncated, info in zip(which, *self, strict=True)
            if i not in but_not
        }


class _VectorEndpoint:
    """The server of a `VectorEnv`, for all sessions, and the launch of the server, if any."""

    def __init__(
        self,
        base_url: str | None,
        provider: Provider | None,
        options: WebSocketOptions,
        queue_timeout_s: float,
        on_queue: Callable[[int, Queued], None] | None,
        *,
        is_recorded: bool,
    ) -> None:
        self._base_url = base_url
        self._options = options
        self._on_queue = on_queue
        self._has_warned = False
        self.opening: dict[str, Any] = {
            "queue_timeout_s": queue_timeout_s,
            "max_message_bytes": options.max_message_bytes,
        }
        if is_recorded:
            self.opening["record"] = True
        self.make_transport: Callable[[], Transport] = self._websocket
        self.launch: Launch | None = None
        if provider is not None:
            from openenv.client.launch import Launch

            self.launch = Launch(provider, base_url)

    def _websocket(self) -> Transport:
        assert self._base_url is not None
        return WebSocketTransport(websocket_url(self._base_url), self._options)

    async def endpoints(self, sessions: int, connections: int) -> list[tuple[ServerEndpoint, int]]:
        share = -(-sessions // connections)
        return [(self, min(share, sessions - i)) for i in range(0, sessions, share)]

    async def leave(self) -> None:
        """Do nothing: the server keeps running."""

    async def connect(self) -> Transport:
        if self.launch is not None:
            await self.launch.start()
            self._base_url = self.launch.base_url
        return await connect_transport(self.open_transport())

    def open_transport(self) -> Transport:
        return self.make_transport()

    async def why_gone(self) -> str | None:
        return None if self.launch is None else await self.launch.why_gone()

    async def has_another(self) -> bool:
        return self.launch is not None and await self.launch.has_another()

    def note_queue(self, index: int, queued: Queued) -> None:
        if self._on_queue is not None:
            self._on_queue(index, queued)
        elif not self._has_warned:
            self._has_warned = True
            warn_of_queue(queued, self.opening["queue_timeout_s"])


def _abandon(group: SessionGroup, endpoint: _VectorEndpoint, process: int) -> None:
    """Close the sessions of a dropped `VectorEnv`, from any thread."""
    if process != os.getpid() or not group.is_open:
        return

    async def close() -> None:
        await group.close()
        if endpoint.launch is not None:
            await endpoint.launch.stop()

    background.submit(close())
    message = "a VectorEnv was never closed; use `with`, or call close()"
    warnings.warn(message, ResourceWarning, stacklevel=2)


def _errors(
    outcomes: Mapping[int, Any], expected: type = ObservationReply
) -> dict[int, OpenEnvError]:
    return {
        i: outcome
        if isinstance(outcome, OpenEnvError)
        else ProtocolError(f"the server answered with {type(outcome).__name__}")
        for i, outcome in outcomes.items()
        if type(outcome) is not expected
    }


@once_per_class
def _has_fields(kind: type) -> bool:
    """Return whether actions of this type are models, or mappings of an action's fields."""
    return issubclass(kind, BaseModel | Mapping)


def _fields(observation: BaseModel) -> dict[str, Any]:
    """Return the fields of an observation, without reward, done and truncated."""
    beside = outer_fields(type(observation)) if isinstance(observation, Observation) else ()
    return {name: value for name, value in observation if name not in beside}


def _arguments_of_reset(
    options: Mapping[str, Any], seed: int | None, task: EachTask
) -> dict[str, Any]:
    arguments = dict(options) if seed is None else {**options, "seed": seed}
    if task is None:
        return arguments
    from openenv.client.tasks import with_task

    return with_task({**arguments, "task": task})
