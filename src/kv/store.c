// The index says what is on the disk, the queue what is on its way there. One lock guards both and
// the counters; it is never held over a system call on a file. The writer thread is the only one
// that adds files and removes old ones, so what make_room has made stays.
#include "kv/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "kv/store_dir.h"
#include "kv/store_file.h"
#include "kv/store_index.h"

#define DEFAULT_QUEUE_BYTES ((size_t)256 << 20)
#define NOTICE_EVERY_NS 60000000000u
#define LOOKS_PER_MAX_BYTES 16 // D3: how often the writer looks for what other processes wrote

enum notice { NOTICE_DAMAGED, NOTICE_DROPPED, NOTICE_FAILED, N_NOTICES };

struct job { // a page to be written
    struct job *next;
    struct lp_page_key id;
    uint8_t file[]; // the whole file; the payload's checksum is left to the writer
};

struct lp_store {
    int dir;
    char *path;
    uint64_t max_bytes;
    size_t max_queue_bytes;
    struct lp_store_format format;
    size_t header_bytes, file_bytes;
    pthread_t writer;
    uint64_t unseen_bytes; // the writer's: written since the last look

    pthread_mutex_t lock; // all below
    pthread_cond_t work;  // a job has come, or stop
    pthread_cond_t idle;  // n_queued has become 0
    struct lp_store_index index;
    struct job *first, *last;
    size_t n_queued; // put and not yet written, the job in the writer's hands too
    bool stop;
    struct lp_store_stats stats; // without pages and bytes
    uint64_t next_notice_ns[N_NOTICES];
};

// With the lock held: whether it is time to warn again.
static bool notice_due(struct lp_store *store, enum notice notice) {
    uint64_t now = lp_clock_ns();
    if (now < store->next_notice_ns[notice]) return false;
    store->next_notice_ns[notice] = now + NOTICE_EVERY_NS;
    return true;
}

static void warn_damaged(const struct lp_store *store, struct lp_page_key id, uint64_t n_damaged) {
    char name[LP_STORE_FILE_NAME_BYTES];
    lp_store_file_name(id, name);
    lp_log(LP_LOG_WARN,
           "%s/%s was damaged and has been removed (%llu such files so far); if there are more, "
           "check the disk",
           store->path, name, (unsigned long long)n_damaged);
}

static void count_damaged(struct lp_store *store, struct lp_page_key id) {
    pthread_mutex_lock(&store->lock);
    uint64_t n_damaged = ++store->stats.damaged;
    bool warn = notice_due(store, NOTICE_DAMAGED);
    pthread_mutex_unlock(&store->lock);
    if (warn) warn_damaged(store, id, n_damaged);
}

// Looking at the directory.

struct look {
    struct lp_store_found *found; // not in the index before; oldest first
    size_t n_found;
    struct lp_page_key last_damaged;
    size_t n_damaged, n_others;
};

