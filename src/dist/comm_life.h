// Inside dist: signs of life, by which a rank that has gone is missed where nobody waits for it: between requests,
// and while models are loaded.
//
// Rank 0 sends each other rank a word every LP_LIFE_BEAT_S, and each sends one to rank 0. They are sent and taken by
// whoever is in MPI: a call that waits, else a thread that has nothing else to do, and takes world->lock for it.
// So a rank that computes or loads is heard all the time, and one that is stopped, dead or cut off is not.
#ifndef LP_DIST_COMM_LIFE_H
#define LP_DIST_COMM_LIFE_H

#include "dist/comm.h"

struct lp_life;
#define LP_LIFE_BEAT_S 0.25

// Collective, as the world is made. Errors: IO, MEMORY; receives may be under way then, so that *out must stay where it
// is until the process ends.
lp_status lp_life_new(struct lp_life **out, struct lp_comm *world, struct lp_err *err);
// Collective unless the world has failed: waits for the others to leave too. NULL is allowed.
void lp_life_free(struct lp_life *life);

// Holding world->lock, at least every LP_LIFE_BEAT_S: sends and takes words when it is time. A rank that was not
// heard for too long makes the world failed.
void lp_life_look(struct lp_life *life, uint64_t now_ns);
// Holding world->lock. Why a call may have waited in vain, as a part of a sentence.
void lp_life_suspect(const struct lp_life *life, struct lp_err *err);

#endif
