#!/usr/bin/env python3
"""The Messages API as Anthropic's own Python package uses it. Texts: the mini model's reference in PyTorch, or what its
training taught for the given prompt."""
import json
import sys
import threading

from serving import OPTIONS, Server, missing, run

if missing("anthropic"):
    sys.exit(77)

import anthropic  # noqa: E402
import pydantic  # noqa: E402
from anthropic.types import Message, RawMessageStreamEvent  # noqa: E402

THINKING = {"type": "enabled", "budget_tokens": 2000}


def tool(name, description, **properties):
    return {"name": name, "description": description,
            "input_schema": {"type": "object", "properties": {k: {"type": t} for k, t in properties.items()},
                             "required": list(properties)}}


WEATHER = tool("get_weather", "Get the weather of a city", city="string")
CALCULATOR = tool("calculator", "Evaluate an expression", expression="string")
TIME = tool("get_time", "Get the local time of a city", city="string")
COUNT_DEVICE = tool("count_device", "Count a device", device_id="integer")
BOTH = "What is the weather in Oslo and in Paris?"


def client_of(server, api_key="x"):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key=api_key, max_retries=0)


def fields_of(server, text, fields):
    """What create and stream are called with; text: the user's, or all messages."""
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    extra = {"temperature": 0} | fields.pop("extra_body", {})  # the package knows newer models, which have none
    return {"model": server.model, "max_tokens": 256, "messages": messages, "extra_body": extra, **fields}


def ask(server, text, **fields):
    return client_of(server).messages.create(**fields_of(server, text, fields))


def strict(value, kind):
    """The package does not validate what it gets; this does."""
    return pydantic.TypeAdapter(kind).validate_python(value.model_dump(by_alias=True, exclude_unset=True))


def raises(kind, function, *args, **fields):
    try:
        function(*args, **fields)
    except kind as error:
        assert type(error) is kind, error
        return error
    raise AssertionError(f"no {kind.__name__}")


def types_of(message):
    return [block.type for block in message.content]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message):
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


# ---- answers

def check_plain(server):
    m = ask(server, "706 + 31")
    assert text_of(m) == "706 + 31 = 737" and types_of(m) == ["text"], m
    assert m.id.startswith("msg_") and m.type == "message" and m.role == "assistant" and m.model == server.model, m
    assert m.stop_reason == "end_turn" and m.stop_sequence is None, m
    # 12 tokens: the reference's prompt
    assert m.usage.input_tokens + m.usage.cache_read_input_tokens == 12 and m.usage.output_tokens == 13, m.usage
    assert m.usage.cache_creation_input_tokens == 0, m.usage


def check_system(server):
    assert text_of(ask(server, "What is your name?", system="Your name is Nova.")) == "My name is Nova."
    blocks = [{"type": "text", "text": "Your name is Bolt.", "cache_control": {"type": "ephemeral"}}]
    assert text_of(ask(server, "What is your name?", system=blocks)) == "My name is Bolt."


def check_several_turns(server):
    messages = [{"role": "user", "content": "My name is Amy."}]
    for expected in ("Nice to meet you, Amy!", "The capital of Gabon is Libreville.", "Your name is Amy."):
        m = ask(server, messages)
        assert text_of(m) == expected, m
        messages += [{"role": "assistant", "content": m.content},
                     {"role": "user", "content": "What is my name?" if len(messages) > 1 else "Name the capital of Gabon."}]


def check_thinking(server):
    m = ask(server, "719+594", thinking=THINKING)
    assert types_of(m) == ["thinking", "text"], m
    assert m.content[0].thinking == "ones 9+4=13; tens 1+9+1=11; hundreds 7+5+1=13; so 1313.", m.content
    assert text_of(m) == "719 + 594 = 1313", m.content
    back = [{"role": "user", "content": "719+594"}, {"role": "assistant", "content": m.content},
            {"role": "user", "content": "706 + 31"}]
    assert text_of(ask(server, back)) == "706 + 31 = 737"
    assert types_of(ask(server, "719+594", thinking={"type": "disabled"})) == ["text"]
    assert types_of(ask(server, "719+594", thinking={"type": "adaptive"})) == ["thinking", "text"]
    omitted = ask(server, "719+594", thinking={**THINKING, "display": "omitted"})
    assert omitted.content[0].thinking == "" and text_of(omitted) == "719 + 594 = 1313", omitted


def check_ends(server):
    count = "Count from 40 to 56 in steps of 4."
    m = ask(server, count, stop_sequences=["never", " 52"])
    assert (text_of(m), m.stop_reason, m.stop_sequence) == ("40, 44, 48,", "stop_sequence", " 52"), m
    m = ask(server, count, max_tokens=3)
    assert (text_of(m), m.stop_reason, m.stop_sequence) == ("40,", "max_tokens", None), m
    m = ask(server, [{"role": "user", "content": count}, {"role": "assistant", "content": "40, 44,"}])
    assert text_of(m) == " 48, 52, 56", m


