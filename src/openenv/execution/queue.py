"""The queue for free slots.

Clients take turns, however many sessions each of them wants: one that asks for a thousand does not
make another wait for all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from operator import itemgetter

import msgspec

from openenv.protocol.v1.messages import HEARTBEAT_S

# How often those who wait are told where they stand, if that has changed; else it is HEARTBEAT_S.
REPORT_S = 0.5

Report = Callable[[int, int], None]


class QueuePlace(msgspec.Struct, eq=False):
    """A place in the queue.

    Attributes:
        client: The client whose turn it will be.
        report: Called with the position, from 1, and the length of the queue.
        granted: Done once it is one's turn; the slot is taken then.
        reported: The position that was reported last.
    """

    client: Hashable
    report: Report | None
    granted: asyncio.Future[None]
    reported: int = 0
    reported_at: float = 0.0


class FairQueue:
    """The places of several clients, which take turns."""

    def __init__(self) -> None:
        # What is taken from the front or from anywhere is found at once, however many wait.
        self._lines: OrderedDict[Hashable, OrderedDict[QueuePlace, None]] = OrderedDict()
        self._length = 0
        self._reporting: asyncio.Handle | None = None
        self._reporting_at = 0.0  # uvloop's handles do not tell, where the delay is 0

    def __len__(self) -> int:
        return self._length

    def join(self, client: Hashable, report: Report | None = None) -> QueuePlace:
        """Take a place. `report` is called at once, when the position changes, and now and then."""
        place = QueuePlace(client, report, asyncio.get_running_loop().create_future())
        self._lines.setdefault(client, OrderedDict())[place] = None
        self._length += 1
        self._report_later(0.0)
        return place

    def leave(self, place: QueuePlace) -> None:
        """Give up a place, unless the place is taken out already."""
        line = self._lines.get(place.client)
        if line is not None and place in line:
            del line[place]
            self._length -= 1
            self._drop_empty(place.client)
            self._report_later(REPORT_S)

    def next(self) -> QueuePlace:
        """Take out the next place."""
        client, line = next(iter(self._lines.items()))
        place, _ = line.popitem(last=False)
        self._length -= 1
        self._lines.move_to_end(client)
        self._drop_empty(client)
        self._report_later(REPORT_S)
        return place

    def _drop_empty(self, client: Hashable) -> None:
        if not self._lines[client]:
            del self._lines[client]

    def order(self) -> list[QueuePlace]:
        """List all places, in the order of the turns."""
        turns = [turn for line in self._lines.values() for turn in enumerate(line)]
        turns.sort(key=itemgetter(0))  # clients whose turn is the same stay in their order
        return [place for _, place in turns]

    # ------------------------------------------------------------------ telling where one stands

    def _report_later(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if self._reporting is not None and self._reporting_at > due:
            self._reporting.cancel()
            self._reporting = None
        if self._reporting is None:
            self._reporting_at = due
            self._reporting = loop.call_at(due, self._report)

    def _report(self) -> None:
        self._reporting = None
        now = asyncio.get_running_loop().time()
        for position, place in enumerate(self.order(), start=1):
            is_news = position != place.reported or now - place.reported_at >= HEARTBEAT_S
            if place.report is not None and is_news:
                place.reported, place.reported_at = position, now
                place.report(position, self._length)
        if self._length:
            self._report_later(HEARTBEAT_S)

    def stop(self) -> None:
        """Report no more positions."""
        if self._reporting is not None:
            self._reporting.cancel()
            self._reporting = None
