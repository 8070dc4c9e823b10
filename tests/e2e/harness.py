"""What the end-to-end tests share: running limpid, reading its arrays and the references, checking in
parallel, and the closing verdict.

A test is `NAME.py LIMPID [--sanitizer] [--only TEXT]`. It collects cases with `Checks.add`, each a
function that returns (or yields) the faults it found as sentences, runs them on all CPUs, prints what
failed and exits with 0, 1, or 77 (skipped: the line says why).
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "tests", "golden")
MINI = os.path.join(ROOT, "tests", "mini")
MINI_MODEL = os.path.join(ROOT, "models", "mini-glm-dsa.gguf")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


try:
    import numpy as np
except ImportError:
    skip("the Python package numpy is missing (Debian: python3-numpy)")


def arguments(description, more=()):
    p = argparse.ArgumentParser(description=description.strip().split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("--sanitizer", action="store_true", help="a reduced matrix, for a slow build")
    p.add_argument("--only", default="", help="run only the cases whose name contains this")
    for name, options in more:
        p.add_argument(name, **options)
    return p.parse_args()


class Failed(Exception):
    """limpid did not do what the case needs in order to go on."""


def run(command, stdin=None, status=0, timeout=1200):
    """Runs a command that must end with `status`; returns the finished process, text in UTF-8."""
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, text=True, encoding="utf-8",
                          errors="replace", timeout=timeout)
    if done.returncode != status:
        raise Failed(f"exit status {done.returncode}, expected {status}: {done.stderr.strip()[:2000]}")
    return done


def not_wrote(done, out, what="tensors"):
    """The line that every file tool ends with: a fault as a sentence, or None."""
    m = re.match(rf"wrote {re.escape(str(out))}: \d+ {what}, ([\d.]+) (bytes|kB|MB|GB)\b.*, in [\d.]+ s \([^()]*/s[^()]*\)",
                 done.stdout.splitlines()[-1] if done.stdout else "")
    if not m:
        return f"the last line is {done.stdout[-300:]!r}"
    size, unit = os.path.getsize(out), {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[m[2]]
    if abs(float(m[1]) * unit - size) > 0.0501 * unit or float(m[1]) == 0:
        return f"the last line says {m[1]} {m[2]} of {size} bytes"
    return None


def ids_text(ids):
    return ",".join(str(int(i)) for i in ids)


class Dump:
    """One `limpid dump`: arrays by name, greedy ids, the bytes of the logits file, and the messages."""

    def __init__(self, limpid, model, tokens, *options, want=("logits",), greedy=0, trace=False):
        with tempfile.TemporaryDirectory(prefix="limpid-dump-") as folder:
            command = [limpid, "dump", model, "--tokens", f"@{folder}/tokens"]
            with open(f"{folder}/tokens", "w") as f:
                f.write(ids_text(tokens))
            for name in want:
                command += ["--" + name, f"{folder}/{name}.npy"]
            if greedy:
                command += ["--greedy", greedy]
            if trace:
                command += ["--trace", f"{folder}/trace"]
            if "--threads" not in options:  # as many processes run as there are CPUs
                command += ["--threads", 1]
            done = run(command + list(options))
            self.messages = done.stderr
            self.arrays = {name: np.load(f"{folder}/{name}.npy") for name in want}
            self.greedy = json.loads(done.stdout) if greedy else None
            self.trace = open(f"{folder}/trace", encoding="utf-8").read().splitlines() if trace else None

    def __getattr__(self, name):
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None


def load_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    types = {"F32": "<f4", "I32": "<i4"}
    return {name: np.frombuffer(data, types[t["dtype"]], offset=8 + n + t["data_offsets"][0],
                                count=int(np.prod(t["shape"]))).reshape(t["shape"])
            for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


class Golden:
    """A model of tests/golden with its references (README.md there)."""

    def __init__(self, name):
        self.name, self.path = name, os.path.join(GOLDEN, name + ".gguf")
        with open(os.path.join(GOLDEN, name + ".json")) as f:
            self.info = json.load(f)
        self.ref = load_safetensors(os.path.join(GOLDEN, name + ".safetensors"))
        self.tokens, self.prompt, self.greedy = self.ref["tokens"], self.info["prompt"], self.info["greedy"]
        self.is_mla = self.info["arch"] in ("glm-dsa", "deepseek2", "deepseek32")
        self.has_indexer = "topk" in self.ref
        # selects: for some position the indexer leaves keys out
        self.selects = self.has_indexer and bool(np.isfinite(self.ref["topk_margin"]).any())


def golden_names():
    return sorted(n[:-5] for n in os.listdir(GOLDEN) if n.endswith(".gguf"))


LARGEST = {}  # difference that too_far has seen, by what was compared


def too_far(what, got, want, tolerance):
    """A fault as a sentence, or None."""
    if got.shape != want.shape:
        return f"{what} has shape {got.shape}, expected {want.shape}"
    if not np.isfinite(got).all():
        return f"{what} holds values that are not finite"
    far = np.abs(got.astype(np.float64) - want).max() if got.size else 0.0
    LARGEST[what] = max(LARGEST.get(what, 0.0), far)
    return f"{what} is off by {far:.2e}, allowed {tolerance:.0e}" if far > tolerance else None


class Checks:
    def __init__(self, args):
        self.args, self.cases = args, []

    def add(self, name, function, *arguments_, **named):
        if self.args.only in name:
            self.cases.append((name, lambda: function(*arguments_, **named)))

    def finish(self, note=""):
        """Runs all cases, prints the failures and the count, and exits."""
        def one(case):
            try:
                return [f for f in (case[1]() or ()) if f]
            except (Failed, subprocess.TimeoutExpired) as e:
                return [str(e)]
            except Exception as e:  # a broken test is a failed test, and the others still run
                return [f"the test itself failed: {type(e).__name__}: {e}"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(one, self.cases))
        failed = 0
        for (name, _), faults in zip(self.cases, results):
            failed += bool(faults)
            for fault in faults:
                print(f"FAIL {name}: {fault}")
        print(f"{len(self.cases)} cases, {failed} failed{note}")
        sys.exit(1 if failed or not self.cases else 0)
