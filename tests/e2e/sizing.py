#!/usr/bin/env python3
"""`tools/sizing.py` and what it is made of: hollow files have the plan of whole ones, and a rank's plan is part of the whole's.

    sizing.py LIMPID [--sanitizer] [--only TEXT]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import ROOT, Checks, arguments, run

TINY = ["tiny", "--layers", "2", "--set", "vocab_size=512"]


def inspect(limpid, path, *options):
    return json.loads(run([limpid, "inspect", path, "--json", "--repack", "off", "--ctx", "1000", *options]).stdout)


def hollow(limpid, folder):
    """The plan does not depend on what the weights are; they take no room."""
    whole, empty = (os.path.join(folder, n) for n in ("whole.gguf", "empty.gguf"))
    run([limpid, "synth", TINY[0], whole, *TINY[1:]])
    said = run([limpid, "synth", TINY[0], empty, *TINY[1:], "--hollow"]).stdout
    if "take disk space" not in said:
        yield f"said {said!r}"
    a, b = (inspect(limpid, path) for path in (whole, empty))
    for key in ("bytes", "types", "memory"):
        if key == "memory":
            for x in (a, b):
                [d.pop("available_bytes") for d in x[key]["devices"]]
        if a[key] != b[key]:
            yield f"{key}: {a[key]} and hollow {b[key]}"
    if os.stat(empty).st_blocks * 512 > os.path.getsize(empty) / 4:
        yield f"{os.stat(empty).st_blocks * 512} bytes of {os.path.getsize(empty)} lie on the disk"


def two_types(limpid, folder):
    path = os.path.join(folder, "types.gguf")
    run([limpid, "synth", TINY[0], path, *TINY[1:], "--hollow", "--type", "Q8_0", "--experts", "Q2_K,Q3_K"])
    types = {g["role"]: g["type"] for g in inspect(limpid, path)["tensor_groups"]}
    have = [types[f"blk.*.ffn_{n}_exps.weight"] for n in ("gate", "up", "down")]
    if have != ["Q2_K", "Q2_K", "Q3_K"]:
        yield f"experts are {have}"
    for bad in ("Q2_K,", ",Q3_K", "Q2_K,Q3_K,Q4_K", "Q99"):
        run([limpid, "synth", TINY[0], path, "--hollow", "--force", "--experts", bad], status=1)


def ranks(limpid, folder):
    """One rank has the whole; of several each has the cache, as every head reads it."""
    path = os.path.join(folder, "ranks.gguf")
    run([limpid, "synth", TINY[0], path, *TINY[1:], "--hollow"])
    for n in (1, 2):
        plan = inspect(limpid, path, "--ranks", str(n))
        for r in plan["ranks"]:
            if r["kv_bytes_per_token"] != plan["memory"]["kv_bytes_per_token"]:
                yield f"{n} ranks: {r['kv_bytes_per_token']} bytes a token, the whole {plan['memory']['kv_bytes_per_token']}"
    least = plan["memory"]["mapped_bytes"] / 2
    if any(r["weight_bytes"] < least for r in plan["ranks"]):
        yield f"two ranks have {[r['weight_bytes'] for r in plan['ranks']]}, half of the whole is {least}"


def tables(limpid, folder):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "sizing.py"), limpid, "--models", "tiny", "--mixes", "Q8_0,Q4_K_M",
                           "--set", "num_hidden_layers=2", "--folder", folder], capture_output=True, text=True, timeout=300)
    if done.returncode:
        yield done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    if len(rows) != 12 or any(len(rows[i]) != len(rows[i + 1]) for i in (0, 2, 4, 6, 8, 10)):
        yield f"tables of other rows: {done.stdout}"
    figures = [c for r in rows for c in r[2:] if re.match(r" \d+(\.\d)?(:.*)? $", c)]
    if len(figures) < 16:
        yield f"few figures: {done.stdout}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-sizing-") as folder:
        for function in (hollow, two_types, ranks, tables):
            checks.add(function.__name__, function, args.limpid, folder)
        checks.finish()


if __name__ == "__main__":
    main()
