#!/usr/bin/env python3
"""The trace is complete: under load, when a client is killed, when the server is stopped (SIGTERM) and when it crashes
(SIGSEGV, in a build that can be made to); and `limpid trace` and GET /debug/trace read all of it.

    trace.py LIMPID [--sanitizer] [--faulty LIMPID_FAULTY]
"""
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
import client  # noqa: E402
from client import Server, parse_stream  # noqa: E402
from harness import Checks, arguments, run  # noqa: E402

MODEL = str(ROOT / "models" / "mini-glm-dsa.gguf")
client.TIMEOUT_S = 600
N_CLIENTS = 16
# A small cache, small steps and drafts: pre-emption, chunks, shared prefixes.
LOAD = ["--ctx", "1024", "--kv-tokens", "1600", "--max-seqs", "8", "--chunk", "64", "--max-batch-tokens", "128",
        "--speculate", "2", "--deterministic", "--debug-prompts"]


def read_events(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    assert text.endswith("\n"), f"the last line is cut: {text[-80:]!r}"
    return [json.loads(line) for line in text.splitlines()]


def of(events, name):
    return [e for e in events if e["event"] == name]


def limpid_trace(args, *options, status=0):
    return run([args.limpid, "trace", *options], status=status)


# ---- what must hold of every whole trace ----

def order_faults(events):
    last = {}
    for e in events:
        if e["time_us"] < last.get(e["thread"], 0):
            yield f"time goes back within thread {e['thread']}: {e}"
        last[e["thread"]] = e["time_us"]


def step_faults(events, n_layers, crashed=False):
    """Every step is there once, with its schedule, a chunk of each sequence, and every layer's attention."""
    chunks, layers = collections.defaultdict(list), collections.defaultdict(list)
    steps = of(events, "step")
    for e in of(events, "chunk"):
        chunks[e["step"]].append(e)
    for e in of(events, "attention"):
        layers[e["step"], e["sequence"]] += range(e["layer"], e.get("last_layer", e["layer"]) + 1)
    numbers = [e["step"] for e in steps]
    if numbers != list(range(len(steps))):
        yield f"steps are not 0, 1, 2, ...: {numbers[:50]}"
    begun = [e["step"] for e in of(events, "schedule")]
    if begun != list(range(len(steps) + crashed)):
        yield f"{len(steps)} steps, but schedules of {begun[:50]}"
    for e in steps:
        of_step = chunks[e["step"]]
        rows = sum(c["n_prompt"] + c["n_answer"] + c["n_draft"] for c in of_step)
        if (len(of_step), rows) != (e["n_sequences"], e["n_tokens"]):
            yield f"{e} but its chunks are {of_step}"
        for c in of_step:
            own = sorted(layer for layer in layers[c["step"], c["sequence"]] if layer < n_layers)  # more: it drafted
            if own != list(range(n_layers)):
                yield f"step {c['step']}, sequence {c['sequence']}: attention of layers {own}"


def sequence_faults(events, number, prompt, ids):
    """One sequence: admitted, computed without gaps, every token, its end."""
    mine = [e for e in events if e.get("sequence") == number]
    states = [e["what"] for e in mine if e["event"] == "request"]
    n_again = states.count("pre-empted")
    expected = ["submitted", "admitted", *["pre-empted", "admitted"] * n_again, "ended"]
    if states != expected:
        yield f"its states are {states}, expected {expected}"
        return
    drafts = {e["step"]: e["n_accepted"] for e in mine if e["event"] == "draft"}
    at, prompt_rows = None, 0
    for e in mine:
        if e["event"] == "request" and e["what"] in ("admitted", "pre-empted"):
            at = e["n_computed"]
            if e["what"] == "admitted" and not n_again:
                cached = e["n_cached"]
        if e["event"] != "chunk":
            continue
        if e["n_past"] != at:
            yield f"{at} tokens were computed, but a chunk is {e}"
        if e["n_draft"] and e["step"] not in drafts:
            yield f"what became of the drafts of {e}?"
        at = e["n_past"] + e["n_prompt"] + e["n_answer"] + drafts.get(e["step"], 0)
        prompt_rows += e["n_prompt"]
    if not n_again and prompt_rows != len(prompt) - cached:
        yield f"chunks of {prompt_rows} prompt tokens, expected {len(prompt)} - {cached} cached"
    tokens = [(e["position"], e["token"]) for e in mine if e["event"] == "token"]
    if tokens != [(len(prompt) + i, id_) for i, id_ in enumerate(ids)]:
        yield f"it was given {ids}, the trace has {tokens}"
    if any(e["rank"] < 0 or e["logprob"] is None for e in mine if e["event"] == "token"):
        yield "a token has no rank or log-probability although a file takes everything"


# ---- under load ----

def load_requests(rng, rounds):
    base = [rng.randrange(300, 3000) for _ in range(400)]
    for i in range(N_CLIENTS * rounds):
        share = rng.choice((0, 60, 200, 330))
        prompt = base[:share] + [rng.randrange(300, 3000) for _ in range(rng.randrange(1, 220))]
        yield {"id": f"load-{i}", "prompt": prompt, "n": 2 if i % 7 == 3 else 1, "stream": i % 3 == 0,
               "max_tokens": rng.randrange(1, 30), "temperature": 0.8, "seed": i, "ignore_eos": i % 2 == 0}


def ask(server, fields):
    """The token ids of each choice."""
    body = {k: v for k, v in fields.items() if k != "id"} | {"return_token_ids": True}
    status, headers, raw = server.ask("POST", "/v1/completions", json.dumps(body), {"X-Request-Id": fields["id"]})
    assert status == 200 and headers["X-Request-Id"] == fields["id"], (status, raw)
    ids = collections.defaultdict(list)
    answers = parse_stream(raw)["events"] if fields["stream"] else [json.loads(raw)]
    for choice in (c for a in answers for c in a["choices"]):
        ids[choice["index"]] += choice.get("token_ids") or []
    return [ids[i] for i in range(fields["n"])]


def ask_all(server, requests):
    """Answers by id, N_CLIENTS at a time."""
    answers, todo, lock = {}, list(requests), threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                fields = todo.pop()
            answers[fields["id"]] = ask(server, fields)
    threads = [threading.Thread(target=work) for _ in range(N_CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(answers) == len(requests), "a request was lost"
    return answers


def check_load(args):
    rng = random.Random(1)
    requests = list(load_requests(rng, 1 if args.sanitizer else 4))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.jsonl"
        with Server(args.limpid, MODEL, ["--trace", path, *LOAD]) as server:
            answers = ask_all(server, requests)
            server.wait_until_idle()
            last = max(requests, key=lambda r: int(r["id"][5:]) if len(answers[r["id"]]) == 1 else -1)
            live = list(ask_trace(server, last))
            preemptions = server.metrics()["limpid_preemptions_total"]
            server.stop()
        events = read_events(path)
        yield from compare_remembered(events, last, *live)
        yield from order_faults(events)
        yield from step_faults(events, of(events, "model")[0]["n_layers"])
        for fields in requests:
            numbers = [e["sequence"] for e in of(events, "request") if e["id"] == fields["id"] and e["what"] == "submitted"]
            if len(numbers) != fields["n"]:
                yield f"{fields['id']}: {fields['n']} choices, but sequences {numbers}"
                continue
            for number, ids in zip(numbers, answers[fields["id"]]):
                for fault in sequence_faults(events, number, fields["prompt"], ids):
                    yield f"{fields['id']}, sequence {number}: {fault}"
        if sum(e["what"] == "pre-empted" for e in of(events, "request")) != preemptions:
            yield f"{preemptions} pre-emptions were counted, the trace has others"
        if preemptions == 0 or not of(events, "draft"):
            yield "the load was to pre-empt and to draft; it tests less than it says"
        yield from reader_faults(args, path, events, requests)


def ask_trace(server, fields):
    for form in ("json", "text", "chrome"):
        status, headers, raw = server.ask("GET", f"/debug/trace?request={fields['id']}&format={form}")
        assert status == 200, (status, raw)
        yield raw.decode()


def compare_remembered(events, fields, as_json, as_text, as_chrome):
    """GET /debug/trace had of a request what the file has."""
    got = [json.loads(line) for line in as_json.splitlines()]
    numbers = {e["sequence"] for e in of(events, "request") if e["id"] == fields["id"]}
    for name in ("request", "chunk", "token", "draft", "attention", "cache"):
        want = [e for e in events if e["event"] == name and e.get("sequence") in numbers]
        if [e for e in got if e["event"] == name] != want:
            yield f"{fields['id']}: /debug/trace and the file differ in {name}"
    if not as_text.startswith(f"request {fields['id']}, sequence "):
        yield f"{fields['id']}: as a text it is {as_text[:200]}"
    yield from chrome_faults(json.loads(as_chrome))


def reader_faults(args, path, events, requests):
    """limpid trace tells the same figures, of all and of each request."""
    done = limpid_trace(args, path)
    if done.stderr:
        yield f"limpid trace complains of a whole file: {done.stderr}"
    table = {line.split()[0]: line.split() for line in done.stdout.split("sequence ", 1)[1].splitlines()[1:]}
    for e in of(events, "request"):
        if e["what"] != "ended":
            continue
        row = table[str(e["sequence"])]
        n_tokens = sum(t["sequence"] == e["sequence"] for t in of(events, "token"))
        if (row[4], row[5], row[6], row[9], row[10]) != (str(e["n_prompt"]), str(e["n_cached"]), str(n_tokens), "ended", e["id"]):
            yield f"{e} but the table has {row}"
    for fields in requests[:12]:
        story = limpid_trace(args, path, "--request", fields["id"]).stdout
        if story.count(f"request {fields['id']}, sequence ") != fields["n"] or story.count("  ended: ") != fields["n"]:
            yield f"the story of {fields['id']} is {story[:2000]}"
        lines = limpid_trace(args, path, "--request", fields["id"], "--format", "json").stdout.splitlines()
        if not set(json.loads(line)["event"] for line in lines) >= {"model", "request", "chunk", "step", "attention", "token"}:
            yield f"the lines of {fields['id']} lack something"
    chrome = f"{path}.chrome"
    limpid_trace(args, path, "--format", "chrome", "--output", chrome)
    yield from chrome_faults(json.load(open(chrome)), events)


# ---- Chrome's format ----

def chrome_faults(root, events=None):
    """What the format asks of events, and that none is lost."""
    if set(root) != {"traceEvents", "displayTimeUnit"} or root["displayTimeUnit"] not in ("ms", "ns"):
        yield f"fields of the root are {set(root)}"
    names, lives = set(), {}
    for e in root["traceEvents"]:
        common = isinstance(e.get("name"), str) and isinstance(e.get("pid"), int) and isinstance(e.get("tid"), int)
        if not common or not isinstance(e.get("ts"), int) or e["ts"] < 0 or not isinstance(e.get("args"), dict):
            yield f"a field is missing or of another kind: {e}"
        elif e["ph"] == "M":
            names.add((e["pid"], e["tid"]))
            if e["name"] not in ("process_name", "thread_name") or not isinstance(e["args"]["name"], str):
                yield f"metadata is {e}"
        elif e["ph"] == "X":
            if not isinstance(e.get("dur"), int) or e["dur"] < 0:
                yield f"no duration: {e}"
            if e["name"] == "request":
                lives[e["tid"]] = (e["ts"], e["ts"] + e["dur"])
        elif e["ph"] == "i":
            if e.get("s") not in ("g", "p", "t"):
                yield f"no scope: {e}"
        elif e["ph"] != "C" or not all(isinstance(v, (int, float)) for v in e["args"].values()):
            yield f"a phase that is not expected: {e}"
    tracks = {(e["pid"], e["tid"]) for e in root["traceEvents"] if e["ph"] in "Xi"}
    if tracks - names:
        yield f"tracks without a name: {tracks - names}"
    for e in root["traceEvents"]:
        if e["pid"] == 2 and e["ph"] in "Xi" and not lives[e["tid"]][0] <= e["ts"] <= lives[e["tid"]][1]:
            yield f"outside its sequence's life {lives[e['tid']]}: {e}"
    if events is not None:
        counts = collections.Counter(e["args"].get("event") for e in root["traceEvents"] if "event" in e["args"])
        want = collections.Counter(e["event"] for e in events if e["event"] != "schedule")
        if counts != want:
            yield f"it has {counts} of {want}"


# ---- who ends in the middle ----

CLIENT = """
import http.client, json, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
c.request("POST", "/v1/completions", json.dumps({"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True,
          "stream": True, "temperature": 1.0, "seed": 1}), {"X-Request-Id": sys.argv[2]})
answer = c.getresponse()
while True:
    print(answer.readline(), flush=True)
"""


def start_client(server, request_id):
    """A process that reads a stream; some of it has come."""
    process = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.port), request_id], stdout=subprocess.PIPE)
    for _ in range(5):
        assert process.stdout.readline(), "the client got no stream"
    return process


