"""Every transport, and every form of environment, for the tests of behaviour."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.environments import CounterEnv, Do, Progress, Seen
from support.servers import serving
from support.typescript import TypeScriptEnv
from support.typescript import driver as driver

from openenv import create_app

# Where the environment is, and the protocol version that client and server speak.
TRANSPORTS = {
    "memory": ("memory", 1),
    "asgi": ("asgi", 1),
    "asgi v0": ("asgi", 0),
    "server": ("server", 1),
    "server v0": ("server", 0),
    "workers": ("workers", 1),  # the server, with its environments in a process of their own
    # The server, and the client in TypeScript, by each form of the protocol.
    "typescript msgpack": ("typescript", 1),
    "typescript json": ("typescript", 1),
    "typescript none": ("typescript", 0),
}

# What is not tested there, since it needs the environment's class in this process.
NOT_IN_WORKERS = {
    "test_leaving_closes_the_environment_once": "reads the log of the class",
    "test_a_synchronous_environment_sees_one_thread_only": "reads the log of the class",
    "test_a_factory_that_fails_is_named": "a class of this file, which no worker can import",
    "test_metadata_that_say_truncated_end_no_episode": "a class within the test",
    "test_what_a_model_may_say_in_its_own_way": "a class of this file",
}

# What is not tested with another language's client.
NOT_IN_TYPESCRIPT = {
    "test_a_synchronous_environment_sees_one_thread_only": "says nothing of the client",
    "test_what_a_model_may_say_in_its_own_way": "reads models of Python",
    "test_the_first_observation_tells_what_rewards_mean": "the client has no reward_spec",
    "test_who_declares_nothing_tells_nothing": "likewise",
    "test_an_episode_is_scored_as_a_whole_at_its_end": "reads step_rewards of a Python result",
    "test_a_client_scores_what_the_environment_does_not": "scores in the client, in Python",
    "test_a_clients_score_is_shared_among_the_steps": "likewise",
    "test_a_credit_assignment_of_no_known_name_is_refused": "likewise",
}

HERE = Path(__file__).parent
POSITIONS = pytest.StashKey[dict[str, int]]()
NO_PARAMETERS: Any = SimpleNamespace(params={})
KIND = {"environment", "kind"}  # parameters that say which kind of environment it is
Connect = Callable[..., CounterEnv]


# Processes take their time to start: all but the core tests have them.
SLOW = {
    name: [pytest.mark.slow]
    for name, (transport, _) in TRANSPORTS.items()
    if transport in ("workers", "typescript")
}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in TRANSPORTS])
def version(request: pytest.FixtureRequest) -> int:
    return TRANSPORTS[request.param][1]


@pytest.fixture
def transport(version: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENENV_PROTOCOL", str(version))
    transport = TRANSPORTS[request.node.callspec.params["version"]][0]
    if transport == "workers" and request.node.originalname in NOT_IN_WORKERS:
        pytest.skip(NOT_IN_WORKERS[request.node.originalname])
    if transport == "typescript" and request.node.originalname in NOT_IN_TYPESCRIPT:
        pytest.skip(NOT_IN_TYPESCRIPT[request.node.originalname])
    return transport


@pytest.fixture
def connect(transport: str, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make unconnected clients of one server that serves a given environment."""
    driver = request.getfixturevalue("driver") if transport == "typescript" else None
    with contextlib.ExitStack() as stack:
        made: dict[Any, Any] = {}

        def connect(factory: Any, **options: Any) -> CounterEnv:
            if transport == "memory":
                if factory not in made:
                    made[factory] = CounterEnv.local(factory)._open_transport
                client = CounterEnv(base_url="local://", **options)
                client._open_transport = made[factory]
                return client
            if factory not in made:
                workers = 1 if transport == "workers" else None
                made[factory] = create_app(
                    factory, Do, Seen, state_cls=Progress, workers=workers, debug=True
                )
                if transport != "asgi":
                    made[factory] = stack.enter_context(serving(made[factory]))
            if driver is not None:
                codec = request.node.callspec.params["version"].removeprefix("typescript ")
                queue_s = float(os.environ.get("OPENENV_QUEUE_TIMEOUT_S", "150"))
                waits = {"queueTimeoutS": queue_s}
                there = TypeScriptEnv(driver, made[factory], codec, waits)
                return cast(CounterEnv, there)
            if transport != "asgi":
                return CounterEnv(base_url=made[factory], **options)
            client = CounterEnv(base_url="local://", **options)
            client._open_transport = CounterEnv.local(made[factory])._open_transport
            return client

        yield connect


# ------------------------------------------------------------------ pairwise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what pairs show already.

    Nine transports times three kinds of environment times values is a thousand tests. `make test`
    runs a Latin square of them: each test over every transport, each transport with every kind,
    each value over every transport.
    """
    square: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if (
            item.path.parent == HERE
            and KIND & getattr(item, "callspec", NO_PARAMETERS).params.keys()
        ):
            name = item.path.name, item.originalname  # type: ignore[attr-defined]
            square.setdefault(name, []).append(item)
    for number, of_one_test in enumerate(square.values()):
        seen: dict[str, list[str]] = {}  # the values of each parameter, in order
        for item in of_one_test:
            at = {}
            for key, value in item.callspec.params.items():  # type: ignore[attr-defined]
                values = seen.setdefault(key, [])
                if repr(value) not in values:
                    values.append(repr(value))
                at[key] = values.index(repr(value))
            item.stash[POSITIONS] = at
        for item in of_one_test:
            at = item.stash[POSITIONS]
            (kind,) = KIND & at.keys()
            others = sum(at.values()) - at[kind]
            if at[kind] != (number + others) % len(seen[kind]):
                item.add_marker(pytest.mark.extended("another kind shows it over this transport"))
