// Folders of a model, written here file by file.
#include <sys/stat.h>

#include "temp_folder.h"

#include "base/alloc.h"
#include "hf/hf_folder.h"

static void put_weights(const char *name) {
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    struct lp_bytes file = {0};
    uint64_t length = strlen(header);
    lp_bytes_append(&file, &length, sizeof length);
    lp_bytes_puts(&file, header);
    lp_bytes_puts(&file, "1234");
    put_bytes(name, file.data, file.len);
    lp_bytes_release(&file);
}

static void refused(lp_status status, const char *words, const char *more) {
    struct lp_hf_folder f;
    struct lp_err err = {0};
    assert_int_equal(lp_hf_folder_open(&f, folder, &err), status);
    if (!strstr(err.text, words) || !strstr(err.text, more)) print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, words));
    assert_non_null(strstr(err.text, more));
    lp_hf_folder_release(&f);
}

static void template_is(const char *expected) {
    struct lp_hf_folder f;
    struct lp_err err;
    if (lp_hf_folder_open(&f, folder, &err)) print_message("%s\n", err.text);
    assert_non_null(f.weights);
    if (expected)
        assert_string_equal(f.chat_template, expected);
    else
        assert_null(f.chat_template);
    lp_hf_folder_release(&f);
}

static void a_whole_folder(void **state) {
    (void)state;
    struct lp_hf_folder f;
    struct lp_err err;
    char path[64];
    assert_false(lp_hf_is_folder(folder));
    put("config.json", "{\"model_type\": \"llama\", \"hidden_size\": 7}");
    assert_true(lp_hf_is_folder(folder));
    put_weights("model.safetensors");
    snprintf(path, sizeof path, "%s///", folder);
    assert_int_equal(lp_hf_folder_open(&f, path, &err), LP_OK);
    assert_string_equal(f.path, folder);
    assert_string_equal(f.name, strrchr(folder, '/') + 1);
    assert_int_equal((int)json_integer_value(json_object_get(f.config, "hidden_size")), 7);
    assert_true(!f.generation_config && !f.tokenizer && !f.tokenizer_config && !f.tiktoken);
    assert_true(!f.chat_template && lp_safetensors_count(f.weights) == 1);
    lp_hf_folder_release(&f);

    // model_max_length as transformers writes it, a byte 0 in a token, a key twice: all are usual
    put("tokenizer.json", "{\"added_tokens\": [{\"content\": \"a\\u0000\"}], \"x\": 1, \"x\": 2}");
    put("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656,"
                                 "\"bos_token\": \"<s>\"}");
    put("generation_config.json", "{\"eos_token_id\": [1, 2]}");
    put_bytes("tiktoken.model", "YQ== 0\n\0", 8);
    assert_int_equal(lp_hf_folder_open(&f, folder, &err), LP_OK);
    const json_t *token = json_array_get(json_object_get(f.tokenizer, "added_tokens"), 0);
    assert_int_equal((int)json_string_length(json_object_get(token, "content")), 2);
    assert_string_equal(json_string_value(json_object_get(f.tokenizer_config, "bos_token")), "<s>");
    assert_int_equal((int)json_array_size(json_object_get(f.generation_config, "eos_token_id")), 2);
    assert_true(f.tiktoken_len == 8 && memcmp(f.tiktoken, "YQ== 0\n", 8) == 0);
    lp_hf_folder_release(&f);
    for (size_t n = 1; n < 100; n++) { // every allocation fails once
        lp_alloc_fail_after(n);
        lp_status status = lp_hf_folder_open(&f, folder, &err);
        lp_alloc_fail_after(0);
        lp_hf_folder_release(&f);
        if (!status) break;
        assert_int_equal(status, LP_STATUS_MEMORY);
    }
    drop("tiktoken.model");
    drop("generation_config.json");
    drop("tokenizer.json");
}

static void the_chat_template(void **state) {
    (void)state;
    put("tokenizer_config.json", "{\"chat_template\": \"from tokenizer_config\"}");
    template_is("from tokenizer_config");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"},"
        "{\"name\": \"default\", \"template\": \"the default\"}]}");
    template_is("the default");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"x\", \"template\": \"t\"}, 3]}");
    template_is(NULL);
    put("chat_template.json", "{\"chat_template\": \"from json\"}");
    template_is("from json");
    put("chat_template.jinja", "{{ jinja }}\n");
    template_is("{{ jinja }}\n");
    put_bytes("chat_template.jinja", "a\0b", 3);
    refused(LP_STATUS_FORMAT, "chat_template.jinja", "byte 0");
    drop("chat_template.jinja");
    drop("chat_template.json");
    drop("tokenizer_config.json");
}

