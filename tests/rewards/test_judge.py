"""A language model that scores: what it is asked, what its replies mean, and what fails."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.llm_server import Failure, Late, llm_server, warm_up

from openenv.errors import Unscored
from openenv.rewards import Gate, LLMJudge, WeightedSum
from openenv.rewards.judge import find_score
from openenv.rewards.llm import LLMClient, LLMError, OpenAIClient
from openenv.types import Observation

pytestmark = pytest.mark.anyio


class Saying(LLMClient):
    """Says one thing after another, and raises those that are errors."""

    def __init__(self, *replies: Any) -> None:
        super().__init__("http://localhost", 1)
        self.replies = list(replies)
        self.prompts: list[str] = []

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        assert not kwargs
        self.prompts.append(prompt)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply  # type: ignore[no-any-return]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    warm_up(OpenAIClient)


# ------------------------------------------------------------------ the question


class Shown(Observation):
    text: str = "{action} }{ %s"
    rows: tuple[int, ...] = (1, 2)


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{action}", "{a}"),
        ("{action!r:>7} {observation.text}", "  '{a}' {action} }{ %s"),
        ("{observation.rows[1]} {{{action}}} {{}}", "2 {{a}} {}"),
        ('{action} as {"score": <n>}', '{a} as {"score": <n>}'),
        ('{"score": 1} {observation.rows[0]} {action!r}', "{\"score\": 1} 1 '{a}'"),
        ("{ {action} {} {0} {x} {{", "{ {a} {} {0} {x} {{"),
        ("\\frac{1}{2} {action}", "\\frac{1}{2} {a}"),
        ("no field", "no field"),
    ],
)
async def test_values_are_put_in_and_other_braces_stay(template: str, prompt: str) -> None:
    client = Saying("1")
    await LLMJudge(template, client)("{a}", Shown())
    assert client.prompts == [prompt]


@pytest.mark.parametrize("template", ["{acton}", "{observations.text}", "{Action} {observation}"])
def test_a_misspelt_field_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="did you mean"):
        LLMJudge(template, Saying("1"))


# ------------------------------------------------------------------ the score in a reply

TOLD = [
    ("0.7", 0.7),
    (" 0.7.\n", 0.7),
    (".5", 0.5),
    ("1e-3", 0.001),
    ("-0.5", -0.5),
    ("\u22120.5", -0.5),
    ("+1", 1.0),
    ("7/10", 0.7),
    ("7 / 10", 0.7),
    ("7 out of 10", 0.7),
    ("70%", 0.7),
    ("**7**/10", 0.7),
    ("Score: 0.7", 0.7),
    ("score = 7/10", 0.7),
    ("**Score:** `7/10`", 0.7),
    ("The rating is -1", -1.0),
    ("Score (0-1): 0.7", 0.7),
    ('I say {"score": 0.7, "of": 3}', 0.7),
    ('{"score": 0.7, "flaws": 3}', 0.7),
    ('{"score": "7/10", "flaws": 3}', 0.7),
    ('```json\n{"score": 0.7}\n```', 0.7),
    ("I see 3 flaws.\n\nScore: 0.7", 0.7),
    ("Clarity score: 3\nTruth score: 4\nOverall score: 0.7", 0.7),
    ("Overall score: 0.7\nClarity score: 3\nTruth score: 4", 0.7),
    ("Draft score: 5, of 9.\nScore: 0.7", 0.7),
    ("0.7\nbecause of 3 flaws in 4 lines", 0.7),
    ("Of 3 flaws 2 are bad.\n0.7", 0.7),
    ("0.7, for 3 of 4 are right", 0.7),
    ("7/10 - 3 flaws", 0.7),
    ("I give it a 0.7.", 0.7),
    ("0.7 it is, yes, 0.7", 0.7),
    ("\\boxed{0.7}", 0.7),
]

NOT_TOLD = [
    "",
    "good",
    "on a scale of 10, 7",
    "Score from 0 to 1: 1",
    "Score: 1-10",
    "score: 0 to 1",
    "Score: 3. On reflection, score: 4",
    "1. It is wrong.\n2. It is long.",
    "3, since 2 of 5 are wrong",
    "50% of 4 tests fail",
    "0.3 or 0.7",
    "0.5-0.7",
    "0.3\nor\n0.7",
    "version 1.2.3",
    "1,000",
    "the 7th",
    "7/0",
    "1e999",
    "null",
    "true",
    "[0.7]",
    "NaN",
    '{"score": null}',
    '{"score": true}',
    '{"score": "good"}',
    '{"rating of": 3, "rating to": 4}',
    "Grade: A",
    "9" * 400,
]


@pytest.mark.parametrize(("reply", "score"), TOLD)
def test_a_reply_tells_one_score(reply: str, score: float) -> None:
    found = find_score(reply)
    assert found is not None and found.value / found.out_of == pytest.approx(score)


@pytest.mark.parametrize("reply", NOT_TOLD)
def test_a_reply_that_tells_none_or_several_tells_none(reply: str) -> None:
    assert find_score(reply) is None


@pytest.mark.parametrize(
    "reply",
    [
        "score" + " " * 200_000 + "x",
        "score (" * 50_000,
        "\n" * 200_000 + "x",
        "1" * 200_000 + "x",
        "1 " * 100_000,
        "[" * 200_000,
        "*_`" * 100_000,
    ],
)
def test_a_reply_may_be_of_any_length(reply: str) -> None:
    assert find_score(reply) is None or reply == "1 " * 100_000


@pytest.mark.parametrize(
    ("reply", "normalised", "raw"),
    [("7/10", 0.7, 7.0), ("70%", 0.7, 70.0), ("3", 1.0, 3.0), ("-0.5", 0.0, -0.5)],
)
async def test_a_score_is_brought_to_0_to_1_or_taken_as_it_is(
    reply: str, normalised: float, raw: float
) -> None:
    assert await LLMJudge("?", Saying(reply))(0, 0) == normalised
    assert await LLMJudge("?", Saying(reply), normalize=False)(0, 0) == raw


@pytest.mark.parametrize(
    ("pattern", "reply", "score"),
    [
        (r"(\d+\.?\d*)", "on a scale of 10, 7", 10.0),
        (r"\d+", "3 of 4", 3.0),
        (r"points: (-?\d+)(\w)?", "points: -3", -3.0),
    ],
)
async def test_a_pattern_says_where_the_score_is(pattern: str, reply: str, score: float) -> None:
    judge = LLMJudge("?", Saying(reply), score_pattern=pattern, normalize=False)
    assert await judge(0, 0) == score


@pytest.mark.parametrize(
    ("pattern", "reply"),
    [(None, "good"), (r"points: (\w+)", "points: many"), (r"(\d)?points", "points"), ("x", "")],
)
async def test_a_reply_without_a_score_is_no_score_or_the_one_for_that(
    pattern: str | None, reply: str
) -> None:
    judge = LLMJudge("?", Saying(reply), score_pattern=pattern)
    with pytest.raises(Unscored, match="contains no score") as unscored:
        await judge(0, 0)
    assert repr(reply) in str(unscored.value) and judge.last_score is None
    judge.default_score = 0.25
    assert await judge(0, 0) == 0.25


async def test_of_a_long_reply_only_the_beginning_is_told() -> None:
    with pytest.raises(Unscored) as unscored:
        await LLMJudge("?", Saying("x" * 100_000))(0, 0)
    assert len(str(unscored.value)) < 400 and "100002 characters" in str(unscored.value)


async def test_a_reply_that_is_no_text_is_no_score() -> None:
    with pytest.raises(Unscored, match="None"):
        await LLMJudge("?", Saying(None))(0, 0)


# ------------------------------------------------------------------ as a rubric


async def test_a_judge_is_a_rubric_like_any_other() -> None:
    judge = LLMJudge("?", Saying("0.5"))
    rubric = WeightedSum({"style": Gate(judge, 0.25)}, [1.0])
    assert await rubric(0, 0) == 0.5 == judge.last_score
    assert rubric.components() == {"style": 0.5}


async def test_settings_are_told_and_taken_over() -> None:
    judge = LLMJudge("{action}", Saying("3 4"), score_pattern=r"\d", default_score=0.5)
    state = {
        "prompt_template": "{action}",
        "score_pattern": r"\d",
        "default_score": 0.5,
        "normalize": True,
    }
    assert judge.state_dict() == state
    other = LLMJudge("?", Saying("3 4"), cache_size=8)
    other.load_state_dict({**state, "normalize": False})
    assert await other("x", 0) == 3.0
    other.load_state_dict({"score_pattern": r"\d$"})
    assert await other("x", 0) == 4.0
    assert other.state_dict() == {**state, "normalize": False, "score_pattern": r"\d$"}


@pytest.mark.parametrize("setting", [{"max_concurrency": 0}, {"retries": -1}, {"cache_size": -1}])
def test_a_setting_that_makes_no_sense_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        LLMJudge("?", Saying("1"), **setting)


# ------------------------------------------------------------------ against a server


async def test_a_judge_asks_a_server() -> None:
    with llm_server(lambda asked: f"Score: {len(asked.last)}/10") as server:
        async with OpenAIClient(server.url, None, "toy") as client:
            assert await LLMJudge("{action}", client)("1234", 0) == 0.4


async def test_a_judge_that_fails_for_a_while_is_asked_again() -> None:
    with llm_server([Failure(500), Failure(429), "0.5"]) as server:
        async with OpenAIClient(server.url, None, "toy", max_retries=0) as client:
            assert await LLMJudge("?", client, backoff_s=0.001)(0, 0) == 0.5
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("failure", "asked", "told"),
    [
        (Failure(503, "on fire"), 3, r"failed 3 times, at last: LLMError \(status 503\)"),
        (Failure(401, "who are you"), 1, r"failed: LLMError \(status 401\)"),
    ],
)
async def test_a_judge_that_fails_gives_no_score_and_the_log_says_why(
    failure: Failure, asked: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with llm_server(failure) as server:
        async with OpenAIClient(server.url, None, "toy", max_retries=0) as client:
            judge = LLMJudge("?", client, backoff_s=0.001, default_score=0.5)
            with pytest.raises(Unscored, match=told) as unscored:
                await judge(0, 0)
    assert len(server.asked) == asked and judge.last_score is None
    assert isinstance(unscored.value.__cause__, LLMError)
    (record,) = [one for one in caplog.records if one.name == "openenv.rewards.judge"]
    assert record.levelno == logging.ERROR and record.exc_info
    assert failure.message in str(record.exc_info[1])


async def test_a_judge_that_does_not_reply_in_time_is_given_up() -> None:
    with llm_server(Late()) as server:
        async with OpenAIClient(server.url, None, "toy") as client:
            judge = LLMJudge("?", client, timeout_s=0.05, retries=1, backoff_s=0.001)
            with pytest.raises(Unscored, match=r"2 times, at last: no reply within 0\.05 s"):
                await judge(0, 0)


async def test_any_error_of_a_client_is_no_score() -> None:
    client = Saying(KeyError("secret"))
    with pytest.raises(Unscored, match="KeyError") as unscored:
        await LLMJudge("?", client, retries=1, backoff_s=0.0)(0, 0)
    assert "secret" not in str(unscored.value) and len(client.prompts) == 2


async def test_it_waits_twice_as_long_each_time_before_it_asks_again() -> None:
    client, loop = Saying(KeyError()), asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Unscored):
        await LLMJudge("?", client, retries=3, backoff_s=0.01)(0, 0)
    assert loop.time() - began >= 0.07


class Crowded(Saying):
    """Notes how many questions are open at a time."""

    def __init__(self) -> None:
        super().__init__("1")
        self.open = self.most = 0

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        return await super().complete(prompt)


@pytest.mark.parametrize(("limit", "most"), [(None, 6), (1, 1), (2, 2), (7, 6)])
async def test_no_more_questions_are_open_at_a_time_than_allowed(
    limit: int | None, most: int
) -> None:
    client = Crowded()
    judge = LLMJudge("{action}", client, max_concurrency=limit)
    assert await asyncio.gather(*(judge(i, 0) for i in range(6))) == [1.0] * 6
    assert client.most == most


def test_a_judge_works_in_one_loop_after_another() -> None:
    judge = LLMJudge("?", Saying("1"), max_concurrency=1)

    async def asked_twice() -> list[float]:
        return list(await asyncio.gather(judge(0, 0), judge(0, 0)))

    assert asyncio.run(asked_twice()) == asyncio.run(asked_twice()) == [1.0, 1.0]


async def test_a_question_that_was_asked_before_has_the_same_score() -> None:
    client = Saying("0.1", "0.2", "0.3", "0.4")
    judge = LLMJudge("{action}", client, cache_size=2)
    scores = [await judge(action, 0) for action in "abacab"]
    assert scores == [0.1, 0.2, 0.1, 0.3, 0.1, 0.4]
    assert client.prompts == ["a", "b", "c", "b"]


async def test_by_default_the_same_question_is_asked_again() -> None:
    client = Saying("0.1", "0.2")
    judge = LLMJudge("{action}", client)
    assert [await judge("a", 0), await judge("a", 0)] == [0.1, 0.2]
