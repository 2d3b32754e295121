"""Replays of recordings, compared with what was recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from openenv._internal.quoting import quoted
from openenv._internal.targets import TargetKind, parse_target
from openenv.client import background
from openenv.client.generic import GenericEnvClient
from openenv.client.internals import internals
from openenv.environment import Environment
from openenv.errors import ProtocolError, RecordingError, ServerError, SessionLost, StepTimeout
from openenv.execution.recording import schema_digest
from openenv.hub.discovery import get_discovery
from openenv.protocol.messages import ObservationReply, Request, StateReply
from openenv.protocol.records import StepOutcome, json_value
from openenv.protocol.snapshots import ANSWERS
from openenv.rollouts.replays.differences import ValueDifference, first_difference
from openenv.rollouts.replays.reading import (
    RecordedEpisode,
    RecordedEvent,
    RecordingHeader,
    read,
    read_header,
)
from openenv.server.loading import TargetError, load_recorded, load_target
from openenv.server.workers import managers_of
from openenv.settings import trusts_remote_code

# After these errors, what the environment has done is unknown.
GIVEN_UP = frozenset({"CancelledError", "StepTimeout"})


@dataclass(frozen=True)
class Divergence:
    """The first difference of a replay from the recording.

    Attributes:
        step: The number of the step; 0 is the reset.
        path: JSON path of the difference in the event: ``$.observation.hand[0]``.
        expected: The recorded value.
        got: The value of the replay.
    """

    episode: int
    step: int
    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return (
            f"episode {self.episode}, step {self.step}: {self.path} was {self.expected!r:.200} "
            f"and is {self.got!r:.200}"
        )


@dataclass(frozen=True)
class ReplayReport:
    """The result of a replay.

    Attributes:
        episodes: Number of episodes that were replayed, at least in part.
        events: Number of events that were replayed.
        skipped: Number of episodes that were not replayed, or only in part: their beginning or
            later events are missing, or a call was given up when recorded, or exceeds its
            `timeout_s` now.
        unseeded: Number of replayed episodes whose reset had no seed.
        divergence: The first difference; None if there was none.
        is_other_schema: True if the models differ from the recording's; None if unknown.
    """

    episodes: int
    events: int
    skipped: int
    unseeded: int
    divergence: Divergence | None
    is_other_schema: bool | None = None

    @property
    def is_same(self) -> bool:
        """True if everything that was replayed came out the same."""
        return self.divergence is None


def replay(
    path: str | os.PathLike[str],
    environment: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    url: str | None = None,
    episode: int | None = None,
    tolerance: float = 0.0,
    progress: Callable[[int], None] | None = None,
    trust_recorded: bool = False,
) -> ReplayReport:
    """Replay a recording up to the first difference.

    Observations, rewards, terminated, truncated, the codes of errors, and the state after a restore
    are compared; metadata, info and timing are not. The environment is that of the recording's
    header, in this process, unless another one is given.

    A recording is data, and may come from anybody. By default, only environments of installed
    packages are imported; `trust_recorded` imports any package that the recording names.

    Args:
        path: The recording.
        environment: An environment class or factory, or an ASGI application, in this process.
        target: The name of an environment to load in this process (see `openenv.server.loading`),
            or ``docker://IMAGE``, which runs only during the replay.
        url: The address of a server.
        episode: The number of the only episode to play. Default: all.
        tolerance: Allowed difference of numbers, absolute or relative to the larger one.
        progress: Called after each event with the number of events played.
        trust_recorded: Import any environment that the recording names. Also enabled by
            OPENENV_TRUST_REMOTE_CODE.

    Raises:
        ValueError: More than one environment was given, or the tolerance is negative.
        RecordingError: The file is not a recording, or has no such episode.
        TargetError: The target cannot be served, or the recording names none.
        UntrustedTarget: The recording names an environment that is neither installed nor trusted.
        OpenEnvError: The environment could not be created or reached.
    """
    given = [one for one in (environment, target, url) if one is not None]
    if len(given) > 1:
        raise ValueError("give one of environment, target and url")
    if not tolerance >= 0:
        raise ValueError(f"tolerance={tolerance}; it cannot be negative")
    header = read_header(path)
    loaded = None
    image = None
    if target is not None:
        parsed = parse_target(target)
        image = parsed.name if parsed.kind is TargetKind.IMAGE else None
        loaded = None if image is not None else load_target(target)
    elif not given:
        if header.target is None:
            raise TargetError(f"{path} does not say which environment it was made with")
        if not (trust_recorded or trusts_remote_code() or _is_known(header.target)):
            raise UntrustedTarget(os.fspath(path), header.target)
        loaded = load_recorded(header.target)
    is_other = None if loaded is None else _prepare(loaded, header)
    if image is not None:
        client = GenericEnvClient.from_docker_image(image)
    elif (source := loaded or environment) is not None:
        client = GenericEnvClient.local(source)
    else:
        client = GenericEnvClient(base_url=url)
    replaying = _Replay(client, tolerance, progress or (lambda events: None))
    chosen = (one for one in read(path) if episode is None or one.number == episode)
    report = background.run(replaying.run(chosen, is_other))
    if episode is not None and not report.episodes + report.skipped:
        raise RecordingError(os.fspath(path), None, f"it has no episode {episode}")
    return report


class UntrustedTarget(TargetError):
    """A recording names an environment whose code may not be imported without consent."""

    def __init__(self, path: str, target: str) -> None:
        self.target = target
        super().__init__(
            f"{path} names {quoted(target)!r}, which is no environment that is installed here; its "
            "code would run on this machine"
        )


def _is_known(target: str) -> bool:
    """Return whether a target is in an installed environment package, or is an environment class
    that this process has already imported.

    This function imports nothing itself.
    """
    module, colon, attribute = target.partition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    if isinstance(found, type) and issubclass(found, Environment):
        return True
    packages = {info.module for info in get_discovery().discover().values()}
    if not colon:
        return module in packages
    parts = module.split(".")
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return attribute.isidentifier() and not packages.isdisjoint(above)


def _prepare(app: Any, header: RecordingHeader) -> bool | None:
    """Stop an application from recording the replay; return whether the models differ."""
    managers = managers_of(app)
    for manager in managers:
        manager.record_to(None)
    if not managers or header.schema is None:
        return None
    return schema_digest(managers[0].spec) != header.schema


class _CannotReplay(Exception):
    """The rest of an episode cannot be replayed."""


class _Replay:
    def __init__(
        self,
        client: GenericEnvClient,
        tolerance: float,
        progress: Callable[[int], None],
    ) -> None:
        self._client = client
        self._tolerance = tolerance
        self._progress = progress
        self._events = 0

    async def run(self, episodes: Iterator[RecordedEpisode], is_other: bool | None) -> ReplayReport:
        played = skipped = unseeded = 0
        divergence = None
        async with self._client:
            for episode in episodes:
                if not episode.has_beginning:
                    skipped += 1
                    continue
                played += 1
                unseeded += episode.events[0].kind == "reset" and episode.seed is None
                is_whole = not episode.lost
                try:
                    divergence = await self._play(episode)
                except _CannotReplay:
                    is_whole = False
                if divergence is not None:
                    break
                skipped += not is_whole
        return ReplayReport(played, self._events, skipped, unseeded, divergence, is_other)

    async def _play(self, episode: RecordedEpisode) -> Divergence | None:
        for event in episode.events:
            found = await self._difference(event)
            self._events += 1
            self._progress(self._events)
            if found is not None:
                return Divergence(episode.number, event.step, *found)
        return None

    async def _difference(self, event: RecordedEvent) -> ValueDifference | None:
        expected = event.error
        if event.unrecorded is not None or (expected and expected.type in GIVEN_UP):
            raise _CannotReplay
        try:
            reply = await internals(self._client).request(_request(event))
        except StepTimeout:  # the duration of steps is not compared
            raise _CannotReplay from None
        except ServerError as error:
            return _of_errors(event, error)
        except SessionLost:
            if expected is not None:  # the session failed for good, as in the recording
                raise _CannotReplay from None
            raise
        if expected is not None:
            return ValueDifference("$.error", {"code": expected.code}, None)
        if event.kind == "restore" and isinstance(reply, StateReply):
            state = {"state": event.state}, {"state": json_value(reply.state)}
            return first_difference(*state, self._tolerance)
        if not isinstance(reply, ObservationReply):
            raise ProtocolError(f"the server answered {event.kind} with {type(reply).__name__}")
        return first_difference(_recorded(event), _seen(reply.payload), self._tolerance)


def _request(event: RecordedEvent) -> Request:
    if event.kind == "step":
        return Request("step", event.action or {}, event.arguments)
    if event.kind == "restore":
        return Request("restore", {"snapshot": event.snapshot})
    seed = {} if event.seed is None else {"seed": event.seed}
    return Request("reset", {**event.arguments, **seed})


def _of_errors(event: RecordedEvent, error: ServerError) -> ValueDifference | None:
    expected = event.error
    if expected is not None and expected.code == error.code:
        return None
    if expected is None and error.code not in ANSWERS:
        raise error  # the error says nothing about the environment
    recorded = None if expected is None else {"code": expected.code}
    return ValueDifference("$.error", recorded, {"code": error.code, "message": error.message})


def _recorded(event: RecordedEvent) -> dict[str, Any]:
    observation = event.observation
    if isinstance(observation, dict):
        observation = {name: v for name, v in observation.items() if name != "metadata"}
    return _members(observation, event.reward, event.terminated, event.truncated)


def _seen(payload: dict[str, Any]) -> Any:
    seen = StepOutcome.of(payload)
    terminated = seen.done and not seen.truncated
    return json_value(_members(seen.observation, seen.reward, terminated, seen.truncated))


def _members(observation: Any, reward: Any, terminated: bool, truncated: bool) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
    }
