"""Statistics of evaluations: estimates, intervals, and tests of two runs.

A run is samples of tasks. Tasks are drawn, and samples of one task are alike; so what is drawn
again by a bootstrap, and what counts as one observation in a test, is the task with all of its
samples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 8). `sums`, or
`solved`, and `counts` are of tasks: the sum over a task's samples, and how many these are. A
`level` is a confidence level, from 0 to 1.
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

# Resamples at once: what they take of memory is this many times 8 bytes.
CELLS_AT_ONCE = 4_000_000

# Up to so many sign patterns, each is looked at and the p-value is exact.
EXACT_UP_TO = 2**14

# How far apart two sums may be, by rounding alone.
RELATIVE = 1e-12


@lru_cache(maxsize=65_536)
def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Return the probability that at least one of `k` samples of a task solves the task.

    The estimator is ``1 - C(n - c, k) / C(n, k)``, with n samples of which c are solved. It is
    without bias (Chen et al. 2021, arXiv:2107.03374, equation 1): the share of the subsets of k
    samples in which one is solved.

    Raises:
        ValueError: Not ``0 <= solved <= samples``, or not ``1 <= k <= samples``.
    """
    if not 0 <= solved <= samples:
        raise ValueError(f"solved={solved} of samples={samples}; expected 0 <= solved <= samples")
    if not 1 <= k <= samples:
        raise ValueError(f"k={k} of samples={samples}; expected 1 <= k <= samples")
    return 1.0 - math.comb(samples - solved, k) / math.comb(samples, k)


def wilson(rate: float, size: float, level: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson 1927, without continuity correction).

    Args:
        rate: The share that was seen, from 0 to 1.
        size: Number of independent samples; see `effective_size` for dependent ones.
        level: The confidence level.

    Raises:
        ValueError: The rate or the level is not from 0 to 1, or there are no samples.
    """
    if not (0.0 <= rate <= 1.0 and 0.0 < level < 1.0 and size > 0):
        raise ValueError(f"rate={rate}, size={size}, level={level}: none of which to have one")
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    shrink = 1.0 + z * z / size
    centre = (rate + z * z / (2.0 * size)) / shrink
    half = z / shrink * math.sqrt(rate * (1.0 - rate) / size + z * z / (4.0 * size * size))
    # At a rate of 0 and 1 the ends are the rate, but for rounding.
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def ratio_stderr(sums: Floats, counts: Floats) -> float:
    """Return the standard error of ``sums.sum() / counts.sum()`` with tasks drawn.

    It is that of a ratio by linearisation (Cochran, Sampling Techniques, 1977, section 6.5); with
    one sample a task, the common one of a mean. NaN of less than two tasks.
    """
    tasks, total = len(sums), float(counts.sum())
    if tasks < 2 or not total:
        return math.nan
    residuals = sums - sums.sum() / total * counts
    return math.sqrt(tasks / (tasks - 1) * float(residuals @ residuals)) / total


def effective_size(solved: Floats, counts: Floats) -> float:
    """Return the number of independent samples that would determine a rate as well.

    It is the number of samples over the design effect (Kish, Survey Sampling, 1965), which is at
    least 1 and at most the samples of a task. Where all or none are solved, the effect cannot be
    seen, and each task counts once. Of one task alone all samples count: it speaks of that task.
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
    """Return the interval of the rate ``solved.sum() / counts.sum()`` with tasks drawn.

    It is Wilson's, of as many samples as are independent; of fewer where that number is itself
    estimated, from few tasks (Korn and Graubard 1998, Survey Methodology 24), but never of fewer
    than there are tasks.
    """
    tasks, size = len(counts), effective_size(solved, counts)
    if size > tasks > 1:
        z, t = (float(law.ppf((1.0 + level) / 2.0)) for law in (stats.norm, stats.t(tasks - 1)))
        size = max(float(tasks), size * (z / t) ** 2)
    return wilson(float(solved.sum() / counts.sum()), size, level)


def are_few(tasks: int, level: float) -> bool:
    """Return whether a bootstrap of this many tasks is too narrow for any sample.

    Its ends lie between the lowest task and the highest, and these have the middle of the tasks
    that might have been between them with a chance of ``1 - 2**(1 - tasks)`` only: 94 % of five.
    """
    return 2.0 ** (1 - tasks) > 1.0 - level


def bootstrap_intervals(
    sums: Floats, counts: Floats, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> list[tuple[float, float] | None]:
    """Return intervals of ``sums.sum(0) / counts.sum(0)`` by a bootstrap over tasks.

    The tasks are drawn again with all of their samples, the same ones for every column. The ends
    are percentiles, expanded for few tasks as Student's t is wider than the normal distribution
    (Hesterberg 2015, What Teachers Should Know About the Bootstrap, section 5.3). Where tasks
    `are_few`, nothing that is drawn from them is wide enough: the interval is Student's.

    Returns:
        One interval a column; None where there are less than two tasks, or all of them came to the
        same: drawing again can tell nothing then.
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
        with np.errstate(invalid="ignore"):  # a draw may have none of a rare figure
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

    If the two runs do not differ, each difference might as well have the other sign (Fisher 1935,
    section 21). Up to 14 tasks that differ, every pattern of signs is looked at, and the value is
    exact; beyond, patterns are drawn, and the one that was seen counts among them (Phipson and
    Smyth 2010), so that it is never 0.

    Args:
        differences: The differences of two runs by task and figure; NaN if a task has none.
        resamples: Number of sign patterns to draw.
        seed: The seed of the patterns.
    """
    return [
        _sign_flip_p_value(column[np.isfinite(column) & (column != 0.0)], resamples, seed)
        for column in differences.T
    ]


def _sign_flip_p_value(differences: Floats, resamples: int, seed: int) -> float:
    # Tasks without a difference have the same sum under either sign, and are left out.
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

    Of the tasks that only one run solves (the second the `fixed`, the first the `regressed` ones),
    either run should have half, if the runs do not differ.
    """
    if not fixed + regressed:
        return 1.0
    return float(stats.binomtest(fixed, fixed + regressed).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple tests (Holm 1979), in the same order.

    To call those significant which are below a level then errs in one of them or more with at most
    that chance.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return adjusted
