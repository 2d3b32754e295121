"""The Task API, and episodes that are begun with a task."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from starlette.routing import Mount
from support.tasked import (
    ROWS,
    SECRET,
    SPLITS,
    Alone,
    Answer,
    Asked,
    AsyncLoader,
    AsyncOwn,
    Breaks,
    Loader,
    Mixed,
    Own,
    Plain,
    Sums,
    SumsEnv,
)
from support.waiting import wait_until

from openenv import ExecutionFailed, Limits, create_app
from openenv.client.generic import GenericEnvClient
from openenv.errors import ServerError, TooLargeError
from openenv.execution import task_service
from openenv.server import Key, Role
from openenv.server.workers import managers_of
from openenv.tasks import Task, TasksetError, load_tasks
from openenv.tools.environment import MCPEnvironment
from openenv.tools.functions import tool

Serve = Callable[[Any], str]

TRAIN, ONE = {"split": "train"}, {"split": "train", "index": 3}
CALLS: dict[str, tuple[str, str, Any]] = {
    "splits": ("GET", "sums/splits", None),
    "tasks": ("POST", "sums/tasks", TRAIN),
    "num_tasks": ("POST", "sums/num_tasks", TRAIN),
    "task": ("POST", "sums/task", ONE),
    "task_range": ("POST", "sums/task_range", {**TRAIN, "start": 2, "stop": 4}),
    "list_environments": ("GET", "list_environments", None),
}


def call(url: str, name: str, **options: Any) -> httpx.Response:
    method, path, body = CALLS[name]
    return httpx.request(method, f"{url}/{path}", json=body, **options)


def ask(url: str, path: str, **body: Any) -> tuple[int, Any]:
    answer = httpx.post(f"{url}/{path}", json=body) if body else httpx.get(f"{url}/{path}")
    return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from support.servers import serving

    with serving(create_app(Sums, env_name="sums", tasks=SPLITS)) as url:
        yield url


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    from support.servers import serving

    with serving(create_app(Own, env_name="own")) as url:
        yield url


def public(index: int) -> dict[str, Any]:
    return {
        "id": f"sum-{index}",
        "prompt": f"What is {index} + 1?",
        "difficulty": float(index % 3),
        "split": "train",
        "index": index,
    }


# ------------------------------------------------------------------ the routes


def test_the_routes_tell_of_the_servers_tasks(url: str) -> None:
    assert call(url, "list_environments").json() == ["sums"]
    assert call(url, "splits").json() == [
        {"name": "train", "type": "train"},
        {"name": "test", "type": "test"},
    ]
    listed = call(url, "tasks").json()
    assert listed == {"tasks": [public(i) for i in range(15)], "env_name": "sums"}
    assert call(url, "num_tasks").json() == {"num_tasks": 15}
    assert call(url, "task").json() == {"task": public(3)}
    assert call(url, "task_range").json() == {"tasks": [public(2), public(3)]}


@pytest.mark.parametrize("name", CALLS)
def test_no_route_tells_what_a_task_is_scored_by(name: str, url: str) -> None:
    answer = call(url, name)
    assert answer.status_code == 200
    assert SECRET not in answer.text and "criteria" not in answer.text


def test_a_test_split_counts_from_0_too(url: str) -> None:
    status, answer = ask(url, "sums/task", split="test", index=0)
    assert (status, answer["task"]["id"], answer["task"]["index"]) == (200, "sum-15", 0)


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"start": 13}, [13, 14]),
        ({"stop": 1}, [0]),
        ({"start": -2}, [13, 14]),
        ({"start": 99}, []),
        ({"start": None, "stop": None}, list(range(15))),
    ],
)
def test_a_range_is_a_slice(url: str, body: dict[str, Any], ids: list[int]) -> None:
    _, answer = ask(url, "sums/task_range", split="train", **body)
    assert [task["index"] for task in answer["tasks"]] == ids


def test_the_name_is_compared_without_case(url: str) -> None:
    assert ask(url, "SUMS/num_tasks", split="train") == (200, {"num_tasks": 15})
    assert ask(url, "chess/num_tasks", split="train") == (
        404,
        {"detail": "unknown environment 'chess'"},
    )


@pytest.mark.parametrize("path", ["tasks", "num_tasks", "task", "task_range"])
def test_further_keys_and_other_types_are_refused(url: str, path: str) -> None:
    good = {"split": "train", **({"index": 0} if path == "task" else {})}
    for body in ({**good, "seed": 1}, {**good, "split": 3}, {}):
        answer = httpx.post(f"{url}/sums/{path}", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"][0] == "body"


def test_what_is_not_there_is_told(url: str) -> None:
    for index in (15, -1):
        assert ask(url, "sums/task", split="train", index=index) == (
            400,
            {"detail": "Invalid task index"},
        )
    status, answer = ask(url, "sums/num_tasks", split="trian")
    assert (status, answer["code"]) == (500, "EXECUTION_ERROR")
    assert "did you mean 'train'" in answer["detail"]


def test_an_answer_that_is_too_large_is_refused_before_it_is_made(serve: Serve) -> None:
    limits = Limits(max_message_bytes=1000)
    url = serve(create_app(Sums, env_name="sums", tasks=SPLITS, limits=limits))
    assert call(url, "task_range").status_code == 200
    answer = call(url, "tasks")
    assert (answer.status_code, answer.json()["code"]) == (500, "TOO_LARGE")
    assert "task_range" in answer.json()["detail"]


def test_what_is_too_large_is_not_even_read() -> None:
    endless = itertools.repeat({"id": "x" * 100})
    with pytest.raises(TooLargeError):
        task_service.encode_answer(endless, "list_tasks", 10_000)


def test_production_mode_has_no_such_routes(serve: Serve) -> None:
    url = serve(create_app(Sums, env_name="sums", tasks=SPLITS, mode="production"))
    assert {call(url, name).status_code for name in CALLS} == {404}


def test_they_are_documented(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    tagged = {
        path for path, one in paths.items() for how in one.values() if "Task API" in how["tags"]
    }
    assert tagged == {
        "/list_environments",
        "/{env_name}/splits",
        "/{env_name}/tasks",
        "/{env_name}/num_tasks",
        "/{env_name}/task",
        "/{env_name}/task_range",
    }


@pytest.mark.slow
def test_only_an_orchestrator_may_ask(serve: Serve) -> None:
    """Nor an agent, whose keys are made by the server; see below."""
    keys = [Key("trainers"), Key("observers", Role.OBSERVER)]
    url = serve(create_app(Sums, env_name="sums", tasks=SPLITS, keys=keys))
    statuses = {
        key: {call(url, name, headers={"X-API-Key": key}).status_code for name in CALLS}
        for key in ("trainers", "observers", "nobodys")
    }
    assert statuses == {"trainers": {200}, "observers": {403}, "nobodys": {401}}


# ------------------------------------------------------------------ an environment's own tasks


def test_an_environment_is_asked_for_its_own(own: str) -> None:
    assert ask(own, "own/splits")[1] == [
        {"name": "train", "type": "train"},
        {"name": "holdout", "type": "validation"},
        {"name": "x", "type": "test"},
        {"name": "3", "type": "validation"},
    ]
    assert ask(own, "own/num_tasks", split="train") == (200, {"num_tasks": 3})
    assert ask(own, "own/task", split="train", index=1)[1] == {"task": {"id": "train-1", "tier": 1}}
    _, ranged = ask(own, "own/task_range", split="train", start=1)
    assert [task["tier"] for task in ranged["tasks"]] == [1, 2]
    assert ask(own, "own/task", split="train", index=9) == (400, {"detail": "Invalid task index"})
    assert ask(own, "own/tasks", split="train") == (
        501,
        {"detail": "list_tasks is not supported for this environment"},
    )


@pytest.mark.slow
def test_one_environment_answers_many_requests_away_from_the_loop(serve: Serve) -> None:
    class Counted(Own):
        made: ClassVar[int] = 0
        threads: ClassVar[set[int]] = set()

    url = serve(create_app(Counted, env_name="own"))
    for _ in range(20):
        assert ask(url, "own/splits")[0] == 200
    assert Counted.made == 1
    assert len(Counted.threads) == 1 and threading.get_ident() not in Counted.threads


def test_the_environment_that_is_asked_takes_no_slot_and_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_service, "IDLE_S", 0.05)
    app = create_app(Own, env_name="own", max_concurrent_envs=1)
    url = serve(app)
    (manager,) = managers_of(app)
    assert ask(url, "own/splits")[0] == 200
    assert manager.active_sessions == 0
    with GenericEnvClient(base_url=url) as env:
        env.reset()
        assert ask(url, "own/splits")[0] == 200
    wait_until(lambda: not manager.sessions(), 10, manager.sessions)


def test_a_class_that_lives_alone_is_asked_in_an_instance_of_its_own(serve: Serve) -> None:
    Alone.made = 0
    app = create_app(Alone, env_name="own")
    url = serve(app)
    for _ in range(3):
        assert ask(url, "own/num_tasks", split="train")[0] == 200
    assert Alone.made == 3
    wait_until(lambda: not managers_of(app)[0].sessions(), 10)


def test_coroutines_models_and_objects_are_understood(serve: Serve) -> None:
    url = serve(create_app(AsyncOwn, env_name="own"))
    assert ask(url, "own/splits")[1] == [{"name": "train", "type": "train"}]
    assert ask(url, "own/task", split="train", index=0)[1] == {"task": {"id": "t0", "prompt": "do"}}
    assert ask(url, "own/task", split="train", index=2)[0] == 400
    _, answer = ask(url, "own/tasks", split="train")
    assert answer["tasks"] == [{"id": "thing", "place": [1, None]}, {"id": "t0", "prompt": "do"}]
    assert ask(url, "own/task_range", split="train")[0] == 501


def test_an_environment_without_tasks_says_so(serve: Serve) -> None:
    url = serve(create_app(Plain, env_name="sums"))
    for name in CALLS:
        if name != "list_environments":
            assert call(url, name).status_code == 501


def test_a_tool_is_no_method_of_a_provider(serve: Serve) -> None:
    class Tools(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        @tool
        def list_splits(self) -> list[str]:
            """Not for trainers."""
            raise AssertionError("nobody called a tool")

    url = serve(create_app(Tools, env_name="sums"))
    assert call(url, "splits").status_code == 501


def test_what_an_environment_raises_is_not_told(serve: Serve) -> None:
    url = serve(create_app(Breaks, env_name="sums"))
    answer = call(url, "num_tasks")
    assert answer.status_code == 500
    assert SECRET not in answer.text and answer.json()["incident"]
    assert call(url, "tasks").json()["code"] == "EXECUTION_ERROR"


@pytest.mark.slow
def test_the_environment_is_asked_where_it_lives(serve: Serve) -> None:
    url = serve(create_app(Own, env_name="own", workers=1))
    assert ask(url, "own/num_tasks", split="train") == (200, {"num_tasks": 3})
    assert ask(url, "own/task", split="train", index=5)[0] == 400
    assert ask(url, "own/tasks", split="train")[0] == 501


# ------------------------------------------------------------------ other routes of an application


def with_routes_of_its_own(app: FastAPI, how: str) -> FastAPI:
    router = APIRouter()
    for path in ("/projects/tasks", "/sums/num_tasks"):
        router.add_api_route(path, lambda: {"own": True}, methods=["POST"])
    for path in ("/projects/splits", "/list_environments"):
        router.add_api_route(path, lambda: {"own": True}, methods=["GET"])
    if how == "included":
        app.include_router(router)
    elif how == "added":
        app.router.routes.extend(router.routes)
    return app


@pytest.mark.parametrize("how", ["included", "added"])
def test_an_applications_own_routes_win(serve: Serve, how: str) -> None:
    """The public package's took every path of two parts that ended like one of theirs (K-19)."""
    url = serve(with_routes_of_its_own(create_app(Sums, env_name="sums", tasks=SPLITS), how))
    for path in ("projects/tasks", "sums/num_tasks"):
        assert ask(url, path, split="train") == (200, {"own": True})
    for path in ("projects/splits", "list_environments"):
        assert ask(url, path) == (200, {"own": True})
    assert httpx.put(f"{url}/projects/tasks").status_code == 405
    assert ask(url, "sums/task", **ONE)[0] == 200
    assert ask(url, "others/task", **ONE)[0] == 404


