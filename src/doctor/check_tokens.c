// Stage "tokens": does text become the tokens that the model was trained with. Loads the tokenizer,
// then: whose vocabulary and which pre-tokenizer, kinds of tokens, ids, do tokens come back from
// their texts and texts from their tokens, and the chat template against all of that.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8_step.h"
#include "doctor/accuse.h"
#include "doctor/token_checks.h"
#include "engine/engine.h"
#include "text/tokenizer_parts.h"

// ---- tokens that their texts lead to ----

// Measured, of all ordinary tokens: 100% in GLM, Llama 3, GPT-2, StarCoder, SmolLM2, DeepSeek V3;
// 99.4% in Command R, 98.9% in Qwen2 (texts that its training normalised).
#define MIN_SELF 0.95
#define MIN_LOST 12           // in tiny vocabularies one or two are no evidence
#define MAX_TOKENS_READ 40000 // every nth of a larger vocabulary, and the last thousand
#define LAST_TOKENS 1000
#define MAX_LOST_AT_END 24 // of ordinary tokens in a row

lp_status lp_token_encode(const struct lp_token_exam *x, struct lp_str text, unsigned flags,
                          struct lp_token_list *list, struct lp_err *err) {
    list->n = 0;
    return lp_tokenizer_encode(x->tok, text, flags, &list->ids, &list->n, &list->capacity, err);
}

bool lp_token_is_utf8(struct lp_str s) {
    for (size_t at = 0, n; at < s.len; at += n)
        if (lp_utf8_step((const unsigned char *)s.data + at, s.len - at, &n) != LP_UTF8_WHOLE)
            return false;
    return true;
}

struct pieces {
    uint64_t n, n_lost;
    uint64_t at_end; // lost ones at the end of the ordinary tokens, without one between
    int32_t example;
};

static lp_status count_pieces(const struct lp_token_exam *x, struct pieces *p, struct lp_err *err) {
    struct lp_token_list list = {0};
    struct lp_bytes text = {0};
    uint32_t n = x->tok->n_tokens, step = n / MAX_TOKENS_READ + 1, last = 0;
    lp_status status = LP_OK;
    p->example = -1;
    for (uint32_t id = 0; id < n; id++)
        if (x->tok->types[id] == LP_TOKEN_NORMAL) last = id;
    for (uint32_t id = 0; id < n && !status; id++) {
        if (x->tok->types[id] != LP_TOKEN_NORMAL || (id % step && id + LAST_TOKENS < last))
            continue;
        lp_bytes_clear(&text);
        if (!lp_tokenizer_piece(x->tok, (int32_t)id, false, &text))
            status = lp_err_memory(err, text.len, "a token's text");
        struct lp_str piece = lp_bytes_view(&text);
        if (status || !piece.len || !lp_token_is_utf8(piece)) continue;
        if (x->tok->add_space_prefix) { // the prefix brings the space of words that begin with one
            if (piece.data[0] != ' ') continue;
            piece.data++;
            piece.len--;
        }
        status = lp_token_encode(x, piece, 0, &list, err);
        bool self = !status && list.n == 1 && list.ids[0] == (int32_t)id;
        p->n++;
        p->at_end = self ? 0 : p->at_end + 1;
        if (self || status) continue;
        if (!p->n_lost++) p->example = (int32_t)id;
    }
    lp_free(list.ids);
    lp_bytes_release(&text);
    return status;
}

