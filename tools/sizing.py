#!/usr/bin/env python3
"""Which quantisation and context take how much memory: the tables of docs/deployment.md, from limpid's own plans.

    tools/sizing.py LIMPID [--models NAME,..] [--mixes NAME,..] [--kv TYPE] [--set FIELD=VALUE]... [--folder DIR]

Of each model and mix it writes a file of the true shapes and size whose weights are holes (`limpid synth --hollow`, some MB on
the disk), asks `limpid inspect` for its plan, and removes it. Shapes are those of `limpid synth --list`, mixes its presets, so where
a published file differs, its own `limpid inspect` is right. Nothing here says anything of speed.
"""
import argparse
import json
import os
import subprocess
import tempfile

# As published GGUF files have them: of DeepSeek without the layer that predicts further tokens.
MODELS = {"glm-5": ("GLM-5, 5.1", []), "glm-5.2": ("GLM-5.2", []), "deepseek-v3": ("DeepSeek V3, R1", ["num_nextn_predict_layers=0"]),
          "kimi-k2": ("Kimi K2", []), "glm-4.7-flash": ("GLM-4.7-Flash", []), "tiny": ("tiny", [])}
# The last is made up: such files have experts of about 2.6 bits, down of more, and the rest near 8.
MIXES = {"Q8_0": ["--type", "Q8_0"], "UD-Q4_K_XL": ["--type", "DYN-Q4"], "Q4_K_M": ["--type", "Q4_K_M"],
         "UD-Q2_K_XL": ["--type", "DYN-Q4", "--experts", "Q2_K,Q3_K"]}
CONTEXTS = (32768, 131072)
HOSTS_GIB = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
HOST_SHARE = 0.95  # what the system leaves
GPUS_GB = (24, 48, 80, 96, 141, 180)
GPU_LEFT_GB = 4  # for the driver, and for buffers that the GPU has and this plan does not know
N_GPUS = (1, 2, 4, 8, 16)
GPU_CHUNK = 2048


def gb(n_bytes):
    n = n_bytes / 1e9
    return f"{n:.1f}" if n < 99.95 else f"{n:.0f}"


