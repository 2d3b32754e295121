"""The statistics, against values that are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.amounts import examples

from openenv.evals.statistics import (
    are_few,
    bootstrap_intervals,
    effective_size,
    holm,
    mcnemar,
    pass_at_k,
    permutation_p_values,
    rate_interval,
    ratio_stderr,
    wilson,
)

# ------------------------------------------------------------------ pass@k


@pytest.mark.parametrize(
    ("samples", "solved", "k"),
    [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)],
)
def test_pass_at_k_is_the_share_of_subsets_with_a_solution(
    samples: int, solved: int, k: int
) -> None:
    subsets = list(itertools.combinations([True] * solved + [False] * (samples - solved), k))
    assert pass_at_k(samples, solved, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_has_no_bias() -> None:
    """Over every outcome of five samples, its mean is the chance of one in three."""
    chance = 0.3
    expected = sum(
        stats.binom.pmf(solved, 5, chance) * pass_at_k(5, solved, 3) for solved in range(6)
    )
    assert expected == pytest.approx(1 - (1 - chance) ** 3)


def test_pass_at_k_of_many_samples_is_exact() -> None:
    # 1 - (1 - 1/1000)(1 - 1/999)... of one solution in 1000 is k/1000.
    assert pass_at_k(1000, 1, 100) == pytest.approx(0.1, rel=1e-12)
    assert pass_at_k(100_000, 100_000, 100_000) == 1.0


@given(st.integers(1, 60), st.data())
def test_pass_at_k_grows_with_k_and_with_solutions(samples: int, data: st.DataObject) -> None:
    solved = data.draw(st.integers(0, samples))
    curve = [pass_at_k(samples, solved, k) for k in range(1, samples + 1)]
    assert curve == sorted(curve)
    assert curve[0] == pytest.approx(solved / samples)
    assert curve[-1] == float(solved > 0)
    if solved < samples:
        assert pass_at_k(samples, solved + 1, 1) > curve[0]


@pytest.mark.parametrize(("samples", "solved", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_of_what_cannot_be_is_refused(samples: int, solved: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"samples={samples}"):
        pass_at_k(samples, solved, k)


# ------------------------------------------------------------------ Wilson's interval


@pytest.mark.parametrize(
    ("solved", "samples", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_values_of_the_table(
    solved: int, samples: int, low: float, high: float
) -> None:
    assert wilson(solved / samples, samples) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_is_that_of_scipy(samples: int, data: st.DataObject, level: float) -> None:
    solved = data.draw(st.integers(0, samples))
    expected = stats.binomtest(solved, samples).proportion_ci(level, method="wilson")
    low, high = wilson(solved / samples, samples, level)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0.0 <= low <= solved / samples <= high <= 1.0


@pytest.mark.parametrize(
    "arguments", [(1.1, 10, 0.95), (-0.1, 10, 0.95), (0.5, 0, 0.95), (0.5, 10, 1.0)]
)
def test_wilson_of_what_is_no_rate_is_refused(arguments: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="rate="):
        wilson(*arguments)


# ------------------------------------------------------------------ samples that are alike


def test_samples_that_are_the_same_in_each_task_count_once_a_task() -> None:
    solved, counts = np.array([8.0, 0.0, 8.0, 0.0, 8.0, 0.0] * 5), np.full(30, 8.0)
    assert effective_size(solved, counts) == 30.0


def test_samples_that_are_not_alike_all_count() -> None:
    solved, counts = np.full(30, 4.0), np.full(30, 8.0)
    assert effective_size(solved, counts) == 240.0


def test_one_sample_a_task_is_a_common_sample() -> None:
    assert effective_size(np.array([1.0, 0.0, 1.0]), np.ones(3)) == 3.0


@pytest.mark.parametrize("solved", [0.0, 8.0])
def test_where_all_are_the_same_each_task_counts_once(solved: float) -> None:
    assert effective_size(np.full(5, solved), np.full(5, 8.0)) == 5.0


def test_of_one_task_all_samples_count() -> None:
    assert effective_size(np.array([3.0]), np.array([8.0])) == 8.0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=40))
def test_the_effective_size_is_from_that_of_tasks_to_that_of_samples(
    drawn: list[tuple[int, int]],
) -> None:
    counts = np.array([float(count) for _, count in drawn])
    solved = np.minimum(np.array([float(has) for has, _ in drawn]), counts)
    size = effective_size(solved, counts)
    assert len(counts) - 1e-9 <= size <= counts.sum() + 1e-9


def test_the_standard_error_of_one_sample_a_task_is_the_common_one() -> None:
    values = np.random.default_rng(3).normal(size=40)
    assert ratio_stderr(values, np.ones(40)) == pytest.approx(stats.sem(values))


def test_one_task_has_no_standard_error() -> None:
    assert math.isnan(ratio_stderr(np.array([1.0]), np.array([4.0])))


# ------------------------------------------------------------------ the bootstrap


def one_column(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values[:, None], np.ones((len(values), 1))


@pytest.mark.slow
def test_the_bootstrap_has_the_percentiles_of_scipy() -> None:
    """At 200 tasks the expansion for few of them is less than what chance is."""
    values = np.random.default_rng(5).exponential(size=200)
    ours = bootstrap_intervals(*one_column(values), resamples=20_000)[0]
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert ours == pytest.approx(theirs.confidence_interval, abs=0.01)


def test_of_few_tasks_the_interval_is_wider_as_that_of_t_is() -> None:
    """Of ten: by sqrt(10/9) for the variance, and by the quantile of Student's t, 9 degrees."""
    values = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    ours = bootstrap_intervals(*one_column(values), resamples=50_000)[0]
    theirs = stats.bootstrap((values,), np.mean, n_resamples=50_000, method="percentile", rng=1)
    assert ours is not None
    low, high = theirs.confidence_interval
    ratio = (ours[1] - ours[0]) / (high - low)
    assert ratio == pytest.approx(math.sqrt(10 / 9) * 2.262 / 1.960, rel=0.05)


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_of_too_few_tasks_the_interval_is_that_of_student(tasks: int) -> None:
    """What is drawn from three tasks lies between them, and holds the truth in 3 of 4 cases."""
    values = np.random.default_rng(5).normal(size=tasks)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert bootstrap_intervals(*one_column(values))[0] == pytest.approx(expected)


