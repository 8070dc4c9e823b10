// Ranks: the processes that run one model together, and what they say to one another.
//
// Rank 0 leads: it takes requests and decides; the others follow, in lock-step. Every call here but the
// first few is collective: all ranks of a communicator make it, in the same order, with the same sizes.
//
//   R1. A call that fails leaves the communicator failed: from then on calls do nothing and what they should
//       have filled means nothing, so that a step can run to its end. lp_comm_failed tells, behind it.
//   R2. Sums run in the order of ranks, and are the same bits on every rank.
//   R3. No call waits longer than the limit (lp_comm_set_limit), but for lp_comm_await and lp_comm_meet.
//   R4. A rank that is not heard of for longer than a silence fails the communicator, whether a call is under
//       way or not (comm_life.h): rank 0 hears all others, and they hear rank 0.
// One thread at a time calls the communicators of a process.
#ifndef LP_DIST_COMM_H
#define LP_DIST_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lp_comm;
#define LP_COMM_MAX_SIZE 1024 // ranks
#define LP_COMM_LIMIT_S 120.0 // that a call waits, unless lp_comm_set_limit says otherwise
// The longest silence: this part of the limit, but no less than so many seconds, or the limit where that is less.
#define LP_COMM_SILENCE_PART 4
#define LP_COMM_SILENCE_S 5.0

// All processes that were started together (mpirun, srun). *out is NULL where this one was started alone.
// Once in a process. Errors: UNSUPPORTED (a build without MPI that was started as one of several, or an MPI
// that does not see the others), IO (MPI does not start).
lp_status lp_comm_join(struct lp_comm **out, struct lp_err *err);
// Collective. A world that has failed ends all processes, with a status that says so. NULL is allowed.
void lp_comm_leave(struct lp_comm *world);
// Ranks first ... first + n - 1 of it as a communicator of their own, to be freed with lp_comm_leave before
// the other. Collective over all ranks of `whole`, whose groups are disjoint. Errors: IO.
lp_status lp_comm_group(struct lp_comm **out, struct lp_comm *whole, int32_t first, int32_t n,
                        struct lp_err *err);

int32_t lp_comm_rank(const struct lp_comm *comm);
int32_t lp_comm_size(const struct lp_comm *comm);
// Of those on the same host: the own number, and how many.
int32_t lp_comm_local_rank(const struct lp_comm *world);
int32_t lp_comm_local_size(const struct lp_comm *world);
int32_t lp_comm_sharing(
    const struct lp_comm *world); // of them those that may run on the same cores as this one
const char *lp_comm_host(const struct lp_comm *world, int32_t rank);

void lp_comm_set_limit(struct lp_comm *world, double seconds); // 0: LP_COMM_LIMIT_S
// Whether it has not failed, and all processes of this host still run: IO, with the reason or the one that does
// not. (Those of other hosts show by their silence.) Any thread, at any time.
lp_status lp_comm_check(const struct lp_comm *world, struct lp_err *err);
// Whether a call has failed, here or in a group: IO, with what and whom it waited for.
lp_status lp_comm_failed(const struct lp_comm *comm, struct lp_err *err);

// For waits that are no call's (for a GPU that exchanges data itself): whether to give up after so many seconds.
// The communicator has failed then, if only by this: a process has gone, or the limit is over. what: "sums on the
// GPUs".
bool lp_comm_give_up(struct lp_comm *comm, double waited_s, const char *what);

// Makes it so, for a reason that is no call's: what ranks would do from here on means nothing.
void lp_comm_fail(struct lp_comm *comm, const struct lp_err *err);
// From now on a silence of less than a second is too long: something says that a rank has gone. Any thread.
void lp_comm_doubt(struct lp_comm *world);

// Rank 0's bytes to all. await: the same, but ranks that wait for them wait as long as it takes, and do not
// keep a core busy meanwhile.
void lp_comm_share(struct lp_comm *comm, void *data, size_t n_bytes);
void lp_comm_await(struct lp_comm *comm, void *data, size_t n_bytes);
// Waits until all are here, as long as it takes.
void lp_comm_meet(struct lp_comm *comm);
// Everyone's n_bytes to rank 0: all, [size][n_bytes] there, NULL elsewhere.
void lp_comm_collect(struct lp_comm *comm, const void *mine, size_t n_bytes, void *all);
// The same with another size for each rank, one behind the other.
void lp_comm_collect_parts(struct lp_comm *comm, const void *mine, const size_t *n_bytes,
                           void *all);
// Everyone's part of x to all: [size] runs of n_floats[i] one behind the other, of which rank i has run i.
void lp_comm_gather(struct lp_comm *comm, float *x, const size_t *n_floats);
// x[i] = the sum over ranks
void lp_comm_sum(struct lp_comm *comm, float *x, size_t n);
// x as of lp_comm_gather, whole on every rank: rank i's run i = the sum over ranks, the bits of lp_comm_sum. The other
// runs mean nothing afterwards.
void lp_comm_sum_parts(struct lp_comm *comm, float *x, const size_t *n_floats);
// Everyone's own numbers to each. out: [size] runs of n_out[i] one behind the other, run i for rank i; in: likewise,
// n_in[i] from rank i. What a rank gives another is as many as that expects of it. The two do not overlap.
void lp_comm_exchange(struct lp_comm *comm, const float *out, const size_t *n_out, float *in,
                      const size_t *n_in);
void lp_comm_send(struct lp_comm *comm, int32_t to, const void *data, size_t n_bytes);
void lp_comm_take(struct lp_comm *comm, int32_t from, void *data, size_t n_bytes);

// Time spent in calls until now, but for lp_comm_await and lp_comm_meet.
uint64_t lp_comm_wait_ns(const struct lp_comm *world);
// Bytes that this rank has given others in calls until now. A broadcast counts once for each that takes it, whoever
// passes it on.
uint64_t lp_comm_sent_bytes(const struct lp_comm *world);

#endif
