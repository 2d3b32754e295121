"""Trains a tiny model by TRL's SFTTrainer, where TRL is: ``sft_train.py DATA FOLDER MODE STEPS``.

DATA is a Parquet file as it is, MODE the loss: ``assistant`` of conversations, ``completion``. It
prints, for each light, what the trained model calls.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from typing import Any

import torch
from datasets import load_dataset
from tiny_models import model_for, tokenizer_for
from trl import SFTConfig, SFTTrainer

LIGHTS = ("red", "green", "amber")


def main(data: str, folder: str, mode: str, steps: str) -> None:
    rows = load_dataset("parquet", data_files=data, split="train", cache_dir=f"{folder}/cache")
    template = resources.files("trl") / "chat_templates" / "qwen2_5_training.jinja"
    texts = [json.dumps(row) for row in rows]
    tokenizer = tokenizer_for([*texts, template.read_text()], template.read_text(), 1500)
    model = model_for(tokenizer, hidden=96)
    config = SFTConfig(
        output_dir=folder,
        max_length=2048,
        per_device_train_batch_size=8,
        max_steps=int(steps),
        learning_rate=2e-3,
        warmup_steps=10,
        adam_beta2=0.98,
        lr_scheduler_type="linear",
        assistant_only_loss=mode == "assistant",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        seed=0,
    )
    trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    told: dict[str, Any] = {"rows": len(rows), "losses": [losses[0], losses[-1]]}
    first = rows[0]
    asked = first["messages"] if "messages" in first else first["prompt"]
    told["calls"] = {light: called(model, tokenizer, asked[0], light, first) for light in LIGHTS}
    sys.stdout.write(json.dumps(told) + "\n")


def called(model: Any, tokenizer: Any, asked: Any, light: str, row: Any) -> Any:
    """What the model calls at a light."""
    said = re.sub("|".join(LIGHTS), light, asked["content"])
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": said}],
        tools=row["tools"],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.no_grad():
        out = model.eval().generate(**ids, max_new_tokens=60, do_sample=False)
    text = tokenizer.decode(out[0, ids["input_ids"].shape[1] :])
    found = re.search(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", text, re.DOTALL)
    return json.loads(found[1]) if found else text


if __name__ == "__main__":
    main(*sys.argv[1:])
