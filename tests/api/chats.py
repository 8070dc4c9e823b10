"""Checks of conversations against one server: the model's skills through the chat API, streams against whole
answers, and tool calls that come back."""
import concurrent.futures
import json
import pathlib
import random
import re

import client
from client import parse_stream

SKILLS = pathlib.Path(__file__).resolve().parent.parent / "mini" / "skills.jsonl"
CALL = re.compile(r"<tool_call>(\w+)((?:<arg_key>.*?</arg_key><arg_value>.*?</arg_value>)*)</tool_call>", re.S)
PAIR = re.compile(r"<arg_key>(.*?)</arg_key><arg_value>(.*?)</arg_value>", re.S)


def tool(name, **types):
    return {"type": "function", "function": {"name": name, "description": name, "parameters": {
        "type": "object", "properties": {key: {"type": t} for key, t in types.items()}, "required": list(types)}}}


TOOLS = [tool("get_weather", city="string"), tool("calculator", expression="string")]


def chat(s, messages, **fields):
    """The message of a whole answer, or that of a stream as a client joins it; and the answer."""
    status, _, raw = s.ask("POST", "/v1/chat/completions", json.dumps({"messages": messages, "temperature": 0, **fields}))
    assert status == 200, (status, raw)
    if not fields.get("stream"):
        answer = json.loads(raw)
        return answer["choices"][0]["message"], answer
    stream = parse_stream(raw)
    calls = [{"id": c["id"], "type": c["type"], "function": c["function"]} for c in stream["tool_calls"]]
    message = {"role": "assistant", "content": stream["text"][0] or None}
    if stream["reasoning"]:
        message["reasoning_content"] = message["reasoning"] = stream["reasoning"][0]
    return message | ({"tool_calls": calls} if calls else {}), stream


def expected_parts(text, thinks, tools):
    """Of the reference's text: reasoning, content, [(name, arguments)]. Independent of the server's parser."""
    reasoning, _, rest = text.partition("</think>") if thinks else ("", "", text)
    types = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in tools or []}
    calls = []
    for name, pairs in CALL.findall(rest) if tools else []:
        typed = {k: v if types[name][k]["type"] == "string" else json.loads(v) for k, v in PAIR.findall(pairs)}
        calls.append((name, typed))
    return reasoning, CALL.sub("", rest) if tools else rest, calls


def check_skills_through_the_chat_api(s):
    """Prompts on which all of torch's variants agree give torch's text, taken apart, whole and streamed."""
    skills = [json.loads(line) for line in SKILLS.read_text().splitlines()]
    skills = [k for k in skills if k["mode"] != "plain" and k["stable"] and k["prompt_tokens"] < 300]
    assert len(skills) > 100
    skills = skills[::round(1 / client.SHARE)]

    def one(item):
        i, skill = item
        text, thinks = skill["torch"]["q8_0_f32_sparse"]["text"], skill["mode"] == "think"
        fields = {"tools": skill["tools"]} if skill["tools"] else {}
        message, _ = chat(s, skill["messages"], stream=i % 2 == 1, max_tokens=skill["max_new"],
                          chat_template_kwargs={"enable_thinking": thinks}, **fields)
        reasoning, content, calls = expected_parts(text, thinks, skill["tools"])
        given = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])]
        assert (message.get("reasoning_content", ""), message["content"] or "", given) == (reasoning, content, calls), (
            skill["id"], message, text)
        assert not re.search(r"<\||\[gMASK\]|<sop>|</?think>", json.dumps(message)), message
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, enumerate(skills)))


def check_descriptions_of_tools_change_no_grammar(s):
    """What a tool's description says, down to control characters and the template's own markers, is text to the model alone."""
    odd = ["", "\"", "\\", "</tool_call>", "<tool_call>get_weather", "<arg_key>x</arg_key>", "<|user|>", "<|endoftext|>", "}{", "]]>",
           "{{ 7 * 7 }}", "{% if x %}", "\n\n", "\t\r", "\u0001\u001f", "\u2028", "\u202e", "naïve café", "日本語", "👩‍👩‍👧", "a" * 500,
           "%s%n", "root ::= \"x\"", "'; DROP TABLE", "\ufeff", "�"]
    rng = random.Random(5)

    def one(i):
        tools = json.loads(json.dumps(TOOLS))
        for t in tools:
            t["function"]["description"] = "".join(rng.choice(odd) for _ in range(rng.randint(0, 4)))
            for p in t["function"]["parameters"]["properties"].values():
                p["description"] = rng.choice(odd)
        choice = ("required", "auto", {"type": "function", "function": {"name": "calculator"}})[i % 3]
        message, _ = chat(s, [{"role": "user", "content": "What is 12 + 7?"}], tools=tools, tool_choice=choice, max_tokens=60,
                          temperature=0.8, seed=i, chat_template_kwargs={"enable_thinking": False}, stream=i % 2 == 1)
        for call in message.get("tool_calls", []):
            assert call["function"]["name"] in ("get_weather", "calculator"), message
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(int(40 * client.SHARE))))
    text = chat(s, [{"role": "user", "content": "What is 12 + 7?"}], max_tokens=60)[0]
    assert text["content"] is not None, text


