"""`openenv demo`: a policy that learns blackjack within a minute."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from openenv.cli._console import CommandError, describe_error, emit
from openenv.cli._options import option, takes_options

# Required modules, with names for people.
NEEDED = {
    "pyspiel": "OpenSpiel",
    "openspiel_env.blackjack": "its environment",
    "matplotlib": "matplotlib",
}


@dataclass(frozen=True)
class DemoOptions:
    """The sizes of a demo and the directory of the files."""

    hands: int = option(40_000, min=1, help="Number of hands to train on.")
    sessions: int = option(64, min=1, help="Number of sessions that run at once.")
    seed: int = option(0, min=0, help="Seed of the cards and the policy.")
    evaluation_hands: int = option(
        10_000, min=2, help="Number of hands to measure the policy on, before and after training."
    )
    output_dir: Path = option(
        Path("outputs/demo"), "-o", help="Write the plot and the episodes to this directory."
    )

    @property
    def curve(self) -> Path:
        """Return the path of the learning curve's plot."""
        return self.output_dir / "learning_curve.png"

    @property
    def episodes(self) -> Path:
        """Return the path of the training hands, as JSON lines."""
        return self.output_dir / "episodes.jsonl"


@takes_options
def demo(
    *, plan: DemoOptions, as_json: bool = option(False, "--json", help="Print the result as JSON.")
) -> None:
    """Train a policy on blackjack, live, against OpenSpiel in another process.

    Examples:
        openenv demo
        openenv demo --hands 5000 --sessions 16 --output-dir outputs/short
    """
    _check_needed()
    from openenv.cli import _demo
    from openenv.errors import OpenEnvError

    try:
        outcome = _demo.run(plan)
    except (OpenEnvError, OSError) as error:
        raise CommandError(describe_error(error)) from error
    _demo.show(plan, outcome)
    if as_json:
        emit(_demo.as_data(plan, outcome))
    if not outcome.has_learned:
        raise CommandError(
            "the learned player wins no more than a random one",
            hint="let it play more: --hands 40000",
        )


def _check_needed() -> None:
    missing = [what for module, what in NEEDED.items() if not _is_installed(module)]
    if missing:
        raise CommandError(
            f"the demo needs what is not installed: {', '.join(missing)}",
            hint="pip install matplotlib open_spiel, and the package envs/openspiel_env of the "
            "repository; `make demo` there does it all",
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False