def test_an_application_that_is_mounted_at_the_root_leaves_this_environments(serve: Serve) -> None:
    app = create_app(Sums, env_name="sums", tasks=SPLITS)
    inner = with_routes_of_its_own(FastAPI(), "added")
    app.router.routes.append(Mount("/", app=inner))
    url = serve(app)
    assert ask(url, "projects/tasks", split="train") == (200, {"own": True})
    assert ask(url, "sums/num_tasks", split="train") == (200, {"num_tasks": 15})


def test_it_may_be_mounted_itself(serve: Serve) -> None:
    outer = FastAPI()
    outer.mount("/inner", create_app(Sums, env_name="sums", tasks=SPLITS))
    url = serve(outer)
    assert ask(url, "inner/sums/task", **ONE)[1] == {"task": public(3)}


# ------------------------------------------------------------------ reset


FORMS = [Sums, Loader, AsyncLoader]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", ["0", "1"])
def test_an_episode_is_begun_with_a_task(
    form: Any, version: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    url = serve(create_app(form, tasks=SPLITS))
    with SumsEnv(base_url=url) as env:
        for arguments in (
            {"task": "sum-3"},
            {"task": {"id": "sum-3"}},
            {"task": {"split": "train", "index": 3}},
            {"split": "train", "index": 3},
            {"task": "sum-3", "split": "train"},
            {"task": Task.model_validate(ROWS[3])},
            {"task": Task(id="x", reset={"split": "train", "index": 3})},
        ):
            result = env.reset(seed=7, **arguments)
            assert result.observation.prompt == "What is 3 + 1?"
            assert result.observation.seed == 7
            assert env.step(Answer(text=f"{SECRET}-3")).reward == 1.0
        assert env.reset(level=2).observation.prompt is None
        assert env.reset(split="test").observation.prompt is not None


def test_a_split_alone_has_a_task_drawn_by_the_seed(url: str) -> None:
    with SumsEnv(base_url=url) as env:
        drawn = [env.reset(split="train", seed=seed).observation.prompt for seed in range(12)]
        again = [env.reset(split="train", seed=seed).observation.prompt for seed in range(12)]
    assert drawn == again and len(set(drawn)) > 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": "sum-33"}, "did you mean 'sum-3"),
        ({"task": "sum-3", "index": 4}, "index: 4 contradicts"),
        ({"task": "sum-3", "split": "test"}, "no.*'sum-3'|none with the id"),
        ({"split": "trian", "index": 0}, "did you mean 'train'"),
        ({"split": "train", "index": 99}, "15 tasks"),
        ({"split": "train", "index": "x"}, "whole number"),
        ({"index": 0}, "expected one of train, test"),
        ({"task": 3}, "task: expected"),
        ({"task": {}}, "expected an id or an index"),
        ({"task": {"id": "sum-3", "prompt": "another"}}, "has a different prompt"),
        ({"task": {"id": "sum-3", "criteria": {"answer": "x"}}}, "has a different criteria"),
        ({"task": {"id": "sum-3", "reset": {"seed": 1}}, "seed": 2}, "seed: "),
    ],
)
def test_a_task_that_is_not_there_is_refused(
    url: str, arguments: dict[str, Any], words: str
) -> None:
    with SumsEnv(base_url=url) as env:
        env.reset(task="sum-5")
        with pytest.raises(ExecutionFailed, match=words) as caught:
            env.reset(**arguments)
        assert SECRET not in str(caught.value)


