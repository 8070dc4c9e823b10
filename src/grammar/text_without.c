// Texts without tags. A beginning of a tag may stand in the text if it is not completed: what
// follows is the end, a '<' that begins anew, or a character that continues no tag.
//
//     text  = ( [^<] | begun* left )* begun*
//     begun = a proper beginning of a tag
//     left  = a beginning, then a character other than '<' that continues no tag from there
#include "grammar/text_without.h"

#include <stdlib.h>

#include "base/utf8_step.h"
#include "grammar/char_ranges.h"
#include "grammar/node_list.h"

struct tags { // those that agree in their first `at` bytes
    const struct lp_str *items;
    size_t n, at;
};

static int by_bytes(const void *a, const void *b) {
    const struct lp_str *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static size_t char_bytes(struct lp_str tag, size_t at) {
    size_t n;
    lp_utf8_step((const unsigned char *)tag.data + at, tag.len - at, &n);
    return n;
}

// The next group of tags, from `first` on, that also agree in one more character.
static struct tags child(const struct tags *tags, size_t first, struct lp_str *step) {
    const struct lp_str *one = &tags->items[first];
    *step = (struct lp_str){one->data + tags->at, char_bytes(*one, tags->at)};
    size_t n = 1;
    while (first + n < tags->n && one[n].len >= tags->at + step->len &&
           memcmp(one[n].data + tags->at, step->data, step->len) == 0)
        n++;
    return (struct tags){one, n, tags->at + step->len};
}

// A tag is complete: nothing may lead here.
static bool is_complete(const struct tags *tags) {
    return tags->items[0].len == tags->at;
}

static lp_gb_node begun_behind(struct lp_gb *b, const struct tags *tags) {
    struct lp_gb_list ways = {0};
    struct lp_str step;
    for (size_t i = 0; i < tags->n && !lp_gb_failed(b);) {
        struct tags next = child(tags, i, &step);
        i += next.n;
        if (is_complete(&next)) continue;
        lp_gb_node first = lp_gb_text(b, step);
        lp_gb_list_add(b, &ways, LP_GB_SEQ(b, first, begun_behind(b, &next)));
    }
    if (!ways.n) return lp_gb_empty(b);
    return lp_gb_optional(b, lp_gb_list_choice(b, &ways));
}

static lp_gb_node left_behind(struct lp_gb *b, const struct tags *tags) {
    struct lp_gb_list ways = {0};
    struct lp_char_ranges taken = {0};
    struct lp_str step;
    lp_char_ranges_add(&taken, '<', '<');
    for (size_t i = 0; i < tags->n && !lp_gb_failed(b);) {
        struct tags next = child(tags, i, &step);
        uint32_t c = lp_utf8_code_point((const unsigned char *)step.data, step.len);
        lp_char_ranges_add(&taken, c, c);
        i += next.n;
        if (is_complete(&next)) continue;
        lp_gb_node first = lp_gb_text(b, step);
        lp_gb_list_add(b, &ways, LP_GB_SEQ(b, first, left_behind(b, &next)));
    }
    if (taken.failed) lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
    lp_gb_list_add(b, &ways, lp_gb_class(b, taken.items, taken.n, true));
    lp_char_ranges_release(&taken);
    return lp_gb_list_choice(b, &ways);
}

lp_gb_node lp_text_without(struct lp_gb *b, struct lp_str *items, size_t n) {
    static const struct lp_gb_range open = {'<', '<'};
    qsort(items, n, sizeof *items, by_bytes);
    const struct tags tags = {items, n, 1};
    lp_gb_rule begun = lp_gb_declare(b, "begun tag");
    lp_gb_define(b, begun, LP_GB_SEQ(b, lp_gb_word(b, "<"), begun_behind(b, &tags)));
    lp_gb_node left = LP_GB_SEQ(b, lp_gb_repeat(b, lp_gb_use(b, begun), 0, -1), lp_gb_word(b, "<"),
                                left_behind(b, &tags));
    lp_gb_node piece = LP_GB_CHOICE(b, lp_gb_class(b, &open, 1, true), left);
    return LP_GB_SEQ(b, lp_gb_repeat(b, piece, 0, -1), lp_gb_repeat(b, lp_gb_use(b, begun), 0, -1));
}
