#!/usr/bin/env python3
"""`limpid doctor` as a command: exit statuses, what goes where, and files written whole or not at all. What the doctor
finds is the matter of other tests.

    doctor_command.py LIMPID [--sanitizer]
"""
import json
import os
import shutil
import tempfile

import gguf_edit
from harness import GOLDEN, Checks, arguments, np, run

KEYS = {"verdict", "healthy", "faults", "follows", "checks", "series", "model", "path", "quick", "seconds", "version"}
FAULT_KEYS = {"check", "stage", "layer", "op", "kind", "advice"}
CHECK_KEYS = {"stage", "name", "figure", "bound", "value", "limit", "ok", "outcome", "text", "seconds"}
MODEL = os.path.join(GOLDEN, "dsa_sparse.gguf")


def damaged(folder):
    """A file that ends too early."""
    path = os.path.join(folder, "cut.gguf")
    with open(MODEL, "rb") as whole, open(path, "wb") as cut:
        cut.write(whole.read()[:-1000])
    return path


def check_json(report, healthy):
    missing = KEYS - report.keys()
    if missing:
        yield f"the report lacks {missing}"
        return
    if report["healthy"] is not healthy:
        yield f"healthy is {report['healthy']}: {report['verdict']}"
    if bool(report["faults"]) is healthy:
        yield f"healthy, and {len(report['faults'])} faults"
    for fault in report["faults"] + report["follows"]:
        if set(fault) != FAULT_KEYS or not all(isinstance(fault[k], str) and fault[k] for k in FAULT_KEYS - {"layer"}):
            yield f"a fault is {fault}"
    for check in report["checks"]:
        if set(check) != CHECK_KEYS:
            yield f"a check is {check}"


def healthy_model(limpid, folder):
    done = run([limpid, "doctor", MODEL, "--quick"])
    lines = done.stdout.splitlines()
    if not lines or not lines[-1].startswith("verdict: healthy. "):
        yield f"the last line is {lines[-1:]}"
    if "\033" in done.stdout + done.stderr:
        yield "there are colours, and no terminal"
    page, report = os.path.join(folder, "r.html"), os.path.join(folder, "r.json")
    run([limpid, "doctor", MODEL, "--quick", "--html", page, "--json", report])
    yield from check_json(json.load(open(report, encoding="utf-8")), True)
    if not open(page, encoding="utf-8").read().endswith("</html>\n"):
        yield "the page is not whole"
    if sorted(os.listdir(folder)) != ["r.html", "r.json"]:
        yield f"the folder holds {os.listdir(folder)}"


def damaged_model(limpid, folder):
    path = damaged(folder)
    done = run([limpid, "doctor", path, "--quick"], status=1)
    last = done.stdout.splitlines()[-1]
    if not last.startswith("verdict: fault found. "):
        yield f"the last line is {last}"
    if "what now " not in done.stdout:
        yield "nobody says what to do"
    done = run([limpid, "doctor", path, "--quick", "--json", "-"], status=1)
    yield from check_json(json.loads(done.stdout), False)  # nothing else is on standard output
    if "verdict: " not in done.stderr:
        yield "with JSON on standard output the text is nowhere"


def cannot_run(limpid, folder):
    before = open(MODEL, "rb").read()
    copy, link = os.path.join(folder, "copy.gguf"), os.path.join(folder, "link")
    shutil.copy(MODEL, copy)
    os.symlink("copy.gguf", link)
    for options, words in (
            ([os.path.join(folder, "none.gguf")], "no such file"),
            ([MODEL, "--nonsense"], "unknown option"),
            ([MODEL, "--threads", "5000"], "--threads is 5000"),
            ([MODEL, "--backend", "gpu"], "'gpu'"),
            ([MODEL, "--log", "loud"], "loud"),
            ([MODEL, "--json", "-", "--html", "-"], "standard output"),
            ([MODEL, "--json", "r", "--html", "r"], "both"),
            ([MODEL, "--against", os.path.join(folder, "none")], "--against"),
            ([MODEL, "--json", os.path.join(folder, "none", "r.json")], "cannot write"),
            ([MODEL, "--html", folder], "Is a directory"),
            ([copy, "--json", copy], "not written to"),
            ([copy, "--json", link], "not written to"),
            ([MODEL, "--json", os.path.join(folder, "part2.gguf")], "not written to")):
        done = run([limpid, "doctor", "--quick", *options], status=2)
        if words not in done.stderr or done.stdout:
            yield f"{options}: {done.stderr[:300]}{done.stdout[:100]}"
    if open(copy, "rb").read() != before or sorted(os.listdir(folder)) != ["copy.gguf", "link"]:
        yield f"the folder was changed: {os.listdir(folder)}"


def short_contexts(limpid, folder):
    """A context of less than a page is no fault."""
    for name, arch in (("llama", "llama"), ("dsa_sparse", "glm-dsa")):
        for n in (1, 8, 32):
            g = gguf_edit.read(os.path.join(GOLDEN, name + ".gguf"))
            g.set(arch + ".context_length", gguf_edit.U32, n)
            path = os.path.join(folder, "short.gguf")
            with open(path, "wb") as out:
                out.write(g.bytes())
            done = run([limpid, "doctor", path, "--quick"])
            if "verdict: healthy" not in done.stdout:
                yield f"{name}, context {n}: {done.stdout[-300:]}"


def useless_dump(limpid, folder):
    """A dump that cannot be compared with: its reason, and no good health."""
    hidden = np.zeros((10, 64), np.float32)
    hidden[3, 2] = np.nan
    np.save(os.path.join(folder, "tokens.npy"), np.arange(5, 15, dtype=np.int32))
    np.save(os.path.join(folder, "hidden.0.npy"), hidden)
    done = run([limpid, "doctor", MODEL, "--quick", "--against", folder], status=2)
    if "hidden.0 of the dump holds NaN or infinity at position 3" not in done.stdout:
        yield done.stdout[-600:]
    run([limpid, "doctor", MODEL, "--against", folder, "--until", "file"], status=2)


def full_disk(limpid, folder):
    """What could not be written is no healthy model."""
    path = damaged(folder)
    done = run([limpid, "doctor", path, "--quick", "--json", "/dev/full"], status=2)
    if "cannot write /dev/full: No space left" not in done.stderr or "verdict: " not in done.stdout:
        yield done.stderr[:300]
    run(["sh", "-c", f"exec '{limpid}' doctor '{path}' --quick > /dev/full"], status=2)
    if not os.path.exists("/dev/full"):
        yield "/dev/full was replaced"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    for case in (healthy_model, damaged_model, cannot_run, short_contexts, useless_dump, full_disk):
        def in_folder(case=case):
            with tempfile.TemporaryDirectory(prefix="limpid-doctor-") as folder:
                yield from case(args.limpid, folder)
        checks.add(case.__name__, in_folder)
    checks.finish()


if __name__ == "__main__":
    main()
