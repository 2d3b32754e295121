"""What was found by fuzzing stays mended, and a few changes of each input break nothing either.

``make fuzz`` looks for more; see `fuzz.run`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.amounts import amount

from fuzz.invariants import Watch
from fuzz.targets import TARGETS, Target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]


@pytest.fixture(scope="module")
def watch(target: Target) -> Iterator[Watch]:
    with target.open() as opened:
        for seed in target.inputs():  # what is imported for them costs once
            opened.run(seed)
        yield opened


@pytest.mark.slow("its largest inputs take 15 s of processor time, with memory traced")
@pytest.mark.timeout(240)  # as that may be a minute and more on a busy machine
def test_nothing_that_was_found_is_wrong_again(target: Target, watch: Watch) -> None:
    for data in target.inputs():
        watch(data)


def test_changed_a_little_they_break_nothing(target: Target, watch: Watch) -> None:
    inputs = target.inputs()
    chance = random.Random(target.name)  # the same ones each time
    for _ in range(amount(2000, 100)):
        data = changed(chance.choice(inputs), chance.choice(inputs), chance)
        try:
            watch(data)
        except BaseException:
            print(f"the input was {data!r}")  # noqa: T201  # of a test that fails
            raise


def changed(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """A few bytes of an input changed, left out, repeated, or put in from another."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(found) + 1)
        length = chance.choice((0, 1, 1, 2, 4, 8))
        place = slice(start, start + length)
        match chance.randrange(5):
            case 0:
                found[place] = chance.randbytes(length)
            case 1:
                del found[place]
            case 2:
                found[start:start] = found[place] * chance.randint(1, 20)
            case 3:
                begin = chance.randrange(len(other) + 1)
                found[start:start] = other[begin : begin + chance.randint(1, 60)]
            case _:
                found[place] = chance.choice((b"\x00", b"\xff", b"-1", b"1e999", b"{", b"\xdf"))
    return bytes(found)
