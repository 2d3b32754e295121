"""Old clients on our servers, our clients on old servers, and one program on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from compat.peer_environment import Do, Progress, Seen

from openenv import (
    CapacityError,
    EnvClient,
    ExecutionFailed,
    GenericEnvClient,
    NotSupported,
    ResponseTimeout,
    SessionLost,
    ValidationFailed,
)
from openenv.errors import FactoryFailed

# The first test may have to install the public package.
pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

Serve = Callable[..., list[str]]
Play = Callable[..., Any]


# ------------------------------------------------------------------ the public client, our server


@pytest.fixture(scope="module")
def played(serve: Serve, play: Play) -> Any:
    """What the public package's client saw of our environments, on our server."""
    targets = ("echo_env.server.app:app", "openspiel_env.server.app:app")
    echo, blackjack = serve("ours", *targets, OPENSPIEL_GAME="blackjack")
    return play("peer", "play.py", echo, blackjack)


@pytest.mark.parametrize("manner", ["bare", "sync", "async with", "await"])
def test_the_public_client_plays_echo(played: Any, manner: str) -> None:
    first, hello, empty, tool, length, unknown, listed, state = played["echo"][manner]
    assert first["observation"]["echoed_message"] == "Echo environment ready!"
    assert hello["observation"]["echoed_message"] == "Hello, World!"
    assert hello["reward"] == pytest.approx(1.3)
    assert empty["reward"] == 0.0
    assert tool["observation"]["result"]["data"] == "hi"
    assert length["observation"]["result"]["data"] == {"message": "abc", "length": 3}
    assert "shout" in unknown["observation"]["error"]["message"]
    assert {t["name"] for t in listed["observation"]["tools"]} == {
        "echo_message",
        "echo_with_length",
    }
    assert (state["episode_id"], state["step_count"]) == ("episode 1", 6)


def test_every_manner_of_the_public_client_sees_the_same(played: Any) -> None:
    manners = played["echo"]
    assert all(seen == manners["bare"] for seen in manners.values())
    assert played["echo side by side"] == [manners["bare"]] * 8


def test_the_public_client_plays_blackjack(played: Any) -> None:
    games = played["blackjack"]["bare"]
    for number, (first, *moves, state) in enumerate(games):
        assert first["observation"]["legal_actions"] and not first["done"]
        assert moves[-1]["done"] and moves[-1]["reward"] in (-1.0, 0.0, 1.0)
        assert (state["episode_id"], state["step_count"]) == (f"game {number}", len(moves))
        assert state["game_name"] == "blackjack"
    assert len({str(game[0]) for game in games}) > 1, "every seed deals the same cards"
    assert played["blackjack"]["sync"] == games
    assert played["blackjack"]["side by side"] == games


def test_an_illegal_action_is_an_error_that_names_it(played: Any) -> None:
    assert "7" in played["illegal"] and "EXECUTION_ERROR" in played["illegal"]


# ------------------------------------------------------------------ our clients, the public server


class ToyEnv(EnvClient[Do, Seen, Progress]):
    """One line, no hooks."""


@pytest.fixture(scope="module")
def public(serve: Serve) -> dict[str, str]:
    """Environments on the public package's server, by name."""
    names = ["toy", "alone", "broken"]
    return dict(zip(names, serve("peer", *(f"peer_environment:{n}" for n in names)), strict=True))


def test_an_episode_on_the_public_server_sync(public: dict[str, str]) -> None:
    with ToyEnv(base_url=public["toy"]).sync() as env:
        first = env.reset(seed=5, episode_id="e", difficulty="hard")
        assert first.observation.text == "reset hard"
        assert first.metadata == {"seed": 5}
        second = env.step(Do(n=3))
        assert second.observation == Seen(
            text="count", data={"n": [3, 3, 3], "none": None}, reward=1.5
        )
        assert (second.reward, second.done) == (1.5, False)
        assert env.state() == Progress(episode_id="e", step_count=1, board=[5])
        assert env.step(Do(what="finish")).done


