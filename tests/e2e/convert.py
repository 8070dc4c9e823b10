#!/usr/bin/env python3
"""`limpid convert` on folders that hf_folders.py makes of the golden models and the mini model.

    convert.py LIMPID [--sanitizer] [--only TEXT]

- the golden files come back: auto (BF16) byte for byte, F32 and F16 value for value, the metadata too,
  from one file or shards, with transformers 4 or 5 configurations, experts apart or stacked
- the converted files give the golden logits within 1e-4
- the mini model, dequantised and converted to Q8_0, is the shipped file tensor by tensor
- folders that transformers saved give the logits that torch computes, converted and in place
- FP8, NVFP4 and INT4 folders: F32 has the values of the formula exactly, auto as exactly as its type
  allows (NVFP4 stays what it is)
- wrappings (language_model.), tied outputs, MTP layers left out, rope_freqs; thread counts; existing
  outputs; an interrupted run leaves nothing
"""
import os
import signal
import subprocess
import tempfile
import threading
import time

import gguf_edit
import hf_folders as hf
from gguf_edit import U32, F32, STR
from harness import MINI_MODEL, ROOT, Checks, Dump, Golden, arguments, golden_names, load_safetensors, not_wrote, np, run, too_far

T_Q4_0, T_NVFP4 = 2, 40
gguf_edit.BLOCKS.update({T_Q4_0: (32, 18), T_NVFP4: (64, 36)})
TOLERANCE = 1e-4
SAVED = os.path.join(ROOT, "tests", "data", "hf")
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
LAST = threading.local()


def convert(limpid, folder, out, *options):
    LAST.done = run([limpid, "convert", folder, out, "--threads", "2", *options])
    return gguf_edit.read(out)


# -- reading what was written

def nvfp4_values(t):
    b = np.frombuffer(t.data, np.dtype([("d", "u1", 4), ("q", "u1", (4, 8))]))
    scale = np.where((b["d"] & 0x7F) == 0x7F, 0, hf.E4M3[b["d"] & 0x7F])
    nibbles = np.concatenate([b["q"] & 15, b["q"] >> 4], axis=2)  # [blocks, 4, 16]
    return (scale[:, :, None] * hf.E2M1[nibbles]).astype(np.float32).reshape(t.ne[::-1])


def q4_0_values(t):
    b = np.frombuffer(t.data, np.dtype([("d", "<f2"), ("q", "u1", 16)]))
    q = np.concatenate([b["q"] & 15, b["q"] >> 4], axis=1).astype(np.float32) - 8
    return (b["d"].astype(np.float32)[:, None] * q).reshape(t.ne[::-1])


def values(t):
    return {T_NVFP4: nvfp4_values, T_Q4_0: q4_0_values}.get(t.type, hf.tensor_values)(t)


def same_bits(a, b):
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


def compare_values(g, want, rounded=None):
    """Every tensor is there, with these values. rounded: of matrices, what the type makes of them."""
    got = {t.name: t for t in g.tensors}
    for name in sorted(set(got) ^ set(want)):
        yield f"tensor {name} is {'missing' if name in want else 'one too many'}"
    for name in sorted(set(got) & set(want)):
        x = want[name]
        if rounded and got[name].type != gguf_edit.T_F32:
            x = rounded(x)
        if not same_bits(values(got[name]), np.ascontiguousarray(x, np.float32)):
            yield f"tensor {name} has other values"


def compare_files(g, wanted):
    """The very same tensors: types, shapes, bytes."""
    got, want = ({t.name: (t.type, tuple(t.ne), t.data) for t in x.tensors} for x in (g, wanted))
    for name in sorted(set(got) | set(want)):
        a, b = got.get(name), want.get(name)
        if a is None or b is None:
            yield f"tensor {name} is {'missing' if a is None else 'one too many'}"
        elif a[:2] != b[:2]:
            yield f"tensor {name} is {a[:2]}, expected {b[:2]}"
        elif a[2] != b[2]:
            yield f"the bytes of tensor {name} differ"


