#!/usr/bin/env python3
"""Gives a synthetic model a router whose choice of experts follows Zipf's law.

    zipf_router.py LIMPID MODEL.gguf [EXPONENT=1.1] [TOKENS=400]

Changes the model's file in place: the correction bias of each layer's router (blk.N.exp_probs_b.bias),
which is added to an expert's score when experts are chosen and to nothing else. The router's scores of
random tokens are looked at (limpid dump --probe), then the biases are moved until each expert is chosen as
often as if n_used different ones were drawn in proportion to 1 / rank^EXPONENT, in an order of ranks of the
layer's own. A second look shows what came out. Needs numpy.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

ROUNDS = 2


def describe(limpid, model):
    out = subprocess.run([limpid, "inspect", model, "--json", "--tensors"], stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)


def scores_of(limpid, model, layers, n_tokens, n_vocab, seed):
    """{layer: [n_tokens, n_experts]}, the sigmoid of the router's logits."""
    tokens = random.Random(seed).choices(range(n_vocab), k=n_tokens)
    with tempfile.TemporaryDirectory() as folder:
        command = [limpid, "dump", model, "--tokens", ",".join(map(str, tokens)), "--probe-dir", folder]
        for layer in layers:
            command += ["--probe", f"layer={layer},op=ffn.router_logits"]
        subprocess.run(command, check=True)
        return {layer: 1 / (1 + np.exp(-np.load(os.path.join(folder, f"layer{layer}.ffn.router_logits.npy"))
                                       .reshape(n_tokens, -1).astype(np.float64))) for layer in layers}


def wanted(n_experts, n_used, exponent, rng):
    """How often each rank is among n_used drawn without putting back."""
    key = -exponent * np.log(np.arange(1, n_experts + 1)) + rng.gumbel(size=(20000, n_experts))
    best = np.argsort(-key, axis=1)[:, :n_used]
    return np.bincount(best.ravel(), minlength=n_experts) / len(key)


def chosen(scores, bias, n_used):
    best = np.argpartition(-(scores + bias), n_used, axis=1)[:, :n_used]
    return np.bincount(best.ravel(), minlength=scores.shape[1]) / len(scores)


def fit(scores, target, n_used, bias):
    step = 0.5 * scores.std()
    for round_ in range(300):
        error = np.log((target + 1e-3) / (chosen(scores, bias, n_used) + 1e-3))
        bias += step * np.clip(error, -1, 1)
        if round_ % 40 == 39:
            step *= 0.6
    return bias


def main():
    limpid, model = sys.argv[1:3]
    exponent = float(sys.argv[3]) if len(sys.argv) > 3 else 1.1
    n_tokens = int(sys.argv[4]) if len(sys.argv) > 4 else 400
    facts = describe(limpid, model)
    biases = {int(t["name"].split(".")[1]): t for t in facts["tensors"] if t["name"].endswith(".exp_probs_b.bias")}
    if not biases:
        sys.exit(f"{model} has no router with a correction bias")
    values = {fact["name"]: fact["value"] for fact in facts["facts"]}
    n_used = int(values["expert_used_count"])
    n_layers = int(values["block_count"]) - int(values.get("nextn_predict_layers", 0))
    layers = sorted(layer for layer in biases if layer < n_layers)
    n_experts = biases[layers[0]]["shape"][0]
    n_vocab = next(t["shape"][1] for t in facts["tensors"] if t["name"] == "token_embd.weight")
    rng = np.random.default_rng(1)
    by_rank = wanted(n_experts, n_used, exponent, rng)
    targets = {layer: by_rank[rng.permutation(n_experts)] for layer in layers}
    bias = {layer: np.zeros(n_experts) for layer in layers}
    for round_ in range(ROUNDS):  # another choice of experts changes what the layers behind it see
        scores = scores_of(limpid, model, layers, n_tokens, n_vocab, round_)
        with open(model, "r+b") as file:
            for layer in layers:
                bias[layer] = fit(scores[layer], targets[layer], n_used, bias[layer])
                file.seek(biases[layer]["offset"])
                file.write(bias[layer].astype("<f4").tobytes())
    scores = scores_of(limpid, model, layers, n_tokens, n_vocab, ROUNDS)  # another text
    got = np.mean([np.sort(chosen(scores[layer], bias[layer], n_used))[::-1] for layer in layers], axis=0)
    print(f"chosen by {n_tokens} tokens, mean of {len(layers)} layers, by rank (wanted):")
    for rank in (1, 2, 4, 8, 16, 32, n_experts):
        print(f"  {rank:4d}  {got[rank - 1]:.3f}  ({np.sort(by_rank)[::-1][rank - 1]:.3f})")
    tail = slice(n_experts * 2 // 5, None)
    print(f"part of all choices that the lower three fifths of the ranks get: {got[tail].sum() / n_used:.3f} "
          f"({np.sort(by_rank)[::-1][tail].sum() / n_used:.3f})")


if __name__ == "__main__":
    main()
