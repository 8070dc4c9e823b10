// general.*: what the model is called, and the sampling that its makers suggest.
#include "hf/hf_config_parts.h"

#include <string.h>

// Part of a path between `from` and the next slash.
static struct lp_str component(const char *from) {
    return (struct lp_str){from, strcspn(from, "/")};
}

// .../models--OWNER--NAME/snapshots/HASH, as the hub's cache has it: NAME. Else an empty string.
static struct lp_str cached_name(const char *path) {
    const char *mark = path ? strstr(path, "/models--") : NULL;
    if (!mark || !strstr(mark, "/snapshots/")) return (struct lp_str){"", 0};
    struct lp_str id = component(mark + 1);
    for (size_t i = id.len; i-- > 8;) // behind "models--"
        if (id.data[i] == '-' && id.data[i - 1] == '-')
            return (struct lp_str){id.data + i + 1, id.len - i - 1};
    return (struct lp_str){id.data + 8, id.len - 8};
}

// _name_or_path where it is OWNER/NAME (it is often a path on somebody's machine), else the folder.
static struct lp_str model_name(const struct lp_hf_config_reader *r) {
    const char *id = json_string_value(json_object_get(r->config, "_name_or_path"));
    const char *slash = id ? strchr(id, '/') : NULL;
    if (slash && slash != id && id[0] != '.' && slash[1] && !strchr(slash + 1, '/'))
        return lp_str_from(slash + 1);
    struct lp_str name = cached_name(r->folder->path);
    if (name.len) return name;
    return lp_str_from(r->folder->name && r->folder->name[0] ? r->folder->name : "model");
}

// Names of generation_config.json and of llama.cpp's keys.
static void put_sampling(struct lp_hf_config_reader *r) {
    static const struct {
        const char *field, *key;
        double max;
        bool whole;
    } rows[] = {{"top_k", "general.sampling.top_k", INT32_MAX, true},
                {"top_p", "general.sampling.top_p", 1, false},
                {"min_p", "general.sampling.min_p", 1, false},
                {"temperature", "general.sampling.temp", 1000, false},
                {"repetition_penalty", "general.sampling.penalty_repeat", 1000, false}};
    const json_t *config = r->folder->generation_config;
    r->file = "generation_config.json";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !r->status; i++) {
        if (!lp_hf_config_get(config, rows[i].field)) continue;
        double value = rows[i].whole
                           ? (double)lp_hf_config_whole(r, config, "", rows[i].field, 0,
                                                        (int64_t)rows[i].max, 0)
                           : lp_hf_config_number(r, config, "", rows[i].field, 0, rows[i].max, 0);
        if (r->status) return;
        if (rows[i].whole)
            lp_gguf_writer_i32(r->w, rows[i].key, (int32_t)value);
        else
            lp_gguf_writer_f32(r->w, rows[i].key, (float)value);
    }
    r->file = "config.json";
}

void lp_hf_config_general(struct lp_hf_config_reader *r) {
    lp_gguf_writer_str(r->w, "general.architecture", lp_str_from(r->family->arch));
    lp_gguf_writer_str(r->w, "general.type", lp_str_from("model"));
    put_sampling(r);
    lp_gguf_writer_str(r->w, "general.name", model_name(r));
}
