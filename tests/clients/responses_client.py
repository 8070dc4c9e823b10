#!/usr/bin/env python3
"""The Responses API as OpenAI's own Python package uses it. Texts: the mini model's reference in PyTorch, or what its
training taught for the given prompt."""
import json
import sys
import threading

from serving import missing, run

if missing("openai"):
    sys.exit(77)

import openai  # noqa: E402
import pydantic  # noqa: E402

NO_THINKING = {"effort": "none"}


def function(name, description, **properties):
    return {"type": "function", "name": name, "description": description, "strict": False,
            "parameters": {"type": "object", "properties": {k: {"type": t} for k, t in properties.items()},
                           "required": list(properties)}}


WEATHER = function("get_weather", "Get the weather of a city", city="string")
CALCULATOR = function("calculator", "Evaluate an expression", expression="string")
TIME = function("get_time", "Get the local time of a city", city="string")


def client_of(server, **options):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0, **options)


def ask(server, question, **fields):
    fields = {"model": server.model, "temperature": 0, "reasoning": NO_THINKING, **fields}
    return client_of(server).responses.create(input=question, **fields)


def validate(value):
    """The package takes what it gets; this holds it against the package's own types."""
    pydantic.TypeAdapter(type(value)).validate_python(value.model_dump(by_alias=True, exclude_unset=True))