// Whether each merge makes the token behind that of the merge before it, and every longer token is
// made by one: as they were written when both were made, whatever they are worth.
static bool merges_as_made(const struct lp_token_exam *x) {
    const struct lp_gguf_kv *kv = lp_gguf_find(x->exam->gguf, "tokenizer.ggml.merges");
    int32_t before = -1, first = -1;
    if (!kv || !kv->strings) return false;
    for (uint64_t i = 0; i < kv->count; i++) {
        char text[512];
        struct lp_str merge = kv->strings[i];
        const char *space = memchr(merge.data, ' ', merge.len);
        if (!space || merge.len > sizeof text) return false;
        size_t left = (size_t)(space - merge.data), right = merge.len - left - 1;
        memcpy(text, merge.data, left);
        memcpy(text + left, space + 1, right);
        int32_t id = lp_tokenizer_find(x->tok, (struct lp_str){text, left + right});
        if (id < 0 || (before >= 0 && id != before + 1)) return false;
        if (first < 0) first = id;
        before = id;
    }
    for (uint32_t id = (uint32_t)before + 1; id < x->tok->n_tokens; id++)
        if (x->tok->types[id] == LP_TOKEN_NORMAL) return false;
    return first >= 0 && first <= 256;
}

lp_status lp_check_pieces(struct lp_token_exam *x, struct lp_err *err) {
    struct pieces p = {0};
    char figure[64];
    lp_status status = count_pieces(x, &p, err);
    if (status || p.n == 0) return status;
    double share = 1 - (double)p.n_lost / (double)p.n;
    bool cut = p.at_end >= MAX_LOST_AT_END;
    bool judged = !x->wrong_pre && !x->wrong_types;
    bool wrong = judged && ((share < MIN_SELF && p.n_lost >= MIN_LOST) || cut);
    // A vocabulary that was drawn at random with the weights (tools/synth_gguf.py) is no fault.
    bool drawn = wrong && x->exam->weights_random && merges_as_made(x);
    wrong = wrong && !drawn;
    snprintf(figure, sizeof figure, "%.2f%% of %s", 100 * share, lp_accuse_number(p.n).text);
    struct lp_check_note note = {.stage = LP_STAGE_TOKENS,
                                 .outcome = wrong     ? LP_CHECK_FAULT
                                            : !judged ? LP_CHECK_SKIPPED
                                            : drawn   ? LP_CHECK_NOTE
                                                      : LP_CHECK_OK,
                                 .name = "tokens from their texts",
                                 .figure = figure,
                                 .bound = "at least 95%",
                                 .value = share,
                                 .limit = MIN_SELF};
    lp_report_check(x->exam->report, &note, "%s",
                    drawn    ? "the vocabulary was drawn at random, as the weights were"
                    : judged ? "ordinary tokens that their own text becomes again"
                             : "not judged, as the pre-tokenizer or the types are wrong");
    if (wrong)
        lp_report_fault(
            x->exam->report, LP_STAGE_TOKENS, "tokens from their texts", -1,
            x->tok->is_spm ? "tokenizer.ggml.scores" : "tokenizer.ggml.merges",
            "Only %.1f%% of the ordinary tokens come back from their own text (healthy: 98.9%% and "
            "more)%s; '%.*s' (token %d) never does. The %s of another vocabulary, out of order or "
            "cut off: convert the model again.",
            100 * share, cut ? ", and none of the last ones does" : "",
            LP_STR_ARGS(lp_tokenizer_token(x->tok, p.example)), p.example,
            x->tok->is_spm ? "scores are" : "merges are");
    return LP_OK;
}

// ---- texts that come back from their tokens ----

