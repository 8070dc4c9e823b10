#include "dist/comm_parts.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"

// How many processes mpirun, srun and their like say that they have started, by the kind of launcher.
const char *lp_comm_launcher(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *size = getenv(names[i]);
        if (size && atol(size) > 1) return names[i];
    }
    return NULL;
}

void lp_comm_leave(struct lp_comm *comm) {
    if (!comm) return;
    struct lp_comm *world = comm->world;
    if (comm != world) pthread_mutex_lock(&world->lock);
    comm->calls->leave(comm);
    if (comm != world) pthread_mutex_unlock(&world->lock);
}

lp_status lp_comm_group(struct lp_comm **out, struct lp_comm *whole, int32_t first, int32_t n,
                        struct lp_err *err) {
    pthread_mutex_lock(&whole->world->lock);
    const lp_status status = whole->calls->group(out, whole, first, n, err);
    pthread_mutex_unlock(&whole->world->lock);
    return status;
}

int32_t lp_comm_rank(const struct lp_comm *comm) {
    return comm->rank;
}
int32_t lp_comm_size(const struct lp_comm *comm) {
    return comm->size;
}
int32_t lp_comm_local_rank(const struct lp_comm *world) {
    return world->local_rank;
}
int32_t lp_comm_local_size(const struct lp_comm *world) {
    return world->local_size;
}
int32_t lp_comm_sharing(const struct lp_comm *world) {
    return world->sharing;
}
const char *lp_comm_host(const struct lp_comm *world, int32_t rank) {
    return world->hosts[rank];
}
void lp_comm_set_limit(struct lp_comm *world, double seconds) {
    world->limit_s = seconds > 0 ? seconds : LP_COMM_LIMIT_S;
}

lp_status lp_comm_check(const struct lp_comm *world, struct lp_err *err) {
    if (world->failed) return lp_comm_failed(world, err);
    for (int32_t i = 0; i < world->size; i++)
        if (world->processes[i] && kill(world->processes[i], 0) && errno == ESRCH)
            return lp_err_set(err, LP_STATUS_IO, "rank %d on %s (process %d) has ended", i,
                              world->hosts[i], world->processes[i]);
    return LP_OK;
}

uint64_t lp_comm_wait_ns(const struct lp_comm *world) {
    return world->wait_ns;
}

uint64_t lp_comm_sent_bytes(const struct lp_comm *world) {
    return world->sent_bytes;
}

lp_status lp_comm_failed(const struct lp_comm *comm, struct lp_err *err) {
    const struct lp_comm *world = comm->world;
    if (!world->failed) return LP_OK;
    return lp_err_set(err, world->failure.status, "%s", world->failure.text);
}

void lp_comm_fail(struct lp_comm *comm, const struct lp_err *err) {
    struct lp_comm *world = comm->world;
    if (atomic_exchange(&world->failing, true)) {
        while (!world->failed) sched_yield();
        return;
    }
    lp_err_set(&world->failure, LP_STATUS_IO, "rank %d of %d on %s: %s", world->rank, world->size,
               world->hosts[world->rank], err->text);
    world->failed = true;
}

bool lp_comm_give_up(struct lp_comm *comm, double waited_s, const char *what) {
    struct lp_comm *world = comm->world;
    struct lp_err err;
    if (world->failed) return true;
    if (!lp_comm_check(world, &err)) {
        const double limit_s = world->limit_s;
        if (waited_s <= limit_s) return false;
        lp_err_set(&err, LP_STATUS_IO, "waited %.0f s in %s", limit_s, what);
    }
    lp_comm_fail(comm, &err);
    return true;
}

#define DOUBT_FOR_NS 5000000000u // by then a launcher that ends everything has done so

void lp_comm_doubt(struct lp_comm *world) {
    world->doubt_until_ns = lp_clock_ns() + DOUBT_FOR_NS;
}

// ---- calls

// R1. Whether a call is to be made at all.
static bool begin(const struct lp_comm *comm, uint64_t *began_ns) {
    *began_ns = lp_clock_ns();
    if (comm->world->failed) return false;
    pthread_mutex_lock(&comm->world->lock);
    return true;
}

static void end(struct lp_comm *comm, uint64_t began_ns, bool done, const struct lp_err *err) {
    struct lp_comm *world = comm->world;
    pthread_mutex_unlock(&world->lock);
    world->wait_ns += lp_clock_ns() - began_ns;
    if (!done) lp_comm_fail(comm, err);
}

// A wait for work is not counted.
static void end_uncounted(struct lp_comm *comm, bool done, const struct lp_err *err) {
    pthread_mutex_unlock(&comm->world->lock);
    if (!done) lp_comm_fail(comm, err);
}

void lp_comm_share(struct lp_comm *comm, void *data, size_t n_bytes) {
    uint64_t began_ns;
    struct lp_err err;
    if (!n_bytes || !begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->share(comm, data, n_bytes, false, &err), &err);
}

void lp_comm_await(struct lp_comm *comm, void *data, size_t n_bytes) {
    uint64_t began_ns;
    struct lp_err err;
    if (!n_bytes || !begin(comm, &began_ns)) return;
    end_uncounted(comm, comm->calls->share(comm, data, n_bytes, comm->rank > 0, &err), &err);
}

void lp_comm_meet(struct lp_comm *comm) {
    uint64_t began_ns;
    struct lp_err err;
    if (!begin(comm, &began_ns)) return;
    end_uncounted(comm, comm->calls->meet(comm, &err), &err);
}

void lp_comm_collect_parts(struct lp_comm *comm, const void *mine, const size_t *n_bytes,
                           void *all) {
    uint64_t began_ns;
    struct lp_err err;
    if (!begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->collect(comm, mine, n_bytes, all, &err), &err);
}

void lp_comm_collect(struct lp_comm *comm, const void *mine, size_t n_bytes, void *all) {
    size_t each[LP_COMM_MAX_SIZE];
    for (int32_t i = 0; i < comm->size; i++) each[i] = n_bytes;
    lp_comm_collect_parts(comm, mine, each, all);
}

void lp_comm_gather(struct lp_comm *comm, float *x, const size_t *n_floats) {
    uint64_t began_ns;
    struct lp_err err;
    if (comm->size == 1 || !begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->gather(comm, x, n_floats, &err), &err);
}

void lp_comm_sum(struct lp_comm *comm, float *x, size_t n) {
    uint64_t began_ns;
    struct lp_err err;
    if (comm->size == 1 || !n || !begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->sum(comm, x, n, &err), &err);
}

void lp_comm_sum_parts(struct lp_comm *comm, float *x, const size_t *n_floats) {
    uint64_t began_ns;
    struct lp_err err;
    if (comm->size == 1 || !begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->sum_parts(comm, x, n_floats, &err), &err);
}

void lp_comm_exchange(struct lp_comm *comm, const float *out, const size_t *n_out, float *in,
                      const size_t *n_in) {
    uint64_t began_ns;
    struct lp_err err;
    if (!begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->exchange(comm, out, n_out, in, n_in, &err), &err);
}

void lp_comm_send(struct lp_comm *comm, int32_t to, const void *data, size_t n_bytes) {
    uint64_t began_ns;
    struct lp_err err;
    if (!begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->send(comm, to, data, n_bytes, &err), &err);
}

void lp_comm_take(struct lp_comm *comm, int32_t from, void *data, size_t n_bytes) {
    uint64_t began_ns;
    struct lp_err err;
    if (!begin(comm, &began_ns)) return;
    end(comm, began_ns, comm->calls->take(comm, from, data, n_bytes, &err), &err);
}
