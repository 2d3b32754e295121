"""Data for supervised fine-tuning from episodes: rows for TRL's `SFTTrainer`.

    messages             a conversation a row: {"messages", "tools"}
    prompt-completion    a reply a row: {"prompt", "completion", "tools"}; only the reply is learned

Rows of both forms also have ``reward`` and ``episode_id``. Arguments of calls are objects, as chat
templates expect, not the text that APIs send. A row ends with the model's last message, since the
result of its last action teaches nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic_core import to_json

from openenv._internal.json import read_json
from openenv._internal.replacing import replacing
from openenv.rollouts.collect.interfaces import interface_from_json
from openenv.rollouts.collect.records import EpisodeRecord
from openenv.rollouts.collect.serializer import (
    RESULTS_FILENAME,
    ROLLOUTS_FILENAME,
    RolloutSerializer,
    read_records,
)
from openenv.rollouts.collect.tables import import_pyarrow, write_rows
from openenv.rollouts.files import format_of, read_rollouts
from openenv.rollouts.lines import RolloutFileError
from openenv.rollouts.records import FORMAT, Rollout

Form = Literal["messages", "prompt-completion"]
FORMS: tuple[Form, ...] = get_args(Form)
Source = str | os.PathLike[str] | Iterable[Rollout | EpisodeRecord]

PARQUET = ".parquet"


@dataclass(frozen=True)
class SFTFilters:
    """Rules that select the episodes to learn from. Failed episodes are never selected.

    Attributes:
        min_reward: The lowest reward to accept. If set, unscored episodes are left out.
        best_of: Number of episodes to select from each group (the samples of one task and seed):
            those with the highest reward; if equal, those with fewer refused actions, then with
            fewer replies. If set, unscored episodes are left out.
        max_refused: Maximum number of refused actions in an episode; the model would learn these
            mistakes.
        only_done: Select only episodes that came to their end.
        unique: Select only one of several equal conversations.

    Raises:
        ValueError: `best_of` is below 1, or `max_refused` below 0.
    """

    min_reward: float | None = None
    best_of: int | None = None
    max_refused: int | None = None
    only_done: bool = False
    unique: bool = True

    def __post_init__(self) -> None:
        if self.best_of is not None and self.best_of < 1:
            raise ValueError(f"best_of={self.best_of}: expected at least 1")
        if self.max_refused is not None and self.max_refused < 0:
            raise ValueError(f"max_refused={self.max_refused}: expected at least 0")


@dataclass
class SFTSummary:
    """Counts of selected and rejected episodes.

    Attributes:
        rows: Number of rows.
        episodes: Number of selected episodes.
        left_out: Number of rejected episodes by reason.
        mean_reward: The mean reward of selected, scored episodes; None if there are none.
    """

    rows: int = 0
    episodes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    mean_reward: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the summary as JSON types."""
        return asdict(self)


@dataclass
class _TrainingEpisode:
    id: str
    group: str
    messages: list[dict[str, Any]]
    reward: float | None
    refused: int
    is_done: bool
    has_failed: bool
    is_kept: bool
    tools: list[dict[str, Any]] | None

    @property
    def replies(self) -> int:
        return sum(one.get("role") == "assistant" for one in self.messages)


# ------------------------------------------------------------------ reading


def read_episodes(source: Source) -> Iterator[tuple[Rollout | EpisodeRecord, Any]]:
    """Yield episodes, each with the known tools or None.

    Args:
        source: A folder written by `collect` or ``openenv eval``; a file of rollouts or of
            collected episodes; or `Rollout` and `EpisodeRecord` objects.

    Raises:
        RolloutFileError: The source holds neither rollouts nor episodes, or is damaged.
    """
    if not isinstance(source, str | os.PathLike):
        yield from ((one, None) for one in source)
        return
    path = Path(source)
    if path.is_dir():
        known = [path / RESULTS_FILENAME, path / ROLLOUTS_FILENAME]
        path = next((one for one in known if one.is_file()), known[0])
    found: Iterator[Rollout | EpisodeRecord]
    if path.suffix == PARQUET or format_of(path) == FORMAT:
        found = read_rollouts(path)
    else:
        found = read_records(path)
    interface = interface_from_json(RolloutSerializer(path.parent).read_metadata().get("interface"))
    tools = None if interface is None else [tool.as_function() for tool in interface.tools]
    yield from ((one, tools) for one in found)


