// From the names and shapes of a dump to what is compared.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "doctor/against.h"
#include "model/probe_shape.h"

struct maker {
    struct lp_claims *out;
    const struct lp_dump *dump;
    const struct lp_hparams *h;
    struct lp_err *err;
};

// Fills the refusal, once; returns false.
static bool refuse(struct maker *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct maker *m, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!m->out->refusal[0]) vsnprintf(m->out->refusal, sizeof m->out->refusal, format, args);
    va_end(args);
    return false;
}

// "4 x 12 x 64"
struct shape_text {
    char text[96];
};
static struct shape_text shape_of(const struct lp_dump_array *a) {
    struct shape_text out = {""};
    size_t n = 0;
    for (int32_t i = 0; i < a->n_dims && n < sizeof out.text - 24; i++)
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, "%s%lld", i ? " x " : "",
                              (long long)a->dims[i]);
    return out;
}

// ---- tokens ----

static lp_status read_tokens(struct maker *m, int64_t max_tokens) {
    struct lp_claims *c = m->out;
    const struct lp_dump_array *a = lp_dump_find(m->dump, "tokens");
    if (!a) a = lp_dump_find(m->dump, "input_ids");
    if (!a) {
        refuse(m, "the dump has no array 'tokens' (int32 or int64, the ids that were run)");
        return LP_OK;
    }
    int64_t last = a->n_dims ? a->dims[a->n_dims - 1] : 0;
    if (!lp_dump_is_int(a) || last < 1 || a->n_values != last) {
        refuse(m, "%s of the dump is %s [%s], expected one list of int32 or int64", a->name,
               a->type_name, shape_of(a).text);
        return LP_OK;
    }
    c->n_dump_tokens = last;
    c->n_tokens = last < max_tokens ? last : max_tokens;
    c->tokens = lp_alloc((size_t)c->n_tokens, sizeof *c->tokens);
    if (!c->tokens) return lp_err_memory(m->err, (size_t)c->n_tokens * 4, "the tokens of a dump");
    for (int64_t i = 0; i < c->n_tokens; i++) {
        int64_t id = lp_dump_int(a, i);
        if (id < 0 || id >= m->h->n_vocab) {
            refuse(m,
                   "token %lld of the dump has id %lld, but this model has ids 0 to %lld: the dump "
                   "is of another tokenizer",
                   (long long)i, (long long)id, (long long)m->h->n_vocab - 1);
            return LP_OK;
        }
        c->tokens[i] = (int32_t)id;
    }
    return LP_OK;
}

// ---- shapes ----

static bool is_ragged(const struct lp_hparams *h, enum lp_probe_point point, int32_t layer) {
    int64_t dims[2];
    int32_t n = lp_probe_dims(h, point, layer, dims);
    return dims[n - 1] == LP_PROBE_N_KEYS;
}

static int64_t expected_values(const struct lp_hparams *h, enum lp_probe_point point,
                               int32_t layer) {
    int64_t dims[2];
    return lp_probe_dims(h, point, layer, dims) == 2 ? dims[0] * dims[1] : dims[0];
}

// Values of one position, where the first dimension that is not 1 counts positions; or 0.
static int64_t values_per_position(const struct lp_dump_array *a, int64_t n_tokens) {
    int32_t i = 0;
    while (i + 1 < a->n_dims && a->dims[i] == 1 && n_tokens != 1) i++;
    return i < a->n_dims && a->dims[i] == n_tokens ? a->n_values / n_tokens : 0;
}

static bool check_ragged(struct maker *m, struct lp_claim *claim) {
    const struct lp_dump_array *a = claim->array;
    int64_t dims[2],
        heads = lp_probe_dims(m->h, claim->point, claim->layer, dims) == 2 ? dims[0] : 1;
    claim->keys = a->dims[a->n_dims - 1];
    bool selected = claim->point == LP_PROBE_INDEX_TOPK;
    if (claim->row_values == heads * claim->keys && (selected || claim->keys >= m->out->n_tokens))
        return true;
    return refuse(m, "%s of the dump has shape %s, expected %lld positions x %s%lld keys", a->name,
                  shape_of(a).text, (long long)m->out->n_dump_tokens, heads > 1 ? "heads x " : "",
                  (long long)m->out->n_dump_tokens);
}

