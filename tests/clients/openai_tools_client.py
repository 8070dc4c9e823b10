#!/usr/bin/env python3
"""Tools in OpenAI's chat API as OpenAI's own Python package uses them, and programs that call them in a loop. Texts: the
mini model's reference in PyTorch, or what its training taught for the given prompt."""
import json
import sys

from serving import missing, run

if missing("openai"):
    sys.exit(77)

import openai  # noqa: E402
import pydantic  # noqa: E402

from openai_chat import (BOTH, CALCULATOR, COUNT_DEVICE, NO_THINKING, TIME, WEATHER, ask, client_of, fields_of, join,  # noqa: E402
                         raises, reasoning_of, text_of, tool)

THINK = {"reasoning_effort": "high"}
SEARCH = tool("search", "Search for a text", query="string")


def calls_of(completion):
    calls = completion.choices[0].message.tool_calls or []
    assert all(c.type == "function" and c.id.startswith("call_") for c in calls) and len({c.id for c in calls}) == len(calls)
    return [(c.function.name, json.loads(c.function.arguments)) for c in calls]


def result(call, value):
    return {"role": "tool", "tool_call_id": call.id, "content": value if isinstance(value, str) else json.dumps(value)}


# ---- calls

def check_one_call(server):
    r = ask(server, "What is the weather in Oslo?", tools=[WEATHER, TIME])
    choice = r.choices[0]
    assert calls_of(r) == [("get_weather", {"city": "Oslo"})] and choice.finish_reason == "tool_calls", r
    assert choice.message.content is None and reasoning_of(choice.message) is None, r
    r = ask(server, "Use count_device with device_id 68859.", tools=[SEARCH, COUNT_DEVICE, CALCULATOR], **THINK)
    assert calls_of(r) == [("count_device", {"device_id": 68859})], r  # a number, by its schema
    assert reasoning_of(r.choices[0].message) == "I call count_device.", r


def check_two_calls_at_once(server):
    for fields in ({}, THINK):
        r = ask(server, BOTH, tools=[WEATHER], **fields)
        assert calls_of(r) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})], r
        results = [result(call, {"city": city, "temperature": degrees, "sky": sky}) for call, (city, degrees, sky) in
                   zip(r.choices[0].message.tool_calls, (("Oslo", 7, "rain"), ("Paris", 21, "sun")))]
        final = ask(server, [{"role": "user", "content": BOTH}, r.choices[0].message, *results], tools=[WEATHER], **fields)
        assert text_of(final) == "In Oslo it is 7 degrees with rain. In Paris it is 21 degrees with sun.", final
        assert final.choices[0].finish_reason == "stop", final
    r = ask(server, BOTH, tools=[WEATHER], parallel_tool_calls=False)
    assert calls_of(r) == [("get_weather", {"city": "Oslo"})], r


def check_streamed_calls(server):
    message = tool("send_message", "Send a message to a person", to="string", text="string")
    for text, tools, fields in ((BOTH, [WEATHER], {}), (BOTH, [WEATHER], THINK),
                                ("Send Xavier the message: banana egg", [message], {})):
        whole = ask(server, text, tools=tools, **fields).choices[0].message
        chunks = list(ask(server, text, tools=tools, stream=True, **fields))
        (got,), _ = join(chunks)  # which looks at ids, names and order
        assert [(c["name"], c["arguments"]) for c in got["calls"]] == [
            (c.function.name, c.function.arguments) for c in whole.tool_calls], (got, whole)
        assert got["finish_reason"] == "tool_calls" and got["content"] == "", got
        n_pieces = sum(len(c.choices[0].delta.tool_calls or []) for c in chunks)
        assert n_pieces > 3 * len(got["calls"]), f"arguments in {n_pieces} pieces"


def check_the_stream_helper(server):
    with client_of(server).chat.completions.stream(**fields_of(server, BOTH, {"tools": [WEATHER]})) as stream:
        done = [(e.name, json.loads(e.arguments)) for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert done == calls_of(final) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})], done


class calculator(pydantic.BaseModel):
    """Evaluate an expression"""
    expression: str


def check_a_strict_tool_is_parsed(server):
    tools = [openai.pydantic_function_tool(calculator)]
    r = client_of(server).chat.completions.parse(
        **fields_of(server, "Use the calculator for 8478 - 3628.", {"tools": tools}))
    assert r.choices[0].message.tool_calls[0].function.parsed_arguments == calculator(expression="8478 - 3628"), r


def check_tool_choice(server):
    tools = [WEATHER, TIME]
    for fields in ({}, THINK):
        required = ask(server, "Hi!", tools=tools, tool_choice="required", max_tokens=200, **fields)
        assert calls_of(required)[0][0] in ("get_weather", "get_time"), required
        assert required.choices[0].finish_reason == "tool_calls", required
        named = ask(server, "What is the weather in Oslo?", tools=tools, max_tokens=200, **fields,
                    tool_choice={"type": "function", "function": {"name": "get_time"}})
        assert [name for name, _ in calls_of(named)] == ["get_time"], named
        (streamed,), _ = join(ask(server, "What is the weather in Oslo?", tools=tools, max_tokens=200, **fields, stream=True,
                                  tool_choice={"type": "function", "function": {"name": "get_time"}}))
        assert [c["name"] for c in streamed["calls"]] == ["get_time"], streamed
        assert json.loads(streamed["calls"][0]["arguments"]) == calls_of(named)[0][1], streamed
        auto = ask(server, "706 + 31", tools=tools, tool_choice="auto", **fields)
        assert not calls_of(auto) and text_of(auto) == "706 + 31 = 737", auto
        none = ask(server, "706 + 31", tools=tools, tool_choice="none", **fields)
        assert not calls_of(none) and text_of(none) == "706 + 31 = 737", none
        assert none.usage.prompt_tokens == 12 < auto.usage.prompt_tokens, none.usage  # the model does not see them
    none = ask(server, "What is the weather in Oslo?", tools=tools, tool_choice="none")
    assert not calls_of(none) and none.choices[0].finish_reason == "stop", none


