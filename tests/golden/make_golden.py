#!/usr/bin/env python3
"""Make tiny random models as GGUF files, and golden outputs for them from Hugging Face transformers.

    python3 make_golden.py --set open --out DIR             both, needs torch and transformers (made with 5.17)
    python3 make_golden.py --set open --out DIR --gguf-only  only the GGUF files, needs numpy

Weights come from numpy's PCG64 with a seed that depends on (case seed, tensor name), are rounded to bfloat16 and
kept as float32: the same model can be stored as F32, BF16 or F16 without any loss.
"""
import argparse, hashlib, json, math, os, struct, sys, time, zlib
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import ggufw
from ggufw import U32, I32, F32T, BOOL, STR

N_GEN = 16  # greedy tokens after the prompt

# ----------------------------------------------------------------------------------------------------------- cases

GLM_SPECIAL = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
               "<|assistant|>", "<|observation|>", "<think>", "</think>"]
DS_SPECIAL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"]
LLAMA_SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ("Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b|e d|Ġ f|in g|Ġ p|o u|"
          "Ġa n|a l|a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|i c|a s|l e|Ġt h|i on|o m|l l|en t|Ġ n|Ġ l|s t|v e|Ġ re|"
          "Ġ I|0 0|Ġ Ġ|ĠĠ ĠĠ|Ċ Ċ|Ã ©|ä ½|ä½ ł|å ¥|å¥ ½").split("|")


def yarn(factor, orig, theta=10000.0, mscale=1.0, fast=32, slow=1):
    return dict(rope_type="yarn", rope_theta=theta, factor=float(factor), original_max_position_embeddings=orig,
                beta_fast=fast, beta_slow=slow, mscale=mscale, mscale_all_dim=mscale)


def plain(theta, **kw):
    return dict(rope_type="default", rope_theta=theta, **kw)


def dsa(**kw):
    c = dict(vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=3,
             num_attention_heads=4, n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=2,
             routed_scaling_factor=2.5, kv_lora_rank=64, q_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32,
             v_head_dim=32, n_group=1, topk_group=1, norm_topk_prob=True, index_topk=64, index_head_dim=64,
             index_n_heads=4, max_position_embeddings=202752, rms_norm_eps=1e-5, first_k_dense_replace=1,
             rope_parameters=plain(1000000.0), attention_bias=False)
    c.update(kw)
    c["num_key_value_heads"] = c["num_attention_heads"]
    return c


def ds(**kw):
    c = dict(vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=3,
             num_attention_heads=4, n_shared_experts=1, n_routed_experts=16, num_experts_per_tok=4,
             routed_scaling_factor=2.5, kv_lora_rank=64, q_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32,
             v_head_dim=32, n_group=4, topk_group=2, norm_topk_prob=True, max_position_embeddings=163840,
             rms_norm_eps=1e-6, first_k_dense_replace=1, rope_parameters=yarn(40, 4096), attention_bias=False)
    c.update(kw)
    c["num_key_value_heads"] = c["num_attention_heads"]
    return c


def ds32(**kw):
    return ds(**{**dict(index_topk=16, index_head_dim=64, index_n_heads=12, q_lora_rank=32, kv_lora_rank=32), **kw})


def ds_lite(**kw):
    c = ds(q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, routed_scaling_factor=1.0,
           n_group=1, topk_group=1, topk_method="greedy", norm_topk_prob=False,
           rope_parameters=yarn(40, 4096, mscale=0.707))
    c.update(kw)
    c["num_key_value_heads"] = c["num_attention_heads"]
    return c


def lite47(**kw):
    c = ds(n_routed_experts=8, num_experts_per_tok=4, n_group=1, topk_group=1, routed_scaling_factor=1.8,
           num_attention_heads=5, max_position_embeddings=202752, rms_norm_eps=1e-5, rope_parameters=plain(1000000.0))
    c.update(kw)
    c["num_key_value_heads"] = c["num_attention_heads"]
    n = c.pop("first_k_dense_replace")
    c["mlp_layer_types"] = ["dense"] * n + ["sparse"] * (c["num_hidden_layers"] - n)
    return c


def glm45(**kw):
    c = dict(vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=3,
             num_attention_heads=8, num_key_value_heads=2, head_dim=32, n_shared_experts=1, n_routed_experts=8,
             num_experts_per_tok=2, routed_scaling_factor=2.5, n_group=1, topk_group=1, norm_topk_prob=True,
             first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, max_position_embeddings=131072,
             rms_norm_eps=1e-5, rope_parameters=plain(1000000.0, partial_rotary_factor=0.5))
    c.update(kw)
    return c


def dense(**kw):
    c = dict(vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_parameters=plain(1000000.0),
             tie_word_embeddings=False)
    c.update(kw)
    return c