def test_ids_that_two_splits_have_are_told_apart_by_the_split(serve: Serve) -> None:
    tasks = {"train": [{"id": "a", "prompt": "1"}], "test": [{"id": "a", "prompt": "2"}]}
    url = serve(create_app(Sums, tasks=tasks))
    with SumsEnv(base_url=url) as env:
        assert env.reset(task="a", split="test").observation.prompt == "2"
        with pytest.raises(ExecutionFailed, match="train and test"):
            env.reset(task="a")


def test_arguments_that_a_task_has_for_reset_are_passed(serve: Serve) -> None:
    tasks = [
        {"id": "a", "reset": {"level": 4, "seed": 11}},
        {"id": "b", "reset": {"levle": 4}},
        {"id": "c", "criteria": {"answer": SECRET}},
        {"id": "d", "files": {"x": "y"}, "state": {"z": 1}},
    ]
    url = serve(create_app(Plain, tasks=tasks))
    with SumsEnv(base_url=url) as env:
        seen = env.reset(task="a").observation
        assert (seen.level, seen.seed) == (4, 11)
        assert env.reset(task="a", seed=11, level=None).observation.level == 4
        with pytest.raises(ExecutionFailed, match="seed: task 'a' requires 11, got 12"):
            env.reset(task="a", seed=12)
        with pytest.raises(ExecutionFailed, match=r"levle.*did you mean 'level'"):
            env.reset(task="b")
        with pytest.raises(ExecutionFailed, match="has criteria, and Plain takes none"):
            env.reset(task="c")
        with pytest.raises(ExecutionFailed, match="has files and state"):
            env.reset(task="d")
        assert env.reset(level=5).observation.level == 5


