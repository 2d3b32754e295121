"""Keys: who is let in, to where, and how much of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.sockets import WAYS, assert_serves
from starlette.applications import Starlette
from starlette.routing import Mount
from support.environments import Counter, CounterEnv, Do
from support.raw import connected
from support.servers import NotAdopted, serving
from support.ws import CLOSE, TEXT, Raw
from websockets.sync.client import connect

from openenv import CapacityError, RateLimited, VectorEnv, create_app
from openenv.errors import (
    EnvironmentsFailed,
    KeyFileError,
    KeySessionsError,
    RateLimitError,
    SessionNotFoundError,
)
from openenv.execution.manager import Patience
from openenv.execution.principal import Keyring, Principal
from openenv.server import Key, KeyLimits, Role
from openenv.server.auth import may_reach
from openenv.server.keyfile import read_key_file
from openenv.server.workers import managers_of

ORCHESTRATOR, OBSERVER, AGENT = "planted-orchestrator", "planted-observer", "planted-agents-key"
KEYS = (
    Key(ORCHESTRATOR, name="trainer"),
    Key(OBSERVER, Role.OBSERVER, "monitor"),
    Key(AGENT, Role.AGENT, "player", session="s1"),
)
ROUTES = (
    *("/reset", "/step", "/state", "/render", "/session", "/schema", "/metadata"),
    *("/docs", "/openapi.json"),
)


def app_of(environment: Any = Counter, **options: Any) -> Any:
    return create_app(environment, max_concurrent_envs=100, **{"keys": KEYS, **options})


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(app_of()) as url:
        yield url


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client() as client:  # to make one takes longer than a request
        yield client


# ------------------------------------------------------------------ with a key, and without


@pytest.mark.parametrize("path", [*ROUTES, "/nowhere", "/mcp", "/metrics", "//health", "/health/"])
def test_nothing_is_reached_without_a_key(url: str, http: httpx.Client, path: str) -> None:
    wrong: tuple[dict[str, str], ...] = (
        {},
        bearer("wrong"),
        {"Authorization": "Bearer"},
        {"X-API-Key": "wrong"},
    )
    for headers in (*wrong, {"X-API-Key": ""}, {"Cookie": f"api_key={ORCHESTRATOR}"}):
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            answer = http.request(method, url + path, headers=headers)
            assert answer.status_code == 401, (method, headers)
            assert answer.headers["www-authenticate"] == 'Bearer realm="openenv"'
            assert answer.json()["code"] == "NOT_AUTHENTICATED"


@pytest.mark.parametrize(
    "headers",
    [
        bearer(ORCHESTRATOR),
        {"Authorization": f"bearer  {ORCHESTRATOR}"},
        {"X-API-Key": ORCHESTRATOR},
        {"Authorization": "Bearer of-a-gateway", "X-API-Key": ORCHESTRATOR},
        {"Authorization": "Basic bWU6eW91", "X-API-Key": ORCHESTRATOR},
    ],
    ids=str,
)
def test_a_key_may_come_by_either_header(url: str, headers: dict[str, str]) -> None:
    assert httpx.post(url + "/reset", headers=headers).status_code == 200
    assert httpx.get(url + "/openapi.json", headers=headers).status_code == 200


def test_a_server_may_show_its_schema_to_everybody(
    serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PUBLIC_SCHEMA", "1")
    url = serve(app_of())
    assert {"action", "observation", "state"} <= set(httpx.get(url + "/schema").json())
    assert httpx.get(url + "/schema", headers=bearer("wrong")).status_code == 401
    for path in set(ROUTES) - {"/schema"}:
        assert httpx.get(url + path).status_code == 401, path


def test_a_key_in_the_address_or_the_body_is_none(url: str) -> None:
    for address in (f"/reset?api_key={ORCHESTRATOR}", f"/reset?token={ORCHESTRATOR}"):
        assert httpx.post(url + address, json={"api_key": ORCHESTRATOR}).status_code == 401


@pytest.mark.parametrize("way", WAYS)
def test_a_handshake_is_let_in_with_a_key_only(way: str) -> None:
    app = app_of()
    with serving(NotAdopted(app) if way == "asgi" else app, ws=WAYS[way]) as url:
        refused: list[tuple[dict[str, str | None], int]] = [
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": f"Bearer {OBSERVER}"}, 403),
            ({"X_API_Key": AGENT}, 403),
        ]
        for headers, status in refused:
            with connected(url) as connection:
                assert Raw(connection).handshake("/ws", **headers)[0] == status
        with connected(url) as connection:
            client = Raw(connection)
            assert client.handshake("/ws", X_API_Key=ORCHESTRATOR)[0] == 101
            assert_serves(client)


def test_whom_it_turns_away_is_counted(http: httpx.Client) -> None:
    app = app_of(keys=limited(requests_per_s=2))
    with serving(app) as url:
        for headers in ({}, bearer("wrong"), *[bearer(ORCHESTRATOR)] * 6):
            http.get(url + "/schema", headers=headers)
        http.get(url + "/schema", headers={"Origin": "https://evil.example"})
        http.get(url + "/schema", headers={"Host": "evil.example"})
        with connected(url) as connection:
            assert Raw(connection).handshake("/ws")[0] == 401
    (manager,) = managers_of(app)
    counted = {code: count for code, count in manager.counters.errors.items() if count}
    assert counted.pop("RATE_LIMITED") >= 1
    assert counted == {"NOT_AUTHENTICATED": 3, "NOT_PERMITTED": 1, "WRONG_HOST": 1}


@pytest.mark.anyio
async def test_where_no_response_can_be_sent_the_socket_is_closed_with_1008() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/ws", "headers": [], "server": ("env", 80)}
    await app_of()({**scope, "query_string": b"", "subprotocols": []}, receive, send)
    assert [(m["type"], m["code"]) for m in sent] == [("websocket.close", 1008)]
    assert "key" in sent[0]["reason"]


def test_an_application_that_is_mounted_guards_itself() -> None:
    app = Starlette(routes=[Mount("/env", app_of())])
    with serving(app) as url:
        assert httpx.get(f"{url}/env/health").json() == {"status": "healthy"}
        assert httpx.post(f"{url}/env/reset").status_code == 401
        assert httpx.post(f"{url}/env/reset", headers=bearer(ORCHESTRATOR)).status_code == 200
        assert httpx.get(f"{url}/env/schema", headers=bearer(OBSERVER)).status_code == 403


def test_without_keys_everybody_is_let_in(
    serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", ORCHESTRATOR)
    url = serve(app_of(keys=()))
    assert httpx.post(url + "/reset").status_code == 200


# ------------------------------------------------------------------ what a role may


OTHERS = (
    *("/ws", "/mcp", "/metrics", "/health"),
    *("/web/", "/web/assets/page.js", "/web/about", "/web/watch"),
)


def test_the_table_of_roles() -> None:
    reached = {role: {p for p in (*ROUTES, *OTHERS) if may_reach(role, p)} for role in Role}
    assert reached == {
        Role.ORCHESTRATOR: {*ROUTES, *OTHERS},
        Role.AGENT: {"/mcp", "/health", "/web/", "/web/assets/page.js"},
        Role.OBSERVER: {"/metrics", "/health", *OTHERS[-4:]},
    }


@pytest.mark.parametrize(("key", "own"), [(OBSERVER, "/metrics"), (AGENT, "/mcp")])
def test_a_key_reaches_what_its_role_may_and_nothing_else(
    url: str, http: httpx.Client, key: str, own: str
) -> None:
    for path in (*ROUTES, "/nowhere", "/metrics", "/mcp", f"{own}/", f"{own}/../reset"):
        for method in ("GET", "POST", "DELETE"):
            answer = http.request(method, url + path, headers=bearer(key))
            if path == own:
                assert answer.status_code in (200, 404, 405), (method, path)
            else:
                assert answer.status_code in (403, 404), (method, path)
                assert answer.status_code == 404 or answer.json()["code"] == "NOT_PERMITTED"


class Broken(Counter):
    def __init__(self) -> None:
        raise RuntimeError("the planted reason")


def test_health_says_to_strangers_how_it_is_and_not_why() -> None:
    with serving(app_of(Broken)) as url:
        assert httpx.post(url + "/reset", headers=bearer(ORCHESTRATOR)).status_code == 500
        for headers in ({}, bearer(AGENT)):
            assert httpx.get(url + "/health", headers=headers).json() == {"status": "degraded"}
        for key in (ORCHESTRATOR, OBSERVER):
            assert "message" in httpx.get(url + "/health", headers=bearer(key)).json()
        assert httpx.get(url + "/health", headers=bearer("wrong")).status_code == 401
    with serving(app_of(Broken, keys=())) as url:
        httpx.post(url + "/reset")
        assert "message" in httpx.get(url + "/health").json()


# ------------------------------------------------------------------ whose a session is


@pytest.mark.slow
def test_a_session_is_there_for_the_key_that_opened_it_only() -> None:
    other = Key("planted-other-tenants", name="other")
    with serving(app_of(keys=[*KEYS, other])) as url:
        mine = {"headers": bearer(ORCHESTRATOR)}
        session = httpx.post(url + "/reset", **mine).headers["OpenEnv-Session-Id"]  # type: ignore[arg-type]
        for key, status in ((other.key, 404), (ORCHESTRATOR, 200)):
            headers = {**bearer(key), "OpenEnv-Session-Id": session}
            cookie = {**bearer(key), "Cookie": f"openenv_session_id={session}"}
            assert httpx.get(url + "/state", headers=headers).status_code == status
            assert httpx.get(url + "/state", headers=cookie).status_code == status
            step = httpx.post(url + "/step", headers=headers, json={"action": {}})
            assert step.status_code == status
            assert httpx.delete(url + "/session", headers=headers).status_code == status


def test_a_connection_is_resumed_by_the_key_that_opened_it_only() -> None:
    """Also who has learnt its token needs the key."""
    other = Key("planted-other-tenants", name="other")
    with (
        serving(app_of(keys=[*KEYS, other])) as url,
        CounterEnv(url, api_key=ORCHESTRATOR) as env,
    ):
        env.reset()
        hello = env._session.remote.connection.protocol.hello  # type: ignore[union-attr]
        data = {"connection": hello.connection, "token": hello.resume_token, "received": 1}
        with connect(
            f"ws{url[4:]}/ws",
            subprotocols=["openenv.v1.json"],  # type: ignore[list-item]
            additional_headers=bearer(other.key),
            proxy=None,
        ) as stranger:
            stranger.recv()
            stranger.send(json.dumps({"type": "resume", "data": data}))
            assert json.loads(stranger.recv())["data"]["code"] == "SESSION_ERROR"
        assert env.step(Do()).observation.text == "step 1", "its owner is not disturbed"


def test_another_keys_session_cannot_be_joined_by_a_socket() -> None:
    other = Key("planted-other-tenants", name="other")
    with serving(app_of(keys=[*KEYS, other])) as url:
        answer = httpx.post(url + "/reset", headers=bearer(ORCHESTRATOR))
        path = f"/ws?session_id={answer.headers['OpenEnv-Session-Id']}"
        with connected(url) as connection:
            stranger = Raw(connection)
            assert stranger.handshake(path, X_API_Key=other.key)[0] == 101
            frame = stranger.read()
            assert frame.opcode == TEXT and b"SESSION_ERROR" in frame.payload
            assert stranger.read().opcode == CLOSE
        with connected(url) as connection:
            owner = Raw(connection)
            assert owner.handshake(path, X_API_Key=ORCHESTRATOR)[0] == 101
            assert_serves(owner)


@pytest.mark.anyio
async def test_an_agents_key_ends_with_its_session() -> None:
    (manager,) = managers_of(app_of())
    keys, driver = manager.keys, Principal("driver")
    assert keys is not None
    session, another = [await manager.create(principal=driver) for _ in range(2)]
    key = manager.issue_agent_key(session.id)
    agent = keys.find(key)
    assert agent is not None and (agent.role, agent.session_id) == (Role.AGENT, session.id)
    assert manager.get(session.id, principal=agent) is session
    with pytest.raises(SessionNotFoundError):
        manager.get(another.id, principal=agent)
    await manager.close(session.id)
    assert keys.find(key) is None and keys.find(AGENT) is not None
    with pytest.raises(SessionNotFoundError):
        manager.issue_agent_key(session.id)
    await manager.aclose()


@pytest.mark.anyio
async def test_a_server_without_keys_issues_none() -> None:
    (manager,) = managers_of(app_of(keys=()))
    session = await manager.create()
    with pytest.raises(RuntimeError, match="no keys"):
        manager.issue_agent_key(session.id)
    await manager.aclose()


# ------------------------------------------------------------------ limits


def limited(**limits: float) -> list[Key]:
    return [Key(ORCHESTRATOR, name="trainer", limits=KeyLimits(**limits))]  # type: ignore[arg-type]


def test_too_many_requests_over_http_are_refused_with_429() -> None:
    with (
        serving(app_of(keys=limited(requests_per_s=2))) as url,
        httpx.Client(headers=bearer(ORCHESTRATOR)) as client,
    ):
        answers = [client.get(url + "/health") for _ in range(6)]
        statuses = [answer.status_code for answer in answers]
        assert statuses[:4] == [200] * 4 and statuses[-1] == 429
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 2
        assert answers[-1].json()["code"] == "RATE_LIMITED"


def test_bytes_over_http_count_in_both_directions() -> None:
    with serving(app_of(keys=limited(bytes_per_s=50_000))) as url:
        action = {"action": {"what": "echo", "value": "x" * 120_000}}
        first = httpx.post(url + "/step", headers=bearer(ORCHESTRATOR), json=action)
        second = httpx.get(url + "/health", headers=bearer(ORCHESTRATOR))
        assert (first.status_code, second.status_code) == (200, 429)
        assert int(second.headers["retry-after"]) >= 2  # 240 kB, of which 100 kB were free


@pytest.mark.parametrize("version", ["0", "1"])
def test_a_session_survives_a_refusal(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    with (
        serving(app_of(keys=limited(requests_per_s=20))) as url,
        CounterEnv(url, api_key=ORCHESTRATOR) as env,
    ):
        env.reset()
        done, refused = 0, 0
        while not refused:
            try:
                env.step(Do())
                done += 1
            except RateLimited as error:
                refused += 1
                assert error.code == "RATE_LIMITED" and 0 < error.retry_after_s < 1
        assert 30 < done < 60
        assert _patiently(lambda: env.step(Do())).reward == done + 1, "refused, so not done"
        assert _patiently(env.state).step_count == done + 1


def _patiently(call: Callable[[], Any]) -> Any:
    for _ in range(1000):
        try:
            return call()
        except RateLimited:
            continue
    raise AssertionError("it was never allowed again")


def test_the_bytes_of_frames_count_in_both_directions() -> None:
    with (
        serving(app_of(keys=limited(bytes_per_s=1e6))) as url,
        CounterEnv(url, api_key=ORCHESTRATOR) as env,
    ):
        env.reset()
        env.step(Do(what="echo", value="x" * 2_500_000))
        with pytest.raises(RateLimited, match="1e\\+06 bytes a second") as caught:
            env.step(Do())
        assert caught.value.retry_after_s > 2  # 5 MB, of which 2 MB were free


def test_a_batch_larger_than_the_limit_is_served_and_then_paid_for() -> None:
    with (
        serving(app_of(keys=limited(requests_per_s=10))) as url,
        VectorEnv(url, 32, client=CounterEnv, api_key=ORCHESTRATOR) as envs,
    ):
        envs.reset()
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.step([Do()] * 32)
        assert {type(error) for error in caught.value.errors.values()} == {RateLimited}
        assert len(caught.value.errors) == 32
        # To open a session is to ask for something: otherwise a key could have environments made
        # and thrown away as fast as the server can. A handshake, 32 sessions and 32 resets; 20 of
        # them were free.
        assert isinstance(error := caught.value.errors[0], RateLimited)
        assert error.retry_after_s > 3


@pytest.mark.slow
def test_a_session_that_was_not_opened_in_time_is_opened_later() -> None:
    with (
        serving(app_of(keys=limited(requests_per_s=20))) as url,
        CounterEnv(url, api_key=ORCHESTRATOR) as busy,
        contextlib.ExitStack() as stack,
    ):
        busy.reset()
        error: RateLimited | None = None
        while error is None:  # on a busy machine more may be allowed in the meantime
            refused = stack.enter_context(CounterEnv(url, api_key=ORCHESTRATOR))
            refused.connect()
            with pytest.raises(RateLimited):
                while True:
                    busy.step(Do())
            try:
                refused.reset()
            except RateLimited as raised:
                error = raised
            else:
                time.sleep(0.5)
        time.sleep(error.retry_after_s + 0.3)
        assert refused.reset().observation.text == "ready"


@pytest.mark.parametrize("version", ["0", "1"])
def test_sessions_are_counted_by_key(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving(app_of(keys=limited(max_sessions=2))))
        clients = [CounterEnv(url, api_key=ORCHESTRATOR) for _ in range(3)]
        for client in clients:
            stack.callback(client.close)
        for client in clients[:2]:
            client.reset()
        with pytest.raises(CapacityError, match="trainer") as caught:
            clients[2].reset()
        assert caught.value.data["max_sessions"] == 2
        refused = httpx.post(url + "/reset", headers=bearer(ORCHESTRATOR))
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        clients[0].close()
        clients[2].reset()  # the slot was given back


def test_a_request_without_a_session_counts_as_one() -> None:
    with serving(app_of(keys=limited(max_sessions=1))) as url:
        step: Any = {"url": url + "/step", "headers": bearer(ORCHESTRATOR), "json": {"action": {}}}
        assert [httpx.post(**step).status_code for _ in range(2)] == [200, 200]
        with CounterEnv(url, api_key=ORCHESTRATOR) as env:
            env.reset()
            refused = httpx.post(**step)
            assert (refused.status_code, refused.json()["code"]) == (429, "CAPACITY_REACHED")
            assert httpx.get(url + "/state", headers=bearer(ORCHESTRATOR)).status_code == 429
        assert httpx.post(**step).status_code == 200


@pytest.mark.anyio
async def test_what_waits_for_a_slot_counts_as_a_session() -> None:
    (manager,) = managers_of(create_app(Counter, max_concurrent_envs=1, keys=KEYS))
    holder, guest = Principal("holder"), Principal("guest", limits=KeyLimits(max_sessions=2))
    session = await manager.create(principal=holder)
    patience = Patience(client=guest, timeout_s=5.0)
    waiting = [asyncio.ensure_future(manager.create(principal=guest, patience=patience))]
    waiting.append(asyncio.ensure_future(manager.create(principal=guest, patience=patience)))
    await asyncio.sleep(0)
    assert (manager.queue_length, guest.sessions) == (2, 2)
    with pytest.raises(KeySessionsError):
        await manager.create(principal=guest, patience=patience)
    waiting[1].cancel()
    await manager.close(session.id)
    assert (await waiting[0]).id and guest.sessions == 1 and holder.sessions == 0
    await manager.aclose()
    assert guest.sessions == 0


def test_a_bucket_fills_up_again_and_can_be_overdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("openenv.execution.principal.time.monotonic", lambda: now[0])
    principal = Principal("p", limits=KeyLimits(requests_per_s=10, bytes_per_s=100))
    principal.allow(60, 0)
    with pytest.raises(RateLimitError) as caught:
        principal.allow(1, 0)
    assert caught.value.retry_after_s == pytest.approx(4.0)
    now[0] += 4.1
    principal.allow(1, 500)
    with pytest.raises(RateLimitError) as caught:
        principal.allow(0, 0)
    assert caught.value.retry_after_s == pytest.approx(3.0)
    now[0] += 1000
    principal.charge(199)
    principal.allow(1, 0)


def test_limits_that_make_no_sense_are_refused() -> None:
    for limits in ({"max_sessions": 0}, {"requests_per_s": -1.0}, {"bytes_per_s": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(limits))):
            KeyLimits(**limits)
    with pytest.raises(KeySessionsError):
        holder = Principal("p", limits=KeyLimits(max_sessions=1))
        holder.sessions = 1
        holder.check_sessions()


# ------------------------------------------------------------------ files of keys

TOML = f"""
[[keys]]
key = "{ORCHESTRATOR}"
name = "trainer"
max_sessions = 3
requests_per_s = 10
bytes_per_s = 1e6