static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog. It's 10:45, isn't it?",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. Cafe\u0301!",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。",
    "いろはにほへと ちりぬるを カタカナも漢字も。",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "ქართული ენა, հայերեն, አማርኛ",
    "🙂👍🏽 👩‍👩‍👧‍👦 🇩🇪🇯🇵 ✨ ❤️‍🔥 🏳️‍🌈",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β ⇒ ∑ᵢ xᵢ² ≤ ∞ ½ €5 £3 ¥7",
    "0 1 12 123 1234 12345 1234567890 3.14159 1e-05 0xFF ١٢٣ ४५६",
    "int main(void) {\n\treturn x >= 0 && y != NULL ? a[i]++ : ~b << 2; // why\n}\n",
    "def f(x):\n    if x:\n        return {'a': [1, 2], \"b\": None}\n\n\n# end",
    "<div class=\"x\">&nbsp;<br/></div> <!-- <|user|> is text here -->",
    "{\"key\": \"va\\\"lue\", \"n\": [1.5e10, -3, null, true]}",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@mail.example",
    "a  b   c    d          e\t\tf \t g\n\nh\r\ni\r\rj   ",
    "   leading and trailing   ",
    "\n\n\n",
    "\xC2\xA0\xE2\x80\x83\xE3\x80\x80\xC2\x85 wide spaces \xE2\x80\xA8 and \xE2\x80\x8B none",
    "I'LL they're WE'VE Don't o'clock 'quoted' \xE2\x80\x9Cmarks\xE2\x80\x9D \xE2\x80\x94 "
    "dash\xE2\x80\xA6",
    "camelCaseWord snake_case_word SHOUTING_CONSTANT kebab-case-word",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!?!?....,,,,----====////((((]]]]####****____~~~~````",
    "<|im_start|>system [gMASK]<sop> </s> <think> [INST] <unk>",
    "bad \xFF\xFE bytes \xC3( and \xE2\x82 cut \xF0\x9F\x98",
    "\xEF\xBF\xBD \xEF\xBB\xBF\xF0\x9D\x94\x98\xF0\x9D\x94\xAB\xF0\x9D\x94\xA6 \xF0\xA0\x9C\x8E",
    "e\xCC\x81\xCC\xA7 o\xCC\x88 \xC5\xBF \xEF\xAC\x81 \xC4\xB0 \xC4\xB1 \xE1\xBA\x9E",
    "x",
    " ",
};
#define N_TEXTS (sizeof texts / sizeof texts[0])

// Text number i: one of the list, or two of them joined, so that seams are covered.
static bool make_text(struct lp_bytes *out, size_t i) {
    lp_bytes_clear(out);
    if (i < N_TEXTS) return lp_bytes_puts(out, texts[i]);
    size_t k = i - N_TEXTS;
    lp_bytes_puts(out, texts[(k * 7 + 3) % N_TEXTS]);
    return lp_bytes_puts(out, texts[(k * 11 + k / N_TEXTS * 5) % N_TEXTS]);
}
#define N_ROUND_TRIPS (N_TEXTS * 6)

// The text as it must come back: what is no UTF-8 as U+FFFD.
static bool mend(struct lp_bytes *out, struct lp_str text) {
    lp_bytes_clear(out);
    for (size_t at = 0, n; at < text.len; at += n) {
        bool whole =
            lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &n) == LP_UTF8_WHOLE;
        if (whole)
            lp_bytes_append(out, text.data + at, n);
        else
            lp_bytes_puts(out, LP_UTF8_REPLACEMENT);
    }
    return !out->failed;
}

static lp_status round_trip(const struct lp_token_exam *x, struct lp_str text, bool *same,
                            struct lp_token_list *list, struct lp_err *err) {
    struct lp_bytes back = {0}, expected = {0};
    struct lp_detok detok;
    lp_detok_init(&detok, x->tok, false);
    lp_status status = lp_token_encode(x, text, 0, list, err);
    bool ok = mend(&expected, text), marked = false;
    for (size_t i = 0; i < list->n && ok && !status; i++)
        ok = lp_detok_push(&detok, list->ids[i], &back);
    ok = ok && lp_detok_finish(&detok, &back);
    // A user-defined token in the text: SentencePiece puts a space behind it that stays.
    for (size_t i = 0; i < list->n && !status; i++)
        marked = marked || x->tok->types[list->ids[i]] == LP_TOKEN_USER_DEFINED;
    *same =
        (marked && x->tok->is_spm) || lp_str_equal(lp_bytes_view(&back), lp_bytes_view(&expected));
    lp_bytes_release(&back);
    lp_bytes_release(&expected);
    return status ? status : ok ? LP_OK : lp_err_memory(err, text.len, "a text");
}

