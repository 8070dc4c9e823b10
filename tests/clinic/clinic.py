#!/usr/bin/env python3
"""The doctor's clinic: plants one fault at a time into good models and into the engine, and looks whether the doctor names it.

    clinic.py LIMPID [--faulty LIMPID_FAULTY] [--quick] [--only TEXT] [--markdown FILE] [--keep DIR] [--every N]
        [--sanitizer] [--downloads DIR]

LIMPID_FAULTY is the build whose engine can go wrong (tests/clinic/faults.def). A fault is found when the first fault that the doctor
reports is of the right layer and names the right tensor, key or operation; every other fault it reports must name the same. Sound
models must be called healthy. The doctor is asked quickly first (doctor --quick), and in full where that finds nothing; sound
models in both ways. --quick leaves the full runs out, --every N takes every Nth case, --sanitizer asks quickly alone and does not
count what that misses. --markdown writes the table of docs/clinic.md.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, HERE)
import gguf_edit  # noqa: E402
import file_faults  # noqa: E402

# (fault of faults.def, layer or None for any, what must be named)
ENGINE = [
    ("matmul-odd-rows", None, r"matmul"),
    ("matmul-last-outputs", None, r"matmul"),
    ("head-matmul-last-head", None, r"head_matmul"),
    ("embed-next-row", None, r"embed"),
    ("rms-norm-eps", None, r"rms_norm"),
    ("layer-norm-no-bias", None, r"layer_norm"),
    ("rope-kernel-pairing", None, r"rope"),
    ("rope-kernel-position", None, r"rope"),
    ("silu-half", None, r"silu_mul"),
    ("cache-write-last", None, r"cache_write"),
    ("absorbed-scale", None, r"mla_absorbed"),
    ("absorbed-half", None, r"mla_absorbed"),
    ("absorbed-newest", None, r"mla_absorbed"),
    ("expanded-newest", None, r"mla_expanded"),
    ("expanded-chunk", None, r"mla_expanded"),
    ("expanded-last-head", None, r"mla_expanded"),
    ("select-drops-best", None, r"index_select"),
    ("select-half", None, r"index_select"),
    ("router-no-bias", None, r"router"),
    ("router-softmax", None, r"router"),
    ("experts-weights-order", None, r"experts"),
    ("experts-lose-last", None, r"experts"),
    ("main-rope-style", None, r"rope"),
    ("index-rope-style", None, r"index"),
    ("index-shared", None, r"index"),
    ("index-top-k", None, r"index|top.k"),
    ("chunk-position", None, r"chunk|position"),
    ("hit-position", None, r"prefix|position"),
    ("copy-loses-index", None, r"prefix|index"),
    ("disk-loses-index", None, r"disk|index"),
    ("disk-loses-latents", 4, r"disk|latent"),
    ("page-table-swap", None, r"page"),
    ("batch-first-pages", None, r"batch|pages"),
]


def base_path(base):
    if base == "mini":
        return os.path.join(ROOT, "models", "mini-glm-dsa.gguf")
    return os.path.join(ROOT, "tests", "golden", base.split(":")[1] + ".gguf")


class Case:
    def __init__(self, kind, name, program, model, layer=None, what=None):
        self.kind, self.name, self.program, self.model, self.layer, self.what = kind, name, program, model, layer, what


def examine(case, quick):
    """The doctor's report, and the seconds it took."""
    command = case.program + ["doctor", case.model, "--json", "-"] + (["--quick"] if quick else [])
    start = time.time()
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    seconds = time.time() - start
    if done.returncode not in (0, 1):
        return None, seconds, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"
    return json.loads(done.stdout), seconds, done.stderr


def names_it(fault, case):
    right_layer = case.layer is None or fault["layer"] == case.layer
    return right_layer and re.search(case.what, fault["op"]) is not None


def judge(case, report):
    """'found', 'missed' or 'accused something innocent', and what was said."""
    if case.what is None:
        return ("healthy" if report["healthy"] and not report["faults"] else "accused something innocent"), report["verdict"]
    faults = report["faults"]
    if not faults:
        return "missed", report["verdict"]
    innocent = [f for f in faults if not names_it(f, case)]
    if innocent:
        f = innocent[0]
        return "accused something innocent", f"[{f['check']}] layer {f['layer']}, {f['op']}: {f['advice']}"
    return "found", report["verdict"]


