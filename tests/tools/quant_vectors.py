#!/usr/bin/env python3
"""Expected CRC-32 of dequantised pseudo-random blocks, from the gguf Python package.

Prints the rows of random_vectors in tests/unit/test_dequant.c; with --check FILE compares them with
the rows found there. Exits 77 (skipped) when numpy or gguf is missing. The blocks are those of
random_blocks() in tests/unit/quant_vectors.h.
"""
import re
import sys
import zlib

try:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

N_BLOCKS = 64
# type: offsets of its f16 scale fields
FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "IQ4_NL": [0],
    "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": [],
}


def blocks_of(name):
    kind = GGMLQuantizationType[name]
    n_bytes = GGML_QUANT_SIZES[kind][1]
    data, state = bytearray(N_BLOCKS * n_bytes), kind.value
    for i in range(len(data)):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        data[i] = state >> 24
    for block in range(0, len(data), n_bytes):
        for at in FIELDS[name]:
            bits = data[block + at] | data[block + at + 1] << 8
            bits = bits & 0x83FF | (8 + (bits >> 10 & 15)) << 10
            data[block + at:block + at + 2] = bits.to_bytes(2, "little")
        if name == "IQ1_M":
            data[block + 55] = data[block + 55] & 15 | 0x20
    return kind, np.frombuffer(bytes(data), np.uint8).reshape(N_BLOCKS, n_bytes)


def main():
    rows = {}
    for name in FIELDS:
        kind, blocks = blocks_of(name)
        try:
            with np.errstate(over="ignore"): # MXFP4's largest exponent overflows, as it should
                values = quants.dequantize(blocks, kind).astype("<f4") + np.float32(0)
        except (NotImplementedError, KeyError):
            print(f"// {name}: unknown to this gguf package")
            continue
        rows[name] = zlib.crc32(values.tobytes())
    if len(sys.argv) < 3:
        for name, crc in rows.items():
            print(f"    {{LP_TYPE_{name}, 0x{crc:08x}}},")
        return
    text = open(sys.argv[2], encoding="utf-8").read()
    found = {n: int(c, 16) for n, c in re.findall(r"\{LP_TYPE_(\w+), 0x([0-9a-f]{8})\}", text)}
    wrong = [name for name, crc in rows.items() if found.get(name) != crc]
    if wrong:
        sys.exit(f"gguf gives another CRC than {sys.argv[2]} for: {', '.join(wrong)}")
    print(f"{len(rows)} types agree with the gguf package")


if __name__ == "__main__":
    main()
