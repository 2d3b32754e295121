"""HTTP: what the public server was recorded to answer, and the sessions that it does not have."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import platform
import socket
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import httpx
import pytest
from compat.record_peer import APPS
from fastapi import FastAPI
from support.environments import Counter, CounterEnv, Do, Log, Seen
from support.logs import tracebacks
from support.raw import address, connected, post, reset_connection
from support.recorded import PEER, TOOLS, UUID, Deviation, Exchange, comparable, is_same
from support.servers import serving
from support.waiting import wait_until

from openenv import CapacityError, ConcurrencyConfig, create_app
from openenv.errors import NotSupportedByServer
from openenv.protocol.http import SESSION_COOKIE, SESSION_HEADER
from openenv.server import HTTPEnvServer
from openenv.server.run import bind

Serve = Callable[[Any], str]

# ------------------------------------------------------------------ as recorded

RECORDED: dict[str, dict[str, Any]] = {record["name"]: record for record in PEER["http"]}
SAME_VERSIONS = is_same("fastapi", "pydantic", "starlette")
# How deep JSON may be nested, and the words for what is none, are the interpreter's.
SAME_PYTHON = PEER["versions"]["python"].split(".")[:2] == platform.python_version().split(".")[:2]
DEEPLY_NESTED = "[" * 1000
CRASHED = {"status": 500, "answer": "Internal Server Error"}


def crashed(exchange: Exchange) -> bool:
    return exchange["path"] != "/mcp" and CRASHED.items() <= exchange.items()


def quotes_what_json_lacks(exchange: Exchange) -> bool:
    numbers = ("NaN", "Infinity", "1e400", "\\ud800")
    return crashed(exchange) and any(number in (exchange["body"] or "") for number in numbers)


def ignores(*names: str) -> Callable[[Exchange], bool]:
    def concerns(exchange: Exchange) -> bool:
        bare = "bare" in exchange["answer"]
        return exchange["status"] == 200 and any(
            f'"{name}":' in (exchange["body"] or "") for name in (names if bare else ("zzz",))
        )

    return concerns


def without_ignored(answer: Any) -> Any:
    """Take the one addition out of an answer again."""
    assert answer["metadata"].pop("ignored_arguments")
    answer["observation"]["metadata"].pop("ignored_arguments")
    return {**answer, "metadata": answer["metadata"] or None}


def without_words(schema: Any) -> Any:
    """A schema without its descriptions."""
    if isinstance(schema, list):
        return [without_words(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: without_words(v) for k, v in schema.items() if k != "description"}


def only_adds_truncated(answer: Any, recorded: Any) -> bool:
    ours, theirs = without_words(answer), without_words(recorded)
    if "tools" in ours:  # which an environment that cannot be made does not tell
        assert [set(tool) >= {"name", "inputSchema"} for tool in ours.pop("tools")] == [True]
    for name in ("observation", "reset_observation"):
        ours[name]["properties"].pop("truncated")
    return bool(ours == theirs)


# The first that concerns an exchange decides about it.
DEVIATIONS = {
    "a factory's failure by JSON-RPC": Deviation(
        "who speaks JSON-RPC is answered by JSON-RPC and not by a bare 500, and told what happened",
        lambda exchange: (
            exchange["path"] == "/mcp"
            and (exchange["status"] == 500 or "failing_factory" in exchange["answer"])
        ),
        lambda status, answer, _: (
            status == 200
            and answer["error"]["code"] == -32000
            and answer["error"]["data"] == {"factory_name": "failing_factory"}
        ),
    ),
    "what to do about a full server": Deviation(
        "the refusal says how to have more sessions",
        lambda exchange: exchange["path"] == "/mcp" and "at capacity" in exchange["answer"],
        lambda status, answer, recorded: (
            status == 200
            and answer["error"]["code"] == -32000
            and answer["error"]["data"] == {"active_sessions": 2, "max_sessions": 2}
            and "SUPPORTS_CONCURRENT_SESSIONS" in answer["error"]["message"]
        ),
    ),
    **TOOLS,
    "what JSON lacks": Deviation(
        "NaN, infinity and lone surrogates are the caller's mistake, and it is named",
        quotes_what_json_lacks,
        lambda status, answer, _: (
            status == 422
            and [e["type"] for e in answer["detail"]] in (["finite_number"], ["json_invalid"])
        ),
    ),
    "errors say what happened": Deviation(
        "what the environment raised reaches the caller, with the code that `/ws` uses",
        crashed,
        lambda status, answer, _: (
            status == 500 and answer["code"] in ("EXECUTION_ERROR", "FACTORY_ERROR")
        ),
    ),
    "ignored arguments are named": Deviation(
        "an argument that nobody takes does not vanish without a word",
        ignores("seed", "foo", "timeout_s", "request_id"),
        lambda status, answer, recorded: (
            status == 200 and without_ignored(answer) == json.loads(recorded["answer"])
        ),
    ),
    "schemas": Deviation(
        "fields are described in our words, observations have `truncated`, and tools are told",
        lambda exchange: exchange["path"] == "/schema" and exchange["status"] == 200,
        lambda status, answer, recorded: (
            status == 200 and only_adds_truncated(answer, json.loads(recorded["answer"]))
        ),
    ),
}


def deviation_of(exchange: Exchange) -> str | None:
    return next((name for name, d in DEVIATIONS.items() if d.concerns(exchange)), None)


@pytest.fixture(scope="module")
def recorded_apps() -> Iterator[Callable[[str], str]]:
    """Servers of the recorded environments, each started when first asked for."""
    with contextlib.ExitStack() as stack:
        urls: dict[str, str] = {}

        def url_of(name: str) -> str:
            if name not in urls:
                urls[name] = stack.enter_context(serving(APPS[name]()))
            return urls[name]

        yield url_of


def replay(url: str, exchange: Exchange, ids: list[str]) -> Exchange:
    """Send what was recorded; return the exchange with our answer in it.

    Where a session's id was recorded, that of our last answer is sent.
    """
    connection = http.client.HTTPConnection(*address(url), timeout=10)
    body, content_type = exchange["body"], exchange["content_type"]
    if ids and body is not None:
        body = body.replace("<uuid>", ids[-1])
    headers = {} if content_type is None else {"Content-Type": content_type}
    with contextlib.closing(connection):
        connection.request(
            exchange["method"], exchange["path"], None if body is None else body.encode(), headers
        )
        response = connection.getresponse()
        answer = response.read().decode()
        ids += (found.group() for found in UUID.finditer(answer))
        return {
            **exchange,
            "status": response.status,
            "answer_content_type": response.getheader("content-type"),
            "answer": UUID.sub("<uuid>", answer),
        }


@pytest.mark.parametrize("scenario", RECORDED)
def test_requests_are_answered_as_recorded(
    recorded_apps: Callable[[str], str], scenario: str
) -> None:
    url = recorded_apps(RECORDED[scenario]["env"])
    ids: list[str] = []
    for recorded in RECORDED[scenario]["exchanges"]:
        ours, name = replay(url, recorded, ids), deviation_of(recorded)
        if name is not None:
            assert ours != recorded, f"no longer a deviation: {name}"
            assert ours["answer_content_type"] == "application/json"
            deviation = DEVIATIONS[name]
            assert deviation.holds(ours["status"], json.loads(ours["answer"]), recorded), ours
        elif not SAME_PYTHON and DEEPLY_NESTED in (recorded["body"] or ""):
            assert ours["status"] in (200, recorded["status"])
        elif SAME_VERSIONS and (SAME_PYTHON or "JSON decode error" not in recorded["answer"]):
            assert {**ours, "answer": comparable(ours["answer"])} == recorded
        else:  # the frameworks' own words change from version to version
            names = ("status", "answer_content_type")
            assert [ours[n] for n in names] == [recorded[n] for n in names]


def test_every_listed_deviation_is_met() -> None:
    exchanges = [e for record in RECORDED.values() for e in record["exchanges"]]
    assert {deviation_of(exchange) for exchange in exchanges} == {None, *DEVIATIONS}


# ------------------------------------------------------------------ episodes


class Single(Counter):
    """One session at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = False
    log: ClassVar[Log] = Log()