@pytest.mark.parametrize("form", FORMS)
def test_who_scores_the_episode_is_given_the_task(form: Any) -> None:
    def matches(trajectory: Any) -> float:
        return float(trajectory[-1][0].text == trajectory.task.criteria["answer"])

    class Scored(form):  # type: ignore[misc]
        trajectory_scorer = staticmethod(matches)

        def step(self, action: Answer) -> Any:
            return Asked(done=True)

    with SumsEnv.local(create_app(Scored, Answer, Asked, tasks=SPLITS)) as env:
        for text, reward in ((f"{SECRET}-3", 1.0), ("x", 0.0)):
            env.reset(task="sum-3")
            assert env.step(Answer(text=text)).reward == reward


def test_who_scores_an_episode_of_an_environments_own_task_is_given_that() -> None:
    class Scored(Own):
        trajectory_scorer = staticmethod(lambda trajectory: float(trajectory.task["tier"]))

        def step(self, action: Answer) -> Any:  # type: ignore[override]
            return Asked(done=True)

    with SumsEnv.local(create_app(Scored, Answer, Asked)) as env:
        env.reset(split="train", index=2)
        assert env.step(Answer()).reward == 2.0


def test_a_client_that_scores_has_the_task_that_it_has_begun() -> None:
    def matches(trajectory: Any) -> float:
        return float(trajectory.task.metadata["level"])

    with SumsEnv.local(create_app(Sums, tasks=SPLITS), trajectory_scorer=matches) as env:
        metadata = {"level": 0.5}
        env.reset(task=Task(id="x", reset={"split": "train", "index": 3}, metadata=metadata))
        assert env.step(Answer(text="x")).reward == 0.5


