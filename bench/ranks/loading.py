#!/usr/bin/env python3
"""How fast the ranks of one machine read a model together, beside the disk.

    loading.py LIMPID MODEL [--ranks 1 2 4] [--rounds 3] [--limpid-options "--shard-experts whole"] [--csv FILE]

In turns, each with the file's pages out of the page cache: large direct reads of the file (the disk's own rate), and
`limpid serve --prefetch` in 1, 2, 4 ranks, each of which reads its own part. Their bytes are those of /proc/PID/io
(read_bytes: from the disk), their time runs from the first of them to the last, over all ranks: the start of the
processes, and what follows loading, are not in it. Prints medians, each rate over the disk's and over one rank's, and
how even the ranks' bytes are. MODEL: larger than a second of reading; nothing else may run meanwhile.
"""
import argparse
import concurrent.futures
import glob
import mmap
import os
import re
import statistics
import subprocess
import sys
import threading
import time

OPTIONS = ["--prefetch", "--repack", "off", "--threads", "1", "--self-check", "off", "--ctx", "256", "--kv-tokens", "256", "--port", "0"]
PIECE = 4 << 20
N_READERS = 16


def parts(model):
    """All files of a split set, or the one file."""
    found = re.fullmatch(r"(.*-)\d{5}(-of-\d{5}\.gguf)", model)
    return sorted(glob.glob(glob.escape(found[1]) + "[0-9]" * 5 + glob.escape(found[2]))) if found else [model]


def empty_cache(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def disk_rate(paths):
    """Bytes a second of direct reads, many at once."""
    fds = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in paths]
    pieces = [(fd, at) for fd, path in zip(fds, paths) for at in range(0, os.path.getsize(path), PIECE)]
    own = threading.local()

    def read(piece):
        if not hasattr(own, "buffer"):
            own.buffer = mmap.mmap(-1, PIECE)  # begins at a page
        return os.preadv(piece[0], [own.buffer], piece[1])

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(N_READERS) as pool:
        n_bytes = sum(pool.map(read, pieces))
    seconds = time.monotonic() - start
    for fd in fds:
        os.close(fd)
    return n_bytes / seconds


def read_bytes(marker):
    """Of the processes that were started with this name: {pid: bytes from the disk}."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/comm") as name, open(f"{path}/cmdline") as c, open(f"{path}/io") as io:
                if name.read().strip() == "limpid" and marker in c.read().split("\0"):
                    found[path[6:]] = int(re.search(r"^read_bytes: (\d+)$", io.read(), re.M)[1])
        except OSError:
            continue  # it has ended
    return found


class Watch(threading.Thread):
    """Looks at the ranks' bytes until it is told to stop."""

    def __init__(self, marker):
        super().__init__(daemon=True)
        self.marker, self.seen, self.ready = marker, [], threading.Event()

    def run(self):
        while not self.ready.is_set():
            self.seen.append((time.monotonic(), read_bytes(self.marker)))
            time.sleep(0.01)

    def result(self):
        """(Bytes, seconds, each rank's bytes), without the program's own pages in front."""
        last = self.seen[-1][1]
        total = sum(last.values())
        begin = next(i for i, (_, found) in enumerate(self.seen) if sum(found.values()) > total / 50)
        end = next(i for i, (_, found) in enumerate(self.seen) if sum(found.values()) >= total * 0.99)
        n_bytes = sum(self.seen[end][1].values()) - sum(self.seen[begin][1].values())
        return n_bytes, self.seen[end][0] - self.seen[begin][0], sorted(b for b in last.values() if b > total / 100)


def loading(args, n, round_number):
    marker = f"loading-{os.getpid()}-{n}-{round_number}"
    ranks = ["--ranks", str(n)] if n > 1 else []
    command = [args.limpid, "serve", args.model, *OPTIONS, *args.limpid_options.split(), *ranks, "--alias", marker]
    watch = Watch(marker)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch.start()
    text = ""
    try:
        for line in server.stderr:
            text += line
            if "http://" in line:
                break
        else:
            sys.exit(f"{' '.join(command)}: {text}")
    finally:
        watch.ready.set()
        watch.join()
        server.terminate()
        server.wait(60)
    n_bytes, seconds, each = watch.result()
    if seconds <= 0.1:
        sys.exit(f"{n_bytes / 1e6:.0f} MB in {seconds:.2f} s: take a larger model")
    return n_bytes / seconds, each


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("limpid")
    p.add_argument("model")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limpid-options", default="")
    p.add_argument("--csv")
    args = p.parse_args()
    files = parts(args.model)
    rates, shares = {}, {}
    for i in range(args.rounds):
        empty_cache(files)
        rates.setdefault(0, []).append(disk_rate(files))
        for n in args.ranks:
            empty_cache(files)
            rate, shares[n] = loading(args, n, i)
            rates.setdefault(n, []).append(rate)
        print(f"round {i + 1}: disk {rates[0][-1] / 1e9:.2f} GB/s; " +
              ", ".join(f"{n} ranks {rates[n][-1] / 1e9:.2f}" for n in args.ranks), flush=True)
    disk, first = (statistics.median(rates[k]) for k in (0, args.ranks[0]))
    for n in args.ranks:
        rate = statistics.median(rates[n])
        print(f"{n} ranks: {rate / 1e9:.2f} GB/s, {rate / disk:.2f} of the disk's {disk / 1e9:.2f}, {rate / first:.2f} of {args.ranks[0]}; "
              f"of each rank {', '.join(f'{b / 1e6:.0f}' for b in shares[n])} MB")
    if args.csv:
        with open(args.csv, "w") as out:
            out.write("date,model,ranks,bytes_per_s,disk_bytes_per_s\n")
            for n in args.ranks:
                out.write(f"{time.strftime('%Y-%m-%d')},{os.path.basename(args.model)},{n},{statistics.median(rates[n]):.0f},{disk:.0f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
