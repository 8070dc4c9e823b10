// What each of several ranks would hold of a model: from shapes alone, before anything is started.
#ifndef LP_MODEL_RANK_PLAN_H
#define LP_MODEL_RANK_PLAN_H

#include "model/expert_layout.h"
#include "model/model.h"

struct lp_rank_plan { // of one rank
    struct lp_sharding part;
    struct lp_range heads;   // of the attention of its first layer
    struct lp_range experts; // that it has, whole or a part of each
    struct lp_range columns; // of each of them: of the expert's width
    struct lp_range vocab;   // rows of the output matrix; none before the last stage
    uint64_t weight_bytes;
    uint64_t
        kv_token_bytes; // of a token that is here: with part.data_attention each is on one rank alone
    // With a memory budget: its experts on disk, without their places (layers is NULL), and how many fit into memory
    struct lp_expert_layout disk;
    int32_t n_slots;
};

struct lp_rank_plan_request {
    int32_t n_ranks, n_stages; // n_stages: 0 = 1
    enum lp_shard_experts experts;
    enum lp_attention_parallel attention;
    lp_type kv_type;
    uint64_t budget_bytes; // memory for the weights of each rank; 0: no limit
};

// Bytes of the weights that model->part has.
uint64_t lp_rank_weight_bytes(const struct lp_model *model);

// out: [n_ranks]. Errors: as of loading the model with these ranks (INVALID, UNSUPPORTED), MEMORY.
lp_status lp_rank_plan_make(struct lp_rank_plan *out, const struct lp_rank_plan_request *request,
                            const struct lp_hparams *h, const struct lp_binding *binding,
                            const struct lp_gguf *gguf, struct lp_device *dev, struct lp_err *err);

#endif
