"""Checks of answers that need more than one request, or a socket; all against one server."""
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess

import client
from client import ADD, ADD_ANSWER, TIMEOUT_S, raw_exchange


def check_stream_is_the_same_text(s):
    for fields in ({"prompt": ADD, "temperature": 0, "max_tokens": 40},
                   {"prompt": "Once upon a time", "temperature": 1.0, "seed": 5, "max_tokens": 24},
                   {"prompt": "1, 2,", "temperature": 0, "max_tokens": 12, "stop": ["6"]},
                   {"prompt": "1, 2,", "temperature": 0, "max_tokens": 4, "echo": True, "logprobs": 1}):
        whole = s.complete(**fields)
        stream = s.complete(**fields, stream=True, stream_options={"include_usage": True})
        assert stream["done"] and stream["text"][0] == whole["choices"][0]["text"], (whole, stream)
        events = stream["events"]
        for name in ("id", "created", "model", "object"):
            assert len({e[name] for e in events}) == 1, name
        assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]
        last = events[-2]["choices"][0]
        assert last["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert all(e["choices"][0]["finish_reason"] is None for e in events[:-2])
        if "logprobs" in fields:
            for name, values in whole["choices"][0]["logprobs"].items():
                assert sum((e["choices"][0]["logprobs"][name] for e in events[:-1]), []) == values, name


def check_stop_texts_cross_tokens(s):
    full = s.text(prompt=ADD, temperature=0, max_tokens=40)
    assert full == ADD_ANSWER, full
    for stop in ("6 + 3", " = 7", "31 =", "737"):  # digits are tokens of their own, so all of these cross borders
        for stream in (False, True):
            answer = s.complete(prompt=ADD, temperature=0, max_tokens=40, stop=stop, stream=stream)
            text = answer["text"][0] if stream else answer["choices"][0]["text"]
            assert text == full[:full.index(stop)], (stop, stream, text)
            last = answer["events"][-1]["choices"][0] if stream else answer["choices"][0]
            assert (last["finish_reason"], last["stop_reason"]) == ("stop", stop), last
    # the beginning of a stop text that never ends is given out after all
    assert s.text(prompt=ADD, temperature=0, max_tokens=40, stop=["737x", "zzz"]) == full


def check_seeds(s):
    fields = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.0}
    first = s.text(**fields, seed=1)
    assert first == s.text(**fields, seed=1)
    others = {s.text(**fields, seed=i) for i in (2, 3, 4)}
    assert others != {first}
    several = s.complete(**fields, seed=1, n=3)
    texts = [c["text"] for c in several["choices"]]
    assert texts == [s.text(**fields, seed=i) for i in (1, 2, 3)], texts  # choice i has seed + i
    assert [c["index"] for c in several["choices"]] == [0, 1, 2]
    assert s.text(**fields, top_k=1, seed=1) == s.text(**{**fields, "temperature": 0})
    assert s.text(**fields, top_p=1e-6, seed=1) == s.text(**{**fields, "temperature": 0})
    unseeded = {s.text(**fields) for _ in range(4)}
    assert len(unseeded) > 1, "without a seed every answer is the same"


