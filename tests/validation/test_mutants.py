"""One thing is wrong with each of these environments, and one check says so.

The table of docs/concepts/validation-mutants.md has a row for each, with what is said of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.amounts import mostly_extended
from validation.subjects.good_env.server.mutants import MUTANTS
from validation.subjects.threads import GOOD, ThreadProvider, copied

from openenv.validation.policy import load_policy
from openenv.validation.report import CheckResult
from openenv.validation.runner import default_grader_registry, validate
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
    "semantic.resource_envelope": (
        "openenv.yaml",
        "episode_timeout_s: 30\n",
        "episode_timeout_s: 0.0001\n",
    ),
}
# What a thread cannot be asked. The faults of the first three are planted in what is found of a
# container, in runtime/test_limits.py.
CONFINED = {"runtime.network_policy", "runtime.host_containment", "runtime.resource_bounds"}
UNSEEN = {
    "static.reproducible_build",
    "static.sbom",
    "semantic.verifier_portability",
    *CONFINED,
}
# What is skipped for another reason than a dependency: the check that failed, whose judge has
# nothing to go by, and the words that say so.
WITHOUT = {
    ("runtime.rubric_introspectable", "runtime.reward_contract"): "does not tell what rewards mean",
    ("runtime.episode_determinism", "runtime.seed_control"): "see episode_determinism",
}
UNMET = re.compile(r"unmet dependency: (\S+) \((?:fail|skip)\)")

SERVED = [name for name in MUTANTS if name.startswith(("runtime.", "semantic."))]
# Of each kind of fault one: of a start, a frame, an action, an order of calls, a score.
SHOWN = [
    "runtime.startup",
    "runtime.observation_schema",
    "runtime.reward_attribution",
    "runtime.reward_contract",
    "runtime.session_isolation",
    "runtime.task_declaration_accuracy",
    "semantic.monotonicity",
    "semantic.no_solution_leakage",
    "semantic.replayability",
]
LEARNED = [name for name in MUTANTS if name.startswith("learning.")]


@pytest.fixture(autouse=True)
def no_news() -> Iterator[None]:
    """What goes wrong is what is looked for, and no news to an operator."""
    logger = logging.getLogger("openenv.execution")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def results(
    root: Path, mutant: str | None = None, level: Level = Level.SEMANTIC
) -> dict[str, CheckResult]:
    """What all checks came to, those that only read the package too."""
    found = validate(root, max_level=level, skip_build=True, provider=ThreadProvider(mutant))
    assert found.report.manifest is not None
    return {result.check_id: result for result in found.report.results}


@cache
def good(level: Level = Level.SEMANTIC) -> dict[str, CheckStatus]:
    """How each check ends of the good environment."""
    return {name: result.status for name, result in results(GOOD, None, level).items()}


@cache
def depends_on() -> dict[str, frozenset[str]]:
    """What each of our checks names as its dependencies."""
    registry = default_grader_registry(load_policy("v3"), Level.STATISTICAL)
    return {grader.check_id: frozenset(grader.depends_on) for grader in registry}


def standing_on(check_id: str) -> set[str]:
    """The checks that depend on one, those that depend on these too."""
    found = {check_id}
    while more := {name for name, others in depends_on().items() if others & found} - found:
        found |= more
    return found - {check_id}


@cache
def table() -> dict[str, str]:
    """By check, what the table says is said: the first words that are set as code."""
    rows = [line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    assert {len(row) for row in rows} == {5}
    return {row[1].strip(" `"): re.findall("`([^`]+)`", row[3])[0] for row in rows}


def assert_caught_alone(
    check_id: str, found: dict[str, CheckResult], level: Level = Level.SEMANTIC
) -> None:
    """It fails, in the words of the table; what stands on it says so; the rest is as ever."""
    before = good(level)
    assert found.keys() == before.keys()
    changed = {name: one for name, one in found.items() if one.status is not before[name]}
    failed = changed.pop(check_id)
    assert failed.status is CheckStatus.FAIL, failed
    said = re.sub(r"\d+", r"\\d+", re.escape(table()[check_id]).replace(r"\.\.\.", ".*"))
    assert re.search(said, " ".join(failed.evidence), re.DOTALL), failed.evidence

    stands = standing_on(check_id)
    without = {name: words for (one, name), words in WITHOUT.items() if one == check_id}
    passed = {name for name, status in before.items() if status is CheckStatus.PASS}
    assert changed.keys() == (stands | without.keys()) & passed
    for name, result in changed.items():
        assert result.status is CheckStatus.SKIP, result
        if name in stands:
            unmet = UNMET.fullmatch(result.evidence[0])
            assert unmet is not None and unmet[1] in {check_id, *stands}, result
        else:
            assert without[name] in result.evidence[0], result


@pytest.mark.slow
def test_the_good_environment_passes_every_check_that_a_thread_can_be_asked() -> None:
    found = good()
    assert {name for name, status in found.items() if status is CheckStatus.SKIP} == UNSEEN
    assert {found[name] for name in found.keys() - UNSEEN} == {CheckStatus.PASS}
    assert len(found) == 40  # 10 that read the package, 20 of the runtime level, 10 of the semantic


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of what is not as declared
@pytest.mark.slow
@pytest.mark.parametrize("check_id", mostly_extended(SERVED, SHOWN))
def test_a_mutant_is_caught_by_its_check_alone(check_id: str) -> None:
    assert_caught_alone(check_id, results(GOOD, check_id))


@pytest.mark.slow
@pytest.mark.parametrize("check_id", PACKAGES)
def test_a_package_in_which_one_file_is_wrong_is_caught_by_its_check_alone(
    check_id: str, tmp_path: Path
) -> None:
    root = copied(tmp_path)
    file, right, wrong = PACKAGES[check_id]
    text = (root / file).read_text()
    assert right in text
    (root / file).write_text(text.replace(right, wrong))
    assert_caught_alone(check_id, results(root))


@pytest.mark.slow("plays as many episodes as learning takes")
@pytest.mark.parametrize("check_id", mostly_extended(LEARNED, ["learning.curve"]))
def test_a_mutant_that_teaches_nothing_is_caught_by_its_check_alone(check_id: str) -> None:
    found = results(GOOD, check_id, Level.STATISTICAL)
    assert_caught_alone(check_id, found, Level.STATISTICAL)


@pytest.mark.slow
def test_the_good_environment_teaches_something() -> None:
    found = good(Level.STATISTICAL)
    assert found.keys() - good().keys() == set(LEARNED)
    assert {found[name] for name in LEARNED} == {CheckStatus.PASS}


def test_all_semantic_checks_stand_on_the_determinism_of_episodes() -> None:
    semantic = {name for name in depends_on() if name.startswith("semantic.")}
    assert len(semantic) == 10
    assert semantic <= standing_on("runtime.episode_determinism")


def test_every_check_of_a_running_package_has_a_mutant_in_the_table() -> None:
    running = {name for name in depends_on() if not name.startswith("static.")}
    assert len(running) == 32
    assert {*SERVED, *LEARNED, *PACKAGES, *CONFINED} == running
    assert table().keys() == running
