// Ranks by MPI. Every call is a non-blocking one that is then waited for here: so that a rank that has
// nothing to do lets its core go, and one whose peers have gone does not wait forever.
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "dist/comm_life.h"
#include "dist/comm_parts.h"

struct mpi_comm {
    struct lp_comm base;
    MPI_Comm mpi;
    float *room; // for sums; grown, never shrunk
    size_t room_floats;
    struct lp_life *life; // of world alone
};

static struct mpi_comm *mpi_of(struct lp_comm *comm) {
    return (struct mpi_comm *)comm;
}

// ---- waiting

#define SPINS 2000          // tests before the core is offered to others
#define CLOCK_SPINS 32      // tests between two looks at the clock until then
#define CHECK_NS 100000000  // between two looks at whether the processes of this host still live
#define PATIENT_NS 2000000  // of a rank that waits for work: then it sleeps between tests,
#define LONGEST_NAP_US 1000 // longer and longer up to that
#define FIRST_NAP_US 20

static bool refused(int code, const char *what, struct lp_err *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return false;
    MPI_Error_string(code, text, &n);
    lp_err_set(err, LP_STATUS_IO, "MPI failed in %s: %s", what, text);
    return true;
}

static void too_late(const struct mpi_comm *world, const char *what, struct lp_err *err) {
    struct lp_err why;
    lp_life_suspect(world->life, &why);
    lp_err_set(err, LP_STATUS_IO, "waited %.0f s in %s: %s", world->base.limit_s, what, why.text);
}

static bool finish(struct mpi_comm *c, MPI_Request *request, bool patient, const char *what,
                   struct lp_err *err) {
    const struct mpi_comm *world = mpi_of(c->base.world);
    const uint64_t began = lp_clock_ns();
    const double limit_ns = world->base.limit_s * 1e9;
    uint64_t check_ns = began;
    unsigned nap_us = FIRST_NAP_US;
    for (uint64_t n = 0;; n++) {
        int done = 0;
        if (refused(MPI_Test(request, &done, MPI_STATUS_IGNORE), what, err)) return false;
        if (done) return true;
        if (n < SPINS && n % CLOCK_SPINS) continue;
        const uint64_t now = lp_clock_ns(), waited = now - began;
        lp_life_look(world->life, now);
        if (lp_comm_failed(&world->base, err)) return false;
        if (now - check_ns > CHECK_NS) {
            if (lp_comm_check(&world->base, err)) return false;
            check_ns = now;
        }
        if (!patient && (double)waited > limit_ns) {
            too_late(world, what, err);
            return false;
        }
        if (n < SPINS) continue;
        if (!patient || waited < PATIENT_NS) {
            sched_yield();
            continue;
        }
        usleep(nap_us);
        if (nap_us < LONGEST_NAP_US) nap_us *= 2;
    }
}

// ---- calls

static void count_sent(struct lp_comm *comm, size_t n_bytes, int32_t n_takers) {
    comm->world->sent_bytes += (uint64_t)n_bytes * (uint64_t)n_takers;
}

#define MOST_BYTES ((size_t)1 << 30) // of one call: MPI counts in int

static bool mpi_share(struct lp_comm *comm, void *data, size_t n_bytes, bool patient,
                      struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "a broadcast";
    for (size_t at = 0; at < n_bytes; at += MOST_BYTES) {
        const size_t n = n_bytes - at < MOST_BYTES ? n_bytes - at : MOST_BYTES;
        MPI_Request request;
        if (refused(MPI_Ibcast((char *)data + at, (int)n, MPI_BYTE, 0, c->mpi, &request), what,
                    err) ||
            !finish(c, &request, patient, what, err))
            return false;
        patient = false;
    }
    if (comm->rank == 0) count_sent(comm, n_bytes, comm->size - 1);
    return true;
}

static bool mpi_meet(struct lp_comm *comm, struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "a meeting";
    MPI_Request request;
    return !refused(MPI_Ibarrier(c->mpi, &request), what, err) &&
           finish(c, &request, true, what, err);
}

static bool too_large(size_t n_bytes, struct lp_err *err) {
    if (n_bytes <= MOST_BYTES) return false;
    lp_err_set(err, LP_STATUS_LIMIT, "a message of %zu bytes, at most %zu can be sent at a time",
               n_bytes, MOST_BYTES);
    return true;
}

