#!/usr/bin/env python3
"""A server with --cache-dir is killed (SIGKILL) at random moments, again and again: the next start works, and never serves
a damaged prefix.

    power_off.py LIMPID [--sanitizer] [--rounds N]
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
from client import Server  # noqa: E402

MODEL = ROOT / "models" / "mini-glm-dsa.gguf"
OPTIONS = ["--deterministic", "--ctx", "2048", "--self-check", "off"]


def prompts(rng):
    skills = [json.loads(line) for line in (ROOT / "tests/mini/skills.jsonl").read_text().splitlines()]
    base = [s["prompt"] for s in skills if 600 < s["prompt_tokens"] < 1500][:3]
    return [text[:rng.randrange(600, len(text))] + f" {i}" for i, text in enumerate(base * 3)]


def ask(server, prompt):
    return server.complete(prompt=prompt, max_tokens=8, temperature=0, logprobs=0)["choices"][0]


def ask_quietly(server, prompt):
    try:
        ask(server, prompt)
    except Exception:  # the server is killed under it
        pass


def damage(rng, folder):
    """What a power cut may leave: a file that is shorter, or has a wrong byte."""
    pages = sorted(folder.glob("*.page"))
    if not pages:
        return
    path = rng.choice(pages)
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        data = data[:rng.randrange(len(data))]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("limpid")
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    args = parser.parse_args()
    rounds = args.rounds or (6 if args.sanitizer else 40)
    rng = random.Random(11)
    texts = prompts(rng)
    with Server(args.limpid, str(MODEL), OPTIONS) as server:
        expected = [ask(server, text) for text in texts]
        server.stop()
    cached = checked = 0
    with tempfile.TemporaryDirectory() as folder:
        options = OPTIONS + ["--cache-dir", folder, "--log", "error"]
        for _ in range(rounds):
            with Server(args.limpid, str(MODEL), options) as server:
                i = rng.randrange(len(texts))
                assert ask(server, texts[i]) == expected[i], f"prompt {i} differs behind a kill"
                checked += 1
                cached += server.metrics()["limpid_prompt_tokens_cached_disk_total"]
                clients = [threading.Thread(target=ask_quietly, args=(server, rng.choice(texts))) for _ in range(3)]
                for client in clients:
                    client.start()
                time.sleep(rng.random() * 0.4)
                server.process.kill()
                for client in clients:
                    client.join()
            if rng.random() < 0.2:
                damage(rng, pathlib.Path(folder))
        with Server(args.limpid, str(MODEL), options) as server:
            assert [ask(server, text) for text in texts] == expected
            server.stop()
        with Server(args.limpid, str(MODEL), options) as server: # what a clean stop left is used
            assert [ask(server, text) for text in texts] == expected
            at_end = server.metrics()["limpid_prompt_tokens_cached_disk_total"]
            server.stop()
    assert at_end > 0 and (cached > 0 or rounds < 10), (cached, at_end)
    print(f"{rounds} kills: {checked} first answers as without a cache, {cached:.0f} of their prompt tokens from disk")


main()
