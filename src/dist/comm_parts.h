// Inside dist: what a communicator is made of.
#ifndef LP_DIST_COMM_PARTS_H
#define LP_DIST_COMM_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "dist/comm.h"

#define LP_COMM_HOST_BYTES 256

struct lp_comm_calls { // of the library underneath; false: *err says why (R1 is seen to above)
    bool (*share)(struct lp_comm *, void *data, size_t n_bytes, bool patient, struct lp_err *err);
    bool (*meet)(struct lp_comm *, struct lp_err *err);
    bool (*collect)(struct lp_comm *, const void *mine, const size_t *n_bytes, void *all,
                    struct lp_err *err);
    bool (*gather)(struct lp_comm *, float *x, const size_t *n_floats, struct lp_err *err);
    bool (*sum)(struct lp_comm *, float *x, size_t n, struct lp_err *err);
    bool (*sum_parts)(struct lp_comm *, float *x, const size_t *n_floats, struct lp_err *err);
    bool (*exchange)(struct lp_comm *, const float *out, const size_t *n_out, float *in,
                     const size_t *n_in, struct lp_err *err);
    bool (*send)(struct lp_comm *, int32_t to, const void *data, size_t n_bytes,
                 struct lp_err *err);
    bool (*take)(struct lp_comm *, int32_t from, void *data, size_t n_bytes, struct lp_err *err);
    lp_status (*group)(struct lp_comm **out, struct lp_comm *whole, int32_t first, int32_t n,
                       struct lp_err *err);
    void (*leave)(struct lp_comm *);
};

struct lp_comm { // every kind's begins with this
    const struct lp_comm_calls *calls;
    struct lp_comm *world; // itself, or of a group the one it is part of
    int32_t rank, size;
    // of world alone
    int32_t local_rank, local_size, sharing;
    char (*hosts)[LP_COMM_HOST_BYTES]; // [size]
    int32_t *processes;   // [size]: their numbers, 0 where they cannot be looked up from here
    pthread_mutex_t lock; // held through every call, and where signs of life are given between them
    _Atomic double limit_s;
    uint64_t wait_ns, sent_bytes;
    uint64_t n_orders;               // given or taken
    _Atomic uint64_t doubt_until_ns; // lp_comm_doubt
    atomic_bool failing;             // of several who find a failure the first tells it
    atomic_bool failed;              // set behind `failure`, once
    struct lp_err failure;
};

// What tells that a process was started as one of several ("OMPI_COMM_WORLD_SIZE"); NULL: nothing does.
const char *lp_comm_launcher(void);

#endif
