// Which pre-tokenizer a tokenizer.json means: its steps are spelled in one way (hf_regex.h) and
// compared with those of the models that text/pretok.c has. Expressions are as the models' own
// files write them; that pretok.c does what they say is tested there.
#include "hf/hf_vocab.h"

#include "base/log.h"
#include "hf/hf_regex.h"

enum { MAX_STEPS = 12 };

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DIGIT "\\p{N}" // Digits with individual_digits
#define NO_HAN "&&[^\\p{Han}]]"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" NO_HAN
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" NO_HAN

// The letters that have case, as the DeepSeek-LLM tokenizer lists them.
#define CASED                                                                                      \
    "A-Za-z\\xb5\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\u01ba\\u01bc-\\u01bf\\u01c4-\\u0293\\u0295-\\u02af"  \
    "\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c\\u038e-"     \
    "\\u03a1"                                                                                      \
    "\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5"   \
    "\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a"   \
    "\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-"                         \
    "\\u1f57\\u1f59\\u1f5b\\u1f5d"                                                                 \
    "\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-"   \
    "\\u1fd3"                                                                                      \
    "\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-"           \
    "\\u2113\\u2115"                                                                               \
    "\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-\\u2134\\u2139\\u213c-\\u213f"     \
    "\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-"                   \
    "\\u2cee\\u2cf2\\u2cf3"                                                                        \
    "\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf"   \
    "\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a\\x{10400}-\\x{1044f}"            \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"         \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

// One name of each tokenizer.ggml.pre that differs in its steps. `whole`: every character is in
// a match, so that keeping only the matches is the same as keeping all.
static const struct row {
    const char *pre;
    bool whole, adds_bos; // without the key
    const char *steps[7];
} rows[] = {
    {"glm4", true, false, {CONTRACTION WORDS "\\p{N}{1,3}" REST}},
    {"qwen2", true, false, {CONTRACTION WORDS "\\p{N}" REST}},
    {"smollm", false, false, {DIGIT, GPT2}},
    {"gpt-2", true, false, {GPT2}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", "\\s?[" CASED "]+",
      "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+", "\\s+$", CJK,
      DIGIT}},
    {"deepseek-coder", false, false, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, DIGIT}},
    {"deepseek-v3",
     false,
     false,
     {"\\p{N}{1,3}", "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s+(?!\\S)|\\s+"}},
    {"kimi-k2",
     true,
     false,
     {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION
      "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}" REST}},
};
// Splits like glm4, but a piece that is a token is not merged.
static const struct row llama3 = {"llama-bpe", true, true, {NULL}};

// ---- the folder's steps

struct steps {
    struct {
        struct lp_bytes spelling;
        char shown[140]; // for the refusal
        bool only_matches, known;
    } step[MAX_STEPS];
    size_t n;
    bool bytes; // ByteLevel is the last step
    bool too_many, out_of_memory;
    const char *unknown; // a kind of step that is none of ours
};

static void push(struct steps *s, const char *kind, struct lp_str pattern, bool is_text,
                 bool only_matches) {
    if (s->n == MAX_STEPS || s->bytes) {
        s->too_many = true;
        return;
    }
    struct lp_bytes *spelling = &s->step[s->n].spelling;
    spelling->max_bytes = LP_HF_REGEX_BYTES * 8; // no spelling is longer: failing is memory
    s->step[s->n].only_matches = only_matches;
    s->step[s->n].known =
        is_text ? lp_hf_regex_spell_text(pattern, spelling) : lp_hf_regex_spell(pattern, spelling);
    s->out_of_memory |= spelling->failed;
    int len = pattern.len > 100 ? 100 : (int)pattern.len;
    while (len && len < (int)pattern.len && ((unsigned char)pattern.data[len] & 0xC0) == 0x80)
        len--;
    snprintf(s->step[s->n].shown, sizeof s->step[s->n].shown, "%s \"%.*s%s\"", kind, len,
             pattern.data ? pattern.data : "", len < (int)pattern.len ? "..." : "");
    s->n++;
}

static void push_split(struct steps *s, const json_t *split) {
    const json_t *pattern = json_object_get(split, "pattern");
    struct lp_str regex = lp_hf_text(json_object_get(pattern, "Regex"));
    struct lp_str text = lp_hf_text(json_object_get(pattern, "String"));
    const json_t *behavior = json_object_get(split, "behavior");
    bool invert = json_is_true(json_object_get(split, "invert"));
    bool removes = lp_hf_text_is(behavior, "Removed") && invert;
    if (!removes && !lp_hf_text_is(behavior, "Isolated")) {
        s->unknown = json_string_value(behavior);
        if (!s->unknown) s->unknown = "Split without a behavior";
    }
    push(s, "Split", regex.data ? regex : text, !regex.data, removes);
}

static void push_bytes(struct steps *s, const json_t *step) {
    if (json_is_true(json_object_get(step, "add_prefix_space")))
        s->unknown = "ByteLevel with add_prefix_space";
    if (!json_is_false(json_object_get(step, "use_regex")))
        push(s, "ByteLevel", lp_str_from(GPT2), false, false);
    if (s->bytes) s->too_many = true;
    s->bytes = true;
}

