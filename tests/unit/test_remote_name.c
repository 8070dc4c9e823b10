#include "lp_test.h"

#include "cli/remote_name.h"

static void expect_for(const struct lp_model_wish *wish, const char *name, const char *needle) {
    struct lp_bytes text = {0};
    bool known = lp_remote_advice(&text, name, wish);
    if (needle) {
        assert_true(known);
        if (!strstr(text.data, needle)) fail_msg("%s: %s", name, text.data);
    } else {
        assert_false(known);
        assert_int_equal(text.len, 0);
    }
    lp_bytes_release(&text);
}

static void expect(const char *name, const char *needle) {
    const struct lp_command serve = {.name = "serve"};
    expect_for(&(struct lp_model_wish){.command = &serve, .given = name}, name, needle);
}

// The line of the user comes back, and the files are those that the command can use.
static void commands_of_files(void **state) {
    char quantize[] = "quantize", model[] = "a/b", out[] = "my out.gguf", preset[] = "Q4_K_M";
    char *argv[] = {quantize, model, out, preset};
    const struct lp_command command = {.name = "quantize"};
    struct lp_model_wish wish = {&command, model, 4, argv, LP_MODEL_PRECISE};
    (void)state;
    expect_for(&wish, model, "hf download a/b --include '*BF16*.gguf' --local-dir b\n");
    expect_for(&wish, model, "\n    limpid quantize b 'my out.gguf' Q4_K_M\n");
    wish.kind = LP_MODEL_FOLDER;
    expect_for(&wish, model, "hf download a/b --local-dir b\n");
}

static void names_of_a_hub(void **state) {
    (void)state;
    expect("zai-org/GLM-5-GGUF", "hf download zai-org/GLM-5-GGUF --include");
    expect("zai-org/GLM-5-GGUF", "limpid serve GLM-5-GGUF");
    expect("hf.co/a/b:Q8_0", "hf download a/b ");
    expect("HTTPS://HuggingFace.co/a/b/tree/main/Q4_K_M", "hf download a/b ");
    expect("https://huggingface.co/a/b/blob/main/x y.gguf", "--include 'x y.gguf'");
    expect("https://huggingface.co/a/b/resolve/main/q/m-00002-of-00003.gguf?x=1",
           "--include 'q/m-*.gguf'");
    expect("a/b:latest", "hf download a/b ");
}

static void addresses_and_tags(void **state) {
    (void)state;
    expect("https://example.org/d/m.gguf", "curl -L -o m.gguf https://example.org/d/m.gguf");
    expect("http://example.org/d/?id=3", "curl -L -o model.gguf 'http://example.org/d/?id=3'");
    expect("https://huggingface.co/", "curl");
    expect("llama3:8b", "limpid serve FILE.gguf");
}

// What may be a mistyped path is left to who looks for near names.
static void paths(void **state) {
    (void)state;
    expect("model.gguf", NULL);
    expect("models/GLM.gguf", NULL);
    expect("src/nothing", NULL); // src is a folder where tests run
    expect("/a/b", NULL);
    expect("./a/b", NULL);
    expect("../b", NULL);
    expect("a/b/c", NULL);
    expect("a/", NULL);
    expect("-x/b", NULL);
    expect("", NULL);
    expect(":", NULL);
    expect("a b/c", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_a_hub), cmocka_unit_test(addresses_and_tags),
        cmocka_unit_test(commands_of_files), cmocka_unit_test(paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
