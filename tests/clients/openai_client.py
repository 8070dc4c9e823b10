#!/usr/bin/env python3
"""OpenAI's chat and completions APIs as OpenAI's own Python package uses them; tools are in openai_tools_client.py. Texts:
the mini model's reference in PyTorch, or what its training taught for the given prompt."""
import asyncio
import json
import math
import sys
import time

from serving import OPTIONS, Server, missing, run

if missing("openai"):
    sys.exit(77)

import openai  # noqa: E402
import pydantic  # noqa: E402

from openai_chat import (BOTH, WEATHER, ask, client_of, fields_of, join, raises, reasoning_of, text_of,  # noqa: E402
                         validate)

THINK = {"reasoning_effort": "high"}
STORY = "Tell me a story about a fox named Max."
ENDLESS = {"temperature": 1, "extra_body": {"ignore_eos": True}}


# ---- answers

def check_plain(server):
    began = time.time()
    r = ask(server, "706 + 31")
    choice = r.choices[0]
    assert text_of(r) == "706 + 31 = 737" and choice.message.role == "assistant" and choice.finish_reason == "stop", r
    assert r.id.startswith("chatcmpl-") and r.object == "chat.completion" and r.model == server.model, r
    assert began - 1 <= r.created <= time.time() and choice.index == 0 and choice.logprobs is None, r
    assert choice.message.tool_calls is None and choice.message.refusal is None and reasoning_of(choice.message) is None, r
    # One token a digit, and the end token.
    assert (r.usage.prompt_tokens, r.usage.completion_tokens, r.usage.total_tokens) == (12, 13, 25), r.usage


def check_roles_and_parts(server):
    for role in ("system", "developer"):
        r = ask(server, [{"role": role, "content": "Your name is Nova."}, {"role": "user", "content": "What is your name?"}])
        assert text_of(r) == "My name is Nova.", r
    r = ask(server, [{"role": "user", "content": [{"type": "text", "text": "706 +"}, {"type": "text", "text": " 31"}]}])
    assert text_of(r) == "706 + 31 = 737", r
    r = ask(server, [{"role": "user", "content": "My name is Amy."}, {"role": "assistant", "content": "Nice to meet you, Amy!"},
                     {"role": "user", "content": "What is my name?"}])
    assert text_of(r) == "Your name is Amy.", r


def check_limits(server):
    for field in ("max_tokens", "max_completion_tokens"):
        r = ask(server, "706 + 31", **{field: 3})
        assert text_of(r) == "706" and r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 3, r


def check_reasoning(server):
    for fields in (THINK, {"reasoning_effort": openai.NOT_GIVEN}):  # it thinks unless told not to
        r = ask(server, "719+594", **fields)
        assert reasoning_of(r.choices[0].message) == "ones 9+4=13; tens 1+9+1=11; hundreds 7+5+1=13; so 1313.", r
        assert text_of(r) == "719 + 594 = 1313", r
        assert 0 < r.usage.completion_tokens_details.reasoning_tokens < r.usage.completion_tokens, r.usage
    r = ask(server, "719+594", extra_body={"chat_template_kwargs": {"enable_thinking": False}}, **fields)
    assert reasoning_of(r.choices[0].message) is None and r.usage.completion_tokens_details.reasoning_tokens == 0, r


ANSWERS = (("706 + 31", {}), ("719+594", THINK), ("719+594", {**THINK, "max_tokens": 5}), ("706 + 31", {"stop": ["="]}),
           (BOTH, {"tools": [WEATHER], **THINK}), ("706 + 31", {"n": 3}), ("706 + 31", {"logprobs": True, "top_logprobs": 2}))


def check_answers_are_valid_by_the_packages_types(server):
    for text, fields in ANSWERS:
        validate(ask(server, text, **fields))


