// Binds the tensors of a file to the rows of the binding table, and accounts for the rest.
#include "model/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/binding_table.h"

static void shape_text(char *out, size_t bytes, const int64_t *ne, int n) {
    size_t used = 0;
    for (int i = 0; i < n && used < bytes; i++)
        used +=
            (size_t)snprintf(out + used, bytes - used, i ? ", %lld" : "[%lld", (long long)ne[i]);
    if (used < bytes) snprintf(out + used, bytes - used, "]");
}

struct maker {
    const struct lp_hparams *h;
    const struct lp_gguf *gguf;
    bool (*supports)(const struct lp_device *, lp_type);
    const struct lp_device *device;
    struct lp_binding *out;
    bool *used; // [n_tensors]
    struct lp_err *err;
    struct misfits *all; // or NULL: the first misfit ends the binding
};

struct misfits {
    struct lp_misfit *list;
    size_t n, capacity;
};

// Something does not fit, as m->err says: the end, or one more of the list.
static lp_status misfit(struct maker *m, lp_status status, enum lp_misfit_kind kind, int32_t block,
                        const char *name) {
    struct misfits *all = m->all;
    if (!all || m->err->status == LP_STATUS_MEMORY) return status;
    if (all->n == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 16;
        struct lp_misfit *grown = lp_realloc(all->list, capacity, sizeof *grown);
        if (!grown) return lp_err_memory(m->err, capacity * sizeof *grown, "binding");
        all->list = grown;
        all->capacity = capacity;
    }
    struct lp_misfit *one = &all->list[all->n++];
    *one = (struct lp_misfit){.kind = kind, .block = block};
    snprintf(one->name, sizeof one->name, "%s", name);
    snprintf(one->text, sizeof one->text, "%.319s", m->err->text);
    return LP_OK;
}

static uint64_t tensor_index(const struct maker *m, const struct lp_gguf_tensor *tensor) {
    return (uint64_t)(tensor - lp_gguf_tensor_at(m->gguf, 0));
}

static lp_status check_shape(const struct maker *m, const struct lp_binding_row *row, int32_t block,
                             const char *name, const struct lp_gguf_tensor *t) {
    int64_t expected[4] = {1, 1, 1, 1}, got[4];
    int n = 0, n_got = (int)t->n_dims;
    bool same = true;
    for (int i = 0; i < 4; i++) {
        if (i < 3 && row->dims[i] != LP_DIM_NONE) {
            expected[i] = lp_binding_dim(m->h, block, row->dims[i]);
            n = i + 1;
        }
        got[i] = t->ne[i] > INT64_MAX ? INT64_MAX : (int64_t)t->ne[i];
        same = same && got[i] == expected[i];
    }
    if (same) return LP_OK;
    char a[96], b[96];
    shape_text(a, sizeof a, got, n_got);
    shape_text(b, sizeof b, expected, n);
    bool turned = n > 1 && got[0] == expected[1] && got[1] == expected[0] && got[2] == expected[2];
    return lp_err_set(m->err, LP_STATUS_FORMAT,
                      "tensor %s has shape %s, expected %s from the metadata; %s", name, a, b,
                      turned ? "it is stored transposed"
                             : "the file may be damaged or converted for another variant");
}

static lp_status check_type(const struct maker *m, const struct lp_binding_row *row,
                            const char *name, const struct lp_gguf_tensor *t) {
    const char *type = lp_type_info(t->type)->name;
    if (row->vector) {
        if (t->type == LP_TYPE_F32 || t->type == LP_TYPE_F16 || t->type == LP_TYPE_BF16)
            return LP_OK;
        return lp_err_set(m->err, LP_STATUS_FORMAT,
                          "tensor %s is of type %s, expected F32 (or F16, BF16)", name, type);
    }
    if (m->supports(m->device, t->type)) return LP_OK;
    return lp_err_set(m->err, LP_STATUS_UNSUPPORTED,
                      "tensor %s is of type %s, which has no matrix kernel in this backend", name,
                      type);
}

static bool is_experts(const struct lp_binding_row *row) {
    return row->dims[2] == LP_DIM_EXPERTS;
}

