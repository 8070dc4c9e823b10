#include "lp_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "kv/store.h"
#include "kv/store_file.h"

// Page number i of the tests: tokens, parent and payload all follow from i, so that what a store
// gives can be compared with what it must be.
enum { TOKENS = 4, SMALL = 64, LARGE = 50000, FILE_BYTES = 72 + 4 * TOKENS + 8 + SMALL + 8 };

struct page {
    int32_t tokens[TOKENS];
    struct lp_page_key parent, key;
};

static char dir[64];

static struct page page_of(int i) {
    struct page page;
    for (int t = 0; t < TOKENS; t++) page.tokens[t] = i * TOKENS + t;
    page.parent = (struct lp_page_key){(uint64_t)i / 3, 7};
    page.key = lp_page_key_make(page.parent, page.tokens, TOKENS);
    return page;
}

static void payload_of(int i, uint8_t *out, size_t n) {
    struct lp_rng rng;
    lp_rng_init(&rng, (uint64_t)i);
    for (size_t k = 0; k < n; k += 8) {
        uint64_t word = lp_rng_u64(&rng);
        memcpy(out + k, &word, n - k < 8 ? n - k : 8);
    }
}

static struct lp_store_options options_of(uint64_t max_files) {
    return (struct lp_store_options){.dir = dir,
                                     .max_bytes = max_files * FILE_BYTES,
                                     .fingerprint = {1, 2},
                                     .page_bytes = SMALL,
                                     .page_tokens = TOKENS};
}

static struct lp_store *open_with(struct lp_store_options options) {
    struct lp_store *store;
    struct lp_err err = {0};
    if (lp_store_open(&store, &options, &err) != LP_OK) fail_msg("%s", err.text);
    return store;
}

static struct lp_store *open_files(uint64_t max_files) {
    return open_with(options_of(max_files));
}

static void put(struct lp_store *store, int i) {
    struct page page = page_of(i);
    uint8_t payload[SMALL];
    payload_of(i, payload, SMALL);
    lp_store_put(store, page.key, page.parent, page.tokens, payload);
    memset(payload, 0, SMALL); // the store has its copy
    lp_store_flush(store);
}

static bool has(struct lp_store *store, int i) {
    return lp_store_has(store, page_of(i).key);
}

// A hit, and then the right bytes.
static bool get(struct lp_store *store, int i) {
    struct page page = page_of(i);
    uint8_t payload[SMALL], expected[SMALL];
    if (!lp_store_get(store, page.key, page.parent, page.tokens, payload)) return false;
    payload_of(i, expected, SMALL);
    assert_memory_equal(payload, expected, SMALL);
    return true;
}

static const char *path_to(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const char *path_of_page(uint64_t fingerprint_lo, int32_t page_tokens, int i) {
    struct lp_store_format format = {{fingerprint_lo, 2}, SMALL, (uint32_t)page_tokens};
    char name[LP_STORE_FILE_NAME_BYTES];
    lp_store_file_name(lp_store_file_id(&format, page_of(i).key), name);
    return path_to(name);
}

static const char *path_of(int i) {
    return path_of_page(1, TOKENS, i);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static size_t read_file(const char *path, uint8_t *out, size_t n) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    n = fread(out, 1, n, file);
    fclose(file);
    return n;
}

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

struct census {
    int n_pages, n_temporary, n_else;
    uint64_t page_bytes;
};

static struct census count_files(void) {
    struct census census = {0};
    DIR *entries = opendir(dir);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        struct stat st;
        if (entry->d_name[0] == '.' || stat(path_to(entry->d_name), &st) != 0) continue;
        if (strstr(entry->d_name, ".page"))
            census.n_pages++, census.page_bytes += (uint64_t)st.st_size;
        else if (strstr(entry->d_name, ".tmp-"))
            census.n_temporary++;
        else
            census.n_else++;
    }
    closedir(entries);
    return census;
}

static void set_time(int i, time_t seconds) {
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(i), times, 0), 0);
}

static int make_dir(void **state) {
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/limpid-store-XXXXXX", root && strlen(root) < 30 ? root : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    DIR *entries = opendir(dir);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
        if (unlink(path_to(entry->d_name)) != 0) rmdir(path_to(entry->d_name));
    if (entries) closedir(entries);
    return rmdir(dir);
}

