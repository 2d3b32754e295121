"""GRPO with Unsloth: a model learns to write strategies for 2048, which play on our server.

    python game_2048.py unsloth/gpt-oss-20b

Needs a GPU, `pip install unsloth openenv`, and `pip install -e envs/game_2048_env` of a checkout.
"""

from __future__ import annotations

import sys
from typing import Any

import unsloth  # before the libraries that it patches
from datasets import Dataset
from strategies import PROMPT, Strategies
from trl import GRPOConfig, GRPOTrainer


def main(name: str, steps: int = 300, **settings: Any) -> list[dict[str, Any]]:
    """Train, save the adapter in ``outputs``, and return the trainer's log.

    Args:
        name: The name of a model that Unsloth can load.
        steps: The number of GRPO steps.
        settings: Further settings of `GRPOConfig`.
    """
    model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
        name, load_in_4bit=True, max_seq_length=1024
    )
    model = unsloth.FastLanguageModel.get_peft_model(
        model,
        r=4,
        lora_alpha=8,
        target_modules=[
            *("q_proj", "k_proj", "v_proj", "o_proj"),
            *("gate_proj", "up_proj", "down_proj"),
        ],
        use_gradient_checkpointing="unsloth",
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[Strategies(unsloth).reward],
        args=GRPOConfig(
            output_dir="outputs",
            learning_rate=2e-4,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=640,
            max_steps=steps,
            logging_steps=1,
            **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": PROMPT}]}] * 1000),
    )
    trainer.train()
    model.save_pretrained("outputs/lora")
    return trainer.state.log_history


if __name__ == "__main__":
    main(*sys.argv[1:2])
