#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf: one small file per feature of the container.

    python3 fuzz/make_gguf_seeds.py fuzz/corpus/gguf
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "e2e"))
from gguf_edit import (ARR, BOOL, F32, F64, FORMATS, Gguf, I32, STR, T_BF16, T_F32, T_Q4_K, T_Q8_0, Tensor, U16, U32)


def tensor(name, ne, type_, n_bytes):
    return Tensor(name, ne, type_, bytes(i % 251 for i in range(n_bytes)))


def seeds():
    g = Gguf()
    yield "empty", g
    g = Gguf()
    for type_ in FORMATS:
        g.keys.append([f"k.{type_}", (type_, 1)])
        g.keys.append([f"a.{type_}", (ARR, type_, [0, 1, 1])])
    g.keys += [["k.str", (STR, "text")], ["a.str", (ARR, STR, ["a", "", "long"])], ["a.none", (ARR, I32, [])]]
    yield "types", g
    g = Gguf()
    g.keys = [["general.architecture", (STR, "glm-dsa")], ["glm-dsa.block_count", (U32, 2)],
              ["glm-dsa.rope.freq_base", (F32, 1e6)], ["glm-dsa.expert_weights_norm", (BOOL, 1)]]
    g.tensors = [tensor("token_embd.weight", [32, 4], T_F32, 512), tensor("blk.0.attn_norm.weight", [32], T_F32, 128),
                 tensor("blk.0.ffn_up_exps.weight", [32, 2, 2], T_Q8_0, 136), tensor("output.weight", [256, 1, 1, 1], T_Q4_K, 144),
                 tensor("b", [3], T_BF16, 6)]
    yield "tensors", g
    g = g.copy()
    g.version = 2
    yield "version2", g
    g = g.copy()
    g.align = 8
    g.set("general.alignment", U32, 8)
    yield "aligned8", g
    g = Gguf()
    g.keys = [["split.no", (U16, 0)], ["split.count", (U16, 3)], ["split.tensors.count", (I32, 5)]]
    yield "split", g
    g = Gguf()
    g.keys = [["tokenizer.ggml.tokens", (ARR, STR, [chr(33 + i) for i in range(64)])],
              ["tokenizer.ggml.token_type", (ARR, I32, [1] * 64)], ["tokenizer.ggml.merges", (ARR, STR, ["a b", "c d"])],
              ["d", (F64, 0.5)]]
    yield "vocab", g


for name, g in seeds():
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(g.bytes())
