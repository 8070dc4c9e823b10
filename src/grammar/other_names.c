// A tree of the names' characters. A text leaves it at the first character that continues no name,
// and is free from there:
//
//     names "ab", "ac":   '"' ( end | not a, any* | a ( end | not b c, any* | b ( not end ...
#include "grammar/other_names.h"

#include <stdlib.h>

#include "base/utf8_step.h"
#include "grammar/char_ranges.h"
#include "grammar/node_list.h"

// Names that agree in so many characters with a declared one are left out.
#define MAX_SHARED 100

struct names {
    struct lp_jg *jg;
    const struct lp_str *items;
};

static int by_bytes(const void *a, const void *b) {
    const struct lp_str *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static lp_gb_node rest_of_string(struct lp_jg *jg) {
    return LP_GB_SEQ(jg->b, lp_gb_repeat(jg->b, lp_jg_use(jg, LP_JG_CHAR), 0, -1),
                     lp_gb_word(jg->b, "\""));
}

// The character of a name at this byte, and how many bytes it has.
static uint32_t character_at(struct lp_str name, size_t at, size_t *n_bytes) {
    const unsigned char *c = (const unsigned char *)name.data + at;
    lp_utf8_step(c, name.len - at, n_bytes);
    return lp_utf8_code_point(c, *n_bytes);
}

static lp_gb_node one_char(struct lp_gb *b, uint32_t c) {
    return lp_jg_class(b, &(struct lp_gb_range){c, c}, 1);
}

static lp_gb_node branch(const struct names *names, size_t first, size_t last, size_t at,
                         int depth);

// The ways on through characters that continue names first to last; each is added to `taken`.
static void add_children(const struct names *names, size_t first, size_t last, size_t at, int depth,
                         struct lp_gb_list *ways, struct lp_char_ranges *taken) {
    struct lp_gb *b = names->jg->b;
    while (first < last && !lp_gb_failed(b)) {
        size_t n_bytes, end = first, other;
        uint32_t c = character_at(names->items[first], at, &n_bytes);
        while (end < last && character_at(names->items[end], at, &other) == c) end++;
        lp_char_ranges_add(taken, c, c);
        if (depth < MAX_SHARED) {
            lp_gb_node next = branch(names, first, end, at + n_bytes, depth + 1);
            lp_gb_list_add(b, ways, LP_GB_SEQ(b, one_char(b, c), next));
        }
        first = end;
    }
}

// What may follow when the bytes up to `at` are those of names first to last.
static lp_gb_node branch(const struct names *names, size_t first, size_t last, size_t at,
                         int depth) {
    struct lp_gb *b = names->jg->b;
    struct lp_gb_list ways = {0};
    struct lp_char_ranges others = {0};
    if (names->items[first].len == at)
        first++; // sorted: only the first can end here, and then it may not end
    else
        lp_gb_list_add(b, &ways, lp_gb_word(b, "\""));
    add_children(names, first, last, at, depth, &ways, &others);
    lp_char_ranges_complement(&others);
    if (others.failed) lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
    lp_gb_list_add(b, &ways,
                   LP_GB_SEQ(b, lp_jg_class(b, others.items, others.n), rest_of_string(names->jg)));
    lp_char_ranges_release(&others);
    return lp_gb_list_choice(b, &ways);
}

lp_gb_node lp_other_names(struct lp_jg *jg, struct lp_str *names, size_t n) {
    if (!n) return lp_jg_use(jg, LP_JG_STRING);
    qsort(names, n, sizeof *names, by_bytes);
    const struct names all = {jg, names};
    return LP_GB_SEQ(jg->b, lp_gb_word(jg->b, "\""), branch(&all, 0, n, 0, 0));
}
