#include "doctor/report_view.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"

const struct lp_check *lp_report_view_check(const struct lp_report *r, const struct lp_fault *f) {
    for (size_t i = r->n_checks; i-- > 0;) {
        const struct lp_check *c = &r->checks[i];
        bool failed = c->outcome == LP_CHECK_FAULT || c->outcome == LP_CHECK_FOLLOWS;
        if (failed && c->stage == f->stage && strcmp(c->name, f->check) == 0) return c;
    }
    return NULL;
}

size_t lp_report_view_count(const struct lp_report *r, enum lp_outcome outcome) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_checks; i++) n += r->checks[i].outcome == outcome;
    return n;
}

size_t lp_report_view_faults(const struct lp_report *r, bool follows) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_faults; i++) n += r->faults[i].follows == follows;
    return n;
}

const char *lp_report_view_stage(enum lp_stage stage) {
    static const char *const subjects[LP_N_STAGES] = {
        [LP_STAGE_FILE] = "container, split set, names and metadata",
        [LP_STAGE_WEIGHTS] = "the values of the weights",
        [LP_STAGE_KERNELS] =
            "decoding and multiplying the file's own weights, against the definitions",
        [LP_STAGE_TOKENS] = "tokenizer and chat template",
        [LP_STAGE_LAYERS] = "every operation of every layer, against its definition",
        [LP_STAGE_ROUTES] = "the forms of attention, against each other",
        [LP_STAGE_CACHE] = "in chunks, cached, beside others and restored, against whole",
        [LP_STAGE_RANKS] = "the ranks, each on its own and against each other",
        [LP_STAGE_SPARSE] = "the keys that the indexer selects",
        [LP_STAGE_OUTPUT] = "what the model says",
        [LP_STAGE_AGAINST] = "another engine's dump",
    };
    return subjects[stage];
}

char *lp_report_view_clean(const char *text) {
    size_t n = text ? strlen(text) : 0;
    size_t bytes = n + 5; // never longer than the text, beside the room that clean keeps for "..."
    char *out = lp_alloc(bytes, 1);
    return out ? lp_clean_text(out, bytes, (struct lp_str){text, n}) : NULL;
}

static const char *entity(char c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

bool lp_report_view_escape_cut(struct lp_bytes *out, const char *text, size_t max_chars) {
    char *clean = lp_report_view_clean(text);
    if (!clean) return false;
    bool ok = true;
    size_t n_chars = 0;
    for (const char *p = clean; *p && ok; p++) {
        bool starts = ((unsigned char)*p & 0xc0) != 0x80;
        if (starts && n_chars++ == max_chars) {
            ok = lp_bytes_puts(out, "...");
            break;
        }
        const char *e = entity(*p);
        ok = e ? lp_bytes_puts(out, e) : lp_bytes_append(out, p, 1);
    }
    lp_free(clean);
    return ok;
}

bool lp_report_view_escape(struct lp_bytes *out, const char *text) {
    return lp_report_view_escape_cut(out, text, SIZE_MAX);
}
