// limpid inspect --ranks N: what each of N ranks would hold.
#include "cli/inspect_build.h"
#include "engine/engine.h"

static void put_range(struct lp_inspect_builder *b, json_t *object, const char *key,
                      struct lp_range range) {
    json_t *pair = json_array();
    lp_inspect_add(b, pair, json_integer(range.first));
    lp_inspect_add(b, pair, json_integer(range.first + range.n));
    lp_inspect_put(b, object, key, pair);
}

json_t *lp_inspect_ranks(struct lp_inspect_builder *b) {
    const struct lp_inspect *in = b->in;
    json_t *list = json_array();
    for (int64_t i = 0; i < in->n_ranks; i++) {
        const struct lp_rank_plan *p = &in->ranks[i];
        const int32_t n_parts = p->part.data_attention ? p->part.n_tensor : 1;
        const int64_t n_tokens = lp_engine_kv_share(in->n_kv_tokens, in->n_context, n_parts);
        json_t *rank = json_object();
        lp_inspect_put(b, rank, "rank", json_integer(i));
        lp_inspect_put(b, rank, "stage", json_integer(p->part.stage));
        lp_inspect_put(b, rank, "attention",
                       json_string(p->part.data_attention ? "data" : "heads"));
        lp_inspect_put(b, rank, "exchange", json_string(lp_sharding_exchange(&p->part)));
        put_range(b, rank, "layers", p->part.layers);
        put_range(b, rank, "heads", p->heads);
        put_range(b, rank, "experts", p->experts);
        put_range(b, rank, "expert_columns", p->columns);
        put_range(b, rank, "vocabulary", p->vocab);
        lp_inspect_put(b, rank, "weight_bytes", lp_json_build_count(p->weight_bytes));
        lp_inspect_put(b, rank, "kv_bytes_per_token", lp_json_build_count(p->kv_token_bytes));
        lp_inspect_put(b, rank, "kv_tokens", json_integer(n_tokens));
        lp_inspect_put(b, rank, "kv_bytes",
                       lp_json_build_count(p->kv_token_bytes * (uint64_t)n_tokens));
        if (in->budget_bytes)
            lp_inspect_put(b, rank, "budget", lp_inspect_budget(b, &p->disk, p->n_slots));
        lp_inspect_add(b, list, rank);
    }
    return list;
}