static int by_time(const void *a_, const void *b_) {
    const struct lp_store_found *a = a_, *b = b_;
    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

// Marks what is known as seen; keeps the rest at the front of ids and returns how many that are.
static size_t mark_known(struct lp_store *store, struct lp_page_key *ids, size_t n_ids) {
    size_t n_new = 0;
    pthread_mutex_lock(&store->lock);
    store->index.look++;
    for (size_t i = 0; i < n_ids; i++) {
        struct lp_store_entry *entry = lp_store_index_find(&store->index, ids[i]);
        if (entry)
            entry->look = store->index.look;
        else
            ids[n_new++] = ids[i];
    }
    pthread_mutex_unlock(&store->lock);
    return n_new;
}

static void inspect_new(struct lp_store *store, struct look *look, const struct lp_page_key *ids,
                        size_t n_ids) {
    for (size_t i = 0; i < n_ids; i++) {
        struct lp_store_found *found = &look->found[look->n_found];
        if (!lp_store_dir_inspect(store->dir, &store->format, ids[i], found)) continue;
        if (found->state == LP_STORE_FILE_DAMAGED) {
            lp_store_dir_remove(store->dir, ids[i]);
            look->last_damaged = ids[i];
            look->n_damaged++;
            continue;
        }
        look->n_others += found->state == LP_STORE_FILE_OTHERS;
        look->n_found++;
    }
    qsort(look->found, look->n_found, sizeof *look->found, by_time);
}

static bool index_found(struct lp_store *store, const struct lp_store_found *found) {
    return lp_store_index_store(&store->index, found->id, found->bytes, found->used_ns,
                                found->state == LP_STORE_FILE_OURS ? LP_STORE_ENTRY_OURS
                                                                   : LP_STORE_ENTRY_OTHERS);
}

// Brings the index up to date with the directory.
static lp_status look_at_directory(struct lp_store *store, struct look *look, struct lp_err *err) {
    struct lp_page_key *ids;
    size_t n_ids;
    *look = (struct look){0};
    lp_status status = lp_store_dir_list(store->dir, &ids, &n_ids, err);
    if (status) return status;
    size_t n_new = mark_known(store, ids, n_ids);
    look->found = lp_alloc(n_new, sizeof *look->found);
    bool stored = look->found != NULL;
    if (look->found) {
        inspect_new(store, look, ids, n_new);
        pthread_mutex_lock(&store->lock);
        for (size_t i = 0; stored && i < look->n_found; i++)
            stored = lp_store_index_find(&store->index, look->found[i].id) ||
                     index_found(store, &look->found[i]);
        lp_store_index_forget_unseen(&store->index);
        store->stats.damaged += look->n_damaged;
        pthread_mutex_unlock(&store->lock);
    }
    lp_free(look->found);
    lp_free(ids);
    if (!stored) return lp_err_memory(err, n_new * sizeof *look->found, "the page store's index");
    return LP_OK;
}

// The writer.

// Removes the least recently used files until need bytes fit. 0 or an errno value.
static int make_room(struct lp_store *store, uint64_t need) {
    int rc = 0;
    pthread_mutex_lock(&store->lock);
    while (rc == 0 && store->index.bytes > store->max_bytes - need) {
        const struct lp_store_entry oldest = *lp_store_index_oldest(&store->index);
        struct lp_store_found now;
        lp_store_index_remove(&store->index, oldest.id);
        pthread_mutex_unlock(&store->lock);
        bool exists = lp_store_dir_inspect(store->dir, &store->format, oldest.id, &now);
        // Used since by another process: then its turn comes later.
        bool keep = exists && now.used_ns > oldest.used_ns && now.state != LP_STORE_FILE_DAMAGED;
        if (exists && !keep) rc = lp_store_dir_remove(store->dir, oldest.id);
        pthread_mutex_lock(&store->lock);
        if (rc != 0) now.used_ns = oldest.used_ns;
        if (keep || rc != 0) index_found(store, &now);
    }
    pthread_mutex_unlock(&store->lock);
    return rc;
}

static void look_if_due(struct lp_store *store) {
    struct look look;
    if (store->unseen_bytes < store->max_bytes / LOOKS_PER_MAX_BYTES) return;
    store->unseen_bytes = 0;
    // Where it fails, the store goes on with what it knows; the next look comes soon.
    if (look_at_directory(store, &look, NULL) != LP_OK || look.n_damaged == 0) return;
    pthread_mutex_lock(&store->lock);
    uint64_t n_damaged = store->stats.damaged;
    bool warn = notice_due(store, NOTICE_DAMAGED);
    pthread_mutex_unlock(&store->lock);
    if (warn) warn_damaged(store, look.last_damaged, n_damaged);
}

static void settle(struct lp_store *store, const struct job *job, const char *error) {
    pthread_mutex_lock(&store->lock);
    uint64_t n_failed = 0;
    if (error) {
        lp_store_index_remove(&store->index, job->id);
        store->stats.failed++;
        if (notice_due(store, NOTICE_FAILED)) n_failed = store->stats.failed;
    } else {
        lp_store_index_store(&store->index, job->id, store->file_bytes, lp_store_dir_now_ns(),
                             LP_STORE_ENTRY_OURS);
    }
    if (--store->n_queued == 0) pthread_cond_broadcast(&store->idle);
    pthread_mutex_unlock(&store->lock);
    if (n_failed > 0)
        lp_log(LP_LOG_WARN,
               "a page cannot be written into the page store %s: %s (%llu so far); answers are not "
               "affected, but these prefixes will be computed again",
               store->path, error, (unsigned long long)n_failed);
}

static void write_job(struct lp_store *store, struct job *job) {
    look_if_due(store);
    int rc = make_room(store, store->file_bytes);
    struct lp_store_found found;
    bool there = lp_store_dir_inspect(store->dir, &store->format, job->id, &found) &&
                 found.state == LP_STORE_FILE_OURS; // another process has been quicker (D2)
    if (rc == 0 && !there) {
        uint64_t sum =
            lp_store_file_payload_sum(&store->format, job->file, job->file + store->header_bytes);
        memcpy(job->file + store->file_bytes - sizeof sum, &sum, sizeof sum);
        rc = lp_store_dir_write(store->dir, job->id, job->file, store->file_bytes);
        if (rc == 0) {
            store->unseen_bytes += store->file_bytes;
            pthread_mutex_lock(&store->lock);
            store->stats.writes++;
            pthread_mutex_unlock(&store->lock);
        }
    }
    settle(store, job, rc == 0 ? NULL : strerror(rc));
}

static void *writer_main(void *store_) {
    struct lp_store *store = store_;
    for (;;) {
        pthread_mutex_lock(&store->lock);
        while (!store->first && !store->stop) pthread_cond_wait(&store->work, &store->lock);
        struct job *job = store->first;
        if (job) {
            store->first = job->next;
            if (!store->first) store->last = NULL;
        }
        pthread_mutex_unlock(&store->lock);
        if (!job) return NULL;
        write_job(store, job);
        lp_free(job);
    }
}

// Open and close.

static lp_status check_options(const struct lp_store_options *o, struct lp_store *store,
                               struct lp_err *err) {
    if (!o->dir || !o->dir[0])
        return lp_err_set(err, LP_STATUS_INVALID, "the page store needs a directory");
    if (o->page_tokens < 1 || o->page_tokens > LP_STORE_MAX_PAGE_TOKENS || o->page_bytes < 1)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the page store's pages have %d tokens and %zu bytes, expected 1 to %d "
                          "tokens and at least 1 byte",
                          o->page_tokens, o->page_bytes, LP_STORE_MAX_PAGE_TOKENS);
    store->format =
        (struct lp_store_format){o->fingerprint, o->page_bytes, (uint32_t)o->page_tokens};
    store->header_bytes = lp_store_file_header_bytes(&store->format);
    if (!lp_store_file_bytes(&store->format, &store->file_bytes) ||
        store->file_bytes > o->max_bytes)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the page store %s may hold %llu bytes, but one page needs %zu + %zu; "
                          "raise the limit",
                          o->dir, (unsigned long long)o->max_bytes, o->page_bytes,
                          store->header_bytes + sizeof(uint64_t));
    store->max_bytes = o->max_bytes;
    store->max_queue_bytes = o->queue_bytes ? o->queue_bytes : DEFAULT_QUEUE_BYTES;
    if (store->max_queue_bytes < store->file_bytes)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the page store's queue holds %zu bytes, but one page needs %zu; raise "
                          "queue_bytes",
                          store->max_queue_bytes, store->file_bytes);
    return LP_OK;
}

