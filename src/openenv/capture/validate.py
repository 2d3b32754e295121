"""Checks of captured calls before they are used for training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from openenv.capture.graph import RolloutGraph, TrainingSequence

__all__ = ["FATAL", "INFO", "WARN", "Finding", "Report", "check_rollout", "check_sequence"]

FATAL = "FATAL"
WARN = "WARN"
INFO = "INFO"

# Values that leave the model's own distribution unchanged.
_NEUTRAL = {
    "top_p": (1, 1.0),
    "top_k": (0, -1),
    "min_p": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
}


@dataclass(frozen=True)
class Finding:
    """A result of a check.

    Attributes:
        level: ``FATAL`` (not fit for training), ``WARN`` or ``INFO``.
        code: The kind of finding.
        detail: A description, as text.
    """

    level: str
    code: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.level}] {self.code}: {self.detail}"


@dataclass
class Report:
    """A list of findings."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, level: str, code: str, detail: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(level, code, detail))

    @property
    def fatal(self) -> list[Finding]:
        """Return the fatal findings."""
        return [one for one in self.findings if one.level == FATAL]

    @property
    def ok(self) -> bool:
        """True if there are no fatal findings."""
        return not self.fatal

    def text(self) -> str:
        """Return all findings, one per line."""
        return "\n".join(map(str, self.findings))


def check_rollout(
    graph: RolloutGraph, *, capture_level: str = "tokens", budget_stop_count: int = 0
) -> Report:
    """Check the calls of a session and report findings."""
    report, nodes, stats = Report(), graph.nodes(), graph.stats()
    if not nodes:
        report.add(FATAL, "no_turns", "no call was answered: the agent never reached the model")
        return report
    if capture_level == "tokens":
        lacking = [node for node in nodes if not node.has_tokens]
        if lacking:
            why = lacking[0].no_tokens or "no log-probabilities"
            detail = f"{len(lacking)} of {len(nodes)} calls (call {lacking[0].index}: {why})"
            report.add(FATAL if len(lacking) == len(nodes) else WARN, "no_tokens", detail)
        distorted = [names for node in nodes if (names := find_distortions(node.sampling_params))]
        if distorted:
            report.add(
                WARN,
                "bent_sampling",
                f"{len(distorted)} calls were not sampled from the model's own distribution "
                f"({', '.join(sorted(set().union(*distorted)))}); give the session sampling=, "
                "which overrides the agent's",
            )
    for number, code, detail in (
        (stats["n_roots"] - 1, "multiple_roots", f"{stats['n_roots']} conversations"),
        (stats["n_forks"], "forks", f"{stats['n_forks']} calls have several continuations"),
        (stats["n_discarded"], "discarded_turns", f"{stats['n_discarded']} were asked again"),
        (budget_stop_count, "budget_stops", f"{budget_stop_count} calls were told to stop"),
    ):
        if number:
            report.add(INFO, code, detail)
    rerendered = [node for node in nodes if node.rerendered]
    if rerendered:
        told = f"in {len(rerendered)} calls the history was rendered in other tokens than sampled"
        report.add(INFO, "rerendered", told)
    return report


def check_sequence(sequence: TrainingSequence, *, min_trainable: int = 1) -> Report:
    """Check whether a sequence is fit for training, with at least `min_trainable` tokens."""
    report = Report()
    if not sequence.input_ids:
        report.add(FATAL, "no_tokens", "its tokens are unknown")
        return report
    if sequence.n_trainable < min_trainable:
        report.add(FATAL, "nothing_to_train_on", f"{sequence.n_trainable} tokens of the model")
    if sequence.prompt_len < 1:
        report.add(FATAL, "no_prompt", "its prompt is unknown")
    lengths = {len(sequence.input_ids), len(sequence.loss_mask), len(sequence.logprobs)}
    if len(lengths) != 1:
        report.add(FATAL, "lengths", "tokens, mask and log-probabilities differ in length")
    if not all(-math.inf < value <= 0 for value in sequence.logprobs):
        report.add(FATAL, "logprobs", "a log-probability is above 0 or not finite")
    return report


def find_distortions(sampling: dict[str, Any]) -> list[str]:
    """Return the sampling parameters that distort the model's own distribution."""
    names = [name for name, fine in _NEUTRAL.items() if sampling.get(name, fine[0]) not in fine]
    names += [name for name, value in sampling.items() if value is True]
    return names + (["temperature"] if sampling.get("temperature") == 0 else [])