// Whether the array has the positions and values that its point has here.
static bool check_shape(struct maker *m, struct lp_claim *claim) {
    const struct lp_dump_array *a = claim->array;
    int64_t n = m->out->n_dump_tokens;
    bool is_int = lp_probe_is_int(claim->point);
    if (is_int ? !lp_dump_is_int(a) : !lp_dump_is_float(a))
        return refuse(m, "%s of the dump has type %s, expected %s", a->name, a->type_name,
                      is_int ? "int32 or int64" : "float32, float16, bfloat16 or float64");
    if (!claim->row_values) claim->row_values = values_per_position(a, n);
    if (!claim->row_values)
        return refuse(m, "%s of the dump has shape %s, but tokens has %lld positions", a->name,
                      shape_of(a).text, (long long)n);
    if (is_ragged(m->h, claim->point, claim->layer)) return check_ragged(m, claim);
    int64_t expected = expected_values(m->h, claim->point, claim->layer);
    if (claim->row_values == expected) return true;
    if (claim->point == LP_PROBE_LOGITS)
        return refuse(m,
                      "logits of the dump are over %lld tokens, this model has %lld: another "
                      "vocabulary, or one without its padding",
                      (long long)claim->row_values, (long long)expected);
    return refuse(m, "%s of the dump has %lld values a position, this model has %lld (%s)", a->name,
                  (long long)claim->row_values, (long long)expected, lp_probe_shape(claim->point));
}

// ---- claims ----

static bool take_sums(struct lp_claim *claim, size_t n) {
    claim->diff = lp_alloc(n, sizeof(double));
    claim->norm = lp_alloc(n, sizeof(double));
    claim->added_diff = lp_alloc(n, sizeof(double));
    claim->added_norm = lp_alloc(n, sizeof(double));
    claim->reordered[0] = lp_alloc(n, sizeof(double));
    claim->reordered[1] = lp_alloc(n, sizeof(double));
    return claim->diff && claim->norm && claim->added_diff && claim->added_norm &&
           claim->reordered[0] && claim->reordered[1];
}

// The first position of a hidden state that holds NaN or infinity; -1: none.
static int64_t broken_position(const struct maker *m, const struct lp_claim *claim) {
    float values[256];
    for (int64_t t = 0; t < m->out->n_tokens; t++)
        for (int64_t i = 0, n; i < claim->row_values; i += n) {
            n = claim->row_values - i < 256 ? claim->row_values - i : 256;
            lp_dump_floats(claim->array, claim->first_value + t * claim->row_values + i, n, values);
            for (int64_t k = 0; k < n; k++)
                if (!isfinite(values[k])) return t;
        }
    return -1;
}

static lp_status add(struct maker *m, struct lp_claim claim, const char *name) {
    struct lp_claims *c = m->out;
    if (!check_shape(m, &claim)) return LP_OK;
    if (!LP_GROW(c->list, c->capacity, c->n + 1))
        return lp_err_memory(m->err, 2 * c->n * sizeof *c->list, "a dump's claims");
    snprintf(claim.name, sizeof claim.name, "%s", name);
    claim.in_stream = claim.point == LP_PROBE_EMBED || claim.point == LP_PROBE_LAYER_OUT;
    for (size_t i = 0; i < c->n; i++) // the same under two names counts once
        if (c->list[i].point == claim.point && c->list[i].layer == claim.layer)
            claim.in_stream = false;
    int64_t broken = claim.in_stream ? broken_position(m, &claim) : -1;
    if (broken >= 0) {
        refuse(m,
               "%s of the dump holds NaN or infinity at position %lld: the numbers of the engine "
               "that wrote it are broken there",
               name, (long long)broken);
        return LP_OK;
    }
    c->list[c->n++] = claim;
    return take_sums(&c->list[c->n - 1], (size_t)c->n_tokens)
               ? LP_OK
               : lp_err_memory(m->err, (size_t)c->n_tokens * 48, "a dump's claims");
}

// Hidden state i: the embedding, or what layer i - 1 leaves. The last one may be normed.
static lp_status add_hidden(struct maker *m, const struct lp_dump_array *a, int64_t i,
                            int64_t first_value, int64_t row_values) {
    char name[LP_CLAIM_NAME_BYTES];
    bool last = i == m->h->n_layers;
    struct lp_claim claim = {.point = i == 0 ? LP_PROBE_EMBED : LP_PROBE_LAYER_OUT,
                             .layer = (int32_t)i - 1,
                             .array = a,
                             .first_value = first_value,
                             .row_values = row_values,
                             .doubtful = last};
    snprintf(name, sizeof name, "hidden.%lld", (long long)i);
    if (i > m->h->n_layers) {
        refuse(m, "%s of the dump is behind layer %lld, but this model has %d layers", name,
               (long long)i - 1, m->h->n_layers);
        return LP_OK;
    }
    lp_status status = add(m, claim, name);
    if (status || !last) return status;
    claim.point = LP_PROBE_FINAL_NORM;
    claim.layer = -1;
    return add(m, claim, name);
}