# What a folder says more, or says in the words of another converter.
MAY_BE_MORE = ("general.", "tokenizer.ggml.add_", "tokenizer.ggml.eot", "tokenizer.ggml.eom")


def compare_keys(g, wanted, skip=()):
    got, want = dict(map(tuple, g.keys)), dict(map(tuple, wanted.keys))
    arch = wanted.value("general.architecture").decode()
    for key in sorted(set(got) | set(want)):
        if key in skip or key not in want and (key.startswith(MAY_BE_MORE) or key == arch + ".vocab_size"):
            continue
        a, b = got.get(key), want.get(key)
        if a is None or b is None:
            yield f"key {key} is {'missing' if a is None else f'one too many: {str(a)[:80]}'}"
        elif a[0] == b[0] == F32 and np.float32(a[1]) == np.float32(b[1]):
            continue
        elif a != b:
            yield f"key {key} is {str(a)[:80]}, expected {str(b)[:80]}"


NOT_OF_THE_FOLDER = ("general.name", "general.file_type", "general.size_label", "general.description")

# -- the golden models


def golden_comes_back(limpid, folder, name, sanitizer):
    g, ck, shards = Golden(name), hf.from_golden(name), 1 + len(name) % 3
    path, out = ck.write(f"{folder}/{name}", shards=shards), f"{folder}/{name}.gguf"
    wanted = gguf_edit.read(g.path)
    auto = convert(limpid, path, out, "--name", wanted.value("general.name").decode())
    yield from compare_files(auto, wanted)
    yield from compare_keys(auto, wanted)
    exact = hf.to_gguf(ck)
    for type_ in ("f32", "f16"):
        made = convert(limpid, path, out, "--outtype", type_, "--force")
        yield from (f"{type_}: {fault}" for fault in compare_values(made, exact))
        if made.value("general.file_type") != FILE_TYPES[type_]:
            yield f"{type_}: general.file_type is {made.value('general.file_type')}"
        if not sanitizer or type_ == "f32":
            yield too_far(f"logits of {type_}", Dump(limpid, out, g.tokens).logits, g.ref["logits_f64"], TOLERANCE)


def stacked(ck):
    ck.stack_experts()


def stacked_weight(ck):
    ck.stack_experts(".weight")


def older(ck):
    ck.older_config()


def wrapped(ck):
    ck.prefix("model.", "model.language_model.")
    inner = dict(ck.config)
    ck.config = {"model_type": "glm_wrapper", "architectures": inner.pop("architectures"), "text_config": inner}
    ck.arrays["model.visual.patch_embed.proj.weight"] = hf.stored(np.zeros((4, 6)), "BF16")


def kimi(ck):
    ck.prefix("model.", "language_model.model.")
    ck.prefix("lm_head.", "language_model.lm_head.")
    inner = dict(ck.config)
    ck.config = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "text_config": inner}
    ck.arrays["vision_tower.encoder.blocks.0.wqkv.weight"] = hf.stored(np.zeros((4, 6)), "BF16")


def float32(ck):
    ck.dtype("F32")


def mixed(ck):
    ck.dtype("F16", only=lambda name: "experts.1." in name)
    ck.dtype("F32", only=lambda name: "experts.2." in name)


def extra(ck):
    ck.arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = hf.stored(np.ones(8), "F32")


def spelled_otherwise(limpid, folder, name, change, values_only, unaligned=False):
    ck, wanted = hf.from_golden(name), gguf_edit.read(Golden(name).path)
    exact = hf.to_gguf(ck)
    change(ck)
    what = f"{name}-{change.__name__}"
    path = ck.write(f"{folder}/{what}", unaligned=unaligned)
    made = convert(limpid, path, f"{folder}/{what}.gguf")
    yield from compare_values(made, exact) if values_only else compare_files(made, wanted)
    yield from compare_keys(made, wanted, skip=("general.name", "general.file_type") if values_only else ("general.name",))


