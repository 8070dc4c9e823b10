// Of which arrays a tensor is made, in which type it is exact.
#include <stdio.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "hf/hf_plan_parts.h"

// ---- arrays

static void missing(struct lp_hf_planner *p, const char *name) {
    p->n_missing++;
    if (p->missing.failed) return;
    lp_bytes_printf(&p->missing, "%s%s", p->missing.len ? ", " : "", name);
}

static lp_status wrong_shape(struct lp_hf_planner *p, const struct lp_hf_matrix *m,
                             const char *text) {
    char got[96];
    if (m->n_mats > 1)
        snprintf(got, sizeof got, "[%lld, %lld, %lld]", (long long)m->n_mats, (long long)m->n_out,
                 (long long)m->n_in);
    else
        snprintf(got, sizeof got, "[%lld, %lld]", (long long)m->n_out, (long long)m->n_in);
    return lp_err_set(p->err, LP_STATUS_FORMAT,
                      "the array %s has the shape %s, expected %s by config.json; the two may not "
                      "belong together",
                      m->name, got, text);
}

// n_mats matrices [n_out, n_in].
static lp_status check_shape(struct lp_hf_planner *p, const struct lp_hf_matrix *m, uint64_t n_mats,
                             uint64_t n_out, uint64_t n_in) {
    char text[96];
    if ((uint64_t)m->n_mats == n_mats && (uint64_t)m->n_out == n_out && (uint64_t)m->n_in == n_in)
        return LP_OK;
    if (n_mats > 1)
        snprintf(text, sizeof text, "[%llu, %llu, %llu]", (unsigned long long)n_mats,
                 (unsigned long long)n_out, (unsigned long long)n_in);
    else
        snprintf(text, sizeof text, "[%llu, %llu]", (unsigned long long)n_out,
                 (unsigned long long)n_in);
    return wrong_shape(p, m, text);
}

// ---- types

// The type that holds a part exactly when it is cut up as the tensor asks for.
static lp_type part_type(const struct lp_hf_tensor *t, int64_t part) {
    const struct lp_hf_matrix *m = &t->parts[part];
    lp_type type = t->types[part];
    bool whole_rows = t->make != LP_HF_MAKE_K_B && (t->n_dims > 1 || t->make == LP_HF_MAKE_COPY);
    // V_B: the one factor of kv_b_proj would be none of each head.
    if (m->form == LP_HF_NVFP4 && t->make == LP_HF_MAKE_V_B) return LP_TYPE_F32;
    if (m->form == LP_HF_PLAIN || whole_rows) return type;
    return m->form == LP_HF_FP8 && type == LP_TYPE_BF16 ? type : LP_TYPE_F32;
}

// The type that holds all parts exactly: theirs if they agree.
static lp_status choose_type(struct lp_hf_planner *p, struct lp_hf_tensor *t) {
    bool same = true, nvfp4 = t->n_parts > 0;
    t->types = lp_alloc((size_t)t->n_parts, sizeof *t->types);
    if (!t->types) return lp_err_memory(p->err, (size_t)t->n_parts, "the plan of a checkpoint");
    for (int64_t i = 0; i < t->n_parts; i++) {
        t->types[i] = lp_hf_matrix_type(&t->parts[i], p->options->for_file);
        lp_type type = part_type(t, i);
        if (i == 0) t->source_type = type;
        same = same && type == t->source_type;
        nvfp4 = nvfp4 && t->parts[i].form == LP_HF_NVFP4 && type != LP_TYPE_F32;
    }
    if (t->keep_f32) same = nvfp4 = false;
    if (!same) t->source_type = nvfp4 ? LP_TYPE_BF16 : LP_TYPE_F32;
    t->has_factors = nvfp4;
    t->same_type = same && t->types[0] == t->source_type && t->make != LP_HF_MAKE_K_B &&
                   (t->n_dims > 1 || t->make == LP_HF_MAKE_COPY);
    return LP_OK;
}

// ---- tensors

static struct lp_hf_tensor tensor_for(const struct lp_expected *e, enum lp_hf_make make) {
    struct lp_hf_tensor t = {.n_dims = e->n_dims, .keep_f32 = e->vector, .make = make};
    snprintf(t.name, sizeof t.name, "%.63s", e->name);
    memcpy(t.ne, e->ne, sizeof t.ne);
    return t;
}

static lp_status append(struct lp_hf_planner *p, const struct lp_hf_tensor *t) {
    struct lp_hf_plan *plan = p->plan;
    if (!LP_GROW(plan->tensors, p->capacity, plan->n_tensors + 1)) {
        lp_free(t->parts);
        lp_free(t->types);
        return lp_err_memory(p->err, sizeof *t, "the plan of a checkpoint");
    }
    plan->tensors[plan->n_tensors++] = *t;
    return LP_OK;
}

