#!/usr/bin/env python3
"""Files that keep the up-projection of keys and values as one tensor, attn_kv_b.

    fused_kv_b.py LIMPID [--sanitizer] [--only TEXT]

Older conversions (and some new ones) hold attn_kv_b [H * (nope + v), latent] instead of attn_k_b
[H, latent, nope] (transposed) and attn_v_b [H, v, latent]. Made here from each golden model of an MLA
architecture:
- mla: the keys of today's files, attn_kv_b
- legacy (deepseek2): key_length, value_length and head_count_kv as before 2025, attn_kv_b
- all three tensors: attn_kv_b is to be ignored (and inspect says so), so it holds zeros here
Each must give the golden logits within 1e-4 on every backend and route. Then as the files of that time really were, the fused
tensor in Q8_0, and with a Q8_0 cache: the logits of a file with the same values as two float32 tensors, and five turns of a
conversation through the server, each behind the cached ones before it.
"""
import json
import os
import sys
import tempfile

import gguf_edit
from gguf_edit import U32, Tensor
from harness import HERE, Checks, Dump, Golden, arguments, golden_names, np, run, too_far

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "api"))
from client import Server  # noqa: E402

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


def q8_0(values):
    """Blocks of Q8_0 of float32 rows; and what they stand for."""
    rows = values.reshape(-1, 32)
    scale = (np.abs(rows).max(axis=1, keepdims=True) / 127).astype("<f2")
    ints = np.rint(rows / np.where(scale == 0, 1, scale).astype(np.float32)).astype(np.int8)
    blocks = np.concatenate([scale.view(np.uint8).reshape(-1, 2), ints.view(np.uint8)], axis=1)
    return blocks.tobytes(), (scale.astype(np.float32) * ints).astype("<f4").reshape(values.shape)


def fits_q8_0(g):
    """Whether a row of the cache, latent and rope part, is whole blocks."""
    return gguf_edit.read(g.path).tensor("blk.0.attn_kv_a_mqa.weight").ne[1] % 32 == 0


def floats(t):
    bits = np.frombuffer(t.data, DTYPES[t.type]).astype("<u4")
    return (bits if t.type == gguf_edit.T_F32 else bits << 16).view("<f4").reshape(t.ne[::-1])


def coarse(g):
    """(the model with attn_kv_b in Q8_0, the same values in attn_k_b and attn_v_b of float32)."""
    fused_model, split_model = gguf_edit.read(g.path), gguf_edit.read(g.path)
    rewrite(fused_model, keep=False)
    for i, t in enumerate(fused_model.tensors):
        if not t.name.endswith(".attn_kv_b.weight"):
            continue
        data, values = q8_0(floats(t))
        fused_model.tensors[i] = Tensor(t.name, t.ne, gguf_edit.T_Q8_0, data)
        k_b, v_b = (split_model.tensor(t.name.replace("attn_kv_b", name)) for name in ("attn_k_b", "attn_v_b"))
        (nope, latent, heads), v = k_b.ne, v_b.ne[1]
        per_head = values.reshape(heads, nope + v, latent)
        for old, new in ((k_b, per_head[:, :nope].transpose(0, 2, 1)), (v_b, per_head[:, nope:])):
            at = split_model.tensors.index(old)
            split_model.tensors[at] = Tensor(old.name, old.ne, gguf_edit.T_F32, np.ascontiguousarray(new).tobytes())
    return fused_model, split_model


def coarse_is_its_values(limpid, g, paths, options):
    fused_logits, split_logits = (Dump(limpid, path, g.tokens, "--backend", "ref", *options).logits for path in paths)
    yield too_far("logits", fused_logits, split_logits, TOLERANCE)


def turns(limpid, path):
    """Five turns: each prompt is all that was said before, and gives what it gives without a cache."""
    prompts, answers, cached = [list(range(3, 13))], [], []
    fields = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
    options = ["--kv", "q8_0", "--deterministic", "--ctx", "512", "--self-check", "on"]
    with Server(limpid, path, options) as s:
        for turn in range(5):
            answer = s.complete(prompt=prompts[-1], **fields)
            answers.append(answer["choices"][0]["token_ids"])
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            prompts.append(prompts[-1] + answers[-1] + list(range(20 + turn, 30 + turn)))
        s.stop()
    if not all(c > 0 for c in cached[1:]):
        yield f"turns are not behind the cached ones: {cached}"
    with Server(limpid, path, [*options, "--no-prefix-cache"]) as s:
        for turn in range(5):
            if s.complete(prompt=prompts[turn], **fields)["choices"][0]["token_ids"] != answers[turn]:
                yield f"turn {turn + 1} has another answer behind the cache"
        s.stop()


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
            if any(t.name.endswith(".attn_k_b.weight") and t.ne[1] % 32 for t in gguf_edit.read(g.path).tensors):
                continue  # rows of fewer values than a block
            paths = [os.path.join(folder, f"{g.name}-q8_0-{form}.gguf") for form in ("fused", "split")]
            for path, model in zip(paths, coarse(g)):
                with open(path, "wb") as f:
                    f.write(model.bytes())
            for route in ("expanded", "absorbed"):
                for kv in ("f32", "q8_0"):
                    if kv == "f32" or fits_q8_0(g):
                        checks.add(f"{g.name} q8_0 {route} {kv}", coarse_is_its_values, args.limpid, g, paths,
                                   ["--route", route, "--kv", kv])
            if fits_q8_0(g):
                checks.add(f"{g.name} q8_0 turns", turns, args.limpid, paths[0])
        checks.finish()


if __name__ == "__main__":
    main()