def check_logprobs(s):
    answer = s.complete(prompt="Hello", temperature=0, max_tokens=4, logprobs=3, echo=True)
    choice, usage = answer["choices"][0], answer["usage"]
    lp = choice["logprobs"]
    n = usage["prompt_tokens"] + usage["completion_tokens"]
    assert all(len(lp[k]) == n for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")), lp
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    for i in range(1, n):
        assert lp["token_logprobs"][i] <= 0
        assert lp["top_logprobs"][i][lp["tokens"][i]] == lp["token_logprobs"][i]
    for i in range(usage["prompt_tokens"], n):  # greedy: the token is the most probable one
        assert max(lp["top_logprobs"][i].values()) == lp["token_logprobs"][i]
        assert 3 <= len(lp["top_logprobs"][i]) <= 4
    assert "".join(lp["tokens"]) == choice["text"]
    for token, offset in zip(lp["tokens"], lp["text_offset"]):
        assert choice["text"][offset:].startswith(token), (token, offset)
    alone = s.complete(prompt="Hello", temperature=0, max_tokens=1, logprobs=0)["choices"][0]["logprobs"]
    assert alone["tokens"] == [lp["tokens"][usage["prompt_tokens"]]] and alone["text_offset"] == [0]
    assert len(alone["top_logprobs"][0]) == 1


def check_offsets_count_characters(s):
    prompt = "é€𝄞 <sop>1"  # characters of 2, 3 and 4 bytes, which this tokenizer cuts into bytes
    answer = s.complete(prompt=prompt, temperature=0, max_tokens=1, logprobs=0, echo=True)
    lp, text = answer["choices"][0]["logprobs"], answer["choices"][0]["text"]
    assert text.startswith(prompt), text
    assert lp["text_offset"] == sorted(lp["text_offset"]) and lp["text_offset"][-1] == len(prompt)
    for token, offset in zip(lp["tokens"], lp["text_offset"]):
        assert token.startswith("bytes:\\x") or text[offset:].startswith(token), (token, offset)
    assert any(t.startswith("bytes:\\x") for t in lp["tokens"]), lp["tokens"]
    assert "<sop>" in lp["tokens"]


def check_ids_and_text_agree(s):
    ids = json.loads(subprocess.run([s.limpid, "tokenize", s.model_path, ADD], text=True, check=True,
                                    capture_output=True).stdout)
    by_text = s.complete(prompt=ADD, temperature=0, max_tokens=20)
    by_ids = s.complete(prompt=ids, temperature=0, max_tokens=20)
    assert by_ids["choices"] == by_text["choices"] and by_ids["usage"]["prompt_tokens"] == len(ids)
    both = s.complete(prompt=[ids, ids[:-1]], temperature=0, max_tokens=20)
    assert both["choices"][0]["text"] == ADD_ANSWER and both["choices"][1]["index"] == 1
    assert both["usage"]["prompt_tokens"] == 2 * len(ids) - 1
    echoed = s.complete(prompt=ids, temperature=0, max_tokens=20, echo=True, skip_special_tokens=False)
    assert echoed["choices"][0]["text"].startswith(ADD + ADD_ANSWER), echoed


def check_many_clients(s):
    def one(i):
        a, b = 100 + i, 31
        return s.text(prompt=f"[gMASK]<sop><|user|>{a} + {b}<|assistant|></think>", temperature=0, max_tokens=24,
                      stream=i % 2 == 0)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    for i, answer in enumerate(answers):  # sums it was trained for; which is right is the model's affair
        assert answer.startswith(f"{100 + i} + 31 ="), (i, answer)


def check_bodies(s):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    status, body = raw_exchange(s, head + b"\r\n")
    assert status == 411 and b"Content-Length" in body, (status, body)
    status, body = raw_exchange(s, head + b"Content-Length: 99999999999\r\n\r\n")
    assert status == 413 and b"32 MiB" in body, (status, body)
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    text = json.dumps({"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 2}).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(text[i:i + 7]), text[i:i + 7]) for i in range(0, len(text), 7))
    status, body = raw_exchange(s, chunked + pieces + b"0\r\n\r\n")
    assert status == 200 and json.loads(body)["choices"][0]["text"] == " 4", (status, body)
    megabyte = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    status, body = raw_exchange(s, chunked + megabyte * 33 + b"0\r\n\r\n")
    assert status == 413 and b"32 MiB" in body, (status, body)
    status, _, body = s.ask("POST", "/v1/completions", b'{"prompt": "x", "deep": ' + b"[" * 128 + b"]" * 128 + b"}")
    assert status == 400 and b"more than 128" in body, (status, body)
    for text in (b"[" * 100000, b'{"prompt": ' + b"[" * 3000 + b"]" * 3000 + b"}", b'{"prompt": "\xff"}', b"\x00"):
        status, _, body = s.ask("POST", "/v1/completions", text)
        assert status == 400 and json.loads(body)["error"]["type"] == "invalid_request_error", (status, body)
    assert raw_exchange(s, b"\x16\x03\x01\x02\x00garbage\r\n\r\n")[0] in (400, 501, 505, None)
    assert s.ask("GET", "/health")[0] == 200


def check_keep_alive(s):
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=TIMEOUT_S)
    for i in range(3):
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 2, "stream": i == 1}))
        answer = connection.getresponse()
        raw = answer.read()
        assert answer.status == 200 and b" " in raw, raw
        first = connection.sock if i == 0 else first
        assert connection.sock is first, "the connection was closed"
    connection.close()


