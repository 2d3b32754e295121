"""Snapshots of episodes, and their verification.

A snapshot has the setting, the seed and the actions of an episode. Restoring it replays the
actions, which must lead to the same result. A checkpoint of the emulator's state saves most of
the replay. But ALE does not verify the states that it reads, and wrong bytes overwrite the memory
of the process. So a snapshot has an authentication code (HMAC, RFC 2104), and a checkpoint without
the right code is not used.
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

# Maximum number of frames to replay for an episode of another server: seconds of CPU time.
_MAX_REPLAY_FRAMES = DEFAULT_MAX_FRAMES


class StoredCheckpoint(BaseModel):
    """A checkpoint, with the emulator's state as bytes."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    steps: int = Field(ge=1)
    frames: int = Field(ge=1)
    held: int = Field(ge=0)
    score: float
    state: bytes


class StoredEpisode(BaseModel):
    """A stored episode. `digest` is the hash that its replay must have."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    ale_version: str
    setting: AtariSetting
    seed: int = Field(ge=0, lt=2**32)
    actions: bytes
    digest: str
    checkpoint: StoredCheckpoint | None
    episode_id: str | None


def write(episode: Episode, episode_id: str | None) -> bytes:
    """Serialize an episode."""
    stored = StoredEpisode(
        ale_version=ale_py.__version__,
        setting=episode.setting,
        seed=episode.seed,
        actions=bytes(episode.actions),
        digest=episode.digest(),
        checkpoint=_store_checkpoint(episode.checkpoint),
        episode_id=episode_id,
    )
    body = stored.model_dump_json().encode()
    return _sign(body) + body


def read(data: bytes) -> StoredEpisode:
    """Read a stored episode, without the checkpoint if another server has written it.

    Raises:
        Refused: `write` did not write these bytes, or the replay would take too long.
    """
    code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
    try:
        stored = StoredEpisode.model_validate_json(body)
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise Refused(f"these bytes are not a stored episode of this environment: {what}") from None
    if hmac.compare_digest(code, _sign(body)):
        return stored
    frames = (len(stored.actions) - 1) * stored.setting.frameskip
    if frames >= _MAX_REPLAY_FRAMES:
        raise Refused(
            f"another server stored the episode; it has at least {frames} frames, of which "
            f"{_MAX_REPLAY_FRAMES} are played again at most; servers with the same {KEY_VARIABLE} "
            "do not replay"
        )
    return stored.model_copy(update={"checkpoint": None})


def resume(stored: StoredEpisode, console: Console) -> Episode:
    """Continue a stored episode on a console.

    Raises:
        Refused: The replay has another result than the stored episode.
    """
    checkpoint = _load_checkpoint(stored)
    if checkpoint is not None:
        episode = _replay_stored(stored, console, checkpoint)
        if episode.digest() == stored.digest:
            return episode
    episode = _replay_stored(stored, console, None)
    if episode.digest() != stored.digest:
        raise Refused(
            "the stored episode cannot be continued: its actions have another result here. It is "
            f"damaged, or its ALE {stored.ale_version} differs from ALE {ale_py.__version__}"
        )
    return episode


def _replay_stored(
    stored: StoredEpisode, console: Console, checkpoint: Checkpoint | None
) -> Episode:
    episode = Episode(console, stored.setting, stored.seed)
    try:
        episode.replay(stored.actions, checkpoint)
    except ValueError as error:
        raise Refused(f"the stored episode is not valid: {error}") from None
    return episode


def _store_checkpoint(checkpoint: Checkpoint | None) -> StoredCheckpoint | None:
    if checkpoint is None:
        return None
    return StoredCheckpoint.model_validate(
        {**checkpoint._asdict(), "state": checkpoint.state.serialize()}
    )


def _load_checkpoint(stored: StoredEpisode) -> Checkpoint | None:
    written = stored.checkpoint
    if written is None or stored.ale_version != ale_py.__version__:
        return None
    return Checkpoint(
        written.steps, written.frames, written.held, written.score, ALEState(written.state)
    )


def _sign(body: bytes) -> bytes:
    return hmac.digest(_signing_key(), body, "sha256")


@functools.cache
def _signing_key() -> bytes:
    """Return the key of the authentication codes: a shared secret, or a random one."""
    shared = os.environ.get(KEY_VARIABLE)
    return hashlib.sha256(shared.encode()).digest() if shared else secrets.token_bytes()
