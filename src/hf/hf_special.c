// The ids of the tokens that begin and end texts. In order of precedence:
//
//   tokenizer_config.json   bos_token, eos_token, unk_token, pad_token: a text or {"content": ...}
//   GLM's vocabulary        bos [gMASK], eot <|user|>, eom <|observation|>, unk <|endoftext|>; eos and
//                           pad <|endoftext|> where the file above names none
//   generation_config.json, then config.json
//                           bos_token_id, pad_token_id; eos_token_id, a number or a list
//
// GGUF has three places for ends of a turn: eos is the tokenizer's, else the first of the list; of
// the others on the list, those with known names become eot and eom, then any that are left.
#include "hf/hf_vocab.h"

#include <inttypes.h>

#include "base/log.h"

enum { MAX_ENDS = 64 };

static int32_t find(const struct lp_hf_vocab *v, struct lp_str text) {
    uint32_t id = text.data ? lp_map_get(&v->by_text, text) : LP_MAP_NONE;
    return id == LP_MAP_NONE ? -1 : (int32_t)id;
}

static int32_t find_text(const struct lp_hf_vocab *v, const char *text) {
    return find(v, lp_str_from(text));
}

bool lp_hf_is_glm(const struct lp_hf_vocab *v) {
    static const char *const texts[] = {"[gMASK]", "<sop>", "<|user|>", "<|observation|>",
                                        "<|endoftext|>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t id = find_text(v, texts[i]);
        if (id < 0 || v->types[id] != LP_TOKEN_CONTROL) return false;
    }
    return true;
}

// ---- by text

static void from_tokenizer_config(struct lp_hf_vocab *v, const json_t *config) {
    const struct {
        const char *key;
        int32_t *to;
    } rows[] = {{"bos_token", &v->bos},
                {"eos_token", &v->eos},
                {"unk_token", &v->unk},
                {"pad_token", &v->pad}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_object_get(config, rows[i].key);
        if (json_is_object(value)) value = json_object_get(value, "content");
        struct lp_str text = lp_hf_text(value);
        int32_t id = find(v, text);
        if (id >= 0)
            *rows[i].to = id;
        else if (text.len)
            lp_log(
                LP_LOG_WARN,
                "tokenizer_config.json: %s is \"%.*s\", which is no token of the vocabulary; it is "
                "left out",
                rows[i].key, LP_STR_ARGS(text));
    }
}

// ---- by number

static lp_status take_id(const struct lp_hf_vocab *v, const char *file, const char *key,
                         const json_t *value, int32_t *to, struct lp_err *err) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id == -1) return LP_OK;
    if (id < 0 || id >= v->n || !v->texts[id].data)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s: %s is %" JSON_INTEGER_FORMAT ", but no token has this id", file, key,
                          id);
    if (*to < 0) *to = (int32_t)id;
    return LP_OK;
}

// Padding is nothing that a text needs, and some files name a row past the last.
static void take_pad(struct lp_hf_vocab *v, const json_t *config) {
    const json_t *value = json_object_get(config, "pad_token_id");
    json_int_t id = json_integer_value(value);
    if (v->pad < 0 && json_is_integer(value) && id >= 0 && id < v->n && v->texts[id].data)
        v->pad = (int32_t)id;
}

static int32_t *place_of_end(struct lp_hf_vocab *v, int32_t id) {
    static const struct {
        const char *text;
        bool is_eom;
    } names[] = {{"<|user|>", false},  {"<|observation|>", true}, {"<|eot_id|>", false},
                 {"<|eom_id|>", true}, {"<|im_end|>", false},     {"<end_of_turn>", false},
                 {"<|eot|>", false},   {"<|eom|>", true},         {"<|end|>", false}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lp_str_is(v->texts[id], names[i].text)) return names[i].is_eom ? &v->eom : &v->eot;
    return NULL;
}

// `named`: only tokens with known names; otherwise those that are left.
static void place_ends(struct lp_hf_vocab *v, const json_t *list, bool named) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(list, i)); // take_ends checked it
        if (id == v->eos || id == v->eot || id == v->eom) continue;
        int32_t *place = place_of_end(v, id);
        if (!place == named) continue;
        if (!named) place = v->eot < 0 ? &v->eot : &v->eom;
        if (*place < 0)
            *place = id;
        else
            lp_log(LP_LOG_WARN,
                   "eos_token_id names token %" PRId32 " (%.*s) as an end; the places that GGUF "
                   "has for ends are taken, so a reply will not stop there",
                   id, LP_STR_ARGS(v->texts[id]));
    }
}

