// The prefix cache under examination: hits of many lengths behind another text's prefix, a sequence
// that was pre-empted, and pages that went to disk and came back in another engine.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor/check_cache.h"

#define TAIL 9 // tokens of the other text behind the common prefix

// tokens that begin as the prompt does and go on otherwise.
static void make_other(const struct lp_cache_exam *c, int64_t n_common, int32_t *out) {
    memcpy(out, c->prompt, (size_t)n_common * sizeof *out);
    for (int64_t i = 0; i < TAIL; i++)
        out[n_common + i] = (int32_t)((c->prompt[n_common + i] + 1) % c->model.weights->h.n_vocab);
}

// A hit is as long as what the texts share.
static bool accuse_length(struct lp_cache_exam *c, int64_t hit, int64_t got) {
    char text[200];
    if (got == hit) return false;
    snprintf(
        text, sizeof text,
        "a prompt that shares %lld tokens with a cached text is given a prefix of %lld, so that "
        "the positions behind it are off by %lld",
        (long long)hit, (long long)got, (long long)(got - hit));
    lp_cache_accuse(c, &(struct lp_cache_fault){"behind a cached prefix", "prefix cache",
                                                "another length", 0, text,
                                                "Run with --no-prefix-cache and report this."});
    return true;
}

static lp_status check_hit(struct lp_cache_exam *c, int64_t hit, bool *same, struct lp_err *err) {
    limpid_engine *e = c->engine;
    struct lp_page_table source = {0}, table = {0};
    struct lp_prefix_match match = {0};
    int32_t other[256];
    char how[64];
    struct lp_cache_way way = {"behind a cached prefix", "prefix cache", how, hit};
    snprintf(how, sizeof how, "behind a cached prefix of %lld tokens", (long long)hit);
    make_other(c, hit, other);
    lp_status status = lp_cache_run(c, e, &source, other, 0, hit + TAIL, hit + TAIL, err);
    if (!status) lp_prefix_insert(e->prefix, &source, other, hit + TAIL, true, true);
    lp_page_table_release(&source, e->kv);
    if (!status) status = lp_cache_scrub(e, err);
    if (!status) status = lp_prefix_attach(e->prefix, &table, c->prompt, c->n, true, &match, err);
    if (!status && accuse_length(c, hit, match.n_tokens)) *same = false;
    if (!status && *same)
        status = lp_cache_run(c, e, &table, c->prompt, match.n_tokens, c->n, c->n, err);
    if (!status && *same) status = lp_cache_compare(c, e, &table, &way, same, err);
    lp_page_table_release(&table, e->kv);
    lp_prefix_forget(e->prefix, other, hit + TAIL);
    return status;
}

// A sequence leaves the cache in the middle of its prompt, others run, and it comes back.
static lp_status check_preempted(struct lp_cache_exam *c, bool *same, struct lp_err *err) {
    limpid_engine *e = c->engine;
    struct lp_page_table table = {0}, others = {0};
    struct lp_prefix_match match = {0};
    int64_t half = c->n / 2 + 1;
    lp_status status = lp_cache_run(c, e, &table, c->prompt, 0, half, half, err);
    if (!status) lp_prefix_insert(e->prefix, &table, c->prompt, half, true, true);
    lp_page_table_release(&table, e->kv);
    int64_t n_other = c->n - 1;
    if (!status) status = lp_cache_run(c, e, &others, c->prompt + 1, 0, n_other, n_other, err);
    lp_page_table_release(&others, e->kv);
    if (!status) status = lp_cache_scrub(e, err);
    if (!status) status = lp_prefix_attach(e->prefix, &table, c->prompt, c->n, true, &match, err);
    struct lp_cache_way way = {"pre-empted and restored", "pre-emption",
                               "pre-empted in its middle and restored", match.n_tokens};
    if (!status) status = lp_cache_run(c, e, &table, c->prompt, match.n_tokens, c->n, c->n, err);
    if (!status) status = lp_cache_compare(c, e, &table, &way, same, err);
    lp_page_table_release(&table, e->kv);
    lp_prefix_forget(e->prefix, c->prompt, c->n);
    return status;
}

