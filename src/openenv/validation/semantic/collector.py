"""Collection at the semantic level: the oracle's episodes, idleness, canaries and hacking probes.

Every solution is shown to the shared subject, repeated, cut short at increasing lengths, and
replayed from its record on a new server and on a server with another locale and no network. Idle
episodes set the floor with which canaries and probes are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from openenv.client.background import run as run_async
from openenv.client.generic import GenericEnvClient
from openenv.errors import OpenEnvError
from openenv.reward import RewardSpec
from openenv.validation.actions import Action, ActionSpace
from openenv.validation.context import Startup, ValidationRun
from openenv.validation.evidence import Exchange, Transcript, string_leaves
from openenv.validation.load_tests import cpu_seconds, resident_bytes
from openenv.validation.manifest import NetworkPolicy
from openenv.validation.oracle import Oracle, OracleEpisode, OracleError, read_episodes, read_oracle
from openenv.validation.probes import Policy, Probe, ProbeView, make_hacking_probes, script_policy
from openenv.validation.providers import RunningSubject, SubjectError, UnmetRequirement
from openenv.validation.runtime.evidence import ServerSurface
from openenv.validation.types import ProviderCapability
from openenv.validation.wire import Budget, RawSession, fetch_page, play_alone, play_episode

IDLE_STEPS = 10
HACK_STEPS = 8
MAX_LEAST = 32
PREFIXES = 5
AGAIN = 2
SAMPLED_EVERY_S = 0.02
EXEC_S = 300.0
SHORTEST_SECRET = 6

# Environment variables that imitate another machine: time zone, language, hash order, proxies.
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


@dataclass(frozen=True)
class MissingOracle:
    """Evidence that there is no solution to show."""

    reason: str
    is_declared: bool  # true if the manifest names an oracle that cannot be used


@dataclass(frozen=True)
class ResourceUsage:
    """The resources that an episode used."""

    seconds: float
    cpu_seconds: float = 0.0  # CPU seconds of the server; 0 if unknown
    peak_bytes: int = 0  # peak memory of the server; 0 if unknown


@dataclass(frozen=True)
class SolutionLeak:
    """A text of the solution that an observation showed too early."""

    step: int  # the number of the step that was to be taken next
    field: str
    secret: str


@dataclass(frozen=True)
class PortabilityTrial:
    """A solution replayed on a server with other variables and no network."""

    transcript: Transcript | None  # the transcript; None if the server did not start
    trouble: str | None = None  # why the server did not start; None if it could not be tried
    no_offline: str | None = None  # why the server had a network, or could not be tried


@dataclass(frozen=True)
class ShownSolution:
    """A solution shown to the verifier."""

    episode: OracleEpisode
    transcript: Transcript
    spec: RewardSpec | None  # the reward specification that the reset returned
    again: tuple[Transcript, ...] = ()  # replays of the same actions in further sessions
    anew: Transcript | None = None  # a replay from the record on a newly started server
    no_anew: str | None = None  # why there is no such replay
    elsewhere: PortabilityTrial | None = None  # a replay with other variables and no network
    # Transcripts of prefixes by length; the rest of each episode is idle.
    prefixes: Mapping[int, Transcript] = field(default_factory=dict)
    leaks: tuple[SolutionLeak, ...] = ()  # texts of the solution that observations revealed
    usage: ResourceUsage = ResourceUsage(0.0)


@dataclass(frozen=True)
class ShownSolutions:
    """All solutions that were shown."""

    shown: tuple[ShownSolution, ...]


@dataclass(frozen=True)
class FloorEpisodes:
    """Episodes in which the policy did nothing."""

    transcripts: tuple[Transcript, ...]  # one for each reset of the oracle's episodes
    policy: str  # a description of the idle policy
    spec: RewardSpec | None


@dataclass(frozen=True)
class CanaryEpisodes:
    """Episodes that must earn nothing, as the package declares."""

    played: tuple[tuple[OracleEpisode, Transcript], ...]


@dataclass(frozen=True)
class HackAttempt:
    """The result of a probe."""

    probe: Probe
    transcript: Transcript
    is_alive: bool  # true if the session then answered and could begin another episode
    is_healthy: bool  # true if the server was healthy afterwards


@dataclass(frozen=True)
class HackAttempts:
    """The results of all probes."""

    tried: tuple[HackAttempt, ...]


# ------------------------------------------------------------------ collection


def collect_semantic(run: ValidationRun) -> None:
    """Collect the evidence of the semantic checks; needs the runtime level's evidence."""
    startup, surface = run.evidence.get(Startup), run.evidence.get(ServerSurface)
    if startup is not None and startup.is_running and surface is not None:
        SemanticCollector(run, surface).collect()


