// The fingerprint of a cache directory: whatever changes a bit of a state changes it, and a store of
// another one is as good as empty.
#include "cache_folder.h"

#include "base/file.h"
#include "base/log.h"
#include "engine/engine.h"

#define GOLDEN "tests/golden/dsa_shared.gguf" // with an MTP layer
#define MAX_PRINTS 40

static struct {
    struct lp_page_key key;
    char what[80];
} prints[MAX_PRINTS];
static int n_prints;

static struct lp_page_key fingerprint_of(limpid_model *m, const limpid_engine_options *o) {
    struct lp_page_key key;
    struct lp_engine_settings s;
    struct lp_err err;
    if (lp_engine_settings_make(&s, m, o, &err)) fail_msg("%s", err.text);
    if (lp_engine_fingerprint(&key, m, o, &s, &err)) fail_msg("%s", err.text);
    return key;
}

static bool same(struct lp_page_key a, struct lp_page_key b) {
    return a.lo == b.lo && a.hi == b.hi;
}

static void add(struct lp_page_key key, const char *what) {
    for (int i = 0; i < n_prints; i++)
        if (same(key, prints[i].key))
            fail_msg("'%s' has the fingerprint of '%s'", what, prints[i].what);
    assert_true(n_prints < MAX_PRINTS);
    prints[n_prints].key = key;
    snprintf(prints[n_prints++].what, sizeof prints[0].what, "%s", what);
}

static limpid_model *open_with(const char *path, const limpid_model_options *o) {
    limpid_model *m;
    limpid_error err;
    if (limpid_model_open(&m, path, o, &err)) fail_msg("%s", err.text);
    return m;
}

static void settings_that_change_bits_change_it(void **state) {
    (void)state;
    static const char *const kvs[] = {"f32", "f16", "bf16", "q8_0", "fp8"};
    static const char *const routes[] = {"expanded", "absorbed", "dense"};
    limpid_model *m = open_with(GOLDEN, NULL);
    limpid_engine_options o;
    n_prints = 0;
    for (int i = 0; i < 5; i++) {
        o = limpid_engine_default_options();
        o.kv_type = kvs[i];
        add(fingerprint_of(m, &o), kvs[i]);
    }
    for (int i = 0; i < 3; i++) {
        o = limpid_engine_default_options();
        o.route = routes[i];
        add(fingerprint_of(m, &o), routes[i]);
    }
    o = limpid_engine_default_options();
    o.deterministic = true;
    add(fingerprint_of(m, &o), "deterministic");
    o = limpid_engine_default_options();
    o.speculate = 1;
    add(fingerprint_of(m, &o), "speculate");
    const struct lp_page_key drafts = fingerprint_of(m, &o);
    o.speculate = 3; // the draft layer's state is the same
    assert_true(same(fingerprint_of(m, &o), drafts));
    // What changes no state leaves it: sizes, and opening the file again.
    o = limpid_engine_default_options();
    o.n_context = 100;
    o.chunk = 7;
    o.max_seqs = 3;
    o.kv_type = "f32";
    assert_true(same(fingerprint_of(m, &o), prints[0].key));
    limpid_model_close(m);
    m = open_with(GOLDEN, NULL);
    assert_true(same(fingerprint_of(m, &o), prints[0].key));
    limpid_model_close(m);
    limpid_model_options ref = limpid_model_default_options();
    ref.backend = "ref";
    m = open_with(GOLDEN, &ref);
    add(fingerprint_of(m, &o), "ref");
    limpid_model_close(m);
}

static void write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

