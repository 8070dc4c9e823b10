// Whose turn it is to use the engine: first come, first served. A waiter whose client has gone
// leaves the queue without ever having its turn.
//
//   take: [A runs] <- B <- C        give: [B runs] <- C        close: B and C leave, nobody enters
#ifndef LP_SERVE_TURN_H
#define LP_SERVE_TURN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

struct lp_turn_waiter;

struct lp_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;              // CLOCK_MONOTONIC
    struct lp_turn_waiter *first, *last; // in order of arrival; on their threads' stacks
    bool taken, closed;
};

// The client of a request; gone is asked from the thread that serves it.
struct lp_client {
    bool (*gone)(void *user);
    void *user;
};

enum lp_turn_result { LP_TURN_TAKEN, LP_TURN_GONE, LP_TURN_CLOSED };

lp_status lp_turn_init(struct lp_turn *turn, struct lp_err *err);
void lp_turn_release(struct lp_turn *turn); // nobody may wait or hold it
// Waits. The client is asked about 5 times a second, and once more before TAKEN.
enum lp_turn_result lp_turn_take(struct lp_turn *turn, const struct lp_client *client);
void lp_turn_give(struct lp_turn *turn);
void lp_turn_close(struct lp_turn *turn); // the holder keeps its turn until it gives it
bool lp_turn_closed(struct lp_turn *turn);

#endif