// The factors beside a bound matrix, if the file has any.
static lp_status bind_scale(struct maker *m, const struct lp_binding_row *row, int32_t block,
                            struct lp_bound *bound) {
    char name[LP_TENSOR_NAME_BYTES], shape[96];
    struct lp_binding_row scale = *row;
    scale.suffix = "scale";
    lp_binding_name(name, sizeof name, &scale, block);
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    if (row->vector || !t) return LP_OK; // one beside a vector has no owner
    int64_t n = row->dims[2] == LP_DIM_NONE ? 1 : lp_binding_dim(m->h, block, row->dims[2]);
    bool fits = t->ne[1] * t->ne[2] * t->ne[3] == 1 &&
                (t->ne[0] == (uint64_t)n || (t->ne[0] == 1 && !is_experts(row)));
    int64_t got[4] = {(int64_t)t->ne[0], (int64_t)t->ne[1], (int64_t)t->ne[2], (int64_t)t->ne[3]};
    shape_text(shape, sizeof shape, got, (int)t->n_dims);
    lp_status status = LP_OK;
    if (t->type != LP_TYPE_F32) {
        lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is of type %s, expected F32", name,
                   lp_type_info(t->type)->name);
        status = misfit(m, LP_STATUS_FORMAT, LP_MISFIT_TYPE, row->block ? block : -1, name);
    } else if (!fits) {
        lp_err_set(m->err, LP_STATUS_FORMAT,
                   "tensor %s has shape %s, expected [%lld]: one factor for each matrix of %s.%s",
                   name, shape, (long long)n, row->name, row->suffix);
        status = misfit(m, LP_STATUS_FORMAT, LP_MISFIT_SHAPE, row->block ? block : -1, name);
    }
    if (status) return status;
    m->used[tensor_index(m, t)] = true;
    m->out->n_bound++;
    bound->scale[row->slot] = t;
    return LP_OK;
}

static lp_status bind_row(struct maker *m, const struct lp_binding_row *row, int32_t block) {
    char name[LP_TENSOR_NAME_BYTES];
    int32_t number = row->block ? block : -1;
    lp_binding_name(name, sizeof name, row, block);
    enum lp_need need = row->need(m->h, block);
    if (need == LP_NEED_NO) return LP_OK;
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    if (!t && row->slot == LP_SLOT_ROUTER_BIAS) { // some old files leave the suffix out
        snprintf(name, sizeof name, "blk.%d.exp_probs_b", block);
        t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    }
    if (!t) {
        if (need == LP_NEED_OPTIONAL) return LP_OK;
        lp_status status = lp_err_set(m->err, LP_STATUS_FORMAT,
                                      "tensor %s is missing; the %s architecture needs it", name,
                                      m->h->arch->name);
        return misfit(m, status, LP_MISFIT_MISSING, number, name);
    }
    lp_status status = check_shape(m, row, block, name, t);
    if (status)
        status = misfit(m, status, LP_MISFIT_SHAPE, number, name);
    else if ((status = check_type(m, row, name, t)))
        status = misfit(m, status, LP_MISFIT_TYPE, number, name);
    if (status) return status;
    m->used[tensor_index(m, t)] = true;
    m->out->n_bound++;
    struct lp_bound *bound = row->block ? &m->out->blocks[block] : &m->out->model;
    bound->tensor[row->slot] = t;
    return bind_scale(m, row, block, bound);
}

static lp_status missing(struct maker *m, int32_t block, const char *name) {
    char full[LP_TENSOR_NAME_BYTES];
    snprintf(full, sizeof full, "blk.%d.%s", block, name);
    lp_status status =
        lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is missing; the %s architecture needs it",
                   full, m->h->arch->name);
    return misfit(m, status, LP_MISFIT_MISSING, block, full);
}

// Alternatives that the table cannot say: k_b and v_b or kv_b; gate and up or gate_up; routing
// biases.
static lp_status check_up(struct maker *m, int32_t b) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    if (m->h->arch->attention != LP_ATTENTION_MLA) return LP_OK;
    bool split = t[LP_SLOT_K_B] || t[LP_SLOT_V_B];
    if (split && !t[LP_SLOT_K_B] && !t[LP_SLOT_KV_B]) return missing(m, b, "attn_k_b.weight");
    if (split && !t[LP_SLOT_V_B] && !t[LP_SLOT_KV_B]) return missing(m, b, "attn_v_b.weight");
    if (split || t[LP_SLOT_KV_B]) return LP_OK;
    if (m->h->legacy_kv_b) return missing(m, b, "attn_kv_b.weight");
    lp_status status = missing(m, b, "attn_k_b.weight");
    return status ? status : missing(m, b, "attn_v_b.weight");
}