# name: (kind, prompt length, seed, config, extra)
# extra: nextn = NextN/MTP blocks appended to the GGUF (unused by the trunk), types = write attention.indexer.types,
#        spare = unused indexer tensors on "shared" layers too
SETS = {
    "open": {
        "dsa_dense": ("dsa", 32, 48, dsa(), {}),
        "dsa_sparse": ("dsa", 96, 31, dsa(num_hidden_layers=5, num_experts_per_tok=3, index_topk=16, index_n_heads=12,
                                         q_lora_rank=32, kv_lora_rank=32), dict(nextn=1)),
        "dsa_shared": ("dsa", 80, 28, dsa(num_hidden_layers=8, first_k_dense_replace=3, index_topk=16, index_n_heads=12,
                                         q_lora_rank=32, kv_lora_rank=32, n_routed_experts=6,
                                         max_position_embeddings=1048576, rope_parameters=plain(8000000.0),
                                         indexer_types=["full" if c == "F" else "shared" for c in "FFFSSSFS"]),
                       dict(nextn=1, types=True)),
        "dsa_full_dims": ("dsa", 80, 48, dsa(num_hidden_layers=2, num_attention_heads=2, kv_lora_rank=512, qk_rope_head_dim=64,
                                            qk_nope_head_dim=192, v_head_dim=256, index_head_dim=128, index_topk=32, index_n_heads=8), {}),
        "ds3": ("ds3", 80, 17, ds(), {}),
        "ds32": ("ds32", 80, 14, ds32(), {}),
        "ds2_lite": ("ds2", 80, 31, ds_lite(), {}),
        "glm47_flash": ("lite47", 64, 5, lite47(), {}),
        "glm45": ("glm45", 64, 8, glm45(), dict(nextn=1)),
        "llama": ("llama", 64, 7, dense(hidden_size=96, num_attention_heads=6, rms_norm_eps=1e-5, head_dim=16,
                                        rope_parameters=plain(500000.0)), {}),
        "qwen2": ("qwen2", 48, 2, dense(), {}),
        "qwen3": ("qwen3", 48, 3, dense(head_dim=32, tie_word_embeddings=True), {}),
    },
}

KINDS = {  # kind: (hf model_type, class stem, gguf arch, tokenizer pre, specials, first tokens)
    "dsa": ("glm_moe_dsa", "GlmMoeDsa", "glm-dsa", "glm4", GLM_SPECIAL, ["[gMASK]", "<sop>"]),
    "ds3": ("deepseek_v3", "DeepseekV3", "deepseek2", "deepseek-v3", DS_SPECIAL, [DS_SPECIAL[0]]),
    "ds32": ("deepseek_v32", "DeepseekV32", "deepseek32", "deepseek-v3", DS_SPECIAL, [DS_SPECIAL[0]]),
    "ds2": ("deepseek_v2", "DeepseekV2", "deepseek2", "deepseek-llm", DS_SPECIAL, [DS_SPECIAL[0]]),
    "lite47": ("glm4_moe_lite", "Glm4MoeLite", "deepseek2", "glm4", GLM_SPECIAL, ["[gMASK]", "<sop>"]),
    "glm45": ("glm4_moe", "Glm4Moe", "glm4moe", "glm4", GLM_SPECIAL, ["[gMASK]", "<sop>"]),
    "llama": ("llama", "Llama", "llama", "llama-bpe", LLAMA_SPECIAL, [LLAMA_SPECIAL[0]]),
    "qwen2": ("qwen2", "Qwen2", "qwen2", "qwen2", QWEN_SPECIAL, []),
    "qwen3": ("qwen3", "Qwen3", "qwen3", "qwen2", QWEN_SPECIAL, []),
}


