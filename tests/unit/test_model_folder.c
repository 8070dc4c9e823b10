#include "lp_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/model_folder.h"

static char folder[64];

static void put(const char *name, size_t n_bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < n_bytes; i++) fputc('x', file);
    assert_int_equal(fclose(file), 0);
}

static void make_folder(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/limpid-folder-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const struct lp_model_set *find(const struct lp_model_folder *in, const char *name) {
    for (size_t i = 0; i < in->n_sets; i++)
        if (strcmp(in->sets[i].path + strlen(folder) + 1, name) == 0) return &in->sets[i];
    fail_msg("%s is not in the list", name);
    return NULL;
}

static void sets_count_once(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_model_folder in;
    make_folder("sub");
    make_folder("sub/deeper");
    make_folder(".cache");
    put("one.gguf", 3);
    put("b-00002-of-00003.gguf", 5);
    put("b-00001-of-00003.gguf", 7);
    put("b-00003-of-00003.gguf", 11);
    put("b-00001-of-00002.gguf", 1); // another set of that name
    put("sub/b-00003-of-00003.gguf", 2);
    put("sub/deeper/x.gguf", 1);
    put(".cache/y.gguf", 1);
    put("z-00004-of-00003.gguf", 1); // no part's name
    put("readme.txt", 1);
    assert_int_equal(lp_model_folder_read(&in, folder, &err), LP_OK);
    assert_int_equal(in.n_sets, 5);
    assert_false(in.has_checkpoint);
    assert_int_equal(find(&in, "one.gguf")->bytes, 3);
    assert_int_equal(find(&in, "z-00004-of-00003.gguf")->n_parts, 1);
    const struct lp_model_set *whole = find(&in, "b-00001-of-00003.gguf");
    assert_int_equal(whole->bytes, 23);
    assert_int_equal(whole->n_parts, 3);
    assert_int_equal(whole->n_missing, 0);
    const struct lp_model_set *half = find(&in, "b-00001-of-00002.gguf");
    assert_int_equal(half->n_missing, 1);
    assert_int_equal(half->missing[0], 2);
    const struct lp_model_set *last = find(&in, "sub/b-00001-of-00003.gguf");
    assert_int_equal(last->n_missing, 2);
    assert_int_equal(last->missing[1], 2);
    lp_model_folder_release(&in);
}

static void other_formats_and_nothing(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_model_folder in;
    assert_int_equal(lp_model_folder_read(&in, "/nonexistent", &err), LP_STATUS_IO);
    lp_model_folder_release(&in);
    put("model-00001-of-00002.safetensors", 1);
    assert_int_equal(lp_model_folder_read(&in, folder, &err), LP_OK);
    assert_int_equal(in.n_sets, 0);
    assert_true(in.has_checkpoint);
    lp_model_folder_release(&in);
}

static void a_checkpoint_is_known_by_its_config(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_model_folder in;
    put("config.json", 5);
    put("model-00001-of-00002.safetensors", 10);
    put("model-00002-of-00002.safetensors", 20);
    put("model.safetensors.index.json", 3);
    put("a.gguf", 7);
    assert_int_equal(lp_model_folder_read(&in, folder, &err), LP_OK);
    assert_int_equal(in.n_sets, 2);
    const struct lp_model_set *set = find(&in, "config.json");
    assert_true(set->is_checkpoint);
    assert_int_equal(set->bytes, 30);
    assert_int_equal(set->n_parts, 2);
    assert_int_equal(set->n_missing, 0);
    assert_false(in.has_checkpoint);
    char *of = lp_model_checkpoint_of(set->path);
    assert_string_equal(of, folder);
    lp_free(of);
    lp_model_folder_release(&in);
    of = lp_model_checkpoint_of("config.json");
    assert_string_equal(of, ".");
    lp_free(of);
    of = lp_model_checkpoint_of("/config.json");
    assert_string_equal(of, "/");
    lp_free(of);
    assert_null(lp_model_checkpoint_of("/a/my-config.json"));
    assert_null(lp_model_checkpoint_of("/config.json/x"));
}

static void memory_runs_out(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_model_folder in;
    put("a-00001-of-00002.gguf", 1);
    put("b.gguf", 1);
    put("config.json", 1);
    put("model.safetensors", 1);
    lp_status status = LP_STATUS_MEMORY;
    for (size_t nth = 1; status; nth++) {
        lp_alloc_fail_after(nth);
        status = lp_model_folder_read(&in, folder, &err);
        lp_alloc_fail_after(0);
        lp_model_folder_release(&in);
        assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        assert_true(nth < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sets_count_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_formats_and_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_checkpoint_is_known_by_its_config, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_runs_out, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