static bool mpi_collect(struct lp_comm *comm, const void *mine, const size_t *n_bytes, void *all,
                        struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "a gathering";
    int counts[LP_COMM_MAX_SIZE], places[LP_COMM_MAX_SIZE];
    size_t sum = 0;
    for (int32_t i = 0; i < comm->size; i++) {
        places[i] = (int)sum;
        counts[i] = (int)n_bytes[i];
        sum += n_bytes[i];
        if (too_large(sum, err)) return false;
    }
    MPI_Request request;
    if (comm->rank > 0) count_sent(comm, n_bytes[comm->rank], 1);
    return !refused(MPI_Igatherv(mine, counts[comm->rank], MPI_BYTE, all, counts, places, MPI_BYTE,
                                 0, c->mpi, &request),
                    what, err) &&
           finish(c, &request, false, what, err);
}

static bool mpi_send(struct lp_comm *comm, int32_t to, const void *data, size_t n_bytes,
                     struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "a send";
    MPI_Request request;
    count_sent(comm, n_bytes, 1);
    return !too_large(n_bytes, err) &&
           !refused(MPI_Isend(data, (int)n_bytes, MPI_BYTE, to, 0, c->mpi, &request), what, err) &&
           finish(c, &request, false, what, err);
}

static bool mpi_take(struct lp_comm *comm, int32_t from, void *data, size_t n_bytes,
                     struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "a receive";
    MPI_Request request;
    return !too_large(n_bytes, err) &&
           !refused(MPI_Irecv(data, (int)n_bytes, MPI_BYTE, from, 0, c->mpi, &request), what,
                    err) &&
           finish(c, &request, false, what, err);
}

struct runs { // of numbers, one behind the other: as MPI wants them
    int count[LP_COMM_MAX_SIZE], place[LP_COMM_MAX_SIZE];
    size_t sum;
};

static bool lay_out(const struct lp_comm *comm, const size_t *n_floats, struct runs *out,
                    struct lp_err *err) {
    out->sum = 0;
    for (int32_t i = 0; i < comm->size; i++) {
        if (n_floats[i] > INT_MAX - out->sum) {
            lp_err_set(err, LP_STATUS_LIMIT,
                       "%zu values of rows behind %zu others, at most %d can be exchanged at a "
                       "time; lower --chunk",
                       n_floats[i], out->sum, INT_MAX);
            return false;
        }
        out->place[i] = (int)out->sum;
        out->count[i] = (int)n_floats[i];
        out->sum += n_floats[i];
    }
    return true;
}

static bool mpi_gather(struct lp_comm *comm, float *x, const size_t *n_floats, struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    static const char what[] = "an exchange of rows";
    struct runs runs;
    MPI_Request request;
    if (!lay_out(comm, n_floats, &runs, err)) return false;
    count_sent(comm, n_floats[comm->rank] * sizeof *x, comm->size - 1);
    return !refused(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, runs.count, runs.place,
                                    MPI_FLOAT, c->mpi, &request),
                    what, err) &&
           finish(c, &request, false, what, err);
}

static bool trade(struct mpi_comm *c, const float *out, const struct runs *given, float *in,
                  const struct runs *taken, const char *what, struct lp_err *err) {
    MPI_Request request;
    count_sent(&c->base, (given->sum - (size_t)given->count[c->base.rank]) * sizeof *out, 1);
    return !refused(MPI_Ialltoallv(out, given->count, given->place, MPI_FLOAT, in, taken->count,
                                   taken->place, MPI_FLOAT, c->mpi, &request),
                    what, err) &&
           finish(c, &request, false, what, err);
}

static bool mpi_exchange(struct lp_comm *comm, const float *out, const size_t *n_out, float *in,
                         const size_t *n_in, struct lp_err *err) {
    struct runs given, taken;
    return lay_out(comm, n_out, &given, err) && lay_out(comm, n_in, &taken, err) &&
           trade(mpi_of(comm), out, &given, in, &taken, "an exchange of rows", err);
}

// ---- sums (R2)

#define SMALL_FLOATS 16384 // up to that all have all and add by themselves, in one exchange

