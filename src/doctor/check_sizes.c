// Sizes: what a key says, against what the shapes of all tensors say that it sizes. Where the
// tensors of every layer agree with each other and not with the key, the key is wrong; a single
// tensor that disagrees with the rest is left to the binding.
#include <stdio.h>
#include <string.h>

#include "doctor/accuse.h"
#include "doctor/file_checks.h"

#define UNKNOWN (-1)

struct sizes { // as the tensors say; UNKNOWN where there are none or they disagree
    int64_t embd, q_rank, latent, kv_row, heads, nope, v, experts, expert_ff, shared_ff, ff;
    int64_t index_heads, index_width, head_dim, q_rows, k_rows;
    int64_t n_blocks, n_nextn, first_nextn, first_moe;
};

struct look {
    struct lp_exam *exam;
    const struct lp_arch *arch;
    struct sizes s;
    int32_t n_checked, n_accused;
    char key[160];
};

// A size on which all tensors of this name agree, in every layer or outside them.
static int64_t agreed(const struct lp_gguf *gguf, const char *stem, int axis) {
    int64_t size = UNKNOWN;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        int32_t block = lp_exam_layer_of(t);
        char name[LP_TENSOR_NAME_BYTES];
        if (block >= 0)
            snprintf(name, sizeof name, "blk.%d.%s", block, stem);
        else
            snprintf(name, sizeof name, "%s", stem);
        if (!lp_str_is(t->name, name)) continue;
        if (t->ne[axis] > INT32_MAX) return UNKNOWN;
        if (size != UNKNOWN && size != (int64_t)t->ne[axis]) return UNKNOWN;
        size = (int64_t)t->ne[axis];
    }
    return size;
}

// Two views of one size, or UNKNOWN.
static int64_t both(int64_t a, int64_t b) {
    return a == b ? a : UNKNOWN;
}

static int64_t either(int64_t a, int64_t b) {
    return b == UNKNOWN ? a : a == UNKNOWN ? b : both(a, b);
}

static void count_blocks(struct look *l) {
    const struct lp_gguf *g = l->exam->gguf;
    l->s.first_moe = l->s.first_nextn = UNKNOWN;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(g); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(g, i);
        int32_t b = lp_exam_layer_of(t);
        char name[LP_TENSOR_NAME_BYTES];
        if (b < 0) continue;
        if (b + 1 > l->s.n_blocks) l->s.n_blocks = b + 1;
        snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", b);
        bool nextn = lp_str_is(t->name, name);
        l->s.n_nextn += nextn;
        if (nextn && (l->s.first_nextn == UNKNOWN || b < l->s.first_nextn)) l->s.first_nextn = b;
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", b);
        if (lp_str_is(t->name, name) && (l->s.first_moe == UNKNOWN || b < l->s.first_moe))
            l->s.first_moe = b;
    }
}

static void measure_mla(struct look *l) {
    const struct lp_gguf *g = l->exam->gguf;
    struct sizes *s = &l->s;
    s->q_rank = both(agreed(g, "attn_q_a_norm.weight", 0), agreed(g, "attn_q_b.weight", 0));
    s->latent = agreed(g, "attn_kv_a_norm.weight", 0);
    s->kv_row = agreed(g, "attn_kv_a_mqa.weight", 1);
    s->heads = both(agreed(g, "attn_k_b.weight", 2), agreed(g, "attn_v_b.weight", 2));
    // A k_b that lies the other way round is no evidence of sizes.
    bool upright = agreed(g, "attn_k_b.weight", 1) == s->latent &&
                   agreed(g, "attn_v_b.weight", 0) == s->latent;
    s->nope = upright ? agreed(g, "attn_k_b.weight", 0) : UNKNOWN;
    s->v = upright ? agreed(g, "attn_v_b.weight", 1) : UNKNOWN;
    if (s->latent == UNKNOWN || s->kv_row <= s->latent || s->heads < 1) {
        s->kv_row = s->nope = s->v = UNKNOWN;
        return;
    }
    int64_t q = either(agreed(g, "attn_q_b.weight", 1), agreed(g, "attn_q.weight", 1));
    if (s->nope != UNKNOWN && q != s->heads * (s->nope + s->kv_row - s->latent)) s->nope = UNKNOWN;
    if (s->v != UNKNOWN && agreed(g, "attn_output.weight", 0) != s->heads * s->v) s->v = UNKNOWN;
    if (s->nope == UNKNOWN && s->v == UNKNOWN) s->heads = UNKNOWN;
}