# -- other models

Q8_0 = np.dtype([("d", "<f2"), ("q", "i1", 32)])


def settle(g, wanted):
    """Blocks of the shipped file that no quantiser gives for their own values, since their scale is a
    subnormal float16 and their largest integer is not 127: taken over where the values agree within
    two steps."""
    n = 0
    for t in wanted.tensors:
        mine = g.tensor(t.name)
        if t.type != gguf_edit.T_Q8_0 or len(mine.data) != len(t.data):
            continue
        a, b = np.frombuffer(mine.data, Q8_0).copy(), np.frombuffer(t.data, Q8_0)
        x, y = (hf.tensor_values(one).reshape(-1, 32) for one in (mine, t))
        odd = (np.abs(b["q"].astype(int)).max(axis=1) < 127) & (b["d"] < 2.0 ** -14)
        odd &= np.abs(x - y).max(axis=1) <= 2 * b["d"].astype(np.float32)
        n += int((odd & (a != b)).sum())
        a[odd] = b[odd]
        mine.data = a.tobytes()
    return n


def mini_is_shipped(limpid, folder):
    path = hf.from_mini().write(f"{folder}/mini", shards=2)
    made, wanted = convert(limpid, path, f"{folder}/mini.gguf", "--outtype", "q8_0"), gguf_edit.read(MINI_MODEL)
    if settle(made, wanted) > 1000:  # 812 of 700,000
        yield "too many blocks differ from those of the shipped file"
    yield from compare_files(made, wanted)
    yield from compare_keys(made, wanted, skip=NOT_OF_THE_FOLDER)
    if made.value("general.file_type") != FILE_TYPES["q8_0"]:
        yield f"general.file_type is {made.value('general.file_type')}"


def quantised(limpid, folder, name, scheme):
    ck = hf.from_golden(name) if name != "mini" else hf.from_mini()
    values_of = ck.quantise(scheme)
    exact = hf.to_gguf(ck, values_of)
    path, out = ck.write(f"{folder}/{name}-{scheme}"), f"{folder}/{name}-{scheme}.gguf"
    yield from compare_values(convert(limpid, path, out, "--outtype", "f32"), exact)
    auto = convert(limpid, path, out, "--force")
    factors = {t.name[:-len(".scale")]: hf.tensor_values(t) for t in auto.tensors if t.name.endswith(".scale")}
    auto.tensors = [t for t in auto.tensors if not t.name.endswith(".scale")]
    if scheme in ("fp8", "fp8-channel"):
        yield from compare_values(auto, exact, rounded=hf.rounded_bf16)
        return
    if scheme == "int4":
        yield from compare_values(auto, exact)
        yield from expect_type(auto, ".ffn_up", T_Q4_0 if name == "mini" else None)
        return
    yield from expect_type(auto, ".ffn_up", T_NVFP4)
    for t in auto.tensors:  # one rounding of the factor, and none where it is a product itself
        x, factor = values(t), factors.get(t.name[:-len(".weight")])
        if factor is not None:
            x = x * factor.reshape(-1, *[1] * (x.ndim - 1))
        off = np.abs(x - exact[t.name]).max() / np.abs(exact[t.name]).max()
        if off > (0 if scheme == "nvfp4" else 2e-7):
            yield f"tensor {t.name} with its factors is off by {off:.1e}"
    n_linear = sum(t.type in (T_NVFP4,) for t in auto.tensors)
    if not factors or n_linear > len(factors):
        yield f"{n_linear} NVFP4 tensors have {len(factors)} factors"


def negative_scale(ck, exact):
    """NVFP4 of GGUF has no negative scales: one of them makes BF16 of its stack, with factors all the same."""
    for layer in (1, 2):
        stem = f"model.layers.{layer}.mlp.experts.2.up_proj.weight"
        ck.arrays[stem + "_scale"].data[3, 1] |= 0x80
        exact[stem][3, 16:32] *= -1
    return {"ffn_up_exps": gguf_edit.T_BF16, "ffn_gate_exps": T_NVFP4}


