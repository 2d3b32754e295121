"""The folder of a dataset: episodes are appended as whole lines."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pydantic_core import from_json, to_json
from typing_extensions import Self

from openenv._internal.replacing import replace_text
from openenv.rollouts.collect.records import EpisodeRecord
from openenv.rollouts.lines import LineFile, RolloutFileError, whole_lines

RESULTS_FILENAME, METADATA_FILENAME = "results.jsonl", "metadata.json"
README_FILENAME = "README.md"
ROLLOUTS_FILENAME, FAILURES_FILENAME = "rollouts.jsonl", "failures.jsonl"
SYNC_EVERY_S = 5.0

# The writer of each file in this process: the system's locks belong to open files, not to owners.
_WRITERS: WeakValueDictionary[str, RolloutSerializer] = WeakValueDictionary()
_TURNS = threading.RLock()


def read_records(path: Path) -> Iterator[EpisodeRecord]:
    """Yield the episodes of a file.

    An incomplete last line, left by a killed writer, is skipped.

    Raises:
        RolloutFileError: The file is damaged before the last line, or does not hold episodes.
    """
    for number, line in whole_lines(path):
        try:
            found = from_json(line)
            if not isinstance(found, dict):
                raise ValueError(f"expected an object, and it is {found!r:.100}")
            record = EpisodeRecord.of(found)
        except ValueError as error:
            why = f"this is no collected episode: {error}"
            raise RolloutFileError(str(path), number, why) from error
        yield record


class RolloutSerializer:
    """Writes the episodes of a dataset; closed by ``with``, or at the end of the process.

    Once `write_episode` has returned, its episode survives the end of the process. Only one process
    may write to a folder at a time. Writers in the same process take turns: each begins where the
    previous one has ended.

    Args:
        output_dir: The folder; created if missing.
    """

    def __init__(self, output_dir: Path | str) -> None:
        self.output_dir = Path(output_dir)
        self._file: LineFile | None = None
        self._ids: set[str] = set()

    @property
    def results_path(self) -> Path:
        """The file of the episodes."""
        return self.output_dir / RESULTS_FILENAME

    @property
    def metadata_path(self) -> Path:
        """The file that describes how the episodes were collected."""
        return self.output_dir / METADATA_FILENAME

    def open(self) -> None:
        """Open the file for writing and remove an incomplete last line. Idempotent.

        Raises:
            OSError: The file cannot be written to.
            RolloutFileError: Another process writes to the file, or it is damaged.
        """
        with _TURNS:
            if self._file is not None:
                return
            self.interrupt()
            file = LineFile(self.results_path)
            try:
                file.cut_torn_line()
                self._ids = self.collected_episode_ids()
                file.sync_directory()
            except BaseException:
                file.close()
                raise
            self._file = file
            _WRITERS[self._key] = self

    @property
    def _key(self) -> str:
        return os.path.realpath(self.results_path)

    def interrupt(self) -> None:
        """Close the serializer of this process that writes to the folder, if there is one."""
        with _TURNS:
            writer = _WRITERS.pop(self._key, None)
            if writer is not None:
                writer.close()

    def write_episode(self, record: EpisodeRecord) -> None:
        """Append an episode.

        Raises:
            OSError: The disk is full, for example. Nothing of the episode is in the file then.
            ValueError: The file already has an episode with this id.
            RolloutFileError: Another process writes to the file, or it is damaged.
        """
        line = to_json(record.to_dict(), inf_nan_mode="strings", fallback=str) + b"\n"
        with _TURNS:
            self.open()
            assert self._file is not None
            if record.episode_id in self._ids:
                raise ValueError(
                    f"{self.results_path} has an episode {record.episode_id!r} already"
                )
            self._file.append(line)
            self._ids.add(record.episode_id)
            if self._file.seconds_unsynced >= SYNC_EVERY_S:
                self._file.sync()

    def write_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the description of how the episodes were collected."""
        self.output_dir.mkdir(parents=True, exist_ok=True)
        text = json.dumps(metadata, indent=2, ensure_ascii=False, default=str)
        replace_text(self.metadata_path, f"{text}\n")

    def read_metadata(self) -> dict[str, Any]:
        """Return the description of how the episodes were collected; empty if there is none.

        Raises:
            RolloutFileError: The file is damaged.
        """
        if not self.metadata_path.exists():
            return {}
        try:
            found = from_json(self.metadata_path.read_bytes())
        except ValueError as error:
            raise RolloutFileError(
                str(self.metadata_path), None, f"it is damaged: {error}"
            ) from error
        return found if isinstance(found, dict) else {}

    def records(self) -> Iterator[EpisodeRecord]:
        """Yield the episodes of the dataset."""
        return read_records(self.results_path) if self.results_path.exists() else iter(())

    def collected_episode_ids(self) -> set[str]:
        """Return the ids of the episodes in the dataset.

        Raises:
            RolloutFileError: The file is damaged, or contains an id twice.
        """
        found: set[str] = set()
        for record in self.records():
            if record.episode_id in found:
                why = f"{record.episode_id!r} is in it twice"
                raise RolloutFileError(str(self.results_path), None, why)
            found.add(record.episode_id)
        return found

    def close(self) -> None:
        """Flush everything to the disk, and let others write. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def set_aside(path: Path) -> Path | None:
    """Rename an existing file with a time stamp; return the new path, or None if there is none."""
    if not path.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_suffix(f".{stamp}.bak{path.suffix}")
    number = 0
    while aside.exists():
        number += 1
        aside = path.with_suffix(f".{stamp}-{number}.bak{path.suffix}")
    path.rename(aside)
    return aside
