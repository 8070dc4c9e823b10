#!/usr/bin/env python3
"""A model in several files, as large models are published: NAME-00001-of-00003.gguf and so on.

    split.py LIMPID [--sanitizer] [--only TEXT]

The set is written from a golden model (first part with the keys and no tensors, as published sets
have it). Opened by any of its parts it must give the bits of the single file; a missing part is named.
"""
import os
import tempfile

import gguf_edit
import make_bad_gguf
from harness import Checks, Dump, Golden, arguments, np, run

MODELS = ("dsa_shared", "ds3", "qwen3")


def same(limpid, g, path, backend):
    want = Dump(limpid, g.path, g.tokens[:40], "--backend", backend, want=("logits", "hidden"))
    got = Dump(limpid, path, g.tokens[:40], "--backend", backend, want=("logits", "hidden"))
    for what in ("logits", "hidden"):
        if not np.array_equal(got.arrays[what].view(np.uint32), want.arrays[what].view(np.uint32)):
            yield f"{what} differ from those of the single file"


def missing_is_named(limpid, path, absent):
    message = run([limpid, "dump", path, "--tokens", "1,2,3"], status=1).stderr
    if os.path.basename(absent) not in message:
        yield f"the message does not name {os.path.basename(absent)}: {message!r}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-split-") as folder:
        for g in map(Golden, MODELS):
            parts = make_bad_gguf.parts(gguf_edit.read(g.path), tensor_free_first=True)
            assert not parts[0].tensors and all(p.tensors for p in parts[1:])
            for kind in ("whole", "without"):
                os.makedirs(os.path.join(folder, g.name, kind))
            names = [f"{g.name}-{i + 1:05}-of-{len(parts):05}.gguf" for i in range(len(parts))]
            for i, (name, part) in enumerate(zip(names, parts)):
                for kind in ("whole", "without") if i != 1 else ("whole",):
                    with open(os.path.join(folder, g.name, kind, name), "wb") as f:
                        f.write(part.bytes())
            for name in names:
                for backend in ("ref", "cpu"):
                    checks.add(f"{g.name} {backend} by {name}", same, args.limpid, g, os.path.join(folder, g.name, "whole", name), backend)
            for name in (names[0], names[2]):
                checks.add(f"{g.name} without part 2, by {name}", missing_is_named, args.limpid,
                           os.path.join(folder, g.name, "without", name), names[1])
        checks.finish()


if __name__ == "__main__":
    main()