def check_numbers_are_finite(s):
    answer = s.complete(prompt="<|endoftext|>é", temperature=100, seed=1, max_tokens=8, logprobs=20, echo=True, ignore_eos=True)
    text = json.dumps(answer, allow_nan=True)
    assert "NaN" not in text and "Infinity" not in text


def check_stop_texts_are_cut_alike(s):
    """Random stop texts: the stream, the whole answer and the text without them agree on every character."""
    rng = random.Random(5)
    prompts = ["Once upon a time", "1, 2, 3,", ADD, "[gMASK]<sop><|user|>719+594<|assistant|><think>", "The capital of"]
    n = 0
    while n < 100 * client.SHARE:
        fields = {"prompt": rng.choice(prompts), "max_tokens": 24, "temperature": rng.choice((0, 1.0)),
                  "seed": rng.randrange(1000)}
        full = s.text(**fields)
        for _ in range(5 if full else 0):
            stops = []
            for _ in range(rng.randrange(1, 4)):
                at, size = rng.randrange(len(full)), rng.randrange(1, 6)
                text = full[at:at + size]
                stops.append(text if rng.random() < 0.7 else text[:-1] + "§")  # one that begins alike and never comes
            expected = full[:min((full.index(t) for t in stops if t in full), default=len(full))]
            whole = s.complete(**fields, stop=stops)
            stream = s.complete(**fields, stop=stops, stream=True)
            got = whole["choices"][0]["text"]
            assert got == expected == stream["text"][0], (fields, stops, full, got, stream["text"])
            assert (whole["choices"][0]["finish_reason"] == stream["events"][-1]["choices"][0]["finish_reason"]), stops
            n += 1


def ids_of(s, text):
    return json.loads(subprocess.run([s.limpid, "tokenize", s.model_path, text], text=True, check=True,
                                     capture_output=True).stdout)


def check_characters_are_never_cut(s):
    """An emoji of several tokens, one after the other by bias and penalty: one piece of the stream holds it."""
    emoji = "\U0001f600"
    ids = ids_of(s, emoji)
    assert len(ids) > 1 and len(set(ids)) == len(ids), ids
    fields = {"prompt": "x", "temperature": 0, "repetition_penalty": 10, "ignore_eos": True,
              "logit_bias": {str(t): 100 - 12 * i for i, t in enumerate(ids)}}
    for n, expected in ((len(ids), emoji), (len(ids) - 1, "\ufffd")):
        whole = s.text(**fields, max_tokens=n)
        stream = s.complete(**fields, max_tokens=n, stream=True)
        pieces = [e["choices"][0]["text"] for e in stream["events"]]
        assert whole == expected and [p for p in pieces if p] == [expected], (whole, pieces)


