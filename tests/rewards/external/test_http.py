"""Scorers over HTTP: asked of a real server, which is slow, wrong, huge or gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.servers import serving

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external import (
    TemporarilyUnscored,
    bounded,
    from_rubric,
    http_scorer,
    limits,
    scoring_app,
)

pytestmark = pytest.mark.timeout(30)

EPISODE: Trajectory[Any, Any] = Trajectory(
    [({"word": "crane"}, {"text": "close"}), ({"word": "slate"}, {"text": "right"})],
    first={"text": "Guess."},
    rewards=[0.0, None],
    task={"id": "t", "criteria": {"answer": "slate"}},
)

Answer = tuple[int, bytes] | tuple[int, bytes, dict[str, str]]


class Grader:
    """An ASGI application that answers what it is told to, and keeps what it was asked."""

    def __init__(self, *answers: Answer, hangs: bool = False) -> None:
        self.answers = list(answers)
        self.hangs = hangs
        self.asked: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        self.asked.append(json.loads(body + message["body"]))
        self.headers = dict(scope["headers"])
        if self.hangs:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, content, *rest = self.answers[min(len(self.asked), len(self.answers)) - 1]
        given = [(k.encode(), v.encode()) for k, v in (rest[0] if rest else {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": given})
        for at in range(0, max(len(content), 1), 2**16):
            part = content[at : at + 2**16]
            more = at + 2**16 < len(content)
            await send({"type": "http.response.body", "body": part, "more_body": more})


@contextlib.contextmanager
def grading(*answers: Any, **options: Any) -> Iterator[tuple[Grader, str]]:
    grader = Grader(*answers, **options)
    with serving(grader) as url:
        yield grader, f"{url}/score"


def answer(value: Any) -> tuple[int, bytes]:
    return 200, json.dumps(value).encode()


def score(scorer: Any, trajectory: Trajectory[Any, Any] = EPISODE) -> Score:
    found: Score = asyncio.run(scorer(trajectory))
    return found


def refusal(scorer: Any) -> Unscored:
    with pytest.raises(Unscored) as caught:
        score(scorer)
    return caught.value


def test_it_is_asked_with_the_whole_episode_and_answers_a_score() -> None:
    given = {"reward": 0.75, "components": {"a": 0.5, "b": 0.25}, "step_rewards": [0.25, 0.5]}
    with grading(answer(given)) as (grader, url):
        found = score(http_scorer(url, headers={"authorization": "Bearer k"}))
    assert found == Score(0.75, {"a": 0.5, "b": 0.25}, step_rewards=[0.25, 0.5])
    (asked,) = grader.asked
    assert (asked["format"], asked["version"]) == ("openenv-score", 1)
    assert asked["trajectory"] == {
        "task": {"id": "t", "criteria": {"answer": "slate"}},
        "first": {"text": "Guess."},
        "steps": [
            {"action": {"word": "crane"}, "observation": {"text": "close"}, "reward": 0.0},
            {"action": {"word": "slate"}, "observation": {"text": "right"}, "reward": None},
        ],
    }
    assert [one["content"] for one in asked["messages"]] == [
        "Guess.",
        "crane",
        "close",
        "slate",
        "right",
    ]
    assert grader.headers[b"authorization"] == b"Bearer k"


def test_a_reward_of_nothing_and_one_that_could_not_be_had() -> None:
    with grading(answer({"reward": None})) as (_, url):
        assert score(http_scorer(url)) == Score()
    with grading(answer({"reward": None, "unscored": "no tests"})) as (_, url):
        assert str(refusal(http_scorer(url))) == "no tests"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"<html>oops</html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"reward": NaN}', "not JSON"),
        (b'{"reward": Infinity}', "not JSON"),
        (b'{"reward": 1e999}', "finite"),
        (b'{"reward": 1' + b"0" * 400 + b"}", "reward"),
        (b'{"reward": "1.0"}', "reward"),
        (b'{"reward": true}', "reward"),
        (b'{"score": 1.0}', "reward: Field required"),
        (b"[1.0]", "answer"),
        (b"0.5", "answer"),
        (b'{"reward": 1.0, "components": {"a": 0.2}}', "add up"),
        (b'{"reward": 1.0, "components": {"a": "x"}}', "components.a"),
        (b'{"reward": 1.0, "step_rewards": [1.0]}', "1 rewards for 2 steps"),
        (b'{"reward": 1.0, "step_rewards": [1.0, NaN]}', "not JSON"),
        (b'{"reward": ' + b"[" * 5000 + b"]" * 5000 + b"}", "answer"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_garbage_is_no_score_and_not_worth_asking_again(content: bytes, said: str) -> None:
    with grading((200, content)) as (grader, url):
        why = refusal(bounded(http_scorer(url), retries=3))
    assert said in str(why)
    assert len(grader.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 413, 301, 204])
def test_a_refusal_is_no_score_and_not_worth_asking_again(status: int) -> None:
    with grading((status, b"", {"location": "/elsewhere"})) as (grader, url):
        why = refusal(bounded(http_scorer(url), retries=3))
    assert f"answered {status}" in str(why)
    assert len(grader.asked) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKOFF_S", 0.0)
    with grading((status, b"busy"), answer({"reward": 1.0})) as (grader, url):
        assert score(bounded(http_scorer(url))).value == 1.0
        assert len(grader.asked) == 2
    with grading((status, b"the database is down")) as (grader, url):
        why = str(refusal(bounded(http_scorer(url), retries=1)))
        assert "the database is down" in why and "asked 2 times" in why
        assert len(grader.asked) == 2


def test_how_long_a_busy_server_asks_to_wait_is_heeded() -> None:
    with grading((429, b"", {"retry-after": "7"})) as (_, url):
        why = refusal(http_scorer(url))
    assert isinstance(why, TemporarilyUnscored) and why.retry_after_s == 7.0
    with grading((503, b"", {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"})) as (_, url):
        why = refusal(http_scorer(url))
    assert isinstance(why, TemporarilyUnscored) and why.retry_after_s is None


def test_a_server_that_hangs_is_given_up() -> None:
    with grading(hangs=True) as (_, url):
        why = refusal(http_scorer(url, timeout_s=0.1))
    assert isinstance(why, TemporarilyUnscored) and "within 0.1 s" in str(why)


def test_an_answer_that_is_huge_is_not_read_to_its_end() -> None:
    with grading((200, b"x" * 2**22)) as (_, url):
        why = refusal(http_scorer(url, max_bytes=1000))
    assert "more than 1000 bytes" in str(why) and not isinstance(why, TemporarilyUnscored)


def test_nobody_there_is_worth_asking_again() -> None:
    with grading(answer({"reward": 1.0})) as (_, url):
        pass
    why = refusal(http_scorer(url))
    assert isinstance(why, TemporarilyUnscored) and "does not answer" in str(why)


def test_a_server_that_speaks_no_http_is_no_score() -> None:
    async def ask() -> Unscored:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello, this is SMTP\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unscored) as caught:
            await http_scorer(f"http://127.0.0.1:{port}/")(EPISODE)
        server.close()
        return caught.value

    assert "does not answer" in str(asyncio.run(ask()))


@pytest.mark.parametrize("url", ["ftp://x/", "localhost:80", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        http_scorer(url)


def test_one_scorer_serves_any_number_of_event_loops() -> None:
    with grading(answer({"reward": 1.0})) as (grader, url):
        scorer = http_scorer(url)
        assert [score(scorer).value for _ in range(3)] == [1.0] * 3
    assert len(grader.asked) == 3


# ------------------------------------------------------------------ the other way


def right(action: Any, observation: Any) -> float:
    return float(observation.text == "right")


@pytest.mark.parametrize(
    "make", [lambda: from_rubric(right), lambda: blocking], ids=["awaited", "plain"]
)
def test_a_scorer_of_ours_is_served_to_others(make: Callable[[], Any]) -> None:
    with serving(scoring_app(make())) as url:
        found = score(http_scorer(url))
    assert found == Score(1.0, step_rewards=[0.0, 1.0])


def blocking(trajectory: Any) -> list[float]:
    assert trajectory.task.criteria.answer == "slate" and trajectory.rewards == [0.0, None]
    return [right(*step) for step in trajectory]


def test_what_a_served_scorer_raises_is_a_reason_and_no_more() -> None:
    def broken(trajectory: Any) -> float:
        raise RuntimeError("the key is hunter2")

    with serving(scoring_app(broken)) as url:
        why = str(refusal(http_scorer(url)))
    assert "RuntimeError" in why and "hunter2" not in why


@pytest.mark.parametrize(
    ("method", "content", "status"),
    [
        ("GET", b"", 405),
        ("POST", b"{", 422),
        ("POST", b"{}", 422),
        ("POST", b'{"format": "openenv-score", "version": 9, "trajectory": {}}', 422),
        ("POST", b'{"format": "openenv-score", "version": 1, "trajectory": {}}', 422),
        ("POST", b'{"format": "openenv-score", "version": 1, "trajectory": {"steps": 3}}', 422),
        ("POST", b"x" * 2000, 413),
    ],
)
def test_what_is_no_question_is_refused(method: str, content: bytes, status: int) -> None:
    with serving(scoring_app(blocking, max_bytes=1000)) as url:
        assert httpx.request(method, url, content=content).status_code == status


def said_last(trajectory: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "x"}]


def test_scores_belong_to_who_is_asked_and_what_is_told() -> None:
    url = "http://grader.example/score"
    key = {"Authorization": "Bearer one"}
    identity = http_scorer(url).identity
    assert identity is not None and url in identity
    assert http_scorer(url, headers=key).identity == identity
    others = [
        http_scorer(url, headers={**key, "x-model": "large"}).identity,
        http_scorer(url, headers={"x-model": "small"}).identity,
        http_scorer(url, messages=said_last).identity,
        http_scorer(f"{url}/other").identity,
    ]
    assert len({identity, *others}) == 5
    assert http_scorer(url, messages=lambda _: [{"role": url, "content": ""}]).identity is None
