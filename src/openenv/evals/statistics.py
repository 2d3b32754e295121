"""Statistics of evaluations: estimates, intervals, and tests of two runs.

Samples of one task are not independent. Therefore the unit that a bootstrap resamples, and that
counts as one observation in a test, is a task with all of its samples (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 8). The arguments `sums` (or `solved`) and `counts`
have one value per task: the sum over the task's samples, and the number of these samples. A `level`
is a confidence level, between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

from openenv._internal.packages import needs

with needs("an evaluation", "pip install 'openenv[eval]'"):
    import numpy as np
    import numpy.typing as npt
    from scipy import stats

Floats = npt.NDArray[np.float64]

# Numbers of 8 bytes in a batch of resamples, which limits the memory.
CELLS_AT_ONCE = 4_000_000

# Up to this many sign patterns all are enumerated, so that the p-value is exact.
EXACT_UP_TO = 2**14

# Relative difference of two sums that may come from rounding alone.
RELATIVE = 1e-12


@lru_cache(maxsize=65_536)
def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Return the probability that at least one of `k` samples of a task solves the task.

    The estimator is ``1 - C(n - c, k) / C(n, k)``, with n samples of which c are solved: the share
    of the subsets of k samples that have a solved one. The estimator is unbiased (Chen et al. 2021,
    arXiv:2107.03374, equation 1).

    Raises:
        ValueError: `solved` is not from 0 to `samples`, or `k` not from 1 to `samples`.
    """
    if not 0 <= solved <= samples:
        raise ValueError(f"solved={solved} of samples={samples}; expected 0 <= solved <= samples")
    if not 1 <= k <= samples:
        raise ValueError(f"k={k} of samples={samples}; expected 1 <= k <= samples")
    return 1.0 - math.comb(samples - solved, k) / math.comb(samples, k)


def wilson(rate: float, size: float, level: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson 1927, without continuity correction).

    Args:
        rate: The observed rate, from 0 to 1.
        size: Number of independent samples; see `effective_size` for dependent samples.
        level: The confidence level.

    Raises:
        ValueError: The rate or the level is out of range, or there are no samples.
    """
    if not (0.0 <= rate <= 1.0 and 0.0 < level < 1.0 and size > 0):
        raise ValueError(f"rate={rate}, size={size}, level={level}: none of which to have one")
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    shrink = 1.0 + z * z / size
    centre = (rate + z * z / (2.0 * size)) / shrink
    half = z / shrink * math.sqrt(rate * (1.0 - rate) / size + z * z / (4.0 * size * size))
    # At a rate of 0 or 1 one end equals the rate, except for rounding.
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def ratio_stderr(sums: Floats, counts: Floats) -> float:
    """Return the standard error of ``sums.sum() / counts.sum()`` over tasks.

    The formula is the linearized standard error of a ratio (Cochran, Sampling Techniques, 1977,
    section 6.5). With one sample per task it is the usual standard error of a mean. The result is
    NaN for fewer than two tasks.
    """
    tasks, total = len(sums), float(counts.sum())
    if tasks < 2 or not total:
        return math.nan
    residuals = sums - sums.sum() / total * counts
    return math.sqrt(tasks / (tasks - 1) * float(residuals @ residuals)) / total


def effective_size(solved: Floats, counts: Floats) -> float:
    """Return the number of independent samples that would determine a rate as well.

    The result is the number of samples divided by the design effect (Kish, Survey Sampling, 1965),
    which is at least 1 and at most the mean number of samples per task. If all or no samples are
    solved, the effect cannot be estimated, and each task counts once. For a single task all samples
    count, since the rate is a statement about that task.
    """
    tasks, total = len(counts), float(counts.sum())
    if tasks == 1 or total == tasks:
        return total
    rate = float(solved.sum()) / total
    if rate in (0.0, 1.0):
        return float(tasks)
    effect = ratio_stderr(solved, counts) ** 2 / (rate * (1.0 - rate) / total)
    return total / min(max(effect, 1.0), total / tasks)


def rate_interval(solved: Floats, counts: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of the rate ``solved.sum() / counts.sum()`` over tasks.

    The interval is Wilson's for the effective number of samples. If that number was estimated, it
    is reduced, the more the fewer tasks there are (Korn and Graubard 1998, Survey Methodology 24),
    but not below the number of tasks.
    """
    tasks, size = len(counts), effective_size(solved, counts)
    if size > tasks > 1:
        z, t = (float(law.ppf((1.0 + level) / 2.0)) for law in (stats.norm, stats.t(tasks - 1)))
        size = max(float(tasks), size * (z / t) ** 2)
    return wilson(float(solved.sum() / counts.sum()), size, level)


def are_few(tasks: int, level: float) -> bool:
    """Return whether there are too few tasks for a bootstrap interval at this level.

    The ends of a bootstrap interval lie between the lowest and the highest task. The population's
    median lies between these with a probability of only ``1 - 2**(1 - tasks)``, which is 94 % for
    five tasks.
    """
    return 2.0 ** (1 - tasks) > 1.0 - level


