#!/usr/bin/env python3
"""Memory of a model in several processes of one machine: the sum of their shares against one process.

    memory.py LIMPID MODEL [--ranks 1 2 3 4] [--prefetch] [--attention-parallel heads|data] [--csv FILE]

For each number of ranks a server answers one request; then the proportional set sizes of its processes are added
(/proc/PID/smaps_rollup: a page that N processes map counts 1/N in each): pages of the file, and the processes' own.
The largest sum of own memory over that of one process, divided by the ranks more, is the overhead of a rank.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import time
import urllib.request

OPTIONS = ["--threads", "1", "--self-check", "off", "--ctx", "4096", "--repack", "off", "--port", "0"]


def processes(marker):
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/cmdline") as c, open(f"{path}/comm") as name:
                if marker in c.read().split("\0") and name.read().strip() == "limpid":
                    yield path
        except OSError:
            continue  # it has ended


def shares(path):
    kinds = {}
    with open(f"{path}/smaps_rollup") as f:
        for line in f.readlines()[1:]:
            name, size, *_ = line.split()
            kinds[name] = int(size) * 1024
    return kinds["Pss_File:"], kinds["Pss_Anon:"] + kinds["Pss_Shmem:"]


def kv_bytes(limpid, model, n, args):
    """Of all ranks together, as planned."""
    options = ["--ctx", "4096", "--kv-tokens", str(args.kv_tokens), "--ranks", str(n), "--attention-parallel", args.attention_parallel]
    plan = subprocess.run([limpid, "inspect", model, "--json", *options], capture_output=True, text=True, check=True).stdout
    return sum(rank["kv_bytes"] for rank in json.loads(plan)["ranks"])


def measure(limpid, model, n, options):
    marker = f"memory-{os.getpid()}-{n}"
    command = [limpid, "serve", model, *OPTIONS, *options, "--alias", marker, *(["--ranks", str(n)] if n > 1 else [])]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = next(word for line in server.stderr for word in line.split() if word.startswith("http://"))
        body = json.dumps({"prompt": "The river that runs through the old town rises in the hills. " * 20, "max_tokens": 64, "ignore_eos": True})
        request = urllib.request.Request(f"{url.rstrip('/.')}/v1/completions", body.encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=600).read()
        found = [shares(p) for p in processes(marker)]
    finally:
        server.terminate()
        server.wait(60)
    found = [s for s in found if sum(s) > 12e6] if n > 1 else found  # the process that waits for mpirun has its code alone
    assert len(found) == n, f"{len(found)} processes, expected {n}"
    return sum(f for f, _ in found), sum(a for _, a in found)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("model")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    p.add_argument("--prefetch", action="store_true", help="each rank reads its part into memory of its own")
    p.add_argument("--attention-parallel", default="heads", help="data: each rank has the cache of its own sequences")
    p.add_argument("--kv-tokens", type=int, default=4096)
    p.add_argument("--csv")
    args = p.parse_args()
    rows = []
    for n in args.ranks:
        options = ["--kv-tokens", str(args.kv_tokens), *(["--attention-parallel", args.attention_parallel] if n > 1 else [])]
        file_bytes, own = measure(args.limpid, args.model, n, [*options, *(["--prefetch"] if args.prefetch else [])])
        rows.append((n, file_bytes, own))
        print(f"{n} ranks: {file_bytes / 1e6:.1f} MB of the file, {own / 1e6:.1f} MB of their own; KV caches planned: "
              f"{kv_bytes(args.limpid, args.model, n, args) / 1e6:.1f} MB", flush=True)
        time.sleep(1)
    base = rows[0]
    more = [(own - base[2]) / (n - base[0]) for n, _, own in rows[1:]]
    if more:
        print(f"a rank more takes {max(more) / 1e6:.1f} MB at most (with its copy of the KV cache, where every rank has one; pages that were never written take no memory)")
    if args.csv:
        with open(args.csv, "w") as out:
            out.write("date,model,ranks,file_bytes,own_bytes\n")
            for n, file_bytes, own in rows:
                out.write(f"{time.strftime('%Y-%m-%d')},{os.path.basename(args.model)},{n},{file_bytes},{own}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