static void collect(struct steps *s, const json_t *step, int depth) {
    const json_t *type = json_object_get(step, "type");
    if (depth == 4) {
        s->too_many = true;
    } else if (lp_hf_text_is(type, "Sequence")) {
        const json_t *list = json_object_get(step, "pretokenizers");
        for (size_t i = 0; i < json_array_size(list) && !s->too_many; i++)
            collect(s, json_array_get(list, i), depth + 1);
    } else if (lp_hf_text_is(type, "Split")) {
        push_split(s, step);
    } else if (lp_hf_text_is(type, "ByteLevel")) {
        push_bytes(s, step);
    } else if (lp_hf_text_is(type, "Digits")) {
        bool each = json_is_true(json_object_get(step, "individual_digits"));
        push(s, "Digits", lp_str_from(each ? DIGIT : DIGIT "+"), false, false);
    } else {
        s->unknown = json_string_value(type);
        if (!s->unknown) s->unknown = "a step without a type";
    }
}

static void release(struct steps *s) {
    for (size_t i = 0; i < s->n; i++) lp_bytes_release(&s->step[i].spelling);
}

// ---- comparing

static bool is_row(const struct steps *s, const struct row *row, struct lp_bytes *spelling) {
    for (size_t i = 0; i < s->n; i++) {
        if (!row->steps[i] || !s->step[i].known || (s->step[i].only_matches && !row->whole))
            return false;
        lp_bytes_clear(spelling);
        if (!lp_hf_regex_spell(lp_str_from(row->steps[i]), spelling) ||
            !lp_str_equal(lp_bytes_view(spelling), lp_bytes_view(&s->step[i].spelling)))
            return false;
    }
    return !row->steps[s->n];
}

static lp_status refuse(const struct steps *s, struct lp_err *err) {
    struct lp_bytes list = {.max_bytes = 700};
    for (size_t i = 0; i < s->n; i++)
        if (!lp_bytes_printf(&list, "%s%s", i ? ", " : "", s->step[i].shown)) break;
    if (s->unknown || s->too_many)
        lp_bytes_printf(&list, "%s%.60s", s->n ? "; " : "",
                        s->unknown ? s->unknown : "more steps than any known one has");
    lp_err_set(
        err, LP_STATUS_UNSUPPORTED,
        "tokenizer.json: pre_tokenizer splits texts in a way that limpid does not have (known "
        "are those of GLM-4, Llama 3, Qwen2, DeepSeek, Kimi K2, SmolLM, GPT-2): %s",
        list.data ? list.data : "no step");
    lp_bytes_release(&list);
    return LP_STATUS_UNSUPPORTED;
}

// NFC and nothing else: texts are hardly ever in another form, and limpid takes them as they are.
static lp_status check_normalizer(const json_t *step, bool nfc_is_usual, int depth,
                                  struct lp_err *err) {
    const json_t *type = json_object_get(step, "type"),
                 *list = json_object_get(step, "normalizers");
    if (!step || json_is_null(step)) return LP_OK;
    if (lp_hf_text_is(type, "Sequence") && depth < 4) {
        lp_status status = LP_OK;
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = check_normalizer(json_array_get(list, i), nfc_is_usual, depth + 1, err);
        return status;
    }
    if (!lp_hf_text_is(type, "NFC"))
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "tokenizer.json: the normalizer %.60s is not supported (none and NFC are)",
            json_is_string(type) ? json_string_value(type) : "without a type");
    if (!nfc_is_usual)
        lp_log(LP_LOG_WARN,
               "tokenizer.json asks for the normal form NFC; texts are taken as they are");
    return LP_OK;
}

lp_status lp_hf_pretok(struct lp_hf_vocab *v, const json_t *tokenizer, struct lp_err *err) {
    struct steps s = {0};
    struct lp_bytes spelling = {0};
    const struct row *found = NULL;
    lp_status status = LP_OK;
    collect(&s, json_object_get(tokenizer, "pre_tokenizer"), 0);
    if (s.bytes && !s.too_many && !s.unknown)
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !found; i++)
            if (is_row(&s, &rows[i], &spelling)) found = &rows[i];
    if (spelling.failed || s.out_of_memory)
        status = lp_err_memory(err, LP_HF_REGEX_BYTES, "a pre-tokenizer");
    else if (!found)
        status = refuse(&s, err);
    if (found == &rows[0] && v->ignore_merges && !lp_hf_is_glm(v)) found = &llama3;
    if (!status)
        status = check_normalizer(json_object_get(tokenizer, "normalizer"),
                                  !strcmp(found->pre, "qwen2"), 0, err);
    if (!status) {
        v->model = "gpt2";
        v->pre = found->pre;
        v->adds_bos_by_default = found->adds_bos;
    }
    lp_bytes_release(&spelling);
    release(&s);
    return status;
}
