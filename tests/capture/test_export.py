"""What trainers take of captured calls, files of them, and what is looked at beforehand."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from capture.conftest import Proxied, Start
from support.disks import files_limited_to
from support.llm_server import Asked, Failure, Reply
from support.token_server import Dropped, prompt_of, token_server, written

from openenv.capture import (
    Recorder,
    export_session,
    measure_retokenization_skew,
    read_sessions,
    require_llm,
    retokenize,
    to_rollouts,
    to_trace_entries,
    to_training_trace,
    to_trl,
    to_turn_records,
    to_verifiers,
    validate_llm,
)
from openenv.capture.sessions import CaptureSession


def converse(proxied: Proxied, *texts: str, messages: list[Any] | None = None) -> list[Any]:
    messages = list(messages or ())
    for text in texts:
        messages.append({"role": "user", "content": text})
        answer = proxied.chat(messages=messages)
        messages.append(answer.json()["choices"][0]["message"])
    return messages


@pytest.fixture
def talk(start: Start) -> Proxied:
    """A conversation of two calls, a branch of it, and a call that was asked again."""
    proxied = start(lambda asked: f"re {asked.last} {asked.number}")
    messages = converse(proxied, "one", "two")
    converse(proxied, "other", messages=messages[:2])
    converse(proxied, "again", messages=messages)
    converse(proxied, "again", messages=messages)
    return proxied


def document_of(proxied: Proxied, **options: Any) -> Any:
    return proxied.session.graph, export_session(proxied.session, **options)


def test_each_token_of_the_model_is_trained_on_once(talk: Proxied) -> None:
    graph, document = document_of(talk)
    rollouts = to_rollouts(graph, document)
    trained = sum(sum(one.completion_mask) for one in rollouts)
    kept = [node for node in graph.nodes() if node not in graph.discarded_nodes()]
    assert len(kept) == 4
    assert trained == sum(len(node.sampled_ids) for node in kept)
    for one in rollouts:
        assert one.logprobs is not None
        assert len(one.completion_ids) == len(one.completion_mask) == len(one.logprobs)
        assert not one.is_retokenized
    assert document["stats"]["n_trainable_tokens"] == trained
    everything = to_rollouts(*document_of(talk, include_discarded=True))
    assert sum(sum(one.completion_mask) for one in everything) == sum(
        len(node.sampled_ids) for node in graph.nodes()
    )


def test_columns_of_trl_are_as_long_as_each_other(talk: Proxied) -> None:
    columns = to_trl(to_rollouts(*document_of(talk)))
    assert sorted(columns) == ["completion_ids", "env_mask", "logprobs", "prompt_ids"]
    assert len({len(column) for column in columns.values()}) == 1
    assert columns["prompt_ids"][0] == prompt_of([{"role": "user", "content": "one"}])


def test_records_entries_and_steps_are_the_same_calls(talk: Proxied) -> None:
    graph, document = document_of(talk)
    entries = to_trace_entries(graph, document)
    records = to_turn_records(graph, document)
    steps = to_verifiers(graph, document)
    trace = to_training_trace(graph, document)
    assert len(entries) == len(records) == len(steps) == len(trace.turns) == 4
    assert trace.to_trace_entries() == entries
    for entry, (prompt, completion, logprobs), step in zip(entries, records, steps, strict=True):
        assert entry["prompt_token_ids"] == prompt == step["tokens"]["prompt_ids"]
        assert entry["completion_token_ids"] == completion == step["tokens"]["completion_ids"]
        assert entry["per_token_logps"] == logprobs == step["tokens"]["completion_logprobs"]


def test_calls_without_tools_are_side_work_where_others_have_tools(start: Start) -> None:
    proxied = start()
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    proxied.chat("a title")
    proxied.chat("the work", tools=[tool])
    graph, document = document_of(proxied)
    assert [one["role"] for one in document["turns"]] == ["auxiliary", "agent"]
    assert len(to_turn_records(graph, document)) == 1
    assert len(to_turn_records(*document_of(proxied, include_auxiliary=True))) == 2


def test_a_session_that_is_for_evaluation_is_not_trained_on(start: Start) -> None:
    proxied = start()
    session = proxied.server.registry.create(purpose="eval")
    body = {"messages": [{"role": "user", "content": "x"}]}
    proxied.post("/v1/chat/completions", body, session.session_id)
    document = export_session(session)
    assert (document["rollout_type"], document["trainable"]) == ("eval", False)
    with pytest.raises(ValueError, match="not captured for training"):
        to_turn_records(session.graph, document)


class Bytes:
    """A tokenizer whose tokens are those of `token_server`; `shift` makes it another's."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def apply_chat_template(self, conversation: Any, **options: Any) -> list[int]:
        if options.get("add_generation_prompt"):
            tokens = prompt_of(conversation)
        else:
            tokens = prompt_of(conversation[:-1]) + written(conversation[-1])
        return [token + self.shift for token in tokens]


