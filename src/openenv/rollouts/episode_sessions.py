"""Episodes for loops that others own: a trainer's, an evaluator's, an agent's.

`openenv.rollout` runs the loop of an episode itself. Most trainers run their own loop: they begin
an episode, pass on the tool calls of their model, and request the reward at the end.

    sessions = await EpisodeSessions.of("blackjack")
    session = await sessions.take()
    await session.reset(seed=3)
    answer = await session.call("blackjack", {"action": "hit"})
    print(answer.text, session.score().value)

When a session fails, the episode is gone: unscored, and never continued in another session.
The next reset opens a new session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from openenv.client.client import EnvClient
from openenv.errors import CapacityError, ErrorCode, OpenEnvError, refusal, words
from openenv.reward import Score
from openenv.rewards.credit import terminal
from openenv.rollouts.beginnings import Beginnings, digest_of
from openenv.rollouts.endings import NO_REWARD, lowest_reward, with_cost
from openenv.rollouts.engine import LiveEpisode, ignorable_arguments, reset_arguments
from openenv.rollouts.failures import retry_delay_s
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.meter import Meter
from openenv.rollouts.policies.conversations import NOT_DONE, prompt_messages
from openenv.rollouts.policies.views import (
    ObservationView,
    look_at,
    unknown_fields_error,
    view,
    visible_fields,
)
from openenv.rollouts.replies import ParsedReply, describe_unknown_tool, read_reply
from openenv.rollouts.sessions import Sessions, sessions_of
from openenv.tasks.task import Task
from openenv.types import StepResult

__all__ = [
    "OVER",
    "ActionOutcome",
    "NoActiveEpisode",
    "EpisodeSession",
    "EpisodeSessions",
    "EpisodeStart",
    "Unfinished",
]

Client = EnvClient[Any, Any, Any]

Unfinished = float | Literal["earned", "known"] | None
"""The reward of an episode that did not come to its end:

- ``earned``: the reward so far, plus the declared cost of giving up (`RewardSpec.unfinished`). If
  there is no reward so far: the lowest reward that the environment declares, at most 0, so that
  giving up pays no more than losing. If no range is declared, the episode is unscored, since 0 may
  be more than losing pays.