static void release(struct lp_store *store) {
    lp_store_dir_close(store->dir);
    lp_store_index_release(&store->index);
    pthread_cond_destroy(&store->idle);
    pthread_cond_destroy(&store->work);
    pthread_mutex_destroy(&store->lock);
    lp_free(store->path);
    lp_free(store);
}

static void report_opening(const struct lp_store *store, const struct look *look) {
    if (look->n_others + look->n_damaged > 0)
        lp_log(LP_LOG_WARN,
               "%zu files in %s are of another model or version and are ignored; %zu damaged files "
               "removed",
               look->n_others, store->path, look->n_damaged);
    lp_log(LP_LOG_INFO, "the page store %s holds %llu pages of this model (%llu bytes)",
           store->path, (unsigned long long)store->index.n_ours,
           (unsigned long long)store->index.ours_bytes);
}

lp_status lp_store_open(struct lp_store **out, const struct lp_store_options *options,
                        struct lp_err *err) {
    *out = NULL;
    struct lp_store *store = lp_alloc(1, sizeof *store);
    if (!store) return lp_err_memory(err, sizeof *store, "the page store");
    lp_status status = check_options(options, store, err);
    if (!status && !(store->path = lp_strdup(options->dir)))
        status = lp_err_memory(err, strlen(options->dir) + 1, "the page store");
    if (!status) status = lp_store_dir_open(&store->dir, store->path, err);
    if (status) {
        lp_free(store->path);
        lp_free(store);
        return status;
    }
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->work, NULL);
    pthread_cond_init(&store->idle, NULL);
    struct look look;
    status = look_at_directory(store, &look, err);
    if (!status) {
        report_opening(store, &look);
        int rc = make_room(store, 0);
        if (rc != 0)
            status = lp_err_set(err, LP_STATUS_IO, "cannot remove an old file: %s", strerror(rc));
    }
    if (!status && pthread_create(&store->writer, NULL, writer_main, store) != 0)
        status = lp_err_set(err, LP_STATUS_LIMIT, "cannot start the writer thread");
    if (status) {
        lp_err_context(err, "the page store %s", store->path);
        release(store);
        return status;
    }
    *out = store;
    return LP_OK;
}

void lp_store_close(struct lp_store *store) {
    if (!store) return;
    pthread_mutex_lock(&store->lock);
    store->stop = true; // the writer still empties the queue
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->writer, NULL);
    release(store);
}

// Pages.

