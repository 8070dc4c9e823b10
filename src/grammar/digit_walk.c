// The walk goes digit by digit and knows whether what was written so far equals the beginning of
// the lower bound, of the upper one, or of both; if of neither, any digits may follow.
#include "grammar/digit_walk.h"

#include "grammar/node_list.h"

// Not a node: nothing may follow.
#define NEVER ((lp_gb_node)-1)

struct place {
    int at; // digits written
    bool on_low, on_high;
    uint32_t remainder;
};

struct digits {
    struct lp_digit_walk *walk;
    char low[LP_DIGIT_WALK_MAX], high[LP_DIGIT_WALK_MAX];
    int n;
};

static void spell(char *out, int n, uint64_t value) {
    for (int i = n; i-- > 0; value /= 10) out[i] = (char)(value % 10);
}

static lp_gb_node digit(struct lp_gb *b, int first, int last) {
    return lp_gb_class(b, &(struct lp_gb_range){(uint32_t)('0' + first), (uint32_t)('0' + last)}, 1,
                       false);
}

static lp_gb_node free_digits(struct lp_gb *b, int min, int max) {
    return lp_gb_repeat(b, digit(b, 0, 9), min, max);
}

// ---- multiples: what is left of the digits, by the remainder so far ----

static lp_gb_node free_rest(struct digits *d, int left, uint32_t remainder);

static lp_gb_node make_rest(struct digits *d, int left, uint32_t remainder) {
    struct lp_gb_list list = {0};
    for (int c = 0; c < 10 && !lp_gb_failed(d->walk->b); c++) {
        uint32_t next = (remainder * 10 + (uint32_t)c) % d->walk->multiple;
        lp_gb_node rest = free_rest(d, left - 1, next);
        if (rest != NEVER)
            lp_gb_list_add(d->walk->b, &list, LP_GB_SEQ(d->walk->b, digit(d->walk->b, c, c), rest));
    }
    if (list.n) return lp_gb_list_choice(d->walk->b, &list);
    lp_free(list.items);
    return lp_gb_never(d->walk->b);
}

// Is there a number of this many digits that completes a multiple?
static bool can_complete(const struct digits *d, int left, uint32_t remainder) {
    uint32_t power = 1;
    for (int i = 0; i < left; i++) {
        power *= 10;
        if (power >= d->walk->multiple) return true;
    }
    uint32_t missing = (uint32_t)(((uint64_t)remainder * power) % d->walk->multiple);
    return missing == 0 || d->walk->multiple - missing < power;
}

static lp_gb_node free_rest(struct digits *d, int left, uint32_t remainder) {
    struct lp_digit_walk *walk = d->walk;
    if (!can_complete(d, left, remainder)) return NEVER;
    if (left == 0) return lp_gb_empty(walk->b);
    size_t n = (size_t)LP_DIGIT_WALK_MAX * LP_DIGIT_WALK_MAX_MULTIPLE;
    if (!walk->rest) walk->rest = lp_alloc(n, sizeof *walk->rest);
    if (!walk->has_rest) walk->has_rest = lp_alloc(n, sizeof *walk->has_rest);
    if (!walk->rest || !walk->has_rest)
        return lp_gb_fail(walk->b, LP_STATUS_MEMORY, "out of memory: the grammar");
    size_t i = (size_t)left * walk->multiple + remainder;
    if (!walk->has_rest[i]) {
        walk->has_rest[i] = true;
        walk->rest[i] = lp_gb_declare(walk->b, "digits of a multiple");
        lp_gb_define(walk->b, walk->rest[i], make_rest(d, left, remainder));
    }
    return lp_gb_use(walk->b, walk->rest[i]);
}

// ---- the walk ----

static lp_gb_node follow(struct digits *d, struct place at);

static bool is_zero_from(const char *digits, int at, int n) {
    for (int i = at; i < n; i++)
        if (digits[i]) return false;
    return true;
}

