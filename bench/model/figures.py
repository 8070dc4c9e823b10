#!/usr/bin/env python3
"""The figures of a benchmark: figures.py ROWS.json (from limpid bench --json). Exit 1 when loading, memory or
decoding is over its bound."""
import json
import sys

LOAD_BOUND_S = 1.0
MEMORY_BOUND = 300e6  # bytes beside file and KV cache
DECODE_BOUND = 0.4  # of the measured read bandwidth, at depth 0


def main():
    rows = json.load(open(sys.argv[1]))
    r = rows[0]
    print()
    for row in rows:
        print(f"{row['test']:8} at depth {row['depth']:6}: {row['tok_s']:9.2f} tok/s, "
              f"{100 * row['limit_fraction']:5.1f} % of the limit ({row['limited_by']})")
    rest = r["peak_rss_bytes"] - r["file_bytes"] - r["kv_bytes"]
    load_ok, memory_ok = r["load_s"] < LOAD_BOUND_S, rest <= MEMORY_BOUND
    print(f"loading: {r['load_s']:.3f} s, bound {LOAD_BOUND_S} s: {'kept' if load_ok else 'BROKEN'}")
    print(f"memory beside file and KV cache: {rest / 1e6:.0f} MB, bound {MEMORY_BOUND / 1e6:.0f} MB: "
          f"{'kept' if memory_ok else 'BROKEN'}")
    decode = [row["limit_fraction"] for row in rows if row["test"] == "decode" and row["depth"] == 0]
    decode_ok = all(fraction >= DECODE_BOUND for fraction in decode)
    for fraction in decode:
        print(f"decode at depth 0: {100 * fraction:.1f} % of the read bandwidth, bound {100 * DECODE_BOUND:.0f} %: "
              f"{'kept' if decode_ok else 'BROKEN'}")
    return 0 if load_ok and memory_ok and decode_ok else 1


if __name__ == "__main__":
    sys.exit(main())
