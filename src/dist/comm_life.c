#include "dist/comm_life.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "dist/comm_parts.h"

#define BEAT_NS ((uint64_t)(LP_LIFE_BEAT_S * 1e9))
#define DOUBT_NS                                                                                   \
    (3 * BEAT_NS) // a silence that tells whom to suspect. mpirun kills a second behind its SIGTERM
#define RETRY_NS 10000000u // where a call is under way that may send the words itself
#define LEAVE_NAP_US 200

enum word { WORD_HERE, WORD_LEAVES }; // the last one of a rank is LEAVES

struct peer {
    int32_t rank;
    MPI_Request send, take; // NULL: none under way
    int32_t sent, taken;    // words; MPI has them until then
    bool leaves, told;      // has said that it leaves; was told that this one does
    uint64_t heard_ns;
};

struct lp_life {
    struct lp_comm *world;
    MPI_Comm mpi;
    struct peer *peers; // of rank 0 all others, of the others rank 0
    int32_t n_peers;
    _Atomic uint64_t due_ns; // when words are to be sent again
    uint64_t looked_ns;
    pthread_t thread;
    pthread_mutex_t lock; // of `over` alone
    pthread_cond_t changed;
    bool has_thread, over;
};

// ---- words

static void listen(struct lp_life *l, struct peer *p, uint64_t now_ns) {
    int done = 0;
    while (p->take != MPI_REQUEST_NULL && !MPI_Test(&p->take, &done, MPI_STATUS_IGNORE) && done) {
        p->heard_ns = now_ns;
        p->leaves = p->taken == WORD_LEAVES;
        if (p->leaves) return;
        MPI_Irecv(&p->taken, sizeof p->taken, MPI_BYTE, p->rank, 0, l->mpi, &p->take);
    }
}

// False: the one before has not gone out yet.
static bool speak(struct lp_life *l, struct peer *p, enum word word) {
    int done = 0;
    if (p->send != MPI_REQUEST_NULL && (MPI_Test(&p->send, &done, MPI_STATUS_IGNORE) || !done))
        return false;
    p->sent = (int32_t)word;
    MPI_Isend(&p->sent, sizeof p->sent, MPI_BYTE, p->rank, 0, l->mpi, &p->send);
    return true;
}

// ---- silence

// The state letter of a process of this host ("T": stopped); 0: not known.
static char state_of(int32_t process) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *f = process ? fopen(path, "r") : NULL;
    if (!f) return 0;
    const size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] ? name_end[2] : 0;
}

static void tell_silent(const struct lp_life *l, const struct peer *p, uint64_t silent_ns,
                        struct lp_err *err) {
    const struct lp_comm *world = l->world;
    const double silent_s = (double)silent_ns * 1e-9;
    if (state_of(world->processes[p->rank]) == 'T')
        lp_err_set(err, LP_STATUS_IO,
                   "rank %d on %s (process %d) is stopped: nothing was heard of it for %.1f s",
                   p->rank, world->hosts[p->rank], world->processes[p->rank], silent_s);
    else
        lp_err_set(err, LP_STATUS_IO,
                   "nothing was heard of rank %d on %s for %.1f s: it has ended or hangs, or its "
                   "host is cut off or down",
                   p->rank, world->hosts[p->rank], silent_s);
}

void lp_life_suspect(const struct lp_life *l, struct lp_err *err) {
    const struct peer *quiet = &l->peers[0];
    const char *remedy = "see its log, and --rank-timeout if it only was slow";
    for (int32_t i = 1; i < l->n_peers; i++)
        if (l->peers[i].heard_ns < quiet->heard_ns) quiet = &l->peers[i];
    const uint64_t now_ns = lp_clock_ns();
    if (now_ns - quiet->heard_ns > DOUBT_NS)
        tell_silent(l, quiet, now_ns - quiet->heard_ns, err);
    else if (l->world->size == 2)
        lp_err_set(err, LP_STATUS_IO, "rank %d on %s lives, but hangs; %s", quiet->rank,
                   l->world->hosts[quiet->rank], remedy);
    else
        lp_err_set(err, LP_STATUS_IO, "all ranks live, but one hangs; %s", remedy);
}

// Words come from a thread that does nothing else, so a silence says more than a slow step. Where a debugger
// stops processes, a longer limit of steps makes this longer too.
static uint64_t longest_silence_ns(const struct lp_comm *world) {
    const double limit_s = world->limit_s;
    if (lp_clock_ns() < world->doubt_until_ns) return DOUBT_NS;
    return (uint64_t)(fmax(limit_s / LP_COMM_SILENCE_PART, fmin(limit_s, LP_COMM_SILENCE_S)) * 1e9);
}

static void judge(struct lp_life *l, uint64_t now_ns) {
    const uint64_t most_ns = longest_silence_ns(l->world);
    struct lp_err err;
    for (int32_t i = 0; i < l->n_peers && !l->world->failed; i++) {
        const struct peer *p = &l->peers[i];
        if (p->leaves || now_ns - p->heard_ns <= most_ns) continue;
        tell_silent(l, p, now_ns - p->heard_ns, &err);
        lp_comm_fail(l->world, &err);
    }
}