static void measure(struct look *l) {
    const struct lp_gguf *g = l->exam->gguf;
    struct sizes *s = &l->s;
    count_blocks(l);
    s->embd = both(agreed(g, "token_embd.weight", 0), agreed(g, "output_norm.weight", 0));
    s->experts = both(agreed(g, "ffn_gate_inp.weight", 1), agreed(g, "ffn_down_exps.weight", 2));
    s->expert_ff = agreed(g, "ffn_down_exps.weight", 0);
    int64_t up = agreed(g, "ffn_up_exps.weight", 1);
    if (up != UNKNOWN) s->expert_ff = both(s->expert_ff, up);
    s->shared_ff = both(agreed(g, "ffn_down_shexp.weight", 0), agreed(g, "ffn_up_shexp.weight", 1));
    s->ff = both(agreed(g, "ffn_down.weight", 0), agreed(g, "ffn_up.weight", 1));
    s->index_width =
        both(agreed(g, "indexer.k_norm.weight", 0), agreed(g, "indexer.attn_k.weight", 1));
    s->index_heads = agreed(g, "indexer.proj.weight", 1);
    if (agreed(g, "indexer.attn_q_b.weight", 1) != s->index_heads * s->index_width)
        s->index_heads = s->index_width = UNKNOWN;
    s->head_dim = agreed(g, "attn_q_norm.weight", 0);
    s->q_rows = agreed(g, "attn_q.weight", 1);
    s->k_rows = agreed(g, "attn_k.weight", 1);
    s->q_rank = s->latent = s->kv_row = s->heads = s->nope = s->v = UNKNOWN;
    if (l->arch->attention == LP_ATTENTION_MLA) measure_mla(l);
}

// ---- keys ----

static const char *full_key(struct look *l, const char *suffix) {
    snprintf(l->key, sizeof l->key, "%s.%s", l->arch->name, suffix);
    return l->key;
}

// A key that is one integer, or UNKNOWN.
static int64_t value_of(struct look *l, const char *suffix) {
    const struct lp_gguf_kv *kv = lp_gguf_find(l->exam->gguf, full_key(l, suffix));
    if (!kv || kv->type == LP_GGUF_ARRAY || !lp_gguf_is_integral(kv->type)) return UNKNOWN;
    return lp_gguf_int_at(kv, 0);
}

// Whether sums and products of two such values stay in range; others are no sizes of a model.
static bool is_small(int64_t value) {
    return value >= UNKNOWN && value <= INT32_MAX;
}

static void accuse(struct look *l, const char *suffix, const char *value, int64_t said,
                   const char *where) {
    l->n_accused++;
    lp_report_fault(l->exam->report, LP_STAGE_FILE, "sizes", -1, full_key(l, suffix),
                    "%s is %s, but %s: the metadata do not belong to these tensors. Set the key to "
                    "%lld or convert the model again.",
                    full_key(l, suffix), value, where, (long long)said);
}

// said: what the tensors say; where: which.
static void compare(struct look *l, const char *suffix, int64_t said, const char *tensors) {
    char text[32], where[200];
    int64_t value = value_of(l, suffix);
    if (said == UNKNOWN || value == UNKNOWN) return;
    l->n_checked++;
    if (value == said) return;
    snprintf(text, sizeof text, "%lld", (long long)value);
    snprintf(where, sizeof where, "%s of every layer say%s %lld", tensors,
             strstr(tensors, " and ") ? "" : "s", (long long)said);
    accuse(l, suffix, text, said, where);
}

// A key that is missing or 0 although the tensors are there.
static void compare_presence(struct look *l, const char *suffix, int64_t said, const char *stem) {
    char where[200];
    int64_t value = value_of(l, suffix);
    if (said == UNKNOWN || (value != UNKNOWN && value != 0)) return;
    const struct lp_gguf_kv *kv = lp_gguf_find(l->exam->gguf, full_key(l, suffix));
    if (kv && kv->type == LP_GGUF_ARRAY) return;
    snprintf(where, sizeof where, "the file has tensors blk.N.%s", stem);
    l->n_checked++;
    accuse(l, suffix, kv ? "0" : "missing", said, where);
}

static void compare_mla(struct look *l) {
    const struct sizes *s = &l->s;
    bool split = lp_gguf_find(l->exam->gguf, full_key(l, "attention.key_length_mla")) != NULL;
    int64_t rope = s->kv_row == UNKNOWN ? UNKNOWN : s->kv_row - s->latent;
    compare_presence(l, "attention.q_lora_rank", s->q_rank, "attn_q_a.weight");
    if (value_of(l, "attention.q_lora_rank") > 0)
        compare(l, "attention.q_lora_rank", s->q_rank, "attn_q_a_norm and attn_q_b");
    compare(l, "attention.kv_lora_rank", s->latent, "attn_kv_a_norm");
    compare(l, "rope.dimension_count", rope, "attn_kv_a_mqa less attn_kv_a_norm");
    compare(l, "attention.head_count", s->heads, "attn_k_b and attn_v_b");
    if (!split) return;
    compare(l, "attention.key_length_mla", s->nope == UNKNOWN ? UNKNOWN : s->nope + rope,
            "attn_k_b and attn_q_b");
    compare(l, "attention.value_length_mla", s->v, "attn_v_b and attn_output");
    compare(l, "attention.key_length", s->kv_row, "attn_kv_a_mqa");
    compare(l, "attention.value_length", s->latent, "attn_kv_a_norm");
}

