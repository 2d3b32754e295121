"""Run a training script of TRL's, unmodified but for the hardware; by a Python that has TRL.

    python public_run.py FOLDER SPEECH SCRIPT [ARGUMENT...]

The script gets no GPU, no vLLM, no tracker, two steps of 32 rollouts, and in place of its model a
tiny one that is built on the spot. That one makes the calls of `SPEECH`, JSON: by a phrase of the
prompt, the names and arguments of calls. Prints what came of it as JSON: what was logged, and for
each rollout its messages and what each reward function gave.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import trl
from tiny_models import imitate, model_for, tokenizer_for
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen3_chat_template

STEPS = 2
EPISODES = 12  # that the tiny model is shown of each kind of row
MOST_CALLS = 10  # in an episode that it is shown
END = "<|im_end|>"
LONGEST = 1536  # tokens of a completion: a tiny model's context is short

Messages = list[dict[str, Any]]
Calls = list[tuple[str, dict[str, Any]]]

GRPOConfig, GRPOTrainer = trl.GRPOConfig, trl.GRPOTrainer
trained: list[Any] = []
rollouts: list[dict[str, Any]] = []


def config_without_hardware(folder: str, **options: Any) -> Any:
    """Return the script's own settings, for a CPU, offline, for two steps."""
    kept = {
        name: value
        for name, value in options.items()
        if not name.startswith("vllm_") and name not in ("use_vllm", "trackio_space_id")
    }
    kept["max_completion_length"] = min(kept.get("max_completion_length", LONGEST), LONGEST)
    needed = {
        "per_device_train_batch_size": 32,
        "num_generations": 4,
        "gradient_accumulation_steps": 1,
        "temperature": 0.4,  # that of a tiny model that is to make whole calls
        "output_dir": folder,
        "max_steps": STEPS,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOConfig(**{**kept, **needed})


# ------------------------------------------------------------------ a model that makes calls


def tools_of(environment: Any) -> list[Callable[..., Any]]:
    """Return the methods that TRL takes for tools."""
    found = inspect.getmembers(environment, predicate=inspect.ismethod)
    return [one for name, one in found if not name.startswith("_") and name != "reset"]


def episode(environment: Any, row: dict[str, Any], calls: Calls, chance: random.Random) -> Messages:
    """Play random calls until the episode is over; return the conversation."""
    messages: Messages = [dict(one) for one in row["prompt"]]
    messages[-1]["content"] += environment.reset(**row) or ""
    for _ in range(MOST_CALLS if hasattr(environment, "done") else chance.randint(1, 3)):
        name, arguments = chance.choice(calls)
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        told = getattr(environment, name)(**arguments)
        messages.append({"role": "tool", "name": name, "content": str(told)})
        if getattr(environment, "done", False):
            break
    return [*messages, {"role": "assistant", "content": "Done."}]


def speaker(
    factory: Callable[[], Any], rows: list[dict[str, Any]], speech: dict[str, Calls]
) -> tuple[Any, Any]:
    """Return a tiny model that plays like the episodes that it is shown, and its tokenizer."""
    chance, conversations, tools = random.Random(0), [], []
    for row in rows:
        (calls,) = (
            calls for phrase, calls in speech.items() if phrase in row["prompt"][-1]["content"]
        )
        environment = factory()
        tools = tools_of(environment)
        conversations += [episode(environment, row, calls, chance) for _ in range(EPISODES)]
        for client in vars(environment).values():
            if hasattr(client, "close"):
                client.close()
    schemas = [get_json_schema(tool) for tool in tools]
    texts = [json.dumps(schemas), json.dumps(conversations), "<think>\n\n</think>\n\n"]
    tokenizer = tokenizer_for(texts * 2, qwen3_chat_template, 1024)

    def text_of(messages: Messages, **options: Any) -> str:
        told: str = tokenizer.apply_chat_template(
            messages, tools=schemas, tokenize=False, enable_thinking=False, **options
        )
        return told

    examples = []
    for messages in conversations:
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                before = text_of(messages[:at], add_generation_prompt=True)
                reply = text_of(messages[: at + 1])[len(text_of(messages[:at])) :]
                said = reply[reply.index("assistant\n") + len("assistant\n") :]
                said = said.removeprefix("<think>\n\n</think>\n\n").rstrip("\n")
                ids = tokenizer.encode(said)
                examples.append((tokenizer.encode(before), ids, [1] * len(ids)))
    model = model_for(tokenizer, positions=8192, spread=96**-0.5)
    losses = imitate(model, examples, steps=300, batch=8)
    assert losses[-1] < 0.2, losses
    return model, tokenizer


# ------------------------------------------------------------------ what the script imports


def watched(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return the reward function; it also notes down what it was given and what it returned."""

    @functools.wraps(function)
    def noting(*arguments: Any, **columns: Any) -> list[Any]:
        rewards = function(*arguments, **columns)
        for messages, reward in zip(columns["completions"], rewards, strict=True):
            one = {"by": function.__name__, "messages": messages, "reward": reward}
            rollouts.append(one)
        return rewards

    return noting


def trainer_without_hardware(speech: dict[str, Calls], **options: Any) -> Any:
    """Return TRL's own trainer, of a tiny model in place of the one that is named."""
    assert isinstance(options.pop("model"), str)
    given = options["reward_funcs"]
    functions = given if isinstance(given, list) else [given]
    rows = list({json.dumps(row): row for row in options["train_dataset"]}.values())
    model, tokenizer = speaker(options["environment_factory"], rows, speech)
    options["reward_funcs"] = [watched(one) for one in functions]
    trainer = GRPOTrainer(model=model, processing_class=tokenizer, **options)
    trained.append(trainer)
    return trainer


def main(folder: str, speech: str, script: str, *arguments: str) -> None:
    """Run the script as its users do, and print what came of it."""
    calls = json.loads(speech)
    trl.GRPOConfig = functools.partial(config_without_hardware, folder)
    trl.GRPOTrainer = functools.partial(trainer_without_hardware, calls)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    (trainer,) = trained
    found = {"logs": trainer.state.log_history, "rollouts": rollouts}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
