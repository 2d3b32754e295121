"""The proxy over HTTP: what agents are answered, what is taken down, and what is kept from whom."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import httpx
import pytest
from capture.conftest import Proxied, Start
from support.llm_server import Asked, Failure, Reply
from support.memory import MIB, kept_below
from support.rawserver import Peer, raw_server
from support.token_server import Dropped, logprobs_of, prompt_of, token_server, tokens_in, written

from openenv.capture import CaptureServer, export_session, to_training_trace
from openenv.rollouts.harness.training import TrainingTurn

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def data_of(text: str) -> list[Any]:
    """The data of the events of a stream."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def spoken(events: list[Any]) -> str:
    deltas = [
        event["choices"][0]["delta"] for event in events if event != "[DONE]" and event["choices"]
    ]
    return "".join(delta.get("content") or "" for delta in deltas)


def turns_of(proxied: Proxied) -> list[TrainingTurn]:
    document = export_session(proxied.session)
    return to_training_trace(proxied.session.graph, document).turns


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_is_answered_and_its_exact_tokens_are_taken_down(start: Start, stream: bool) -> None:
    proxied = start("the answer")
    answer = proxied.chat("hello", stream=stream, temperature=0.7)
    assert answer.status_code == 200
    if stream:
        events = data_of(answer.text)
        assert (spoken(events), events[-1]) == ("the answer", "[DONE]")
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "the answer"
    (turn,) = turns_of(proxied)
    tokens = written({"content": "the answer"})
    assert turn.prompt_token_ids == prompt_of([{"role": "user", "content": "hello"}])
    assert (turn.completion_token_ids, turn.per_token_logps) == (tokens, logprobs_of(tokens))
    assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [1] * len(tokens)
    assert turn.metadata["sampling_params"] == {"temperature": 0.7}
    assert turn.request["messages"] == [{"role": "user", "content": "hello"}]
    assert turn.response["choices"][0]["message"]["content"] == "the answer"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_agent_gets_no_more_than_it_asked_for(start: Start, stream: bool) -> None:
    proxied = start()
    text = proxied.chat(stream=stream).text
    assert "token_ids" not in text
    assert not any(json.loads(one) for one in _logprobs(text))
    assert ("usage" in text) is not stream
    assert "usage" in proxied.chat(stream=True, stream_options={"include_usage": True}).text
    assert any(
        json.loads(one) for one in _logprobs(proxied.chat(stream=stream, logprobs=True).text)
    )


def _logprobs(text: str) -> list[str]:
    events = data_of(text) if text.startswith("data") else [json.loads(text)]
    choices = [event["choices"][0] for event in events if event != "[DONE]" and event["choices"]]
    return [json.dumps(choice.get("logprobs")) for choice in choices]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_calls_of_tools_and_their_results_are_one_sequence(start: Start, stream: bool) -> None:
    def model(asked: Asked) -> Reply | str:
        return "done" if asked.messages[-1]["role"] == "tool" else Reply("", [("look", {"at": 1})])

    proxied = start(model)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    answer = proxied.chat(messages=messages, tools=[TOOL], stream=stream)
    if stream:
        deltas = [e["choices"][0]["delta"] for e in data_of(answer.text)[:-1] if e["choices"]]
        (call,) = [one for delta in deltas for one in delta.get("tool_calls") or ()]
        call.pop("index")
    else:
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at": 1}'}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "seen"},
    ]
    proxied.chat(messages=messages, tools=[TOOL], stream=stream)
    document = export_session(proxied.session)
    (sequence,) = document["sequences"]
    assert sequence["input_ids"] == prompt_of(messages) + written({"content": "done"})
    calls = written({"tool_calls": [call]})
    assert sequence["turn_lengths"] == [len(calls), len(written({"content": "done"}))]
    assert (sequence["role"], sequence["trainable"]) == ("agent", True)


def test_a_second_key_never_sees_or_joins_the_first_ones_session(start: Start) -> None:
    proxied = start(lambda asked: asked.last.upper())
    other = proxied.server.registry.create()
    proxied.chat("mine")
    proxied.post(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "yours"}]},
        other.session_id,
    )
    mine, yours = (
        json.dumps(export_session(one, include_messages=True)) for one in (proxied.session, other)
    )
    assert "MINE" in mine and "YOURS" not in mine
    assert "YOURS" in yours and "MINE" not in yours
    assert proxied.http.get("/sessions").status_code == 403
    assert proxied.post("/sessions", {"session_id": proxied.key}).status_code == 400
    answer = proxied.post("/v1/responses", {"input": "x"}, other.session_id).json()
    asked = {"input": "y", "previous_response_id": answer["id"]}
    assert proxied.post("/v1/responses", asked).status_code == 400
    assert proxied.post("/v1/responses", asked, other.session_id).status_code == 200


