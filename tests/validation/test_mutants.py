"""One thing is wrong with each of these environments, and one check says so.

The table of docs/concepts/validation-mutants.md has a row for each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from validation.subjects.good_env.server.mutants import MUTANTS
from validation.subjects.threads import GOOD, ThreadProvider, copied

from openenv.validation.report import CheckResult
from openenv.validation.runner import validate
from openenv.validation.types import CheckStatus, Level

TABLE = Path(__file__).parents[2] / "docs" / "concepts" / "validation-mutants.md"

# What has something wrong in its package, and not in its code: the check, a file of the package,
# what stands in it, and what stands there instead.
PACKAGES = {
    "runtime.oracle_containment": (".dockerignore", "validation/", "tests/"),
    "runtime.tool_declaration_accuracy": (
        "openenv.yaml",
        "task_api: true",
        "task_api: true\n    declared_tools: [look]",
    ),
}
# Of these, what stands on the one that fails is skipped; nothing else is.
DEPENDENTS = {
    "runtime.rubric_introspectable": {"runtime.reward_attribution", "runtime.reward_contract"},
    "semantic.verifier_determinism": {
        "semantic.verifier_portability",
        "semantic.replayability",
        "semantic.monotonicity",
    },
    "learning.group_signal": {"learning.curve"},
}
SERVED = [name for name in MUTANTS if name.startswith(("runtime.", "semantic."))]


@pytest.fixture(autouse=True)
def no_news() -> Iterator[None]:
    """What goes wrong is what is looked for, and no news to an operator."""
    logger = logging.getLogger("openenv.sessions")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def results(
    root: Path, mutant: str | None = None, level: Level = Level.SEMANTIC
) -> dict[str, CheckResult]:
    """What the checks of a running package came to."""
    found = validate(root, max_level=level, skip_build=True, provider=ThreadProvider(mutant))
    assert found.report.manifest is not None
    return {
        result.check_id: result
        for result in found.report.results
        if not result.check_id.startswith("static.")
    }


@cache
def statuses_of_the_good_one() -> dict[str, CheckStatus]:
    return {name: result.status for name, result in results(GOOD).items()}


def changed(found: dict[str, CheckResult]) -> dict[str, CheckStatus]:
    """The checks that ended otherwise than of the good environment."""
    good = statuses_of_the_good_one()
    return {name: one.status for name, one in found.items() if one.status is not good[name]}


def test_the_good_environment_passes_every_check_that_a_thread_can_be_asked() -> None:
    unmeasured = {
        "runtime.network_policy",
        "runtime.host_containment",
        "runtime.resource_bounds",
        "semantic.verifier_portability",
    }
    good = statuses_of_the_good_one()
    assert {name for name, status in good.items() if status is not CheckStatus.PASS} == unmeasured
    assert {good[name] for name in unmeasured} == {CheckStatus.SKIP}
    assert len(good) == 30  # 20 of the runtime level, 10 of the semantic one


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of what is not as declared
@pytest.mark.slow
@pytest.mark.parametrize("check_id", SERVED)
def test_a_mutant_is_caught_by_its_check_alone(check_id: str) -> None:
    found = results(GOOD, check_id)
    difference = changed(found)
    assert difference.pop(check_id) is CheckStatus.FAIL, found[check_id]
    assert found[check_id].evidence
    assert set(difference.values()) <= {CheckStatus.SKIP}, difference
    if check_id in ("runtime.startup", "runtime.episode_determinism"):
        return  # nearly everything stands on these
    expected = DEPENDENTS.get(check_id, set()) - set(_skipped_anyway())
    assert set(difference) == expected


def _skipped_anyway() -> list[str]:
    good = statuses_of_the_good_one()
    return [name for name, status in good.items() if status is CheckStatus.SKIP]


@pytest.mark.slow
def test_all_semantic_checks_stand_on_the_determinism_of_episodes() -> None:
    found = results(GOOD, "runtime.episode_determinism")
    semantic = [result for name, result in found.items() if name.startswith("semantic.")]
    assert len(semantic) == 10
    for result in semantic:
        assert result.status is CheckStatus.SKIP
        assert "runtime.episode_determinism" in result.evidence[0]


@pytest.mark.slow
@pytest.mark.parametrize("check_id", PACKAGES)
def test_a_package_in_which_one_file_is_wrong_is_caught_by_its_check_alone(
    check_id: str, tmp_path: Path
) -> None:
    root = copied(tmp_path)
    file, good, bad = PACKAGES[check_id]
    text = (root / file).read_text()
    assert good in text
    (root / file).write_text(text.replace(good, bad))
    assert changed(results(root)) == {check_id: CheckStatus.FAIL}


@pytest.mark.slow
@pytest.mark.parametrize("check_id", ["learning.curve", "learning.group_signal"])
def test_a_mutant_that_teaches_nothing_is_caught_by_its_check_alone(check_id: str) -> None:
    found = results(GOOD, check_id, Level.STATISTICAL)
    assert found[check_id].status is CheckStatus.FAIL, found[check_id]
    good = statuses_of_the_good_one()
    for name, result in found.items():
        if name in good:
            assert result.status is good[name], result
        elif name != check_id:
            is_dependent = name in DEPENDENTS.get(check_id, set())
            assert result.status is (CheckStatus.SKIP if is_dependent else CheckStatus.PASS)


@pytest.mark.slow
def test_the_good_environment_teaches_something() -> None:
    found = results(GOOD, None, Level.STATISTICAL)
    assert found["learning.curve"].status is CheckStatus.PASS, found["learning.curve"]
    assert found["learning.group_signal"].status is CheckStatus.PASS


def test_every_check_of_a_running_package_has_a_mutant_in_the_table() -> None:
    rows = {line.split("`")[1] for line in TABLE.read_text().splitlines() if line.startswith("| `")}
    confined = {"runtime.network_policy", "runtime.host_containment", "runtime.resource_bounds"}
    planted = {name for name in MUTANTS if "." in name} | set(PACKAGES) | confined
    assert rows == planted
    assert set(statuses_of_the_good_one()) <= planted