static void pages_come_back_also_after_reopening(void **state) {
    (void)state;
    struct lp_store *store = open_files(1000);
    for (int i = 0; i < 200; i++) assert_false(has(store, i) || get(store, i));
    for (int i = 0; i < 200; i++) put(store, i);
    for (int i = 0; i < 200; i++) assert_true(has(store, i) && get(store, i));
    for (int i = 0; i < 200; i++) put(store, i); // nothing to do
    struct lp_store_stats stats = lp_store_get_stats(store);
    assert_int_equal(stats.pages, 200);
    assert_int_equal(stats.bytes, 200 * FILE_BYTES);
    assert_int_equal(stats.reads, 200);
    assert_int_equal(stats.writes, 200);
    assert_int_equal(stats.damaged + stats.dropped + stats.failed, 0);
    lp_store_close(store);
    assert_int_equal(count_files().n_pages, 200);
    assert_int_equal(count_files().n_temporary, 0);
    store = open_files(1000);
    for (int i = 0; i < 200; i++) assert_true(has(store, i) && get(store, i));
    assert_false(has(store, 200) || get(store, 200));
    assert_int_equal(lp_store_get_stats(store).pages, 200);
    lp_store_close(store);
    lp_store_close(NULL);
}

static void close_writes_what_is_queued(void **state) {
    (void)state;
    struct lp_store *store = open_files(100);
    for (int i = 0; i < 50; i++) {
        struct page page = page_of(i);
        uint8_t payload[SMALL];
        payload_of(i, payload, SMALL);
        lp_store_put(store, page.key, page.parent, page.tokens, payload);
        lp_store_put(store, page.key, page.parent, page.tokens, payload); // queued already
    }
    lp_store_close(store);
    store = open_files(100);
    for (int i = 0; i < 50; i++) assert_true(get(store, i));
    lp_store_close(store);
    assert_int_equal(count_files().n_pages, 50);
}

static void a_full_queue_drops(void **state) {
    (void)state;
    struct lp_store_options options = options_of(1000);
    options.queue_bytes = 2 * FILE_BYTES;
    struct lp_store *store = open_with(options);
    for (int i = 0; i < 300; i++) {
        struct page page = page_of(i);
        uint8_t payload[SMALL];
        payload_of(i, payload, SMALL);
        lp_store_put(store, page.key, page.parent, page.tokens, payload);
    }
    lp_store_flush(store);
    struct lp_store_stats stats = lp_store_get_stats(store);
    assert_int_equal(stats.writes + stats.dropped, 300);
    assert_true(stats.writes >= 2 && stats.dropped > 0); // a write takes longer than a put
    uint64_t n_hits = 0;
    for (int i = 0; i < 300; i++) n_hits += get(store, i);
    assert_int_equal(n_hits, stats.writes);
    put(store, 299); // there is room again
    assert_true(get(store, 299));
    lp_store_close(store);
}

static void every_changed_byte_is_a_miss(void **state) {
    (void)state;
    uint8_t whole[FILE_BYTES + 1], changed[FILE_BYTES];
    struct lp_store *store = open_files(100);
    put(store, 5);
    assert_int_equal(read_file(path_of(5), whole, sizeof whole), FILE_BYTES);
    for (int at = 0; at < FILE_BYTES; at++)
        for (int flip = 1; flip <= 0x80; flip *= 0x80) {
            memcpy(changed, whole, FILE_BYTES);
            changed[at] ^= (uint8_t)flip;
            write_file(path_of(5), changed, FILE_BYTES);
            struct lp_store *fresh = open_files(100); // a header's damage is found here
            assert_false(get(fresh, 5));
            lp_store_close(fresh);
            write_file(path_of(5), changed, FILE_BYTES);
            assert_false(get(store, 5));
            assert_false(has(store, 5));
            assert_false(exists(path_of(5)));
        }
    assert_int_equal(lp_store_get_stats(store).damaged, 2 * FILE_BYTES);
    write_file(path_of(5), whole, FILE_BYTES);
    assert_true(get(store, 5));
    lp_store_close(store);
}

