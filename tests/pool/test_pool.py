"""Sessions from servers that come and go: real servers, in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dice import Dice, DiceEnv, Roll
from support.processes import is_alive
from support.waiting import wait_until

from openenv import EnvironmentsFailed, EnvPool, SessionLost, VectorEnv, create_app
from openenv.errors import ProviderError, ProviderTimeout
from openenv.execution.principal import Key
from openenv.pool._members import Member
from openenv.pool.pool import _PoolController
from openenv.providers import ProcessProvider
from openenv.providers.process import HostServer
from openenv.providers.servers import LaunchRequest, Server

pytestmark = pytest.mark.slow  # most start servers in processes of their own

DICE = Path(__file__).parents[1] / "support" / "dice.py"
Serve = Callable[..., str]


class Noting(ProcessProvider):
    """Remembers what it has started, and fails when it is told to."""

    def __init__(self, fails: int = 0, **options: Any) -> None:
        super().__init__(f"{DICE}:Dice", **options)
        self.made: list[HostServer] = []
        self.fails = fails

    def _launch(self, request: LaunchRequest) -> HostServer:
        if self.fails:
            self.fails -= 1
            raise ProviderError("out of order")
        server = super()._launch(request)
        self.made.append(server)
        return server

    @property
    def alive(self) -> int:
        return sum(is_alive(one.pid) for one in self.made)


@pytest.fixture
def provider() -> Iterator[Noting]:
    provider = Noting()
    yield provider
    provider.close()
    assert provider.alive == 0


def server_of(env: DiceEnv) -> Server:
    assert env._launch is not None
    member = env._launch.member  # type: ignore[attr-defined]
    server: Server = member.server
    return server


def kill(server: Server) -> None:
    assert isinstance(server, HostServer)
    os.kill(server.pid, signal.SIGKILL)


# ------------------------------------------------------------------ leases


def test_a_lease_is_a_client_from_its_first_use_to_its_close(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv) as pool:
        env = pool.lease()
        assert pool.stats().leased == 0
        assert env.reset(seed=1).done is False
        assert pool.stats().leased == 1
        with pool.lease() as other:
            other.reset(seed=2)
            assert pool.stats().leased == 2
        assert pool.stats().leased == 1
        env.close()
        env.close()
        assert pool.stats().leased == 0
    assert provider.alive == 0


@pytest.mark.anyio
async def test_on_the_callers_own_loop(provider: Noting) -> None:
    async with EnvPool(provider, DiceEnv) as pool:
        async with pool.lease() as env, pool.lease() as other:
            await asyncio.gather(env.reset(seed=1), other.reset(seed=1))
            one, two = await asyncio.gather(env.step(Roll(sides=99)), other.step(Roll(sides=99)))
            assert one.observation == two.observation
        envs = await pool.lease_many(8)
        assert len(await asyncio.gather(*(one.reset() for one in envs))) == 8
        for held in envs:
            await held.close()
        assert pool.stats().leased == 0
    assert provider.alive == 0


@pytest.mark.extended("starts and ends many servers; other tests show the pool")
def test_many_are_had_in_order_from_as_many_servers_as_it_takes(provider: Noting) -> None:
    seen: list[tuple[int, int]] = []
    with EnvPool(provider, DiceEnv, sessions_per_server=8, max_servers=4) as pool:
        envs = pool.lease_many(32, progress=lambda done, total: seen.append((done, total)))
        assert seen == [(n, 32) for n in range(1, 33)]
        now = pool.stats()
        assert (now.servers, now.slots, now.leased) == (4, 32, 32)
        assert {env.base_url for env in envs} == {one.url for one in provider.made}
        for number, env in enumerate(envs):
            env.reset(seed=number)
        numbers = [env.step(Roll(sides=10**6)).observation.number for env in envs]
        assert len(set(numbers)) > 30
        for env in envs:
            env.close()


def test_more_than_there_can_ever_be_is_an_error_at_once(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, sessions_per_server=2, max_servers=2) as pool:
        with pytest.raises(ProviderError, match=r"5 sessions were asked for.*2 servers.*take 4"):
            pool.lease_many(5)
        assert pool.stats().leased == 0
        for env in (envs := pool.lease_many(4)):
            assert env.reset().done is False
        for env in envs:
            env.close()


def test_first_come_first_served(provider: Noting) -> None:
    order: list[int] = []
    with EnvPool(provider, DiceEnv, sessions_per_server=1) as pool:
        first = pool.lease()
        first.reset()

        def play(number: int) -> None:
            with pool.lease() as env:
                env.reset()
                order.append(number)

        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=play, args=[number]))
            threads[-1].start()
            wait_until(lambda number=number: pool.stats().waiting == number + 1)  # type: ignore[misc]
        first.close()
        for thread in threads:
            thread.join(20)
    assert order == [0, 1, 2, 3, 4]


def test_who_waits_too_long_is_told_how_things_stand(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, sessions_per_server=1, wait_s=0.4) as pool:
        with pool.lease() as env:
            env.reset()
            with pytest.raises(ProviderTimeout, match="1 of 1 are leased on 1 servers"):
                pool.lease().reset()
        with pool.lease() as env:
            assert env.reset().done is False
        assert pool.stats().waiting == 0


@pytest.mark.anyio
async def test_one_that_is_cancelled_while_it_waits_takes_no_place(provider: Noting) -> None:
    async with EnvPool(provider, DiceEnv, sessions_per_server=1) as pool:
        async with pool.lease() as env:
            await env.reset()
            waiting = asyncio.ensure_future(pool.lease().__aenter__())
            await asyncio.to_thread(wait_until, lambda: pool.stats().waiting == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with pool.lease() as env:
            await env.reset()
            assert pool.stats().leased == 1


def test_a_lease_ends_when_its_time_is_over(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, sessions_per_server=1, lease_s=0.5) as pool:
        env = pool.lease()
        env.reset()
        wait_until(lambda: pool.stats().leased == 0)
        with pytest.raises(SessionLost, match=r"its lease of 0\.5 s is over"):
            env.step(Roll())
        assert pool.stats().leased == 0, "a step begins no lease"
        assert env.reset().done is False
        assert pool.stats().leased == 1
        env.close()


def test_one_that_nobody_holds_any_more_gives_its_place_back(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, sessions_per_server=1) as pool:
        env = pool.lease()
        env.reset()
        with pytest.warns(ResourceWarning, match="never closed"):
            del env
            gc.collect()
        wait_until(lambda: pool.stats().leased == 0)
        with pool.lease() as other:
            other.reset()


# ------------------------------------------------------------------ servers


@pytest.mark.extended("starts and ends many servers; other tests show the pool")
def test_servers_come_with_demand_and_go_without(provider: Noting) -> None:
    options = {"sessions_per_server": 2, "max_servers": 4, "idle_s": 0.5}
    with EnvPool(provider, DiceEnv, **options) as pool:  # type: ignore[arg-type]
        envs = pool.lease_many(8)
        assert pool.stats().servers == 4
        for env in envs:
            env.close()
        wait_until(lambda: pool.stats().servers == 1, 20)
        wait_until(lambda: provider.alive == 1, 20)
        assert pool.stats().lost == 0


def test_a_server_that_has_just_started_is_counted_once(
    provider: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = _PoolController._join

    def join_and_look(self: _PoolController, member: Member) -> None:
        join(self, member)
        self._look()

    monkeypatch.setattr(_PoolController, "_join", join_and_look)
    with EnvPool(provider, DiceEnv, sessions_per_server=2, max_servers=4) as pool:
        envs = pool.lease_many(8)
        now = pool.stats()
        assert (now.servers, now.resting) == (4, 0)
        for env in envs:
            env.close()


@pytest.mark.extended("starts and ends many servers; other tests show the pool")
def test_a_server_in_use_is_not_ended_for_want_of_others(provider: Noting) -> None:
    options = {"sessions_per_server": 2, "max_servers": 2, "idle_s": 0.3}
    with EnvPool(provider, DiceEnv, **options) as pool:  # type: ignore[arg-type]
        envs = pool.lease_many(4)
        by_server: dict[str | None, list[DiceEnv]] = {}
        for env in envs:
            env.reset(seed=1)
            by_server.setdefault(env.base_url, []).append(env)
        kept = [group[0] for group in by_server.values()]
        for group in by_server.values():
            group[1].close()
        time.sleep(1.2)
        for env in kept:
            env.step(Roll())
            env.close()


@pytest.mark.parametrize("placement", ["spread", "pack"])
def test_sessions_are_spread_or_packed(provider: Noting, placement: Any) -> None:
    options = {"min_servers": 2, "max_servers": 2, "sessions_per_server": 8}
    with EnvPool(provider, DiceEnv, placement=placement, **options) as pool:  # type: ignore[arg-type]
        envs = pool.lease_many(6)
        counts = [[env.base_url for env in envs].count(one.url) for one in provider.made]
        assert sorted(counts) == ([3, 3] if placement == "spread" else [0, 6])
        for env in envs:
            env.close()


def test_spare_sessions_are_there_before_they_are_asked_for(provider: Noting) -> None:
    options = {"sessions_per_server": 1, "max_servers": 3, "spare": 1}
    with EnvPool(provider, DiceEnv, **options) as pool, pool.lease() as env:  # type: ignore[arg-type]
        env.reset()
        wait_until(lambda: pool.stats().servers == 2, 20)


def test_each_lease_may_have_a_server_of_its_own(provider: Noting) -> None:
    options = {"leases_per_server": 1, "min_servers": 2, "max_servers": 3}
    with EnvPool(provider, DiceEnv, **options) as pool:  # type: ignore[arg-type]
        used = []
        for _ in range(4):
            with pool.lease() as env:
                env.reset()
                used.append(server_of(env).name)
                assert pool.stats().servers + pool.stats().starting + pool.stats().resting <= 3
        assert len(set(used)) == 4
        wait_until(lambda: provider.alive <= 2, 20)


def test_servers_that_others_look_after_take_part(serve: Serve) -> None:
    urls = [serve(create_app(Dice, max_concurrent_envs=4)) for _ in range(2)]
    with EnvPool(urls, DiceEnv) as pool:
        assert pool.stats().slots == 8
        envs = pool.lease_many(8)
        assert {env.base_url for env in envs} == set(urls)
        with pytest.raises(ProviderError, match="9 sessions were asked for"):
            pool.lease_many(9)
        for env in envs:
            env.close()
    with DiceEnv(base_url=urls[0]) as env:
        assert env.reset().done is False, "it goes on without the pool"


def test_servers_with_keys_of_either_kind_take_part(provider: Noting, serve: Serve) -> None:
    """A given one has the key that was given, one that was started has its own."""
    url = serve(create_app(Dice, max_concurrent_envs=2, keys=[Key("the-key-of-the-given-one")]))
    options = {"sessions_per_server": 2, "api_key": "the-key-of-the-given-one"}
    with EnvPool([url, provider], DiceEnv, **options) as pool:  # type: ignore[arg-type]
        assert pool.stats().slots == 4
        envs = pool.lease_many(4)
        assert {env.reset().done for env in envs} == {False}
        assert {env.base_url for env in envs} == {url, provider.made[0].url}
        for env in envs:
            env.close()
        with pool.vector(4) as vector:
            vector.reset(seed=0)


# ------------------------------------------------------------------ faults


def test_a_server_that_dies_is_replaced_and_its_sessions_begin_anew(provider: Noting) -> None:
    options = {"min_servers": 2, "max_servers": 2, "sessions_per_server": 4}
    with EnvPool(provider, DiceEnv, **options) as pool:  # type: ignore[arg-type]
        envs = pool.lease_many(8)
        for env in envs:
            env.reset(seed=1)
        dead = server_of(envs[0])
        kill(dead)
        lost = 0
        for env in envs:
            try:
                env.step(Roll())
            except SessionLost:
                lost += 1
                assert env.reset(seed=1).done is False
                env.step(Roll())
        assert lost == 4
        now = pool.stats()
        assert (now.lost, now.servers, now.started, now.leased) == (1, 2, 3, 8)
        assert dead.url not in {env.base_url for env in envs}
        for env in envs:
            env.close()


def test_a_server_that_dies_while_nobody_looks_is_replaced(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, check_every_s=0.2) as pool:
        kill(provider.made[0])
        wait_until(lambda: pool.stats().started == 2 and pool.stats().servers == 1, 20)
        with pool.lease() as env:
            assert env.reset().done is False


@pytest.mark.extended("a server that hangs is waited for")
def test_one_that_hangs_is_given_up(provider: Noting) -> None:
    with EnvPool(provider, DiceEnv, check_every_s=0.2) as pool, pool.lease() as env:
        env.reset()
        envs = pool.vector(2)
        envs.reset()
        (stuck,) = provider.made
        os.kill(stuck.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(SessionLost, match="is gone: it does not answer"):
                env.step(Roll())
            with pytest.raises(EnvironmentsFailed, match="is gone: it does not answer"):
                envs.step([Roll()] * 2)
            assert time.monotonic() - began < 30, "long before the step would have timed out"
        finally:
            with contextlib.suppress(ProcessLookupError):  # it was killed after its grace
                os.kill(stuck.pid, signal.SIGCONT)
        assert pool.stats().lost == 1
        assert env.reset().done is False and env.base_url != stuck.url
        envs.reset()
        envs.step([Roll()] * 2)
        envs.close()


@pytest.mark.extended("starts and ends many servers; other tests show the pool")
def test_a_start_that_fails_is_tried_again(provider: Noting) -> None:
    provider.fails = 2
    with EnvPool(provider, DiceEnv) as pool:
        assert pool.stats().failed_starts == 2
        with pool.lease() as env:
            assert env.reset().done is False


@pytest.mark.extended("starts and ends many servers; other tests show the pool")
def test_where_none_can_be_started_it_says_why_and_leaves_nothing(provider: Noting) -> None:
    provider.fails = 1000
    with pytest.raises(ProviderError, match="no server of the pool could be started: out of order"):
        EnvPool(provider, DiceEnv).start()


def test_an_option_that_there_is_not_is_an_error_at_once(provider: Noting) -> None:
    began = time.monotonic()
    with pytest.raises(TypeError, match="memory"):
        EnvPool(provider, DiceEnv, launch_options={"memory": "4g"}).start()
    assert time.monotonic() - began < 5


def test_a_pool_that_is_closed_leaves_nothing_and_says_so(provider: Noting) -> None:
    pool = EnvPool(provider, DiceEnv, min_servers=2)
    pool.start()
    env = pool.lease()
    env.reset()
    pool.close()
    pool.close()
    assert provider.alive == 0
    with pytest.raises(SessionLost):
        env.step(Roll())
    with pytest.raises(ProviderError, match="the pool has been closed"):
        pool.lease().reset()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sources": []}, "a pool needs a provider"),
        ({"min_servers": 4, "max_servers": 2}, "max_servers is 2, which is below min_servers"),
        ({"sessions_per_server": 0}, "sessions_per_server is 0"),
        ({"placement": "heap"}, "placement is 'heap'; expected 'spread' or 'pack'"),
        ({"spare": -1}, "must be at least 0"),
    ],
)
def test_a_number_that_means_nothing_is_named(
    provider: Noting, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        EnvPool(**{"sources": provider, "client": DiceEnv, **options})


@pytest.mark.slow("plays while servers are killed")
def test_a_run_goes_on_while_servers_die(provider: Noting) -> None:
    """Every episode that was begun is played to its end, or said to be lost."""
    options = {"min_servers": 3, "max_servers": 4, "sessions_per_server": 8, "check_every_s": 0.5}
    counts = {"whole": 0, "lost": 0}
    turn = threading.Lock()
    with EnvPool(provider, DiceEnv, **options) as pool:  # type: ignore[arg-type]
        stop = time.monotonic() + 6

        def work(seed: int) -> None:
            with pool.lease() as env:
                while time.monotonic() < stop:
                    env.reset(seed=seed)
                    try:
                        numbers = [env.step(Roll(sides=100)).observation.number for _ in range(50)]
                        state = env.sync().state()
                    except SessionLost:
                        with turn:
                            counts["lost"] += 1
                        continue
                    assert (state.total, state.step_count) == (sum(numbers), 50)
                    with turn:
                        counts["whole"] += 1

        failures: list[BaseException] = []

        def guarded(seed: int) -> None:
            try:
                work(seed)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=[seed]) for seed in range(16)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(1.5)
            alive = [one for one in provider.made if is_alive(one.pid)]
            kill(alive[0])
        for thread in threads:
            thread.join(40)
        assert failures == []
        assert pool.stats().lost == 3
    assert counts["whole"] > 16 and counts["lost"] > 0, counts


# ------------------------------------------------------------------ stepped together


def test_a_vector_has_its_environments_on_several_servers(provider: Noting, serve: Serve) -> None:
    options = {"min_servers": 3, "max_servers": 3, "sessions_per_server": 8}
    actions = [Roll(sides=10**6)] * 24
    with EnvPool(provider, DiceEnv, **options) as pool, pool.vector(24) as envs:  # type: ignore[arg-type]
        envs.reset(seed=5)
        assert pool.stats().leased == 24
        rolled = [list(envs.step(actions)[0]["number"]) for _ in range(3)]
        with pytest.raises(ProviderError, match="25 sessions were asked for"):
            pool.vector(25).reset()
        envs.close()
        wait_until(lambda: pool.stats().leased == 0)
    with VectorEnv(serve(create_app(Dice, max_concurrent_envs=24)), 24, client=DiceEnv) as direct:
        direct.reset(seed=5)
        assert [list(direct.step(actions)[0]["number"]) for _ in range(3)] == rolled


def test_the_environments_of_a_server_that_dies_begin_anew(provider: Noting) -> None:
    options = {"min_servers": 2, "max_servers": 2, "sessions_per_server": 4}
    actions = [Roll(sides=10)] * 8
    with EnvPool(provider, DiceEnv, **options) as pool, pool.vector(8) as envs:  # type: ignore[arg-type]
        envs.reset(seed=0)
        kill(provider.made[0])
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step(actions)
        assert len(caught.value.errors) == 4
        assert {type(one) for one in caught.value.errors.values()} == {SessionLost}
        mask = [number in caught.value.errors for number in range(8)]
        envs.reset(seed=0, options={"reset_mask": mask})
        for _ in range(5):
            envs.step(actions)
        assert pool.stats().leased == 8 and pool.stats().lost == 1


def test_a_vector_goes_elsewhere_where_a_server_died_unnoticed(provider: Noting) -> None:
    options = {"min_servers": 2, "max_servers": 2, "sessions_per_server": 4, "check_every_s": 60.0}
    with EnvPool(provider, DiceEnv, **options) as pool, pool.vector(8) as envs:  # type: ignore[arg-type]
        kill(provider.made[0])
        assert pool.stats().lost == 0
        envs.reset(seed=0)
        envs.step([Roll(sides=10)] * 8)
        now = pool.stats()
        assert (now.leased, now.lost, now.started) == (8, 1, 3)
