#include "kv/prefix.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

struct node {
    struct node *parent, *first_child, *next_sibling, *prev_sibling;
    struct node *newer, *older; // the list of all nodes by last use
    struct node *next_in_slot;  // of the table of full nodes
    struct lp_page_key key;     // full nodes and the root
    int32_t page, n_tokens;
    bool has_draft, saved;
    int32_t tokens[LP_KV_PAGE_TOKENS];
};

struct tree {         // of the pages of one part of the cache
    struct node root; // no page, no tokens
    struct node *newest, *oldest;
};

struct lp_prefix {
    struct lp_kv *kv;
    struct lp_store *store;
    struct tree *trees; // [lp_kv_n_parts]
    int32_t n_trees;
    struct node **slots; // full nodes by key; [n_slots], a power of two
    size_t n_slots;
    int64_t n_nodes;
    void *payload; // [page_bytes], when there is a store
};

#define PAGE LP_KV_PAGE_TOKENS

lp_status lp_prefix_new(struct lp_prefix **out, struct lp_kv *kv, struct lp_store *store,
                        struct lp_err *err) {
    struct lp_prefix *t = lp_alloc(1, sizeof *t);
    if (!t) return lp_err_memory(err, sizeof *t, "the prefix cache");
    t->kv = kv;
    t->store = store;
    t->n_slots = 64;
    while ((int64_t)t->n_slots < lp_kv_n_pages(kv)) t->n_slots *= 2;
    t->slots = lp_alloc(t->n_slots, sizeof *t->slots);
    if (store) t->payload = lp_alloc(1, lp_kv_page_bytes(kv));
    t->n_trees = lp_kv_n_parts(kv);
    t->trees = lp_alloc((size_t)t->n_trees, sizeof *t->trees);
    if (!t->slots || !t->trees || (store && !t->payload)) {
        size_t bytes = t->n_slots * sizeof *t->slots + (store ? lp_kv_page_bytes(kv) : 0);
        lp_prefix_free(t);
        return lp_err_memory(err, bytes, "the prefix cache");
    }
    *out = t;
    return LP_OK;
}

// ---- the lists

static struct tree *tree_of(const struct lp_prefix *t, const struct node *n) {
    return &t->trees[lp_kv_part_of(t->kv, n->page)];
}

static bool is_root(const struct node *n) {
    return !n->parent;
}

static void unlink_use(struct lp_prefix *t, struct node *n) {
    struct tree *tree = tree_of(t, n);
    *(n->newer ? &n->newer->older : &tree->newest) = n->older;
    *(n->older ? &n->older->newer : &tree->oldest) = n->newer;
}

static void link_newest(struct lp_prefix *t, struct node *n) {
    struct tree *tree = tree_of(t, n);
    n->newer = NULL;
    n->older = tree->newest;
    *(tree->newest ? &tree->newest->newer : &tree->oldest) = n;
    tree->newest = n;
}

// A path is used from its end to its beginning, so that a parent is never older than its children.
static void touch_path(struct lp_prefix *t, struct node *n) {
    for (; !is_root(n); n = n->parent) {
        unlink_use(t, n);
        link_newest(t, n);
    }
}

static struct node **slot_of(const struct lp_prefix *t, struct lp_page_key key) {
    return &t->slots[key.lo & (t->n_slots - 1)];
}

static void unlink_slot(struct lp_prefix *t, struct node *n) {
    struct node **at = slot_of(t, n->key);
    while (*at != n) at = &(*at)->next_in_slot;
    *at = n->next_in_slot;
}

// A node without children leaves the tree.
static void drop(struct lp_prefix *t, struct node *n) {
    *(n->prev_sibling ? &n->prev_sibling->next_sibling : &n->parent->first_child) = n->next_sibling;
    if (n->next_sibling) n->next_sibling->prev_sibling = n->prev_sibling;
    if (n->n_tokens == PAGE) unlink_slot(t, n);
    unlink_use(t, n);
    lp_kv_page_set_cached(t->kv, n->page, false);
    lp_kv_page_put(t->kv, n->page);
    lp_free(n);
    t->n_nodes--;
}

// A node and everything below it.
static void drop_subtree(struct lp_prefix *t, struct node *top) {
    struct node *n = top, *next;
    for (;;) {
        while (n->first_child) n = n->first_child;
        next = n->parent;
        drop(t, n);
        if (n == top) return;
        n = next;
    }
}

