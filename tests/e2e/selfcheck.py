#!/usr/bin/env python3
"""The self-check before serving: faults planted into caches, chunks, batches and attention are refused with the way that
differed, sound models are served, chaotic ones (random weights, where one rounding changes every logit) too.

    selfcheck.py LIMPID [--faulty LIMPID_FAULTY] [--sanitizer] [--model MODEL]...
"""
import os
import re
import subprocess
import tempfile

from harness import GOLDEN, MINI_MODEL, Checks, arguments, run

# fault of tests/clinic/faults.def, which way differs, and what the message says of it
FAULTS = [
    ("hit-position", "behind a cached prefix", "latents and indexer keys of layer 0"),
    ("copy-loses-index", "asked for again|behind a cached prefix", r"\(the indexer keys of layer 0 at positions"),
    ("chunk-position", "asked for again|in chunks", "layer 0"),
    ("page-table-swap", "in chunks", "layer 0 at positions 0 to"),
    ("batch-first-pages", "beside another sequence", "layer 1"),
    ("cache-write-last", "asked for again|in chunks", "layer 0"),
    ("matmul-odd-rows", "asked for again|in chunks|beside another sequence", "layer 0"),
    ("absorbed-newest", "asked for again|in chunks|token by token", "layer 1"),
    ("expanded-newest", "by the expanded route", "on layer"),
    ("expanded-chunk", "by the expanded route", "on layer"),
    ("expanded-last-head", "by the expanded route", "on layer"),
    ("head-matmul-last-head", "by the expanded route", "on layer"),
    ("absorbed-scale", "by the expanded route", "on layer"),
]
DISK = [("disk-loses-index", "the indexer keys of layer 0"), ("disk-loses-latents", "layer 4")]
SMALL = ["--port", "0", "--ctx", "1024", "--threads", "1", "--log", "info"]
READY = re.compile(r"limpid: serving .+ at http://127\.0\.0\.1:\d+\n")


def serve(command, limit_s=300):
    """Starts a server; what came first of its ready line and its end: (line, exit status or None, standard error)."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            line = process.stdout.readline()
            if line:
                process.terminate()
            status = process.wait(limit_s)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        return line, None if line else status, errors.read()


def check_refused(args, fault, way, what, *options):
    # full: what tables of several pages lose must not depend on how long a token takes
    line, status, errors = serve([args.faulty, "--fault", fault, "serve", MINI_MODEL, *SMALL, "--self-check", "full", *options])
    if line or status != 1:
        yield f"{line!r}, exit status {status}: {errors[-600:]}"
        return
    message = next((m for m in errors.splitlines() if "the self-check failed" in m), "")
    if not re.search(way, message) or not re.search(what, message) or "--self-check off" not in message:
        yield f"the message does not name '{way}' and '{what}': {message}"
    if "Sanitizer" in errors:
        yield errors[-2000:]


def check_served(limpid, model, *options):
    line, status, errors = serve([*limpid, "serve", model, *SMALL, *options])
    if not READY.fullmatch(line):
        yield f"{line!r}, exit status {status}: {errors[-600:]}"
    if ("self-check: " in errors) != ("off" not in options):
        yield f"was it checked? {errors[-600:]}"
    if "bit for bit" not in errors and "off" not in options:
        yield f"no report: {errors[-600:]}"
    if "Sanitizer" in errors:
        yield errors[-2000:]


def add_faults(checks, args):
    for fault, way, what in FAULTS:
        checks.add(fault, lambda f=fault, w=way, t=what: check_refused(args, f, w, t))
    for fault, what in DISK:
        def with_disk(f=fault, t=what):
            with tempfile.TemporaryDirectory() as folder:
                yield from check_refused(args, f, "back from --cache-dir", t, "--cache-dir", folder)
        checks.add(fault, with_disk)
    for fault in ("hit-position", "copy-loses-index"):
        checks.add(f"{fault}, unchecked",
                   lambda f=fault: check_served([args.faulty, "--fault", f], MINI_MODEL, "--self-check", "off"))


def add_sound(checks, args):
    small = ["dsa_sparse", "ds2_lite"] if args.sanitizer else sorted(n[:-5] for n in os.listdir(GOLDEN) if n.endswith(".gguf"))
    for name in small:
        checks.add(name, lambda n=name: check_served([args.limpid], os.path.join(GOLDEN, n + ".gguf")))
    checks.add("mini", lambda: check_served([args.limpid], MINI_MODEL))
    mini = [["--kv", "q8_0"], ["--speculate", "2"], ["--max-batch-tokens", "32", "--max-seqs", "8"], ["--route", "dense"],
            ["--ctx", "1"], ["--ctx", "64"]]
    for options in mini[:1] if args.sanitizer else mini:
        checks.add(f"mini {' '.join(options)}", lambda o=options: check_served([args.limpid], MINI_MODEL, *o))


# glm-5 in small; first_k_dense_replace and heads as they are.
RANDOM = ["hidden_size=512", "intermediate_size=512", "vocab_size=1024", "moe_intermediate_size=256", "n_routed_experts=16",
          "num_experts_per_tok=4"]


def check_random(args, folder, weights):
    """Whatever differs by one rounding grows from layer to layer: no reason to refuse."""
    path = os.path.join(folder, f"random-{weights}.gguf")
    run([args.limpid, "synth", "glm-5", path, "--layers", "12", "--type", weights, *(x for f in RANDOM for x in ("--set", f))])
    yield from check_served([args.limpid], path)
    os.remove(path)


def add_random(checks, args, folder):
    for weights in ["Q4_K_M"] if args.sanitizer else ["Q4_K_M", "Q2_K", "Q8_0"]:
        checks.add(f"random {weights}", lambda w=weights: check_random(args, folder, w))
    for path in args.model:
        checks.add(os.path.basename(path), lambda p=path: check_served([args.limpid], p))


def main():
    args = arguments(__doc__, [("--faulty", {"help": "a build whose faults can be planted"}),
                               ("--model", {"action": "append", "default": [], "help": "a further sound model"})])
    checks = Checks(args)
    note = "; no faults were planted: no --faulty build"
    if args.faulty and os.path.exists(args.faulty):
        add_faults(checks, args)
        note = ""
    with tempfile.TemporaryDirectory(prefix="limpid-selfcheck-") as folder:
        add_sound(checks, args)
        add_random(checks, args, folder)
        checks.finish(note)


if __name__ == "__main__":
    main()
