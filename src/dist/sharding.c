#include "dist/sharding.h"

#include <string.h>

struct lp_range lp_share(int64_t n, int64_t step, int32_t n_parts, int32_t part) {
    const int64_t units = (n + step - 1) / step;
    int64_t first = units * part / n_parts * step, end = units * (part + 1) / n_parts * step;
    if (first > n) first = n;
    if (end > n) end = n;
    return (struct lp_range){first, end - first};
}

// The number of a name among three; -1: it is none of them.
static int find_name(const char *const names[3], const char *name) {
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

bool lp_shard_experts_parse(const char *name, enum lp_shard_experts *out) {
    static const char *const names[] = {"auto", "split", "whole"};
    const int i = find_name(names, name);
    if (i >= 0) *out = (enum lp_shard_experts)i;
    return i >= 0;
}

bool lp_attention_parallel_parse(const char *name, enum lp_attention_parallel *out) {
    static const char *const names[] = {"auto", "heads", "data"};
    const int i = find_name(names, name);
    if (i >= 0) *out = (enum lp_attention_parallel)i;
    return i >= 0;
}

// The largest number of stages up to n that divides the ranks and has a layer for each.
static int32_t nearest(int32_t n, int32_t n_ranks, int32_t n_layers) {
    while (n > 1 && (n_ranks % n || n > n_layers)) n--;
    return n;
}

// A stage ends where the bytes so far come nearest to its share; each has a layer at least.
static struct lp_range layers_of_stage(int32_t stage, int32_t n_stages, const uint64_t *bytes,
                                       int32_t n_layers) {
    double total = 0, sum = 0;
    int64_t first = 0, end = 0;
    for (int32_t l = 0; l < n_layers; l++) total += (double)bytes[l];
    for (int32_t s = 0; s <= stage; s++) {
        const double wanted = total * (s + 1) / n_stages;
        const int64_t most = n_layers - (n_stages - 1 - s);
        first = end;
        while (end < most && (end == first || sum + (double)bytes[end] / 2 < wanted))
            sum += (double)bytes[end++];
    }
    if (stage == n_stages - 1) end = n_layers;
    return (struct lp_range){first, end - first};
}

lp_status lp_sharding_make(struct lp_sharding *out, int32_t rank, int32_t n_ranks, int32_t n_stages,
                           const uint64_t *layer_bytes, int32_t n_layers, struct lp_err *err) {
    if (n_stages == 0) n_stages = 1;
    if (n_stages < 0 || n_ranks % n_stages || n_stages > n_layers)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%d stages of a pipeline cannot be made of %d ranks and %d layers: each "
                          "has the same number of ranks and a layer at least; the nearest is %d",
                          n_stages, n_ranks, n_layers,
                          nearest(n_stages > n_ranks ? n_ranks : n_stages, n_ranks, n_layers));
    *out = (struct lp_sharding){.n_stages = n_stages, .n_tensor = n_ranks / n_stages};
    out->stage = rank / out->n_tensor;
    out->tensor = rank % out->n_tensor;
    out->layers = layers_of_stage(out->stage, n_stages, layer_bytes, n_layers);
    return LP_OK;
}

const char *lp_sharding_exchange(const struct lp_sharding *part) {
    if (part->n_tensor <= 1) return "none";
    if (!part->data_attention) return "sums";
    return part->sends_rows ? "experts" : "rows";
}
