#!/usr/bin/env python3
"""No two folders define one symbol: of two functions of one name in static archives, the linker takes either.

    duplicate_symbols.py ARCHIVE...
"""
import collections
import subprocess
import sys


def main():
    places = collections.defaultdict(set)
    for archive in sys.argv[1:]:
        listing = subprocess.run(["nm", "-A", "--defined-only", "--extern-only", archive], check=True, text=True,
                                 capture_output=True).stdout
        for line in listing.splitlines():
            where, _, rest = line.rpartition(":")
            fields = rest.split()
            if len(fields) == 3 and fields[1] in "TDBR":
                places[fields[2]].add(where)
    faults = {name: where for name, where in places.items() if len(where) > 1 and not name.startswith(("__asan", "__ubsan"))}
    for name, where in sorted(faults.items()):
        print(f"{name} is defined by {', '.join(sorted(where))}")
    print(f"{len(places)} symbols, {len(faults)} of them twice")
    return 1 if faults or not places else 0


if __name__ == "__main__":
    sys.exit(main())