class SemanticCollector:
    """A collector of the semantic evidence of one run."""

    def __init__(self, run: ValidationRun, surface: ServerSurface) -> None:
        self.run = run
        self.evidence = run.evidence
        self.budget = Budget(run.options.timeout_s)
        self.surface = surface
        self.space: ActionSpace = surface.action_space
        self.url = run.running.base_url

    def collect(self) -> None:
        """Collect every kind of evidence."""
        note_failure = self.evidence.note_failure
        with self._read_oracle() or contextlib.nullcontext() as oracle:
            episodes = self._idle_episodes(oracle)
            try:
                idle = self._idle_policy(oracle)
            except OpenEnvError as error:
                kinds = (ShownSolutions, FloorEpisodes, CanaryEpisodes, HackAttempts)
                self.evidence.note_missing(error, *kinds)
                return
            if oracle is not None:
                with note_failure(ShownSolutions):
                    self.run.tell("showing it the solution")
                    self._collect_solutions(oracle, idle)
            self.run.tell("doing nothing, and trying tricks")
            with note_failure(FloorEpisodes):
                self._collect_floor(oracle, episodes, idle)
            with note_failure(CanaryEpisodes):
                self._collect_canaries(oracle)
            with note_failure(HackAttempts):
                self.evidence.put(run_async(self._collect_hacks(episodes[0])))

    # ------------------------------------------------------------------ the oracle

    def _read_oracle(self) -> Oracle | None:
        declared = self.run.manifest.capabilities.oracle
        reason = "the manifest declares no oracle"
        if declared is not None:
            try:
                return read_oracle(declared, self.run.root, self.surface.plan)
            except OracleError as error:
                reason = str(error)
        self.evidence.put(MissingOracle(reason, is_declared=declared is not None))
        self.evidence.note_missing(f"there is no solution to show: {reason}", ShownSolutions)
        return None

    def _idle_episodes(self, oracle: Oracle | None) -> Sequence[OracleEpisode]:
        """Return the episodes for doing nothing: the oracle's, unless they begin solved."""
        if oracle is None or oracle.form == "injected_state":
            return (OracleEpisode(self.surface.plan.reset, name="plan"),)
        return oracle.episodes

    def _idle_policy(self, oracle: Oracle | None) -> Policy:
        """Return the idle policy: the oracle file's ``do_nothing``, or the minimal action."""
        if oracle is not None and oracle.has_function("do_nothing"):
            assert oracle.program is not None
            return oracle.program.policy("do_nothing")
        least = run_async(self._least_accepted_action())
        return lambda view: least

    async def _least_accepted_action(self) -> Action:
        """Return the first minimal action of the schema that the server accepts."""
        candidates = self.space.minimal_actions()
        if len(candidates) > 1:
            async with RawSession(self.url, self.budget) as session:
                await session.reset(self.surface.plan.reset)
                for action in candidates[:MAX_LEAST]:
                    if (await session.ask("step", action)).kind == "observation":
                        return action
        return candidates[0]

    def _collect_solutions(self, oracle: Oracle, idle: Policy) -> None:
        shown = [self._show_solution(oracle, episode, idle) for episode in oracle.episodes]
        shown = self._replay_anew(shown)
        self.evidence.put(ShownSolutions(tuple(self._show_elsewhere(shown))))

    def _show_solution(self, oracle: Oracle, episode: OracleEpisode, idle: Policy) -> ShownSolution:
        """Play a solution, repeat its actions, and play its prefixes."""
        if oracle.form == "injected_state" or episode.snapshot is not None:
            return self._show_injected(episode, idle)
        leaks: list[SolutionLeak] = []
        if (policy := oracle.policy(episode)) is None:
            return self._show_by_script(oracle, episode, idle)
        watched = _watch_for_leaks(policy, oracle, self.space, leaks)
        transcript, usage = run_async(self._play_measured(episode.reset, watched))
        actions = tuple(transcript.actions)
        again = tuple(self._play_sync(episode.reset, script_policy(actions)) for _ in range(AGAIN))
        steps = max(len(actions), IDLE_STEPS)
        prefixes = {
            length: self._play_sync(episode.reset, _pad_with_idle(actions[:length], idle, steps))
            for length in _lengths(len(actions))
        }
        return ShownSolution(
            episode,
            transcript,
            transcript.spec,
            again,
            prefixes=prefixes,
            leaks=tuple(leaks),
            usage=usage,
        )

    def _play_sync(self, reset: Mapping[str, Any], policy: Policy) -> Transcript:
        return run_async(play_alone(self.url, self.budget, reset, policy))

    async def _play_measured(
        self, reset: Mapping[str, Any], policy: Policy
    ) -> tuple[Transcript, ResourceUsage]:
        """Play an episode and measure the resources that it uses."""
        pid = self.run.running.inspect().get("pid")
        if not isinstance(pid, int):
            began = time.perf_counter()
            played = await play_alone(self.url, self.budget, reset, policy)
            return played, ResourceUsage(time.perf_counter() - began)
        peak, spent, began = resident_bytes(pid), cpu_seconds(pid), time.perf_counter()
        playing = asyncio.ensure_future(play_alone(self.url, self.budget, reset, policy))
        while not playing.done():
            await asyncio.wait([playing], timeout=SAMPLED_EVERY_S)
            peak = max(peak, resident_bytes(pid))
        seconds = time.perf_counter() - began
        return playing.result(), ResourceUsage(seconds, cpu_seconds(pid) - spent, peak)

    def _show_injected(self, episode: OracleEpisode, idle: Policy) -> ShownSolution:
        """Inject the state of a solution and take the actions that let the verifier see it."""
        looks = (
            script_policy(episode.actions)
            if episode.actions is not None
            else _pad_with_idle((), idle, 1)
        )
        if episode.snapshot is None:
            transcript, usage = run_async(self._play_measured(episode.reset, looks))
            again = tuple(self._play_sync(episode.reset, looks) for _ in range(AGAIN))
        else:
            began = time.perf_counter()
            transcript = run_async(self._play_restored(episode, looks))
            usage = ResourceUsage(time.perf_counter() - began)
            again = tuple(run_async(self._play_restored(episode, looks)) for _ in range(AGAIN))
        return ShownSolution(episode, transcript, transcript.spec, again, usage=usage)

    async def _play_restored(self, episode: OracleEpisode, looks: Policy) -> Transcript:
        """Play from a snapshot with protocol version 1, because version 0 has no snapshots."""
        assert episode.snapshot is not None
        async with GenericEnvClient(self.url) as client:
            result = await client.reset(**episode.reset)
            exchanges = [_make_exchange("reset", episode.reset, result)]
            await client.restore(episode.snapshot)
            while not result.done:
                action = looks(ProbeView(result.observation, len(exchanges) - 1))
                if action is None:
                    break
                result = await client.step(action)
                exchanges.append(_make_exchange("step", action, result))
        return Transcript(tuple(exchanges))

    def _show_by_script(
        self, oracle: Oracle, episode: OracleEpisode, idle: Policy
    ) -> ShownSolution:
        """Run the oracle's script in the subject's sandbox, in the middle of an episode."""
        if ProviderCapability.EXEC not in self.run.provider.capabilities:
            raise UnmetRequirement("exec", "the provider cannot run the oracle's script")
        assert oracle.script is not None
        command = ["sh", "-c", oracle.script.decode("utf-8")]
        transcript = run_async(self._play_with_command(command, episode, idle))
        return ShownSolution(episode, transcript, transcript.spec)

    async def _play_with_command(
        self, command: list[str], episode: OracleEpisode, idle: Policy
    ) -> Transcript:
        async with RawSession(self.url, self.budget) as session:
            await session.reset(episode.reset)
            limit = min(EXEC_S, self.budget.seconds_left())
            done = await asyncio.to_thread(self.run.running.exec, command, limit)
            if done.exit_code != 0:
                raise OracleError(
                    f"the oracle's script ended with {done.exit_code}: {done.stderr:.300}"
                )
            for _ in range(IDLE_STEPS):
                action = idle(ProbeView({}, 0))
                if action is None or (await session.ask("step", action)).data.get("done"):
                    break
            return session.transcript

    # ------------------------------------------------------------------ elsewhere

    def _replay_anew(self, shown: Sequence[ShownSolution]) -> list[ShownSolution]:
        """Replay solutions from their records alone, on a newly started server."""
        if not any(map(_can_be_replayed, shown)):
            return list(shown)
        try:
            other = self.run.start()
        except (SubjectError, UnmetRequirement) as error:
            return [replace(one, no_anew=str(error)) for one in shown]
        try:
            return [
                replace(one, anew=self._replay_record(other, one.transcript))
                if _can_be_replayed(one)
                else one
                for one in shown
            ]
        finally:
            other.stop()

    def _replay_record(self, subject: RunningSubject, transcript: Transcript) -> Transcript:
        """Write an episode's reset and actions as JSON, read the JSON, and play the episode."""
        first = transcript.first
        record = {"reset": first.sent if first else {}, "actions": transcript.actions}
        read = json.loads(json.dumps(record))
        policy = script_policy(read["actions"])
        return run_async(play_alone(subject.base_url, self.budget, read["reset"], policy))

    def _show_elsewhere(self, shown: Sequence[ShownSolution]) -> list[ShownSolution]:
        """Replay each solution on a server with other variables and without a network."""
        try:
            other, no_offline = self._start_elsewhere()
        except SubjectError as error:
            return [replace(one, elsewhere=PortabilityTrial(None, str(error))) for one in shown]
        except UnmetRequirement as error:
            trial = PortabilityTrial(None, no_offline=str(error))
            return [replace(one, elsewhere=trial) for one in shown]
        moved = []
        try:
            for one in shown:
                if _can_be_replayed(one):
                    played = self._replay_record(other, one.transcript)
                    one = replace(one, elsewhere=PortabilityTrial(played, None, no_offline))
                moved.append(one)
        finally:
            other.stop()
        return moved

    def _start_elsewhere(self) -> tuple[RunningSubject, str | None]:
        """Start another server; return the server, and the reason if it has a network."""
        provider = self.run.provider
        can = ProviderCapability.NETWORK_POLICY in provider.capabilities
        if not can or "no-network" not in provider.supported_network_modes:
            return self.run.start(ELSEWHERE), f"{provider.name} cannot take its network away"
        return self.run.start(ELSEWHERE, NetworkPolicy(mode="no-network")), None

    # ------------------------------------------------------------------ floor, canaries, hacks

    def _collect_floor(
        self, oracle: Oracle | None, episodes: Sequence[OracleEpisode], idle: Policy
    ) -> None:
        solutions = self.evidence.get(ShownSolutions)
        shown = solutions.shown if solutions else ()
        steps = max(IDLE_STEPS, *(len(one.transcript.actions) for one in shown), 0)
        policy = _pad_with_idle((), idle, steps)
        played = tuple(self._play_sync(one.reset, policy) for one in episodes)
        is_told = oracle is not None and oracle.has_function("do_nothing")
        what = "the oracle's do_nothing" if is_told else json.dumps(idle(ProbeView({}, 0)))
        spec = next((one.spec for one in played if one.spec is not None), None)
        self.evidence.put(FloorEpisodes(played, what, spec))

    def _collect_canaries(self, oracle: Oracle | None) -> None:
        declared = self.run.manifest.capabilities.canaries
        listed = oracle.canaries if oracle is not None else ()
        if declared is not None:
            listed = (*listed, *read_episodes(self.run.root / declared))
        if not listed:
            self.evidence.note_missing("the package brings no canaries", CanaryEpisodes)
            return
        played = [
            (one, self._play_sync(one.reset, script_policy(one.actions or ()))) for one in listed
        ]
        self.evidence.put(CanaryEpisodes(tuple(played)))

    async def _collect_hacks(self, episode: OracleEpisode) -> HackAttempts:
        tried, waiting = [], make_hacking_probes(self.space)
        while waiting:
            probe = waiting.pop(0)
            async with RawSession(self.url, self.budget) as session:
                transcript = await play_episode(
                    session, episode.reset, probe.policy(HACK_STEPS), reads_state=False
                )
                state = await session.ask("state")
                after = await session.reset(episode.reset)
                is_alive = state.kind == "state" and after.kind == "observation"
            health = await asyncio.to_thread(fetch_page, self.url, "/health")
            tried.append(HackAttempt(probe, transcript, is_alive, health.status == 200))
            if (rest := probe.rest_after(len(transcript.tried))) is not None:
                waiting.insert(0, rest)
        return HackAttempts(tuple(tried))