def plain_expert(ck, exact):
    """A stack of several forms is F32."""
    return {"ffn_up_exps": gguf_edit.T_F32, "ffn_gate_exps": T_NVFP4}


def mixed_stack(limpid, folder, change):
    ck = hf.from_golden("ds3")
    only = (lambda n: "experts.2.up_proj" not in n) if change is plain_expert else None
    values_of = ck.quantise("nvfp4", only=only)
    types = change(ck, values_of)
    exact, what = hf.to_gguf(ck, values_of), change.__name__
    made = convert(limpid, ck.write(f"{folder}/{what}"), f"{folder}/{what}.gguf")
    tensors = {t.name: t for t in made.tensors}
    for stem, type_ in types.items():
        name = f"blk.1.{stem}"
        t, factors = tensors[name + ".weight"], tensors.get(name + ".scale")
        if t.type != type_:
            yield f"{name} is of type {t.type}, expected {type_}"
        x = values(t)
        if factors:
            x = x * hf.tensor_values(factors).reshape(-1, 1, 1)
        if (factors is None) != (type_ == gguf_edit.T_F32) or not np.array_equal(x, exact[name + ".weight"]):
            yield f"{name} with its factors has other values"


def expect_type(g, part, type_):
    for t in g.tensors:
        if type_ is not None and part in t.name and t.name.endswith(".weight") and t.ne[0] % 64 == 0 and t.type != type_:
            yield f"tensor {t.name} is of type {t.type}, expected {type_}"


def saved_by_transformers(limpid, folder, name):
    """tests/data/hf/make_folders.py made it, and torch's logits: of the file and of the folder itself."""
    path, out = os.path.join(SAVED, name), f"{folder}/saved-{name}.gguf"
    reference = load_safetensors(path + ".logits")
    convert(limpid, path, out)
    for what in (out, path):
        yield too_far(f"logits of {os.path.basename(what)}", Dump(limpid, what, reference["tokens"]).logits,
                      reference["logits"], TOLERANCE)


def without_mtp(limpid, folder):
    ck, wanted = hf.from_golden("dsa_sparse"), gguf_edit.read(Golden("dsa_sparse").path)
    path, out = ck.write(f"{folder}/no-mtp"), f"{folder}/no-mtp.gguf"
    made = convert(limpid, path, out, "--no-mtp", "--name", "a name")
    wanted.tensors = [t for t in wanted.tensors if not t.name.startswith("blk.5.")]
    wanted.set("glm-dsa.block_count", U32, 5)
    wanted.set("glm-dsa.nextn_predict_layers", U32, 0)
    wanted.set("general.name", STR, b"a name")
    yield from compare_files(made, wanted)
    yield from compare_keys(made, wanted)
    if "arrays are not used" not in LAST.done.stderr:
        yield f"nothing is said of the arrays that are left out: {LAST.done.stderr!r}"
    g = Golden("dsa_sparse")
    yield too_far("logits", Dump(limpid, out, g.tokens).logits, g.ref["logits_f64"], TOLERANCE)


def llama3_freqs(limpid, folder):
    """The divisors of Llama 3.1's rotation, by the formula of the model's own code."""
    ck = hf.from_golden("llama")
    ck.config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    made = convert(limpid, ck.write(f"{folder}/llama3"), f"{folder}/llama3.gguf")
    wavelength = 2 * np.pi * 500000.0 ** (np.arange(8) / 8)
    smooth = (8192 / wavelength - 1) / (4 - 1)
    want = np.where(wavelength < 8192 / 4, 1, np.where(wavelength > 8192, 8, 1 / ((1 - smooth) / 8 + smooth)))
    got = [values(t) for t in made.tensors if t.name == "rope_freqs.weight"]
    if len(got) != 1 or not np.allclose(got[0], want, rtol=1e-6):
        yield f"rope_freqs.weight is {got}, expected {want}"


