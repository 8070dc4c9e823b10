#!/usr/bin/env python3
"""The chat API as LangChain's ChatOpenAI uses it. Texts: the mini model's reference in PyTorch, or what its training taught
for the given prompt."""
import asyncio
import json
import sys

from serving import missing, run

if missing("langchain_openai"):
    sys.exit(77)

import openai  # noqa: E402
import pydantic  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

SUM = "706 + 31 = 737"


def model_of(server, **fields):
    return ChatOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0,
                      **{"model": server.model, "temperature": 0, "reasoning_effort": "none", **fields})


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city"""
    return json.dumps({"city": city, "temperature": -3, "sky": "snow"})


@tool
def calculator(expression: str) -> str:
    """Evaluate an expression"""
    a, op, b = expression.split()
    return json.dumps({"result": {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]})


TOOLS = {t.name: t for t in (get_weather, calculator)}


# ---- answers

def check_invoke(server):
    m = model_of(server).invoke("706 + 31")
    assert isinstance(m, AIMessage) and m.content == SUM and m.tool_calls == [], m
    assert m.response_metadata["finish_reason"] == "stop" and m.response_metadata["model_name"] == server.model, m
    usage = m.usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (12, 13, 25), usage
    again = model_of(server).invoke("706 + 31").usage_metadata
    assert 0 < again["input_token_details"]["cache_read"] < 12 and usage["output_token_details"]["reasoning"] == 0, again


def check_messages(server):
    m = model_of(server).invoke([SystemMessage("Your name is Nova."), HumanMessage("What is your name?")])
    assert m.content == "My name is Nova.", m
    m = model_of(server).invoke([HumanMessage("My name is Amy."), AIMessage("Nice to meet you, Amy!"),
                                 HumanMessage([{"type": "text", "text": "What is my name?"}])])
    assert m.content == "Your name is Amy.", m


def check_thinking(server):
    usage = model_of(server, reasoning_effort="high").invoke("719+594").usage_metadata
    assert 0 < usage["output_token_details"]["reasoning"] < usage["output_tokens"], usage
    assert model_of(server, reasoning_effort="high").invoke("719+594").content == "719 + 594 = 1313"


def check_stream(server):
    chunks = list(model_of(server, stream_usage=True).stream("706 + 31"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == SUM and sum(bool(c.content) for c in chunks) > 5, chunks
    assert whole.usage_metadata["output_tokens"] == 13 and whole.response_metadata["finish_reason"] == "stop", whole


def check_batches(server):
    questions = [f"What is {700 + i} + 31?" for i in range(8)]
    expected = [f"{700 + i} + 31 = {731 + i}" for i in range(8)]
    assert [m.content for m in model_of(server).batch(questions)] == expected
    assert [m.content for m in asyncio.run(model_of(server).abatch(questions))] == expected


def check_logprobs(server):
    m = model_of(server, logprobs=True, top_logprobs=2).invoke("706 + 31")
    entries = m.response_metadata["logprobs"]["content"]
    assert "".join(e["token"] for e in entries).startswith(SUM) and all(len(e["top_logprobs"]) == 2 for e in entries), m


def check_errors(server):
    for fields, kind in (({"temperature": -1}, openai.BadRequestError), ({"model": "other"}, openai.NotFoundError)):
        try:
            model_of(server, **fields).invoke("x")
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


# ---- tools

def agent(model, question, messages):
    messages.append(HumanMessage(question))
    for _ in range(5):
        messages.append(model.invoke(messages))
        if not messages[-1].tool_calls:
            return messages[-1].content
        for call in messages[-1].tool_calls:
            messages.append(TOOLS[call["name"]].invoke(call))
            assert isinstance(messages[-1], ToolMessage) and messages[-1].tool_call_id == call["id"]
    raise AssertionError(messages)


def check_tools(server):
    for effort in ("none", "high"):
        messages, model = [], model_of(server, reasoning_effort=effort).bind_tools(list(TOOLS.values()))
        assert agent(model, "What is the weather in Oslo?", messages) == "In Oslo it is -3 degrees with snow.", messages
        assert [(c["name"], c["args"]) for c in messages[1].tool_calls] == [("get_weather", {"city": "Oslo"})], messages
        assert messages[1].response_metadata["finish_reason"] == "tool_calls", messages[1]
        assert agent(model, "Use the calculator for 9226 * 1363.", messages) == f"The result is {9226 * 1363}.", messages
        cached = [m.usage_metadata["input_token_details"]["cache_read"] for m in messages if isinstance(m, AIMessage)]
        assert cached == sorted(cached) and cached[-1] > cached[0], cached


def check_streamed_tools(server):
    whole = None
    for chunk in model_of(server).bind_tools([get_weather]).stream("What is the weather in Oslo and in Paris?"):
        whole = chunk if whole is None else whole + chunk
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [
        ("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})], whole


def check_tool_choice(server):
    model = model_of(server, max_tokens=200)
    for choice in ("any", "calculator"):
        m = model.bind_tools(list(TOOLS.values()), tool_choice=choice).invoke("Hi!")
        assert m.tool_calls and (choice == "any" or m.tool_calls[0]["name"] == choice), m
    m = model.bind_tools([get_weather], parallel_tool_calls=False).invoke("What is the weather in Oslo and in Paris?")
    assert len(m.tool_calls) == 1, m


# ---- forms of answers

class Person(pydantic.BaseModel):
    """A person"""
    name: str
    age: int


def check_structured_output(server):
    for effort in ("none", "high"):
        model = model_of(server, reasoning_effort=effort, max_tokens=300)
        form = model.with_structured_output(Person, method="json_schema")
        assert form.invoke("JSON: name Will, age 61") == Person(name="Will", age=61)
        assert list(form.stream("JSON: name Will, age 61"))[-1] == Person(name="Will", age=61)
        # What the model fills in is its own affair, the form is not.
        called = model.with_structured_output(Person, method="function_calling", include_raw=True).invoke("Hi!")
        assert isinstance(called["parsed"], Person) and called["parsing_error"] is None, called
        assert called["raw"].tool_calls[0]["name"] == "Person", called
    free = model_of(server).with_structured_output(Person, method="json_mode")
    assert free.invoke("JSON: name Ursula, age 57") == Person(name="Ursula", age=57)


if __name__ == "__main__":
    sys.exit(run([check for name, check in list(globals().items()) if name.startswith("check_")]))
