"""Collecting at the semantic level: the oracle's episodes, idleness, canaries and hacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from openenv.client.background import run as run_async
from openenv.client.generic import GenericEnvClient
from openenv.errors import OpenEnvError
from openenv.validation.actions import Action, ActionSpace
from openenv.validation.collector import Budget, RawSession, fetch, play
from openenv.validation.evidence import Exchange, Transcript, string_leaves
from openenv.validation.judging import Unseen
from openenv.validation.load import cpu_seconds, resident_bytes
from openenv.validation.manifest import NetworkPolicy
from openenv.validation.oracle import Episode, Oracle, OracleError, read_episodes, read_oracle
from openenv.validation.probes import Policy, View, hacking_probes, scripted
from openenv.validation.providers import (
    LaunchSpec,
    RunningSubject,
    SubjectError,
    UnmetRequirement,
)
from openenv.validation.run import Run, Startup
from openenv.validation.runtime.seen import Surface
from openenv.validation.semantic.seen import (
    Canaries,
    Elsewhere,
    Floor,
    Hack,
    Hacks,
    Leak,
    NoOracle,
    Shown,
    Solutions,
    Usage,
)
from openenv.validation.types import ProviderCapability

__all__ = ["collect_semantic"]

IDLE_STEPS = 10
HACK_STEPS = 8
MAX_LEAST = 32
PREFIXES = 5
AGAIN = 2
SAMPLED_EVERY_S = 0.02
EXEC_S = 300.0
SHORTEST_SECRET = 6

# Another machine, as far as variables make one: its place, its words, its order of sets.
ELSEWHERE = {
    "TZ": "Pacific/Chatham",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "C",
    "PYTHONHASHSEED": "4242",
    "HOME": "/nonexistent",
    "USER": "nobody",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


def collect_semantic(run: Run) -> None:
    """Collect what the semantic checks read, as evidence of the run.

    It needs what the runtime level collected. What cannot be collected is noted, with the reason,
    and the checks that need it are skipped.
    """
    startup, surface = run.evidence.get(Startup), run.evidence.get(Surface)
    if startup is None or not startup.is_running or surface is None:
        return
    _Collecting(run, surface).all()


class _Collecting:
    """One run's collection."""

    def __init__(self, run: Run, surface: Surface) -> None:
        self.run = run
        self.evidence = run.evidence
        self.unseen = run.evidence.get(Unseen) or Unseen()
        self.evidence.put(self.unseen)
        self.budget = Budget(run.options.timeout_s)
        self.surface = surface
        self.space: ActionSpace = surface.action_space
        self.url = run.running.base_url

    def all(self) -> None:
        """Collect every kind."""
        with contextlib.ExitStack() as stack:
            oracle = self._oracle()
            if oracle is not None:
                stack.enter_context(oracle)
            episodes = self._beginnings(oracle)
            try:
                idle = self._idle(oracle)
            except OpenEnvError as error:
                for kind in (Solutions, Floor, Canaries, Hacks):
                    self.unseen.note(kind, str(error))
                return
            with self._noting(Solutions):
                if oracle is not None:
                    self.run.tell("showing it the solution")
                    self._solutions(oracle, idle)
            self.run.tell("doing nothing, and trying tricks")
            with self._noting(Floor):
                self._floor(oracle, episodes, idle)
            with self._noting(Canaries):
                self._canaries(oracle)
            with self._noting(Hacks):
                self.evidence.put(run_async(self._hacks(episodes[0])))

    @contextlib.contextmanager
    def _noting(self, *kinds: type) -> Iterator[None]:
        """Note why something could not be collected, in place of an exception."""
        try:
            yield
        except OpenEnvError as error:
            for kind in kinds:
                self.unseen.note(kind, str(error))

    # ------------------------------------------------------------------ the oracle

    def _oracle(self) -> Oracle | None:
        declared = self.run.manifest.capabilities.oracle
        if declared is None:
            self._has_no_oracle("the manifest declares no oracle", is_declared=False)
            return None
        try:
            return read_oracle(declared, self.run.root, self.surface.plan)
        except OracleError as error:
            self._has_no_oracle(str(error), is_declared=True)
            return None

    def _has_no_oracle(self, reason: str, *, is_declared: bool) -> None:
        self.evidence.put(NoOracle(reason, is_declared))
        self.unseen.note(Solutions, f"there is no solution to show: {reason}")

    def _beginnings(self, oracle: Oracle | None) -> Sequence[Episode]:
        """How episodes begin in which nothing is done: as the oracle's, where these are open."""
        if oracle is None or oracle.form == "injected_state":
            return (Episode(self.surface.plan.reset, name="plan"),)
        return oracle.episodes

    def _idle(self, oracle: Oracle | None) -> Policy:
        """Who does nothing, for ever: as the oracle's file says, or the least action."""
        if oracle is not None and oracle.does("do_nothing"):
            assert oracle.program is not None
            return oracle.program.policy("do_nothing")
        least = run_async(self._least())
        return lambda view: least

    async def _least(self) -> Action:
        """The least action that the server takes, of those that the schema allows."""
        candidates = self.space.minimals()
        if len(candidates) > 1:
            async with RawSession(self.url, self.budget) as session:
                await session.reset(self.surface.plan.reset)
                for action in candidates[:MAX_LEAST]:
                    if (await session.ask("step", action)).kind == "observation":
                        return action
        return candidates[0]

    def _solutions(self, oracle: Oracle, idle: Policy) -> None:
        shown = [self._shown(oracle, episode, idle) for episode in oracle.episodes]
        shown = self._anew(shown)
        self.evidence.put(Solutions(tuple(self._moved(shown))))

    def _shown(self, oracle: Oracle, episode: Episode, idle: Policy) -> Shown:
        """Show a solution once, and then its actions again, and its beginnings."""
        if oracle.form == "injected_state" or episode.snapshot is not None:
            return self._injected(episode, idle)
        leaks: list[Leak] = []
        policy = oracle.policy(episode)
        if policy is None:
            return self._by_script(oracle, episode, idle)
        watched = _watching(policy, oracle, self.space, leaks)
        transcript, usage = run_async(self._measured(episode.reset, watched))
        actions = tuple(transcript.actions)
        again = tuple(self._played(episode.reset, scripted(actions)) for _ in range(AGAIN))
        prefixes = {
            length: self._played(episode.reset, _then(actions[:length], idle, _idle_for(actions)))
            for length in _lengths(len(actions))
        }
        return Shown(
            episode,
            transcript,
            transcript.spec,
            again,
            prefixes=prefixes,
            leaks=tuple(leaks),
            usage=usage,
        )

    def _played(self, reset: Mapping[str, Any], policy: Policy) -> Transcript:
        return run_async(self._play(self.url, reset, policy))

    async def _play(self, url: str, reset: Mapping[str, Any], policy: Policy) -> Transcript:
        async with RawSession(url, self.budget) as session:
            return await play(session, reset, policy)

    async def _measured(self, reset: Mapping[str, Any], policy: Policy) -> tuple[Transcript, Usage]:
        """Play an episode, and measure what it takes of the machine."""
        pid = self.run.running.inspect().get("pid")
        if not isinstance(pid, int):
            began = time.perf_counter()
            played = await self._play(self.url, reset, policy)
            return played, Usage(time.perf_counter() - began)
        peak, spent, began = resident_bytes(pid), cpu_seconds(pid), time.perf_counter()
        playing = asyncio.ensure_future(self._play(self.url, reset, policy))
        while not playing.done():
            await asyncio.wait([playing], timeout=SAMPLED_EVERY_S)
            peak = max(peak, resident_bytes(pid))
        seconds = time.perf_counter() - began
        return playing.result(), Usage(seconds, cpu_seconds(pid) - spent, peak)

    def _injected(self, episode: Episode, idle: Policy) -> Shown:
        """Set the state of a solution, and let the verifier look at it."""
        looks = scripted(episode.actions) if episode.actions is not None else _then((), idle, 1)
        if episode.snapshot is None:
            transcript, usage = run_async(self._measured(episode.reset, looks))
            again = tuple(self._played(episode.reset, looks) for _ in range(AGAIN))
            return Shown(episode, transcript, transcript.spec, again, usage=usage)
        began = time.perf_counter()
        transcript = run_async(self._restored(self.url, episode, looks))
        usage = Usage(time.perf_counter() - began)
        again = tuple(run_async(self._restored(self.url, episode, looks)) for _ in range(AGAIN))
        return Shown(episode, transcript, transcript.spec, again, usage=usage)

    async def _restored(self, url: str, episode: Episode, looks: Policy) -> Transcript:
        """Play from a snapshot, which version 0 of the protocol knows nothing of."""
        assert episode.snapshot is not None
        exchanges: list[Exchange] = []
        async with GenericEnvClient(url) as client:
            result = await client.reset(**episode.reset)
            exchanges.append(_exchange("reset", episode.reset, result))
            await client.restore(episode.snapshot)
            step = 0
            while not result.done and (action := looks(View(result.observation, step))) is not None:
                result = await client.step(action)
                exchanges.append(_exchange("step", action, result))
                step += 1
        return Transcript(tuple(exchanges))

    def _by_script(self, oracle: Oracle, episode: Episode, idle: Policy) -> Shown:
        """Run a program in the subject's sandbox, in the middle of an episode."""
        if ProviderCapability.EXEC not in self.run.provider.capabilities:
            raise UnmetRequirement("exec", "the provider cannot run the oracle's script")
        assert oracle.script is not None
        text = oracle.script.decode("utf-8")
        transcript = run_async(self._with_script(text, episode, idle))
        return Shown(episode, transcript, transcript.spec)

    async def _with_script(self, text: str, episode: Episode, idle: Policy) -> Transcript:
        async with RawSession(self.url, self.budget) as session:
            await session.reset(episode.reset)
            command = ["sh", "-c", text]
            limit = min(EXEC_S, self.budget.seconds_left())
            done = await asyncio.to_thread(self.run.running.exec, command, limit)
            if done.exit_code != 0:
                raise OracleError(
                    f"the oracle's script ended with {done.exit_code}: {done.stderr:.300}"
                )
            for _ in range(IDLE_STEPS):
                action = idle(View({}, 0))
                if action is None or (await session.ask("step", action)).data.get("done"):
                    break
            return session.transcript

    # ------------------------------------------------------------------ elsewhere

    def _anew(self, shown: Sequence[Shown]) -> list[Shown]:
        """Play what was recorded on a server that is started anew, from its record alone."""
        playable = [one for one in shown if one.transcript.actions and one.episode.snapshot is None]
        if not playable:
            return list(shown)
        try:
            other = self.run.start()
        except (SubjectError, UnmetRequirement) as error:
            return [replace(one, no_anew=str(error)) for one in shown]
        try:
            return [
                replace(one, anew=self._from_record(other, one.transcript))
                if one in playable
                else one
                for one in shown
            ]
        finally:
            other.stop()

    def _from_record(self, subject: RunningSubject, transcript: Transcript) -> Transcript:
        """Write down how an episode was begun and what was done, read that, and play it."""
        first = transcript.first
        record = {"reset": first.sent if first else {}, "actions": transcript.actions}
        read = json.loads(json.dumps(record))
        policy = scripted(tuple(read["actions"]))
        return run_async(self._play(subject.base_url, read["reset"], policy))

    def _moved(self, shown: Sequence[Shown]) -> list[Shown]:
        """Show each solution to a server with other variables, and without a network."""
        try:
            other, is_offline, no_offline = self._started_elsewhere()
        except SubjectError as error:
            return [replace(one, elsewhere=Elsewhere(None, str(error))) for one in shown]
        except UnmetRequirement as error:
            return [replace(one, elsewhere=Elsewhere(None, no_offline=str(error))) for one in shown]
        try:
            return [
                replace(
                    one,
                    elsewhere=Elsewhere(
                        self._from_record(other, one.transcript), None, is_offline, no_offline
                    ),
                )
                if one.transcript.actions and one.episode.snapshot is None
                else one
                for one in shown
            ]
        finally:
            other.stop()

    def _started_elsewhere(self) -> tuple[RunningSubject, bool, str | None]:
        run, provider = self.run, self.run.provider
        can = ProviderCapability.NETWORK_POLICY in provider.capabilities
        if not can or "no-network" not in provider.supported_network_modes or run.image_ref is None:
            return run.start(ELSEWHERE), False, f"{provider.name} cannot take its network away"
        spec = LaunchSpec(
            image_ref=run.image_ref,
            resources=run.manifest.resources,
            network=NetworkPolicy(mode="no-network"),
            run_id=f"validate-offline-{time.monotonic_ns()}",
            startup_timeout_s=min(run.options.startup_timeout_s, 300.0),
            env_vars={**run.variables, **ELSEWHERE},
        )
        return provider.start(spec), True, None

    # ------------------------------------------------------------------ what deserves nothing

    def _floor(self, oracle: Oracle | None, episodes: Sequence[Episode], idle: Policy) -> None:
        solutions = self.evidence.get(Solutions)
        longest = max(
            (len(one.transcript.actions) for one in (solutions.shown if solutions else ())),
            default=0,
        )
        steps = max(longest, IDLE_STEPS)
        played = tuple(self._played(one.reset, _then((), idle, steps)) for one in episodes)
        is_told = oracle is not None and oracle.does("do_nothing")
        what = "the oracle's do_nothing" if is_told else json.dumps(idle(View({}, 0)))
        spec = next((one.spec for one in played if one.spec is not None), None)
        self.evidence.put(Floor(played, what, spec))

    def _canaries(self, oracle: Oracle | None) -> None:
        declared = self.run.manifest.capabilities.canaries
        listed = oracle.canaries if oracle is not None else ()
        if declared is not None:
            listed = (*listed, *read_episodes(self.run.root / declared))
        if not listed:
            self.unseen.note(Canaries, "the package brings no canaries")
            return
        played = [(one, self._played(one.reset, scripted(one.actions or ()))) for one in listed]
        self.evidence.put(Canaries(tuple(played)))

    async def _hacks(self, episode: Episode) -> Hacks:
        tried, waiting = [], hacking_probes(self.space)
        while waiting:
            probe = waiting.pop(0)
            async with RawSession(self.url, self.budget) as session:
                transcript = await play(
                    session, episode.reset, probe.policy(HACK_STEPS), reads_state=False
                )
                state = await session.ask("state")
                after = await session.reset(episode.reset)
                is_alive = state.kind == "state" and after.kind == "observation"
            health = await asyncio.to_thread(fetch, self.url, "/health")
            tried.append(Hack(probe, transcript, is_alive, health.status == 200))
            if (rest := probe.after(len(_asked(transcript)))) is not None:
                waiting.insert(0, rest)
        return Hacks(tuple(tried))