def test_a_hook_is_called_before_every_reset(serve: Serve) -> None:
    url = serve(create_app(Loader, tasks=SPLITS))
    with SumsEnv(base_url=url) as env:
        env.reset(task="sum-3")
        result = env.reset()
        assert result.observation.loads == 2 and result.observation.prompt is None


def test_a_coroutine_cannot_load_a_task_for_a_plain_reset(serve: Serve) -> None:
    url = serve(create_app(Mixed, tasks=SPLITS))
    with SumsEnv(base_url=url) as env, pytest.raises(ServerError, match="make them alike"):
        env.reset(task="sum-3")


def test_a_task_of_the_caller_is_given_to_who_knows_what_one_is(serve: Serve) -> None:
    task = Task(id="mine", prompt="new", reset={"level": 2}, criteria={"answer": "yes"})
    for form in FORMS:
        with SumsEnv(base_url=serve(create_app(form))) as env:
            seen = env.reset(task=task, seed=3).observation
            assert (seen.prompt, seen.level, seen.seed) == ("new", 2, 3)
            assert env.step(Answer(text="yes")).reward == 1.0
            with pytest.raises(ExecutionFailed, match="criteria"):
                env.reset(task={"id": "x", "criteria": 3})


def test_an_environment_with_tasks_of_its_own_keeps_its_own_ways(own: str) -> None:
    with GenericEnvClient(base_url=own) as env:
        mine: dict[str, Any] = {"id": "train-1", "tier": 1}
        assert env.reset(task=mine).observation["prompt"] == mine
        assert env.reset(task="train-1").observation["prompt"] == "train-1"
        # An index, which its reset has no argument for, is one of its tasks.
        assert env.reset(split="train", index=2, seed=4).observation["prompt"] == "train-2"
        with pytest.raises(ExecutionFailed, match="index"):
            env.reset(split="train", index=9)


