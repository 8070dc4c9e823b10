# Installs what a build, the tests and the demo need and the machine lacks, on Debian and Ubuntu. To be
# sourced by ./test.sh and ./demo.sh:
#
#     . tools/setup_debian.sh
#     setup_packages [tests]  apt-get installs what is missing, with sudo where not root
#     setup_cross             the same for the tests of the kernels for 64-bit ARM; fails where they cannot be had
#     setup_python            sets $python to an interpreter that has numpy
#     setup_clients           sets $clients_python to one that has tests/clients/requirements.txt, or to nothing

setup_has_lib() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }
setup_has_jsonschema() { python3 -c 'import jsonschema' >/dev/null 2>&1 || /usr/bin/python3 -c 'import jsonschema' >/dev/null 2>&1; }
setup_has_venv() { "$1" -c 'import venv, ensurepip' >/dev/null 2>&1; }
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
    setup_has_lib liburing || echo liburing-dev
    setup_has_lib hwloc || echo libhwloc-dev
    setup_has_lib cmocka || echo libcmocka-dev
    [ "${1:-}" != tests ] || python3 -m pip --version >/dev/null 2>&1 || command -v pip3 >/dev/null || echo python3-pip
    [ "${1:-}" != tests ] || setup_has_jsonschema || echo python3-jsonschema
    [ "${1:-}" != tests ] || setup_has_lib ompi-c || echo libopenmpi-dev
    [ "${1:-}" != tests ] || command -v mpirun >/dev/null || echo openmpi-bin
    setup_has_numpy python3 || setup_has_numpy /usr/bin/python3 || echo python3 python3-numpy
}

# Those without which a few tests are skipped.
setup_missing_for_clients() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || echo chromium
    setup_has_venv python3 || setup_has_venv /usr/bin/python3 || echo python3-venv
}

setup_apt() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        sudo DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

setup_missing_for_cross() {
    command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    command -v qemu-aarch64 >/dev/null || echo qemu-user
}

setup_packages() {
    missing=$(setup_missing "$@" | tr '\n' ' ')
    setup_install_missing
}

setup_cross() {
    missing=$(setup_missing_for_cross | tr '\n' ' ')
    setup_install_missing || {
        echo "The kernels for 64-bit ARM will not be tested: the packages for them could not be installed." >&2
        return 1
    }
}

# The packages in $missing.
setup_install_missing() {
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
    # shellcheck disable=SC2086 # a list of names
    setup_install $missing
}

setup_install() {
    echo "Installing: $*"
    setup_log=$(mktemp)
    if { setup_apt update && setup_apt install -y --no-install-recommends "$@"; } >"$setup_log" 2>&1; then
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

# What only the tests with real clients and with a browser need. They are skipped where it cannot be had, so nothing here
# fails.
setup_clients() {
    clients_python=""
    for name in $(setup_missing_for_clients); do
        { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; } && command -v apt-get >/dev/null && setup_install "$name" ||
            echo "Tests that need the Debian package $name will be skipped: it could not be installed." >&2
    done
    setup_venv=$PWD/build/venv
    if setup_has_requirements || setup_make_venv; then
        # shellcheck disable=SC2034 # for the script that sources this
        clients_python=$setup_venv/bin/python
    fi
}

setup_has_requirements() {
    cmp -s tests/clients/requirements.txt "$setup_venv/requirements.txt" && "$setup_venv/bin/python" -c '' 2>/dev/null
}

setup_make_venv() {
    setup_maker=python3
    setup_has_venv python3 || setup_maker=/usr/bin/python3
    setup_log=build/venv.log
    echo "Installing tests/clients/requirements.txt into build/venv"
    mkdir -p build
    rm -rf "$setup_venv"
    if {
        "$setup_maker" -m venv "$setup_venv" &&
            "$setup_venv/bin/python" -m pip install --disable-pip-version-check --retries 2 --timeout 20 \
                -r tests/clients/requirements.txt &&
            cp tests/clients/requirements.txt "$setup_venv/requirements.txt"
    } >"$setup_log" 2>&1; then
        return 0
    fi
    tail -n 2 "$setup_log" >&2
    echo "Tests with real clients and a browser will be skipped: their Python packages could not be installed ($setup_log)" >&2
    return 1
}