class Model:
    """A hollow file, and what limpid plans for it."""

    def __init__(self, args, path, name, mix):
        self.limpid, self.path, self.kv, self.plans = args.limpid, path, args.kv, {}
        sets = [x for s in MODELS[name][1] + args.set for x in ("--set", s)]
        self.call("synth", name, path, "--hollow", "--force", *MIXES[mix], *sets)
        self.file_bytes = os.path.getsize(path)

    def call(self, *arguments):
        done = subprocess.run([self.limpid, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def plan(self, context, *options, kv=None):
        key = (context, kv, options)
        if key not in self.plans:
            self.plans[key] = json.loads(self.call("inspect", self.path, "--json", "--repack", "off", "--ctx", context, "--kv",
                                                   kv or self.kv, *options))
        return self.plans[key]

    def memory(self, *arguments, **named):
        return self.plan(*arguments, **named)["memory"]

    def rank_bytes(self, n, context):
        """The largest rank of n on GPUs: (weights, all)."""
        plan = self.plan(context, "--ranks", n, "--chunk", GPU_CHUNK)
        m, ranks = plan["memory"], plan["ranks"]
        weights = max(r["weight_bytes"] for r in ranks) + m["float32_bytes"]
        return weights, weights + max(r["kv_bytes"] for r in ranks) + m["step_bytes"]

    def host_rank_bytes(self, n, context):
        """The same of n hosts, a rank on each."""
        plan = self.plan(context, "--ranks", n)
        m = plan["memory"]
        return max(r["weight_bytes"] + r["kv_bytes"] for r in plan["ranks"]) + m["float32_bytes"] + m["step_bytes"]


def host_for(n_bytes):
    return next((f"{g} GiB" for g in HOSTS_GIB if n_bytes <= HOST_SHARE * g * 2**30), "–")


def gpus_for(model, context):
    """For each number of GPUs the smallest that will do, where fewer of them would not."""
    found, best = [], None
    for n in N_GPUS:
        needed = model.rank_bytes(n, context)[1] / 1e9 + GPU_LEFT_GB
        size = next((g for g in GPUS_GB if needed <= g), None)
        if size and (best is None or size < best):
            found.append(f"{n} × {size} GB")
            best = size
    return ", ".join(found) or "–"


def cpu_row(m):
    totals = [m.memory(c)["total_bytes"] for c in CONTEXTS]
    tokens = [m.memory(CONTEXTS[0], kv=kv)["kv_bytes_per_token"] / 1e3 for kv in ("f16", "q8_0")]
    two = m.host_rank_bytes(2, CONTEXTS[0])
    return [gb(m.file_bytes), *(f"{t:.0f}" for t in tokens), *(f"{gb(t)}: {host_for(t)}" for t in totals), f"{gb(two)}: {host_for(two)}"]


def half_row(m):
    plans = [m.memory(c, "--chunk", GPU_CHUNK) for c in CONTEXTS]
    on_gpu = [d["total_bytes"] - d["expert_bytes"] for d in (p["devices"][0] for p in plans)]
    fits = [next((f"{g} GB" for g in GPUS_GB if n / 1e9 + GPU_LEFT_GB <= g), "–") for n in on_gpu]
    return [*(f"{gb(n)}: {f}" for n, f in zip(on_gpu, fits)), gb(plans[0]["devices"][0]["expert_bytes"])]


def gpu_row(m):
    return [*(gb(m.rank_bytes(n, CONTEXTS[0])[0]) for n in N_GPUS[2:]), *(gpus_for(m, c) for c in CONTEXTS)]


K = [f"{c >> 10}k" for c in CONTEXTS]
TABLES = (
    ("CPU: memory of one process, GB, and the machine for it", cpu_row,
     ["file, GB", "KV, KB a token, f16", "q8_0", f"memory with {K[0]} tokens", f"with {K[1]}", f"each of two hosts, {K[0]}"]),
    ("One GPU, routed experts on the CPU: what the GPU holds, GB, and the smallest for it", half_row,
     [f"GPU with {K[0]} tokens", f"with {K[1]}", "experts in the host's memory, GB"]),
    ("All on GPUs, one rank each (unverified: never run on several GPUs): GB of weights on each, and the smallest GPUs", gpu_row,
     [*(f"of {n}" for n in N_GPUS[2:]), f"with {K[0]} tokens", f"with {K[1]}"]))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("--models", default="glm-5,deepseek-v3,kimi-k2,glm-4.7-flash")
    p.add_argument("--mixes", default=",".join(MIXES))
    p.add_argument("--kv", default="f16", help="type of the KV cache")
    p.add_argument("--set", action="append", default=[], help="of limpid synth")
    p.add_argument("--folder", help="for the files; it must allow sparse ones")
    args = p.parse_args()
    for option, given, known in (("--models", args.models, MODELS), ("--mixes", args.mixes, MIXES)):
        for name in given.split(","):
            if name not in known:
                p.error(f"{option} is '{name}', expected some of {', '.join(known)}")
    rows = [[] for _ in TABLES]
    with tempfile.TemporaryDirectory(prefix="limpid-sizing-", dir=args.folder) as folder:
        path = os.path.join(folder, "model.gguf")
        for name in args.models.split(","):
            for mix in args.mixes.split(","):
                model = Model(args, path, name, mix)
                for out, (_, make, _) in zip(rows, TABLES):
                    out.append([MODELS[name][0], mix, *make(model)])
    for (title, _, columns), body in zip(TABLES, rows):
        print(f"**{title}**\n")
        print("| " + " | ".join(["model", "mix", *columns]) + " |\n" + "|---" * (len(columns) + 2) + "|")
        print("\n".join("| " + " | ".join(r) + " |" for r in body) + "\n")


if __name__ == "__main__":
    main()