static lp_status check_experts(struct maker *m, int32_t b) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    lp_status status = LP_OK;
    if (!lp_hparams_is_moe(m->h, b)) return LP_OK;
    if (!t[LP_SLOT_GATE_UP_EXPS]) {
        if (!t[LP_SLOT_GATE_EXPS]) status = missing(m, b, "ffn_gate_exps.weight");
        if (!status && !t[LP_SLOT_UP_EXPS]) status = missing(m, b, "ffn_up_exps.weight");
    }
    if (status || m->h->gating != LP_GATING_SIGMOID || t[LP_SLOT_ROUTER_BIAS]) return status;
    // Sigmoid routers of the MLA families and of glm4moe choose with a bias; without it they choose
    // wrongly.
    char name[LP_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", b);
    status = lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is missing; a sigmoid router needs it",
                        name);
    return misfit(m, status, LP_MISFIT_MISSING, b, name);
}

static lp_status check_alternatives(struct maker *m, int32_t b) {
    lp_status status = check_up(m, b);
    return status ? status : check_experts(m, b);
}

static const char *bound_but_unused(struct maker *m, int32_t b, enum lp_slot slot) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    if (slot == LP_SLOT_KV_B && t[LP_SLOT_K_B] && t[LP_SLOT_V_B])
        return "attn_k_b and attn_v_b hold the same weights";
    if ((slot == LP_SLOT_K_B || slot == LP_SLOT_V_B) && t[LP_SLOT_KV_B] &&
        !(t[LP_SLOT_K_B] && t[LP_SLOT_V_B]))
        return "attn_kv_b holds both halves; its partner is missing";
    if ((slot == LP_SLOT_GATE_EXPS || slot == LP_SLOT_UP_EXPS) && t[LP_SLOT_GATE_UP_EXPS])
        return "ffn_gate_up_exps holds the same weights";
    return NULL;
}

static void drop_duplicates(struct maker *m, int32_t b) {
    static const enum lp_slot slots[] = {LP_SLOT_K_B, LP_SLOT_V_B, LP_SLOT_KV_B, LP_SLOT_GATE_EXPS,
                                         LP_SLOT_UP_EXPS};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const struct lp_gguf_tensor *t = m->out->blocks[b].tensor[slots[i]];
        const char *reason = t ? bound_but_unused(m, b, slots[i]) : NULL;
        if (!reason) continue;
        m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){t, reason};
        m->out->n_bound--;
        const struct lp_gguf_tensor **scale = &m->out->blocks[b].scale[slots[i]];
        if (!*scale) continue;
        m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){*scale, reason};
        m->out->n_bound--;
        *scale = NULL;
    }
    for (size_t i = 0; i < sizeof slots / sizeof slots[0];
         i++) // second pass: reasons look at the partners
        for (uint64_t k = 0; k < m->out->n_ignored; k++)
            if (m->out->ignored[k].tensor == m->out->blocks[b].tensor[slots[i]])
                m->out->blocks[b].tensor[slots[i]] = NULL;
}

// Why a tensor that nothing bound may stay unbound, or NULL.
static const char *reason_to_ignore(const struct maker *m, struct lp_str name) {
    int block = -1, consumed = 0;
    char text[64];
    if (name.len >= sizeof text) return NULL;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    if (name.len > 12 && strcmp(text + name.len - 12, ".input_scale") == 0)
        return "a factor for activations of 4 bits, which limpid does not use";
    if (sscanf(text, "blk.%d.%n", &block, &consumed) == 1 && consumed > 0 && block >= 0) {
        if (block == m->h->n_layers && block < m->h->n_blocks && m->out->mtp_reason)
            return m->out->mtp_reason;
        if (block > m->h->n_layers && block < m->h->n_blocks)
            return "next-token-prediction (MTP) layer behind the first one: not used";
        if (block < m->h->n_layers && strncmp(text + consumed, "indexer.", 8) == 0 &&
            m->h->top_k > 0 && m->h->index_role[block] == LP_INDEXER_SHARED)
            return "this layer shares the selection of an earlier one";
        if (strcmp(text + consumed, "attn_rot_embd.weight") == 0 ||
            strcmp(text + consumed, "attn_rot_embd") == 0)
            return "rotary frequencies are computed";
        if (block == m->h->n_layers && block < m->h->n_blocks)
            return "not part of an MTP layer as limpid knows it; drafts may suffer";
    }
    return NULL;
}

