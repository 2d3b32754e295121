"""GRPO by Lightning Fabric; run by a Python that has it. Prints JSON.

python lightning_play.py all BUTTONS_ADDRESS FOLDER
python lightning_play.py processes BUTTONS_ADDRESS NUMBER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import torch
from lightning.fabric import Fabric  # type: ignore[import-not-found]
from tiny_models import CHATML, model_for, tokenizer_for
from trainers.buttons import obedient

from openenv.integrations.lightning import GRPO, GRPOSettings
from openenv.integrations.transformers import sampler

TOKENIZER = tokenizer_for(['press go press on press wrong say nothing {"button": "go"}'], CHATML)
IDLES = '{"button":  "wrong"}'


def answer(ids: list[int], place: int) -> list[int]:
    """Do as one is told; every other rollout of a group says nothing that could be carried out."""
    text = TOKENIZER.decode(ids)
    *_, last = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.S)
    is_first = "assistant\n{" not in text
    idles = place % 2 == 1 if is_first else IDLES in text
    reply = IDLES if idles else json.dumps({"button": obedient(last) or "none"})
    return list(TOKENIZER.encode(reply + "<|im_end|>", add_special_tokens=False))


def generate(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
    return [answer(ids, place) for place, ids in enumerate(sequences)], None


def all_obey(sequences: list[list[int]]) -> tuple[list[list[int]], None]:
    return [answer(ids, 0) for ids in sequences], None


def made(fabric: Any, url: str, settings: GRPOSettings, **options: Any) -> tuple[GRPO, Any]:
    model = model_for(TOKENIZER, hidden=32, layers=1, seed=0)
    if options.get("generate", generate) is None:  # any token ends a reply, as several may
        model.generation_config.eos_token_id = list(range(len(TOKENIZER)))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    given = {"generate": generate, "told": "json", **options}
    if "rows" not in given:
        given["prompt"] = "Obey."
    return GRPO(fabric, model, optimizer, TOKENIZER, url, settings, **given), model


def fabric_of(devices: int = 1) -> Any:
    fabric = Fabric(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto")
    fabric.launch()
    return fabric


def sums(model: Any) -> list[float]:
    return [one.detach().double().sum().item() for one in model.parameters()]


def weights(model: Any) -> Any:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def kinds(url: str, **options: Any) -> dict[str, Any]:
    """One group for each kind of episode, of which two are played at a time."""
    rows = [{"prompt": "Obey.", "seed": kind} for kind in range(5)]
    settings = GRPOSettings(groups=5, generations=2, max_turns=3, **options)
    grpo, model = made(fabric_of(), url, settings, rows=rows)
    before = weights(model)
    with grpo:
        step = grpo.step()
    moved = (weights(model) - before).abs().sum().item()
    return {"step": step.as_logs(), "said": str(step), "moved": moved}


def learning(url: str, **options: Any) -> Any:
    """The weights after three steps."""
    settings = GRPOSettings(groups=4, generations=2, max_turns=3, **options)
    grpo, model = made(fabric_of(), url, settings)
    with grpo:
        steps = list(grpo.steps(3))
    return weights(model), [step.as_logs() for step in steps]


def gradient(url: str) -> dict[str, float]:
    """A step's change, and what REINFORCE with the groups' baseline says that it is."""
    settings = GRPOSettings(groups=1, generations=2, max_turns=3, is_scaled=False)
    grpo, model = made(fabric_of(), url, settings)
    seen: list[Any] = []
    play = grpo._player.play

    def noted(*given: Any, **more: Any) -> Any:
        seen.extend(play(*given, **more))
        return seen

    grpo._player.play = noted  # type: ignore[method-assign]
    plain = model_for(TOKENIZER, hidden=32, layers=1, seed=0)
    with grpo:
        step = grpo.step()
    tokens, total = sum(sum(one.mask) for one in seen), 0.0
    mean = sum(one.score.value for one in seen) / 2
    for one in seen:
        ids = torch.tensor([one.ids])
        logprobs = plain(input_ids=ids).logits[0, :-1].log_softmax(-1)
        for place, mine in enumerate(one.mask, len(one.prompt_ids)):
            if mine:
                chosen = logprobs[place - 1, ids[0, place]]
                total = total - (one.score.value - mean) * chosen / tokens
    total.backward()  # type: ignore[attr-defined]
    wanted = torch.cat([one.grad.flatten() for one in plain.parameters()])
    norm = wanted.norm().item()
    moved = (weights(model) - weights(plain)) / -0.1 * max(1.0, norm)
    return {
        "off": (moved - wanted).norm().item() / norm,
        "norm": norm,
        "told": step.grad_norm or 0.0,
        "loss": step.loss or 0.0,
    }


def resumed(url: str, folder: Path) -> dict[str, Any]:
    """Two steps, a checkpoint, two more; and these again, from the checkpoint."""
    fabric = fabric_of()
    settings = GRPOSettings(groups=2, generations=2, max_turns=3)
    grpo, model = made(fabric, url, settings)
    path = str(folder / "checkpoint.ckpt")
    with grpo:
        list(grpo.steps(2))
        fabric.save(path, {"model": model, "grpo": grpo})
        list(grpo.steps(4))
    again, other = made(fabric, url, settings)
    with again:
        fabric.load(path, {"model": other, "grpo": again})
        numbers = [step.number for step in again.steps(4)]
    return {"numbers": numbers, "off": (weights(other) - weights(model)).abs().max().item()}


def sampled(url: str) -> dict[str, Any]:
    """The model itself replies."""
    settings = GRPOSettings(groups=1, generations=4, max_turns=2, reply_tokens=8, temperature=0.7)
    grpo, _ = made(fabric_of(), url, settings, generate=None)
    with grpo:
        step = grpo.step()
    return {"turns": step.turns, "reward": step.reward}


def distribution() -> dict[str, float]:
    """How often the model's first token is said, and its probability, at a temperature of 0.5."""
    model = model_for(TOKENIZER, hidden=32, layers=1, seed=0)
    model.generation_config.top_k = 1  # as models of hubs have such things, which do not count
    model.generation_config.repetition_penalty = 9.0
    model.train()
    prompt = TOKENIZER.encode("press go", add_special_tokens=False)
    torch.manual_seed(0)
    many = sampler(model, TOKENIZER, max_tokens=1, temperature=0.5, batch=700)
    replies, _ = many([prompt, prompt[:1]] * 2000)
    logits = model(input_ids=torch.tensor([prompt])).logits[0, -1] / 0.5
    likely = logits.softmax(-1)
    top = int(likely.argmax())
    said = [one[0] for one in replies[::2]]
    spread = 0.5 * sum(
        abs(said.count(token) / len(said) - likely[token].item()) for token in range(len(likely))
    )
    return {
        "said": said.count(top) / len(said),
        "likely": likely[top].item(),
        "spread": spread,
        "is_training": model.training,
    }