def check_fields_of_this_server(server):
    fields = {"extra_body": {"temperature": 1.0, "seed": 7, "min_p": 0.01}, "max_tokens": 24}
    texts = {text_of(ask(server, "Tell me a story about a fox named Max.", **json.loads(json.dumps(fields)))) for _ in range(2)}
    assert len(texts) == 1, texts
    assert text_of(ask(server, "706 + 31", extra_body={"temperature": 1.0, "top_k": 1})) == "706 + 31 = 737"


class Person(pydantic.BaseModel):
    name: str
    age: int


def check_structured_output(server):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for thinking in ({"type": "disabled"}, THINKING):
        m = ask(server, "JSON: name Will, age 61", thinking=thinking,
                output_config={"format": {"type": "json_schema", "schema": schema}})
        assert json.loads(text_of(m)) == {"name": "Will", "age": 61}, m
    m = client_of(server).messages.parse(model=server.model, max_tokens=200, output_format=Person,
                                         extra_body={"temperature": 0},
                                         messages=[{"role": "user", "content": "JSON: name Ursula, age 57"}])
    assert m.parsed_output == Person(name="Ursula", age=57), m


def check_answers_are_valid_by_the_packages_types(server):
    for text, fields in (("719+594", {}), ("719+594", {"thinking": THINKING}), ("719+594", {"max_tokens": 2}),
                         (BOTH, {"tools": [WEATHER]}), ("719+594", {"stop_sequences": ["="]})):
        strict(ask(server, text, **fields), Message)


def check_count_tokens(server):
    for text, fields in (("706 + 31", {}), ("719+594", {"thinking": THINKING}), ("What time is it?", {"system": "Be brief."}),
                         (BOTH, {"tools": [WEATHER, TIME]})):
        counted = client_of(server).messages.count_tokens(model=server.model, messages=[{"role": "user", "content": text}],
                                                          **fields)
        usage = ask(server, text, **fields, max_tokens=1).usage
        assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (text, counted, usage)


# ---- streams

def events_of(server, text, **fields):
    return list(client_of(server).messages.create(**fields_of(server, text, fields), stream=True))


def check_a_stream_says_what_the_answer_says(server):
    for text, fields in (("706 + 31", {}), ("719+594", {"thinking": THINKING}), (BOTH, {"tools": [WEATHER]}),
                         ("Use count_device with device_id 68859.", {"tools": [COUNT_DEVICE], "thinking": THINKING}),
                         ("719+594", {"max_tokens": 5, "thinking": THINKING}), ("706 + 31", {"stop_sequences": ["7"]})):
        whole = ask(server, text, **fields)
        with client_of(server).messages.stream(**fields_of(server, text, fields)) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        dumps = [m.model_dump(exclude={"id", "usage"}) for m in (whole, final)]
        for dump in dumps:
            for block in dump["content"]:
                block.pop("id", None)
                block.pop("parsed_output", None)
        assert dumps[0] == dumps[1], dumps
        assert "".join(pieces) == text_of(whole)
        for counter in ("output_tokens", "cache_creation_input_tokens"):
            assert getattr(final.usage, counter) == getattr(whole.usage, counter), (final.usage, whole.usage)
        assert (final.usage.input_tokens + final.usage.cache_read_input_tokens ==
                whole.usage.input_tokens + whole.usage.cache_read_input_tokens), (final.usage, whole.usage)


def check_the_order_of_events(server):
    for text, fields in (("719+594", {"thinking": THINKING}), (BOTH, {"tools": [WEATHER], "thinking": THINKING})):
        events = events_of(server, text, **fields)  # pings are left out by the package
        for event in events:
            strict(event, RawMessageStreamEvent)
        assert events[0].type == "message_start" and events[0].message.content == [], events[0]
        assert events[0].message.stop_reason is None and events[0].message.usage.output_tokens in (0, 1)
        assert [e.type for e in events[-2:]] == ["message_delta", "message_stop"]
        index, is_open, thinking = -1, False, False
        for before, event in zip(events, events[1:-2]):
            if event.type == "content_block_start":
                assert not is_open and event.index == index + 1, event
                index, is_open, thinking = event.index, True, event.content_block.type == "thinking"
            else:
                assert is_open and event.index == index, event
                if event.type == "content_block_stop":
                    is_open = False
                    assert not thinking or before.delta.type == "signature_delta"
        assert not is_open and index >= 1
        start, delta = events[0].message.usage, events[-2].usage
        assert (start.input_tokens, start.cache_read_input_tokens) == (delta.input_tokens, delta.cache_read_input_tokens)


