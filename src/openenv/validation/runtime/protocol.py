"""Judges of the protocol, which compare the subject's answers with declarations and schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openenv.validation.context import Startup
from openenv.validation.evidence import Moment, Transcript
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import QUOTED_FAULTS, Judgment, accept, conclude, reject, skip
from openenv.validation.runtime.evidence import (
    Replays,
    ServerSurface,
    SubjectRecording,
    TaskSurvey,
    ToolSurvey,
)


def judge_startup(manifest: AnyManifest, startup: Startup) -> Judgment:
    """Check that the package builds, starts and reports healthy."""
    if startup.missing is not None:
        return skip(f"{startup.provider} lacks {startup.missing}: {startup.reason}")
    if startup.phase is not None:
        lines = [line for line in startup.logs.splitlines() if line.strip()][-QUOTED_FAULTS:]
        return reject(
            f"{startup.phase}: {startup.reason}",
            *lines,
            remediation="start it by hand (openenv serve .) and mend what its log says",
            phase=startup.phase,
        )
    return accept(f"it answered after {startup.seconds:.2f} s", seconds=round(startup.seconds, 3))


def judge_observation_schema(
    manifest: AnyManifest, surface: ServerSurface, replays: Replays
) -> Judgment:
    """Check that every observation matches the schema at ``/schema``."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

    schema, baseline = surface.schema.object, replays.baseline
    of_step = schema.get("observation")
    of_reset = schema.get("reset_observation") or of_step
    if not isinstance(of_step, dict) or not isinstance(of_reset, dict):
        said = surface.schema.failure or f"status {surface.schema.status}"
        return reject(
            f"/schema tells no schema of observations ({said})",
            remediation="give create_app the observation model, or annotate step's return value",
        )
    if baseline == Transcript():
        return reject(
            f"nothing was observed: {surface.trouble or 'no episode was played'}",
            remediation="give create_app the action model, or the package a plan of actions "
            "(validation/runtime.json)",
        )
    if not baseline.moments:
        return reject(*(baseline.errors or ["nothing was observed"]))
    try:
        for one in (of_step, of_reset):
            Draft202012Validator.check_schema(one)
    except SchemaError as error:
        return reject(f"/schema tells what is no JSON schema: {error.message}")
    judges = {True: Draft202012Validator(of_reset), False: Draft202012Validator(of_step)}
    wrong = [
        f"{baseline.name(moment)}: {_place(error)}{error.message:.200}"
        for moment in baseline.moments
        for error in judges[moment.is_reset].iter_errors(_whole(moment))
    ]
    wrong += [
        f"{baseline.name(moment)}: the observation is "
        f"{moment.frame.get('observation')!r:.80}; expected an object"
        for moment in baseline.moments
        if not isinstance(moment.frame.get("observation"), dict)
    ]
    if not wrong:
        return accept(observations=len(baseline.moments))
    return reject(
        *wrong[:QUOTED_FAULTS],
        remediation="declare the field in the observation's model as it is sent, or send it as "
        "it is declared",
        violations=len(wrong),
    )


def _whole(moment: Moment) -> dict[str, Any]:
    """Return an observation with its reward and ``done``."""
    seen = moment.frame.get("observation")
    beside = {"reward": moment.reward, "done": moment.frame.get("done")}
    return {**beside, **seen} if isinstance(seen, dict) else {"observation": seen, **beside}


def _place(error: Any) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: " if path else ""


def judge_state_contract(
    manifest: AnyManifest, surface: ServerSurface, replays: Replays
) -> Judgment:
    """Check that the state names the episode, counts steps from 0, and can be read twice."""
    baseline = replays.baseline
    if not baseline.moments:
        return reject(*(baseline.errors or ["nothing was observed"]))
    wrong = list(_state_faults(baseline, surface.plan.episode_id))
    states = [moment.states[-1].data if moment.states else {} for moment in baseline.moments]
    counts = [state.get("step_count") for state in states]
    return conclude(
        wrong,
        "keep reset's episode_id in state.episode_id; set state.step_count to 0 in reset and add "
        "to it in every step; let state change nothing",
        step_counts=counts,
    )


def _state_faults(baseline: Transcript, wanted: str) -> Iterator[str]:
    before = -1
    for moment in baseline.moments:
        where = f"after {baseline.name(moment)}"
        if not moment.states or any(state.kind != "state" for state in moment.states):
            wrong = next((state for state in moment.states if state.kind != "state"), None)
            told = "it was not answered" if wrong is None else wrong.error or repr(wrong.kind)
            yield f"{where} the state cannot be read: {told}"
            return
        readings = [state.data for state in moment.states]
        if any(reading != readings[0] for reading in readings):
            yield f"{where} two readings of the state differ"
        state = readings[0]
        if state.get("episode_id") != wanted:
            yield (
                f"{where} state.episode_id is {state.get('episode_id')!r}, and reset was given "
                f"{wanted!r}"
            )
        count = state.get("step_count")
        if type(count) is not int:
            yield f"{where} state.step_count is {count!r}; expected an integer"
            return
        if moment.is_reset and count != 0:
            yield f"{where} state.step_count is {count}; expected 0"
        if not moment.is_reset and count <= before:
            yield f"{where} state.step_count is {count}, and it was {before} before"
        before = count


