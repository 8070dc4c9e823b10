#!/usr/bin/env python3
"""What the ranks of a model give one another in a step: bytes, counted by each rank (the trace's `bytes_sent`), not timed.

    exchange.py LIMPID MODEL [--ranks 2 4] [--tokens 64] [--sequences 8] [--csv FILE]

For each division a server takes so many prompts at a time; counted are the steps of prompts and of answers apart, per token
and layer, in rows of the stream (embedding length x 4 bytes). Rates are of the server's own statistics, for a quiet machine.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

DIVISIONS = {"heads": ["--attention-parallel", "heads"],
             "data, split": ["--attention-parallel", "data", "--shard-experts", "split"],
             "data, whole": ["--attention-parallel", "data", "--shard-experts", "whole"]}


def ask(url, i, args):
    body = json.dumps({"prompt": [100 + (i * 31 + k * 7) % 900 for k in range(args.tokens)], "max_tokens": args.answer, "ignore_eos": True})
    request = urllib.request.Request(f"{url}/v1/completions", body.encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=600))


def steps(path, n):
    """(tokens, sequences, bytes of all ranks, seconds) of each step."""
    of = []
    for rank in range(n):
        with open(path + (f".rank{rank}" if rank else "")) as f:
            of.append({e["step"]: e for e in map(json.loads, f) if e["event"] == "step"})
    for number, e in of[0].items():
        yield e["n_tokens"], e["n_sequences"], sum(r[number]["bytes_sent"] for r in of), e["duration_us"] / 1e6


def measure(args, n, division):
    with tempfile.TemporaryDirectory(prefix="limpid-exchange-") as folder:
        path = os.path.join(folder, "t.jsonl")
        options = ["--threads", "1", "--self-check", "off", "--ctx", "1024", "--kv-tokens", str(1024 * n), "--repack", "off", "--port", "0",
                   "--max-seqs", str(args.sequences), "--speculate", "0", "--trace", path, "--ranks", str(n)]
        server = subprocess.Popen([args.limpid, "serve", args.model, *options, *DIVISIONS[division]], stderr=subprocess.PIPE, text=True)
        try:
            url = next(word for line in server.stderr for word in line.split() if word.startswith("http://")).rstrip("/.")
            with concurrent.futures.ThreadPoolExecutor(args.sequences) as pool:
                list(pool.map(lambda i: ask(url, i, args), range(args.sequences)))
        finally:
            server.terminate()
            server.wait(60)
        for kind in ("prompts", "answers"):
            mine = [s for s in steps(path, n) if (s[0] > s[1]) == (kind == "prompts") and (kind == "prompts" or s[1] == args.sequences)]
            tokens, sent, seconds = (sum(s[i] for s in mine) for i in (0, 2, 3))
            yield kind, tokens, sent, tokens / seconds if seconds else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("model")
    p.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    p.add_argument("--tokens", type=int, default=64, help="of each prompt")
    p.add_argument("--answer", type=int, default=32, help="tokens of each answer")
    p.add_argument("--sequences", type=int, default=8)
    p.add_argument("--csv")
    args = p.parse_args()
    plan = json.loads(subprocess.run([args.limpid, "inspect", args.model, "--json"], capture_output=True, text=True, check=True).stdout)
    facts = {f["name"]: f["value"] for f in plan["facts"]}
    unit = int(facts["embedding_length"]) * 4 * (int(facts["block_count"]) - int(facts.get("nextn_predict_layers", 0)))
    rows = []
    for n in args.ranks:
        for division in DIVISIONS:
            for kind, tokens, sent, rate in measure(args, n, division):
                rows.append((n, division, kind, tokens, sent, sent / tokens / unit, rate))
                print(f"{n} ranks, {division}, {kind}: {tokens} tokens, {sent / 1e6:.2f} MB sent, {sent / tokens / unit:.3f} rows a token and layer, "
                      f"{rate:.0f} tokens/s", flush=True)
    if args.csv:
        with open(args.csv, "w") as out:
            out.write("date,model,ranks,division,kind,tokens,bytes,rows_per_token_and_layer,tokens_per_s\n")
            for row in rows:
                out.write(",".join([time.strftime("%Y-%m-%d"), os.path.basename(args.model), *(str(x).replace(",", "") for x in row)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
