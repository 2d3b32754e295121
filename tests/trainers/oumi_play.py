"""Train as Oumi does, for a moment; run by a Python that has it. Prints JSON.

python oumi_play.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import datasets
from oumi.builders import (  # type: ignore[import-not-found]
    build_reward_functions,
    build_rollout_function,
)
from oumi.core.configs import TrainingParams  # type: ignore[import-not-found]
from tiny_models import CHATML, imitate, model_for, tokenizer_for
from trl import GRPOConfig, GRPOTrainer


def presser() -> tuple[Any, Any]:
    """A tiny model that presses buttons, and ends its replies: one that is cut is not acted on."""
    tokenizer = tokenizer_for(["Obey. Break. press go press on"], CHATML)
    model = model_for(tokenizer)
    shown = []
    for told in ("Obey.\n\npress go", "Break.\n\npress go", "press on"):
        for button in ("go", "on"):
            said = [{"role": "user", "content": told}]
            before = tokenizer.apply_chat_template(
                said, add_generation_prompt=True, return_dict=False
            )
            reply = tokenizer.encode(f"{button}<|im_end|>")
            shown.append((before, reply, [1] * len(reply)))
    imitate(model, shown, steps=60)
    return model, tokenizer


def main(folder: str) -> dict[str, Any]:
    params = TrainingParams()
    params.grpo.rollout_function = "buttons"
    params.reward_functions = ["openenv"]
    rollouts = build_rollout_function(params)
    (env_reward,) = build_reward_functions(params)
    told: dict[str, list[Any]] = {}

    def watched(prompts: list[Any], **columns: Any) -> list[Any]:
        told.setdefault("prompts", []).extend(prompt[0]["content"] for prompt in prompts)
        for name in ("env_reward", "env_unscored", "env_steps"):
            told.setdefault(name, []).extend(columns[name])
        rewards: list[Any] = env_reward(prompts=prompts, **columns)
        return rewards

    model, tokenizer = presser()
    rows = [{"prompt": [{"role": "user", "content": one}]} for one in ("Obey.", "Break.")] * 4
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(rows),
        reward_funcs=watched,
        rollout_func=rollouts,
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=48,
            max_steps=2,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    return told


if __name__ == "__main__":
    outcome = main(*sys.argv[1:])
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