def check_calls_that_are_cut_are_still_calls(server):
    for limit in range(4, 9):
        r = ask(server, "What is the weather in Oslo?", tools=[WEATHER], max_tokens=limit)
        assert r.choices[0].finish_reason == "length", r
        assert "<tool_call>" not in (text_of(r) or "") and all(isinstance(a, dict) for _, a in calls_of(r)), r


def check_a_tool_that_fails(server):
    question = "Please search the web for the history of the bell."
    r = ask(server, question, tools=[SEARCH])
    assert calls_of(r) == [("search", {"query": "history of the bell"})], r
    message = r.choices[0].message
    final = ask(server, [{"role": "user", "content": question}, message,
                         result(message.tool_calls[0], {"error": "not available"})], tools=[SEARCH])
    assert text_of(final) == "The tool returned an error: not available.", final


def check_bad_tools(server):
    for fields, param, words in (({"tools": [{"type": "web_search"}]}, "tools[0]", "web_search"),
                                 ({"tools": [{"type": "function", "function": {}}]}, "tools[0]", "name"),
                                 ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice", "maybe"),
                                 ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "nope"}}},
                                  "tool_choice", "nope")):
        error = raises(openai.BadRequestError, ask, server, "x", **fields)
        assert error.param == param and words in str(error), error


# ---- agents

def run_tool(name, arguments):
    if name == "get_weather":
        return json.dumps({"city": arguments["city"], "temperature": -3, "sky": "snow"})
    a, op, b = arguments["expression"].split()
    return json.dumps({"result": {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]})


def without_reasoning(message):
    """As programs send it back that know OpenAI's fields alone."""
    sent = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [c.model_dump() for c in message.tool_calls]
    return sent


BACK = (("the message as it came", lambda message: message), ("role, content and tool_calls", without_reasoning))


def agent(server, question, messages, back, **fields):
    """Asks until the model calls no more tools; all answers."""
    messages.append({"role": "user", "content": question})
    answers = []
    for _ in range(5):
        answers.append(ask(server, messages, **fields))
        message = answers[-1].choices[0].message
        messages.append(back(message))
        if not message.tool_calls:
            return answers
        messages += [result(c, run_tool(c.function.name, json.loads(c.function.arguments))) for c in message.tool_calls]
    raise AssertionError(messages)


def check_an_agent_gets_the_right_answers(server):
    for _, back in BACK:
        for fields in (NO_THINKING, THINK):
            messages, fields = [], {"tools": [WEATHER, CALCULATOR], **fields}
            for question, name, expected in (("What is the weather in Oslo?", "get_weather", "In Oslo it is -3 degrees with snow."),
                                             ("Use the calculator for 9226 * 1363.", "calculator", f"The result is {9226 * 1363}.")):
                first, final = agent(server, question, messages, back, **fields)
                assert [call[0] for call in calls_of(first)] == [name] and text_of(final) == expected, final
                reads = first.usage.prompt_tokens + first.usage.completion_tokens - 2
                assert final.usage.prompt_tokens_details.cached_tokens >= reads, (first.usage, final.usage)
                assert bool(reasoning_of(first.choices[0].message)) == (fields["reasoning_effort"] == "high"), first
            last = agent(server, "706 + 31", messages, back, **fields)
            assert len(last) == 1 and text_of(last[0]) == "706 + 31 = 737", last


def check_ten_calls_are_never_computed_twice(server):
    """A turn's prompt begins with the very tokens of the turn before, generated ones too, however they come back; so all of
    them are in the cache, but for the end token, which nothing was computed for."""
    weather = tool("get_weather", "Get the weather of a city",
                   city={"type": "string", "enum": ["Oslo", "Paris", "Rome", "Madrid", "Vienna"]})
    fields = {"tools": [weather], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120,
              "extra_body": {"return_token_ids": True}}
    runs = [(name, back, thinking) for thinking in (NO_THINKING, THINK) for name, back in BACK]
    for person, (name, back, thinking) in zip(("Nova", "Bolt", "Echo", "Mini"), runs):
        # A text of its own in front: what is cached is of this conversation.
        messages = [{"role": "system", "content": f"Your name is {person}."},
                    {"role": "user", "content": "What is the weather in Oslo?"}]
        known, least, seen = [], 0, []
        for turn in range(10):
            r = ask(server, messages, **fields, **thinking)
            usage, message = r.usage, r.choices[0].message
            assert r.choices[0].finish_reason == "tool_calls" and len(message.tool_calls) == 1, (turn, r)
            assert bool(reasoning_of(message)) == (thinking is THINK), (turn, r)
            seen.append(f"{usage.prompt_tokens_details.cached_tokens}/{usage.prompt_tokens}")
            assert usage.prompt_tokens_details.cached_tokens >= least, (name, seen, least)
            assert r.prompt_token_ids[:len(known)] == known, (name, turn)
            least = usage.prompt_tokens + usage.completion_tokens - 2
            known = r.prompt_token_ids + r.choices[0].token_ids[:-1]
            assert (len(r.prompt_token_ids), len(r.choices[0].token_ids)) == (usage.prompt_tokens, usage.completion_tokens)
            messages += [back(message), result(message.tool_calls[0], run_tool(*calls_of(r)[0]))]
        print(f"      {thinking}, {name} goes back; cached/prompt: {' '.join(seen)}")


if __name__ == "__main__":
    sys.exit(run([check for name, check in list(globals().items()) if name.startswith("check_")]))
