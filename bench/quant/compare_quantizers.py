#!/usr/bin/env python3
"""Limpid's quantisers beside llama.cpp's on the same matrices: mean squared error and speed.

    compare_quantizers.py LIBGGML [--smollm GGUF] [--types Q4_K,...] [--sets normal,...] [--no-speed]

LIBGGML is a libggml-base.so of llama.cpp (cmake --build ... --target ggml-base); its ggml_quantize_chunk is called
and its dequantisers decode the blocks of both. limpid's sources under src/quant are compiled with $CC (cc) as the
release build has them. Prints Markdown: ratios of the mean squared errors, limpid / llama.cpp, without importances;
with importances the ratio of the weighted errors and, in brackets, of the plain ones; values a second of one thread,
in processor time, the best of several turns that alternate. --smollm: SmolLM2-135M as tests/e2e/smollm.py fetches it; its
weights are Q4_1, so a uniform number of one step's width is added to each, which makes them continuous again.
Needs numpy and a C compiler.
"""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tools")]
import gguf_edit  # noqa: E402
import ggufw  # noqa: E402

TYPES = {"Q8_0": (8, 32, 34), "Q6_K": (14, 256, 210), "Q5_K": (13, 256, 176), "Q5_0": (6, 32, 22), "Q4_K": (12, 256, 144),
         "IQ4_XS": (23, 256, 136), "IQ4_NL": (20, 32, 18), "Q4_0": (2, 32, 18)}  # id, values, bytes of a block
ROWS, COLUMNS = 192, 1536
FLAGS = "-std=gnu11 -O3 -fPIC -ffp-contract=off -fno-strict-aliasing -D_GNU_SOURCE".split()


class Limpid:
    SOURCES = "types half dequant dequant_iq dot_ref codebooks quantize quantize_rows quantize_search quantize_search_plain"

    def __init__(self, folder):
        cc, objects = os.environ.get("CC", "cc"), []
        names = self.SOURCES.split() + ["quantize_search_avx2"] * (os.uname().machine == "x86_64")
        for name in names:
            objects.append(os.path.join(folder, name + ".o"))
            subprocess.run([cc, *FLAGS, *["-mavx2"] * name.endswith("_avx2"), "-I", f"{ROOT}/src", "-I", f"{ROOT}/include",
                            "-c", f"{ROOT}/src/quant/{name}.c", "-o", objects[-1]], check=True)
        path = os.path.join(folder, "quant.so")
        subprocess.run([cc, "-shared", *objects, "-lm", "-o", path], check=True)
        self.rows = ctypes.CDLL(path).lp_quantize_rows
        self.rows.restype = ctypes.c_bool
        self.rows.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def __call__(self, id_, x, out, importance):
        assert self.rows(id_, x.ctypes.data, out.ctypes.data, *x.shape, importance.ctypes.data if importance is not None else None)


class Llama:
    class Traits(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("values", ctypes.c_int64), ("interleave", ctypes.c_int64),
                    ("bytes", ctypes.c_size_t), ("is_quantized", ctypes.c_bool),
                    ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]

    def __init__(self, path):
        lib = ctypes.CDLL(path)
        self.version = "ggml"
        for name in ("version", "commit"):
            if hasattr(lib, "ggml_" + name):
                f = getattr(lib, "ggml_" + name)
                f.restype = ctypes.c_char_p
                self.version += " " + f().decode()
        self.chunk, self.traits = lib.ggml_quantize_chunk, lib.ggml_get_type_traits
        self.chunk.restype = ctypes.c_size_t
        self.chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
        self.traits.restype = ctypes.POINTER(self.Traits)

    def __call__(self, id_, x, out, importance):
        self.chunk(id_, x.ctypes.data, out.ctypes.data, 0, *x.shape, importance.ctypes.data if importance is not None else None)

    def decode(self, id_, blocks, shape):
        traits = self.traits(id_).contents
        y = np.empty(shape, np.float32)
        traits.to_float(blocks.ctypes.data, y.ctypes.data, y.size)
        return y


