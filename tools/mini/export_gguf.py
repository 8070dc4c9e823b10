"""Write mini-glm-dsa as GGUF with the tensor and key names of llama.cpp's converter for glm-dsa.

  python3 export_gguf.py WEIGHTS.npz OUT.gguf Q8_0|F16|BF16
"""
import json, os, sys
import numpy as np
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ggufw as W
from data import Tokenizer, CONTROL, HERE

CFG = dict(vocab=3584, hidden=256, layers=5, dense_layers=1, dense_ffn=768, heads=4, q_rank=256, kv_rank=512, nope=192, rope=64, vdim=256,
           experts=8, topk=4, moe_ffn=256, scale=2.5, index_heads=4, index_dim=128, index_topk=256, eps=1e-5, theta=1e6, ctx=4096)
FILE_TYPE = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}


def names(C=CFG):
    """[(gguf name, HF name, how)]; how: None as it is, 'k_b' / 'v_b' halves of kv_b_proj."""
    m = [("token_embd.weight", "model.embed_tokens.weight", None), ("output_norm.weight", "model.norm.weight", None), ("output.weight", "lm_head.weight", None)]
    for i in range(C["layers"] + 1):
        b, h = f"blk.{i}.", f"model.layers.{i}."
        a = h + "self_attn."
        m += [(b + "attn_norm.weight", h + "input_layernorm.weight", None), (b + "attn_q_a.weight", a + "q_a_proj.weight", None), (b + "attn_q_a_norm.weight", a + "q_a_layernorm.weight", None),
              (b + "attn_q_b.weight", a + "q_b_proj.weight", None), (b + "attn_kv_a_mqa.weight", a + "kv_a_proj_with_mqa.weight", None), (b + "attn_kv_a_norm.weight", a + "kv_a_layernorm.weight", None),
              (b + "attn_k_b.weight", a + "kv_b_proj.weight", "k_b"), (b + "attn_v_b.weight", a + "kv_b_proj.weight", "v_b"), (b + "attn_output.weight", a + "o_proj.weight", None),
              (b + "indexer.attn_q_b.weight", a + "indexer.wq_b.weight", None), (b + "indexer.attn_k.weight", a + "indexer.wk.weight", None), (b + "indexer.k_norm.weight", a + "indexer.k_norm.weight", None),
              (b + "indexer.k_norm.bias", a + "indexer.k_norm.bias", None), (b + "indexer.proj.weight", a + "indexer.weights_proj.weight", None), (b + "ffn_norm.weight", h + "post_attention_layernorm.weight", None)]
        if i < C["dense_layers"]: m += [(b + f"ffn_{x}.weight", h + f"mlp.{x}_proj.weight", None) for x in ("gate", "up", "down")]
        else:
            m += [(b + "ffn_gate_inp.weight", h + "mlp.gate.weight", None), (b + "exp_probs_b.bias", h + "mlp.gate.e_score_correction_bias", None)]
            m += [(b + f"ffn_{x}_exps.weight", h + f"mlp.experts.{x}_proj", None) for x in ("gate", "up", "down")]
            m += [(b + f"ffn_{x}_shexp.weight", h + f"mlp.shared_experts.{x}_proj.weight", None) for x in ("gate", "up", "down")]
        if i == C["layers"]: m += [(b + "nextn.eh_proj.weight", h + "eh_proj.weight", None), (b + "nextn.enorm.weight", h + "enorm.weight", None), (b + "nextn.hnorm.weight", h + "hnorm.weight", None), (b + "nextn.shared_head_norm.weight", h + "shared_head.norm.weight", None)]
    return m


def halves(a, how, C=CFG):
    h = a.reshape(C["heads"], C["nope"] + C["vdim"], C["kv_rank"])
    return np.ascontiguousarray(h[:, :C["nope"]].transpose(0, 2, 1)) if how == "k_b" else np.ascontiguousarray(h[:, C["nope"]:])