def check_a_killed_client(args):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.jsonl"
        with Server(args.limpid, MODEL, ["--trace", path, "--ctx", "1024"]) as server:
            process = start_client(server, "killed")
            process.kill()
            process.wait()
            server.wait_until_idle(60)
            text = server.ask("GET", "/debug/trace?request=killed")[2].decode()
            lines = server.ask("GET", "/debug/trace?format=json")[2].decode()
            server.stop()
        events = read_events(path)
        states = [e["what"] for e in of(events, "request") if e["id"] == "killed"]
        if states != ["submitted", "admitted", "cancelled"]:
            yield f"its states are {states}"
        if "  cancelled: " not in text or "cancelled" not in limpid_trace(args, path).stdout:
            yield f"the text does not say so: {text}"
        shown = of([json.loads(line) for line in lines.splitlines()], "token")
        if not shown or any("token" in e for e in shown):  # only --debug-prompts shows what was answered
            yield f"tokens of answers are shown: {shown[:3]}"
        if not of(events, "token") or len(of(events, "token")) >= 900:
            yield f"{len(of(events, 'token'))} tokens"
        yield from step_faults(events, of(events, "model")[0]["n_layers"])


def check_sigterm(args):
    """Running requests are cut off; the file is whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.jsonl"
        with Server(args.limpid, MODEL, ["--trace", path, "--ctx", "1024", "--drain-timeout", "0"]) as server:
            clients = [start_client(server, f"stopped-{i}") for i in range(3)]
            server.stop()
            for process in clients:
                process.kill()
                process.wait()
        events = read_events(path)
        for i in range(3):
            states = [e["what"] for e in of(events, "request") if e["id"] == f"stopped-{i}"]
            if len(states) != 3 or states[:2] != ["submitted", "admitted"] or states[2] not in ("cancelled", "failed", "ended"):
                yield f"states of stopped-{i} are {states}"
        yield from order_faults(events)
        yield from step_faults(events, of(events, "model")[0]["n_layers"])
        done = limpid_trace(args, path)
        if done.stderr or "crash" in done.stdout:
            yield f"limpid trace says {done.stderr} {done.stdout[:500]}"


# ---- a crash ----

def crashed_server(args, options, folder):
    """A server that crashes in its first step; (its process id, standard error)."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([args.faulty, "--fault", "crash-in-step", "serve", MODEL, "--port", "0", *options], cwd=folder,
                                   text=True, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "LIMPID_API_KEY": ""})
        line = process.stdout.readline()
        try:
            port = int(line.rsplit(":", 1)[1])
            # The answer never comes, whatever it is.
            subprocess.run([sys.executable, "-c", CLIENT, str(port), "crashing"], capture_output=True, timeout=60)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        return process, errors.read()