static void every_other_length_is_a_miss(void **state) {
    (void)state;
    uint8_t whole[FILE_BYTES + 1] = {0};
    struct lp_store *store = open_files(100);
    put(store, 5);
    assert_int_equal(read_file(path_of(5), whole, FILE_BYTES), FILE_BYTES);
    for (int n = 0; n <= FILE_BYTES + 1; n++) {
        if (n == FILE_BYTES) continue;
        write_file(path_of(5), whole, (size_t)n);
        assert_false(get(store, 5));
        assert_false(exists(path_of(5)));
        write_file(path_of(5), whole, (size_t)n);
        struct lp_store *fresh = open_files(100);
        assert_false(has(fresh, 5));
        assert_int_equal(lp_store_get_stats(fresh).damaged, 1);
        assert_false(exists(path_of(5)));
        lp_store_close(fresh);
    }
    lp_store_close(store);
}

// What a file system may leave after a power cut: blocks of zeros, or of an older file.
static void lost_blocks_are_a_miss(void **state) {
    (void)state;
    enum { BLOCK = 512 };
    struct lp_store_options options = options_of(1000);
    options.page_bytes = LARGE;
    static uint8_t payloads[2][LARGE], got[LARGE], files[2][LARGE + 200], broken[LARGE + 200];
    struct lp_store_format format = {{1, 2}, LARGE, TOKENS};
    char name[2][LP_STORE_FILE_NAME_BYTES];
    size_t n_file;
    assert_true(lp_store_file_bytes(&format, &n_file));
    options.max_bytes = 10 * n_file;
    struct lp_store *store = open_with(options);
    for (int i = 0; i < 2; i++) {
        struct page page = page_of(i);
        payload_of(i, payloads[i], LARGE);
        lp_store_put(store, page.key, page.parent, page.tokens, payloads[i]);
        lp_store_flush(store);
        lp_store_file_name(lp_store_file_id(&format, page.key), name[i]);
        assert_int_equal(read_file(path_to(name[i]), files[i], sizeof files[i]), n_file);
    }
    struct page page = page_of(0);
    for (size_t at = 0; at < n_file; at += BLOCK)
        for (int old = 0; old < 3; old++) {
            memcpy(broken, files[0], n_file);
            size_t n = n_file - at < BLOCK ? n_file - at : BLOCK;
            if (old == 2) n = n_file - at; // all from here
            if (old)
                memcpy(broken + at, files[1] + at, n);
            else
                memset(broken + at, 0, n);
            write_file(path_to(name[0]), broken, n_file);
            assert_false(lp_store_get(store, page.key, page.parent, page.tokens, got));
        }
    write_file(path_to(name[0]), files[0], n_file);
    assert_true(lp_store_get(store, page.key, page.parent, page.tokens, got));
    assert_memory_equal(got, payloads[0], LARGE);
    lp_store_close(store);
}

static void other_models_and_settings_see_nothing_and_stay(void **state) {
    (void)state;
    struct lp_store_options options = options_of(1000), others[3];
    for (int i = 0; i < 3; i++) others[i] = options;
    others[0].fingerprint.lo = 9;
    others[1].page_tokens = TOKENS - 1;
    others[2].page_bytes = SMALL - 1;
    struct lp_store *store = open_with(options);
    for (int i = 0; i < 10; i++) put(store, i);
    for (int o = 0; o < 3; o++) {
        struct lp_store *other = open_with(others[o]);
        assert_int_equal(lp_store_get_stats(other).pages, 0);
        for (int i = 0; i < 10; i++) assert_false(has(other, i) || get(other, i));
        assert_int_equal(lp_store_get_stats(other).damaged, 0);
        lp_store_close(other);
    }
    struct lp_store *other = open_with(others[0]); // the same keys, other content: both stay
    struct page page = page_of(3);
    uint8_t payload[SMALL] = {42}, got[SMALL];
    lp_store_put(other, page.key, page.parent, page.tokens, payload);
    lp_store_flush(other);
    assert_true(lp_store_get(other, page.key, page.parent, page.tokens, got));
    assert_memory_equal(got, payload, SMALL);
    for (int i = 0; i < 10; i++) assert_true(get(store, i));
    // A file of the other model under the name that we look for.
    char from[400];
    snprintf(from, sizeof from, "%s", path_of_page(9, TOKENS, 3));
    assert_int_equal(rename(from, path_of(3)), 0);
    assert_false(get(store, 3));
    lp_store_close(other);
    lp_store_close(store);
}