def _asked(transcript: Transcript) -> list[Exchange]:
    """The steps that were asked for, those that were refused too."""
    return [one for one in transcript.exchanges if one.asked["type"] == "step"]


def _lengths(count: int) -> list[int]:
    """Up to so many lengths of beginnings, from nothing to all but the last action."""
    if count <= PREFIXES:
        return list(range(count))
    return sorted({round(i * (count - 1) / (PREFIXES - 1)) for i in range(PREFIXES)})


def _idle_for(actions: Sequence[Any]) -> int:
    return max(len(actions), IDLE_STEPS)


def _then(actions: Sequence[dict[str, Any]], idle: Policy, steps: int) -> Policy:
    """Take these actions, and then do nothing, so many steps in all."""

    def act(view: View) -> dict[str, Any] | None:
        if view.step < len(actions):
            return actions[view.step]
        return idle(view) if view.step < steps else None

    return act


def _exchange(kind: str, sent: Mapping[str, Any], result: Any) -> Exchange:
    """What a client of version 1 got, as version 0 would have told it."""
    data = {
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
        "metadata": {**(result.metadata or {}), "reward_info": result.reward_info or {}},
    }
    request = json.dumps({"type": kind, "data": dict(sent)})
    return Exchange(request, json.dumps({"type": "observation", "data": data}), 0.0)


