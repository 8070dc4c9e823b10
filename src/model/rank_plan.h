// What each of several ranks would hold of a model: from shapes alone, before anything is started.
#ifndef LP_MODEL_RANK_PLAN_H
#define LP_MODEL_RANK_PLAN_H

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
};

// Bytes of the weights that model->part has.
uint64_t lp_rank_weight_bytes(const struct lp_model *model);

// out: [n_ranks]. Errors: as of loading the model with these ranks (INVALID, UNSUPPORTED), MEMORY.
lp_status lp_rank_plan_make(struct lp_rank_plan *out, int32_t n_ranks, int32_t n_stages,
                            enum lp_shard_experts experts, enum lp_attention_parallel attention,
                            const struct lp_hparams *h, const struct lp_binding *binding,
                            struct lp_device *dev, lp_type kv_type, struct lp_err *err);

#endif