def test_a_conversation_that_the_proxy_keeps_goes_on_under_new_instructions(start: Start) -> None:
    proxied = start("ok")
    told = [{"role": "developer", "content": "d"}, {"role": "user", "content": "one"}]
    first = proxied.post("/v1/responses", {"input": told, "instructions": "old"}).json()
    asked = {"input": "two", "instructions": "new", "previous_response_id": first["id"]}
    proxied.post("/v1/responses", asked)
    messages = [(one["role"], one["content"]) for one in proxied.upstream.asked[1].messages]
    kept = [("system", "d"), ("user", "one"), ("assistant", "ok"), ("user", "two")]
    assert messages == [("system", "new"), *kept]


def test_sessions_are_the_admins_where_there_is_an_admin_key(start: Start) -> None:
    proxied = start(admin_key="secret")
    admin = {"authorization": "Bearer secret"}
    mine = {"authorization": f"Bearer {proxied.key}"}
    paths = [f"/sessions/{proxied.key}{tail}" for tail in ("", "/rollout", "/trace_entries")]
    proxied.chat()
    for path in ["/sessions", *paths]:
        assert proxied.http.get(path, headers=mine).status_code == 401
        assert proxied.http.get(path, headers=admin).status_code == 200
    assert proxied.http.post("/sessions", json={}, headers=mine).status_code == 401
    made = proxied.http.post("/sessions", json={"task": "t"}, headers=admin).json()
    assert made["rollout_type"] == "train"
    assert proxied.http.delete(paths[0], headers=mine).status_code == 401
    assert proxied.http.delete(paths[0], headers=admin).json() == {"deleted": True}
    assert proxied.http.get(paths[0], headers=admin).status_code == 404
    assert proxied.chat().status_code == 401


def test_an_unknown_key_is_refused_unless_any_may_begin_a_session(start: Start) -> None:
    shut, open_ = start(), start(require_registered=False)
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert shut.post("/v1/chat/completions", body, "sk-unknown").status_code == 401
    assert shut.http.post("/v1/chat/completions", json=body).status_code == 401
    assert shut.upstream.asked == []
    assert open_.post("/v1/chat/completions", body, "sk-unknown").status_code == 200
    assert open_.http.post("/v1/chat/completions", json=body).status_code == 401
    (name,) = set(open_.server.registry.list_ids()) - {open_.key}
    assert "sk-unknown" not in name
    session = open_.server.registry.get(name)
    assert session is not None and len(session.graph.nodes()) == 1
    assert "sk-unknown" not in json.dumps(export_session(session, include_messages=True))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [429, 500])
def test_an_upstreams_error_is_passed_on_and_is_no_completion(
    start: Start, stream: bool, status: int
) -> None:
    proxied = start(Failure(status, "on purpose", retry_after_s=0))
    answer = proxied.chat(stream=stream)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "0")
    assert answer.json()["error"]["message"] == "on purpose"
    document = export_session(proxied.session)
    (failure,) = document["failures"]
    assert (failure["kind"], failure["status"]) == ("upstream", status)
    assert (document["turns"], document["trainable"]) == ([], False)
    with pytest.raises(ValueError, match="no call to train on"):
        turns_of(proxied)


