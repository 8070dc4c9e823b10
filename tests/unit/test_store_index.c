#include "lp_test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "kv/store_file.h"
#include "kv/store_index.h"

// The same operations on the index and on a plain table; N is small and many ids begin at the same
// slot, so that runs collide, wrap and have holes.
enum { N = 300, N_STEPS = 60000 };
struct model {
    enum { ABSENT, QUEUED, OURS, OTHERS } state;
    uint64_t bytes;
    int64_t used;
};

static struct lp_page_key id_of(int i) {
    return (struct lp_page_key){(uint64_t)(i % 7) - 3, (uint64_t)i};
}

static void compare(const struct lp_store_index *index, const struct model *model) {
    uint64_t bytes = 0, ours_bytes = 0, n_ours = 0;
    int oldest = -1;
    for (int i = 0; i < N; i++) {
        const struct lp_store_entry *entry = lp_store_index_find(index, id_of(i));
        assert_int_equal(entry != NULL, model[i].state != ABSENT);
        if (!entry) continue;
        assert_int_equal(entry->state, model[i].state - QUEUED + LP_STORE_ENTRY_QUEUED);
        if (model[i].state == QUEUED) continue;
        assert_int_equal(entry->bytes, model[i].bytes);
        bytes += model[i].bytes;
        if (model[i].state == OURS) n_ours++, ours_bytes += model[i].bytes;
        if (oldest < 0 || model[i].used < model[oldest].used) oldest = i;
    }
    assert_int_equal(index->bytes, bytes);
    assert_int_equal(index->ours_bytes, ours_bytes);
    assert_int_equal(index->n_ours, n_ours);
    const struct lp_store_entry *entry = lp_store_index_oldest(index);
    assert_int_equal(entry != NULL, oldest >= 0);
    if (entry) assert_true(lp_page_key_equal(entry->id, id_of(oldest)));
}

static void agrees_with_a_plain_table(void **state) {
    (void)state;
    static struct model model[N];
    struct lp_store_index index = {0};
    struct lp_rng rng;
    lp_rng_init(&rng, 11);
    compare(&index, model);
    for (int step = 1; step <= N_STEPS; step++) {
        int i = (int)(lp_rng_u64(&rng) % N);
        uint64_t bytes = lp_rng_u64(&rng) % 1000;
        switch (lp_rng_u64(&rng) % 6) {
        case 0:
            assert_true(lp_store_index_queue(&index, id_of(i)));
            model[i].state = QUEUED;
            break;
        case 1:
        case 2:
            assert_true(lp_store_index_store(&index, id_of(i), bytes, step, LP_STORE_ENTRY_OURS));
            model[i] = (struct model){OURS, bytes, step};
            break;
        case 3:
            assert_true(lp_store_index_store(&index, id_of(i), bytes, step, LP_STORE_ENTRY_OTHERS));
            model[i] = (struct model){OTHERS, bytes, step};
            break;
        default:
            lp_store_index_remove(&index, id_of(i));
            model[i].state = ABSENT;
        }
        if (step % 100 == 0) compare(&index, model);
    }
    lp_store_index_release(&index);
}

static void forgets_what_a_look_has_not_seen(void **state) {
    (void)state;
    struct lp_store_index index = {0};
    lp_store_index_forget_unseen(&index);
    for (int i = 0; i < 100; i++)
        assert_true(lp_store_index_store(&index, id_of(i), 1, i, LP_STORE_ENTRY_OURS));
    assert_true(lp_store_index_queue(&index, id_of(100)));
    index.look++;
    for (int i = 0; i < 100; i += 3) lp_store_index_find(&index, id_of(i))->look = index.look;
    assert_true(lp_store_index_store(&index, id_of(1), 1, 200, LP_STORE_ENTRY_OURS));
    lp_store_index_forget_unseen(&index);
    for (int i = 0; i < 100; i++)
        assert_int_equal(lp_store_index_find(&index, id_of(i)) != NULL, i % 3 == 0 || i == 1);
    assert_non_null(lp_store_index_find(&index, id_of(100)));
    assert_int_equal(index.n_ours, 35);
    lp_store_index_release(&index);
}

static void out_of_memory_leaves_it_whole(void **state) {
    (void)state;
    for (size_t nth = 1; nth <= 2; nth++) {
        struct lp_store_index index = {0};
        int n = 0;
        while (n < 64 && lp_store_index_store(&index, id_of(n), 1, n, LP_STORE_ENTRY_OURS)) n++;
        assert_int_equal(n, 64);
        lp_alloc_fail_after(nth);
        while (lp_store_index_queue(&index, id_of(n))) n++;
        lp_alloc_fail_after(0);
        for (int i = 0; i < n; i++) assert_non_null(lp_store_index_find(&index, id_of(i)));
        assert_null(lp_store_index_find(&index, id_of(n)));
        assert_true(lp_store_index_queue(&index, id_of(n)));
        lp_store_index_release(&index);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_plain_table),
        cmocka_unit_test(forgets_what_a_look_has_not_seen),
        cmocka_unit_test(out_of_memory_leaves_it_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
