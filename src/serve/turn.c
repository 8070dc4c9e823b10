#include "serve/turn.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define LOOK_EVERY_NS 200000000L

struct lp_turn_waiter {
    struct lp_turn_waiter *next;
};

lp_status lp_turn_init(struct lp_turn *turn, struct lp_err *err) {
    pthread_condattr_t attr;
    *turn = (struct lp_turn){0};
    int failed = pthread_mutex_init(&turn->lock, NULL);
    if (failed)
        return lp_err_set(err, LP_STATUS_MEMORY, "cannot make a lock: %s", strerror(failed));
    failed = pthread_condattr_init(&attr);
    if (!failed) {
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        failed = pthread_cond_init(&turn->changed, &attr);
        pthread_condattr_destroy(&attr);
    }
    if (!failed) return LP_OK;
    pthread_mutex_destroy(&turn->lock);
    return lp_err_set(err, LP_STATUS_MEMORY, "cannot make a condition variable: %s",
                      strerror(failed));
}

void lp_turn_release(struct lp_turn *turn) {
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->lock);
}

static void leave_queue(struct lp_turn *turn, struct lp_turn_waiter *me) {
    struct lp_turn_waiter **at = &turn->first, *before = NULL;
    while (*at != me) {
        before = *at;
        at = &before->next;
    }
    *at = me->next;
    if (turn->last == me) turn->last = before;
}

static void wait_a_while(struct lp_turn *turn) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_EVERY_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&turn->changed, &turn->lock, &until);
}

enum lp_turn_result lp_turn_take(struct lp_turn *turn, const struct lp_client *client) {
    struct lp_turn_waiter me = {NULL};
    enum lp_turn_result result;
    pthread_mutex_lock(&turn->lock);
    if (turn->last)
        turn->last->next = &me;
    else
        turn->first = &me;
    turn->last = &me;
    for (;;) {
        if (turn->closed)
            result = LP_TURN_CLOSED;
        else if (client->gone(client->user))
            result = LP_TURN_GONE; // a look at a socket; it does not block
        else if (!turn->taken && turn->first == &me)
            result = LP_TURN_TAKEN;
        else {
            wait_a_while(turn);
            continue;
        }
        break;
    }
    leave_queue(turn, &me);
    if (result == LP_TURN_TAKEN) turn->taken = true;
    pthread_cond_broadcast(&turn->changed); // somebody else may be first now
    pthread_mutex_unlock(&turn->lock);
    return result;
}

void lp_turn_give(struct lp_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

void lp_turn_close(struct lp_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    turn->closed = true;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

bool lp_turn_closed(struct lp_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    bool closed = turn->closed;
    pthread_mutex_unlock(&turn->lock);
    return closed;
}
