"""Clients that have not connected, sent to other processes and copied."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do

from openenv import GenericEnvClient, create_app
from openenv.client import MCPToolClient
from openenv.providers import ProcessProvider

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda client: pickle.loads(pickle.dumps(client)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_an_unconnected_client_is_a_client_of_its_own(
    copied: Callable[[Any], Any], serve: Callable[[Any], str]
) -> None:
    url = serve(create_app(Counter, max_concurrent_envs=4))
    first = CounterEnv(base_url=url, headers={"X-One": "1"}, message_timeout_s=7)
    other = copied(first)
    assert other.base_url == url and other._websocket == first._websocket
    with first, other:
        first.reset()
        other.reset()
        first.step(Do())
        assert (first.state().step_count, other.state().step_count) == (1, 0)


@pytest.mark.parametrize("kind", [CounterEnv, GenericEnvClient, MCPToolClient])
def test_each_kind_of_client_can_be_pickled_and_its_synchronous_face(kind: Any) -> None:
    client = kind(base_url="http://localhost:1")
    assert type(pickle.loads(pickle.dumps(client))) is kind
    face = pickle.loads(pickle.dumps(client.sync()))
    assert face.base_url == client.base_url


def test_a_client_with_a_provider_is_refused_with_the_cure() -> None:
    client = CounterEnv.with_provider(ProcessProvider("echo_env"))
    for copied in COPIES.values():
        with pytest.raises(TypeError, match=r"has a provider.*CounterEnv\(base_url="):
            copied(client)


def test_a_client_that_is_connected_is_refused_with_the_cure() -> None:
    with CounterEnv.local(Counter) as client:
        client.reset()
        for copied in COPIES.values():
            with pytest.raises(TypeError, match="before its first use"):
                copied(client)
    with copy.deepcopy(client) as other:  # closed, it may begin anew, and so may a copy
        other.reset()


def test_another_process_connects_by_itself(serve: Callable[[Any], str]) -> None:
    url = serve(create_app(Counter, max_concurrent_envs=4))
    data = pickle.dumps(GenericEnvClient(base_url=url))
    program = (
        "import pickle, sys\n"
        "with pickle.load(sys.stdin.buffer) as client:\n"
        "    print(client.reset().done)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, timeout=60
    )
    assert run.stdout == b"False\n", run.stderr