static bool make_room(struct mpi_comm *c, size_t n, struct lp_err *err) {
    if (n <= c->room_floats) return true;
    float *room = lp_realloc(c->room, n, sizeof *room);
    if (!room) {
        lp_err_memory(err, n * sizeof *room, "a sum over ranks");
        return false;
    }
    c->room = room;
    c->room_floats = n;
    return true;
}

// x[i] = parts[0][i] + parts[1][i] + ..., n of them one behind the other
static void add_parts(float *x, const float *parts, size_t n, int32_t n_parts) {
    memcpy(x, parts, n * sizeof *x);
    for (int32_t r = 1; r < n_parts; r++)
        for (size_t i = 0; i < n; i++) x[i] += parts[(size_t)r * n + i];
}

static bool sum_small(struct mpi_comm *c, float *x, size_t n, struct lp_err *err) {
    static const char what[] = "a sum";
    MPI_Request request;
    count_sent(&c->base, n * sizeof *x, c->base.size - 1);
    if (!make_room(c, n * (size_t)c->base.size, err) ||
        refused(MPI_Iallgather(x, (int)n, MPI_FLOAT, c->room, (int)n, MPI_FLOAT, c->mpi, &request),
                what, err) ||
        !finish(c, &request, false, what, err))
        return false;
    add_parts(x, c->room, n, c->base.size);
    return true;
}

// As even as can be.
static void share_evenly(const struct lp_comm *comm, size_t n, struct runs *out) {
    const size_t size = (size_t)comm->size;
    out->sum = n;
    for (size_t i = 0; i < size; i++) {
        out->place[i] = (int)(n * i / size);
        out->count[i] = (int)(n * (i + 1) / size) - out->place[i];
    }
}

// Each has the sum of its run alone.
static bool sum_runs(struct mpi_comm *c, float *x, const struct runs *runs, struct lp_err *err) {
    const struct lp_comm *base = &c->base;
    const size_t own = (size_t)runs->count[base->rank];
    struct runs parts;
    size_t n_parts[LP_COMM_MAX_SIZE];
    for (int32_t i = 0; i < base->size; i++) n_parts[i] = own;
    if (!lay_out(base, n_parts, &parts, err) || !make_room(c, parts.sum, err) ||
        !trade(c, x, runs, c->room, &parts, "a sum", err))
        return false;
    if (own) add_parts(x + runs->place[base->rank], c->room, own, base->size);
    return true;
}

// Each adds a share of it, which all others then take.
static bool sum_large(struct mpi_comm *c, float *x, size_t n, struct lp_err *err) {
    static const char what[] = "a sum";
    struct runs share;
    MPI_Request request;
    share_evenly(&c->base, n, &share);
    if (!sum_runs(c, x, &share, err)) return false;
    count_sent(&c->base, (size_t)share.count[c->base.rank] * sizeof *x, c->base.size - 1);
    return !refused(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, share.count, share.place,
                                    MPI_FLOAT, c->mpi, &request),
                    what, err) &&
           finish(c, &request, false, what, err);
}

// Of what lies in both runs: how much, and where it begins.
static void overlap(const struct runs *a, int32_t i, const struct runs *b, int32_t k, int *count,
                    int *place) {
    const int first = a->place[i] > b->place[k] ? a->place[i] : b->place[k];
    const int a_end = a->place[i] + a->count[i], b_end = b->place[k] + b->count[k];
    const int n = (a_end < b_end ? a_end : b_end) - first;
    *count = n > 0 ? n : 0;
    *place = n > 0 ? first : 0;
}

// From ranks that have runs `from` of x to those that want runs `to`. By way of the room: Open MPI takes the same buffer
// twice for an exchange in place.
static bool hand_over(struct mpi_comm *c, float *x, const struct runs *from, const struct runs *to,
                      struct lp_err *err) {
    const int32_t own = c->base.rank;
    struct runs given = {.sum = 0}, taken = {.sum = 0};
    int place[LP_COMM_MAX_SIZE] = {0};
    for (int32_t i = 0; i < c->base.size; i++) {
        if (i == own) continue; // that is where it shall be
        overlap(from, own, to, i, &given.count[i], &given.place[i]);
        overlap(from, i, to, own, &taken.count[i], &place[i]);
        taken.place[i] = (int)taken.sum;
        given.sum += (size_t)given.count[i];
        taken.sum += (size_t)taken.count[i];
    }
    if (!make_room(c, taken.sum, err) || !trade(c, x, &given, c->room, &taken, "a sum", err))
        return false;
    for (int32_t i = 0; i < c->base.size; i++)
        if (taken.count[i])
            memcpy(x + place[i], c->room + taken.place[i], (size_t)taken.count[i] * sizeof *x);
    return true;
}

