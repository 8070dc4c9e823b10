#!/usr/bin/env python3
"""Two ranks on one GPU: sums through the hosts' memory, and on the device by a library that stands in for NCCL (which
takes no GPU twice).

    ranks_gpu.py LIMPID --faulty LIMPID_FAULTY --stand-in FOLDER [--only TEXT]

- every golden model, both ways: logits and hidden states within 1e-4 of the float64 reference, the same greedy continuation
- the same with experts whole on a rank, sequences divided and in stages, of models with and without an indexer
- with --deterministic both ways give the same bits, for few rows and for many
- sequences divided, several at a time: log-probabilities and texts of one process
- two processes on one GPU are told that their sums are slow, and why
- a rank that is killed: the other gives up what the GPU waits for, and ends with the reason
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from harness import MINI_MODEL, Checks, Dump, Golden, arguments, golden_names, np, run, skip, too_far
from ranks import divides_sequences, process_of

TOLERANCE = 1e-4
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2"


LAYOUTS = {  # of two ranks
    "whole": ["--shard-experts", "whole"], "data": ["--attention-parallel", "data"],
    "data, whole": ["--attention-parallel", "data", "--shard-experts", "whole"], "stages": ["--pipeline", 2],
}
PLAIN = ["--backend", "cuda", "--kv", "f32", "--threads", "1", "--self-check", "off"]
DIVIDED = ["ds3", "dsa_shared", "glm45"]  # of LAYOUTS


def golden(program, g, *options):
    want = ["logits", "hidden"] + (["topk"] if g.has_indexer else [])
    d = Dump(program, g.path, g.tokens, "--backend", "cuda", "--chunk", 7, *options, want=want)
    yield too_far("logits", d.logits, g.ref["logits_f64"], TOLERANCE)
    yield too_far("hidden", d.hidden, g.ref["hidden"], TOLERANCE)
    if "topk" in want and not np.array_equal(d.topk, g.ref["topk"]):
        yield "the selected keys differ from the reference"
    d = Dump(program, g.path, g.prompt, "--backend", "cuda", *options, want=(), greedy=len(g.greedy))
    if d.greedy != g.greedy:
        yield f"greedy continuation {d.greedy}, expected {g.greedy}"


def same_bits(hosts, device, path, tokens, *options):
    a, b = (Dump(program, path, tokens, "--backend", "cuda", "--deterministic", *options, greedy=12)
            for program in (hosts, device))
    if not np.array_equal(a.logits.view(np.uint32), b.logits.view(np.uint32)):
        yield f"the logits differ by up to {np.abs(a.logits - b.logits).max()}"
    if a.greedy != b.greedy:
        yield f"greedy continuations {a.greedy} and {b.greedy}"


def is_told(hosts):
    done = run([hosts, "run", MINI_MODEL, "--backend", "cuda", "-p", "x", "-n", 1])
    if "go through their hosts' memory" not in done.stderr or "rank 1 has a GPU that another rank has too" not in done.stderr:
        yield f"the messages are {done.stderr[-600:]!r}"


def is_killed(device):
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        marker = os.path.join(folder, "t.jsonl")
        options = ["-p", "Once", "-n", 100000, "--ctx", 8192, "--ignore-eos", "--backend", "cuda", "--rank-timeout", 5, "--trace", marker]
        process = subprocess.Popen([str(x) for x in [device, "run", MINI_MODEL, *options]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdout.read(100)  # it gives tokens
            began = time.monotonic()
            os.kill(process_of(1, marker), signal.SIGKILL)
            _, messages = process.communicate(timeout=60)
        finally:
            process.kill()
        if process.returncode == 0 or "rank 1" not in messages.decode():
            yield f"exit status {process.returncode} after {time.monotonic() - began:.1f} s: {messages[-600:]}"


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


def main():
    args = arguments(__doc__, [("--faulty", dict(required=True)), ("--stand-in", dict(required=True))])
    if not shutil.which("mpirun"):
        skip("mpirun is missing (Debian: openmpi-bin)")
    probe = subprocess.run([args.limpid, "run", MINI_MODEL, "--backend", "cuda", "-p", "x", "-n", "1"], capture_output=True, text=True)
    if probe.returncode:
        skip(probe.stderr.strip()[-200:])
    probe = subprocess.run([*MPIRUN.split(), args.limpid, "run", MINI_MODEL, "-p", "x", "-n", "1"], capture_output=True, text=True)
    if probe.returncode:
        skip(f"two ranks do not start here: {probe.stderr.strip()[-200:]}")
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        hosts = script(folder, "hosts", f'exec {MPIRUN} "{args.limpid}" "$@"')
        device = script(folder, "device", f'LD_LIBRARY_PATH="{args.stand_in}:$LD_LIBRARY_PATH" exec {MPIRUN} -x LD_LIBRARY_PATH '
                                          f'"{args.faulty}" --fault ranks-share-gpu "$@"')
        told = run([device, "run", MINI_MODEL, "--backend", "cuda", "-p", "x", "-n", 1]).stderr
        checks = Checks(args)
        checks.add("the stand-in is used", lambda: [] if told.count("stand-in for NCCL: rank") == 2 and "hosts' memory" not in told else [told])
        models = [Golden(n) for n in golden_names()]
        for g in models:
            checks.add(f"{g.name}, hosts", golden, hosts, g)
            checks.add(f"{g.name}, device", golden, device, g)
            checks.add(f"{g.name}, bits", same_bits, hosts, device, g.path, g.tokens)
            for name, options in LAYOUTS.items() if g.name in DIVIDED else ():
                checks.add(f"{g.name}, {name}, hosts", golden, hosts, g, *options)
                checks.add(f"{g.name}, {name}, device", golden, device, g, *options)
                checks.add(f"{g.name}, {name}, bits", same_bits, hosts, device, g.path, g.tokens, *options)
        long_prompt = [100 + i * 7 % 900 for i in range(700)]
        checks.add("many rows, bits", same_bits, hosts, device, MINI_MODEL, long_prompt, "--chunk", 700)
        for name, options in LAYOUTS.items():
            checks.add(f"many rows, {name}, bits", same_bits, hosts, device, MINI_MODEL, long_prompt, "--chunk", 700, *options)
        for name in ("data", "data, whole"):
            for kind, options in ("", PLAIN), (", fixed", [*PLAIN, "--deterministic"]):
                checks.add(f"sequences, {name}{kind}", divides_sequences, device, 2, [*options, *LAYOUTS[name]], options, 64, args.limpid)
        checks.add("one GPU twice", is_told, hosts)
        checks.add("a rank is killed", is_killed, device)
        checks.finish()


if __name__ == "__main__":
    main()
