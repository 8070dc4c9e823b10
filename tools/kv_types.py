#!/usr/bin/env python3
"""The table of docs/numerics.md on KV types: what each costs in accuracy against an f32 cache.

    kv_types.py LIMPID [GENERATE]      (GENERATE: the test program build/.../tests/generate)

Golden models: median difference of a logit, that of the worst model, and positions whose most probable token changes (ref
backend, so that the cache is all that rounds; a rounded indexer key can change a selection, and then one row changes as
a whole). Mini model: mean difference of log-probabilities above 1 %, and with GENERATE right answers of the 302
prompts of tests/mini/skills.jsonl (cpu backend).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
MINI = str(ROOT / "models/mini-glm-dsa.gguf")
TYPES = ("f16", "bf16", "q8_0", "fp8")


def logits(limpid, model, tokens, kv, backend):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "l.npy")
        ids = pathlib.Path(folder, "ids")
        ids.write_text(",".join(map(str, tokens)))
        done = subprocess.run([limpid, "dump", model, "--tokens", f"@{ids}", "--logits", str(out), "--kv", kv, "--backend",
                               backend], capture_output=True, text=True)
        return np.load(out).astype(np.float64) if done.returncode == 0 else None


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def right(item, text):
    if item["mode"] == "think":
        text = text.split("</think>", 1)[1] if "</think>" in text else ""
    return text.startswith(item["expect"]) if item["match"] == "prefix" else text.strip() == item["expect"].strip()


def golden(limpid, kv):
    worst, n_changed, n_all, refused = 0.0, 0, 0, []
    for path in sorted((ROOT / "tests/golden").glob("*.gguf")):
        info = json.loads(path.with_suffix(".json").read_text())
        tokens = info["prompt"] + info["greedy"]
        exact, rounded = (logits(limpid, str(path), tokens, t, "ref") for t in ("f32", kv))
        if rounded is None:
            refused.append(path.stem)
        else:
            worst = max(worst, np.median(np.abs(exact - rounded)))
            n_changed += (exact.argmax(-1) != rounded.argmax(-1)).sum()
            n_all += len(exact)
    return f"{worst:.2g}, {n_changed} of {n_all} tokens change{' (refused: ' + ', '.join(refused) + ')' if refused else ''}"


def mini(limpid, kv):
    reference = np.load(ROOT / "tests/mini/logits_ref.npz")
    off = []
    for p in range(5):
        tokens = reference[f"p{p}_tokens"].tolist()
        exact, rounded = (log_softmax(logits(limpid, MINI, tokens, t, "ref")) for t in ("f32", kv))
        off.append(np.abs(exact - rounded)[exact > np.log(0.01)])
    return np.concatenate(off).mean()


def answers(generate, kv):
    items = [json.loads(line) for line in (ROOT / "tests/mini/skills.jsonl").read_text().splitlines()]
    lines = "".join(json.dumps({"prompt": i["prompt"], "max_new": i["max_new"]}) + "\n" for i in items)
    out = subprocess.run([generate, MINI, f"kv={kv}"], input=lines, capture_output=True, text=True, check=True).stdout
    return sum(right(i, json.loads(o)["text"]) for i, o in zip(items, out.splitlines())), len(items)


def main():
    limpid, generate = sys.argv[1], sys.argv[2:]
    for kv in TYPES:
        print(f"{kv}: golden models {golden(limpid, kv)}; mini {mini(limpid, kv):.2g}", flush=True)
        if generate:
            print("    right answers %d of %d" % answers(generate[0], kv), flush=True)


main()