@pytest.mark.anyio
async def test_episodes_on_the_public_server_side_by_side(public: dict[str, str]) -> None:
    async def one(number: int) -> Progress:
        async with ToyEnv(base_url=public["toy"]) as env:
            await env.reset(seed=number, episode_id=str(number))
            for n in range(number):
                assert (await env.step(Do(n=n))).reward == n / 2
            return await env.state()

    states = await asyncio.gather(*map(one, range(6)))
    assert states == [Progress(episode_id=str(n), step_count=n, board=[n]) for n in range(6)]


def test_a_generic_client_on_the_public_server(public: dict[str, str]) -> None:
    with GenericEnvClient(base_url=public["toy"]).sync() as env:
        assert env.reset().observation["text"] == "reset easy"
        assert env.step({"what": "count", "n": 1}).observation["data"] == {"n": [1], "none": None}
        assert env.state()["step_count"] == 1
        with pytest.raises(NotSupported, match="version 0"):
            env.render()
        assert env.step({"what": "count", "n": 1}).observation["data"]["n"] == [1]


def test_errors_of_the_public_server_are_ours_and_the_episode_goes_on(
    public: dict[str, str],
) -> None:
    with GenericEnvClient(base_url=public["toy"]).sync() as env:
        env.reset()
        with pytest.raises(ValidationFailed) as refused:
            env.step({"what": "count", "n": "many"})
        assert refused.value.errors[0]["loc"] == ["n"]
        with pytest.raises(ExecutionFailed, match="kaboom"):
            env.step({"what": "raise"})
        assert env.step({"what": "count"}).done is False
        assert env.state()["step_count"] == 2  # the one that raised counted itself


def test_a_reward_that_is_no_number_is_none_on_the_public_server(public: dict[str, str]) -> None:
    """It is lost there, in the server; the client can only say that there is none."""
    with ToyEnv(base_url=public["toy"]) as env:
        env.reset()
        assert env.step(Do(what="nan")).reward is None


def test_the_capacity_of_the_public_server(public: dict[str, str]) -> None:
    with ToyEnv(base_url=public["alone"]) as first:
        first.reset()
        with (
            ToyEnv(base_url=public["alone"]) as second,
            pytest.raises(CapacityError, match="CAPACITY_REACHED"),
        ):
            second.reset()
        assert first.step(Do(n=2)).reward == 1.0


def test_a_factory_that_fails_on_the_public_server(public: dict[str, str]) -> None:
    with ToyEnv(base_url=public["broken"]) as env, pytest.raises(FactoryFailed, match="'Broken'"):
        env.reset()


def test_a_step_too_slow_on_the_public_server_is_never_answered_by_the_next(
    public: dict[str, str],
) -> None:
    with ToyEnv(base_url=public["toy"], message_timeout_s=0.3) as env:
        env.reset(seed=1)
        with pytest.raises(ResponseTimeout):
            env.step(Do(what="sleep", n=1))
        with pytest.raises(SessionLost):
            env.step(Do(n=2))
    with ToyEnv(base_url=public["toy"]) as env:
        env.reset()
        assert env.step(Do(n=2)).observation.text == "count"


# ------------------------------------------------------------------ one program, both packages


@pytest.fixture(scope="module")
def program(serve: Serve, play: Play) -> dict[tuple[str, str], Any]:
    """What a program written for the public package prints, by whose client and server."""
    targets = ("public_environment:app", "oldest_environment:app")
    urls = {whose: serve(whose, *targets) for whose in ("peer", "ours")}
    return {
        (client, server): play(client, "public_client.py", *urls[server])
        for client in urls
        for server in urls
    }


PARTS = [
    "bare",
    "sync",
    "with",
    "async with",
    "await",
    "run_async_safely",
    "generic",
    "words",
    "http",
    "ws url",
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "pair", [("ours", "ours"), ("ours", "peer"), ("peer", "ours")], ids="-on-".join
)
def test_a_program_on_the_public_paths_does_the_same(
    program: dict[tuple[str, str], Any], pair: tuple[str, str], part: str
) -> None:
    assert program[pair][part] == program["peer", "peer"][part]


def test_the_program_has_no_other_parts(program: dict[tuple[str, str], Any]) -> None:
    assert list(program["peer", "peer"]) == PARTS