@pytest.fixture(autouse=True)
def fresh_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Counter, Single):
        monkeypatch.setattr(cls, "log", Log())


class Player:
    """Plays over HTTP, naming the session by the header or by the cookie; or not at all."""

    def __init__(self, url: str, by: str) -> None:
        self.by = by
        self.http = httpx.Client(base_url=url)
        self.session: str | None = None

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        if self.by != "cookie":
            self.http.cookies.clear()
        headers = {SESSION_HEADER: self.session} if self.by == "header" and self.session else {}
        answer = self.http.request(method, path, json=body, headers=headers)
        self.session = answer.headers.get(SESSION_HEADER, self.session)
        return answer

    def reset(self, **arguments: Any) -> httpx.Response:
        return self.ask("POST", "/reset", arguments)

    def step(self, what: str = "count") -> httpx.Response:
        return self.ask("POST", "/step", {"action": {"what": what}})

    def state(self) -> httpx.Response:
        return self.ask("GET", "/state")

    def close(self) -> httpx.Response:
        return self.ask("DELETE", "/session")


@pytest.fixture
def play() -> Iterator[Callable[[str, str], Player]]:
    with contextlib.ExitStack() as stack:

        def play(url: str, by: str) -> Player:
            player = Player(url, by)
            stack.enter_context(player.http)
            return player

        yield play


