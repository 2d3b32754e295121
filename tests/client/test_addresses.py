"""Addresses as people paste them reach the server, by every client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.servers import serving
from support.tasked import SPLITS, Sums
from typer.testing import CliRunner

from openenv import AutoEnv, create_app
from openenv._internal.addresses import is_address, over_http, server_root
from openenv.cli.__main__ import app
from openenv.client.generic import GenericEnvClient
from openenv.client.transports.websocket import WebSocketOptions
from openenv.client.utils import convert_to_ws_url
from openenv.client.vector import VectorEnv
from openenv.gateway.backends import Backend
from openenv.integrations._sources import schemas_of
from openenv.rollouts import RolloutLimits, rollout
from openenv.tasks import TaskAPIClient, load_tasks
from openenv.validation.server_criteria import inspect_server

PASTED: tuple[str, ...] = (
    "http://{}",
    "http://{}/",
    "ws://{}/ws",
    " ws://{}/ws/ ",
    "http://{}/web",
)
PASTED += ("http://{}/web/?theme=dark#form", "HTTP://{}/docs#/default", "{}/mcp", "{}")


@pytest.mark.parametrize("form", PASTED)
def test_what_is_pasted_means_the_server(form: str) -> None:
    address = form.format("host:8000")
    assert is_address(address)
    assert over_http(address).lower() == "http://host:8000"
    assert server_root(address).lower().rpartition("//")[2] == "host:8000"
    assert convert_to_ws_url(address) == "ws://host:8000"


@pytest.mark.parametrize(
    "text", ["docker://localhost:5000/echo", "blackjack", "my_env.server.app:app"]
)
def test_what_names_an_image_or_a_target_is_no_address(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("https://host/envs/chess/web/", "https://host/envs/chess"),
        ("wss://host/webs", "https://host/webs"),
        ("[::1]:8000/ws", "http://[::1]:8000"),
        ("http://[::1]:8000/web/", "http://[::1]:8000"),
        ("https://web", "https://web"),
    ],
)
def test_a_path_before_the_page_stays(address: str, root: str) -> None:
    assert over_http(address) == root


@pytest.mark.parametrize("text", ["echo", "server.app:app", "gymnasium:CartPole-v1", "./a/ws", ""])
def test_what_is_no_address_is_none(text: str) -> None:
    assert not is_address(text)


# ------------------------------------------------------------------ every client


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with serving(create_app(Sums, env_name="sums", tasks=SPLITS)) as url:
        yield url.partition("//")[2]


def by_client(url: str) -> None:
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset()


def by_auto_env(url: str) -> None:
    with AutoEnv.from_env("sums", base_url=url, skip_install=True).sync() as client:
        client.reset()


def by_vector(url: str) -> None:
    with VectorEnv(url, 2) as envs:
        envs.reset()


def by_schema(url: str) -> None:
    assert schemas_of(url, url, WebSocketOptions()).action is not None


def by_rollout(url: str) -> None:
    tasks = load_tasks(url, split="test", limit=1)
    run = rollout(url, lambda observation: {"text": "2"}, tasks, limits=RolloutLimits(steps=1))
    assert len(run) == 1


def by_tasks(url: str) -> None:
    assert TaskAPIClient(url).num_tasks("train") > 0


def by_inspection(url: str) -> None:
    assert inspect_server(url).passed


def by_command(*arguments: str) -> Callable[[str], None]:
    def run(url: str) -> None:
        done = CliRunner().invoke(app, [arguments[0], url, *arguments[1:]])
        assert done.exit_code == 0, done.output

    return run


CLIENTS = {
    "client": by_client,
    "auto": by_auto_env,
    "vector": by_vector,
    "schema": by_schema,
    "rollout": by_rollout,
    "tasks": by_tasks,
    "inspection": by_inspection,
    "info": by_command("info"),
    "top": by_command("top", "--once", "--interval", "0.1"),
}


@pytest.mark.parametrize("form", ["ws://{}/ws/", "http://{}/web/?theme=dark"])
@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_takes_what_is_pasted(name: str, form: str, host: str) -> None:
    CLIENTS[name](form.format(host))


def test_a_gateway_takes_what_is_pasted() -> None:
    server = Backend("x", "ws://host:8000/ws/")
    assert (server.url, server.path) == ("ws://host:8000", "")
