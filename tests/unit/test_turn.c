// Turns are taken in the order of arrival; those who have gone never have one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <time.h>

#include "serve/turn.h"

#define N 8

struct waiter {
    struct lp_turn *turn;
    atomic_bool gone;
    atomic_int looks; // how often it was asked: 1 or more, so it stands in the queue
    enum lp_turn_result result;
    int place; // when it had its turn
    atomic_int *next_place;
    pthread_t thread;
};

static bool gone(void *user) {
    struct waiter *w = user;
    atomic_fetch_add(&w->looks, 1);
    return atomic_load(&w->gone);
}

static void *wait_for_turn(void *user) {
    struct waiter *w = user;
    struct lp_client client = {gone, w};
    w->result = lp_turn_take(w->turn, &client);
    if (w->result != LP_TURN_TAKEN) return NULL;
    w->place = atomic_fetch_add(w->next_place, 1);
    lp_turn_give(w->turn);
    return NULL;
}

static bool nobody_gone(void *user) {
    (void)user;
    return false;
}

static void start(struct waiter *w, struct lp_turn *turn, atomic_int *next_place) {
    *w = (struct waiter){.turn = turn, .place = -1, .next_place = next_place};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_turn, w), 0);
    while (atomic_load(&w->looks) == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void first_come_first_served_without_those_who_left(void **state) {
    (void)state;
    struct lp_turn turn;
    struct waiter waiters[N];
    atomic_int next_place = 0;
    struct lp_client me = {nobody_gone, NULL};
    assert_int_equal(lp_turn_init(&turn, NULL), LP_OK);
    assert_int_equal(lp_turn_take(&turn, &me), LP_TURN_TAKEN);
    for (int i = 0; i < N; i++) start(&waiters[i], &turn, &next_place);
    int leavers[] = {0, 3, N - 1}; // the first, one between, the last
    for (size_t i = 0; i < 3; i++) {
        atomic_store(&waiters[leavers[i]].gone, true);
        pthread_join(waiters[leavers[i]].thread, NULL); // leaves although the turn is not given
        assert_int_equal(waiters[leavers[i]].result, LP_TURN_GONE);
    }
    lp_turn_give(&turn);
    for (int i = 0, place = 0; i < N; i++) {
        if (i == 0 || i == 3 || i == N - 1) continue;
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].result, LP_TURN_TAKEN);
        assert_int_equal(waiters[i].place, place++);
    }
    assert_null(turn.first);
    assert_null(turn.last);
    lp_turn_release(&turn);
}

static void closing_sends_all_away(void **state) {
    (void)state;
    struct lp_turn turn;
    struct waiter waiters[3];
    atomic_int next_place = 0;
    struct lp_client me = {nobody_gone, NULL};
    assert_int_equal(lp_turn_init(&turn, NULL), LP_OK);
    assert_int_equal(lp_turn_take(&turn, &me), LP_TURN_TAKEN);
    for (int i = 0; i < 3; i++) start(&waiters[i], &turn, &next_place);
    lp_turn_close(&turn);
    for (int i = 0; i < 3; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].result, LP_TURN_CLOSED);
    }
    assert_true(lp_turn_closed(&turn));
    lp_turn_give(&turn);
    assert_int_equal(lp_turn_take(&turn, &me), LP_TURN_CLOSED);
    lp_turn_release(&turn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served_without_those_who_left),
        cmocka_unit_test(closing_sends_all_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
