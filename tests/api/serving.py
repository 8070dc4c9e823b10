"""Checks of the server as a process: many clients, limits, leaving, draining, health, TLS, the access log.
Each starts its own servers."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

from client import ADD, ADD_ANSWER, TIMEOUT_S, Server, open_stream, parse_stream, raw_exchange

ENDLESS = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "temperature": 1.0, "seed": 1}


def post(fields):
    body = json.dumps(fields).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def read_until(sock, mark):
    data = b""
    while mark not in data:
        piece = sock.recv(65536)
        assert piece, data[-300:]
        data += piece
    return data


def running_stream(s, **fields):
    """A stream that has begun to generate."""
    sock = open_stream(s, **{**ENDLESS, **fields})
    read_until(sock, b"data: ")
    return sock


def leave(sock, reset=False):
    if reset:  # as a killed client does
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_to_end(sock):
    data = b""
    while piece := sock.recv(1 << 16):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def unchunk(body):
    """(the text of whole chunks, whether the last, empty chunk came)"""
    out = b""
    while True:
        size, found, rest = body.partition(b"\r\n")
        if not found:
            return out, False
        n = int(size, 16)
        if n == 0:
            return out, True
        if len(rest) < n + 2:
            return out, False
        out, body = out + rest[:n], rest[n + 2:]


# ---- together

def check_parallel_answers_are_the_sequential_ones(limpid, model, options):
    with Server(limpid, model, ["--deterministic", *options]) as s:
        jobs = [{"prompt": p, "max_tokens": 20 + i, "temperature": t, "seed": i, "logprobs": 1, "stream": i % 2 == 1}
                for i, (p, t) in enumerate((p, t) for p in ("Once upon a time", "1, 2, 3,", ADD, "x" * 200) for t in (0, 1.0))]

        def run(fields):
            answer = s.complete(**fields)
            if not fields["stream"]:
                return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]["token_logprobs"]
            return answer["text"][0], sum((e["choices"][0]["logprobs"]["token_logprobs"] for e in answer["events"]), [])
        alone = [run(f) for f in jobs]
        steps = s.metrics()["limpid_steps_total"]
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
                together = list(pool.map(run, jobs))
            assert together == alone, [(a, b) for a, b in zip(alone, together) if a != b]
        # they did run together: far fewer steps than three times those of one after another
        assert s.metrics()["limpid_steps_total"] - steps < 2 * steps, (steps, s.metrics()["limpid_steps_total"])
        s.stop()


def check_more_requests_than_places_all_finish(limpid, model, options):
    with Server(limpid, model, ["--max-seqs", "2", *options]) as s:
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda i: s.text(prompt=ADD, temperature=0, max_tokens=40, stream=i % 2 == 0), range(100)))
        assert answers == [ADD_ANSWER] * 100
        assert s.wait_until_idle()['limpid_finished_total{reason="stop"}'] == 100
        s.stop()


def check_costly_grammars_take_turns(limpid, model, options):
    """Some wait for the next step where a step has spent its time on grammars; what they write stays the same."""
    def fields(k):
        parts = "|".join("(?:[a-z]{%d,%d})" % ((i + k) % 50 + 20, (i * 7 + k) % 97 + 120) for i in range(1500))
        return {"prompt": f"x{k}", "max_tokens": 6, "temperature": 1.0, "seed": k, "structured_outputs": {"regex": f"(?:{parts})"}}
    with Server(limpid, model, ["--deterministic", *options]) as s:
        with concurrent.futures.ThreadPoolExecutor(7) as pool:
            other = pool.submit(s.text, prompt="1, 2,", temperature=0, max_tokens=60, ignore_eos=True)
            together = list(pool.map(lambda k: s.text(**fields(k)), range(6)))
            beside = other.result()
    with Server(limpid, model, ["--deterministic", *options]) as s:
        assert together == [s.text(**fields(k)) for k in range(6)], together
        assert beside == s.text(prompt="1, 2,", temperature=0, max_tokens=60, ignore_eos=True)
        s.stop()


def check_higher_priority_runs_first(limpid, model, options):
    with Server(limpid, model, ["--max-seqs", "1", *options]) as s:
        ends = []

        def one(name, priority):
            # Long enough that the clients see the ends in their order, too.
            s.text(prompt="1, 2,", temperature=0, max_tokens=96, ignore_eos=True, priority=priority)
            ends.append(name)
        first = running_stream(s)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for i, (name, priority) in enumerate((("low", -1), ("first", 0), ("second", 0), ("high", 7))):
                pool.submit(one, name, priority)
                s.wait_for(lambda m: m["limpid_sequences_waiting"] >= i + 1 - (ends != []))
            leave(first)
        assert ends[-3:] == ["first", "second", "low"] and "high" in ends[:1], ends
        s.stop()


# ---- leaving

def check_clients_that_leave_free_what_they_had(limpid, model, options):
    with Server(limpid, model, ["--deterministic", "--max-seqs", "3", "--chunk", "64", *options]) as s:
        other = {"prompt": "1, 2, 3,", "max_tokens": 60, "temperature": 1.0, "seed": 4, "ignore_eos": True}
        alone = s.text(**other)
        long = random.Random(3)
        for i, reset in enumerate((False, True) * 2):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                bystander = pool.submit(s.text, **other, stream=i % 2 == 0)
                decoding = running_stream(s, n=2 if i < 2 else 1)
                leave(decoding, reset)
                s.wait_for(lambda m: m["limpid_sequences_running"] <= 1, 2)
                assert bystander.result() == alone, "another request noticed"
            # while its prompt is computed: 3,900 tokens in 61 steps
            prompt = [long.randrange(300, 3000) for _ in range(3900)]
            before = s.wait_until_idle()  # a step's counters come out behind its last event
            sock = open_stream(s, **{**ENDLESS, "prompt": prompt, "stream": i % 2 == 0})
            s.wait_for(lambda m: m["limpid_sequences_running"] == 1)
            leave(sock, reset)
            after = s.wait_until_idle(2)
            assert after["limpid_cancelled_total"] == before["limpid_cancelled_total"] + 1
            assert after["limpid_generated_tokens_total"] == before["limpid_generated_tokens_total"], "its prompt was computed to the end"
        # in the queue: it never runs
        runners = [running_stream(s, seed=i) for i in range(3)]
        waiting = [open_stream(s, **ENDLESS) for _ in range(4)] + [open_stream(s, **{**ENDLESS, "stream": False}, n=2)]
        s.wait_for(lambda m: m["limpid_sequences_waiting"] == 6)
        for i, sock in enumerate(waiting):
            leave(sock, i % 2 == 1)
        s.wait_for(lambda m: m["limpid_sequences_waiting"] == 0 and m["limpid_sequences_running"] == 3, 2)
        for sock in runners:
            leave(sock)
        s.wait_until_idle(2)
        assert s.text(prompt=ADD, temperature=0, max_tokens=40) == ADD_ANSWER
        s.stop()


def check_leaving_while_drafting(limpid, model, options):
    """With speculation on, a client that leaves frees its place too."""
    try:
        s = Server(limpid, model, ["--speculate", "2", *options])
    except AssertionError as error:
        assert "MTP" in str(error) or "next-token" in str(error) or "draft" in str(error), error
        return  # the model has no such layer, and says so
    with s:
        sock = running_stream(s)
        leave(sock)
        s.wait_until_idle(2)
        s.stop()


def check_slow_readers_hold_nobody(limpid, model, options):
    # Some 10 MB at once: more than the sockets buffer.
    big = {"prompt": list(range(300, 2300)), "echo": True, "logprobs": 20, "max_tokens": 30, "n": 4, "temperature": 1.0,
           "seed": 1, "stream": True, "ignore_eos": True}

    def slow(s):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(TIMEOUT_S)
        sock.connect(("127.0.0.1", s.port))
        sock.sendall(post(big).replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
        return sock
    with Server(limpid, model, options) as s:
        sleeper = slow(s)
        time.sleep(3)
        assert s.text(prompt=ADD, temperature=0, max_tokens=40) == ADD_ANSWER
        _, body = read_to_end(sleeper)
        text, whole = unchunk(body)
        answer = parse_stream(text)
        assert whole and answer["done"] and len(answer["text"]) == 4, (whole, len(body))
        s.stop()
    with Server(limpid, model, ["--idle-timeout", "2", *options]) as s:
        dead = slow(s)
        s.wait_for(lambda m: m["limpid_http_generating"] == 1, 30)
        s.wait_for(lambda m: m["limpid_http_generating"] == 0, 100)  # cut; what it holds is freed
        s.wait_until_idle()
        text, whole = unchunk(read_to_end_of_reset(dead))
        assert not whole
        for block in text.decode(errors="strict").split("\n\n")[:-1]:
            assert block == ": keep-alive" or json.loads(block.removeprefix("data: "))
        s.stop()


def read_to_end_of_reset(sock):
    data = b""
    try:
        while piece := sock.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return data.partition(b"\r\n\r\n")[2]


# ---- limits

def check_a_full_queue_says_so(limpid, model, options):
    with Server(limpid, model, ["--max-seqs", "1", "--max-queue", "2", *options]) as s:
        def refused(**fields):
            status, headers, raw = s.ask("POST", "/v1/completions", json.dumps({**ENDLESS, **fields}))
            error = json.loads(raw)["error"]
            assert status == 429 and int(headers["Retry-After"]) > 0, (status, headers.items())
            assert error["type"] == "rate_limit_error" and error["code"] == "rate_limit_exceeded", error
        refused(n=4)  # more choices than there are places
        refused(prompt=["a", "b", "c", "d", "e"], stream=True)  # places count from a step's end: one may be free still
        s.wait_until_idle()  # none of them stays
        socks = [running_stream(s)] + [open_stream(s, **ENDLESS) for _ in range(2)]
        s.wait_for(lambda m: m["limpid_sequences_waiting"] == 2)
        refused()
        refused(stream=True)
        assert s.ask("GET", "/health")[0] == 200
        s.wait_for(lambda m: m["limpid_rejected_total"] == 4)
        for sock in socks:
            leave(sock)
        s.wait_until_idle()
        assert s.text(prompt=ADD, temperature=0, max_tokens=40) == ADD_ANSWER
        s.stop()


def check_time_limit(limpid, model, options):
    with Server(limpid, model, ["--request-timeout", "0.4", "--max-seqs", "1", *options]) as s:
        began = time.monotonic()
        status, _, raw = s.ask("POST", "/v1/completions", json.dumps(ENDLESS))
        assert status == 504 and json.loads(raw)["error"]["code"] == "request_timeout", (status, raw)
        stream = s.complete(**ENDLESS, stream=True)
        assert not stream["done"] and stream["events"][-1]["error"]["code"] == "request_timeout", stream["events"][-1]
        assert len(stream["events"]) > 1
        sock = running_stream(s)  # one that waits is over too
        assert s.ask("POST", "/v1/completions", json.dumps(ENDLESS))[0] == 504
        leave(sock)
        s.wait_until_idle()
        assert time.monotonic() - began < 20
        assert s.text(prompt="1, 2, 3,", temperature=0, max_tokens=2) == " 4"
        s.stop()


def check_silent_connections_are_closed(limpid, model, options):
    with Server(limpid, model, ["--idle-timeout", "1", *options]) as s:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", s.port), timeout=30) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert sock.recv(1000) == b"" and 0.5 < time.monotonic() - began < 10
        # a generation is not silence
        assert s.complete(**{**ENDLESS, "max_tokens": 250})["usage"]["completion_tokens"] == 250
        s.stop()


def check_waiting_streams_show_that_they_live(limpid, model, options):
    with Server(limpid, model, ["--keep-alive", "0.2", "--max-seqs", "1", *options]) as s:
        first = running_stream(s)
        began = time.monotonic()
        waiting = open_stream(s, prompt=ADD, temperature=0, max_tokens=40)
        head = read_until(waiting, b": keep-alive\n\n")
        assert b" 200 " in head.split(b"\r\n")[0] and b"data:" not in head and time.monotonic() - began < 2, head
        read_until(waiting, b": keep-alive\n\n")
        leave(first)
        waiting.shutdown(socket.SHUT_RD)
        waiting.close()
        s.wait_until_idle()
        assert s.complete(prompt=ADD, temperature=0, max_tokens=40, stream=True)["text"] == [ADD_ANSWER]
        # the comments do not disturb the answer behind them
        first = running_stream(s)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(s.complete, prompt=ADD, temperature=0, max_tokens=40, stream=True)
            time.sleep(0.7)
            leave(first)
            answer = answer.result()
        assert answer["comments"] >= 2 and answer["text"] == [ADD_ANSWER] and answer["done"], answer
        s.stop()


def check_streams_show_that_they_live_while_their_prompt_is_computed(limpid, model, options):
    """In many steps and in one long one; the comments come before the answer and do not change it."""
    rng = random.Random(8)
    prompt = [rng.randrange(300, 3000) for _ in range(1800)]
    words = " ".join(rng.choice(("one", "two", "three", "add", "story")) for _ in range(800))
    asked = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    for chunk in ("64", "4096"):
        with Server(limpid, model, ["--keep-alive", "0.005", "--chunk", chunk, "--no-prefix-cache", "--deterministic", *options]) as s:
            raw = s.ask("POST", "/v1/completions", json.dumps({**asked, "stream": True}))[2]
            metrics = s.wait_until_idle()
            queued = metrics["limpid_queue_seconds_sum"]
            assert queued < metrics["limpid_time_to_first_token_seconds_sum"] / 4, "it waited, not its prompt"
            before, _, _ = raw.partition(b"data: ")
            assert before.count(b": keep-alive\n\n") >= 3 and not before.replace(b": keep-alive\n\n", b""), before[-200:]
            stream = parse_stream(raw)
            assert stream["done"] and stream["text"] == [s.text(**asked)], stream["text"]
            if chunk == "64":
                chats_show_that_they_live(s, words)
            s.stop()


def chats_show_that_they_live(s, words):
    chat = {"model": s.model, "max_tokens": 4, "stream": True, "messages": [{"role": "user", "content": words}]}
    raw = s.ask("POST", "/v1/chat/completions", json.dumps(chat))[2]
    assert raw.partition(b'"content"')[0].count(b": keep-alive\n\n") >= 3 and parse_stream(raw)["done"], raw[:500]
    raw = s.ask("POST", "/v1/messages", json.dumps(chat))[2]
    assert raw.partition(b"content_block_delta")[0].count(b'"type":"ping"') >= 3 and b"message_stop" in raw, raw[:500]


def check_large_heads_and_bodies_have_limits(limpid, model, options):
    with Server(limpid, model, ["--max-body", "1", *options]) as s:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        status, raw = raw_exchange(s, head % ((1 << 20) + 1))
        assert status == 413 and b"1 MiB" in raw, (status, raw)
        status, raw = raw_exchange(s, head % (1 << 20) + b" " * (1 << 20))
        assert status == 400, (status, raw)
        try:
            assert raw_exchange(s, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 100000 + b"\r\n\r\n")[0] in (431, None)
        except (ConnectionResetError, BrokenPipeError):
            pass  # closed on what was still unread
        assert s.ask("GET", "/health", headers={"X-Large": "x" * 8000})[0] == 200
        s.stop()


# ---- stopping

def check_drain_lets_running_requests_finish(limpid, model, options):
    with Server(limpid, model, ["--drain-timeout", "100", *options]) as s:
        running = http.client.HTTPConnection("127.0.0.1", s.port, timeout=TIMEOUT_S)
        fields = {**ENDLESS, "max_tokens": 200, "stream": True}
        running.request("POST", "/v1/completions", json.dumps(fields))
        answer = running.getresponse()
        s.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 5
        while s.ask("GET", "/health")[0] == 200:
            assert time.monotonic() < end
        for path, expected in (("/health", 503), ("/health/ready", 503), ("/health/live", 200)):
            status, _, raw = s.ask("GET", path)
            assert status == expected and json.loads(raw)["status"] == ("draining" if status == 503 else "ok"), (path, raw)
        status, headers, raw = s.ask("POST", "/v1/completions", json.dumps({"prompt": "x"}))
        assert status == 503 and int(headers["Retry-After"]) > 0 and "stopping" in json.loads(raw)["error"]["message"]
        assert s.metrics()["limpid_draining"] == 1
        stream = parse_stream(answer.read())
        assert stream["done"] and stream["events"][-1]["choices"][0]["finish_reason"] == "length"
        s.ended(10)
        assert s.process.returncode == 0


def check_drain_ends_in_time(limpid, model, options):
    with Server(limpid, model, ["--drain-timeout", "0.5", "--max-seqs", "1", *options]) as s:
        running = running_stream(s)
        waiting = open_stream(s, **{**ENDLESS, "stream": False})
        s.wait_for(lambda m: m["limpid_sequences_waiting"] == 1)
        began = time.monotonic()
        s.stop(signal.SIGINT)
        assert 0.4 < time.monotonic() - began < 10
        text, _ = unchunk(b"".join(read_to_end(running)))  # the beginning was read before
        head, body = read_to_end(waiting)
        assert b" 503 " in head and b"stopping" in body, (head, body)
    with Server(limpid, model, ["--drain-timeout", "0.5", *options]) as s:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stream = pool.submit(s.complete, **ENDLESS, stream=True)
            s.wait_for(lambda m: m["limpid_generated_tokens_total"] > 2)
            s.stop()
            stream = stream.result()
        assert not stream["done"] and "stopping" in stream["events"][-1]["error"]["message"], stream["events"][-1]


def check_a_second_signal_ends_at_once(limpid, model, options):
    with Server(limpid, model, options) as s:
        sock = running_stream(s)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(5) == -signal.SIGTERM
        leave(sock)


# ---- health

def check_health_turns_red_when_steps_take_too_long(limpid, model, options):
    with tempfile.TemporaryDirectory() as folder, \
            Server(os.path.abspath(limpid), os.path.abspath(model),
                   ["--stall-timeout", "0.01", "--chunk", "2048", "--deterministic", *options], cwd=folder) as s:
        assert s.ask("GET", "/health")[0] == 200  # idle is not stalled
        pool = concurrent.futures.ThreadPoolExecutor(1)
        slow = pool.submit(s.ask, "POST", "/v1/completions", json.dumps({"prompt": [5] * 4000, "max_tokens": 1}))
        end, seen = time.monotonic() + 20, set()
        while "stalled" not in seen and time.monotonic() < end:
            began = time.monotonic()
            status, _, raw = s.ask("GET", "/health")
            assert time.monotonic() - began < 1, "health waits for the engine"
            seen.add(json.loads(raw)["status"])
            assert (status == 503) == (json.loads(raw)["status"] == "stalled"), raw
        assert "stalled" in seen
        status, headers, raw = slow.result()  # whoever waits is told, if it lasts
        assert status == 200 or (json.loads(raw)["error"]["code"] == "engine_stalled" and headers["Retry-After"]), raw
        s.wait_until_idle(TIMEOUT_S)
        assert s.ask("GET", "/health")[0] == s.ask("GET", "/health/live")[0] == 200
        assert "no step for" in s.stderr()
        s.stop()
        dump = f"limpid-stall-{s.process.pid}.jsonl"  # what the engine did; later stalls write no more
        assert os.listdir(folder) == [dump] and s.stderr().count(f"/{dump} ") == 1, (os.listdir(folder), s.stderr())


# ---- what is written

def check_access_log(limpid, model, options):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "access.log")
        with Server(limpid, model, ["--access-log", str(path), *options]) as s:
            s.ask("POST", "/v1/completions", json.dumps({"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 2}),
                  {"X-Request-Id": "mine"})
            s.complete(prompt="1, 2, 3,", temperature=0, max_tokens=2, stream=True)
            s.ask("POST", "/v1/completions", "{")
            s.ask("GET", "/health?x=1")
            leave(running_stream(s))
            waiting = open_stream(s, **{**ENDLESS, "stream": False})
            s.wait_for(lambda m: m["limpid_sequences_running"] == 1)
            leave(waiting)
            s.wait_until_idle()
            time.sleep(0.3)
            s.stop()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        log = [line for line in lines if line["path"] != "/metrics"]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in log)
        assert all(line["client"] == "127.0.0.1" and line["duration_ms"] > 0 for line in lines)
        assert len(log) == 6, log

        def the(**fields):  # a request's line is written behind its answer: lines may be in any order
            found = [line for line in log if all(line[name] == value for name, value in fields.items())]
            assert len(found) == 1, (fields, log)
            return found[0]
        whole, bad, health, gone = the(request_id="mine"), the(status=400), the(path="/health"), the(status=499)
        stream, left = the(stream=True, finish="length"), the(stream=True, finish="cancelled")
        assert (whole["request_id"], whole["status"], whole["method"], whole["path"]) == ("mine", 200, "POST", "/v1/completions")
        assert (whole["prompt_tokens"], whole["completion_tokens"], whole["finish"], whole["stream"]) == (8, 2, "length", False)
        assert 0 < whole["ttft_ms"] <= whole["duration_ms"]
        assert stream["stream"] and stream["completion_tokens"] == 2 and stream["request_id"].startswith("req-")
        assert bad["status"] == 400 and bad["finish"] is None and bad["prompt_tokens"] is None
        assert (health["method"], health["path"]) == ("GET", "/health")
        assert (left["status"], left["finish"]) == (200, "cancelled") and left["completion_tokens"] > 0, left
        assert (gone["status"], gone["finish"]) == (499, "cancelled"), gone
    run = subprocess.run([limpid, "serve", model, "--access-log", "/nowhere/log", "--port", "0", *options], text=True,
                         capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 1 and "/nowhere/log" in run.stderr, run


# ---- TLS

def check_tls(limpid, model, options):
    def fails(code, word, *more):
        run = subprocess.run([limpid, "serve", model, "--port", "0", *more, *options], text=True, capture_output=True,
                             timeout=TIMEOUT_S)
        assert run.returncode == code and word in run.stderr and run.stdout == "", run
    with tempfile.TemporaryDirectory() as folder:
        cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                        "-subj", "/CN=localhost"], check=True, capture_output=True)
        with Server(limpid, model, ["--tls-cert", cert, "--tls-key", key, *options]) as s:
            assert s.scheme == "https"
            for stream in (False, True):
                assert s.text(prompt=ADD, temperature=0, max_tokens=40, stream=stream) == ADD_ANSWER
            for polite in (False, True):  # with and without TLS' goodbye
                connection = s.connect()
                connection.request("POST", "/v1/completions", json.dumps({**ENDLESS, "stream": True}))
                connection.getresponse().read(1000)
                if polite:
                    sock = connection.sock or connection._HTTPConnection__response.fp.raw._sock
                    try:
                        sock.settimeout(0.2)
                        sock.unwrap()
                    except OSError:
                        pass  # it goes on sending; our goodbye is out
                    sock.close()
                connection.close()
                connection = None
                s.wait_until_idle(3)
            with socket.create_connection(("127.0.0.1", s.port), timeout=10) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                try:
                    assert b"200 OK" not in plain.recv(1000)
                except ConnectionResetError:
                    pass
            s.stop()
        fails(2, "--tls-key", "--tls-cert", cert)
        fails(2, "--tls-cert", "--tls-key", key)
        fails(1, "nowhere.pem", "--tls-cert", f"{folder}/nowhere.pem", "--tls-key", key)
        fails(1, "no PEM", "--tls-cert", model, "--tls-key", key)
        fails(1, "certificate", "--tls-cert", key, "--tls-key", cert)


# ---- settings

def check_settings_are_checked(limpid, model, options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = subprocess.run([limpid, "serve", model, "--port", str(taken.getsockname()[1]), *options], text=True,
                             capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 1 and "in use" in run.stderr and run.stdout == "", run
    for wrong in ((model, "--port", "65536"), (model, "--max-seqs", "0"), (model, "--self-check", "maybe"),
                  (model, "--cors", "a b"), (model, "--stall-timeout", "0"), (model, "--api-key", "")):
        run = subprocess.run([limpid, "serve", *wrong], text=True, capture_output=True, timeout=TIMEOUT_S)
        assert run.returncode == 2 and run.stdout == "" and wrong[1] in run.stderr, run
    run = subprocess.run([limpid, "serve", model, "--port", "0", "--kv-tokens", "500000000", *options], text=True,
                         capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 1 and run.stdout == "" and "lower --kv-tokens" in run.stderr, run


def check_only_this_machine_is_listened_to(limpid, model, options):
    """Without --host nobody else can connect: another address of the loopback is refused already. And with it everybody can."""
    for host, open_to_all in ((), False), (("--host", "0.0.0.0"), True):
        process = subprocess.Popen([limpid, "serve", model, "--port", "0", *host, *options], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        try:
            port = int(process.stdout.readline().rsplit(":", 1)[1])
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            try:
                socket.create_connection(("127.0.0.2", port), timeout=10).close()
                reached = True
            except ConnectionRefusedError:
                reached = False
            assert reached == open_to_all, (host, reached)
        finally:
            process.kill()
            process.communicate()


def check_acceptance_is_told_by_position(limpid, model, options):
    """How drafts fare at their first, second ... place in a step, which their sum hides."""
    with Server(limpid, model, ["--speculate", "3", *options]) as s:
        for _ in range(3):
            s.complete(prompt="1, 2, 3, 4, 5, 6, 7,", temperature=0, max_tokens=60, ignore_eos=True)
        m = s.metrics()
        drafted = [m[f'limpid_draft_position_tokens_total{{position="{i}"}}'] for i in (1, 2, 3)]
        accepted = [m[f'limpid_draft_position_accepted_total{{position="{i}"}}'] for i in (1, 2, 3)]
        assert sum(drafted) == m["limpid_draft_tokens_total"] > 0, (drafted, m)
        assert sum(accepted) == m["limpid_draft_tokens_accepted_total"], (accepted, m)
        assert drafted == sorted(drafted, reverse=True) and accepted == sorted(accepted, reverse=True), (drafted, accepted)
        assert 'limpid_draft_position_tokens_total{position="4"}' not in m
        s.stop()


def check_what_does_not_fit_is_refused_before_weights_are_read(limpid, model, options):
    """The plan stands alone on standard error, ahead of everything that loading says and draws."""
    on_gpu = "cuda" in options
    for more in ((), *(() if on_gpu else (("--prefetch",), ("--repack", "on"), ("--memory-budget", "18M")))):
        run = subprocess.run([limpid, "serve", model, "--port", "0", "--kv-tokens", "500000000", "--log", "info", *more, *options],
                             text=True, capture_output=True, timeout=TIMEOUT_S)
        lines = run.stderr.splitlines()
        assert run.returncode == 1 and len(lines) == 2, run
        assert lines[0].startswith(f"limpid: {'GPU ' if on_gpu else ''}memory: weights "), run
        assert lines[1].startswith("limpid: error: this takes "), run
        assert re.search(r"of KV cache, .* of buffers of a step; .*lower --kv-tokens", lines[1]), run
        for option in more:
            if option.startswith("--"):
                assert option in lines[1], run
    run = subprocess.run([limpid, "run", model, "-p", "a", "--ctx", "500000000", "--chunk", "1", *options], text=True,
                         capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 1 and run.stdout == "" and "lower --ctx" in run.stderr, run


def check_memory_plan_and_warnings_are_printed(limpid, model, options):
    with Server(limpid, model, ["--ctx", "256", "--kv-tokens", "1024", "--log", "info", *options, "--self-check", "on"]) as s:
        err, gpu = s.stderr(), "GPU " if "cuda" in options else ""
        assert re.search(rf"limpid: {gpu}memory: weights \d.* KV cache .* for 10\d\d tokens .*available: ", err), err
        assert "self-check: " in err, err
        assert s.metrics()["limpid_kv_pages"] * s.metrics()["limpid_kv_page_tokens"] >= 1024
        s.stop()
    with Server(limpid, model, ["--ctx", "64", "--self-check", "off", "--log", "info", *options]) as s:
        assert "self-check" not in s.stderr() and "--api-key" not in s.stderr()
        s.stop()


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
