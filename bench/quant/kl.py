#!/usr/bin/env python3
"""What each preset of limpid quantize costs the mini model, against its own Q8_0 file.

    kl.py LIMPID GENERATE [--presets Q4_K_M,Q4_0] [--items 60] [--longest 400] [--jobs N] [--markdown]

LIMPID and GENERATE are programs of a build (build/release/limpid, build/release/tests/generate). For each
preset, without and with an importance matrix: the file's size, bits per weight, the mean Kullback-Leibler
divergence KL(source || quantised) of the next-token distributions, the share of positions with the same
most likely token, and how many skills are answered rightly (all prompts of at most --longest tokens).

The importances come from half of the prompts of tests/mini/skills.jsonl with torch's answers, the
divergence from the other half. Cache f32. Needs numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

import numpy as np  # noqa: E402
from harness import MINI, MINI_MODEL, Dump  # noqa: E402
from mini import TORCH, is_right, log_softmax  # noqa: E402

PRESETS = "Q6_K Q5_K_M DYN-Q5 Q5_K_S Q5_0 DYN-Q4 DYN-IQ4 Q4_K_M Q4_K_S IQ4_NL Q4_0 IQ4_XS".split()


def run(*command, stdin=None):
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} {command[1]}: {done.stderr}")
    return done.stdout


def text_of(item):
    return item["prompt"] + item["torch"][TORCH]["text"]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        with open(os.path.join(MINI, "skills.jsonl"), encoding="utf-8") as f:
            items = [json.loads(line) for line in f]
        items = [i for i in items if i["prompt_tokens"] <= args.longest]
        self.items, self.judged = items, items[1::2]
        if args.items < len(self.judged):
            self.judged = self.judged[::-(-len(self.judged) // -args.items)]
        with open(self.at("text"), "w", encoding="utf-8") as f:
            f.write("".join(map(text_of, items[0::2])))
        self.imatrix = self.at("imatrix.gguf")
        run(args.limpid, "imatrix", MINI_MODEL, "-f", self.at("text"), "-o", self.imatrix, "--chunk", 256)
        self.tokens = [json.loads(run(args.limpid, "tokenize", MINI_MODEL, text_of(i))) for i in self.judged]
        with ThreadPoolExecutor(args.jobs) as pool:
            self.source = list(pool.map(lambda t: self.logprobs(MINI_MODEL, t), self.tokens))

    def at(self, name):
        return os.path.join(self.folder, name)

    def logprobs(self, model, tokens):
        return log_softmax(Dump(self.args.limpid, model, tokens, "--kv", "f32").logits)

    def divergence(self, model):
        def one(i):
            want, got = self.source[i], self.logprobs(model, self.tokens[i])
            return (np.exp(want) * (want - got)).sum(axis=1), want.argmax(axis=1) == got.argmax(axis=1)
        with ThreadPoolExecutor(self.args.jobs) as pool:
            kl, same = zip(*pool.map(one, range(len(self.tokens))))
        return np.concatenate(kl).mean(), np.concatenate(same).mean()

    def skills(self, model):
        ordered = sorted(self.items, key=lambda i: -i["prompt_tokens"])
        parts = [p for p in (ordered[i::self.args.jobs] for i in range(self.args.jobs)) if p]

        def one(items):
            lines = "".join(json.dumps({"prompt": i["prompt"], "max_new": i["max_new"]}) + "\n" for i in items)
            texts = [json.loads(line)["text"] for line in run(self.args.generate, model, "threads=1", "kv=f32", stdin=lines).splitlines()]
            return sum(is_right(i, t) for i, t in zip(items, texts))
        with ThreadPoolExecutor(self.args.jobs) as pool:
            return sum(pool.map(one, parts))

    def row(self, preset, with_imatrix):
        path = self.at("quantised.gguf")
        said = run(self.args.limpid, "quantize", MINI_MODEL, path, preset, "--force", *(["--imatrix", self.imatrix] if with_imatrix else []))
        bits = float(said.split(" bits per weight")[0].split()[-1])
        kl, same = self.divergence(path)
        return preset, with_imatrix, os.path.getsize(path) / 1e6, bits, kl, same, self.skills(path)


def show(row, n, markdown):
    preset, with_imatrix, mb, bits, kl, same, right = row
    cells = [preset, "yes" if with_imatrix else "no", f"{mb:.2f}", f"{bits:.2f}", f"{kl:.5f}", f"{100 * same:.2f} %", f"{right}/{n}"]
    print("| " + " | ".join(cells) + " |" if markdown else "{:8} {:4} {:>7} {:>6} {:>9} {:>9} {:>9}".format(*cells), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("generate")
    p.add_argument("--presets", default=",".join(PRESETS))
    p.add_argument("--items", type=int, default=60, help="texts that the divergence is measured on")
    p.add_argument("--longest", type=int, default=400, help="tokens of a prompt, at most")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--markdown", action="store_true")
    args = p.parse_args()
    head = ["preset", "imatrix", "MB", "bits", "KL", "same top", "skills"]
    with tempfile.TemporaryDirectory(prefix="limpid-kl-") as folder:
        bench = Bench(args, folder)
        n_positions = sum(map(len, bench.tokens))
        print(f"{len(bench.tokens)} texts, {n_positions} positions; skills of the source: {bench.skills(MINI_MODEL)}/{len(bench.items)}\n")
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|" if args.markdown else "{:8} {:4} {:>7} {:>6} {:>9} {:>9} {:>9}".format(*head))
        for preset in args.presets.split(","):
            for with_imatrix in (False, True):
                show(bench.row(preset, with_imatrix), len(bench.items), args.markdown)


if __name__ == "__main__":
    main()
