#!/usr/bin/env python3
"""`limpid diff`: copies of golden models, each changed in one known way; errors against numpy.

    diff.py LIMPID [--sanitizer] [--only TEXT]
"""
import json
import os
import tempfile

import gguf_edit
from gguf_edit import F32, STR, T_F16, T_F32, U32
from harness import MINI_MODEL, Checks, Dump, Failed, Golden, arguments, np, run

BASE = Golden("dsa_shared")
TENSOR = "blk.3.ffn_down_exps.weight"


def compare(limpid, folder, change, status=1, *options):
    """The report on the base model and a changed copy."""
    g = gguf_edit.read(BASE.path)
    change(g)
    path = tempfile.mkstemp(suffix=".gguf", dir=folder)[1]
    with open(path, "wb") as f:
        f.write(g.bytes())
    return json.loads(run([limpid, "diff", BASE.path, path, "--json", *options], status=status).stdout)


def row(report, name):
    return next(t for t in report["tensors"] if t["name"] == name)


def others_equal(report, *names):
    odd = [t["name"] for t in report["tensors"] if t["state"] != "equal" and t["name"] not in names]
    if odd:
        yield f"also said to differ: {odd[:5]}"


def close(what, got, want, relative=1e-9):
    if got is None or abs(got - want) > relative * abs(want) + 1e-300:
        yield f"{what} is {got}, expected {want}"


def equal(limpid, folder):
    report = compare(limpid, folder, lambda g: None, 0)
    if not report["same"] or report["keys"]:
        yield f"equal files differ: {report['keys'][:3]}"
    yield from others_equal(report)


def keys(limpid, folder):
    def change(g):
        g.set("glm-dsa.rope.freq_base", F32, 10000.0)
        g.drop("general.name")
        g.set("general.added", STR, "new")

    report = compare(limpid, folder, change)
    got = {k["key"]: (k["a"], k["b"]) for k in report["keys"]}
    name = gguf_edit.read(BASE.path).value("general.name").decode()
    want = {"glm-dsa.rope.freq_base": ("8000000", "10000"), "general.name": (f'"{name}"', None),
            "general.added": (None, '"new"')}
    if got != want:
        yield f"keys {got}, expected {want}"
    yield from others_equal(report)


def values(limpid, folder):
    """Noise on one tensor: rms, cosine and largest as numpy has them."""
    rng = np.random.default_rng(1)
    kept = {}

    def change(g):
        t = g.tensor(TENSOR)
        kept["a"] = from_bf16(t.data)
        noisy = (kept["a"] + 0.01 * rng.standard_normal(kept["a"].size)).astype("<f4")
        t.data = (noisy.view("<u4") >> 16).astype("<u2").tobytes()
        kept["b"] = from_bf16(t.data)

    report = compare(limpid, folder, change)
    a, b = kept["a"].astype(np.float64), kept["b"].astype(np.float64)
    t = row(report, TENSOR)
    if t["state"] != "different":
        yield f"state {t['state']}"
    yield from close("rms", t["rms"], np.sqrt(((a - b)**2).sum() / (a**2).sum()), 1e-6)
    yield from close("cosine", t["cosine"], (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()), 1e-7)
    yield from close("largest", t["largest"], np.abs(a - b).max(), 1e-6)
    yield from others_equal(report, TENSOR)


def types(limpid, folder, type_, to):
    """The goldens' values are exact in F32, BF16 and F16: another type, the same values."""
    def change(g):
        t = g.tensor(TENSOR)
        t.data, t.type = to(from_bf16(t.data)), type_

    report = compare(limpid, folder, change)
    t = row(report, TENSOR)
    if t["state"] != "equal" or t["type_a"] == t["type_b"] or report["same"]:
        yield f"{t}, same {report['same']}"
    yield from others_equal(report)


def nonfinite(limpid, folder):
    def change(g):
        t = g.tensor(TENSOR)
        a = np.frombuffer(t.data, "<u2").copy()
        a[5], a[9] = 0x7fc0, 0x7f80  # NaN, infinity
        t.data = a.tobytes()

    t = row(compare(limpid, folder, change), TENSOR)
    if t["state"] != "different" or t["not_finite"] != 2:
        yield f"{t}"