def test_how_many_are_too_few_follows_from_the_level() -> None:
    """Five tasks have the median of all between them in 15 of 16 cases."""
    assert [are_few(tasks, 0.95) for tasks in (2, 5, 6, 30)] == [True, True, False, False]
    assert not are_few(5, 0.9) and are_few(7, 0.99)


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    values = np.random.default_rng(5).normal(size=30)
    of = [bootstrap_intervals(*one_column(values), seed=seed) for seed in (1, 1, 2)]
    assert of[0] == of[1] != of[2]


def test_a_higher_level_is_wider() -> None:
    values = one_column(np.random.default_rng(5).normal(size=30))
    narrow, wide = (bootstrap_intervals(*values, level=level)[0] for level in (0.8, 0.99))
    assert narrow is not None and wide is not None
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize("values", [[1.0], [0.5, 0.5, 0.5]])
def test_one_task_or_equal_ones_have_no_interval(values: list[float]) -> None:
    assert bootstrap_intervals(*one_column(np.array(values))) == [None]


def test_a_figure_that_few_tasks_have_is_of_these() -> None:
    values = np.random.default_rng(5).normal(size=(40, 2))
    counts = np.ones((40, 2))
    counts[5:, 1] = 0
    first, second = bootstrap_intervals(values * counts, counts)
    assert first is not None and second is not None
    assert second[1] - second[0] > first[1] - first[0]


def test_batches_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = one_column(np.random.default_rng(5).normal(size=50))
    whole = bootstrap_intervals(*values)
    monkeypatch.setattr("openenv.evals.statistics.CELLS_AT_ONCE", 777)
    assert bootstrap_intervals(*values) == whole


def covered(
    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]], truth: float
) -> float:
    """How often the interval has the truth in it, of 300 runs."""
    generator = np.random.default_rng(11)
    hits = 0
    for seed in range(300):
        solved, counts = draw(generator)
        (interval,) = bootstrap_intervals(
            solved[:, None], counts[:, None], resamples=400, seed=seed
        )
        hits += interval is not None and interval[0] <= truth <= interval[1]
    return hits / 300


def of_tasks(
    tasks: int, samples: int
) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    """Tasks of every difficulty: the mean rate is one half."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        chances = generator.beta(0.4, 0.4, tasks)
        return generator.binomial(samples, chances).astype(float), np.full(tasks, float(samples))

    return draw


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "samples"), [(10, 8), (40, 4)])
def test_the_bootstrap_has_the_truth_in_it_as_often_as_it_says(tasks: int, samples: int) -> None:
    """Three standard errors of 300 runs at 95 % are 3.8 %."""
    assert covered(of_tasks(tasks, samples), 0.5) >= 0.95 - 0.038


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_of_few_tasks_too_the_interval_has_the_truth_in_it(tasks: int) -> None:
    """A bootstrap of two tasks has it in half of the runs."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return generator.normal(size=tasks), np.ones(tasks)

    assert covered(draw, 0.0) >= 0.95 - 0.038