# ------------------------------------------------------------------ leaks


def _watching(policy: Policy, oracle: Oracle, space: ActionSpace, leaks: list[Leak]) -> Policy:
    """The same policy; what it is about to do is looked for in what was seen."""

    def act(view: View) -> dict[str, Any] | None:
        action = policy(view)
        told = oracle.secrets(view)
        guessed = _texts_of(action, space, view.observation) if action is not None else []
        for secret in dict.fromkeys((*told, *guessed)):
            leaks.extend(Leak(view.step, at, secret) for at in _found(secret, view.observation))
        return action

    return act


def _texts_of(
    action: Mapping[str, Any], space: ActionSpace, observation: Mapping[str, Any]
) -> list[str]:
    """The texts of an action that were not among several to choose from."""
    if space.enumerated() or space.legal(observation):
        return []
    if action.get("type") == "call_tool":  # which tool there is to call is listed, and no secret
        action = action.get("arguments") or {}
    offered = set(_offered(observation))
    texts = string_leaves(action)
    return [text for text in texts if len(text) >= SHORTEST_SECRET and text not in offered]


def _offered(value: Any) -> Iterator[str]:
    """Texts that stand in lists of two or more."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _offered(inner)
    elif isinstance(value, list):
        if len(value) > 1:
            yield from (one for one in value if isinstance(one, str))
        for inner in value:
            yield from _offered(inner)


def _found(secret: str, observation: Mapping[str, Any]) -> Iterator[str]:
    """The fields of an observation in which a text stands as words of their own."""
    words = re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)", re.IGNORECASE)
    for name, value in observation.items():
        if any(words.search(text) for text in string_leaves(value)):
            yield name
