"""How replies of models are read: thoughts, calls in every format, words that are an action."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openenv.rollouts.formats import regions_in
from openenv.rollouts.interfaces import AgentTool, Interface
from openenv.rollouts.replies import describe_tools, opens_thought, read_reply

BAR = "\uff5c"
PUT = AgentTool(
    "put",
    "Put a word.",
    {
        "type": "object",
        "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["word"],
    },
)
STOP = AgentTool("stop", "Stop.", {"type": "object", "properties": {}})
TOOLS = Interface(None, (PUT, STOP))


def texts(field: str = "move", **schema: Any) -> Interface:
    """An environment whose only action is one text."""
    properties = {field: {"type": "string", **schema}}
    return Interface(None, (AgentTool("act", "", {"properties": properties, "required": [field]}),))


MOVE, CODE = texts(), texts("code")
ARGUMENTS = {"word": "75001", "count": 3}
AS_JSON = json.dumps(ARGUMENTS)
NAMED = json.dumps({"name": "put", "arguments": ARGUMENTS})

# One call, as families of models write it.
WRITTEN = {
    "json": NAMED,
    "json with parameters": json.dumps({"name": "put", "parameters": ARGUMENTS}),
    "arguments as a string": json.dumps({"name": "put", "arguments": AS_JSON}),
    "as OpenAI's API": json.dumps({"type": "function", "function": json.loads(NAMED)}),
    "in a fence": f"I put it.\n```json\n{NAMED}\n```",
    "hermes": f"<tool_call>\n{NAMED}\n</tool_call>",
    "hermes, not closed": f"<tool_call>\n{NAMED}",
    "mistral": f"[TOOL_CALLS][{NAMED}]",
    "mistral 3": f"[TOOL_CALLS]put[ARGS]{AS_JSON}",
    "mistral small": f"[TOOL_CALLS]put[CALL_ID]abcdefghi[ARGS]{AS_JSON}",
    "command r": "<|START_ACTION|>[\n"
    + json.dumps({"tool_call_id": "0", "tool_name": "put", "parameters": ARGUMENTS})
    + "\n]<|END_ACTION|>",
    "nemotron nano": f"<TOOLCALL>[{NAMED}]</TOOLCALL>",
    "apertus": f'<|tools_prefix|>[{{"put": {AS_JSON}}}]<|tools_suffix|>',
    "granite": f"<|tool_call|>[{NAMED}]",
    "qwen 3.5": "<tool_call>\n<function=put>\n<parameter=word>\n75001\n</parameter>\n"
    "<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>",
    "seed-oss": "<seed:tool_call>\n<function=put>\n<parameter=word>75001</parameter>\n"
    "<parameter=count>3</parameter>\n</function>\n</seed:tool_call>",
    "glm": "<tool_call>put\n<arg_key>word</arg_key>\n<arg_value>75001</arg_value>\n"
    "<arg_key>count</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="put">\n<parameter name="word">75001</parameter>'
    '\n<parameter name="count">3</parameter>\n</invoke>\n</minimax:tool_call>',
    "deepseek 3.2": f'<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="put">\n'
    f'<{BAR}DSML{BAR}parameter name="word" string="true">75001</{BAR}DSML{BAR}parameter>\n'
    f'<{BAR}DSML{BAR}parameter name="count" string="false">3</{BAR}DSML{BAR}parameter>\n'
    f"</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>",
    "deepseek": f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>function"
    f"<{BAR}tool▁sep{BAR}>put\n```json\n{AS_JSON}\n```<{BAR}tool▁call▁end{BAR}>"
    f"<{BAR}tool▁calls▁end{BAR}>",
    "deepseek 3.1": f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>put"
    f"<{BAR}tool▁sep{BAR}>{AS_JSON}<{BAR}tool▁call▁end{BAR}><{BAR}tool▁calls▁end{BAR}>",
    "kimi k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.put:0"
    f"<|tool_call_argument_begin|>{AS_JSON}<|tool_call_end|><|tool_calls_section_end|>",
    "gpt-oss": f"<|channel|>commentary to=functions.put <|constrain|>json<|message|>{AS_JSON}",
    "functionary": f"<function=put>{AS_JSON}</function>",
    "lfm2": "<|tool_call_start|>[put(word='75001', count=3)]<|tool_call_end|>",
    "llama 4": '[put(word="75001", count=3)]',
    "gemma 4": '<|tool_call>call:put{count:3,word:<|"|>75001<|"|>}<tool_call|>',
    "function gemma": "<start_function_call>call:put{word:<escape>75001<escape>,count:3}"
    "<end_function_call>",
}


def calls_of(text: str, interface: Interface = TOOLS, **options: Any) -> list[Any]:
    parsed = read_reply(text, interface, **options)
    assert parsed.problem is None, parsed.problem
    return [(call.name, dict(call.arguments)) for call in parsed.calls]


@pytest.mark.parametrize("form", WRITTEN)
def test_a_call_is_read_in_every_format_and_its_values_are_of_the_schemas_types(form: str) -> None:
    # The postcode is a text and not a number, also where the format writes both alike.
    assert calls_of(WRITTEN[form]) == [("put", ARGUMENTS)]
    assert calls_of(f"<think>Perhaps {NAMED}?</think>\n{WRITTEN[form]}") == [("put", ARGUMENTS)]


@pytest.mark.parametrize(
    "form", [form for form in WRITTEN if form not in ("llama 4", "functionary")]
)
def test_every_call_of_a_reply_is_read_in_order(form: str) -> None:
    second = WRITTEN[form].replace("75001", "second")
    found = calls_of(f"{WRITTEN[form]}\n{second}")
    assert [arguments["word"] for _, arguments in found] == ["75001", "second"]


def test_a_list_of_calls_is_carried_out_as_a_whole() -> None:
    both = f'[{NAMED}, {{"name": "stop", "arguments": {{}}}}]'
    for text in (both, f"[TOOL_CALLS]{both}", "[put(word='75001', count=3), stop()]"):
        assert calls_of(text) == [("put", ARGUMENTS), ("stop", {})]


@pytest.mark.parametrize("form", ["hermes", "qwen 3.5", "glm", "lfm2", "gemma 4", "kimi k2"])
def test_a_call_that_cannot_be_read_is_told_and_is_no_text(form: str) -> None:
    text = WRITTEN[form]
    broken = text[: text.index("75001") + 2] + text[-3:]
    for interface in (TOOLS, MOVE):
        parsed = read_reply(broken, interface)
        assert not parsed.calls
        assert "could not be read" in str(parsed.problem)


def test_calls_before_one_that_cannot_be_read_are_carried_out() -> None:
    parsed = read_reply(f"<tool_call>{NAMED}</tool_call><tool_call>{{put</tool_call>", TOOLS)
    assert [call.name for call in parsed.calls] == ["put"]
    assert "could not be read" in str(parsed.problem)


def test_json_in_running_text_is_no_call_beside_one_between_markers() -> None:
    text = f'I will not say {{"name": "stop", "arguments": {{}}}}.<tool_call>{NAMED}</tool_call>'
    assert calls_of(text) == [("put", ARGUMENTS)]


def test_a_call_of_no_tool_is_kept_to_be_told_of() -> None:
    assert calls_of('<tool_call>{"name": "stpo", "arguments": {}}</tool_call>') == [("stpo", {})]


# ------------------------------------------------------------------ thoughts

THOUGHTS = {
    "think": "<think>\nNf3 or {}?\n</think>\n\n",
    "think, opened by the prompt": "Nf3 or {}?\n</think>\n\n",
    "magistral": "[THINK]Nf3 or {}?[/THINK]",
    "gemma 4": "<|channel>thought\nNf3 or {}?<channel|>",
    "gpt-oss": "<|channel|>analysis<|message|>Nf3 or {}?<|end|><|start|>assistant<|channel|>final"
    "<|message|>",
    "command a": "<|START_THINKING|>Nf3 or {}?<|END_THINKING|><|START_RESPONSE|>",
    "seed-oss": "<seed:think>Nf3 or {}?</seed:think>",
    "apertus": "<|inner_prefix|>Nf3 or {}?<|inner_suffix|>",
    "apriel": "Here are my reasoning steps:\nNf3 or {}?\n[BEGIN FINAL RESPONSE]\n",
    "kimi vl": "◁think▷Nf3 or {}?◁/think▷",
    "two thoughts": "<think>Nf3?</think>No.<think>{}?</think>",
}


@pytest.mark.parametrize("family", THOUGHTS)
def test_thoughts_are_no_part_of_an_action(family: str) -> None:
    thought = THOUGHTS[family].replace("{}", '{"move": "a2a3"}')
    parsed = read_reply(f"{thought}e2e4<|im_end|>", MOVE, specials=["<|im_end|>"])
    assert [dict(call.arguments) for call in parsed.calls] == [{"move": "e2e4"}]
    assert "Nf3" in parsed.thought


def test_a_thought_that_is_open_is_no_action() -> None:
    for text in ("<think>e2e4", '<think>I say {"move": "e2e4"}', "[THINK]e2e4"):
        parsed = read_reply(text, MOVE)
        assert (list(parsed.calls), "thought" in str(parsed.problem)) == ([], True)
    assert not read_reply("e2e4", MOVE, in_thought=True).calls
    assert read_reply("hm</think>e2e4", MOVE, in_thought=True).calls[0].arguments == {
        "move": "e2e4"
    }


def test_calls_between_thoughts_count() -> None:
    text = f"<think>a</think><tool_call>{NAMED}</tool_call><think>b</think>Done."
    assert calls_of(text) == [("put", ARGUMENTS)]


def test_a_prompt_tells_whether_it_opens_a_thought() -> None:
    assert opens_thought("<|im_start|>assistant\n<think>\n")
    assert not opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not opens_thought("<|im_start|>assistant\n")


def test_a_reply_that_was_cut_off_is_not_carried_out() -> None:
    for text in ("e2e4", f"<tool_call>{NAMED}</tool_call>", f"<think>{NAMED}"):
        for interface in (MOVE, TOOLS):
            parsed = read_reply(text, interface, is_cut=True)
            assert (list(parsed.calls), "cut off" in str(parsed.problem)) == ([], True)


# ------------------------------------------------------------------ words

FENCED = {
    "plain": "  x = 1\nprint(x)",
    "fenced": "Here it is:\n\n```python\n  x = 1\nprint(x)\n```\nIt prints 1.",
    "tildes": "~~~\n  x = 1\nprint(x)\n~~~",
    "two": "```py\n  x = 1\n```\nand then\n```py\nprint(x)\n```",
    "behind a thought": "<think>```python\n0\n```</think>\n```python\n  x = 1\nprint(x)\n```",
}


@pytest.mark.parametrize("form", FENCED)
def test_code_may_stand_in_fences(form: str) -> None:
    assert calls_of(FENCED[form], CODE) == [("act", {"code": "  x = 1\nprint(x)"})]


def test_fences_are_words_where_no_code_is_asked_for() -> None:
    assert calls_of("```\ne2e4\n```", MOVE) == [("act", {"move": "```\ne2e4\n```"})]
    said = texts("answer", contentMediaType="text/x-python")
    assert calls_of("```\n1\n```", said) == [("act", {"answer": "1"})]


def test_a_reply_as_a_whole_is_the_action_only_where_there_is_nothing_else() -> None:
    properties = {"code": {"type": "string"}, "submit": {"type": "boolean"}}
    coding = Interface(
        None, (AgentTool("code", "", {"properties": properties, "required": ["code"]}),)
    )
    assert MOVE.takes_any_text and not coding.takes_any_text
    assert not texts(pattern="[a-h][1-8]").takes_any_text
    assert not texts(enum=["hit", "stand"]).takes_any_text
    assert "submit" in describe_tools(coding)
    assert describe_tools(texts(description="In UCI, such as e2e4.")).endswith(
        "In UCI, such as e2e4."
    )
    assert describe_tools(MOVE) == ""
    assert "arguments" in describe_tools(MOVE, as_json=True)


def test_of_a_reply_without_an_action_it_is_told_how_to_act() -> None:
    parsed = read_reply("I do not know.", TOOLS)
    assert parsed.problem == "the reply is no action; call one of these tools: put, stop"
    assert "JSON" in str(read_reply("I do not know.", TOOLS, "json").problem)
    assert read_reply("e2e4", MOVE, "json").problem is not None


@pytest.mark.parametrize(
    "text", ["[" * 3000, '{"a":' * 3000, "<tool_call>" * 2000, "call:a{" * 500]
)
def test_a_reply_of_nothing_but_beginnings_is_read_soon(text: str) -> None:
    assert not any(one.calls for one in regions_in(text))
    assert read_reply(text, TOOLS).problem


@pytest.mark.timeout(60)  # each of them took minutes, or hours
@pytest.mark.parametrize(
    "said",
    [
        "<tool_call>f\n" + "<arg_key>a</arg_key><arg_value>b</arg_value>" * 1000,
        "<tool_call>f<arg_key>" * 3000 + "</arg_value>",
        "<function=f>" * 15_000,
        "<function=f>" + "<parameter=a>" + " " * 100_000 + "x</function>",
        '<invoke name="f">' * 10_000 + "</function>",
        '<invoke name="f">' + '<parameter name="a">' * 10_000 + "</invoke>",
        '<|open|>call tool="f"<|sep|>' * 5000,
        "<|tool_call>call:f{a:[1," * 3000,
        ">>>f" + "\n" * 100_000 + "x",
        '{"name":"f"} x <tool_call>{"name":"f"}</tool_call> x ' * 3000,
        "[" * 100_000,
        "[{" * 50_000,
        '{"a":' * 30_000,
        "<tool_call>[" * 10_000,
        "<|channel|>analysis<|message|>" * 10_000,
    ],
    ids=lambda said: said[:24].strip(),
)
def test_a_reply_is_read_in_proportion_to_its_length(said: str) -> None:
    """Whatever a policy says, or wherever it is cut."""
    calls = [call.name for call in read_reply(said, TOOLS).calls]
    assert calls in ([], ["f"], ["f"] * 3000)
