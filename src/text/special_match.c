// Literal search for special tokens in raw text: leftmost match, the longest of those that begin
// there. The texts are sorted, so the candidates for the bytes seen so far are one range of the
// list; each further byte narrows the range by binary search. Cost per position: the depth of the
// match times log(candidates), and one table look-up where no special token begins.
#include "text/tokenizer_parts.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const struct lp_special *x = a, *y = b;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = memcmp(x->text.data, y->text.data, n); // no text is empty
    if (order) return order;
    return (x->text.len > y->text.len) - (x->text.len < y->text.len);
}

static unsigned char byte_at(struct lp_str text, size_t at) {
    return (unsigned char)text.data[at];
}

void lp_specials_index(struct lp_specials *specials) {
    if (specials->n) qsort(specials->list, specials->n, sizeof *specials->list, compare);
    uint32_t i = 0;
    for (unsigned b = 0; b <= 256; b++) {
        while (i < specials->n && byte_at(specials->list[i].text, 0) < b) i++;
        specials->first[b] = i;
    }
}

// The first of list[low..high) whose byte at depth is at least value; all are longer than depth.
static uint32_t lower_bound(const struct lp_special *list, uint32_t low, uint32_t high,
                            size_t depth, unsigned value) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (byte_at(list[middle].text, depth) < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct lp_special *longest_at(const struct lp_specials *specials, struct lp_str text,
                                           size_t at, bool with_control) {
    const struct lp_special *list = specials->list, *best = NULL;
    unsigned byte = byte_at(text, at);
    uint32_t low = specials->first[byte], high = specials->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (list[low].text.len == depth) {
            if (list[low].always || with_control) best = &list[low];
            low++;
        }
        if (low == high || at + depth == text.len) break;
        byte = byte_at(text, at + depth);
        low = lower_bound(list, low, high, depth, byte);
        high = lower_bound(list, low, high, depth, byte + 1);
    }
    return best;
}

const struct lp_special *lp_special_find(const struct lp_specials *specials, struct lp_str text,
                                         size_t from, bool with_control, size_t *at) {
    if (!specials->n) return NULL;
    for (size_t i = from; i < text.len; i++) {
        unsigned byte = byte_at(text, i);
        if (specials->first[byte] == specials->first[byte + 1]) continue;
        const struct lp_special *found = longest_at(specials, text, i, with_control);
        if (found) {
            *at = i;
            return found;
        }
    }
    return NULL;
}