Play = Callable[[str, str], Player]
BOTH_WAYS = pytest.mark.parametrize("by", ["header", "cookie"])


@BOTH_WAYS
def test_an_episode_is_played(serve: Serve, play: Play, by: str) -> None:
    player = play(serve(create_app(Counter)), by)
    first = player.reset(seed=3, episode_id="e")
    assert first.json()["observation"]["arguments"] == {"seed": 3, "size": 0}
    assert first.headers[SESSION_HEADER] == first.cookies[SESSION_COOKIE] == player.session
    assert [player.step().json()["reward"] for _ in range(2)] == [1.0, 2.0]
    assert player.state().json() == {"episode_id": "e", "step_count": 2, "board": []}
    assert player.step("raise").status_code == 500, "which the session survives"
    last = player.step("done").json()
    assert last["done"] and last["reward"] == 1.0
    assert player.state().json()["step_count"] == 4
    again = player.reset()
    assert again.headers[SESSION_HEADER] == first.headers[SESSION_HEADER]
    assert player.state().json()["step_count"] == 0
    assert player.close().json() == {"session_id": player.session, "closed": True}
    assert (Counter.log.count("init"), Counter.log.count("close")) == (1, 1)


def test_unnamed_requests_have_an_environment_of_their_own(serve: Serve, play: Play) -> None:
    player = play(serve(create_app(Counter)), "nothing")
    player.reset(episode_id="e")
    for _ in range(2):
        answer = player.step()
        assert answer.json()["observation"]["text"] == "step 1"
        assert SESSION_HEADER not in answer.headers and not answer.cookies
    assert player.state().json() == {"episode_id": None, "step_count": 0, "board": []}
    assert (Counter.log.count("init"), Counter.log.count("close")) == (4, 3)
    assert player.close().status_code == 404, "nothing was named that could be closed"


