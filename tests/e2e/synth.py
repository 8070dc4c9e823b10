#!/usr/bin/env python3
"""`limpid synth`: the models it writes are whole, have the shapes and types asked for, and run.

    synth.py LIMPID [--sanitizer] [--only TEXT]

Shapes are held against counts of weights that the makers publish.
"""
import json
import os
import re
import resource
import subprocess
import tempfile

from harness import Checks, Dump, arguments, not_wrote, np, run

SMALL = ["hidden_size=256", "intermediate_size=256", "vocab_size=512"]
SMALL_MOE = SMALL + ["moe_intermediate_size=256", "n_routed_experts=8", "num_experts_per_tok=2"]
# billions of weights as published, MTP layers included (DeepSeek-V3: 671 + 14)
PUBLISHED = {"glm-5": (744, 756), "deepseek-v3": (682, 686), "kimi-k2": (1026, 1028), "deepseek-v2-lite": (15.5, 16),
             "llama-3.1-8b": (8.0, 8.1), "qwen2.5-7b": (7.5, 7.7), "qwen3-8b": (8.1, 8.3), "glm-4.5-air": (106, 113),
             "glm-4.5": (355, 362), "glm-4.7-flash": (29, 32)}


def synth(limpid, *arguments_, status=0):
    return run([limpid, "synth", *arguments_], status=status)


def sets(fields):
    return [x for f in fields for x in ("--set", f)]


def published(limpid, name, low, high):
    out = synth(limpid, name, "none.gguf", "--dry-run").stdout
    billions = float(re.search(r"([\d.]+) billion weights", out).group(1))
    if not low <= billions <= high:
        yield f"{billions} billion weights, published {low} to {high}"


def runs(limpid, folder, name, fields, type_):
    """The file is whole, and the two backends agree on what it computes."""
    path = os.path.join(folder, f"{name}-{type_}.gguf")
    yield not_wrote(synth(limpid, name, path, "--layers", "3", "--type", type_, *sets(fields)), path)
    report = json.loads(run([limpid, "inspect", path, "--json"]).stdout)
    if not report["can_run"] or report["binding"]["ignored"]:
        yield f"cannot run, or tensors are ignored: {report['error']} {report['binding']}"
    text = "in the beginning there was noise"
    ids = json.loads(run([limpid, "tokenize", path, text]).stdout)
    back = run([limpid, "tokenize", path, "--decode"], stdin=json.dumps(ids)).stdout.strip()
    if back != text:
        yield f"{text!r} comes back as {back!r}"
    cpu, ref = (Dump(limpid, path, range(20), "--backend", b) for b in ("cpu", "ref"))
    # activations of 8 bits change the choice of an expert here and there, so not every logit is near
    std, far = ref.logits.std(), np.median(np.abs(cpu.logits - ref.logits))
    if not np.isfinite(ref.logits).all() or not 0.05 < std < 20 or far > 0.1 * std:
        yield f"logits deviate by {std:.3f}, half of those of cpu and ref differ by more than {far:.4f}"


def same_bytes(limpid, folder):
    """One seed, one file, whatever the threads; another seed, another file."""
    paths = [os.path.join(folder, f"seed{i}.gguf") for i in range(3)]
    for path, threads, seed in zip(paths, (1, 3, 1), (5, 5, 6)):
        synth(limpid, "tiny", path, "--layers", "2", "--threads", threads, "--seed", seed, *sets(SMALL_MOE))
    a, b, c = (open(p, "rb").read() for p in paths)
    if a != b:
        yield "the number of threads changes the bytes"
    if a == c or len(a) != len(c):
        yield "the seed does not matter"


def sparse(limpid, folder):
    path = os.path.join(folder, "sparse.gguf")
    synth(limpid, "mid", path, "--layers", "4", "--sparse", *sets(["vocab_size=1000"]))
    info = os.stat(path)
    if info.st_blocks * 512 > 0.5 * info.st_size:
        yield f"{info.st_blocks * 512} bytes of {info.st_size} lie on the disk"
    run([limpid, "dump", path, "--tokens", "1,2,3"])


