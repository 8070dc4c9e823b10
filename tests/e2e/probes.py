#!/usr/bin/env python3
"""Probes through `limpid dump --probe`: against the golden references, against formulas in float64 over
the file's own weights, and as a command.

    probes.py LIMPID [--sanitizer] [--only TEXT]

Checked for each model of tests/golden, on every backend, route and chunking:
- residual streams, selections, indexer scores, experts and their weights within 1e-4 of the references
- every operation from the probes before it and the weights: norms, projections, rotation as a length,
  scores, probabilities, head outputs, absorbed queries, FFN, the sums of the residual stream, logits
- which files there are, and that index.json says why others are not
- that looking changes no bit
"""
import json
import os
import tempfile

import gguf_edit
from harness import Checks, Golden, arguments, golden_names, ids_text, np, run, too_far

TOLERANCE = 1e-4


class Probed:
    """One `limpid dump --probe ...`: arrays by file name without .npy, the index, and the logits."""

    def __init__(self, limpid, model, tokens, *options, probes=("op=*",), status=0):
        with tempfile.TemporaryDirectory(prefix="limpid-probes-") as folder:
            command = [limpid, "dump", model, "--tokens", ids_text(tokens), "--probe-dir", f"{folder}/p",
                       "--logits", f"{folder}/logits.npy", "--threads", 1, *options]
            for probe in probes:
                command += ["--probe", probe]
            self.messages = run(command, status=status).stderr
            if status:
                return
            self.logits = np.load(f"{folder}/logits.npy")
            with open(f"{folder}/p/index.json", encoding="utf-8") as f:
                self.index = json.load(f)
            self.arrays = {name[:-4]: np.load(f"{folder}/p/{name}") for name in os.listdir(f"{folder}/p")
                           if name.endswith(".npy")}

    def of(self, layer, op):
        """float64 for float values; None if no row of it was there."""
        array = self.arrays.get(f"layer{layer}.{op}" if layer is not None else op)
        return array.astype(np.float64) if array is not None and array.dtype == np.float32 else array


