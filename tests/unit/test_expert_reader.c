// The reader of experts: the bytes of the file whatever the order, what is urgent before guesses,
// pieces that are taken out, files that fail.
#include "lp_test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/expert_reader.h"

enum { N_PIECES = 40, PIECE_BYTES = 3 * LP_DIRECT_ALIGN };

static uint8_t byte_at(uint64_t i) {
    return (uint8_t)(i * 2654435761u >> 9 ^ i);
}

struct fixture {
    char path[64];
    struct lp_direct_file file;
    struct lp_expert_reader *reader;
    uint8_t *memory; // [N_PIECES][PIECE_BYTES]
    struct lp_expert_piece pieces[N_PIECES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int order[N_PIECES], n_done, n_failed; // under lock
    struct lp_err last;
    bool hold; // `done` waits while it is set
};

static void on_done(void *user, struct lp_expert_piece *piece, const struct lp_err *err) {
    struct fixture *f = user;
    pthread_mutex_lock(&f->lock);
    while (f->hold) pthread_cond_wait(&f->changed, &f->lock);
    if (err) f->last = *err;
    f->n_failed += err != NULL;
    f->order[f->n_done++] = (int)(piece - f->pieces);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void set_hold(struct fixture *f, bool hold) {
    pthread_mutex_lock(&f->lock);
    f->hold = hold;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void wait_for(struct fixture *f, int n) {
    pthread_mutex_lock(&f->lock);
    while (f->n_done < n) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static bool open_fixture(struct fixture *f, enum lp_direct_way way) {
    struct lp_err err;
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    strcpy(f->path, "/var/tmp/lp_reader_XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    f->memory = lp_alloc(N_PIECES * PIECE_BYTES + LP_DIRECT_ALIGN, 1);
    for (int i = 0; i < N_PIECES * PIECE_BYTES; i++) f->memory[i] = byte_at((uint64_t)i);
    assert_int_equal(write(fd, f->memory, N_PIECES * PIECE_BYTES), N_PIECES * PIECE_BYTES);
    close(fd);
    memset(f->memory, 0, N_PIECES * PIECE_BYTES);
    assert_int_equal(lp_direct_open(&f->file, f->path, &err), LP_OK);
    uintptr_t at = ((uintptr_t)f->memory + LP_DIRECT_ALIGN - 1) & ~(uintptr_t)(LP_DIRECT_ALIGN - 1);
    for (int i = 0; i < N_PIECES; i++)
        f->pieces[i].read =
            (struct lp_direct_read){.file = &f->file,
                                    .offset = (uint64_t)i * PIECE_BYTES,
                                    .n_bytes = PIECE_BYTES,
                                    .buffer = (void *)(at + (size_t)i * PIECE_BYTES)};
    lp_status status = lp_expert_reader_new(&f->reader, way, on_done, f, &err);
    if (way == LP_DIRECT_RING && status == LP_STATUS_UNSUPPORTED) return false;
    assert_int_equal(status, LP_OK);
    return true;
}

static void close_fixture(struct fixture *f) {
    lp_expert_reader_free(f->reader);
    lp_direct_close(&f->file);
    unlink(f->path);
    lp_free(f->memory);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

static void assert_bytes(const struct fixture *f, int piece) {
    const uint8_t *bytes = f->pieces[piece].read.buffer;
    for (int i = 0; i < PIECE_BYTES; i++)
        assert_int_equal(bytes[i], byte_at((uint64_t)(piece * PIECE_BYTES + i)));
}

static void test_bytes(void **state) {
    (void)state;
    for (int way = LP_DIRECT_AUTO; way <= LP_DIRECT_POOL; way++) {
        struct fixture f;
        if (open_fixture(&f, (enum lp_direct_way)way)) {
            lp_expert_reader_add(f.reader, f.pieces, 10, false);
            lp_expert_reader_add(f.reader, f.pieces + 10, N_PIECES - 10, true);
            lp_expert_reader_raise(f.reader, f.pieces + 30, 10);
            wait_for(&f, N_PIECES);
            for (int i = 0; i < N_PIECES; i++) assert_bytes(&f, i);
            assert_int_equal(f.n_failed, 0);
        }
        close_fixture(&f);
    }
}

// While the first piece is held up, what was submitted later and is urgent goes before the guesses.
static void test_urgent_first(void **state) {
    struct fixture f;
    (void)state;
    open_fixture(&f, LP_DIRECT_POOL);
    set_hold(&f, true);
    lp_expert_reader_add(f.reader, f.pieces, 1, false);
    lp_expert_reader_add(f.reader, f.pieces + 1, 19, true);
    lp_expert_reader_add(f.reader, f.pieces + 20, 20, false);
    set_hold(&f, false);
    wait_for(&f, N_PIECES);
    int at_last_urgent = 0, n_ahead_before = 0;
    for (int i = 0; i < N_PIECES; i++)
        if (f.order[i] >= 20) at_last_urgent = i;
    for (int i = 0; i < at_last_urgent; i++) n_ahead_before += f.order[i] >= 1 && f.order[i] < 20;
    assert_true(n_ahead_before <= 8); // those that were under way
    close_fixture(&f);
}

static void test_drop(void **state) {
    struct fixture f;
    (void)state;
    open_fixture(&f, LP_DIRECT_AUTO);
    set_hold(&f, true);
    lp_expert_reader_add(f.reader, f.pieces, 20, false);
    lp_expert_reader_add(f.reader, f.pieces + 20, 20, true);
    int n = lp_expert_reader_drop(f.reader, f.pieces + 20, 20);
    assert_true(n >= 12 && n <= 20); // none of them, or few, had begun
    assert_int_equal(lp_expert_reader_drop(f.reader, f.pieces + 20, 20), 0);
    set_hold(&f, false);
    wait_for(&f, N_PIECES - n);
    for (int i = 0; i < 20; i++) assert_bytes(&f, i);
    lp_expert_reader_add(f.reader, f.pieces + 39, 1, false); // may be added again
    wait_for(&f, N_PIECES - n + 1);
    assert_bytes(&f, 39);
    close_fixture(&f);
}

static void test_file_that_was_cut(void **state) {
    (void)state;
    for (int way = LP_DIRECT_AUTO; way <= LP_DIRECT_POOL; way++) {
        struct fixture f;
        if (open_fixture(&f, (enum lp_direct_way)way)) {
            assert_int_equal(truncate(f.path, 5 * PIECE_BYTES + 100), 0);
            lp_expert_reader_add(f.reader, f.pieces, 8, false);
            wait_for(&f, 8);
            assert_int_equal(f.n_failed, 3);
            assert_int_equal(f.last.status, LP_STATUS_IO);
            assert_non_null(strstr(f.last.text, "became shorter"));
            for (int i = 0; i < 5; i++) assert_bytes(&f, i);
        }
        close_fixture(&f);
    }
}

// A file whose first page cannot be read: nothing is mapped at address 0 of this process.
static void test_error_of_the_system(void **state) {
    struct fixture f;
    struct lp_err err;
    struct lp_direct_file memory;
    (void)state;
    if (lp_direct_open(&memory, "/proc/self/mem", &err)) skip();
    open_fixture(&f, LP_DIRECT_AUTO);
    f.pieces[3].read.file = &memory;
    f.pieces[3].read.offset = 0;
    lp_expert_reader_add(f.reader, f.pieces, 5, false);
    wait_for(&f, 5);
    assert_int_equal(f.n_failed, 1);
    assert_int_equal(f.last.status, LP_STATUS_IO);
    assert_non_null(strstr(f.last.text, "Input/output error"));
    close_fixture(&f);
    lp_direct_close(&memory);
}

static void test_freed_with_work_left(void **state) {
    struct fixture f;
    (void)state;
    open_fixture(&f, LP_DIRECT_AUTO);
    lp_expert_reader_add(f.reader, f.pieces, N_PIECES, true);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_urgent_first),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_file_that_was_cut),
        cmocka_unit_test(test_error_of_the_system),
        cmocka_unit_test(test_freed_with_work_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
