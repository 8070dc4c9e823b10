#!/usr/bin/env python3
"""Mixed load on a live server: 32 clients, prompts of 1 to 3,000 tokens, streaming and not, disconnects, stop texts,
seeds, several choices, shared prefixes, pre-emption (a small KV cache), speculation.

    soak.py LIMPID [--sanitizer] [--seconds S] [--clients N]

Every answer, greedy or seeded, must be the one that the same request got alone (--deterministic); none may be lost;
at the end all pages are back and memory has not grown.
"""
import argparse
import http.client
import json
import pathlib
import random
import socket
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
import client  # noqa: E402
from client import Server, parse_stream  # noqa: E402

MODEL = ROOT / "models" / "mini-glm-dsa.gguf"
SKILLS = ROOT / "tests" / "mini" / "skills.jsonl"
client.TIMEOUT_S = 1800  # a sanitizer on a busy machine takes its time; a lost answer would never come
GROWTH_MB = 60  # between the first fifth of the run and its end: allocator and thread stacks, no more
OPTIONS = ["--deterministic", "--ctx", "4096", "--kv-tokens", "4200", "--max-seqs", "16", "--max-batch-tokens", "256",
           "--speculate", "2", "--drain-timeout", "60"]


def make_requests(rng, longest):
    """Bodies of requests that are asked again and again."""
    skills = [json.loads(line) for line in SKILLS.read_text().splitlines()]
    long_texts = [s["prompt"] for s in skills if s["prompt_tokens"] > 1000]
    bodies = [{"prompt": "a"}, {"prompt": [100]}, {"prompt": "Monday, Tuesday,", "stop": ["Friday", ", S"]}]
    for skill in rng.sample([s for s in skills if s["prompt_tokens"] < 200], 14):
        bodies.append({"prompt": skill["prompt"]})
    base = rng.choice(long_texts)
    for share in (0.1, 0.3, 0.6, 0.9):  # beginnings of one text, with different ends
        bodies.append({"prompt": base[:int(len(base) * share)] + " The end. " + str(share), "max_tokens": 12})
    for text in rng.sample(long_texts, 4):
        bodies.append({"prompt": text[:longest], "max_tokens": 16})
    bodies.append({"prompt": "Once upon a time", "temperature": 1.0, "seed": 7, "n": 3, "max_tokens": 24})
    bodies.append({"prompt": "Once upon a time, a fox", "temperature": 0.9, "seed": 8, "top_p": 0.9, "min_p": 0.02})
    bodies.append({"prompt": "1, 2, 3,", "presence_penalty": 0.5, "repetition_penalty": 1.1, "stop": ["9"]})
    for body in bodies:
        body.setdefault("temperature", 0)
        body.setdefault("max_tokens", 40)
    return bodies


def texts(answer):
    return [c["text"] for c in sorted(answer["choices"], key=lambda c: c["index"])]


class Client(threading.Thread):
    def __init__(self, server, bodies, expected, end, seed):
        super().__init__()
        self.server, self.bodies, self.expected, self.end = server, bodies, expected, end
        self.rng = random.Random(seed)
        self.n_answers = self.n_left = 0
        self.failure = None

    def leave(self, body):
        """Sends the request, reads a little or nothing, and closes the connection."""
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", json.dumps(body))
        if self.rng.random() < 0.7:
            time.sleep(self.rng.random() * 0.2)
            connection.sock.settimeout(0.01)
            try:
                connection.sock.recv(self.rng.randrange(1, 400))
            except (socket.timeout, TimeoutError):
                pass
        connection.close()
        self.n_left += 1

    def once(self):
        i = self.rng.randrange(len(self.bodies))
        body = dict(self.bodies[i], stream=self.rng.random() < 0.5)
        if self.rng.random() < 0.15:
            return self.leave(body)
        status, _, raw = self.server.ask("POST", "/v1/completions", json.dumps(body))
        assert status == 200, (status, raw[:300])
        got = parse_stream(raw)["text"] if body["stream"] else texts(json.loads(raw))
        assert got == self.expected[i], f"request {i} {body}: {got}, alone {self.expected[i]}"
        self.n_answers += 1

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.once()
        except (AssertionError, OSError, http.client.HTTPException, ValueError) as e:
            self.failure = f"{type(e).__name__}: {e}"


def resident_mb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("limpid")
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--clients", type=int, default=32)
    args = parser.parse_args()
    rng = random.Random(5)
    bodies = make_requests(rng, 4000 if args.sanitizer else 12000)
    with Server(args.limpid, str(MODEL), OPTIONS) as server:
        expected = [texts(server.complete(**body)) for body in bodies]
        end = time.monotonic() + args.seconds
        clients = [Client(server, bodies, expected, end, seed) for seed in range(args.clients)]
        for each in clients:
            each.start()
        time.sleep(args.seconds / 5)
        early = resident_mb(server.process)
        for each in clients:
            each.join()
        metrics = server.wait_until_idle(60)
        late = resident_mb(server.process)
        failures = [c.failure for c in clients if c.failure]
        assert not failures, f"{len(failures)} clients failed; the first: {failures[0]}"
        again = [texts(server.complete(**body)) for body in bodies]
        assert again == expected, "answers behind the load differ from those before it"
        server.stop()
    answers, left = sum(c.n_answers for c in clients), sum(c.n_left for c in clients)
    growth = late - early
    print(f"{args.seconds:.0f} s, {args.clients} clients: {answers} answers as alone, {left} left early, "
          f"{metrics['limpid_preemptions_total']:.0f} pre-emptions, "
          f"{metrics['limpid_prompt_tokens_cached_total']:.0f} of {metrics['limpid_prompt_tokens_total']:.0f} prompt "
          f"tokens from cache, {metrics['limpid_draft_tokens_accepted_total']:.0f} of "
          f"{metrics['limpid_draft_tokens_total']:.0f} drafts accepted; memory {early:.0f} to {late:.0f} MB")
    assert answers > args.clients and left > 0
    assert growth < GROWTH_MB * (6 if args.sanitizer else 1), f"memory grew by {growth:.0f} MB"


main()