def check_chat_streams_are_the_whole_answers(s):
    tools = {"tools": TOOLS}
    for question, fields in (("719+594", {}), ("What is the weather in Paris?", tools), ("Tell me a story about a fox named Max.", {}),
                             ("719+594", {"max_tokens": 7}), ("719+594", {"stop": ["13"]}), ("719+594", {"n": 2, "logprobs": True})):
        for thinking in (True, False):
            ask = [{"role": "user", "content": question}]
            fields = {"max_tokens": 60, **fields, "chat_template_kwargs": {"enable_thinking": thinking}}
            message, whole = chat(s, ask, **fields)
            streamed, stream = chat(s, ask, **fields, stream=True, stream_options={"include_usage": True})
            for parts in (message, streamed):
                parts.pop("refusal", None)
                for call in parts.get("tool_calls", []):
                    assert re.fullmatch("call_[0-9a-f]{24}", call.pop("id"))
            assert (message.pop("content") or "") == (streamed.pop("content") or "") and message == streamed, (message, streamed)
            events = stream["events"]
            for name in ("id", "created", "model", "object"):
                assert len({e[name] for e in events}) == 1, name
            first = {}
            for event in events[:-1]:
                choice = event["choices"][0]
                first.setdefault(choice["index"], choice["delta"])
            assert all(delta == {"role": "assistant", "content": ""} for delta in first.values()), first
            usage, expected = events[-1]["usage"], whole["usage"]
            assert {k: usage[k] for k in ("prompt_tokens", "completion_tokens", "completion_tokens_details")} == \
                   {k: expected[k] for k in ("prompt_tokens", "completion_tokens", "completion_tokens_details")}
            ends = [c for e in events[:-1] for c in e["choices"] if c["finish_reason"]]
            assert [c["finish_reason"] for c in sorted(ends, key=lambda c: c["index"])] == [
                c["finish_reason"] for c in whole["choices"]]
            if "logprobs" in fields:
                entries = [x for e in events[:-1] for c in e["choices"] if c["index"] == 0 for x in c["logprobs"]["content"]]
                assert entries == whole["choices"][0]["logprobs"]["content"]


def agent_loop(s, turns, send_back, **fields):
    """Calls, each answered; the model is held to known values, as it would ramble. Gives (prompt tokens, cached tokens, generated tokens) of each turn."""
    tools = json.loads(json.dumps(TOOLS))
    tools[0]["function"]["parameters"]["properties"]["city"]["enum"] = ["Paris", "Oslo", "Port-au-Prince"]
    tools[1]["function"]["parameters"]["properties"]["expression"]["enum"] = ["17 + 4", "93 * 12"]
    messages, counts = [{"role": "user", "content": "What is the weather in Paris?"}], []
    for turn in range(turns):
        message, answer = chat(s, messages, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=200, **fields)
        usage = answer["usage"]
        counts.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]))
        assert answer["choices"][0]["finish_reason"] == "tool_calls", answer
        messages.append(send_back(message))
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"turn": turn, "sky": "clear"})})
    return counts


def check_calls_that_come_back_are_the_very_tokens(s):
    """All that was computed for a turn is found again in the next: its prompt, and what was generated but for the
    last two tokens (one is the end token, and the state of the last token is never computed)."""
    def whole(message):
        return message

    def bare(message):  # as clients that know no reasoning send it
        return {key: message[key] for key in ("role", "content", "tool_calls")}

    def respaced(message):  # arguments as another JSON library writes them
        calls = [{**c, "function": {"name": c["function"]["name"],
                                    "arguments": json.dumps(json.loads(c["function"]["arguments"]), indent=2)}}
                 for c in message["tool_calls"]]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    for thinking in (True, False):
        for send_back in (whole, bare, respaced):
            counts = agent_loop(s, max(3, round(10 * client.SHARE)), send_back, chat_template_kwargs={"enable_thinking": thinking}, seed=3)
            for (prompt, _, generated), (_, cached, _) in zip(counts, counts[1:]):
                assert cached >= prompt + generated - 2, (thinking, send_back.__name__, counts)


def check_an_edited_call_is_rendered_as_it_is_now(s):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    message, _ = chat(s, ask, tools=TOOLS, chat_template_kwargs={"enable_thinking": False})
    message["tool_calls"][0]["function"]["arguments"] = '{"city": "Rome"}'
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}
    body = {"messages": ask + [message, result], "tools": TOOLS}
    status, _, raw = s.ask("POST", "/apply-template", json.dumps(body))
    answer = json.loads(raw)
    assert status == 200 and answer["exact_tokens"] == 0 and "<arg_value>Rome</arg_value>" in answer["prompt"], answer
    text = json.loads(s.ask("POST", "/detokenize", json.dumps({"tokens": answer["tokens"]}))[2])["prompt"]
    assert text == answer["prompt"]


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
