#include "lp_test.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "grammar/build.h"

// Builds with `make`, compares what it matches with NULL-terminated lists of texts.
typedef lp_gb_node (*make_fn)(struct lp_gb *b);

static struct lp_grammar *grammar_of(make_fn make) {
    struct lp_gb *b = lp_gb_new();
    struct lp_grammar *g;
    struct lp_err err = {0};
    lp_gb_rule root = lp_gb_declare(b, "root");
    lp_gb_define(b, root, make(b));
    if (lp_gb_finish(b, root, NULL, &g, &err)) fail_msg("%s", err.text);
    lp_gb_free(b);
    return g;
}

static void check(make_fn make, const char *const *yes, const char *const *no) {
    struct lp_grammar *g = grammar_of(make);
    for (; *yes; yes++)
        if (!lp_grammar_matches(g, lp_str_from(*yes))) fail_msg("does not match \"%s\"", *yes);
    for (; *no; no++)
        if (lp_grammar_matches(g, lp_str_from(*no))) fail_msg("matches \"%s\"", *no);
    lp_grammar_put(g);
}
#define LIST(...)                                                                                  \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

static void refuse(make_fn make, lp_status status, const char *part) {
    struct lp_gb *b = lp_gb_new();
    struct lp_grammar *g;
    struct lp_err err = {0};
    lp_gb_rule root = lp_gb_declare(b, "root");
    lp_gb_define(b, root, make(b));
    assert_int_equal(lp_gb_finish(b, root, NULL, &g, &err), status);
    assert_null(g);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    lp_gb_free(b);
}

static lp_gb_node text(struct lp_gb *b, const char *t) {
    return lp_gb_text(b, lp_str_from(t));
}
static lp_gb_node two(struct lp_gb *b, lp_gb_node x, lp_gb_node y) {
    return lp_gb_sequence(b, (lp_gb_node[]){x, y}, 2);
}
static lp_gb_node three(struct lp_gb *b, lp_gb_node x, lp_gb_node y, lp_gb_node z) {
    return lp_gb_sequence(b, (lp_gb_node[]){x, y, z}, 3);
}
static lp_gb_node either(struct lp_gb *b, lp_gb_node x, lp_gb_node y) {
    return lp_gb_choice(b, (lp_gb_node[]){x, y}, 2);
}

// ---- nodes ----

static lp_gb_node texts(struct lp_gb *b) {
    return lp_gb_choice(b,
                        (lp_gb_node[]){text(b, "car"), text(b, "cart"), text(b, "cat"),
                                       text(b, "dog"), text(b, "car"), text(b, "\xC3\xA9t\xC3\xA9"),
                                       lp_gb_never(b), lp_gb_empty(b)},
                        8);
}

static void texts_of_a_choice_share_beginnings(void **state) {
    (void)state;
    check(texts, LIST("car", "cart", "cat", "dog", "\xC3\xA9t\xC3\xA9", ""),
          LIST("c", "ca", "carts", "do", "dogs", "\xC3\xA9", "\xC3"));
}

static lp_gb_node vowels(struct lp_gb *b) {
    return lp_gb_class(
        b, (struct lp_gb_range[]){{0xE0, 0xE4}, {'a', 'e'}, {'c', 'f'}, {0x1F600, 0x1F64F}}, 4,
        false);
}
static lp_gb_node no_vowels(struct lp_gb *b) {
    return lp_gb_class(
        b, (struct lp_gb_range[]){{0xE0, 0xE4}, {'a', 'e'}, {'c', 'f'}, {0x1F600, 0x1F64F}}, 4,
        true);
}
static lp_gb_node any_text(struct lp_gb *b) {
    return lp_gb_repeat(b, lp_gb_class(b, NULL, 0, true), 0, -1);
}

static void classes_are_characters(void **state) {
    (void)state;
    check(vowels, LIST("a", "f", "\xC3\xA0", "\xC3\xA4", "\xF0\x9F\x98\x80", "\xF0\x9F\x99\x8F"),
          LIST("", "g", "ab", "\xC3\x9F", "\xC3\xA5", "\xF0\x9F\x97\xBF", "\xF0\x9F\x99\x90",
               "\xC3"));
    check(no_vowels,
          LIST("g", " ", "\x01", "\xC3\x9F", "\xC3\xA5", "\xF0\x9F\x97\xBF", "\xED\x9F\xBF",
               "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"),
          LIST("", "a", "\xC3\xA0", "\xF0\x9F\x98\x80", "gg"));
}

static void only_well_formed_utf8_matches(void **state) {
    (void)state;
    check(any_text, LIST("", "abc", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "a\xC2\x80z"),
          LIST("\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
               "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xC3",
               "\xE2\x82"));
}

