#!/usr/bin/env python3
"""The golden models in the repository are what make_golden.py and golden_bf16.py write, bit for bit.

Needs numpy only: the references themselves (logits and so on) need torch and transformers.
"""
import filecmp
import os
import subprocess
import sys
import tempfile

from harness import GOLDEN, ROOT, golden_names


def main():
    with tempfile.TemporaryDirectory(prefix="limpid-golden-") as folder:
        f32, bf16 = (os.path.join(folder, n) for n in ("f32", "bf16"))
        for path in (f32, bf16):
            os.mkdir(path)
        for name in golden_names():  # make_golden.py compares the SHA-256 in the JSON beside the file
            os.symlink(os.path.join(GOLDEN, name + ".json"), os.path.join(f32, name + ".json"))
        subprocess.run([sys.executable, "-B", os.path.join(GOLDEN, "make_golden.py"), "--set", "open", "--out", f32, "--gguf-only"],
                       check=True)
        subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools", "golden_bf16.py"), "--dir", f32, bf16], check=True)
        names = [n + ".gguf" for n in golden_names()]
        _, differ, missing = filecmp.cmpfiles(GOLDEN, bf16, names, shallow=False)
    for name in differ + missing:
        print(f"FAIL {name}: the committed file is not what the generator writes")
    print(f"{len(names)} files, {len(differ) + len(missing)} failed")
    sys.exit(1 if differ or missing else 0)


if __name__ == "__main__":
    main()