def raises(kind, function, *args, **fields):
    try:
        function(*args, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def types_of(response):
    return [item.type for item in response.output]


# ---- answers

def check_plain(server):
    r = ask(server, "What is 706 + 31?", instructions="You are a helpful assistant.", metadata={"a": "b"})
    assert r.output_text == "706 + 31 = 737", r.output_text
    assert r.id.startswith("resp_") and r.object == "response" and r.status == "completed" and r.error is None, r
    assert types_of(r) == ["message"] and r.output[0].id.startswith("msg_") and r.output[0].status == "completed", r
    assert r.instructions == "You are a helpful assistant." and r.metadata == {"a": "b"} and r.model == server.model, r
    assert r.temperature == 0 and r.top_p == 1 and r.tools == [] and r.tool_choice == "auto" and r.store is False, r
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and r.usage.output_tokens == 13, r.usage
    assert r.usage.output_tokens_details.reasoning_tokens == 0
    assert r.incomplete_details is None and r.previous_response_id is None and r.parallel_tool_calls is True, r


def check_a_limit_makes_it_incomplete(server):
    r = ask(server, "What is 706 + 31?", max_output_tokens=3)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens", r
    assert r.output_text == "706" and r.output[0].status == "incomplete" and r.max_output_tokens == 3, r


def check_reasoning(server):
    r = ask(server, "719+594", reasoning={"effort": "high"})
    assert types_of(r) == ["reasoning", "message"], types_of(r)
    assert r.output[0].content[0].text == "ones 9+4=13; tens 1+9+1=11; hundreds 7+5+1=13; so 1313.", r.output[0]
    assert r.output[0].id.startswith("rs_") and r.output[0].summary == [], r.output[0]
    assert r.output_text == "719 + 594 = 1313", r.output_text
    assert 0 < r.usage.output_tokens_details.reasoning_tokens < r.usage.output_tokens, r.usage
    again = ask(server, [{"role": "user", "content": "719+594"}, *r.output, {"role": "user", "content": "706+31"}])
    assert again.output_text == "706 + 31 = 737", again.output_text


def check_a_conversation_of_items(server):
    items = [{"role": "user", "content": "My name is Anna."}]
    first = ask(server, items)
    items += first.output
    items.append({"role": "user", "content": [{"type": "input_text", "text": "What is my "},
                                              {"type": "input_text", "text": "name?"}]})
    second = ask(server, items)
    assert second.output_text == "Your name is Anna.", (first.output_text, second.output_text)
    assert second.usage.input_tokens_details.cached_tokens > 0, second.usage


# ---- streams

ANSWERS = (("What is 706 + 31?", {}), ("719+594", {"reasoning": {"effort": "high"}}),
           ("What is the weather in Oslo?", {"tools": [WEATHER, TIME]}), ("What is 706 + 31?", {"max_output_tokens": 2}),
           ("What is 706 + 31?", {"include": ["message.output_text.logprobs"], "top_logprobs": 1}))


def check_answers_are_valid_by_the_packages_types(server):
    for question, fields in ANSWERS:
        validate(ask(server, question, **fields))


def check_a_stream_says_what_the_answer_says(server):
    for question, fields in ANSWERS:
        events = list(ask(server, question, stream=True, **fields))
        for event in events:
            validate(event)
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"], events[:2]
        final = events[-1].response
        assert events[-1].type == f"response.{final.status}", events[-1]
        assert {e.response.id for e in events if hasattr(e, "response")} == {final.id}
        done = [e.item for e in events if e.type == "response.output_item.done"]
        assert [i.model_dump() for i in done] == [i.model_dump() for i in final.output]
        for index, item in enumerate(final.output):
            deltas = "".join(e.delta for e in events if e.type.endswith(".delta") and e.output_index == index)
            whole = item.arguments if item.type == "function_call" else item.content[0].text
            assert deltas == whole, (deltas, whole)
        whole = ask(server, question, **fields)
        assert types_of(whole) == types_of(final) and whole.status == final.status
        assert whole.output_text == final.output_text and whole.usage.output_tokens == final.usage.output_tokens


def check_the_stream_helper(server):
    with client_of(server).responses.stream(model=server.model, input="What is 706 + 31?", temperature=0,
                                            reasoning=NO_THINKING) as stream:
        text = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(text) == final.output_text == "706 + 31 = 737" and len(text) > 5, text


def check_an_incomplete_stream(server):
    events = list(ask(server, "What is 706 + 31?", stream=True, max_output_tokens=3))
    assert events[-1].type == "response.incomplete" and events[-1].response.status == "incomplete", events[-1]
    assert events[-2].type == "response.output_item.done" and events[-2].item.status == "incomplete", events[-2]


def check_a_stream_that_is_left_is_cancelled(server):
    before = server.wait_until_idle()["limpid_cancelled_total"]
    stream = ask(server, "Tell me a story about a fox named Max.", stream=True, temperature=1,
                 extra_body={"ignore_eos": True})
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    stream.close()
    after = server.wait_until_idle()
    assert after["limpid_cancelled_total"] == before + 1, (before, after["limpid_cancelled_total"])


# ---- tools

def check_a_tool_call(server):
    r = ask(server, "What is the weather in Oslo?", tools=[WEATHER, TIME])
    assert types_of(r) == ["function_call"], r.output
    call = r.output[0]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"}), call
    assert call.id.startswith("fc_") and call.call_id.startswith("call_") and call.status == "completed", call
    assert [t.name for t in r.tools] == ["get_weather", "get_time"], r.tools


def check_a_call_that_is_cut_is_incomplete(server):
    r = ask(server, "What is the weather in Oslo?", tools=[WEATHER], max_output_tokens=7)
    assert r.status == "incomplete" and types_of(r) == ["function_call"], r
    assert r.output[0].status == "incomplete" and isinstance(json.loads(r.output[0].arguments), dict), r.output


def check_parallel_calls(server):
    r = ask(server, "What is the weather in Oslo and in Paris?", tools=[WEATHER])
    calls = [(c.name, json.loads(c.arguments)) for c in r.output if c.type == "function_call"]
    assert calls == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})], r.output
    assert len({c.call_id for c in r.output}) == 2
    items = [{"role": "user", "content": "What is the weather in Oslo and in Paris?"}, *r.output]
    for call, (city, degrees, sky) in zip(r.output, (("Oslo", 7, "rain"), ("Paris", 21, "sun"))):
        items.append({"type": "function_call_output", "call_id": call.call_id,
                      "output": json.dumps({"city": city, "temperature": degrees, "sky": sky})})
    final = ask(server, items, tools=[WEATHER])
    assert final.output_text == "In Oslo it is 7 degrees with rain. In Paris it is 21 degrees with sun.", final.output_text


def check_parallel_calls_can_be_turned_off(server):
    r = ask(server, "What is the weather in Oslo and in Paris?", tools=[WEATHER], parallel_tool_calls=False)
    assert types_of(r) == ["function_call"] and r.parallel_tool_calls is False, r.output


def check_tool_choice(server):
    none = ask(server, "What is the weather in Oslo?", tools=[WEATHER], tool_choice="none")
    assert "function_call" not in types_of(none) and none.tool_choice == "none", none.output
    required = ask(server, "Hello", tools=[WEATHER, TIME], tool_choice="required", max_output_tokens=60)
    assert types_of(required)[0] == "function_call", required.output
    named = ask(server, "What is the weather in Oslo?", tools=[WEATHER, TIME], max_output_tokens=60,
                tool_choice={"type": "function", "name": "get_time"})
    assert named.output[0].name == "get_time" and named.tool_choice.name == "get_time", named.output


