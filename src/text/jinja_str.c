// Code point work on UTF-8 strings; the tables it looks things up in are generated.
#include "text/jinja_str.h"

#include <string.h>

size_t lp_jinja_utf8_next(struct lp_str s, size_t at, uint32_t *cp) {
    const unsigned char *p = (const unsigned char *)s.data + at;
    size_t left = s.len - at;
    *cp = p[0];
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t value = p[0] & (0x7fu >> n);
    bool good = p[0] >= 0xc2 && p[0] <= 0xf4 && left >= n;
    for (size_t i = 1; good && i < n; i++) {
        good = (p[i] & 0xc0) == 0x80;
        value = value << 6 | (p[i] & 0x3f);
    }
    good = good && value >= least[n] && value <= 0x10ffff && !(value >= 0xd800 && value < 0xe000);
    *cp = good ? value : 0xfffd;
    return good ? n : 1;
}

size_t lp_jinja_utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)((0xf00 >> n & 0xff) | cp);
    return n;
}

size_t lp_jinja_str_count(struct lp_str s) {
    size_t n = 0;
    for (size_t at = 0; at < s.len; n++) {
        uint32_t cp;
        at += (unsigned char)s.data[at] < 0x80 ? 1 : lp_jinja_utf8_next(s, at, &cp);
    }
    return n;
}

size_t lp_jinja_str_offset(struct lp_str s, size_t n_chars) {
    size_t at = 0;
    for (size_t i = 0; i < n_chars && at < s.len; i++) {
        uint32_t cp;
        at += (unsigned char)s.data[at] < 0x80 ? 1 : lp_jinja_utf8_next(s, at, &cp);
    }
    return at;
}

size_t lp_jinja_str_find(struct lp_str s, struct lp_str what, size_t from) {
    if (from > s.len || what.len > s.len - from) return LP_JINJA_NOT_FOUND;
    if (!what.len) return from;
    const char *hit = memmem(s.data + from, s.len - from, what.data, what.len);
    return hit ? (size_t)(hit - s.data) : LP_JINJA_NOT_FOUND;
}

size_t lp_jinja_str_rfind(struct lp_str s, struct lp_str what) {
    if (what.len > s.len) return LP_JINJA_NOT_FOUND;
    if (!what.len) return s.len;
    for (size_t at = s.len - what.len + 1; at-- > 0;)
        if (s.data[at] == what.data[0] && !memcmp(s.data + at, what.data, what.len)) return at;
    return LP_JINJA_NOT_FOUND;
}

bool lp_jinja_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static bool stripped(struct lp_str chars, uint32_t cp, struct lp_str text) {
    if (!chars.data) return lp_jinja_is_space(cp);
    return lp_jinja_str_find(chars, text, 0) != LP_JINJA_NOT_FOUND;
}

static size_t last_start(struct lp_str s) {
    size_t at = s.len - 1;
    for (int i = 0; i < 3 && at > 0 && ((unsigned char)s.data[at] & 0xc0) == 0x80; i++) at--;
    uint32_t cp;
    return at + lp_jinja_utf8_next(s, at, &cp) == s.len ? at : s.len - 1;
}

struct lp_str lp_jinja_str_strip(struct lp_str s, struct lp_str chars, enum lp_jinja_sides sides) {
    uint32_t cp;
    while ((sides & LP_JINJA_LEFT) && s.len) {
        size_t n = lp_jinja_utf8_next(s, 0, &cp);
        if (!stripped(chars, cp, (struct lp_str){s.data, n})) break;
        s.data += n;
        s.len -= n;
    }
    while ((sides & LP_JINJA_RIGHT) && s.len) {
        size_t at = last_start(s);
        lp_jinja_utf8_next(s, at, &cp);
        if (!stripped(chars, cp, (struct lp_str){s.data + at, s.len - at})) break;
        s.len = at;
    }
    return s;
}

size_t lp_jinja_line_break(struct lp_str s, size_t at) {
    uint32_t cp;
    size_t n = lp_jinja_utf8_next(s, at, &cp);
    if (cp == '\r') return at + 1 < s.len && s.data[at + 1] == '\n' ? 2 : 1;
    bool breaks = (cp >= 10 && cp <= 12) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                  cp == 0x2028 || cp == 0x2029;
    return breaks ? n : 0;
}

static const struct lp_jinja_span *find_span(const struct lp_jinja_table *table, uint32_t cp) {
    size_t low = 0, high = table->n_spans;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (table->spans[mid].hi < cp)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == table->n_spans) return NULL;
    const struct lp_jinja_span *span = &table->spans[low];
    return cp >= span->lo && (cp - span->lo) % (uint32_t)span->step == 0 ? span : NULL;
}

bool lp_jinja_in_class(uint32_t cp, enum lp_jinja_class which) {
    return find_span(&lp_jinja_classes[which], cp) != NULL;
}

size_t lp_jinja_map_case(uint32_t cp, enum lp_jinja_case which, uint32_t out[3]) {
    const struct lp_jinja_table *table = &lp_jinja_cases[which];
    size_t low = 0, high = table->n_specials;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (table->specials[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < table->n_specials && table->specials[low].cp == cp) {
        size_t n = 0;
        while (n < 3 && table->specials[low].to[n]) {
            out[n] = table->specials[low].to[n];
            n++;
        }
        return n;
    }
    const struct lp_jinja_span *span = find_span(table, cp);
    out[0] = span ? (uint32_t)((int32_t)cp + span->delta) : cp;
    return 1;
}
