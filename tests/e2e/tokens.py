#!/usr/bin/env python3
"""`limpid tokenize` and `--decode` on the texts of tests/golden/tokenizer_glm4.json, whose ids come from
the Python package tokenizers.

    tokens.py LIMPID [--sanitizer] [--only TEXT]
"""
import json
import os
import subprocess

from harness import GOLDEN, Checks, arguments

MODEL = os.path.join(GOLDEN, "dsa_dense.gguf")


def tokenize(limpid, data, *options):
    done = subprocess.run([limpid, "tokenize", MODEL, *options], input=data, capture_output=True)
    return done.stdout if done.returncode == 0 else done.stderr


def both_ways(limpid, text, ids):
    got = tokenize(limpid, text.encode())
    if json.loads(got) != ids:
        yield f"ids {got!r}, expected {ids}"
    back = tokenize(limpid, json.dumps(ids).encode(), "--decode")
    if back != text.encode() + b"\n":
        yield f"decoded to {back!r}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with open(os.path.join(GOLDEN, "tokenizer_glm4.json"), encoding="utf-8") as f:
        texts = json.load(f)["texts"]
    for entry in texts:
        checks.add(f"{entry['text']!r}", both_ways, args.limpid, entry["text"], entry["ids"])
    checks.finish()


if __name__ == "__main__":
    main()
