#!/usr/bin/env python3
"""Files that keep the up-projection of keys and values as one tensor, attn_kv_b.

    fused_kv_b.py LIMPID [--sanitizer] [--only TEXT]

Older conversions (and some new ones) hold attn_kv_b [H * (nope + v), latent] instead of attn_k_b
[H, latent, nope] (transposed) and attn_v_b [H, v, latent]. Made here from each golden model of an MLA
architecture:
- mla: the keys of today's files, attn_kv_b
- legacy (deepseek2): key_length, value_length and head_count_kv as before 2025, attn_kv_b
- all three tensors: attn_kv_b is to be ignored (and inspect says so), so it holds zeros here
Each must give the golden logits within 1e-4 on every backend and route.
"""
import json
import os
import tempfile

import gguf_edit
from gguf_edit import U32, Tensor
from harness import Checks, Dump, Golden, arguments, golden_names, np, run, too_far

TOLERANCE = 1e-4
DTYPES = {gguf_edit.T_F32: "<u4", gguf_edit.T_BF16: "<u2"}  # bit patterns: nothing is rounded


def fused(k_b, v_b):
    """attn_kv_b of a layer: for each head the rows of W_UK, then those of W_UV."""
    assert k_b.type == v_b.type
    dtype = DTYPES[k_b.type]
    w_uk = np.frombuffer(k_b.data, dtype).reshape(k_b.ne[::-1]).transpose(0, 2, 1)  # [H, nope, latent]
    w_uv = np.frombuffer(v_b.data, dtype).reshape(v_b.ne[::-1])                     # [H, v, latent]
    rows = np.concatenate([w_uk, w_uv], axis=1).reshape(-1, w_uk.shape[2])
    return Tensor(k_b.name.replace("attn_k_b", "attn_kv_b"), rows.shape[::-1], k_b.type, rows.tobytes())


def rewrite(model, keep):
    out = []
    for t in model.tensors:
        if t.name.endswith(".attn_k_b.weight"):
            kv_b = fused(t, model.tensor(t.name.replace("attn_k_b", "attn_v_b")))
            if keep:
                kv_b.data = bytes(len(kv_b.data))
            out += [kv_b, t] if keep else [kv_b]
        elif keep or not t.name.endswith(".attn_v_b.weight"):
            out.append(t)
    model.tensors = out


def legacy_keys(model):
    arch = model.value("general.architecture").decode()
    for now, before in (("key_length_mla", "key_length"), ("value_length_mla", "value_length")):
        model.set(f"{arch}.attention.{before}", U32, model.value(f"{arch}.attention.{now}"))
        model.drop(f"{arch}.attention.{now}")
    model.set(f"{arch}.attention.head_count_kv", U32, model.value(f"{arch}.attention.head_count"))


def check(limpid, g, path, options):
    yield too_far("logits", Dump(limpid, path, g.tokens, *options).logits, g.ref["logits_f64"], TOLERANCE)


def ignored_are_named(limpid, path, n_blocks):
    binding = json.loads(run([limpid, "inspect", "--json", path]).stdout)["binding"]
    reasons = [r["reason"] for r in binding["reasons"] if r["count"] == n_blocks]
    if not any("attn_k_b" in r for r in reasons):
        yield f"inspect does not say why {n_blocks} tensors attn_kv_b are ignored: {binding}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-fused-") as folder:
        for g in (g for g in map(Golden, golden_names()) if g.is_mla):
            for form in ["mla", "both"] + (["legacy"] if g.info["arch"] == "deepseek2" else []):
                model = gguf_edit.read(g.path)
                rewrite(model, keep=form == "both")
                if form == "legacy":
                    legacy_keys(model)
                path = os.path.join(folder, f"{g.name}-{form}.gguf")
                with open(path, "wb") as f:
                    f.write(model.bytes())
                if form == "both":
                    checks.add(f"{g.name} inspect", ignored_are_named, args.limpid, path,
                               g.info["n_layer"] + g.info["nextn"])
                for backend in ("ref", "cpu"):
                    for route in ("expanded", "absorbed") if args.sanitizer else ("auto", "expanded", "absorbed"):
                        for chunk in ([],) if args.sanitizer else ([], ["--chunk", "5"]):
                            checks.add(f"{g.name} {form} {backend} {route} {' '.join(chunk)}", check, args.limpid, g, path,
                                       ["--backend", backend, "--route", route] + chunk)
        checks.finish()


if __name__ == "__main__":
    main()