def refusals(url: str) -> list[str]:
    fabric, found = fabric_of(), []

    class FSDPStrategy:
        pass

    class Sharded:
        strategy, world_size, global_rank = FSDPStrategy(), 1, 0

    for build in (
        lambda: GRPOSettings(generations=1),
        lambda: GRPOSettings(clip_low=0.0),
        lambda: GRPO(fabric, None, None, TOKENIZER, url),
        lambda: GRPO(fabric, None, None, TOKENIZER, url, rows=[], prompt="Obey."),
        lambda: GRPO(Sharded(), None, None, TOKENIZER, url, prompt="Obey."),
        lambda: sampler(None, TOKENIZER, temperature=0.0),
        lambda: failing(url),
    ):
        try:
            build()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("none")
    return found


def failing(url: str) -> None:
    rows = [{"prompt": "Obey.", "seed": 1}]
    settings = GRPOSettings(groups=2, generations=2, max_turns=3, failures_in_a_row=4)
    grpo, _ = made(fabric_of(), url, settings, rows=rows, generate=all_obey)
    with grpo:
        list(grpo.steps(5))


def processes(url: str, number: int) -> dict[str, Any] | None:
    """The same four groups a step, however many processes play them."""
    fabric = fabric_of(number)
    settings = GRPOSettings(groups=4 // number, generations=2, max_turns=3)
    grpo, model = made(fabric, url, settings)
    with grpo:
        steps = [step.as_logs() for step in grpo.steps(3)]
    of_all = fabric.all_gather(weights(model.module))
    spread = 0.0 if number == 1 else (of_all[0] - of_all[1]).abs().max().item()
    if fabric.global_rank:
        return None
    return {"steps": steps, "weights": sums(model.module), "spread": spread}


def everything(url: str, folder: Path) -> dict[str, Any]:
    whole, steps = learning(url)
    parts, _ = learning(url, micro_batch=3)
    twice, of_twice = learning(url, epochs=2)
    return {
        "kinds": kinds(url),
        "unfinished": kinds(url, unfinished=None),
        "gradient": gradient(url),
        "steps": steps,
        "parts_off": (whole - parts).abs().max().item(),
        "twice_off": (whole - twice).abs().max().item(),
        "twice": of_twice,
        "resumed": resumed(url, folder),
        "sampled": sampled(url),
        "distribution": distribution(),
        "refusals": refusals(url),
    }


if __name__ == "__main__":
    way, address, rest = sys.argv[1:]
    told = everything(address, Path(rest)) if way == "all" else processes(address, int(rest))
    if told is not None:
        sys.stdout.write("\n" + json.dumps(told) + "\n")
