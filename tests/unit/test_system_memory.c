// Held against what the system says by another way.
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/system_memory.h"
#include "lp_test.h"

static void some_of_the_memory_is_available(void **state) {
    (void)state;
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    uint64_t available = lp_memory_available();
    assert_true(available > 0 && available <= (uint64_t)info.totalram * info.mem_unit);
}

static void put(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_file(const char *folder, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

// A container that has read a large file: its cache counts as used, and gives way.
static void cached_files_of_a_container_are_available(void **state) {
    (void)state;
    char folder[] = "/tmp/limpid-memory-XXXXXX", meminfo[64];
    assert_non_null(mkdtemp(folder));
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", folder);
    assert_int_equal(lp_memory_available_by(meminfo, folder), 0); // neither is known
    put(folder, "meminfo", "MemTotal: 1000 kB\nMemAvailable:    800 kB\n");
    assert_int_equal(lp_memory_available_by(meminfo, folder), 800 << 10);
    put(folder, "memory.max", "max\n");
    put(folder, "memory.current", "500000\n");
    assert_int_equal(lp_memory_available_by(meminfo, folder), 800 << 10);
    put(folder, "memory.max", "600000\n");
    assert_int_equal(lp_memory_available_by(meminfo, folder), 100000);
    put(folder, "memory.stat",
        "anon 1000\nfile 490000\nshmem 90000\ninactive_file 300000\nactive_file 100000\n");
    assert_int_equal(lp_memory_available_by(meminfo, folder), 500000);
    put(folder, "memory.max", "90000\n");
    assert_int_equal(lp_memory_available_by(meminfo, folder), 1);
    put(folder, "memory.max", "9000000\n"); // more than the machine has
    assert_int_equal(lp_memory_available_by(meminfo, folder), 800 << 10);
    static const char *const names[] = {"meminfo", "memory.max", "memory.current", "memory.stat"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) remove_file(folder, names[i]);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_of_the_memory_is_available),
        cmocka_unit_test(cached_files_of_a_container_are_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
