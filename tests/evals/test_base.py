"""`EvalHarness`, `EvalConfig`, `EvalResult`: as existing code uses them."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

import openenv.core.evals as old_path
from openenv._internal.packages import MissingPackage
from openenv.evals import EvalConfig, EvalHarness, EvalResult, InspectAIHarness

CONFIG: dict[str, Any] = {
    "harness_name": "Counting",
    "harness_version": "1",
    "library_versions": {"x": "2"},
    "dataset": "d",
    "eval_parameters": {"limit": 3},
}


class Counting(EvalHarness):
    def run(
        self,
        harness_version: str,
        library_versions: dict[str, str],
        dataset: str,
        eval_parameters: dict[str, Any],
    ) -> dict[str, Any]:
        return {"told": [harness_version, library_versions, dataset, eval_parameters]}


def test_a_harness_is_run_from_a_configuration() -> None:
    harness, config = Counting(), EvalConfig(**CONFIG)
    result = harness.run_from_config(config)
    assert result == EvalResult(
        config=config, scores={"told": ["1", {"x": "2"}, "d", {"limit": 3}]}
    )
    assert harness.name == "Counting"


def inspect_that_gives(*logs: Any) -> Any:
    """A stand-in for the package, which has what versions of it have in common."""
    asked: list[tuple[Any, dict[str, Any]]] = []

    def evaluate(task: Any, **options: Any) -> list[Any]:
        asked.append((task, options))
        return list(logs)

    return SimpleNamespace(eval=evaluate, asked=asked)


def test_of_a_log_of_inspect_no_more_is_read_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {"accuracy": SimpleNamespace(value=0.75), "stderr": SimpleNamespace(value=1)}
    results = SimpleNamespace(scores=[SimpleNamespace(metrics=metrics)])
    package = inspect_that_gives(SimpleNamespace(status="success", results=results))
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    scorer = [object()]
    parameters = {"model": "a/b", "scorer": scorer}
    assert InspectAIHarness().run("1", {}, "d", parameters) == {"accuracy": 0.75, "stderr": 1}
    assert package.asked == [("d", parameters)]


def test_a_log_of_inspect_that_is_no_success_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    package = inspect_that_gives(SimpleNamespace(status="cancelled"))
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    with pytest.raises(RuntimeError, match="'cancelled'"):
        InspectAIHarness().run("1", {}, "d", {"model": "a/b"})


def test_a_harness_that_does_not_run_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        EvalHarness()  # type: ignore[abstract]


@pytest.mark.parametrize("field", list(CONFIG))
def test_every_field_of_a_configuration_has_to_be_given(field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        EvalConfig(**{name: value for name, value in CONFIG.items() if name != field})
    assert raised.value.errors()[0]["loc"] == (field,)


def test_unknown_fields_and_wrong_types_are_refused_also_later() -> None:
    config = EvalConfig(**CONFIG)
    with pytest.raises(ValidationError):
        EvalConfig(**{**CONFIG, "more": 1})
    with pytest.raises(ValidationError):
        config.dataset = 3  # type: ignore[assignment]
    with pytest.raises(ValidationError):
        EvalResult(config=config, scores=None)  # type: ignore[arg-type]


def test_the_old_path_has_the_same_names() -> None:
    names = set(old_path.__all__)  # type: ignore[attr-defined]
    assert names == {"EvalConfig", "EvalHarness", "EvalResult", "InspectAIHarness"}
    assert old_path.EvalHarness is EvalHarness


def test_the_harness_of_inspect_takes_its_folder_by_name_only() -> None:
    assert str(inspect.signature(InspectAIHarness)) == "(*, log_dir: 'str | None' = None) -> 'None'"


def test_without_inspect_the_error_says_how_to_install_it() -> None:
    """It is not beside ours; and the old `ImportError` still catches it."""
    with pytest.raises(MissingPackage, match=r"openenv\[inspect\]") as raised:
        InspectAIHarness().run("1", {}, "d", {"model": "mockllm/model"})
    assert isinstance(raised.value, ImportError)
