// base/topology.h for builds without hwloc: a machine of which nothing is known but that it has two
// CPUs. Nothing is bound or placed.
#include "base/topology.h"

const struct lp_topology *lp_topology_machine(void) {
    static const struct lp_topology machine = {
        .n_cpus = 2, .n_cores = 2, .n_nodes = 1, .cores = {{0, 0}, {1, 0}}};
    return &machine;
}

int lp_topology_threads(const struct lp_topology *t) {
    return t->n_cores;
}

bool lp_topology_binds(const struct lp_topology *t, enum lp_pin pin, int n_threads) {
    (void)t, (void)pin, (void)n_threads;
    return false;
}

void lp_topology_spread(const struct lp_topology *t, int n_threads, int *cpus) {
    for (int i = 0; i < n_threads; i++) cpus[i] = t->cores[i % t->n_cores].cpu;
}

bool lp_topology_bind_thread(int cpu) {
    (void)cpu;
    return false;
}

void lp_topology_interleave(void *block, size_t n_bytes) {
    (void)block, (void)n_bytes;
}
