#!/usr/bin/env python3
"""Models whose experts stay on disk (--memory-budget), as a user runs them.

    experts_on_disk.py LIMPID [--sanitizer] [--only TEXT]

Whatever the budget, the threads, the chunks, the backend and the parts of the file: logits and hidden
states have the bits of the model in memory, and answers are the same, with drafts too. Budgets that are
too small or no sizes, folders, and profiles that are damaged are told of.
"""
import os
import re
import tempfile

import gguf_edit
import make_bad_gguf
from harness import MINI_MODEL, ROOT, Checks, Dump, Golden, arguments, np, run

MODELS = ("ds2_lite", "ds3", "ds32", "dsa_shared", "dsa_sparse", "glm45", "glm47_flash")
PROMPT = "Once upon a time there was a small machine that"


def least(limpid, model):
    """The least budget, in MB, that a model says it needs (None: a file too small to tell)."""
    text = run([limpid, "run", model, "-p", "x", "-n", "1", "--memory-budget", "1000"], status=2).stderr
    found = re.search(r"at least (\d+)M$", text.strip())
    assert found, text
    return int(found[1])


def same_bits(limpid, model, tokens, budget, *options):
    want = Dump(limpid, model, tokens, "--deterministic", *options, want=("logits", "hidden"))
    got = Dump(limpid, model, tokens, "--deterministic", "--memory-budget", budget, *options, want=("logits", "hidden"))
    for what in ("logits", "hidden"):
        if not np.array_equal(got.arrays[what].view(np.uint32), want.arrays[what].view(np.uint32)):
            yield f"{what} differ from those of the model in memory"


def same_answer(limpid, *options):
    run_ = [limpid, "run", MINI_MODEL, "-p", PROMPT, "-n", "60", "--temp", "0"]
    want = run(run_ + list(options)).stdout
    for budget in (f"{least(limpid, MINI_MODEL)}M", "90%"):
        done = run(run_ + list(options) + ["--memory-budget", budget, "--stats"])
        if done.stdout != want:
            yield f"with {budget} the answer is {done.stdout!r}, in memory {want!r}"
        if not re.search(r"^experts [\d.]+% in memory, [\d.]+% read ahead, of \d+ needed; \d+ read from disk",
                         done.stderr, re.M):
            yield f"--stats says nothing of experts: {done.stderr!r}"


def profile(limpid, folder):
    path = os.path.join(folder, "profile")
    command = [limpid, "run", MINI_MODEL, "-p", PROMPT, "-n", "30", "--temp", "0", "--stats", "--memory-budget", "80%",
               "--expert-profile", path]
    first = run(command)
    if not os.path.exists(path):
        yield "no profile was written"
        return
    if [n for n in os.listdir(folder) if n.startswith("profile.")]:
        yield "a file was left beside the profile"
    second = run(command)
    shares = [float(re.search(r"experts ([\d.]+)% in memory", d.stderr)[1]) for d in (first, second)]
    if second.stdout != first.stdout or shares[1] <= shares[0]:
        yield f"in memory {shares[0]} %, with the profile {shares[1]} %; answers {first.stdout!r}, {second.stdout!r}"
    with open(path, "r+b") as f:
        f.seek(40)
        f.write(b"\xff")
    third = run(command)
    if "is damaged, or no expert profile of this model" not in third.stderr or third.stdout != first.stdout:
        yield f"of a damaged profile it says {third.stderr!r}"


def refuses(limpid, command, status, *words):
    text = run([limpid] + command, status=status).stderr
    if not all(w in text.strip().splitlines()[-1] for w in words):
        yield f"the message is {text!r}"


def plan(limpid):
    text = run([limpid, "inspect", MINI_MODEL, "--memory-budget", "80%"]).stdout
    found = re.search(r"weights that every token needs .*\n  cache of +(\d+) experts .*\n  \(on disk, +(\d+) experts", text)
    if not found or not 0 < int(found[1]) < int(found[2]):
        yield f"inspect shows {text[-800:]!r}"


def add_split(checks, limpid, folder):
    g = Golden("dsa_shared")
    parts = make_bad_gguf.parts(gguf_edit.read(g.path), tensor_free_first=True)
    paths = [os.path.join(folder, f"set-{i + 1:05}-of-{len(parts):05}.gguf") for i in range(len(parts))]
    for path, part in zip(paths, parts):
        with open(path, "wb") as f:
            f.write(part.bytes())
    checks.add("a split set", same_bits, limpid, paths[1], g.tokens[:40],
               str(os.path.getsize(g.path) * 9 // 10))


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    limpid = args.limpid
    with tempfile.TemporaryDirectory(prefix="limpid-experts-") as folder:
        for g in map(Golden, MODELS[:2] if args.sanitizer else MODELS):
            for threads in ("1", "2"):
                for chunk in ("1", "7", "512"):
                    checks.add(f"{g.name}, {threads} threads, chunks of {chunk}", same_bits, limpid, g.path, g.tokens[:40],
                               f"{least(limpid, g.path)}M", "--threads", threads, "--chunk", chunk)
        g = Golden("ds3")
        checks.add("backend ref", same_bits, limpid, g.path, g.tokens[:20], f"{least(limpid, g.path)}M", "--backend", "ref")
        add_split(checks, limpid, folder)
        checks.add("the small model", same_answer, limpid)
        checks.add("the small model, two threads", same_answer, limpid, "--threads", "2")
        checks.add("the small model, with drafts", same_answer, limpid, "--speculate", "2")
        checks.add("profile", profile, limpid, folder)
        checks.add("plan", plan, limpid)
        go = ["run", MINI_MODEL, "-p", "x", "-n", "1"]
        checks.add("no size", refuses, limpid, go + ["--memory-budget", "much"], 2, "'much'", "20G", "40%")
        checks.add("too much", refuses, limpid, go + ["--memory-budget", "101%"], 2, "'101%'")
        checks.add("too small", refuses, limpid, go + ["--memory-budget", "5M"], 2, "too small", "at least")
        checks.add("no GPU to divide with", refuses, limpid, go + ["--experts", "cpu"], 2, "backend cpu")
        checks.add("no place", refuses, limpid, go + ["--experts", "gpu"], 2, "'gpu'", "device or cpu")
        checks.add("no VRAM", refuses, limpid, go + ["--vram-budget", "abc"], 2, "--vram-budget is 'abc'", "20G")
        checks.add("VRAM and all experts", refuses, limpid, go + ["--vram-budget", "3G", "--experts", "cpu"], 2, "one of the two")
        checks.add("disk and CPU", refuses, limpid, go + ["--memory-budget", "40%", "--experts", "cpu"], 2, "one of the two")
        checks.add("dummy on a CPU", refuses, limpid, go + ["--load", "dummy"], 2, "limpid synth")
        checks.add("dummy and CPU", refuses, limpid, go + ["--load", "dummy", "--experts", "cpu"], 2, "one of the two")
        hf = os.path.join(ROOT, "tests/data/hf/deepseek_v3")
        checks.add("folder", refuses, limpid, ["run", hf, "-p", "x", "-n", "1", "--memory-budget", "1G"], 1, "limpid convert")
        checks.add("profile alone", refuses, limpid, go + ["--expert-profile", "x"], 2, "--memory-budget")
        checks.finish()


if __name__ == "__main__":
    main()
