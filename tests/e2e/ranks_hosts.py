#!/usr/bin/env python3
"""Ranks on two hosts, which are two network namespaces of this machine with names of their own.

    ranks_hosts.py LIMPID [--sanitizer] [--only TEXT]

Rank 0 is on limpid-a, beside mpirun, and rank 1 on limpid-b; a pair of virtual interfaces joins them. Checked:
- the server answers as one process does, with a model cut in two and in two stages
- the network is cut in the middle of a stream, while nothing is asked, and while a model is loaded; rank 1 dies:
  requests end with an error that names it, health turns red, the processes of both hosts end in time
- a rank that loads slowly, longer than any limit, is waited for
- after all that the server starts again, and finds the prefixes that it had on disk
- a rank without memory for its part is named
"""
import concurrent.futures
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from harness import MINI_MODEL, ROOT, Checks, arguments, skip
from ranks import SUMS, ask_sum

sys.path.insert(0, os.path.join(ROOT, "tests", "api"))
from client import Server  # noqa: E402

LIMIT_S = 5  # --rank-timeout, and the longest silence
TOLD_S = LIMIT_S + 3  # until a request or health tells of a failure
LEFT_S = LIMIT_S + 10 + 3  # until the ranks of both hosts have ended
ENDED_S = LEFT_S + 20 + 3  # until mpirun has
OPTIONS = ["--threads", "1", "--self-check", "off", "--rank-timeout", str(LIMIT_S)]
AGENT = """#!/bin/sh
# In place of ssh: HOST COMMAND ...
host=$1
shift
exec nsenter --net=/run/netns/%s$host unshare --uts sh -c "hostname $host; $*"
"""
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
HERE = "limpid-a", "limpid-b"
NUMBERS = itertools.count()


