"""Write a dataset for SkyRL, in which each row is a hand of blackjack with its own seed.

python rows.py COUNT FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PROMPT = [{"role": "user", "content": "Play a hand of blackjack: hit or stand."}]


def write(path: Path, seeds: range) -> None:
    """Write a row for each seed."""
    rows = [{"prompt": PROMPT, "env_class": "blackjack", "seed": seed} for seed in seeds]
    pq.write_table(pa.Table.from_pylist(rows), path)


def main(count: int, folder: Path) -> None:
    """Write the given number of training rows, and a tenth as many for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "train.parquet", range(count))
    write(folder / "validation.parquet", range(count, count + max(1, count // 10)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
