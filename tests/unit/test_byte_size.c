#include "lp_test.h"

#include "cli/byte_size.h"

static void sizes_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"1", 1},
                 {"1000000", 1000000},
                 {"12B", 12},
                 {"40G", UINT64_C(40000000000)},
                 {"40GB", UINT64_C(40000000000)},
                 {"500M", 500000000},
                 {"1.5K", 1500},
                 {"4GiB", UINT64_C(4294967296)},
                 {"4Gi", UINT64_C(4294967296)},
                 {"512MiB", 536870912},
                 {"2KiB", 2048},
                 {"2T", UINT64_C(2000000000000)}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0;
        assert_true(lp_byte_size_parse(cases[i].text, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void what_is_none(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",    "0",    "0.5", "-1",  "G",  ".5G", "1.2.3",          "1 G", "4g", "4GiBx",
        "1e3", "0x10", "inf", "nan", "4i", "4BB", "9999999999999G", " 1",  "5E"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (lp_byte_size_parse(texts[i], &bytes)) fail_msg("'%s' was taken", texts[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_as_people_write_them),
        cmocka_unit_test(what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