def test_wilson_of_alike_samples_has_the_truth_in_it_and_the_naive_one_has_not() -> None:
    generator, draw = np.random.default_rng(12), of_tasks(20, 8)
    hits = naive = 0
    for _ in range(300):
        solved, counts = draw(generator)
        rate = solved.sum() / counts.sum()
        low, high = wilson(rate, effective_size(solved, counts))
        hits += low <= 0.5 <= high
        low, high = wilson(rate, counts.sum())
        naive += low <= 0.5 <= high
    assert hits / 300 >= 0.95 - 0.038
    assert naive / 300 < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "samples"), [(3, 50), (5, 50), (8, 20)])
def test_the_interval_of_a_rate_has_the_truth_in_it_also_of_few_tasks(
    tasks: int, samples: int
) -> None:
    """By as many samples as seem independent alone, it has it in 81 % of three tasks of 50."""
    generator, hits = np.random.default_rng(13), 0
    for _ in range(300):
        solved = generator.binomial(samples, generator.random(tasks)).astype(float)
        low, high = rate_interval(solved, np.full(tasks, float(samples)))
        hits += low <= 0.5 <= high
    assert hits / 300 >= 0.95 - 0.038


def test_the_interval_of_one_sample_a_task_or_of_one_task_is_that_of_wilson() -> None:
    assert rate_interval(np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4)) == wilson(0.75, 4)
    assert rate_interval(np.array([6.0]), np.array([8.0])) == wilson(0.75, 8)


def test_tasks_that_are_certain_count_as_so_many_samples() -> None:
    solved, counts = np.array([50.0, 50.0, 0.0]), np.full(3, 50.0)
    assert rate_interval(solved, counts) == wilson(2 / 3, 3)


# ------------------------------------------------------------------ tests of two runs


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        # Of n differences of one sign, two of the 2**n patterns are as far out.
        ([1.0, 1.0, 1.0], 2 / 8),
        ([0.1, 0.2, 0.3, 0.4, 0.5], 2 / 32),
        ([0.1, 0.2, -0.3], 1.0),
        # |sum| >= 5 of 1, 2, 3, -1: all but those of -5 < sum < 5.
        ([1.0, 2.0, 3.0, -1.0], 6 / 16),
        ([0.0, 0.0], 1.0),
        ([], 1.0),
    ],
)
def test_p_values_of_few_tasks_are_exact(differences: list[float], expected: float) -> None:
    assert permutation_p_values(np.array([differences]).T) == [pytest.approx(expected)]


@examples(25)
@given(st.lists(st.integers(-20, 20), min_size=2, max_size=8))
def test_exact_p_values_are_those_of_scipy(drawn: list[int]) -> None:
    differences = np.array(drawn, dtype=float)
    theirs = stats.permutation_test(
        (differences, -differences),
        lambda x, y, axis: x.mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert permutation_p_values(differences[:, None])[0] == pytest.approx(theirs.pvalue)


def test_p_values_of_many_tasks_are_near_those_of_a_t_test() -> None:
    differences = np.random.default_rng(8).normal(0.2, 1.0, size=(150, 1))
    t_test = stats.ttest_1samp(differences[:, 0], 0.0).pvalue
    assert permutation_p_values(differences)[0] == pytest.approx(t_test, abs=0.01)


def test_a_p_value_is_never_0() -> None:
    assert permutation_p_values(np.ones((100, 1)), resamples=1000) == [0.001]


def test_tasks_without_a_figure_are_left_out_of_its_test() -> None:
    differences = np.array([[1.0, 1.0], [1.0, math.nan], [1.0, 1.0]])
    assert permutation_p_values(differences) == [pytest.approx(2 / 8), pytest.approx(2 / 4)]


def test_p_values_of_runs_that_do_not_differ_are_uniform() -> None:
    generator = np.random.default_rng(21)
    p_values = permutation_p_values(generator.normal(size=(30, 400)), resamples=500)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("fixed", "regressed", "expected"),
    [(0, 0, 1.0), (5, 5, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (8, 1, 20 / 512)],
)
def test_mcnemar_is_exact(fixed: int, regressed: int, expected: float) -> None:
    assert mcnemar(fixed, regressed) == pytest.approx(expected)


def test_holm_steps_down_and_never_falls() -> None:
    """The smallest of four is multiplied by four, the next by three, and so on."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_begins_with_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for raw, one in zip(p_values, adjusted, strict=True):
        assert raw <= one <= 1.0
    if p_values:
        assert min(adjusted) == min(1.0, min(p_values) * len(p_values))
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], adjusted[place]))
    in_order = [adjusted[place] for place in order]
    assert in_order == sorted(in_order)