// A rank with most of the rows would take them of all others, and add them alone: then all add even shares first.
static bool mpi_sum_parts(struct lp_comm *comm, float *x, const size_t *n_floats,
                          struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    struct runs runs, share;
    size_t most = 0;
    if (!lay_out(comm, n_floats, &runs, err)) return false;
    for (int32_t i = 0; i < comm->size; i++)
        if (n_floats[i] > most) most = n_floats[i];
    const bool is_even = runs.sum <= INT_MAX / 2 && most <= 2 * (runs.sum / (size_t)comm->size);
    if (runs.sum <= SMALL_FLOATS || is_even) return sum_runs(c, x, &runs, err);
    share_evenly(comm, runs.sum, &share);
    return sum_runs(c, x, &share, err) && hand_over(c, x, &share, &runs, err);
}

static bool mpi_sum(struct lp_comm *comm, float *x, size_t n, struct lp_err *err) {
    struct mpi_comm *c = mpi_of(comm);
    const size_t most = MOST_BYTES / sizeof *x;
    if (n <= SMALL_FLOATS) return sum_small(c, x, n, err);
    for (size_t at = 0; at < n; at += most)
        if (!sum_large(c, x + at, n - at < most ? n - at : most, err)) return false;
    return true;
}

// ---- making

static lp_status mpi_group(struct lp_comm **out, struct lp_comm *whole, int32_t first, int32_t n,
                           struct lp_err *err);

static void mpi_leave(struct lp_comm *comm) {
    struct mpi_comm *c = mpi_of(comm);
    const bool is_world = comm == comm->world;
    lp_life_free(c->life);
    const bool failed = comm->world->failed;
    // Freeing and finalising wait for the others; after a failure there may be none.
    if (!failed && !is_world) MPI_Comm_free(&c->mpi);
    if (!failed && is_world) MPI_Finalize();
    if (failed && is_world) MPI_Abort(c->mpi, 1);
    if (is_world) pthread_mutex_destroy(&comm->lock);
    lp_free(comm->hosts);
    lp_free(comm->processes);
    lp_free(c->room);
    lp_free(c);
}

static const struct lp_comm_calls calls = {.share = mpi_share,
                                           .meet = mpi_meet,
                                           .collect = mpi_collect,
                                           .gather = mpi_gather,
                                           .sum = mpi_sum,
                                           .sum_parts = mpi_sum_parts,
                                           .exchange = mpi_exchange,
                                           .send = mpi_send,
                                           .take = mpi_take,
                                           .group = mpi_group,
                                           .leave = mpi_leave};

static lp_status mpi_group(struct lp_comm **out, struct lp_comm *whole, int32_t first, int32_t n,
                           struct lp_err *err) {
    struct mpi_comm *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "a communicator");
    c->base = (struct lp_comm){
        .calls = &calls, .world = whole->world, .rank = whole->rank - first, .size = n};
    const int code = MPI_Comm_split(mpi_of(whole)->mpi, first, whole->rank, &c->mpi);
    if (refused(code, "making a group of ranks", err)) {
        lp_free(c);
        return LP_STATUS_IO;
    }
    MPI_Comm_set_errhandler(c->mpi, MPI_ERRORS_RETURN);
    *out = &c->base;
    return LP_OK;
}

struct card { // what a rank tells of itself
    char host[LP_COMM_HOST_BYTES];
    uint64_t processes_of; // the name space of its process's number
    int32_t process;
    cpu_set_t cores; // that it may run on
};