class Weights:
    """The golden files hold F32 and BF16."""

    def __init__(self, path):
        self.file = gguf_edit.read(path)
        self.tensors = {t.name: t for t in self.file.tensors}

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        t = self.tensors[name]
        if t.type == gguf_edit.T_BF16:
            values = (np.frombuffer(t.data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(t.data, "<f4")
        return values.reshape(t.ne[::-1]).astype(np.float64)

    def key(self, end, default=None):
        return next((v[1] for k, v in self.file.keys if k.endswith(end)), default)


def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scale_of(g, w):
    c = g.info["hf_config"]
    if not g.is_mla:
        return (c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]) ** -0.5
    scale = (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) ** -0.5
    factor, log = w.key(".rope.scaling.factor"), w.key(".rope.scaling.yarn_log_multiplier")
    return scale * (1 + log * np.log(factor)) ** 2 if factor and log else scale


def seen(p, g, layer, n):
    """[query, key]: may it attend?"""
    mask = np.tril(np.ones((n, n), bool))
    if g.has_indexer:
        topk = p.of(layer, "index.topk")
        mask = np.zeros((n, n), bool)
        for i, row in enumerate(topk):
            mask[i, row[row >= 0]] = True
    return mask


def attention(p, g, w, layer):
    """Scores, probabilities and outputs of heads from queries, keys and values; yields (what, want)."""
    q, n = p.of(layer, "attn.q"), len(g.tokens)
    mask = seen(p, g, layer, n)
    if g.is_mla:
        k_b, v_b = w[f"blk.{layer}.attn_k_b.weight"], w[f"blk.{layer}.attn_v_b.weight"]  # [H, L, n], [H, v, L]
        c, k_pe, nope = p.of(layer, "attn.kv_latent"), p.of(layer, "attn.k_rope"), k_b.shape[2]
        k = np.concatenate([np.einsum("hln,sl->shn", k_b, c),
                            np.broadcast_to(k_pe[:, None], (n, k_b.shape[0], k_pe.shape[1]))], -1)
        v = np.einsum("hvl,sl->shv", v_b, c)
        yield "attn.q", np.concatenate([p.of(layer, "attn.q_nope"), p.of(layer, "attn.q_rope")], -1)
        yield "attn.q_absorbed", np.einsum("hln,thn->thl", k_b, q[..., :nope])
    else:
        k, v = p.of(layer, "attn.k"), p.of(layer, "attn.v")
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.where(mask[:, None], scale_of(g, w) * np.einsum("thd,shd->ths", q, k), -np.inf)
    probs = softmax(scores)
    yield "attn.scores", scores
    yield "attn.probs", probs
    yield "attn.out", np.einsum("ths,shv->thv", probs, v)
    if g.is_mla:
        yield "attn.k", k
        yield "attn.v", v
        yield "attn.latent_out", np.einsum("ths,sl->thl", probs, c)


def operations(p, g, w, layer, before):
    """Every other operation; before: the residual stream that goes in. Yields (what, want)."""
    def weight(name):
        return w[f"blk.{layer}.{name}.weight"]

    def project(x, name):
        y = x @ weight(name).T
        return y + w[f"blk.{layer}.{name}.bias"] if f"blk.{layer}.{name}.bias" in w else y

    eps, n = w.key(".attention.layer_norm_rms_epsilon"), len(g.tokens)
    x = p.of(layer, "attn.norm")
    yield "attn.norm", rms_norm(before, weight("attn_norm"), eps)
    if g.is_mla:
        low = p.of(layer, "attn.q_latent")
        if low is not None:
            yield "attn.q_latent", rms_norm(project(x, "attn_q_a"), weight("attn_q_a_norm"), eps)
        q = project(x, "attn_q") if low is None else project(low, "attn_q_b")
        kv, latent = p.of(layer, "attn.kv_proj"), p.of(layer, "attn.kv_latent").shape[-1]
        yield "attn.kv_proj", project(x, "attn_kv_a_mqa")
        yield "attn.kv_latent", rms_norm(kv[:, :latent], weight("attn_kv_a_norm"), eps)
    else:
        q = project(x, "attn_q")
        yield "attn.k_proj", project(x, "attn_k").reshape(p.of(layer, "attn.k_proj").shape)
    yield "attn.q_proj", q.reshape(p.of(layer, "attn.q_proj").shape)
    yield "attn.proj", project(p.of(layer, "attn.out").reshape(n, -1), "attn_output")
    yield "attn.residual", before + p.of(layer, "attn.proj")
    y = p.of(layer, "ffn.norm")
    norm = "ffn_norm" if f"blk.{layer}.ffn_norm.weight" in w else "post_attention_norm"
    yield "ffn.norm", rms_norm(p.of(layer, "attn.residual"), weight(norm), eps)
    if f"blk.{layer}.ffn_gate_inp.weight" in w:
        yield "ffn.router_logits", project(y, "ffn_gate_inp")
        ids, weights = p.of(layer, "ffn.expert_ids"), p.of(layer, "ffn.expert_weights")
        gate, up, down = (weight(f"ffn_{name}_exps") for name in ("gate", "up", "down"))
        want = np.stack([sum(weights[t, j] * down[e] @ (silu(gate[e] @ y[t]) * (up[e] @ y[t]))
                             for j, e in enumerate(ids[t])) for t in range(n)])
        yield "ffn.experts_out", want
        if f"blk.{layer}.ffn_gate_shexp.weight" in w:
            yield "ffn.shared_gate", project(y, "ffn_gate_shexp")
            yield "ffn.shared_up", project(y, "ffn_up_shexp")
            yield "ffn.shared_act", silu(p.of(layer, "ffn.shared_gate")) * p.of(layer, "ffn.shared_up")
            yield "ffn.shared_out", project(p.of(layer, "ffn.shared_act"), "ffn_down_shexp")
            want = want + p.of(layer, "ffn.shared_out")
        yield "ffn.out", want
    else:
        yield "ffn.gate", project(y, "ffn_gate")
        yield "ffn.up", project(y, "ffn_up")
        yield "ffn.act", silu(p.of(layer, "ffn.gate")) * p.of(layer, "ffn.up")
        yield "ffn.out", project(p.of(layer, "ffn.act"), "ffn_down")
    yield "layer.out", p.of(layer, "attn.residual") + p.of(layer, "ffn.out")


def rotation_keeps_lengths(p, g, layer):
    """A rotation turns pairs: the length of a rotated row stays (the qk norms come before it)."""
    pairs = [("index.q_proj", "index.q")] if p.of(layer, "index.q") is not None else []
    if g.is_mla or g.info["arch"] in ("llama", "qwen2"):
        pairs.append(("attn.q_proj", "attn.q"))
    for before, after in pairs:
        a, b = p.of(layer, before), p.of(layer, after)
        there = np.isfinite(b)
        yield too_far(f"length of layer {layer} {after}", np.linalg.norm(np.where(there, b, 0), axis=-1),
                      np.linalg.norm(np.where(there, a, 0), axis=-1), TOLERANCE)
        if np.array_equal(a[there], b[there]):
            yield f"layer {layer} {after} is not rotated"


def close(what, got, want):
    """Where rows are missing (NaN) there is nothing to compare; minus infinity must be at the same places."""
    rows = ~np.isnan(got).reshape(len(got), -1).any(1)
    got, want = got[rows], want[rows]
    if got.shape != want.shape:
        return f"{what} has shape {got.shape}, expected {want.shape}"
    if not np.array_equal(np.isneginf(got), np.isneginf(want)):
        return f"{what}: other values are minus infinity"
    there = np.isfinite(want)
    return too_far(what, got[there], want[there], TOLERANCE * max(1.0, np.abs(want[there]).max(initial=0)))


def against_formulas(limpid, g, options):
    w, p = Weights(g.path), Probed(limpid, g.path, g.tokens, *options)
    before = p.of(None, "embed")
    yield too_far("embed", before, w["token_embd.weight"][g.tokens], 0)
    for layer in range(g.info["n_layer"]):
        for source in (operations(p, g, w, layer, before), attention(p, g, w, layer)):
            for op, want in source:
                got = p.of(layer, op)
                if got is not None:
                    yield close(f"layer {layer} {op}", got, want)
        yield from rotation_keeps_lengths(p, g, layer)
        before = p.of(layer, "layer.out")
    eps = w.key(".attention.layer_norm_rms_epsilon")
    head = w["output.weight"] if "output.weight" in w else w["token_embd.weight"]
    yield close("final.norm", p.of(None, "final.norm"), rms_norm(before, w["output_norm.weight"], eps))
    yield close("logits", p.of(None, "logits"), p.of(None, "final.norm") @ head.T)
    if not np.array_equal(p.arrays["logits"], p.logits):
        yield "the probe's logits differ from those of --logits"
    yield from right_files(p, g)


def against_golden(limpid, g, options):
    p, ref, stats = Probed(limpid, g.path, g.tokens, *options), g.ref, g.info["stats"]
    hidden = np.stack([p.arrays["embed"]] + [p.arrays[f"layer{i}.layer.out"] for i in range(g.info["n_layer"])])
    yield too_far("embed and layer.out", hidden, ref["hidden"], TOLERANCE)
    yield too_far("logits", p.arrays["logits"], ref["logits_f64"], TOLERANCE)
    for i, layer in enumerate(stats.get("moe_layers", [])):
        ids, weights = p.arrays[f"layer{layer}.ffn.expert_ids"], p.arrays[f"layer{layer}.ffn.expert_weights"]
        order = ids.argsort(1)
        if not np.array_equal(np.take_along_axis(ids, order, 1), ref["experts"][i]):
            yield f"experts of layer {layer} differ"
        yield too_far(f"expert weights of layer {layer}", np.take_along_axis(weights, order, 1), ref["expert_weights"][i], TOLERANCE)
    if not g.has_indexer:
        return
    for layer in range(g.info["n_layer"]):
        if not np.array_equal(p.arrays[f"layer{layer}.index.topk"], ref["topk"][layer]):
            yield f"the selection of layer {layer} differs"
    lower = np.tril(np.ones((len(g.tokens),) * 2, bool))
    for i, layer in enumerate(stats["indexer_layers"]):
        got = p.of(layer, "index.scores")
        if got is None and g.selects:
            yield f"layer {layer} has no index.scores"
        if got is not None:
            yield close(f"index scores of layer {layer}", got, np.where(lower, ref["index_scores"][i].astype(np.float64), -np.inf))


def right_files(p, g):
    """index.json and the files agree; what is not there is named with its reason."""
    for e in p.index["probes"]:
        name = (f"layer{e['layer']}." if e["layer"] is not None else "") + e["op"]
        there = p.arrays.get(name)
        if (there is not None) != (e["file"] == name + ".npy"):
            yield f"index.json has file {e['file']} for {name}"
        if there is not None and (list(there.shape) != e["shape"] or str(there.dtype) != e["type"]):
            yield f"{name} is {there.dtype} {there.shape}, index.json says {e['type']} {e['shape']}"
        if e["missing"] and not e.get("why_missing", "").startswith("only "):
            yield f"{name} lacks {e['missing']} rows without a reason"
        if there is None and e["missing"] != e["shape"][0]:
            yield f"{name} has no file, but only {e['missing']} rows are missing"
        if there is not None and e["type"] == "float32":
            nan = int(np.isnan(there).reshape(len(there), -1).any(1).sum())
            if nan != e["missing"]:
                yield f"{nan} rows of {name} are NaN, {e['missing']} are missing"
    if not np.array_equal(p.arrays["tokens"], g.tokens) or p.index["tokens"] != g.tokens.tolist():
        yield "the tokens are not those that ran"
    for layer in range(g.info["n_layer"]):
        runs = sorted(r["positions"] for r in p.index["routes"] if r["layer"] == layer)
        covered = [t for first, last in runs for t in range(first, last + 1)]
        if covered != list(range(len(g.tokens))):
            yield f"the routes of layer {layer} cover {runs}"


def routes_decide(limpid, g):
    """What a form of attention does not have is not invented."""
    for route, there, absent in (("expanded", "attn.k", "attn.q_absorbed"), ("absorbed", "attn.latent_out", "attn.v")):
        p = Probed(limpid, g.path, g.tokens, "--route", route)
        if p.of(0, there) is None or p.of(0, absent) is not None:
            yield f"--route {route}: {there} {'is' if p.of(0, there) is not None else 'is not'} there, and {absent} too"
        why = next(e for e in p.index["probes"] if e["layer"] == 0 and e["op"] == absent)
        if "route" not in why.get("why_missing", ""):
            yield f"--route {route}: {absent} is missing because {why.get('why_missing')!r}"


def rows(limpid, g, chunk):
    """first=, last=, at= and several probes give the rows of the whole."""
    whole = Probed(limpid, g.path, g.tokens, "--chunk", chunk, "--deterministic")
    n = len(g.tokens)
    part = Probed(limpid, g.path, g.tokens, "--chunk", chunk, "--deterministic",
                  probes=("layer=1,op=attn.*,first=2,at=9", "layer=1-2,op=attn.q,last=3,at=2-4", "op=logits,last=1",
                          "layer=0,op=attn.scores,at=5", "op=embed,at=7-9,first=1"))
    want = {"layer1.attn.norm": [0, 1, 9], "layer1.attn.q": [0, 1, 2, 3, 4, 9, n - 3, n - 2, n - 1],
            "layer2.attn.q": [2, 3, 4, n - 3, n - 2, n - 1], "logits": [n - 1], "embed": [0, 7, 8, 9]}
    for name, positions in want.items():
        if not np.array_equal(part.arrays[name], whole.arrays[name][positions]):
            yield f"{name} is not rows {positions} of the whole"
    if not np.array_equal(part.arrays["layer0.attn.scores"], whole.arrays["layer0.attn.scores"][5:6, :, :6]):
        yield f"layer0.attn.scores has shape {part.arrays['layer0.attn.scores'].shape}, or other values"
    ranges = {(e["layer"], e["op"]): e["positions"] for e in part.index["probes"]}
    if ranges[1, "attn.q"] != [[0, 4], [9, 9], [n - 3, n - 1]]:
        yield f"positions of layer 1 attn.q: {ranges[1, 'attn.q']}"
    if any(name.startswith(("layer3", "layer2.attn.k")) for name in part.arrays):
        yield f"more files than asked for: {sorted(part.arrays)}"
    plain = Probed(limpid, g.path, g.tokens, "--chunk", chunk, "--deterministic", probes=("op=embed,first=1",))
    if not np.array_equal(plain.logits.view(np.uint32), whole.logits.view(np.uint32)):
        yield "probing every point changes bits of the logits"


def refused(limpid, g, tokens):
    wrong = {"op=attn.score": "attn.scores", "op=scores": "index.scores", "op=zzz": "probe list", "layer=99,op=attn.q": "layers 0 to",
             "layer=3-2,op=attn.q": "a range such as", "op=attn.q,at=5000": "positions 0 to", "op=attn.q,first=0": "number of rows",
             "op=attn.q,rows=3": "no key", "layer=0": "names no op", "layer=0,op=logits": "outside the layers",
             "layer=0,op=ffn.expert_ids": "with experts", "": "no key", "op=attn.q,at=1-": "a position", "op=*attn": "no op"}
    for spec, words in wrong.items():
        p = Probed(limpid, g.path, tokens, probes=(spec,), status=2)
        if words not in p.messages or len(p.messages.strip().splitlines()) != 1:
            yield f"--probe '{spec}' is refused with {p.messages.strip()!r}, expected {words!r}"
    with tempfile.TemporaryDirectory(prefix="limpid-probes-") as folder:
        base = [limpid, "dump", g.path, "--tokens", ids_text(tokens)]
        run(base + ["--probe", "op=embed"], status=2)
        run(base + ["--probe-dir", folder], status=2)
        said = run(base + ["--probe", "op=embed", "--probe-dir", f"{folder}/a/b"], status=1).stderr
        if f"{folder}/a/b" not in said:
            yield f"a folder that cannot be made: {said!r}"
        open(f"{folder}/file", "w").close()
        if "no folder" not in run(base + ["--probe", "op=embed", "--probe-dir", f"{folder}/file"], status=1).stderr:
            yield "a file was taken for a folder"
        if os.path.exists("/dev/full"):
            os.symlink("/dev/full", f"{folder}/embed.npy")
            said = run(base + ["--probe", "op=embed", "--probe-dir", folder], status=1).stderr
            if "embed.npy" not in said or os.path.exists(f"{folder}/index.json"):
                yield f"a full disk: {said!r}"
            os.unlink(f"{folder}/embed.npy")
        for _ in range(2):  # a second time over the first
            run(base + ["--probe", "op=embed", "--probe-dir", folder])
        if not os.path.exists(f"{folder}/index.json"):
            yield "no index.json"


def listed(limpid, g):
    """`probe list` names what `op=*` writes, with its shapes."""
    plain = json.loads(run([limpid, "probe", "list", "--json"]).stdout)
    points = {e["op"]: e for e in json.loads(run([limpid, "probe", "list", g.path, "--json"]).stdout)}
    if [e["op"] for e in plain] != list(points):
        yield "with and without a model other points are listed"
    p = Probed(limpid, g.path, g.tokens)
    for e in p.index["probes"]:
        point = points[e["op"]]
        if e["layer"] is not None and e["layer"] not in point["layers"]:
            yield f"{e['op']} of layer {e['layer']} is not listed"
        if any(d is not None and d != s for d, s in zip(point["dims"], e["shape"][1:])) or len(point["dims"]) != len(e["shape"]) - 1:
            yield f"{e['op']} is listed with {point['dims']}, its shape is {e['shape']}"
    written = {(e["op"], e["layer"]) for e in p.index["probes"]}
    for op, point in points.items():
        for layer in point["layers"] or ([None] if "." not in op or op == "final.norm" else []):
            if (op, layer) not in written:
                yield f"{op} of layer {layer} is listed but not written"
    text = run([limpid, "probe", "list", g.path]).stdout
    if any(op not in text for op, point in points.items() if point["layers"]):
        yield "the text lacks points"


def main():
    args = arguments(__doc__)
    checks, limpid = Checks(args), args.limpid
    for g in map(Golden, golden_names()):
        for backend in ("cpu",) if args.sanitizer else ("ref", "cpu"):
            for route in ("auto", "expanded", "absorbed") if g.is_mla else ("auto",):
                for chunk in (7,) if args.sanitizer else (7, 512):
                    options = ["--backend", backend, "--route", route, "--chunk", chunk]
                    name = f"{g.name} {backend} {route} {chunk}"
                    checks.add(f"{name} golden", against_golden, limpid, g, options)
                    checks.add(f"{name} formulas", against_formulas, limpid, g, options)
        checks.add(f"{g.name} list", listed, limpid, g)
        if g.is_mla:
            checks.add(f"{g.name} routes", routes_decide, limpid, g)
    for name in ("dsa_shared", "glm45"):
        for chunk in (5, 512):
            checks.add(f"{name} rows {chunk}", rows, limpid, Golden(name), chunk)
    checks.add("refused", refused, limpid, Golden("ds3"), Golden("ds3").tokens[:20])
    checks.finish(" (reduced for the sanitizers)" if args.sanitizer else "")


if __name__ == "__main__":
    main()
