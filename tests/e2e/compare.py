#!/usr/bin/env python3
"""bench/compare.sh with peers that are scripts of known rates, in the words of the real ones: every measurement arrives in
the CSV, medians and the ratio to the better peer in the table. Usage: compare.py LIMPID [--sanitizer] [--only TEXT]"""
import csv
import os
import stat
import subprocess
import tempfile

import harness

SCRIPT = os.path.join(harness.ROOT, "bench", "compare.sh")
MODEL = os.path.join(harness.GOLDEN, "dsa_sparse.gguf")
OPTIONS = ["-p", "16", "-n", "4", "-d", "0,32", "-b", "1,2", "--rounds", "3", "--threads", "2"]

HEAD = """#!/usr/bin/env python3
import json, sys
if "--version" in sys.argv:
    print("version: 7 (abcdef)", file=sys.stderr)
    sys.exit()
open("peer.log", "w").write("written where it was started")
def value(name, default="0"):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
"""
# The rates tell by their digits what was asked for: tokens, and a hundredth of the depth.
LLAMA_BENCH = HEAD + """
rows = [dict(build_commit="abcdef", build_number=7, n_prompt=int(p), n_gen=int(n), n_depth=int(d),
             avg_ts=int(p) + int(n) + int(d) / 100)
        for d in value("-d").split(",") for p, n in ((value("-p"), 0), (0, value("-n"))) if int(p) + int(n)]
for r in rows:
    if "-d" not in sys.argv:
        del r["n_depth"]
print("loading", file=sys.stderr)
print(json.dumps(rows, indent=2))
"""
BATCHED = HEAD + """
print("main: n_kv_max = 256", file=sys.stderr)
print("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |")
print("|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|")
print(f"| {value('-npp')} | {value('-ntg')} | {value('-npl')} | 9 | 1.0 | 2.0 | 3.0 | 77.5 | 5.0 | 6.0 |")
"""
SWEEP = HEAD + """
dsa, piece = "-dsa" in sys.argv, int(value("-ub"))
for at in range(0, int(value("-c")), piece):
    print(json.dumps(dict(pp=piece, tg=int(value("-n")), n_kv=at, speed_pp=1000 + at + 5000 * dsa,
                          speed_tg=2000 + at + 5000 * dsa)), file=sys.stderr, flush=True)
"""
BROKEN = HEAD + "sys.exit('cannot load this model')\n"


def peers(folder, name, **programs):
    where = os.path.join(folder, name)
    os.mkdir(where)
    for program, text in programs.items():
        path = os.path.join(where, program.replace("_", "-"))
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return where


def compare(args, folder, *options, status=0):
    path = os.path.join(folder, "rows.csv")
    done = harness.run(["sh", SCRIPT, MODEL, "--limpid", args.limpid, "--csv", path, *OPTIONS, *options], status=status)
    if status:
        return done, []
    with open(path, newline="") as f:
        return done, list(csv.DictReader(f))


def rates_of(rows, engine):
    return {(r["test"], int(r["tokens"]), int(r["depth"]), int(r["batch"])): float(r["tok_s"])
            for r in rows if r["engine"] == engine and r["round"] == "2"}


def all_engines(args):
    with tempfile.TemporaryDirectory(prefix="limpid-compare-") as folder:
        ik = peers(folder, "ik", llama_bench=LLAMA_BENCH, llama_batched_bench=BATCHED, llama_sweep_bench=SWEEP)
        llama = peers(folder, "llama", llama_bench=LLAMA_BENCH, llama_batched_bench=BATCHED)
        done, rows = compare(args, folder, "--ik", ik, "--llama", llama, "--dsa")
        expected = {
            "ik_llama.cpp": {("prefill", 16, 0, 1): 16, ("decode", 4, 0, 1): 4, ("prefill", 16, 32, 1): 1032,
                             ("decode", 4, 32, 1): 2032, ("decode", 4, 0, 2): 77.5, ("decode", 4, 32, 2): 77.5},
            "ik_llama.cpp dsa": {("prefill", 16, 32, 1): 6032, ("decode", 4, 32, 1): 7032},
            "llama.cpp": {("prefill", 16, 0, 1): 16, ("decode", 4, 0, 1): 4, ("prefill", 16, 32, 1): 16.32,
                          ("decode", 4, 32, 1): 4.32, ("decode", 4, 0, 2): 77.5, ("decode", 4, 32, 2): 77.5}}
        for engine, rates in expected.items():
            if rates_of(rows, engine) != rates:
                yield f"{engine}: {rates_of(rows, engine)}, expected {rates}"
        if set(rates_of(rows, "limpid")) != set(expected["llama.cpp"]):
            yield f"limpid's tests are {sorted(rates_of(rows, 'limpid'))}"
        if any(folder in r["command"] or harness.ROOT in r["command"] for r in rows):
            yield "a command in the CSV names a folder of this machine"
        if {r["version"] for r in rows if r["engine"] != "limpid"} != {"version: 7 (abcdef)"}:
            yield f"versions {sorted({r['version'] for r in rows})}"
        if any(float(r["limit_gb_s"]) <= 0 for r in rows) or {r["round"] for r in rows} != {"1", "2", "3"}:
            yield "no bandwidth beside a row, or a round is missing"
        yield from check_ratio(done.stdout, rows)


def check_ratio(table, rows):
    """Of prefill behind 32 tokens the better peer is the sparse one; limpid's rate is the middle one of three."""
    mine = sorted(float(r["tok_s"]) for r in rows
                  if (r["engine"], r["test"], r["depth"]) == ("limpid", "prefill", "32"))[1]
    line = next((t.split() for t in table.splitlines() if t.split()[:4] == ["prefill", "16", "32", "1"]), None)
    if not line or line[4:] != [f"{mine:.2f}", "1032.00", "6032.00", "16.32", f"{mine / 6032:.2f}"]:
        yield f"the table has {line}, expected {mine:.2f} and its ratio to 6032"


def a_peer_that_fails(args):
    with tempfile.TemporaryDirectory(prefix="limpid-compare-") as folder:
        llama = peers(folder, "llama", llama_bench=BROKEN, llama_batched_bench=BATCHED)
        done, rows = compare(args, folder, "--llama", llama)
        if {r["engine"] for r in rows} != {"limpid"} or done.stderr.count("is left out from here on") != 1:
            yield f"engines {sorted({r['engine'] for r in rows})}, {done.stderr[-300:]!r}"
        if "cannot load this model" not in done.stderr:
            yield f"why it failed is not said: {done.stderr[-300:]!r}"


def no_peers(args):
    done = subprocess.run(["sh", SCRIPT, MODEL], capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"})
    if done.returncode != 3 or "cmake --build" not in done.stderr or "ik_llama.cpp" not in done.stderr:
        yield f"status {done.returncode}, {done.stderr[-300:]!r}"
    with tempfile.TemporaryDirectory(prefix="limpid-compare-") as folder:
        done, _ = compare(args, folder, "--llama", folder, status=1)
        if "has no llama-bench" not in done.stderr:
            yield f"a folder without programs: {done.stderr[-300:]!r}"


def main():
    args = harness.arguments(__doc__)
    checks = harness.Checks(args)
    for case in (all_engines, a_peer_that_fails, no_peers):
        checks.add(case.__name__, case, args)
    checks.finish()


if __name__ == "__main__":
    main()
