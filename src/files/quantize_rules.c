#include "files/quantize_rules.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/grow.h"
#include "files/quantize_presets.h"

#define MAX_FILE_BYTES ((uint64_t)1 << 20)
#define MAX_RANGES 16
#define MAX_RULES 4096 // each is held against each tensor: these bound the time that takes
#define MAX_PATTERN_BYTES 256

struct lp_quant_rule {
    struct lp_str pattern;
    int32_t ranges[MAX_RANGES][2]; // of blocks, both ends included
    int n_ranges;                  // 0: every tensor, outside the blocks too
    lp_type type;
    int line;
    bool optional, is_exact, used;
};

bool lp_quant_glob(struct lp_str p, struct lp_str s) {
    size_t i = 0, k = 0, star = SIZE_MAX, from = 0;
    while (k < s.len) {
        if (i < p.len && p.data[i] == '*') { // takes nothing at first, one more after each miss
            star = i++;
            from = k;
        } else if (i < p.len && (p.data[i] == '?' || p.data[i] == s.data[k])) {
            i++;
            k++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            k = ++from;
        } else
            return false;
    }
    while (i < p.len && p.data[i] == '*') i++;
    return i == p.len;
}

// ---- reading

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static struct lp_str trim(struct lp_str s) {
    while (s.len && is_space(s.data[0])) s.data++, s.len--;
    while (s.len && is_space(s.data[s.len - 1])) s.len--;
    return s;
}

// The text before the first `c`, and what is behind it; false where there is none.
static bool split_at(struct lp_str s, char c, struct lp_str *before, struct lp_str *behind) {
    const char *at = s.len ? memchr(s.data, c, s.len) : NULL;
    if (!at) return false;
    *before = (struct lp_str){s.data, (size_t)(at - s.data)};
    *behind = (struct lp_str){at + 1, s.len - before->len - 1};
    return true;
}

static bool parse_number(struct lp_str s, int32_t *out) {
    *out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9' || i > 5) return false;
        *out = *out * 10 + (s.data[i] - '0');
    }
    return s.len > 0;
}

// "5", "5-7", "70-"
static bool parse_range(struct lp_str s, int32_t range[2]) {
    struct lp_str first, last;
    s = trim(s);
    if (!split_at(s, '-', &first, &last)) {
        if (!parse_number(s, &range[0])) return false;
        range[1] = range[0];
        return true;
    }
    first = trim(first);
    last = trim(last);
    range[1] = INT32_MAX;
    return parse_number(first, &range[0]) && (!last.len || parse_number(last, &range[1])) &&
           range[0] <= range[1];
}

static bool parse_layers(struct lp_quant_rule *rule, struct lp_str list) {
    struct lp_str one, rest = list;
    while (split_at(rest, ',', &one, &list)) {
        if (rule->n_ranges == MAX_RANGES - 1 || !parse_range(one, rule->ranges[rule->n_ranges++]))
            return false;
        rest = list;
    }
    return parse_range(rest, rule->ranges[rule->n_ranges++]);
}

static lp_status wrong(const struct lp_quant_rules *rules, int line, struct lp_err *err,
                       const char *what, struct lp_str text) {
    return lp_err_set(err, LP_STATUS_FORMAT, "%s:%d: %s '%.*s'", rules->path, line, what,
                      LP_STR_ARGS(text));
}

// "PATTERN layers LIST", or "PATTERN"
static lp_status parse_left(const struct lp_quant_rules *rules, struct lp_quant_rule *rule,
                            struct lp_str left, struct lp_err *err) {
    size_t n = 0;
    if (left.len > 1 && left.data[0] == '?' && is_space(left.data[1])) {
        rule->optional = true;
        left = trim((struct lp_str){left.data + 1, left.len - 1});
    }
    while (n < left.len && !is_space(left.data[n])) n++;
    rule->pattern = (struct lp_str){left.data, n};
    if (n > MAX_PATTERN_BYTES)
        return lp_err_set(err, LP_STATUS_LIMIT, "%s:%d: the pattern has %zu bytes, at most %d",
                          rules->path, rule->line, n, MAX_PATTERN_BYTES);
    rule->is_exact = !memchr(left.data, '*', n) && !memchr(left.data, '?', n);
    struct lp_str rest = trim((struct lp_str){left.data + n, left.len - n});
    if (!rest.len) return LP_OK;
    if (rest.len < 8 || memcmp(rest.data, "layers", 6) != 0 || !is_space(rest.data[6]))
        return wrong(rules, rule->line, err, "expected '=' or 'layers' behind the pattern, not",
                     rest);
    rest = trim((struct lp_str){rest.data + 6, rest.len - 6});
    return parse_layers(rule, rest)
               ? LP_OK
               : wrong(rules, rule->line, err, "layers are numbers as in 0-7,12,70-, not", rest);
}

