// The parser: text, outputs and blocks. Expressions are in jinja_parse_expr.c. Nesting is counted,
// so that no source can exhaust the stack; names of filters and tests are resolved here.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "text/chat.h"
#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"

typedef struct lp_jinja_node node;
typedef struct lp_jinja_parser parser;

#define MAX_PARSE_BYTES ((size_t)1 << 30)

static bool parse_blocks(parser *p, const char *const *ends, struct lp_jinja_block *out);

// ---- shared with the expressions --------------------------------------------------------------

bool lp_jinja_parse_fail(parser *p, lp_status status, const char *format, ...) {
    if (p->status) return false; // the first error is the one to tell
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status = status;
    lp_err_set(p->err, status, "chat template, line %u: %s", lp_jinja_peek(p)->line, text);
    return false;
}

void *lp_jinja_parse_alloc(parser *p, size_t n, size_t size) {
    void *block = lp_arena_alloc(&p->jinja->arena, n, size);
    if (!block) lp_jinja_parse_fail(p, LP_STATUS_MEMORY, "out of memory for the syntax tree");
    return block;
}

bool lp_jinja_parse_enter(parser *p) {
    if (p->nesting >= LP_JINJA_MAX_NESTING)
        return lp_jinja_parse_fail(p, LP_STATUS_LIMIT, "the template is nested more than %d deep",
                                   LP_JINJA_MAX_NESTING);
    p->nesting++;
    return true;
}

node *lp_jinja_node_new(parser *p, enum lp_jinja_node_kind kind) {
    node *n = lp_jinja_parse_alloc(p, 1, sizeof *n);
    if (!n) return NULL;
    n->kind = kind;
    n->line = lp_jinja_peek(p)->line;
    return n;
}

bool lp_jinja_at_name(const parser *p, const char *name) {
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    return t->kind == LP_JINJA_T_NAME && lp_str_is(t->text, name);
}

bool lp_jinja_skip(parser *p, int kind) {
    if (lp_jinja_peek(p)->kind != kind) return false;
    p->at++;
    return true;
}

bool lp_jinja_skip_name(parser *p, const char *name) {
    if (!lp_jinja_at_name(p, name)) return false;
    p->at++;
    return true;
}

bool lp_jinja_expect(parser *p, int kind, const char *what) {
    if (lp_jinja_skip(p, kind)) return true;
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    if (t->kind == LP_JINJA_T_NAME)
        return lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "'%.*s' stands where %s is expected",
                                   LP_STR_ARGS(t->text), what);
    return lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "%s is expected", what);
}

bool lp_jinja_nodes_add(parser *p, struct lp_jinja_nodes *list, node *n) {
    if (!n) return false;
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        node **items = lp_jinja_parse_alloc(p, capacity, sizeof *items);
        if (!items) return false;
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = n;
    return true;
}

// ---- blocks -----------------------------------------------------------------------------------

// The body of a block: from the end of its tag to one of the end names (NULL-terminated list),
// which is left as the current token.
static bool parse_body(parser *p, const char *const *ends, struct lp_jinja_block *out) {
    lp_jinja_skip(p, ':');
    if (!lp_jinja_expect(p, LP_JINJA_T_BLOCK_END, "'%}'") || !lp_jinja_parse_enter(p)) return false;
    bool ok = parse_blocks(p, ends, out);
    lp_jinja_parse_leave(p);
    return ok;
}

static struct lp_jinja_block *new_blocks(parser *p, node *n, size_t count) {
    n->blocks = lp_jinja_parse_alloc(p, count, sizeof *n->blocks);
    n->n_blocks = n->blocks ? count : 0;
    return n->blocks;
}

// A block with one body up to `end`, which is consumed.
static bool parse_only_body(parser *p, node *n, const char *end) {
    const char *const ends[] = {end, NULL};
    if (!new_blocks(p, n, 1) || !parse_body(p, ends, &n->blocks[0])) return false;
    p->at++;
    return true;
}