static lp_status unknown(struct maker *m, struct lp_str name) {
    char text[LP_TENSOR_NAME_BYTES];
    int32_t block = -1;
    static const char scale[] = ".scale";
    const size_t n = sizeof scale - 1;
    lp_status status = lp_err_set(m->err, LP_STATUS_FORMAT,
                                  "tensor %.*s is not part of the %s architecture as limpid knows "
                                  "it; the file may be of a variant that is not supported",
                                  LP_STR_ARGS(name), m->h->arch->name);
    if (name.len > n && memcmp(name.data + name.len - n, scale, n) == 0)
        lp_err_set(m->err, LP_STATUS_FORMAT,
                   "tensor %.*s holds factors, but there is no matrix %.*s.weight that they belong "
                   "to; the file may be damaged",
                   LP_STR_ARGS(name), (int)(name.len - n), name.data);
    snprintf(text, sizeof text, "%.*s", LP_STR_ARGS(name));
    if (sscanf(text, "blk.%d.", &block) != 1 || block < 0) block = -1;
    return misfit(m, status, LP_MISFIT_UNKNOWN, block, text);
}

static lp_status account_for_rest(struct maker *m) {
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < m->out->n_tensors && !status; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(m->gguf, i);
        if (m->used[i]) continue;
        const char *reason = reason_to_ignore(m, t->name);
        if (!reason)
            status = unknown(m, t->name);
        else
            m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){t, reason};
    }
    return status;
}

static lp_status bind_block(struct maker *m, int32_t b) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < LP_BINDING_ROWS && !status; i++)
        if (lp_binding_table[i].block) status = bind_row(m, &lp_binding_table[i], b);
    if (!status) status = check_alternatives(m, b);
    if (!status) drop_duplicates(m, b);
    return status;
}

// The first MTP layer, whole or not at all: what is wrong with it becomes the reason to ignore it.
static lp_status bind_mtp(struct maker *m) {
    struct lp_err why = {0}, *err = m->err;
    struct misfits *all = m->all;
    uint64_t n_bound = m->out->n_bound;
    if (m->h->n_nextn == 0) return LP_OK;
    m->err = &why;
    m->all = NULL;
    m->out->has_mtp = bind_block(m, m->h->n_layers) == LP_OK;
    m->all = all;
    m->err = err;
    if (m->out->has_mtp) return LP_OK;
    struct lp_bound *bound = &m->out->blocks[m->h->n_layers];
    for (int s = 0; s < LP_N_SLOTS; s++) {
        if (bound->tensor[s]) m->used[tensor_index(m, bound->tensor[s])] = false;
        if (bound->scale[s]) m->used[tensor_index(m, bound->scale[s])] = false;
    }
    *bound = (struct lp_bound){0};
    m->out->n_bound = n_bound;
    static const char prefix[] = "next-token-prediction (MTP) layer, not usable: ";
    size_t n_bytes = sizeof prefix + strlen(why.text);
    m->out->mtp_reason = lp_alloc(n_bytes, 1);
    if (!m->out->mtp_reason) return lp_err_memory(err, n_bytes, "binding");
    snprintf(m->out->mtp_reason, n_bytes, "%s%s", prefix, why.text);
    return LP_OK;
}

