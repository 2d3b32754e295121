"""Collection at the runtime level: the measured episode, replays, surveys and probes.

The measured episode is played first; all replays use its actions. On the shared subject only
episodes are played; a second subject is started to compare a new server and to read its recordings.
Each kind of evidence is collected in a `note_failure` block: evidence that cannot be collected is
recorded as missing, and only the checks that need it are skipped. All kinds share one `Budget`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from openenv.client.background import run as run_async
from openenv.errors import OpenEnvError
from openenv.validation.context import Startup, ValidationRun
from openenv.validation.evidence import FetchedPage, Transcript, episode_reward
from openenv.validation.graders import RuntimeEvidence, WireExchange
from openenv.validation.load_tests import (
    CAPACITY,
    LoadReport,
    MemoryReport,
    measure_latency,
    measure_memory,
)
from openenv.validation.probes import (
    PlanError,
    Policy,
    ProbePlan,
    make_schema_policy,
    read_plan,
    script_policy,
)
from openenv.validation.providers import RunningSubject, SubjectError, UnmetRequirement
from openenv.validation.runtime.confinement import Exposure, find_exposure, probe_confinement
from openenv.validation.runtime.evidence import (
    ConcurrentSessions,
    Confinement,
    JudgedReplays,
    Replays,
    SeedTrials,
    ServerSurface,
    SubjectRecording,
    TaskSurvey,
    ToolSurvey,
)
from openenv.validation.types import ProviderCapability
from openenv.validation.wire import (
    Budget,
    BudgetSpent,
    RawSession,
    fetch_page,
    play_alone,
    play_episode,
    play_together,
)

DRAWN_STEPS = 12
OTHER_SEEDS = 4
UNSEEDED = 3
SIDE_BY_SIDE = 3
JUDGED_REPLAYS = 20  # RFC 008: "20 completed identical-input fresh replays"
NEED_AN_EPISODE = (
    *(SubjectRecording, SeedTrials, ConcurrentSessions),
    *(JudgedReplays, LoadReport, MemoryReport),
)
RECORD_VARIABLE = "OPENENV_RECORD"
RECORDED_WITHIN_S = 2.0
RECORDINGS_INSIDE = "/tmp/openenv-recordings"  # nosec B108  # in the container


def collect_runtime(run: ValidationRun) -> None:
    """Collect the evidence of the runtime checks."""
    startup = run.evidence.get(Startup) or run.start_up()
    if startup.is_running:
        RuntimeCollector(run).collect()


class RuntimeCollector:
    """A collector of the runtime evidence of one run."""

    def __init__(self, run: ValidationRun) -> None:
        self.run = run
        self.evidence = run.evidence
        self.budget = Budget(run.options.timeout_s)
        self.subject = run.running
        self.url = self.subject.base_url

    def collect(self) -> None:
        """Collect every kind of evidence, the measured episode first."""
        note_failure, put = self.evidence.note_failure, self.evidence.put
        self.run.tell("playing the measured episode")
        surface = self._survey_surface()
        put(surface)
        if surface.trouble is None:
            with note_failure(Replays):
                self._collect_episodes(surface)
        else:
            self.evidence.note_missing(surface.trouble, Replays, *NEED_AN_EPISODE)
        with note_failure(ToolSurvey):
            put(run_async(self._survey_tools()))
        with note_failure(TaskSurvey):
            put(survey_tasks(self.url))
        with note_failure(Confinement):
            put(self._inspect_confinement())
        with note_failure(Exposure):
            put(find_exposure(self.run, self.evidence))

    # ------------------------------------------------------------------ steps of the collection

    def _survey_surface(self) -> ServerSurface:
        health, schema, metadata = (
            fetch_page(self.url, path) for path in ("/health", "/schema", "/metadata")
        )
        surface = ServerSurface(health, schema, metadata, ProbePlan())
        path = self.run.root / self.run.execution.probe_path
        if path.exists():
            try:
                return replace(surface, plan=read_plan(path))
            except PlanError as error:
                return replace(surface, trouble=str(error))
        if not surface.action_space.forms:
            reason = f"there is no {self.run.execution.probe_path}, and /schema tells no actions"
            return replace(surface, trouble=reason)
        return surface

    def _collect_episodes(self, surface: ServerSurface) -> None:
        given, note_failure = surface.plan.actions, self.evidence.note_failure
        policy = (
            make_schema_policy(surface.action_space, surface.plan.seed, DRAWN_STEPS)
            if given is None
            else script_policy(given)
        )
        replays, surface = run_async(self._play_replays(surface, policy))
        self.evidence.put(surface)
        self.evidence.put(runtime_evidence(replays.baseline, surface))
        if replays.baseline.stopped is not None:
            self.evidence.put(replays)
            why = f"the measured episode broke off: {replays.baseline.stopped}"
            self.evidence.note_missing(why, *NEED_AN_EPISODE)
            return
        plan = surface.plan
        self.run.tell("playing it again, in other sessions and by other seeds")
        with note_failure(SubjectRecording):
            replays = self._replay_anew(replays, plan)
        self.evidence.put(replays)
        with note_failure(SeedTrials):
            self.evidence.put(run_async(self._play_resets(plan)))
        with note_failure(ConcurrentSessions):
            self.evidence.put(run_async(self._play_concurrently(surface)))
        if self.run.manifest.capabilities.llm_judged:
            with note_failure(JudgedReplays):
                self.evidence.put(run_async(self._play_judged(plan)))
        self.run.tell("stepping it under load")
        new_policy = functools.partial(script_policy, plan.actions or ())
        with note_failure(LoadReport):
            load = measure_latency(self.url, plan.reset, new_policy, budget=self.budget)
            self.evidence.put(run_async(load))
        with note_failure(MemoryReport):
            self._measure_memory(plan, new_policy)

    async def _play_replays(
        self, surface: ServerSurface, policy: Policy
    ) -> tuple[Replays, ServerSurface]:
        """Play the measured episode, and replay its actions on the same server."""
        plan = surface.plan
        async with RawSession(self.url, self.budget) as first:
            baseline = await _play_measured(first, plan, policy)
            if baseline.stopped is not None:
                nothing = Transcript(stopped=baseline.stopped)
                return Replays(baseline, nothing, nothing), surface
            plan = replace(plan, actions=tuple(baseline.tried))
            surface = replace(surface, plan=plan)
            other = {"seed": plan.seed + 1, "episode_id": f"{plan.episode_id}-other"}
            # This episode is abandoned halfway.
            await play_episode(first, {**plan.reset, **other}, _make_other_policy(surface))
            after_others = await _play_again(first, plan)
        second = await self._replay_in_session(self.url, plan)
        return Replays(baseline, after_others, second), surface

    async def _replay_in_session(self, url: str, plan: ProbePlan) -> Transcript:
        async with RawSession(url, self.budget) as session:
            return await _play_again(session, plan)

    def _replay_anew(self, replays: Replays, plan: ProbePlan) -> Replays:
        """Replay on a newly started server that records its sessions."""
        directory = self.run.outputs_dir / "recordings"
        is_apart = ProviderCapability.CONTAINMENT in self.run.provider.capabilities
        target = RECORDINGS_INSIDE if is_apart else str(directory.resolve())
        try:
            other = self.run.start({RECORD_VARIABLE: target})
        except (SubjectError, UnmetRequirement) as error:
            why = f"no second server could be started: {error}"
            self.evidence.note_missing(why, SubjectRecording)
            return replace(replays, no_anew=str(error))
        try:
            anew = run_async(self._replay_in_session(other.base_url, plan))
            anew_second = run_async(self._replay_in_session(other.base_url, plan))
            self.evidence.put(_read_recording(anew, directory, other if is_apart else None))
        finally:
            other.stop()
        return replace(replays, anew=anew, anew_second=anew_second)

    async def _play_resets(self, plan: ProbePlan) -> SeedTrials:
        async def play(reset: Mapping[str, Any]) -> Transcript:
            policy = script_policy(plan.actions or ())
            return await play_alone(self.url, self.budget, reset, policy, reads_state=False)

        seeds = range(plan.seed + 1, plan.seed + 1 + OTHER_SEEDS)
        seeded = {seed: await play({**plan.reset, "seed": seed}) for seed in seeds}
        without = {name: value for name, value in plan.reset.items() if name != "seed"}
        return SeedTrials(seeded, tuple([await play(without) for _ in range(UNSEEDED)]))

    async def _play_concurrently(self, surface: ServerSurface) -> ConcurrentSessions:
        plan = surface.plan
        resets: list[Mapping[str, Any]] = [plan.reset]
        resets += [{**plan.reset, "seed": plan.seed + i} for i in range(1, SIDE_BY_SIDE)]
        policies = [script_policy(plan.actions or ())]
        policies += [_make_other_policy(surface, i) for i in range(1, SIDE_BY_SIDE)]
        alone = [
            await play_alone(self.url, self.budget, reset, policy)
            for reset, policy in zip(resets, policies, strict=True)
        ]
        async with contextlib.AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(RawSession(self.url, self.budget)) for _ in resets
            ]
            again = [script_policy(episode.tried) for episode in alone]
            together = await play_together(sessions, resets, again)
        refusals = [e for t in together for e in t.errors if CAPACITY in e]
        return ConcurrentSessions(tuple(alone), tuple(together), refusals[0] if refusals else None)

    async def _play_judged(self, plan: ProbePlan) -> JudgedReplays:
        found = [
            episode_reward(await self._replay_in_session(self.url, plan))
            for _ in range(JUDGED_REPLAYS)
        ]
        rewards = tuple(reward for reward in found if reward is not None)
        return JudgedReplays(rewards, len(found) - len(rewards))

    def _measure_memory(self, plan: ProbePlan, new_policy: Callable[[], Policy]) -> None:
        pid = self.subject.inspect().get("pid")
        if not isinstance(pid, int):
            why = "the provider does not tell the server's process"
            self.evidence.note_missing(why, MemoryReport)
            return
        memory = measure_memory(self.url, pid, plan.reset, new_policy, budget=self.budget)
        self.evidence.put(run_async(memory))

    async def _survey_tools(self) -> ToolSurvey:
        unknown = {"name": "no-such-tool-of-the-validator", "arguments": {}}
        async with RawSession(self.url, self.budget) as session:
            answers = [
                await session.ask(
                    "mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                )
                for method, params in (("tools/list", {}), ("tools/call", unknown))
            ]
        return ToolSurvey(*(answer.data or None for answer in answers))

    def _inspect_confinement(self) -> Confinement:
        inspected = self.subject.inspect()
        capabilities = self.run.provider.capabilities
        if not {ProviderCapability.EXEC, ProviderCapability.CONTAINMENT} <= capabilities:
            return Confinement(inspected, trouble="the provider contains nothing to look at")
        return probe_confinement(self.subject, inspected, self.run.manifest.network)


async def _play_measured(session: RawSession, plan: ProbePlan, policy: Policy) -> Transcript:
    """Play the measured episode; if the budget is spent, return the episode so far."""
    try:
        await play_episode(session, plan.reset, policy)
        await session.ask("state")  # the second reading must equal the first
    except BudgetSpent as error:
        return replace(session.transcript, stopped=str(error))
    return session.transcript


async def _play_again(session: RawSession, plan: ProbePlan) -> Transcript:
    """Replay the measured episode and read the state afterwards."""
    before = len(session)
    await play_episode(session, plan.reset, script_policy(plan.actions or ()))
    await session.ask("state")
    return session.since(before)


def _make_other_policy(surface: ServerSurface, number: int = 1) -> Policy:
    """Make a policy that plays half of an episode that differs from the plan's."""
    actions = surface.plan.actions or ()
    steps = max(1, len(actions) // 2)
    space = surface.action_space
    if space.enumerate_actions():
        return make_schema_policy(space, surface.plan.seed + number, steps)
    return script_policy((*actions[number:], *actions[:number])[:steps])


def runtime_evidence(baseline: Transcript, surface: ServerSurface) -> RuntimeEvidence:
    """Return the measured episode in the public package's form."""
    schemas = [surface.schema.object.get(name) for name in ("observation", "reset_observation")]
    of_step, of_reset = (None if one is None else json.dumps(one) for one in schemas)
    exchanges = (
        WireExchange(one.message["type"], one.request, one.response or "")
        for one in baseline.exchanges
    )
    phase = None if baseline.stopped is None else "episode"
    return RuntimeEvidence(tuple(exchanges), of_step, phase, baseline.stopped, of_reset)


# ------------------------------------------------------------------ the subject's recordings


def _read_recording(
    seen: Transcript, directory: Path, inside: RunningSubject | None
) -> SubjectRecording:
    """Read the recording that a server made of the session `seen`.

    If `inside` is a subject, its recordings are first fetched to the directory.
    """
    until = time.monotonic() + RECORDED_WITHIN_S
    while time.monotonic() < until:
        if inside is not None:
            _fetch_recordings(inside, directory)
        for file in sorted(directory.rglob("*.jsonl")):
            events = _events(file)
            if len(events) >= len(seen.moments):
                return SubjectRecording(seen, tuple(events))
        time.sleep(0.02)
    trouble = f"with {RECORD_VARIABLE} set, the server has recorded nothing of the session"
    return SubjectRecording(seen, trouble=trouble)


def _fetch_recordings(subject: RunningSubject, directory: Path) -> None:
    files = f"find {RECORDINGS_INSIDE} -name '*.jsonl' | sort | head -1"
    script = f'for file in $({files}); do cat "$file"; done'
    done = subject.exec(["sh", "-c", script], RECORDED_WITHIN_S)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "fetched.jsonl").write_text(done.stdout, encoding="utf-8")


