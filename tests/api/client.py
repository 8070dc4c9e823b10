"""A live server and its client: what the API tests talk with."""
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time

TIMEOUT_S = 120
SHARE = 1.0  # of the rounds with random values
ADD = "[gMASK]<sop><|user|>706 + 31<|assistant|></think>"
ADD_ANSWER = "706 + 31 = 737"


class Server:
    """limpid serve with these options, and one client of it. As a context: killed at the end, if it still runs.
    limpid: the program, or the beginning of its command line as a list."""

    def __init__(self, limpid, model, options=(), cwd=None):
        self.limpid, self.model_path = limpid, model
        command = [limpid] if isinstance(limpid, str) else list(limpid)
        # Standard error goes to a file: a pipe that nobody reads would stop a server that logs much.
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*command, "serve", model, "--port", "0", *options], text=True, cwd=cwd,
                                        stdout=subprocess.PIPE, stderr=self.errors)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"limpid: serving (.+) at (https?)://127\.0\.0\.1:(\d+)\n", line)
        if not found:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"ready line is {line!r}; {self.stderr()}")
        self.model, self.scheme, self.port = found[1], found[2], int(found[3])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def connect(self):
        if self.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def ask(self, method, path, body=None, headers=()):
        connection = self.connect()
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, path, data, dict(headers))
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        return answer.status, answer.headers, raw

    def complete(self, **fields):
        """The parsed answer, or that of a stream (see run_cases.py)."""
        status, _, raw = self.ask("POST", "/v1/completions", json.dumps(fields))
        assert status == 200, (status, raw)
        return parse_stream(raw) if fields.get("stream") else json.loads(raw)

    def text(self, **fields):
        answer = self.complete(**fields)
        return answer["text"][0] if fields.get("stream") else answer["choices"][0]["text"]

    def metrics(self):
        """{series: value}, checked as strictly as Prometheus reads them."""
        status, headers, raw = self.ask("GET", "/metrics")
        assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", headers
        return parse_metrics(raw.decode())

    def wait_for(self, what, limit_s=10):
        """Until what(metrics) holds; the metrics then."""
        end = time.monotonic() + limit_s
        while True:
            metrics = self.metrics()
            if what(metrics):
                return metrics
            assert time.monotonic() < end, {k: v for k, v in metrics.items() if "_bucket" not in k and v}
            time.sleep(0.02)

    def wait_until_idle(self, limit_s=10):
        """Nothing runs or waits, no page is held but by the prefix cache, and all answers are counted."""
        return self.wait_for(lambda m: m["limpid_http_open"] == 1 and  # this question itself
                             m["limpid_sequences_running"] == m["limpid_sequences_waiting"] == 0 and
                             m["limpid_last_step_age_seconds"] == 0 and  # what came since that step, too
                             m["limpid_kv_pages_free"] + m["limpid_kv_pages_cached"] == m["limpid_kv_pages"], limit_s)

    def ended(self, limit_s=TIMEOUT_S):
        """Waits for the end of the process; what it wrote to standard error."""
        self.process.wait(limit_s)
        out, err = self.process.stdout.read(), self.stderr()
        assert out == "", f"more than one line on standard output: {out!r}"
        assert not re.search("Sanitizer|runtime error", err), err
        return err

    def stop(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        err = self.ended()
        assert self.process.returncode == 0, f"exit status {self.process.returncode} after {signal_number}: {err}"


def parse_stream(raw):
    blocks = raw.decode().split("\n\n")
    assert blocks[-1] == "", f"the stream ends within an event: {raw[-80:]!r}"
    comments = blocks.count(": keep-alive")
    blocks = [b for b in blocks if b != ": keep-alive"]
    parts = [re.fullmatch(r"(?:event: (\w[\w.]*)\n)?data: (.+)", b) for b in blocks[:-1]]
    assert all(parts), "an event is not one data line, or that behind its name"
    done = len(blocks) > 1 and blocks[-2] == "data: [DONE]"
    events = []
    for name, data in (part.groups() for part in parts if part[2] != "[DONE]"):
        events.append(json.loads(data) | ({"_event": name} if name else {}))
    text, reasoning, calls = {}, {}, []
    for choice in (c for event in events for c in event.get("choices", [])):
        at, delta = choice["index"], choice.get("delta", {})
        text[at] = text.get(at, "") + (choice["text"] if "text" in choice else delta.get("content", ""))
        if "reasoning_content" in delta:
            assert delta["reasoning"] == delta["reasoning_content"]
            reasoning[at] = reasoning.get(at, "") + delta["reasoning"]
        if at == 0:
            join_calls(calls, delta.get("tool_calls", []))
    return {"events": events, "done": done, "text": [text[i] for i in sorted(text)], "comments": comments,
            "reasoning": [reasoning[i] for i in sorted(reasoning)], "tool_calls": calls}


def join_calls(calls, deltas):
    """As clients do: texts of one index are joined; how often the name and the id came is counted."""
    for delta in deltas:
        if delta["index"] == len(calls):
            calls.append({"id": "", "type": "", "function": {"name": "", "arguments": ""}, "n_names": 0, "n_ids": 0, "n_deltas": 0})
        call, function = calls[delta["index"]], delta.get("function", {})
        for key in ("id", "type"):
            call[key] += delta.get(key, "")
        for key in ("name", "arguments"):
            call["function"][key] += function.get(key, "")
        call["n_ids"] += "id" in delta
        call["n_names"] += "name" in function
        call["n_deltas"] += 1
        call["many"] = call["n_deltas"] > 10


NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? (\S+)")


def parse_metrics(text):
    """Prometheus' text format: families announced once and kept together, no series twice, buckets that add up."""
    values, types, family, helped = {}, {}, None, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        head = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        if head and head[1] == "HELP":
            helped = head[2]
        elif head:
            family = head[2]
            assert family == helped and family not in types and head[3] in ("counter", "gauge", "histogram"), line
            types[family] = head[3]
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            name, series = sample[1], sample[1] + (sample[2] or "")
            if types[family] == "histogram":
                assert name in (f"{family}_bucket", f"{family}_sum", f"{family}_count"), line
            else:
                assert name == family, line
            assert series not in values, line
            values[series] = float(sample[3])
    for family in (f for f, kind in types.items() if kind == "histogram"):
        buckets = [(float(s[len(family) + 12:-2]), v) for s, v in values.items() if s.startswith(f'{family}_bucket{{le="')]
        assert buckets == sorted(buckets) and buckets[-1] == (float("inf"), values[f"{family}_count"]), family
        assert [v for _, v in buckets] == sorted(v for _, v in buckets) and f"{family}_sum" in values, family
    return values


def open_stream(s, **fields):
    body = json.dumps({"stream": True, **fields}).encode()
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=TIMEOUT_S)
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return sock


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