// NAME.scale: [matrices], of what was appended last.
static lp_status append_factors(struct lp_hf_planner *p) {
    const struct lp_hf_tensor *of = &p->plan->tensors[p->plan->n_tensors - 1];
    struct lp_hf_tensor t = {.n_dims = 1, .keep_f32 = true, .make = LP_HF_MAKE_FACTORS};
    size_t n = strlen(of->name), suffix = strlen(".weight");
    snprintf(t.name, sizeof t.name, "%.*s.scale", (int)(n - suffix), of->name);
    t.n_parts = of->n_parts;
    t.parts = lp_alloc((size_t)of->n_parts, sizeof *t.parts);
    if (!t.parts) return lp_err_memory(p->err, sizeof *t.parts, "the plan of a checkpoint");
    memcpy(t.parts, of->parts, (size_t)of->n_parts * sizeof *t.parts);
    for (int d = 0; d < 4; d++) t.ne[d] = 1;
    t.ne[0] = 0;
    for (int64_t i = 0; i < t.n_parts; i++) t.ne[0] += (uint64_t)t.parts[i].n_mats;
    t.source_type = LP_TYPE_F32;
    return append(p, &t);
}

// Takes over the parts.
static lp_status add(struct lp_hf_planner *p, struct lp_hf_tensor *t, struct lp_hf_matrix *parts,
                     int64_t n_parts) {
    t->parts = parts;
    t->n_parts = n_parts;
    lp_status status = choose_type(p, t);
    if (status) {
        lp_free(parts);
        return status;
    }
    status = append(p, t);
    return status || !t->has_factors ? status : append_factors(p);
}

static lp_status add_one(struct lp_hf_planner *p, struct lp_hf_tensor *t,
                         const struct lp_hf_matrix *m) {
    struct lp_hf_matrix *parts = lp_alloc(1, sizeof *parts);
    if (!parts) return lp_err_memory(p->err, sizeof *parts, "the plan of a checkpoint");
    *parts = *m;
    return add(p, t, parts, 1);
}

// ---- stacks of experts

static void with_number(char out[LP_HF_NAME_BYTES], const char *pattern, int64_t number) {
    const char *star = strchr(pattern, '*');
    snprintf(out, LP_HF_NAME_BYTES, "%.*s%lld%s", (int)(star - pattern), pattern, (long long)number,
             star + 1);
}

// One array for each expert.
static lp_status add_experts(struct lp_hf_planner *p, const struct lp_expected *e,
                             const char *pattern) {
    int64_t n = (int64_t)e->ne[2], n_found = 0;
    char name[LP_HF_NAME_BYTES];
    struct lp_hf_matrix *parts = lp_alloc((size_t)n, sizeof *parts);
    if (!parts) return lp_err_memory(p->err, (size_t)n * sizeof *parts, "the plan of a checkpoint");
    lp_status status = LP_OK;
    for (int64_t i = 0; i < n && !status && p->n_missing < LP_HF_MOST_MISSING; i++) {
        bool found = false;
        with_number(name, pattern, i);
        status = lp_hf_arrays_take(p->arrays, name, &parts[i], &found, p->err);
        if (status) break;
        n_found += found;
        if (found)
            status = check_shape(p, &parts[i], 1, e->ne[1], e->ne[0]);
        else
            missing(p, name);
    }
    if (status || n_found < n) {
        lp_free(parts);
        return status;
    }
    struct lp_hf_tensor t = tensor_for(e, LP_HF_MAKE_COPY);
    return add(p, &t, parts, n);
}

// mlp.experts.gate_up_proj [E, 2 F, D], for one of gate and up; where `fused`, for both at once.
static lp_status add_gate_up(struct lp_hf_planner *p, const struct lp_expected *e,
                             const struct lp_hf_matrix *m) {
    bool is_up = e->slot == LP_SLOT_UP_EXPS;
    lp_status status = check_shape(p, m, e->ne[2], 2 * e->ne[1], e->ne[0]);
    if (status || (p->options->fused && is_up)) return status;
    struct lp_hf_tensor t = tensor_for(e, p->options->fused ? LP_HF_MAKE_COPY : LP_HF_MAKE_HALF);
    if (p->options->fused) {
        snprintf(t.name, sizeof t.name, "blk.%d.ffn_gate_up_exps.weight", e->block);
        t.ne[1] = 2 * e->ne[1];
    } else if (is_up)
        t.first_row = (int64_t)e->ne[1];
    return add_one(p, &t, m);
}

// All experts in one array: transformers 5.
static lp_status find_stack(struct lp_hf_planner *p, const struct lp_expected *e,
                            const char *pattern, struct lp_hf_matrix *m, bool *found) {
    char name[LP_HF_NAME_BYTES], gguf[LP_TENSOR_NAME_BYTES], both[LP_HF_NAME_BYTES];
    const char *star = strstr(pattern, ".*");
    if (e->slot == LP_SLOT_DOWN_EXPS) {
        snprintf(name, sizeof name, "%.*s%s", (int)(star - pattern), pattern, star + 2);
        return lp_hf_arrays_take(p->arrays, name, m, found, p->err);
    }
    snprintf(gguf, sizeof gguf, "blk.%d.ffn_gate_up_exps.weight", e->block);
    if (!lp_hf_name(p->h->arch, lp_str_from(gguf), both)) return LP_OK;
    lp_hf_arrays_name(p->arrays, both, name);
    return lp_hf_arrays_take(p->arrays, name, m, found, p->err);
}

