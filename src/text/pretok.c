// Pre-tokenizers: the first, coarse split of a text, which no token crosses. Each is a list of
// regular expressions applied in sequence, every one inside each piece that the earlier ones left;
// what a match covers becomes a piece, and so does what lies between matches.
//
// The expressions are those of the models' own tokenizer files, run by PCRE2 (with its JIT where
// the machine allows it; without, the same results come more slowly). Two things are spelled out
// because engines differ: white space (PCRE2's \s also takes U+180E) and the script Han (newer
// PCRE2 releases take script extensions too). Every expression here is linear in the text: a repeat
// is followed by what it can give back in one step, or the match begins where the repeat began.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/log.h"
#include "text/tokenizer_parts.h"

// Unicode's White_Space, as a list for a class.
#define S                                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"        \
    "\\x{205f}\\x{3000}"
#define SPACE "[" S "]"
#define SPACES_END /* line ends with what precedes them; runs, less the space a word may take */   \
    SPACE "*[\\r\\n]+|" SPACE "+(?![^" S "])|" SPACE "+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SYMBOLS " ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*"

#define GLM                                                                                        \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" SYMBOLS "|" SPACES_END
#define QWEN CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" SYMBOLS "|" SPACES_END
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+|" SPACE "+(?![^" S "])"

#define ASCII_SYMBOL "[\\x{21}-\\x{2f}\\x{3a}-\\x{40}\\x{5b}-\\x{60}\\x{7b}-\\x{7e}]"
#define DEEPSEEK3                                                                                  \
    ASCII_SYMBOL "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"  \
    SPACES_END

// The letters that have case, as the DeepSeek-LLM tokenizer lists them.
#define CASED                                                                                      \
    "\\x{41}-\\x{5a}\\x{61}-\\x{7a}\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}" \
    "\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}" \
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}" \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}" \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}" \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}" \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}" \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}" \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}" \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}" \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}" \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
// The second range runs from ':' to '~' and so holds the ASCII letters; that is how the file has
// it.
#define DEEPSEEK1_SYMBOLS                                                                          \
    SPACE "?[\\x{21}-\\x{2f}\\x{3a}-\\x{7e}\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"  \
          "\\x{3000}-\\x{3002}]+"
// White space at the end of a piece. Looking back pins the match to the run's first character;
// without that, a long run that is not at the end costs the square of its length.
#define SPACES_AT_END "(?<!" SPACE ")" SPACE "+\\z"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

#define HAN                                                                                        \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}" \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}" \
    "\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}-\\x{16fe3}\\x{16ff0}-\\x{16ff6}" \
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b81e}\\x{2b820}-\\x{2cead}\\x{2ceb0}-\\x{2ebe0}" \
    "\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}\\x{31350}-\\x{33479}"
// Kimi's classes are intersections, "these letters or marks and not Han", which PCRE2 writes as the
// complement of everything else. Words follow the model's own expression, which keeps upper- and
// lower-case runs apart; llama.cpp's reading, one run of any case, gives other tokens for
// "camelCase".
#define NO_WORD "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN
#define UPPER "[^\\p{Ll}" NO_WORD "]"
#define LOWER "[^\\p{Lu}\\p{Lt}" NO_WORD "]"
#define KIMI                                                                                       \
    "[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?"    \
    UPPER "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "|" SPACES_END

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_STOPS ((const char *const[]){NULL})
#define GLM_STOPS LIST("<|endoftext|>", "<|user|>", "<|observation|>")
#define LLAMA3_STOPS LIST("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
#define CHATML_STOPS LIST("<|im_end|>", "<|endoftext|>")
#define DEEPSEEK_STOPS LIST("<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>")

static const struct lp_pretok_row rows[] = {
    {"glm4 chatglm-bpe", LIST(GLM), GLM_STOPS, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral", LIST(GLM), LLAMA3_STOPS, true, true},
    {"qwen2 deepseek-r1-qwen", LIST(QWEN), CHATML_STOPS, false, false},
    {"smollm", LIST("\\p{N}", GPT2), CHATML_STOPS, false, false},
    {"starcoder refact command-r", LIST("\\p{N}", GPT2), NO_STOPS, false, false},
    {"gpt-2", LIST(GPT2), NO_STOPS, false, false},
    {"default", LIST("[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"), NO_STOPS,
     false, false},
    // The last step takes digits one by one, as the model's own file does.
    {"deepseek-llm",
     LIST("[\\r\\n]", SPACE "?[" CASED "]+", DEEPSEEK1_SYMBOLS, SPACES_AT_END, DEEPSEEK_CJK, "\\p{N}"),
     DEEPSEEK_STOPS, false, false},
    {"deepseek-coder",
     LIST("[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"), DEEPSEEK_STOPS,
     false, false},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     LIST("\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+", DEEPSEEK3),
     DEEPSEEK_STOPS, false, false},
    {"kimi-k2", LIST(KIMI), LIST("<|im_end|>", "[EOS]"), false, false},
};

const struct lp_pretok_row *lp_pretok_rows(size_t *n) {
    *n = sizeof rows / sizeof *rows;
    return rows;
}

static bool list_has(const char *names, struct lp_str name) {
    while (*names) {
        size_t len = strcspn(names, " ");
        if (lp_str_equal((struct lp_str){names, len}, name)) return true;
        names += len + (names[len] == ' ');
    }
    return false;
}

const struct lp_pretok_row *lp_pretok_find(struct lp_str name) {
    if (!name.len) name = lp_str_from("default");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (list_has(rows[i].names, name)) return &rows[i];
    return NULL;
}

enum { MAX_PATTERNS = 8 };

struct lp_pretok {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *codes[MAX_PATTERNS];
    size_t n_codes;
};