def check_a_crash(args, with_file):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.jsonl"
        process, errors = crashed_server(args, ["--ctx", "1024", *(["--trace", path] if with_file else [])], folder)
        if process.returncode != -signal.SIGSEGV:
            yield f"exit status {process.returncode}, expected the signal: {errors[-500:]}"
        if not with_file:
            path = f"{folder}/limpid-crash-{process.pid}.jsonl"
        if "SIGSEGV" not in errors or "limpid trace" not in errors or os.path.basename(path) not in errors:
            yield f"standard error does not say where the dump is: {errors[-500:]}"
        events = read_events(path)
        if events[-1]["event"] != "crash" or events[-1]["signal"] != "SIGSEGV":
            yield f"the last line is {events[-1]}"
        yield from order_faults(events)
        states = [e["what"] for e in of(events, "request") if e["id"] == "crashing"]
        if states != ["submitted", "admitted"] or len(of(events, "chunk")) != 1 or len(of(events, "step")) > 1:
            yield f"states {states}, {len(of(events, 'chunk'))} chunks, {len(of(events, 'step'))} steps"
        done = limpid_trace(args, path)
        where = "behind step 0" if of(events, "step") else "in step 0"
        if done.stderr or f"crash      SIGSEGV {where}" not in done.stdout:
            yield f"limpid trace says {done.stderr} {done.stdout}"
        story = limpid_trace(args, path, "--request", "crashing").stdout
        if "the program crashed before its end" not in story or (not of(events, "step") and "did not end" not in story):
            yield f"the story is {story}"
        yield from chrome_faults(json.loads(limpid_trace(args, path, "--format", "chrome").stdout), events)


