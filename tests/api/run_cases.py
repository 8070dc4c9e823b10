#!/usr/bin/env python3
"""API tests: tests/api/*.case and the checks below, against a live server.

    run_cases.py LIMPID MODEL [--only WORD] [-- OPTIONS OF limpid serve]

A .case file holds requests, each with what is expected of the answer:

    server: --ctx 64             once, first in the file: options of its server (default: none)
    # a comment
    POST /v1/completions         a line that begins with a method begins a case
    > Authorization: Bearer x    request headers
    {"prompt": "1, 2, 3,"}       all further lines up to '<' are the body; $MODEL, here and
                                 in what is expected, is the model's id
    < 200                        the status
    < Allow: POST                a header of the answer
    = choices[0].text " 4"       the value at this path of the JSON body equals this JSON
    ~ error.message ctx          the string there matches this regular expression
    | choices[0].logprobs.tokens 3    the array, object or string there has this length
    ! choices[0].extra           nothing is there

Of a stream the body is {"events": [...], "done": true if [DONE] was last, "text": [text of choice 0, ...]}.
A path "." is the whole body. Expected texts are those of the model's float32 reference in PyTorch.
"""
import concurrent.futures
import http.client
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
TIMEOUT_S = 120
ADD = "[gMASK]<sop><|user|>706 + 31<|assistant|></think>"
ADD_ANSWER = "706 + 31 = 737"


# ---- server and client ----

class Server:
    def __init__(self, limpid, model, options):
        self.process = subprocess.Popen([limpid, "serve", model, "--port", "0", *options], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"limpid: serving (.+) at http://127\.0\.0\.1:(\d+)\n", line)
        if not found:
            self.process.kill()
            raise AssertionError(f"ready line is {line!r}; {self.process.communicate()[1]}")
        self.model, self.port = found[1], int(found[2])

    def ask(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, path, data, dict(headers))
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        return answer.status, answer.headers, raw

    def complete(self, **fields):
        """The parsed answer, or that of a stream (see above)."""
        status, headers, raw = self.ask("POST", "/v1/completions", json.dumps(fields))
        assert status == 200, (status, raw)
        return parse_stream(raw) if fields.get("stream") else json.loads(raw)

    def text(self, **fields):
        answer = self.complete(**fields)
        return answer["text"][0] if fields.get("stream") else answer["choices"][0]["text"]

    def stop(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, f"exit status {self.process.returncode} after {signal_number}: {err}"
        assert out == "", f"more than one line on standard output: {out!r}"
        assert not re.search("Sanitizer|runtime error", err), err


def parse_stream(raw):
    blocks = raw.decode().split("\n\n")
    assert blocks[-1] == "", f"the stream ends within an event: {raw[-80:]!r}"
    assert all(re.fullmatch(r"data: .+", b) for b in blocks[:-1]), "an event is not one data line"
    done = len(blocks) > 1 and blocks[-2] == "data: [DONE]"
    events = [json.loads(b[6:]) for b in blocks[:-1] if b != "data: [DONE]"]
    text = {}
    for event in events:
        for choice in event.get("choices", []):
            text[choice["index"]] = text.get(choice["index"], "") + choice["text"]
    return {"events": events, "done": done, "text": [text[i] for i in sorted(text)]}


# ---- case files ----

class Case:
    def __init__(self, where, method, path):
        self.where, self.method, self.path = where, method, path
        self.request_headers, self.body, self.status = {}, [], None
        self.headers, self.checks = {}, []


def read_cases(path):
    options, cases = (), []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if not line or mark == "#":
            continue
        if line.startswith("server:"):
            options = tuple(line.split()[1:])
        elif mark in METHODS:
            cases.append(Case(f"{path.name}:{number} {line}", mark, rest))
        elif mark == ">":
            name, _, value = rest.partition(": ")
            cases[-1].request_headers[name] = value
        elif mark == "<" and rest.isdigit():
            cases[-1].status = int(rest)
        elif mark == "<":
            name, _, value = rest.partition(": ")
            cases[-1].headers[name] = value
        elif mark in ("=", "~", "|", "!"):
            where, _, value = rest.partition(" ")
            cases[-1].checks.append((mark, where, value))
        else:
            assert cases[-1].status is None, f"{path.name}:{number}: body behind the status"
            cases[-1].body.append(line)
    return options, cases


MISSING = object()


def look_up(value, path):
    for name, index in re.findall(r"([^.\[\]]+)|\[(-?\d+)\]", path):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def check_value(mark, found, expected):
    if mark == "!":
        return found is MISSING
    if found is MISSING:
        return False
    if mark == "=":
        return found == json.loads(expected) and type(found) is type(json.loads(expected))
    if mark == "~":
        return isinstance(found, str) and re.search(expected, found) is not None
    return len(found) == int(expected)


def run_case(server, case):
    body = "\n".join(case.body).replace("$MODEL", server.model) if case.body else None
    status, headers, raw = server.ask(case.method, case.path, body, case.request_headers)
    assert status == case.status, f"status {status}, expected {case.status}: {raw[:300]!r}"
    for name, value in case.headers.items():
        assert headers[name] == value, f"{name} is {headers[name]!r}, expected {value!r}"
    if not case.checks:
        return
    stream = headers.get_content_type() == "text/event-stream"
    answer = parse_stream(raw) if stream else json.loads(raw)
    for mark, path, expected in case.checks:
        found, expected = look_up(answer, path), expected.replace("$MODEL", server.model)
        assert check_value(mark, found, expected), (
            f"{mark} {path} {expected}: found {'nothing' if found is MISSING else json.dumps(found)} in {json.dumps(answer)[:600]}")


# ---- checks that need more than one request, or a socket ----

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


def open_stream(s, **fields):
    body = json.dumps({"stream": True, **fields}).encode()
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=TIMEOUT_S)
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return sock


