// Which ranks sum on their devices themselves: agreed on when a model is joined, as all of a stage do it or none.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "model/ranks.h"

struct seat_offer { // the stage's first rank to all
    uint8_t id[LP_DEVICE_GROUP_ID_BYTES];
    int32_t is_there;
    char why_not[192];
};

static bool give_up(void *neighbours, double waited_s) {
    return lp_comm_give_up(neighbours, waited_s, "sums on the GPUs");
}

// A device that two of the ranks have; -1: none.
static int32_t find_shared(const char (*names)[LP_DEVICE_NAME_BYTES], int32_t n) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (memcmp(names[i], names[k], sizeof names[i]) == 0) return i;
    return -1;
}

// On the first rank. Its devices' names may be shared in a test (tests/e2e/ranks_gpu.py).
static void make_offer(struct lp_model *m, const char (*names)[LP_DEVICE_NAME_BYTES],
                       struct seat_offer *offer) {
    const struct lp_backend *backend = m->dev->backend;
    const int32_t shared = find_shared(names, lp_comm_size(m->neighbours));
    struct lp_err err;
    if (!backend->group_join)
        snprintf(offer->why_not, sizeof offer->why_not, "this build has no NCCL");
    else if (shared >= 0 && !LP_FAULT("ranks-share-gpu"))
        snprintf(offer->why_not, sizeof offer->why_not,
                 "rank %d has a GPU that another rank has too; start no more ranks than GPUs",
                 lp_comm_rank(m->ranks) + shared);
    else if (backend->group_id(m->dev, offer->id, &err))
        snprintf(offer->why_not, sizeof offer->why_not, "%.*s", (int)sizeof offer->why_not - 1,
                 err.text);
    else
        offer->is_there = true;
}

// Whether every rank has what this one may have, told to all. flags: [size], scratch of the first rank.
static bool all_have(struct lp_model *m, bool mine, int32_t *flags) {
    const int32_t size = lp_comm_size(m->neighbours), own = mine;
    int32_t all = true;
    lp_comm_collect(m->neighbours, &own, sizeof own, flags);
    for (int32_t i = 0; lp_comm_rank(m->neighbours) == 0 && i < size; i++) all = all && flags[i];
    lp_comm_share(m->neighbours, &all, sizeof all);
    return all;
}

lp_status lp_ranks_join_devices(struct lp_model *m, struct lp_err *err) {
    const struct lp_backend *backend = m->dev->backend;
    if (!m->neighbours || backend->host_memory || !backend->device_name) return LP_OK;
    const size_t size = (size_t)lp_comm_size(m->neighbours);
    char own[LP_DEVICE_NAME_BYTES], (*names)[LP_DEVICE_NAME_BYTES] = lp_alloc(size, sizeof *names);
    int32_t *flags = lp_alloc(size, sizeof *flags);
    struct seat_offer offer = {.is_there = false};
    struct lp_err why = {0};
    bool joined = false;
    // A rank without memory ends all: what the others wait for would not come.
    if (!names || !flags) {
        lp_err_memory(err, size * sizeof *names, "the names of devices");
        lp_comm_fail(m->ranks, err);
    }
    backend->device_name(m->dev, own);
    lp_comm_collect(m->neighbours, own, sizeof own, names);
    if (lp_comm_rank(m->neighbours) == 0 && names)
        make_offer(m, (const char(*)[LP_DEVICE_NAME_BYTES])names, &offer);
    lp_comm_share(m->neighbours, &offer, sizeof offer);
    if (offer.is_there && !lp_comm_failed(m->ranks, NULL)) {
        const struct lp_device_seat seat = {.id = offer.id,
                                            .rank = lp_comm_rank(m->neighbours),
                                            .size = (int32_t)size,
                                            .give_up = give_up,
                                            .user = m->neighbours};
        joined = !backend->group_join(&m->device_group, m->dev, &seat, &why);
        if (!all_have(m, joined, flags) && joined) {
            backend->group_leave(m->dev, m->device_group);
            m->device_group = NULL;
            snprintf(why.text, sizeof why.text, "another rank could not join");
        }
    }
    lp_free(names);
    lp_free(flags);
    if (!m->device_group && lp_comm_rank(m->neighbours) == 0 && !lp_comm_failed(m->ranks, NULL))
        lp_log(LP_LOG_WARN, "sums over GPUs go through their hosts' memory, which is slow: %s",
               offer.is_there ? why.text : offer.why_not);
    return lp_comm_failed(m->ranks, err);
}