bool lp_store_has(struct lp_store *store, struct lp_page_key key) {
    struct lp_page_key id = lp_store_file_id(&store->format, key);
    pthread_mutex_lock(&store->lock);
    const struct lp_store_entry *entry = lp_store_index_find(&store->index, id);
    bool has = entry && entry->state == LP_STORE_ENTRY_OURS;
    pthread_mutex_unlock(&store->lock);
    return has;
}

bool lp_store_get(struct lp_store *store, struct lp_page_key key, struct lp_page_key parent,
                  const int32_t *tokens, void *payload) {
    const struct lp_store_page page = {key, parent, tokens};
    struct lp_page_key id = lp_store_file_id(&store->format, key);
    bool was_there = lp_store_has(store, key);
    enum lp_store_read result = lp_store_dir_read(store->dir, &store->format, &page, payload);
    pthread_mutex_lock(&store->lock);
    // What is in the index now but was not before has been written meanwhile; what was and is not
    // any more is being removed. Neither is touched.
    const struct lp_store_entry *entry = lp_store_index_find(&store->index, id);
    bool known = was_there && entry && entry->state == LP_STORE_ENTRY_OURS;
    if (result == LP_STORE_READ_OK) store->stats.reads++;
    if (known && result == LP_STORE_READ_OK)
        lp_store_index_store(&store->index, id, store->file_bytes, lp_store_dir_now_ns(),
                             LP_STORE_ENTRY_OURS);
    if (known && (result == LP_STORE_READ_NONE || result == LP_STORE_READ_DAMAGED))
        lp_store_index_remove(&store->index, id);
    pthread_mutex_unlock(&store->lock);
    if (result == LP_STORE_READ_DAMAGED) count_damaged(store, id);
    return result == LP_STORE_READ_OK;
}

// With the lock held: takes a place in the queue and marks the page as queued.
static bool reserve(struct lp_store *store, struct lp_page_key id) {
    if (store->n_queued >= store->max_queue_bytes / store->file_bytes) return false;
    if (!lp_store_index_queue(&store->index, id)) return false;
    store->n_queued++;
    return true;
}

static void cancel(struct lp_store *store, struct lp_page_key id) {
    lp_store_index_remove(&store->index, id);
    if (--store->n_queued == 0) pthread_cond_broadcast(&store->idle);
}

static void append(struct lp_store *store, struct job *job) {
    if (store->last)
        store->last->next = job;
    else
        store->first = job;
    store->last = job;
    pthread_cond_signal(&store->work);
}

void lp_store_put(struct lp_store *store, struct lp_page_key key, struct lp_page_key parent,
                  const int32_t *tokens, const void *payload) {
    struct lp_page_key id = lp_store_file_id(&store->format, key);
    pthread_mutex_lock(&store->lock);
    const struct lp_store_entry *entry = lp_store_index_find(&store->index, id);
    bool known = entry && entry->state != LP_STORE_ENTRY_OTHERS;
    bool reserved = !known && reserve(store, id);
    pthread_mutex_unlock(&store->lock);
    if (known) return;
    size_t job_bytes;
    struct job *job = NULL;
    if (reserved && lp_add_size(sizeof *job, store->file_bytes, &job_bytes))
        job = lp_alloc_aligned(job_bytes, 1);
    if (job) { // the copy, which takes long, without the lock
        const struct lp_store_page page = {key, parent, tokens};
        job->next = NULL;
        job->id = id;
        lp_store_file_encode_header(&store->format, &page, job->file);
        memcpy(job->file + store->header_bytes, payload, store->format.page_bytes);
    }
    pthread_mutex_lock(&store->lock);
    uint64_t n_dropped = 0;
    if (job) {
        append(store, job);
    } else {
        if (reserved) cancel(store, id);
        store->stats.dropped++;
        if (notice_due(store, NOTICE_DROPPED)) n_dropped = store->stats.dropped;
    }
    pthread_mutex_unlock(&store->lock);
    if (n_dropped > 0)
        lp_log(LP_LOG_WARN,
               "a page was not taken by the page store %s (%llu so far): the disk is slower than "
               "pages come, or memory is short",
               store->path, (unsigned long long)n_dropped);
}

void lp_store_flush(struct lp_store *store) {
    pthread_mutex_lock(&store->lock);
    while (store->n_queued > 0) pthread_cond_wait(&store->idle, &store->lock);
    pthread_mutex_unlock(&store->lock);
}

struct lp_store_stats lp_store_get_stats(struct lp_store *store) {
    pthread_mutex_lock(&store->lock);
    struct lp_store_stats stats = store->stats;
    stats.pages = store->index.n_ours;
    stats.bytes = store->index.ours_bytes;
    pthread_mutex_unlock(&store->lock);
    return stats;
}
