# Installs what a build, the tests and the demo need and the machine lacks, on Debian and Ubuntu. To be
# sourced by ./test.sh and ./demo.sh:
#
#     . tools/setup_debian.sh
#     setup_packages [tests]  apt-get installs what is missing, with sudo where not root
#     setup_python            sets $python to an interpreter that has numpy

setup_has_lib() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }
setup_has_numpy() { "$1" -c 'import numpy' >/dev/null 2>&1; }

# The names of the packages that are missing.
setup_missing() {
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v cmake >/dev/null || echo cmake
    command -v ninja >/dev/null || echo ninja-build
    command -v pkg-config >/dev/null || echo pkg-config
    command -v curl >/dev/null || echo curl ca-certificates
    setup_has_lib libmicrohttpd || echo libmicrohttpd-dev
    setup_has_lib jansson || echo libjansson-dev
    setup_has_lib libedit || echo libedit-dev
    setup_has_lib libpcre2-8 || echo libpcre2-dev
    setup_has_lib libxxhash || echo libxxhash-dev
    setup_has_lib cmocka || echo libcmocka-dev
    [ "${1:-}" != tests ] || python3 -m pip --version >/dev/null 2>&1 || command -v pip3 >/dev/null || echo python3-pip
    setup_has_numpy python3 || setup_has_numpy /usr/bin/python3 || echo python3 python3-numpy
}

setup_apt() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        sudo DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

setup_packages() {
    missing=$(setup_missing "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "limpid needs these Debian packages or their like, and there is no apt-get: $missing" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "limpid needs Debian packages that this machine lacks, and without sudo only root can install them:" >&2
        echo "    apt-get update && apt-get install --no-install-recommends $missing" >&2
        return 1
    fi
    echo "Installing: $missing"
    setup_log=$(mktemp)
    # shellcheck disable=SC2086 # a list of names
    if { setup_apt update && setup_apt install -y --no-install-recommends $missing; } >"$setup_log" 2>&1; then
        rm -f "$setup_log"
    else
        cat "$setup_log" >&2
        rm -f "$setup_log"
        return 1
    fi
}

# The distribution's python3-numpy is for its own interpreter, which need not be the first on PATH.
setup_python() {
    python=$(command -v python3)
    setup_has_numpy "$python" || python=/usr/bin/python3
}