def test_text_is_tokenized_where_one_asks_for_it_and_that_is_said(start: Start) -> None:
    proxied = start("answer", {"tells": "text"})
    converse(proxied, "one")
    (rollout,) = retokenize(proxied.session.graph, Bytes())
    assert rollout.is_retokenized and rollout.logprobs is None
    assert rollout.prompt_ids == prompt_of([{"role": "user", "content": "one"}])
    assert rollout.completion_ids == written({"content": "answer"})
    with pytest.raises(ValueError, match="have none, which TRL needs"):
        to_trl([rollout])


def test_how_far_text_is_from_the_tokens_that_were_sampled(talk: Proxied) -> None:
    graph, document = document_of(talk)
    same = measure_retokenization_skew(graph, document, Bytes())
    assert (same["turns"], same["turns_skewed"], same["tokens_skewed"]) == (4, 0, 0)
    other = measure_retokenization_skew(graph, document, Bytes(1))
    assert other["turns_skewed"] == 4
    assert other["tokens_skewed"] == other["tokens"] > 0


# ------------------------------------------------------------------ files


def test_what_was_written_into_a_file_is_read_as_it_was(start: Start, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)

    def model(asked: Asked) -> Any:
        return Failure(500) if asked.last == "fail" else f"re {asked.last}"

    proxied = start(model, on_call=recorder)
    messages = converse(proxied, "one", "two", "three")
    proxied.chat("fail")
    converse(proxied, "other", messages=messages[:2])
    recorder.close()
    (read,) = read_sessions(tmp_path)
    assert export_session(read, include_messages=True) == export_session(
        proxied.session, include_messages=True
    )
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    third = next(line for line in lines if line.get("index") == 2)
    assert third["shared_tokens"] > len(third["prompt_ids"])


def test_a_line_that_a_crash_cut_off_is_left_out_and_a_wrong_one_named(
    start: Start, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path)
    proxied = start(on_call=recorder)
    converse(proxied, "one", "two")
    recorder.close()
    path = tmp_path / "calls.jsonl"
    text = path.read_text()
    path.write_text(text[:-10])
    assert len(read_sessions(tmp_path)[0].graph.nodes()) == 1
    path.write_text(text + "zork\n")
    with pytest.raises(ValueError, match="line 4"):
        read_sessions(tmp_path)


