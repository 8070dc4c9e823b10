#!/usr/bin/env python3
"""limpid on processors that have fewer instructions than this one: an emulator that refuses the rest.

    older_cpus.py LIMPID [--only TEXT]

`--cpu avx2` chooses kernels, but code that asks nobody would still run what the processor at hand has. So the program runs
under `qemu-x86_64 -cpu MODEL` here, which ends it where an instruction is not MODEL's. For each golden model and cache type:
- logits within 1e-4 of the float64 reference where the cache is exact, and in every case the bits that this
  processor gives when it is held to the same kernels
- `bench` ends with 0, and the small model answers a question
- a level that MODEL lacks is refused in one sentence
"""
import os
import platform
import shlex
import shutil
import tempfile

from harness import MINI_MODEL, Checks, Dump, Golden, arguments, golden_names, np, run, skip, too_far

# name, what the emulator has of it, limpid's name for its kernels; the second has no AVX
MODELS = (("Haswell", "Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm", "avx2"), ("Nehalem", "Nehalem", "generic"))


def emulated(path, qemu, cpu, limpid):
    """A program that is limpid on such a processor."""
    with open(path, "w") as f:
        f.write(f"#!/bin/sh\nexec {shlex.quote(qemu)} -cpu {cpu} {shlex.quote(os.path.abspath(limpid))} \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def same_bits(limpid, older, level, g, cache):
    options, tokens = ("--kv", cache, "--chunk", 16, "--deterministic"), g.tokens[:40]
    got = Dump(older, g.path, tokens, *options).logits
    want = Dump(limpid, g.path, tokens, "--cpu", level, *options).logits
    if cache == "f32":
        yield too_far("logits", got, g.ref["logits_f64"][:40], 1e-4)
    if not np.array_equal(got.view(np.uint32), want.view(np.uint32)):
        yield f"the logits have other bits than with --cpu {level} ({np.abs(got - want).max():.2e} apart)"


def commands(older, g):
    run([older, "bench", g.path, "-p", 16, "-n", 2, "--repeat", 1])
    answer = run([older, "run", MINI_MODEL, "--chat", "-p", "What is 3 + 4?", "-n", 16]).stdout
    if "7" not in answer:
        yield f"the small model answers {answer!r}"


def refused(older):
    err = run([older, "run", MINI_MODEL, "-p", "a", "--cpu", "avx512"], status=2).stderr
    if "avx512" not in err:
        yield f"--cpu avx512 is refused with {err!r}"


def main():
    args = arguments(__doc__)
    qemu = shutil.which("qemu-x86_64")
    if platform.machine() != "x86_64":
        skip("this processor is not x86_64")
    if not qemu:
        skip("qemu-x86_64 is missing (Debian: qemu-user)")
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-older-") as folder:
        for model, cpu, level in MODELS:
            older = emulated(os.path.join(folder, model), qemu, cpu, args.limpid)
            for name in golden_names():
                for cache in ("f32", "f16", "bf16", "q8_0") if name == "dsa_full_dims" else ("f32",):
                    checks.add(f"{model}, {name}, {cache}", same_bits, args.limpid, older, level, Golden(name), cache)
            checks.add(f"{model}, commands", commands, older, Golden("dsa_sparse"))
            checks.add(f"{model}, refused", refused, older)
        checks.finish()


if __name__ == "__main__":
    main()
