"""Which call goes on from which, and what of them is one sequence."""

from __future__ import annotations

from typing import Any

import pytest
from support.token_server import logprobs_of, prompt_of, written

from openenv.capture.graph import RolloutGraph, TurnNode, common_prefix_len

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


class Played:
    """A graph that is grown call by call, with the tokens that a server would tell."""

    def __init__(self) -> None:
        self.graph = RolloutGraph()

    def call(self, name: str, messages: list[Message], answer: str | Message, **more: Any) -> str:
        answer = said(answer) if isinstance(answer, str) else answer
        tokens = written(answer)
        node = TurnNode(
            name,
            more.pop("prompt_ids", None) or prompt_of(messages),
            tokens,
            logprobs_of(tokens),
            request_messages=messages,
            response_message=answer,
            **more,
        )
        self.graph.add_turn(node)
        return name

    def parents(self) -> dict[str, str | None]:
        return {node.node_id: node.parent_id for node in self.graph.nodes()}


def test_a_conversation_is_one_path_and_one_sequence() -> None:
    played = Played()
    first = [user("one")]
    second = [*first, said("1"), user("two")]
    played.call("a", first, "1")
    played.call("b", second, "2")
    assert played.parents() == {"a": None, "b": "a"}
    (sequence,) = played.graph.sequences()
    assert sequence.input_ids == prompt_of(second) + written(said("2"))
    answers = written(said("1")), written(said("2"))
    wrote = [t for t, mask in zip(sequence.input_ids, sequence.loss_mask, strict=True) if mask]
    assert wrote == [*answers[0], *answers[1]]
    known = [p for p, mask in zip(sequence.logprobs, sequence.loss_mask, strict=True) if mask]
    assert known == [*logprobs_of(answers[0]), *logprobs_of(answers[1])]
    assert sequence.prompt_len == len(prompt_of(first))
    assert sequence.turn_lengths() == [len(answers[0]), len(answers[1])]


def test_branches_share_what_came_before_and_train_on_it_once() -> None:
    played = Played()
    first = [user("one")]
    played.call("a", first, "1")
    for name in "bc":
        played.call(name, [*first, said("1"), user(name)], name)
    assert played.parents() == {"a": None, "b": "a", "c": "a"}
    assert played.graph.forks() == [("a", ["b", "c"])]
    one, other = played.graph.sequences()
    assert (one.node_ids, other.node_ids) == (["a", "b"], ["a", "c"])
    assert one.n_trainable == len(written(said("1"))) + len(written(said("b")))
    assert other.n_trainable == len(written(said("c")))
    assert sum(other.loss_mask[: other.prompt_len + other.turn_lengths()[0]]) == 0


def test_an_answer_that_was_asked_for_again_is_discarded() -> None:
    played = Played()
    first = [user("one")]
    played.call("a", first, "1")
    played.call("b", first, "uno")
    played.call("c", [*first, said("uno"), user("two")], "2")
    assert played.parents() == {"a": None, "b": None, "c": "b"}
    assert played.graph.get("b").retry_of == "a"
    assert [node.node_id for node in played.graph.discarded_nodes()] == ["a"]


def test_a_discarded_branch_takes_no_tokens_from_those_that_are_kept() -> None:
    played = Played()
    first = [user("one")]
    second = [*first, said("1"), user("two")]
    played.call("a", first, "1")
    played.call("dropped", second, "2")
    played.call("kept", second, "zwei")
    (sequence,) = played.graph.sequences(without=["dropped"])
    assert sequence.node_ids == ["a", "kept"]
    assert sequence.n_trainable == len(written(said("1"))) + len(written(said("zwei")))


def test_a_history_written_anew_is_a_conversation_of_its_own() -> None:
    played = Played()
    first = [user("one")]
    played.call("a", first, "1")
    played.call("b", [user("summary: one was 1"), user("two")], "2")
    assert played.parents() == {"a": None, "b": None}
    assert played.graph.stats()["n_roots"] == 2


@pytest.mark.parametrize(
    "returned",
    [
        said("1", refusal=None, annotations=[], function_call=None),
        {"role": "assistant", "content": [{"type": "text", "text": "1"}]},
        said(" 1\n"),
        said("1", tool_calls=[]),
    ],
    ids=["empty fields", "blocks", "white space", "no calls"],
)
def test_an_answer_that_comes_back_otherwise_written_is_the_same(returned: Message) -> None:
    played = Played()
    played.call("a", [user("one")], "1")
    played.call("b", [user("one"), returned, user("two")], "2")
    assert played.parents()["b"] == "a"