static lp_status plan_experts(struct lp_hf_planner *p, const struct lp_expected *e,
                              const char *pattern) {
    struct lp_hf_matrix m;
    bool found = false;
    lp_status status = find_stack(p, e, pattern, &m, &found);
    if (status) return status;
    if (!found) return add_experts(p, e, pattern);
    if (e->slot != LP_SLOT_DOWN_EXPS) return add_gate_up(p, e, &m);
    status = check_shape(p, &m, e->ne[2], e->ne[1], e->ne[0]);
    struct lp_hf_tensor t = tensor_for(e, LP_HF_MAKE_COPY);
    return status ? status : add_one(p, &t, &m);
}

// ---- single arrays

static bool is_needed(const struct lp_hf_planner *p, const struct lp_expected *e) {
    switch (e->slot) {
    case LP_SLOT_OUTPUT:
        return !p->plan->model.tied;
    case LP_SLOT_ROUTER_BIAS:
        return p->h->gating == LP_GATING_SIGMOID;
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
    case LP_SLOT_KV_B:
        return true;
    default:
        return e->needed;
    }
}

static enum lp_hf_make make_of(const struct lp_hf_planner *p, const struct lp_expected *e) {
    bool rotary = e->slot == LP_SLOT_Q || e->slot == LP_SLOT_K || e->slot == LP_SLOT_Q_BIAS ||
                  e->slot == LP_SLOT_K_BIAS;
    if (e->slot == LP_SLOT_K_B) return LP_HF_MAKE_K_B;
    if (e->slot == LP_SLOT_V_B) return LP_HF_MAKE_V_B;
    // Adjacent pairs of the rotation, where the checkpoint has halves.
    return rotary && p->h->arch->attention == LP_ATTENTION_GQA &&
                   p->h->arch->rope_pairing == LP_ROPE_ADJACENT
               ? LP_HF_MAKE_PERMUTE
               : LP_HF_MAKE_COPY;
}

static lp_status plan_one(struct lp_hf_planner *p, const struct lp_expected *e, const char *name) {
    struct lp_hf_matrix m;
    bool found = false;
    lp_status status = lp_hf_arrays_take(p->arrays, name, &m, &found, p->err);
    if (status) return status;
    if (!found) {
        if (is_needed(p, e)) missing(p, name);
        return LP_OK;
    }
    struct lp_hf_tensor t = tensor_for(e, make_of(p, e));
    bool half = t.make == LP_HF_MAKE_K_B || t.make == LP_HF_MAKE_V_B;
    uint64_t n_out =
        half ? (uint64_t)p->h->n_heads * (uint64_t)(p->h->nope + p->h->v_dim) : e->ne[1];
    uint64_t n_in = half ? (uint64_t)p->h->latent : e->ne[0];
    status = check_shape(p, &m, 1, n_out, n_in);
    return status ? status : add_one(p, &t, &m);
}

static bool is_other_form(const struct lp_hf_planner *p, const struct lp_expected *e) {
    switch (e->slot) {
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
        return p->options->fused;
    case LP_SLOT_KV_B:
        return !p->options->fused;
    case LP_SLOT_GATE_UP_EXPS: // where gate and up are asked for
        return true;
    case LP_SLOT_OUTPUT:
        return p->plan->model.tied;
    default:
        return false;
    }
}

// The divisors that the config stands for.
static lp_status plan_rope_freqs(struct lp_hf_planner *p, const struct lp_expected *e) {
    const struct lp_hf_model *model = &p->plan->model;
    if (!model->rope_freqs || (uint64_t)model->n_rope_freqs != e->ne[0]) return LP_OK;
    struct lp_hf_tensor t = tensor_for(e, LP_HF_MAKE_VALUES);
    t.values = model->rope_freqs;
    return append(p, &t);
}

lp_status lp_hf_plan_tensor(struct lp_hf_planner *p, const struct lp_expected *e) {
    char hf[LP_HF_NAME_BYTES], name[LP_HF_NAME_BYTES];
    if (e->slot == LP_SLOT_ROPE_FREQS) return plan_rope_freqs(p, e);
    if (is_other_form(p, e)) return LP_OK;
    if (!lp_hf_name(p->h->arch, lp_str_from(e->name), hf)) return LP_OK; // of no checkpoint
    lp_hf_arrays_name(p->arrays, hf, name);
    if (strchr(name, '*')) return plan_experts(p, e, name);
    return plan_one(p, e, name);
}
