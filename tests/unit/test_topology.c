// Threads and where they go, on machines that hwloc describes from one line, and the limits of
// control groups from files as Linux writes them.
#include "lp_test.h"

#include <ftw.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/topology.h"

static struct lp_topology machine(const char *synthetic) {
    static struct lp_topology t; // large
    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    lp_topology_read(&t);
    unsetenv("HWLOC_SYNTHETIC");
    assert_false(t.is_real);
    t.is_real = true; // as if this were it
    t.quota = 0;
    return t;
}

static void cores_count_and_hyperthreads_do_not(void **state) {
    (void)state;
    static const struct {
        const char *synthetic;
        int cpus, cores, nodes;
    } rows[] = {{"core:1 pu:1", 1, 1, 1},
                {"core:4 pu:1", 4, 4, 1},
                {"core:4 pu:2", 8, 4, 1},
                {"numa:2 core:4 pu:2", 16, 8, 2},
                {"pack:2 numa:2 core:8 pu:2", 64, 32, 4},
                {"pack:2 core:32 pu:2", 128, 64, 1},
                {"numa:8 core:16 pu:1", 128, 128, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_topology t = machine(rows[i].synthetic);
        assert_int_equal(t.n_cpus, rows[i].cpus);
        assert_int_equal(t.n_cores, rows[i].cores);
        assert_int_equal(t.n_nodes, rows[i].nodes);
        assert_true(t.whole_cores);
        assert_int_equal(lp_topology_threads(&t), rows[i].cores);
    }
}

static void a_quota_lowers_the_threads(void **state) {
    (void)state;
    struct lp_topology t = machine("core:8 pu:2");
    static const struct {
        double quota;
        int threads;
    } rows[] = {{0, 8}, {16, 8}, {8, 8}, {7.9, 7}, {2.5, 2}, {1, 1}, {0.3, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        t.quota = rows[i].quota;
        assert_int_equal(lp_topology_threads(&t), rows[i].threads);
    }
}

static void threads_are_bound_only_where_it_helps(void **state) {
    (void)state;
    struct lp_topology one = machine("core:8 pu:2"), two = machine("numa:2 core:4 pu:2");
    assert_false(lp_topology_binds(&one, LP_PIN_AUTO, 8));
    assert_true(lp_topology_binds(&one, LP_PIN_CORES, 8));
    assert_true(lp_topology_binds(&two, LP_PIN_AUTO, 8));
    assert_true(lp_topology_binds(&two, LP_PIN_AUTO, 3));
    assert_false(lp_topology_binds(&two, LP_PIN_NONE, 8));
    assert_false(lp_topology_binds(&two, LP_PIN_AUTO, 9)); // more threads than cores
    assert_false(lp_topology_binds(&two, LP_PIN_CORES, 9));
    two.quota = 6;
    assert_false(lp_topology_binds(&two, LP_PIN_AUTO, 6));
    assert_true(lp_topology_binds(&two, LP_PIN_CORES, 6));
    two.quota = 0;
    two.whole_cores = false;
    assert_false(lp_topology_binds(&two, LP_PIN_AUTO, 4));
    two.is_real = false;
    assert_false(lp_topology_binds(&two, LP_PIN_CORES, 4));
}

// The nth thread's node, from the description: "numa:N core:C" puts CPU c of pu:P on node c / (C P).
static void threads_are_spread_over_the_nodes(void **state) {
    (void)state;
    struct lp_topology t = machine("numa:4 core:4 pu:2");
    int cpus[16];
    for (int n = 1; n <= 16; n++) {
        int on_node[4] = {0};
        lp_topology_spread(&t, n, cpus);
        for (int i = 0; i < n; i++) {
            assert_true(cpus[i] >= 0 && cpus[i] < 32);
            assert_int_equal(cpus[i] % 2, 0); // the first hyperthread of a core
            assert_true(i == 0 || cpus[i] > cpus[i - 1]);
            on_node[cpus[i] / 8]++;
        }
        for (int k = 0; k < 4; k++) {
            assert_true(on_node[k] >= n / 4);
            assert_true(on_node[k] <= (n + 3) / 4);
        }
    }
}

static void names_of_ways_to_bind(void **state) {
    (void)state;
    enum lp_pin pin;
    assert_true(lp_pin_parse("auto", &pin) && pin == LP_PIN_AUTO);
    assert_true(lp_pin_parse("none", &pin) && pin == LP_PIN_NONE);
    assert_true(lp_pin_parse("cores", &pin) && pin == LP_PIN_CORES);
    assert_false(lp_pin_parse("numa", &pin));
    assert_false(lp_pin_parse("", &pin));
}

static void this_process_keeps_to_its_mask(void **state) {
    (void)state;
    static struct lp_topology t;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) cpu = i; // the last
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    lp_topology_read(&t);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(t.n_cpus, 1);
    assert_int_equal(t.n_cores, 1);
    assert_int_equal(t.cores[0].cpu, cpu);
    assert_int_equal(lp_topology_threads(&t), 1);
}

// ---- control groups

static char root[64];

static void make_root(void) {
    strcpy(root, "/tmp/limpid-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static int drop_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void drop_root(void) {
    assert_int_equal(nftw(root, drop_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void write_at(const char *path, const char *text) {
    char full[1024];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void the_quota_of_version_2_is_the_smallest_above(void **state) {
    (void)state;
    make_root();
    assert_true(lp_topology_quota(root) == 0); // nothing there
    write_at("/proc/self/cgroup", "0::/pod/app\n");
    assert_true(lp_topology_quota(root) == 0);
    write_at("/sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
    assert_true(lp_topology_quota(root) == 0);
    write_at("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
    assert_true(lp_topology_quota(root) == 2.5);
    write_at("/sys/fs/cgroup/pod/app/cpu.max", "50000 50000\n");
    assert_true(lp_topology_quota(root) == 1);
    write_at("/sys/fs/cgroup/pod/app/cpu.max", "400000 100000\n");
    assert_true(lp_topology_quota(root) == 2.5);
    drop_root();
}

// A container sees its own group at the top and the path of the host's.
static void the_quota_of_a_container_lies_at_the_top(void **state) {
    (void)state;
    make_root();
    write_at("/proc/self/cgroup", "0::/../../kubepods/x\n");
    write_at("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_true(lp_topology_quota(root) == 3);
    drop_root();
}

static void the_quota_of_version_1(void **state) {
    (void)state;
    make_root();
    write_at("/proc/self/cgroup", "12:memory:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/\n");
    write_at("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    write_at("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    assert_true(lp_topology_quota(root) == 0);
    write_at("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
    write_at("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_true(lp_topology_quota(root) == 1.5);
    drop_root();
}

static void damaged_files_are_no_limit(void **state) {
    (void)state;
    static const char *const texts[] = {"",      "\n",       "x y\n", "100000\n", "-5 100000\n",
                                        "5 0\n", "nan nan\n"};
    make_root();
    write_at("/proc/self/cgroup", "nothing\n:\n3:\n0::/\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_at("/sys/fs/cgroup/cpu.max", texts[i]);
        assert_true(lp_topology_quota(root) == 0);
    }
    drop_root();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_count_and_hyperthreads_do_not),
        cmocka_unit_test(a_quota_lowers_the_threads),
        cmocka_unit_test(threads_are_bound_only_where_it_helps),
        cmocka_unit_test(threads_are_spread_over_the_nodes),
        cmocka_unit_test(names_of_ways_to_bind),
        cmocka_unit_test(this_process_keeps_to_its_mask),
        cmocka_unit_test(the_quota_of_version_2_is_the_smallest_above),
        cmocka_unit_test(the_quota_of_a_container_lies_at_the_top),
        cmocka_unit_test(the_quota_of_version_1),
        cmocka_unit_test(damaged_files_are_no_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