def _events(file: Path) -> list[dict[str, Any]]:
    """Return the events of a recording; an empty list while the file is being written."""
    from openenv.rollouts.replays import read

    names = ("kind", "action", "reward", "done")
    with contextlib.suppress(OpenEnvError, OSError):
        return [
            {
                **{name: getattr(event, name) for name in names},
                "error": getattr(event.error, "code", None),
            }
            for episode in read(file)
            for event in episode.events
        ]
    return []


# ------------------------------------------------------------------ tasks


def survey_tasks(url: str) -> TaskSurvey:
    """Fetch the lists of tasks from a server, and single tasks, including one past the end."""
    environments = fetch_page(url, "/list_environments")
    names = environments.json if environments.status == 200 else None
    if not isinstance(names, list) or not names:
        return TaskSurvey(environments)
    base = f"/{names[0]}"
    listed_splits = fetch_page(url, f"{base}/splits")
    if not isinstance(listed_splits.json, list) or listed_splits.status != 200:
        trouble = [f"{base}/splits answered {_describe_page(listed_splits)}"]
        return TaskSurvey(environments, trouble=tuple(trouble))
    named = (one.get("name") if isinstance(one, dict) else one for one in listed_splits.json)
    splits = tuple(map(str, named))
    counted, listed, fetched, trouble = {}, {}, {}, []
    for split in splits:
        number = fetch_page(url, f"{base}/num_tasks", {"split": split})
        counted[split] = number.object.get("num_tasks")
        tasks = fetch_page(url, f"{base}/tasks", {"split": split})
        if not isinstance(tasks.object.get("tasks"), list):
            trouble.append(f"{base}/tasks of {split} answered {_describe_page(tasks)}")
            continue
        listed[split] = tasks.object["tasks"]
        indices = {0, len(listed[split]) - 1, len(listed[split])} - {-1}
        fetched[split] = {
            index: fetch_page(url, f"{base}/task", {"split": split, "index": index})
            for index in sorted(indices)
        }
    return TaskSurvey(environments, splits, counted, listed, fetched, tuple(trouble))


def _describe_page(page: FetchedPage) -> str:
    return page.failure or f"{page.status}: {page.body:.120}"