def threads(limpid, folder):
    path, files = hf.from_mini().write(f"{folder}/threads"), []
    for n in ("1", "2", "7"):
        run([limpid, "convert", path, f"{folder}/threads-{n}.gguf", "--outtype", "q6_k", "--threads", n])
        files.append(open(f"{folder}/threads-{n}.gguf", "rb").read())
    if len(set(files)) != 1:
        yield "the number of threads changes the file"


def outputs(limpid, folder):
    path, out = hf.from_golden("qwen3").write(f"{folder}/outputs"), f"{folder}/outputs.gguf"
    convert(limpid, path, out)
    before = open(out, "rb").read()
    done = run([limpid, "convert", path, out, "--outtype", "f32"], status=1)
    if "--force" not in done.stderr or open(out, "rb").read() != before:
        yield f"a file that is there: {done.stderr!r}"
    for given in (f"{path}/model.safetensors", f"{path}/config.json"):
        before = open(given, "rb").read()
        run([limpid, "convert", path, given, "--force"], status=1)
        if open(given, "rb").read() != before:
            yield f"{given} was written over"
    run([limpid, "convert", path, f"{folder}/no/such/folder.gguf"], status=1)
    for wrong in ([path], [path, out, "--outtype", "q9"], [path, out, "--threads", "9999"], []):
        run([limpid, "convert", *wrong], status=2)
    left = sorted(n for n in os.listdir(folder) if n.startswith("outputs"))
    if left != ["outputs", "outputs.gguf"]:
        yield f"left behind: {left}"