def export(weights, out, qtype, C=CFG):
    z = np.load(weights)
    t = Tokenizer()
    w = W.Writer()
    w.add_kv("general.architecture", "glm-dsa", W.STR); w.add_kv("general.type", "model", W.STR); w.add_kv("general.name", "mini-glm-dsa", W.STR)
    w.add_kv("general.size_label", "22M", W.STR); w.add_kv("general.description", "A tiny model in GLM-5's architecture, trained on synthetic skills and public-domain prose, for tests and demos.", W.STR)
    w.add_kv("general.file_type", FILE_TYPE[qtype], W.U32); w.add_kv("general.quantization_version", 2, W.U32)
    u = lambda k, v: w.add_kv("glm-dsa." + k, v, W.U32)
    u("block_count", C["layers"] + 1); u("context_length", C["ctx"]); u("embedding_length", C["hidden"]); u("feed_forward_length", C["dense_ffn"])
    u("attention.head_count", C["heads"]); u("attention.head_count_kv", 1)
    w.add_kv("glm-dsa.rope.freq_base", C["theta"], W.F32T); w.add_kv("glm-dsa.attention.layer_norm_rms_epsilon", C["eps"], W.F32T)
    u("expert_count", C["experts"]); u("expert_used_count", C["topk"]); u("expert_group_count", 1); u("expert_group_used_count", 1); u("expert_gating_func", 2)
    u("leading_dense_block_count", C["dense_layers"]); u("vocab_size", C["vocab"])
    u("attention.q_lora_rank", C["q_rank"]); u("attention.kv_lora_rank", C["kv_rank"])
    u("attention.key_length", C["kv_rank"] + C["rope"]); u("attention.value_length", C["kv_rank"]); u("attention.key_length_mla", C["nope"] + C["rope"]); u("attention.value_length_mla", C["vdim"])
    u("expert_feed_forward_length", C["moe_ffn"]); u("expert_shared_count", 1); w.add_kv("glm-dsa.expert_weights_scale", C["scale"], W.F32T); w.add_kv("glm-dsa.expert_weights_norm", True, W.BOOL)
    u("rope.dimension_count", C["rope"]); u("nextn_predict_layers", 1)
    u("attention.indexer.head_count", C["index_heads"]); u("attention.indexer.key_length", C["index_dim"]); u("attention.indexer.top_k", C["index_topk"])
    w.add_kv("tokenizer.ggml.model", "gpt2", W.STR); w.add_kv("tokenizer.ggml.pre", "glm4", W.STR)
    w.add_arr("tokenizer.ggml.tokens", t.tokens, W.STR)
    kind = lambda s: 1 if s not in t.special else 3 if s in CONTROL or s.startswith("<|") else 4
    w.add_arr("tokenizer.ggml.token_type", [kind(s) for s in t.tokens], W.I32)
    w.add_arr("tokenizer.ggml.merges", [" ".join(m) for m in t.merges], W.STR)
    for k, s in (("bos", "[gMASK]"), ("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("eom", "<|observation|>"), ("unknown", "<|endoftext|>"), ("padding", "<|endoftext|>")):
        w.add_kv(f"tokenizer.ggml.{k}_token_id", t.special[s], W.U32)
    w.add_kv("tokenizer.chat_template", open(os.path.join(HERE, "chat_template.jinja")).read().rstrip("\n"), W.STR)
    for g, h, how in names(C):
        a = z[h].astype(np.float32)
        if how: a = halves(a, how, C)
        f32 = a.ndim == 1 or g.endswith(("ffn_gate_inp.weight", "indexer.proj.weight"))
        w.add(g, a, "F32" if f32 else qtype)
    w.write(out)
    return os.path.getsize(out)


def load_hf(path, C=CFG):
    """{HF name: float32 array} from the dequantised tensors of a GGUF."""
    kv, T = W.read(path)
    out, kb = {}, {}
    for g, h, how in names(C):
        if how: kb.setdefault(h, {})[how] = T[g]
        else: out[h] = T[g]
    for h, d in kb.items(): out[h] = np.concatenate((d["k_b"].transpose(0, 2, 1), d["v_b"]), 1).reshape(-1, C["kv_rank"])
    assert len(T) == len(names(C)), set(T) - {g for g, _, _ in names(C)}
    return kv, out


if __name__ == "__main__":
    print(sys.argv[2], export(sys.argv[1], sys.argv[2], sys.argv[3]), "bytes")
