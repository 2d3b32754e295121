"""GRPO on blackjack with Lightning Fabric, on one or more devices; see README.md."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import CSVLogger
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup

from openenv.integrations.lightning import GRPO, GRPOSettings

PROMPT = 'Play this hand of blackjack. Say {"action": "hit"} or {"action": "stand"}.'


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a model's name on the Hub, or a folder")
    parser.add_argument("--environment", default="http://localhost:8000")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--groups", type=int, default=8, help="groups per step on each device")
    parser.add_argument("--generations", type=int, default=8, help="rollouts in a group")
    parser.add_argument("--rate", type=float, default=1e-6)
    parser.add_argument("--save-every", type=int, default=50, help="steps")
    parser.add_argument("--out", type=Path, default=Path("outputs/lightning"))
    given = parser.parse_args()

    logger = CSVLogger(given.out, name="steps", flush_logs_every_n_steps=1)
    fabric = Fabric(devices=given.devices, precision=given.precision, loggers=logger)
    fabric.launch()
    fabric.seed_everything(fabric.global_rank)  # each device samples differently
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=given.rate))
    schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=10)
    settings = GRPOSettings(
        groups=given.groups,
        generations=given.generations,
        max_turns=8,
        max_tokens=1024,
        micro_batch=8,
    )
    path = given.out / "last.ckpt"
    with GRPO(
        fabric, model, optimizer, tokenizer, given.environment, settings, prompt=PROMPT
    ) as grpo:
        kept = {"model": model, "optimizer": optimizer, "schedule": schedule, "grpo": grpo}
        if path.exists():
            fabric.load(path, kept)
        for step in grpo.steps(given.steps):
            schedule.step()
            fabric.print(step)
            fabric.log_dict(step.as_logs(), step.number)
            if step.number % given.save_every == 0 or step.number == given.steps:
                fabric.save(path, kept)


if __name__ == "__main__":
    main()