def check_disconnects(s):
    """Clients that leave while they are served or while they wait; each would take minutes to finish."""
    endless = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "temperature": 1.0, "seed": 1}
    began = time.monotonic()
    running = open_stream(s, **endless)
    assert b"data: " in running.recv(4096) + running.recv(4096)
    waiting = [open_stream(s, **endless) for _ in range(5)]
    whole = open_stream(s, **endless, n=2)
    time.sleep(0.2)
    for sock in waiting[:3]:
        sock.close()
    for sock in (*waiting[3:], whole, running):  # with a reset, as a killed client does
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    assert s.text(prompt=ADD, temperature=0, max_tokens=40) == ADD_ANSWER
    blocking = open_stream(s, **{**endless, "stream": False})
    time.sleep(0.5)
    blocking.close()
    assert s.text(prompt=ADD, temperature=0, max_tokens=40) == ADD_ANSWER
    assert time.monotonic() - began < 60, "a client that had gone was served to the end"


def check_many_clients(s):
    def one(i):
        a, b = 100 + i, 31
        return s.text(prompt=f"[gMASK]<sop><|user|>{a} + {b}<|assistant|></think>", temperature=0, max_tokens=24,
                      stream=i % 2 == 0)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    for i, answer in enumerate(answers):  # sums it was trained for; which is right is the model's affair
        assert answer.startswith(f"{100 + i} + 31 ="), (i, answer)


def check_order_of_arrival(s):
    ends = []

    def one(i):
        s.text(prompt="1, 2,", temperature=0, max_tokens=8)
        ends.append(i)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        long = pool.submit(lambda: s.text(prompt="Once upon", max_tokens=60, ignore_eos=True, seed=1))
        time.sleep(0.1)
        for i in range(3):
            pool.submit(one, i)
            time.sleep(0.1)
        long.result()
    assert ends == [0, 1, 2], ends


def raw_exchange(s, data, n_at_most=65536):
    with socket.create_connection(("127.0.0.1", s.port), timeout=TIMEOUT_S) as sock:
        sock.sendall(data)
        answer = b""
        while len(answer) < n_at_most:
            piece = sock.recv(4096)
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if not piece or (length and len(body) >= int(length[1])):
                break
    return int(answer.split(b" ", 2)[1]) if answer else None, answer.partition(b"\r\n\r\n")[2]


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


def check_stops_while_busy(limpid, model, options):
    s = Server(limpid, model, options)
    sock = open_stream(s, prompt="Once upon a time", max_tokens=4000, ignore_eos=True, seed=1)
    assert sock.recv(4096)
    waiting = open_stream(s, prompt="Once upon a time", max_tokens=4000, stream=False)
    time.sleep(0.2)
    began = time.monotonic()
    s.stop(signal.SIGINT)
    assert time.monotonic() - began < 30
    sock.close()
    waiting.close()


def check_refuses_a_taken_port(limpid, model, options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = subprocess.run([limpid, "serve", model, "--port", str(taken.getsockname()[1]), *options], text=True,
                             capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 1 and "in use" in run.stderr and run.stdout == "", run
    run = subprocess.run([limpid, "serve"], text=True, capture_output=True, timeout=TIMEOUT_S)
    assert run.returncode == 2 and "MODEL" in run.stderr, run


SERVER_CHECKS = [check_stream_is_the_same_text, check_stop_texts_cross_tokens, check_seeds, check_logprobs,
                 check_offsets_count_characters, check_ids_and_text_agree, check_disconnects, check_many_clients,
                 check_order_of_arrival, check_bodies, check_keep_alive, check_numbers_are_finite]
PROCESS_CHECKS = [check_stops_while_busy, check_refuses_a_taken_port]


class Tally:
    def __init__(self, only):
        self.only, self.n, self.failed = only, 0, 0

    def run(self, name, function, *args):
        if self.only not in name:
            return
        self.n += 1
        began = time.monotonic()
        try:
            function(*args)
            print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception as error:  # a check that fails shall not hide the next
            self.failed += 1
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)


def main():
    arguments = sys.argv[1:]
    options = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    limpid, model = arguments[:2]
    if not pathlib.Path(model).exists():
        print(f"skipped: there is no {model}")
        return 77
    tally, by_options = Tally(only), {(): []}
    for path in sorted(HERE.glob("*.case")):
        server_options, cases = read_cases(path)
        by_options.setdefault(server_options, []).extend(c for c in cases if only in c.where)
    for server_options, cases in by_options.items():
        if not cases and server_options:
            continue
        server = Server(limpid, model, [*server_options, *options])
        server.limpid, server.model_path = limpid, model
        for case in cases:
            tally.run(case.where, run_case, server, case)
        for check in SERVER_CHECKS if not server_options else []:
            tally.run(check.__name__, check, server)
        tally.run(f"stop_{' '.join(server_options)}" if not only else only, server.stop)
    for check in PROCESS_CHECKS:
        tally.run(check.__name__, check, limpid, model, options)
    print(f"{tally.n - tally.failed} of {tally.n} passed")
    return 1 if tally.failed or not tally.n else 0


if __name__ == "__main__":
    sys.exit(main())
