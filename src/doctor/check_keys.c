// The keys themselves: those of another architecture, those that nobody reads; and the one that
// says which layers compute a selection, against the layers that can.
#include <stdio.h>
#include <string.h>

#include "doctor/accuse.h"
#include "doctor/file_checks.h"

// "deepseek2.rope.freq_base" -> the row of deepseek2 and "rope.freq_base"; NULL for other keys.
static const struct lp_arch *arch_of_key(struct lp_str key, struct lp_str *suffix) {
    const char *dot = key.len ? memchr(key.data, '.', key.len) : NULL;
    if (!dot) return NULL;
    size_t n = (size_t)(dot - key.data);
    *suffix = (struct lp_str){dot + 1, key.len - n - 1};
    return lp_arch_find((struct lp_str){key.data, n});
}

static bool in_place(const struct lp_gguf *gguf, const struct lp_arch *arch, struct lp_str suffix) {
    char own[192];
    snprintf(own, sizeof own, "%s.%.*s", arch->name, LP_STR_ARGS(suffix));
    return lp_gguf_find(gguf, own) != NULL;
}

int32_t lp_check_keys(struct lp_exam *exam, const struct lp_arch *arch) {
    const struct lp_gguf *g = exam->gguf;
    int32_t n_lost = 0;
    uint64_t n_own = 0, n_foreign = 0, n_unknown = 0;
    struct lp_str foreign = {0}, unknown = {0};
    for (uint64_t i = 0; i < lp_gguf_n_kv(g); i++) {
        struct lp_str key = lp_gguf_kv_at(g, i)->key, suffix = {0};
        char what[LP_WHAT_BYTES];
        const struct lp_arch *other = arch_of_key(key, &suffix);
        if (!other) continue;
        if (other == arch) {
            bool known = lp_hparams_knows_key(arch, key);
            n_own += known;
            if (!known && !n_unknown++) unknown = key;
            continue;
        }
        if (!lp_hparams_knows_key(other, key) || in_place(g, arch, suffix)) {
            if (!n_foreign++) foreign = key;
            continue;
        }
        n_lost++;
        snprintf(what, sizeof what, "%.*s", (int)(key.len < 127 ? key.len : 127), key.data);
        lp_report_fault(exam->report, LP_STAGE_FILE, "keys", -1, what,
                        "%.*s is a key of another architecture in a %s file, which has no %s.%.*s: "
                        "its value is not used. Rename the key or convert the model again.",
                        LP_STR_ARGS(key), arch->name, arch->name, LP_STR_ARGS(suffix));
    }
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "keys", n_own, (uint64_t)n_lost,
                      "keys of the architecture that limpid reads");
    if (n_foreign)
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "keys of others",
                      "%s keys are another architecture's and not used (the first is %.*s)",
                      lp_accuse_number(n_foreign).text, LP_STR_ARGS(foreign));
    if (n_unknown)
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "keys ignored",
                      "%s keys are not known and not used (the first is %.*s)",
                      lp_accuse_number(n_unknown).text, LP_STR_ARGS(unknown));
    return n_lost;
}

// ---- which layers have an indexer ----

static const struct lp_gguf_tensor *index_tensor(const struct lp_gguf *gguf, int32_t layer,
                                                 const char *name) {
    char full[LP_TENSOR_NAME_BYTES];
    snprintf(full, sizeof full, "blk.%d.indexer.%s", layer, name);
    return lp_gguf_find_tensor(gguf, lp_str_from(full));
}

static bool has_indexer(const struct lp_gguf *gguf, int32_t layer) {
    static const char *const names[] = {"attn_q_b.weight", "attn_k.weight", "k_norm.weight",
                                        "k_norm.bias", "proj.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (index_tensor(gguf, layer, names[i])) return true;
    return false;
}

static bool same_bytes(const struct lp_gguf_tensor *a, const struct lp_gguf_tensor *b) {
    return a && b && a->type == b->type && a->n_bytes == b->n_bytes &&
           memcmp(a->data, b->data, (size_t)a->n_bytes) == 0;
}

// Converters put copies of a neighbour's indexer into shared layers, so that engines that know no
// sharing take the file. One that is like no other was trained for its layer.
static bool is_copy(const struct lp_exam *exam, int32_t layer) {
    const struct lp_gguf_tensor *own = index_tensor(exam->gguf, layer, "k_norm.weight");
    for (int32_t l = 0; l < exam->h.n_blocks; l++)
        if (l != layer && same_bytes(own, index_tensor(exam->gguf, l, "k_norm.weight")))
            return true;
    return !own;
}

// Whether the layers that have tensors are those of the rule by which sharing is made.
static bool follows_a_rule(const struct lp_exam *exam) {
    const struct lp_hparams *h = &exam->h;
    for (int32_t freq = 2; freq <= 8; freq++)
        for (int32_t offset = 0; offset < h->n_layers; offset++) {
            bool same = true;
            for (int32_t l = 0; l < h->n_layers && same; l++) {
                int32_t step = l - offset + 1 > 0 ? l - offset + 1 : 0;
                same = has_indexer(exam->gguf, l) == (step % freq == 0);
            }
            if (same) return true;
        }
    return false;
}

bool lp_check_schedule(struct lp_exam *exam) {
    const struct lp_hparams *h = &exam->h;
    char key[160];
    int32_t n_bare = 0, n_own = 0, first_bare = -1, first_own = -1, n_full = 0;
    if (h->top_k == 0) return false;
    snprintf(key, sizeof key, "%s.attention.indexer.types", h->arch->name);
    for (int32_t l = 0; l < h->n_layers; l++) {
        bool full = h->index_role[l] == LP_INDEXER_FULL, there = has_indexer(exam->gguf, l);
        n_full += full;
        if (full && !there && !n_bare++) first_bare = l;
        if (!full && there && !is_copy(exam, l) && !n_own++) first_own = l;
    }
    bool said = lp_gguf_find(exam->gguf, key) != NULL;
    // One layer without its tensors, or a pattern that is none, is a loss: binding names them.
    bool too_full = said && n_bare > 0 && (n_bare > 1 || n_own > 0) && follows_a_rule(exam);
    bool too_shared = n_own > 0 && !n_bare;
    if (too_full || too_shared) {
        int32_t layer = too_full ? first_bare : first_own;
        lp_report_fault(
            exam->report, LP_STAGE_FILE, "indexer schedule", -1, key,
            too_full ? "%s says that layer %d%s computes its own selection, but the layer "
                       "has no indexer tensors: it shares an earlier layer's. Set the key to "
                       "the indexer_types of config.json."
                     : "%s says that layer %d%s shares an earlier layer's selection, but it "
                       "has an indexer of its own that is no copy: answers are worse beyond "
                       "top_k tokens. Set the key to the indexer_types of config.json.",
            key, layer, (too_full ? n_bare : n_own) > 1 ? " (and others)" : "");
    }
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "indexer schedule",
                      (uint64_t)(h->n_layers - (too_full ? n_bare : 0) - (too_shared ? n_own : 0)),
                      (uint64_t)((too_full ? n_bare : 0) + (too_shared ? n_own : 0)),
                      "layers whose indexer tensors agree with the schedule; %d of %d compute a "
                      "selection",
                      n_full, h->n_layers);
    return too_full || too_shared;
}
