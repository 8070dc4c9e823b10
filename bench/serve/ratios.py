#!/usr/bin/env python3
"""What continuous batching, the prefix cache and drafts are worth, as ratios of one machine and one run.

    ratios.py MODEL [--limpid PATH] [--llama-server PATH] [--llama-args TEXT] [--streams N] [--tokens N] [--prefix N]
              [--repeat R] [--draft-model MODEL] [--json F]

For each server: tokens per second of one greedy stream and of N with different prompts (medians of R, in turns), and the
time to the first token of a prompt of N tokens, cold and again. For limpid also one stream with --speculate 1, 2, 3
against none, on --draft-model, whose text should be predictable (default: the small model of the repository).
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_IDS = 3000  # ids below that are ordinary tokens in every model here


class Server:
    def __init__(self, command, port):
        self.port, self.log = port, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise SystemExit(f"{command[0]} did not start: {self.log.read()[-800:]}")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def post(self, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=3600)

    def stream(self, ids, n_tokens):
        """(time to the first token, time from it to the end, tokens) of a greedy stream."""
        start, first, n = time.monotonic(), None, 0
        with self.post({"prompt": ids, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                        "stream_options": {"include_usage": True}}) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("choices"):
                    first = first or time.monotonic()
                if event.get("usage"):
                    n = event["usage"]["completion_tokens"]
        return first - start, time.monotonic() - first, n


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def prompt(rng, n):
    return [rng.randrange(10, N_IDS) for _ in range(n)]


def together(server, prompts, n_tokens):
    """Tokens per second of all streams, from the moment when each has its first token."""
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        start = time.monotonic()
        parts = list(pool.map(lambda ids: server.stream(ids, n_tokens), prompts))
        wall = time.monotonic() - start
    return sum(n for _, _, n in parts) / (wall - min(first for first, _, _ in parts))


def batching(server, args, rng):
    one, many = [], []
    for _ in range(args.repeat):
        one.append(together(server, [prompt(rng, 8)], args.tokens))
        many.append(together(server, [prompt(rng, 8) for _ in range(args.streams)], args.tokens))
    return {"one_tok_s": statistics.median(one), "many_tok_s": statistics.median(many),
            "batching_ratio": statistics.median(m / o for m, o in zip(many, one))}


def prefix(server, args, rng):
    ratios, cold, warm = [], [], []
    for _ in range(args.repeat):
        ids = prompt(rng, args.prefix)
        cold.append(server.stream(ids, 1)[0])
        warm.append(server.stream(ids[:-4] + prompt(rng, 4), 1)[0])
        ratios.append(cold[-1] / warm[-1])
    return {"ttft_cold_s": statistics.median(cold), "ttft_warm_s": statistics.median(warm),
            "prefix_ratio": statistics.median(ratios)}


def drafting(limpid, model, args):
    skills = [json.loads(line) for line in (ROOT / "tests/mini/skills.jsonl").read_text().splitlines()]
    texts = [s["prompt"] for s in skills if s["prompt_tokens"] < 200][:24]
    servers = {n: Server([limpid, "serve", model, "--port", str(p), "--speculate", str(n), "--self-check", "off"], p)
               for n in (0, 1, 2, 3) for p in (free_port(),)}
    times = {n: [] for n in servers}
    acceptance = {}
    for _ in range(args.repeat):
        for n, server in servers.items():
            start, n_tokens = time.monotonic(), 0
            for text in texts:
                with server.post({"prompt": text, "max_tokens": 96, "temperature": 0}) as answer:
                    n_tokens += json.load(answer)["usage"]["completion_tokens"]
            times[n].append((time.monotonic() - start) / n_tokens)
    for n, server in servers.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            acceptance[n] = float(re.search(r"^limpid_draft_acceptance_ratio (\S+)", answer.read().decode(), re.M)[1])
        server.process.kill()
        server.process.wait()
    return {f"draft_{n}": {"speed_ratio": statistics.median(a / b for a, b in zip(times[0], times[n])),
                           "acceptance": acceptance[n]} for n in (1, 2, 3)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--limpid", default=str(ROOT / "build/release/limpid"))
    parser.add_argument("--llama-server")
    parser.add_argument("--llama-args", default="", help="more options of llama-server, in one text")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prefix", type=int, default=3000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--draft-model", default=str(ROOT / "models/mini-glm-dsa.gguf"))
    parser.add_argument("--json")
    args = parser.parse_args()
    context, port = args.prefix + 64, free_port()
    pool = args.streams * (args.tokens + 128) + 4 * context
    commands = {"limpid": [args.limpid, "serve", args.model, "--port", str(port), "--ctx", str(context), "--kv-tokens",
                           str(pool), "--max-seqs", str(args.streams), "--self-check", "off"]}
    if args.llama_server:
        commands["llama-server"] = [args.llama_server, "-m", args.model, "--port", str(port), "-c", str(pool), "-np",
                                    str(args.streams), "--kv-unified", *args.llama_args.split()]
    results = {}
    for name, command in commands.items():
        rng = random.Random(1)
        with Server(command, port) as server:
            results[name] = {**batching(server, args, rng), **prefix(server, args, rng)}
        r = results[name]
        print(f"{name}: 1 stream {r['one_tok_s']:.1f} tok/s, {args.streams} streams {r['many_tok_s']:.1f} tok/s: "
              f"{r['batching_ratio']:.2f} times; first token of {args.prefix} tokens {r['ttft_cold_s']:.2f} s, known "
              f"{r['ttft_warm_s']:.3f} s: {r['prefix_ratio']:.0f} times", flush=True)
    results["drafts"] = drafting(args.limpid, args.draft_model, args)
    for name, r in results["drafts"].items():
        print(f"limpid --speculate {name[-1]}: {r['speed_ratio']:.2f} times the speed without, "
              f"{100 * r['acceptance']:.0f}% of drafts accepted")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


main()
