"""Many servers behind one address: real servers, real gateways in processes of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.certificates import Certificates, of_loopback
from support.commands import Running, openenv_running, run_openenv
from support.dice import Dice, DiceEnv, Roll
from support.memory import MIB, kept_below
from support.rawserver import Peer, raw_server
from support.relay import Relay
from support.waiting import wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from openenv import AuthenticationError, ConnectError, SessionLost, VectorEnv, create_app
from openenv._internal.net.wire import HEAD_BYTES
from openenv.client.generic import GenericEnvClient
from openenv.execution.principal import Key, KeyLimits
from openenv.gateway.backends import Backend, Backends, NoServer, RouteGone, route_of
from openenv.gateway.gateway import Gateway as GatewayOfServers
from openenv.providers import ProcessProvider
from openenv.server.auth import without_keys

__all__ = ["of_loopback"]

Serve = Callable[..., str]
Front = Callable[..., str]
DICE = str(Path(__file__).parents[1] / "support" / "dice.py") + ":Dice"
KEY, SERVERS_KEY, OBSERVER = "the-gateways-own-key", "the-servers-own-key", "an-observers-own-key"
GUEST, TENANT = "a-guests-own-key-0123", "another-tenants-own-key"


class Gateway:
    """A gateway that runs."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.url: str = running.first_line()["url"]

    def servers(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = ask(f"{self.url}/gateway/servers")[1]
        return listed


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Start gateways, which end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> Gateway:
            number = len(list(tmp_path.glob("gateway*.log")))
            log = tmp_path / f"gateway{number}.log"
            command = ("gateway", "--port", "0", "--json", *arguments)
            running = stack.enter_context(openenv_running(*command, cwd=tmp_path, log=log))
            return Gateway(running)

        yield start


def ask(
    url: str, body: Any = None, method: str | None = None, **headers: str
) -> tuple[int, Any, Any]:
    """Ask by HTTP; gives status, JSON (or text), and headers."""
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **named})
    request.method = method or ("GET" if data is None else "POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            text, status, told = response.read(), response.status, response.headers
    except urllib.error.HTTPError as error:
        text, status, told = error.read(), error.code, error.headers
    try:
        return status, json.loads(text), told
    except ValueError:
        return status, text.decode(), told


@pytest.fixture
def dice(serve: Serve) -> list[str]:
    """Three servers of dice."""
    return [serve(create_app(Dice, max_concurrent_envs=64)) for _ in range(3)]


# ------------------------------------------------------------------ where sessions go


@pytest.mark.slow
def test_new_sessions_go_to_the_server_with_the_least_to_do(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    gateway = front(*dice)
    envs = [DiceEnv(base_url=gateway.url) for _ in range(9)]
    try:
        for env in envs:
            env.reset(seed=1)
        assert [one["connections"] for one in gateway.servers()] == [3, 3, 3]
        wait_until(lambda: [one["taken"] for one in gateway.servers()] == [3, 3, 3])
        for env in envs[:2]:
            env.close()
    finally:
        for env in envs:
            env.close()
    wait_until(lambda: [one["connections"] for one in gateway.servers()] == [0, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["0", "1"])
def test_a_gateway_changes_nothing_that_a_client_sees(
    dice: list[str],
    front: Callable[..., Gateway],
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    gateway = front(*dice)
    seen = []
    for url in (dice[0], gateway.url, f"{gateway.url}/envs/default"):
        with DiceEnv(base_url=url).sync() as env:
            first = env.reset(seed=3).observation.number
            rolls = [env.step(Roll(sides=100)).observation.number for _ in range(20)]
            large = env.step(Roll(what="tell", extra="x" * 3_000_000)).observation.extra
            seen.append((first, rolls, len(large), env.state().step_count))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.slow
def test_the_sessions_of_a_vector_are_spread(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    gateway = front(*dice, "--sessions-per-connection", "8")
    with VectorEnv(gateway.url, num_envs=24, client=DiceEnv) as envs:
        envs.reset(seed=0)
        observations, *_ = envs.step([Roll(sides=1000)] * 24)
        assert [one["connections"] for one in gateway.servers()] == [1, 1, 1]
        wait_until(lambda: [one["taken"] for one in gateway.servers()] == [8, 8, 8])
    with VectorEnv(dice[0], num_envs=24, client=DiceEnv) as direct:
        direct.reset(seed=0)
        expected, *_ = direct.step([Roll(sides=1000)] * 24)
    assert list(observations["number"]) == list(expected["number"])


@pytest.mark.slow
def test_several_environments_have_names(serve: Serve, front: Callable[..., Gateway]) -> None:
    one, other = (serve(create_app(Dice)) for _ in range(2))
    gateway = front(f"dice={one}", f"more={other}")
    for name in ("dice", "more"):
        with DiceEnv(base_url=f"{gateway.url}/envs/{name}").sync() as env:
            env.reset(seed=1)
            taken = {s["environment"]: s["connections"] for s in gateway.servers()}
            assert taken == {"dice": int(name == "dice"), "more": int(name == "more")}
    with pytest.raises(ConnectError, match="take one of /envs/dice, /envs/more"):
        DiceEnv(base_url=gateway.url).reset()
    with pytest.raises(ConnectError, match=r"no environment 'dise' here; there are dice, more"):
        DiceEnv(base_url=f"{gateway.url}/envs/dise").reset()
    assert ask(f"{gateway.url}/envs/dice/metadata")[0] == 200


# ------------------------------------------------------------------ two of them


@pytest.mark.slow
def test_two_gateways_agree_on_where_a_session_is(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    one, other = front(*dice), front(*dice)
    _, _, told = ask(f"{one.url}/reset", {"seed": 5})
    session = told["OpenEnv-Session-Id"]
    assert re.fullmatch(r"[a-z2-7]{8}\.[0-9a-f-]{36}", session)
    cookie = told["Set-Cookie"].partition(";")[0]
    assert cookie == f"openenv_session_id={session}"
    for count, gateway in enumerate((one, other, one), 1):
        status, _, _ = ask(f"{gateway.url}/step", {"action": {}}, OpenEnv_Session_Id=session)
        assert status == 200
        assert ask(f"{gateway.url}/state", Cookie=cookie)[1]["step_count"] == count
    assert ask(f"{other.url}/session", None, "DELETE", OpenEnv_Session_Id=session)[0] == 200
    assert ask(f"{one.url}/state", OpenEnv_Session_Id=session)[0] == 404


@pytest.mark.slow
def test_a_session_goes_on_through_the_other_gateway_when_one_is_killed(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    one, other = front(*dice), front(*dice)
    balancer = Relay(one.url)
    try:
        envs = [DiceEnv(base_url=balancer.url) for _ in range(6)]
        totals = [0] * 6
        for number, env in enumerate(envs):
            env.reset(seed=number)
        for round_ in range(40):
            if round_ == 20:
                balancer.lead_to(other.url)
                os.kill(one.running.process.pid, signal.SIGKILL)
                balancer.cut()
            for number, env in enumerate(envs):
                totals[number] += env.step(Roll(sides=1000)).observation.number
        assert [env.sync().state().total for env in envs] == totals
        assert [env.state().step_count for env in envs] == [40] * 6
        for env in envs:
            env.close()
    finally:
        balancer.close()


@pytest.mark.slow
def test_one_that_is_stopped_lets_sessions_go_on_through_the_other(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    one, other = front(*dice), front(*dice)
    balancer = Relay(one.url)
    try:
        with DiceEnv(base_url=balancer.url).sync() as env:
            env.reset(seed=1)
            env.step(Roll())
            balancer.lead_to(other.url)
            code, _ = one.running.interrupt()
            assert code == 0, one.running.words()
            assert env.step(Roll()).observation is not None
            assert env.state().step_count == 2
    finally:
        balancer.close()


# ------------------------------------------------------------------ faults


@pytest.mark.slow
def test_sessions_of_a_server_that_dies_are_lost_and_new_ones_go_elsewhere(
    front: Callable[..., Gateway],
) -> None:
    provider = ProcessProvider(DICE, api_key=None)
    try:
        servers = [provider.launch() for _ in range(2)]
        for server in servers:
            server.wait_for_ready()
        gateway = front(*(server.url for server in servers))
        envs = [DiceEnv(base_url=gateway.url) for _ in range(4)]
        for env in envs:
            env.reset(seed=1)
        os.kill(servers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        outcomes = []
        for env in envs:
            try:
                env.step(Roll())
            except SessionLost as error:
                outcomes.append(str(error))
                env.reset(seed=1)  # on the other
                env.step(Roll())
        assert len(outcomes) == 2, outcomes
        assert all(
            "the server that had this session is gone" in one or "nothing listens" in one
            for one in outcomes
        ), outcomes
        assert [one["is_up"] for one in gateway.servers()] == [False, True]
        for env in envs:
            env.close()
    finally:
        provider.close()


@pytest.mark.slow
def test_where_no_server_answers_it_says_so(front: Callable[..., Gateway]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gateway = front(f"http://127.0.0.1:{port}")
    wait_until(lambda: not gateway.servers()[0]["is_up"])
    with pytest.raises(ConnectError, match="no server takes sessions: of 1, 1 do not answer"):
        DiceEnv(base_url=gateway.url).reset()
    status, said, _ = ask(f"{gateway.url}/health")
    assert (status, said) == (503, {"detail": "none of 1 servers answers"})


@pytest.mark.slow
def test_a_server_that_comes_back_gets_sessions_again(
    serve: Serve, front: Callable[..., Gateway]
) -> None:
    relay = Relay(serve(create_app(Dice)))
    try:
        gateway = front(relay.url)
        relay.refuse()
        relay.cut()
        wait_until(lambda: not gateway.servers()[0]["is_up"], 15)
        relay.accept_again()
        wait_until(lambda: gateway.servers()[0]["is_up"], 15)
        with DiceEnv(base_url=gateway.url).sync() as env:
            assert env.reset(seed=1).done is False
    finally:
        relay.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000, 431),
        (
            b"GET /ws HTTP/1.1\r\nHost: [::1]\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            400,
        ),
        (
            b"GET /ws HTTP/1.1\r\nHost: ::1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            400,
        ),
    ],
)
def test_what_breaks_http_is_refused_and_harms_nobody(
    dice: list[str], front: Callable[..., Gateway], sent: bytes, status: int
) -> None:
    gateway = front(dice[0])
    host, port = gateway.url.removeprefix("http://").split(":")
    with DiceEnv(base_url=gateway.url).sync() as env:
        env.reset(seed=1)
        with socket.create_connection((host, int(port)), 5) as rude:
            rude.sendall(sent)
            answer = rude.recv(65536)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert env.step(Roll()).observation.number >= 0
    assert "Traceback" not in gateway.running.words()


@pytest.mark.slow
def test_bodies_of_any_size_and_many_at_once(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    gateway = front(*dice)
    text = "y" * 5_000_000
    outcomes: list[int] = []

    def play() -> None:
        _, _, told = ask(f"{gateway.url}/reset", {"seed": 5})
        session = told["OpenEnv-Session-Id"]
        action = {"action": {"what": "tell", "extra": text}}
        _, said, _ = ask(f"{gateway.url}/step", action, OpenEnv_Session_Id=session)
        outcomes.append(len(said["observation"]["extra"]))
        ask(f"{gateway.url}/session", None, "DELETE", OpenEnv_Session_Id=session)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert outcomes == [5_000_000] * 8


# ------------------------------------------------------------------ who may


@pytest.fixture
def guarded(serve: Serve, front: Callable[..., Gateway], tmp_path: Path) -> Gateway:
    """A gateway with keys of its own, in front of servers with another."""
    files = {}
    for name, entries in {
        "own": [{"key": KEY, "role": "orchestrator"}, {"key": OBSERVER, "role": "observer"}],
        "servers": [{"key": SERVERS_KEY, "role": "orchestrator"}],
    }.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text("\n".join(map(json.dumps, entries)))
        files[name].chmod(0o600)
    urls = [serve(create_app(Dice, keys=[Key(SERVERS_KEY)])) for _ in range(2)]
    options = ("--api-key-file", str(files["own"]), "--server-key-file", str(files["servers"]))
    return front(*urls, *options)


@pytest.mark.slow
def test_who_has_no_key_of_the_gateway_is_not_let_in(guarded: Gateway) -> None:
    for key in (None, SERVERS_KEY, "wrong"):
        with pytest.raises(AuthenticationError):
            DiceEnv(base_url=guarded.url, api_key=key).reset()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        assert ask(f"{guarded.url}/state", **headers)[0] == 401
        assert ask(f"{guarded.url}/gateway/servers", **headers)[0] == 401
    with DiceEnv(base_url=guarded.url, api_key=KEY).sync() as env:
        assert env.reset(seed=1).done is False
    assert ask(f"{guarded.url}/health")[0] == 200
    observer = {"Authorization": f"Bearer {OBSERVER}"}
    assert ask(f"{guarded.url}/gateway/metrics", **observer)[0] == 200
    assert ask(f"{guarded.url}/reset", {}, **observer)[0] == 403
    assert ask(f"{guarded.url}/gateway/drain?server=x", {}, **observer)[0] == 403
    words = guarded.running.words()
    assert not any(key in words for key in (KEY, SERVERS_KEY, OBSERVER))


@pytest.fixture(params=["with keys", "without keys"])
def shared(
    request: pytest.FixtureRequest, serve: Serve, front: Callable[..., Gateway], tmp_path: Path
) -> Gateway:
    """A gateway with the keys of several, in front of servers that know none of them."""
    files = {}
    described: dict[str, list[dict[str, Any]]] = {
        "own": [
            {"key": KEY, "name": "trainer"},
            {"key": OBSERVER, "name": "monitor", "role": "observer"},
            {"key": GUEST, "name": "guest", "max_sessions": 1, "requests_per_s": 5},
            {"key": TENANT, "name": "tenant"},
        ],
        "servers": [{"key": SERVERS_KEY}],
    }
    for name, entries in described.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text("\n".join(map(json.dumps, entries)))
        files[name].chmod(0o600)
    keys = [Key(SERVERS_KEY)] if request.param == "with keys" else []
    urls = [serve(create_app(Dice, keys=keys, web=True)) for _ in range(3)]
    options = ["--api-key-file", str(files["own"])]
    if keys:
        options += ["--server-key-file", str(files["servers"])]
    return front(*urls, *options)


@pytest.mark.slow
def test_keys_of_a_gateway_are_kept_apart_by_its_servers(shared: Gateway) -> None:
    """A server would take all of them for one, by its own key."""
    url = shared.url
    _, _, told = ask(f"{url}/reset", {}, X_API_Key=KEY)
    session = told["OpenEnv-Session-Id"]
    for key in (TENANT, GUEST):
        who = {"X_API_Key": key, "OpenEnv_Session_Id": session}
        assert ask(f"{url}/state", **who)[0] == 404
        assert ask(f"{url}/step", {"action": {}}, **who)[0] == 404
        assert ask(f"{url}/session", None, "DELETE", **who)[0] == 404
        # Nor is whoever says that they are somebody else.
        claimed = {**who, "OpenEnv_Tenant": json.dumps({"name": "trainer"})}
        assert ask(f"{url}/state", **claimed)[0] == 404
    assert ask(f"{url}/state", X_API_Key=KEY, OpenEnv_Session_Id=session)[0] == 200
    with connect(f"ws{url[4:]}/web/watch", additional_headers={"X-API-Key": TENANT}) as watching:
        assert json.loads(watching.recv())["data"]["sessions"] == []


@pytest.mark.slow
def test_the_limits_of_a_gateways_key_hold_over_all_its_servers(shared: Gateway) -> None:
    url = shared.url
    opened = [ask(f"{url}/reset", {}, X_API_Key=GUEST)[0] for _ in range(6)]
    assert opened.count(200) == 1 and set(opened) == {200, 429}
    asked = [ask(f"{url}/metadata", X_API_Key=GUEST)[0] for _ in range(60)]
    assert 429 in asked
    assert ask(f"{url}/metadata", X_API_Key=TENANT)[0] == 200, "others have limits of their own"


def test_a_limited_key_is_served_by_as_few_servers_as_hold_its_sessions() -> None:
    servers = Backends(Backend("e", f"http://host{n}:1") for n in range(5))
    for one in servers:
        one.slots = 16
    none = servers.shares("e", "free", KeyLimits())
    assert none is None
    (only,) = (servers.shares("e", "slow", KeyLimits(requests_per_s=10)) or {}).items()
    assert only[1] == KeyLimits(requests_per_s=10)
    some = servers.shares("e", "guest", KeyLimits(max_sessions=40, requests_per_s=100))
    assert some is not None and some == servers.shares(
        "e", "guest", KeyLimits(max_sessions=40, requests_per_s=100)
    )
    assert sorted(one.max_sessions or 0 for one in some.values()) == [8, 16, 16]
    assert sum(one.requests_per_s or 0 for one in some.values()) == pytest.approx(100)
    many = servers.shares("e", "crowd", KeyLimits(max_sessions=1000))
    assert many is not None and sum(one.max_sessions or 0 for one in many.values()) == 1000
    chosen = {servers.least_loaded("e", some).route for _ in range(5)}
    assert chosen <= some.keys()


@pytest.mark.slow
def test_a_page_of_a_server_is_shown_by_who_has_the_gateways_key(guarded: Gateway) -> None:
    """A browser sends the key of a WebSocket as a subprotocol; the server is not sent it."""
    # Nobody is asked for a key there; these servers have no page.
    assert ask(f"{guarded.url}/web/")[0] == 404
    assert ask(f"{guarded.url}/web/about")[0] == 401
    assert ask(f"{guarded.url}/web/about", Authorization=f"Bearer {KEY}")[0] == 404

    def offered(key: str) -> list[Any]:
        text = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
        return ["openenv.v1.json", f"openenv.key.{text}"]

    address = f"ws{guarded.url[4:]}/ws"
    with connect(address, subprotocols=offered(KEY)) as socket:
        assert socket.subprotocol == "openenv.v1.json"
        assert json.loads(socket.recv(10))["type"] == "hello"
    for key in ("wrong", SERVERS_KEY):
        with pytest.raises(InvalidStatus, match="401"):
            connect(address, subprotocols=offered(key))
    assert without_keys(", ".join(offered(KEY))) == "openenv.v1.json"


@pytest.mark.slow
def test_an_agent_reaches_the_session_of_its_trainer(guarded: Gateway) -> None:
    async def act(url: str, headers: dict[str, str]) -> Any:
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as agent,
        ):
            (tool,) = (await agent.list_tools()).tools
            return await agent.call_tool(tool.name, {"sides": 6})

    envs = [DiceEnv(base_url=guarded.url, api_key=KEY) for _ in range(4)]
    try:
        for env in envs:
            env.reset(seed=1)
        for env in envs:
            access = env.sync().agent_access()
            assert access.url.startswith(guarded.url) and KEY not in str(access.headers)
            answer = asyncio.run(act(access.url, access.headers))
            assert not answer.is_error
        assert [env.state().step_count for env in envs] == [1] * 4
    finally:
        for env in envs:
            env.close()


@pytest.mark.slow
def test_keyless_servers_are_not_reached_by_a_key_that_nobody_knows(
    dice: list[str], front: Callable[..., Gateway], tmp_path: Path
) -> None:
    """Keys of agents are passed on to servers that ask for them, and to no others."""
    keys = tmp_path / "own.json"
    keys.write_text(json.dumps({"key": KEY, "role": "orchestrator"}))
    keys.chmod(0o600)
    gateway = front(dice[0], "--api-key-file", str(keys))
    with DiceEnv(base_url=gateway.url, api_key=KEY).sync() as env:
        env.reset(seed=1)
        access = env.agent_access()
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for made_up in ("made-up", "x" * 40):
            headers = {"Authorization": f"Bearer {made_up}"}
            assert ask(access.url, call, **headers)[0] == 401
        assert ask(access.url, call, Authorization=f"Bearer {KEY}")[0] == 200


@pytest.mark.slow
def test_a_handshake_that_a_server_refuses_leaves_no_connection(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    gateway = front(dice[0])
    port = int(dice[0].rpartition(":")[2])

    def connections() -> int:
        """Of the gateway to the server, by the system's own table."""
        own = set()
        for one in Path(f"/proc/{gateway.running.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                own.add(os.readlink(one))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        to_server = {f"socket:[{row[9]}]" for row in rows if int(row[2].split(":")[1], 16) == port}
        return len(own & to_server)

    for _ in range(20):
        with pytest.raises(ConnectError, match=r"404|403"):
            DiceEnv(base_url=f"{gateway.url}/nowhere").reset()
    assert connections() <= 2, "what it looks at the server by"


@pytest.mark.slow
def test_web_pages_of_others_are_turned_away(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    """Servers see the gateway's name, so that it has to look at the page's."""
    gateway = front(dice[0])
    port = gateway.url.rpartition(":")[2]
    own = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    assert ask(f"{gateway.url}/reset", {}, **own)[0] == 200
    for headers, status, words in (
        ({"Origin": "http://evil.example"}, 403, "may not use this server"),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421, "evil.example"),
        ({"Host": "evil.example"}, 421, "evil.example"),
    ):
        refused, said, _ = ask(f"{gateway.url}/reset", {}, **headers)
        assert refused == status and words in said["detail"]
        assert ask(f"{gateway.url}/gateway/servers", **headers)[0] == status


# ------------------------------------------------------------------ watching and draining


@pytest.mark.slow
def test_a_server_that_is_drained_keeps_its_sessions_and_gets_no_new_ones(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    gateway = front(*dice[:2])
    with DiceEnv(base_url=gateway.url).sync() as env:
        env.reset(seed=1)
        (busy,) = [one for one in gateway.servers() if one["connections"]]
        status, said, _ = ask(f"{gateway.url}/gateway/drain?server={busy['url']}", {})
        assert (status, said) == (200, {"url": busy["url"], "is_draining": True})
        others = [DiceEnv(base_url=gateway.url) for _ in range(3)]
        for other in others:
            other.reset(seed=2)
        env.step(Roll())
        counts = {one["url"]: one["connections"] for one in gateway.servers()}
        assert counts[busy["url"]] == 1 and sum(counts.values()) == 4
        for other in others:
            other.close()
    assert ask(f"{gateway.url}/gateway/undrain?server={busy['route']}", {})[0] == 200
    status, said, _ = ask(f"{gateway.url}/gateway/drain?server=nobody", {})
    assert status == 404 and "'nobody'" in said["detail"]


@pytest.mark.slow
def test_metrics_count_what_passes(dice: list[str], front: Callable[..., Gateway]) -> None:
    gateway = front(dice[0])
    with DiceEnv(base_url=gateway.url).sync() as env:
        env.reset(seed=1)
        ask(f"{gateway.url}/metadata")
        ask(f"{gateway.url}/envs/nope/state")
        _, text, _ = ask(f"{gateway.url}/gateway/metrics")
    labels = f'{{environment="default",server="{dice[0]}"}}'
    for line in (
        f"openenv_gateway_server_up{labels} 1.0",
        f"openenv_gateway_connections{labels} 1.0",
        f"openenv_gateway_connections_made_total{labels} 1.0",
        'openenv_gateway_requests_total{status="200"} 1.0',
        'openenv_gateway_refused_total{status="404"} 1.0',
    ):
        assert line in text


@pytest.mark.slow
def test_it_speaks_tls(
    dice: list[str], front: Callable[..., Gateway], of_loopback: Certificates
) -> None:
    own = of_loopback.of_server
    gateway = front(
        dice[0], "--ssl-certfile", own["ssl_certfile"], "--ssl-keyfile", own["ssl_keyfile"]
    )
    assert gateway.url.startswith("https://")
    with DiceEnv(base_url=gateway.url, ca_file=of_loopback.authority).sync() as env:
        assert env.reset(seed=1).done is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ftp://a"], "'ftp://a' is no address of a server"),
        (["http://a:1", "http://A:1/"], "http://A:1 is there twice"),
        (["dns://a"], "'dns://a' is no name of servers"),
    ],
)
def test_what_is_no_server_is_named(tmp_path: Path, arguments: list[str], words: str) -> None:
    ran = run_openenv("gateway", *arguments, cwd=tmp_path)
    assert ran.returncode == 2 and words in ran.stderr, ran.stderr


@pytest.mark.slow
def test_a_name_stands_for_its_addresses(serve: Serve, front: Callable[..., Gateway]) -> None:
    url = serve(create_app(Dice))
    gateway = front(url.replace("http://127.0.0.1", "dns://localhost"))
    assert url in [one["url"] for one in gateway.servers()]
    wait_until(lambda: any(one["taken"] is not None for one in gateway.servers()))
    with GenericEnvClient(base_url=gateway.url).sync() as env:
        assert env.reset(seed=1).done is False


# ------------------------------------------------------------------ the choice itself


def test_the_least_loaded_is_chosen_by_what_servers_say() -> None:
    servers = Backends(Backend("e", f"http://h{i}:1") for i in range(3))
    first, second, third = servers
    first.note_report(10, 100)
    second.note_report(5, 10)
    third.note_report(40, 400)
    third.is_draining = True
    assert servers.least_loaded("e") is first
    first.placed += 80
    assert servers.least_loaded(None) is second
    for _ in range(3):
        second.note_failure()
    assert servers.least_loaded("e") is first
    with pytest.raises(RouteGone):
        servers.routed("e", second.route)
    first.is_draining = True
    assert servers.routed("e", first.route) is first
    with pytest.raises(NoServer, match="of 3, 1 do not answer, and 2 are being drained"):
        servers.least_loaded("e")


def test_a_route_is_of_the_address_alone() -> None:
    assert route_of("http://a:1") == route_of("HTTP://A:1/") != route_of("http://a:2")
    assert re.fullmatch("[a-z2-7]{8}", route_of("http://a:1"))


@pytest.mark.slow
def test_time_is_not_lost_on_a_silent_client(
    dice: list[str], front: Callable[..., Gateway]
) -> None:
    """One that says nothing, or only begins to, holds up no other."""
    gateway = front(dice[0])
    host, port = gateway.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        for number in range(50):
            quiet = stack.enter_context(socket.create_connection((host, int(port)), 5))
            if number % 2:
                quiet.sendall(b"GET /ws HTTP/1.1\r\nHost:")
        began = time.perf_counter()
        with DiceEnv(base_url=gateway.url).sync() as env:
            env.reset(seed=1)
        assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (3 * MIB), f"has more than {2 * MIB} bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (4 * HEAD_BYTES), "did not answer in HTTP"),
    ],
    ids=["body", "head"],
)
def test_an_answer_of_a_server_has_bounds(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    """Of the answers that a gateway reads as a whole: those that name a new session."""
    monkeypatch.setattr("openenv.gateway.gateway.MAX_ANSWER_BYTES", 2 * MIB)
    create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}

    def pour(peer: Peer) -> None:
        peer.read_head()
        peer.file.read(int(peer.headers.get("content-length", 0)))
        is_call = peer.first.startswith("POST")
        peer.socket.sendall(answer if is_call else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def ask_both(port: int, good: str) -> tuple[httpx.Response, httpx.Response]:
        async with gateway_here(f"http://127.0.0.1:{port}", good) as (http, bad_url, good_url):
            refused = await http.post(f"{bad_url}/mcp", json=create)
            return refused, await http.post(f"{good_url}/mcp", json=create)

    with raw_server(pour) as port, kept_below(64 * MIB):
        refused, fine = asyncio.run(ask_both(port, serve(create_app(Dice))))
    assert refused.status_code == 502, refused.text[:300]
    assert words in refused.json()["detail"]
    assert fine.json()["result"]["session_id"]


@contextlib.asynccontextmanager
async def gateway_here(*servers: str) -> AsyncIterator[tuple[Any, ...]]:
    """A gateway on this event loop: a client, and the URL of each server behind it."""
    named = [Backend(f"e{number}", url) for number, url in enumerate(servers)]
    gateway = GatewayOfServers(Backends(named))
    listening = await gateway.listen(port=0)
    root = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            yield (http, *(f"{root}/envs/{one.environment}" for one in named))
    finally:
        listening.close()
        await gateway.drain(0.0)
        await asyncio.sleep(0.01)  # what is aborted is closed in the loop's next turn


def test_an_answer_that_breaks_off_is_not_passed_on_as_whole(serve: Serve) -> None:
    """One without a length ends with its connection; a reset is no end of it."""
    is_read = threading.Event()

    def breaks_off(peer: Peer) -> None:
        peer.read_head()
        if "metadata" in peer.first:
            peer.socket.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf of i")
            assert is_read.wait(10)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.shutdown(socket.SHUT_RD)  # the file holds the descriptor
        peer.file.close()
        peer.socket.close()

    async def ask_all(port: int, good: str) -> list[int]:
        async with gateway_here(f"http://127.0.0.1:{port}", good) as (http, bad_url, good_url):
            with pytest.raises(httpx.RemoteProtocolError):
                async with http.stream("GET", f"{bad_url}/metadata") as answer:
                    async for part in answer.aiter_raw():
                        assert part == b"half of i"
                        is_read.set()
            urls = (f"{bad_url}/schema", f"{good_url}/metadata")
            return [(await http.get(url)).status_code for url in urls]

    with raw_server(breaks_off) as port:
        assert asyncio.run(ask_all(port, serve(create_app(Dice)))) == [502, 200]
