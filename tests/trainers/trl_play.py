"""Plays with TRL's GRPOTrainer: a program of its own, in an environment that has TRL.

Each way of `WAYS` trains a tiny model for a few steps, and prints what came of it as JSON.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from datasets import Dataset, concatenate_datasets
from tiny_models import CHATML, imitate, model_for, tokenizer_for
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from openenv import GenericEnvClient
from openenv.integrations.trl import (
    EnvironmentCost,
    env_reward,
    environment_factory,
    rollout_func,
    skip_failures,
    task_dataset,
)
from openenv.integrations.typed_tools import Parameters, typed_function
from openenv.rollouts.harness import EnvironmentSessions, HarnessRunLimits, MCPHarnessAdapter

PROMPT = "Act by the tool."
WINNING = 7  # a seed of blackjack with a soft 20, which wins if one stands


def call(name: str, **arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call><|im_end|>"


def tools_of(place: Any) -> list[Any]:
    """As TRL finds them."""
    found = inspect.getmembers(type(place), predicate=inspect.isfunction)
    others = ("reset", "get_reward")
    return [getattr(place, n) for n, _ in found if not n.startswith("_") and n not in others]


def speaker(
    *speech: tuple[Any, list[str]], seeds: int = 48, steps: int = 150, is_told_by_us: bool = False
) -> tuple[Any, Any]:
    """A tiny model that makes such calls in such environments, any of them alike.

    It knows the tools as TRL describes them, of functions; or as `rollout_func` does.
    """
    heard: list[tuple[list[dict[str, Any]], list[Any], list[str]]] = []
    for factory, calls in speech:
        place = factory()
        tools = [get_json_schema(one) for one in tools_of(place)]
        if is_told_by_us:
            tools = [one.as_function() for one in factory.sessions.interface.tools]
        for seed in range(seeds):
            said = [{"role": "user", "content": PROMPT}]
            said[0]["content"] += place.reset(prompt=said, seed=seed) or ""
            heard.append((said, tools, calls))
    texts = [qwen2_5_chat_template]
    for said, tools, calls in heard:
        texts += [json.dumps(said), json.dumps(tools), *calls]
    tokenizer = tokenizer_for(texts, qwen2_5_chat_template, 1024)
    model = model_for(tokenizer)
    shown = [
        (
            tokenizer.apply_chat_template(
                said, tools=tools, add_generation_prompt=True, return_dict=False
            ),
            tokenizer.encode(one),
            [1] * len(tokenizer.encode(one)),
        )
        for said, tools, calls in heard
        for one in calls
    ]
    losses = imitate(model, shown, steps=steps)
    assert losses[-1] < 0.3, losses
    return model, tokenizer


def config(folder: str, **options: Any) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        **{
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 160,
            "max_tool_calling_iterations": 3,
            "max_steps": 3,
            "logging_steps": 1,
            "use_cpu": True,
            "report_to": [],
            "save_strategy": "no",
            "disable_tqdm": True,
            "bf16": False,
            "log_completions": False,
            **options,
        },
    )


def trained(folder: str, cost: EnvironmentCost, **options: Any) -> dict[str, Any]:
    settings = options.pop("settings", {})
    trainer = GRPOTrainer(args=config(folder, **settings), callbacks=[cost], **options)
    error = None
    try:
        trainer.train()
    except Exception as found:
        error = f"{type(found).__name__}: {found}"
    return {
        "logs": trainer.state.log_history,
        "costs": [
            {"seconds": one.seconds, "tokens": one.tokens, **vars(one.environments)}
            for one in cost.steps
        ],
        "error": error,
    }


def one(
    folder: str, environment: str = "blackjack", queue_s: float | None = None, **options: Any
) -> dict[str, Any]:
    """One environment, whose own reward is the only one."""
    place: Any = environment
    if queue_s is not None:
        place = GenericEnvClient(environment, queue_timeout_s=queue_s)
    factory = environment_factory(place, **options)
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    model, tokenizer = speaker((environment_factory("blackjack"), [hit, stand]))
    return trained(
        folder,
        EnvironmentCost(factory),
        model=model,
        processing_class=tokenizer,
        train_dataset=task_dataset(16, prompt=PROMPT),
        environment_factory=factory,
    )


def idle(folder: str) -> dict[str, Any]:
    """A model that talks, and calls no tool."""
    factory = environment_factory("blackjack")
    model, tokenizer = speaker((factory, ["I pass.<|im_end|>"]))
    lines: list[str] = []
    found = trained(
        folder,
        EnvironmentCost(factory, tell=lines.append),
        model=model,
        processing_class=tokenizer,
        train_dataset=task_dataset(64, prompt=PROMPT),
        environment_factory=factory,
        settings={"max_steps": 4, "max_completion_length": 32},
    )
    return {**found, "lines": lines}


def overlapping(folder: str) -> dict[str, Any]:
    """Tools that are coroutines."""
    return one(folder, is_async=True)


def many(folder: str) -> dict[str, Any]:
    """Three environments in one run."""
    echo, openspiel, coding = map(environment_factory, ("echo", "openspiel", "coding"))
    model, tokenizer = speaker(
        (echo, [call("echo_message", message="hello")]),
        (openspiel, [call("open_spiel", action_id=i) for i in range(3)]),
        (coding, [call("code", code="print(1)")]),
    )
    rows = [
        task_dataset(8, prompt=PROMPT).add_column("environment", [name] * 8)
        for name in ("echo", "openspiel", "coding")
    ]
    return trained(
        folder,
        EnvironmentCost(echo, openspiel, coding),
        model=model,
        processing_class=tokenizer,
        train_dataset=concatenate_datasets(rows),
        environment_factory={"echo": echo, "openspiel": openspiel, "coding": coding},
        settings={"per_device_train_batch_size": 12, "max_steps": 6, "shuffle_dataset": False},
    )


def together(folder: str, environment: str = "blackjack", **options: Any) -> dict[str, Any]:
    """All rollouts of a batch at the same time, by rollout_func."""
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    blackjack = environment_factory("blackjack")
    model, tokenizer = speaker((blackjack, [hit, stand]), is_told_by_us=True)
    rollouts = rollout_func(environment, **options)
    return trained(
        folder,
        EnvironmentCost(rollouts),
        model=model,
        processing_class=tokenizer,
        train_dataset=concatenate_datasets([task_dataset(1, prompt=PROMPT, seed=WINNING)] * 16),
        reward_funcs=env_reward,
        rollout_func=rollouts,
    )


def harness(folder: str, environment: str = "blackjack") -> dict[str, Any]:
    """A rollout as TRL's own worker of harnesses plays it; the model stands for vLLM's server."""
    import asyncio
    import threading

    import torch
    from trl.chat_template_utils import add_response_schema
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    factory = environment_factory(environment)
    hit, stand = call("blackjack", action="hit"), call("blackjack", action="stand")
    model, tokenizer = speaker((factory, [hit, stand]))
    sessions = EnvironmentSessions(environment)

    class Loop(_HarnessRolloutLoop):  # type: ignore[misc] # where TRL is not installed
        def __init__(self) -> None:
            """Without its clients of vLLM."""
            self.tokenizer = add_response_schema(tokenizer)
            self.chat_template: Any = None
            self.chat_template_kwargs: dict[str, Any] = {}
            self._adapter, self._factory = MCPHarnessAdapter(), sessions
            self._limits = HarnessRunLimits(max_turns=4)
            self._live_sessions: set[Any] = set()
            self._stop_event = threading.Event()
            self._rollout_reward_fn, self._fork_threshold_tokens = None, 0
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
            found = model.generate(
                torch.tensor([prompt_ids]),
                do_sample=True,
                max_new_tokens=40,
                output_scores=True,
                return_dict_in_generate=True,
            )
            said = found.sequences[0, len(prompt_ids) :]
            scores = model.compute_transition_scores(
                found.sequences, found.scores, normalize_logits=True
            )
            return said.tolist(), scores[0].tolist()

    played = []
    loop = Loop()
    for group in range(6):
        prompt = [{"role": "user", "content": PROMPT}]
        (completion, ids, _, calls, _, reward), metrics = loop._run_session(prompt, group)
        turns = 0 if metrics is None else metrics["turns"]
        played.append([len(completion), len(ids), calls, reward, turns])
    return {"played": played, "open": len(loop._live_sessions)}


def schemas(folder: str) -> dict[str, Any]:
    """What transformers reads of tools made of JSON schemas, given as JSON on stdin."""
    found = {}
    for name, schema in json.load(sys.stdin).items():
        made = typed_function(name, f"Does {name}.", Parameters(schema), lambda **given: given)
        found[name] = get_json_schema(made)["function"]
    return found


# ------------------------------------------------------------------ planted cases

LINES = ["Yes.", "To be, or not to be.", "Who is there?", "Words, words, words."]
ORDER = "Say a line."


def actor() -> tuple[Any, Any]:
    """A tiny model that says a line to whatever it is told."""
    tokenizer = tokenizer_for([ORDER, "Speak. Thanks. say", *LINES], CHATML, 512)
    model = model_for(tokenizer)
    shown = []
    for line in LINES:
        for told in (ORDER, f"{ORDER}\n\nSpeak.", "Thanks."):
            said = [{"role": "user", "content": told}]
            before = tokenizer.apply_chat_template(
                said, add_generation_prompt=True, return_dict=False
            )
            reply = tokenizer.encode(f"{line}<|im_end|>")
            shown.append((before, reply, [1] * len(reply)))
    imitate(model, shown, steps=60)
    return model, tokenizer


def brevity(completions: list[Any], **_: Any) -> list[float]:
    """A second reward, which knows nothing of environments."""
    return [1.0 - len(str(one)) / 1000 for one in completions]


def table_of(folder: str) -> list[dict[str, Any]]:
    """TRL's own table of completions, of all steps."""
    found = []
    for file in sorted(Path(folder, "completions").glob("*.parquet")):
        for row in Dataset.from_parquet(str(file), cache_dir=folder).to_list():
            is_nan = {k: isinstance(v, float) and math.isnan(v) for k, v in row.items()}
            found.append({k: None if is_nan[k] else v for k, v in row.items()})
    return found