// Whether an expression is a message's content: content, x.content, x['content'], x.get('content'),
// or a variable set to one of these.
static bool is_content(const parser *p, const node *n) {
    struct lp_str content = lp_str_from("content");
    const node *key = NULL;
    if (n->kind == LP_JINJA_N_NAME)
        for (size_t i = 0; i < p->n_content_names; i++)
            if (lp_str_equal(n->name, p->content_names[i])) return true;
    if (n->kind == LP_JINJA_N_NAME || n->kind == LP_JINJA_N_ATTR)
        return lp_str_equal(n->name, content);
    if (n->kind == LP_JINJA_N_ITEM) key = n->b;
    if (n->kind == LP_JINJA_N_CALL && n->a->kind == LP_JINJA_N_ATTR && n->args.n_pos &&
        lp_str_is(n->a->name, "get"))
        key = n->args.pos[0];
    return key && key->kind == LP_JINJA_N_CONST && lp_jinja_is_str(key->value) &&
           lp_str_equal(key->value.s, content);
}

static void note_content_name(parser *p, const node *target, const node *value) {
    size_t room = sizeof p->content_names / sizeof *p->content_names - p->n_content_names;
    if (target->kind == LP_JINJA_N_NAME && room && is_content(p, value))
        p->content_names[p->n_content_names++] = target->name;
}

static node *parse_for(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_FOR);
    if (!n || !new_blocks(p, n, 2) || !(n->a = lp_jinja_parse_target(p, false, "in"))) return NULL;
    if (n->a->kind == LP_JINJA_N_NAME && lp_str_is(n->a->name, "loop")) {
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "a loop's variable cannot be named 'loop'");
        return NULL;
    }
    if (!lp_jinja_skip_name(p, "in")) {
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "'in' is expected after the variables of a loop");
        return NULL;
    }
    if (!(n->b = lp_jinja_parse_tuple(p, false, "recursive"))) return NULL;
    if (is_content(p, n->b)) p->jinja->iterates_content = true;
    if (lp_jinja_skip_name(p, "if") && !(n->c = lp_jinja_parse_expression(p))) return NULL;
    n->flag = lp_jinja_skip_name(p, "recursive");
    static const char *const ends[] = {"endfor", "else", NULL};
    p->loops++;
    bool ok = parse_body(p, ends, &n->blocks[0]);
    p->loops--;
    if (!ok) return NULL;
    if (lp_jinja_skip_name(p, "else") &&
        !parse_body(p, (const char *const[]){"endfor", NULL}, &n->blocks[1]))
        return NULL;
    p->at++;
    return n;
}

// Adds a body to an if; the array doubles at powers of two.
static struct lp_jinja_block *add_branch(parser *p, node *n) {
    if ((n->n_blocks & (n->n_blocks - 1)) == 0) {
        size_t capacity = n->n_blocks ? n->n_blocks * 2 : 1;
        struct lp_jinja_block *more = lp_jinja_parse_alloc(p, capacity, sizeof *more);
        if (!more) return NULL;
        if (n->n_blocks) memcpy(more, n->blocks, n->n_blocks * sizeof *more);
        n->blocks = more;
    }
    return &n->blocks[n->n_blocks++];
}

static node *parse_if(parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    node *n = lp_jinja_node_new(p, LP_JINJA_N_IF);
    struct lp_jinja_nodes tests = {0};
    while (n) {
        if (!lp_jinja_nodes_add(p, &tests, lp_jinja_parse_tuple(p, false, NULL))) return NULL;
        struct lp_jinja_block *body = add_branch(p, n);
        p->conditions++;
        bool ok = body && parse_body(p, ends, body);
        p->conditions--;
        if (!ok) return NULL;
        if (!lp_jinja_skip_name(p, "elif")) break;
    }
    if (!n) return NULL;
    n->items = tests.items;
    n->n_items = tests.n;
    if (lp_jinja_skip_name(p, "else")) {
        struct lp_jinja_block *body = add_branch(p, n);
        p->conditions++;
        bool ok = body && parse_body(p, last, body);
        p->conditions--;
        if (!ok) return NULL;
    }
    p->at++;
    return n;
}

static node *parse_set(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_SET);
    if (!n || !(n->a = lp_jinja_parse_target(p, true, NULL))) return NULL;
    if (lp_jinja_skip(p, '=')) {
        if (!(n->b = lp_jinja_parse_tuple(p, true, NULL))) return NULL;
        note_content_name(p, n->a, n->b);
        return n;
    }
    n->kind = LP_JINJA_N_SET_BLOCK;
    n->b = lp_jinja_parse_filters(p, NULL, false);
    return !p->status && parse_only_body(p, n, "endset") ? n : NULL;
}

