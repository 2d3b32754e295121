"""Dataset cards: contents, provenance, schema and loading."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openenv._internal.replacing import replace_text
from openenv.rollouts.collect.records import EpisodeRecord
from openenv.rollouts.collect.serializer import (
    METADATA_FILENAME,
    README_FILENAME,
    RESULTS_FILENAME,
    RolloutSerializer,
)
from openenv.rollouts.collect.tables import TABLE_FILENAME

# Marks cards that openenv wrote and may replace.
MADE_BY = "<!-- made by `openenv collect`; a card without this line is left as it is -->"

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
LARGER = "n>1M"

SCHEMA = {
    "episode_id": ("string", "unique in the dataset"),
    "messages": ("list", "the conversation, in the form of OpenAI's API; tool calls and answers"),
    "reward": ("number", "what the episode is worth; one that could not be scored is not here"),
    "done": ("boolean", "it came to its end, and no limit cut it off"),
    "tool_trace": ("list", "`{tool_name, arguments, result}` of each call"),
    "metrics": ("object", "numbers of the rollout, such as `turns` and `tool_calls`"),
    "verify_metrics": ("object", "numbers of the verdict, such as the components of the reward"),
    "artifacts": ("object", "all else that the verdict holds"),
    "task": ("any", "what was to be done; null without a task"),
    "extra": ("object", "what was noted of it, such as its seed and how it ended"),
}

# The metadata that the card shows, in this order.
TOLD = {
    "environment": "environment",
    "env": "environment",
    "policy": "who played",
    "model": "model",
    "seed": "seed",
    "n": "episodes of each task",
    "limits": "limits",
    "openenv": "version of OpenEnv",
}


LOADING = f"""```python
from datasets import load_dataset

episodes = load_dataset("ORG/NAME", split="train")
```

`openenv sft {RESULTS_FILENAME} -o sft.parquet` makes training data of them, which TRL's \
`SFTTrainer` takes."""


def statistics(records: Iterable[EpisodeRecord]) -> dict[str, Any]:
    """Compute the numbers of a dataset in one pass.

    Returns:
        ``episodes``; ``reward``: ``mean``, ``min``, ``max`` and ``above_0``, the share of rewards
        above 0 (each None if there are no episodes); ``turns`` and ``messages``: mean per episode;
        ``done``: number of episodes that came to their end; ``tools``: number of calls by tool.
    """
    rewards: list[float] = []
    turns = messages = done = 0
    tools: Counter[str] = Counter()
    for record in records:
        rewards.append(float(record.reward))
        messages += len(record.messages)
        turns += sum(one.get("role") == "assistant" for one in record.messages)
        done += record.done
        tools.update(str(call.get("tool_name")) for call in record.tool_trace)
    count = len(rewards)
    reward: dict[str, float | None] = dict.fromkeys(("mean", "min", "max", "above_0"))
    if count:
        above = sum(one > 0 for one in rewards) / count
        mean = math.fsum(rewards) / count
        reward = {"mean": mean, "min": min(rewards), "max": max(rewards), "above_0": above}
    return {
        "episodes": count,
        "reward": reward,
        "turns": turns / count if count else None,
        "messages": messages / count if count else None,
        "done": done,
        "tools": dict(tools.most_common()),
    }


def write_card(output_dir: Path) -> bool:
    """Write the card of a folder; return False, writing nothing, if a user's own card is there."""
    path = output_dir / README_FILENAME
    if path.exists() and MADE_BY not in path.read_text(encoding="utf-8", errors="replace"):
        return False
    replace_text(path, build_dataset_readme(output_dir))
    return True


def build_dataset_readme(output_dir: Path) -> str:
    """Build the card of a folder of episodes: front matter for the Hub, and Markdown.

    Raises:
        RolloutFileError: A file of the folder is damaged.
    """
    serializer = RolloutSerializer(output_dir)
    told = statistics(serializer.records())
    known = serializer.read_metadata()
    tools = [(f"`{name}`", f"{count:,}") for name, count in told["tools"].items()]
    has_table = (Path(output_dir) / TABLE_FILENAME).exists()
    parts = [
        _front_matter(told["episodes"], TABLE_FILENAME if has_table else RESULTS_FILENAME),
        MADE_BY,
        "# Episodes collected with OpenEnv",
        _about(known),
        "## Statistics\n\n" + _table(("", ""), _numbers(told)),
        _table(("tool", "calls"), tools) if tools else "",
        "## Schema\n\n" + _schema(has_table),
        "## Loading\n\n" + LOADING,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(episodes: int, file: str) -> str:
    size = next((name for most, name in SIZES if episodes < most), LARGER)
    lines = [
        "---",
        "tags:",
        "- openenv",
        "- agent",
        "- reinforcement-learning",
        "size_categories:",
        f"- {size}",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f'    path: "{file}"',
        "---",
    ]
    return "\n".join(lines)


def _about(known: Mapping[str, Any]) -> str:
    rows = [(name, _shown(known[key])) for key, name in TOLD.items() if known.get(key) is not None]
    named = dict(reversed(rows))  # if two keys have the same name, the first counts
    rows = [(name, named[name]) for name in dict.fromkeys(name for name, _ in rows)]
    if not rows:
        return ""
    more = f"All that is known of the run is in `{METADATA_FILENAME}`."
    return _table(("", "how it was collected"), rows) + f"\n\n{more}"


def _numbers(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    reward = told["reward"]
    rows = [("episodes", f"{told['episodes']:,}"), ("that came to their end", f"{told['done']:,}")]
    if told["episodes"]:
        rows += [
            ("mean reward", f"{reward['mean']:.4g}"),
            ("least and greatest reward", f"{reward['min']:.4g}, {reward['max']:.4g}"),
            ("rewards above 0", f"{reward['above_0']:.1%}"),
            ("replies of an episode", f"{told['turns']:.1f}"),
        ]
    return rows


def _schema(has_table: bool) -> str:
    rows = [(f"`{name}`", f"{kind}: {what}") for name, (kind, what) in SCHEMA.items()]
    where = f"Each line of `{RESULTS_FILENAME}` is an episode"
    if has_table:
        where += f", and so is each row of `{TABLE_FILENAME}`, whose objects are JSON"
    return f"{where}.\n\n" + _table(("field", ""), rows)


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {one} | {other} |" for one, other in rows)])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("|", "\\|")[:300]
