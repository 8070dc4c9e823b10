#include "lp_test.h"

#include <pthread.h>

#include "trace/trace_ring.h"

#define N 64
#define N_EVENTS 400000

static struct lp_trace_record record_of(uint64_t i) { // every word tells which event it is
    struct lp_trace_record r = {.time_ns = i, .thread = (uint32_t)i, .kind = (uint32_t)(i % 7)};
    for (uint64_t w = 0; w < LP_TRACE_WORDS; w++) r.payload[w] = i * 1000003 + w;
    return r;
}

static void check(const struct lp_trace_record *got, uint64_t i) {
    struct lp_trace_record want = record_of(i);
    assert_memory_equal(got, &want, sizeof want);
}

static void write_event(struct lp_trace_ring *ring, uint64_t i) {
    struct lp_trace_record r = record_of(i);
    lp_trace_ring_write(ring, &r, sizeof r.payload);
}

static void the_last_n_events_are_there(void **state) {
    (void)state;
    struct lp_trace_ring *ring = lp_trace_ring_new(N);
    struct lp_trace_record r;
    assert_non_null(ring);
    assert_false(lp_trace_ring_read(ring, 0, &r));
    for (uint64_t i = 0; i < 3 * N + 5; i++) {
        write_event(ring, i);
        assert_int_equal(ring->head, i + 1);
        assert_true(lp_trace_ring_read(ring, i, &r));
        check(&r, i);
    }
    for (uint64_t i = 0; i < 4 * N; i++) {
        bool there = lp_trace_ring_read(ring, i, &r);
        assert_int_equal(there, i >= 2 * N + 5 && i < 3 * N + 5);
        if (there) check(&r, i);
    }
    lp_trace_ring_free(ring);
}

static void a_slot_that_is_being_written_is_not_read(void **state) {
    (void)state;
    struct lp_trace_ring *ring = lp_trace_ring_new(N);
    struct lp_trace_record r;
    assert_non_null(ring);
    for (uint64_t i = 0; i < N; i++) write_event(ring, i);
    ring->slots[3].seq = 2 * (N + 3) + 1; // a writer that stopped there
    assert_false(lp_trace_ring_read(ring, 3, &r));
    assert_false(lp_trace_ring_read(ring, N + 3, &r));
    assert_true(lp_trace_ring_read(ring, 4, &r));
    lp_trace_ring_free(ring);
}

static void *write_all(void *user) {
    for (uint64_t i = 0; i < N_EVENTS; i++) write_event(user, i);
    return NULL;
}

// What is read while another thread writes is whole and is the event that was asked for.
static void a_reader_beside_the_writer_sees_whole_events(void **state) {
    (void)state;
    struct lp_trace_ring *ring = lp_trace_ring_new(N);
    pthread_t thread;
    uint64_t head = 0;
    assert_non_null(ring);
    assert_int_equal(pthread_create(&thread, NULL, write_all, ring), 0);
    while (head < N_EVENTS) {
        struct lp_trace_record r;
        head = ring->head;
        for (uint64_t i = head > N ? head - N : 0; i < head; i++)
            if (lp_trace_ring_read(ring, i, &r)) check(&r, i);
    }
    pthread_join(thread, NULL);
    lp_trace_ring_free(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_n_events_are_there),
        cmocka_unit_test(a_slot_that_is_being_written_is_not_read),
        cmocka_unit_test(a_reader_beside_the_writer_sees_whole_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