static void compare_gqa(struct look *l) {
    const struct sizes *s = &l->s;
    int64_t heads = value_of(l, "attention.head_count"), head = s->head_dim;
    int64_t kv_heads = value_of(l, "attention.head_count_kv");
    int64_t key = value_of(l, "attention.key_length"), embd = value_of(l, "embedding_length");
    if (!is_small(heads) || !is_small(kv_heads) || !is_small(key) || !is_small(embd)) return;
    if (head != UNKNOWN) compare(l, "attention.key_length", head, "attn_q_norm");
    if (head == UNKNOWN) head = key;
    if (head == UNKNOWN && heads > 0 && embd > 0) head = embd / heads;
    if (head < 1 || s->q_rows == UNKNOWN || s->k_rows == UNKNOWN || heads < 1) return;
    bool q_fits = s->q_rows == heads * head, k_fits = kv_heads < 1 || s->k_rows == kv_heads * head;
    int64_t by_heads = s->q_rows % heads == 0 ? s->q_rows / heads : UNKNOWN;
    if (!q_fits && !k_fits && s->head_dim == UNKNOWN && key != UNKNOWN &&
        by_heads * kv_heads == s->k_rows)
        compare(l, "attention.key_length", by_heads, "attn_q and attn_k");
    else if (!q_fits && s->q_rows % head == 0)
        compare(l, "attention.head_count", s->q_rows / head, "attn_q");
    else if (!k_fits && s->k_rows % head == 0)
        compare(l, "attention.head_count_kv", s->k_rows / head, "attn_k");
}

static void compare_experts(struct look *l) {
    const struct sizes *s = &l->s;
    compare_presence(l, "expert_count", s->experts, "ffn_gate_inp.weight");
    if (value_of(l, "expert_count") <= 0) return;
    compare(l, "expert_count", s->experts, "ffn_gate_inp and ffn_down_exps");
    compare(l, "expert_feed_forward_length", s->expert_ff, "ffn_up_exps and ffn_down_exps");
    int64_t dense = value_of(l, "leading_dense_block_count");
    if (s->first_moe != UNKNOWN && (dense != UNKNOWN || s->first_moe > 0)) {
        char text[32], where[120];
        l->n_checked++;
        snprintf(text, sizeof text, dense == UNKNOWN ? "missing" : "%lld", (long long)dense);
        snprintf(where, sizeof where, "the first block with a router is blk.%lld",
                 (long long)s->first_moe);
        if ((dense == UNKNOWN ? 0 : dense) != s->first_moe)
            accuse(l, "leading_dense_block_count", text, s->first_moe, where);
    }
    if (s->shared_ff == UNKNOWN || s->expert_ff < 1) return;
    if (value_of(l, "expert_shared_feed_forward_length") != UNKNOWN) {
        compare(l, "expert_shared_feed_forward_length", s->shared_ff,
                "ffn_up_shexp and ffn_down_shexp");
        compare_presence(l, "expert_shared_count", 1, "ffn_up_shexp.weight");
        return;
    }
    if (s->shared_ff % s->expert_ff) return;
    compare_presence(l, "expert_shared_count", s->shared_ff / s->expert_ff, "ffn_up_shexp.weight");
    if (value_of(l, "expert_shared_count") > 0)
        compare(l, "expert_shared_count", s->shared_ff / s->expert_ff,
                "ffn_up_shexp and ffn_down_shexp");
}

