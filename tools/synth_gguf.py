#!/usr/bin/env python3
"""Synthetic GGUF models: random weights under the true names, keys and shapes, for speed and scale tests.

Usage: synth_gguf.py OUT.gguf --arch glm-dsa|deepseek2|deepseek32 --preset tiny|mid|big [--set key=value ...]
Needs numpy. Every hyperparameter of a preset can be changed with --set (see PRESETS), every type with --qset
(see MIX); --seed makes it reproducible. --plan prints the tensors and the bytes read per generated token, and
writes nothing.

Conventions (GGUF order, fastest dim first; numpy shapes below are the reverse):
  attn_k_b [nope, kv_lora, heads]   (transposed half of kv_b: absorbs q_nope into latent space)
  attn_v_b [kv_lora, v, heads]
  attn_kv_a_mqa [hidden, kv_lora+rope]; attn_q_b [q_lora, heads*(nope+rope)], per head: nope first, rope last
  indexer.attn_q_b [q_lora, iheads*idim], indexer.attn_k [hidden, idim], per head: rope first, nope last
  indexer.proj [hidden, iheads]; indexer.k_norm.{weight,bias} [idim] (LayerNorm, not RMS)
  keys: key_length = kv_lora+rope, value_length = kv_lora, head_count_kv = 1, key_length_mla = nope+rope, value_length_mla = v
  block_count counts the nextn layer(s), which come last.
"""
import argparse, os, sys
import numpy as np
import ggufw
from ggufw import Writer, TYPES, U32, F32T, BOOL, STR, I32, U64

GLM = dict(nope=192, rope=64, v=256, kv_lora=512, iheads=32, idim=128, topk=2048, freq_base=1e6, eps=1e-5,
           ctx=202752, wscale=2.5, gating=2, wnorm=True, shared=1, yarn=0.0, yarn_log=0.1, yarn_orig=4096, groups=0, groups_used=0,
           index_types="")  # index_types: "" none written, or "FSSSF..." F=full S=shared, one letter per non-nextn layer
DS = dict(GLM, nope=128, v=128, freq_base=1e4, eps=1e-6, ctx=163840, yarn=40.0, iheads=64)
# q: tensor-class -> type
MIX = dict(embd="Q4_K", out="Q6_K", attn="Q8_0", attn_o="Q6_K", dense="Q6_K", dense_down="Q8_0", sh="Q6_K", sh_down="Q8_0",
           exp="Q4_K", exp_down="Q5_K", exp_down_hi="Q6_K", hi_every=4, idx="Q8_0", idx_proj="F32", nextn="Q8_0")
PRESETS = {
    "tiny": dict(hidden=512, heads=4, q_lora=256, layers=4, dense=1, ff=1024, experts=16, used=4, eff=256, vocab=32000, iheads=4, topk=256),
    "mid":  dict(hidden=2048, heads=16, q_lora=768, layers=12, dense=1, ff=6144, experts=64, used=8, eff=512, vocab=32000),
    "big":  dict(hidden=4096, heads=32, q_lora=1536, layers=17, dense=1, ff=8192, experts=80, used=8, eff=1024, vocab=64000),
}