# ---- the command ----

def check_the_command(args):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.jsonl"
        run([args.limpid, "run", MODEL, "-p", "1, 2, 3,", "-n", "6", "--trace", path])
        whole = pathlib.Path(path).read_bytes()
        lines = whole.splitlines(keepends=True)
        cut = f"{folder}/cut.jsonl"
        pathlib.Path(cut).write_bytes(lines[0] + b"what is this?\n" + b"".join(lines[1:])[:-20])
        done = limpid_trace(args, cut)
        if "1 line is no event and skipped" not in done.stderr or "the last line ends in its middle" not in done.stderr:
            yield f"of a damaged file: {done.stderr}"
        if limpid_trace(args, path, "--format", "json").stdout.encode() != whole:
            yield "all lines as JSON are not the file"
        piped = subprocess.run([args.limpid, "trace", "-"], input=whole, capture_output=True)
        if piped.stdout.decode() != limpid_trace(args, path).stdout:
            yield "standard input reads otherwise"
        missing = limpid_trace(args, path, "--request", "nobody", status=1).stderr
        if "has no request 'nobody'" not in missing:
            yield f"of a request that is not there: {missing}"
        pathlib.Path(f"{folder}/empty").write_bytes(b"")
        for bad, word in ((f"{folder}/none", "cannot open"), (f"{folder}/empty", "holds no event"), (MODEL, "holds no event"),
                          (folder, "not a regular file")):
            error = limpid_trace(args, bad, status=1).stderr
            if word not in error or bad not in error:
                yield f"of {bad}: {error}"
        if "is what is read" not in limpid_trace(args, path, "--output", path, status=1).stderr or \
                pathlib.Path(path).read_bytes() != whole:
            yield "the file that is read was written to"
        limpid_trace(args, path, "--format", "xml", status=2)
        limpid_trace(args, status=2)