// The same file with the lowest bit of one byte of a tensor flipped, at `part` of its bytes.
static void one_bit_of_a_small_tensor_changes_it(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.attn_norm.weight", "output_norm.weight",
                                        "token_embd.weight", "output.weight"};
    limpid_engine_options o = limpid_engine_default_options();
    struct lp_err err;
    struct lp_gguf *gguf;
    char *data, path[] = "/tmp/limpid-settings-XXXXXX";
    size_t n;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(lp_file_read(GOLDEN, 1 << 28, &data, &n, &err), LP_OK);
    assert_int_equal(lp_gguf_open(&gguf, GOLDEN, &err), LP_OK);
    n_prints = 0;
    limpid_model *m = open_with(GOLDEN, NULL);
    add(fingerprint_of(m, &o), "the file");
    limpid_model_close(m);
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        bool listed =
            strstr(t->name.data, "ffn_gate_inp.weight") == t->name.data + t->name.len - 19;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            listed |= lp_str_equal(t->name, lp_str_from(names[k]));
        if (!listed || t->type > LP_TYPE_F16) continue;
        for (int part = 0; part < 4; part++) {
            char what[80];
            const uint64_t value = t->type == LP_TYPE_F32 ? 4 : 2;
            const uint64_t at = t->file_offset + t->n_bytes * (uint64_t)part / 4 / value * value;
            snprintf(what, sizeof what, "%.*s, part %d", (int)t->name.len, t->name.data, part);
            data[at] ^= 1;
            write_file(path, data, n);
            data[at] ^= 1;
            m = open_with(path, NULL);
            add(fingerprint_of(m, &o), what);
            limpid_model_close(m);
        }
    }
    assert_true(n_prints > 8);
    lp_gguf_close(gguf);
    free(data);
    unlink(path);
}

// Runs a prompt of 130 tokens; returns how many came from the store.
static int64_t run_with_store(limpid_model *m, limpid_engine_options o, const char *dir) {
    limpid_engine *e;
    limpid_error err;
    limpid_event event;
    limpid_request *request;
    int32_t tokens[130];
    for (int i = 0; i < 130; i++) tokens[i] = 3 + i % 20;
    o.cache_dir = dir;
    o.n_context = 256;
    if (limpid_engine_new(&e, m, &o, &err)) fail_msg("%s", err.text);
    limpid_request_options r = limpid_request_default_options();
    r.tokens = tokens;
    r.n_tokens = 130;
    r.max_tokens = 1;
    if (limpid_request_new(&request, e, &r, &err)) fail_msg("%s", err.text);
    do
        if (limpid_request_next(request, &event, &err)) fail_msg("%s", err.text);
    while (event.kind != LIMPID_EVENT_DONE);
    int64_t from_disk = (int64_t)limpid_engine_get_stats(e).cached_disk_tokens;
    limpid_request_free(request);
    limpid_engine_free(e, NULL);
    return from_disk;
}

static void a_store_of_other_settings_is_ignored_with_a_warning(void **state) {
    (void)state;
    char dir[] = "/tmp/limpid-settings-XXXXXX", text[2000];
    assert_non_null(mkdtemp(dir));
    limpid_model *m = open_with(GOLDEN, NULL);
    limpid_engine_options a = limpid_engine_default_options(), b = a;
    b.kv_type = "bf16"; // a page of it has as many bytes
    assert_int_equal(run_with_store(m, a, dir), 0);
    assert_int_equal(run_with_store(m, a, dir), 128);
    FILE *said = tmpfile();
    assert_non_null(said);
    int saved = dup(STDERR_FILENO);
    lp_log_set_level(LP_LOG_WARN);
    dup2(fileno(said), STDERR_FILENO);
    int64_t from_disk = run_with_store(m, b, dir);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    assert_int_equal(from_disk, 0);
    assert_non_null(strstr(text, "2 files in "));
    assert_non_null(strstr(text, "are of another model or version and are ignored"));
    assert_int_equal(run_with_store(m, b, dir), 128); // and both live there
    assert_int_equal(run_with_store(m, a, dir), 128);
    limpid_model_close(m);
    drop_cache_folder(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_change_bits_change_it),
        cmocka_unit_test(one_bit_of_a_small_tensor_changes_it),
        cmocka_unit_test(a_store_of_other_settings_is_ignored_with_a_warning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
