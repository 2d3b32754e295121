"""Which tasks a client's server has, however the client reaches it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from server.sockets import app_of
from support.certificates import Certificates, of_loopback
from support.rawserver import Peer, raw_server
from support.servers import serving
from support.tasked import (
    ROWS,
    SECRET,
    SPLITS,
    AsyncOwn,
    Breaks,
    Hider,
    Own,
    Plain,
    Sums,
    SumsEnv,
)

from openenv import (
    AuthenticationError,
    ConnectError,
    NotSupported,
    PermissionRefused,
    create_app,
)
from openenv.client.generic import GenericEnvClient
from openenv.errors import MessageTooLarge, ProtocolError, ServerError
from openenv.execution.limits import Limits
from openenv.providers.process import ProcessProvider
from openenv.server import Key, Role
from openenv.tasks import (
    CurriculumSampler,
    SequentialSampler,
    Task,
    TaskAPIClient,
    TasksetError,
    load_splits,
    load_tasks,
)

__all__ = ["of_loopback"]

Clients = Callable[[], SumsEnv]


def sums_app(**options: Any) -> Any:
    return create_app(Sums, env_name="sums", tasks=SPLITS, **options)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(sums_app()) as url:
        yield url


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    with serving(create_app(Own, env_name="own")) as url:
        yield url


WAYS: dict[str, Callable[[str], SumsEnv]] = {
    "http": lambda url: SumsEnv(base_url=url),
    "ws": lambda url: SumsEnv(base_url=url.replace("http:", "ws:")),
    "a path": lambda url: SumsEnv(base_url=f"{url}/"),
    "no scheme": lambda url: SumsEnv(base_url=url.removeprefix("http://")),
    "an application": lambda url: SumsEnv.local(sums_app()),
}


def public(index: int) -> dict[str, Any]:
    return {
        "id": f"sum-{index}",
        "prompt": f"What is {index} + 1?",
        "difficulty": float(index % 3),
        "split": "train",
        "index": index,
    }


# ------------------------------------------------------------------ its faces


@pytest.mark.parametrize("way", WAYS)
def test_a_synchronous_client_tells_of_the_tasks(way: str, url: str) -> None:
    for is_bare in (True, False):
        client: Any = WAYS[way](url)
        with client if is_bare else client.sync() as env:
            tasks = env.tasks
            assert [split["name"] for split in tasks.list_splits()] == ["train", "test"]
            assert tasks.num_tasks("train") == 15
            assert tasks.get_task("train", 3) == public(3)
            assert tasks.get_task_range("train", 2, 4) == [public(2), public(3)]
            assert len(tasks.list_tasks("test")) == 5
            assert list(tasks.iter_tasks("train", 4)) == [public(i) for i in range(15)]
            with pytest.raises(IndexError):
                tasks.get_task("train", 15)
            assert env.reset(task="sum-1").observation.prompt == "What is 1 + 1?"


@pytest.mark.parametrize("way", WAYS)
def test_an_asynchronous_client_tells_of_the_tasks(way: str, url: str) -> None:
    async def ask() -> None:
        async with WAYS[way](url) as env:
            tasks = env.tasks
            assert await tasks.num_tasks("train") == 15
            splits, one = await asyncio.gather(tasks.list_splits(), tasks.get_task("train", 3))
            assert len(splits) == 2 and one == public(3)
            paged = [task async for task in tasks.iter_tasks("train", 4)]
            assert paged == [public(i) for i in range(15)]
            with pytest.raises(IndexError):
                await tasks.get_task("train", -1)

    asyncio.run(ask())


def test_a_bare_client_may_be_read_within_a_loop(url: str) -> None:
    async def ask() -> int:
        env = SumsEnv(base_url=url)
        try:
            pending = env.tasks.get_task_range("train", 0, 3)
            return len(await asyncio.to_thread(list, pending))
        finally:
            await env.close()

    assert asyncio.run(ask()) == 3


def test_an_environment_in_this_process_is_asked() -> None:
    with GenericEnvClient.local(Own).sync() as env:
        assert env.tasks.num_tasks("train") == 3
        assert env.tasks.get_task("train", 1) == {"id": "train-1", "tier": 1}
        with pytest.raises(IndexError):
            env.tasks.get_task("train", 3)
        with pytest.raises(NotSupported):
            env.tasks.list_tasks("train")
        assert env.reset(split="train", index=1).observation["prompt"] == "train-1"
    with GenericEnvClient.local(Breaks).sync() as env, pytest.raises(ServerError):
        env.tasks.list_tasks("train")


def test_a_subclass_may_keep_its_own_under_that_name(url: str) -> None:
    class Old(SumsEnv):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.tasks: Any = ["mine"]

    with Old(base_url=url) as env:
        face: Any = env.sync()
        assert env.tasks == face.tasks == ["mine"]


@pytest.mark.slow
def test_a_providers_server_is_started_to_be_asked() -> None:
    env = GenericEnvClient.with_provider(ProcessProvider("support.tasked:Own")).sync()
    try:
        assert env.tasks.num_tasks("train") == 3
    finally:
        env.close()


# ------------------------------------------------------------------ by itself


def test_the_helper_of_rfc_013_asks_for_the_name(url: str) -> None:
    for base_url in (url, f"{url.replace('http:', 'ws:')}/ws"):
        tasks = TaskAPIClient(base_url)
        assert tasks.num_tasks("train") == 15
        assert [task["index"] for task in itertools.islice(tasks.iter_tasks("train", 2), 5)] == [
            0,
            1,
            2,
            3,
            4,
        ]
    assert TaskAPIClient(url, "SUMS").get_task("test", 0)["id"] == "sum-15"


def test_the_helper_goes_the_way_of_a_client(url: str) -> None:
    for env in (SumsEnv(base_url=url), SumsEnv.local(sums_app())):
        for face in (env, env.sync()):
            assert TaskAPIClient.from_env_client(face).num_tasks("test") == 5
            assert TaskAPIClient.from_env_client(face, "Sums").num_tasks("test") == 5
            with pytest.raises(TasksetError, match="unknown environment 'chess'"):
                TaskAPIClient.from_env_client(face, "chess").num_tasks("test")
        env.sync().close()


def test_keys_and_headers_are_those_of_the_client() -> None:
    keys = [Key("trainers"), Key("observers", Role.OBSERVER)]
    with serving(sums_app(keys=keys)) as url:
        with SumsEnv(base_url=url, api_key="trainers") as env:
            assert env.tasks.num_tasks("train") == 15
        with SumsEnv(base_url=url, headers={"X-API-Key": "trainers"}) as env:
            assert env.tasks.num_tasks("train") == 15
        with SumsEnv.local(sums_app(keys=keys), api_key="trainers") as env:
            assert env.tasks.num_tasks("train") == 15
        assert TaskAPIClient(url, api_key="trainers").num_tasks("train") == 15
        for key, refused in (("wrong", AuthenticationError), ("observers", PermissionRefused)):
            with pytest.raises(refused):
                TaskAPIClient(url, api_key=key).num_tasks("train")


def test_certificates_are_those_of_the_client(of_loopback: Certificates) -> None:
    with serving(sums_app(), **of_loopback.of_server) as plain:
        url = plain.replace("http://", "https://")
        with SumsEnv(base_url=url, ca_file=of_loopback.authority) as env:
            assert env.tasks.num_tasks("train") == 15
        with pytest.raises(ConnectError):
            TaskAPIClient(url).num_tasks("train")


# ------------------------------------------------------------------ what goes wrong


def test_what_a_server_does_not_have_is_told(url: str) -> None:
    with serving(create_app(Plain)) as other, SumsEnv(base_url=other) as env:
        with pytest.raises(NotSupported) as caught:
            env.tasks.list_splits()
        assert caught.value.feature == "list_splits"
    with serving(sums_app(mode="production")) as other, pytest.raises(NotSupported):
        TaskAPIClient(other).num_tasks("train")
    with pytest.raises(ServerError, match="did you mean 'train'"):
        TaskAPIClient(url).num_tasks("trian")
    with serving(app_of()) as other, pytest.raises(TasksetError, match="chess"):
        TaskAPIClient(other, "chess").list_splits()


def test_what_is_too_large_is_asked_for_in_pages() -> None:
    with serving(sums_app(limits=Limits(max_message_bytes=1000))) as url:
        tasks = TaskAPIClient(url)
        with pytest.raises(MessageTooLarge):
            tasks.list_tasks("train")
        assert len(list(tasks.iter_tasks("train", 5))) == 15


def test_a_server_of_this_machine_is_not_asked_by_a_proxy(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert TaskAPIClient(url).num_tasks("train") == 15


def test_where_no_server_answers_is_told() -> None:
    with pytest.raises(ConnectError, match="cannot list the tasks of"):
        TaskAPIClient("http://127.0.0.1:9").list_splits()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", TasksetError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno JSON!!", ProtocolError),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n["a","b"]', TasksetError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", ConnectError),
        (b"HTTP/1.1 307 Other\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", ServerError),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", ServerError),
        (b"nonsense\r\n\r\n", ConnectError),
    ],
)
def test_what_is_no_answer_is_no_tasks(answer: bytes, error: type[Exception]) -> None:
    def talk(peer: Peer) -> None:
        peer.read_head()
        peer.socket.sendall(answer)

    with raw_server(talk) as port, pytest.raises(error):
        TaskAPIClient(f"127.0.0.1:{port}", timeout_s=5).list_splits()


def test_a_page_that_lacks_a_task_is_no_page(url: str) -> None:
    class Short(TaskAPIClient):
        def get_task_range(
            self, split: str, start: int | None = None, stop: int | None = None
        ) -> list[Any]:
            return super().get_task_range(split, start, stop)[:-1]

    with pytest.raises(ProtocolError):
        list(Short(url).iter_tasks("train"))
    with pytest.raises(TasksetError):
        list(load_tasks(Short(url), split="train"))
    for size in (0, -1):
        with pytest.raises(ValueError, match="page_size"):
            SumsEnv(base_url=url).tasks.iter_tasks("train", size)


# ------------------------------------------------------------------ tasks of a server


def test_tasks_of_a_server_are_references_to_them(url: str) -> None:
    train = load_tasks(url, split="train")
    assert len(train) == 15 and train.splits == ("train", "test")
    assert train[4] == Task(
        id="sum-4",
        prompt="What is 4 + 1?",
        reset={"split": "train", "index": 4},
        split="train",
        index=4,
        difficulty=1,
    )
    with SumsEnv(base_url=url) as env:
        assert load_tasks(env, split="train").fingerprint == train.fingerprint
        hard = train.filter(lambda task: task.difficulty == 2)
        assert env.reset(task=hard[3], seed=1).observation.prompt == "What is 11 + 1?"
        assert train.find("sum-9") == 9
    assert [task.id for task in SequentialSampler(load_tasks(url, split="test"))] == [
        row["id"] for row in ROWS[15:]
    ]
    assert len(CurriculumSampler(train, 4).sample(20)) == 20


def test_tasks_that_an_environment_has_by_itself_are_begun(own: str) -> None:
    with GenericEnvClient(base_url=own).sync() as env:
        splits = load_splits(env)
        assert list(splits) == ["train", "holdout", "x", "3"]
        task = splits["holdout"][2]
        assert task.metadata == {"tier": 2} and task.is_reference
        assert env.reset(task=task).observation["prompt"] == "holdout-2"
    assert load_tasks(Own, split="train")[0].id == "train-0"


def test_the_rows_of_a_server_are_its_tasks_and_tell_no_answer() -> None:
    with serving(create_app(Hider, env_name="own")) as url, SumsEnv(base_url=url) as env:
        for split, tasks in load_splits(url).items():
            assert [task.id for task in tasks] == [f"{split}-{i}" for i in range(4)]
            for index, task in enumerate(tasks):
                assert (task.split, task.index) == (split, index) and task.is_reference
                assert env.reset(task=task).observation.prompt == task.id
            assert SECRET not in "".join(task.model_dump_json() for task in tasks)
            inside = load_tasks(Hider, split=split)
            assert list(inside) == list(tasks), "in this process they are the same"
        told = [httpx.get(f"{url}/{path}").text for path in ("schema", "metadata", "own/splits")]
        body = {"split": "train", "index": 1}
        told += [httpx.post(f"{url}/own/{path}", json=body).text for path in ("task",)]
        assert "train-1" in told[-1] and SECRET not in "".join(told)


def test_what_an_environment_tells_that_is_no_task_is_named() -> None:
    class Wrong(Own):
        def get_task(self, split: str, index: int) -> Any:
            return {"prompt": [SECRET]}

    with pytest.raises(TasksetError, match=r"task 0 of train: prompt\.") as caught:
        load_tasks(Wrong, split="train")[0]
    assert SECRET not in str(caught.value)


def test_coroutines_of_an_environment_are_asked_by_a_client_of_it() -> None:
    with pytest.raises(TasksetError, match="client of it"):
        load_tasks(AsyncOwn, split="train")
    with SumsEnv.local(AsyncOwn) as env:
        tasks = load_tasks(env, split="train")
        assert [task.id for task in tasks] == ["t0", "t1"]


def test_a_password_in_an_address_is_not_told(url: str) -> None:
    named = url.replace("//", "//user:planted-password@")
    assert "planted" not in repr(load_tasks(named, split="train"))


def test_what_contradicts_a_task_is_refused_before_it_is_sent(url: str) -> None:
    task = Task(id="sum-3", reset={"seed": 3})
    with SumsEnv(base_url=url) as env:
        with pytest.raises(ValueError, match="seed"):
            env.reset(task=task, seed=4)
        assert env.reset(task=task).observation.seed == 3
        assert SECRET not in str(env.reset(task=task).observation.prompt)
