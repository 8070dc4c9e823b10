#include "hf/hf_regex.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8_step.h"

enum { MAX_DEPTH = 16, MAX_RANGES = 512, MAX_NAMES = 16, NAME_BYTES = 24 };

struct range {
    uint32_t low, high;
};

// The members of a class.
struct set {
    struct range ranges[MAX_RANGES];
    size_t n_ranges;
    char names[MAX_NAMES][NAME_BYTES]; // "s", "pL"; upper case first letter: the complement
    size_t n_names;
};

struct parser {
    const char *at, *end;
    struct lp_bytes *out;
    bool fold; // inside (?i: )
    int depth;
};

static bool alternation(struct parser *p);
static bool class(struct parser *p);

// ---- sets

static bool set_range(struct set *set, uint32_t low, uint32_t high) {
    if (set->n_ranges == MAX_RANGES || low > high || high > 0x10FFFF) return false;
    set->ranges[set->n_ranges++] = (struct range){low, high};
    return true;
}

static bool set_name(struct set *set, char letter, const char *name, size_t len) {
    if (set->n_names == MAX_NAMES || len + 2 > NAME_BYTES) return false;
    char *to = set->names[set->n_names++];
    to[0] = letter;
    memcpy(to + 1, name, len);
    to[len + 1] = 0;
    return true;
}

static int by_low(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return x->high < y->high ? -1 : x->high > y->high;
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

// Both cases of the ASCII letters in the set; other letters have none that are known here.
static bool set_fold(struct set *set) {
    for (size_t i = 0, n = set->n_ranges; i < n; i++) {
        struct range r = set->ranges[i];
        if (r.high >= 0x80) return false;
        for (uint32_t c = r.low; c <= r.high; c++)
            if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) &&
                !set_range(set, c ^ 32, c ^ 32))
                return false;
    }
    return true;
}

// "[^1-2,5;pL;s", without what follows in the brackets.
static bool set_print(struct parser *p, struct set *set, bool inverted) {
    if (p->fold && !set_fold(set)) return false;
    qsort(set->ranges, set->n_ranges, sizeof *set->ranges, by_low);
    qsort(set->names, set->n_names, sizeof *set->names, by_name);
    if (set->n_names == 1 && !set->n_ranges && set->names[0][0] < 'a') { // \S is [^\s]
        set->names[0][0] |= 32;
        inverted = !inverted;
    }
    lp_bytes_puts(p->out, inverted ? "[^" : "[");
    for (size_t i = 0; i < set->n_ranges;) {
        struct range r = set->ranges[i++];
        for (; i < set->n_ranges && set->ranges[i].low <= r.high + 1; i++)
            if (set->ranges[i].high > r.high) r.high = set->ranges[i].high;
        lp_bytes_printf(p->out, "%" PRIx32, r.low);
        if (r.high > r.low) lp_bytes_printf(p->out, "-%" PRIx32, r.high);
        lp_bytes_puts(p->out, ",");
    }
    for (size_t i = 0; i < set->n_names; i++)
        if (!i || strcmp(set->names[i], set->names[i - 1]))
            lp_bytes_printf(p->out, ";%s", set->names[i]);
    return !p->out->failed;
}

// ---- characters and escapes

static bool next_is(const struct parser *p, const char *text) {
    size_t len = strlen(text);
    return (size_t)(p->end - p->at) >= len && !memcmp(p->at, text, len);
}

static bool take(struct parser *p, const char *text) {
    if (!next_is(p, text)) return false;
    p->at += strlen(text);
    return true;
}

static bool character(struct parser *p, uint32_t *c) {
    size_t n;
    if (p->at == p->end) return false;
    const unsigned char *text = (const unsigned char *)p->at;
    if (lp_utf8_step(text, (size_t)(p->end - p->at), &n) != LP_UTF8_WHOLE) return false;
    *c = lp_utf8_code_point(text, n);
    p->at += n;
    return true;
}

// Hexadecimal digits: exactly `digits`, or as many as there are up to the brace (0).
static bool hex(struct parser *p, int digits, uint32_t *c) {
    *c = 0;
    for (int i = 0; digits ? i < digits : !take(p, "}"); i++) {
        if (p->at == p->end || i == 6) return false;
        char d = *p->at++, low = (char)(d | 32);
        if (d >= '0' && d <= '9')
            *c = *c * 16 + (uint32_t)(d - '0');
        else if (low >= 'a' && low <= 'f')
            *c = *c * 16 + (uint32_t)(low - 'a' + 10);
        else
            return false;
    }
    return true;
}

