// A hash map from call ids to turns, and a list of turns by last use.
#include "serve/turns.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"

#define N_BUCKETS 1024
#define MAX_CALLS 64 // of a turn; further ones are not found again

struct entry {             // one call id
    struct entry *next;    // of its bucket
    struct entry *sibling; // of its turn
    struct kept *of;
    char id[];
};

struct kept {
    struct lp_turn turn; // first: a turn is its kept
    struct kept *newer, *older;
    struct entry *entries;
    size_t bytes;
};

struct lp_turns {
    pthread_mutex_t lock;
    struct entry *buckets[N_BUCKETS];
    struct kept *newest, *oldest;
    size_t bytes, max_bytes;
};

static size_t bucket_of(const char *id) {
    uint64_t hash = 1469598103934665603u; // FNV-1a
    for (; *id; id++) hash = (hash ^ (unsigned char)*id) * 1099511628211u;
    return (hash >> 20) % N_BUCKETS;
}

struct lp_turns *lp_turns_new(size_t max_bytes) {
    struct lp_turns *t = lp_alloc(1, sizeof *t);
    if (!t) return NULL;
    t->max_bytes = max_bytes;
    pthread_mutex_init(&t->lock, NULL); // cannot fail on Linux without attributes
    return t;
}

void lp_turn_put(struct lp_turn *turn) {
    if (turn && atomic_fetch_sub(&turn->n_users, 1) == 1) lp_free(turn);
}

// ---- under the lock ----

static void unlink_kept(struct lp_turns *t, struct kept *k) {
    *(k->newer ? &k->newer->older : &t->newest) = k->older;
    *(k->older ? &k->older->newer : &t->oldest) = k->newer;
    k->newer = k->older = NULL;
}

static void link_newest(struct lp_turns *t, struct kept *k) {
    k->older = t->newest;
    *(t->newest ? &t->newest->newer : &t->oldest) = k;
    t->newest = k;
}

static void remove_entry(struct lp_turns *t, struct entry *e) {
    struct entry **at = &t->buckets[bucket_of(e->id)];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    lp_free(e);
}

static void drop(struct lp_turns *t, struct kept *k) {
    while (k->entries) {
        struct entry *e = k->entries;
        k->entries = e->sibling;
        remove_entry(t, e);
    }
    unlink_kept(t, k);
    t->bytes -= k->bytes;
    lp_turn_put(&k->turn);
}

static bool add_entry(struct lp_turns *t, struct kept *k, const char *id) {
    size_t n = strlen(id) + 1;
    struct entry *e = lp_alloc(sizeof *e + n, 1);
    if (!e) return false;
    memcpy(e->id, id, n);
    struct entry **bucket = &t->buckets[bucket_of(id)];
    e->next = *bucket;
    *bucket = e;
    e->of = k;
    e->sibling = k->entries;
    k->entries = e;
    return true;
}

void lp_turns_free(struct lp_turns *t) {
    if (!t) return;
    while (t->oldest) drop(t, t->oldest);
    pthread_mutex_destroy(&t->lock);
    lp_free(t);
}

// ---- keeping ----

static struct lp_str copy_text(char **at, struct lp_str text) {
    struct lp_str copy = {*at, text.len};
    if (text.len) memcpy(*at, text.data, text.len);
    *at += text.len;
    return copy;
}

// One block: the struct, the ids, the texts.
static struct kept *copy_turn(const struct lp_turn *from, size_t max_bytes) {
    size_t n_ids = from->n_prompt + from->n_answer;
    size_t n_text =
        from->prompt.len + from->text.len + from->reasoning.len + from->end.len + from->message.len;
    if (n_ids > max_bytes / sizeof(int32_t) || n_text > max_bytes) return NULL;
    size_t bytes = sizeof(struct kept) + n_ids * sizeof(int32_t) + n_text;
    struct kept *k = bytes <= max_bytes ? lp_alloc(bytes, 1) : NULL;
    if (!k) return NULL;
    int32_t *ids = (int32_t *)(void *)(k + 1);
    char *at = (char *)(ids + n_ids);
    memcpy(ids, from->ids, n_ids * sizeof *ids);
    k->turn = (struct lp_turn){.prompt = copy_text(&at, from->prompt),
                               .text = copy_text(&at, from->text),
                               .reasoning = copy_text(&at, from->reasoning),
                               .end = copy_text(&at, from->end),
                               .message = copy_text(&at, from->message),
                               .ids = ids,
                               .n_prompt = from->n_prompt,
                               .n_answer = from->n_answer};
    atomic_init(&k->turn.n_users, 1);
    k->bytes = bytes;
    return k;
}

void lp_turns_keep(struct lp_turns *t, const char *const *call_ids, size_t n_calls,
                   const struct lp_turn *turn) {
    struct kept *k = copy_turn(turn, t->max_bytes);
    if (!k) return;
    pthread_mutex_lock(&t->lock);
    while (t->oldest && t->bytes + k->bytes > t->max_bytes) drop(t, t->oldest);
    link_newest(t, k);
    t->bytes += k->bytes;
    bool ok = true;
    for (size_t i = 0; i < n_calls && i < MAX_CALLS && ok; i++) ok = add_entry(t, k, call_ids[i]);
    if (!ok) drop(t, k);
    pthread_mutex_unlock(&t->lock);
}

struct lp_turn *lp_turns_find(struct lp_turns *t, const char *call_id) {
    pthread_mutex_lock(&t->lock);
    struct entry *e = t->buckets[bucket_of(call_id)];
    while (e && strcmp(e->id, call_id) != 0) e = e->next;
    struct kept *k = e ? e->of : NULL; // e may be gone behind the lock; k is held
    if (k) {
        unlink_kept(t, k);
        link_newest(t, k);
        atomic_fetch_add(&k->turn.n_users, 1);
    }
    pthread_mutex_unlock(&t->lock);
    return k ? &k->turn : NULL;
}