def check_arguments_come_in_pieces(server):
    m = "Send Xavier the message: banana egg"
    events = events_of(server, m, tools=[tool("send_message", "Send a message to a person", to="string", text="string")])
    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert len(pieces) > 5 and json.loads("".join(pieces)) == {"to": "Xavier", "text": "banana egg"}, pieces
    names = [e.content_block.name for e in events if e.type == "content_block_start"]
    assert names == ["send_message"], names


def check_a_stream_that_is_left_is_cancelled(server):
    before = server.wait_until_idle()["limpid_cancelled_total"]
    fields = {"extra_body": {"ignore_eos": True, "temperature": 1}, "max_tokens": 3500}
    with client_of(server).messages.stream(**fields_of(server, "Tell me a story about a fox named Max.", fields)) as stream:
        next(iter(stream.text_stream))
        assert server.metrics()["limpid_sequences_running"] == 1
    after = server.wait_until_idle()
    assert after["limpid_cancelled_total"] == before + 1, (before, after["limpid_cancelled_total"])


# ---- tools

def check_a_tool_call(server):
    m = ask(server, "What is the weather in Oslo?", tools=[WEATHER, TIME])
    assert calls_of(m) == [("get_weather", {"city": "Oslo"})] and m.stop_reason == "tool_use", m
    assert m.content[0].id.startswith("toolu_"), m
    m = ask(server, "Use count_device with device_id 68859.", tools=[COUNT_DEVICE], thinking=THINKING)
    assert types_of(m) == ["thinking", "tool_use"] and calls_of(m) == [("count_device", {"device_id": 68859})], m


def check_parallel_calls(server):
    m = ask(server, BOTH, tools=[WEATHER])
    assert calls_of(m) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})], m
    assert len({block.id for block in m.content}) == 2
    results = [{"type": "tool_result", "tool_use_id": block.id,
                "content": json.dumps({"city": block.input["city"], "temperature": degrees, "sky": sky})}
               for block, (degrees, sky) in zip(m.content, ((7, "rain"), (21, "sun")))]
    final = ask(server, [{"role": "user", "content": BOTH}, {"role": "assistant", "content": m.content},
                         {"role": "user", "content": results}], tools=[WEATHER])
    assert text_of(final) == "In Oslo it is 7 degrees with rain. In Paris it is 21 degrees with sun.", final
    one = ask(server, BOTH, tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len(calls_of(one)) == 1, one


def check_tool_choice(server):
    m = ask(server, "What is the weather in Oslo?", tools=[WEATHER], tool_choice={"type": "none"})
    assert not calls_of(m) and m.stop_reason != "tool_use", m
    m = ask(server, "Hello", tools=[WEATHER, TIME], tool_choice={"type": "any"})
    assert calls_of(m) and m.stop_reason == "tool_use", m
    m = ask(server, "What is the weather in Oslo?", tools=[WEATHER, TIME], tool_choice={"type": "tool", "name": "get_time"})
    assert [name for name, _ in calls_of(m)][0] == "get_time", m


def check_a_tool_that_fails(server):
    question = "Please search the web for the history of the bell."
    search = tool("search", "Search for a text", query="string")
    m = ask(server, question, tools=[search])
    result = {"type": "tool_result", "tool_use_id": m.content[0].id, "is_error": True,
              "content": [{"type": "text", "text": '{"error": "not available"}'}]}
    final = ask(server, [{"role": "user", "content": question}, {"role": "assistant", "content": m.content},
                         {"role": "user", "content": [result]}], tools=[search])
    assert text_of(final) == "The tool returned an error: not available.", final


def run_tool(name, arguments):
    if name == "get_weather":
        return json.dumps({"city": arguments["city"], "temperature": -3, "sky": "snow"})
    a, op, b = arguments["expression"].split()
    return json.dumps({"result": {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]})


def agent(server, question, messages, **fields):
    """Asks until the model calls no more tools; the answers, the last one final. All goes back as it came."""
    messages.append({"role": "user", "content": question})
    answers = []
    for _ in range(5):
        with client_of(server).messages.stream(**fields_of(server, messages, dict(fields))) as stream:
            m = stream.get_final_message()
        answers.append(m)
        messages.append({"role": "assistant", "content": m.content})
        if m.stop_reason != "tool_use":
            return answers
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id,
                                                      "content": run_tool(block.name, block.input)}
                                                     for block in m.content if block.type == "tool_use"]})
    raise AssertionError(messages)


