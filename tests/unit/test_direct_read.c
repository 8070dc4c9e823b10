// Direct reads by both engines against the bytes that were written: odd sizes and places, many at
// once, ends of files, failures.
#include "lp_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/direct_read.h"

#define FILE_BYTES (3 * 1024 * 1024 + 1234)
#define GUARD 0xa5

static const enum lp_direct_way ways[] = {LP_DIRECT_RING, LP_DIRECT_POOL};

static uint8_t byte_at(uint64_t i) {
    return (uint8_t)(i * 2654435761u >> 11 ^ i);
}

static void write_file(const char *path, size_t n_bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n_bytes; i++) fputc(byte_at(i), f);
    assert_int_equal(fclose(f), 0);
}

// /var/tmp is on a disk; /tmp and /dev/shm need not be.
static void make_path(char path[64]) {
    strcpy(path, "/var/tmp/lp_direct_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

// NULL where the system refuses io_uring.
static struct lp_direct_queue *queue_of(enum lp_direct_way way, int depth) {
    struct lp_direct_queue *queue;
    struct lp_err err;
    lp_status status = lp_direct_queue_new(&queue, depth, way, &err);
    if (way == LP_DIRECT_RING && status == LP_STATUS_UNSUPPORTED) {
        print_message("[ SKIPPED ] %s\n", err.text);
        return NULL;
    }
    assert_int_equal(status, LP_OK);
    assert_string_equal(lp_direct_queue_way(queue), way == LP_DIRECT_RING ? "io_uring" : "pread");
    return queue;
}

struct span {
    struct lp_direct_read read;
    uint64_t begin;
    size_t n_bytes, at;
};

static void make_span(struct span *s, const struct lp_direct_file *file, uint64_t begin,
                      size_t n_bytes) {
    *s = (struct span){.begin = begin, .n_bytes = n_bytes};
    s->read.file = file;
    s->read.owner = s;
    s->at = lp_direct_place(&s->read, begin, n_bytes);
    size_t room = lp_direct_room(s->read.n_bytes);
    s->read.buffer = aligned_alloc(LP_DIRECT_ALIGN, room + LP_DIRECT_ALIGN);
    memset(s->read.buffer, GUARD, room + LP_DIRECT_ALIGN);
}

static void check_span(struct span *s) {
    const uint8_t *data = s->read.buffer;
    for (size_t i = 0; i < s->n_bytes; i++)
        if (data[s->at + i] != byte_at(s->begin + i)) fail_msg("byte %zu differs", i);
    for (size_t i = 0; i < LP_DIRECT_ALIGN; i++)
        assert_int_equal(data[lp_direct_room(s->read.n_bytes) + i], GUARD);
    free(s->read.buffer);
}

static void reads_many(struct lp_direct_queue *queue, const struct lp_direct_file *file) {
    enum { N = 60 };
    struct span spans[N];
    struct lp_direct_read *done;
    for (int i = 0; i < N; i++) {
        uint64_t begin = (uint64_t)i * 7919 * 11 % (FILE_BYTES - 1);
        size_t left = FILE_BYTES - begin, n = 1 + (size_t)i * i * 97;
        make_span(&spans[i], file, begin, n < left ? n : left);
        lp_direct_submit(queue, &spans[i].read);
    }
    assert_int_equal(lp_direct_n_pending(queue), N);
    bool seen[N] = {false};
    for (int i = 0; i < N; i++) {
        do assert_int_equal((i % 2 ? lp_direct_poll : lp_direct_wait)(queue, &done, NULL), LP_OK);
        while (!done);
        struct span *s = done->owner;
        assert_false(seen[s - spans]);
        seen[s - spans] = true;
        check_span(s);
    }
    assert_int_equal(lp_direct_n_pending(queue), 0);
    assert_int_equal(lp_direct_wait(queue, &done, NULL), LP_OK);
    assert_null(done);
}

static void any_place_and_size_is_read_whole(void **state) {
    (void)state;
    char path[64];
    struct lp_direct_file file;
    make_path(path);
    write_file(path, FILE_BYTES);
    for (int cached = 0; cached < 2; cached++) {
        assert_int_equal((cached ? lp_direct_open_cached : lp_direct_open)(&file, path, NULL),
                         LP_OK);
        assert_int_equal(file.n_bytes, FILE_BYTES);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int depth = 1; depth <= 64; depth *= 8) {
                struct lp_direct_queue *queue = queue_of(ways[w], depth);
                if (queue) reads_many(queue, &file);
                lp_direct_queue_free(queue);
            }
        lp_direct_close(&file);
    }
    unlink(path);
}

// Sizes around a page, read past their end by one byte and by much.
static void the_end_of_a_file_is_named(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 4095, 4096, 4097, 65536, 65537};
    char path[64], end_text[64];
    struct lp_direct_file file;
    struct lp_direct_read *done;
    struct lp_err err;
    make_path(path);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file(path, sizes[i]);
        assert_int_equal(lp_direct_open(&file, path, NULL), LP_OK);
        snprintf(end_text, sizeof end_text, "%s ends at byte %zu,", path, sizes[i]);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (size_t more = 1; more < 100000; more *= 99) {
                struct lp_direct_queue *queue = queue_of(ways[w], 4);
                if (!queue) continue;
                struct span s;
                make_span(&s, &file, 0, sizes[i] + more);
                lp_direct_submit(queue, &s.read);
                assert_int_equal(lp_direct_wait(queue, &done, &err), LP_STATUS_IO);
                assert_ptr_equal(done, &s.read);
                assert_int_equal(done->error, LP_DIRECT_ENDED);
                assert_int_equal(done->done, sizes[i]);
                assert_non_null(strstr(err.text, end_text));
                free(s.read.buffer);
                lp_direct_queue_free(queue);
            }
        lp_direct_close(&file);
    }
    unlink(path);
}

