#!/usr/bin/env python3
"""How weights come into memory and threads onto CPUs changes no bit of an answer.

    prefetch.py LIMPID [--sanitizer] [--only TEXT]

Logits of golden models and of a split set with --prefetch and --repack, on huge pages and not, with threads
that are bound and that are not, against those of the mapped file. What cannot be is refused.
"""
import os
import tempfile

import gguf_edit
import make_bad_gguf
from harness import MINI_MODEL, ROOT, Checks, Dump, Golden, arguments, np, run

MODELS = ("dsa_shared", "ds3", "qwen3")
WAYS = (["--prefetch"], ["--prefetch", "--huge-pages", "all"], ["--prefetch", "--huge-pages", "off"], ["--huge-pages", "off"],
        ["--repack", "on"], ["--repack", "on", "--prefetch"], ["--repack", "on", "--cpu", "avx2"], ["--repack", "auto"],
        ["--pin", "cores", "--threads", "2"], ["--pin", "none", "--threads", "2"], ["--prefetch", "--pin", "cores", "--threads", "1"])


def same(limpid, g, path, options):
    level = options[options.index("--cpu"):] if "--cpu" in options else []
    want = Dump(limpid, g.path, g.tokens[:40], "--deterministic", "--repack", "off", *level, want=("logits", "hidden"))
    got = Dump(limpid, path, g.tokens[:40], "--deterministic", *options, want=("logits", "hidden"))
    for what in ("logits", "hidden"):
        if not np.array_equal(got.arrays[what].view(np.uint32), want.arrays[what].view(np.uint32)):
            yield f"{what} differ from those of the mapped file"


def repacked(limpid, level):
    """A quantised model with every kind of weight, an MTP layer among them."""
    options = ["--deterministic", "--cpu", level]
    tokens = list(range(5, 75))
    off = Dump(limpid, MINI_MODEL, tokens, *options, "--repack", "off", want=("logits", "hidden"))
    on = Dump(limpid, MINI_MODEL, tokens, *options, "--repack", "on", want=("logits", "hidden"))
    for what in ("logits", "hidden"):
        if not np.array_equal(on.arrays[what].view(np.uint32), off.arrays[what].view(np.uint32)):
            yield f"{what} differ from those of the mapped file"
    answers = []
    for how in ("on", "off"):
        done = run([limpid, "run", MINI_MODEL, "-p", "12+7=", "-n", "24", "--speculate", "2", "--seed", "3", "--cpu", level,
                    "--repack", how, "--log", "info"])
        answers.append(done.stdout)
        if ("of weights repacked" in done.stderr) != (how == "on"):
            yield f"--repack {how} logs: {done.stderr!r}"
    if answers[0] != answers[1]:
        yield f"answers differ: {answers}"


def refused(limpid, arguments_, status, word):
    message = run([limpid, "run", *arguments_, "-p", "a", "-n", "1"], status=status).stderr
    if word not in message:
        yield f"the message says nothing of {word!r}: {message!r}"


def threads_are_told(limpid, path):
    message = run([limpid, "run", path, "-p", "a", "-n", "1", "--log", "info"]).stderr
    if "threads: " not in message or "cores" not in message:
        yield f"the log does not say how many threads run: {message!r}"
    message = run([limpid, "run", path, "-p", "a", "-n", "1", "--threads", 1000]).stderr
    if "1000 threads on" not in message:
        yield f"1000 threads run without a warning: {message!r}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-prefetch-") as folder:
        for g in map(Golden, MODELS):
            for options in WAYS:
                checks.add(f"{g.name} {' '.join(options)}", same, args.limpid, g, g.path, options)
            parts = make_bad_gguf.parts(gguf_edit.read(g.path), tensor_free_first=True)
            names = [os.path.join(folder, name) for name in make_bad_gguf.part_names(len(parts), g.name)]
            for name, part in zip(names, parts):
                with open(name, "wb") as f:
                    f.write(part.bytes())
            checks.add(f"{g.name} of several files", same, args.limpid, g, names[1], ["--prefetch"])
        for level in ("auto", "avx2"):
            checks.add(f"repacked, {level}", repacked, args.limpid, level)
        golden = Golden(MODELS[0])
        checks.add("folder", refused, args.limpid, [os.path.join(ROOT, "tests/data/hf/deepseek_v3"), "--prefetch"], 1, "convert")
        checks.add("budget", refused, args.limpid, [golden.path, "--prefetch", "--memory-budget", "1G"], 2, "one of the two")
        checks.add("repack and budget", refused, args.limpid, [golden.path, "--repack", "on", "--memory-budget", "1G"], 2, "one of the two")
        checks.add("repack", refused, args.limpid, [golden.path, "--repack", "rows"], 2, "'rows'")
        checks.add("pin", refused, args.limpid, [golden.path, "--pin", "numa"], 2, "'numa'")
        checks.add("huge pages", refused, args.limpid, [golden.path, "--huge-pages", "1G"], 2, "'1G'")
        checks.add("threads", threads_are_told, args.limpid, golden.path)
        checks.finish()


if __name__ == "__main__":
    main()