def planted(
    folder: str, environment: str, by: str, beside: str = "skipping", **options: Any
) -> dict[str, Any]:
    """An environment that fails now and then, and a second reward function beside its own."""
    second = {"skipping": [skip_failures(brevity)], "plain": [brevity], "none": []}[beside]
    settings = {
        "max_steps": 2,
        "max_completion_length": 64,
        "log_completions": True,
        **options.pop("settings", {}),
    }
    played: dict[str, Any] = {}
    if by == "rollout_func":
        model, tokenizer = actor()
        rollouts = rollout_func(environment, **options)
        played = {"rollout_func": rollouts, "reward_funcs": [env_reward, *second]}
        cost = EnvironmentCost(rollouts)
        rows = {"prompt": [[{"role": "user", "content": ORDER}]] * 16}
    else:
        factory = environment_factory(environment, name="Stage", **options)
        calls = [call(tools_of(factory())[0].__name__, text=line) for line in LINES]
        model, tokenizer = speaker((factory, calls), seeds=4, steps=100)
        played = {"environment_factory": factory, "reward_funcs": second}
        cost = EnvironmentCost(factory)
        rows = {"prompt": [[{"role": "user", "content": PROMPT}]] * 16}
    found = trained(
        folder,
        cost,
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(rows),
        settings=settings,
        **played,
    )
    return {**found, "table": table_of(folder)}