def test_arguments_written_anew_are_the_same_call() -> None:
    def calling(arguments: str) -> Message:
        function = {"name": "f", "arguments": arguments}
        return said("", tool_calls=[{"id": "1", "type": "function", "function": function}])

    played = Played()
    told = {"role": "tool", "tool_call_id": "1", "content": "x"}
    played.call("a", [user("one")], calling('{"a": 1, "b": 2}'))
    played.call("b", [user("one"), calling('{"b":2,"a":1}'), told], "2")
    played.call("c", [user("one"), calling('{"b":2,"a":3}'), told], "3")
    assert played.parents() == {"a": None, "b": "a", "c": None}


def test_other_tokens_for_the_same_history_begin_a_sequence_that_trains_on_its_own_only() -> None:
    played = Played()
    second = [user("one"), said("1"), user("two")]
    played.call("a", [user("one")], "1")
    played.call("b", second, "2", prompt_ids=[7, *prompt_of(second)])
    assert played.parents()["b"] == "a"
    assert played.graph.get("b").rerendered
    one, other = played.graph.sequences()
    assert (one.node_ids, other.node_ids) == (["a"], ["b"])
    assert other.input_ids == [7, *prompt_of(second), *written(said("2"))]
    assert other.n_trainable == len(written(said("2")))
    assert other.root_id == "a"


def test_calls_without_messages_are_matched_by_their_tokens() -> None:
    graph = RolloutGraph()
    graph.add_turn(TurnNode("a", [1, 2], [3], [-0.1]))
    graph.add_turn(TurnNode("b", [1, 2, 3, 4], [5], [-0.1]))
    graph.add_turn(TurnNode("c", [1, 2, 3, 4, 5, 6], [7], [-0.1]))
    graph.add_turn(TurnNode("d", [1, 9], [7], [-0.1]))
    assert [node.parent_id for node in graph.nodes()] == [None, "a", "b", None]
    assert graph.get("c").context_ids(graph.get("b")) == [6]
    assert graph.sequence_for("c").loss_mask == [0, 0, 1, 0, 1, 0, 1]


def test_calls_without_tokens_are_matched_by_their_messages() -> None:
    graph = RolloutGraph()
    one, two = [user("one")], [user("one"), said("1"), user("two")]
    graph.add_turn(TurnNode("a", [], [], request_messages=one, response_message=said("1")))
    graph.add_turn(TurnNode("b", [], [], request_messages=two, response_message=said("2")))
    assert graph.get("b").parent_id == "a"
    assert [one.n_trainable for one in graph.sequences()] == [0]
    assert not graph.get("a").has_tokens


def test_tokens_without_log_probabilities_are_not_trained_on() -> None:
    graph = RolloutGraph()
    graph.add_turn(TurnNode("a", [1], [2], None))
    assert graph.sequence_for("a").loss_mask == [0, 0]


def test_a_graph_refuses_two_calls_of_a_name_and_a_parent_that_is_not_there() -> None:
    graph = RolloutGraph()
    graph.add_turn(TurnNode("a", [1], [2]))
    with pytest.raises(ValueError, match="node_id='a': the call exists"):
        graph.add_turn(TurnNode("a", [1], [2]))
    with pytest.raises(ValueError, match="parent_id='z': the call does not exist"):
        graph.add_turn(TurnNode("b", [1], [2], parent_id="z"))


def test_calls_stand_in_the_order_in_which_they_were_asked() -> None:
    graph = RolloutGraph()
    graph.add_turn(TurnNode("later", [1], [2], index=1))
    graph.add_turn(TurnNode("first", [9], [8], index=0))
    assert [node.node_id for node in graph.nodes()] == ["first", "later"]


def test_messages_and_tokens_of_a_long_conversation_are_kept_once() -> None:
    played = Played()
    messages: list[Message] = []
    for turn in range(20):
        messages = [*[dict(one) for one in messages], user(f"question {turn}")]
        played.call(str(turn), messages, f"answer {turn}")
        messages = [*messages, said(f"answer {turn}")]
    nodes = played.graph.nodes()
    assert nodes[19].request_messages[0] is nodes[0].request_messages[0]
    assert len(played.graph.sequences()) == 1


@pytest.mark.parametrize(
    ("a", "b", "same"), [([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1), ([], [1], 0)]
)
def test_the_common_beginning(a: list[int], b: list[int], same: int) -> None:
    assert common_prefix_len(a, b) == common_prefix_len(b, a) == same
