"""Evaluations as files: one folder a run.

rollouts.jsonl   what was played; see `openenv.rollouts.files`
result.json      an `EvalResult`: what was asked for, and what came of it
comparison.json  what it has apart from another run, where there is one
report.html      the same to be read; see `openenv.evals.report`
report.md
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openenv._redaction import redact
from openenv.evals.comparison import Comparison, compare
from openenv.evals.metrics import Evaluation, EvaluationError, evaluate
from openenv.evals.report import html_report, markdown_report
from openenv.evals.types import EvalConfig, EvalResult
from openenv.rollouts.files import read_header, read_rollouts

__all__ = [
    "COMPARISON",
    "REPORTS",
    "RESULT",
    "ROLLOUTS",
    "compare_eval_results",
    "is_stored",
    "load_evaluation",
    "result_of",
    "save",
]

ROLLOUTS, RESULT, COMPARISON = "rollouts.jsonl", "result.json", "comparison.json"

REPORTS: dict[str, Callable[[Evaluation, Comparison | None], str]] = {
    "html": html_report,
    "md": markdown_report,
}

# Under which of the scores a result has the evaluation as a whole.
WHOLE = "evaluation"


def result_of(config: EvalConfig, evaluation: Evaluation) -> EvalResult:
    """Put what was asked for beside what came of it."""
    whole = evaluation.model_dump(mode="json", exclude_defaults=True)
    return EvalResult(config=config, scores={**evaluation.scores(), WHOLE: whole})


def _evaluation_of(result: EvalResult, name: str) -> Evaluation:
    try:
        return Evaluation.model_validate(result.scores[WHOLE])
    except (KeyError, ValidationError) as error:
        raise EvaluationError(f"{name} is no result of EnvEvalHarness: {error}") from error


def compare_eval_results(before: EvalResult, after: EvalResult, **options: Any) -> Comparison:
    """Compare two results of `EnvEvalHarness`, task by task.

    Args:
        before: The first run.
        after: The second run.
        options: Of `compare`.

    Raises:
        ComparisonError: They cannot be compared.
        EvaluationError: One of them is of another harness.
    """
    first, second = _evaluation_of(before, "the first"), _evaluation_of(after, "the second")
    return compare(first, second, **options)


# ------------------------------------------------------------------ files


def is_stored(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a run: its folder, its rollouts, or its result."""
    path = Path(path)
    if path.is_dir():
        return any((path / name).is_file() for name in (ROLLOUTS, RESULT))
    return path.is_file() and path.suffix in (".jsonl", ".parquet", ".json")


def load_evaluation(path: str | os.PathLike[str], **options: Any) -> Evaluation:
    """Read a run that was stored.

    Args:
        path: Its folder, its rollouts, or its ``result.json``. What is in a result was evaluated
            before; rollouts are evaluated anew, and so is a folder that has some.
        options: Of `evaluate`. Of a result, what it was evaluated by.

    Raises:
        EvaluationError: There is no run, or it cannot be evaluated; or a result was evaluated by
            other options.
        OSError: A file cannot be read.
        RolloutFileError: The file of rollouts is damaged.
    """
    path = Path(path)
    if path.is_dir():
        names = [name for name in (ROLLOUTS, RESULT) if (path / name).is_file()]
        if not names:
            raise EvaluationError(f"{path} is no run: it has no {ROLLOUTS} and no {RESULT}")
        if len(names) == 2:
            stored = load_evaluation(path / RESULT)
            options = {"reproducible": stored.reproducible, **options}
        return load_evaluation(path / names[0], **options)
    if path.suffix == ".json":
        return _evaluated_so(_evaluation_of(_read_result(path), str(path)), path, options)
    return evaluate(read_rollouts(path), read_header(path), **options)


def _evaluated_so(found: Evaluation, path: Path, options: dict[str, Any]) -> Evaluation:
    names = {"unscored": "unscored_policy"}
    for name, asked in options.items():
        stored = getattr(found, names.get(name, name))
        if asked is not None and asked != stored:
            raise EvaluationError(
                f"{path} was evaluated with {name}={stored!r}, and {asked!r} is asked for; its "
                f"rollouts ({ROLLOUTS}, beside it) can be evaluated anew"
            )
    return found


def _read_result(path: Path) -> EvalResult:
    try:
        return EvalResult.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise EvaluationError(f"{path} is no result: {where}: {first['msg']}") from error


def save(
    folder: str | os.PathLike[str],
    result: EvalResult,
    evaluation: Evaluation,
    compared: Comparison | None = None,
    reports: Iterable[str] = tuple(REPORTS),
) -> list[Path]:
    """Write a run into its folder, beside its rollouts; what is there of another one is replaced,
    or removed where this one has no such file. What looks like a secret is replaced.

    Args:
        folder: Where; it is made if it is not there.
        result: What was asked for, and its scores.
        evaluation: What the scores are of.
        compared: What it has apart from another run.
        reports: Of these kinds: ``html``, ``md``.

    Returns:
        The files.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
        OSError: They cannot be written.
        ValueError: There is no such kind of report.
    """
    unknown = [name for name in reports if name not in REPORTS]
    if unknown:
        raise ValueError(f"reports={unknown}; expected some of {', '.join(REPORTS)}")
    texts = {RESULT: result.model_dump_json()}
    if compared is not None:
        texts[COMPARISON] = compared.model_dump_json()
    texts |= {f"report.{name}": REPORTS[name](evaluation, compared) for name in reports}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (COMPARISON, *(f"report.{kind}" for kind in REPORTS)):
        if name not in texts:
            (folder / name).unlink(missing_ok=True)
    return [_written(folder / name, redact(text)) for name, text in texts.items()]


def _written(path: Path, text: str) -> Path:
    """Write a file such that it is there whole, or as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path
