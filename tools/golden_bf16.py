#!/usr/bin/env python3
"""Writes the golden models of tests/golden as they are kept in the repository: with matrices in BF16.

    golden_bf16.py IN.gguf OUT.gguf       one file
    golden_bf16.py --dir IN_DIR OUT_DIR   every *.gguf of a folder

make_golden.py writes F32 files whose values all fit in BF16, so nothing may be rounded here: a value
that does not fit is an error. As in converters' files, vectors (norms, biases), the router and the
indexer's head weights stay F32. Standard library only.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "e2e"))
import gguf_edit
from gguf_edit import T_BF16, T_F32, U32

FILE_TYPE_BF16 = 32  # general.file_type: mostly BF16


def stays_f32(tensor):
    return len(tensor.ne) == 1 or tensor.name.endswith((".ffn_gate_inp.weight", ".indexer.proj.weight"))


def to_bf16(tensor):
    """The upper halves of the float32 values; an exact copy or an error."""
    data = tensor.data
    if any(data[0::4]) or any(data[1::4]):
        sys.exit(f"{tensor.name} holds a value that is no BF16 value")
    out = bytearray(len(data) // 2)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    tensor.type, tensor.data = T_BF16, bytes(out)


def convert(source, target):
    model = gguf_edit.read(source)
    for tensor in model.tensors:
        if tensor.type == T_F32 and not stays_f32(tensor):
            to_bf16(tensor)
    if model.get("general.file_type"):
        model.set("general.file_type", U32, FILE_TYPE_BF16)
    with open(target, "wb") as f:
        f.write(model.bytes())


def main():
    if len(sys.argv) == 3:
        convert(sys.argv[1], sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "--dir":
        for name in sorted(os.listdir(sys.argv[2])):
            if name.endswith(".gguf"):
                convert(os.path.join(sys.argv[2], name), os.path.join(sys.argv[3], name))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
