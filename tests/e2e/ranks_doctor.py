#!/usr/bin/env python3
"""limpid doctor over ranks: healthy ones are not accused, and of a faulty one rank, layer and check are named.

    ranks_doctor.py LIMPID --faulty LIMPID_FAULTY [--sanitizer] [--only TEXT]

The faulty one is one of two ranks: a kernel of it computes something else, what it adds to a sum is lost, its
stream changes by itself, its file is another in one tensor, or is not there; or it cannot take part at all.
"""
import json
import os
import shutil
import subprocess
import tempfile

import gguf_edit
from harness import MINI_MODEL, Checks, Golden, arguments, skip

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
OPTIONS = ["--quick", "--until", "ranks", "--threads", "1", "--json", "-"]


def report_of(command, status):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == status, f"exit status {done.returncode}, expected {status}: {done.stdout[-300:]} {done.stderr[-600:]}"
    return json.loads(done.stdout)


def healthy(limpid, path, layout):
    report = report_of([limpid, "doctor", path, *OPTIONS, *layout], 0)
    names = {c["name"]: c for c in report["checks"] if c["stage"] == "ranks"}
    n_ranks = layout[1]
    want = {"files of the ranks", "residual streams of the ranks", "layers of the ranks", "logits of the ranks", "division"}
    want |= {f"kernels of rank {i}" for i in range(1, n_ranks)} | {f"operations of rank {i}" for i in range(n_ranks)}
    if set(names) != want:
        yield f"the checks are {sorted(names)}"
    for name, check in names.items():
        if check["outcome"] not in ("ok", "note"):
            yield f"{name}: {check['outcome']}, {check['text']}"


def accused(command, check, *words):
    report = report_of(command, 1)
    faults = [f for f in report["faults"] if f["stage"] == "ranks"]
    if not faults or faults[0]["check"] != check:
        yield f"accused is {[(f['check'], f['advice']) for f in report['faults']]}, expected {check}"
    for word in words:
        if faults and word not in faults[0]["advice"]:
            yield f"no {word!r} in {faults[0]['advice']!r}"


def planted(limpid, faulty, fault, check, *words):
    command = [*MPIRUN, "-n", 1, limpid, "doctor", MINI_MODEL, *OPTIONS, ":", "-n", 1, faulty, "--fault", fault, "doctor", MINI_MODEL, *OPTIONS]
    yield from accused(command, check, *words)


def with_files(limpid, mine, theirs, check, *words):
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        command = MPIRUN[:]
        for rank, source in enumerate((mine, theirs)):
            os.mkdir(f"{folder}/{rank}")
            if source:
                os.symlink(source, f"{folder}/{rank}/m.gguf")
            command += [*([":"] if rank else []), "-n", 1, "-wdir", f"{folder}/{rank}", limpid, "doctor", "m.gguf", *OPTIONS]
        yield from accused(command, check, *words)


def other_tensor(limpid):
    """One value of one large tensor."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        g = gguf_edit.read(MINI_MODEL)
        t = g.tensor("blk.2.attn_output.weight")
        t.data = bytes([t.data[0] ^ 1]) + t.data[1:]
        path = os.path.join(folder, "other.gguf")
        with open(path, "wb") as out:
            out.write(g.bytes())
        yield from with_files(limpid, MINI_MODEL, path, "files of the ranks", "Rank 1 on", "blk.2.attn_output.weight", "1 of 140")


def cannot_join(limpid, faulty):
    """Rank 1 ends all at once, where the others would have missed it after 30 s, and says why."""
    options = ["run", MINI_MODEL, "-p", "x", "-n", "1", "--threads", "1"]
    command = [*MPIRUN, "-n", "1", limpid, *options, ":", "-n", "1", faulty, "--fault", "rank-no-thread", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode == 0 or "rank 1 of 2 cannot take part" not in done.stderr or "cannot start a thread" not in done.stderr:
        yield f"exit status {done.returncode}: {done.stderr[-600:]!r}"


def main():
    args = arguments(__doc__, [("--faulty", {"required": True})])
    if not shutil.which("mpirun"):
        skip("mpirun is missing (Debian: openmpi-bin)")
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPI leaves memory behind
    launched = subprocess.run([*MPIRUN, "-n", "2", args.limpid, "--version"], capture_output=True, text=True, timeout=120)
    if launched.returncode:
        skip(f"mpirun cannot start two processes here: {launched.stderr.strip()[-300:]}")
    probe = subprocess.run([*MPIRUN, "-n", "1", args.limpid, "doctor", MINI_MODEL, "--until", "file"], capture_output=True, text=True)
    if "has no MPI" in probe.stderr:
        skip("this build has no MPI")
    checks = Checks(args)
    checks.add("healthy, 2", healthy, args.limpid, MINI_MODEL, ["--ranks", 2])
    if not args.sanitizer:
        checks.add("healthy, 4 in 2 stages, whole", healthy, args.limpid, MINI_MODEL, ["--ranks", 4, "--pipeline", 2, "--shard-experts", "whole"])
        checks.add("healthy, grouped queries", healthy, args.limpid, Golden("glm45").path, ["--ranks", 3])
        checks.add("another tensor", other_tensor, args.limpid)
        checks.add("a sum", planted, args.limpid, args.faulty, "rank-loses-part", "layers of the ranks", "Layer 0, divided over ranks 0 to 1")
        checks.add("a kernel", planted, args.limpid, args.faulty, "matmul-last-outputs", "kernels of rank 1", "Rank 1 on", "matmul")
        checks.add("an operation", planted, args.limpid, args.faulty, "rms-norm-eps", "operations of rank 1", "Rank 1 on", "rms_norm")
    checks.add("a stream", planted, args.limpid, args.faulty, "rank-own-stream", "residual streams of the ranks", "Rank 1 on", "layer 0")
    checks.add("cannot join", cannot_join, args.limpid, args.faulty)
    checks.add("no file", with_files, args.limpid, MINI_MODEL, None, "ranks", "rank 1 on", "cannot open")
    checks.finish()


if __name__ == "__main__":
    main()