// eos_token_id, a number or a list of them.
static lp_status take_ends(struct lp_hf_vocab *v, const char *file, const json_t *value,
                           struct lp_err *err) {
    if (!json_is_array(value) && !json_is_integer(value)) return LP_OK;
    if (json_array_size(value) > MAX_ENDS)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s: eos_token_id lists %zu tokens, expected at most %d", file,
                          json_array_size(value), MAX_ENDS);
    json_t *list = json_is_array(value) ? json_incref((json_t *)value) : json_pack("[O]", value);
    if (!list) return lp_err_memory(err, 0, "eos_token_id");
    lp_status status = LP_OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            status = lp_err_set(err, LP_STATUS_FORMAT, "%s: eos_token_id[%zu] is no token's id",
                                file, i);
        else
            status = take_id(v, file, "eos_token_id", id, &v->eos, err);
    }
    if (!status) {
        place_ends(v, list, true);
        place_ends(v, list, false);
    }
    json_decref(list);
    return status;
}

static void glm_ends(struct lp_hf_vocab *v) {
    int32_t end = find_text(v, "<|endoftext|>");
    v->bos = find_text(v, "[gMASK]");
    v->eot = find_text(v, "<|user|>");
    v->eom = find_text(v, "<|observation|>");
    v->unk = end;
    if (v->eos < 0) v->eos = end;
    if (v->pad < 0) v->pad = end;
}

// ---- whether they are added

// What stands before and after the text in a template: how many tokens, and which.
struct frame {
    size_t n_before, n_after;
    struct lp_str before, after;
};

static bool read_template(const json_t *processor, struct frame *frame, int depth) {
    const json_t *list = json_object_get(processor, "processors");
    for (size_t i = 0; depth < 4 && i < json_array_size(list); i++)
        if (read_template(json_array_get(list, i), frame, depth + 1)) return true;
    if (!lp_hf_text_is(json_object_get(processor, "type"), "TemplateProcessing")) return false;
    const json_t *single = json_object_get(processor, "single");
    bool after = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        struct lp_str id = lp_hf_text(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (!id.data)
            after = true;
        else if (after && !frame->n_after++)
            frame->after = id;
        else if (!after && !frame->n_before++)
            frame->before = id;
    }
    return true;
}

// One end of the template: whether its one token is *token, which it names where nothing else has.
static int32_t is_added(const struct lp_hf_vocab *v, size_t n, struct lp_str text, int32_t *token,
                        const char *what) {
    if (!n) return 0;
    int32_t id = find(v, text);
    if (*token < 0) *token = id;
    if (n == 1 && id >= 0 && id == *token) return 1;
    lp_log(
        LP_LOG_WARN,
        "tokenizer.json puts %zu tokens (\"%.*s\"...) %s, which GGUF cannot say; texts outside of "
        "the chat template go without",
        n, LP_STR_ARGS(text), what);
    return 0;
}

static void set_added(struct lp_hf_vocab *v, const struct lp_hf_folder *folder) {
    struct frame frame = {0};
    if (read_template(json_object_get(folder->tokenizer, "post_processor"), &frame, 0)) {
        v->add_bos = is_added(v, frame.n_before, frame.before, &v->bos, "before each text");
        v->add_eos = is_added(v, frame.n_after, frame.after, &v->eos, "behind each text");
    }
    const json_t *bos = json_object_get(folder->tokenizer_config, "add_bos_token");
    const json_t *eos = json_object_get(folder->tokenizer_config, "add_eos_token");
    if (json_is_boolean(bos)) v->add_bos = json_is_true(bos);
    if (json_is_boolean(eos)) v->add_eos = json_is_true(eos);
    if (v->add_bos < 0 && v->adds_bos_by_default) v->add_bos = 0;
    if (v->bos < 0 && v->add_bos > 0) v->add_bos = 0;
    if (v->eos < 0 && v->add_eos > 0) v->add_eos = 0;
}

lp_status lp_hf_special(struct lp_hf_vocab *v, const struct lp_hf_folder *folder,
                        struct lp_err *err) {
    const struct {
        const char *file;
        const json_t *json;
    } configs[] = {{"generation_config.json", folder->generation_config},
                   {"config.json", folder->config}};
    lp_status status = LP_OK;
    from_tokenizer_config(v, folder->tokenizer_config);
    if (lp_hf_is_glm(v)) glm_ends(v);
    bool has_ends = false;
    for (size_t i = 0; i < 2 && !status; i++) {
        const json_t *ends = json_object_get(configs[i].json, "eos_token_id");
        status = take_id(v, configs[i].file, "bos_token_id",
                         json_object_get(configs[i].json, "bos_token_id"), &v->bos, err);
        if (!status && !has_ends) status = take_ends(v, configs[i].file, ends, err);
        has_ends |= json_is_integer(ends) || json_is_array(ends);
        take_pad(v, configs[i].json);
    }
    if (!status) set_added(v, folder);
    return status;
}