static void *pcre_alloc(size_t n, void *unused) {
    (void)unused;
    return lp_realloc(NULL, n, 1);
}
static void pcre_free(void *block, void *unused) {
    (void)unused;
    lp_free(block);
}

static lp_status compile(struct lp_pretok *pretok, const char *pattern,
                         pcre2_compile_context *context, struct lp_err *err) {
    int code;
    PCRE2_SIZE offset;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP, &code, &offset, context);
    if (!compiled && code == PCRE2_ERROR_HEAP_FAILED)
        return lp_err_memory(err, strlen(pattern), "a pre-tokenizer expression");
    if (!compiled)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "PCRE2 %d.%d does not compile the pre-tokenizer expression \"%.60s...\" "
                          "(error %d at byte %zu); version 10.30 or newer with Unicode is needed",
                          PCRE2_MAJOR, PCRE2_MINOR, pattern, code, (size_t)offset);
    pretok->codes[pretok->n_codes++] = compiled;
    if (pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE))
        lp_log(LP_LOG_INFO, "PCRE2's JIT is not available; tokenizing will be slower");
    return LP_OK;
}

lp_status lp_pretok_new(struct lp_pretok **out, const struct lp_pretok_row *row, struct lp_err *err) {
    *out = NULL;
    struct lp_pretok *pretok = lp_alloc(1, sizeof *pretok);
    if (!pretok) return lp_err_memory(err, sizeof *pretok, "a pre-tokenizer");
    lp_status status = LP_OK;
    pcre2_compile_context *context = NULL;
    pretok->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (pretok->memory) pretok->limits = pcre2_match_context_create(pretok->memory);
    if (pretok->limits) context = pcre2_compile_context_create(pretok->memory);
    if (!context) {
        status = lp_err_memory(err, 256, "a pre-tokenizer");
        goto out;
    }
    // The expressions are ours and linear: the guards against runaway ones would only fail long
    // texts.
    pcre2_set_match_limit(pretok->limits, UINT32_MAX);
    pcre2_set_depth_limit(pretok->limits, UINT32_MAX);
    for (size_t i = 0; row->patterns[i] && i < MAX_PATTERNS && !status; i++)
        status = compile(pretok, row->patterns[i], context, err);
out:
    pcre2_compile_context_free(context);
    if (status) lp_pretok_free(pretok);
    else *out = pretok;
    return status;
}

void lp_pretok_free(struct lp_pretok *pretok) {
    if (!pretok) return;
    for (size_t i = 0; i < pretok->n_codes; i++) pcre2_code_free(pretok->codes[i]);
    pcre2_match_context_free(pretok->limits);
    pcre2_general_context_free(pretok->memory);
    lp_free(pretok);
}

static bool push_end(struct lp_pretok_work *work, size_t end) {
    if (work->n_next == work->next_capacity) {
        size_t capacity = work->next_capacity ? work->next_capacity : 64;
        size_t *bigger = NULL;
        if (lp_mul_size(capacity, 2, &capacity)) bigger = lp_realloc(work->next, capacity, sizeof *bigger);
        if (!bigger) return false;
        work->next = bigger;
        work->next_capacity = capacity;
    }
    work->next[work->n_next++] = end;
    return true;
}

// Splits text[begin, end) by one expression.
static lp_status split_piece(const struct lp_pretok *pretok, struct lp_pretok_work *work,
                             const pcre2_code *code, struct lp_str text, size_t begin, size_t end,
                             struct lp_err *err) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data + begin;
    size_t len = end - begin, at = 0;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(work->match);
    while (at < len) {
        int found = pcre2_match(code, subject, len, at, PCRE2_NO_UTF_CHECK, work->match,
                                pretok->limits);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found == PCRE2_ERROR_NOMEMORY) return lp_err_memory(err, len, "splitting a text");
        if (found < 0 || range[1] <= range[0] || range[0] < at)
            return lp_err_set(err, LP_STATUS_LIMIT,
                              "PCRE2 gave up splitting a text of %zu bytes at byte %zu (error %d); "
                              "send it in smaller parts",
                              text.len, begin + at, found);
        if (range[0] > at && !push_end(work, begin + range[0])) goto memory;
        at = range[1];
        if (!push_end(work, begin + at)) goto memory;
    }
    if (at == len || push_end(work, end)) return LP_OK;
memory:
    return lp_err_memory(err, work->next_capacity * 2 * sizeof *work->next, "the pieces of a text");
}

lp_status lp_pretok_split(const struct lp_pretok *pretok, struct lp_pretok_work *work,
                          struct lp_str text, struct lp_err *err) {
    if (!work->match) work->match = pcre2_match_data_create(1, pretok->memory);
    if (!work->match) return lp_err_memory(err, 256, "splitting a text");
    work->n = work->n_next = 0;
    if (!text.len) return LP_OK;
    if (!push_end(work, text.len)) return lp_err_memory(err, 1024, "the pieces of a text");
    for (size_t i = 0; i <= pretok->n_codes; i++) {
        size_t *ends = work->ends, capacity = work->capacity;
        work->ends = work->next;
        work->n = work->n_next;
        work->capacity = work->next_capacity;
        work->next = ends;
        work->next_capacity = capacity;
        work->n_next = 0;
        if (i == pretok->n_codes) break;
        for (size_t j = 0, begin = 0; j < work->n; begin = work->ends[j++]) {
            lp_status status =
                split_piece(pretok, work, pretok->codes[i], text, begin, work->ends[j], err);
            if (status) return status;
        }
    }
    return LP_OK;
}

void lp_pretok_work_release(struct lp_pretok_work *work) {
    pcre2_match_data_free(work->match);
    lp_free(work->ends);
    lp_free(work->next);
    *work = (struct lp_pretok_work){0};
}