def check_an_agent_gets_the_right_answers(server):
    """Behind a tool's result all is in the cache but that result: the prompt, and what was generated."""
    for thinking, weather in (({"type": "disabled"}, "What is the weather in Oslo?"), (THINKING, "Weather in Oslo, please.")):
        messages, fields = [], {"tools": [WEATHER, CALCULATOR], "thinking": thinking}
        for question, expected in (("Calculate 8478 - 3628.", "The result is 4850."),
                                   (weather, "In Oslo it is -3 degrees with snow.")):
            first, final = agent(server, question, messages, **fields)
            assert text_of(final) == expected, (first, final)
            assert types_of(first) == (["tool_use"] if thinking["type"] == "disabled" else ["thinking", "tool_use"]), first
            known = first.usage.input_tokens + first.usage.cache_read_input_tokens + first.usage.output_tokens
            assert first.usage.cache_read_input_tokens < final.usage.cache_read_input_tokens, (first.usage, final.usage)
            assert known - 2 <= final.usage.cache_read_input_tokens <= known, (first.usage, final.usage)  # the end token


@anthropic.beta_tool
def get_weather(city: str) -> str:
    """Get the weather of a city"""
    return run_tool("get_weather", {"city": city})


def check_the_packages_tool_runner(server):
    """It asks for a conversation that the server holds, and does without where there is none."""
    for stream in (False, True):
        runner = client_of(server).beta.messages.tool_runner(tools=[get_weather], stream=stream,
                                                             **fields_of(server, "What is the weather in Oslo?", {}))
        final = runner.until_done()
        assert text_of(final) == "In Oslo it is -3 degrees with snow.", final


def check_the_second_request_reads_the_cache(server):
    text = " ".join(str(i) for i in range(200, 330))
    first, second = (ask(server, f"Sort: {text}", max_tokens=1).usage for _ in range(2))
    assert second.cache_read_input_tokens > 100 and second.input_tokens < first.input_tokens, (first, second)


def check_a_changing_billing_line_costs_no_cache(server):
    text = "Answer briefly. " + " ".join(str(i) for i in range(400, 500))
    usages = [ask(server, "706 + 31", max_tokens=1, system=[
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{i}; cch={i}abc;"},
        {"type": "text", "text": text}]).usage for i in range(2)]
    total = usages[1].input_tokens + usages[1].cache_read_input_tokens
    assert usages[1].cache_read_input_tokens > 0.8 * total, usages  # whole pages of tokens


# ---- errors

def check_bad_requests(server):
    client = client_of(server)
    message = {"role": "user", "content": "x"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "xx"}}
    for fields, words in (({"messages": []}, "messages is empty"),
                          ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0]"),
                          ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
                          ({"max_tokens": 0}, "max_tokens"),
                          ({"extra_body": {"max_tokens": "many"}}, "max_tokens is a string"),
                          ({"extra_body": {"temperature": -1}}, "temperature"),
                          ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
                          ({"tool_choice": {"type": "any"}}, "tool_choice"),
                          ({"thinking": {"type": "sometimes"}}, "thinking.type"),
                          ({"output_config": {"effort": "huge"}}, "output_config.effort"),
                          ({"messages": [{"role": "user", "content": "9 " * 5000}]}, "prompt is too long")):
        for stream in (False, True):
            error = raises(anthropic.BadRequestError, client.messages.create,
                           **{"model": server.model, "max_tokens": 5, "messages": [message], **fields}, stream=stream)
            assert error.type == "invalid_request_error" and words in str(error), error
    error = raises(anthropic.NotFoundError, client.messages.create, model="other", max_tokens=5, messages=[message])
    assert error.type == "not_found_error", error
    raises(anthropic.NotFoundError, client.messages.count_tokens, model="other", messages=[message])


def check_keys(server):
    with Server(server.limpid, server.model_path, (*OPTIONS, "--api-key", "secret")) as locked:
        assert text_of(ask_with(locked, "secret")) == "706 + 31 = 737"
        error = raises(anthropic.AuthenticationError, ask_with, locked, "guess")
        assert error.type == "authentication_error", error
        bearer = anthropic.Anthropic(base_url=f"http://127.0.0.1:{locked.port}", auth_token="secret", max_retries=0)
        assert bearer.messages.count_tokens(model=locked.model, messages=[{"role": "user", "content": "706 + 31"}]).input_tokens == 12
        locked.stop()


def ask_with(server, api_key):
    return client_of(server, api_key).messages.create(**fields_of(server, "706 + 31", {}))


def check_requests_have_ids(server):
    assert ask(server, "706 + 31")._request_id, "the answer has no request-id"


def check_answers_come_side_by_side(server):
    answers = [None] * 8

    def one(i):
        answers[i] = text_of(ask(server, f"{700 + i} + 31"))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == [f"{700 + i} + 31 = {731 + i}" for i in range(8)], answers


if __name__ == "__main__":
    sys.exit(run([check for name, check in list(globals().items()) if name.startswith("check_")]))
