#!/usr/bin/env python3
"""Files whose metadata does not say how the router works.

    router_keys.py LIMPID [--sanitizer] [--only TEXT]

Early conversions lack expert_gating_func: sigmoid if the file has routing biases, softmax if not. A copy
of each golden mixture-of-experts model without the key (and one with 0, "not set") must give the golden
logits, and --log info must name the rule. The selected experts and their weights are checked through the
logits: a wrong gating moves them by whole units, which the last case shows.
"""
import os
import tempfile

import gguf_edit
from gguf_edit import F32, U32
from harness import Checks, Dump, Golden, arguments, golden_names, np, too_far

TOLERANCE = 1e-4


def same(limpid, g, path, backend):
    d = Dump(limpid, path, g.tokens, "--backend", backend, "--log", "info")
    yield too_far("logits", d.logits, g.ref["logits_f64"], TOLERANCE)
    line = next((m for m in d.messages.splitlines() if "expert_gating_func" in m), None)
    if line is None or not any(word in line for word in ("routing biases", "architecture")):
        yield f"--log info does not name the rule for expert_gating_func: {line!r}"


def other(limpid, g, path, backend):
    far = np.abs(Dump(limpid, path, g.tokens, "--backend", backend).logits - g.ref["logits_f64"]).max()
    if far < 0.05:
        yield f"a changed router key moves logits by {far:.2e} only: it is not read"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-router-") as folder:
        for g in (g for g in map(Golden, golden_names()) if "experts" in g.ref):
            arch = g.info["arch"]

            def write(kind, change):
                model = gguf_edit.read(g.path)
                change(model)
                path = os.path.join(folder, f"{g.name}-{kind}.gguf")
                with open(path, "wb") as f:
                    f.write(model.bytes())
                return path

            key = f"{arch}.expert_gating_func"
            other_gating = 1 if gguf_edit.read(g.path).value(key) == 2 else 2
            # a softmax router has no routing biases, so it can only be told from its weights' scale
            kinds = [("absent", lambda m: m.drop(key), same), ("zero", lambda m: m.set(key, U32, 0), same),
                     ("scale", lambda m: m.set(f"{arch}.expert_weights_scale", F32, 0.5), other)]
            if other_gating == 1:
                kinds.append(("softmax", lambda m: m.set(key, U32, 1), other))
            for kind, change, function in kinds:
                path = write(kind, change)
                for backend in ("ref", "cpu"):
                    checks.add(f"{g.name} {kind} {backend}", function, args.limpid, g, path, backend)
        checks.finish()


if __name__ == "__main__":
    main()
