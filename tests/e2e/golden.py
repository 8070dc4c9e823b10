#!/usr/bin/env python3
"""The golden models through `limpid dump`: every backend, route and chunking against the references.

    golden.py LIMPID [--sanitizer] [--only TEXT] [--backends ref,cpu]

Checked for each model of tests/golden (its README says where the numbers come from):
- logits and hidden states within 1e-4 of the float64 reference, the indexer's sets and the greedy
  continuation equal, for every backend x route x chunking
- --deterministic: the same bits for every chunking and thread count, also within 1e-4
- --route dense: differs where the indexer leaves keys out, and only there
- the trace: one attention event for each layer and step, with route, reason and kernel; experts equal
- a one-token prompt equals the first row of a long one
With --sanitizer: chunks of 7 and the whole prompt only, deterministic runs on cpu only.
With --backends: those instead (cuda, which needs a GPU), and the largest differences are printed.
"""
import atexit
import json

from harness import LARGEST, Checks, Dump, Golden, arguments, golden_names, np, too_far

TOLERANCE = 1e-4
CHUNKS = (1, 2, 3, 7, 16, 64, None)
CHUNKS_SHORT = (7, None)


def chunk_options(chunk):
    return ["--chunk", chunk] if chunk else []


def compare(limpid, g, options):
    want = ["logits", "hidden"] + (["topk"] if g.has_indexer else [])
    d = Dump(limpid, g.path, g.tokens, *options, want=want)
    yield too_far("logits", d.logits, g.ref["logits_f64"], TOLERANCE)
    yield too_far("hidden", d.hidden, g.ref["hidden"], TOLERANCE)
    if g.has_indexer and not np.array_equal(d.topk, g.ref["topk"]):
        yield "the selected keys differ from the reference"


def continues(limpid, g, options):
    got = Dump(limpid, g.path, g.prompt, *options, want=(), greedy=len(g.greedy)).greedy
    if got != g.greedy:
        yield f"greedy continuation {got}, expected {g.greedy}"


def same_bits(limpid, g, backend, chunks, threads):
    """Every chunking and thread count gives the bits of the first."""
    first = None
    for n_threads in threads:
        for chunk in chunks:
            d = Dump(limpid, g.path, g.tokens, "--deterministic", "--backend", backend, "--threads", n_threads,
                     *chunk_options(chunk), want=("logits", "hidden"))
            if first is None:
                first = d
                yield too_far("logits", d.logits, g.ref["logits_f64"], TOLERANCE)
            for what in ("logits", "hidden"):
                got, want = (x.arrays[what].view(np.uint32) for x in (d, first))
                if not np.array_equal(got, want):
                    yield (f"{what} of --chunk {chunk or 'all'} --threads {n_threads} have other bits than those of "
                           f"--chunk {chunks[0] or 'all'} --threads {threads[0]} ({int((got != want).sum())} values)")


def dense_differs(limpid, g, backend):
    """Dense attention is right up to top-k keys, and another function beyond."""
    d = Dump(limpid, g.path, g.tokens, "--backend", backend, "--route", "dense")
    if not g.selects:
        yield too_far("logits of dense attention where every key is selected", d.logits, g.ref["logits_f64"], TOLERANCE)
        return
    k = g.info["stats"]["topk"]
    yield too_far(f"dense logits of the first {k} positions", d.logits[:k], g.ref["logits_f64"][:k], TOLERANCE)
    far = np.abs(d.logits[k:] - g.ref["logits_f64"][k:]).max()
    if far < 0.1:
        yield f"--route dense gives the sparse result beyond {k} keys (largest difference {far:.2e})"


FIELDS = {"step": int, "layer": int, "sequence": int, "n_query": int, "n_kv": int, "top_k": int, "indexer": str, "route": str,
          "reason": str, "kernel": str}