struct lp_mtp_size lp_binding_mtp_size(const struct lp_binding *binding,
                                       const struct lp_hparams *h) {
    struct lp_mtp_size size = {0};
    double bytes = 0, values = 0;
    for (int s = 0; s < LP_N_SLOTS && binding->has_mtp; s++) {
        const struct lp_gguf_tensor *t = binding->blocks[h->n_layers].tensor[s];
        const struct lp_gguf_tensor *scale = binding->blocks[h->n_layers].scale[s];
        if (!t) continue;
        size.n_bytes += t->n_bytes + (scale ? scale->n_bytes : 0);
        if (t->n_dims < 2) continue;
        bytes += (double)t->n_bytes;
        values += (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
    }
    if (values > 0) size.bits_per_weight = 8 * bytes / values;
    return size;
}

static void note_mtp(const struct lp_binding *binding, struct lp_hparams *h) {
    static const char name[] = "MTP layer";
    struct lp_fact *fact = NULL;
    if (h->n_nextn == 0) return;
    for (int32_t i = 0; i < h->n_facts && !fact; i++) // binding again says it anew
        if (strcmp(h->facts[i].name, name) == 0) fact = &h->facts[i];
    if (!fact && h->n_facts == LP_MAX_FACTS) return;
    if (!fact) fact = &h->facts[h->n_facts++];
    struct lp_mtp_size size = lp_binding_mtp_size(binding, h);
    snprintf(fact->name, sizeof fact->name, "%s", name);
    if (binding->has_mtp)
        snprintf(fact->value, sizeof fact->value, "block %d, %.1f MB, %.1f bits per weight",
                 h->n_layers, (double)size.n_bytes * 1e-6, size.bits_per_weight);
    else
        snprintf(fact->value, sizeof fact->value, "none that can be used");
    snprintf(fact->source, sizeof fact->source, "%s",
             binding->has_mtp ? "file" : "the tensors that are ignored say why");
}

static lp_status bind_all(struct maker *m) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < LP_BINDING_ROWS && !status; i++)
        if (!lp_binding_table[i].block) status = bind_row(m, &lp_binding_table[i], 0);
    for (int32_t b = 0; b < m->h->n_layers && !status; b++) status = bind_block(m, b);
    if (!status) status = bind_mtp(m);
    return status ? status : account_for_rest(m);
}

static lp_status make(struct lp_binding *out, const struct lp_hparams *h,
                      const struct lp_gguf *gguf,
                      bool (*supports)(const struct lp_device *, lp_type),
                      const struct lp_device *device, struct misfits *all, struct lp_err *err) {
    uint64_t n = lp_gguf_n_tensors(gguf);
    *out = (struct lp_binding){.n_tensors = n};
    if (n == 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the file holds no tensors; it is not a whole model");
    out->blocks = lp_alloc((size_t)h->n_layers + 1, sizeof *out->blocks);
    out->ignored = lp_alloc((size_t)n, sizeof *out->ignored);
    bool *used = lp_alloc((size_t)n, sizeof *used);
    lp_status status;
    if (!out->blocks || !out->ignored || !used)
        status = lp_err_memory(err, (size_t)n * sizeof *out->ignored, "binding");
    else {
        struct maker m = {h, gguf, supports, device, out, used, err, all};
        status = bind_all(&m);
    }
    lp_free(used);
    if (status) lp_binding_release(out);
    return status;
}

lp_status lp_binding_make(struct lp_binding *out, struct lp_hparams *h, const struct lp_gguf *gguf,
                          bool (*supports)(const struct lp_device *, lp_type),
                          const struct lp_device *device, struct lp_err *err) {
    lp_status status = make(out, h, gguf, supports, device, NULL, err);
    if (!status) note_mtp(out, h);
    return status;
}

lp_status lp_binding_misfits(struct lp_misfit **out, size_t *n, const struct lp_hparams *h,
                             const struct lp_gguf *gguf,
                             bool (*supports)(const struct lp_device *, lp_type),
                             const struct lp_device *device, struct lp_err *err) {
    struct lp_binding binding;
    struct misfits all = {0};
    struct lp_err text;
    lp_status status = make(&binding, h, gguf, supports, device, &all, &text);
    lp_binding_release(&binding);
    if (status) {
        lp_free(all.list);
        all = (struct misfits){0};
        lp_err_set(err, status, "%s", text.text);
    }
    *out = all.list;
    *n = all.n;
    return status;
}

void lp_binding_release(struct lp_binding *binding) {
    lp_free(binding->blocks);
    lp_free(binding->ignored);
    lp_free(binding->mtp_reason);
    *binding = (struct lp_binding){0};
}