def shapes(limpid, folder):
    def change(g):
        g.tensor(TENSOR).ne = g.tensor(TENSOR).ne[:1] + [g.tensor(TENSOR).ne[1] * g.tensor(TENSOR).ne[2]]
        g.tensors = [t for t in g.tensors if t.name != "output_norm.weight"]
        g.tensors.append(gguf_edit.Tensor("extra.weight", [4], 0, bytes(16)))

    report = compare(limpid, folder, change)
    got = [row(report, n)["state"] for n in (TENSOR, "output_norm.weight", "extra.weight")]
    if got != ["shape", "only_a", "only_b"]:
        yield f"states {got}"
    yield from others_equal(report, TENSOR, "output_norm.weight", "extra.weight")
    report = compare(limpid, folder, change, 1, "--no-values")
    got = {t["state"] for t in report["tensors"]}
    if got != {"shape", "only_a", "only_b", "not compared"}:
        yield f"--no-values: states {got}"


def prompt(limpid, folder):
    """One layer is damaged: the streams part there, and the numbers are those of the dumps."""
    path = os.path.join(folder, "damaged.gguf")
    g = gguf_edit.read(MINI_MODEL)
    t = g.tensor("blk.3.attn_output.weight")
    data = bytearray(t.data)
    data[:34 * 40] = bytes(34 * 40)  # a few blocks are zero
    t.data = bytes(data)
    with open(path, "wb") as f:
        f.write(g.bytes())
    text = "The capital of France is"
    report = json.loads(run([limpid, "diff", MINI_MODEL, path, "--prompt", text, "--json"], status=1).stdout)["prompt"]
    ids = json.loads(run([limpid, "tokenize", MINI_MODEL, text]).stdout)
    options = ("--kv", "f32")
    a, b = (Dump(limpid, p, ids, *options, want=("hidden", "logits")) for p in (MINI_MODEL, path))
    if report["tokens"] != len(ids):
        yield f"{report['tokens']} tokens, expected {len(ids)}"
    if report["jump_layer"] != 3:
        yield f"the error is said to grow most at layer {report['jump_layer']}, the damage is in layer 3"
    for i, layer in enumerate(report["layers"]):
        x, y = a.hidden[i].astype(np.float64), b.hidden[i].astype(np.float64)
        yield from close(f"rms after layer {i - 1}", layer["rms"], np.sqrt(((x - y)**2).sum() / (x**2).sum()), 1e-4)
        cosines = (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))
        yield from close(f"worst cosine after layer {i - 1}", layer["worst_cosine"], cosines.min(), 1e-6)
    x, y = (d.logits.astype(np.float64) for d in (a, b))
    log_p, log_q = (v - np.log(np.exp(v - v.max(1, keepdims=True)).sum(1, keepdims=True)) - v.max(1, keepdims=True) for v in (x, y))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(1)
    yield from close("kl", report["kl"], kl.mean(), 1e-4)
    yield from close("max_kl", report["max_kl"], kl.max(), 1e-4)
    yield from close("same_top", report["same_top"], (x.argmax(1) == y.argmax(1)).mean())


def text(limpid, folder):
    """The text for people names what differs."""
    path = os.path.join(folder, "text.gguf")
    g = gguf_edit.read(BASE.path)
    g.set("glm-dsa.attention.indexer.top_k", U32, 17)
    g.tensors = [t for t in g.tensors if t.name != TENSOR]
    with open(path, "wb") as f:
        f.write(g.bytes())
    out = run([limpid, "diff", BASE.path, path], status=1).stdout
    for words in ("glm-dsa.attention.indexer.top_k", "A 16", "B 17", TENSOR, "in A only"):
        if words not in out:
            yield f"the text lacks {words!r}"
    if "the same model" not in run([limpid, "diff", BASE.path, BASE.path]).stdout:
        yield "a file differs from itself"


def refused(limpid, arguments_, words):
    message = run([limpid, "diff", *arguments_], status=2).stderr
    if words not in message or message.count("\n") > 2:
        yield f"said {message!r}, expected one sentence with {words!r}"


def from_bf16(data):
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-diff-") as folder:
        for function in (equal, keys, values, nonfinite, shapes, prompt, text):
            checks.add(function.__name__, function, args.limpid, folder)
        checks.add("f32", types, args.limpid, folder, T_F32, lambda a: a.tobytes())
        checks.add("f16", types, args.limpid, folder, T_F16, lambda a: a.astype("<f2").tobytes())
        other = Golden("qwen3").path
        checks.add("missing file", refused, args.limpid, [BASE.path, os.path.join(folder, "none.gguf")], "none.gguf")
        checks.add("one file", refused, args.limpid, [BASE.path], "two models")
        checks.add("no prompt for these", refused, args.limpid, [MINI_MODEL, other, "--prompt", "a"], "vocabular")
        checks.finish()


if __name__ == "__main__":
    main()