static void compare_blocks(struct look *l) {
    const struct sizes *s = &l->s;
    char text[48], where[200];
    int64_t blocks = value_of(l, "block_count"), nextn = value_of(l, "nextn_predict_layers");
    if (blocks < 1 || s->n_blocks < 1 || !is_small(blocks) || !is_small(nextn)) return;
    l->n_checked += 2;
    if (nextn == UNKNOWN) nextn = 0;
    // An MTP layer that the metadata count may have been left out of the file.
    if (s->n_blocks > blocks || s->n_blocks < blocks - nextn) {
        snprintf(text, sizeof text, "%lld", (long long)blocks);
        snprintf(where, sizeof where, "the tensors are of blocks 0 to %lld",
                 (long long)s->n_blocks - 1);
        accuse(l, "block_count", text, s->n_blocks, where);
        return;
    }
    if (nextn > 0 && s->n_nextn > 0 && s->first_nextn != blocks - nextn && s->n_nextn == nextn) {
        snprintf(text, sizeof text, "%lld", (long long)blocks);
        snprintf(where, sizeof where, "the nextn tensors, which come last, are of block %lld",
                 (long long)s->first_nextn);
        accuse(l, "block_count", text, s->first_nextn + nextn, where);
        return;
    }
    snprintf(text, sizeof text, nextn ? "%lld" : "missing or 0", (long long)nextn);
    if (s->n_nextn > nextn && l->arch->may_have_nextn) {
        snprintf(where, sizeof where,
                 "%lld block%s nextn tensors: run as layers they ruin the output",
                 (long long)s->n_nextn, s->n_nextn == 1 ? " has" : "s have");
        accuse(l, "nextn_predict_layers", text, s->n_nextn, where);
    } else if (nextn > 0 && s->n_nextn == 0 && s->n_blocks > blocks - nextn) {
        snprintf(where, sizeof where,
                 "no block has nextn tensors: the last %lld would not be run although they are "
                 "ordinary layers",
                 (long long)nextn);
        accuse(l, "nextn_predict_layers", text, 0, where);
    }
}

// ---- vocabulary: keys and tensors that count the same ids ----

static void compare_vocab(struct look *l) {
    const struct lp_gguf *g = l->exam->gguf;
    const struct lp_gguf_kv *tokens = lp_gguf_find(g, "tokenizer.ggml.tokens");
    const struct lp_gguf_tensor *embd = lp_gguf_find_tensor(g, lp_str_from("token_embd.weight"));
    const struct lp_gguf_tensor *out = lp_gguf_find_tensor(g, lp_str_from("output.weight"));
    char key[160];
    snprintf(key, sizeof key, "%s", full_key(l, "vocab_size"));
    const struct {
        const char *what, *unit;
        int64_t n;
    } counts[] = {
        {"tokenizer.ggml.tokens", "tokens", tokens ? (int64_t)tokens->count : UNKNOWN},
        {key, "by its value", value_of(l, "vocab_size")},
        {"token_embd.weight", "rows", embd && embd->n_dims == 2 ? (int64_t)embd->ne[1] : UNKNOWN},
        {"output.weight", "rows", out && out->n_dims == 2 ? (int64_t)out->ne[1] : UNKNOWN},
    };
    int best = -1, n_best = 0, n_known = 0;
    for (int i = 0; i < 4; i++) {
        int n = 0;
        n_known += counts[i].n != UNKNOWN;
        for (int k = 0; k < 4; k++) n += counts[i].n != UNKNOWN && counts[k].n == counts[i].n;
        // of two views with equally many voices the tensors' is believed: the model was trained so
        if (n > n_best || (n == n_best && n && i == 2)) best = i, n_best = n;
    }
    l->n_checked += n_known > 1;
    for (int i = 0; i < 4 && best >= 0; i++) {
        if (counts[i].n == UNKNOWN || counts[i].n == counts[best].n) continue;
        l->n_accused++;
        lp_report_fault(
            l->exam->report, LP_STAGE_FILE, "sizes", -1, counts[i].what,
            "%s has %lld (%s), %s has %lld: %lld too %s. Ids would mean other tokens "
            "than in training, or none; convert the model again with its own tokenizer.",
            counts[i].what, (long long)counts[i].n, counts[i].unit, counts[best].what,
            (long long)counts[best].n,
            (long long)(counts[i].n > counts[best].n ? counts[i].n - counts[best].n
                                                     : counts[best].n - counts[i].n),
            counts[i].n > counts[best].n ? "many" : "few");
    }
}

int32_t lp_check_sizes(struct lp_exam *exam, const struct lp_arch *arch) {
    struct look l = {.exam = exam, .arch = arch};
    measure(&l);
    compare(&l, "embedding_length", l.s.embd, "token_embd and output_norm");
    compare(&l, "feed_forward_length", l.s.ff, "ffn_up and ffn_down");
    if (arch->attention == LP_ATTENTION_MLA)
        compare_mla(&l);
    else
        compare_gqa(&l);
    compare_experts(&l);
    if (arch->indexer == LP_INDEXER_ALWAYS) {
        compare(&l, "attention.indexer.head_count", l.s.index_heads, "indexer.proj and attn_q_b");
        compare(&l, "attention.indexer.key_length", l.s.index_width, "indexer.k_norm and attn_k");
    }
    compare_blocks(&l);
    compare_vocab(&l);
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "sizes", (uint64_t)(l.n_checked - l.n_accused),
                      (uint64_t)l.n_accused,
                      "sizes in the metadata against the shapes of the tensors");
    return l.n_accused;
}