def check_sampling_fields_reach_the_sampler(s):
    digits = {"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 6}
    plain = s.complete(**digits, logprobs=0)["choices"][0]
    first = plain["logprobs"]["tokens"]
    seven, = ids_of(s, "7")
    assert s.text(**digits, logit_bias={str(seven): 100}) == "7" * 6
    ids = ids_of(s, plain["text"])
    banned = s.complete(**digits, logit_bias={str(ids[0]): -100}, logprobs=0)["choices"][0]["logprobs"]["tokens"]
    assert first[0] not in banned, banned
    once = s.text(**digits, logit_bias={str(seven): 40}, repetition_penalty=10)
    assert once[0] == "7" and once != "7" * 6, once
    warm = {"prompt": "Once upon a time", "temperature": 1.0, "seed": 11, "max_tokens": 48}
    plain_text = s.text(**warm)
    for field, off, on in (("repetition_penalty", 1, 1.5), ("repeat_penalty", 1, 1.5), ("presence_penalty", 0, 2),
                           ("frequency_penalty", 0, 2)):
        assert s.text(**warm, **{field: off}) == plain_text != s.text(**warm, **{field: on}), field
    # min_tokens holds the end token back; stop_token_ids end like one
    short = s.complete(prompt=ADD, temperature=0, max_tokens=40)
    n = short["usage"]["completion_tokens"]
    longer = s.complete(prompt=ADD, temperature=0, max_tokens=40, min_tokens=n + 5)
    assert longer["usage"]["completion_tokens"] >= n + 5, longer
    stopped = s.complete(**digits, stop_token_ids=[ids[1]])["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", ids[1]), stopped
    assert plain["text"].startswith(stopped["text"]) and stopped["text"] != plain["text"]
    # filters that leave one token are greedy
    hot = {"prompt": "1, 2, 3,", "temperature": 1.0, "seed": 3, "max_tokens": 6}
    for field, value in (("min_p", 1.0), ("typical_p", 1e-6), ("top_k", 1)):
        got = {s.text(**{**hot, "seed": seed}, **{field: value}) for seed in (1, 2, 3)}
        assert len(got) == 1, (field, got)
    # DRY: a run is not repeated on
    sevens = {**digits, "logit_bias": {str(seven): 40}, "max_tokens": 8}
    assert s.text(**sevens) == "7" * 8
    dry = s.text(**sevens, dry_multiplier=100, dry_allowed_length=1)
    assert "77" in dry and "7" * 5 not in dry, dry
    assert s.text(**sevens, dry_multiplier=100, dry_allowed_length=1, dry_sequence_breakers=["7"]) == "7" * 8


def check_every_end_marker_ends(s):
    """GLM ends a turn with the user's or the observation's marker beside the end of text: each of them ends an answer, and
    none is part of it."""
    for marker in ("<|endoftext|>", "<|user|>", "<|observation|>"):
        status, _, raw = s.ask("POST", "/tokenize", json.dumps({"prompt": marker}))
        ids = json.loads(raw)["tokens"]
        assert status == 200 and len(ids) == 1, (marker, raw)
        for stream in (False, True):
            answer = s.complete(prompt=ADD, temperature=0, max_tokens=20, logit_bias={str(ids[0]): 100}, stream=stream)
            if stream:
                assert answer["text"] == [""] and answer["done"], (marker, answer)
                continue
            choice = answer["choices"][0]
            assert choice["finish_reason"] == "stop" and choice["text"] == "", (marker, choice)
        on = s.complete(prompt=ADD, temperature=0, max_tokens=4, logit_bias={str(ids[0]): 100}, ignore_eos=True)["choices"][0]
        assert on["finish_reason"] == "length", (marker, on)


def check_any_json_ends(s):
    """A schema that allows everything must still end: no number, text or nesting goes on for ever."""
    def one(item):
        i, schema = item
        body = {"messages": [{"role": "user", "content": "JSON: a number"}], "temperature": 1.5, "seed": i, "max_tokens": 2000,
                "chat_template_kwargs": {"enable_thinking": False},
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
        status, _, raw = s.ask("POST", "/v1/chat/completions", json.dumps(body))
        assert status == 200, raw
        choice = json.loads(raw)["choices"][0]
        assert choice["finish_reason"] == "stop", (schema, choice)
        json.loads(choice["message"]["content"])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, enumerate([{}, {"type": "number"}, {"type": "integer"}] * 5)))


def check_a_bad_schema_touches_nobody_else(s):
    """A schema that cannot be one is refused with its place, while others go on as if alone."""
    bystander = {"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 200, "ignore_eos": True}
    alone = s.text(**bystander)
    bad = [{"type": "array", "items": 5}, {"properties": []}, {"enum": []}, {"type": "what"}, {"$ref": "#/nowhere"}, 7,
           {"type": "string", "pattern": "("}, {"minItems": -1, "type": "array"}]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(s.text, stream=i == 1, **bystander) for i in range(2)]
        for schema in bad:
            for field in ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
                          {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}],
                           "tool_choice": "required"}):
                status, _, raw = s.ask("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "x"}],
                                                                                   "max_tokens": 4, **field}))
                assert status == 400 and json.loads(raw)["error"]["message"], (schema, field, status, raw)
        assert [r.result() for r in running] == [alone, alone]


