"""Snapshots of a client's episode: taking, restoring and forking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from openenv._internal.lazy import asyncio
from openenv.client import background
from openenv.errors import NotSupported, ProtocolError, ReplayDiverged, ServerError
from openenv.protocol.messages import ObservationReply, Reply, Request, SnapshotReply, StateReply
from openenv.protocol.snapshots import (
    NATIVE,
    Journal,
    JournalEntry,
    frame_of,
    read_journal,
    unwrap,
    wrap,
)

if TYPE_CHECKING:
    from openenv.client.client import EnvClient

    Client = EnvClient[Any, Any, Any]
    ClientT = TypeVar("ClientT", bound=Client)


async def take(client: Client, *, replay: bool) -> bytes:
    """Store the running episode; see `EnvClient.snapshot`."""
    if replay:
        return await _journal_of(client)
    await _connect(client, "snapshot")
    reply = await client._request(Request("snapshot"))
    if not isinstance(reply, SnapshotReply):
        raise ProtocolError(f"the server answered snapshot with {type(reply).__name__}")
    return wrap(NATIVE, reply.snapshot)


async def restore(client: Client, data: bytes) -> Any:
    """Restore a stored episode and return its state; see `EnvClient.restore`."""
    if client._scoring is not None:
        client._scoring.lose("the episode was restored, and its beginning is not known")
    kind, body = unwrap(data)
    if kind == NATIVE:
        return await _restore_native(client, body)
    if not client._session.is_connected:
        await client._connect_async()
    await _replay(client, read_journal(body, client._session.version))
    return await client._state_async()


async def fork(client: ClientT, count: int, *, replay: bool) -> list[ClientT]:
    """Open more sessions in the state of this one; see `EnvClient.fork`."""
    if not isinstance(count, int) or count < 0:
        raise ValueError(f"n={count!r}; it must be a whole number, not negative")
    data = await take(client, replay=replay)
    opened: list[ClientT] = []

    async def open_one() -> ClientT:
        one = await client._new_session_async()
        opened.append(one)
        await restore(one, data)
        return one

    opening = [asyncio.ensure_future(open_one()) for _ in range(count)]
    try:
        return await asyncio.gather(*opening)
    except BaseException:
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        closing = [one._close_async() for one in opened]
        await asyncio.shield(asyncio.gather(*closing, return_exceptions=True))
        raise


async def _connect(client: Client, feature: str) -> None:
    """Connect if needed, and check that the protocol version supports snapshots."""
    if not client._session.is_connected:
        await client._connect_async()
    if client._session.version == 0:
        raise NotSupported(
            "the server speaks protocol version 0, which has no snapshots. If seed and actions "
            "determine the environment, keep a journal and replay it: snapshot(replay=True), "
            "fork(n, replay=True)",
            feature=feature,
        )


async def _restore_native(client: Client, body: bytes) -> Any:
    await _connect(client, "restore")
    if client._journal is not None:
        client._journal.interrupt("it has been restored from a snapshot of the environment's own")
    reply = await client._request(Request("restore", {"snapshot": body}))
    if not isinstance(reply, StateReply):
        raise ProtocolError(f"the server answered restore with {type(reply).__name__}")
    return client._parse_state(reply.state)


# ------------------------------------------------------------------ journals


async def _journal_of(client: Client) -> bytes:
    journal = client._journal
    if journal is None:
        raise NotSupported(
            "this client keeps no journal; make it with journal=True, or call keep_journal() "
            "before reset",
            feature="replay",
        )
    await client._session.settle()
    unanswered = client._session.unanswered()
    if unanswered is not None:
        raise NotSupported(
            f"this session cannot be replayed now: a {unanswered} was not answered before its "
            "caller stopped waiting; ask again with the same action, or call reset()",
            feature="replay",
        )
    return journal.write(client._session.version)


async def journaled(
    client: Client, journal: Journal, request: Request, timeout_s: float | None
) -> Reply:
    """Send a request, and record the request and its outcome in the journal."""
    frame = frame_of(request)
    try:
        reply: Reply = await client._request(request, timeout_s)
        if isinstance(reply, ObservationReply) and not client._session.is_repeated:
            journal.note(request, JournalEntry.of(frame, reply.payload))
    except ServerError as error:
        if not client._session.is_repeated:
            journal.note(request, _failed(journal, frame, error))
        raise
    except BaseException:
        if client._session.unanswered() is None:  # otherwise the repeated request records it
            journal.interrupt(f"a {request.type} was not answered")
        raise
    return reply


def _failed(journal: Journal, frame: bytes, error: ServerError) -> JournalEntry:
    try:
        return JournalEntry.of(frame, error)
    except ServerError:
        journal.interrupt(f"the server could not carry out a request ({error.code})")
        raise


async def _replay(client: Client, entries: list[JournalEntry]) -> None:
    """Repeat the requests of a journal, and check that the outcomes are the same."""
    requests = [entry.request() for entry in entries]  # all are read before the first is sent
    journal = client._journal
    if journal is not None:
        journal.interrupt("another journal's replay did not come to its end")
    try:
        for step, (request, entry) in enumerate(zip(requests, entries, strict=True)):
            try:
                reply = await client._request(request)
                again = JournalEntry.of(entry.frame, reply.payload)
            except ServerError as error:
                again = JournalEntry.of(entry.frame, error)
            what = entry.difference(again)
            if what is not None:
                diverged = ReplayDiverged(step, what)
                await client._session.end_episode("the replay of another session went another way")
                raise diverged
    except BaseException:
        client._session.lose_episode("the replay of another session did not come to its end")
        raise
    client._session.remote.episode_began_at = None  # the episode is older than the replay's `reset`
    background.hold(None)  # no caller owns these answers: a caller that retries replays everything
    if journal is not None:
        journal.adopt(entries)