def write_rank(path, rank, n_ranks, host="a", more=""):
    """Two steps of a rank, by hand; n_ranks None: as traces of before, which do not tell."""
    told = {"event": "process", "time_us": 1, "thread": 1, "rank": rank, "n_ranks": n_ranks, "pid": 9, "monotonic_us": 1000, "wall_us": 5,
            "host": host}
    steps = [{"event": "step", "time_us": 1000 * (i + 1), "thread": 1, "step": i, "n_tokens": 1, "n_sequences": 1, "duration_us": 900 - rank}
             for i in range(2)]
    lines = ([] if n_ranks is None else [told]) + steps
    pathlib.Path(path).write_text("".join(json.dumps(e) + "\n" for e in lines) + more)


def check_files_of_ranks(args):
    with tempfile.TemporaryDirectory() as folder:
        first, second, third = f"{folder}/t", f"{folder}/t.rank1", f"{folder}/t.rank2"
        def expect(paths, *words, without=()):
            done = limpid_trace(args, *paths)
            for word in words:
                if word not in done.stdout:
                    yield f"{paths}: no {word!r} in {done.stdout}"
            for word in without:
                if word in done.stdout:
                    yield f"{paths}: {word!r} in {done.stdout}"
        write_rank(first, 0, 2)
        write_rank(second, 1, 2)
        write_rank(third, 2, 3)
        yield from expect([first], "traces of 2 of 2", "a, the same host's clock", without=["doubtful", "missing"])
        yield from expect([second], "process    rank 1 on a, of 2 ranks", without=["traces of"])
        yield from expect([second, first], "traces of 2 of 2", "process    rank 0 on a")
        yield from expect([first, "--rank", "1"], "process    rank 1 on a", without=["traces of"])
        write_rank(second, 1, 3)  # of another run
        yield from expect([first], "traces of 1 of 2", f"missing    rank 1: {second} is of another run")
        pathlib.Path(second).write_text("")
        yield from expect([first], f"missing    rank 1: {second} holds no event")
        os.remove(second)
        yield from expect([first], "missing    rank 1: cannot open")
        write_rank(first, 0, 1)
        yield from expect([first], "steps      2", without=["ranks"])
        for rank, path in enumerate((first, second, third)):
            write_rank(path, rank, None)
        yield from expect([first], "traces of 3 of 3", "host not told")
        yield from expect([third, first], "traces of 2 of 2", "own + exchanges, ms, of rank 0, 2\n")
        for options, status, word in (([first, "--rank", "3"], 1, "has no rank 3"), ([first, first], 1, "both of rank 0"),
                                      ([first, "--output", third], 1, "is what is read"), ([first, "--steps", "--request", "1"], 2, "--steps")):
            error = limpid_trace(args, *options, status=status).stderr
            if word not in error:
                yield f"{options}: {error}"


def main():
    args = arguments(__doc__, [("--faulty", {"help": "a build whose faults can be planted"})])
    checks = Checks(args)
    checks.add("load", lambda: check_load(args))
    checks.add("a killed client", lambda: check_a_killed_client(args))
    checks.add("SIGTERM", lambda: check_sigterm(args))
    checks.add("the command", lambda: check_the_command(args))
    checks.add("files of ranks", lambda: check_files_of_ranks(args))
    note = ""
    if args.faulty and os.path.exists(args.faulty):
        checks.add("a crash without a file", lambda: check_a_crash(args, False))
        checks.add("a crash with a file", lambda: check_a_crash(args, True))
    else:
        note = "; crashes were not tried: no --faulty build"
    checks.finish(note)


if __name__ == "__main__":
    main()
