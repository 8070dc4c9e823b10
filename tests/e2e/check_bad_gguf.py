#!/usr/bin/env python3
"""Runs limpid over the damaged files of make_bad_gguf.py.

    check_bad_gguf.py LIMPID GOOD.gguf|DIR [--container] [--sanitizer] [--only TEXT] [-v]

GOOD.gguf: each case is made, run and deleted in turn. DIR: a folder that make_bad_gguf.py wrote.
Each refusal must be exit status 1 and exactly one line on standard error, "limpid: error: ...", that
names the thing; no signal, no sanitizer report, under 1 s (5 s with --sanitizer) and 100 MB. Controls
must give status 0. --container leaves out what only a loading command can see.
LIMPID_SANITIZER=1 in the environment is the same as --sanitizer.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import make_bad_gguf

MAX_LINE_BYTES, MAX_RSS_MB = 1100, 100
PREFIX = "limpid: error: "


def run(command, limit_s):
    """(exit status or -signal or None when it ran too long, stderr, seconds, peak MB)."""
    with tempfile.TemporaryFile() as err:
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        status = None
        while True:
            pid, code, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                status = os.waitstatus_to_exitcode(code)
                break
            if time.monotonic() - start > limit_s + 5:
                child.kill()
                _, _, usage = os.wait4(child.pid, 0)
                break
            time.sleep(0.001)
        seconds = time.monotonic() - start
        child.returncode = 0  # reaped above
        err.seek(0)
        return status, err.read(1 << 20), seconds, usage.ru_maxrss / 1024


def faults(entry, command, limit_s, sanitizer):
    status, err, seconds, mb = run(command, limit_s)
    text = err.decode("utf-8", "replace")
    if status is None or seconds > limit_s:
        yield f"took {seconds:.1f} s"
    if status is not None and status < 0:
        yield f"died of signal {-status}"
    if "Sanitizer" in text or "runtime error" in text:
        yield "sanitizer report"
    if not sanitizer and mb > MAX_RSS_MB:
        yield f"used {mb:.0f} MB"
    want = 0 if entry["refused_by"] == "none" else 1
    if status != want:
        yield f"exit status {status}, expected {want}"
    if want == 0:
        return
    if text.count("\n") != 1 or not text.endswith("\n") or not text.startswith(PREFIX) or len(text) <= len(PREFIX) + 1:
        yield f"standard error should be one line '{PREFIX}...': {text[:300]!r}"
    if len(err) >= MAX_LINE_BYTES:
        yield f"the message has {len(err)} bytes"
    if not any(n.lower() in text.lower() for n in entry["needles"]):
        yield f"the message names none of {entry['needles']}: {text[:300]!r}"


def commands(binary, path, entry, out, container):
    yield [binary, "inspect", path], entry["refused_by"] != "dump"
    yield [binary, "dump", path, "--tokens", "1,2,3", "--logits", out], not (container and entry["refused_by"] != "any")


def entries(source):
    """(entry, folder) of each case; a made case is deleted before the next."""
    if os.path.isdir(source):
        with open(os.path.join(source, "manifest.json")) as f:
            for entry in json.load(f):
                yield entry, source
        return
    for case in make_bad_gguf.cases(source):
        with tempfile.TemporaryDirectory(prefix="limpid-bad-") as folder:
            make_bad_gguf.write(case, folder)
            yield case.entry(), folder


def main():
    p = argparse.ArgumentParser()
    p.add_argument("limpid")
    p.add_argument("source")
    p.add_argument("--container", action="store_true")
    p.add_argument("--sanitizer", action="store_true", default=bool(os.environ.get("LIMPID_SANITIZER")))
    p.add_argument("--only", default="")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    n_cases = n_runs = n_bad = 0
    with tempfile.TemporaryDirectory(prefix="limpid-out-") as out:
        for entry, folder in entries(a.source):
            if a.only not in entry["name"] or (a.container and entry["refused_by"] == "dump"):
                continue
            n_cases += 1
            path = os.path.join(folder, entry["open"])
            for command, wanted in commands(a.limpid, path, entry, os.path.join(out, "logits.npy"), a.container):
                if not wanted:
                    continue
                n_runs += 1
                found = list(faults(entry, command, 5 if a.sanitizer else 1, a.sanitizer))
                n_bad += bool(found)
                for f in found:
                    print(f"FAIL {entry['name']} ({entry['what']}), limpid {command[1]}: {f}")
                if a.v and not found:
                    print(f"ok   {entry['name']}, limpid {command[1]}")
    print(f"{n_cases} cases, {n_runs} runs, {n_bad} failed")
    sys.exit(1 if n_bad or not n_cases else 0)


if __name__ == "__main__":
    main()
