#!/usr/bin/env python3
"""limpid bench: its rows as JSON and CSV agree, the shares of time add up, the drawing shows the rows where its axes say,
and the machine's limits alone. Usage: bench.py LIMPID [--sanitizer] [--only TEXT]"""
import csv
import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET

import harness

SVG = "{http://www.w3.org/2000/svg}"
PARTS = ("attention_expanded attention_absorbed attention_expanded_sparse attention_sparse attention_gqa index_select "
         "index_project project router experts shared dense head wait ranks other between_steps").split()
KEYS = set("""test tokens depth batch repeats tok_s limit_tok_s limit_fraction limited_by bytes_per_token read_gb_s limit_gb_s
    madds_per_token gmadds_s int_madds_per_token int16_madds_per_token float_madds_per_token limit_int_gmadds_s
    limit_int16_gmadds_s limit_float_gmadds_s limit_bf16_gmadds_s matrix_fraction wall_s time_share model architecture cpu
    version backend kernel kv threads load_s file_bytes kv_bytes peak_rss_bytes anonymous_bytes repacked_bytes""".split())


def bench(args, model, *options):
    """(rows, CSV's rows, root of the SVG, what was printed)"""
    with tempfile.TemporaryDirectory(prefix="limpid-bench-") as folder:
        done = harness.run([args.limpid, "bench", model, "--threads", "2", "--json", f"{folder}/r.json", "--csv",
                            f"{folder}/r.csv", "--svg", f"{folder}/r.svg", *options])
        with open(f"{folder}/r.json") as f:
            rows = json.load(f)
        with open(f"{folder}/r.csv", newline="") as f:
            table = list(csv.DictReader(f))
        return rows, table, ET.parse(f"{folder}/r.svg").getroot(), done.stdout


def wanted_tests(prefills, decodes, depths, batches):
    return [(t, n, d, b) for d in depths for t, n, b in
            [("prefill", p, 1) for p in prefills] + [("decode", n, b) for b in batches for n in decodes]]


def check_rows(rows, wanted, parts_there):
    got = [(r["test"], r["tokens"], r["depth"], r["batch"]) for r in rows]
    if got != wanted:
        yield f"tests are {got}, expected {wanted}"
    for r in rows:
        name = f"{r['test']} {r['tokens']} at {r['depth']} x {r['batch']}"
        if set(r) != KEYS:
            yield f"{name}: keys differ: {sorted(set(r) ^ KEYS)}"
            return
        if sorted(r["time_share"]) != sorted(PARTS):
            yield f"{name}: parts are {sorted(r['time_share'])}"
        shares = r["time_share"]
        if abs(sum(shares.values()) - 1) > 0.001 or min(shares.values()) < 0:
            yield f"{name}: shares add up to {sum(shares.values())}"
        missing = [p for p in parts_there if shares[p] <= 0]
        if missing:
            yield f"{name}: no time in {missing}"
        if not (r["tok_s"] > 0 and r["limit_gb_s"] > 0 and r["limit_int_gmadds_s"] > 0 and r["limit_int16_gmadds_s"] > 0):
            yield f"{name}: rates {r['tok_s']}, {r['limit_gb_s']} GB/s"
        # Of the timed repeats: tokens over rate is their time each; the median of few is near the mean.
        seconds = r["tokens"] * r["batch"] * r["repeats"] / r["tok_s"]
        if r["repeats"] == 1 and abs(seconds / r["wall_s"] - 1) > 0.05:
            yield f"{name}: {r['wall_s']} s were timed, the rate says {seconds}"
        if abs(r["limit_fraction"] - r["tok_s"] / r["limit_tok_s"]) > 1e-4 * r["limit_fraction"]:
            yield f"{name}: fraction {r['limit_fraction']}"