def episodes(folder: str, environment: str) -> dict[str, Any]:
    """Which episodes are played: evaluated twice; by accumulation; and resumed."""
    from urllib.request import urlopen

    def mark() -> int:
        with urlopen(f"{environment}/played", timeout=10) as answer:
            return int(answer.read())

    model, tokenizer = actor()
    alike = {"prompt": [[{"role": "user", "content": ORDER}]] * 64}
    marks: list[int] = [mark()]

    def trainer(where: str, **settings: Any) -> GRPOTrainer:
        return GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            train_dataset=Dataset.from_dict(alike),
            eval_dataset=task_dataset(12, prompt=ORDER, seed=100),
            reward_funcs=env_reward,
            rollout_func=rollout_func(environment),
            args=config(
                f"{folder}/{where}",
                per_device_train_batch_size=4,
                per_device_eval_batch_size=4,
                num_generations=2,
                max_completion_length=32,
                **{"num_generations_eval": 1, **settings},
            ),
        )

    accumulating = {"gradient_accumulation_steps": 4, "steps_per_generation": 1}
    one = trainer("whole", max_steps=4, save_strategy="steps", save_steps=2, **accumulating)
    for _ in range(2):
        one.evaluate()
        marks.append(mark())
    one.train()
    marks.append(mark())
    again = trainer("whole", max_steps=4, **accumulating)
    again.train(resume_from_checkpoint=f"{folder}/whole/checkpoint-2")
    marks.append(mark())
    return {"marks": marks}