// A file cut short while it is open, as by a copy that was begun again.
static void a_file_that_becomes_shorter_is_an_error(void **state) {
    (void)state;
    char path[64];
    struct lp_direct_file file;
    struct lp_direct_read *done;
    struct lp_err err;
    make_path(path);
    write_file(path, FILE_BYTES);
    assert_int_equal(lp_direct_open(&file, path, NULL), LP_OK);
    assert_int_equal(truncate(path, 1000000), 0);
    struct lp_direct_queue *queue = NULL;
    assert_int_equal(lp_direct_queue_new(&queue, 4, LP_DIRECT_AUTO, &err), LP_OK);
    struct span s;
    make_span(&s, &file, 500001, 1000000);
    lp_direct_submit(queue, &s.read);
    assert_int_equal(lp_direct_wait(queue, &done, &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "ends at byte 1000000,"));
    free(s.read.buffer);
    lp_direct_queue_free(queue);
    lp_direct_close(&file);
    unlink(path);
}

// Page 0 of a process is never mapped: reading its memory there is an input/output error, from the
// system itself.
static void a_failure_of_the_system_is_told(void **state) {
    (void)state;
    struct lp_direct_file file;
    struct lp_direct_read *done;
    struct lp_err err;
    assert_int_equal(lp_direct_open(&file, "/proc/self/mem", NULL), LP_OK);
    assert_false(file.direct);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct lp_direct_queue *queue = queue_of(ways[w], 2);
        if (!queue) continue;
        struct span s[3];
        for (int i = 0; i < 3; i++) {
            make_span(&s[i], &file, 0, 10);
            lp_direct_submit(queue, &s[i].read);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(lp_direct_wait(queue, &done, &err), LP_STATUS_IO);
            assert_int_equal(done->error, EIO);
            assert_non_null(strstr(err.text, "/proc/self/mem at byte 0: Input/output error"));
            free(done->buffer);
        }
        lp_direct_queue_free(queue);
    }
    lp_direct_close(&file);
}

static void a_queue_with_reads_in_it_can_be_freed(void **state) {
    (void)state;
    char path[64];
    struct lp_direct_file file;
    make_path(path);
    write_file(path, FILE_BYTES);
    assert_int_equal(lp_direct_open(&file, path, NULL), LP_OK);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct lp_direct_queue *queue = queue_of(ways[w], 3);
        if (!queue) continue;
        struct span s[9];
        for (int i = 0; i < 9; i++) {
            make_span(&s[i], &file, (uint64_t)i * 4096, 1000000);
            lp_direct_submit(queue, &s[i].read);
        }
        lp_direct_queue_free(queue);
        for (int i = 0; i < 9; i++) free(s[i].read.buffer);
    }
    lp_direct_close(&file);
    unlink(path);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    struct lp_direct_file file;
    struct lp_err err;
    assert_int_equal(lp_direct_open(&file, "/nowhere/at/all", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_int_equal(file.fd, -1);
    assert_int_equal(lp_direct_open(&file, "/", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
    lp_direct_close(&file);
}

static void bad_queues_are_refused(void **state) {
    (void)state;
    struct lp_direct_queue *queue;
    struct lp_err err;
    assert_int_equal(lp_direct_queue_new(&queue, 0, LP_DIRECT_AUTO, &err), LP_STATUS_INVALID);
    assert_int_equal(lp_direct_queue_new(&queue, 5000, LP_DIRECT_AUTO, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "5000"));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t nth = 1; nth <= 2; nth++) {
            lp_alloc_fail_after(nth);
            assert_int_equal(lp_direct_queue_new(&queue, 2, ways[w], &err), LP_STATUS_MEMORY);
            lp_alloc_fail_after(0);
            assert_null(queue);
        }
    lp_direct_queue_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_place_and_size_is_read_whole),
                                       cmocka_unit_test(the_end_of_a_file_is_named),
                                       cmocka_unit_test(a_file_that_becomes_shorter_is_an_error),
                                       cmocka_unit_test(a_failure_of_the_system_is_told),
                                       cmocka_unit_test(a_queue_with_reads_in_it_can_be_freed),
                                       cmocka_unit_test(what_is_no_file_is_refused),
                                       cmocka_unit_test(bad_queues_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