def _episode(one: Rollout | EpisodeRecord, tools: Any, place: str) -> _TrainingEpisode:
    if isinstance(one, Rollout):
        refused = len(one.refused)
        refused += sum(len((step.policy or {}).get("refused", ())) for step in one.steps)
        is_done, group = one.outcome in ("done", "truncated"), one.group or one.id
        told, id = one.messages, one.id
        has_failed, is_kept = one.outcome == "failed", one.is_kept
    else:
        known = one.metrics.get("refused")
        errors = (call.get("result") or {} for call in one.tool_trace)
        refused = known if isinstance(known, int) else sum(bool(e.get("error")) for e in errors)
        is_done, id, told = one.done, one.episode_id, one.messages
        task = to_json(one.task).decode() if one.task is not None else id
        group = str(one.extra.get("group") or task)
        has_failed, is_kept = False, True
    messages, group = _cleaned(told), f"{place}{group}"
    return _TrainingEpisode(
        id, group, messages, one.reward, refused, is_done, has_failed, is_kept, tools
    )


def _cleaned(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation in the format of chat templates, up to the model's last message."""
    found: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        one = {name: value for name, value in message.items() if value is not None}
        one["content"] = one.get("content", "")
        if one.get("tool_calls"):
            one["tool_calls"] = [_call(call) for call in one["tool_calls"]]
            names |= {
                str(call["id"]): call["function"]["name"]
                for call in one["tool_calls"]
                if "id" in call
            }
        else:
            one.pop("tool_calls", None)
        if one.get("role") == "tool" and "name" not in one:
            name = names.get(str(one.get("tool_call_id")))
            one |= {} if name is None else {"name": name}
        found.append(one)
    while found and found[-1].get("role") != "assistant":
        found.pop()
    return found


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # a model may write invalid JSON
            arguments = read_json(arguments)
    function["arguments"] = {} if arguments is None else arguments
    return {**call, "type": "function", "function": function}


# ------------------------------------------------------------------ selection


class _EpisodeSelection:
    """Selects episodes, and counts rejected episodes by reason."""

    def __init__(self, filters: SFTFilters) -> None:
        self._filters = filters
        self._seen: set[bytes] = set()
        self._best: set[int] | None = None
        self.left_out: Counter[str] = Counter()

    def rank(self, episodes: Iterable[_TrainingEpisode]) -> None:
        """Find the best episodes of each group."""
        groups: dict[str, list[tuple[float, int, int, int]]] = defaultdict(list)
        for number, one in enumerate(episodes):
            if self._why_not(one) is None and one.reward is not None:
                groups[one.group].append((-one.reward, one.refused, one.replies, number))
        best = self._filters.best_of
        self._best = {rank[-1] for ranks in groups.values() for rank in sorted(ranks)[:best]}

    def takes(self, number: int, one: _TrainingEpisode) -> bool:
        why = self._why_not(one)
        if why is None and self._best is not None and number not in self._best:
            why = "not among the best of its group"
        if why is None and self._filters.unique:
            digest = _digest(one)
            why = "says the same as another" if digest in self._seen else None
            self._seen.add(digest)
        if why is not None:
            self.left_out[why] += 1
        return why is None

    def _why_not(self, one: _TrainingEpisode) -> str | None:
        filters = self._filters
        if one.has_failed:
            return "failed"
        if not one.is_kept:
            return "was not kept"
        if not one.messages:
            return "has no conversation"
        if one.reward is None and (filters.min_reward is not None or filters.best_of is not None):
            return "was not scored"
        if filters.min_reward is not None and (one.reward or 0.0) < filters.min_reward:
            return "its reward is too low"
        if filters.max_refused is not None and one.refused > filters.max_refused:
            return "too many actions were refused"
        if filters.only_done and not one.is_done:
            return "did not come to its end"
        return None


def _digest(one: _TrainingEpisode) -> bytes:
    """Return a digest of a conversation that ignores the ids of calls."""
    said = []
    for message in one.messages:
        kept = {name: value for name, value in message.items() if name != "tool_call_id"}
        if "tool_calls" in kept:
            kept["tool_calls"] = [call["function"] for call in kept["tool_calls"]]
        said.append(kept)
    text = json.dumps([said, one.tools], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()


# ------------------------------------------------------------------ rows


def sft_rows(
    *sources: Source,
    form: str = "messages",
    filters: SFTFilters = SFTFilters(),  # it is frozen
    tools: Sequence[Mapping[str, Any]] | None = None,
    summary: SFTSummary | None = None,
) -> Iterator[dict[str, Any]]:
    """Return an iterator of rows for `SFTTrainer`.

    ``datasets.Dataset.from_generator(lambda: sft_rows(...))`` makes a dataset of the rows;
    `write_sft` writes them to a file.

    Args:
        *sources: The sources of the episodes; see `read_episodes`. Groups of different sources are
            separate.
        form: ``messages`` or ``prompt-completion``.
        filters: Rules that select episodes.
        tools: The tools that the model could call, in the format of OpenAI's API. Default: those
            stored beside the episodes. If there are none, rows have no ``tools``.
        summary: Filled with the counts once all rows have been yielded.

    Raises:
        OSError: A source cannot be read.
        RolloutFileError: A source holds no episodes, or is damaged.
        ValueError: `form` is unknown.
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r}: expected {' or '.join(FORMS)}")
    given = None if tools is None else [dict(tool) for tool in tools]
    read = [one if isinstance(one, str | os.PathLike) else list(one) for one in sources]
    return _select_rows(read, form, filters, given, SFTSummary() if summary is None else summary)


def _select_rows(
    read: list[Any],
    form: str,
    filters: SFTFilters,
    given: list[dict[str, Any]] | None,
    told: SFTSummary,
) -> Iterator[dict[str, Any]]:
    choice = _EpisodeSelection(filters)
    if filters.best_of is not None:
        choice.rank(_read(read, given))
    rewards: list[float] = []
    for number, one in enumerate(_read(read, given)):
        if not choice.takes(number, one):
            continue
        told.episodes += 1
        if one.reward is not None:
            rewards.append(one.reward)
        for row in _rows(one, form):
            told.rows += 1
            yield row
    told.left_out = dict(choice.left_out.most_common())
    told.mean_reward = sum(rewards) / len(rewards) if rewards else None


def _read(sources: Iterable[Any], tools: list[dict[str, Any]] | None) -> Iterator[_TrainingEpisode]:
    for number, source in enumerate(sources):
        for one, known in read_episodes(source):
            yield _episode(one, known if tools is None else tools, f"{number}/")


def _rows(one: _TrainingEpisode, form: str) -> Iterator[dict[str, Any]]:
    beside: dict[str, Any] = {"reward": one.reward, "episode_id": one.id}
    if one.tools is not None:
        beside = {"tools": one.tools, **beside}
    if form == "messages":
        yield {"messages": one.messages, **beside}
        return
    for number, message in enumerate(one.messages):
        if message.get("role") == "assistant" and number:
            yield {"prompt": one.messages[:number], "completion": [message], **beside}


def write_sft(
    *sources: Source,
    output: str | os.PathLike[str],
    form: str = "messages",
    filters: SFTFilters = SFTFilters(),  # it is frozen
    tools: Sequence[Mapping[str, Any]] | None = None,
    replace: bool = False,
) -> SFTSummary:
    """Write rows for `SFTTrainer` to a file; the file appears as a whole or not at all.

    Args:
        *sources: The sources of the episodes; see `read_episodes`.
        output: A ``.parquet`` file, which stores each call exactly; or a ``.jsonl`` file, in which
            `datasets` may fill in None if the arguments of two calls differ.
        form: ``messages`` or ``prompt-completion``.
        filters: Rules that select episodes.
        tools: The tools that the model could call. Default: those stored beside the episodes.
        replace: Replace an existing file.

    Raises:
        FileExistsError: The file exists, and `replace` is False.
        MissingPackage: The output is a table, and pyarrow is not installed.
        OSError: A source cannot be read, or the file cannot be written.
        RolloutFileError: A source holds no episodes or is damaged, or no episode was selected.
        ValueError: `form` is unknown, or `output` is neither a .parquet nor a .jsonl file.
    """
    path = Path(output)
    if path.suffix not in (PARQUET, ".jsonl"):
        raise ValueError(f"output={str(path)!r}: expected a .parquet or a .jsonl file")
    if path.exists() and not replace:
        raise FileExistsError(f"{path} is there already; replace it, or name another one")
    if path.suffix == PARQUET:
        import_pyarrow()
    summary = SFTSummary()
    rows = sft_rows(*sources, form=form, filters=filters, tools=tools, summary=summary)
    first = next(rows, None)
    if first is None:
        why = "; ".join(f"{count:,} {reason}" for reason, count in summary.left_out.items())
        raise RolloutFileError(str(path), None, f"no row came of the episodes: {why or 'none'}")
    everything = itertools.chain([first], rows)
    if path.suffix == PARQUET:
        talk = ("messages",) if form == "messages" else ("prompt", "completion")
        columns = dict.fromkeys((*talk, "tools"), "list")
        write_rows(everything, {**columns, "reward": "number", "episode_id": "text"}, path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            file.writelines(to_json(row) + b"\n" for row in everything)
    return summary