static void the_same_key_of_another_text_is_a_miss_and_stays(void **state) {
    (void)state;
    struct lp_store *store = open_files(10);
    put(store, 1);
    struct page page = page_of(1);
    uint8_t payload[SMALL];
    page.tokens[TOKENS - 1]++;
    assert_false(lp_store_get(store, page.key, page.parent, page.tokens, payload));
    page.tokens[TOKENS - 1]--;
    page.parent.hi++;
    assert_false(lp_store_get(store, page.key, page.parent, page.tokens, payload));
    assert_int_equal(lp_store_get_stats(store).damaged, 0);
    assert_true(has(store, 1) && get(store, 1));
    lp_store_close(store);
}

static void a_vanished_file_is_a_miss_and_can_be_put_again(void **state) {
    (void)state;
    struct lp_store *store = open_files(10);
    put(store, 1);
    assert_int_equal(unlink(path_of(1)), 0);
    assert_true(has(store, 1));
    assert_false(get(store, 1));
    assert_false(has(store, 1));
    assert_int_equal(lp_store_get_stats(store).pages, 0);
    put(store, 1);
    assert_true(get(store, 1));
    lp_store_close(store);
}

static void the_least_recently_used_go_first(void **state) {
    (void)state;
    struct lp_store *store = open_files(10);
    for (int i = 0; i < 10; i++) put(store, i);
    assert_true(get(store, 0));
    assert_true(get(store, 3));
    for (int i = 10; i < 14; i++) { // 1, 2, 4, 5 go
        put(store, i);
        assert_int_equal(count_files().n_pages, 10);
    }
    for (int i = 0; i < 14; i++)
        assert_int_equal(has(store, i), i != 1 && i != 2 && i != 4 && i != 5);
    lp_store_close(store);
    // After reopening the order is that of the files' times, which a hit renews.
    const int by_age[] = {12, 0, 7, 3, 13, 6, 9, 8, 11, 10};
    for (int k = 0; k < 10; k++) set_time(by_age[k], 1000000 + k);
    store = open_files(10);
    assert_true(get(store, 0));
    lp_store_close(store);
    store = open_files(10);
    put(store, 20);
    put(store, 21);
    put(store, 22);
    assert_false(has(store, 12) || has(store, 7) || has(store, 3));
    assert_true(has(store, 0) && has(store, 13));
    lp_store_close(store);
    store = open_files(4); // a lower limit holds at once
    assert_int_equal(count_files().n_pages, 4);
    assert_true(has(store, 0) && get(store, 20) && get(store, 21) && get(store, 22));
    lp_store_close(store);
}

static void files_of_others_count_and_make_room(void **state) {
    (void)state;
    struct lp_store_options options = options_of(10), other = options_of(10);
    other.fingerprint.lo = 9;
    struct lp_store *store = open_with(options);
    for (int i = 0; i < 8; i++) put(store, i);
    lp_store_close(store);
    for (int i = 0; i < 8; i++) set_time(i, 1000000 + i);
    uint8_t future[100] = "LPKVPAGE\x02"; // another version of the format, older than all
    write_file(path_to("0123456789abcdef0123456789abcdef.page"), future, sizeof future);
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    utimensat(AT_FDCWD, path_to("0123456789abcdef0123456789abcdef.page"), times, 0);
    store = open_with(other);
    assert_int_equal(count_files().n_pages, 9);
    for (int i = 0; i < 5; i++) {
        put(store, i);
        assert_true(count_files().page_bytes <= other.max_bytes);
    }
    lp_store_close(store);
    assert_false(exists(path_to("0123456789abcdef0123456789abcdef.page")));
    for (int i = 0; i < 8; i++) assert_int_equal(exists(path_of(i)), i >= 3);
}