def check_choices_share_their_prompt(s):
    prompt = " ".join(str(i) for i in range(100, 160))
    n_prompt = len(ids_of(s, prompt))
    one = s.complete(prompt=prompt, max_tokens=4, temperature=1.0, seed=7)
    several = s.complete(prompt=prompt, max_tokens=4, temperature=1.0, seed=7, n=4)
    assert several["usage"]["prompt_tokens"] == n_prompt and [c["index"] for c in several["choices"]] == [0, 1, 2, 3]
    cached = several["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert one["usage"]["prompt_tokens_details"]["cached_tokens"] < n_prompt and 0 < cached < n_prompt, several["usage"]
    both = s.complete(prompt=[prompt, prompt], max_tokens=1, temperature=0, n=2)
    assert both["usage"]["prompt_tokens"] == 2 * n_prompt and both["usage"]["completion_tokens"] == 4
    echoed = s.complete(prompt="1, 2,", max_tokens=2, temperature=1.0, seed=1, n=3, echo=True, logprobs=1)
    lps = [c["logprobs"] for c in echoed["choices"]]
    assert all(lp["tokens"][:5] == ["1", ",", " ", "2", ","] and len(lp["tokens"]) == 7 for lp in lps), lps
    assert all(lp["token_logprobs"][:5] == lps[0]["token_logprobs"][:5] for lp in lps)


def check_usage_is_what_was_sent(s):
    for prompt in ("Hello", ADD, "x" * 3000):
        answer = s.complete(prompt=prompt, max_tokens=1, temperature=0)
        assert answer["usage"]["prompt_tokens"] == len(ids_of(s, prompt)), prompt[:20]  # no silent cut


def check_ids_have_a_life_of_their_own(s):
    for given, kept in (("client-1.a", True), ("x" * 128, True), ("x" * 129, False), ("two words", False)):
        _, headers, _ = s.ask("GET", "/health", headers={"X-Request-Id": given})
        assert (headers["X-Request-Id"] == given) == kept, headers["X-Request-Id"]
    seen = {s.ask(m, p)[1]["X-Request-Id"] for m, p in (("GET", "/health"), ("GET", "/nothing"), ("PUT", "/health"))}
    assert len(seen) == 3 and None not in seen, seen


def check_metrics_count(s):
    before = s.wait_until_idle()
    answer = s.complete(prompt="1, 2, 3, 4,", temperature=0, max_tokens=3, ignore_eos=True, n=2)
    s.ask("GET", "/no/such/path")
    after = s.wait_until_idle()

    def more(series):
        return after[series] - before.get(series, 0)
    assert more("limpid_requests_total") == 1 and more('limpid_finished_total{reason="length"}') == 2
    assert more("limpid_generated_tokens_total") == 6 == answer["usage"]["completion_tokens"]
    assert more("limpid_prompt_tokens_total") == answer["usage"]["prompt_tokens"]
    assert more('limpid_http_requests_total{route="/v1/completions",status="200"}') == 1
    assert more('limpid_http_requests_total{route="other",status="404"}') == 1
    assert more("limpid_steps_total") == more("limpid_step_seconds_count") == more("limpid_batch_tokens_count") > 0
    assert more("limpid_time_to_first_token_seconds_count") >= 1
    assert 'limpid_attention_spans_total{route="absorbed"}' in after and "limpid_preemptions_total" in after
    assert after["limpid_healthy"] == 1 and after["limpid_draining"] == 0 and after["limpid_http_generating"] == 0


def check_huge_lists_of_ids_cost_little(s):
    """14 million ids are refused before they take 40 times their bytes."""
    status = pathlib.Path(f"/proc/{s.process.pid}/status")

    def peak_mib():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1024
    before = peak_mib()
    code, _, raw = s.ask("POST", "/v1/completions", b'{"prompt": [' + b"1," * 14000000 + b"1]}")
    error = json.loads(raw)["error"]
    assert code == 400 and error["code"] == "context_length_exceeded", error
    assert "14000001" in error["message"] and "4096" in error["message"], error
    assert peak_mib() - before < 150, (before, peak_mib())


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
