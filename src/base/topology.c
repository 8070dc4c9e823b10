#include "base/topology.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- hwloc

// Only what is asked for is looked up: of a large machine the caches and devices take longest.
static bool load(hwloc_topology_t *topology) {
    if (hwloc_topology_init(topology) != 0) return false;
    hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    if (hwloc_topology_load(*topology) == 0) return true;
    hwloc_topology_destroy(*topology);
    return false;
}

// The CPUs that the process may run on, of those of the topology.
static hwloc_bitmap_t allowed_cpus(hwloc_topology_t topology) {
    hwloc_bitmap_t cpus = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology));
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (cpus && bound && hwloc_topology_is_thissystem(topology) &&
        hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_intersects(cpus, bound))
        hwloc_bitmap_and(cpus, cpus, bound);
    hwloc_bitmap_free(bound);
    return cpus;
}

static void add_core(struct lp_topology *t, hwloc_obj_t core, hwloc_const_bitmap_t cpus, int node) {
    if (!hwloc_bitmap_intersects(core->cpuset, cpus) || t->n_cores == LP_TOPOLOGY_MAX_CORES) return;
    int cpu = -1;
    for (int i = hwloc_bitmap_first(core->cpuset); i >= 0 && cpu < 0;
         i = hwloc_bitmap_next(core->cpuset, i))
        if (hwloc_bitmap_isset(cpus, (unsigned)i)) cpu = i;
    if (!hwloc_bitmap_isincluded(core->cpuset, cpus)) t->whole_cores = false;
    t->cores[t->n_cores++] = (struct lp_core){.cpu = cpu, .node = node};
}

// Cores node by node (hwloc gives every machine one). Memory nodes without CPUs of their own share
// another's.
static void add_cores(struct lp_topology *t, hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
    hwloc_bitmap_t taken = hwloc_bitmap_alloc();
    hwloc_obj_t node = NULL;
    while (taken && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node))) {
        int before = t->n_cores;
        if (hwloc_bitmap_intersects(node->cpuset, taken)) continue;
        for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_inside_cpuset_by_type(
                                           topology, node->cpuset, HWLOC_OBJ_CORE, core));)
            add_core(t, core, cpus, t->n_nodes);
        hwloc_bitmap_or(taken, taken, node->cpuset);
        t->n_nodes += t->n_cores > before;
    }
    hwloc_bitmap_free(taken);
}

// Without cores in the topology every CPU is one.
static void add_cpus_as_cores(struct lp_topology *t, hwloc_const_bitmap_t cpus) {
    for (int i = hwloc_bitmap_first(cpus); i >= 0 && t->n_cores < LP_TOPOLOGY_MAX_CORES;
         i = hwloc_bitmap_next(cpus, i))
        t->cores[t->n_cores++] = (struct lp_core){.cpu = i, .node = 0};
    t->n_nodes = 1;
}

static void read_cores(struct lp_topology *t) {
    hwloc_topology_t topology;
    if (!load(&topology)) return;
    hwloc_bitmap_t cpus = allowed_cpus(topology);
    if (cpus) {
        t->is_real = hwloc_topology_is_thissystem(topology);
        t->n_cpus = hwloc_bitmap_weight(cpus);
        add_cores(t, topology, cpus);
        if (t->n_cores == 0) add_cpus_as_cores(t, cpus);
    }
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(topology);
}

void lp_topology_read(struct lp_topology *out) {
    *out = (struct lp_topology){.whole_cores = true};
    read_cores(out);
    if (out->n_cores == 0) {
        out->n_cores = 1;
        out->cores[0] = (struct lp_core){0};
    }
    if (out->n_cpus < 1) out->n_cpus = out->n_cores;
    if (out->n_nodes < 1) out->n_nodes = 1;
    out->quota = lp_topology_quota("");
}

static struct lp_topology machine;

static void read_machine(void) {
    lp_topology_read(&machine);
}

const struct lp_topology *lp_topology_machine(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_machine);
    return &machine;
}

// ---- control groups