static void two_stores_share_a_directory(void **state) {
    (void)state;
    struct lp_store *a = open_files(10), *b = open_files(10);
    put(a, 1);
    assert_false(has(b, 1));
    assert_true(get(b, 1));
    put(b, 1); // there already: not written again
    assert_true(has(b, 1));
    assert_int_equal(lp_store_get_stats(b).writes, 0);
    lp_store_close(b);
    for (int i = 2; i < 11; i++) put(a, i);
    usleep(20000); // longer than the step of file times
    b = open_files(10);
    assert_int_equal(lp_store_get_stats(b).pages, 10);
    assert_true(get(b, 1));
    put(a, 11); // a knows nothing of b's hit but sees the file's time
    assert_true(exists(path_of(1)) && !exists(path_of(2)));
    assert_false(get(b, 2) || has(b, 2));
    lp_store_close(a);
    lp_store_close(b);
    // D3 with two writers: what one has not yet seen of the other is max_bytes / 16.
    a = open_files(32);
    b = open_files(32);
    for (int i = 100; i < 300; i++) {
        put(i % 3 ? a : b, i);
        assert_true(count_files().n_pages <= 32 + 32 / 16);
    }
    lp_store_close(a);
    lp_store_close(b);
}

static void leftovers_of_dead_writers_go_and_strangers_stay(void **state) {
    (void)state;
    const char *strangers[] = {"notes.txt", "abc.page", "0123456789ABCDEF0123456789abcdef.page",
                               "0123456789abcdef0123456789abcdef.pages",
                               "0123456789abcdef0123456789abcdef"};
    for (int i = 0; i < 5; i++) write_file(path_to(strangers[i]), "x", 1);
    write_file(path_to("0123456789abcdef0123456789abcdef.tmp-1-1"), "x", 1);
    int fd = open(path_to("0123456789abcdef0123456789abcdee.tmp-2-1"), O_CREAT | O_RDWR, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0); // as a living writer has it
    assert_int_equal(mkdir(path_to("0123456789abcdef0123456789abcded.page"), 0700), 0);
    struct lp_store *store = open_files(10);
    assert_false(exists(path_to("0123456789abcdef0123456789abcdef.tmp-1-1")));
    assert_true(exists(path_to("0123456789abcdef0123456789abcdee.tmp-2-1")));
    for (int i = 0; i < 5; i++) assert_true(exists(path_to(strangers[i])));
    assert_int_equal(lp_store_get_stats(store).damaged, 0);
    lp_store_close(store);
    close(fd);
    lp_store_close(open_files(10));
    assert_int_equal(count_files().n_temporary, 0);
    assert_true(exists(path_to("0123456789abcdef0123456789abcded.page")));
}

struct capture {
    FILE *file;
    int saved;
};

static struct capture start_capture(void) {
    struct capture capture = {tmpfile(), dup(STDERR_FILENO)};
    assert_non_null(capture.file);
    fflush(stderr);
    dup2(fileno(capture.file), STDERR_FILENO);
    lp_log_set_level(LP_LOG_WARN);
    return capture;
}

static const char *end_capture(struct capture *capture) {
    static char text[2000];
    lp_log_set_level(LP_LOG_ERROR);
    dup2(capture->saved, STDERR_FILENO);
    close(capture->saved);
    rewind(capture->file);
    text[fread(text, 1, sizeof text - 1, capture->file)] = 0;
    fclose(capture->file);
    return text;
}

static void one_warning_tells_what_is_ignored(void **state) {
    (void)state;
    struct lp_store_options other = options_of(100);
    other.fingerprint.lo = 9;
    struct lp_store *store = open_files(100);
    for (int i = 0; i < 5; i++) put(store, i);
    lp_store_close(store);
    char expected[300];
    write_file(path_of(0), "short", 5);
    write_file(path_of(1), "short", 5);
    struct capture capture = start_capture();
    store = open_with(other);
    snprintf(expected, sizeof expected,
             "limpid: warn: 3 files in %s are of another model or version and are ignored; 2 "
             "damaged files removed\n",
             dir);
    assert_string_equal(end_capture(&capture), expected);
    assert_int_equal(lp_store_get_stats(store).damaged, 2);
    lp_store_close(store);
}

