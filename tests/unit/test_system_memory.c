// Held against what the system says by another way.
#include <sys/sysinfo.h>

#include "base/system_memory.h"
#include "lp_test.h"

static void some_of_the_memory_is_available(void **state) {
    (void)state;
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    uint64_t available = lp_memory_available();
    assert_true(available > 0 && available <= (uint64_t)info.totalram * info.mem_unit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_of_the_memory_is_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
