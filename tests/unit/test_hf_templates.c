// Chat templates, alone and by name.
#include "hf_tokenizer_build.h"

static void chat_templates(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
    f.chat_template = (char *)"{{ a }}\n\n";
    f.tokenizer_config = parse(
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"d\"},{\"name\":\"tool_use\","
        "\"template\":\"t\\n\"},{\"name\":\"b a d\",\"template\":\"x\"},{\"name\":\"rag\","
        "\"template\":\"r\"},{\"name\":\"rag\",\"template\":\"again\"},7]}");
    struct file file = convert(&f, 258);
    assert_string_of(&file, "chat_template", "{{ a }}\n"); // as Jinja reads it
    assert_string_of(&file, "chat_template.tool_use", "t\n");
    assert_string_of(&file, "chat_template.rag", "r");
    const struct lp_gguf_kv *names = lp_gguf_find(file.gguf, "tokenizer.chat_templates");
    assert_int_equal(names->count, 2);
    assert_true(lp_str_is(names->strings[0], "tool_use") && lp_str_is(names->strings[1], "rag"));
    drop(&file);
    f.chat_template = NULL;
    release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
