// Turns by the ids of their calls: found as they were kept, bounded, oldest out first.
#include "lp_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/turns.h"

static struct lp_turns *turns;

static int set_up(void **state) {
    (void)state;
    return (turns = lp_turns_new(10000)) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    lp_turns_free(turns);
    return 0;
}

static void keep(int number, size_t n_ids) {
    char id[32], text[32];
    int32_t ids[4096];
    const char *call_ids[] = {id};
    snprintf(id, sizeof id, "call_%d", number);
    snprintf(text, sizeof text, "text %d", number);
    for (size_t i = 0; i < n_ids; i++) ids[i] = number;
    lp_turns_keep(turns, call_ids, 1,
                  &(struct lp_turn){.prompt = lp_str_from("prompt"),
                                    .text = lp_str_from(text),
                                    .reasoning = lp_str_from("because"),
                                    .end = lp_str_from("<end>"),
                                    .message = lp_str_from("{}"),
                                    .ids = ids,
                                    .n_prompt = n_ids - 1,
                                    .n_answer = 1});
}

static bool has(int number) {
    char id[32], text[32];
    snprintf(id, sizeof id, "call_%d", number);
    snprintf(text, sizeof text, "text %d", number);
    struct lp_turn *turn = lp_turns_find(turns, id);
    if (!turn) return false;
    assert_true(lp_str_is(turn->text, text) && lp_str_is(turn->prompt, "prompt"));
    assert_true(lp_str_is(turn->reasoning, "because") && lp_str_is(turn->end, "<end>") &&
                lp_str_is(turn->message, "{}"));
    for (size_t i = 0; i < turn->n_prompt + turn->n_answer; i++)
        assert_int_equal(turn->ids[i], number);
    lp_turn_put(turn);
    return true;
}

static void what_was_kept_is_found(void **state) {
    (void)state;
    assert_false(has(1));
    keep(1, 5);
    keep(2, 7);
    assert_true(has(1) && has(2));
    assert_false(has(3));
    assert_null(lp_turns_find(turns, ""));
}

static void all_calls_of_a_turn_find_it(void **state) {
    (void)state;
    const int32_t ids[] = {7, 8};
    const char *call_ids[] = {"a", "b", "c"};
    lp_turns_keep(turns, call_ids, 3, &(struct lp_turn){.ids = ids, .n_prompt = 1, .n_answer = 1});
    struct lp_turn *a = lp_turns_find(turns, "a"), *c = lp_turns_find(turns, "c");
    assert_non_null(a);
    assert_ptr_equal(a, c);
    assert_int_equal(a->ids[1], 8);
    lp_turn_put(a);
    lp_turn_put(c);
}

// Of ten turns of 500 ids (2,000 bytes and some), four fit into 10,000 bytes.
static void the_one_used_longest_ago_leaves_first(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) keep(i, 500);
    assert_true(has(0)); // now 1 is the oldest
    keep(4, 500);
    assert_true(has(0) && has(2) && has(3) && has(4));
    assert_false(has(1));
}

static void what_is_too_large_is_not_kept_and_drops_nothing(void **state) {
    (void)state;
    keep(1, 5);
    keep(2, 4000);
    assert_true(has(1));
    assert_false(has(2));
}

// A user's turn outlives its place in the table.
static void a_turn_in_use_stays_readable(void **state) {
    (void)state;
    keep(1, 500);
    struct lp_turn *turn = lp_turns_find(turns, "call_1");
    for (int i = 2; i < 20; i++) keep(i, 500);
    assert_false(has(1));
    assert_int_equal(turn->ids[499], 1);
    lp_turn_put(turn);
}

static void without_memory_nothing_is_kept(void **state) {
    (void)state;
    keep(1, 5);
    for (size_t i = 1; i <= 2; i++) {
        lp_alloc_fail_after(i);
        keep(2, 5);
        lp_alloc_fail_after(0);
        assert_true(has(1));
        assert_false(has(2));
    }
}

static void *work(void *user) {
    for (int i = 0; i < 2000; i++) {
        keep((int)(intptr_t)user * 10 + i % 10, 20);
        has((int)(intptr_t)(user)*10 + (i * 7) % 30);
    }
    return NULL;
}

static void threads_may_share_it(void **state) {
    (void)state;
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_kept_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_calls_of_a_turn_find_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_one_used_longest_ago_leaves_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_too_large_is_not_kept_and_drops_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_turn_in_use_stays_readable, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_memory_nothing_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_may_share_it, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
