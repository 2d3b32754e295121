"""Frames are kept until the other side has them: none is lost, none comes twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv.errors import ProtocolError
from openenv.protocol.v1.connection import OVERHEAD_BYTES, ResendBuffer


@given(st.data())
def test_what_the_other_side_lacks_is_what_it_has_not_received(data: st.DataObject) -> None:
    """Whatever it has received and said so: the rest is sent again, in order."""
    ledger, sent, received = ResendBuffer(), list[bytes](), 0
    for number in range(data.draw(st.integers(1, 12))):
        sent.append(b"%d" % number * (number % 3 + 1))
        ledger.keep(sent[-1])
        received = data.draw(st.integers(received, len(sent)))
        if data.draw(st.booleans()):
            ledger.acknowledge(received)
            kept = sent[received:]
            assert ledger.kept_bytes == sum(map(len, kept)) + len(kept) * OVERHEAD_BYTES
    assert ledger.missing(received) == sent[received:]
    assert ledger.acknowledged == received


def test_more_cannot_have_come_than_was_sent() -> None:
    ledger = ResendBuffer()
    ledger.keep(b"one")
    with pytest.raises(ProtocolError, match="2 frames are said to have come, of 1 sent"):
        ledger.acknowledge(2)


def test_what_was_acknowledged_is_gone() -> None:
    ledger = ResendBuffer()
    ledger.keep(b"one")
    ledger.keep(b"two")
    ledger.acknowledge(2)
    with pytest.raises(ProtocolError, match="they are gone"):
        ledger.missing(1)


def test_what_is_forgotten_counts_as_received() -> None:
    ledger = ResendBuffer()
    ledger.keep(b"one")
    ledger.forget()
    ledger.keep(b"two")
    assert (ledger.acknowledged, ledger.missing(1)) == (1, [b"two"])
