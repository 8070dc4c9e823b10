#!/usr/bin/env python3
"""Writes tests/unit/mtp_vectors.h: what torch drafts with the MTP layer of models/mini-glm-dsa.gguf,
cut out of tests/mini/logits_ref.npz (models/README.md) for the tests in C.

    make_mtp_cases.py [--check]     (--check: compare with the committed file; 77 = no numpy)
"""
import os
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: Python has no numpy")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
REFERENCE = os.path.join(ROOT, "tests", "mini", "logits_ref.npz")
HEADER = os.path.join(ROOT, "tests", "unit", "mtp_vectors.h")

HEAD = """\
// Written by tools/make_mtp_cases.py from tests/mini/logits_ref.npz: for each prompt its tokens, and the
// two most probable drafts from position t and token t + 1 for token t + 2, by torch in float32.
#ifndef MTP_VECTORS_H
#define MTP_VECTORS_H

#include <stdint.h>

struct mtp_case {
    int32_t n_tokens;
    const int16_t *tokens;  // [n_tokens]
    const int16_t *ids;     // [n_tokens - 1, 2], most probable first
    const float *logprobs;  // [n_tokens - 1, 2]
};

// clang-format off
"""


def array(kind, name, texts):
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > 110:
            lines.append(line)
            line = "   "
        line += " " + text + ","
    return f"static const {kind} {name}[] = {{\n" + "\n".join(lines + [line]) + "\n};\n"


def header():
    z = np.load(REFERENCE)
    out, rows, n = [HEAD], [], 0
    while f"p{n}_tokens" in z.files:
        tokens, ids, logprobs = z[f"p{n}_tokens"], z[f"p{n}_mtp_ids"][:, :2], z[f"p{n}_mtp_logprobs"][:, :2]
        out.append(array("int16_t", f"mtp_tokens_{n}", [str(int(x)) for x in tokens]))
        out.append(array("int16_t", f"mtp_ids_{n}", [str(int(x)) for x in ids.ravel()]))
        out.append(array("float", f"mtp_logprobs_{n}", [f"{float(x):.6f}f" for x in logprobs.ravel()]))
        rows.append(f"    {{{len(tokens)}, mtp_tokens_{n}, mtp_ids_{n}, mtp_logprobs_{n}}},\n")
        n += 1
    return "".join(out) + "\nstatic const struct mtp_case mtp_cases[] = {\n" + "".join(rows) + "};\n\n#endif\n"


def main():
    text = header()
    if sys.argv[1:] == ["--check"]:
        with open(HEADER) as f:
            if f.read() != text:
                print(f"{HEADER} is not what this script writes")
                sys.exit(1)
        return
    with open(HEADER, "w") as f:
        f.write(text)


main()