static bool parse_params(parser *p, struct lp_jinja_params *params) {
    struct lp_jinja_nodes defaults = {0};
    size_t capacity = 0;
    if (!lp_jinja_expect(p, '(', "'('")) return false;
    while (lp_jinja_peek(p)->kind != ')') {
        if (params->n && !lp_jinja_expect(p, ',', "',' or ')'")) return false;
        struct lp_str name = lp_jinja_peek(p)->text;
        if (!lp_jinja_expect(p, LP_JINJA_T_NAME, "the name of a parameter")) return false;
        if (params->n == capacity) {
            capacity = capacity ? capacity * 2 : 4;
            struct lp_str *names = lp_jinja_parse_alloc(p, capacity, sizeof *names);
            node **more = lp_jinja_parse_alloc(p, capacity, sizeof *more);
            if (!names || !more) return false;
            if (params->n) {
                memcpy(names, params->names, params->n * sizeof *names);
                memcpy(more, params->defaults, params->n * sizeof *more);
            }
            params->names = names;
            params->defaults = more;
        }
        node *value = NULL;
        if (lp_jinja_skip(p, '=')) {
            if (!lp_jinja_nodes_add(p, &defaults, value = lp_jinja_parse_expression(p)))
                return false;
        } else if (defaults.n) {
            return lp_jinja_parse_fail(p, LP_STATUS_FORMAT,
                                       "a parameter without default follows one with a default");
        }
        params->names[params->n] = name;
        params->defaults[params->n++] = value;
    }
    p->at++;
    return true;
}

// The body of a macro or call block: no loop of outside can be left from it.
static bool parse_macro_body(parser *p, node *n, const char *end) {
    struct lp_jinja_params *outer = p->params;
    unsigned loops = p->loops;
    p->params = &n->params;
    p->loops = 0;
    bool ok = parse_only_body(p, n, end);
    p->params = outer;
    p->loops = loops;
    return ok;
}

static node *parse_macro(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_MACRO);
    if (!n) return NULL;
    n->name = lp_jinja_peek(p)->text;
    if (!lp_jinja_expect(p, LP_JINJA_T_NAME, "the name of a macro") || !parse_params(p, &n->params))
        return NULL;
    return parse_macro_body(p, n, "endmacro") ? n : NULL;
}

static node *parse_call_block(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_CALL_BLOCK);
    if (!n || (lp_jinja_peek(p)->kind == '(' && !parse_params(p, &n->params)) ||
        !(n->a = lp_jinja_parse_expression(p)))
        return NULL;
    if (n->a->kind != LP_JINJA_N_CALL) {
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "a call block needs the call of a macro");
        return NULL;
    }
    return parse_macro_body(p, n, "endcall") ? n : NULL;
}

static node *parse_filter_block(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_FILTER_BLOCK);
    if (!n || !(n->b = lp_jinja_parse_filters(p, NULL, true))) return NULL;
    return parse_only_body(p, n, "endfilter") ? n : NULL;
}

static node *parse_with(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_WITH);
    struct lp_jinja_nodes list = {0};
    while (n && lp_jinja_peek(p)->kind != LP_JINJA_T_BLOCK_END) {
        if (list.n && !lp_jinja_expect(p, ',', "','")) return NULL;
        if (!lp_jinja_nodes_add(p, &list, lp_jinja_parse_target(p, false, NULL)) ||
            !lp_jinja_expect(p, '=', "'='") ||
            !lp_jinja_nodes_add(p, &list, lp_jinja_parse_expression(p)))
            return NULL;
    }
    if (!n) return NULL;
    n->items = list.items;
    n->n_items = list.n;
    return parse_only_body(p, n, "endwith") ? n : NULL;
}

static node *parse_print(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_PRINT);
    return n && (n->a = lp_jinja_parse_expression(p)) ? n : NULL;
}

static node *parse_generation(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_SCOPE);
    return n && parse_macro_body(p, n, "endgeneration") ? n : NULL;
}

static node *parse_jump(parser *p, enum lp_jinja_node_kind kind) {
    if (!p->loops) {
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "'%s' stands outside of a loop",
                            kind == LP_JINJA_N_BREAK ? "break" : "continue");
        return NULL;
    }
    return lp_jinja_node_new(p, kind);
}