// [layers + 1, positions, n_embd] in one array.
static lp_status add_stack(struct maker *m, const struct lp_dump_array *a) {
    int64_t n = m->h->n_layers + 1, row = m->h->n_embd, slice = m->out->n_dump_tokens * row;
    lp_status status = LP_OK;
    if (a->n_dims < 3 || a->dims[0] != n || a->n_values / n != slice ||
        a->dims[a->n_dims - 1] != row)
        refuse(m,
               "hidden of the dump has shape %s, expected %lld x %lld x %lld: the embeddings and "
               "what each layer leaves",
               shape_of(a).text, (long long)n, (long long)m->out->n_dump_tokens, (long long)row);
    for (int64_t i = 0; i < n && !status && !m->out->refusal[0]; i++)
        status = add_hidden(m, a, i, i * slice, row);
    return status;
}

// A number behind a prefix, and what follows it; NULL where the name has neither.
static const char *numbered(const char *name, const char *prefix, int64_t *number) {
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) return NULL;
    size_t digits = strspn(name + n, "0123456789");
    if (digits == 0 || digits > 9) return NULL;
    *number = strtoll(name + n, NULL, 10);
    return name + n + digits;
}

static lp_status ignore(struct maker *m, const struct lp_dump_array *a) {
    struct lp_claims *c = m->out;
    if (c->n_ignored++ < 12)
        lp_bytes_printf(&c->ignored, "%s%.60s", c->ignored.len ? ", " : "", a->name);
    return c->ignored.failed ? lp_err_memory(m->err, 0, "names of a dump") : LP_OK;
}

static lp_status add_array(struct maker *m, const struct lp_dump_array *a) {
    int64_t number = -1;
    enum lp_probe_point point;
    const char *end = numbered(a->name, "hidden.", &number);
    if (end && !*end) return add_hidden(m, a, number, 0, 0);
    if (strcmp(a->name, "hidden") == 0) return add_stack(m, a);
    if (strcmp(a->name, "tokens") == 0 || strcmp(a->name, "input_ids") == 0) return LP_OK;
    end = numbered(a->name, "layer", &number);
    const char *op = end && *end == '.' ? end + 1 : a->name;
    if (!lp_probe_find(op, &point) || lp_probe_in_layer(point) != (op != a->name))
        return ignore(m, a);
    int32_t layer = op == a->name ? -1 : (int32_t)number;
    bool is_there = layer < m->h->n_layers && (layer < 0 || lp_probe_layer_has(m->h, point, layer));
    if (!is_there) {
        refuse(m, "%s of the dump: %s", a->name,
               layer < m->h->n_layers ? "this model has no such value on that layer"
                                      : "this model has fewer layers");
        return LP_OK;
    }
    return add(m, (struct lp_claim){.point = point, .layer = layer, .array = a}, a->name);
}

// By layer, then by operation; what is behind the layers comes last.
static int order_of(const struct lp_claim *c) {
    int32_t layer = c->point == LP_PROBE_EMBED    ? -1
                    : lp_probe_in_layer(c->point) ? c->layer
                                                  : 1 << 20;
    return layer * 64 + (int)c->point;
}
static int by_order(const void *a, const void *b) {
    int x = order_of(a), y = order_of(b);
    return x < y ? -1 : x > y;
}

lp_status lp_claims_make(struct lp_claims *out, const struct lp_dump *dump,
                         const struct lp_model *model, int64_t max_tokens, struct lp_err *err) {
    struct maker m = {out, dump, &model->h, err};
    *out = (struct lp_claims){0};
    lp_status status = read_tokens(&m, max_tokens);
    for (size_t i = 0; i < lp_dump_count(dump) && !status && !out->refusal[0]; i++)
        status = add_array(&m, lp_dump_at(dump, i));
    if (!status && !out->refusal[0] && out->n == 0)
        refuse(&m,
               "the dump has nothing to compare: expected hidden.0 ... hidden.%d, logits, or "
               "probes such as layer0.attn.q",
               model->h.n_layers);
    if (out->n) qsort(out->list, out->n, sizeof *out->list, by_order);
    return status;
}

void lp_claims_release(struct lp_claims *c) {
    for (size_t i = 0; i < c->n; i++) {
        struct lp_claim *claim = &c->list[i];
        lp_free(claim->diff);
        lp_free(claim->norm);
        lp_free(claim->added_diff);
        lp_free(claim->added_norm);
        lp_free(claim->reordered[0]);
        lp_free(claim->reordered[1]);
    }
    lp_free(c->list);
    lp_free(c->tokens);
    lp_bytes_release(&c->ignored);
    *c = (struct lp_claims){0};
}
