// Is the pre-tokenizer the one that the vocabulary was made with? Two witnesses. The special tokens
// tell whose vocabulary it is. And no token crosses what its pre-tokenizer splits, so a stated one
// that splits many tokens of the vocabulary, where another splits none, is not the one.
//
// Measured: tokens split by the right one, of all: GLM, Llama 3, GPT-2, StarCoder, Refact, SmolLM2,
// Command R, DeepSeek V3 and Coder 0; DeepSeek LLM 12 of 99,319 (no other splits fewer); Qwen2
// 1,673 of 150,067, where the best of the others splits 248, a seventh. By a wrong one: 0 to 24%.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/accuse.h"
#include "doctor/token_checks.h"
#include "text/tokenizer_parts.h"

#define MIN_SPLIT 20          // tokens
#define MIN_SHARE 0.002       // of the tokens
#define TIMES_BETTER 20       // another must be
#define MAX_TOKENS_READ 60000 // of a vocabulary; every nth of a larger one

struct count {
    uint32_t n_tokens, n_split;
    int32_t example; // id of a token that is split, one that people know if there is one
};

static lp_status count_split(const struct lp_token_exam *x, const struct lp_pretok_row *row,
                             struct count *out, struct lp_err *err) {
    struct lp_pretok *pretok = NULL;
    struct lp_pretok_work work = {0};
    struct lp_bytes text = {0};
    uint32_t n = x->tok->n_tokens, step = n / MAX_TOKENS_READ + 1;
    *out = (struct count){.example = -1};
    lp_status status = lp_pretok_new(&pretok, row, err);
    for (uint32_t id = 0; id < n && !status; id += step) {
        if (x->tok->types[id] != LP_TOKEN_NORMAL) continue;
        lp_bytes_clear(&text);
        if (!lp_tokenizer_piece(x->tok, (int32_t)id, false, &text)) {
            status = lp_err_memory(err, text.len, "a token's text");
            break;
        }
        struct lp_str piece = lp_bytes_view(&text);
        if (piece.len < 2 || !lp_token_is_utf8(piece)) continue;
        status = lp_pretok_split(pretok, &work, piece, err);
        out->n_tokens++;
        if (status || work.n < 2) continue;
        if (!out->n_split++ ||
            (out->n_split < 50 && piece.data[piece.len - 1] > ' ' &&
             piece.data[piece.len - 1] <= '9' && lp_tokenizer_token(x->tok, out->example).len > 4))
            out->example = (int32_t)id;
    }
    lp_bytes_release(&text);
    lp_pretok_work_release(&work);
    lp_pretok_free(pretok);
    return status;
}

static bool names(const char *list, struct lp_str name) {
    while (*list) {
        size_t n = strcspn(list, " ");
        if (lp_str_equal((struct lp_str){list, n}, name)) return true;
        list += n + (list[n] == ' ');
    }
    return false;
}

static struct lp_str first_name(const char *list) {
    return (struct lp_str){list, strcspn(list, " ")};
}

static void accuse(struct lp_token_exam *x, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void accuse(struct lp_token_exam *x, const char *format, ...) {
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    x->wrong_pre = true;
    lp_report_fault(x->exam->report, LP_STAGE_TOKENS, "pre-tokenizer", -1, "tokenizer.ggml.pre",
                    "%s", text);
}

// The row, of all, that splits the fewest tokens; of two the one that the family names.
static lp_status find_best(const struct lp_token_exam *x, struct count *best,
                           const struct lp_pretok_row **row, struct lp_err *err) {
    size_t n_rows;
    const struct lp_pretok_row *rows = lp_pretok_rows(&n_rows);
    const char *pres = x->family ? x->family->pres : NULL;
    lp_status status = LP_OK;
    *row = NULL;
    for (size_t i = 0; i < n_rows && !status; i++) {
        struct count count;
        bool own = pres && names(pres, first_name(rows[i].names));
        status = count_split(x, &rows[i], &count, err);
        if (status || (*row && count.n_split > best->n_split)) continue;
        if (*row && count.n_split == best->n_split && !own) continue;
        *best = count;
        *row = &rows[i];
    }
    return status;
}

static void judge(struct lp_token_exam *x, const struct count *own, const struct count *best,
                  const struct lp_pretok_row *best_row) {
    const char *pres = x->family ? x->family->pres : NULL;
    bool stated = x->pre.len > 0;
    bool by_split = own->n_split >= MIN_SPLIT && own->n_split >= MIN_SHARE * own->n_tokens &&
                    (double)best->n_split * TIMES_BETTER <= own->n_split;
    bool by_family = pres && !names(pres, stated ? x->pre : lp_str_from("default"));
    struct lp_str right = by_family ? first_name(pres) : first_name(best_row->names);
    char example[120] = "";
    if (own->example >= 0)
        snprintf(example, sizeof example,
                 ": %u of its tokens, such as '%.*s', can never be produced", own->n_split,
                 LP_STR_ARGS(lp_tokenizer_token(x->tok, own->example)));
    if (by_family)
        accuse(x,
               "tokenizer.ggml.pre is %s%.*s%s, but the vocabulary is that of %s, whose texts are "
               "split by \"%.*s\"%s. Set the key to it.",
               stated ? "\"" : "missing (\"default\"", LP_STR_ARGS(x->pre), stated ? "\"" : ")",
               x->family->name, LP_STR_ARGS(right), by_split ? example : "");
    else if (by_split)
        accuse(x,
               "tokenizer.ggml.pre is %s%.*s%s, which splits texts as this vocabulary does not%s; "
               "with \"%.*s\" %s can. Set the key to it.",
               stated ? "\"" : "missing (\"default\"", LP_STR_ARGS(x->pre), stated ? "\"" : ")",
               example, LP_STR_ARGS(right), best->n_split ? "nearly all" : "all");
}

lp_status lp_check_pretok(struct lp_token_exam *x, struct lp_err *err) {
    struct count own, best = {0};
    const struct lp_pretok_row *best_row, *row = lp_pretok_find(x->pre);
    char figure[96], bound[96];
    if (x->tok->is_spm) return LP_OK;
    lp_status status = count_split(x, row, &own, err);
    if (!status) status = find_best(x, &best, &best_row, err);
    if (status) return status;
    judge(x, &own, &best, best_row);
    snprintf(figure, sizeof figure, "%s of %s split", lp_accuse_number(own.n_split).text,
             lp_accuse_number(own.n_tokens).text);
    snprintf(bound, sizeof bound, "at most %d times the best (%s)", TIMES_BETTER,
             lp_accuse_number(best.n_split).text);
    struct lp_check_note note = {.stage = LP_STAGE_TOKENS,
                                 .outcome = x->wrong_pre ? LP_CHECK_FAULT : LP_CHECK_OK,
                                 .name = "pre-tokenizer",
                                 .figure = figure,
                                 .bound = bound,
                                 .value = own.n_split,
                                 .limit = (double)best.n_split * TIMES_BETTER};
    lp_report_check(
        x->exam->report, &note, "tokens that \"%.*s\" would split; the vocabulary is %s%s",
        LP_STR_ARGS(x->pre.len ? x->pre : lp_str_from("default")),
        x->family ? "that of " : "of no family that is known", x->family ? x->family->name : "");
    if (!x->pre.len && !x->wrong_pre)
        lp_report_say(x->exam->report, LP_STAGE_TOKENS, LP_CHECK_NOTE, "pre-tokenizer",
                      "tokenizer.ggml.pre is missing; texts are split by the rule \"default\"");
    return LP_OK;
}
