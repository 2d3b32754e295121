"""Evaluations as files, a folder for each run.

rollouts.jsonl   the rollouts; see `openenv.rollouts.files`
result.json      an `EvalResult`: the configuration and the scores
comparison.json  the comparison with another run, if any
report.html      reports for people; see `openenv.evals.report`
report.md
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openenv._internal.packages import check_installed
from openenv._internal.redaction import redact
from openenv._internal.replacing import replace_text
from openenv.evals.base import EvalConfig, EvalResult
from openenv.evals.comparison import Comparison, compare
from openenv.evals.metrics import ASKED, Evaluation, EvaluationError, evaluate
from openenv.evals.report import html_report, markdown_report
from openenv.rollouts.files import read_header, read_rollouts

ROLLOUTS, RESULT, COMPARISON = "rollouts.jsonl", "result.json", "comparison.json"

REPORTS: dict[str, Callable[[Evaluation, Comparison | None], str]] = {
    "html": html_report,
    "md": markdown_report,
}

# Key of the scores under which a result has the whole evaluation.
WHOLE = "evaluation"

# Packages of the extra ``eval``: for the figures, and for each kind of report.
PACKAGES = ("numpy", "scipy")
OF_REPORTS = {"html": ("jinja2", "matplotlib"), "md": ("jinja2",)}
INSTALL = "pip install 'openenv[eval]'"


def check_extra(reports: Iterable[str] = ()) -> None:
    """Check that the packages for evaluation and reports are installed, before anything is played.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
    """
    check_installed("an evaluation", PACKAGES, INSTALL)
    for kind in reports:
        check_installed("a report of an evaluation", OF_REPORTS.get(kind, ()), INSTALL)


def result_of(config: EvalConfig, evaluation: Evaluation) -> EvalResult:
    """Combine a configuration and an evaluation into a result."""
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
        **options: Options of `compare`.

    Raises:
        ComparisonError: The runs cannot be compared.
        EvaluationError: A result is from another harness.
    """
    first, second = _evaluation_of(before, "the first"), _evaluation_of(after, "the second")
    return compare(first, second, **options)


def is_stored(path: str | os.PathLike[str]) -> bool:
    """Return whether a path may be a stored run: a run's folder, a rollout file, or a result."""
    path = Path(path)
    if path.is_dir():
        return any((path / name).is_file() for name in (ROLLOUTS, RESULT))
    return path.is_file() and path.suffix in (".jsonl", ".parquet", ".json")


def load_evaluation(path: str | os.PathLike[str], **options: Any) -> Evaluation:
    """Read a stored run.

    Args:
        path: The run's folder, rollout file, or ``result.json``. The evaluation of a
            ``result.json`` is returned as stored. A rollout file, or a folder with one, is
            evaluated again by the stored rules, which `options` override (see `stored_rules`).
        **options: Options of `evaluate`. For a ``result.json`` they must equal the stored ones.

    Raises:
        EvaluationError: There is no run, the run cannot be evaluated, or a result was evaluated
            with other options.
        OSError: A file cannot be read.
        RolloutFileError: The rollout file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        names = [name for name in (ROLLOUTS, RESULT) if (path / name).is_file()]
        if not names:
            raise EvaluationError(f"{path} is no run: it has no {ROLLOUTS} and no {RESULT}")
        stored_rules(path)  # raises if the result is damaged
        return load_evaluation(path / names[0], **options)
    if path.suffix == ".json":
        return _evaluated_so(_evaluation_of(_read_result(path), str(path)), path, options)
    given = {name: value for name, value in options.items() if value is not None}
    rules = {**stored_rules(path), **given}
    return evaluate(read_rollouts(path), read_header(path), **rules)


def stored_rules(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of `evaluate` that a stored run was evaluated with.

    The dict is empty if there is no stored result. A threshold that was derived from the declared
    range is left out, so that it is derived again.

    Raises:
        EvaluationError: The stored result is damaged.
        OSError: A file cannot be read.
    """
    path = Path(path)
    file = path / RESULT if path.is_dir() else path
    if file.name == ROLLOUTS:
        file = file.with_name(RESULT)
    if file.suffix != ".json" or (file != path and not file.is_file()):
        return {}
    try:
        result = _read_result(file)
        stored, asked = _evaluation_of(result, str(file)), result.config.eval_parameters
    except EvaluationError:
        if path.name == ROLLOUTS:
            return {}  # the rollouts can be evaluated without the result
        raise
    rules: dict[str, Any] = {
        "unscored": stored.unscored_policy,
        "level": stored.level,
        "reproducible": stored.reproducible,
    }
    if stored.threshold_from == ASKED:
        rules["threshold"] = stored.threshold
    if asked.get("lowest", asked.get("lowest_reward")) is not None:
        rules["lowest"] = stored.lowest
    return rules


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
    """Write the result, the comparison and the reports of a run to the folder of the rollouts.

    Files of an earlier run are replaced or removed. Text that looks like a secret is redacted.

    Args:
        folder: The folder; created if missing.
        result: The configuration and the scores.
        evaluation: The evaluation that the scores are from.
        compared: The comparison with another run, if any.
        reports: Kinds of reports: ``html``, ``md``.

    Returns:
        The paths of the files.

    Raises:
        MissingPackage: The extra ``eval`` is not installed.
        OSError: A file cannot be written.
        ValueError: A kind of report is unknown.
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
    for name, text in texts.items():
        replace_text(folder / name, redact(text))
    return [folder / name for name in texts]
