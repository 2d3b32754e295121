"""Write a dataset for verl: each row is a hand of blackjack, which its seed tells apart.

python rows.py COUNT FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PROMPT = [{"role": "user", "content": "Play a hand of blackjack: hit or stand."}]


def write(path: Path, seeds: range) -> None:
    """Write rows of these seeds."""
    rows = [
        {"prompt": PROMPT, "extra_info": {"seed": seed}, "data_source": "blackjack"}
        for seed in seeds
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def main(count: int, folder: Path) -> None:
    """Write so many rows to train by, and a tenth of that to validate by."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "train.parquet", range(count))
    write(folder / "validation.parquet", range(count, count + max(1, count // 10)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
