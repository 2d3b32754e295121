"""Stored episodes: what is written, and what is believed of it.

An episode is stored as its setting, its seed and its actions, which anybody may read: they are
played again, and have to come to the same. A checkpoint of the emulator, which saves most of that,
goes with them. But ALE believes whatever it reads: bytes of a checkpoint that are wrong overwrite
the memory of the process. So what is stored bears a code of authentication (HMAC, RFC 2104), and a
checkpoint without the right one is not looked at.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets

import ale_py
from ale_py import ALEState
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv.errors import Refused

from ..models import DEFAULT_MAX_FRAMES, AtariSetting
from .episode import Checkpoint, Episode
from .games import Console

__all__ = ["KEY_VARIABLE", "StoredEpisode", "read", "resume", "write"]

KEY_VARIABLE = "ATARI_SNAPSHOT_KEY"

_CODE_BYTES = hashlib.sha256().digest_size

# Frames of an episode of another server that are played again: seconds of a processor's time.
_LONGEST_REPLAY = DEFAULT_MAX_FRAMES


class StoredCheckpoint(BaseModel):
    """A checkpoint, with the emulator's state as bytes."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    steps: int = Field(ge=1)
    frames: int = Field(ge=1)
    held: int = Field(ge=0)
    score: float
    state: bytes


class StoredEpisode(BaseModel):
    """A stored episode; `digest` is what it has to come to."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    ale_version: str
    setting: AtariSetting
    seed: int = Field(ge=0, lt=2**32)
    actions: bytes
    digest: str
    checkpoint: StoredCheckpoint | None
    episode_id: str | None


def write(episode: Episode, episode_id: str | None) -> bytes:
    """Write an episode down."""
    stored = StoredEpisode(
        ale_version=ale_py.__version__,
        setting=episode.setting,
        seed=episode.seed,
        actions=bytes(episode.actions),
        digest=episode.digest(),
        checkpoint=_stored(episode.checkpoint),
        episode_id=episode_id,
    )
    body = stored.model_dump_json().encode()
    return _code(body) + body


def read(data: bytes) -> StoredEpisode:
    """Read what `write` has written, here or elsewhere; elsewhere, without its checkpoint.

    Raises:
        Refused: It has not written this, or it would take too long to play it again.
    """
    code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
    try:
        stored = StoredEpisode.model_validate_json(body)
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise Refused(f"these bytes are no stored episode of this environment: {what}") from None
    if hmac.compare_digest(code, _code(body)):
        return stored
    frames = (len(stored.actions) - 1) * stored.setting.frameskip
    if frames >= _LONGEST_REPLAY:
        raise Refused(
            f"the episode was stored by another server, and has {frames} frames or more, of which "
            f"{_LONGEST_REPLAY} are played again; servers with the same {KEY_VARIABLE} need not"
        )
    return stored.model_copy(update={"checkpoint": None})


def resume(stored: StoredEpisode, console: Console) -> Episode:
    """Bring a console to where a stored episode stands.

    Raises:
        Refused: Its actions lead elsewhere.
    """
    checkpoint = _checkpoint(stored)
    if checkpoint is not None:
        episode = _played(stored, console, checkpoint)
        if episode.digest() == stored.digest:
            return episode
    episode = _played(stored, console, None)
    if episode.digest() != stored.digest:
        raise Refused(
            "the stored episode cannot be continued: its actions lead elsewhere here. It is "
            f"damaged, or its ALE {stored.ale_version} plays otherwise than {ale_py.__version__}"
        )
    return episode


def _played(stored: StoredEpisode, console: Console, checkpoint: Checkpoint | None) -> Episode:
    episode = Episode(console, stored.setting, stored.seed)
    try:
        episode.play_again(stored.actions, checkpoint)
    except ValueError as error:
        raise Refused(f"the stored episode is none: {error}") from None
    return episode


def _stored(checkpoint: Checkpoint | None) -> StoredCheckpoint | None:
    if checkpoint is None:
        return None
    return StoredCheckpoint.model_validate(
        {**checkpoint._asdict(), "state": checkpoint.state.serialize()}
    )


def _checkpoint(stored: StoredEpisode) -> Checkpoint | None:
    written = stored.checkpoint
    if written is None or stored.ale_version != ale_py.__version__:
        return None
    return Checkpoint(
        written.steps, written.frames, written.held, written.score, ALEState(written.state)
    )


def _code(body: bytes) -> bytes:
    return hmac.digest(_key(), body, "sha256")


@functools.cache
def _key() -> bytes:
    """What other servers do not know, unless they were told."""
    shared = os.environ.get(KEY_VARIABLE)
    return hashlib.sha256(shared.encode()).digest() if shared else secrets.token_bytes()
