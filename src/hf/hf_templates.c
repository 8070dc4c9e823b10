// Chat templates as GGUF keeps them: the default one, and those that tokenizer_config.json lists by
// name. The last line end of a file is not part of a template, as Jinja has it.
#include "hf/hf_vocab.h"

enum { MAX_TEMPLATES = 32 };

static struct lp_str without_last_line_end(const char *text) {
    struct lp_str t = lp_str_from(text);
    if (t.len && t.data[t.len - 1] == '\n') t.len--;
    if (t.len && t.data[t.len - 1] == '\r') t.len--;
    return t;
}

static bool is_plain_name(struct lp_str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i], low = (char)(c | 32);
        if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
    }
    return name.len && name.len <= 64 && !lp_str_is(name, "default");
}

void lp_hf_templates(struct lp_gguf_writer *w, const struct lp_hf_folder *folder) {
    if (folder->chat_template && folder->chat_template[0])
        lp_gguf_writer_str(w, "tokenizer.chat_template",
                           without_last_line_end(folder->chat_template));
    const json_t *list = json_object_get(folder->tokenizer_config, "chat_template");
    struct lp_str names[MAX_TEMPLATES];
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < MAX_TEMPLATES; i++) {
        const json_t *item = json_array_get(list, i);
        struct lp_str name = lp_hf_text(json_object_get(item, "name"));
        struct lp_str text = lp_hf_text(json_object_get(item, "template"));
        if (!name.data || !text.data || !is_plain_name(name)) continue;
        char key[100];
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", LP_STR_ARGS(name));
        if (lp_gguf_writer_has(w, key)) continue;
        lp_gguf_writer_str(w, key, text);
        names[n++] = name;
    }
    if (n) lp_gguf_writer_strings(w, "tokenizer.chat_templates", names, n);
}
