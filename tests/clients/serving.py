"""What the tests with real client packages share: a live server, and how checks are run.

    NAME_client.py LIMPID MODEL [--only WORD]

A client file looks for its package first (exit status 77 where it is missing), holds functions check_...(server) and ends
with run(checks).
"""
import importlib.util
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "api"))
from client import Server  # noqa: E402 (also for the client files)

OPTIONS = ("--deterministic", "--kv-tokens", "16384")


def missing(package):
    if importlib.util.find_spec(package):
        return False
    print(f"skipped: Python's {package} is not installed")
    return True


def run(checks):
    """Runs the checks, all on one server; the exit status."""
    limpid, model = sys.argv[1:3]
    only = sys.argv[4] if sys.argv[3:4] == ["--only"] else ""
    if not pathlib.Path(model).exists():
        print(f"skipped: there is no {model}")
        return 77
    n = failed = 0
    with Server(limpid, model, OPTIONS) as server:
        for check in checks:
            if only not in check.__name__:
                continue
            n, began = n + 1, time.monotonic()
            try:
                check(server)
                print(f"ok    {check.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:  # a check that fails shall not hide the next
                failed += 1
                print(f"FAIL  {check.__name__}\n{traceback.format_exc()}", flush=True)
        server.stop()
    print(f"{n - failed} of {n} passed")
    return 1 if failed or not n else 0