void lp_life_look(struct lp_life *l, uint64_t now_ns) {
    // What a call that failed has left behind is not to be moved on: its buffers are the caller's again.
    if (now_ns < l->due_ns || l->world->failed) return;
    const uint64_t since_ns = now_ns - l->looked_ns;
    // A time in which this process itself was stopped is no silence of others.
    const uint64_t lost_ns = since_ns > 2 * BEAT_NS ? since_ns - BEAT_NS : 0;
    for (int32_t i = 0; i < l->n_peers; i++) {
        l->peers[i].heard_ns += lost_ns;
        listen(l, &l->peers[i], now_ns);
        if (!l->peers[i].told) speak(l, &l->peers[i], WORD_HERE);
    }
    l->looked_ns = now_ns;
    l->due_ns = now_ns + BEAT_NS;
    judge(l, now_ns);
}

// ---- the thread

// False: it is over.
static bool nap(struct lp_life *l, uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t end_ns = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(end_ns / 1000000000u);
    until.tv_nsec = (long)(end_ns % 1000000000u);
    pthread_mutex_lock(&l->lock);
    if (!l->over) pthread_cond_timedwait(&l->changed, &l->lock, &until);
    const bool goes_on = !l->over;
    pthread_mutex_unlock(&l->lock);
    return goes_on;
}

// A call that neither ends nor looks hangs within MPI: in one that MPI has as a blocking one alone (making a group),
// or by a fault of its own.
static void *live(void *user) {
    struct lp_life *l = user;
    uint64_t shut_out_ns = 0, nap_ns = 0;
    while (nap(l, nap_ns) && !l->world->failed) {
        const uint64_t now_ns = lp_clock_ns(), due_ns = l->due_ns;
        if (now_ns < due_ns) {
            nap_ns = due_ns - now_ns;
            shut_out_ns = 0;
        } else if (pthread_mutex_trylock(&l->world->lock)) {
            nap_ns = RETRY_NS;
            shut_out_ns += RETRY_NS;
        } else {
            lp_life_look(l, now_ns);
            pthread_mutex_unlock(&l->world->lock);
        }
        if ((double)shut_out_ns * 1e-9 > l->world->limit_s) {
            struct lp_err err;
            lp_err_set(&err, LP_STATUS_IO, "MPI has not returned from a call for %.0f s",
                       l->world->limit_s);
            lp_comm_fail(l->world, &err);
        }
    }
    return NULL;
}

static lp_status start(struct lp_life *l, struct lp_err *err) {
    sigset_t all, before;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&l->lock, NULL);
    sigfillset(&all); // they are for the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed =
        LP_FAULT("rank-no-thread") ? EAGAIN : pthread_create(&l->thread, NULL, live, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->has_thread = !failed;
    return failed ? lp_err_set(err, LP_STATUS_MEMORY, "cannot start a thread: %s", strerror(failed))
                  : LP_OK;
}

lp_status lp_life_new(struct lp_life **out, struct lp_comm *world, struct lp_err *err) {
    const int32_t n = world->rank == 0 ? world->size - 1 : 1;
    struct lp_life *l = lp_alloc(1, sizeof *l);
    struct peer *peers = lp_alloc((size_t)n, sizeof *peers);
    if (!l || !peers) {
        lp_free(peers);
        lp_free(l);
        return lp_err_memory(err, sizeof *l + (size_t)n * sizeof *peers, "signs of life");
    }
    *l = (struct lp_life){.world = world, .peers = peers, .n_peers = n, .looked_ns = lp_clock_ns()};
    *out = l;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &l->mpi) != MPI_SUCCESS)
        return lp_err_set(err, LP_STATUS_IO, "MPI failed in making a communicator");
    MPI_Comm_set_errhandler(l->mpi, MPI_ERRORS_RETURN);
    for (int32_t i = 0; i < n; i++) {
        struct peer *p = &peers[i];
        *p = (struct peer){.rank = world->rank == 0 ? i + 1 : 0,
                           .send = MPI_REQUEST_NULL,
                           .take = MPI_REQUEST_NULL,
                           .heard_ns = l->looked_ns};
        MPI_Irecv(&p->taken, sizeof p->taken, MPI_BYTE, p->rank, 0, l->mpi, &p->take);
    }
    return start(l, err);
}

// ---- the end

static bool is_done(struct lp_life *l, struct peer *p, uint64_t now_ns) {
    int sent = 0;
    listen(l, p, now_ns);
    if (!p->told) p->told = speak(l, p, WORD_LEAVES);
    if (p->told && MPI_Test(&p->send, &sent, MPI_STATUS_IGNORE)) sent = 0;
    return p->told && sent && p->leaves;
}

// Then nothing is under way that nobody would take.
static void part(struct lp_life *l) {
    for (bool all = false; !all && !l->world->failed;) {
        const uint64_t now_ns = lp_clock_ns();
        all = true;
        for (int32_t i = 0; i < l->n_peers; i++) all &= is_done(l, &l->peers[i], now_ns);
        if (all) break;
        lp_life_look(l, now_ns);
        usleep(LEAVE_NAP_US);
    }
}

void lp_life_free(struct lp_life *l) {
    if (!l) return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->over = true;
        pthread_cond_signal(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
        pthread_mutex_destroy(&l->lock);
        pthread_cond_destroy(&l->changed);
        part(l);
    }
    if (l->world->failed) return; // MPI may still write to it, until the process ends
    if (l->has_thread) MPI_Comm_free(&l->mpi);
    lp_free(l->peers);
    lp_free(l);
}