def check_a_stream_says_what_the_answer_says(server):
    for text, fields in ANSWERS:
        whole = ask(server, text, **fields)
        chunks = list(ask(server, text, stream=True, stream_options={"include_usage": True}, **fields))
        joined, usage = join(chunks)
        assert len({c.id for c in chunks}) == 1 and {c.object for c in chunks} == {"chat.completion.chunk"}
        assert chunks[-1].choices == [] and all(c.usage is None for c in chunks[:-1]), chunks[-1]
        assert usage.completion_tokens == whole.usage.completion_tokens and usage.prompt_tokens == whole.usage.prompt_tokens
        assert len(joined) == len(whole.choices) == fields.get("n", 1)
        for choice, got in zip(whole.choices, joined):
            message = choice.message
            assert got["role"] == "assistant" and got["content"] == (message.content or ""), (got, message)
            assert got["reasoning"] == (reasoning_of(message) or ""), (got, message)
            assert got["finish_reason"] == choice.finish_reason, (got, choice)
            assert ([(c["name"], c["arguments"]) for c in got["calls"]] ==
                    [(c.function.name, c.function.arguments) for c in message.tool_calls or []]), (got, message)
            assert got["logprobs"] == (choice.logprobs.content if choice.logprobs else []), (got, choice)


def check_a_stream_without_usage(server):
    chunks = list(ask(server, "706 + 31", stream=True))
    assert all(c.usage is None and len(c.choices) == 1 for c in chunks), chunks[-1]
    assert chunks[-1].choices[0].finish_reason == "stop" and join(chunks)[0][0]["n_pieces"] > 5, chunks


def check_the_stream_helper(server):
    for text, fields in (ANSWERS[0], ANSWERS[1], ANSWERS[3], ANSWERS[4]):
        with client_of(server).chat.completions.stream(**fields_of(server, text, fields)) as stream:
            deltas = [e.delta for e in stream if e.type == "content.delta"]
            final = stream.get_final_completion()
        whole = ask(server, text, **fields).choices[0]
        assert "".join(deltas) == (final.choices[0].message.content or "") == (whole.message.content or ""), final
        assert final.choices[0].finish_reason == whole.finish_reason, final
    with client_of(server).chat.completions.stream(**fields_of(server, "706 + 31", {"max_tokens": 3})) as stream:
        error = raises(openai.LengthFinishReasonError, stream.get_final_completion)
    assert text_of(error.completion) == "706", error.completion


# ---- sampling

def check_seed_and_choices(server):
    fields = {"temperature": 1, "seed": 7, "max_tokens": 30}
    r = ask(server, STORY, n=3, **fields)
    texts = [c.message.content for c in r.choices]
    assert [c.index for c in r.choices] == [0, 1, 2] and len(set(texts)) == 3, texts
    assert texts == [c.message.content for c in ask(server, STORY, n=3, **fields).choices]
    assert texts == [c["content"] for c in join(ask(server, STORY, n=3, stream=True, **fields))[0]]
    assert texts[0] == text_of(ask(server, STORY, **fields)) != text_of(ask(server, STORY, **{**fields, "seed": 70}))
    assert r.usage.completion_tokens == 90, r.usage


def check_stop(server):
    for stop in ("=", ["x", "="], [" = 7"]):
        r = ask(server, "706 + 31", stop=stop)
        assert text_of(r).rstrip() == "706 + 31" and r.choices[0].finish_reason == "stop", r
    # Only what is written counts, not what is thought.
    assert text_of(ask(server, "719+594", stop=["= 13"], **THINK)).rstrip() == "719 + 594"


def check_logit_bias(server):
    whole = ask(server, "706 + 31", extra_body={"return_token_ids": True})
    first = whole.choices[0].token_ids[0]
    r = ask(server, "706 + 31", logit_bias={str(first): -100}, max_tokens=3)
    assert text_of(r)[0] != "7", r


# ---- log-probabilities

