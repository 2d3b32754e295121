"""Rollouts as tokens: what the model wrote stays, what it was told is masked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from rollouts.worlds import PerStep, Talk, Terminal
from support.servers import serving

from openenv import GenericEnvClient, create_app
from openenv.errors import CapacityError
from openenv.rollouts.batched import BatchPlayer
from openenv.rollouts.episode_sessions import ActionOutcome, EpisodeStart
from openenv.rollouts.failures import EnvironmentsFailing
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.tokens import Chat, TokenRollout

END = "\x03"


class Letters:
    """A tokenizer of which each letter is a token; its template writes ``<role>words END``."""

    eos_token = END
    eos_token_id = ord(END)
    chat_template: Any = "{# of letters #}"
    lists_tools = False

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        tools = options.get("tools") if self.lists_tools else None
        text = f"<tools>{json.dumps(tools)}{END}" if tools else ""
        for message in conversation:
            text += f"<{message['role']}>{message['content']}{END}\n"
        return text + ("<assistant>" if options.get("add_generation_prompt") else "")

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: Any, **options: Any) -> str:
        return "".join(map(chr, token_ids)).replace(END, "")


class Tools(Letters):
    lists_tools = True


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def written(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


@contextmanager
def playing(environment: Any, **options: Any) -> Iterator[BatchPlayer]:
    player = BatchPlayer(environment, **options)
    try:
        yield player
    finally:
        player.close()


def saying(*words: str) -> Any:
    """A model that says these, one a turn, to all alike."""
    left = list(words)

    def generate(sequences: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
        said = letters(left.pop(0))
        return [said for _ in sequences], [[-0.5] * len(said) for _ in sequences]

    return generate


def start(text: str = "Talk.", **arguments: Any) -> EpisodeStart:
    return EpisodeStart([{"role": "user", "content": text}], arguments)


def test_a_rollout_is_one_sequence_that_grows() -> None:
    with playing(PerStep) as player:
        chat = Chat(Letters(), player.sessions.interface)
        (found,) = player.play(chat, [start(start="so")], saying(f"hi{END}", f"over{END}"))
    assert written(found.prompt_ids) == f'<user>Talk.\n\n{{"words": ["so"]}}{END}\n<assistant>'
    said = [text for text, mine in runs(found) if mine]
    told = [text for text, mine in runs(found) if not mine]
    assert said == [f"hi{END}", f"over{END}"]
    assert told == [f'\n<user>{{"words": ["so", "hi"]}}{END}\n<assistant>']
    assert found.logprobs == [-0.5 if one else 0.0 for one in found.mask]
    assert found.score.value == 2 + 4 + 1.0
    assert (found.steps, found.turns, found.failure) == (2, 2, None)


def runs(rollout: TokenRollout) -> list[tuple[str, bool]]:
    """Pieces of what comes behind the prompt, and whether the model wrote them."""
    found: list[tuple[str, bool]] = []
    for token, mine in zip(rollout.completion_ids, rollout.mask, strict=True):
        if found and found[-1][1] == bool(mine):
            found[-1] = (found[-1][0] + chr(token), bool(mine))
        else:
            found.append((chr(token), bool(mine)))
    return found


def test_a_reply_that_was_cut_off_is_ended_for_the_model_and_not_carried_out() -> None:
    with playing(PerStep) as player:
        chat = Chat(Letters(), player.sessions.interface)
        (found,) = player.play(chat, [start()], saying("hi", f"over{END}"))
    assert [mine for _, mine in runs(found)] == [True, False, True]
    assert runs(found)[0] == ("hi", True)
    assert runs(found)[1][0].startswith(f"{END}\n<user>Error: the reply was cut off")
    assert (found.steps, found.turns) == (1, 2)


def test_of_what_does_not_fit_nothing_is_acted_on() -> None:
    with playing(PerStep) as player:
        chat = Chat(Letters(), player.sessions.interface)
        (cut,) = player.play(chat, [start()], saying(f"a long word{END}"), max_tokens=5)
        assert (written(cut.completion_ids), cut.mask, cut.steps) == ("a lon", [1] * 5, 0)
        (full,) = player.play(chat, [start()], saying(f"hi{END}"), max_tokens=10)
        assert (written(full.completion_ids), full.steps) == (f"hi{END}", 1)
        assert full.score.value == 2.5


def test_so_many_turns_it_may_have() -> None:
    with playing(Terminal, max_turns=2, unfinished=-1.0) as player:
        chat = Chat(Letters(), player.sessions.interface)
        (found,) = player.play(chat, [start()], saying(f"a{END}", f"b{END}"))
    assert found.turns == 2
    assert found.mask[-1] == 1
    assert found.score.value == -1.0


def test_rollouts_of_a_batch_begin_each_as_it_should_and_end_when_they_do() -> None:
    def generate(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        batches.append(len(sequences))
        return [
            letters(f"over{END}" if '"b"' in written(ids) or len(batches) > 1 else f"x{END}")
            for ids in sequences
        ], None

    batches: list[int] = []
    with playing(PerStep) as player:
        chat = Chat(Letters(), player.sessions.interface)
        found = player.play(chat, [start(start=word) for word in "abab"], generate)
        assert batches == [4, 2]
        assert [one.score.value for one in found] == [6.0, 4.5, 6.0, 4.5]
        assert all(one.logprobs is None for one in found)
        assert player.meter.read().sessions == 4


def test_no_more_are_played_at_once_than_agreed() -> None:
    with playing(create_app(PerStep, max_concurrent_envs=3), at_once=2) as player:
        chat = Chat(Letters(), player.sessions.interface)
        found = player.play(chat, [start() for _ in range(5)], saying(*[f"over{END}"] * 3))
        assert [one.score.value for one in found] == [4.5] * 5
        assert player.meter.read().sessions == 2
    with pytest.raises(ValueError, match="at_once=0"):
        BatchPlayer(PerStep, at_once=0)


@pytest.mark.slow
def test_without_room_for_all_it_is_said() -> None:
    app = create_app(PerStep, max_concurrent_envs=1)
    with (
        serving(app) as url,
        playing(GenericEnvClient(url, queue_timeout_s=0.2), retries=0) as player,
    ):
        chat = Chat(Letters(), player.sessions.interface)
        with pytest.raises(CapacityError, match="play fewer rollouts at once"):
            player.play(chat, [start(), start()], saying(f"over{END}"))


def test_a_rollout_whose_environment_fails_has_no_reward_and_the_others_go_on() -> None:
    def generate(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        return [
            letters(f"crash{END}" if '"bad"' in written(ids) else f"over{END}") for ids in sequences
        ], None

    with playing(Talk) as player:
        chat = Chat(Letters(), player.sessions.interface)
        good, bad = player.play(chat, [start(start="good"), start(start="bad")], generate)
        assert good.score.value == 4.0
        assert bad.score.value is None
        assert str(bad.failure).startswith("the episode broke off: ExecutionFailed")
        assert bad.messages[-1]["content"].startswith("Error: ")
        (again,) = player.play(chat, [start(start="good")], generate)
        assert again.score.value == 4.0
        assert bad.score.value is None


def test_training_ends_where_nothing_but_failures_come() -> None:
    def generate(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        return [
            letters(f"crash{END}" if '"bad"' in written(ids) else f"over{END}") for ids in sequences
        ], None

    bad, good = start(start="bad"), start(start="good")
    with playing(Talk, failures_in_a_row=3) as player:
        chat = Chat(Letters(), player.sessions.interface)
        player.play(chat, [bad, bad, good, bad, bad], generate)
        with pytest.raises(EnvironmentsFailing, match="3 episodes in a row have failed; the last"):
            player.play(chat, [bad], generate)
        (again,) = player.play(chat, [good], generate)
        assert again.score.value == 4.0
    with playing(Talk, failures_in_a_row=None) as player:
        chat = Chat(Letters(), player.sessions.interface)
        found = player.play(chat, [bad] * 33, generate)
    assert [one.score.value for one in found] == [None] * 33


def test_a_model_is_told_of_tools_as_its_template_has_it() -> None:
    with playing(PerStep) as player:
        interface = player.sessions.interface
    both = Interface(interface.action, (*interface.tools, *interface.tools))
    by_template = Chat(Tools(), both)
    assert by_template.told == "tools"
    assert written(by_template.opening([], "now")).startswith('<tools>[{"type": "function"')
    reply = letters(f'<tool_call>{{"name": "say", "arguments": {{"word": "a"}}}}</tool_call>{END}')
    parsed = by_template.read([], reply)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("say", {"word": "a"})]
    told = written(by_template.after(reply, parsed, ActionOutcome("then", None, False, ("then",))))
    assert told == f"\n<tool>then{END}\n<assistant>"
    assert Chat(Letters(), both).told == "json"
    by_words = written(Chat(Letters(), both).opening([{"role": "user", "content": "Go."}], "now"))
    assert by_words.startswith("<system>You act by one of these tools:")
    assert f"<user>Go.\n\nnow{END}" in by_words
    alone = written(Chat(Letters(), interface).opening([], "now"))
    assert alone == f"<user>now{END}\n<assistant>"
    nothing = Letters()
    nothing.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        Chat(nothing, interface)


def test_a_model_that_is_told_by_its_task_alone_may_act_in_any_way() -> None:
    with playing(PerStep) as player:
        chat = Chat(Letters(), player.sessions.interface, "text")
        said = f'I say: {{"word": "over"}}{END}'
        (found,) = player.play(chat, [start()], saying(said))
    assert (found.steps, found.score.value) == (1, 4.5)
