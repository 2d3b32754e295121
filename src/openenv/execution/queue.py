"""The queue for free slots.

Clients take turns, however many sessions each of them wants: a client that asks for a thousand does
not make another client wait for all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from operator import itemgetter

import msgspec

from openenv.protocol.v1.messages import HEARTBEAT_S

# Interval of position reports while positions change; otherwise it is HEARTBEAT_S.
REPORT_S = 0.5

Report = Callable[[int, int], None]


class QueuePlace(msgspec.Struct, eq=False):
    """A place in the queue.

    Attributes:
        client: The client that takes turns with others.
        report: Called with the position, from 1, and the length of the queue.
        granted: Done once it is this place's turn; the slot is then taken.
        reported: The position that was last reported.
    """

    client: Hashable
    report: Report | None
    granted: asyncio.Future[None]
    reported: int = 0
    reported_at: float = 0.0


class FairQueue:
    """The queue of places of several clients, which take turns."""

    def __init__(self) -> None:
        # Removal from the front and from anywhere else takes constant time.
        self._lines: OrderedDict[Hashable, OrderedDict[QueuePlace, None]] = OrderedDict()
        self._length = 0
        self._reporting: asyncio.Handle | None = None
        self._reporting_at = 0.0  # uvloop's handles do not give the time if the delay is 0

    def __len__(self) -> int:
        return self._length

    def join(self, client: Hashable, report: Report | None = None) -> QueuePlace:
        """Join the queue. `report` is called at once, after changes, and every `HEARTBEAT_S`."""
        place = QueuePlace(client, report, asyncio.get_running_loop().create_future())
        self._lines.setdefault(client, OrderedDict())[place] = None
        self._length += 1
        self._report_later(0.0)
        return place

    def leave(self, place: QueuePlace) -> None:
        """Give up a place, unless it has already been taken out."""
        line = self._lines.get(place.client)
        if line is not None and place in line:
            del line[place]
            self._length -= 1
            self._drop_empty(place.client)
            self._report_later(REPORT_S)

    def next(self) -> QueuePlace:
        """Take out and return the next place."""
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
        """Return all places, in the order of their turns."""
        turns = [turn for line in self._lines.values() for turn in enumerate(line)]
        turns.sort(key=itemgetter(0))  # stable, so clients with the same turn keep their order
        return [place for _, place in turns]

    # ------------------------------------------------------------------ position reports

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
