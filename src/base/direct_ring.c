// Direct reads through io_uring: one entry of the ring per part. A part whose submission the kernel
// puts off (it is short of memory for it) stays in the ring and goes with the next one or with the
// next wait.
#include <errno.h>
#include <liburing.h>
#include <string.h>

#include "base/alloc.h"
#include "base/direct_parts.h"

static lp_status ring_start(struct lp_direct_queue *queue, struct lp_err *err) {
    struct io_uring *ring = lp_alloc(1, sizeof *ring);
    if (!ring) return lp_err_memory(err, sizeof *ring, "a ring of reads");
    int failed = io_uring_queue_init((unsigned)queue->depth, ring, 0);
    if (failed) {
        lp_free(ring);
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "the system gives this process no io_uring: %s", strerror(-failed));
    }
    // Kernels before 5.6 have rings, but no plain reads in them.
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    if (probe) io_uring_free_probe(probe);
    if (!reads) {
        io_uring_queue_exit(ring);
        lp_free(ring);
        return lp_err_set(err, LP_STATUS_UNSUPPORTED, "the system's io_uring knows no reads");
    }
    queue->state = ring;
    return LP_OK;
}

static void ring_stop(struct lp_direct_queue *queue) {
    io_uring_queue_exit(queue->state);
    lp_free(queue->state);
}

static void ring_launch(struct lp_direct_queue *queue, struct lp_direct_read *read) {
    struct io_uring *ring = queue->state;
    struct lp_direct_part part = lp_direct_next_part(read);
    // There is one: the ring has `depth` entries, and no more parts than that are flying.
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    io_uring_prep_read(entry, part.fd, part.to, (unsigned)part.n_bytes, part.offset);
    io_uring_sqe_set_data(entry, read);
    io_uring_submit(ring);
}

static int ring_collect(struct lp_direct_queue *queue, bool wait) {
    struct io_uring *ring = queue->state;
    struct io_uring_cqe *landed;
    while (wait && io_uring_peek_cqe(ring, &landed) != 0) {
        int result = io_uring_submit_and_wait(ring, 1);
        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) return -result;
    }
    while (io_uring_peek_cqe(ring, &landed) == 0) {
        struct lp_direct_read *read = io_uring_cqe_get_data(landed);
        int result = landed->res;
        io_uring_cqe_seen(ring, landed);
        lp_direct_landed(queue, read, result);
    }
    return 0;
}

const struct lp_direct_engine lp_direct_ring = {.name = "io_uring",
                                                .start = ring_start,
                                                .stop = ring_stop,
                                                .launch = ring_launch,
                                                .collect = ring_collect};