static bool read_line(char *line, size_t n, const char *root, const char *folder, const char *path,
                      const char *name) {
    char full[4096 + 512];
    int length = snprintf(full, sizeof full, "%s%s%s/%s", root, folder, path, name);
    if (length < 0 || (size_t)length >= sizeof full) return false;
    FILE *f = fopen(full, "r");
    bool found = f && fgets(line, (int)n, f);
    if (f) fclose(f);
    return found;
}

// "150000 100000": microseconds of CPU time in each period; "max 100000": no limit.
static double quota_v2(const char *root, const char *path) {
    char line[128];
    double share, period;
    if (!read_line(line, sizeof line, root, "/sys/fs/cgroup", path, "cpu.max")) return 0;
    return sscanf(line, "%lf %lf", &share, &period) == 2 && share > 0 && period > 0 ? share / period
                                                                                    : 0;
}

// The same numbers in two files; -1: no limit.
static double quota_v1(const char *root, const char *path) {
    static const char *const folders[] = {"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char share_text[64], period_text[64];
        if (!read_line(share_text, sizeof share_text, root, folders[i], path, "cpu.cfs_quota_us") ||
            !read_line(period_text, sizeof period_text, root, folders[i], path,
                       "cpu.cfs_period_us"))
            continue;
        double share = atof(share_text), period = atof(period_text);
        return share > 0 && period > 0 ? share / period : 0;
    }
    return 0;
}

// The smallest limit of a group and of all above it. In a container the groups above are not seen,
// and its own may lie at the top under a path that leads nowhere: the top is always looked at.
static double quota_up_from(const char *root, char *path,
                            double (*quota)(const char *, const char *)) {
    double least = 0;
    for (;;) {
        double q = quota(root, path);
        if (q > 0 && (least == 0 || q < least)) least = q;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

// A list of words between commas.
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == 0)) return true;
    return false;
}

double lp_topology_quota(const char *root) {
    char line[4096];
    double least = 0;
    int n = snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = n > 0 && (size_t)n < sizeof line ? fopen(line, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) { // "0::/user.slice" (v2), "4:cpu,cpuacct:/user" (v1)
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        controllers++;
        if (*controllers && !has_word(controllers, "cpu")) continue;
        double q = quota_up_from(root, path, *controllers ? quota_v1 : quota_v2);
        if (q > 0 && (least == 0 || q < least)) least = q;
    }
    if (f) fclose(f);
    return least;
}

// ---- decisions

int lp_topology_threads(const struct lp_topology *t) {
    int n = t->n_cores;
    if (t->quota > 0 && t->quota < n) n = (int)t->quota;
    return n < 1 ? 1 : n;
}

bool lp_pin_parse(const char *name, enum lp_pin *out) {
    static const char *const names[] = {"auto", "none", "cores"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum lp_pin)i;
            return true;
        }
    return false;
}

bool lp_topology_binds(const struct lp_topology *t, enum lp_pin pin, int n_threads) {
    if (pin == LP_PIN_NONE || n_threads > t->n_cores || !t->is_real) return false;
    return pin == LP_PIN_CORES || (t->n_nodes > 1 && t->whole_cores && t->quota == 0);
}

void lp_topology_spread(const struct lp_topology *t, int n_threads, int *cpus) {
    for (int i = 0; i < n_threads; i++) cpus[i] = t->cores[(int64_t)i * t->n_cores / n_threads].cpu;
}

// ---- the machine

bool lp_topology_bind_thread(int cpu) {
    cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
    size_t n_bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
    if (!set) return false;
    CPU_ZERO_S(n_bytes, set);
    CPU_SET_S((size_t)cpu, n_bytes, set);
    bool done = pthread_setaffinity_np(pthread_self(), n_bytes, set) == 0;
    CPU_FREE(set);
    return done;
}

void lp_topology_interleave(void *block, size_t n_bytes) {
    const struct lp_topology *t = lp_topology_machine();
    hwloc_topology_t topology;
    if (t->n_nodes < 2 || !t->is_real || !load(&topology)) return;
    hwloc_set_area_membind(topology, block, n_bytes, hwloc_topology_get_allowed_nodeset(topology),
                           HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
    hwloc_topology_destroy(topology);
}