def test_a_coroutine_is_asked_for_the_task_of_an_index(serve: Serve) -> None:
    with GenericEnvClient(base_url=serve(create_app(AsyncOwn))) as env:
        assert env.reset(split="train", index=1).observation["prompt"] == "t1"
        with pytest.raises(ExecutionFailed, match="index"):
            env.reset(split="train", index=2)


def test_an_episode_over_http_is_begun_with_a_task(url: str) -> None:
    answer = httpx.post(f"{url}/reset", json={"task": "sum-4"})
    assert answer.json()["observation"]["prompt"] == "What is 4 + 1?"
    assert httpx.post(f"{url}/reset", json={"task": "sum-44"}).status_code == 500


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_workers_have_the_tasks_too(form: Any, serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = [{**row, "note": 'if __name__ == "__main__": ...'} for row in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for tasks in (path, load_tasks(rows)):
        url = serve(create_app(form, env_name="sums", tasks=tasks, workers=1))
        with SumsEnv(base_url=url) as env:
            assert env.reset(task="sum-7").observation.prompt == "What is 7 + 1?"
            assert env.step(Answer(text=f"{SECRET}-7")).reward == 1.0
        assert ask(url, "sums/num_tasks", split="train") == (200, {"num_tasks": 20})


def test_tasks_that_no_other_process_can_have_are_refused() -> None:
    local = load_tasks(ROWS).map(lambda task: task)
    with pytest.raises(TypeError, match="tasks"):
        create_app(Sums, tasks=local, workers=1)


@pytest.mark.parametrize("tasks", ["tasks.sources:endless", "no-such-file.jsonl", {}, {"train": 3}])
def test_what_cannot_be_served_is_refused(tasks: Any) -> None:
    with pytest.raises(TasksetError):
        create_app(Sums, tasks=tasks)


# ------------------------------------------------------------------ agents


@pytest.mark.anyio
async def test_an_agent_never_sees_what_a_task_is_scored_by(serve: Serve) -> None:
    """Though the environment shows the whole task in its observations and its state."""
    url = serve(create_app(Sums, env_name="sums", tasks=SPLITS, keys=[Key("trainers")]))
    async with SumsEnv(base_url=url, api_key="trainers") as env:
        result = await env.reset(task="sum-3")
        assert (await env.state()).task is not None
        access = await env.agent_access()
        seen: list[str] = []
        http = create_mcp_http_client(headers=access.headers)
        async with http, Client(streamable_http_client(access.url, http_client=http)) as agent:
            tools = await agent.list_tools()
            seen.append(tools.model_dump_json())
            (one,) = tools.tools
            seen += [
                (await agent.call_tool(one.name, {"text": "4"})).model_dump_json(),
                (await agent.list_resources()).model_dump_json(),
                (await agent.list_prompts()).model_dump_json(),
            ]
        async with httpx.AsyncClient(base_url=url, headers=access.headers) as direct:
            for path in ("state", "metadata", "schema"):
                assert (await direct.get(path)).status_code == 403
            for method, path, body in CALLS.values():
                assert (await direct.request(method, path, json=body)).status_code == 403
    assert "What is 3 + 1?" in " ".join(seen) and result.observation.prompt
    assert SECRET not in " ".join(seen)