def bootstrap_intervals(
    sums: Floats, counts: Floats, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> list[tuple[float, float] | None]:
    """Return intervals of ``sums.sum(0) / counts.sum(0)`` by a bootstrap over tasks.

    Tasks are resampled with all of their samples, the same tasks for every column. The ends are
    percentiles, which are expanded for few tasks by the ratio of Student's t to the normal
    distribution (Hesterberg 2015, What Teachers Should Know About the Bootstrap, section 5.3). If
    the tasks `are_few`, no resample is wide enough, and the interval is Student's.

    Returns:
        One interval per column. The interval is None if there are fewer than two tasks, or if all
        tasks have the same mean, because resampling gives no information then.
    """
    if len(sums) < 2:
        return [None] * sums.shape[1]
    estimates = np.concatenate(list(_resampled(sums, counts, resamples, seed)))
    return [
        _interval(estimates[:, column], sums[:, column], counts[:, column], level)
        for column in range(sums.shape[1])
    ]


def _resampled(sums: Floats, counts: Floats, resamples: int, seed: int) -> Iterator[Floats]:
    tasks = len(sums)
    generator = np.random.default_rng(seed)
    for size in _batches(resamples, tasks):
        drawn = generator.integers(0, tasks, (size, tasks))
        places = (drawn + tasks * np.arange(size)[:, None]).ravel()
        weights = np.bincount(places, minlength=size * tasks).reshape(size, tasks)
        with np.errstate(invalid="ignore"):  # a resample may lack a rare figure: 0 / 0
            yield (weights @ sums) / (weights @ counts)


def _batches(rows: int, columns: int) -> Iterator[int]:
    size = max(1, CELLS_AT_ONCE // max(1, columns))
    for start in range(0, rows, size):
        yield min(size, rows - start)


def _interval(
    estimates: Floats, sums: Floats, counts: Floats, level: float
) -> tuple[float, float] | None:
    has = counts > 0
    tasks = int(has.sum())
    if tasks < 2 or np.ptp(sums[has] / counts[has]) == 0.0:
        return None
    quantile = float(stats.t.ppf((1.0 + level) / 2.0, tasks - 1))
    if are_few(tasks, level):
        middle, half = sums.sum() / counts.sum(), quantile * ratio_stderr(sums[has], counts[has])
        return float(middle - half), float(middle + half)
    tail = float(stats.norm.sf(math.sqrt(tasks / (tasks - 1)) * quantile))
    low, high = np.nanquantile(estimates, [tail, 1.0 - tail])
    rounding = RELATIVE * float(np.max(np.abs(sums[has] / counts[has])))
    low, high = (0.0 if abs(end) <= rounding else float(end) for end in (low, high))
    return low, high


def permutation_p_values(
    differences: Floats, *, resamples: int = 10_000, seed: int = 0
) -> list[float]:
    """Return two-sided p-values of paired permutation tests of the mean, by column.

    If the two runs do not differ, each difference may have either sign (Fisher 1935, section 21).
    For up to 14 tasks that differ, all patterns of signs are enumerated, and the p-value is exact.
    For more tasks, patterns are drawn, and the observed pattern counts as one of them (Phipson and
    Smyth 2010), so that the p-value is never 0.

    Args:
        differences: The differences of two runs by task (row) and figure (column); NaN if unknown.
        resamples: Number of sign patterns, including the observed one.
        seed: Seed of the patterns.
    """
    return [
        _sign_flip_p_value(column[np.isfinite(column) & (column != 0.0)], resamples, seed)
        for column in differences.T
    ]


def _sign_flip_p_value(differences: Floats, resamples: int, seed: int) -> float:
    # Tasks without a difference do not change the sum under either sign, and are left out.
    tasks = len(differences)
    seen = abs(float(differences.sum())) - RELATIVE * float(np.abs(differences).sum())
    if 2**tasks <= EXACT_UP_TO:
        patterns = np.arange(2**tasks)[:, None] >> np.arange(tasks) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ differences) >= seen))
    generator = np.random.default_rng(seed)
    as_far = 1
    for size in _batches(resamples - 1, tasks):
        signs = 2.0 * generator.integers(0, 2, (size, tasks), dtype=np.int8) - 1.0
        as_far += int(np.sum(np.abs(signs @ differences) >= seen))
    return as_far / resamples


def mcnemar(fixed: int, regressed: int) -> float:
    """Return the exact two-sided p-value of McNemar's test (1947).

    If the runs do not differ, each run should solve half of the tasks that only one run solves.

    Args:
        fixed: Number of tasks that only the second run solves.
        regressed: Number of tasks that only the first run solves.
    """
    if not fixed + regressed:
        return 1.0
    return float(stats.binomtest(fixed, fixed + regressed).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple tests (Holm 1979), in the same order.

    If tests with an adjusted p-value below a level are called significant, the probability of any
    false positive is at most that level.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return adjusted
