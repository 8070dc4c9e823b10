#!/usr/bin/env python3
"""Keeps the layers: an include points down, outside libraries are seen where they belong, and every
header compiles alone.

    layers.py [CC]

The drawing (ARCHITECTURE.md): a folder may include itself and any folder on a lower line; folders on one
line do not see each other.

    cli
    serve            doctor    files
    engine
    hf
    model
    attention
    kv      dist     grammar
    backend          gguf      text
    quant
    trace
    base

serve sees the engine through limpid.h alone, so that the embedding API is always complete.
"""
import fnmatch
import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINES = ("base", "trace", "quant", "backend gguf text", "kv dist grammar", "attention", "model", "hf", "engine", "serve doctor files", "cli")
RANK = {folder: rank for rank, line in enumerate(LINES) for folder in line.split()}
ONLY = {"serve": {"serve", "text", "trace", "base"}, "text": {"text", "trace", "base"},
        "grammar": {"grammar", "text", "base"}}
SEES_PUBLIC_HEADER = {"engine", "serve", "doctor", "files", "cli"}
LIBRARIES = {  # header: the files that may include it
    "microhttpd.h": ["serve/http*.c"], "pcre2.h": ["text/pretok*.c"], "liburing.h": ["base/direct_ring.c"], "hwloc.h": ["base/topology.c"],
    "xxhash.h": ["kv/store_file.c", "engine/settings.c", "model/tensor_hash.c", "dist/order.c"],
    "mpi.h": ["dist/comm_mpi.c", "dist/comm_life.c"], "nccl.h": ["backend/cuda/cuda_group.c"], "cuda*.h": ["backend/cuda/*"], "cublas*.h": ["backend/cuda/*"]}
# Bodies that are included several times with other macros set, and headers of AVX-512: neither compiles alone.
BODIES = {"backend/cpu/cpu_lanes_body.h", "backend/cpu/cpu_latent_half.h",
          "backend/cpu/cpu_q8_grid.h", "backend/cpu/cpu_q8_wide.h", "backend/cpu/cpu_sieve_512.h", "backend/cpu/cpu_sieve_body.h", "backend/cpu/cpu_vec512.h", "quant/quantize_search_body.h"}
# Headers of one instruction set: its sources are compiled with these flags.
X86_HEADERS = "backend/cpu/cpu_q8_*.h", "backend/cpu/*avx*.h", "backend/cpu/*_x86.h", "backend/cpu/cpu_float_*.h"
X86_FLAGS = ["-mavx2", "-mfma", "-mf16c"]
# Headers that see CUDA's, which need not be installed.
CUDA_HEADERS, CUDA_INCLUDE = "backend/cuda/*.h", "/usr/local/cuda/include"
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
FLAGS = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-x", "c", "-D_GNU_SOURCE",
         "-D_FILE_OFFSET_BITS=64", "-Iinclude", "-Isrc"]


def sources():
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".cu", ".cuh", ".def")):
                yield os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "src"))


def fault_of(path, quote, target):
    """What is wrong with one include, or None. path and target are relative to src."""
    mine = path.split("/")[0]
    if quote == "<":
        for header, places in LIBRARIES.items():
            if fnmatch.fnmatch(target, header) and not any(fnmatch.fnmatch(path, p) for p in places):
                return f"<{target}> belongs into {' and '.join(places)} only"
        return None
    if target == "limpid.h":
        return None if mine in SEES_PUBLIC_HEADER else f"{mine} lies below the public header"
    theirs = target.split("/")[0]
    if "/" not in target:
        return f'"{target}" does not name its folder'
    if theirs not in RANK:
        return f"{theirs} is no folder of the drawing"
    if not os.path.exists(os.path.join(ROOT, "src", target)):
        return f"there is no src/{target}"
    if theirs != mine and (RANK[theirs] >= RANK[mine] or theirs not in ONLY.get(mine, RANK)):
        return f"{mine} may not see {theirs}"
    return None


def include_faults(path):
    if path.split("/")[0] not in RANK:
        yield f"src/{path}: its folder is not in the drawing"
        return
    with open(os.path.join(ROOT, "src", path), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            found = INCLUDE.match(line)
            fault = found and fault_of(path, *found.groups())
            if fault:
                yield f"src/{path}:{number}: {fault}"


def compiles_alone(compiler, path):
    flags = FLAGS
    if any(fnmatch.fnmatch(path, "src/" + p) for p in X86_HEADERS):
        if platform.machine() not in ("x86_64", "AMD64", "i686"):
            return None
        flags = FLAGS + X86_FLAGS
    if fnmatch.fnmatch(path, "src/" + CUDA_HEADERS):
        if not os.path.exists(CUDA_INCLUDE):
            return None
        flags = FLAGS + ["-isystem", CUDA_INCLUDE]
    done = subprocess.run(compiler + flags + [path], cwd=ROOT, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{path} does not compile alone:\n{done.stderr.strip()[:1500]}"


def main():
    compiler = sys.argv[1:2] or ["cc"]
    files = list(sources())
    faults = [fault for path in files for fault in include_faults(path)]
    headers = ["include/limpid.h"] + ["src/" + p for p in files if p.endswith(".h") and p not in BODIES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults += [f for f in pool.map(lambda h: compiles_alone(compiler, h), headers) if f]
    for fault in faults:
        print(fault)
    print(f"{len(files)} files, {len(headers)} headers, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