lp_status lp_cache_check_prefix(struct lp_cache_exam *c, struct lp_err *err) {
    int64_t lengths[] = {65, c->n - 1, 63, 1, 64, c->n / 2};
    bool same = true;
    lp_status status = LP_OK;
    int done = 0, n = c->exam->options->quick ? 4 : 6;
    for (int i = 0; i < n && same && !status; i++) {
        if (lengths[i] >= c->n || lengths[i] < 1) continue;
        if (!lp_cache_has_time(c, "more prefixes")) break;
        status = check_hit(c, lengths[i], &same, err);
        done++;
    }
    if (!status && same && done)
        lp_cache_ok(c, "behind a cached prefix",
                    "of one token, around the border of a page, and all "
                    "but one");
    if (status || !same || !lp_cache_has_time(c, "pre-empted and restored")) return status;
    status = check_preempted(c, &same, err);
    if (!status && same)
        lp_cache_ok(c, "pre-empted and restored", "given up in the middle, others ran, taken back");
    return status;
}

// ---- disk

static void remove_dir(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir) closedir(dir);
    rmdir(path);
}

static lp_status write_pages(struct lp_cache_exam *c, const char *dir, struct lp_err *err) {
    limpid_engine *e = NULL;
    struct lp_page_table table = {0};
    lp_status status = lp_cache_engine(&e, c, dir, err);
    if (status) return status;
    status = lp_cache_run(c, e, &table, c->prompt, 0, c->n, c->n, err);
    if (!status) {
        lp_prefix_insert(e->prefix, &table, c->prompt, c->n, true, true);
        lp_prefix_save(e->prefix, 0, c->prompt, c->n);
        lp_store_flush(e->store);
    }
    lp_page_table_release(&table, e->kv);
    limpid_engine_free(e, NULL);
    return status;
}

static lp_status read_pages(struct lp_cache_exam *c, const char *dir, bool *same,
                            struct lp_err *err) {
    limpid_engine *e = NULL;
    struct lp_page_table table = {0};
    struct lp_prefix_match match = {0};
    char how[96];
    lp_status status = lp_cache_engine(&e, c, dir, err);
    if (status) return status;
    int64_t want = (c->n - 1) / LP_KV_PAGE_TOKENS, got = 0;
    status = lp_cache_scrub(e, err);
    if (!status) got = lp_prefix_load(e->prefix, 0, c->prompt, c->n - 1, want);
    if (!status) status = lp_prefix_attach(e->prefix, &table, c->prompt, c->n, true, &match, err);
    struct lp_cache_way way = {"from a cache directory", "disk cache", how, match.n_tokens};
    snprintf(how, sizeof how, "behind %lld of %lld pages that were read from disk", (long long)got,
             (long long)want);
    if (!status) status = lp_cache_run(c, e, &table, c->prompt, match.n_tokens, c->n, c->n, err);
    if (!status) status = lp_cache_compare(c, e, &table, &way, same, err);
    lp_page_table_release(&table, e->kv);
    limpid_engine_free(e, NULL);
    if (!status && *same && got == want) lp_cache_ok(c, "from a cache directory", how);
    if (!status && *same && got != want)
        lp_report_say(c->exam->report, LP_STAGE_CACHE, LP_CHECK_NOTE, "from a cache directory",
                      "%lld of %lld pages came back from disk; the others were computed",
                      (long long)got, (long long)want);
    return status;
}

lp_status lp_cache_check_disk(struct lp_cache_exam *c, struct lp_err *err) {
    const char *parent = getenv("TMPDIR");
    char path[512];
    bool same = true;
    if (c->n <= LP_KV_PAGE_TOKENS) { // only whole pages go to disk
        lp_report_say(c->exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "from a cache directory",
                      "the prompt of %lld tokens fills no page of %d", (long long)c->n,
                      LP_KV_PAGE_TOKENS);
        return LP_OK;
    }
    if (!lp_cache_has_time(c, "from a cache directory")) return LP_OK;
    snprintf(path, sizeof path, "%s/limpid-doctor-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(path)) {
        lp_report_say(c->exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "from a cache directory",
                      "no temporary folder %s: %s", path, strerror(errno));
        return LP_OK;
    }
    lp_status status = write_pages(c, path, err);
    if (!status) status = read_pages(c, path, &same, err);
    remove_dir(path);
    return status;
}
