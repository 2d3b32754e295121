"""Frames between a server and its workers arrive whole, however the system cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv.execution.link import HEAD, READ_BUFFER_BYTES, FrameKind, Link

Frame = tuple[int, int, bytes, float]


def received(data: bytes, cuts: Sequence[int]) -> list[Frame]:
    """What a link makes of bytes that come in pieces, which end at `cuts`."""

    async def receive() -> list[Frame]:
        frames: list[Frame] = []
        link = Link(lambda *frame: frames.append(frame), lambda: None)
        places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(places):
            while start < end:
                buffer = link.get_buffer(-1)
                size = min(len(buffer), end - start)
                assert size, "the link takes no more"
                buffer[:size] = data[start : start + size]
                link.buffer_updated(size)
                start += size
        return frames

    return asyncio.run(receive())


def written(frames: Sequence[Frame]) -> bytes:
    return b"".join(
        HEAD.pack(len(data), session, kind, seconds) + data
        for kind, session, data, seconds in frames
    )


frames = st.lists(
    st.tuples(
        st.sampled_from(FrameKind),
        st.integers(0, 9),
        st.binary(max_size=40),
        st.sampled_from([0.0, 0.5]),
    ),
    max_size=6,
)


@given(frames, st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_whole_and_in_order_wherever_they_are_cut(
    sent: list[Frame], cuts: list[int]
) -> None:
    assert received(written(sent), cuts) == sent


@pytest.mark.parametrize("size", [READ_BUFFER_BYTES - HEAD.size, READ_BUFFER_BYTES, 10**6])
def test_a_frame_may_be_larger_than_the_buffer(size: int) -> None:
    sent: list[Frame] = [
        (FrameKind.VALUE, 1, b"before", 0.0),
        (FrameKind.BYTES, 2, b"x" * size, 0.5),
        (FrameKind.READY, 3, b"", 0.0),
    ]
    assert received(written(sent), [10, READ_BUFFER_BYTES]) == sent