def config_file(limpid, folder):
    path, config = os.path.join(folder, "config.gguf"), os.path.join(folder, "config.json")
    with open(config, "w") as f:
        json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
                   "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
                   "vocab_size": 400, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True}, f)
    synth(limpid, config, path, "--type", "Q8_0")
    run([limpid, "dump", path, "--tokens", "1,2,3"])
    before = open(config).read()
    said = synth(limpid, config, config, "--force", status=1).stderr
    if "would be written over" not in said or open(config).read() != before:
        yield f"its config written over: {said!r}"


def absurd(limpid, folder, sanitizer):
    """A model larger than any disk is refused in little time and memory."""
    path = os.path.join(folder, "absurd.gguf")
    limit = None if sanitizer else lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    done = subprocess.run([limpid, "synth", "glm-5", path, "--threads", "1", *sets(
        ["hidden_size=1048576", "intermediate_size=4194304", "n_routed_experts=65536", "num_hidden_layers=500"])],
        capture_output=True, text=True, timeout=300, preexec_fn=limit)
    if done.returncode != 1 or "GB" not in done.stderr:
        yield f"exit status {done.returncode}, said {done.stderr!r}"


def refused(limpid, folder, arguments_, words, status=1):
    path = os.path.join(folder, f"refused{abs(hash(words))}.gguf")
    message = synth(limpid, *[path if a == "OUT" else a for a in arguments_], status=status).stderr
    if words not in message or message.count("\n") > 1:
        yield f"said {message!r}, expected one sentence with {words!r}"
    if any(n.startswith(os.path.basename(path)) for n in os.listdir(folder)):
        yield "left a file behind"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-synth-") as folder:
        for name, (low, high) in PUBLISHED.items():
            checks.add(f"{name} as published", published, args.limpid, name, low, high)
        types = ("Q4_K_M",) if args.sanitizer else ("F32", "BF16", "Q8_0", "Q4_K_M", "IQ4_XS")
        for type_ in types:
            checks.add(f"tiny {type_}", runs, args.limpid, folder, "tiny", SMALL_MOE, type_)
        for name, fields in (("glm-5.2", SMALL_MOE + ["num_attention_heads=4", "q_lora_rank=64"]),
                             ("deepseek-v3.2", SMALL_MOE + ["num_attention_heads=4", "q_lora_rank=64", "n_group=2", "topk_group=1"]),
                             ("deepseek-v2-lite", SMALL_MOE), ("glm-4.5", SMALL_MOE + ["num_attention_heads=8", "num_key_value_heads=2"]),
                             ("llama-3.1-8b", SMALL + ["num_attention_heads=4", "num_key_value_heads=2"]),
                             ("qwen2.5-7b", SMALL + ["num_attention_heads=4", "num_key_value_heads=2"]),
                             ("qwen3-8b", SMALL + ["num_attention_heads=4", "num_key_value_heads=2"])):
            if not args.sanitizer or name == "glm-5.2":
                checks.add(f"{name} small", runs, args.limpid, folder, name, fields + ["first_k_dense_replace=1"] * ("n_routed_experts=8" in fields), "Q8_0")
        for function in (same_bytes, sparse, config_file):
            checks.add(function.__name__, function, args.limpid, folder)
        checks.add("absurd", absurd, args.limpid, folder, args.sanitizer)
        for arguments_, words, status in ((["nonsense", "OUT"], "glm-5.2", 1), (["tiny", "OUT", "--set", "hidden_size"], "FIELD=VALUE", 1),
                                          (["tiny", "OUT", "--set", "hidden_size=-4"], "hidden_size", 1),
                                          (["tiny", "OUT", "--set", "num_hiden_layers=4"], "num_hiden_layers", 1),
                                          (["tiny", "OUT", "--set", "vocab_size=20"], "20", 1),
                                          (["tiny", "OUT", "--set", "vocab_size=16777216"], "320 to 1048576", 1),
                                          (["tiny", "OUT", "--type", "Q99"], "Q99", 1), (["tiny"], "OUT.gguf", 2),
                                          (["tiny", "/nowhere/at/all.gguf"], "/nowhere", 1),
                                          (["glm-5", "OUT", "--type", "F32"], "GB", 1)):
            checks.add(f"refused {' '.join(arguments_)}", refused, args.limpid, folder, arguments_, words, status)
        checks.finish()


if __name__ == "__main__":
    main()