static lp_gb_node empty_class(struct lp_gb *b) {
    return either(b, lp_gb_class(b, NULL, 0, false), text(b, "x"));
}
static lp_gb_node surrogates(struct lp_gb *b) {
    return either(b, lp_gb_class(b, (struct lp_gb_range[]){{0xD800, 0xDFFF}}, 1, false),
                  text(b, "x"));
}

static void a_class_may_be_empty(void **state) {
    (void)state;
    check(empty_class, LIST("x"), LIST("", "y"));
    check(surrogates, LIST("x"), LIST("", "\xED\xA0\x80"));
}

// ---- repetitions ----

// How many times the shortest counts match: x{min,max} and, since longer bodies are counted on the
// stack and not copied, the same with a body of 40 bytes.
static struct {
    int64_t min, max;
    const char *body;
} repetition;

static lp_gb_node repeated(struct lp_gb *b) {
    return two(b, lp_gb_repeat(b, text(b, repetition.body), repetition.min, repetition.max),
               text(b, "!"));
}

static void counts_are_exact(void **state) {
    (void)state;
    static const int64_t bounds[][2] = {{0, 0},  {0, 1},   {0, -1}, {1, -1},  {2, 2},   {3, 7},
                                        {5, -1}, {40, -1}, {0, 90}, {30, 30}, {25, 100}};
    static const char *const bodies[] = {"x", "0123456789012345678901234567890123456789",
                                         "\xC3\xA9"};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        for (size_t j = 0; j < 3; j++) {
            repetition.min = bounds[i][0];
            repetition.max = bounds[i][1];
            repetition.body = bodies[j];
            struct lp_grammar *g = grammar_of(repeated);
            struct lp_bytes out = {0};
            for (int64_t n = 0; n < 110; n++) {
                size_t len = out.len;
                lp_bytes_puts(&out, "!");
                bool want = n >= bounds[i][0] && (bounds[i][1] < 0 || n <= bounds[i][1]);
                if (lp_grammar_matches(g, lp_bytes_view(&out)) != want)
                    fail_msg("{%lld,%lld}: %lld times", (long long)bounds[i][0],
                             (long long)bounds[i][1], (long long)n);
                out.len = len;
                lp_bytes_puts(&out, bodies[j]);
            }
            lp_bytes_release(&out);
            lp_grammar_put(g);
        }
}

static lp_gb_node nested_counts(struct lp_gb *b) { // (([ab]{60,70}c){50,60}d){2}
    lp_gb_node ab = lp_gb_class(b, (struct lp_gb_range[]){{'a', 'b'}}, 1, false);
    lp_gb_node inner = two(b, lp_gb_repeat(b, ab, 60, 70), text(b, "c"));
    return lp_gb_repeat(b, two(b, lp_gb_repeat(b, inner, 50, 60), text(b, "d")), 2, 2);
}