def check_logprobs_of_a_chat(server):
    r = ask(server, "706 + 31", logprobs=True, top_logprobs=4)
    entries = r.choices[0].logprobs.content
    assert "".join(e.token for e in entries).startswith("706 + 31 = 737") and len(entries) == r.usage.completion_tokens
    for e in entries:
        assert bytes(e.bytes).decode() == e.token and len(e.top_logprobs) == 4, e
        assert (e.top_logprobs[0].token, e.top_logprobs[0].logprob) == (e.token, e.logprob), e  # greedy
        ranked = [t.logprob for t in e.top_logprobs]
        assert ranked == sorted(ranked, reverse=True) and sum(math.exp(x) for x in ranked) < 1.0001, e
    assert ask(server, "706 + 31", logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    r = ask(server, "719+594", logprobs=True, **THINK)  # those of the reasoning are tokens as well
    assert len(r.choices[0].logprobs.content) == r.usage.completion_tokens, r


def check_alternatives_belong_to_their_token(server):
    """Of a text that is no greedy one: a new request for each place in it finds the same alternatives."""
    prompt = f"[gMASK]<sop><|user|>{STORY}<|assistant|></think>"
    r = ask(server, STORY, temperature=1, seed=3, max_tokens=12, logprobs=True, top_logprobs=3)
    entries = r.choices[0].logprobs.content
    assert any(e.token != e.top_logprobs[0].token for e in entries), "greedy by chance"
    for i, e in enumerate(entries):
        text = prompt + "".join(before.token for before in entries[:i])
        one = client_of(server).completions.create(model=server.model, prompt=text, max_tokens=1, temperature=0, logprobs=3)
        top = one.choices[0].logprobs.top_logprobs[0]
        for t in e.top_logprobs:
            assert abs(top[t.token] - t.logprob) < 1e-3, (i, e, top)
        assert e.token in {t.token for t in e.top_logprobs} or e.logprob <= e.top_logprobs[-1].logprob, e


def check_logprobs_of_completions(server):
    create = client_of(server).completions.create
    r = create(model=server.model, prompt="1, 2, 3,", max_tokens=8, temperature=0, logprobs=2)
    got = r.choices[0].logprobs
    assert "".join(got.tokens) == r.choices[0].text == " 4, 5, 6", r
    assert len(got.tokens) == len(got.token_logprobs) == len(got.top_logprobs) == len(got.text_offset), got
    assert got.text_offset == [sum(map(len, got.tokens[:i])) for i in range(len(got.tokens))], got
    assert all(t[token] == value == max(t.values()) for t, token, value in
               zip(got.top_logprobs, got.tokens, got.token_logprobs)), got
    echo = create(model=server.model, prompt="1, 2, 3,", max_tokens=8, temperature=0, logprobs=2, echo=True)
    both = echo.choices[0].logprobs
    assert echo.choices[0].text == "1, 2, 3, 4, 5, 6" and both.token_logprobs[0] is None, echo
    assert both.tokens[-len(got.tokens):] == got.tokens, both


# ---- forms of answers

class Person(pydantic.BaseModel):
    name: str
    age: int


def check_structured_output_with_pydantic(server):
    for fields in ({}, THINK):
        r = client_of(server).chat.completions.parse(
            **fields_of(server, "JSON: name Will, age 61", {"response_format": Person, **fields}))
        assert r.choices[0].message.parsed == Person(name="Will", age=61), r
        with client_of(server).chat.completions.stream(
                **fields_of(server, "JSON: name Will, age 61", {"response_format": Person, **fields})) as stream:
            parts = [e.parsed for e in stream if e.type == "content.delta"]
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == Person(name="Will", age=61) and len(parts) > 5, final


def check_a_form_is_kept_whatever_is_asked(server):
    schema = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}, "many": {"type": "boolean"}},
              "required": ["color", "many"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    for fields in ({}, THINK, {"temperature": 1, "seed": 1}):
        r = ask(server, "Good evening", response_format=form, max_tokens=300, **fields)
        value = json.loads(text_of(r))
        assert list(value) == ["color", "many"] and value["color"] in ("red", "green"), r
        assert isinstance(value["many"], bool) and r.choices[0].finish_reason == "stop", r


def check_any_json_object(server):
    question, expected = "Write as JSON: 19 of the item orange", {"item": "orange", "count": 19}
    for fields in ({}, THINK):
        r = ask(server, question, response_format={"type": "json_object"}, **fields)
        assert json.loads(text_of(r)) == expected, r
        joined, _ = join(ask(server, question, response_format={"type": "json_object"}, stream=True, **fields))
        assert json.loads(joined[0]["content"]) == expected and joined[0]["n_pieces"] > 3, joined


# ---- cache, errors

def check_usage_names_what_was_cached(server):
    text = " ".join(str(i) for i in range(200, 330))
    first, second = (ask(server, text, max_tokens=1).usage for _ in range(2))
    assert first.prompt_tokens == second.prompt_tokens > 300, first
    assert first.prompt_tokens_details.cached_tokens < 20, first
    # All but whole pages of tokens, and the last one, whose output is wanted.
    page = server.metrics()["limpid_kv_page_tokens"]
    assert second.prompt_tokens - page - 1 <= second.prompt_tokens_details.cached_tokens < second.prompt_tokens, second
    joined = join(ask(server, text, max_tokens=1, stream=True, stream_options={"include_usage": True}))
    assert joined[1].prompt_tokens_details.cached_tokens == second.prompt_tokens_details.cached_tokens, joined


def check_bad_requests_name_their_field(server):
    create = client_of(server).chat.completions.create
    message = {"role": "user", "content": "x"}
    for fields, param in (({"temperature": -1}, "temperature"), ({"top_p": 2}, "top_p"), ({"n": 0}, "n"),
                          ({"max_tokens": -1}, "max_tokens"), ({"top_logprobs": 3}, "top_logprobs"),
                          ({"stop": [""]}, "stop"), ({"logit_bias": {"x": 1}}, "logit_bias"),
                          ({"messages": []}, "messages"), ({"reasoning_effort": "huge"}, "reasoning_effort"),
                          ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
                          ({"tool_choice": "required"}, "tool_choice"), ({"functions": [{"name": "f"}]}, "functions"),
                          ({"modalities": ["text", "audio"]}, "modalities"),
                          ({"response_format": {"type": "yaml"}}, "response_format"),
                          ({"messages": [{"role": "user", "content": [
                              {"type": "image_url", "image_url": {"url": "data:"}}]}]}, "messages[0].content[0]")):
        for stream in (False, True):
            error = raises(openai.BadRequestError, create, **{"model": server.model, "messages": [message],
                                                              "stream": stream, **fields})
            assert error.param == param and error.type == "invalid_request_error" and param.split("[")[0] in str(error), error
            assert error.status_code == 400 and error.request_id, error


def check_a_context_that_is_full(server):
    for stream in (False, True):
        error = raises(openai.BadRequestError, ask, server, "9 " * 5000, stream=stream)
        assert error.code == "context_length_exceeded" and error.param == "messages" and "4096" in str(error), error


def check_what_is_not_there(server):
    client = client_of(server)
    error = raises(openai.NotFoundError, client.chat.completions.create, model="other",
                   messages=[{"role": "user", "content": "x"}])
    assert error.code == "model_not_found", error
    raises(openai.NotFoundError, client.models.retrieve, "other")
    raises(openai.NotFoundError, client.files.list)
    error = raises(openai.BadRequestError, client.embeddings.create, model=server.model, input="x")
    assert "not supported" in str(error), error


def check_models(server):
    client = client_of(server)
    models = list(client.models.list())
    assert [m.id for m in models] == [server.model] and models[0].object == "model", models
    validate(models[0])
    assert client.models.retrieve(server.model) == models[0]


def check_a_key_is_asked_for(server):
    with Server(server.limpid, server.model_path, (*OPTIONS, "--api-key", "secret")) as own:
        error = raises(openai.AuthenticationError, client_of(own, api_key="wrong").models.list)
        assert error.code == "invalid_api_key" and "Bearer" in str(error), error
        fields = fields_of(own, "706 + 31", {})
        raises(openai.AuthenticationError, client_of(own, api_key="wrong").chat.completions.create, **fields)
        r = client_of(own, api_key="secret").chat.completions.create(**fields)
        assert text_of(r) == "706 + 31 = 737", r
        own.stop()


# ---- leaving, side by side

def check_a_stream_that_is_closed_is_cancelled(server):
    before = server.wait_until_idle()["limpid_cancelled_total"]
    for _ in range(2):  # whether by name or by the end of a context
        stream = ask(server, STORY, stream=True, **ENDLESS)
        with stream:
            for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            server.wait_for(lambda m: m["limpid_sequences_running"] == 1, 2)
            stream.close()
        server.wait_for(lambda m: m["limpid_sequences_running"] == 0, 2)
    assert server.wait_until_idle()["limpid_cancelled_total"] == before + 2


def check_a_request_that_takes_too_long_is_cancelled(server):
    before = server.wait_until_idle()["limpid_cancelled_total"]
    raises(openai.APITimeoutError, client_of(server, timeout=0.5).chat.completions.create, **fields_of(server, STORY, ENDLESS))
    server.wait_for(lambda m: m["limpid_sequences_running"] == 0, 2)
    assert server.wait_until_idle()["limpid_cancelled_total"] == before + 1


def check_streams_side_by_side(server):
    async def one(client, i):
        stream = await client.chat.completions.create(**fields_of(server, f"What is {700 + i} + 31?", {}), stream=True)
        return join([chunk async for chunk in stream])[0][0]["content"]

    async def all_of_them():
        async with client_of(server, openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(one(client, i) for i in range(20)))
    assert asyncio.run(all_of_them()) == [f"{700 + i} + 31 = {731 + i}" for i in range(20)]


def check_a_task_that_is_cancelled(server):
    async def leave():
        async with client_of(server, openai.AsyncOpenAI) as client:
            stream = await client.chat.completions.create(**fields_of(server, STORY, ENDLESS), stream=True)
            task = asyncio.create_task(anext(aiter(stream)))
            await task
            endless = asyncio.create_task(drain(stream))
            await asyncio.sleep(0.1)
            endless.cancel()
            await asyncio.gather(endless, return_exceptions=True)

    async def drain(stream):
        async for _ in stream:
            pass
    before = server.wait_until_idle()["limpid_cancelled_total"]
    asyncio.run(leave())
    server.wait_for(lambda m: m["limpid_sequences_running"] == 0, 2)
    assert server.wait_until_idle()["limpid_cancelled_total"] == before + 1


# ---- completions

def check_completions(server):
    create = client_of(server).completions.create
    r = create(model=server.model, prompt="1, 2, 3,", max_tokens=8, temperature=0)
    validate(r)
    assert r.choices[0].text == " 4, 5, 6" and r.choices[0].finish_reason == "length" and r.id.startswith("cmpl-"), r
    chunks = list(create(model=server.model, prompt="1, 2, 3,", max_tokens=8, temperature=0, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == " 4, 5, 6", chunks
    validate(chunks[-1])  # null in the others' finish_reason is OpenAI's, though not its package's
    assert all(c.choices[0].finish_reason is None for c in chunks[:-1]), chunks
    r = create(model=server.model, prompt=["1, 2, 3,", "Monday, Tuesday,"], max_tokens=2, temperature=0)
    assert [(c.index, c.text) for c in r.choices] == [(0, " 4"), (1, " Wednesday,")], r
    r = create(model=server.model, prompt="1, 2, 3,", max_tokens=20, temperature=0, stop="5")
    assert r.choices[0].text == " 4, " and r.choices[0].finish_reason == "stop", r


if __name__ == "__main__":
    sys.exit(run([check for name, check in list(globals().items()) if name.startswith("check_")]))