// One of the digits first to last, all of which lead to the same place.
static void add_step(struct digits *d, struct lp_gb_list *list, struct place next, int first,
                     int last) {
    lp_gb_node rest = follow(d, next);
    if (rest != NEVER)
        lp_gb_list_add(d->walk->b, list,
                       LP_GB_SEQ(d->walk->b, digit(d->walk->b, first, last), rest));
}

// The next digit and all behind it.
static lp_gb_node step(struct digits *d, struct place at) {
    struct lp_gb_list list = {0};
    int first = at.on_low ? d->low[at.at] : 0, last = at.on_high ? d->high[at.at] : 9;
    for (int c = first; c <= last && !lp_gb_failed(d->walk->b); c++) {
        struct place next = {
            .at = at.at + 1, .on_low = at.on_low && c == first, .on_high = at.on_high && c == last};
        next.remainder = (at.remainder * 10 + (uint32_t)c) % d->walk->multiple;
        int until = c;
        bool is_free = !next.on_low && !next.on_high && d->walk->multiple == 1;
        if (is_free) until = at.on_high ? last - 1 : last;
        add_step(d, &list, next, c, until);
        c = until;
    }
    if (list.n) return lp_gb_list_choice(d->walk->b, &list);
    lp_free(list.items);
    return NEVER;
}

// What may follow when the digits before the point are written.
static lp_gb_node follow_point(struct digits *d, struct place at) {
    struct lp_gb *b = d->walk->b;
    bool is_at_point = at.at == d->walk->n_whole;
    int left = d->n - at.at;
    if (left == 0) return lp_gb_empty(b);
    if (!at.on_low && !at.on_high && !is_at_point) return free_digits(b, 0, left);
    lp_gb_node more = !at.on_low && !at.on_high ? free_digits(b, 1, left) : step(d, at);
    bool may_end = !at.on_low || is_zero_from(d->low, at.at, d->n);
    if (more == NEVER) return may_end ? lp_gb_empty(b) : NEVER;
    if (is_at_point) more = LP_GB_SEQ(b, lp_gb_word(b, "."), more);
    return may_end ? lp_gb_optional(b, more) : more;
}

static lp_gb_node follow(struct digits *d, struct place at) {
    struct lp_gb *b = d->walk->b;
    if (lp_gb_failed(b)) return 0;
    if (at.at == d->n && at.remainder) return NEVER;
    if (at.at >= d->walk->n_whole) return follow_point(d, at);
    if (at.on_low || at.on_high) return step(d, at);
    int left = d->walk->n_whole - at.at;
    if (d->walk->multiple > 1) return free_rest(d, left, at.remainder);
    at.at = d->walk->n_whole;
    return LP_GB_SEQ(b, free_digits(b, left, left), follow_point(d, at));
}

static bool is_all_of_its_length(const struct digits *d) {
    if (d->low[0] != 1 || !is_zero_from(d->low, 1, d->n)) return false;
    for (int i = 0; i < d->n; i++)
        if (d->high[i] != 9) return false;
    return true;
}

lp_gb_node lp_digit_walk(struct lp_digit_walk *walk, bool *never) {
    struct digits d = {.walk = walk, .n = walk->n_whole + walk->n_fraction};
    *never = walk->low > walk->high;
    if (*never || lp_gb_failed(walk->b)) return 0;
    spell(d.low, d.n, walk->low);
    spell(d.high, d.n, walk->high);
    lp_gb_node node;
    if (walk->multiple == 1 && is_all_of_its_length(&d))
        node = LP_GB_SEQ(walk->b, digit(walk->b, 1, 9), follow(&d, (struct place){.at = 1}));
    else
        node = follow(&d, (struct place){.on_low = true, .on_high = true});
    *never = node == NEVER;
    return *never ? 0 : node;
}

void lp_digit_walk_release(struct lp_digit_walk *walk) {
    lp_free(walk->rest);
    lp_free(walk->has_rest);
    walk->rest = NULL;
    walk->has_rest = NULL;
}