def judge_trajectory_record(manifest: AnyManifest, recorded: SubjectRecording) -> Judgment:
    """Check that the subject's own recording of a session matches the transcript."""
    if recorded.events is None:
        return reject(
            recorded.trouble or "there is no recording",
            remediation="serve it by openenv's create_app, which records where OPENENV_RECORD "
            "names a directory that it can write to",
        )
    seen = [
        {
            "kind": "reset" if moment.is_reset else "step",
            "action": None if moment.is_reset else moment.sent,
            "reward": moment.reward,
            "done": moment.is_done,
        }
        for moment in recorded.transcript.moments
    ]
    kept = [event for event in recorded.events if event["error"] is None]
    wrong = [
        f"{one['kind']} {number}: {name} was {one[name]!r:.120}, and the record has "
        f"{other[name]!r:.120}"
        for number, (one, other) in enumerate(zip(seen, kept, strict=False))
        for name in one
        if one[name] != other[name]
    ]
    if len(seen) != len(kept):
        wrong.append(f"{len(seen)} resets and steps were seen, and {len(kept)} are on record")
    if wrong:
        return reject(*wrong[:QUOTED_FAULTS], remediation="record what is answered, unchanged")
    return accept(events=len(kept))


def judge_tool_declaration_accuracy(manifest: AnyManifest, survey: ToolSurvey) -> Judgment:
    """Check that the listed tools match the declaration and have valid schemas."""
    from jsonschema import Draft202012Validator, SchemaError

    declared = manifest.capabilities.declared_tools
    if survey.tools is None:
        if not declared:
            return accept("no tools are declared, and the server has none", tools=[])
        return reject(
            f"{len(declared)} tools are declared, and tools/list answers "
            f"{str(survey.listed)[:200] if survey.listed else 'nothing'}",
            remediation="serve the tools (openenv.tools), or take them out of declared_tools",
        )
    names = [str(tool.get("name")) for tool in survey.tools]
    wrong = [f"{name} is declared, and not there" for name in declared if name not in names]
    wrong += [f"{name} is there, and not declared" for name in names if name not in declared]
    for tool in survey.tools:
        schema = tool.get("inputSchema", tool.get("input_schema"))
        try:
            Draft202012Validator.check_schema(schema if isinstance(schema, dict) else {"type": 0})
        except SchemaError as error:
            wrong.append(f"{tool.get('name')}: its input schema is none: {error.message:.120}")
    if "result" in (answer := survey.unknown or {}):
        result = answer["result"]
        is_error = isinstance(result, dict) and result.get("isError", result.get("is_error"))
        if not is_error:
            wrong.append("a call of a tool that there is not was answered as if there were")
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="list exactly these names in validation.capabilities.declared_tools: "
            + ", ".join(sorted(names)),
            declared=sorted(declared),
            listed=sorted(names),
        )
    return accept(tools=sorted(names))


def judge_task_declaration_accuracy(manifest: AnyManifest, survey: TaskSurvey) -> Judgment:
    """Check that the served tasks match the declaration and can be fetched."""
    declared = manifest.capabilities.declared_task_count
    claims = manifest.capabilities.task_api or bool(declared)
    if not survey.splits:
        if not claims:
            return accept("no tasks are declared, and the server has none")
        said = survey.trouble or (f"/list_environments answers {survey.environments.status}",)
        return reject(
            "tasks are declared, and the server has none",
            *said,
            remediation="give the environment list_splits, list_tasks, num_tasks and get_task",
        )
    wrong = list(survey.trouble)
    if not claims:
        wrong.append(f"the server has tasks of {', '.join(survey.splits)}, and none are declared")
    for split in dict.fromkeys((*declared, *survey.splits)):
        if split not in survey.splits:
            wrong.append(f"the split {split} is declared, and the server has no such split")
            continue
        wrong += _split_faults(split, declared.get(split), survey)
    counts = dict(survey.counted)
    return conclude(
        wrong,
        f"declare validation.capabilities.declared_task_count: {counts}, or mend the methods that "
        "count and give tasks",
        counts=counts,
    )


def _split_faults(split: str, declared: int | None, survey: TaskSurvey) -> Iterator[str]:
    count, listed = survey.counted.get(split), survey.listed.get(split)
    if declared is not None and count != declared:
        yield f"{split}: {declared} tasks are declared, and num_tasks is {count!r}"
    if listed is None:
        return
    if count != len(listed):
        yield f"{split}: num_tasks is {count!r}, and {len(listed)} tasks are listed"
    for index, page in survey.fetched.get(split, {}).items():
        if index >= len(listed):
            if page.status == 200:
                yield f"{split}: there is a task at index {index}, past the end"
        elif page.object.get("task") != listed[index]:
            yield f"{split}: the task at index {index} is not the one that is listed there"