def test_what_a_full_disk_did_not_take_is_written_once_there_is_room(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent's calls are answered meanwhile; they used to fail, and the file was unreadable."""
    recorder = Recorder(tmp_path)
    proxied = start(on_call=recorder)
    messages = converse(proxied, "one")
    with files_limited_to((tmp_path / "calls.jsonl").stat().st_size + 100):
        messages = converse(proxied, "two", "three", messages=messages)
        assert len(read_sessions(tmp_path)[0].graph.nodes()) == 1
    converse(proxied, "four", messages=messages)
    recorder.close()
    (read,) = read_sessions(tmp_path)
    assert len(read.graph.nodes()) == 4
    assert "kept in memory" in caplog.text and "nothing is missing" in caplog.text


def test_on_a_full_disk_so_much_is_kept_and_no_more(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is not kept fails, and what goes on from it can be read all the same."""
    monkeypatch.setattr("openenv.capture.files.MAX_KEPT_BYTES", 2**14)
    recorder = Recorder(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    proxied = start(on_call=recorder)
    messages = converse(proxied, "one")
    with monkeypatch.context() as full:
        full.setattr("openenv.capture.files.append", refuse)
        messages = converse(proxied, "two", messages=messages)
        large = {"role": "user", "content": "x" * 2**14}
        for _ in range(5):
            assert proxied.chat(messages=[*messages, large]).status_code == 500
        assert sum(map(len, recorder._unwritten)) < 2**14
        converse(proxied, "small", messages=messages)
    answer = {"role": "assistant", "content": "ok"}
    converse(proxied, "and then", messages=[*messages, large, answer])
    recorder.close()
    (read,) = read_sessions(tmp_path)
    asked = [node.request_messages[-1]["content"] for node in read.graph.nodes()]
    assert asked == ["one", "two", "small", "and then"]
    assert [len(node.request_messages) for node in read.graph.nodes()] == [1, 3, 5, 7]


def test_without_room_to_the_end_closing_says_how_many_calls_are_missing(
    start: Start, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path)
    proxied = start(on_call=recorder)
    messages = converse(proxied, "one")
    with files_limited_to((tmp_path / "calls.jsonl").stat().st_size + 100):
        converse(proxied, "two", "three", messages=messages)
        with pytest.raises(OSError, match="2 calls are missing in it"):
            recorder.close()
    recorder.close()
    assert len(read_sessions(tmp_path)[0].graph.nodes()) == 1


def test_a_file_that_a_crash_cut_off_is_gone_on_with(start: Start, tmp_path: Path) -> None:
    """The next line used to be glued to the torn one."""
    path = tmp_path / "calls.jsonl"
    recorder = Recorder(tmp_path)
    converse(start(on_call=recorder), "one", "two")
    recorder.close()
    path.write_text(path.read_text()[:-10])
    recorder = Recorder(tmp_path)
    converse(start(on_call=recorder), "other")
    recorder.close()
    assert sum(len(one.graph.nodes()) for one in read_sessions(tmp_path)) == 2


# ------------------------------------------------------------------ looking beforehand


def test_a_server_that_tells_tokens_is_found_to() -> None:
    def model(asked: Asked) -> Any:
        return Reply("", [("look", {"path": "/tmp"})]) if asked.body.get("tools") else "ok"

    with token_server(model) as server:
        report = validate_llm(server.url, "toy", timeout=10)
        assert require_llm(server.url, "toy", require_tokens=True).trainable
    assert (report.ok, report.capture_level, report.tool_support) == (True, "tokens", "ok")
    assert (report.served_models, report.rollout_type) == (["toy"], "train")
    assert (report.n_completion_ids, report.param_fixes) == (3, [])


@pytest.mark.parametrize(("tells", "level"), [("text", "text"), ("logprobs", "logprobs")])
def test_a_server_that_tells_none_is_no_use_for_training(tells: str, level: str) -> None:
    with token_server("ok", tells=tells, refuses=["return_token_ids"]) as server:
        report = validate_llm(server.url, "toy", timeout=10)
        with pytest.raises(RuntimeError, match="vLLM does with return_token_ids"):
            require_llm(server.url, "toy", require_tokens=True)
    assert (report.ok, report.capture_level, report.trainable) == (True, level, False)
    assert (report.param_fixes, report.tool_support) == (["return_token_ids"], "text")


def test_a_server_that_fails_or_is_not_there_is_said_to() -> None:
    with token_server(Failure(404, "no such model")) as server:
        report = validate_llm(server.url, "other", timeout=10)
        assert not report.ok and "it serves toy, not other" in report.summary()
    assert "gave no answer" in validate_llm(server.url, "toy", timeout=10).summary()
    with pytest.raises(RuntimeError, match="cannot be reached"):
        require_llm(server.url, "toy", timeout=10)


def test_a_broken_stream_is_in_the_document_and_makes_no_rollout(start: Start) -> None:
    proxied = start(Dropped("a long answer"))
    proxied.chat(stream=True)
    graph, document = document_of(proxied, include_messages=True)
    assert document["failures"][0]["partial_message"]["content"] == "a lo"
    assert to_rollouts(graph, document) == []
    assert isinstance(proxied.session, CaptureSession)