def test_a_session_that_nobody_came_back_to_makes_room(serve: Serve, play: Play) -> None:
    url = serve(create_app(Single))
    first, second, third = (play(url, "header") for _ in range(3))
    assert first.reset().status_code == 200
    with CounterEnv(base_url=url) as env:
        env.reset()
        assert SESSION_HEADER not in second.reset().headers, "a socket is no guest"
    wait_until(lambda: SESSION_HEADER in second.reset().headers)
    lost = first.step()
    assert (lost.status_code, lost.json()["code"]) == (404, "SESSION_ERROR")
    assert second.step().json()["observation"]["text"] == "step 1"
    with CounterEnv(base_url=url, queue_timeout_s=0) as env, pytest.raises(CapacityError):
        env.reset()
    assert second.step().json()["observation"]["text"] == "step 2", "once used it stays"
    assert second.close().status_code == 200
    assert third.reset().headers[SESSION_HEADER]


def test_a_cookie_alone_keeps_no_slot_from_others(serve: Serve, play: Play) -> None:
    url = serve(create_app(Single))
    player = play(url, "cookie")
    player.reset()
    assert player.step().json()["observation"]["text"] == "step 1"
    assert player.step().json()["observation"]["text"] == "step 2"
    with CounterEnv(base_url=url) as env:
        assert env.reset().observation.text == "ready"
    lost = player.step()
    assert (lost.status_code, lost.json()["code"]) == (404, "SESSION_ERROR")


def test_a_full_server_resets_as_of_old_who_names_no_session(serve: Serve, play: Play) -> None:
    url = serve(create_app(Single))
    with CounterEnv(base_url=url) as env:
        env.reset()
        player = play(url, "nothing")
        answer = player.reset(size=2)
        assert answer.json()["observation"]["arguments"]["size"] == 2
        assert SESSION_HEADER not in answer.headers and not answer.cookies
        assert player.step().json()["observation"]["text"] == "step 1"
        assert (Single.log.count("init"), Single.log.count("close")) == (3, 2)
        guest = play(url, "cookie")
        guest.http.cookies.set(SESSION_COOKIE, "ended")
        refused = guest.reset()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), "it goes on"
        assert refused.json()["code"] == "CAPACITY_REACHED" and refused.json()["max_sessions"] == 1
        assert env.step(Do()).observation.text == "step 1"