class Hosts:
    """Two namespaces, and what runs in them. As a context: all of it is gone at the end."""

    def __init__(self):
        self.prefix = f"lp{os.getpid()}-{next(NUMBERS)}-"
        self.folder = tempfile.mkdtemp(prefix="lp-")
        self.agent = os.path.join(self.folder, "agent")

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        with open(self.agent, "w") as f:
            f.write(AGENT % self.prefix)
        os.chmod(self.agent, 0o755)
        for host in HERE:
            self.ip("netns", "add", self.prefix + host)
        self.ip("link", "add", "lp0", "netns", self.prefix + HERE[0], "type", "veth",
                "peer", "name", "lp0", "netns", self.prefix + HERE[1])
        for i, host in enumerate(HERE):
            self.ip("-n", self.prefix + host, "addr", "add", f"10.99.7.{i + 1}/24", "dev", "lp0")
            for device in ("lo", "lp0"):
                self.ip("-n", self.prefix + host, "link", "set", device, "up")

    def __exit__(self, *_):
        for host in HERE:
            for process in self.processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        for host in HERE:
            subprocess.run(["ip", "netns", "del", self.prefix + host], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def ip(*command):
        done = subprocess.run(["ip", *command], capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"ip {' '.join(command)}: {done.stderr.strip()}")

    def link(self, state):
        self.ip("-n", self.prefix + HERE[1], "link", "set", "lp0", state)

    def processes(self, host):
        done = subprocess.run(["ip", "netns", "pids", self.prefix + host], capture_output=True, text=True)
        return [int(x) for x in done.stdout.split()]

    def rank(self, number):
        """The process that is this rank, if it runs."""
        for process in self.processes(HERE[number]):
            with contextlib.suppress(OSError), open(f"/proc/{process}/environ") as e, open(f"/proc/{process}/comm") as c:
                if f"OMPI_COMM_WORLD_RANK={number}" in e.read().split("\0") and c.read() == "limpid\n":
                    return process
        return None

    def mpirun(self, *more):
        return ["nsenter", f"--net=/run/netns/{self.prefix}{HERE[0]}", "unshare", "--uts", "sh", "-c",
                f'hostname {HERE[0]}; export TMPDIR={self.folder}; exec "$@"', "sh",
                "mpirun", "--allow-run-as-root", "--host", ",".join(HERE), "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent,
                "--mca", "oob_tcp_if_include", "10.99.7.0/24", "--mca", "btl_tcp_if_include", "10.99.7.0/24", *more]

    def each(self, first, second):
        """A command line of its own for each rank."""
        return self.mpirun("-n", "1", *first, ":", "-n", "1", *second)

    @contextlib.contextmanager
    def inside(self, host):
        """This thread's new sockets are that host's."""
        with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{self.prefix}{host}") as there:
            assert LIBC.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert LIBC.setns(own.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class HostServer(Server):
    def __init__(self, hosts, limpid, options):
        self.hosts = hosts
        super().__init__([*hosts.mpirun("-n", "2"), limpid], MINI_MODEL, [*OPTIONS, *options])

    def connect(self):
        connection = super().connect()
        with self.hosts.inside(HERE[0]):
            connection.connect()
        return connection


def waited(what, limit_s, began):
    """Seconds from `began` until it holds; None: it does not within the limit."""
    while True:
        now = time.monotonic() - began
        if what():
            return now
        if now > limit_s:
            return None
        time.sleep(0.05)


def ends(hosts, process, began, times):
    """The ranks, mpirun and what it started on the other host end, with a status that says so."""
    wanted = (("rank 1", lambda: not hosts.rank(1), LEFT_S), ("rank 0", lambda: not hosts.rank(0), LEFT_S),
              ("mpirun", lambda: process.poll() is not None, ENDED_S), ("the other host", lambda: not hosts.processes(HERE[1]), ENDED_S))
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        found = list(pool.map(lambda w: waited(w[1], w[2], began), wanted))
    for (name, _, limit_s), after in zip(wanted, found):
        if after is None:
            yield f"{name} still runs {limit_s} s later"
        else:
            times.append(f"{name} ended after {after:.1f} s")
    if process.poll() == 0:
        yield "mpirun ends with status 0"


def read_stream(server, begun):
    """The text of a long answer, and when it ended."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}))
    answer = connection.getresponse()
    got = answer.read1(1)
    begun.set()
    got += answer.read()
    return got.decode(), time.monotonic()


def told(server, harm, began_at, times):
    """Harm is done in the middle of a stream: it ends with the reason, health turns red."""
    begun = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read_stream, server, begun)
        assert begun.wait(60), "no stream begins"
        time.sleep(0.5)
        harm()
        began_at.append(time.monotonic())
        text, ended = stream.result(TOLD_S + 30)
    after = ended - began_at[0]
    times.append(f"a stream ended after {after:.1f} s")
    last = text.strip().split("\n\n")[-1]
    if '"error"' not in last or "rank 1 on limpid-b" not in last:
        yield f"the stream's last event is {last[-400:]!r}"
    if after > TOLD_S:
        yield f"the stream ended after {after:.1f} s"


def turns_red(server, began, times, status="failed"):
    def red():
        code, _, raw = server.ask("GET", "/health")
        return code == 503 and json.loads(raw) == {"status": status}
    after = waited(red, TOLD_S, began)
    if after is None:
        yield "/health stays green"
    else:
        times.append(f"health turned red after {after:.1f} s")


def wrong(server, alone, cached=False):
    text, n_cached = ask_sum(server, SUMS[0])
    if text != alone:
        yield f"the answer is {text!r}, of one process {alone!r}"
    if (n_cached > 0) != cached:
        yield f"{n_cached} tokens of the prompt were found on disk"


def cut_in_a_stream(limpid, alone, times):
    with Hosts() as hosts:
        options = ["--cache-dir", os.path.join(hosts.folder, "cache")]
        began = []
        with HostServer(hosts, limpid, options) as s:
            yield from wrong(s, alone)
            yield from told(s, lambda: hosts.link("down"), began, times)
            yield from turns_red(s, began[0], times)
            yield from ends(hosts, s.process, began[0], times)
        hosts.link("up")
        with HostServer(hosts, limpid, options) as s:
            yield from wrong(s, alone, cached=True)


def cut_while_idle(limpid, alone, times):
    with Hosts() as hosts, HostServer(hosts, limpid, ["--pipeline", "2"]) as s:
        yield from wrong(s, alone)
        time.sleep(LIMIT_S + 2)  # silence of requests is none of ranks
        if s.ask("GET", "/health")[0] != 200:
            yield "health is red while all is well"
        began = time.monotonic()
        hosts.link("down")
        yield from turns_red(s, began, times)
        yield from ends(hosts, s.process, began, times)
        if "rank 1 on limpid-b" not in s.stderr():
            yield f"the log names nobody: {s.stderr()[-400:]!r}"


def rank_dies(limpid, alone, times):
    """Not by the limit: mpirun tells rank 0 to end, which then looks who is silent."""
    with Hosts() as hosts, HostServer(hosts, limpid, ["--rank-timeout", "60"]) as s:
        yield from wrong(s, alone)
        began = []
        yield from told(s, lambda: os.kill(hosts.rank(1), signal.SIGKILL), began, times)
        yield from ends(hosts, s.process, began[0], times)


def cut_while_loading(limpid, times):
    """Rank 1 waits for a reader of its trace, in the thread that makes its engine."""
    with Hosts() as hosts:
        os.mkfifo(f"{hosts.folder}/trace.rank1")
        command = [limpid, "serve", MINI_MODEL, "--port", "0", *OPTIONS, "--trace", f"{hosts.folder}/trace"]
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(hosts.mpirun("-n", "2", *command), stdout=log, stderr=log)
            if waited(lambda: hosts.rank(1), 20, time.monotonic()) is None:
                yield "rank 1 does not start"
            time.sleep(LIMIT_S + 4)
            if process.poll() is not None or not hosts.rank(0) or not hosts.rank(1):
                yield "a rank that loads slowly is not waited for"
            began = time.monotonic()
            hosts.link("down")
            yield from ends(hosts, process, began, times)
            log.seek(0)
            text = log.read()
            if "serving" in text or "rank 1 on limpid-b" not in text:
                yield f"the log is {text[-600:]!r}"


def no_memory(limpid):
    with Hosts() as hosts:
        command = [limpid, "serve", MINI_MODEL, "--port", "0", *OPTIONS, "--kv-tokens", "400000"]
        done = subprocess.run(hosts.each(command, ["prlimit", f"--as={2 << 30}", *command]), capture_output=True, text=True, timeout=60)
        if done.returncode == 0 or "serving" in done.stdout:
            yield f"exit status {done.returncode}: {done.stdout!r}"
        if "rank 1 on limpid-b: " not in done.stderr or "memory" not in done.stderr.split("rank 1 on limpid-b: ")[1].split("\n")[0]:
            yield f"it says {done.stderr[-600:]!r}"


def why_not(limpid):
    """What is missing here, as a sentence."""
    for tool, package in (("mpirun", "openmpi-bin"), ("ip", "iproute2"), ("nsenter", "util-linux"), ("prlimit", "util-linux"), ("hostname", "hostname")):
        if not shutil.which(tool):
            return f"{tool} is missing (Debian: {package})"
    try:
        with Hosts() as hosts:
            with hosts.inside(HERE[0]):
                pass
            done = subprocess.run(hosts.mpirun("-n", "2", "hostname"), capture_output=True, text=True, timeout=60)
            if done.returncode or sorted(done.stdout.split()) != sorted(HERE):
                return f"mpirun cannot start processes in two namespaces here: {(done.stdout + done.stderr).strip()[-300:]}"
            done = subprocess.run(hosts.mpirun("-n", "1", limpid, "tokenize", MINI_MODEL, "x"), capture_output=True, text=True, timeout=60)
            if "has no MPI" in done.stderr:
                return "this build has no MPI"
    except (OSError, AssertionError) as e:
        return f"no network namespaces can be made here: {e}"
    return None


def main():
    args = arguments(__doc__)
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPI leaves memory behind
    missing = why_not(args.limpid)
    if missing:
        skip(missing)
    with Server(args.limpid, MINI_MODEL, ["--threads", "1", "--self-check", "off"]) as s:
        alone = ask_sum(s, SUMS[0])[0]
    checks, notes = Checks(args), {}
    for name, case in (("cut in a stream", cut_in_a_stream), ("cut while idle", cut_while_idle), ("a rank dies", rank_dies)):
        checks.add(name, case, args.limpid, alone, notes.setdefault(name, []))
    checks.add("cut while loading", cut_while_loading, args.limpid, notes.setdefault("cut while loading", []))
    if not args.sanitizer:  # which takes more room than any limit leaves
        checks.add("no memory", no_memory, args.limpid)
    try:
        checks.finish()
    finally:
        for name, times in notes.items():
            if times:
                print(f"{name}: {', '.join(times)}")


if __name__ == "__main__":
    main()
