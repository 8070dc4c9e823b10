#!/usr/bin/env python3
"""`--kv fp8` on whole models: how far it is from an f32 cache, that routes agree, that no chunking changes a bit,
what a token takes, and which models are refused.

    kv_fp8.py LIMPID [--sanitizer] [--only TEXT] [--backend cuda]      (cuda needs a GPU)

The bound. E4M3 has three bits of mantissa: it is off by at most 2^-4 of a value, in the mean square by
2^-3 / sqrt(12) sqrt(3/7) = 2.4e-2 of the values (uniform within an octave). Of attention's output the values make e, the
scores twice as much (docs/numerics.md): 2.2 e = 5.2e-2. Layers add to one residual stream, so n of them to sqrt(n) times
that, if none is louder than what it is added to. A row whose experts or selected keys change for it is another row;
so the median over rows is held against twice that sum, and all rows must be finite.
"""
import json
import os
import tempfile

from harness import MINI, MINI_MODEL, Checks, Dump, Golden, arguments, np, run

E = 2 ** -3 / 12 ** 0.5 * (3 / 7) ** 0.5
# glm-5 with its latents and heads, few experts
SMALL = ["hidden_size=512", "intermediate_size=512", "vocab_size=1024", "moe_intermediate_size=256", "n_routed_experts=16",
         "num_experts_per_tok=4"]
ROUTES = ("auto", "absorbed", "expanded")


def of_rows(got, want):
    """Of each row the difference over its spread."""
    centred = want - want.mean(-1, keepdims=True)
    return np.linalg.norm(got - want, axis=-1) / np.linalg.norm(centred, axis=-1)


class Model:
    def __init__(self, limpid, name, path, tokens, n_layers, exact, backend):
        self.limpid, self.name, self.path, self.tokens, self.n_layers = limpid, name, path, tokens, n_layers
        self.backend = ["--backend", backend]
        self.exact = exact  # backend of the f32 run
        self.f32 = None

    def dump(self, *options):
        return Dump(self.limpid, self.path, self.tokens, "--kv", "fp8", *options).logits.astype(np.float64)

    def near_f32(self, *options):
        if self.f32 is None:
            self.f32 = Dump(self.limpid, self.path, self.tokens, "--kv", "f32", "--backend", self.exact).logits.astype(np.float64)
        got = self.dump(*options)
        if not np.isfinite(got).all():
            yield "logits are not finite"
        off, bound = np.median(of_rows(got, self.f32)), 2 * 2.2 * E * self.n_layers ** 0.5
        if not 1e-3 < off < bound:  # a cache that rounds nothing would be another type
            yield f"the median difference to an f32 cache is {off:.3g} of a row, expected 0.001 to {bound:.3g}"

    def routes_agree(self):
        """The same rounded rows but where a value stood between two codes: far nearer than the cache's own rounding."""
        first = self.dump("--route", "absorbed", *self.backend)
        for route in ("expanded", "auto"):
            off = np.median(of_rows(self.dump("--route", route, *self.backend), first))
            if off > E / 2:
                yield f"route {route} differs from absorbed by {off:.3g} of a row in the median, expected at most {E / 2:.3g}"

    def same_bits(self, *options):
        first = None
        for chunk in (7, 64, None):
            for threads in (1, 2):
                got = Dump(self.limpid, self.path, self.tokens, "--kv", "fp8", "--deterministic", "--threads", threads, *self.backend, *options,
                           *(["--chunk", chunk] if chunk else [])).logits.view(np.uint32)
                first = got if first is None else first
                if not np.array_equal(got, first):
                    yield f"--chunk {chunk or 'all'} --threads {threads} gives other bits than --chunk 7 --threads 1"


def bytes_of_a_token(limpid, path, layers, latent, rope, index):
    """ref keeps nothing beside the rows: blocks of 4 + 128 bytes, two for a rotated value."""
    for kv, row in (("fp8", latent // 128 * 132 + 2 * rope + index // 128 * 132), ("bf16", 2 * (latent + rope + index))):
        done = run([limpid, "inspect", path, "--json", "--kv", kv, "--backend", "ref", "--ctx", "256"])
        got = json.loads(done.stdout)["memory"]
        if got["kv_bytes_per_token"] != layers * row:
            yield f"inspect says {got['kv_bytes_per_token']} bytes a token with --kv {kv}, expected {layers * row}"
        if got["kv_type"] != kv.upper():
            yield f"inspect names the type {got['kv_type']}, expected {kv.upper()}"


def refused(limpid, name, status, *says):
    """One sentence with the value and what to use instead, from every command."""
    g = Golden(name)
    for command in (["run", "-p", "x", "-n", "1"], ["dump", "--tokens", "1,2"], ["bench"], ["serve", "--port", "0"]):
        done = run([limpid, command[0], g.path, *command[1:], "--kv", "fp8"], status=status)
        last = done.stderr.strip().splitlines()[-1]
        for text in says:
            if text not in last:
                yield f"{command[0]} says {last!r}, expected {text!r} in it"


def main():
    args = arguments(__doc__, [("--backend", dict(default="cpu"))])
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-fp8-") as folder:
        g = Golden("dsa_full_dims")
        mini = np.load(os.path.join(MINI, "logits_ref.npz"))
        models = [Model(args.limpid, "dsa_full_dims", g.path, g.tokens, g.info["n_layer"], "ref", args.backend)]
        if not args.sanitizer:
            synth = os.path.join(folder, "small.gguf")
            run([args.limpid, "synth", "glm-5", synth, "--layers", "6", *(x for f in SMALL for x in ("--set", f))])
            models.append(Model(args.limpid, "mini", MINI_MODEL, mini["p3_tokens"], 5, "cpu", args.backend))
            models.append(Model(args.limpid, "synth", synth, [(37 * i + 5) % 1000 for i in range(200)], 6, "cpu", args.backend))
        for m in models:
            if m.exact == "ref":
                checks.add(f"{m.name} ref", lambda m=m: m.near_f32("--backend", "ref"))
            for route in ROUTES:
                checks.add(f"{m.name} {args.backend} {route}", lambda m=m, r=route: m.near_f32("--route", r, *m.backend))
            if m.exact == "ref":  # quantised weights round activations, for one route more of them than for the other
                checks.add(f"{m.name} routes", m.routes_agree)
            for level in ("plain", "avx2", "auto") if args.backend == "cpu" else ("auto",):
                checks.add(f"{m.name} chunks {level}", lambda m=m, level=level: m.same_bits("--cpu", level))
        checks.add("bytes of a token", bytes_of_a_token, args.limpid, MINI_MODEL, 5, 512, 64, 128)
        checks.add("refused: latents", refused, args.limpid, "dsa_sparse", 2, "KV type FP8", "128", "latents", "have 32", "use --kv f16")
        checks.add("refused: heads", refused, args.limpid, "qwen3", 1, "KV type FP8", "128", "have 32 and 32", "use --kv q8_0")
        checks.finish()


if __name__ == "__main__":
    main()