static node *parse_break(parser *p) {
    return parse_jump(p, LP_JINJA_N_BREAK);
}
static node *parse_continue(parser *p) {
    return parse_jump(p, LP_JINJA_N_CONTINUE);
}

static node *parse_block(parser *p) {
    static const struct {
        const char *name;
        node *(*parse)(parser *); // NULL: Jinja has it, chat templates do without
    } tags[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print},
        {"generation", parse_generation},
        {"break", parse_break},
        {"continue", parse_continue},
        {"block", NULL},
        {"extends", NULL},
        {"include", NULL},
        {"import", NULL},
        {"from", NULL},
        {"autoescape", NULL},
    };
    struct lp_str name = lp_jinja_peek(p)->text;
    if (lp_jinja_peek(p)->kind != LP_JINJA_T_NAME) {
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "a block tag has no name");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!lp_str_is(name, tags[i].name)) continue;
        if (tags[i].parse) {
            p->at++;
            return tags[i].parse(p);
        }
        lp_jinja_parse_fail(p, LP_STATUS_UNSUPPORTED,
                            "the block '%s' is not supported in chat templates", tags[i].name);
        return NULL;
    }
    lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "the tag '%.*s' is unknown or does not belong here",
                        LP_STR_ARGS(name));
    return NULL;
}

static node *parse_output(parser *p) {
    p->at++;
    node *n = lp_jinja_node_new(p, LP_JINJA_N_PRINT);
    if (!n || !(n->a = lp_jinja_parse_tuple(p, true, NULL))) return NULL;
    return lp_jinja_expect(p, LP_JINJA_T_VAR_END, "'}}'") ? n : NULL;
}

static node *parse_data(parser *p) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_DATA);
    if (n) n->name = lp_jinja_peek(p)->text;
    p->at++;
    return n;
}

static bool at_end_name(const parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (lp_jinja_at_name(p, *ends)) return true;
    return false;
}

static bool parse_blocks(parser *p, const char *const *ends, struct lp_jinja_block *out) {
    struct lp_jinja_nodes list = {0};
    for (;;) {
        int kind = lp_jinja_peek(p)->kind;
        node *n;
        if (kind == LP_JINJA_T_EOF) {
            if (ends)
                return lp_jinja_parse_fail(
                    p, LP_STATUS_FORMAT, "the template ends where '%s' is still expected", ends[0]);
            break;
        }
        if (kind == LP_JINJA_T_DATA) {
            n = parse_data(p);
        } else if (kind == LP_JINJA_T_VAR_BEGIN) {
            n = parse_output(p);
        } else {
            p->at++; // "{%"
            if (at_end_name(p, ends)) break;
            n = parse_block(p);
            if (n && !lp_jinja_expect(p, LP_JINJA_T_BLOCK_END, "'%}'")) return false;
        }
        if (!lp_jinja_nodes_add(p, &list, n)) return false;
    }
    out->items = list.items;
    out->n = list.n;
    return true;
}

lp_status lp_jinja_parse(struct lp_jinja **out, struct lp_str source, struct lp_err *err) {
    *out = NULL;
    if (source.len > LP_JINJA_MAX_SOURCE_BYTES)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the chat template has %zu bytes, more than the limit of %d", source.len,
                          LP_JINJA_MAX_SOURCE_BYTES);
    struct lp_jinja *jinja = lp_alloc(1, sizeof *jinja);
    if (!jinja) return lp_err_memory(err, sizeof *jinja, "a chat template");
    jinja->arena.block_bytes = 16 * 1024;
    jinja->arena.max_bytes = MAX_PARSE_BYTES;
    struct lp_jinja_tokens tokens = {0};
    lp_status status = lp_jinja_lex(&jinja->arena, source, &tokens, err);
    if (!status) {
        parser p = {.jinja = jinja, .tokens = tokens.items, .err = err};
        parse_blocks(&p, NULL, &jinja->body);
        status = p.status;
    }
    lp_free(tokens.items);
    if (status) {
        lp_jinja_free(jinja);
        return status;
    }
    *out = jinja;
    return LP_OK;
}

void lp_jinja_free(struct lp_jinja *jinja) {
    if (!jinja) return;
    lp_arena_release(&jinja->arena);
    lp_free(jinja);
}
