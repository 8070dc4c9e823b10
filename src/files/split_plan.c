#include "files/split_plan.h"

#include "base/checked.h"
#include "base/grow.h"
#include "files/split_keys.h"

// As many as limpid opens (gguf_parts.h); split.no and split.count hold 65535.
#define MOST_PARTS 4096

struct planner {
    struct lp_split_plan *plan;
    size_t capacity;
    const struct lp_split_limits *limits;
    uint64_t alignment;
    uint64_t head, data; // of the part that is being filled, unpadded and padded
};

static bool begin_part(struct planner *p, uint64_t first, uint64_t head) {
    struct lp_split_plan *plan = p->plan;
    if (!LP_GROW(plan->parts, p->capacity, plan->n_parts + 1)) return false;
    plan->parts[plan->n_parts++] = (struct lp_split_part){.first = first};
    p->head = head;
    p->data = 0;
    return true;
}

static bool fits(const struct planner *p, const struct lp_gguf_tensor *t) {
    const struct lp_split_part *part = &p->plan->parts[p->plan->n_parts - 1];
    bool first = p->plan->n_parts == 1;
    uint64_t data = p->data + lp_pad_u64(t->n_bytes, p->alignment);
    if (first && p->limits->no_tensor_first) return false;
    if (p->limits->max_tensors) return part->n_tensors < p->limits->max_tensors;
    if (p->limits->max_data) return part->n_tensors == 0 || data <= p->limits->max_data;
    if (!first && part->n_tensors == 0) return true;
    return lp_pad_u64(p->head + lp_split_descriptor_bytes(t), p->alignment) + data <=
           p->limits->max_bytes;
}

static lp_status too_many(const struct lp_split_limits *l, struct lp_err *err) {
    uint64_t limit = l->max_tensors ? l->max_tensors : l->max_data ? l->max_data : l->max_bytes;
    return lp_err_set(err, LP_STATUS_LIMIT,
                      "at most %llu %s in a part would make more than %d parts, which no set may "
                      "have; allow more",
                      (unsigned long long)limit, l->max_tensors ? "tensors" : "bytes", MOST_PARTS);
}

lp_status lp_split_plan_make(struct lp_split_plan *plan, const struct lp_gguf *gguf,
                             const struct lp_split_limits *limits, uint64_t head_first,
                             uint64_t head_later, struct lp_err *err) {
    struct planner p = {.plan = plan, .limits = limits, .alignment = lp_gguf_alignment(gguf, 0)};
    *plan = (struct lp_split_plan){0};
    bool ok = begin_part(&p, 0, head_first);
    for (uint64_t i = 0; ok && i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        if (!fits(&p, t)) {
            if (plan->n_parts == MOST_PARTS) {
                lp_split_plan_release(plan);
                return too_many(limits, err);
            }
            ok = begin_part(&p, i, head_later);
            if (!ok) break;
        }
        plan->parts[plan->n_parts - 1].n_tensors++;
        p.head += lp_split_descriptor_bytes(t);
        p.data += lp_pad_u64(t->n_bytes, p.alignment);
    }
    if (ok) return LP_OK;
    lp_split_plan_release(plan);
    return lp_err_memory(err, 0, "the plan of the parts");
}

void lp_split_plan_release(struct lp_split_plan *plan) {
    lp_free(plan->parts);
    *plan = (struct lp_split_plan){0};
}