void lp_prefix_free(struct lp_prefix *t) {
    if (!t) return;
    for (int32_t i = 0; t->trees && i < t->n_trees; i++)
        while (t->trees[i].root.first_child) drop_subtree(t, t->trees[i].root.first_child);
    lp_free(t->trees);
    lp_free(t->slots);
    lp_free(t->payload);
    lp_free(t);
}

// Takes over the caller's reference to page; NULL without memory (the reference stays).
static struct node *add(struct lp_prefix *t, struct node *parent, const int32_t *tokens,
                        int32_t n_tokens, int32_t page, bool has_draft) {
    struct node *n = lp_alloc(1, sizeof *n);
    if (!n) return NULL;
    n->parent = parent;
    n->page = page;
    n->n_tokens = n_tokens;
    n->has_draft = has_draft;
    memcpy(n->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    n->next_sibling = parent->first_child;
    if (n->next_sibling) n->next_sibling->prev_sibling = n;
    parent->first_child = n;
    if (n_tokens == PAGE) {
        n->key = lp_page_key_make(parent->key, tokens, PAGE);
        struct node **slot = slot_of(t, n->key);
        n->next_in_slot = *slot;
        *slot = n;
    }
    lp_kv_page_set_cached(t->kv, page, true);
    link_newest(t, n);
    t->n_nodes++;
    return n;
}

int64_t lp_prefix_n_nodes(const struct lp_prefix *t) {
    return t->n_nodes;
}

static bool is_idle(const struct lp_prefix *t, const struct node *n) {
    return lp_kv_page_refs(t->kv, n->page) == 1;
}

int64_t lp_prefix_n_idle(const struct lp_prefix *t) {
    return lp_kv_n_idle(t->kv);
}

static bool drop_idle_leaves(struct lp_prefix *t, int32_t part, int64_t n) {
    struct node *at = t->trees[part].oldest;
    while (lp_kv_n_free_in(t->kv, part) < n && at) {
        struct node *newer = at->newer;
        // The parent of a dropped node is newer than it (touch_path), so one pass finds all.
        if (!at->first_child && is_idle(t, at)) drop(t, at);
        at = newer;
    }
    return lp_kv_n_free_in(t->kv, part) >= n;
}

// When no idle leaf is left, an idle page may still lie above one in use: two sequences computed
// the same prefix at once, one's pages are in the tree, and the other goes on behind its own. The
// use is the table's; the tree may forget it.
bool lp_prefix_make_room(struct lp_prefix *t, int32_t part, int64_t n) {
    const struct tree *tree = &t->trees[part];
    struct node *at = drop_idle_leaves(t, part, n) ? NULL : tree->oldest;
    while (lp_kv_n_free_in(t->kv, part) < n && at) {
        bool idle = is_idle(t, at);
        if (idle) drop_subtree(t, at);
        at = idle ? tree->oldest : at->newer;
    }
    return lp_kv_n_free_in(t->kv, part) >= n;
}

// ---- matching

static struct node *full_child(const struct lp_prefix *t, const struct node *parent,
                               const int32_t *tokens) {
    struct lp_page_key key = lp_page_key_make(parent->key, tokens, PAGE);
    for (struct node *n = *slot_of(t, key); n; n = n->next_in_slot)
        if (lp_page_key_equal(n->key, key) && n->parent == parent &&
            memcmp(n->tokens, tokens, sizeof n->tokens) == 0) // T3
            return n;
    return NULL;
}

// Of a node's children the one that shares the most leading tokens, at most n.
static struct node *best_child(const struct node *parent, const int32_t *tokens, int64_t n,
                               int32_t *n_common) {
    struct node *best = NULL;
    *n_common = 0;
    for (struct node *c = parent->first_child; c; c = c->next_sibling) {
        int32_t most = c->n_tokens < n ? c->n_tokens : (int32_t)n, common = 0;
        while (common < most && c->tokens[common] == tokens[common]) common++;
        if (common > *n_common) {
            *n_common = common;
            best = c;
        }
    }
    return best;
}

// A copy of a page behind the table; its first n_tokens tokens count. *done: false without room.
static lp_status append_copy(struct lp_prefix *t, struct lp_page_table *table, int32_t from,
                             int32_t n_tokens, bool *done, struct lp_err *err) {
    lp_kv_page_share(t->kv, from); // making room shall not take it
    *done = lp_prefix_make_room(t, table->part, 1);
    lp_status status = LP_OK;
    if (*done) {
        int32_t page = lp_kv_page_take_in(t->kv, table->part);
        lp_kv_page_copy(t->kv, page, from);
        status = lp_page_table_append(table, t->kv, page, n_tokens, err);
        if (status) lp_kv_page_put(t->kv, page);
    }
    lp_kv_page_put(t->kv, from);
    return status;
}

static lp_status append_shared(struct lp_prefix *t, struct lp_page_table *table, int32_t page,
                               struct lp_err *err) {
    lp_kv_page_share(t->kv, page);
    lp_status status = lp_page_table_append(table, t->kv, page, PAGE, err);
    if (status) lp_kv_page_put(t->kv, page);
    return status;
}

int64_t lp_prefix_peek(const struct lp_prefix *t, int32_t part, const int32_t *tokens, int64_t n,
                       int64_t *n_shared) {
    const struct node *at = &t->trees[part].root, *child;
    int64_t done = 0, shared = 0;
    int32_t common = 0;
    for (; n - done >= PAGE && (child = full_child(t, at, tokens + done)) != NULL; at = child) {
        shared += !is_idle(t, child);
        done += PAGE;
    }
    best_child(at, tokens + done, n - done, &common);
    if (n_shared) *n_shared = shared;
    return done + common;
}

lp_status lp_prefix_attach(struct lp_prefix *t, struct lp_page_table *table, const int32_t *tokens,
                           int64_t n, bool own_last, struct lp_prefix_match *match,
                           struct lp_err *err) {
    struct node *at = &t->trees[table->part].root, *child = NULL;
    lp_status status = LP_OK;
    int64_t done = 0;
    *match = (struct lp_prefix_match){.has_draft = true};
    while (n - done >= PAGE + (own_last ? 1 : 0) &&
           (child = full_child(t, at, tokens + done)) != NULL) {
        status = append_shared(t, table, child->page, err);
        if (status) break;
        match->has_draft = match->has_draft && child->has_draft;
        at = child;
        done += PAGE;
    }
    int32_t n_common = 0;
    bool copied = false;
    if (!status) child = best_child(at, tokens + done, n - done, &n_common);
    if (!status && child) {
        touch_path(t, child);
        status = append_copy(t, table, child->page, n_common, &copied, err);
        if (copied) {
            match->has_draft = match->has_draft && child->has_draft;
            done += n_common;
            if (LP_FAULT("hit-position") && done < n && n_common < PAGE) done++;
        }
    } else if (!status && own_last && done > 0) {
        // The match ends with a whole page that must become the table's own.
        lp_page_table_truncate(table, t->kv, done - PAGE);
        touch_path(t, at);
        status = append_copy(t, table, at->page, PAGE, &copied, err);
    }
    touch_path(t, at);
    match->n_tokens = done;
    if (status || (own_last && !copied)) { // without a copy, the last page is shared
        lp_page_table_truncate(table, t->kv, 0);
        match->n_tokens = 0;
    }
    return status;
}

lp_status lp_prefix_fork(struct lp_prefix *t, struct lp_page_table *table,
                         const struct lp_page_table *from, int64_t n, bool own_last,
                         int64_t *n_tokens, struct lp_err *err) {
    lp_status status = LP_OK;
    int64_t done = 0;
    while (n - done >= PAGE + (own_last ? 1 : 0) && !status) {
        status = append_shared(t, table, from->pages[done / PAGE], err);
        if (!status) done += PAGE;
    }
    bool copied = true;
    if (!status && n > done)
        status = append_copy(t, table, from->pages[done / PAGE], (int32_t)(n - done), &copied, err);
    *n_tokens = n > done && copied && !status ? n : done;
    if (status || (own_last && !copied)) {
        lp_page_table_truncate(table, t->kv, 0);
        *n_tokens = 0;
    }
    return status;
}

// ---- growing

// The same state, with the MTP layer's: better to have.
static void renew(struct lp_prefix *t, struct node *n, int32_t page) {
    lp_kv_page_set_cached(t->kv, n->page, false);
    lp_kv_page_put(t->kv, n->page);
    lp_kv_page_share(t->kv, page);
    lp_kv_page_set_cached(t->kv, page, true);
    n->page = page;
    n->has_draft = true;
}

void lp_prefix_insert(struct lp_prefix *t, const struct lp_page_table *table, const int32_t *tokens,
                      int64_t n, bool finished, bool has_draft) {
    struct node *at = &t->trees[table->part].root;
    int64_t done = 0, page = 0;
    int32_t common;
    for (; n - done >= PAGE; done += PAGE, page++) {
        struct node *child = full_child(t, at, tokens + done);
        if (!child) {
            lp_kv_page_share(t->kv, table->pages[page]);
            child = add(t, at, tokens + done, PAGE, table->pages[page], has_draft);
            if (!child) {
                lp_kv_page_put(t->kv, table->pages[page]);
                touch_path(t, at);
                return;
            }
        }
        if (has_draft && !child->has_draft && is_idle(t, child))
            renew(t, child, table->pages[page]);
        at = child;
    }
    if (!is_root(at)) touch_path(t, at);
    if (!finished || done == n) return;
    struct node *child = best_child(at, tokens + done, n - done, &common);
    if (child && common == n - done) { // is known, and maybe more
        touch_path(t, child);
        return;
    }
    struct node *shorter =
        child && common == child->n_tokens && !child->first_child && is_idle(t, child) ? child
                                                                                       : NULL;
    lp_kv_page_share(t->kv, table->pages[page]);
    child = add(t, at, tokens + done, (int32_t)(n - done), table->pages[page], has_draft);
    if (!child) {
        lp_kv_page_put(t->kv, table->pages[page]);
        return;
    }
    if (shorter) drop(t, shorter); // the new end begins with it
    touch_path(t, child);
}

int64_t lp_prefix_load(struct lp_prefix *t, int32_t part, const int32_t *tokens, int64_t n,
                       int64_t max_pages) {
    struct node *at = &t->trees[part].root, *child;
    int64_t done = 0, n_loaded = 0;
    for (; t->store && n - done >= PAGE && n_loaded < max_pages; done += PAGE, at = child) {
        child = full_child(t, at, tokens + done);
        if (child) continue;
        struct lp_page_key key = lp_page_key_make(at->key, tokens + done, PAGE);
        if (!lp_store_has(t->store, key)) break;
        if (!is_root(at)) lp_kv_page_share(t->kv, at->page); // making room shall not take it
        bool room = drop_idle_leaves(t, part, 1); // no more: `at` may lie below an idle page
        if (!is_root(at)) lp_kv_page_put(t->kv, at->page);
        if (!room || !lp_store_get(t->store, key, at->key, tokens + done, t->payload)) break;
        int32_t page = lp_kv_page_take_in(t->kv, part);
        lp_kv_page_write(t->kv, page, t->payload);
        child = add(t, at, tokens + done, PAGE, page, true);
        if (!child) {
            lp_kv_page_put(t->kv, page);
            break;
        }
        child->saved = true;
        touch_path(t, child);
        n_loaded++;
    }
    return n_loaded;
}

void lp_prefix_save(struct lp_prefix *t, int32_t part, const int32_t *tokens, int64_t n) {
    struct node *at = &t->trees[part].root, *child;
    if (!t->store) return;
    for (int64_t done = 0; n - done >= PAGE; done += PAGE, at = child) {
        child = full_child(t, at, tokens + done);
        if (!child) return;
        if (child->saved || !child->has_draft) continue;
        if (!lp_kv_page_read(t->kv, child->page, t->payload)) return;
        lp_store_put(t->store, child->key, at->key, child->tokens, t->payload);
        child->saved = true;
    }
}

// Which position went bad is not known here, so the whole path goes; of the ends within the first
// page those that are a beginning of the text, or begin with it.
static void forget_in(struct lp_prefix *t, struct node *root, const int32_t *tokens, int64_t n) {
    struct node *child = n >= PAGE ? full_child(t, root, tokens) : NULL, *next;
    if (child) drop_subtree(t, child);
    for (child = root->first_child; child; child = next) {
        int64_t most = child->n_tokens < n ? child->n_tokens : n;
        next = child->next_sibling;
        if (memcmp(child->tokens, tokens, (size_t)most * sizeof *tokens) == 0)
            drop_subtree(t, child);
    }
}

void lp_prefix_forget(struct lp_prefix *t, const int32_t *tokens, int64_t n) {
    for (int32_t i = 0; i < t->n_trees; i++) forget_in(t, &t->trees[i].root, tokens, n);
}
