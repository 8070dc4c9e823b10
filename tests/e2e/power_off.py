#!/usr/bin/env python3
"""A server with --cache-dir is killed (SIGKILL) at random moments, again and again: while it answers, while it starts, while
it stops. The next start works, and never serves a damaged prefix.

    power_off.py LIMPID [--sanitizer] [--rounds N]
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
from client import Server  # noqa: E402

MODEL = ROOT / "models" / "mini-glm-dsa.gguf"
OPTIONS = ["--deterministic", "--ctx", "2048", "--self-check", "off"]
HEADER_BYTES = 80 + 4 * 64  # of a file of the store (src/kv/store_file.h), behind it the payload


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


# ---- damage

def flip(rng, data, first, last):
    at = rng.randrange(first, last)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]


DAMAGES = {  # what a power cut, or a disk, may leave of a file
    "a wrong bit in the header": lambda rng, data: flip(rng, data, 0, HEADER_BYTES),
    "a wrong bit in the payload": lambda rng, data: flip(rng, data, HEADER_BYTES, len(data)),
    "cut": lambda rng, data: data[:rng.randrange(1, len(data))],
    "empty": lambda rng, data: b"",
    "a block of zeros": lambda rng, data: data[:HEADER_BYTES] + bytes(4096) + data[HEADER_BYTES + 4096:],
    "blocks in another order": lambda rng, data: data[:HEADER_BYTES] + data[HEADER_BYTES + 4096:] + data[HEADER_BYTES:HEADER_BYTES + 4096],
}


def damage_one(rng, folder):
    pages = sorted(folder.glob("*.page"))
    if pages:
        path = rng.choice(pages)
        path.write_bytes(rng.choice(list(DAMAGES.values()))(rng, path.read_bytes()))


def check_planted_damage(limpid, rng, prompt, expected, kinds):
    """Every page of a prompt damaged in one way: the answer is the cold one, nothing comes from disk, the damage is counted,
    and the next start finds whole pages again. (One at least: a page behind a damaged one is not looked at, thus not known
    to be damaged and not written anew until it is asked for.)"""
    for what in kinds:
        change = DAMAGES[what]
        with tempfile.TemporaryDirectory() as folder:
            options = OPTIONS + ["--cache-dir", folder, "--log", "error"]

            def answer():
                with Server(limpid, str(MODEL), options) as server:
                    assert ask(server, prompt) == expected, what
                    metrics = server.metrics()
                    server.stop()
                return metrics["limpid_prompt_tokens_cached_disk_total"], metrics["limpid_disk_cache_damaged_total"]

            assert answer() == (0, 0)
            pages = list(pathlib.Path(folder).glob("*.page"))
            assert len(pages) > 5
            for path in pages:
                path.write_bytes(change(rng, path.read_bytes()))
            from_disk, damaged = answer()
            assert from_disk == 0, f"{what}: {from_disk:.0f} prompt tokens were taken from damaged pages"
            assert 0 < damaged <= len(pages), f"{what}: {damaged:.0f} of {len(pages)} damaged pages were counted"
            from_disk, _ = answer()
            assert from_disk > 0, f"{what}: no page was written anew"


# ---- kills

def kill_at_work(server, rng, texts):
    clients = [threading.Thread(target=ask_quietly, args=(server, rng.choice(texts))) for _ in range(3)]
    for client in clients:
        client.start()
    time.sleep(rng.random() * 0.4)
    if rng.random() < 0.3:  # while it drains and writes what waits for the disk
        server.process.send_signal(signal.SIGTERM)
        time.sleep(rng.random() * 0.2)
    server.process.kill()
    for client in clients:
        client.join()


def kill_at_start(limpid, rng, options, start_s):
    """Before the ready line, or just behind it."""
    process = subprocess.Popen([limpid, "serve", str(MODEL), "--port", "0", *options], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    time.sleep(rng.random() * start_s)
    process.kill()
    line = process.stdout.read()
    process.wait()
    assert process.returncode == -signal.SIGKILL, f"it ended by itself: {process.returncode}"
    return not line


def run_rounds(limpid, rng, texts, expected, rounds):
    """{what was seen: how often}"""
    seen = {"checked": 0, "from_disk": 0, "damaged": 0, "early": 0}
    with tempfile.TemporaryDirectory() as folder:
        options = OPTIONS + ["--cache-dir", folder, "--log", "error"]
        for n in range(rounds):
            begin = time.monotonic()
            with Server(limpid, str(MODEL), options) as server:
                start_s = time.monotonic() - begin
                i = rng.randrange(len(texts))
                assert ask(server, texts[i]) == expected[i], f"prompt {i} differs behind a kill"
                metrics = server.metrics()
                seen["checked"] += 1
                seen["from_disk"] += metrics["limpid_prompt_tokens_cached_disk_total"]
                seen["damaged"] += metrics["limpid_disk_cache_damaged_total"]
                kill_at_work(server, rng, texts)
            if n % 3 == 2:
                seen["early"] += kill_at_start(limpid, rng, options, start_s)
            if rng.random() < 0.2:
                damage_one(rng, pathlib.Path(folder))
        with Server(limpid, str(MODEL), options) as server:
            assert [ask(server, text) for text in texts] == expected
            server.stop()
        with Server(limpid, str(MODEL), options) as server: # what a clean stop left is used
            assert [ask(server, text) for text in texts] == expected
            assert server.metrics()["limpid_prompt_tokens_cached_disk_total"] > 0
            server.stop()
        left = [path.name for path in pathlib.Path(folder).iterdir() if path.suffix != ".page"]
        assert not left, f"temporary files of killed servers stayed: {left}"
    return seen


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
    kinds = list(DAMAGES)[1:3] if args.sanitizer else list(DAMAGES)
    check_planted_damage(args.limpid, rng, texts[0], expected[0], kinds)
    seen = run_rounds(args.limpid, rng, texts, expected, rounds)
    print(f"{rounds} kills at work, {rounds // 3} at the start ({seen['early']} before the ready line): {seen['checked']} first "
          f"answers as without a cache, {seen['from_disk']:.0f} of their prompt tokens from disk, {seen['damaged']:.0f} damaged "
          f"pages refused; {len(kinds)} kinds of planted damage found")
    if rounds >= 10:
        assert seen["from_disk"] > 0 and seen["early"] > 0, seen


main()