def rows_of_datasets(folder: str, environment: str, **columns: list[Any]) -> dict[str, Any]:
    """A dataset that says which episodes they are, by columns, without `rows`."""
    model, tokenizer = actor()
    given = columns.pop("prompt", [ORDER])
    prompts = [[{"role": "user", "content": one}] for one in given]
    return trained(
        folder,
        EnvironmentCost(rollouts := rollout_func(environment)),
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": prompts, **columns}),
        reward_funcs=env_reward,
        rollout_func=rollouts,
        settings={"max_steps": 1, "max_completion_length": 32},
    )


def beside(folder: str, environment: str) -> dict[str, Any]:
    """Which columns a further reward function gets, where the rows of a prompt differ by seeds."""
    model, tokenizer = actor()
    rollouts = rollout_func(environment, columns=["seed"])
    given: list[Any] = []

    def noting(completions: list[Any], seed: list[int], answer: list[str], **_: Any) -> list[float]:
        given.extend(zip(seed, answer, strict=True))
        return [0.0] * len(completions)

    prompts = [[{"role": "user", "content": ORDER}]] * 8
    rows = {
        "prompt": prompts,
        "seed": [*range(50, 58)],
        "answer": [f"of {50 + i}" for i in range(8)],
    }
    found = trained(
        folder,
        EnvironmentCost(rollouts),
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(rows),
        reward_funcs=[env_reward, skip_failures(noting)],
        rollout_func=rollouts,
        settings={"max_steps": 2, "max_completion_length": 32},
    )
    return {**found, "given": given}


