"""Train by the rollout and the reward of Oumi's notebook on OpenEnv; by a Python that has Oumi.

    python public_oumi.py FOLDER TRAIN_PY ECHO_ADDRESS

`TRAIN_PY` is the notebook's cell of that name. It registers both, and would train by vLLM on a GPU:
here TRL's trainer does, by Oumi's own builders, with a tiny model behind an API like vLLM's. Oumi
0.9 wants TRL 1.6, which calls such a function otherwise than the notebook expects: it is called as
TRL 0.24 did, with each prompt once. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import datasets
import oumi.train  # type: ignore[import-not-found]
import torch
from oumi.builders import (  # type: ignore[import-not-found]
    build_reward_functions,
    build_rollout_function,
)
from oumi.core.configs import TrainingConfig, TrainingParams  # type: ignore[import-not-found]
from tiny_models import CHATML, model_for, tokenizer_for
from trl import GRPOConfig, GRPOTrainer

LENGTH = 16


def generating(model: Any, tokenizer: Any) -> ThreadingHTTPServer:
    """Return a server that answers ``POST /generate/`` as TRL's server of vLLM does."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
            for prompt in asked["prompts"]:
                ids = tokenizer.apply_chat_template(
                    prompt, add_generation_prompt=True, return_dict=False
                )
                found["prompt_ids"].append(ids)
                with torch.no_grad():
                    told = model.generate(
                        torch.tensor([ids] * asked["n"]),
                        attention_mask=torch.ones(asked["n"], len(ids), dtype=torch.long),
                        do_sample=True,
                        min_new_tokens=4,
                        max_new_tokens=min(asked["max_tokens"], LENGTH),
                    )
                for row in told[:, len(ids) :].tolist():
                    found["completion_ids"].append(row)
                    found["logprobs"].append([-1.0] * len(row))
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def as_trl_called(rollout: Callable[..., dict[str, list[Any]]]) -> Callable[..., Any]:
    """Return a function for TRL 1.6 that calls the rollout as TRL 0.24 did."""

    def called(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        each = trainer.args.num_generations
        result = rollout(prompts[::each], trainer.args, trainer.processing_class)
        result["prompt_ids"] = [ids for ids in result["prompt_ids"] for _ in range(each)]
        return result

    return called


def registered(file: str, model: str, echo: str) -> TrainingParams:
    """Run the cell, which registers its functions, and return the settings that name them."""
    code = Path(file).read_text()
    for told, here in (("http://0.0.0.0:8000", model), ("http://0.0.0.0:8001", echo)):
        assert code.count(told) == 1
        code = code.replace(told, here)
    oumi.train.train = TrainingConfig.from_yaml = lambda _: None
    exec(compile(code, file, "exec"), {"__name__": "__main__"})
    params = TrainingParams()
    params.grpo.rollout_function = "echo_env_vllm_rollout"
    params.reward_functions = ["env_reward"]
    return params


def main(folder: str, file: str, echo: str) -> dict[str, Any]:
    tokenizer = tokenizer_for(["Say something long. And something else."], CHATML)
    model = model_for(tokenizer)
    server = generating(model, tokenizer)
    params = registered(file, f"http://127.0.0.1:{server.server_port}", echo)
    (reward,) = build_reward_functions(params)
    told: dict[str, list[Any]] = {"completions": [], "rewards": []}

    def watched(completions: list[Any], **columns: Any) -> list[float]:
        rewards: list[float] = reward(completions, **columns)
        told["completions"] += [one[0]["content"] for one in completions]
        told["rewards"] += rewards
        return rewards

    said = [[{"role": "user", "content": one}] for one in ("Say something long.", "And else.")]
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_dict({"prompt": said * 8}),
        reward_funcs=watched,
        rollout_func=as_trl_called(build_rollout_function(params)),
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=LENGTH,
            max_steps=2,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    server.shutdown()
    return {**told, "logs": trainer.state.log_history}


if __name__ == "__main__":
    outcome = main(*sys.argv[1:])
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