def byte_unicode():
    """GPT-2's printable stand-ins for the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    m, n = {}, 0
    for b in range(256):
        if b in keep: m[b] = chr(b)
        else:
            m[b] = chr(256 + n); n += 1
    return m


SPECIAL = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
           "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"]
# GLM keeps the tool/think markers as user-defined (4), the rest as control (3)
USERDEF = set(SPECIAL[10:])


def tokenizer(vocab, rng):
    """Consistent byte-level BPE: every merge (a, b) yields a token of the vocabulary, in rank order."""
    bu = byte_unicode()
    toks = [bu[b] for b in range(256)]
    have = set(toks)
    merges = []
    room = vocab - 256 - len(SPECIAL)
    letters = [chr(c) for c in range(97, 123)]
    sp = bu[32]
    freq = np.array([8.2, 1.5, 2.8, 4.3, 12.7, 2.2, 2, 6.1, 7, .15, .77, 4, 2.4, 6.7, 7.5, 1.9, .1, 6, 6.3, 9.1, 2.8, 1, 2.4, .15, 2, .07])
    freq /= freq.sum()

    def add(a, b):
        if len(merges) < room and a + b not in have:
            have.add(a + b); toks.append(a + b); merges.append(a + " " + b)
    for c in letters: add(sp, c)                       # " t"
    for a in letters:
        for b in letters:
            if freq[ord(a) - 97] * freq[ord(b) - 97] > 1e-5: add(a, b)      # "th"
    for n in (sp, bu[10]): add(n, n)
    add(sp * 2, sp * 2); add(sp * 4, sp * 4); add(bu[10] * 2, bu[10])
    pool = [t for t in toks if (t.isalpha() and t.isascii() and len(t) > 1) or (t[0] == sp and len(t) == 2 and t[1].isalpha())]
    while len(merges) < room:                          # longer words out of what is there
        a = pool[int(rng.integers(len(pool)))]
        b = pool[int(rng.integers(len(pool)))] if rng.random() < .6 else letters[int(rng.choice(26, p=freq))]
        if b[0] == sp or len(a + b) > 12: continue
        if a + b not in have:
            add(a, b); pool.append(a + b)
    types = [1] * len(toks) + [4 if s in USERDEF else 3 for s in SPECIAL]
    return toks + SPECIAL, types, merges


def plan(arch, c, mix, nextn):
    """[(name, numpy shape, type, kind)]; kind: w (weight), n (norm), b (bias), r (router)"""
    T = []
    H, hd, ql, kl = c["hidden"], c["heads"], c["q_lora"], c["kv_lora"]
    dsa = arch in ("glm-dsa", "deepseek32")

    def add(name, shape, q, kind="w"):
        if TYPES[q][1] > 1 and shape[-1] % TYPES[q][1]:
            q = "Q8_0" if shape[-1] % 32 == 0 else "F16"
        T.append((name, tuple(shape), q, kind))
    add("token_embd.weight", (c["vocab"], H), mix["embd"])
    for i in range(c["layers"] + nextn):
        p = f"blk.{i}."
        add(p + "attn_norm.weight", (H,), "F32", "n")
        add(p + "attn_q_a.weight", (ql, H), mix["attn"])
        add(p + "attn_q_a_norm.weight", (ql,), "F32", "n")
        add(p + "attn_q_b.weight", (hd * (c["nope"] + c["rope"]), ql), mix["attn"])
        add(p + "attn_kv_a_mqa.weight", (kl + c["rope"], H), mix["attn"])
        add(p + "attn_kv_a_norm.weight", (kl,), "F32", "n")
        add(p + "attn_k_b.weight", (hd, kl, c["nope"]), mix["attn"])
        add(p + "attn_v_b.weight", (hd, c["v"], kl), mix["attn"])
        add(p + "attn_output.weight", (H, hd * c["v"]), mix["attn_o"])
        if dsa:
            add(p + "indexer.attn_k.weight", (c["idim"], H), mix["idx"])
            add(p + "indexer.attn_q_b.weight", (c["iheads"] * c["idim"], ql), mix["idx"])
            add(p + "indexer.k_norm.weight", (c["idim"],), "F32", "n")
            add(p + "indexer.k_norm.bias", (c["idim"],), "F32", "b")
            add(p + "indexer.proj.weight", (c["iheads"], H), mix["idx_proj"])
        add(p + "ffn_norm.weight", (H,), "F32", "n")
        if i < c["dense"]:
            add(p + "ffn_gate.weight", (c["ff"], H), mix["dense"])
            add(p + "ffn_up.weight", (c["ff"], H), mix["dense"])
            add(p + "ffn_down.weight", (H, c["ff"]), mix["dense_down"])
        else:
            E, ef, sf = c["experts"], c["eff"], c["eff"] * c["shared"]
            dn = mix["exp_down_hi"] if mix["hi_every"] and i % mix["hi_every"] == 0 else mix["exp_down"]
            add(p + "ffn_gate_inp.weight", (E, H), "F32", "r")
            add(p + "exp_probs_b.bias", (E,), "F32", "b")
            add(p + "ffn_gate_exps.weight", (E, ef, H), mix["exp"])
            add(p + "ffn_up_exps.weight", (E, ef, H), mix["exp"])
            add(p + "ffn_down_exps.weight", (E, H, ef), dn)
            add(p + "ffn_gate_shexp.weight", (sf, H), mix["sh"])
            add(p + "ffn_up_shexp.weight", (sf, H), mix["sh"])
            add(p + "ffn_down_shexp.weight", (H, sf), mix["sh_down"])
        if i >= c["layers"]:
            add(p + "nextn.eh_proj.weight", (H, 2 * H), mix["nextn"])
            add(p + "nextn.enorm.weight", (H,), "F32", "n")
            add(p + "nextn.hnorm.weight", (H,), "F32", "n")
            add(p + "nextn.shared_head_norm.weight", (H,), "F32", "n")
    add("output_norm.weight", (H,), "F32", "n")
    add("output.weight", (c["vocab"], H), mix["out"])
    return T


def nbytes(shape, q):
    return int(np.prod(shape)) // TYPES[q][1] * TYPES[q][2]


def bytes_per_token(T, c, n_ctx=0, cache_bytes=2, dsa=False, topk=None):
    """Bytes of weights (and cache at depth n_ctx) read for one generated token. Returns (weights, cache)."""
    w = 0
    for name, shape, q, _ in T:
        if name.startswith("blk.") and int(name.split(".")[1]) >= c["layers"]: continue
        b = nbytes(shape, q)
        if name == "token_embd.weight": b = b // shape[0]
        elif "_exps." in name: b = b // shape[0] * c["used"]
        elif "indexer." in name and not dsa: b = 0
        w += b
    att = n_ctx if not dsa else min(n_ctx, topk or c["topk"])
    kv = c["layers"] * (c["kv_lora"] + c["rope"]) * cache_bytes * att
    if dsa: kv += c["layers"] * c["idim"] * cache_bytes * n_ctx
    return w, kv


def blocks(n, q, scale, rng):
    """random_blocks without a bit pattern that no quantiser writes and not every engine's kernels take: the int8 value -128
    (Q8_0 values, Q6_K scales)."""
    b = ggufw.random_blocks(n, q, float(scale), rng)  # a NumPy scalar would turn float32 arrays into float64
    lo, hi = {"Q8_0": (2, 34), "Q6_K": (192, 208)}.get(q, (0, 0))
    if hi:
        a = np.frombuffer(b, np.uint8).reshape(-1, TYPES[q][2]).copy()
        v = a[:, lo:hi]; v[v == 0x80] = 0x81
        b = a.tobytes()
    return b


def maker(shape, q, kind, seed):
    def make():
        rng = np.random.default_rng(seed)
        n = int(np.prod(shape))
        if kind == "n": return (1 + 0.1 * rng.standard_normal(n, dtype=np.float32)).astype(np.float32).tobytes()
        if kind == "b": return (0.02 * rng.standard_normal(n, dtype=np.float32)).astype(np.float32).tobytes()
        if kind == "r": return (rng.standard_normal(n, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))).astype(np.float32).tobytes()
        std = 1 / np.sqrt(shape[-1])
        scale = std if q in ("F16", "F32") else 1.7 * std     # random_blocks: roughly uniform in +-scale
        if q == "BF16": return ggufw.quantize(rng.standard_normal(n, dtype=np.float32) * np.float32(std), q)
        if n <= 1 << 24: return blocks(n, q, scale, rng)
        out, left = [], n                                    # bound the memory of huge tensors
        while left:
            k = min(left, 1 << 24)
            out.append(blocks(k, q, scale, rng)); left -= k
        return b"".join(out)
    return make


def build(arch, c, mix, nextn, seed, hook=None):
    w = Writer()
    a = arch
    kv = w.add_kv
    kv("general.architecture", a, STR); kv("general.name", f"synth-{a}", STR); kv("general.file_type", 15, U32)
    kv("general.quantization_version", 2, U32)
    kv(a + ".block_count", c["layers"] + nextn, U32); kv(a + ".context_length", c["ctx"], U32)
    kv(a + ".embedding_length", c["hidden"], U32); kv(a + ".feed_forward_length", c["ff"], U32)
    kv(a + ".attention.head_count", c["heads"], U32); kv(a + ".attention.head_count_kv", 1, U32)
    kv(a + ".rope.freq_base", c["freq_base"], F32T); kv(a + ".attention.layer_norm_rms_epsilon", c["eps"], F32T)
    kv(a + ".expert_used_count", c["used"], U32); kv(a + ".expert_count", c["experts"], U32); kv(a + ".expert_shared_count", c["shared"], U32)
    kv(a + ".expert_feed_forward_length", c["eff"], U32); kv(a + ".leading_dense_block_count", c["dense"], U32)
    kv(a + ".expert_weights_scale", c["wscale"], F32T); kv(a + ".expert_weights_norm", c["wnorm"], BOOL); kv(a + ".expert_gating_func", c["gating"], U32)
    if c["groups"]:
        kv(a + ".expert_group_count", c["groups"], U32); kv(a + ".expert_group_used_count", c["groups_used"], U32)
    kv(a + ".vocab_size", c["vocab"], U32)
    kv(a + ".attention.q_lora_rank", c["q_lora"], U32); kv(a + ".attention.kv_lora_rank", c["kv_lora"], U32)
    kv(a + ".attention.key_length", c["kv_lora"] + c["rope"], U32); kv(a + ".attention.value_length", c["kv_lora"], U32)
    kv(a + ".attention.key_length_mla", c["nope"] + c["rope"], U32); kv(a + ".attention.value_length_mla", c["v"], U32)
    kv(a + ".rope.dimension_count", c["rope"], U32)
    if c["yarn"]:
        kv(a + ".rope.scaling.type", "yarn", STR); kv(a + ".rope.scaling.factor", c["yarn"], F32T)
        kv(a + ".rope.scaling.original_context_length", c["yarn_orig"], U32); kv(a + ".rope.scaling.yarn_log_multiplier", c["yarn_log"], F32T)
    if nextn: kv(a + ".nextn_predict_layers", nextn, U32)
    if a in ("glm-dsa", "deepseek32"):
        kv(a + ".attention.indexer.head_count", c["iheads"], U32); kv(a + ".attention.indexer.key_length", c["idim"], U32)
        kv(a + ".attention.indexer.top_k", c["topk"], U32)
        if c["index_types"]:
            s = c["index_types"]
            w.add_arr(a + ".attention.indexer.types", [s[i % len(s)] == "F" for i in range(c["layers"])], BOOL)
    toks, types, merges = tokenizer(c["vocab"], np.random.default_rng(seed))
    kv("tokenizer.ggml.model", "gpt2", STR); kv("tokenizer.ggml.pre", "glm4", STR)
    w.add_arr("tokenizer.ggml.tokens", toks, STR); w.add_arr("tokenizer.ggml.token_type", types, I32); w.add_arr("tokenizer.ggml.merges", merges, STR)
    eos = toks.index("<|endoftext|>")
    kv("tokenizer.ggml.eos_token_id", eos, U32); kv("tokenizer.ggml.padding_token_id", eos, U32)
    kv("tokenizer.ggml.eot_token_id", toks.index("<|user|>"), U32); kv("tokenizer.ggml.eom_token_id", toks.index("<|observation|>"), U32)
    kv("tokenizer.ggml.bos_token_id", toks.index("[gMASK]"), U32); kv("tokenizer.ggml.add_bos_token", False, BOOL)
    kv("tokenizer.chat_template", "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}", STR)
    T = plan(arch, c, mix, nextn)
    for k, (name, shape, q, kind) in enumerate(T):
        w.add_lazy(name, shape, q, maker(shape, q, kind, [seed, k]))
    if hook: hook(w)
    return w, T


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out"); ap.add_argument("--arch", default="glm-dsa", choices=["glm-dsa", "deepseek2", "deepseek32"])
    ap.add_argument("--preset", default="tiny", choices=list(PRESETS)); ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--nextn", type=int, help="NextN layers appended (default 1 for glm-dsa, 0 otherwise)")
    ap.add_argument("--set", action="append", default=[], metavar="KEY=VALUE"); ap.add_argument("--qset", action="append", default=[], metavar="CLASS=TYPE")
    ap.add_argument("--plan", action="store_true")
    a = ap.parse_args()
    c = dict(GLM if a.arch == "glm-dsa" else DS); c.update(PRESETS[a.preset])
    mix = dict(MIX)
    for d, items in ((c, a.set), (mix, a.qset)):
        for s in items:
            k, v = s.split("=", 1)
            if k not in d: sys.exit(f"unknown key {k}; known: {', '.join(d)}")
            d[k] = v if isinstance(d[k], str) else (v.lower() in ("1", "true") if isinstance(d[k], bool) else type(d[k])(float(v)))
    nextn = a.nextn if a.nextn is not None else (1 if a.arch == "glm-dsa" else 0)
    T = plan(a.arch, c, mix, nextn)
    tot = sum(nbytes(s, q) for _, s, q, _ in T)
    print(f"{a.arch} {a.preset}: {len(T)} tensors, {tot / 1e6:.1f} MB of weights, {sum(int(np.prod(s)) for _, s, _, _ in T) / 1e9:.3f} G parameters")
    for dsa in ([False, True] if a.arch != "deepseek2" else [False]):
        for n in (0, 4096, 16384, 32768):
            w, kv = bytes_per_token(T, c, n, 2, dsa)
            print(f"  bytes/token ({'sparse' if dsa else 'dense'}, f16 cache, context {n}): weights {w / 1e6:.1f} MB + cache {kv / 1e6:.1f} MB")
    if a.plan:
        for name, shape, q, _ in T: print(f"  {name} {list(reversed(shape))} {q}")
        return
    w, _ = build(a.arch, c, mix, nextn, a.seed)
    tmp = a.out + ".part"
    w.write(tmp); os.replace(tmp, a.out)
    print(f"wrote {a.out}: {os.path.getsize(a.out) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
