"""Play as verl's worker does; run by a Python that has verl. Prints JSON.

python verl_play.py BUTTONS_ADDRESS
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import hydra  # type: ignore[import-not-found]
import numpy as np
from omegaconf import OmegaConf  # type: ignore[import-not-found]
from tiny_models import CHATML, tokenizer_for
from trainers.buttons import obedient
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]
    DictConfigWrap,
    ToolListWrap,
)
from verl.utils.dataset.rl_dataset import RLHFDataset  # type: ignore[import-not-found]
from verl.workers.rollout.replica import TokenOutput  # type: ignore[import-not-found]

TOKENIZER = tokenizer_for(["press go press on press wrong say nothing button"], CHATML)
CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "prompt_length": 512,
                "response_length": 256,
                "multi_turn": {"max_assistant_turns": 3},
            }
        },
        "data": {},
    }
)


class Server:
    """In place of verl's server: a model that does as it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[int], list[int]]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any
    ) -> Any:
        assert sampling_params == {"temperature": 1.0}
        said = re.findall(
            r"<\|im_start\|>user\n(.*?)<\|im_end\|>", TOKENIZER.decode(prompt_ids), re.S
        )
        reply = json.dumps({"button": obedient(said[-1]) or "none"}) + "<|im_end|>"
        ids = TOKENIZER.encode(reply, add_special_tokens=False)
        self.requests.append((request_id, list(prompt_ids), ids))
        version = {"min_global_steps": len(self.requests), "max_global_steps": len(self.requests)}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields=version)


def loop_of(registered: Any, server: Server) -> Any:
    """As verl's worker makes one for each sample."""
    return hydra.utils.instantiate(
        config=registered,
        trainer_config=DictConfigWrap(config=CONFIG),
        server_manager=server,
        tokenizer=TOKENIZER,
        processor=None,
        hf_model_type="qwen2",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(CONFIG.data),
        tools=ToolListWrap([]),
    )


async def played(registered: Any, row: dict[str, Any]) -> dict[str, Any]:
    server = Server()
    prompt = np.array([{"role": "user", "content": "Obey."}], dtype=object)
    try:
        output = await loop_of(registered, server).run(
            {"temperature": 1.0}, raw_prompt=prompt, priority=np.int64(3), **row
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "requests": len(server.requests)}
    ids = output.prompt_ids + output.response_ids
    written = [
        one for one, mask in zip(output.response_ids, output.response_mask, strict=True) if mask
    ]
    tensors = output.as_dict()
    return {
        "reward": output.reward_score,
        "at_the_end": tensors["rm_scores"][-1].item() if output.reward_score else None,
        "prompt": TOKENIZER.decode(output.prompt_ids),
        "response": TOKENIZER.decode(output.response_ids),
        "is_exact": written == [one for _, _, reply in server.requests for one in reply],
        "grows": all(ids[: len(asked)] == asked for _, asked, _ in server.requests),
        "one_request": len({request for request, _, _ in server.requests}) == 1,
        "logprobs": sorted(set(output.response_logprobs)),
        "turns": output.num_turns,
        "versions": [output.extra_fields[f"{which}_global_steps"] for which in ("min", "max")],
        "steps": output.extra_fields["reward_extra_info"]["env_steps"],
    }


def read(options: dict[str, Any]) -> Any:
    """A registered loop, by a file as `agent_loop_config_path` names one."""
    target = "openenv.integrations.verl.OpenEnvAgentLoop"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump([{"name": "buttons", "_target_": target, **options}], file)
        file.flush()
        return OmegaConf.load(file.name)[0]


async def main(address: str) -> dict[str, Any]:
    buttons = {"environment": address, "told": "json"}
    registered = read(buttons)
    seeds = np.arange(5)
    rows = [{"seed": seeds[0]}, *({"extra_info": {"seed": int(seed)}} for seed in seeds[1:])]
    gone = read({"environment": "http://127.0.0.1:9", "retries": 0, "attempts": 1})
    short = read({**buttons, "max_turns": 1, "unfinished": -1.0})
    return {
        "all": await asyncio.gather(*(played(registered, row) for row in rows)),
        "short": await played(short, {"seed": 0}),
        "gone": await played(gone, {}),
        "nowhere": await nowhere(),
    }


async def nowhere() -> str:
    try:
        loop_of(read({}), Server())
    except Exception as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    told = asyncio.run(main(*sys.argv[1:]))
    sys.stdout.write("\n" + json.dumps(told) + "\n")