def pieces(matrices, rng, values=256):
    """Random pieces of `values` columns, the same number of each matrix, as one matrix of ROWS x COLUMNS."""
    n = -(-ROWS * COLUMNS // values // len(matrices))
    parts = []
    for m in matrices:
        m = m.reshape(-1, values)
        parts.append(m[rng.choice(len(m), n, replace=len(m) < n)])
    return np.concatenate(parts).reshape(-1)[:ROWS * COLUMNS].reshape(ROWS, COLUMNS)


def mini(rng):
    keys, tensors = ggufw.read(os.path.join(ROOT, "models", "mini-glm-dsa.gguf"))
    return pieces([a for name, a in tensors.items() if keys["__types__"][name] == "Q8_0" and a.shape[-1] % 256 == 0], rng)


def smollm(path, rng):
    gguf_edit.BLOCKS[3] = (32, 20)
    found = []
    for t in gguf_edit.read(path).tensors:
        if t.type == 3 and t.ne[0] == 1536:
            raw = np.frombuffer(t.data, np.uint8).reshape(-1, 20)
            d, m = raw[:, :4].copy().view(np.float16).astype(np.float32).T[:, :, None]
            q = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
            found.append((q + rng.uniform(-0.5, 0.5, q.shape)) * d + m)
    return pieces(found, rng)


def data_sets(smollm_path):
    rng = np.random.default_rng(1)
    normal = rng.standard_normal((ROWS, COLUMNS))
    sets = {"normal": normal, "Student t4": rng.standard_t(4, normal.shape), "Student t2": rng.standard_t(2, normal.shape),
            "outliers": np.where(rng.random(normal.shape) < 0.003, 12 * normal, normal),
            "normal 2e-4": 2e-4 * normal, "normal 1e-5": 1e-5 * normal, "mini": mini(rng)}
    if smollm_path:
        sets["SmolLM2"] = smollm(smollm_path, rng)
    return {name: np.ascontiguousarray(x, np.float32) for name, x in sets.items()}


def importances(rng):
    """Mean squares of activations as they are: most within a factor of ten, one column in a hundred far above."""
    return (np.exp(rng.standard_normal(COLUMNS)) * np.where(rng.random(COLUMNS) < 0.01, 100, 1)).astype(np.float32)


def errors(quantizers, llama, type_, x, importance):
    """Of each quantiser: (mean squared error, the same weighted)."""
    id_, values, size = TYPES[type_]
    result = []
    for quantize in quantizers:
        blocks = np.empty(x.size // values * size, np.uint8)
        quantize(id_, x, blocks, importance)
        square = (x.astype(np.float64) - llama.decode(id_, blocks, x.shape)) ** 2
        result.append((square.mean(), (square * (importance if importance is not None else 1)).mean()))
    return result


def speeds(quantizers, type_, x, importance, turns=7):
    id_, values, size = TYPES[type_]
    blocks, best = np.empty(x.size // values * size, np.uint8), [np.inf] * len(quantizers)
    for _ in range(turns):
        for i, quantize in enumerate(quantizers):
            start = time.thread_time()
            quantize(id_, x, blocks, importance)
            best[i] = min(best[i], time.thread_time() - start)
    return [x.size / t / 1e6 for t in best]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("libggml")
    p.add_argument("--smollm")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--sets")
    p.add_argument("--no-speed", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare-quantizers-") as folder:
        llama, sets, types = Llama(os.path.abspath(a.libggml)), data_sets(a.smollm), a.types.split(",")
        quantizers = [Limpid(folder), llama]
        if a.sets:
            sets = {name: sets[name] for name in a.sets.split(",")}
        print(llama.version + "\n")
        weights, rows, worst = importances(np.random.default_rng(2)), {False: [], True: []}, 0.0
        for with_importance in (False, True):
            for type_ in types:
                row = [type_]
                for x in sets.values():
                    ours, theirs = errors(quantizers, llama, type_, x, weights if with_importance else None)
                    ratios = [o / t for o, t in zip(ours, theirs)]
                    worst = max(worst, ratios[1])
                    row.append(f"{ratios[1]:.3f} ({ratios[0]:.3f})" if with_importance else f"{ratios[0]:.3f}")
                rows[with_importance].append(row)
        table(["without importances", *sets], rows[False])
        table(["with importances", *sets], rows[True])
        if not a.no_speed:
            x, rows = sets.get("mini", next(iter(sets.values()))), []
            for type_ in types:
                plain, weighted = (speeds(quantizers, type_, x, w) for w in (None, weights))
                rows.append([type_, *(f"{v:.0f}" if v >= 10 else f"{v:.1f}" for v in (*plain, *weighted))])
            table(["million values/s", "limpid", "llama.cpp", "limpid, importances", "llama.cpp, importances"], rows)
        print(f"The largest ratio is {worst:.4f}.")
        return int(worst > 1.0001)


if __name__ == "__main__":
    sys.exit(main())