// Long names of properties, and the way they are kept.
static const char *const property_names[][2] = {
    {"Letter", "L"},
    {"Number", "N"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Mark", "M"},
    {"Script=Han", "Han"},
    {"sc=Han", "Han"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
};

// After \p or \P.
static bool property(struct parser *p, bool inverted, struct set *set) {
    const char *name = p->at;
    size_t len = 1;
    if (take(p, "{")) {
        inverted ^= take(p, "^");
        name = p->at;
        const char *close = memchr(name, '}', (size_t)(p->end - name));
        if (!close) return false;
        len = (size_t)(close - name);
        p->at = close + 1;
    } else if (p->at++ == p->end)
        return false;
    for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
        if (lp_str_is((struct lp_str){name, len}, property_names[i][0])) {
            name = property_names[i][1];
            len = strlen(name);
            break;
        }
    for (size_t i = 0; i < len; i++)
        if (!((name[i] | 32) >= 'a' && (name[i] | 32) <= 'z') && name[i] != '_') return false;
    return len && set_name(set, inverted ? 'P' : 'p', name, len);
}

// After a backslash: one character in *c, or members of the set (*is_character false).
static bool escape(struct parser *p, struct set *set, uint32_t *c, bool *is_character) {
    static const char controls[] = "rntfva", values[] = "\r\n\t\f\v\a";
    if (p->at == p->end) return false;
    *is_character = true;
    if (take(p, "x{")) return hex(p, 0, c);
    if (take(p, "x")) return hex(p, 2, c);
    if (take(p, "u")) return hex(p, 4, c);
    const char *control = strchr(controls, *p->at);
    if (control && *control) {
        *c = (unsigned char)values[control - controls];
        p->at++;
        return true;
    }
    char letter = *p->at;
    bool is_letter =
        ((letter | 32) >= 'a' && (letter | 32) <= 'z') || (letter >= '0' && letter <= '9');
    if (!is_letter) return character(p, c);
    *is_character = false;
    p->at++;
    if (letter == 'p' || letter == 'P') return property(p, letter == 'P', set);
    return strchr("sSdDwW", letter) && set_name(set, letter, "", 0);
}

static bool class_member(struct parser *p, struct set *set) {
    uint32_t low, high;
    bool is_character = true;
    if (take(p, "\\") ? !escape(p, set, &low, &is_character) : !character(p, &low)) return false;
    if (!is_character) return true;
    high = low;
    if (next_is(p, "-") && p->end - p->at > 1 && p->at[1] != ']') {
        p->at++;
        if (take(p, "\\") ? !escape(p, set, &high, &is_character) : !character(p, &high))
            return false;
        if (!is_character) return false;
    }
    return set_range(set, low, high);
}

// After the opening bracket; prints the whole class.
static bool class(struct parser *p) {
    if (++p->depth > MAX_DEPTH) return false;
    struct set set; // some 5 KB; filled as far as counted
    set.n_ranges = set.n_names = 0;
    bool inverted = take(p, "^"), first = true;
    for (; first || !next_is(p, "]"); first = false) {
        if (next_is(p, "&&")) break;
        if (next_is(p, "[")) return false; // unions and POSIX classes
        if (!class_member(p, &set)) return false;
    }
    if (!set_print(p, &set, inverted)) return false;
    while (take(p, "&&")) {
        lp_bytes_puts(p->out, "&");
        if (!take(p, "[") || !class(p)) return false;
    }
    lp_bytes_puts(p->out, "]");
    p->depth--;
    return take(p, "]");
}

// ---- terms

static bool one(struct parser *p, uint32_t c) {
    struct set set;
    set.n_ranges = set.n_names = 0;
    if (!set_range(&set, c, c) || !set_print(p, &set, false)) return false;
    return lp_bytes_puts(p->out, "]");
}

static bool escaped_term(struct parser *p) {
    struct set set;
    uint32_t c;
    bool is_character;
    set.n_ranges = set.n_names = 0;
    if (!escape(p, &set, &c, &is_character)) return false;
    if (is_character) return one(p, c);
    return set_print(p, &set, false) && lp_bytes_puts(p->out, "]");
}

// After the opening parenthesis. *plain: it only groups.
static bool group(struct parser *p, bool *plain) {
    static const char *const looks[] = {"?!", "?=", "?<!", "?<="};
    bool fold = p->fold;
    if (++p->depth > MAX_DEPTH) return false;
    lp_bytes_puts(p->out, "(");
    *plain = true;
    if (take(p, "?i:"))
        p->fold = true;
    else if (!take(p, "?:") && next_is(p, "?")) {
        *plain = false;
        size_t i = 0;
        while (i < sizeof looks / sizeof *looks && !take(p, looks[i])) i++;
        if (i == sizeof looks / sizeof *looks) return false;
        lp_bytes_puts(p->out, looks[i]);
    }
    if (!alternation(p) || !take(p, ")")) return false;
    p->depth--;
    p->fold = fold;
    return lp_bytes_puts(p->out, ")");
}

static bool number(struct parser *p, unsigned *n) {
    const char *start = p->at;
    for (*n = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9' && *n < 10000; p->at++)
        *n = *n * 10 + (unsigned)(*p->at - '0');
    return p->at > start && *n < 10000;
}

// Zero or one quantifier. *repeats: there is one.
static bool quantifier(struct parser *p, bool *repeats) {
    unsigned low, high;
    bool open = false;
    *repeats = true;
    if (take(p, "*"))
        lp_bytes_puts(p->out, "{0,}");
    else if (take(p, "+"))
        lp_bytes_puts(p->out, "{1,}");
    else if (take(p, "?"))
        lp_bytes_puts(p->out, "{0,1}");
    else if (take(p, "{")) {
        if (!number(p, &low)) return false;
        high = low;
        if (take(p, ",")) open = !number(p, &high);
        if (!take(p, "}")) return false;
        if (open)
            lp_bytes_printf(p->out, "{%u,}", low);
        else
            lp_bytes_printf(p->out, "{%u,%u}", low, high);
    } else {
        *repeats = false;
        return true;
    }
    if (take(p, "?"))
        lp_bytes_puts(p->out, "?");
    else if (take(p, "+"))
        lp_bytes_puts(p->out, "+");
    return !next_is(p, "*") && !next_is(p, "+") && !next_is(p, "?");
}

// *bare: a group that only groups, not repeated.
static bool term(struct parser *p, bool *bare) {
    uint32_t c;
    bool plain = false, repeats, done;
    if (take(p, "("))
        done = group(p, &plain);
    else if (take(p, "["))
        done = class(p);
    else if (take(p, "\\"))
        done = escaped_term(p);
    else if (next_is(p, "^") || next_is(p, "$") || next_is(p, "."))
        done = lp_bytes_append(p->out, p->at++, 1);
    else
        done = strchr("*+?{}]", *p->at) == NULL && character(p, &c) && one(p, c);
    if (!done || !quantifier(p, &repeats)) return false;
    *bare = plain && !repeats;
    return true;
}

static bool alternation(struct parser *p) {
    for (;;) {
        size_t start = p->out->len, n = 0;
        bool bare = false;
        for (; p->at < p->end && *p->at != '|' && *p->at != ')'; n++)
            if (!term(p, &bare)) return false;
        if (n == 1 && bare && !p->out->failed) { // its alternatives are ours
            p->out->len -= 2;
            memmove(p->out->data + start, p->out->data + start + 1, p->out->len - start);
            p->out->data[p->out->len] = 0;
        }
        if (!take(p, "|")) return !p->out->failed;
        lp_bytes_puts(p->out, "|");
    }
}

bool lp_hf_regex_spell(struct lp_str regex, struct lp_bytes *out) {
    if (!regex.len || regex.len > LP_HF_REGEX_BYTES) return false;
    struct parser p = {regex.data, regex.data + regex.len, out, false, 0};
    return alternation(&p) && p.at == p.end && !out->failed;
}

bool lp_hf_regex_spell_text(struct lp_str text, struct lp_bytes *out) {
    if (!text.len || text.len > LP_HF_REGEX_BYTES) return false;
    struct parser p = {text.data, text.data + text.len, out, false, 0};
    uint32_t c;
    while (p.at < p.end)
        if (!character(&p, &c) || !one(&p, c)) return false;
    return true;
}
