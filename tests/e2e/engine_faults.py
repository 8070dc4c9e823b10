#!/usr/bin/env python3
"""What clients and operators see of an engine that goes wrong while it serves: a step that never ends, and numbers that
become NaN.

    engine_faults.py LIMPID --faulty LIMPID_FAULTY [--sanitizer]
"""
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
import client  # noqa: E402
from client import Server, open_stream, parse_stream  # noqa: E402
from harness import MINI_MODEL, Checks, arguments, run, skip  # noqa: E402

client.TIMEOUT_S = 60
STALL_S = 2.0
LAST_STEP_S = 10  # docs/operations.md: what a stop takes at most behind --drain-timeout
SLACK_S = 3.0     # for a machine with other work
OPTIONS = ["--ctx", "1024", "--max-seqs", "2", "--self-check", "off", "--stall-timeout", str(STALL_S), "--drain-timeout", "1",
           "--log", "info"]
ENDLESS = {"prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 200, "ignore_eos": True}


def ask(server, path="/v1/completions", **fields):
    """(status, headers, parsed body, seconds)"""
    began = time.monotonic()
    status, headers, raw = server.ask("POST", path, json.dumps(fields))
    return status, headers, json.loads(raw), time.monotonic() - began


# ---- a step that never ends ----

def look(server, path):
    """The quickest of three, so that other work on the machine does not count: (status, body, seconds)."""
    best = None
    for _ in range(3):
        began = time.monotonic()
        status, _, raw = server.ask("GET", path)
        took = time.monotonic() - began
        if best is None or took < best[2]:
            best = status, raw, took
        if took < 0.1:
            break
    return best


def watch_health(server, began):
    """Until it is red: faults; it never waits for the engine, and is red neither early nor late."""
    while True:
        after = time.monotonic() - began
        for path in ("/metrics", "/engine", "/health/ready", "/health/live", "/health"):
            status, raw, took = look(server, path)
            if took > 0.1:
                yield f"{path} took {took:.3f} s while a step hung"
        if status == 503:
            break
        if after > STALL_S + SLACK_S:
            yield f"health is {raw} {after:.1f} s after the step began"
            return
        time.sleep(0.05)
    if after < STALL_S - 0.2:
        yield f"health is red after {after:.2f} s already"
    for path in ("/health", "/health/ready", "/health/live"):
        status, raw, took = look(server, path)
        body = json.loads(raw)
        if status != 503 or body["status"] != "stalled" or body["last_step_age_s"] < STALL_S or took > 0.1:
            yield f"{path}: {status} {body} in {took:.3f} s"
    metrics = server.metrics()
    if metrics["limpid_healthy"] != 0 or metrics["limpid_last_step_age_seconds"] < STALL_S:
        yield f"metrics say {metrics['limpid_healthy']} {metrics['limpid_last_step_age_seconds']}"


def stalled_faults(what, answer):
    status, headers, body, took = answer
    if status != 503 or body["error"]["code"] != "engine_stalled" or "Retry-After" not in headers:
        yield f"{what} got {status} {body}"
    if took > STALL_S + SLACK_S:
        yield f"{what} waited {took:.1f} s"


def dump_faults(args, server, folder):
    """The dump was written once, for its owner, and tells of the step that hangs."""
    path = f"{folder}/limpid-stall-{server.process.pid}.jsonl"
    end = time.monotonic() + 10
    while "limpid trace" not in server.stderr() and time.monotonic() < end:
        time.sleep(0.05)
    errors = server.stderr()
    if glob.glob(f"{folder}/limpid-stall-*") != [path] or errors.count(path) != 1 or errors.count("health says 'stalled'") != 1:
        yield f"files {os.listdir(folder)}; {errors[-900:]}"
        return
    if stat.S_IMODE(os.stat(path).st_mode) != 0o600:
        yield "others may read the dump"
    events = [json.loads(line) for line in open(path, encoding="utf-8")]
    begun = [e["step"] for e in events if e["event"] == "schedule"]
    ended = [e["step"] for e in events if e["event"] == "step"]
    if begun != [0, 1, 2, 3] or ended != [0, 1, 2]:
        yield f"steps {begun} began, {ended} ended"
    told = run([args.limpid, "trace", path]).stdout
    if not re.search("steps +3 that took", told) or "step 3 had begun, and its end is not here" not in told:
        yield f"limpid trace says {told}"


def end_faults(server):
    """SIGTERM ends it in the time that the documents give."""
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    errors = server.ended(60)
    took = time.monotonic() - began
    if took > 1 + LAST_STEP_S + SLACK_S or server.process.returncode != 1 or "has not ended" not in errors:
        yield f"status {server.process.returncode} after {took:.1f} s: {errors[-500:]}"


def check_clients_of_a_hung_engine(args):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(8) as pool, \
            Server([args.faulty, "--fault", "hang-in-step"], MINI_MODEL, OPTIONS, cwd=folder) as server:
        if ask(server, **{**ENDLESS, "max_tokens": 2})[0] != 200 or look(server, "/health")[0] != 200:
            yield "the first two steps work"
        began = time.monotonic()
        stream = pool.submit(server.ask, "POST", "/v1/completions", json.dumps({**ENDLESS, "stream": True}))
        server.wait_for(lambda m: m["limpid_time_to_first_token_seconds_count"] == 2)  # it streams, in the step that hangs
        whole = [pool.submit(ask, server, **ENDLESS) for _ in range(3)]  # of which some wait in the queue
        chat = pool.submit(ask, server, "/v1/messages", model=server.model, max_tokens=50, messages=[{"role": "user", "content": "hi"}])
        yield from watch_health(server, began)
        for answer in whole:
            yield from stalled_faults("a request", answer.result())
        status, _, body, took = chat.result()
        if status != 503 or body["type"] != "error" or took > STALL_S + SLACK_S:
            yield f"/v1/messages got {status} {body} in {took:.1f} s"
        events = parse_stream(stream.result()[2])
        if events["done"] or events["events"][-1].get("error", {}).get("code") != "engine_stalled":
            yield f"the stream ends with {events['events'][-1:]}"
        yield from stalled_faults("who comes later", ask(server, **ENDLESS))
        yield from dump_faults(args, server, folder)
        yield from end_faults(server)


def check_a_hung_engine_without_clients(args):
    """Who asked has left; health alone is asked, and the trace goes to a file."""
    with tempfile.TemporaryDirectory() as folder, \
            Server([args.faulty, "--fault", "hang-in-step"], MINI_MODEL, [*OPTIONS, "--trace", f"{folder}/trace.jsonl"],
                   cwd=folder) as server:
        ask(server, **{**ENDLESS, "max_tokens": 2})
        began = time.monotonic()
        sock = open_stream(server, **ENDLESS)
        sock.recv(100)
        sock.close()
        yield from watch_health(server, began)
        yield from dump_faults(args, server, folder)
        yield from end_faults(server)
        events = [json.loads(line) for line in open(f"{folder}/trace.jsonl", encoding="utf-8")]
        if [e["step"] for e in events if e["event"] == "schedule"] != [0, 1, 2, 3]:
            yield "the trace file lacks a step"


# ---- NaN ----

BAD_LAYER, BAD_POSITION = 2, 200  # of the fault "nan-in-layer"


def nan_faults(server, what, request_id, status, error):
    """The message names the step that the trace says it was, the position, and the layer."""
    if status not in (200, 500) or error.get("type") != "server_error":
        yield f"{what}: {status} {error}"
    found = re.search(rf"in step (\d+) at position {BAD_POSITION}, first in the output of layer {BAD_LAYER};", error.get("message", ""))
    if not found:
        yield f"{what}: {error}"
        return
    lines = server.ask("GET", f"/debug/trace?request={request_id}&format=json")[2].decode().splitlines()
    chunks = [e for e in map(json.loads, lines) if e["event"] == "chunk" and e["id"] == request_id]
    step = [e["step"] for e in chunks if e["n_past"] <= BAD_POSITION < e["n_past"] + e["n_prompt"] + e["n_answer"]]
    if step != [int(found[1])]:
        yield f"{what}: it says step {found[1]}, the trace {step}"


def check_bad_numbers(args):
    options = ["--ctx", "1024", "--self-check", "off", "--deterministic", "--chunk", "128", "--drain-timeout", "5"]
    other = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 150, "ignore_eos": True}
    long = {"prompt": [300 + i % 2000 for i in range(300)], "temperature": 0, "max_tokens": 20}  # bad in its prompt
    grows = {"prompt": [900 + i for i in range(190)], "temperature": 0, "max_tokens": 40, "ignore_eos": True}  # in its answer
    with Server([args.faulty, "--fault", "nan-in-layer"], MINI_MODEL, options) as server, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        alone = server.text(**other)

        def submit(name, fields):
            status, _, raw = server.ask("POST", "/v1/completions", json.dumps(fields), {"X-Request-Id": name})
            return name, status, raw
        for again in range(2):  # and nothing is left of it in the prefix cache
            bystander = pool.submit(server.text, **other)
            jobs = [pool.submit(submit, f"{kind}-{again}", fields) for kind, fields in
                    (("whole", long), ("stream", {**grows, "stream": True}))]
            for job in jobs:
                name, status, raw = job.result()
                if name.startswith("whole"):
                    yield from nan_faults(server, name, name, status, json.loads(raw)["error"])
                    if status != 500:
                        yield f"{name}: status {status}"
                    continue
                answer = parse_stream(raw)
                if status != 200 or answer["done"] or len(answer["events"]) < 5 or "error" not in answer["events"][-1]:
                    yield f"{name}: {status} {answer['events'][-1:]}, {len(answer['events'])} events"
                    continue
                yield from nan_faults(server, name, name, status, answer["events"][-1]["error"])
            if bystander.result() != alone:
                yield "a bystander has another answer than alone"
        status, _, body, _ = ask(server, "/v1/messages", model=server.model, max_tokens=50,
                                 messages=[{"role": "user", "content": "again " * 300}])
        if status != 500 or body["type"] != "error" or body["error"]["type"] != "api_error" or "in step " not in body["error"]["message"]:
            yield f"/v1/messages: {status} {body}"
        for path in ("/health", "/health/live"):
            if server.ask("GET", path)[0] != 200:
                yield f"{path} is red"
        if server.text(**other) != alone:
            yield "afterwards the answer is another"
        failed = server.wait_until_idle(10)["limpid_failed_total"]
        if failed != 5:
            yield f"{failed} failures are counted, expected 5"
        server.stop()


def main():
    args = arguments(__doc__, [("--faulty", {"help": "a build whose faults can be planted"})])
    if not args.faulty or not os.path.exists(args.faulty):
        skip("no faults can be planted: no --faulty build")
    checks = Checks(args)
    checks.add("clients of a hung engine", lambda: check_clients_of_a_hung_engine(args))
    checks.add("a hung engine without clients", lambda: check_a_hung_engine_without_clients(args))
    checks.add("bad numbers", lambda: check_bad_numbers(args))
    checks.finish()


if __name__ == "__main__":
    main()