def test_a_reset_that_fails_leaves_no_session(
    serve: Serve, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest-xdist cannot pass such a text on

    class Unready(Single):
        def reset(self, *args: Any, **kwargs: Any) -> Any:
            raise OSError("not today \udcff")

    player = play(serve(create_app(Unready, debug=True)), "header")
    answer = player.reset()
    assert (answer.status_code, answer.json()["detail"]) == (500, "not today \\udcff")
    assert SESSION_HEADER not in answer.headers
    assert (Single.log.count("init"), Single.log.count("close")) == (1, 1)


@BOTH_WAYS
def test_an_unknown_session_is_an_error_and_no_fresh_environment(
    serve: Serve, play: Play, by: str
) -> None:
    url = serve(create_app(Counter))
    for request in (Player.step, Player.state, Player.close):
        player = play(url, by)
        player.session = "nope"
        player.http.cookies.set(SESSION_COOKIE, "nope")
        answer = request(player)
        assert (answer.status_code, answer.json()["code"]) == (404, "SESSION_ERROR")
        assert "nope" in answer.json()["detail"]
    assert Counter.log.count("init") == 0
    # A cookie may be left from another day; whoever sends a header means that session.
    assert player.reset().status_code == {"header": 404, "cookie": 200}[by]


def test_an_expired_session_is_an_error(serve: Serve, play: Play) -> None:
    limits = ConcurrencyConfig(max_concurrent_envs=1, session_timeout=0.1)
    player = play(serve(create_app(Single, concurrency_config=limits)), "header")
    player.reset()
    assert player.step().status_code == 200
    wait_until(lambda: Single.log.count("close") == 1)
    assert player.step().status_code == player.state().status_code == 404
    assert player.reset().status_code == 404
    assert Single.log.count("init") == 1


def test_mounted_side_by_side_they_keep_their_cookies_apart(serve: Serve, play: Play) -> None:
    app = FastAPI()
    app.mount("/a", create_app(Counter))
    app.mount("/b", create_app(Single))
    player = play(serve(app), "cookie")
    for path in ("/a", "/b"):
        player.ask("POST", f"{path}/reset", {})
    for path in ("/a", "/b", "/a"):
        assert player.ask("POST", f"{path}/step", {"action": {}}).status_code == 200
    assert player.ask("DELETE", "/a/session").status_code == 200
    assert [cookie.path for cookie in player.http.cookies.jar] == ["/b"]


# ------------------------------------------------------------------ what a server says of itself

TASK_PATHS = {"/list_environments"} | {
    f"/{{env_name}}/{name}" for name in ("splits", "tasks", "num_tasks", "task", "task_range")
}
EPISODE_PATHS = {"/reset", "/step", "/state", "/render", "/session"} | TASK_PATHS
INFO_PATHS = {"/health", "/schema", "/metadata"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["simulation", "production", "PRODUCTION"])
def test_production_offers_no_episodes_over_http(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("OPENENV_MODE", mode)
    url = serve(create_app(Counter))
    document = httpx.get(f"{url}/openapi.json").json()
    offered = INFO_PATHS | (EPISODE_PATHS if mode == "simulation" else set())
    assert set(document["paths"]) == offered
    assert (document["info"]["title"], document["info"]["version"]) == (
        "OpenEnv Environment HTTP API",
        "1.0.0",
    )
    status = httpx.post(f"{url}/reset").status_code
    assert status == (200 if mode == "simulation" else 404)
    for path in (*INFO_PATHS, "/docs", "/redoc"):
        assert httpx.get(url + path).status_code == 200
    with CounterEnv(base_url=url) as env:
        if mode == "simulation":
            assert env.reset().observation.text == "ready"
        else:
            with pytest.raises(NotSupportedByServer, match=r"production mode.*nobody can reset"):
                env.reset()


def test_the_argument_beats_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_MODE", "production")
    assert "/reset" in create_app(Counter, mode="simulation").openapi()["paths"]
    with pytest.raises(ValueError, match="expected 'simulation' or 'production'"):
        create_app(Counter, mode="debug")


def test_a_failing_factory_degrades_health_until_one_succeeds(serve: Serve) -> None:
    broken = [OSError("no display"), OSError("no display")]

    def factory() -> Counter:
        if broken:
            raise broken.pop()
        return Counter()

    url = serve(create_app(factory, Do, Seen))
    assert httpx.get(f"{url}/health").text == '{"status":"healthy"}'
    for path in ("/state", "/metadata"):
        failed = httpx.get(url + path)
        assert (failed.status_code, failed.json()["code"]) == (500, "FACTORY_ERROR")
        health = httpx.get(f"{url}/health")
        assert health.status_code == 200 and health.json()["status"] == "degraded"
        assert "'factory'" in health.json()["message"] and "OSError" in health.json()["message"]
        assert "no display" not in health.text, "the details are the log's"
        assert b"healthy" in health.content, "which launchers wait for"
    assert httpx.get(f"{url}/state").status_code == 200
    assert httpx.get(f"{url}/health").json() == {"status": "healthy"}


def test_the_description_is_asked_for_once(serve: Serve) -> None:
    url = serve(create_app(Counter))
    answers = [httpx.get(f"{url}/metadata").json() for _ in range(2)]
    assert answers[0] == answers[1] and answers[0]["name"] == "Counter"
    assert (Counter.log.count("init"), Counter.log.count("close")) == (1, 1)
    schema = httpx.get(f"{url}/schema").json()
    assert set(schema) == {"action", "observation", "state", "reset_observation", "tools"}
    assert (Counter.log.count("init"), set(schema["state"]["properties"])) == (
        1,
        {"episode_id", "step_count", "board"},
    )


@pytest.mark.slow
def test_routes_of_the_application_itself_are_not_shadowed(serve: Serve) -> None:
    app = FastAPI()

    @app.get("/health")
    def health() -> str:
        return "mine"

    HTTPEnvServer(Counter).register_routes(app)

    def mine() -> str:
        return "mine"

    later = ["/", "/web", "/tasks", "/counter/task", "/counter/splits", "/a/num_tasks"]
    for path in later:
        app.add_api_route(path, mine, methods=["GET", "POST"])
    url = serve(app)
    for path in ("/health", *later):
        assert httpx.get(url + path).json() == "mine"
    assert httpx.post(f"{url}/counter/task").json() == "mine"
    assert httpx.post(f"{url}/reset").status_code == 200


@pytest.mark.anyio
async def test_answers_leave_at_once() -> None:
    """Nagle's algorithm held each answer on a kept connection back for 40 ms."""
    nodelay: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        nodelay.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=bind("127.0.0.1", 0)) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await asyncio.wait_for(nodelay, 5)
        writer.close()
        await writer.wait_closed()


# ------------------------------------------------------------------ bodies that are none

DEEP = b"[" * 900 + b"]" * 900
BODIES = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"nul",
    b"[" * 100_000,
    b'{"action":{"what":"\xed\xa0\x80"}}',
    b'{"action":{"what":"\\ud800"}}',
    b'{"action":{"\\udfff":1}}',
    b'{"action":{"what":NaN}}',
    b'{"action":{"what":-Infinity}}',
    b'{"action":' + DEEP + b"}",
    b'{"action":{},"timeout_s":' + DEEP + b"}",
    b'{"action":{},"timeout_s":NaN}',
    b'{"action":{},"timeout_s":' + b"9" * 5000 + b"}",
    b'{"action":{},"request_id":{"a":[NaN]}}',
    b'{"action":"' + b"x" * 1_000_000,
    '{"action":{"what":[]}}'.encode("utf-16"),
]


