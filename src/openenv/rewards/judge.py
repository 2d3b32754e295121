"""A rubric that asks a language model for the score."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import string
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from openenv._internal.json import read_json
from openenv._internal.quoting import closest, shortened
from openenv._internal.timing import Expired, backoff_s, within
from openenv.errors import Unscored
from openenv.rewards.llm._per_loop import PerLoop
from openenv.rewards.llm.client import LLMError
from openenv.rewards.rubric import Rubric

logger = logging.getLogger(__name__)

QUOTED = 200  # maximum number of characters of a reply in an error message
PASSING = (408, 409, 429)  # after these and any 5xx, the same request may succeed later


class Judge(Protocol):
    """The interface that `LLMJudge` needs: the `complete` method of `LLMClient`."""

    async def complete(self, prompt: str) -> str:
        """Answer a question."""
        ...


class LLMJudge(Rubric):
    """A rubric that asks a language model for the score of a step.

        LLMJudge("Rate this answer from 0 to 1: {action.text}\\nReply with the number.", client)

    A judge keeps no state of an episode, so environments may share an instance.

    Args:
        prompt_template: The question. ``{action}`` and ``{observation}`` stand for the step, and
            may be extended as in `str.format`: ``{observation.text}``, ``{action!r}``. Other braces
            are literal text, unless the whole template is valid for `str.format`: then ``{{`` and
            ``}}`` are escaped braces.
        client: The model: an `LLMClient`, or any object with such a `complete` method.
        score_pattern: Regular expression that finds the score: the first group of the first match,
            or the whole match if there is no group. By default `find_score` finds the score.
        default_score: Score for a reply without a score. By default such a reply raises `Unscored`;
            the public package's default is 0.
        normalize: Map scores to the range from 0 to 1: ``7/10`` or ``70%`` becomes 0.7, and numbers
            outside the range are clamped.
        timeout_s: Time limit in seconds for one reply; None for no limit.
        retries: Number of further attempts after a timeout or failure. HTTP errors other than 408,
            409, 429 and 5xx are not retried. Neither is a reply without a score.
        backoff_s: Seconds before the first retry; doubled for each further retry.
        max_concurrency: Maximum number of concurrent questions in one event loop; None for no
            limit.
        cache_size: Maximum number of scores to cache, by the text of the question. Default: 0.

    Raises:
        ValueError: The template has a field that looks misspelled, `max_concurrency` is less than
            1, or `retries` or `cache_size` is less than 0.
        re.error: `score_pattern` is not a valid regular expression.
    """

    def __init__(
        self,
        prompt_template: str,
        client: Judge,
        *,
        score_pattern: str | None = None,
        default_score: float | None = None,
        normalize: bool = True,
        timeout_s: float | None = 120.0,
        retries: int = 2,
        backoff_s: float = 0.5,
        max_concurrency: int | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__()
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency={max_concurrency}; expected at least 1, or None")
        for name, count in (("retries", retries), ("cache_size", cache_size)):
            if count < 0:
                raise ValueError(f"{name}={count}; expected at least 0")
        self.prompt_template = _template(prompt_template)
        self.client = client
        self.score_pattern = _pattern(score_pattern)
        self.default_score = default_score
        self.normalize = normalize
        self.timeout_s = timeout_s
        self.retries = retries
        self.backoff_s = backoff_s
        self.max_concurrency = max_concurrency
        self.cache_size = cache_size
        self._cache: OrderedDict[str, float] = OrderedDict()
        self._turns = PerLoop(self._limit)

    def _limit(self) -> AbstractAsyncContextManager[Any]:
        limit = self.max_concurrency
        return contextlib.nullcontext() if limit is None else asyncio.Semaphore(limit)

    async def forward(self, action: Any, observation: Any) -> float:
        prompt = render(self.prompt_template, action=action, observation=observation)
        # Environments on other threads may share the cache and evict the entry between two lines.
        with contextlib.suppress(KeyError):
            self._cache.move_to_end(prompt)
            return self._cache[prompt]
        score = self._score(await self._reply(prompt))
        if self.cache_size:
            self._cache[prompt] = score
            with contextlib.suppress(KeyError):
                while len(self._cache) > self.cache_size:
                    self._cache.popitem(last=False)
        return score

    async def _reply(self, prompt: str) -> str:
        asked = 0
        while True:
            asked += 1
            try:
                async with self._turns.get():
                    return await within(self.timeout_s, self.client.complete(prompt))
            except Exception as error:
                status = error.status if isinstance(error, LLMError) else None
                may_pass = status is None or status in PASSING or status >= 500
                if asked > self.retries or not may_pass:
                    logger.error("the judge failed", exc_info=error)
                    often = "" if asked == 1 else f" {asked} times, at last"
                    raise Unscored(f"the judge failed{often}: {self._words(error)}") from error
            await asyncio.sleep(backoff_s(asked, self.backoff_s))

    def _words(self, error: Exception) -> str:
        if isinstance(error, Expired):
            return f"no reply within {self.timeout_s:g} s"
        status = getattr(error, "status", None)
        return type(error).__name__ + ("" if status is None else f" (status {status})")

    def _score(self, reply: Any) -> float:
        found = self._find_score(reply) if isinstance(reply, str) else None
        if found is None:
            if self.default_score is None:
                told = shortened(repr(reply), QUOTED)
                raise Unscored(f"the judge's reply contains no score: {told}")
            found = JudgeScore(self.default_score)
        if not self.normalize:
            return found.value
        return min(max(found.value / found.out_of, 0.0), 1.0)

    def _find_score(self, reply: str) -> JudgeScore | None:
        if self.score_pattern is None:
            return find_score(reply)
        match = re.search(self.score_pattern, reply)
        if match is None:
            return None
        with contextlib.suppress(ValueError, TypeError):  # not a number, or an unmatched group
            return JudgeScore(float(match[1] if match.re.groups else match[0]))
        return None

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "prompt_template": self.prompt_template,
            "score_pattern": self.score_pattern,
            "default_score": self.default_score,
            "normalize": self.normalize,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.prompt_template = _template(state.get("prompt_template", self.prompt_template))
        self.score_pattern = _pattern(state.get("score_pattern", self.score_pattern))
        self.default_score = state.get("default_score", self.default_score)
        self.normalize = state.get("normalize", self.normalize)
        self._cache.clear()


def _pattern(pattern: str | None) -> str | None:
    return None if pattern is None else re.compile(pattern).pattern


# ------------------------------------------------------------------ prompts

FIELDS = ("action", "observation")
FIELD = re.compile(r"\{(?:action|observation)(?:[.\[][^{}]*)?(?:![rsa])?\}")
NAMED = re.compile(r"\{([A-Za-z_]\w*)[}.\[!:]")


def _template(template: str) -> str:
    """Return the template, unless the name of a field looks misspelled."""
    for name in NAMED.findall(template):
        close = closest(name, FIELDS, cutoff=0.8)
        if name not in FIELDS and close:
            raise ValueError(f"the template has {{{name}}}; did you mean {{{close}}}?")
    return template


def render(template: str, **values: Any) -> str:
    """Fill values into a template. Braces within the values are left as they are."""
    if _is_format(template):
        return template.format(**values)
    return FIELD.sub(lambda field: field[0].format(**values), template)


def _is_format(template: str) -> bool:
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError:
        return False
    return all(re.split(r"[.\[]", name, maxsplit=1)[0] in FIELDS for name in names)


# ------------------------------------------------------------------ scores in replies

NUMBER = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
SCORE = (
    rf"(?<![\w.,/])(?P<value>{NUMBER})"
    rf"(?:\s*(?:/|out\s+of)\s*(?P<out_of>{NUMBER})|\s*(?P<percent>%))?"
    r"(?!\w|[.,/]\d)"
)
RANGE = r"(?!\s*(?:-|–|to|and|or)\s*[-+.\d])"  # noqa: RUF001  # a dash between two numbers
LABEL = r"(?:score|rating|grade)\b[\"']?\s*(?:\([^()\n]*\))?\s*(?:is|:|=|->)\s*[\"'(\[]*\s*"
FINAL = r"\b(?:final|overall|total)\s+"

ANY_SCORE = re.compile(SCORE)
LABELLED = re.compile(rf"\b{LABEL}{SCORE}{RANGE}", re.IGNORECASE)
FINALLY = re.compile(rf"{FINAL}{LABEL}{SCORE}{RANGE}", re.IGNORECASE)
LAST_LINE = re.compile(rf"\W*(?:the\s+)?(?:{FINAL})?{LABEL}{SCORE}\W*", re.IGNORECASE)
ALONE = re.compile(rf"[\"'(\[\s]*{SCORE}[\"')\].!\s]*")
AT_FIRST = re.compile(rf"{SCORE}(?=\s*[,;:]|\s+[-–—])")  # noqa: RUF001  # dashes


class JudgeScore(NamedTuple):
    """A score found in a reply.

    Attributes:
        value: The number as written in the reply.
        out_of: The maximum, if the reply states it: 10 for ``7/10``, 100 for ``70%``; otherwise 1.
    """

    value: float
    out_of: float = 1.0


def find_score(reply: str) -> JudgeScore | None:
    """Return the score in a judge's reply, or None if there is no unambiguous score.

    The first rule that applies decides:

    - If the reply is JSON, the score is the number, or the value of ``score``.
    - The score is the number after ``Score:``, ``Rating =`` or ``the grade is``: on a last line of
      its own, or after ``final``, ``overall`` or ``total``, or anywhere. Such numbers must agree.
    - The score is a first or last line that is a number, or a decimal number, fraction or
      percentage at the beginning, before a comma or a dash. These numbers must agree.
    - The score is the only number in the reply.

    Numbers may have a sign, and may be written as ``7/10``, ``7 out of 10`` or ``70%``.
    """
    plain = re.sub(r"\*\*|__|`(?:``(?:json)?)?", "", reply.replace("\u2212", "-"))
    with contextlib.suppress(ValueError):
        return _in_json(read_json(plain))
    lines = [" ".join(line.split()) for line in plain.splitlines() if line.strip()] or [""]
    text = "\n".join(lines)
    last = LAST_LINE.fullmatch(lines[-1])
    if last:
        return _parse_match(last)
    for label in (FINALLY, LABELLED):
        labelled = list(label.finditer(text))
        if labelled:
            return _require_agreement(labelled)
    edges = [ALONE.fullmatch(lines[0]), ALONE.fullmatch(lines[-1]), _at_first(text)]
    standing = [edge for edge in edges if edge]
    return _require_agreement(standing or ANY_SCORE.finditer(text))


def _in_json(data: Any) -> JudgeScore | None:
    told = data.get("score") if isinstance(data, dict) else data
    if isinstance(told, str):
        alone = ALONE.fullmatch(told)
        return _parse_match(alone) if alone else None
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    with contextlib.suppress(OverflowError):
        return JudgeScore(float(told)) if math.isfinite(told) else None
    return None


def _at_first(text: str) -> re.Match[str] | None:
    """Return the score at the beginning of a reply, unless it may be the number of a list item."""
    first = AT_FIRST.match(text)
    return None if first is None or re.fullmatch(r"\d+", first[0].strip()) else first


def _require_agreement(matches: Iterable[re.Match[str]]) -> JudgeScore | None:
    told = {_parse_match(match) for match in matches}
    return told.pop() if len(told) == 1 else None


def _parse_match(match: re.Match[str]) -> JudgeScore | None:
    value = float(match["value"])
    out_of = 100.0 if match["percent"] else float(match["out_of"] or 1.0)
    return JudgeScore(value, out_of) if math.isfinite(value) and 0 < out_of < math.inf else None