def test_an_upstream_that_is_not_there_is_a_bad_gateway() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with CaptureServer(llm_url=url, model="m", port=0) as server:
            session = server.registry.create()
            headers = {"x-api-key": session.session_id}
            body = {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
            answer = httpx.post(
                f"{server.url}/v1/messages", json=body, headers=headers, trust_env=False
            )
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "api_error"
    assert session.failures[0].kind == "upstream"


def test_a_stream_that_breaks_off_is_an_error_to_the_agent_and_trained_on_by_nobody(
    start: Start,
) -> None:
    proxied = start(Dropped("a long answer", after=4))
    events = data_of(proxied.chat(stream=True).text)
    assert "error" in events[-1] and "[DONE]" not in events
    assert spoken(events[:-1]) == "a lo"
    (failure,) = proxied.session.failures
    assert failure.kind == "broken"
    assert failure.partial_message is not None and failure.partial_message["content"] == "a lo"
    assert proxied.session.graph.nodes() == []
    assert proxied.chat("again", stream=False).status_code in (200, 500)


@pytest.mark.slow
def test_an_agent_that_hangs_up_amid_a_stream_leaves_a_failure_and_no_connection(
    start: Start,
) -> None:
    let_go = threading.Event()
    proxied = start("x" * 2000)
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    headers = {"authorization": f"Bearer {proxied.key}"}
    with proxied.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        next(answer.iter_raw())
    for _ in range(200):
        if proxied.session.failures or proxied.session.graph.nodes():
            break
        let_go.wait(0.02)
    assert proxied.session.graph.nodes() == [] or not proxied.session.failures
    assert len(proxied.session.failures) + len(proxied.session.graph.nodes()) == 1


@pytest.mark.parametrize(
    ("tells", "words"),
    [("text", "returned no tokens at all"), ("logprobs", "returned no tokens")],
)
def test_an_upstream_without_tokens_is_said_to_be_no_use_for_training(
    start: Start, tells: str, words: str
) -> None:
    proxied = start(upstream={"tells": tells})
    assert proxied.chat().status_code == 200
    document = export_session(proxied.session)
    assert words in document["turns"][0]["no_tokens"]
    assert document["trainable"] is False
    with pytest.raises(ValueError, match="vLLM does with return_token_ids"):
        to_training_trace(proxied.session.graph, document)


def test_what_the_upstream_refuses_of_the_capture_is_left_out_and_said(start: Start) -> None:
    proxied = start(upstream={"refuses": ["return_token_ids", "max_tokens"]})
    assert proxied.chat().status_code == 200
    assert proxied.chat(stream=True).status_code == 200
    assert proxied.server.inference.refused == {"return_token_ids", "max_tokens"}
    assert "return_token_ids" in proxied.http.get("/health").json()["refused_by_upstream"]
    assert proxied.chat(max_tokens=5).status_code == 400  # the agent's own word is never left out


def test_the_length_of_an_answer_is_limited(start: Start) -> None:
    proxied = start(max_output_tokens=50)
    givens: list[dict[str, Any]] = [{}, {"max_tokens": 500}, {"max_tokens": 5}]
    for given in [*givens, {"max_completion_tokens": 70}]:
        proxied.chat(**given)
    first, second, third, fourth = (dict(one.body) for one in proxied.upstream.asked)
    assert (first["max_tokens"], second["max_tokens"], third["max_tokens"]) == (50, 50, 5)
    assert fourth["max_completion_tokens"] == 50 and "max_tokens" not in fourth


def test_a_trainers_sampling_stands_before_the_agents(start: Start) -> None:
    proxied = start()
    session = proxied.server.registry.create(sampling={"temperature": 1.0})
    body = {"messages": [{"role": "user", "content": "x"}], "temperature": 0.1, "top_p": 0.5}
    proxied.post("/v1/chat/completions", body, session.session_id)
    assert proxied.upstream.asked[0].body["temperature"] == 1.0
    assert proxied.upstream.asked[0].body["top_p"] == 1.0
    (node,) = session.graph.nodes()
    assert node.requested_sampling_params == {"temperature": 0.1, "top_p": 0.5}
    assert not [f for f in export_session(session)["validation"] if "bent_sampling" in f]
    proxied.chat(top_p=0.5)
    assert [f for f in export_session(proxied.session)["validation"] if "bent_sampling" in f]


@pytest.mark.parametrize(
    "limit", [{"max_model_calls": 2}, {"max_tokens": 40}], ids=["calls", "tokens"]
)
def test_a_session_over_its_budget_is_told_to_stop_and_that_is_not_taken_down(
    start: Start, limit: dict[str, Any]
) -> None:
    proxied = start("0123456789")
    session = proxied.server.registry.create(**limit)
    chat = {"messages": [{"role": "user", "content": "0123456789"}]}
    for _ in range(2):
        answer = proxied.post("/v1/chat/completions", chat, session.session_id)
        assert "budget" not in answer.text
    for stream in (False, True):
        asked = {"input": "x", "stream": stream}
        answer = proxied.post("/v1/responses", asked, session.session_id)
        assert "Step budget exhausted" in answer.text
    document = export_session(session)
    assert (document["budget_stop_count"], len(document["turns"])) == (2, 2)
    assert len(proxied.upstream.asked) == 2


def test_what_is_too_large_or_no_json_is_refused(start: Start) -> None:
    proxied = start(max_body_bytes=1000, max_sessions=1)
    headers = {"authorization": f"Bearer {proxied.key}"}
    assert proxied.chat("x" * 1000).status_code == 413

    def parts() -> Any:
        yield b"x" * 600
        yield b"x" * 600

    assert proxied.http.post("/v1/messages", content=parts(), headers=headers).status_code == 413
    for content in (b"{", b"[]"):
        answer = proxied.http.post("/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 400
    assert proxied.chat(messages="x").status_code == 400
    assert proxied.http.post("/sessions", json={}).status_code == 429
    assert proxied.upstream.asked == []


def test_sessions_that_cannot_be_are_refused(start: Start) -> None:
    proxied = start()
    bodies: list[Any] = [
        {"session_id": "a b"},
        {"max_model_calls": -1},
        {"sampling": {"top_p": 0.5}},
        {"capture_level": "zork"},
        {"purpose": "zork"},
        {"metadata": 1},
        [],
    ]
    for body in bodies:
        assert proxied.http.post("/sessions", json=body).status_code == 400


def test_a_deleted_session_is_handed_on_and_those_that_are_left_when_it_ends() -> None:
    ended: list[str] = []
    with token_server() as upstream:
        options: dict[str, Any] = {"on_end": lambda session: ended.append(session.session_id)}
        with CaptureServer(llm_url=upstream.url, port=0, **options) as server:
            for name in ("a", "b"):
                server.registry.create(name)
            httpx.delete(f"{server.url}/sessions/a", trust_env=False)
            assert ended == ["a"]
        assert ended == ["a", "b"]


def test_models_are_told_to_those_with_a_key(start: Start) -> None:
    proxied = start()
    headers = {"authorization": f"Bearer {proxied.key}"}
    assert proxied.http.get("/v1/models", headers=headers).json()["data"][0]["id"] == "toy"
    assert proxied.http.get("/v1/models").status_code == 401


@pytest.mark.slow
def test_calls_at_the_same_time_are_told_apart(start: Start) -> None:
    proxied = start(lambda asked: asked.last * 3)
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        with httpx.Client(base_url=proxied.server.url, trust_env=False) as http:
            body = {
                "messages": [{"role": "user", "content": f"n{number}"}],
                "stream": number % 2 == 0,
            }
            headers = {"authorization": f"Bearer {proxied.key}"}
            answers[number] = http.post("/v1/chat/completions", json=body, headers=headers).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == 12
    nodes = proxied.session.graph.nodes()
    for node in nodes:
        asked = node.request_messages[0]["content"]
        assert node.response_message["content"] == asked * 3
        assert node.sampled_ids == written({"content": asked * 3})
    assert sorted(node.index for node in nodes) == list(range(12))
    assert {one.n_turns for one in proxied.session.graph.sequences()} == {1}


def test_a_budget_of_one_call_counts_those_under_way(start: Start) -> None:
    proxied = start()
    session = proxied.server.registry.create(max_model_calls=1)
    texts = [
        proxied.post("/v1/chat/completions", {"messages": []}, session.session_id).text
        for _ in range(3)
    ]
    assert ["budget" in text for text in texts] == [False, True, True]


def test_tokens_of_a_text_are_bytes_in_these_tests() -> None:
    assert tokens_in("a") == [197]


def test_of_an_upstreams_error_no_more_is_read_than_is_told() -> None:
    def pour(peer: Peer) -> None:
        peer.read_head()
        peer.file.read(int(peer.headers["content-length"]))
        peer.socket.sendall(b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            peer.socket.sendall(b"busy " * MIB)

    with (
        raw_server(pour) as port,
        CaptureServer(llm_url=f"http://127.0.0.1:{port}/v1", model="m", port=0) as server,
        kept_below(32 * MIB),
    ):
        for _ in range(3):
            session = server.registry.create()
            answer = httpx.post(
                f"{server.url}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "x"}]},
                headers={"authorization": f"Bearer {session.session_id}"},
                trust_env=False,
            )
            assert answer.status_code == 503 and answer.text.count("busy") > 10_000
            assert len(answer.content) < 2**17 and len(session.failures[0].message) < 2**17


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_upstreams_answer_has_a_bound(
    start: Start, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """A stream's, each event."""
    monkeypatch.setattr("openenv.capture.upstream.MAX_ANSWER_BYTES", MIB)
    neighbour = start("the answer")
    kind = b"text/event-stream" if stream else b"application/json"

    def pour(peer: Peer) -> None:
        peer.read_head()
        peer.file.read(int(peer.headers["content-length"]))
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\ndata: " % kind)
        while True:
            peer.socket.sendall(b"x" * MIB)

    with (
        raw_server(pour) as port,
        CaptureServer(llm_url=f"http://127.0.0.1:{port}/v1", model="m", port=0) as server,
        kept_below(32 * MIB),
    ):
        session = server.registry.create()
        answer = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "x"}], "stream": stream},
            headers={"authorization": f"Bearer {session.session_id}"},
            trust_env=False,
        )
        assert answer.status_code == 502 and f"over {MIB} bytes" in answer.text
        assert f"over {MIB} bytes" in session.failures[0].message
        assert neighbour.chat().status_code == 200