static void a_multimodal_config(void **state) {
    (void)state;
    struct lp_hf_folder f;
    struct lp_err err;
    put("config.json", "{\"model_type\": \"outer\", \"architectures\": [\"A\"],"
                       "\"quantization_config\": {\"a\": 1}, \"tie_word_embeddings\": true,"
                       "\"text_config\": {\"model_type\": \"inner\","
                       "\"quantization_config\": {\"a\": 2}}, \"vision_config\": {}}");
    assert_int_equal(lp_hf_folder_open(&f, folder, &err), LP_OK);
    assert_string_equal(json_string_value(json_object_get(f.config, "model_type")), "inner");
    assert_int_equal((int)json_array_size(json_object_get(f.config, "architectures")), 1);
    assert_true(json_is_true(json_object_get(f.config, "tie_word_embeddings")));
    const json_t *quant = json_object_get(f.config, "quantization_config");
    assert_int_equal((int)json_integer_value(json_object_get(quant, "a")), 2);
    assert_null(json_object_get(f.config, "vision_config"));
    lp_hf_folder_release(&f);
}

static void damaged_files(void **state) {
    (void)state;
    static const char *const good = "{\"model_type\": \"llama\"}";
    put("config.json", "{\"a\": 1, \"hidden_size\": 1, \"hidden_size\": 2}");
    refused(LP_STATUS_FORMAT, "config.json", "duplicate object key near '\"hidden_size\"'");
    put("config.json", "{\"a\": 1");
    refused(LP_STATUS_FORMAT, "config.json", "line 1");
    put("config.json", "[1]");
    refused(LP_STATUS_FORMAT, "config.json", "no JSON object");
    put("config.json", "");
    refused(LP_STATUS_FORMAT, "config.json", "no JSON");
    put("config.json", good);
    static const char *const others[] = {"generation_config.json", "tokenizer.json",
                                         "tokenizer_config.json", "chat_template.json"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        put(others[i], "{\"a\": }");
        refused(LP_STATUS_FORMAT, others[i], "line 1");
        put(others[i], "7");
        refused(LP_STATUS_FORMAT, others[i], "no JSON");
        drop(others[i]);
    }
    char *many = malloc(8100000);
    memset(many, ',', 8100000);
    put_bytes("tokenizer.json", many, 8100000);
    refused(LP_STATUS_LIMIT, "tokenizer.json", "values");
    drop("tokenizer.json");
    free(many);
    drop("model.safetensors");
    refused(LP_STATUS_IO, "no .safetensors", folder);
    put("model.safetensors", "123");
    refused(LP_STATUS_FORMAT, "model.safetensors", "cut short");
    drop("model.safetensors");
    drop("config.json");
    refused(LP_STATUS_IO, "config.json is not there", folder);
}

// As the cache of huggingface_hub lays it out: snapshots/REVISION/FILE -> ../../blobs/HASH.
static void links_into_blobs(void **state) {
    (void)state;
    struct lp_hf_folder f;
    struct lp_err err;
    char path[160], target[160];
    static const char *const files[][2] = {{"config.json", "c"}, {"model.safetensors", "m"}};
    const char *dirs[] = {"blobs", "snapshots", "snapshots/abc"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, dirs[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put("blobs/c", "{\"model_type\": \"llama\"}");
    put_weights("blobs/m");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/snapshots/abc/%s", folder, files[i][0]);
        snprintf(target, sizeof target, "../../blobs/%s", files[i][1]);
        assert_int_equal(symlink(target, path), 0);
    }
    snprintf(target, sizeof target, "%s/link", folder);
    assert_int_equal(symlink("snapshots/abc", target), 0);
    snprintf(path, sizeof path, "%s/snapshots/abc/", folder);
    const char *ways[] = {path, target};
    for (int i = 0; i < 2; i++) {
        assert_true(lp_hf_is_folder(ways[i]));
        assert_int_equal(lp_hf_folder_open(&f, ways[i], &err), LP_OK);
        assert_string_equal(f.name, i ? "link" : "abc");
        assert_memory_equal(lp_safetensors_find(f.weights, "a")->data, "1234", 4);
        lp_hf_folder_release(&f);
    }
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(path), 0);
    assert_int_equal(lp_hf_folder_open(&f, ".", &err), LP_OK);
    assert_string_equal(f.name, "abc"); // not "."
    lp_hf_folder_release(&f);
    assert_int_equal(chdir(here), 0);
    const char *names[] = {"snapshots/abc/config.json", "snapshots/abc/model.safetensors",
                           "blobs/c", "blobs/m", "link"};
    for (int i = 0; i < 5; i++) drop(names[i]);
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s", folder, dirs[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_folder),      cmocka_unit_test(the_chat_template),
        cmocka_unit_test(a_multimodal_config), cmocka_unit_test(damaged_files),
        cmocka_unit_test(links_into_blobs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