def check_csv(rows, table):
    if len(rows) != len(table):
        yield f"{len(table)} rows of CSV, {len(rows)} of JSON"
    for r, c in zip(rows, table):
        for key in ("test", "tokens", "depth", "batch", "model", "kernel", "limited_by"):
            if str(r[key]) != c[key]:
                yield f"CSV has {key} {c[key]!r}, JSON {r[key]!r}"
        for key in ("tok_s", "limit_tok_s", "limit_gb_s", "matrix_fraction"):
            if abs(float(c[key]) - r[key]) > 1e-4 * abs(r[key]) + 1e-4:
                yield f"CSV has {key} {c[key]}, JSON {r[key]}"
        shares = {k[6:]: float(v) for k, v in c.items() if k.startswith("share_")}
        if set(shares) != set(PARTS) or any(abs(shares[k] - r["time_share"][k]) > 1e-4 for k in shares):
            yield f"CSV's shares {shares} differ from {r['time_share']}"


def scale_of(texts, left):
    """From y to value, by the tick labels of the axis whose labels end just left of `left`."""
    ticks = []
    for t in texts:
        if t.get("class") == "y" and abs(float(t.get("x")) - (left - 7)) < 1:
            number = re.match(r"([\d.e+-]+)(k?)$", t.text)
            if number:
                ticks.append((float(t.get("y")) - 4, float(number[1]) * (1000 if number[2] else 1)))
    (y0, v0), (y1, v1) = ticks[0], ticks[-1]
    return (lambda y: v0 + (y - y0) / (y1 - y0) * (v1 - v0)), abs(v1 - v0)


def check_svg(rows, root):
    if root.tag != SVG + "svg" or root.get("role") != "img":
        yield f"the root is {root.tag}, role {root.get('role')}"
    if not root.findtext(SVG + "title") or not root.findtext(SVG + "desc"):
        yield "no title or no description"
    texts = list(root.iter(SVG + "text"))
    circles = list(root.iter(SVG + "circle"))
    if len(circles) != len(rows):
        yield f"{len(circles)} points of {len(rows)} rows"
    for test in ("prefill", "decode"):
        of_test = [c for c in circles if c.get("class") == test]
        mine = [r for r in rows if r["test"] == test]
        if not mine:
            continue
        name = next(t for t in texts if t.text == f"{test}, tokens per second")
        value_at, span = scale_of(texts, float(name.get("x")) + 40)
        got = sorted((float(c.get("cx")), value_at(float(c.get("cy")))) for c in of_test)
        depths = sorted({r["depth"] for r in mine})
        by_x = sorted({x for x, _ in got})
        if len(by_x) != len(depths):
            yield f"{test}: points at {by_x}, depths {depths}"
            continue
        for x, depth in zip(by_x, depths):
            values = sorted(v for at, v in got if at == x)
            expected = sorted(r["tok_s"] for r in mine if r["depth"] == depth)
            if any(abs(v - e) > span * 0.002 for v, e in zip(values, expected)) or len(values) != len(expected):
                yield f"{test} at depth {depth}: points say {values}, rows {expected}"
        if len(depths) > 2:
            for x, depth in zip(by_x, depths):
                at = by_x[0] + (by_x[-1] - by_x[0]) * (depth - depths[0]) / (depths[-1] - depths[0])
                if abs(at - x) > 0.2:
                    yield f"{test}: depth {depth} lies at {x}, expected {at}"
    if re.search(r"https?://(?!www\.w3\.org/2000/svg)", ET.tostring(root, encoding="unicode")):
        yield "the drawing refers to something outside"


def check_bars(rows, root):
    """A stack of each depth for the largest prefill and the smallest batch: heights in proportion to the shares."""
    for test in ("prefill", "decode"):
        for depth in sorted({r["depth"] for r in rows if r["test"] == test}):
            mine = [r for r in rows if r["test"] == test and r["depth"] == depth]
            r = max(mine, key=lambda r: (-r["batch"], r["tokens"]))
            bars = {}
            for rect in root.iter(SVG + "rect"):
                title = rect.findtext(SVG + "title") or ""
                found = re.match(rf"(\w+): ([\d.]+) % of {test} at depth {depth}$", title)
                if found:
                    bars[found[1]] = float(rect.get("height"))
            total = sum(bars.values())
            for part, share in r["time_share"].items():
                if abs(bars.get(part, 0) / total - share) > 0.003:
                    yield f"{test} at depth {depth}: {part} is drawn {bars.get(part, 0) / total:.3f}, share {share:.3f}"