- ``known``: the reward so far; the episode is unscored if there is none.
- a number: this reward, instead of the reward so far.
- None: the episode is unscored, and a trainer leaves it out.
"""

OVER = "the episode is over"
NOT_OVER = "it ended before the episode was over, and had no reward by then"
NO_RANGE = (
    f"{NOT_OVER}; what that is worth is not known, since the environment declares no range of "
    "rewards: declare one (REWARD = RewardSpec(kind, range=(low, high))), or say what an "
    "unfinished episode is worth (unfinished=-1.0, say)"
)
NOT_FINISHED = "it ended before the episode was over"

CURE = (
    "Each rollout that is in flight needs a session of its own: give the server as many "
    "(MAX_CONCURRENT_ENVS, or max_concurrent_envs of create_app; the environment's class has to "
    "declare SUPPORTS_CONCURRENT_SESSIONS = True), use an EnvPool of that size, or play fewer "
    "rollouts at once"
)
PATIENCE_S = 1.0  # a full server that answers later than this has a queue and waited in it


class NoActiveEpisode(OpenEnvError, RuntimeError):
    """No episode is running: none was begun, or the last one has broken off."""


@dataclass(frozen=True)
class ActionOutcome:
    """The outcome of an action, or of the actions of a reply.

    Attributes:
        text: The text that the agent is shown.
        result: The result of the step, of the last one if there were several; None if no action was
            carried out.
        is_over: True if the episode is over.
        texts: The text for each call of a reply; `text` joins them.
        pictures: The pictures that the agent is shown, as in `ObservationView`; empty unless the
            sessions show pictures.
    """

    text: str
    result: StepResult[Any] | None
    is_over: bool
    texts: tuple[str, ...] = ()
    pictures: tuple[dict[str, Any], ...] = ()

    @property
    def is_refused(self) -> bool:
        """True if no action was carried out; the episode is unchanged."""
        return self.result is None


@dataclass(frozen=True)
class EpisodeStart:
    """The messages and reset arguments with which an episode begins.

    Attributes:
        messages: Messages to the model that precede the first observation.
        arguments: Arguments of the environment's reset.
        may_ignore: Arguments that the environment may ignore, in addition to the seed.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    may_ignore: frozenset[str] = frozenset()

    @classmethod
    def of_task(
        cls, task: Task | None, *, messages: Sequence[Mapping[str, Any]] = (), **arguments: Any
    ) -> EpisodeStart:
        """Return the start of a task's episode.

        Args:
            task: The task. Its prompt follows `messages`, and its reset arguments take precedence.
            messages: Messages to the model before the task.
            arguments: Further arguments of the reset; those that are None are left out.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        if task is None:
            return cls(messages, given)
        return cls(
            [*messages, *prompt_messages(task.prompt)],
            {**given, **reset_arguments(task, is_scored_there=True)},
            frozenset(ignorable_arguments(task)),
        )

    @property
    def task(self) -> str:
        """The arguments of the reset as JSON, a key that identifies the start."""
        return json.dumps(self.arguments, sort_keys=True, default=repr)


class EpisodeSessions:
    """Sessions in one environment, created by `of`.

    Attributes:
        name: The environment's name.
        interface: The environment's tools, and the fields that agents may see.
        meter: The counts of all sessions together.
        shows: The fields of observations that the agent is shown; None for all.
        shows_pictures: True if pictures are shown too. If False, an observation with a picture is
            an error.
        beginnings: The first observations of episodes with a seed, which are compared.
    """

    def __init__(
        self,
        source: Sessions,
        interface: Interface,
        retries: int,
        meter: Meter,
        shows: Sequence[str] | None = None,
        *,
        shows_pictures: bool = False,
        equal_beginnings: bool = False,
    ) -> None:
        self.name = source.name
        self.beginnings = Beginnings(source.name, is_on=equal_beginnings)
        self.shows = shows
        self.shows_pictures = shows_pictures
        self.interface = interface
        self.meter = meter
        self._source = source
        self._retries = retries
        self._taken: set[EpisodeSession] = set()
        self._is_closed = False

    @classmethod
    async def of(
        cls,
        environment: Any,
        *,
        retries: int = 2,
        meter: Meter | None = None,
        shows: Sequence[str] | None = None,
        shows_pictures: bool = False,
        equal_beginnings: bool = False,
    ) -> EpisodeSessions:
        """Look up the interface of an environment; sessions live on the running event loop.

        Args:
            environment: The environment, as for `openenv.rollout`: an address, the name of an
                installed environment or another target of `openenv serve`, an environment class, a
                client or a function that makes one, an ASGI application, or an `EnvPool`.
            retries: Further attempts at a reset after a passing failure, each in a new session.
            meter: The meter that counts. Default: a new meter.
            shows: The fields of observations that the agent is shown, in this order: for example a
                board's text without its numbers. Default: all public fields.
            shows_pictures: Pass pictures on, as `ActionOutcome.pictures`. If False, an observation
                with a picture raises `NotSupported`, since text cannot show it.
            equal_beginnings: Raise `UnequalBeginnings` if two episodes that were reset with the
                same arguments, including a seed, begin differently.

        Raises:
            NotSupported: The environment does not describe its actions.
            OpenEnvError: The environment cannot be reached.
            TypeError: `environment` is not an environment, or `shows` is a string.
            ValueError: `shows` names a field that observations do not have.
        """
        if isinstance(shows, str):
            raise TypeError(f"shows={shows!r}; expected a list of names, as [{shows!r}]")
        source = await sessions_of(environment, lambda _: None)
        try:
            interface = await source.look_up_interface()
            if shows is not None and interface.visible is not None:
                known = visible_fields(dict.fromkeys(interface.visible), None)
                if not shows or not set(shows) <= known.keys():
                    raise unknown_fields_error(shows, known)
        except BaseException:
            await source.aclose()
            raise
        return cls(
            source,
            interface,
            retries,
            meter or Meter(),
            shows,
            shows_pictures=shows_pictures,
            equal_beginnings=equal_beginnings,
        )

    async def take(self) -> EpisodeSession:
        """Return a new session; the first reset opens it.

        Raises:
            NoActiveEpisode: The sessions are closed.
        """
        if self._is_closed:
            raise NoActiveEpisode(f"the sessions in {self.name} are closed")
        session = EpisodeSession(self)
        self._taken.add(session)
        return session

    def check_room(self, wanted: int) -> None:
        """Raise an error if the server has reported fewer sessions than are wanted.

        Args:
            wanted: Number of episodes at the same time.

        Raises:
            CapacityError: The server holds fewer sessions. Servers that do not report pass.
        """
        room = self._source.room
        if room is not None and wanted > room:
            raise CapacityError(
                f"{wanted} rollouts are to be played at the same time, and {self.name} holds "
                f"{room} session{'' if room == 1 else 's'}. {CURE}",
                ErrorCode.CAPACITY_REACHED,
            )

    async def aclose(self) -> None:
        """Close every session, and everything that was started for the sessions."""
        self._is_closed = True
        for session in list(self._taken):
            await session.close()
        await self._source.aclose()


class EpisodeSession:
    """A session in which one episode at a time is played; replaced when an episode fails.

    Calls are carried out one at a time, in the order in which they are made.

    Attributes:
        failure: Reason why the episode could not begin or broke off; None if neither.
        interface: The environment's tools, and the fields that agents may see.
    """

    def __init__(self, sessions: EpisodeSessions) -> None:
        self.failure: str | None = None
        self.interface = sessions.interface
        self._sessions = sessions
        self._source = sessions._source
        self._client: Client | None = None
        self._episode: LiveEpisode | None = None
        self._turn = asyncio.Lock()

    @property
    def last(self) -> StepResult[Any] | None:
        """The environment's latest result; None if no episode was begun."""
        return None if self._episode is None else self._episode.last

    @property
    def is_over(self) -> bool:
        """True once the environment has ended the episode."""
        return self._episode is not None and self._episode.is_over

    @property
    def steps(self) -> int:
        """Number of steps of the episode."""
        return 0 if self._episode is None else len(self._episode.results)

    async def reset(
        self, *, may_ignore: frozenset[str] = frozenset(), **arguments: Any
    ) -> StepResult[Any]:
        """Begin an episode; an earlier episode is abandoned.

        Args:
            may_ignore: Arguments that the environment may ignore, in addition to the seed.
            arguments: Arguments of the environment's reset.

        Raises:
            CapacityError: The server has no room for the episode.
            OpenEnvError: The episode could not begin, even after retries.
            TaskNotTaken: The environment has ignored an argument.
            UnequalBeginnings: An earlier episode with the same arguments has begun differently.
        """
        async with self._turn:
            self._episode = self.failure = None
            try:
                episode, first = await self._begun(arguments)
                episode.check_arguments(may_ignore | {"seed"}, "this episode")
                beginnings = self._sessions.beginnings
                if beginnings.is_on and arguments.get("seed") is not None:
                    seen = self.look_at(first)
                    pictures = "".join(one["data"] for one in seen.pictures)
                    beginnings.saw(digest_of(arguments), seen.text + pictures)
            except Exception as error:
                await self._fail("the episode could not begin", error)
                raise
            except BaseException:
                await self._leave()
                raise
            self._sessions.meter.count(episodes=1)
            self._episode = episode
            return first

    async def begin(self, start: EpisodeStart) -> str:
        """Begin an episode; return the first observation as text. See `reset` for errors."""
        first = await self.reset(may_ignore=start.may_ignore, **start.arguments)
        return self.seen(first)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ActionOutcome:
        """Act by calling a tool.

        If the environment refuses the action, the outcome is refused and its text says why.

        Raises:
            NoActiveEpisode: No episode is under way.
            OpenEnvError: The environment has failed, and the episode is lost.
        """
        tool = self.interface.tool(name)
        if tool is None:
            return self._refused(describe_unknown_tool(name, self.interface))
        return await self.act(tool.action(arguments))

    async def reply(self, text: str) -> ActionOutcome:
        """Act by a model's text; see `openenv.rollouts.replies`, and `call` for errors.

        If the reply has no readable action, the outcome is refused and its text says why.
        """
        return await self.act_by(read_reply(text, self.interface))

    async def act_by(self, reply: ParsedReply) -> ActionOutcome:
        """Carry out the calls of a reply, in order; see `call` for errors.

        Calls after a refused one, and calls after the end of the episode, are not carried out.
        """
        texts: list[str] = []
        result: StepResult[Any] | None = None
        pictures: tuple[dict[str, Any], ...] = ()
        stopped: str | None = None
        for call in reply.calls:
            if stopped is not None:
                texts.append(f"Error: {stopped}")
                continue
            answer = await self.call(call.name, call.arguments)
            texts.append(answer.text)
            result = answer.result or result
            pictures += answer.pictures
            if answer.is_refused:
                stopped = NOT_DONE
            elif answer.is_over:
                stopped = OVER
        told = list(texts)
        if stopped is None and reply.problem is not None:
            told.append(self._refused(reply.problem).text)
        return ActionOutcome("\n\n".join(told), result, self.is_over, tuple(texts), pictures)

    async def act(self, action: Any) -> ActionOutcome:
        """Act by an action, or by a mapping of its fields; see `call` for errors."""
        async with self._turn:
            episode = self._playing()
            if episode.is_over:
                return ActionOutcome(f"Error: {OVER}", None, True)
            try:
                with self._sessions.meter.waiting():
                    result = await episode.step(action)
            except Exception as error:
                said = refusal(error)
                if said is not None:
                    return self._refused(said)
                await self._fail("the episode broke off", error)
                raise
            except BaseException:  # whether the step was carried out is unknown
                self.failure = "the episode was broken off"
                await self._leave()
                raise
            self._sessions.meter.count(steps=1)
            seen = self.look_at(result)
            return ActionOutcome(seen.text, result, result.done, pictures=seen.pictures)

    async def state(self) -> Any:
        """Return the environment's state.

        Raises:
            NoActiveEpisode: No episode is under way.
            OpenEnvError: The environment cannot return its state.
        """
        async with self._turn:
            return await self._playing().client.state()

    def seen(self, result: StepResult[Any]) -> str:
        """Return the text of a result that the agent is shown."""
        return self.look_at(result).text

    def look_at(self, result: StepResult[Any]) -> ObservationView:
        """Return a result as the agent sees it.

        Raises:
            NotSupported: The result has a picture, and these sessions do not show pictures.
        """
        visible = self.interface.visible
        if self._sessions.shows_pictures:
            seen = look_at(result.observation, visible, self._sessions.shows)
        else:
            seen = ObservationView(view(result.observation, visible, self._sessions.shows))
        is_first = self._episode is None or result is self._episode.first
        if result.done and not is_first:
            return ObservationView(f"{seen.text}\n({OVER})", seen.pictures)
        return seen

    def score(self, unfinished: Unfinished = "known") -> Score:
        """Return the current score of the episode.

        Args:
            unfinished: Reward of an unfinished episode; see `Unfinished`.

        Raises:
            NoActiveEpisode: No episode was begun.
        """
        if self.failure is not None:
            return Score(unscored=self.failure)
        episode = self._playing()
        if not episode.is_over and unfinished is None:
            return Score(unscored=NOT_FINISHED)
        if not episode.is_over and isinstance(unfinished, int | float):
            return Score(float(unfinished))
        score = episode.score(terminal)
        if score.value is not None or score.unscored:
            if unfinished != "earned" or episode.is_over or episode.spec is None:
                return score
            return with_cost(score, episode.spec.unfinished)
        if episode.is_over:
            return Score(unscored=NO_REWARD)
        if unfinished != "earned":
            return Score(unscored=NOT_OVER)
        worst = lowest_reward(episode.spec)
        return Score(unscored=NO_RANGE) if worst is None else Score(worst)

    async def close(self) -> None:
        """Return the session to the environment."""
        self._sessions._taken.discard(self)
        await self._leave()

    # ------------------------------------------------------------------ the session

    async def _begun(self, arguments: Mapping[str, Any]) -> tuple[LiveEpisode, StepResult[Any]]:
        attempts = 0
        while True:
            began = time.monotonic()
            try:
                with self._sessions.meter.waiting():
                    if self._client is None:
                        self._client = await self._source.open()
                        self._sessions.meter.count(sessions=1)
                    episode = LiveEpisode(self._client)
                    return episode, await episode.reset(arguments)
            except Exception as error:
                await self._leave()
                attempts += 1
                delay_s = retry_delay_s(error, attempts, self._sessions._retries)
                # Do not wait again after the server's queue has already kept this call waiting.
                was_kept_waiting = time.monotonic() - began > PATIENCE_S
                if isinstance(error, CapacityError) and (was_kept_waiting or delay_s is None):
                    why = f"{error.message}. {CURE}"
                    raise CapacityError(why, error.code, error.data) from error.__cause__
                if delay_s is None:
                    raise
            self._sessions.meter.count(retries=1)
            await asyncio.sleep(delay_s)

    async def _fail(self, what: str, error: Exception) -> None:
        self.failure = f"{what}: {type(error).__name__}: {words(error)}"
        self._sessions.meter.count(failures=1)
        await self._leave()

    async def _leave(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(OpenEnvError, OSError):
                await self._source.close(client)

    def _playing(self) -> LiveEpisode:
        if self.failure is not None:
            raise NoActiveEpisode(f"there is no episode: {self.failure}; reset begins another one")
        if self._episode is None or self._client is None:
            raise NoActiveEpisode(
                f"no episode of {self._sessions.name} was begun: call reset first"
            )
        return self._episode

    def _refused(self, why: str) -> ActionOutcome:
        self._playing()
        self._sessions.meter.count(refusals=1)
        return ActionOutcome(f"Error: {why}", None, self.is_over)
