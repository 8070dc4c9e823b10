#!/usr/bin/env python3
"""Every speed that limpid is held to, measured and judged: one table, a line for each bound, PASS or FAIL.

    table.sh --mid MODEL --mid-ds MODEL [--big MODEL] [--ik DIR] [--llama DIR] [--parts NAME,..] [--out DIR]

The models are what `limpid synth` writes (bench/README.md). What a part measured is kept in DIR, and is not measured again
by the next call: `--again NAME,..` does. So the table can be made in pieces; run nothing else meanwhile. Without peers only
the bounds that need none are judged.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import compare  # noqa: E402
from compare import Key, Row, Work  # noqa: E402

# The better peer times this, or the fraction of the read-bandwidth limit, whichever comes first.
DECODE = {0: (1.2, 0.90), 4096: (1.3, 0.80), 16384: (1.5, 0.80), 32768: (2.0, 0.80)}
PREFILL = {0: 1.4, 4096: 1.5, 16384: 3.0, 32768: 4.0}
DENSE = 2.0            # prefill and decode of mid-ds at 16k and 32k
MATRIX_FRACTION = 0.55  # of the peak of 8-bit products, prefill at depth 0
BATCH_OWN, BATCH_PEER = 2.5, 1.3
START_S = 1.5
MEMORY_BYTES = 300e6    # beside mapped file and KV cache, at a context of 32k
TRACE = 0.01
PROMPT_16 = "1 2 3 4 5 6 7 8 "  # 16 tokens of the synthetic files' vocabulary


# ---- measuring: a part returns what is kept in its file

def side_by_side(args, model, work, rounds, dsa=False, llama_deepest=1 << 30):
    if model is None:
        raise SystemExit("this part needs --mid and --mid-ds")
    a = argparse.Namespace(**{**vars(args), "model": model, "rounds": rounds, "dsa": dsa,
                              "llama_deepest": llama_deepest})
    rows, own = compare.compare(a, work, compare.find_peers(a) if args.ik or args.llama else [])
    compare.print_table(rows)
    return {"rows": [list(r) for r in rows], "own": own}


def depth0(args):
    work = Work([512, 2048], [32], [0], [1], 1)
    return {name: side_by_side(args, model, work, args.rounds) for name, model in
            (("mid", args.mid), ("mid-ds", args.mid_ds))}


def deep(which, depths, llama_deepest):
    def part(args):
        model, dsa = (args.mid, True) if which == "mid" else (args.mid_ds, False)
        work = Work([512], [16], depths, [1], 3)
        return {which: side_by_side(args, model, work, 1, dsa, llama_deepest)}
    return part


def batch(args):
    return {"mid": side_by_side(args, args.mid, Work([], [32], [0], [1, 8], 1), args.rounds)}


def first_byte_s(command):
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.read(1)
        seconds = time.monotonic() - start
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return seconds


def start(args):
    if not args.big:
        raise SystemExit("the part start needs --big")
    ids = json.loads(subprocess.run([args.limpid, "tokenize", args.big, PROMPT_16], capture_output=True, text=True,
                                    check=True).stdout)
    with open(args.big, "rb", buffering=0) as f:  # the page cache is warm
        while f.read(1 << 24):
            pass
    command = [args.limpid, "run", args.big, "-p", PROMPT_16, "-n", "1", "--ignore-eos", "--threads", str(args.threads)]
    times = [first_byte_s(command) for _ in range(5)]
    return {"n_tokens": len(ids), "seconds": times, "bytes": os.path.getsize(args.big)}


def trace(args):
    program = pathlib.Path(args.limpid).parent / "bench_trace"
    if not program.is_file():
        raise SystemExit(f"the part trace needs {program}: build the target bench_trace")
    out = subprocess.run([str(program), args.mid, "20", "64", str(args.threads)], capture_output=True, text=True,
                         check=True).stdout
    print(out)
    costs = {m[1].strip(): float(m[2]) / 100 for m in re.finditer(r"^(rings(?: and file)?) .*costs ([-+][\d.]+) %", out,
                                                                  re.M)}
    return {"costs": costs, "metrics": metrics(args)}


def answer_s(port, n_tokens):
    """Seconds from the first token of a greedy answer to its end."""
    body = {"prompt": [17 + 3 * i for i in range(16)], "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        answer.readline()
        began = time.monotonic()
        answer.read()
        return time.monotonic() - began


def wait_for(port, process):
    for _ in range(3000):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    raise SystemExit("limpid serve did not start")


def metrics(args):
    """What reading /metrics every second costs a greedy answer: with it and without in turns."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    stop, ratios = threading.Event(), []

    def watch():
        while not stop.wait(1):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read()

    with subprocess.Popen([args.limpid, "serve", args.mid, "--port", str(port), "--ctx", "4096", "--self-check", "off", "--threads",
                           str(args.threads)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            answer_s(port, 16)
            for _ in range(8):
                alone = answer_s(port, 192)
                stop.clear()
                watcher = threading.Thread(target=watch)
                watcher.start()
                ratios.append(answer_s(port, 192) / alone - 1)
                stop.set()
                watcher.join()
        finally:
            process.terminate()
    return statistics.median(ratios)


PARTS = {  # name: (what measures it, minutes with ik_llama.cpp and llama.cpp, minutes without peers)
    "depth0": (depth0, 7, 1),
    "batch": (batch, 4, 1),
    "start": (start, 1, 1),
    "trace": (trace, 3, 3),
    "depth": (deep("mid", [4096, 16384], 4096), 14, 3),
    "dense": (deep("mid-ds", [16384], 0), 7, 3),
    "depth32k": (deep("mid", [32768], 0), 40, 6),
    "dense32k": (deep("mid-ds", [32768], 0), 20, 8),
}


# ---- judging

class Verdicts:
    def __init__(self):
        self.lines, self.failed = [], 0

    def add(self, work, got, ok, note=""):
        self.failed += ok is False
        self.lines.append((work, got, {True: "PASS", False: "FAIL", None: "-"}[ok], note))

    def print(self):
        width = max(len(line[0]) for line in self.lines)
        print()
        for work, got, ok, note in self.lines:
            print(f"{work:{width}}  {ok:4}  {got}{'; ' + note if note else ''}")


def own_row(part, key):
    """limpid's own row of a test, its fractions the medians of all rounds; None: not there."""
    rows = [r for r in part["own"] if Key(r["test"], r["tokens"], r["depth"], r["batch"]) == key]
    return {**rows[-1], **{name: statistics.median(r[name] for r in rows) for name in
                           ("limit_fraction", "matrix_fraction")}} if rows else None


def against_peer(v, model, part, key, factor, fraction=None):
    """ok: factor times the better peer is reached, or the fraction of the limit."""
    rates = compare.medians([Row(*r) for r in part["rows"]]).get(key, {})
    peer, mine, own = compare.better_peer(rates), rates.get("limpid"), own_row(part, key)
    name = f"{key.test} {key.tokens}, depth {key.depth}, {model}"
    if mine is None:
        return
    got, ok = f"{mine:.2f} tok/s", None
    if peer:
        got += f", {mine / peer[1]:.2f} of {peer[0]} ({peer[1]:.2f}), wanted {factor}"
        ok = mine >= factor * peer[1]
    if fraction and own:
        got += f"; {100 * own['limit_fraction']:.0f} % of the bandwidth limit, wanted {100 * fraction:.0f}"
        if ok is None:
            ok = True if own["limit_fraction"] >= fraction else None
        else:
            ok = ok or own["limit_fraction"] >= fraction
    v.add(name, got, ok, "" if peer else "no peer")


def judge_depth0(v, kept):
    for model, part in kept.items():
        against_peer(v, model, part, Key("decode", 32, 0, 1), *DECODE[0])
        for n in (512, 2048):
            key = Key("prefill", n, 0, 1)
            against_peer(v, model, part, key, PREFILL[0])
            own = own_row(part, key)
            v.add(f"prefill {n}, matrix products, {model}",
                  f"{100 * own['matrix_fraction']:.1f} % of the integer peak, wanted {100 * MATRIX_FRACTION:.0f}",
                  own["matrix_fraction"] >= MATRIX_FRACTION)


def judge_memory(v, part):
    """At a context of 32k the cache is full, and the step's buffers are those of that context."""
    r = part["own"][0]
    rest = r["anonymous_bytes"] - r["kv_bytes"] - r.get("repacked_bytes", 0)
    v.add("memory above the mapped file, context 32k",
          f"KV {r['kv_bytes'] / 1e6:.0f} MB + {rest / 1e6:.0f} MB, wanted KV + {MEMORY_BYTES / 1e6:.0f} MB",
          rest <= MEMORY_BYTES)


def judge_deep(v, kept, dense):
    for model, part in kept.items():
        for depth in sorted({r["depth"] for r in part["own"]}):
            prefill, decode = Key("prefill", 512, depth, 1), Key("decode", 16, depth, 1)
            if dense:
                against_peer(v, model, part, prefill, DENSE)
                against_peer(v, model, part, decode, DENSE)
                continue
            against_peer(v, model, part, prefill, PREFILL[depth])
            against_peer(v, model, part, decode, *DECODE[depth])
            if depth == 32768:
                judge_memory(v, part)


def judge_batch(v, kept):
    part = kept["mid"]
    rates = compare.medians([Row(*r) for r in part["rows"]])
    one, eight = rates[Key("decode", 32, 0, 1)]["limpid"], rates[Key("decode", 32, 0, 8)]["limpid"]
    v.add("decode of 8 sequences, against one", f"{eight:.2f} tok/s, {eight / one:.2f} of {one:.2f}, wanted {BATCH_OWN}",
          eight >= BATCH_OWN * one)
    against_peer(v, "mid, batch of 8", part, Key("decode", 32, 0, 8), BATCH_PEER)


def judge_start(v, kept):
    seconds = statistics.median(kept["seconds"])
    v.add(f"first token, warm file of {kept['bytes'] / 1e9:.1f} GB, {kept['n_tokens']} tokens",
          f"{seconds:.2f} s, wanted {START_S}", seconds <= START_S)


def judge_trace(v, kept):
    for name, cost in [*kept["costs"].items(), ("/metrics each second", kept["metrics"])]:
        v.add(f"trace and metrics: {name}", f"{100 * cost:+.2f} %, wanted under {100 * TRACE:.0f}", cost < TRACE)


JUDGES = {"depth0": judge_depth0, "batch": judge_batch, "start": judge_start, "trace": judge_trace,
          "depth": lambda v, k: judge_deep(v, k, False), "dense": lambda v, k: judge_deep(v, k, True),
          "depth32k": lambda v, k: judge_deep(v, k, False), "dense32k": lambda v, k: judge_deep(v, k, True)}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
        epilog="parts, with minutes with peers and without: " +
        ", ".join(f"{n} ({w}, {o})" for n, (_, w, o) in PARTS.items()))
    p.add_argument("--mid", metavar="MODEL", help="glm-dsa, preset mid")
    p.add_argument("--mid-ds", metavar="MODEL", help="deepseek2, preset mid")
    p.add_argument("--big", metavar="MODEL", help="a file of 12 GB")
    p.add_argument("--parts", default=",".join(PARTS), metavar="NAME,..", help="default: all")
    p.add_argument("--again", default="", metavar="NAME,..", help="measure these anew")
    p.add_argument("--out", default=os.path.join(tempfile.gettempdir(), "limpid-table"), metavar="DIR")
    p.add_argument("--rounds", type=int, default=3, help="turns of the short parts (default 3)")
    compare.add_engines(p)
    args = p.parse_args()
    out, again = pathlib.Path(args.out), set(filter(None, args.again.split(",")))
    names = [n for n in args.parts.split(",") if n]
    for name in [*names, *again]:
        if name not in PARTS:
            raise SystemExit(f"there is no part '{name}'; parts are {', '.join(PARTS)}")
    out.mkdir(parents=True, exist_ok=True)
    verdicts = Verdicts()
    for name in names:
        path = out / f"{name}.json"
        if name in again or not path.exists():
            began = time.monotonic()
            print(f"---- {name}, about {PARTS[name][1 if args.ik or args.llama else 2]} minutes", flush=True)
            kept = PARTS[name][0](args)
            path.write_text(json.dumps(kept))
            for model, part in kept.items():
                if isinstance(part, dict) and "rows" in part:
                    compare.write_csv(out / f"{name}-{model}.csv", [Row(*r) for r in part["rows"]])
            print(f"---- {name}: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
        JUDGES[name](verdicts, json.loads(path.read_text()))
    verdicts.print()
    return 1 if verdicts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
