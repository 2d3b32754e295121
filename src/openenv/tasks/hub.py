"""Tasksets from data sets on the Hugging Face Hub, pinned to a commit.

A reference is ``hf://datasets/ORG/NAME``, optionally followed by ``/ENVIRONMENT``, the id of an
environment that the data set's ``environment.yaml`` declares, and by ``@REVISION``. Only the
configuration and the splits are read from that file (RFC 006, "HF RL Environment Datasets"),
because a data set must not decide what code runs an environment.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openenv._internal.packages import needs
from openenv._internal.quoting import did_you_mean
from openenv._internal.yaml import UnreadableYAML, read_yaml
from openenv.tasks.load import TaskSource
from openenv.tasks.rows import TABLES, TableRows, digest_of_parts
from openenv.tasks.task import TasksetError

logger = logging.getLogger(__name__)

REFERENCE = re.compile(
    r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:/(?P<environment>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?"
)
COMMIT = re.compile(r"[0-9a-f]{40}")
MANIFEST = "environment.yaml"


class DataSetEnvironment(NamedTuple):
    """An environment that a data set declares.

    Attributes:
        config: The configuration that holds the tasks; None for the default configuration.
        splits: The environment's splits; empty for all splits of the configuration.
    """

    config: str | None
    splits: tuple[str, ...]


def open_hub(
    reference: str, split: str | None, revision: str | None, config: str | None
) -> TaskSource:
    """Open a data set on the Hub; see `openenv.tasks.load_tasks`."""
    parts = REFERENCE.fullmatch(reference)
    if parts is None:
        why = "expected hf://datasets/ORG/NAME, optionally with /ENVIRONMENT and @REVISION"
        raise TasksetError(reference, None, why)
    if revision is not None and parts["revision"] is not None:
        raise TasksetError(reference, None, f"names a revision; omit revision={revision!r}")
    if config is not None and parts["environment"] is not None:
        raise TasksetError(reference, None, "the environment fixes the configuration; omit config=")
    data_set = _HubDataset(reference.partition("@")[0], parts["repo"])
    commit = data_set.pin(revision or parts["revision"])
    declared = DataSetEnvironment(config, ())
    if parts["environment"] is not None:
        declared = read_environment(data_set.manifest(), parts["environment"])
    splits = declared.splits or data_set.splits(declared.config)
    return TaskSource(
        data_set.name, tuple(splits), lambda split: data_set.rows(declared.config, split), commit
    )


class _HubDataset:
    """A data set on the Hub, pinned to a commit."""

    def __init__(self, name: str, repo: str) -> None:
        with needs("a data set of the hub", TABLES):
            import datasets
            import huggingface_hub
        self.name = name
        self._repo = repo
        self._commit = ""
        self._datasets: Any = datasets
        self._hub: Any = huggingface_hub

    def pin(self, revision: str | None) -> str:
        """Resolve a revision to a commit, and read only that commit from now on."""
        if revision is not None and COMMIT.fullmatch(revision):
            self._commit = revision
            return revision
        found = self._call_hub(
            lambda: self._hub.HfApi().dataset_info(self._repo, revision=revision)
        )
        self._commit = str(found.sha)
        if revision is None:
            logger.warning(
                "%s: no revision was given; it is pinned to %s. To have the same tasks next time, "
                "write revision=%r",
                self.name,
                self._commit,
                self._commit,
            )
        return self._commit

    def manifest(self) -> Path:
        """Download the data set's ``environment.yaml`` and return the local path."""
        download = self._hub.hf_hub_download
        at = {"repo_type": "dataset", "revision": self._commit}
        return Path(self._call_hub(lambda: download(self._repo, MANIFEST, **at)))

    def splits(self, config: str | None) -> Sequence[str]:
        """Return the splits of a configuration."""
        names = self._datasets.get_dataset_split_names
        found: Sequence[str] = self._call_hub(
            lambda: names(self._repo, config, revision=self._commit)
        )
        return found

    def rows(self, config: str | None, split: str) -> TableRows:
        """Return the rows of a split."""
        load = self._datasets.load_dataset
        table = self._call_hub(lambda: load(self._repo, config, split=split, revision=self._commit))
        digest = digest_of_parts(self._repo, self._commit, table.info.config_name, split)
        return TableRows(self.name, table, digest)

    def _call_hub(self, ask: Callable[[], Any]) -> Any:
        errors = (
            OSError,
            ValueError,
            self._hub.errors.HfHubHTTPError,
            self._datasets.exceptions.DatasetsError,
        )
        try:
            return ask()
        except errors as error:
            raise TasksetError(self.name, None, f"cannot be loaded: {error}") from error


def read_environment(path: Path, environment: str) -> DataSetEnvironment:
    """Read an environment's declaration from an ``environment.yaml``.

    Raises:
        TasksetError: The file is not valid, or does not declare the environment.
    """
    try:
        content, _ = read_yaml(path.read_text(encoding="utf-8"))
    except (UnreadableYAML, UnicodeDecodeError) as error:
        raise TasksetError(MANIFEST, None, f"is not valid YAML: {error}") from error
    listed = content.get("environments") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise TasksetError(MANIFEST, None, "environments: expected a list of objects")
    by_id = {str(one.get("id")): one for one in listed}
    found = by_id.get(environment)
    if found is None:
        hint = did_you_mean(environment, by_id)
        why = f"declares no environment {environment!r}; expected one of {', '.join(by_id)}{hint}"
        raise TasksetError(MANIFEST, None, why)
    config, splits = found.get("config_name"), found.get("splits") or []
    if not (config is None or isinstance(config, str)):
        raise TasksetError(MANIFEST, environment, "config_name: expected a string")
    if not (isinstance(splits, list) and all(isinstance(one, str) for one in splits)):
        raise TasksetError(MANIFEST, environment, "splits: expected a list of names")
    return DataSetEnvironment(config, tuple(splits))
