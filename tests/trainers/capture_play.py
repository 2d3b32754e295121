"""A small transformer behind the proxy, and TRL's own worker that trains on a program's calls.

    python capture_play.py        prints what came of it, as JSON

The model is random, so what it writes is nearly never in the tokens that its text has: exact
capture and text made into tokens again differ.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples")]

from tiny_models import model_for, tokenizer_for  # noqa: E402
from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop  # noqa: E402

from openenv.capture import ProgramSession, ProgramSessionFactory, validate_llm  # noqa: E402
from openenv.core.harness import ResourceSession, ResourceSessionFactory, VerifyResult  # noqa: E402
from openenv.core.harness.capture import CaptureServer, measure_retokenization_skew  # noqa: E402
from openenv.core.harness.capture.export import export_session  # noqa: E402
from openenv.server.run import bind  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = 3
# An agent that knows its model by the variables of OpenAI's SDK only.
AGENT = f"""
import json, os, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
messages = [{{"role": "user", "content": os.environ["OPENENV_TASK"]}}]
for turn in range({TURNS}):
    body = {{"model": "any", "messages": messages, "max_tokens": 24, "stream": turn % 2 == 1}}
    headers = {{"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        text = answer.read().decode()
    if body["stream"]:
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: {{")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        said = "".join(delta.get("content") or "" for delta in deltas)
    else:
        said = json.loads(text)["choices"][0]["message"]["content"]
    messages += [{{"role": "assistant", "content": said}}, {{"role": "user", "content": "go on"}}]
"""


class Server:
    """Samples at a temperature, and tells tokens and log-probabilities as vLLM does."""

    def __init__(self) -> None:
        texts = ["user assistant system go on", "tell me a story about a cat and a dog", TEMPLATE]
        self.tokenizer = tokenizer_for(texts, TEMPLATE, 400)
        self.model = model_for(self.tokenizer).eval()
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def sampled(self, prompt: list[int], limit: int, temperature: float) -> Any:
        tokens, logprobs = list(prompt), []
        while len(tokens) - len(prompt) < limit:
            logits = self.model(torch.tensor([tokens])).logits[0, -1] / temperature
            chances = torch.log_softmax(logits, -1)
            token = int(torch.multinomial(chances.exp(), 1))
            tokens.append(token)
            logprobs.append((float(chances[token]), chances.topk(5)))
            if token == self.tokenizer.eos_token_id:
                break
        return tokens[len(prompt) :], logprobs

    async def chat(self, request: Any) -> Any:
        body = await request.json()
        prompt = self.tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_dict=False
        )
        limit, temperature = body.get("max_tokens", 16), body.get("temperature", 1.0)
        written, chances = self.sampled(prompt, limit, temperature)
        content = [
            {"token": "", "logprob": p, "top_logprobs": [{"logprob": float(v)} for v in top.values]}
            for p, top in chances
        ]
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        cut_off = written[-1] != self.tokenizer.eos_token_id
        finish = "length" if cut_off else "stop"
        told = {"logprobs": {"content": content}, "token_ids": written, "index": 0}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(written)}
        head = {"id": "1", "model": "tiny", "created": 1, "prompt_token_ids": prompt}
        if body.get("stream"):
            said = {"content": text}
            events = [
                {**head, "choices": [{**told, "delta": said, "finish_reason": finish}]},
                {**head, "choices": [], "usage": usage},
            ]
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type=EVENTS)
        message = {"role": "assistant", "content": text}
        choice = {**told, "message": message, "finish_reason": finish}
        return JSONResponse({**head, "choices": [choice], "usage": usage})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def furthest(self, turn: Any) -> float:
        """How far the captured log-probabilities are from those of the model, told all at once."""
        whole = torch.tensor([turn.prompt_token_ids + turn.completion_token_ids])
        chances = torch.log_softmax(self.model(whole).logits[0, :-1], -1)
        start = len(turn.prompt_token_ids) - 1
        known = chances[start:].gather(1, whole[0, start + 1 :, None])[:, 0]
        return float((known - torch.tensor(turn.per_token_logps)).abs().max())


EVENTS = "text/event-stream"


@contextlib.contextmanager
def serving(app: Any) -> Any:
    with bind("127.0.0.1", 0) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        server.should_exit = True
        thread.join(10)


class Story(ResourceSession):
    """A task with no tools."""

    def initial_messages(self) -> Any:
        return [{"role": "user", "content": "tell me a story"}]

    def list_tools(self) -> Any:
        return []

    def call_tool(self, name: str, arguments: Any) -> Any:
        raise KeyError(name)

    def verify(self, transcript: Any, final_state: Any = None) -> VerifyResult:
        return VerifyResult(env_reward=float(len(transcript)), done=True)

    def close(self) -> None:
        return None


class Stories(ResourceSessionFactory[Story]):
    def create(self, task: Any, seed: Any = None, episode_id: Any = None) -> Story:
        return Story()


class Kept(ProgramSessionFactory):
    """Keeps what was captured, past the end of the session."""

    def create(self, task: Any, seed: Any = None, episode_id: Any = None) -> ProgramSession:
        session = super().create(task, seed, episode_id)
        self.captured, self.trace = session.captured, session.fetch_training_trace
        return session


def main() -> None:
    torch.manual_seed(0)
    server = Server()
    with serving(server.app) as url, CaptureServer(llm_url=url, model="tiny", port=0) as proxy:
        report = validate_llm(url, "tiny", check_tools=False)
        factory = Kept(
            Stories(), proxy, [sys.executable, "-c", AGENT], sampling={"temperature": 1.0}
        )
        loop = object.__new__(_HarnessRolloutLoop)
        loop._factory, loop._adapter, loop._rollout_reward_fn = factory, None, None
        loop._live_sessions, loop._stop_event = set(), threading.Event()
        loop._fork_threshold_tokens = 0
        result, metrics = loop._run_session([{"role": "user", "content": "tell me a story"}])
        trace, graph = factory.trace(), factory.captured.graph
        document = export_session(factory.captured)
        skew = measure_retokenization_skew(graph, document, server.tokenizer)
        completion, completion_ids, sequences, _, _, reward = result
        sys.stdout.write(
            json.dumps(
                {
                    "level": report.capture_level,
                    "logprobs_mode": report.logprobs_mode,
                    "turns": len(trace.turns),
                    "furthest": max(server.furthest(turn) for turn in trace.turns),
                    "written": sum(len(turn.completion_token_ids) for turn in trace.turns),
                    "completion_ids": len(completion_ids),
                    "trained": sum(sum(one.completion_mask) for one in sequences),
                    "roles": [message["role"] for message in completion],
                    "reward": reward,
                    "metrics_turns": metrics["turns"],
                    "skewed": skew["turns_skewed"],
                    "streams": [
                        turn.response["choices"][0]["finish_reason"] for turn in trace.turns
                    ],
                    "left": proxy.registry.list_ids(),
                }
            )
        )


if __name__ == "__main__":
    main()