lp_status lp_check_round_trips(struct lp_token_exam *x, struct lp_err *err) {
    struct lp_token_list list = {0};
    struct lp_bytes text = {0}, first = {0};
    uint64_t n_wrong = 0;
    lp_status status = LP_OK;
    for (size_t i = 0; i < N_ROUND_TRIPS && !status; i++) {
        bool same = true;
        if (!make_text(&text, i))
            status = lp_err_memory(err, 1024, "a text");
        else
            status = round_trip(x, lp_bytes_view(&text), &same, &list, err);
        if (status || same) continue;
        if (!n_wrong++) lp_bytes_append(&first, text.data, text.len < 60 ? text.len : 60);
    }
    if (!status && n_wrong)
        lp_report_fault(
            x->exam->report, LP_STAGE_TOKENS, "round trips", -1, "tokenizer.ggml.tokens",
            "%s texts do not come back from their tokens; the first begins '%s'. Tokens "
            "of single bytes have wrong texts: convert the model again.",
            lp_accuse_number(n_wrong).text, first.data ? first.data : "");
    if (!status)
        lp_accuse_counted(x->exam->report, LP_STAGE_TOKENS, "round trips", N_ROUND_TRIPS - n_wrong,
                          n_wrong,
                          "texts in 14 scripts, code, numbers, emoji, white space and damaged "
                          "UTF-8 that come back from their tokens");
    lp_free(list.ids);
    lp_bytes_release(&text);
    lp_bytes_release(&first);
    return status;
}

// ---- the stage ----

static void load_fault(struct lp_exam *exam, const struct lp_err *why) {
    char what[LP_WHAT_BYTES];
    if (!lp_accuse_what(why->text, what)) snprintf(what, sizeof what, "tokenizer.ggml.tokens");
    lp_report_say(exam->report, LP_STAGE_TOKENS, LP_CHECK_FAULT, "tokenizer", "%s", why->text);
    lp_report_fault(exam->report, LP_STAGE_TOKENS, "tokenizer", -1, what,
                    "%s. Convert the model again with the tokenizer files of its own repository.",
                    why->text);
}

static struct lp_str text_of(const struct lp_gguf *gguf, const char *key) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, key);
    return kv && kv->type == LP_GGUF_STRING ? kv->strings[0] : (struct lp_str){"", 0};
}

static void tokenizer_ok(struct lp_exam *exam) {
    const struct lp_gguf_tensor *embd =
        lp_gguf_find_tensor(exam->gguf, lp_str_from("token_embd.weight"));
    uint64_t n = lp_tokenizer_n_tokens(exam->tokenizer), rows = embd ? embd->ne[1] : n;
    char figure[48], bound[48];
    snprintf(figure, sizeof figure, "%s tokens", lp_accuse_number(n).text);
    snprintf(bound, sizeof bound, "%s rows", lp_accuse_number(rows).text);
    struct lp_check_note note = {.stage = LP_STAGE_TOKENS,
                                 .outcome = n == rows ? LP_CHECK_OK : LP_CHECK_FAULT,
                                 .name = "tokenizer",
                                 .figure = figure,
                                 .bound = bound,
                                 .value = (double)n,
                                 .limit = (double)rows};
    lp_report_check(exam->report, &note, "tokens, against rows of the embedding");
}

lp_status lp_check_tokens(struct lp_exam *exam, struct lp_err *err) {
    struct lp_err why = {0};
    lp_status status = lp_vocab_load(&exam->tokenizer, exam->gguf, &why);
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) {
        exam->tokenizer = NULL;
        load_fault(exam, &why);
        return LP_OK;
    }
    tokenizer_ok(exam);
    struct lp_token_exam x = {.exam = exam,
                              .tok = exam->tokenizer,
                              .family = lp_vocab_family(exam->tokenizer),
                              .model = text_of(exam->gguf, "tokenizer.ggml.model"),
                              .pre = text_of(exam->gguf, "tokenizer.ggml.pre")};
    status = lp_check_pretok(&x, err);
    if (!status) status = lp_check_token_types(&x, err);
    if (!status) lp_check_token_ids(&x);
    if (!status) status = lp_check_pieces(&x, err);
    if (!status) status = lp_check_round_trips(&x, err);
    if (!status) status = lp_check_template(&x, err);
    return status;
}