def _can_be_replayed(shown: ShownSolution) -> bool:
    return bool(shown.transcript.actions) and shown.episode.snapshot is None


def _lengths(count: int) -> list[int]:
    """Return up to `PREFIXES` prefix lengths, from none to all but the last action."""
    if count <= PREFIXES:
        return list(range(count))
    return sorted({round(i * (count - 1) / (PREFIXES - 1)) for i in range(PREFIXES)})


def _pad_with_idle(actions: Sequence[dict[str, Any]], idle: Policy, steps: int) -> Policy:
    """Return a policy that takes these actions and then idles, up to `steps` steps in total."""

    def act(view: ProbeView) -> dict[str, Any] | None:
        if view.step < len(actions):
            return actions[view.step]
        return idle(view) if view.step < steps else None

    return act


def _make_exchange(kind: str, sent: Mapping[str, Any], result: Any) -> Exchange:
    """Convert a result of protocol version 1 to the exchange that version 0 would have."""
    data = {
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
        "metadata": {**(result.metadata or {}), "reward_info": result.reward_info or {}},
    }
    request = json.dumps({"type": kind, "data": dict(sent)})
    return Exchange(request, json.dumps({"type": "observation", "data": data}), 0.0)


# ------------------------------------------------------------------ leaks


def _watch_for_leaks(
    policy: Policy, oracle: Oracle, space: ActionSpace, leaks: list[SolutionLeak]
) -> Policy:
    """Return a policy that records texts of its actions that observations already show."""

    def act(view: ProbeView) -> dict[str, Any] | None:
        action = policy(view)
        guessed = _texts_of(action, space, view.observation) if action is not None else []
        for secret in dict.fromkeys((*oracle.secrets(view), *guessed)):
            places = _find_text(secret, view.observation)
            leaks.extend(SolutionLeak(view.step, at, secret) for at in places)
        return action

    return act


def _texts_of(
    action: Mapping[str, Any], space: ActionSpace, observation: Mapping[str, Any]
) -> list[str]:
    """Return the texts of an action that were not among choices that the observation offers."""
    if space.enumerate_actions() or space.legal_actions(observation):
        return []
    if action.get("type") == "call_tool":  # tools are listed, so a tool's name is no secret
        action = action.get("arguments") or {}
    offered = set(_list_choices(observation))
    texts = string_leaves(action)
    return [text for text in texts if len(text) >= SHORTEST_SECRET and text not in offered]


def _list_choices(value: Any) -> Iterator[str]:
    """Yield the texts in lists with two or more items."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _list_choices(inner)
    elif isinstance(value, list):
        if len(value) > 1:
            yield from (one for one in value if isinstance(one, str))
        for inner in value:
            yield from _list_choices(inner)


def _find_text(secret: str, observation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of an observation in which a text appears as whole words."""
    words = re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)", re.IGNORECASE)
    for name, value in observation.items():
        if any(words.search(text) for text in string_leaves(value)):
            yield name
