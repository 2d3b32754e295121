"""Journals: how much one holds, and what of it is left beyond that."""

from __future__ import annotations

import pytest
from support.memory import MIB, kept_below

from openenv.errors import InvalidSnapshot, NotSupported
from openenv.protocol.messages import Request
from openenv.protocol.snapshots import (
    JOURNAL,
    MAX_STEPS,
    Journal,
    JournalEntry,
    frame_of,
    read_journal,
    unwrap,
)

RESET = Request("reset", {"seed": 1})
STEP = Request("step", {"move": 1})


def begun() -> Journal:
    journal = Journal()
    journal.note(RESET, JournalEntry(frame_of(RESET)))
    return journal


def play(journal: Journal, steps: int) -> None:
    entry = JournalEntry(frame_of(STEP))
    for _ in range(steps):
        journal.note(STEP, entry)


def test_a_journal_holds_so_many_steps_and_no_more() -> None:
    """In its true size. The one beside it, and its own next episode, are kept as ever."""
    journal, neighbour = begun(), begun()
    play(neighbour, 2)
    with kept_below(64 * MIB):
        play(journal, MAX_STEPS)
        kind, body = unwrap(journal.write(1))
    assert kind == JOURNAL and len(read_journal(body, 1)) == 1 + MAX_STEPS

    play(journal, 1)
    with pytest.raises(
        NotSupported, match=r"more than 100000 steps.*keep_journal\(max_steps=\.\.\."
    ):
        journal.write(1)
    with kept_below(8 * MIB):
        play(journal, 2 * MAX_STEPS)  # of which none is kept
    assert journal._entries == []

    journal.note(RESET, JournalEntry(frame_of(RESET)))
    play(journal, 3)
    assert len(read_journal(unwrap(journal.write(1))[1], 1)) == 4
    assert len(read_journal(unwrap(neighbour.write(1))[1], 1)) == 3


def test_what_was_adopted_counts_too() -> None:
    journal = begun()
    play(journal, 5)
    entries = read_journal(unwrap(journal.write(1))[1], 1)
    shorter = Journal(max_steps=3)
    shorter.adopt(entries)
    play(shorter, 1)
    with pytest.raises(NotSupported, match="more than 3 steps"):
        shorter.write(1)


def test_a_journal_that_claims_more_than_it_holds_is_refused() -> None:
    """Its length is believed by nobody: four bytes would claim four thousand million entries."""
    claims = b"\x82\xa8protocol\x01\xa7entries\xdd\xff\xff\xff\xff"
    with kept_below(16 * MIB), pytest.raises(InvalidSnapshot, match="holds no journal"):
        read_journal(claims, 1)
