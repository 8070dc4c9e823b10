// What of the machine this process may compute with: CPUs, the cores and NUMA nodes they belong to,
// its share of CPU time; and from that how many threads, on which CPUs. Read once, from hwloc, the
// affinity mask and the control groups (v1 and v2). The decisions are functions of the struct alone.
#ifndef LP_BASE_TOPOLOGY_H
#define LP_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define LP_TOPOLOGY_MAX_CORES 1024

struct lp_core {
    int cpu;  // the first CPU of the core that the process may use, as the system numbers them
    int node; // 0..n_nodes - 1
};

struct lp_topology {
    int n_cpus;       // that the process may run on, hyperthreads among them; at least 1
    int n_cores;      // physical cores with such a CPU; at least 1
    int n_nodes;      // NUMA nodes with such a core; at least 1
    bool whole_cores; // the process may use all hyperthreads of its cores
    bool is_real;     // false: HWLOC_SYNTHETIC or HWLOC_XMLFILE describe another machine
    double quota;     // CPUs' worth of time that the control groups leave it; 0: no limit
    struct lp_core cores[LP_TOPOLOGY_MAX_CORES]; // [n_cores], ordered by node, then by place
};

// That of this machine and process; read on the first call. Threads may call.
const struct lp_topology *lp_topology_machine(void);
// Reads it anew. What the system does not tell is taken as one CPU, core and node. For tests of a
// description (HWLOC_SYNTHETIC="numa:2 core:4 pu:2").
void lp_topology_read(struct lp_topology *out);

// CPUs' worth of time by the control groups of the process whose /proc and /sys lie under `root`
// ("" for the machine's): the smallest of all groups above it; 0: no limit, or none known.
double lp_topology_quota(const char *root);

// Threads to compute with: a core each, hyperthreads add nothing to arithmetic that keeps a core
// busy; no more than whole CPUs of the quota, since a group that has used up its share is stopped
// as a whole. At least 1.
int lp_topology_threads(const struct lp_topology *t);

enum lp_pin { LP_PIN_AUTO, LP_PIN_NONE, LP_PIN_CORES };
bool lp_pin_parse(const char *name, enum lp_pin *out); // "auto", "none", "cores"

// Whether threads are to be bound. CORES: yes, where there is a core for each. AUTO: also only if
// the machine has several NUMA nodes, on which a thread that wanders loses its memory, and the cores
// are the process's own: no quota, whole cores. On one node the system places threads as well, and
// moves them out of the way of other programs.
bool lp_topology_binds(const struct lp_topology *t, enum lp_pin pin, int n_threads);

// A CPU for each of n_threads <= n_cores threads: as many on each node as its share of the cores,
// neighbours on one node.
void lp_topology_spread(const struct lp_topology *t, int n_threads, int *cpus);

// Binds the calling thread; false if the system refuses.
bool lp_topology_bind_thread(int cpu);

// Asks for the pages of a block that are not there yet to be taken from all nodes in turn. Nothing
// happens on a machine of one node. `block` and n_bytes are multiples of the page.
void lp_topology_interleave(void *block, size_t n_bytes);

#endif