def damaged(limpid, folder):
    """NaN and infinity of the checkpoint are not handed on, whether values are copied or not."""
    for dtype in ("BF16", "F16", "F32"):
        for tensor, name, value in (("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight", np.nan),
                                    ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", np.inf)):
            ck = hf.from_golden("qwen3")
            ck.dtype(dtype)
            x = ck.arrays[name].values().copy()
            place = (5, 7) if x.ndim == 2 else (7,)
            x[place] = value
            ck.arrays[name] = hf.stored(x, dtype)
            path, out = ck.write(f"{folder}/damaged-{dtype}"), f"{folder}/damaged.gguf"
            for type_ in ("auto", "f32", "q8_0"):
                said = run([limpid, "convert", path, out, "--outtype", type_], status=1).stderr
                if f"tensor {tensor} holds a value that is not finite, in row {place[0] if x.ndim == 2 else 0} at column 7" not in said:
                    yield f"{dtype} to {type_}: {said!r}"
            if os.path.exists(out):
                yield f"{dtype}: there is a file"
    ck = hf.from_golden("qwen3")
    x = ck.arrays["model.embed_tokens.weight"].values().copy()
    x[3, 1] = 1e5
    ck.arrays["model.embed_tokens.weight"] = hf.stored(x, "BF16")
    said = run([limpid, "convert", ck.write(f"{folder}/large"), out, "--outtype", "f16"], status=1).stderr
    if "tensor token_embd.weight has a value in row 3 that is too large for F16" not in said:
        yield f"a large value: {said!r}"


def named(limpid, folder):
    """A folder may be named by its config.json or by the one around it; what is none is answered by a command."""
    inner, out = f"{folder}/named/the model", f"{folder}/named.gguf"
    os.makedirs(f"{folder}/named")
    hf.from_golden("qwen3").write(inner, shards=2)
    os.symlink(MINI_MODEL, f"{folder}/named/mini.gguf")
    want = convert(limpid, inner, out).bytes()
    yield not_wrote(LAST.done, out)
    for given in (f"{inner}/config.json", f"{folder}/named", inner + "/"):
        if convert(limpid, given, out, "--force").bytes() != want:
            yield f"{given} gives another file"
    os.symlink(MINI_MODEL, f"{inner}/own.gguf")  # as one that was converted into the folder
    convert(limpid, inner, out, "--force")
    shard = next(n for n in sorted(os.listdir(inner)) if n.endswith(".safetensors"))
    for given, needles in ((f"{inner}/{shard}", ["part of a checkpoint", f"limpid convert '{inner}/' x.gguf"]),
                           (inner[:-1], ["is it this one?", f"limpid convert '{inner}' x.gguf"]),
                           (MINI_MODEL, ["is a GGUF file already", f"limpid quantize {MINI_MODEL} x.gguf Q4_K_M"]),
                           (__file__, ["is no Hugging Face model", "config.json"]),
                           ("org-of/name", ["hf download org-of/name --local-dir name\n", "limpid convert name x.gguf"])):
        said = run([limpid, "convert", given, "x.gguf"], status=1).stderr
        yield from (f"{given}: the message lacks {n!r}: {said!r}" for n in needles if n not in said)


def interrupted(limpid, folder):
    path = hf.from_mini().write(f"{folder}/interrupted")
    where = f"{folder}/interrupted-out"
    os.mkdir(where)
    for wait in (0.02, 0.05, 0.1, 0.2, 0.4):
        p = subprocess.Popen([limpid, "convert", path, f"{where}/a.gguf", "--outtype", "iq4_xs", "--threads", "1"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        p.send_signal(signal.SIGINT)
        status = p.wait()
        left = os.listdir(where)
        if left and (status != 0 or left != ["a.gguf"]):
            yield f"interrupted after {wait} s (status {status}), it left {left}"
        if left == ["a.gguf"]:
            os.remove(f"{where}/a.gguf")


def main():
    args = arguments(__doc__)
    checks, limpid = Checks(args), args.limpid
    with tempfile.TemporaryDirectory(prefix="limpid-convert-") as folder:
        for name in golden_names():
            checks.add(name, golden_comes_back, limpid, folder, name, args.sanitizer)
        for name, change, values_only in (
                ("dsa_shared", stacked, False), ("ds3", stacked_weight, False), ("glm45", stacked, False), ("ds2_lite", older, False),
                ("ds3", older, False), ("glm45", older, False), ("glm47_flash", older, False), ("llama", older, False),
                ("glm45", wrapped, False), ("ds3", kimi, False), ("ds32", float32, True), ("dsa_dense", mixed, True),
                ("qwen2", extra, False)):
            checks.add(f"{name} {change.__name__}", spelled_otherwise, limpid, folder, name, change, values_only)
        checks.add("qwen3 unaligned", spelled_otherwise, limpid, folder, "qwen3", float32, True, True)
        for name in ("dsa_full_dims", "ds3", "llama", "glm45"):
            for scheme in hf.QUANTISERS:
                checks.add(f"{name} {scheme}", quantised, limpid, folder, name, scheme)
        if not args.sanitizer:
            for scheme in hf.QUANTISERS:
                checks.add(f"mini {scheme}", quantised, limpid, folder, "mini", scheme)
        checks.add("mini", mini_is_shipped, limpid, folder)
        for name in sorted(n[:-len(".logits")] for n in os.listdir(SAVED) if n.endswith(".logits")):
            checks.add(f"saved {name}", saved_by_transformers, limpid, folder, name)
        for change in (negative_scale, plain_expert):
            checks.add(f"stack {change.__name__}", mixed_stack, limpid, folder, change)
        checks.add("without MTP", without_mtp, limpid, folder)
        checks.add("rope_freqs", llama3_freqs, limpid, folder)
        checks.add("threads", threads, limpid, folder)
        for function in (outputs, damaged, named):
            checks.add(function.__name__, function, limpid, folder)
        checks.add("interrupted", interrupted, limpid, folder)
        checks.finish(" (reduced for the sanitizers)" if args.sanitizer else "")


if __name__ == "__main__":
    main()