def unknown(folder: str, environment: str) -> dict[str, Any]:
    """vLLM does not know the log-probability of a token, now and then."""
    model, tokenizer = actor()
    rollouts = rollout_func(environment)
    told: list[Any] = []

    def watched(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        generate = trainer._generate_single_turn

        def forgetting(*given: Any, **options: Any) -> Any:
            replies, _ = generate(*given, **options)
            return replies, [[None, *[-1.0] * (len(one) - 1)] for one in replies]

        forgetting.__signature__ = inspect.signature(generate)  # type: ignore[attr-defined]
        trainer._generate_single_turn = forgetting
        try:
            found = rollouts(prompts, trainer)
        finally:
            del trainer._generate_single_turn
        for logprobs, mask in zip(found["logprobs"], found["env_mask"], strict=True):
            told.append([str(logprobs[0]), mask[0], logprobs[1], mask[1]])
        return found

    found = trained(
        folder,
        EnvironmentCost(rollouts),
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": ORDER}]] * 16}),
        reward_funcs=env_reward,
        rollout_func=watched,
        settings={"max_steps": 1, "max_completion_length": 32},
    )
    return {**found, "told": told}


class Server:
    """Stands for the client of a vLLM server: what is to be said stands in the prompt."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.asked: list[int] = []

    def generate(self, prompts: list[list[int]], n: int, **_: Any) -> dict[str, Any]:
        """Say of each prompt what it says last that is to be said."""
        import re

        self.asked.append(len(prompts))
        replies = []
        for ids in prompts:
            words = re.findall(r"say (\d+)", self.tokenizer.decode(ids))
            said = words[-1] if words else "nothing"
            replies += [self.tokenizer.encode(f"{said}<|im_end|>")] * n
        logprobs = [[[-0.5] for _ in one] for one in replies]
        return {"prompt_ids": prompts, "completion_ids": replies, "logprobs": logprobs}


def shared(folder: str, environment: str, by: str = "rollout_func") -> dict[str, Any]:
    """One of several processes with a vLLM server: TRL's own `VLLMGeneration` asks it."""
    from trl.generation.vllm_generation import VLLMGeneration

    tokenizer = tokenizer_for([ORDER, "say 0123456789 nothing"], CHATML, 400)
    played: dict[str, Any]
    if by == "rollout_func":
        rollouts = rollout_func(environment)
        played = {"rollout_func": rollouts, "reward_funcs": env_reward}
    else:
        tokenizer.chat_template = qwen2_5_chat_template
        played = {"environment_factory": environment_factory(environment)}
    trainer = GRPOTrainer(
        model=model_for(tokenizer),
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": ORDER}]] * 64}),
        args=config(
            folder,
            per_device_train_batch_size=6,
            num_generations=2,
            max_completion_length=96,
            max_steps=2,
            log_completions=True,
        ),
        **played,
    )
    server = Server(tokenizer)
    generation = VLLMGeneration.__new__(VLLMGeneration)  # which would look for a vLLM
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    for name in (*names, "structured_outputs_regex", "logprobs", "generation_kwargs"):
        setattr(generation, name, None)
    generation.accelerator, generation.mode = trainer.accelerator, "server"
    generation.max_completion_length, generation.vllm_client = 96, server
    generation.sync_weights = lambda: None
    trainer.use_vllm, trainer.vllm_mode, trainer.vllm_generation = True, "server", generation
    trainer.vllm_importance_sampling_correction = False
    trainer._last_loaded_step = -1
    error = None
    try:
        trainer.train()
    except Exception as found:
        error = f"{type(found).__name__}: {found}"
    is_first = trainer.accelerator.is_main_process
    return {
        "error": error,
        "asked": server.asked,
        "table": table_of(folder) if is_first and error is None else [],
    }


def split(folder: str, environment: str) -> dict[str, Any]:
    """One of several processes over which FSDP splits the weights: accelerate, which does that on
    no CPU, is told that it has.
    """
    from accelerate import DistributedType  # type: ignore[import-not-found]

    from openenv.integrations.trl.rewards import TrainingRefused
    from openenv.integrations.trl.trainers import check_trainer

    tokenizer = tokenizer_for([qwen2_5_chat_template, ORDER], qwen2_5_chat_template, 400)
    trainer = GRPOTrainer(
        args=config(folder, num_generations=2),
        model=model_for(tokenizer),
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": ORDER}]] * 16}),
        environment_factory=environment_factory(environment),
    )
    check_trainer(trainer)
    trainer.accelerator.state.distributed_type = DistributedType.FSDP
    try:
        check_trainer(trainer)
    except TrainingRefused as error:
        return {"error": str(error)}
    return {"error": None}


def workers(folder: str, environment: str, is_alone: bool = True) -> dict[str, Any]:
    """Rollouts in the process that AsyncGRPO spawns; a small server stands for vLLM's."""
    import threading

    import trl.experimental.async_grpo.async_rollout_worker as module
    import uvicorn
    from accelerate import PartialState
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    factory = environment_factory(environment, name="Stage")
    (tool,) = tools_of(factory())
    acts = call(tool.__name__, text="Yes.")
    tokenizer = tokenizer_for([qwen2_5_chat_template, acts, ORDER], qwen2_5_chat_template, 1024)
    asked = 0

    async def complete(_: Any) -> JSONResponse:
        nonlocal asked
        asked += 1
        ids = tokenizer.encode(acts if asked % 3 else "Nothing.<|im_end|>")
        return JSONResponse(
            {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}]}
        )

    app = Starlette(routes=[Route("/v1/completions", complete, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]

    PartialState()  # which the loggers of accelerate want
    module.is_vllm_available = lambda: True  # of which the worker only asks a server
    worker = module.AsyncRolloutWorker(
        model_name="actor",
        dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": f"{ORDER} {i}"}] for i in range(8)]}
        ),
        reward_funcs=[] if is_alone else [brevity],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        environment_factory=factory,
        num_generations=4,
        max_inflight_tasks=3,
        max_tool_calling_iterations=2,
        vllm_server_url=f"http://127.0.0.1:{port}",
    )
    samples: list[Any] = []
    error = None
    try:
        worker.start()
        while len({one.group_id for one in samples}) < 4:
            given = worker.rollout_buffer.get(timeout=60)
            samples += given if isinstance(given, list) else [given]
    except RuntimeError as found:
        error = str(found)
    finally:
        worker.stop()
    return {
        "error": error,
        "samples": [
            {"group": one.group_id, "advantage": one.advantage, "reward": one.metrics["reward"]}
            for one in samples
        ],
    }


WAYS: dict[str, Callable[..., dict[str, Any]]] = {
    "planted": planted,
    "episodes": episodes,
    "rows": rows_of_datasets,
    "idle": idle,
    "beside": beside,
    "unknown": unknown,
    "shared": shared,
    "split": split,
    "workers": workers,
    "harness": harness,
    "schemas": schemas,
    "one": one,
    "many": many,
    "overlapping": overlapping,
    "together": together,
}

if __name__ == "__main__":
    way, folder, *more = sys.argv[1:]
    sys.stdout.write(json.dumps(WAYS[way](folder, **json.loads(more[0] if more else "{}"))))
