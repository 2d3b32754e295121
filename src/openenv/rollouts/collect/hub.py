"""Upload of a dataset to the Hugging Face Hub, without the private files of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openenv._internal.packages import needs
from openenv._internal.redaction import holds_secret
from openenv.errors import OpenEnvError
from openenv.rollouts.collect.card import write_card
from openenv.rollouts.collect.serializer import (
    METADATA_FILENAME,
    README_FILENAME,
    RESULTS_FILENAME,
    RolloutSerializer,
)
from openenv.rollouts.collect.tables import TABLE_FILENAME, write_table

UPLOADED = (RESULTS_FILENAME, METADATA_FILENAME, README_FILENAME, TABLE_FILENAME)


class DatasetHubError(OpenEnvError, RuntimeError):
    """A dataset could not be uploaded to the Hub; the message gives reason and remedy."""


def check_uploads() -> None:
    """Check, before anything is played, that huggingface_hub is installed."""
    with needs("a dataset of the hub", "pip install 'openenv[hf]'"):
        import huggingface_hub  # noqa: F401


def push_to_hf_hub(
    output_dir: Path | str,
    repo_id: str,
    *,
    private: bool = False,
    commit_message: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a dataset to the Hub as one commit; return the address.

    Unchanged files are not sent again, so calling this function again continues an interrupted
    upload. A card that a user has written is left as it is.

    Args:
        output_dir: The folder of the dataset.
        repo_id: ``NAME``, in the namespace of the token's owner, or ``ORG/NAME``; created if
            missing.
        private: Make the repository private if it is created.
        commit_message: The message of the commit.
        token: A token of the Hub. Default: that of HF_TOKEN or ``hf auth login``.

    Raises:
        MissingPackage: huggingface_hub is not installed.
        DatasetHubError: There is nothing to upload, a file to upload contains a secret, or the Hub
            refuses the upload or cannot be reached.
        RolloutFileError: A file of the folder is damaged.
    """
    from openenv.hub.client import Hub
    from openenv.hub.errors import HubError as Refused

    folder = Path(output_dir)
    episodes = len(RolloutSerializer(folder).collected_episode_ids())
    if not episodes:
        raise DatasetHubError(
            f"{folder} has no episode to upload; expected some in {RESULTS_FILENAME}"
        )
    if (folder / TABLE_FILENAME).exists():  # it may be older than the episodes
        write_table(folder / RESULTS_FILENAME, folder / TABLE_FILENAME)
    write_card(folder)
    hub = Hub(token=token)
    found = [name for name in UPLOADED if (folder / name).is_file()]
    for name in found:
        for line in secrets_in(folder / name):
            raise DatasetHubError(
                f"{folder / name}, line {line} holds what looks like a secret of this machine; "
                "nothing was uploaded: remove it there, and from where it came"
            )
    message = commit_message or f"{episodes:,} episodes collected with OpenEnv"
    try:
        dataset = hub.make_dataset(repo_id, private=private)
        hub.upload(dataset, folder, found, message=message, kind="dataset")
    except Refused as error:
        raise DatasetHubError(f"{error}; {error.hint}" if error.hint else str(error)) from error
    return hub.page(dataset, "dataset")


def secrets_in(path: Path) -> Iterator[int]:
    """Yield the numbers of lines in a file that contain a secret of this process.

    The table is skipped: it is made from lines that are checked themselves.
    """
    if path.name == TABLE_FILENAME:
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if holds_secret(line):
                yield number