def make_cases(args, folder):
    good = {}
    for name, base, plant, layer, what in file_faults.FAULTS:
        if args.only and args.only not in name:
            continue
        if base not in good:
            good[base] = gguf_edit.read(base_path(base))
        g = good[base].copy()
        plant(g)
        path = os.path.join(folder, re.sub(r"[^a-z0-9]+", "-", name.lower()) + ".gguf")
        with open(path, "wb") as out:
            out.write(g.bytes())
        yield Case("file", name, [args.limpid], path, layer, what)
        if not args.keep:
            os.remove(path)
    containers = file_faults.container_faults(gguf_edit.read(base_path("golden:dsa_sparse")), gguf_edit.read(base_path("golden:dsa_dense")))
    for name, files, first, what in containers:
        if args.only and args.only not in name:
            continue
        where = tempfile.mkdtemp(dir=folder)
        for file, data in files.items():
            with open(os.path.join(where, file), "wb") as out:
                out.write(data)
        yield Case("file", name, [args.limpid], os.path.join(where, first), None, what)
    meanings = dict(re.findall(r'FAULT\("([^"]+)", "([^"]+)"\)', open(os.path.join(HERE, "faults.def")).read()))
    for name, layer, what in ENGINE:
        if args.faulty and (not args.only or args.only in name):
            yield Case("engine", f"{name}: {meanings[name]}", [args.faulty, "--fault", name], base_path("mini"), layer, what)
    sound = [base_path("mini")] + sorted(glob.glob(os.path.join(ROOT, "tests", "golden", "*.gguf")))
    sound += glob.glob(os.path.join(args.downloads, "*.gguf")) if args.downloads else []
    for path in sound:
        if not args.only or args.only in os.path.basename(path):
            yield Case("sound", os.path.basename(path), [args.limpid], path)


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(rows):
    sick = [r for r in rows if r[0].kind != "sound"]
    sound = [r for r in rows if r[0].kind == "sound"]
    found = sum(r[1] == "found" for r in sick)
    innocent = sum(r[1] == "accused something innocent" for r in rows)
    out = ["# The clinic", "",
           "Made by `tests/clinic/clinic.py`: one fault at a time is planted into a good model file or into the engine "
           "(`limpid-faulty`), and the doctor is asked. Do not edit.", "",
           f"{found} of {len(sick)} faults found, {innocent} innocent accused; {sum(r[1] == 'healthy' for r in sound)} of {len(sound)} "
           "sound models called healthy.", ""]
    for kind, title in (("file", "Faults in files"), ("engine", "Faults in the engine"), ("sound", "Sound models")):
        out += [f"## {title}", "", "| fault | outcome | verdict | time |" if kind != "sound" else "| model | outcome | verdict | time |",
                "|---|---|---|---|"]
        out += [f"| {cell(c.name)} | {outcome} | {cell(text)} | {seconds} |" for c, outcome, text, seconds in rows if c.kind == kind]
        out.append("")
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("limpid")
    p.add_argument("--faulty")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", help="only what has this in its name")
    p.add_argument("--markdown")
    p.add_argument("--keep", help="folder that keeps the spoilt files")
    p.add_argument("--every", type=int, default=1, help="take every Nth case")
    p.add_argument("--sanitizer", action="store_true", help="every twelfth case alone")
    p.add_argument("--downloads", help="folder with further sound models")
    args = p.parse_args()
    rows, folder = [], args.keep or tempfile.mkdtemp(prefix="clinic-")
    os.makedirs(folder, exist_ok=True)
    for number, case in enumerate(make_cases(args, folder)):
        if number % args.every:
            continue
        for quick in (True,) if args.quick or args.sanitizer else (True, False):
            report, seconds, said = examine(case, quick)
            outcome, text = judge(case, report) if report else ("broken", said)
            if outcome not in ("missed", "healthy"):
                break
        seconds = f"{seconds:.1f} s" + (", quick" if quick else "")
        rows.append((case, outcome, text, seconds))
        if args.markdown:  # as far as it has come
            with open(args.markdown, "w") as out:
                out.write(markdown(rows))
        good = outcome in ("found", "healthy")
        print(f"{'ok' if good else 'NO':3} {seconds:>14}  {case.kind}: {case.name}: {outcome}" + ("" if good else f"\n      {text}"), flush=True)
    if not args.keep:
        shutil.rmtree(folder)
    sick = [r for r in rows if r[0].kind != "sound"]
    found = sum(r[1] == "found" for r in sick)
    bad = [r for r in rows if r[1] in ("accused something innocent", "broken")]
    print(f"{found} of {len(sick)} faults found; {len(bad)} accused something innocent or broke")
    enough = args.sanitizer or len(sick) - found <= max(1, 0.05 * len(sick))
    sys.exit(0 if enough and not bad else 1)


if __name__ == "__main__":
    main()