def traced(limpid, g, backend, chunk):
    d = Dump(limpid, g.path, g.tokens, "--backend", backend, *chunk_options(chunk), trace=True)
    events = [json.loads(line) for line in d.trace]
    attention = [e for e in events if e["event"] == "attention"]
    n_layers, n_tokens = g.info["n_layer"], len(g.tokens)
    step = chunk or n_tokens
    begins = range(0, n_tokens, step)
    for e in attention:
        for field, kind in FIELDS.items():
            if not isinstance(e.get(field), kind) or e[field] == "" and field != "indexer":
                yield f"an attention event has {field} {e.get(field)!r}: {e}"
                return
    got = [(e["layer"], e["n_query"], e["n_kv"]) for e in attention]
    want = [(layer, min(step, n_tokens - b), min(b + step, n_tokens)) for b in begins for layer in range(n_layers)]
    if got != want:
        yield f"attention events (layer, n_query, n_kv) begin {got[:9]}, expected {want[:9]}"
    if g.selects:
        for e in attention:
            if ("sparse" in e["route"]) != (e["n_kv"] > e["top_k"]):
                yield f"route {e['route']} with {e['n_kv']} keys and top_k {e['top_k']}"
    if "experts" in g.ref:
        chosen = {(e["step"], e["layer"]): sorted(map(int, e["experts"].split())) for e in events if e["event"] == "experts"}
        steps = sorted({e["step"] for e in attention})
        for i, layer in enumerate(g.info["stats"]["moe_layers"]):
            for s, b in zip(steps, begins):
                row = min(b + step, n_tokens) - 1
                if chosen.get((s, layer)) != g.ref["experts"][i, row].tolist():
                    yield f"experts of layer {layer}, position {row}: {chosen.get((s, layer))}, expected {g.ref['experts'][i, row].tolist()}"
                    return


def route_follows_the_work(limpid, g, backend):
    """The same file and prompt: one query and many take different forms, and both are recorded."""
    routes = {}
    for chunk in (1, None):
        d = Dump(limpid, g.path, g.tokens, "--backend", backend, *chunk_options(chunk), trace=True)
        routes[chunk] = {(e["route"], e["reason"]) for e in map(json.loads, d.trace) if e["event"] == "attention"}
    if {r for r, _ in routes[1]} != {"absorbed"} or {r for r, _ in routes[None]} != {"expanded"}:
        yield f"one query: {routes[1]}, the whole prompt: {routes[None]}"


def one_token(limpid, g, backend):
    whole = Dump(limpid, g.path, g.tokens, "--backend", backend, "--deterministic").logits
    alone = Dump(limpid, g.path, g.tokens[:1], "--backend", backend, "--deterministic").logits
    chunked = Dump(limpid, g.path, g.tokens[:4], "--backend", backend, "--deterministic", "--chunk", 1).logits
    for what, got in (("a one-token prompt", alone), ("a prompt in steps of one token", chunked)):
        if not np.array_equal(got.view(np.uint32), whole[:len(got)].view(np.uint32)):
            yield f"{what} has other logits than the same tokens in a long prompt"


# What deterministic runs are compared over: chunks, threads.
SPREAD = {"cpu": (CHUNKS, (1, 2)), "ref": ((1, 7, None), (1,)), "cuda": (CHUNKS, (1,))}


def main():
    args = arguments(__doc__, [("--backends", dict(default="ref,cpu", help="with commas between"))])
    backends = args.backends.split(",")
    checks, limpid = Checks(args), args.limpid
    for g in map(Golden, golden_names()):
        for backend in backends:
            for route in ("auto", "expanded", "absorbed") if g.is_mla else ("auto",):
                options = ["--backend", backend, "--route", route]
                for chunk in CHUNKS_SHORT if args.sanitizer else CHUNKS:
                    checks.add(f"{g.name} {backend} {route} chunk {chunk or 'all'}", compare, limpid, g, options + chunk_options(chunk))
                checks.add(f"{g.name} {backend} {route} greedy", continues, limpid, g, options)
            if g.has_indexer:
                checks.add(f"{g.name} {backend} dense", dense_differs, limpid, g, backend)
            checks.add(f"{g.name} {backend} trace", traced, limpid, g, backend, 7)
            checks.add(f"{g.name} {backend} one token", one_token, limpid, g, backend)
            if not args.sanitizer:
                checks.add(f"{g.name} {backend} trace of one step", traced, limpid, g, backend, None)
            if backend != "ref" or not args.sanitizer:
                chunks, threads = SPREAD[backend]
                checks.add(f"{g.name} {backend} deterministic", same_bits, limpid, g, backend,
                           CHUNKS_SHORT if args.sanitizer else chunks, threads)
    for backend in backends:
        checks.add(f"ds3 {backend} route", route_follows_the_work, limpid, Golden("ds3"), backend)
    if args.backends != "ref,cpu":
        atexit.register(lambda: print("".join(f"figure,golden {what},{far:.3g},{TOLERANCE:.0e}\n"
                                              for what, far in sorted(LARGEST.items())), end=""))
    checks.finish(" (reduced for the sanitizers)" if args.sanitizer else "")


if __name__ == "__main__":
    main()
