#!/usr/bin/env python3
"""What limpid split and limpid merge reach of the disk's copy speed.

    copy.py LIMPID FILE.gguf FOLDER [--rounds 5] [--max-size 4G]

In turns, each with the page cache emptied of what it reads (root: of everything): `dd bs=8M conv=fsync` of the
file, limpid split of the same file, dd of the parts one after the other, limpid merge of the parts. FOLDER needs
room for twice the file, on the disk to be measured. Prints medians, their ratios, and the most memory that limpid
held (VmHWM of the process). Nothing else may run meanwhile; the merged file is compared with the source.
"""
import argparse
import filecmp
import os
import statistics
import subprocess
import sys
import time


def empty_cache(paths):
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
    except OSError:
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def peak_of(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:")), 0)
    except (OSError, IndexError):
        return 0


def timed(commands, reads):
    """Seconds, and the most memory that one of them held."""
    empty_cache(reads)
    start, peak = time.monotonic(), 0
    for command in commands:
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while p.poll() is None:
            peak = max(peak, peak_of(p.pid))
            time.sleep(0.02)
        if p.returncode:
            sys.exit(f"{' '.join(command)}: {p.stderr.read().decode()}")
    return time.monotonic() - start, peak


def remove(folder, prefix):
    for name in os.listdir(folder):
        if name.startswith(prefix):
            os.remove(os.path.join(folder, name))


def main():
    a = argparse.ArgumentParser(description=__doc__.strip().split("\n")[0])
    a.add_argument("limpid")
    a.add_argument("file")
    a.add_argument("folder")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--max-size", default="4G")
    args = a.parse_args()
    folder, prefix = args.folder, "limpid-bench-"
    part, copy, merged = (os.path.join(folder, prefix + name) for name in ("part", "dd-", "merged.gguf"))

    def dd(sources):
        return [["dd", f"if={s}", f"of={copy}{i}", "bs=8M", "conv=fsync", "status=none"] for i, s in enumerate(sources)]

    seconds, peaks = {}, {}

    def note(what, result):
        seconds.setdefault(what, []).append(result[0])
        peaks[what] = max(peaks.get(what, 0), result[1])
        print(f"{what:10} {result[0]:8.2f} s  {os.path.getsize(args.file) * 1e-9 / result[0]:6.3f} GB/s", flush=True)

    for _ in range(args.rounds):
        remove(folder, prefix)
        note("dd file", timed(dd([args.file]), [args.file]))
        remove(folder, prefix)
        note("split", timed([[args.limpid, "split", args.file, part, "--max-size", args.max_size]], [args.file]))
        parts = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.startswith(prefix + "part-"))
        note("dd parts", timed(dd(parts), parts))
        remove(folder, prefix + "dd-")
        note("merge", timed([[args.limpid, "merge", parts[0], merged]], parts))
        if not filecmp.cmp(args.file, merged, shallow=False):
            sys.exit("the merged file is not the source")
        remove(folder, prefix)
    median = {what: statistics.median(s) for what, s in seconds.items()}
    print(f"\n{os.path.getsize(args.file) * 1e-9:.2f} GB, {len(parts)} parts, medians of {args.rounds}")
    for what, reference in (("split", "dd file"), ("merge", "dd parts")):
        rates = [os.path.getsize(args.file) * 1e-9 / median[w] for w in (reference, what)]
        print(f"{reference}: {rates[0]:.3f} GB/s; {what}: {rates[1]:.3f} GB/s = {rates[1] / rates[0]:.0%}, "
              f"at most {peaks[what] * 1e-6:.1f} MB of memory")


if __name__ == "__main__":
    main()
