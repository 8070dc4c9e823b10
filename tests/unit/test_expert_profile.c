// Profiles of experts: written and read back; damaged and foreign ones refused.
#include "temp_folder.h"

#include "base/file.h"
#include "base/alloc.h"
#include "model/expert_profile.h"

enum { N = 50 };
static char path[200];
static float counts[N], back[N];

static int make(void **state) {
    for (int i = 0; i < N; i++) counts[i] = (float)i * 0.5f;
    int made = make_folder(state);
    snprintf(path, sizeof path, "%s/experts", folder);
    return made;
}

static void test_round_trip(void **state) {
    bool missing = true;
    struct lp_err err;
    (void)state;
    assert_int_equal(lp_expert_profile_write(path, 77, N, counts, &err), LP_OK);
    assert_int_equal(lp_expert_profile_read(path, 77, N, back, &missing, &err), LP_OK);
    assert_false(missing);
    assert_memory_equal(back, counts, sizeof counts);
    drop("experts");
}

static void test_missing(void **state) {
    bool missing = false;
    struct lp_err err;
    (void)state;
    assert_int_equal(lp_expert_profile_read(path, 77, N, back, &missing, &err), LP_STATUS_IO);
    assert_true(missing);
}

static void test_foreign(void **state) {
    bool missing = true;
    struct lp_err err;
    (void)state;
    assert_int_equal(lp_expert_profile_write(path, 77, N, counts, &err), LP_OK);
    assert_int_equal(lp_expert_profile_read(path, 78, N, back, &missing, &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_expert_profile_read(path, 77, N - 1, back, &missing, &err),
                     LP_STATUS_LIMIT); // longer than it could be
    assert_int_equal(lp_expert_profile_read(path, 77, N - 1, back, &missing, &err),
                     LP_STATUS_LIMIT);
    assert_false(missing);
    drop("experts");
}

// Each byte in turn, and every length.
static void test_damaged(void **state) {
    bool missing;
    char *data;
    size_t n;
    struct lp_err err;
    (void)state;
    assert_int_equal(lp_expert_profile_write(path, 77, N, counts, &err), LP_OK);
    assert_int_equal(lp_file_read(path, 4096, &data, &n, &err), LP_OK);
    for (size_t i = 0; i < n; i++) {
        data[i] ^= 0x10;
        put_bytes("experts", data, n);
        data[i] ^= 0x10;
        assert_int_equal(lp_expert_profile_read(path, 77, N, back, &missing, &err),
                         LP_STATUS_FORMAT);
        assert_non_null(strstr(err.text, "is damaged, or no expert profile of this model"));
        put_bytes("experts", data, i);
        assert_int_equal(lp_expert_profile_read(path, 77, N, back, &missing, &err),
                         LP_STATUS_FORMAT);
    }
    lp_free(data);
    drop("experts");
}

static void test_cannot_write(void **state) {
    struct lp_err err;
    (void)state;
    assert_int_equal(lp_expert_profile_write("/no/such/folder/x", 1, N, counts, &err),
                     LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/no/such/folder/x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_foreign),      cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_cannot_write),
    };
    return cmocka_run_group_tests(tests, make, remove_folder);
}
