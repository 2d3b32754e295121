"""Ways to schedule a trainer's batches: in waves, in lockstep, or with overlapping resets.

    python benchmarks/batches.py [--env naps|queues|coding] [--rollouts 512] [--at-once 64]
        [--turns 3] [--spread 1] [--call 0.2] [--reset 0.1] [--batches 2] [--rounds 3]

A model takes `--call` seconds for the replies of a call, however many, and computes elsewhere. A
rollout has `--turns` turns, up to `--spread` more or fewer. The rollouts of `coding`, which end by
their number of turns, all have the same number. The ways:

- waves: all rollouts of a wave are reset, and the model is called for all unfinished ones until the
  last one ends; then the next wave starts. This way is written here, with the parts of
  `BatchPlayer`.
- lockstep: `BatchPlayer(lockstep=True)`: free sessions are reset again at once, and each call waits
  for them.
- overlap: `BatchPlayer`: a call has the rollouts that are ready.

The environments: `naps` sleeps `--reset` seconds in each reset; `queues` does the same, but one
reset at a time, as if each took a core; `coding` is coding_env on a server of its own. The ways
alternate in each round, and figures are compared within a round. Progress goes to stderr, the table
to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "envs")]

from openenv import Action, Environment, Observation, State  # noqa: E402
from openenv.client import background  # noqa: E402
from openenv.rollouts.batched import BatchPlayer  # noqa: E402
from openenv.rollouts.episode_sessions import EpisodeStart  # noqa: E402
from openenv.rollouts.tokens import Chat, TokenRollout  # noqa: E402

END = "\x03"
WAYS = ("waves", "lockstep", "overlap")


class Say(Action):
    """A word to say."""

    word: str


class Heard(Observation):
    """An empty observation."""


class Naps(Environment[Say, Heard, State]):
    """An environment that sleeps in each reset."""

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    reset_s: ClassVar[float] = 0.1

    def reset(self, seed: int | None = None) -> Heard:  # type: ignore[override]
        """Sleep `reset_s` seconds."""
        time.sleep(self.reset_s)
        return Heard()

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        """End the episode if the word is ``over``."""
        return Heard(done=action.word == "over", reward=1.0)

    @property
    def state(self) -> State:
        """An empty state."""
        return State()


class Queues(Naps):
    """An environment that sleeps in each reset, one reset at a time."""

    turn: ClassVar[threading.Lock] = threading.Lock()

    def reset(self, seed: int | None = None) -> Heard:  # type: ignore[override]
        """Wait for the turn, and sleep."""
        with self.turn:
            return super().reset(seed)


class Letters:
    """A tokenizer with one token per letter."""

    eos_token = END
    eos_token_id = ord(END)
    chat_template = "{# of letters #}"

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        """Render a conversation."""
        text = "".join(f"<{one['role']}>{one['content']}{END}\n" for one in conversation)
        return text + ("<assistant>" if options.get("add_generation_prompt") else "")

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return a token for each letter."""
        return [ord(letter) for letter in text]

    def decode(self, token_ids: Any, **options: Any) -> str:
        """Return a letter for each token."""
        return "".join(map(chr, token_ids)).replace(END, "")


@dataclass
class Model:
    """A model that takes a fixed time per call, and gives fixed replies.

    Attributes:
        call_s: Seconds of each call.
        turns: Replies of an average rollout.
        spread: How many more or fewer replies a rollout may have.
        is_coding: Whether the replies are Python code.
        calls: Number of calls so far.
        replies: Number of replies so far.
    """

    call_s: float
    turns: int
    spread: int
    is_coding: bool
    calls: int = 0
    replies: int = 0

    def __call__(self, sequences: list[list[int]]) -> tuple[list[list[int]], None]:
        """Reply to each sequence."""
        time.sleep(self.call_s)
        self.calls += 1
        self.replies += len(sequences)
        return [self._reply("".join(map(chr, one))) for one in sequences], None

    def _reply(self, text: str) -> list[int]:
        number = int(text.partition("task ")[2].partition(".")[0])
        turns = max(1, self.turns - self.spread + number % (2 * self.spread + 1))
        if self.is_coding:
            said = json.dumps({"name": "code", "arguments": {"code": "print(1)"}})
        else:
            said = "over" if text.count("<assistant>") >= turns else "on"
        return [ord(letter) for letter in said + END]