def sparse_model(args):
    """glm-dsa with a tiny top_k: selection from the first depth on, and several of everything."""
    rows, table, root, printed = bench(args, os.path.join(harness.GOLDEN, "dsa_sparse.gguf"), "-p", "24,12", "-n", "4,2",
                                       "-d", "0,40,64", "-b", "1,3", "--repeat", "1")
    yield from check_rows(rows, wanted_tests([12, 24], [2, 4], [0, 40, 64], [1, 3]),
                          ["project", "index_project", "router", "experts", "shared", "dense", "head", "other"])
    for r in rows:
        if r["depth"] and (r["time_share"]["index_select"] <= 0 or r["time_share"]["attention_sparse"] <= 0):
            yield f"depth {r['depth']}: no time in the selection or behind it"
    yield from check_csv(rows, table)
    yield from check_svg(rows, root)
    yield from check_bars(rows, root)
    for word in ("where the time went", "matrix", "between_steps", "peak memory"):
        if word not in printed:
            yield f"the table does not say '{word}'"


def dense_model(args):
    """Grouped-query attention, without experts, at one depth alone."""
    rows, table, root, _ = bench(args, os.path.join(harness.GOLDEN, "qwen3.gguf"), "-p", "16", "-n", "4", "--repeat", "2")
    yield from check_rows(rows, wanted_tests([16], [4], [0], [1]), ["project", "attention_gqa", "dense", "head", "other"])
    for r in rows:
        if r["time_share"]["experts"] or r["int16_madds_per_token"]:
            yield f"experts {r['time_share']['experts']}, 16-bit products {r['int16_madds_per_token']}"
    yield from check_csv(rows, table)
    yield from check_svg(rows, root)
    yield from check_bars(rows, root)


def quantised_model(args):
    """Its products with block-quantised weights have a fraction of the integer peak. Its steps are long enough for their
    parts to make up the time; on a busy machine a test may be held up between two steps, so it has several chances."""
    for _ in range(5):
        rows, _, _, _ = bench(args, harness.MINI_MODEL, "-p", "128", "-n", "8", "--repeat", "1")
        between = {r["test"]: r["time_share"]["between_steps"] for r in rows}
        if max(between.values()) <= 0.25:
            break
    else:
        yield f"more than a quarter of the time is in no step: {between}"
    for r in rows:
        if r["matrix_fraction"] <= 0 or r["int_madds_per_token"] <= 0:
            yield f"{r['test']}: matrix fraction {r['matrix_fraction']}"


def limits_alone(args):
    done = harness.run([args.limpid, "bench", "--limits", "--threads", "2", "--json", "-"])
    limits = json.loads(done.stdout)
    if limits["threads"] != 2 or min(limits[k] for k in ("limit_gb_s", "limit_int_gmadds_s", "limit_int16_gmadds_s",
                                                        "limit_float_gmadds_s")) <= 0:
        yield f"limits {limits}"
    if "GB/s" not in harness.run([args.limpid, "bench", "--limits"]).stdout:
        yield "the lines for people name no bandwidth"


def wrong_usage(args):
    model = os.path.join(harness.GOLDEN, "qwen3.gguf")
    for options, word in ((["-p", "1,x"], "-p is '1,x'"), (["-p", "0", "-n", "0"], "nothing is left"),
                          (["-b", "0"], "-b is 0"), (["-d", "-1"], "-d is '-1'"), (["--repeat", "0"], "--repeat is 0"),
                          (["-n", ",".join(str(i) for i in range(1, 40))], "more than 32 numbers")):
        done = subprocess.run([args.limpid, "bench", model, *options], capture_output=True, text=True)
        if done.returncode != 2 or word not in done.stderr:
            yield f"{options}: status {done.returncode}, {done.stderr.strip()[:200]!r}"
    done = subprocess.run([args.limpid, "bench", model, "--svg", "/nowhere/x.svg"], capture_output=True, text=True)
    if done.returncode != 1 or "/nowhere/x.svg" not in done.stderr:
        yield f"a drawing that cannot be written: status {done.returncode}, {done.stderr.strip()[:200]!r}"


def main():
    args = harness.arguments(__doc__)
    checks = harness.Checks(args)
    for case in (sparse_model, dense_model, quantised_model, limits_alone, wrong_usage):
        checks.add(case.__name__, case, args)
    checks.finish()


if __name__ == "__main__":
    main()