class Case:
    def __init__(self, set_, name, seed=None):
        self.set, self.name = set_, name
        self.kind, self.n_prompt, s, self.cfg, self.extra = SETS[set_][name]
        self.seed = seed if seed is not None else s
        self.model_type, self.stem, self.arch, self.pre, self.specials, self.first = KINDS[self.kind]
        self.dsa = self.kind in ("dsa", "ds32")
        self.mla = self.dsa or self.kind in ("ds3", "ds2", "lite47")
        self.moe = self.mla or self.kind == "glm45"
        self.nextn = self.extra.get("nextn", 0)
        c = self.cfg
        self.L = c["num_hidden_layers"]
        self.n_dense = self.L if not self.moe else (
            c["first_k_dense_replace"] if "first_k_dense_replace" in c else c["mlp_layer_types"].count("dense"))
        self.types = c.get("indexer_types") or ["full"] * self.L
        self.head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        self._vocab()

    def rng(self, name):
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(
            [self.seed, zlib.crc32((self.set + "/" + self.name + "/" + name).encode())])))

    # -- vocabulary: 256 bytes, merges, special tokens, padding up to vocab_size
    def _vocab(self):
        keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        self.byte_char, n = {}, 0
        for b in range(256):
            self.byte_char[b] = chr(b) if b in keep else chr(256 + n)
            n += b not in keep
        toks = sorted(self.byte_char.values(), key=ord)
        self.merges = []
        room = self.cfg["vocab_size"] - len(self.specials) - 256
        for m in MERGES[:room]:
            self.merges.append(m)
            toks.append(m.replace(" ", ""))
        self.n_normal = len(toks)
        types = [1] * len(toks)
        self.special_id = {}
        for s in self.specials:
            self.special_id[s] = len(toks)
            toks.append(s)
            types.append(4 if s in ("<think>", "</think>") else 3)
        while len(toks) < self.cfg["vocab_size"]:
            toks.append("[PAD%d]" % len(toks))
            types.append(5)
        assert len(set(toks)) == len(toks) == self.cfg["vocab_size"]
        self.tokens, self.token_types = toks, types

    def prompt(self):
        r = self.rng("prompt").integers(0, self.n_normal, self.n_prompt)
        ids = [self.special_id[s] for s in self.first]
        return np.array((ids + [int(x) for x in r])[:self.n_prompt], dtype=np.int32)

    # -- weights, under the names transformers uses
    def shapes(self):
        c, out = self.cfg, {}
        D, V, H = c["hidden_size"], c["vocab_size"], c["num_attention_heads"]

        def w(n, *shape, gain=1.0): out[n] = (shape, "w", gain)
        def norm(n, d): out[n] = ((d,), "norm", 0)
        def bias(n, d, std): out[n] = ((d,), "bias", std)

        def layer(i, kind_full):
            p = "model.layers.%d." % i
            norm(p + "input_layernorm.weight", D)
            norm(p + "post_attention_layernorm.weight", D)
            a = p + "self_attn."
            if self.mla:
                ql, kl, rp, nope, vd = (c[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
                if ql is None:
                    w(a + "q_proj.weight", H * (nope + rp), D, gain=1.3)
                else:
                    w(a + "q_a_proj.weight", ql, D)
                    norm(a + "q_a_layernorm.weight", ql)
                    w(a + "q_b_proj.weight", H * (nope + rp), ql, gain=1.3)
                w(a + "kv_a_proj_with_mqa.weight", kl + rp, D)
                norm(a + "kv_a_layernorm.weight", kl)
                w(a + "kv_b_proj.weight", H * (nope + vd), kl)
                w(a + "o_proj.weight", D, H * vd, gain=1.4)
                if self.dsa and (kind_full or self.extra.get("spare")):
                    hd, nh = c["index_head_dim"], c["index_n_heads"]
                    w(a + "indexer.wq_b.weight", nh * hd, ql)
                    w(a + "indexer.wk.weight", hd, D)
                    norm(a + "indexer.k_norm.weight", hd)
                    bias(a + "indexer.k_norm.bias", hd, 0.25)
                    w(a + "indexer.weights_proj.weight", nh, D)
            else:
                hd, kv = self.head_dim, c["num_key_value_heads"]
                b = self.kind == "qwen2" or c.get("attention_bias", False)
                for n, k, g in (("q", H, 1.3), ("k", kv, 1.0), ("v", kv, 1.0)):
                    w(a + n + "_proj.weight", k * hd, D, gain=g)
                    if b: bias(a + n + "_proj.bias", k * hd, 0.4)
                w(a + "o_proj.weight", D, H * hd, gain=1.4)
                if self.kind == "qwen3" or c.get("use_qk_norm"):
                    norm(a + "q_norm.weight", hd)
                    norm(a + "k_norm.weight", hd)
            m = p + "mlp."
            if i < self.n_dense:
                F = c["intermediate_size"]
                w(m + "gate_proj.weight", F, D, gain=1.2)
                w(m + "up_proj.weight", F, D, gain=1.2)
                w(m + "down_proj.weight", D, F)
            else:
                E, F = c["n_routed_experts"], c["moe_intermediate_size"]
                w(m + "gate.weight", E, D, gain=1.5)
                if self.kind != "ds2": bias(m + "gate.e_score_correction_bias", E, 0.2)
                w(m + "experts.gate_up_proj", E, 2 * F, D, gain=1.2)
                w(m + "experts.down_proj", E, D, F, gain=0.8)
                S = F * c["n_shared_experts"]
                w(m + "shared_experts.gate_proj.weight", S, D, gain=1.2)
                w(m + "shared_experts.up_proj.weight", S, D, gain=1.2)
                w(m + "shared_experts.down_proj.weight", D, S)

        out["model.embed_tokens.weight"] = ((V, D), "embed", 1.0)
        for i in range(self.L): layer(i, self.types[i] == "full")
        for i in range(self.L, self.L + self.nextn):
            layer(i, True)
            p = "model.layers.%d." % i
            w(p + "eh_proj.weight", D, 2 * D)
            norm(p + "enorm.weight", D)
            norm(p + "hnorm.weight", D)
            norm(p + "shared_head.norm.weight", D)
            if self.kind == "glm45":
                out[p + "embed_tokens.weight"] = ((V, D), "embed", 1.0)
                out[p + "shared_head.head.weight"] = ((V, D), "head", 3.0)
        norm("model.norm.weight", D)
        if not c.get("tie_word_embeddings"): out["lm_head.weight"] = ((V, D), "head", 3.0)
        return out

    def weights(self):
        sd = {}
        for name, (shape, how, g) in self.shapes().items():
            x = self.rng(name).standard_normal(shape)
            if how == "norm": x = 1.0 + 0.25 * np.clip(x, -2.4, 2.4)
            elif how == "bias": x = x * g
            elif how == "embed":
                if self.cfg.get("tie_word_embeddings"):  # serves as output matrix too
                    x = x * (2.0 / math.sqrt(shape[-1]))
                    x[self.n_normal:] *= 0.25
            else: x = x * (g / math.sqrt(shape[-1]))
            if how == "head": x[self.n_normal:] *= 0.25  # greedy text never hits a special token
            sd[name] = snap(x)
        return sd


def snap(x):
    """Round to bfloat16 (nearest even), tiny values to 0: exact in F32, BF16 and F16."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    u = ((u + 0x7FFF + ((u >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32)
    f = u.view(np.float32).copy()
    f[np.abs(f) < 2.0 ** -14] = 0
    return f


# ------------------------------------------------------------------------------------------------------------ GGUF

def permute(w, n_head):
    """Half-split rotary rows to interleaved rows, as the llama converter does."""
    return np.ascontiguousarray(w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape))


def gguf_tensors(case, sd):
    c, t = case.cfg, {}
    H = c["num_attention_heads"]
    t["token_embd.weight"] = sd["model.embed_tokens.weight"]
    t["output_norm.weight"] = sd["model.norm.weight"]
    if "lm_head.weight" in sd: t["output.weight"] = sd["lm_head.weight"]
    for i in range(case.L + case.nextn):
        p, b = "model.layers.%d." % i, "blk.%d." % i
        a, m = p + "self_attn.", p + "mlp."

        def cp(dst, src):
            if src in sd: t[b + dst] = sd[src]
        cp("attn_norm.weight", p + "input_layernorm.weight")
        post = "post_attention_norm.weight" if case.kind == "glm45" else "ffn_norm.weight"
        if case.mla:
            nope, vd, kl = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
            cp("attn_q.weight", a + "q_proj.weight")
            cp("attn_q_a.weight", a + "q_a_proj.weight")
            cp("attn_q_a_norm.weight", a + "q_a_layernorm.weight")
            cp("attn_q_b.weight", a + "q_b_proj.weight")
            cp("attn_kv_a_mqa.weight", a + "kv_a_proj_with_mqa.weight")
            cp("attn_kv_a_norm.weight", a + "kv_a_layernorm.weight")
            kvb = sd[a + "kv_b_proj.weight"].reshape(H, nope + vd, kl)
            t[b + "attn_k_b.weight"] = np.ascontiguousarray(kvb[:, :nope].transpose(0, 2, 1))  # [head][kv_lora][nope]
            t[b + "attn_v_b.weight"] = np.ascontiguousarray(kvb[:, nope:])                     # [head][v][kv_lora]
            cp("indexer.k_norm.weight", a + "indexer.k_norm.weight")
            cp("indexer.k_norm.bias", a + "indexer.k_norm.bias")
            cp("indexer.proj.weight", a + "indexer.weights_proj.weight")
            cp("indexer.attn_k.weight", a + "indexer.wk.weight")
            cp("indexer.attn_q_b.weight", a + "indexer.wq_b.weight")
        else:
            for n, k in (("q", H), ("k", c["num_key_value_heads"]), ("v", 0)):
                for s in ("weight", "bias"):
                    x = sd.get(a + n + "_proj." + s)
                    if x is None: continue
                    if case.kind == "llama" and k: x = permute(x, k)
                    t[b + "attn_%s.%s" % (n, s)] = x
            cp("attn_q_norm.weight", a + "q_norm.weight")
            cp("attn_k_norm.weight", a + "k_norm.weight")
        cp("attn_output.weight", a + "o_proj.weight")
        cp(post, p + "post_attention_layernorm.weight")
        for n in ("gate", "up", "down"):
            cp("ffn_%s.weight" % n, m + n + "_proj.weight")
            cp("ffn_%s_shexp.weight" % n, m + "shared_experts.%s_proj.weight" % n)
        cp("ffn_gate_inp.weight", m + "gate.weight")
        cp("exp_probs_b.bias", m + "gate.e_score_correction_bias")
        if m + "experts.gate_up_proj" in sd:
            gu, F = sd[m + "experts.gate_up_proj"], c["moe_intermediate_size"]
            t[b + "ffn_gate_exps.weight"] = np.ascontiguousarray(gu[:, :F])
            t[b + "ffn_up_exps.weight"] = np.ascontiguousarray(gu[:, F:])
            t[b + "ffn_down_exps.weight"] = sd[m + "experts.down_proj"]
        for dst, src in (("eh_proj", "eh_proj"), ("enorm", "enorm"), ("hnorm", "hnorm"), ("shared_head_norm", "shared_head.norm"),
                         ("embed_tokens", "embed_tokens"), ("shared_head_head", "shared_head.head")):
            cp("nextn.%s.weight" % dst, p + src + ".weight")
    return t


def gguf_meta(case):
    """[(key, value, type)]; arrays have type ("arr", t)."""
    c, A, kv = case.cfg, case.arch, []
    def g(k, v, t): kv.append((k, v, t))
    def u(k, v): g(A + "." + k, int(v), U32)
    def f(k, v): g(A + "." + k, float(v), F32T)
    g("general.architecture", A, STR)
    g("general.type", "model", STR)
    g("general.name", "tiny random %s (%s)" % (case.name, case.set), STR)
    g("general.file_type", 0, U32)
    g("general.quantization_version", 2, U32)
    u("block_count", case.L + case.nextn)
    u("context_length", c["max_position_embeddings"])
    u("embedding_length", c["hidden_size"])
    u("feed_forward_length", c["intermediate_size"])
    u("attention.head_count", c["num_attention_heads"])
    u("attention.head_count_kv", 1 if case.mla else c["num_key_value_heads"])
    r = c["rope_parameters"]
    if r["rope_type"] == "yarn":
        g(A + ".rope.scaling.type", "yarn", STR)
        f("rope.scaling.factor", r["factor"])
        u("rope.scaling.original_context_length", r["original_max_position_embeddings"])
        f("rope.scaling.yarn_beta_fast", r["beta_fast"])
        f("rope.scaling.yarn_beta_slow", r["beta_slow"])
    f("rope.freq_base", r["rope_theta"])
    f("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    if case.mla or case.kind == "llama": u("vocab_size", c["vocab_size"])
    if case.moe:
        u("expert_count", c["n_routed_experts"])
        u("expert_used_count", c["num_experts_per_tok"])
        u("expert_group_count", c["n_group"])
        u("expert_group_used_count", c["topk_group"])
        u("expert_gating_func", 1 if case.kind == "ds2" else 2)
        u("leading_dense_block_count", case.n_dense)
        u("expert_feed_forward_length", c["moe_intermediate_size"])
        u("expert_shared_count", c["n_shared_experts"])
        f("expert_weights_scale", c["routed_scaling_factor"])
        if c["norm_topk_prob"]: g(A + ".expert_weights_norm", True, BOOL)
    if case.mla:
        if c["q_lora_rank"]: u("attention.q_lora_rank", c["q_lora_rank"])
        u("attention.kv_lora_rank", c["kv_lora_rank"])
        u("attention.key_length", c["kv_lora_rank"] + c["qk_rope_head_dim"])
        u("attention.value_length", c["kv_lora_rank"])
        u("attention.key_length_mla", c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        u("attention.value_length_mla", c["v_head_dim"])
        u("rope.dimension_count", c["qk_rope_head_dim"])
        if "mscale_all_dim" in r: f("rope.scaling.yarn_log_multiplier", 0.1 * r["mscale_all_dim"])
    else:
        if "head_dim" in c:
            u("attention.key_length", case.head_dim)
            u("attention.value_length", case.head_dim)
        if case.kind in ("glm45", "llama"):
            u("rope.dimension_count", case.head_dim * r.get("partial_rotary_factor", 1.0))
    if case.nextn or case.kind in ("dsa", "glm45"): u("nextn_predict_layers", case.nextn)
    if case.dsa:
        u("attention.indexer.head_count", c["index_n_heads"])
        u("attention.indexer.key_length", c["index_head_dim"])
        u("attention.indexer.top_k", c["index_topk"])
        if case.extra.get("types"): g(A + ".attention.indexer.types", [x == "full" for x in case.types], ("arr", BOOL))
    g("tokenizer.ggml.model", "gpt2", STR)
    g("tokenizer.ggml.pre", case.pre, STR)
    g("tokenizer.ggml.tokens", case.tokens, ("arr", STR))
    g("tokenizer.ggml.token_type", case.token_types, ("arr", I32))
    g("tokenizer.ggml.merges", case.merges, ("arr", STR))
    s = case.special_id

    def tid(k, name): g("tokenizer.ggml.%s_token_id" % k, s[name], U32)
    if case.specials is GLM_SPECIAL:
        tid("eos", "<|endoftext|>"); tid("padding", "<|endoftext|>"); tid("bos", "[gMASK]"); tid("eot", "<|user|>")
        tid("unknown", "<|endoftext|>"); tid("eom", "<|observation|>")
    elif case.specials is DS_SPECIAL:
        tid("bos", DS_SPECIAL[0]); tid("eos", DS_SPECIAL[1]); tid("padding", DS_SPECIAL[2])
        g("tokenizer.ggml.add_bos_token", True, BOOL); g("tokenizer.ggml.add_eos_token", False, BOOL)
    elif case.specials is LLAMA_SPECIAL:
        tid("bos", LLAMA_SPECIAL[0]); tid("eos", LLAMA_SPECIAL[1]); g("tokenizer.ggml.add_bos_token", True, BOOL)
    else:
        tid("eos", "<|im_end|>"); tid("padding", "<|endoftext|>"); tid("bos", "<|endoftext|>")
        g("tokenizer.ggml.add_bos_token", False, BOOL)
    return kv


def write_gguf(case, sd, path):
    w = ggufw.Writer()
    for k, v, t in gguf_meta(case):
        if isinstance(t, tuple): w.add_arr(k, v, t[1])
        else: w.add_kv(k, v, t)
    for n, x in gguf_tensors(case, sd).items(): w.add(n, x, "F32")
    w.write(path)
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def write_safetensors(path, tensors):
    head, off, blobs = {}, 0, []
    for n, x in tensors.items():
        x = np.ascontiguousarray(x)
        b = x.tobytes()
        head[n] = dict(dtype={"float32": "F32", "int32": "I32"}[str(x.dtype)], shape=list(x.shape), data_offsets=[off, off + len(b)])
        off += len(b)
        blobs.append(b)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def write_json(path, j):
    """One line a key, two levels down to one line a value."""
    def two(v): return "{\n" + ",\n".join("  %s: %s" % (json.dumps(k), json.dumps(x)) for k, x in v.items()) + "\n }" if isinstance(v, dict) else json.dumps(v)
    with open(path, "w") as f: f.write("{\n" + ",\n".join(" %s: %s" % (json.dumps(k), two(v)) for k, v in j.items()) + "\n}\n")


# --------------------------------------------------------------------------------------------------- transformers

def hf_classes(case, f64):
    """Config and model class; f64: the same source with every float32 replaced by float64."""
    import importlib, re, types
    name = "transformers.models.%s.modeling_%s" % (case.model_type, case.model_type)
    mod = importlib.import_module(name)
    cfg = importlib.import_module("transformers.models.%s.configuration_%s" % (case.model_type, case.model_type))

    def double(m):
        n = m.__name__ + "_f64"
        if n in sys.modules: return sys.modules[n]
        s = open(m.__file__).read()
        s = re.sub(r"torch\.float32\b", "torch.float64", s)
        s = re.sub(r"torch\.float\b", "torch.float64", s)
        s = s.replace(".float()", ".double()")
        d = types.ModuleType(n)
        d.__file__, d.__package__ = m.__file__, m.__package__
        sys.modules[n] = d
        exec(compile(s, m.__file__, "exec"), d.__dict__)
        return d
    if f64:
        import transformers.modeling_rope_utils as ru
        mod = double(mod)
        mod.ROPE_INIT_FUNCTIONS = dict(double(ru).ROPE_INIT_FUNCTIONS)
    return getattr(cfg, case.stem + "Config"), getattr(mod, case.stem + "ForCausalLM")


class Runner:
    def __init__(self, case, sd, f64, stock_eps=False):
        import torch
        self.torch, self.case, self.f64 = torch, case, f64
        Config, Model = hf_classes(case, f64)
        cfg = Config(**json.loads(json.dumps(case.cfg)))
        cfg._attn_implementation = "eager"
        cfg._experts_implementation = "eager"
        m = Model(cfg).eval()
        if f64: m = m.double()
        own = {k: v for k, v in sd.items() if not any(k.startswith("model.layers.%d." % i) for i in range(case.L, case.L + case.nextn))}
        if case.kind == "dsa":
            own = {k: v for k, v in own.items() if ".indexer." not in k or case.types[int(k.split(".")[2])] == "full"}
        if case.cfg.get("tie_word_embeddings"): own["lm_head.weight"] = own["model.embed_tokens.weight"]
        td = torch.float64 if f64 else torch.float32
        missing, unexpected = m.load_state_dict({k: torch.from_numpy(v).to(td) for k, v in own.items()}, strict=False)
        assert not unexpected and not missing, (missing, unexpected)
        assert all(p.dtype == td for p in m.parameters())
        # q_a/kv_a norms: transformers fixes 1e-6; the GGUF has one epsilon for every RMS norm, and so have the serving engines
        if case.mla and not stock_eps:
            for l in m.model.layers:
                for n in (l.self_attn.kv_a_layernorm, getattr(l.self_attn, "q_a_layernorm", None)):
                    if n is not None: n.variance_epsilon = cfg.rms_norm_eps
        self.m, self.cfg, self.rec = m, cfg, None
        for i, l in enumerate(m.model.layers):
            l.register_forward_hook(lambda mod, a, o, i=i: self._hook("hidden", i, o[0] if isinstance(o, tuple) else o))
            if getattr(l.self_attn, "indexer", None) is not None:
                l.self_attn.indexer.register_forward_hook(lambda mod, a, o, i=i: self._index(mod, a, o, i))
            if hasattr(l.mlp, "gate"):
                l.mlp.gate.register_forward_hook(lambda mod, a, o, i=i: self._hook("gate", i, o))

    def _hook(self, what, i, o):
        if self.rec is not None: self.rec.setdefault(what, {})[i] = o

    def _index(self, mod, a, out, i):
        """Scores of the indexer again from its inputs (transformers returns only the indices)."""
        if self.rec is None: return
        torch = self.torch
        x, qr, (cos, sin), mask = a[:4]
        rd, hd, nh = mod.qk_rope_head_dim, mod.head_dim, mod.n_heads
        half = rd // 2
        q = mod.wq_b(qr).view(*qr.shape[:2], nh, hd)
        k = mod.k_norm(mod.wk(x)).unsqueeze(2)
        c, s = cos[..., :half].unsqueeze(2), sin[..., :half].unsqueeze(2)

        def rot(v):
            if self.case.kind == "ds32": e, o = v[..., :half], v[..., half:rd]  # half-split here, interleaved in glm_moe_dsa
            else: e, o = v[..., 0:rd:2], v[..., 1:rd:2]
            return torch.cat([e * c - o * s, o * c + e * s, v[..., rd:]], -1)
        q, k = rot(q), rot(k)
        sc = torch.relu(torch.einsum("bshd,btd->bsht", q, k.squeeze(2)) * hd ** -0.5)
        sc = torch.einsum("bsht,bsh->bst", sc, mod.weights_proj(x) * nh ** -0.5)
        self.rec.setdefault("index", {})[i] = (sc[0], out[0])

    def forward(self, ids):
        torch = self.torch
        self.rec = {}
        with torch.no_grad():
            o = self.m(input_ids=torch.tensor([list(map(int, ids))]), use_cache=False)
        rec, self.rec = self.rec, None
        emb = self.m.model.embed_tokens.weight[torch.tensor(list(map(int, ids)))].detach()
        hidden = torch.stack([emb] + [rec["hidden"][i][0] for i in range(self.case.L)]).numpy()
        return o.logits[0].numpy(), hidden, rec

    def generate(self, ids, n):
        """Greedy with the KV cache: prompt in one step, then token by token. Returns tokens and the logits of each step."""
        torch = self.torch
        ids, logits, past = list(map(int, ids)), [], None
        inp = torch.tensor([ids])
        out = []
        with torch.no_grad():
            for _ in range(n):
                o = self.m(input_ids=inp, past_key_values=past, use_cache=True)
                past = o.past_key_values
                l = o.logits[0, -1]
                logits.append(l.numpy())
                out.append(int(l.argmax()))
                inp = torch.tensor([[out[-1]]])
        return out, np.stack(logits)


def golden(case, sd, log):
    r32 = Runner(case, sd, False)
    prompt = case.prompt()
    gen, dec = r32.generate(prompt, N_GEN)
    ids = np.concatenate([prompt, np.array(gen, np.int32)]).astype(np.int32)
    T, P = len(ids), len(prompt)
    lg, hid, rec = r32.forward(ids)
    r64 = Runner(case, sd, True)
    lg64, hid64, rec64 = r64.forward(ids)
    gen64, _ = r64.generate(prompt, N_GEN)
    assert lg64.dtype == np.float64
    t = {"tokens": ids, "logits": lg.astype(np.float32), "logits_f64": lg64.astype(np.float32), "hidden": hid.astype(np.float32)}
    top2 = np.sort(lg64, -1)[:, -2:]
    info = {"logit_std": float(lg64.std()), "hidden_std": [float(h.std()) for h in hid64],
            "floor_logits_max": float(np.abs(lg - lg64).max()), "floor_logits_rms": float(np.sqrt(np.mean((lg - lg64) ** 2))),
            "floor_hidden_max": [float(np.abs(a - b).max()) for a, b in zip(hid, hid64)],
            "decode_vs_prefill_max": float(np.abs(dec - lg[P - 1:T - 1]).max()),
            "greedy_margin_min": float((top2[P - 1:T - 1, 1] - top2[P - 1:T - 1, 0]).min()), "greedy_same_f64": gen64 == gen}
    assert [int(x) for x in lg64[P - 1:T - 1].argmax(-1)] == gen, "greedy differs"
    if "index" in rec64:
        K = min(case.cfg["index_topk"], T)
        topk = np.full((case.L, T, K), -1, np.int32)
        margin = np.full((case.L, T), np.inf, np.float32)
        scores, same, mm = [], True, math.inf
        cur = None
        for i in range(case.L):
            if i in rec64["index"]:
                s, ind = (x.numpy() for x in rec64["index"][i])
                s32, ind32 = (x.numpy() for x in rec["index"][i])
                cur = np.full((T, K), -1, np.int32), np.full(T, np.inf, np.float32)
                for q in range(T):
                    n = min(K, q + 1)
                    sel = sorted(int(x) for x in ind[q] if x <= q)
                    assert len(sel) == n
                    o = np.sort(s[q, :q + 1])[::-1]
                    assert set(sel) == set(np.argsort(-s[q, :q + 1], kind="stable")[:n].tolist()) or o[n - 1] == o[min(n, q)], "indexer recomputation"
                    same &= sel == sorted(int(x) for x in ind32[q] if x <= q)
                    cur[0][q, :n] = sel
                    if q + 1 > n:
                        cur[1][q] = o[n - 1] - o[n]
                        mm = min(mm, (o[n - 1] - o[n]) / o.std())
                scores.append(np.where(np.tril(np.ones((T, T), bool)), s, 0).astype(np.float32))
            topk[i], margin[i] = cur
        t.update(topk=topk, topk_margin=margin, index_scores=np.stack(scores))
        info.update(topk=K, topk_same_f32_f64=bool(same), topk_rel_margin_min=float(mm) if mm < math.inf else None,
                    indexer_layers=sorted(rec64["index"]))
    if "gate" in rec64:
        layers = sorted(rec64["gate"])
        ex, ew, same = [], [], True
        for i in layers:
            _, w, ind = (x.numpy() for x in rec64["gate"][i])
            o = np.argsort(ind, -1)
            ex.append(np.take_along_axis(ind, o, -1)); ew.append(np.take_along_axis(w, o, -1))
            same &= bool((np.sort(rec["gate"][i][2].numpy(), -1) == ex[-1]).all())
        t.update(experts=np.stack(ex).astype(np.int32), expert_weights=np.stack(ew).astype(np.float32))
        info.update(moe_layers=layers, experts_same_f32_f64=same)
    if case.mla and case.cfg["rms_norm_eps"] != 1e-6:
        lgs, _, _ = Runner(case, sd, True, stock_eps=True).forward(ids)
        info["latent_norm_eps_1e-6_effect_max"] = float(np.abs(lgs - lg64).max())
    return t, info, [int(x) for x in prompt], gen


def tokenizer_golden(case):
    """Token ids of some texts, by the tokenizers library over the same vocabulary."""
    from tokenizers import Tokenizer, Regex, models, pre_tokenizers, decoders
    vocab = {x: i for i, x in enumerate(case.tokens[:case.n_normal])}
    tk = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in case.merges]))
    rx = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tk.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rx), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tk.decoder = decoders.ByteLevel()
    from tokenizers import AddedToken
    tk.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in case.specials])
    texts = ["the cat and the hat", " In the beginning of things,  there is 100000 000", "I'LL re-enter on 2024-01-31\r\n\r\n  end\t", "\n\n\n x",
             "你好,世界! 你好", "café naïve é", "<|user|>the<|assistant|><think>and</think>[gMASK]<sop>", "    four  spaces   ",
             "emoji 😀👍🏽 ok", "a\u0301\u00a0b\u3000c", "", " ", "in'g isn't they've we'D", "١٢٣٤ 12345 ½", "fn main() { println!(\"{}\", 1 << 20); }"]
    return [dict(text=x, ids=tk.encode(x, add_special_tokens=False).ids) for x in texts]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--set", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--gguf-only", action="store_true")
    ap.add_argument("--no-gguf", action="store_true", help="write the golden files only (the GGUF is still hashed)")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    fails = 0
    for name in SETS[a.set]:
        if a.only and name not in a.only.split(","): continue
        t0 = time.time()
        try:
            case = Case(a.set, name)
            sd = case.weights()
            path = os.path.join(a.out, name + ".gguf")
            sha = write_gguf(case, sd, path)
            size = os.path.getsize(path)
            if a.no_gguf: os.remove(path)
            if a.gguf_only:
                p = os.path.join(a.out, name + ".json")  # beside golden files: must be the very same model
                same = json.load(open(p))["gguf_sha256"] == sha if os.path.exists(p) else None
                fails += same is False
                print("%-14s gguf %8d %s%s" % (name, size, sha[:16], {None: "", True: " as in the golden", False: " NOT the model of the golden"}[same]), flush=True)
                continue
            import torch, transformers
            torch.set_num_threads(4)
            t, info, prompt, gen = golden(case, sd, print)
            write_safetensors(os.path.join(a.out, name + ".safetensors"), t)
            j = {"case": name, "set": a.set, "arch": case.arch, "hf_model_type": case.model_type, "seed": case.seed,
                 "n_prompt": len(prompt), "n_gen": len(gen), "n_layer": case.L, "nextn": case.nextn, "prompt": prompt, "greedy": gen,
                 "gguf_bytes": size, "gguf_sha256": sha, "transformers": transformers.__version__, "torch": torch.__version__,
                 "stats": info, "tensors": {k: [str(v.dtype), list(v.shape)] for k, v in t.items()}, "hf_config": case.cfg}
            write_json(os.path.join(a.out, name + ".json"), j)
            print("%-14s %.1fs gguf %d %s std %.2f floor %.1e dec %.1e greedy %s margin %.3f topk %s/%s experts %s eps %s" % (
                name, time.time() - t0, size, sha[:8], info["logit_std"], info["floor_logits_max"], info["decode_vs_prefill_max"],
                info["greedy_same_f64"], info["greedy_margin_min"], info.get("topk_same_f32_f64"), info.get("topk_rel_margin_min"),
                info.get("experts_same_f32_f64"), info.get("latent_norm_eps_1e-6_effect_max")), flush=True)
        except Exception:
            import traceback
            print("FAILED", a.set, name)
            traceback.print_exc()
            fails += 1
    if not a.gguf_only and not a.only and "dsa_dense" in SETS[a.set]:
        try:
            case = Case(a.set, "dsa_dense")
            with open(os.path.join(a.out, "tokenizer_glm4.json"), "w") as f:
                f.write('{"case": "dsa_dense", "pre": "glm4", "texts": [\n' + ",\n".join(" " + json.dumps(x) for x in tokenizer_golden(case)) + "\n]}\n")
        except Exception:
            import traceback
            traceback.print_exc()
            fails += 1
    return 1 if fails else 0


if __name__ == "__main__":
    sys.exit(main())
