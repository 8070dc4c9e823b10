// The memory plan of limpid inspect, as a whole and for each device that would hold a part of it.
#include "base/system_memory.h"
#include "cli/inspect_build.h"
#include "kv/kv_types.h"
#include "model/cost.h"

static uint64_t cache_bytes(const struct lp_inspect *in) {
    return (uint64_t)in->n_slots * in->experts.slot_bytes;
}

static json_t *device_json(struct lp_inspect_builder *b, uint64_t total) {
    const struct lp_plan *p = &b->in->plan;
    struct lp_device *dev = b->in->dev;
    size_t all = 0;
    uint64_t experts = lp_cost_expert_bytes(&b->in->h, &b->in->binding),
             available =
                 dev->backend->memory ? dev->backend->memory(dev, &all) : lp_memory_available();
    uint64_t others = p->mapped_bytes + p->memory_bytes + p->float32_bytes - experts;
    if (b->in->is_limited) {
        experts = cache_bytes(b->in);
        others = b->in->experts.dense_bytes + p->float32_bytes;
    }
    json_t *device = json_object();
    lp_inspect_put(b, device, "device", json_string(b->in->dev->backend->name));
    lp_inspect_put(b, device, "expert_bytes", lp_json_build_count(experts));
    lp_inspect_put(b, device, "other_weight_bytes", lp_json_build_count(others));
    lp_inspect_put(b, device, "kv_bytes", lp_json_build_count(p->kv_bytes));
    lp_inspect_put(b, device, "step_bytes", lp_json_build_count(p->step_bytes));
    lp_inspect_put(b, device, "total_bytes", lp_json_build_count(total));
    lp_inspect_put(b, device, "available_bytes", lp_json_build_count(available));
    lp_inspect_put(b, device, "fits", available ? json_boolean(total <= available) : json_null());
    return device;
}

json_t *lp_inspect_budget(struct lp_inspect_builder *b, const struct lp_expert_layout *experts,
                          int32_t n_slots) {
    json_t *budget = json_object();
    const bool all_fit = n_slots == experts->n_items; // they stay where they are mapped
    const uint64_t cache =
        all_fit ? experts->expert_bytes : (uint64_t)n_slots * experts->slot_bytes;
    lp_inspect_put(b, budget, "resident_bytes", lp_json_build_count(experts->dense_bytes));
    lp_inspect_put(b, budget, "cache_bytes", lp_json_build_count(cache));
    lp_inspect_put(b, budget, "cache_experts", json_integer(n_slots));
    lp_inspect_put(b, budget, "disk_bytes", lp_json_build_count(experts->expert_bytes));
    lp_inspect_put(b, budget, "disk_experts", json_integer(experts->n_items));
    lp_inspect_put(b, budget, "least_bytes", lp_json_build_count(lp_expert_layout_least(experts)));
    return budget;
}

json_t *lp_inspect_memory(struct lp_inspect_builder *b) {
    const struct lp_plan *p = &b->in->plan;
    uint64_t weights = p->mapped_bytes + p->memory_bytes + p->float32_bytes;
    if (b->in->is_limited)
        weights = b->in->experts.dense_bytes + cache_bytes(b->in) + p->float32_bytes;
    uint64_t total = weights + p->kv_bytes + p->step_bytes;
    json_t *object = json_object(), *devices = json_array();
    lp_inspect_put(b, object, "context", json_integer(p->context));
    lp_inspect_put(b, object, "sequences", json_integer(b->in->n_sequences));
    lp_inspect_put(b, object, "kv_tokens", json_integer(b->in->n_kv_tokens));
    lp_inspect_put(b, object, "chunk", json_integer(p->chunk));
    lp_inspect_put(b, object, "kv_type", json_string(lp_kv_type_name(b->in->kv_type)));
    const uint64_t packed = b->in->packed_bytes; // with the MTP layer, which the plan leaves out
    const uint64_t without_mtp =
        packed ? lp_cost_packed_bytes(&b->in->h, &b->in->binding, b->in->dev, false) : 0;
    const uint64_t mapped = without_mtp < p->mapped_bytes ? p->mapped_bytes - without_mtp : 0;
    lp_inspect_put(b, object, "on_device", json_boolean(!b->in->dev->backend->host_memory));
    lp_inspect_put(b, object, "mapped_bytes", lp_json_build_count(mapped));
    lp_inspect_put(b, object, "repacked_bytes", lp_json_build_count(packed));
    lp_inspect_put(b, object, "memory_bytes", lp_json_build_count(p->memory_bytes));
    lp_inspect_put(b, object, "float32_bytes", lp_json_build_count(p->float32_bytes));
    lp_inspect_put(b, object, "kv_bytes_per_token", lp_json_build_count(p->kv_token_bytes));
    lp_inspect_put(b, object, "kv_bytes", lp_json_build_count(p->kv_bytes));
    lp_inspect_put(b, object, "step_bytes", lp_json_build_count(p->step_bytes));
    lp_inspect_put(b, object, "total_bytes", lp_json_build_count(total));
    if (b->in->is_limited)
        lp_inspect_put(b, object, "budget", lp_inspect_budget(b, &b->in->experts, b->in->n_slots));
    lp_inspect_add(b, devices, device_json(b, total));
    lp_inspect_put(b, object, "devices", devices);
    return object;
}
