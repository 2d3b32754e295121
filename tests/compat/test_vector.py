"""`VectorEnv` on the public package's server: a connection for each environment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compat.peer_environment import Do, Progress, Seen

from openenv import CapacityError, EnvClient, ExecutionFailed
from openenv.client.vector import VectorEnv
from openenv.errors import EnvironmentsFailed

pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

Serve = Callable[..., list[str]]


class ToyEnv(EnvClient[Do, Seen, Progress]):
    """One line, no hooks."""


@pytest.fixture(scope="module")
def toys(serve: Serve) -> list[str]:
    return serve("peer", "peer_environment:toy", "peer_environment:alone")


def test_environments_of_the_public_server_are_stepped_together(toys: list[str]) -> None:
    with VectorEnv(toys[0], 4, client=ToyEnv, connections=1) as envs:
        observations, infos = envs.reset(seed=5, options={"difficulty": "hard"})
        assert observations["text"] == ["reset hard"] * 4
        assert infos["seed"].tolist() == [5, 6, 7, 8]
        *_, rewards, terminations, _, _ = envs.step({"what": ["count"] * 4, "n": np.arange(4)})
        assert rewards.tolist() == [0, 0.5, 1, 1.5] and not terminations.any()
        terminations = envs.step([Do(what="finish")] + [Do()] * 3)[2]
        assert terminations.tolist() == [True, False, False, False]
        observations, *_ = envs.step([Do(n=1)] * 4)
        assert observations["text"] == ["reset easy", "count", "count", "count"]
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([Do(n=1), Do(what="raise"), Do(n=1), Do(n=1)])
        assert isinstance(caught.value.errors[1], ExecutionFailed)
        envs.send([Do(n=2)] * 4)
        assert envs.recv()[1].tolist() == [1, 1, 1, 1]


def test_a_public_server_of_one_slot_says_so_of_the_others(toys: list[str]) -> None:
    with VectorEnv(toys[1], 3, client=ToyEnv) as envs:
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.reset()
        assert len(caught.value.results) == 1
        assert {type(error) for error in caught.value.errors.values()} == {CapacityError}