static void warnings_come_once_a_minute(void **state) {
    (void)state;
    char name[420];
    struct lp_store *store = open_files(10);
    for (int i = 0; i < 3; i++) {
        put(store, i);
        write_file(path_of(i), "short", 5);
    }
    snprintf(name, sizeof name, "%s was damaged", path_of(0));
    struct capture capture = start_capture();
    for (int i = 0; i < 3; i++) assert_false(get(store, i));
    const char *text = end_capture(&capture);
    assert_non_null(strstr(text, name));
    const char *line = strchr(text, '\n');
    assert_true(line && line[1] == 0);
    assert_int_equal(lp_store_get_stats(store).damaged, 3);
    lp_store_close(store);
}

static void assert_refused(struct lp_store_options options, lp_status expected, const char *word) {
    struct lp_store *store;
    struct lp_err err = {0};
    assert_int_equal(lp_store_open(&store, &options, &err), expected);
    assert_null(store);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not name %s", err.text, word);
}

static void bad_directories_are_named(void **state) {
    (void)state;
    struct lp_store_options options = options_of(10);
    char path[200];
    options.dir = path;
    snprintf(path, sizeof path, "%s/made", dir);
    struct lp_store *store = open_with(options);
    put(store, 1);
    lp_store_close(store);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    char made[64];
    snprintf(made, sizeof made, "%s", dir); // empty "made" for the tear-down
    strcat(dir, "/made");
    assert_int_equal(unlink(path_of(1)), 0);
    strcpy(dir, made);

    snprintf(path, sizeof path, "%s/absent/deeper", dir);
    assert_refused(options, LP_STATUS_IO, path);
    snprintf(path, sizeof path, "%s/file", dir);
    write_file(path, "x", 1);
    assert_refused(options, LP_STATUS_IO, path);

    assert_int_equal(chmod(dir, 0555), 0);
    pid_t child = fork(); // root may write anywhere, so somebody else tries
    if (child == 0) {
        struct lp_err err = {0};
        options.dir = dir;
        if (getuid() == 0 && setuid(65534) != 0) _exit(3);
        lp_status status = lp_store_open(&store, &options, &err);
        _exit(status == LP_STATUS_IO && !store && strstr(err.text, dir) ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(chmod(dir, 0700), 0);
}

static void bad_options_are_named(void **state) {
    (void)state;
    struct lp_store_options options = options_of(10), bad = options;
    bad.dir = "";
    assert_refused(bad, LP_STATUS_INVALID, "directory");
    bad = options;
    bad.page_tokens = 0;
    assert_refused(bad, LP_STATUS_INVALID, "0 tokens");
    bad.page_tokens = LP_STORE_MAX_PAGE_TOKENS + 1;
    assert_refused(bad, LP_STATUS_INVALID, "4097");
    bad = options;
    bad.page_bytes = 0;
    assert_refused(bad, LP_STATUS_INVALID, "0 bytes");
    bad.page_bytes = SIZE_MAX - 100;
    assert_refused(bad, LP_STATUS_INVALID, "raise");
    bad = options;
    bad.max_bytes = FILE_BYTES - 1;
    assert_refused(bad, LP_STATUS_INVALID, "167");
    bad = options;
    bad.queue_bytes = FILE_BYTES - 1;
    assert_refused(bad, LP_STATUS_INVALID, "queue_bytes");
}

// A limit on the size of files stands for a full disk: a part is written, then an error comes.
static void a_failed_write_is_counted_and_the_store_goes_on(void **state) {
    (void)state;
    struct rlimit saved, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
    small = saved;
    small.rlim_cur = FILE_BYTES - 20;
    struct lp_store *store = open_files(10);
    put(store, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    put(store, 2);
    put(store, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
    assert_int_equal(lp_store_get_stats(store).failed, 2);
    assert_false(has(store, 2) || get(store, 2));
    assert_int_equal(count_files().n_pages, 1);
    assert_int_equal(count_files().n_temporary, 0);
    put(store, 2);
    assert_true(get(store, 1) && get(store, 2));
    assert_int_equal(lp_store_get_stats(store).writes, 2);
    lp_store_close(store);
}

static void a_removed_directory_fails_writes_only(void **state) {
    (void)state;
    struct lp_store *store = open_files(10);
    assert_int_equal(rmdir(dir), 0);
    put(store, 1);
    assert_false(get(store, 1));
    assert_int_equal(lp_store_get_stats(store).failed, 1);
    lp_store_close(store);
    assert_int_equal(mkdir(dir, 0700), 0);
}

static void out_of_memory_anywhere(void **state) {
    (void)state;
    struct lp_store_options options = options_of(1000);
    struct lp_store *store = open_with(options);
    for (int i = 0; i < 300; i++) put(store, i);
    lp_store_close(store);
    int n_refused = 0, n_dropped = 0;
    for (size_t nth = 1;; nth++) {
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        lp_status status = lp_store_open(&store, &options, &err);
        if (!status) put(store, 1000);
        lp_alloc_fail_after(0);
        if (status) {
            assert_int_equal(status, LP_STATUS_MEMORY);
            assert_true(strlen(err.text) > 0);
            n_refused++;
            continue;
        }
        struct lp_store_stats stats = lp_store_get_stats(store);
        assert_int_equal(stats.pages, 300 + stats.writes);
        assert_int_equal(stats.writes + stats.dropped, 1);
        for (int i = 0; i < 300; i += 50) assert_true(get(store, i));
        assert_int_equal(get(store, 1000), stats.writes == 1);
        lp_store_close(store);
        if (stats.writes == 1) break;
        n_dropped++;
    }
    assert_true(n_refused > 5 && n_dropped > 0);
}

// Threads: two that read, one that puts, one that damages files; all pages are right or missing.
enum { N_SHARED = 60, ROUNDS = 600 };
struct shared {
    struct lp_store *store;
    int seed;
    int n_hits;
    _Atomic bool *done; // the putter sets it
};

static void *reader(void *shared_) {
    struct shared *shared = shared_;
    struct lp_rng rng;
    lp_rng_init(&rng, (uint64_t)shared->seed);
    for (int round = 0; !*shared->done; round++) {
        int i = (int)(lp_rng_u64(&rng) % N_SHARED);
        if (has(shared->store, i) || round % 4 == 0) shared->n_hits += get(shared->store, i);
    }
    return NULL;
}

static void *putter(void *shared_) {
    struct shared *shared = shared_;
    struct lp_rng rng;
    lp_rng_init(&rng, (uint64_t)shared->seed);
    for (int round = 0; round < ROUNDS; round++) {
        int i = (int)(lp_rng_u64(&rng) % N_SHARED);
        struct page page = page_of(i);
        uint8_t payload[SMALL];
        payload_of(i, payload, SMALL);
        lp_store_put(shared->store, page.key, page.parent, page.tokens, payload);
        if (round % 20 == 0) lp_store_flush(shared->store);
    }
    *shared->done = true;
    return NULL;
}

static void threads_get_right_pages_or_none(void **state) {
    (void)state;
    struct lp_store_options options = options_of(N_SHARED / 2);
    options.queue_bytes = 8 * FILE_BYTES;
    struct lp_store *store = open_with(options);
    for (int i = 0; i < N_SHARED / 2; i++) put(store, i);
    _Atomic bool done = false;
    struct shared shared[3] = {{store, 1, 0, &done}, {store, 2, 0, &done}, {store, 3, 0, &done}};
    pthread_t threads[3];
    for (int t = 0; t < 3; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, t < 2 ? reader : putter, &shared[t]), 0);
    for (int k = 0; !done; k++) {
        int fd = open(path_of(k % N_SHARED), O_RDWR);
        if (fd >= 0) {
            (void)!(k % 2 ? pwrite(fd, &k, 1, k % FILE_BYTES) : ftruncate(fd, k % FILE_BYTES));
            close(fd);
        }
        usleep(200);
    }
    for (int t = 0; t < 3; t++) pthread_join(threads[t], NULL);
    lp_store_flush(store);
    assert_true(shared[0].n_hits > 0 && shared[1].n_hits > 0);
    struct lp_store_stats stats = lp_store_get_stats(store);
    assert_true(stats.damaged > 0);
    assert_true(stats.bytes <= options.max_bytes);
    assert_int_equal(stats.failed, 0);
    assert_true(count_files().page_bytes <= options.max_bytes);
    lp_store_close(store);
}

// A process that puts pages is killed at any moment, again and again.
enum { KILLS = 200, N_KILL_PAGES = 400 };

static void put_until_killed(const struct lp_store_options *options, uint64_t seed) {
    static uint8_t payload[LARGE];
    struct lp_store *store;
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    if (lp_store_open(&store, options, NULL) != LP_OK) _exit(2);
    for (;;) {
        int i = (int)(lp_rng_u64(&rng) % N_KILL_PAGES);
        struct page page = page_of(i);
        payload_of(i, payload, LARGE);
        lp_store_put(store, page.key, page.parent, page.tokens, payload);
        if (i % 4 == 0) lp_store_get(store, page.key, page.parent, page.tokens, payload);
    }
}

static void a_killed_writer_leaves_whole_pages(void **state) {
    (void)state;
    static uint8_t payload[LARGE], expected[LARGE];
    struct lp_store_options options = options_of(0);
    struct lp_rng rng;
    int n_checked = 0, n_leftovers = 0, most = 0;
    lp_rng_init(&rng, 2024);
    options.page_bytes = LARGE;
    options.queue_bytes = 8 * (LARGE + 200);
    options.max_bytes = 60 * (LARGE + 200);
    for (int kill_no = 0; kill_no < KILLS; kill_no++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) put_until_killed(&options, (uint64_t)kill_no);
        usleep((useconds_t)(lp_rng_u64(&rng) % 12000));
        assert_int_equal(kill(child, SIGKILL), 0);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        n_leftovers += count_files().n_temporary;

        struct lp_store *store = open_with(options);
        struct lp_store_stats stats = lp_store_get_stats(store);
        assert_int_equal(stats.damaged, 0); // a kill leaves temporary files, never half a page
        assert_int_equal(count_files().n_temporary, 0);
        assert_true(count_files().page_bytes <= options.max_bytes);
        if ((int)stats.pages > most) most = (int)stats.pages;
        int n_hits = 0;
        for (int i = kill_no % 4; i < N_KILL_PAGES; i += 4) { // a quarter each time
            struct page page = page_of(i);
            bool known = has(store, i);
            bool hit = lp_store_get(store, page.key, page.parent, page.tokens, payload);
            assert_int_equal(known, hit);
            if (!hit) continue;
            payload_of(i, expected, LARGE);
            assert_memory_equal(payload, expected, LARGE);
            n_hits++;
        }
        n_checked += n_hits;
        lp_store_close(store);
    }
    print_message("%d kills: %d temporary files were left, %d pages checked, at most %d at once\n",
                  KILLS, n_leftovers, n_checked, most);
    assert_true(n_checked > 0);
}

int main(void) {
    lp_log_set_level(LP_LOG_ERROR);
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TEST(pages_come_back_also_after_reopening),
        TEST(close_writes_what_is_queued),
        TEST(a_full_queue_drops),
        TEST(every_changed_byte_is_a_miss),
        TEST(every_other_length_is_a_miss),
        TEST(lost_blocks_are_a_miss),
        TEST(other_models_and_settings_see_nothing_and_stay),
        TEST(the_same_key_of_another_text_is_a_miss_and_stays),
        TEST(a_vanished_file_is_a_miss_and_can_be_put_again),
        TEST(the_least_recently_used_go_first),
        TEST(files_of_others_count_and_make_room),
        TEST(two_stores_share_a_directory),
        TEST(leftovers_of_dead_writers_go_and_strangers_stay),
        TEST(one_warning_tells_what_is_ignored),
        TEST(warnings_come_once_a_minute),
        TEST(bad_directories_are_named),
        TEST(bad_options_are_named),
        TEST(a_failed_write_is_counted_and_the_store_goes_on),
        TEST(a_removed_directory_fails_writes_only),
        TEST(out_of_memory_anywhere),
        TEST(threads_get_right_pages_or_none),
        TEST(a_killed_writer_leaves_whole_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