[[keys]]
key = "{AGENT}"
role = "agent"
session = "s1"
"""
LINES = (
    f"""
{{"key": "{ORCHESTRATOR}", "name": "trainer", "max_sessions": 3, "requests_per_s": 10.0,
 "bytes_per_s": 1e6}}
""".replace("\n ", " ")
    + f'{{"key": "{AGENT}", "role": "agent", "session": "s1"}}\n'
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(content: str) -> Path:
        path = tmp_path / "keys"
        path.write_text(content)
        path.chmod(0o600)
        return path

    return write


@pytest.mark.parametrize("content", [TOML, LINES], ids=["toml", "json lines"])
def test_a_file_of_keys_is_read(content: str, written: Callable[[str], Path]) -> None:
    assert read_key_file(written(content)) == [
        Key(ORCHESTRATOR, Role.ORCHESTRATOR, "trainer", limits=KeyLimits(3, 10, 1e6)),
        Key(AGENT, Role.AGENT, session="s1"),
    ]


@pytest.mark.parametrize("end", ["", "=", "==\n", "\n"])
def test_a_file_may_hold_a_key_and_nothing_else(end: str, written: Callable[[str], Path]) -> None:
    assert read_key_file(written(ORCHESTRATOR + end)) == [Key((ORCHESTRATOR + end).strip())]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602, 0o622])
def test_a_file_that_others_may_read_or_change_is_refused(
    mode: int, written: Callable[[str], Path]
) -> None:
    path = written(TOML)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"chmod 600 {path}"):
        read_key_file(path)
    path.chmod(0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and read_key_file(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "keys = []",
        f'key = "{ORCHESTRATOR}"',
        f'key="{ORCHESTRATOR}"',
        f'keys=[{{key="{ORCHESTRATOR}",name=3}}]',
        f"{ORCHESTRATOR} with a space",
        f"{ORCHESTRATOR}\n{ORCHESTRATOR}",
        "planted",
        f'[[keys]]\nkey = "{ORCHESTRATOR}',
        f'[[keys]]\nkey = "{ORCHESTRATOR}"\nrole = "{ORCHESTRATOR}"',
        f'[[keys]]\nkey = "{ORCHESTRATOR}"\n{ORCHESTRATOR} = 1',
        f'[[keys]]\nkey = ["{ORCHESTRATOR}"]',
        f'[[keys]]\nkey = "{ORCHESTRATOR} with a space"',
        f'[[keys]]\nkey = "{ORCHESTRATOR}"\nrole = "agent"',
        f'[[keys]]\nkey = "{ORCHESTRATOR}"\nmax_sessions = 0',
        '[[keys]]\nkey = "planted"',
        f'[[keys]]\nkey = "{ORCHESTRATOR}"\n' * 2,
        f'{{"key": "{ORCHESTRATOR}"',
        f'{{"key": "{ORCHESTRATOR}"}} "{ORCHESTRATOR}"',
        "\0\0",
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_what_is_in_it(
    content: str, written: Callable[[str], Path]
) -> None:
    path = written(content)
    with pytest.raises(KeyFileError) as caught:
        read_key_file(path)
    error = caught.value
    assert str(path) in str(error)
    assert "planted" not in str(error).replace(f".{ORCHESTRATOR}:", "")
    assert error.__context__ is None or error.__suppress_context__


def test_which_of_the_keys_of_a_file_is_wrong_is_said(written: Callable[[str], Path]) -> None:
    with pytest.raises(KeyFileError, match=r": 1: .*max_sessions is 0"):
        read_key_file(written(f"{TOML}max_sessions = 0\n"))


def test_a_key_of_the_variable_that_cannot_be_is_said_to_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENENV_API_KEY_FILE", raising=False)
    monkeypatch.setenv("OPENENV_API_KEY", "planted with spaces")
    with pytest.raises(KeyFileError, match="OPENENV_API_KEY") as caught:
        app_of(keys=None)
    assert "planted" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="no-such-file"):
        read_key_file(tmp_path / "no-such-file")


def test_keys_come_from_the_variable_and_the_file(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_API_KEY", "planted-of-the-variable")
    monkeypatch.setenv("OPENENV_API_KEY_FILE", str(written(TOML)))
    (manager,) = managers_of(app_of(keys=None))
    assert manager.keys is not None
    found = [manager.keys.find(key) for key in ("planted-of-the-variable", ORCHESTRATOR, AGENT)]
    assert [one and one.name for one in found] == ["OPENENV_API_KEY", "trainer", "agent"]
    assert manager.keys.find(OBSERVER) is None


def test_a_text_stands_for_the_key_of_an_orchestrator(http: httpx.Client) -> None:
    with serving(app_of(keys=["planted-text"])) as url:
        assert http.post(url + "/reset").status_code == 401
        assert http.post(url + "/reset", headers=bearer("planted-text")).status_code == 200


@pytest.mark.parametrize("keys", ["planted-text", b"planted-text", [b"planted-text"], [3]])
def test_what_is_no_list_of_keys_is_refused_without_showing_it(keys: Any) -> None:
    refusal = "^keys (is a single text|holds a value of type)"
    with pytest.raises(TypeError, match=refusal) as caught:
        app_of(keys=keys)
    assert "planted" not in str(caught.value)


def test_keys_that_cannot_be_are_refused() -> None:
    for bad in ("", "with space", "newline\n", "schlüssel"):
        with pytest.raises(ValueError, match="header"):
            Key(bad)
    with pytest.raises(ValueError, match="session"):
        Key("of-an-agent", Role.AGENT)
    with pytest.raises(ValueError, match="session"):
        Key("of-an-orchestrator", session="s1")
    with pytest.raises(ValueError, match="twice"):
        Keyring([Key("the-same"), Key("the-same", Role.OBSERVER)])


# ------------------------------------------------------------------ what is not shown


def test_no_key_is_shown_by_what_holds_it() -> None:
    keyring = Keyring(KEYS)
    agents = keyring.issue("s1")
    shown = repr((KEYS, keyring, keyring.find(ORCHESTRATOR), keyring.find(agents), app_of()))
    assert "trainer" in shown and "planted" not in shown and agents not in shown
    assert "planted" not in repr(vars(keyring)) and agents not in repr(vars(keyring))


@pytest.mark.parametrize("way", ["ours", "adopted"])  # uvicorn's own logs what it likes
@pytest.mark.parametrize("compress", ["", "1"])
def test_no_key_is_logged(
    way: str, compress: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENENV_COMPRESS", compress)
    options = {"ws": WAYS[way], "log_level": "trace", "ws_per_message_deflate": bool(compress)}
    with serving(app_of(), **options) as url, caplog.at_level(logging.DEBUG):
        for logger in ("uvicorn", "uvicorn.error", "uvicorn.access"):
            monkeypatch.setattr(logging.getLogger(logger), "propagate", True)
        extensions = "permessage-deflate" if compress else None
        for key in (ORCHESTRATOR, "planted-wrong", OBSERVER):
            with connected(url) as connection:
                Raw(connection).handshake(
                    Authorization=f"Bearer {key}", Sec_WebSocket_Extensions=extensions
                )
            answer = httpx.get(url + "/schema", headers=bearer(key))
            assert "planted" not in answer.text and "planted" not in str(answer.headers)
    assert caplog.records and "planted" not in caplog.text
