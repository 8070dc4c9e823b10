#!/usr/bin/env python3
"""gen_codebooks.py must rewrite the committed files byte for byte and refuse damaged numbers."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/gen_codebooks.py"
GRIDS = (ROOT / "tools/iq_grids.txt").read_text()


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, args)], capture_output=True,
                          text=True, check=False)


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        done = run("--out", folder)
        expect(done.returncode == 0, f"the script runs: {done.stderr}")
        for name in ("codebooks.h", "codebooks.c"):
            expect((folder / name).read_bytes() == (ROOT / "src/quant" / name).read_bytes(),
                   f"src/quant/{name} is what tools/gen_codebooks.py writes")
        damaged = folder / "grids.txt"
        for what, text, says in (
                ("a changed code", GRIDS.replace("0041 0044", "0041 0046", 1), "grid iq2xxs has SHA-256"),
                ("a code too many", GRIDS.replace("0041 0044", "0041 0042 0044", 1), "257 entries"),
                ("no such code", GRIDS.replace("0041 0044", "0043 0044", 1), "is no packed code"),
                ("a missing grid", GRIDS.split("[iq1s")[0], "grid iq1s has 0 entries"),
                ("no number", GRIDS.replace("0041 0044", "0041 xyzw", 1), "no hexadecimal number")):
            expect(text != GRIDS, f"the test damages the file: {what}")
            damaged.write_text(text)
            refused = run("--grids", damaged, "--out", folder)
            expect(refused.returncode != 0 and says in refused.stderr,
                   f"{what} is refused with '{says}', got '{refused.stderr}'")


if __name__ == "__main__":
    main()
