// Which ranks exchange numbers on their devices themselves: agreed on when a model is joined, as all of a group do it or
// none. There are two: of a stage, for its sums and rows, and of all ranks, for what stages give on.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "model/ranks.h"

struct group_of { // that is to be made
    struct lp_comm *comm;
    struct lp_device_group **out;
    const char *what; // its devices do
};

struct seat_offer { // the first rank to all
    uint8_t id[LP_DEVICE_GROUP_ID_BYTES];
    int32_t is_there;
    char why_not[192];
};

static bool give_up(void *comm, double waited_s) {
    return lp_comm_give_up(comm, waited_s, "an exchange of GPUs");
}

// A device that two of the ranks have; -1: none.
static int32_t find_shared(const char (*names)[LP_DEVICE_NAME_BYTES], int32_t n) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (memcmp(names[i], names[k], sizeof names[i]) == 0) return i;
    return -1;
}

// On the first rank. Its devices' names may be shared in a test (tests/e2e/ranks_gpu.py).
static void make_offer(struct lp_model *m, const struct group_of *group,
                       const char (*names)[LP_DEVICE_NAME_BYTES], struct seat_offer *offer) {
    const struct lp_backend *backend = m->dev->backend;
    const int32_t shared = find_shared(names, lp_comm_size(group->comm));
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
static bool all_have(struct lp_comm *comm, bool mine, int32_t *flags) {
    const int32_t size = lp_comm_size(comm), own = mine;
    int32_t all = true;
    lp_comm_collect(comm, &own, sizeof own, flags);
    for (int32_t i = 0; lp_comm_rank(comm) == 0 && i < size; i++) all = all && flags[i];
    lp_comm_share(comm, &all, sizeof all);
    return all;
}

static lp_status join(struct lp_model *m, const struct group_of *group, struct lp_err *err) {
    const struct lp_backend *backend = m->dev->backend;
    struct lp_comm *comm = group->comm;
    const size_t size = (size_t)lp_comm_size(comm);
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
    lp_comm_collect(comm, own, sizeof own, names);
    if (lp_comm_rank(comm) == 0 && names)
        make_offer(m, group, (const char(*)[LP_DEVICE_NAME_BYTES])names, &offer);
    lp_comm_share(comm, &offer, sizeof offer);
    if (offer.is_there && !lp_comm_failed(m->ranks, NULL)) {
        const struct lp_device_seat seat = {.id = offer.id,
                                            .rank = lp_comm_rank(comm),
                                            .size = (int32_t)size,
                                            .give_up = give_up,
                                            .user = comm};
        joined = !backend->group_join(group->out, m->dev, &seat, &why);
        if (!all_have(comm, joined, flags) && joined) {
            backend->group_leave(m->dev, *group->out);
            *group->out = NULL;
            snprintf(why.text, sizeof why.text, "another rank could not join");
        }
    }
    lp_free(names);
    lp_free(flags);
    if (!*group->out && lp_comm_rank(comm) == 0 && !lp_comm_failed(m->ranks, NULL))
        lp_log(LP_LOG_WARN, "%s through their hosts' memory, which is slow: %s", group->what,
               offer.is_there ? why.text : offer.why_not);
    return lp_comm_failed(m->ranks, err);
}

lp_status lp_ranks_join_devices(struct lp_model *m, struct lp_err *err) {
    const struct group_of of_stage = {m->neighbours, &m->device_group, "sums over GPUs go"},
                          of_all = {m->ranks, &m->stage_group,
                                    "what GPUs give the next stage goes"};
    lp_status status = LP_OK;
    if (m->dev->backend->host_memory || !m->dev->backend->device_name) return LP_OK;
    if (m->neighbours) status = join(m, &of_stage, err);
    if (!status && m->part.n_stages > 1) status = join(m, &of_all, err);
    return status;
}