static lp_status parse_line(struct lp_quant_rules *rules, struct lp_str text, int line,
                            struct lp_err *err) {
    struct lp_quant_rule rule = {.line = line};
    struct lp_str left, right;
    if (split_at(text, '#', &left, &right)) text = left;
    text = trim(text);
    if (!text.len) return LP_OK;
    if (!split_at(text, '=', &left, &right))
        return wrong(rules, line, err, "expected PATTERN [layers A-B] = TYPE, not", text);
    left = trim(left);
    right = trim(right);
    if (!left.len) return wrong(rules, line, err, "there is no pattern in", text);
    if (lp_str_is(right, "keep"))
        rule.type = LP_QUANT_KEEP;
    else if (!lp_quant_type_parse(right, &rule.type))
        return lp_err_set(err, LP_STATUS_FORMAT, "%s:%d: unknown type '%.*s'; types: %s, keep",
                          rules->path, line, LP_STR_ARGS(right), lp_quant_type_list());
    lp_status status = parse_left(rules, &rule, left, err);
    if (!status && rules->n == MAX_RULES)
        status = lp_err_set(err, LP_STATUS_LIMIT,
                            "%s:%d: there are more than %d rules; a pattern may name many tensors",
                            rules->path, line, MAX_RULES);
    if (status) return status;
    if (!LP_GROW(rules->rules, rules->capacity, rules->n + 1))
        return lp_err_memory(err, rules->n * sizeof rule, "the rules");
    rules->rules[rules->n++] = rule;
    return LP_OK;
}

lp_status lp_quant_rules_read(struct lp_quant_rules *out, const char *path, struct lp_err *err) {
    size_t len;
    *out = (struct lp_quant_rules){0};
    lp_status status = lp_file_read(path, MAX_FILE_BYTES, &out->text, &len, err);
    if (status) return status;
    if (!(out->path = lp_strdup(path))) return lp_err_memory(err, strlen(path), "a path");
    struct lp_str rest = {out->text, len}, line;
    for (int number = 1; !status && rest.len; number++) {
        struct lp_str behind = {"", 0};
        if (!split_at(rest, '\n', &line, &behind)) line = rest;
        status = parse_line(out, line, number, err);
        rest = behind;
    }
    return status;
}

void lp_quant_rules_release(struct lp_quant_rules *rules) {
    lp_free(rules->text);
    lp_free(rules->path);
    lp_free(rules->rules);
    *rules = (struct lp_quant_rules){0};
}

// ---- applying

static bool in_ranges(const struct lp_quant_rule *rule, int32_t block) {
    for (int i = 0; i < rule->n_ranges; i++)
        if (block >= rule->ranges[i][0] && block <= rule->ranges[i][1]) return true;
    return rule->n_ranges == 0;
}

static bool names(const struct lp_quant_rule *rule, struct lp_str name, int32_t block) {
    struct lp_str behind, number, rest = {NULL, 0};
    if (lp_quant_glob(rule->pattern, name)) return true;
    if (block < 0 || !split_at(name, '.', &number, &behind) ||
        !split_at(behind, '.', &number, &rest))
        return false;
    return lp_quant_glob(rule->pattern, rest);
}

lp_status lp_quant_rules_apply(struct lp_quant_rules *rules, struct lp_str name,
                               enum lp_quant_role role, bool *found, lp_type *type,
                               struct lp_err *err) {
    int32_t block = lp_quant_block_of(name);
    *found = false;
    for (size_t i = 0; i < rules->n && !*found; i++) {
        struct lp_quant_rule *rule = &rules->rules[i];
        if (role == LP_ROLE_SCALE || (role == LP_ROLE_KEEP && !rule->is_exact)) continue;
        if (!in_ranges(rule, block) || !names(rule, name, block)) continue;
        bool is_block =
            rule->type != LP_QUANT_KEEP && lp_type_info((uint32_t)rule->type)->block_values > 1;
        if (role == LP_ROLE_KEEP && is_block)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "%s:%d: %.*s is small and decides much; it can be F32, F16 or BF16, "
                              "not %s",
                              rules->path, rule->line, LP_STR_ARGS(name),
                              lp_type_info((uint32_t)rule->type)->name);
        rule->used = *found = true;
        *type = rule->type;
    }
    return LP_OK;
}

lp_status lp_quant_rules_check(const struct lp_quant_rules *rules, struct lp_err *err) {
    for (size_t i = 0; i < rules->n; i++) {
        const struct lp_quant_rule *rule = &rules->rules[i];
        if (!rule->used && !rule->optional)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "%s:%d: '%.*s' matches no matrix of the model that an earlier rule "
                              "leaves; put '? ' in front where that is as it should be",
                              rules->path, rule->line, LP_STR_ARGS(rule->pattern));
    }
    return LP_OK;
}
