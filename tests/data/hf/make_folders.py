#!/usr/bin/env python3
"""Tiny random models saved by transformers' own save_pretrained, with the logits that transformers
computes: what tests/e2e/convert.py converts and compares.

    make_folders.py OUT [MODEL_TYPE ...]     needs torch and transformers (made with 2.15, 5.24)

Each folder OUT/MODEL_TYPE holds what save_pretrained wrote (weights in BF16) and a tokenizer;
beside it MODEL_TYPE.logits, a safetensors file: tokens [T] I32, logits [T, vocab] of a float32 run.
rms_norm_eps is 1e-6 where the model has latents, since transformers norms these with 1e-6 whatever the
configuration says.
"""
import copy
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "e2e"))
import hf_folders
from harness import np

N_TOKENS = 24
MLA = dict(vocab_size=320, hidden_size=32, intermediate_size=64, moe_intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
           num_key_value_heads=2, n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2, kv_lora_rank=32, q_lora_rank=32,
           qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, first_k_dense_replace=1, rms_norm_eps=1e-6,
           max_position_embeddings=4096, routed_scaling_factor=1.5, n_group=2, topk_group=1, norm_topk_prob=True)
INDEXER = dict(index_topk=8, index_head_dim=32, index_n_heads=12)  # of few heads, many scores are exactly 0
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=1024, beta_fast=32, beta_slow=1,
            mscale=1.0, mscale_all_dim=1.0)
PLAIN = dict(rope_type="default", rope_theta=100000.0)
DENSE = dict(vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=4096, rms_norm_eps=1e-5, rope_parameters=PLAIN)
MODELS = {  # model type: (configuration, the golden whose tokenizer it gets)
    "glm_moe_dsa": (dict(MLA, **INDEXER, n_group=1, rope_parameters=PLAIN, num_hidden_layers=4,
                         indexer_types=["full", "full", "shared", "full"]), "dsa_dense"),
    "deepseek_v2": (dict(MLA, rope_parameters=YARN, topk_method="greedy", n_group=1, norm_topk_prob=False), "ds2_lite"),
    "deepseek_v3": (dict(MLA, rope_parameters=YARN), "ds3"),
    "deepseek_v32": (dict(MLA, **INDEXER, rope_parameters=YARN), "ds32"),
    "glm4_moe": (dict(DENSE, moe_intermediate_size=16, n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2, head_dim=16,
                      n_group=1, topk_group=1, norm_topk_prob=True, first_k_dense_replace=1, use_qk_norm=True, attention_bias=True,
                      routed_scaling_factor=1.5, rope_parameters=dict(PLAIN, partial_rotary_factor=0.5)), "glm45"),
    "glm4_moe_lite": (dict({k: v for k, v in MLA.items() if k != "first_k_dense_replace"}, n_group=1, rope_parameters=PLAIN,
                           mlp_layer_types=["dense", "sparse", "sparse"]), "glm47_flash"),
    "llama": (dict(DENSE, head_dim=16, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                                           high_freq_factor=4.0, original_max_position_embeddings=64)), "llama"),
    "mixtral": (dict(DENSE, num_local_experts=4, num_experts_per_tok=2), "llama"),
    "qwen2": (dict(DENSE), "qwen2"),
    "qwen3": (dict(DENSE, head_dim=32, tie_word_embeddings=True), "qwen3")}


def randomise(model, torch):
    """Everything random, norms around 1, biases and router biases not zero; then as BF16 holds it."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, x in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            r = torch.randn(x.shape, generator=generator)
            if name.endswith("bias"):
                r = 0.2 * r
            elif x.ndim == 1:
                r = 1 + 0.2 * r.clamp(-2, 2)
            elif "embed_tokens" not in name:
                r = r / x.shape[-1] ** 0.5 * (3 if "lm_head" in name else 1.2)
            x.copy_(r.to(torch.bfloat16).to(x.dtype))


def reference(model, ids, torch):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def make(model_type, out):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    options, golden = MODELS[model_type]
    config = AutoConfig.for_model(model_type, **copy.deepcopy(options))
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    randomise(model, torch)
    ids = [int(x) for x in np.random.default_rng(3).integers(0, 290, N_TOKENS)]
    path = os.path.join(out, model_type)
    model.to(torch.bfloat16).save_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    logits = reference(model, ids, torch)
    texts = hf_folders.from_golden(golden)
    for name, value in (("tokenizer", texts.tokenizer), ("tokenizer_config", texts.tokenizer_config)):
        with open(os.path.join(path, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)
    hf_folders.write_safetensors(os.path.join(out, model_type + ".logits"), {
        "tokens": hf_folders.Array("I32", np.array(ids)), "logits": hf_folders.Array("F32", logits)})
    size = sum(os.path.getsize(os.path.join(path, n)) for n in os.listdir(path))
    print(f"{model_type}: {size} bytes, logits of deviation {logits.std():.2f}", sorted(os.listdir(path)))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for model_type in sys.argv[2:] or MODELS:
        make(model_type, sys.argv[1])


if __name__ == "__main__":
    main()