def test_no_body_brings_a_traceback_or_a_bare_500(serve: Serve) -> None:
    url = serve(create_app(Counter))
    with tracebacks() as logged, httpx.Client(base_url=url) as client:
        headers = {"content-type": "application/json"}
        for body in BODIES:
            answer = client.post("/step", content=body, headers=headers)
            assert answer.status_code in (400, 422), (body[:80], answer.text[:200])
            assert answer.json()["detail"]
            assert client.post("/reset", content=body, headers=headers).status_code in (
                200,
                400,
                422,
            )
        for content_type in (
            "",
            ";",
            "\xff",
            "application/json; charset=\x01",
            "multipart/form-data",
        ):
            kind = [(b"content-type", content_type.encode("latin-1"))]
            answer = client.post("/step", content=b'{"action":{}}', headers=kind)
            assert answer.status_code in (200, 400, 422), (content_type, answer.text)
        assert client.post("/step", json={"action": {}}).status_code == 200
    assert logged == []
    assert Counter.log.count("init") == Counter.log.count("close") + 1


STEP = b'{"action":{}}'
BROKEN_REQUESTS = [
    post("/step", STEP, length=5),
    post("/step", STEP, length="-1"),
    post("/step", STEP, length="x"),
    post("/step", STEP, "Transfer-Encoding: chunked"),
    post("/step", b"zz\r\n", "Transfer-Encoding: chunked"),
    post("/step", STEP, "X: " + "x" * 100_000),
    post("/step", STEP, f"{SESSION_HEADER}: \xff"),
    post("/step", STEP, f"Cookie: {SESSION_COOKIE}=\xff; ;;=;{SESSION_COOKIE}"),
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"\r\n\r\n\r\n",
]


def test_broken_requests_leave_the_server_alive(serve: Serve) -> None:
    url = serve(create_app(Counter))
    with tracebacks() as logged:
        for request in BROKEN_REQUESTS:
            with connected(url) as connection:
                connection.sendall(request)
                connection.shutdown(1)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(65536):
                        pass
        for part in (post("/step", STEP, length=500), post("/reset", b"{}")):
            with connected(url) as connection:
                connection.sendall(part)
                reset_connection(connection)
        assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
        assert httpx.post(f"{url}/step", json={"action": {}}).status_code == 200
    assert logged == []