static void counts_nest(void **state) {
    (void)state;
    struct lp_grammar *g = grammar_of(nested_counts);
    static const struct {
        int n_ab, n_c, n_d;
        bool want;
    } cases[] = {{60, 50, 2, true},  {70, 60, 2, true},  {59, 50, 2, false}, {71, 50, 2, false},
                 {65, 49, 2, false}, {65, 61, 2, false}, {65, 55, 1, false}, {65, 55, 3, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lp_bytes out = {0};
        for (int d = 0; d < cases[i].n_d; d++) {
            for (int c = 0; c < cases[i].n_c; c++) {
                for (int a = 0; a < cases[i].n_ab; a++) lp_bytes_puts(&out, a % 3 ? "a" : "b");
                lp_bytes_puts(&out, "c");
            }
            lp_bytes_puts(&out, "d");
        }
        if (lp_grammar_matches(g, lp_bytes_view(&out)) != cases[i].want) fail_msg("case %zu", i);
        lp_bytes_release(&out);
    }
    lp_grammar_put(g);
}

static lp_gb_node optional_body(struct lp_gb *b) { // (a?b?){5,200}
    lp_gb_node body = two(b, lp_gb_optional(b, text(b, "a")), lp_gb_optional(b, text(b, "b")));
    return lp_gb_repeat(b, body, 5, 200);
}
static lp_gb_node loop_of_loops(struct lp_gb *b) { // ((a*)*|b*)*
    lp_gb_node inner = lp_gb_repeat(b, lp_gb_repeat(b, text(b, "a"), 0, -1), 0, -1);
    return lp_gb_repeat(b, either(b, inner, lp_gb_repeat(b, text(b, "b"), 0, -1)), 0, -1);
}
static lp_gb_node ambiguous_count(struct lp_gb *b) { // (a|aa){0,5000}
    return lp_gb_repeat(b, either(b, text(b, "a"), text(b, "aa")), 0, 5000);
}

static void empty_bodies_and_ambiguity_end(void **state) {
    (void)state;
    check(optional_body, LIST("", "a", "ba", "abab", "bbbb", "aabb"), LIST("c", "abc"));
    check(loop_of_loops, LIST("", "a", "abba", "bbbab"), LIST("c", "abc"));
    struct lp_grammar *g = grammar_of(ambiguous_count);
    struct lp_bytes out = {0};
    for (int i = 0; i < 10000; i++) lp_bytes_puts(&out, "a");
    assert_true(lp_grammar_matches(g, lp_bytes_view(&out)));
    lp_bytes_puts(&out, "a");
    assert_false(lp_grammar_matches(g, lp_bytes_view(&out)));
    lp_bytes_release(&out);
    lp_grammar_put(g);
}

// ---- rules ----

static lp_gb_node nested(struct lp_gb *b) { // s: "(" s ")" | "x"
    lp_gb_rule s = lp_gb_declare(b, "s");
    lp_gb_define(b, s,
                 either(b, three(b, text(b, "("), lp_gb_use(b, s), text(b, ")")), text(b, "x")));
    return lp_gb_use(b, s);
}
static lp_gb_node right_list(struct lp_gb *b) { // l: "a" ("," l)?
    lp_gb_rule l = lp_gb_declare(b, "l");
    lp_gb_define(b, l,
                 two(b, text(b, "a"), lp_gb_optional(b, two(b, text(b, ","), lp_gb_use(b, l)))));
    return lp_gb_use(b, l);
}

static bool matches_nested(struct lp_grammar *g, int depth) {
    struct lp_bytes out = {0};
    for (int i = 0; i < depth; i++) lp_bytes_puts(&out, "(");
    lp_bytes_puts(&out, "x");
    for (int i = 0; i < depth; i++) lp_bytes_puts(&out, ")");
    bool matches = lp_grammar_matches(g, lp_bytes_view(&out));
    lp_bytes_release(&out);
    return matches;
}

static void rules_nest_to_a_bound(void **state) {
    (void)state;
    check(nested, LIST("x", "(x)", "((x))"), LIST("", "(x", "x)", "((x)", "()"));
    struct lp_grammar *g = grammar_of(nested);
    assert_true(matches_nested(g, LP_GRAMMAR_MAX_DEPTH - 2));
    assert_false(matches_nested(g, LP_GRAMMAR_MAX_DEPTH + 1));
    lp_grammar_put(g);
    g = grammar_of(right_list); // its end is that of the rule around it: no depth
    struct lp_bytes out = {0};
    for (int i = 0; i < 5000; i++) lp_bytes_puts(&out, "a,");
    assert_false(lp_grammar_matches(g, lp_bytes_view(&out)));
    lp_bytes_puts(&out, "a");
    assert_true(lp_grammar_matches(g, lp_bytes_view(&out)));
    lp_bytes_release(&out);
    lp_grammar_put(g);
}

static lp_gb_node dead_ways(struct lp_gb *b) { // "a" never | "b" deep | "c";  deep: "d" deep
    lp_gb_rule deep = lp_gb_declare(b, "deep");
    lp_gb_define(b, deep, two(b, text(b, "d"), lp_gb_use(b, deep)));
    return lp_gb_choice(b,
                        (lp_gb_node[]){two(b, text(b, "a"), lp_gb_never(b)),
                                       two(b, text(b, "b"), lp_gb_use(b, deep)), text(b, "c")},
                        3);
}

static void ways_without_an_end_are_left_out(void **state) {
    (void)state;
    check(dead_ways, LIST("c"), LIST("a", "b", "bd", ""));
}

// ---- what is refused ----

static lp_gb_node left_direct(struct lp_gb *b) {
    lp_gb_rule r = lp_gb_declare(b, "sum");
    lp_gb_define(b, r, either(b, two(b, lp_gb_use(b, r), text(b, "+")), text(b, "1")));
    return lp_gb_use(b, r);
}
static lp_gb_node left_hidden(struct lp_gb *b) { // a: "x"* c;  c: b? a
    lp_gb_rule a = lp_gb_declare(b, "a"), c = lp_gb_declare(b, "c");
    lp_gb_define(
        b, a,
        two(b, lp_gb_repeat(b, text(b, "x"), 0, -1), either(b, lp_gb_use(b, c), text(b, "y"))));
    lp_gb_define(b, c, two(b, lp_gb_optional(b, text(b, "z")), lp_gb_use(b, a)));
    return lp_gb_use(b, a);
}
static lp_gb_node undefined(struct lp_gb *b) {
    return lp_gb_use(b, lp_gb_declare(b, "missing"));
}
static lp_gb_node nothing(struct lp_gb *b) {
    return two(b, text(b, "a"), lp_gb_never(b));
}
static lp_gb_node used_twice(struct lp_gb *b) {
    lp_gb_node x = text(b, "x");
    return two(b, x, x);
}
static lp_gb_node backwards(struct lp_gb *b) {
    return lp_gb_repeat(b, text(b, "x"), 5, 4);
}
static lp_gb_node too_often(struct lp_gb *b) {
    return lp_gb_repeat(b, text(b, "x"), 0, LP_GRAMMAR_MAX_REPEAT + 1);
}
static lp_gb_node no_utf8(struct lp_gb *b) {
    return text(b, "a\xFF");
}
static lp_gb_node no_character(struct lp_gb *b) {
    return lp_gb_class(b, (struct lp_gb_range[]){{'a', 0x110000}}, 1, false);
}
static lp_gb_node own_sentence(struct lp_gb *b) {
    lp_gb_fail(b, LP_STATUS_UNSUPPORTED, "no %s here", "lookahead");
    lp_gb_fail(b, LP_STATUS_INVALID, "another");
    return two(b, text(b, "x"), lp_gb_repeat(b, text(b, "x"), -1, 4));
}
static lp_gb_node endless(struct lp_gb *b) {
    while (!lp_gb_failed(b)) lp_gb_empty(b);
    return 0;
}
static lp_gb_node too_nested(struct lp_gb *b) {
    lp_gb_node node = text(b, "x");
    for (int i = 0; i < 100000; i++) node = two(b, node, lp_gb_empty(b));
    return node;
}
static lp_gb_node too_deep(struct lp_gb *b) { // 300 rules in each other, each with an end behind
    lp_gb_node node = text(b, "x");
    for (int i = 0; i < 300; i++) {
        lp_gb_rule r = lp_gb_declare(b, "level");
        lp_gb_define(b, r, node);
        node = two(b, lp_gb_use(b, r), text(b, "y"));
    }
    return node;
}

static void wrong_grammars_are_refused(void **state) {
    (void)state;
    refuse(left_direct, LP_STATUS_INVALID, "rule \"sum\" is left-recursive");
    refuse(left_hidden, LP_STATUS_INVALID, "is left-recursive");
    refuse(undefined, LP_STATUS_INVALID, "rule \"missing\" is used, but not defined");
    refuse(nothing, LP_STATUS_INVALID, "matches no text");
    refuse(used_twice, LP_STATUS_INVALID, "used twice");
    refuse(backwards, LP_STATUS_INVALID, "at least 5 and at most 4");
    refuse(too_often, LP_STATUS_LIMIT, "10001");
    refuse(no_utf8, LP_STATUS_INVALID, "UTF-8");
    refuse(no_character, LP_STATUS_INVALID, "U+110000");
    refuse(own_sentence, LP_STATUS_UNSUPPORTED, "no lookahead here");
    refuse(endless, LP_STATUS_LIMIT, "200000 elements");
    refuse(too_nested, LP_STATUS_LIMIT, "nests elements");
    refuse(too_deep, LP_STATUS_LIMIT, "nests rules deeper");
}

// ---- size and memory ----

static lp_gb_node long_choice(struct lp_gb *b) {
    static lp_gb_node nodes[50000];
    for (int i = 0; i < 50000; i++) {
        char name[32];
        snprintf(name, sizeof name, "entry number %05d", i);
        nodes[i] = text(b, name);
    }
    return lp_gb_choice(b, nodes, 50000);
}

static void a_long_choice_compiles(void **state) {
    (void)state;
    check(long_choice, LIST("entry number 00000", "entry number 49999"),
          LIST("entry number 50000", "entry number 4999", ""));
}

static void survives_any_allocation_failure(void **state) {
    (void)state;
    bool done = false;
    for (size_t n = 1; !done; n++) {
        struct lp_gb *b;
        struct lp_grammar *g = NULL;
        lp_alloc_fail_after(n);
        if ((b = lp_gb_new())) {
            lp_gb_rule root = lp_gb_declare(b, "root");
            lp_gb_define(b, root, either(b, nested(b), two(b, vowels(b), nested_counts(b))));
            lp_status status = lp_gb_finish(b, root, NULL, &g, NULL);
            assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
            done = status == LP_OK;
            if (done) lp_grammar_matches(g, lp_str_from("(x)"));
        }
        lp_alloc_fail_after(0);
        if (done) assert_true(lp_grammar_matches(g, lp_str_from("(x)")));
        lp_grammar_put(g);
        lp_gb_free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_a_choice_share_beginnings),
        cmocka_unit_test(classes_are_characters),
        cmocka_unit_test(only_well_formed_utf8_matches),
        cmocka_unit_test(a_class_may_be_empty),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(counts_nest),
        cmocka_unit_test(empty_bodies_and_ambiguity_end),
        cmocka_unit_test(rules_nest_to_a_bound),
        cmocka_unit_test(ways_without_an_end_are_left_out),
        cmocka_unit_test(wrong_grammars_are_refused),
        cmocka_unit_test(a_long_choice_compiles),
        cmocka_unit_test(survives_any_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