static void take_cards(struct lp_comm *world, const struct card *cards) {
    const struct card *own = &cards[world->rank];
    for (int32_t i = 0; i < world->size; i++) {
        const struct card *x = &cards[i];
        memcpy(world->hosts[i], x->host, sizeof x->host);
        if (strcmp(x->host, own->host) != 0) continue;
        if (i < world->rank) world->local_rank++;
        world->local_size++;
        world->sharing += CPU_EQUAL(&x->cores, &own->cores) != 0;
        if (x->processes_of == own->processes_of) world->processes[i] = x->process;
    }
}

static struct card own_card(void) {
    struct card card = {.process = (int32_t)getpid()};
    struct stat s;
    gethostname(card.host, sizeof card.host - 1);
    for (char *c = card.host; *c; c++) // it goes into messages and labels
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c))
            *c = '?';
    sched_getaffinity(0, sizeof card.cores, &card.cores);
    if (stat("/proc/self/ns/pid", &s) == 0) card.processes_of = (uint64_t)s.st_ino;
    return card;
}

static lp_status join(struct mpi_comm *c, struct lp_err *err) {
    const struct card own = own_card();
    c->mpi = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c->mpi, &c->base.rank);
    MPI_Comm_size(c->mpi, &c->base.size);
    if (c->base.size > LP_COMM_MAX_SIZE)
        return lp_err_set(err, LP_STATUS_LIMIT, "%d ranks were started, at most %d work together",
                          c->base.size, LP_COMM_MAX_SIZE);
    const size_t size = (size_t)c->base.size;
    struct card *cards = lp_alloc(size, sizeof *cards);
    c->base.hosts = lp_alloc(size, sizeof *c->base.hosts);
    c->base.processes = lp_alloc(size, sizeof *c->base.processes);
    lp_status status = LP_OK;
    if (!cards || !c->base.hosts || !c->base.processes)
        status = lp_err_memory(err, size * sizeof *cards, "the names of hosts");
    else if (refused(MPI_Allgather(&own, sizeof own, MPI_BYTE, cards, sizeof own, MPI_BYTE, c->mpi),
                     "an exchange of names", err))
        status = LP_STATUS_IO;
    else
        take_cards(&c->base, cards);
    lp_free(cards);
    return status;
}

// Open MPI 4 gives its explanations to mpirun and waits until they are taken. Where the connection to a rank that
// has died breaks, mpirun ends the ranks at the same time, and the call that found it never returned: no
// request was told. What failed is told here anyway. (As a setting it would also hide why MPI does not start.)
static void hush(void) {
    bool *quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet");
    if (quiet) *quiet = true;
}

// Of a rank that cannot take part while the others can: they wait for it already, in joining or in what comes next, and
// to finalise MPI would wait for them (with receives under way that nobody takes). So it says why, and all end.
static void end_all(const struct mpi_comm *c, const struct lp_err *err) {
    lp_log_set_rank(c->base.rank);
    lp_log(LP_LOG_ERROR, "rank %d of %d cannot take part, so that all end: %s", c->base.rank,
           c->base.size, err->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

lp_status lp_comm_join(struct lp_comm **out, struct lp_err *err) {
    int threads = 0;
    *out = NULL;
    if (!lp_comm_launcher()) return LP_OK;
    if (refused(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads), "starting", err))
        return LP_STATUS_IO;
    if (threads < MPI_THREAD_SERIALIZED)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "this MPI may be called by the main thread alone (level %d, wanted "
                          "MPI_THREAD_SERIALIZED)",
                          threads);
    struct mpi_comm *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "a communicator");
    c->base = (struct lp_comm){.calls = &calls, .limit_s = LP_COMM_LIMIT_S};
    c->base.world = &c->base;
    pthread_mutex_init(&c->base.lock, NULL);
    lp_status status = join(c, err);
    if (!status && c->base.size == 1)
        status = lp_err_set(err, LP_STATUS_UNSUPPORTED,
                            "%s says that several processes were started together, and MPI sees "
                            "this one alone; start them by a launcher that this MPI knows (mpirun; "
                            "srun --mpi=pmix)",
                            lp_comm_launcher());
    hush();
    if (!status) status = lp_life_new(&c->life, &c->base, err);
    if (status == LP_STATUS_MEMORY || status == LP_STATUS_IO) end_all(c, err);
    if (status) { // the same on all of them
        mpi_leave(&c->base);
        return status;
    }
    *out = &c->base;
    return LP_OK;
}