def in_waves(
    player: BatchPlayer,
    chat: Chat,
    starts: Sequence[EpisodeStart],
    model: Model,
    size: int,
    max_turns: int,
) -> list[TokenRollout]:
    """Play the rollouts in waves, as `BatchPlayer` did before resets overlapped."""

    async def begun(
        wave: Sequence[TokenRollout], its: Sequence[EpisodeStart]
    ) -> list[TokenRollout]:
        goes_on = await asyncio.gather(
            *(one.begin(start) for one, start in zip(wave, its, strict=True))
        )
        return [one for one, goes in zip(wave, goes_on, strict=True) if goes]

    async def acted(live: list[TokenRollout], replies: list[list[int]]) -> list[TokenRollout]:
        goes_on = await asyncio.gather(
            *(one.take(reply) for one, reply in zip(live, replies, strict=True))
        )
        return [one for one, goes in zip(live, goes_on, strict=True) if goes]

    while len(player._places) < size:
        player._places.append(background.run(player.sessions.take()))
    played: list[TokenRollout] = []
    for at in range(0, len(starts), size):
        its = starts[at : at + size]
        wave = [
            TokenRollout(session, chat, max_turns=max_turns)
            for session in player._places[: len(its)]
        ]
        live = background.run(begun(wave, its))
        while live:
            with player.meter.elsewhere():
                replies, _ = model([one.ids for one in live])
            live = background.run(acted(live, replies))
        for one in wave:
            one.settle()
        played += wave
    return played


def measure(way: str, environment: Any, given: argparse.Namespace) -> dict[str, float]:
    """Play the batches in one way; the first batch opens the sessions and does not count."""
    is_coding = given.env == "coding"
    max_turns = given.turns if is_coding else given.turns + given.spread
    player = BatchPlayer(
        environment, at_once=given.at_once, max_turns=max_turns, lockstep=way == "lockstep"
    )
    try:
        chat = Chat(Letters(), player.sessions.interface, "json" if is_coding else "text")
        model = Model(given.call, given.turns, given.spread, is_coding)
        for batch in range(given.batches + 1):
            if batch == 1:
                began, before = time.perf_counter(), player.meter.read()
                model.calls = model.replies = 0
            starts = [
                EpisodeStart(
                    [{"role": "user", "content": f"task {number}."}],
                    {"seed": batch * given.rollouts + number},
                )
                for number in range(given.at_once if batch == 0 else given.rollouts)
            ]
            if way == "waves":
                played = in_waves(player, chat, starts, model, given.at_once, max_turns)
            else:
                played = player.play(chat, starts, model)
            failures = [one.failure for one in played if one.failure is not None]
            assert not failures, failures[0]
        wall_s = time.perf_counter() - began
        cost = player.meter.read() - before
    finally:
        player.close()
    return {
        "wall_s": wall_s,
        "waited_s": cost.waited_s,
        "calls": model.calls,
        "of_a_call": model.replies / model.calls,
    }


@contextmanager
def environment_of(given: argparse.Namespace) -> Iterator[Any]:
    """Yield the environment to play in: an application or an address."""
    if given.env == "coding":
        from benchmarks.coding_resets import served

        with served("bubblewrap", given.at_once) as url:
            yield url
        return
    Naps.reset_s = given.reset
    from openenv import create_app

    yield create_app(Naps if given.env == "naps" else Queues, max_concurrent_envs=given.at_once)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", choices=("naps", "queues", "coding"), default="naps")
    parser.add_argument("--rollouts", type=int, default=512)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--spread", type=int, default=1, help="turns more or fewer")
    parser.add_argument("--call", type=float, default=0.2, help="seconds that a call takes")
    parser.add_argument("--reset", type=float, default=0.1, help="seconds that a reset takes")
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    with environment_of(given) as environment:
        for number in range(given.rounds):
            rounds.append({way: measure(way, environment, given) for way in WAYS})
            print(f"round {number + 1} of {given.rounds}: {rounds[-1]}", file=sys.stderr)
    rows = []
    for way in WAYS:
        row: dict[str, Any] = {"way": way}
        for name in ("wall_s", "waited_s", "calls", "of_a_call"):
            row[name] = statistics.median(one[way][name] for one in rounds)
        row["of_waves"] = statistics.median(
            one[way]["wall_s"] / one["waves"]["wall_s"] for one in rounds
        )
        rows.append(row)
    if given.json:
        print(json.dumps({**vars(given), "rows": rows}, indent=1))
        return
    print(
        f"{given.env}: {given.batches} batches of {given.rollouts}, {given.at_once} at once, "
        f"{given.turns} turns (+-{given.spread}), {given.call} s a call, {given.reset} s a reset\n"
    )
    print("| | seconds | of waves | waited for environments, s | calls | sequences a call |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['way']} | {row['wall_s']:.2f} | {row['of_waves']:.2f} "
            f"| {row['waited_s']:.2f} | {row['calls']:.0f} | {row['of_a_call']:.1f} |"
        )


if __name__ == "__main__":
    main()