def agent(server, question, items, tools, **fields):
    """Asks until the model calls no more tools; the final answer. All goes back as it came."""
    items.append({"role": "user", "content": question})
    for _ in range(5):
        r = ask(server, items, tools=tools, **fields)
        items += r.output
        calls = [i for i in r.output if i.type == "function_call"]
        if not calls:
            return r
        for call in calls:
            items.append({"type": "function_call_output", "call_id": call.call_id,
                          "output": run_tool(call.name, json.loads(call.arguments))})
    raise AssertionError(items)


def run_tool(name, arguments):
    if name == "get_weather":
        return json.dumps({"city": arguments["city"], "temperature": -3, "sky": "snow"})
    a, op, b = arguments["expression"].split()
    return json.dumps({"result": {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]})


def check_an_agent_gets_the_right_answers(server):
    tools = [WEATHER, CALCULATOR]
    for effort in ("none", "high"):
        for question, expected in (("What is the weather in Oslo?", "In Oslo it is -3 degrees with snow."),
                                   ("Use the calculator for 8478 - 3628.", "The result is 4850.")):
            items = []
            first = agent(server, question, items, tools, reasoning={"effort": effort})
            assert first.output_text == expected, first.output_text
            assert first.usage.input_tokens_details.cached_tokens > 0, first.usage
            assert [i.type for i in items if not isinstance(i, dict)].count("reasoning") == (2 if effort == "high" else 0)
            then = agent(server, "What is 706 + 31?", items, tools, reasoning={"effort": effort})
            assert then.output_text == "706 + 31 = 737", then.output_text
            assert then.usage.input_tokens_details.cached_tokens > first.usage.input_tokens_details.cached_tokens, then.usage


# ---- forms of answers

class Person(pydantic.BaseModel):
    name: str
    age: int


def check_structured_output(server):
    question = "Write JSON with name Anna and age 31"
    r = client_of(server).responses.parse(model=server.model, input=question, text_format=Person, temperature=0,
                                          reasoning=NO_THINKING)
    assert r.output_parsed == Person(name="Anna", age=31), r.output
    form = {"format": {"type": "json_schema", "name": "x", "strict": True,
                       "schema": {"type": "object", "properties": {"answer": {"type": "integer"}},
                                  "required": ["answer"], "additionalProperties": False}}}
    for reasoning in (NO_THINKING, {"effort": "high"}):
        r = ask(server, "What is 706 + 31?", text=form, max_output_tokens=200, reasoning=reasoning)
        assert r.status != "completed" or set(json.loads(r.output_text)) == {"answer"}, r.output_text
    assert r.text.format.type == "json_schema", r.text


def check_logprobs(server):
    r = ask(server, "719+594", reasoning={"effort": "high"}, include=["message.output_text.logprobs"], top_logprobs=3)
    entries = r.output[1].content[0].logprobs
    assert "".join(e.token for e in entries) == r.output_text, entries
    assert all(len(e.top_logprobs) == 3 and e.logprob <= 0 and bytes(e.bytes).decode() == e.token for e in entries)
    events = list(ask(server, "719+594", reasoning={"effort": "high"}, include=["message.output_text.logprobs"],
                         top_logprobs=3, stream=True))
    streamed = [p for e in events if e.type == "response.output_text.delta" for p in e.logprobs]
    assert [p.token for p in streamed] == [e.token for e in entries]
    assert ask(server, "706 + 31").output[0].content[0].logprobs == []


# ---- errors

def check_errors(server):
    client = client_of(server)
    for fields, param, words in (({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "input"),
                                 ({"input": "x", "background": True}, "background", "stream"),
                                 ({"input": "x", "truncation": "auto"}, "truncation", "disabled"),
                                 ({"input": "x", "temperature": -1}, "temperature", "0 (greedy)"),
                                 ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
                                 ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "huge"),
                                 ({"input": "9 " * 5000}, "input", "context"),
                                 ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
                                  "input[0].content[0].type", "text only"),
                                 ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]},
                                  "input[0].arguments", "JSON object")):
        error = raises(openai.BadRequestError, client.responses.create, model=server.model, **fields)
        assert error.param == param, (fields, error.param, error)
        assert words in str(error), error
        assert isinstance(raises(openai.BadRequestError, client.responses.create, model=server.model, stream=True,
                                 **fields), openai.BadRequestError)
    raises(openai.NotFoundError, client.responses.create, model="other", input="x")


def check_answers_come_side_by_side(server):
    answers = [None] * 8

    def one(i):
        answers[i] = ask(server, f"What is {700 + i} + 31?").output_text
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == [f"{700 + i} + 31 = {731 + i}" for i in range(8)], answers


if __name__ == "__main__":
    sys.exit(run([check for name, check in list(globals().items()) if name.startswith("check_")]))
