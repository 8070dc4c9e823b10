// Case, replacement and padding of strings.
#include "text/jinja_text.h"
#include "text/jinja_try.h"

static bool add_mapped(struct lp_jinja_run *run, struct lp_str s, size_t at, size_t bytes,
                       uint32_t cp, enum lp_jinja_case to) {
    uint32_t mapped[3];
    char text[4];
    if (cp == 0xfffd) return lp_jinja_build_add(run, (struct lp_str){s.data + at, bytes});
    size_t n = lp_jinja_map_case(cp, to, mapped);
    for (size_t i = 0; i < n; i++)
        TRY(lp_jinja_build_add(run, (struct lp_str){text, lp_jinja_utf8_put(mapped[i], text)}));
    return true;
}

static bool is_cased(uint32_t cp) {
    return lp_jinja_in_class(cp, LP_JINJA_CLASS_LOWER) ||
           lp_jinja_in_class(cp, LP_JINJA_CLASS_UPPER) ||
           lp_jinja_in_class(cp, LP_JINJA_CLASS_TITLE);
}

// A capital sigma at the end of a word becomes the final form of the small letter.
static bool is_final_sigma(struct lp_str s, size_t at, bool after_letter) {
    uint32_t cp;
    size_t next = at + lp_jinja_utf8_next(s, at, &cp);
    if (cp != 0x3a3 || !after_letter) return false;
    if (next >= s.len) return true;
    lp_jinja_utf8_next(s, next, &cp);
    return !is_cased(cp);
}

static enum lp_jinja_case target(enum lp_jinja_text_case mode, uint32_t cp, bool first,
                                 bool after_cased) {
    switch (mode) {
    case LP_JINJA_TEXT_UPPER:
        return LP_JINJA_TO_UPPER;
    case LP_JINJA_TEXT_CAPITALIZE:
        return first ? LP_JINJA_TO_TITLE : LP_JINJA_TO_LOWER;
    case LP_JINJA_TEXT_TITLE:
        return after_cased ? LP_JINJA_TO_LOWER : LP_JINJA_TO_TITLE;
    case LP_JINJA_TEXT_SWAP:
        return lp_jinja_in_class(cp, LP_JINJA_CLASS_LOWER) ? LP_JINJA_TO_UPPER : LP_JINJA_TO_LOWER;
    default:
        return LP_JINJA_TO_LOWER;
    }
}

bool lp_jinja_text_case(struct lp_jinja_run *run, lp_value text, enum lp_jinja_text_case mode,
                        lp_value *out) {
    struct lp_str s = text.s;
    size_t begin = lp_jinja_build_begin(run);
    bool after_cased = false;
    for (size_t at = 0; at < s.len;) {
        uint32_t cp;
        size_t n = lp_jinja_utf8_next(s, at, &cp);
        enum lp_jinja_case to = target(mode, cp, at == 0, after_cased);
        if (to == LP_JINJA_TO_LOWER && is_final_sigma(s, at, after_cased))
            TRY(lp_jinja_build_puts(run, "\xcf\x82"));
        else
            TRY(add_mapped(run, s, at, n, cp, to));
        after_cased = is_cased(cp);
        at += n;
    }
    TRY(lp_jinja_build_end(run, begin, out));
    out->sub = text.sub;
    return true;
}

static bool replace_between(struct lp_jinja_run *run, struct lp_str s, struct lp_str new,
                            int64_t most) {
    size_t at = 0;
    for (int64_t done = 0; most < 0 || done < most; done++) {
        uint32_t cp;
        TRY(lp_jinja_build_add(run, new));
        if (at >= s.len) return true;
        size_t n = lp_jinja_utf8_next(s, at, &cp);
        TRY(lp_jinja_build_add(run, (struct lp_str){s.data + at, n}));
        at += n;
    }
    return lp_jinja_build_add(run, (struct lp_str){s.data + at, s.len - at});
}

bool lp_jinja_text_replace(struct lp_jinja_run *run, struct lp_str s, struct lp_str old,
                           struct lp_str new, int64_t most, lp_value *out) {
    size_t begin = lp_jinja_build_begin(run);
    if (!old.len) {
        TRY(replace_between(run, s, new, most));
        return lp_jinja_build_end(run, begin, out);
    }
    size_t at = 0;
    for (int64_t done = 0; most < 0 || done < most; done++) {
        size_t hit = lp_jinja_str_find(s, old, at);
        if (hit == LP_JINJA_NOT_FOUND) break;
        TRY(lp_jinja_build_add(run, (struct lp_str){s.data + at, hit - at}));
        TRY(lp_jinja_build_add(run, new));
        at = hit + old.len;
    }
    TRY(lp_jinja_build_add(run, (struct lp_str){s.data + at, s.len - at}));
    return lp_jinja_build_end(run, begin, out);
}

bool lp_jinja_text_pad(struct lp_jinja_run *run, struct lp_str s, int64_t width, struct lp_str fill,
                       enum lp_jinja_sides sides, lp_value *out) {
    int64_t n = (int64_t)lp_jinja_str_count(s), pad = width > n ? width - n : 0;
    int64_t left = sides == LP_JINJA_LEFT ? pad : 0;
    if (sides == LP_JINJA_BOTH) left = pad / 2 + (pad & width & 1); // as CPython rounds
    TRY(lp_jinja_spend(run, (uint64_t)pad));
    size_t begin = lp_jinja_build_begin(run);
    for (int64_t i = 0; i < left; i++) TRY(lp_jinja_build_add(run, fill));
    TRY(lp_jinja_build_add(run, s));
    for (int64_t i = left; i < pad; i++) TRY(lp_jinja_build_add(run, fill));
    return lp_jinja_build_end(run, begin, out);
}
