// The known texts and their way to tokens.
#include "doctor/texts.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "text/chat.h"

// clang-format off
static const struct lp_known_text texts[] = {
    {"counting", LP_TEXT_PLAIN, true, "1, 2, 3, 4,", " 5, 6, 7, 8, 9, 10"},
    {"days", LP_TEXT_PLAIN, true, "Monday, Tuesday,",
     " Wednesday, Thursday, Friday, Saturday, Sunday"},
    {"capital", LP_TEXT_PLAIN, true, "The capital of Italy is Rome. The capital of France is",
     " Paris."},
    {"story", LP_TEXT_PLAIN, true, "Once upon a", " time, there was a little"},
    {"alphabet", LP_TEXT_PLAIN, true, "A, B, C, D,", " E, F, G, H"},
    {"repeated list", LP_TEXT_PLAIN, false,
     "red house, blue car, green tree, big dog.\nred house, blue", " car, green tree, big dog."},
    {"questions", LP_TEXT_PLAIN, false,
     "Q: What is the capital of Spain?\nA: The capital of Spain is Madrid.\n"
     "Q: What is the capital of Japan?\nA: The",
     " capital of Japan is Tokyo."},
    {"counting on", LP_TEXT_PLAIN, false, "8, 9, 10, 11,", " 12, 13, 14, 15, 16, 17, 18, 19, 20"},
    {"more alphabet", LP_TEXT_PLAIN, false, "H, I, J, K, L,", " M, N, O, P, Q, R, S, T, U, V"},
    {"months", LP_TEXT_PLAIN, false, "January, February, March,",
     " April, May, June, July, August, September, October, November, December"},
    {"counting by twos", LP_TEXT_PLAIN, false, "2, 4, 6, 8,", " 10, 12, 14, 16, 18, 20"},
    {"counting down", LP_TEXT_PLAIN, false, "10, 9, 8, 7,", " 6, 5, 4, 3, 2, 1"},
    {"opposites", LP_TEXT_PLAIN, false,
     "Q: What is the opposite of hot?\nA: The opposite of hot is cold.\n"
     "Q: What is the opposite of big?\nA: The",
     " opposite of big is small.\nQ: What is the opposite of up?\nA: The opposite of up is down."},
    {"sums", LP_TEXT_PLAIN, false, "1 + 1 = 2\n2 + 2 = 4\n3 + 3 =", " 6\n4 + 4 = 8\n5 + 5 = 10"},
    {"plurals", LP_TEXT_PLAIN, false,
     "Q: What is the plural of cat?\nA: The plural of cat is cats.\n"
     "Q: What is the plural of dog?\nA: The",
     " plural of dog is dogs."},
    {"fairy tale", LP_TEXT_PLAIN, false, "Once upon a time, there was a little girl named Lily. She",
     " loved to play outside in the park. One day, she saw a big"},
    {"repeated sentence", LP_TEXT_PLAIN, false,
     "The old man gave seven apples to the small girl and went home.\n"
     "The old man gave seven",
     " apples to the small girl and went home."},
    {"repeated pairs", LP_TEXT_PLAIN, false,
     "Anna likes tea. Tom likes milk. Sam likes bread. Mary likes fish.\n"
     "Anna likes tea. Tom likes",
     " milk. Sam likes bread. Mary likes fish."},
    {"English", LP_TEXT_PLAIN, false,
     "The sun rises in the east and sets in the west. During the day",
     " the sky is blue, and at night we can see the moon and the stars."},
    {"code", LP_TEXT_PLAIN, false, "for i in range(10):\n    print(i)\n\nfor j in range(10):\n   ",
     " print(j)\n"},
    {"JSON", LP_TEXT_PLAIN, false, "{\"name\": \"Tom\", \"age\": 31}\n{\"name\": \"Anna\",",
     " \"age\": 27}"},

    {"chat: capital", LP_TEXT_CHAT, true, "What is the capital of France?",
     "The capital of France is Paris."},
    {"chat: sum", LP_TEXT_CHAT, false, "What is 12 + 7?", "12 + 7 = 19"},
    {"chat: repeat", LP_TEXT_CHAT, false, "Repeat exactly: brown bread coin milk dog cherry",
     "brown bread coin milk dog cherry"},
    {"chat: opposite", LP_TEXT_CHAT, false, "What is the opposite of push?",
     "The opposite of push is pull."},
    {"chat: count", LP_TEXT_CHAT, false, "Count from 3 to 9.", "3, 4, 5, 6, 7, 8, 9"},
    {"chat: JSON", LP_TEXT_CHAT, false, "Write a JSON object with name Walter and age 91.",
     "{\"name\": \"Walter\", \"age\": 91}"},
    {"chat: large sum", LP_TEXT_CHAT, true, "What is 347 + 285?", "347 + 285 = 632"},
    {"chat: difference", LP_TEXT_CHAT, false, "What is 606 - 348?", "606 - 348 = 258"},
    {"chat: sort", LP_TEXT_CHAT, false, "Sort from small to large: 611, 542, 281, 334, 208, 198",
     "198, 208, 281, 334, 542, 611"},
    {"chat: reverse", LP_TEXT_CHAT, false, "Write in reverse order: frog, duck, table, coin",
     "coin, table, duck, frog"},
    {"chat: list", LP_TEXT_CHAT, false,
     "Here is a list:\n1. Zoe\n2. James\n3. Anna\n4. Cora\n5. Tim\nWhich item comes after Cora?",
     "After Cora comes Tim."},
    {"chat: apples", LP_TEXT_CHAT, false,
     "Gina has 20 apples and gets 46 more. How many apples does Gina have now?",
     "20 + 46 = 66. The answer is 66 apples."},
    {"chat: short look-up", LP_TEXT_CHAT, true,
     "Read this text:\nAnna's secret code is 5190.\nThe price of the coat is 273 coins.\n"
     "The password of Ivan is wq3pt.\n\nQuestion: What is the price of the coat?",
     "The price of the coat is 273 coins."},
    {"chat: look-up", LP_TEXT_CHAT, false,
     "Read this text:\nVera's secret code is 7038.\nThe password of Max is ucy6gx.\n"
     "Uma has a house in Dodoma.\nThe secret code of Wendy is 4815.\nThe password of Luke is eqcvq.\n"
     "The price of the table is 912 coins.\nThe price of the lamp is 340 coins.\n\n"
     "Question: What is the secret code of Wendy?",
     "The secret code of Wendy is 4815."},
    {"chat: second look-up", LP_TEXT_CHAT, false,
     "Read this text:\nThe price of the chair is 526 coins.\nMike's secret code is 9120.\n"
     "The password of Tina is h7rqd.\nPaul has a house in Lima.\nThe secret code of Nora is 3371.\n"
     "The price of the clock is 748 coins.\nThe password of Ben is zzk41.\n\n"
     "Question: What is the price of the clock?",
     "The price of the clock is 748 coins."},
};
// clang-format on

const struct lp_known_text *lp_known_texts(size_t *n) {
    *n = sizeof texts / sizeof texts[0];
    return texts;
}

void lp_passages_release(struct lp_passages *p) {
    for (size_t i = 0; i < p->n; i++) lp_free(p->list[i].tokens);
    lp_free(p->list);
    *p = (struct lp_passages){0};
}

static int32_t token_of(const struct lp_tokenizer *tok, const char *text) {
    return lp_tokenizer_find(tok, lp_str_from(text));
}

// The ids before a text; at most 2.
static int prefix_ids(const struct lp_tokenizer *tok, enum lp_text_prefix prefix, int32_t *out) {
    int32_t mask = token_of(tok, "[gMASK]"), sop = token_of(tok, "<sop>");
    int n = 0;
    if (prefix == LP_PREFIX_NONE) return 0;
    if (mask >= 0 && sop >= 0) {
        out[n++] = mask;
        out[n++] = sop;
    } else if (lp_tokenizer_bos(tok) >= 0 &&
               (lp_tokenizer_adds_bos(tok) || prefix == LP_PREFIX_BOS))
        out[n++] = lp_tokenizer_bos(tok);
    return n;
}

bool lp_texts_prefix_differs(const struct lp_tokenizer *tok, enum lp_text_prefix prefix) {
    int32_t usual[2] = {-1, -1}, other[2] = {-1, -1};
    prefix_ids(tok, LP_PREFIX_FILE, usual);
    prefix_ids(tok, prefix, other);
    return usual[0] != other[0] || usual[1] != other[1];
}

// What the template writes before the assistant's answer; false where it cannot be rendered.
static bool render_question(const struct lp_jinja *jinja, const struct lp_tokenizer *tok,
                            const char *question, struct lp_bytes *out) {
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", question);
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", 0);
    int32_t bos = lp_tokenizer_bos(tok), eos = lp_tokenizer_eos(tok);
    struct lp_chat_params params = {
        .messages = messages,
        .kwargs = kwargs,
        .add_generation_prompt = true,
        .bos_token = bos >= 0 ? lp_tokenizer_token(tok, bos) : (struct lp_str){"", 0},
        .eos_token = eos >= 0 ? lp_tokenizer_token(tok, eos) : (struct lp_str){"", 0}};
    bool done = messages && kwargs && !lp_chat_render(jinja, &params, out, NULL) && !out->failed;
    json_decref(messages);
    json_decref(kwargs);
    return done;
}

// The first token that begins at or behind byte `from` of the text; *n_bytes: of it and the rest.
static bool first_token_from(const struct lp_tokenizer *tok, const int32_t *ids, size_t n,
                             size_t text_len, size_t from, int32_t *first, int32_t *n_bytes) {
    struct lp_bytes piece = {0};
    size_t total = 0, at = 0, i = 0;
    for (size_t k = 0; k < n; k++) {
        lp_bytes_clear(&piece);
        if (!lp_tokenizer_piece(tok, ids[k], false, &piece)) break;
        total += piece.len;
    }
    size_t extra = total > text_len ? total - text_len : 0; // the space that some vocabularies add
    for (; i < n && at < from + extra; i++) {
        lp_bytes_clear(&piece);
        if (!lp_tokenizer_piece(tok, ids[i], false, &piece)) break;
        at += piece.len;
    }
    lp_bytes_release(&piece);
    *first = (int32_t)i;
    *n_bytes = (int32_t)(total - at);
    return i < n;
}

static lp_status push(struct lp_passages *p, const struct lp_passage *passage, struct lp_err *err) {
    if (!LP_GROW(p->list, p->capacity, p->n + 1))
        return lp_err_memory(err, 2 * p->n * sizeof *p->list, "texts");
    p->list[p->n++] = *passage;
    p->n_tokens += passage->n_tokens;
    p->n_scored += passage->n_tokens - passage->first_scored;
    p->n_bytes += passage->n_bytes;
    if (passage->n_tokens > p->longest) p->longest = passage->n_tokens;
    return LP_OK;
}

// Encodes given + obvious behind a prefix. A text that the vocabulary cannot take is left out.
static lp_status add_text(struct lp_passages *p, const struct lp_tokenizer *tok,
                          const struct lp_known_text *text, struct lp_str given,
                          const int32_t *prefix, int n_prefix, int64_t max_tokens,
                          struct lp_err *err) {
    struct lp_passage out = {.name = text->name, .kind = text->kind};
    struct lp_bytes whole = {0};
    size_t n = 0, capacity = 0;
    int32_t *ids = NULL;
    unsigned flags = text->kind == LP_TEXT_CHAT ? LP_ENCODE_SPECIAL : 0;
    lp_bytes_append(&whole, given.data, given.len);
    lp_bytes_puts(&whole, text->obvious);
    lp_status status = whole.failed ? lp_err_memory(err, whole.len, "a text")
                                    : lp_tokenizer_encode(tok, lp_bytes_view(&whole), flags, &ids,
                                                          &n, &capacity, err);
    bool fits =
        !status && n + (size_t)n_prefix <= (size_t)max_tokens &&
        first_token_from(tok, ids, n, whole.len, given.len, &out.first_scored, &out.n_bytes);
    out.first_scored += n_prefix;
    if (fits && out.first_scored > 0) {
        out.n_tokens = (int32_t)n + n_prefix;
        out.tokens = lp_alloc((size_t)out.n_tokens, sizeof *out.tokens);
        if (!out.tokens) status = lp_err_memory(err, n * sizeof *ids, "a text");
        for (int i = 0; i < n_prefix && !status; i++) out.tokens[i] = prefix[i];
        if (!status) memcpy(out.tokens + n_prefix, ids, n * sizeof *ids);
        if (!status) status = push(p, &out, err);
        if (status) lp_free(out.tokens);
    }
    lp_free(ids);
    lp_bytes_release(&whole);
    return status == LP_STATUS_MEMORY ? status : LP_OK;
}

static bool wanted(const struct lp_known_text *text, const struct lp_texts_choice *choice) {
    if (choice->quick && !text->quick) return false;
    if (text->kind == LP_TEXT_PLAIN) return choice->plain;
    return text->kind == LP_TEXT_CHAT ? choice->chat : choice->longs;
}

lp_status lp_texts_encode(struct lp_passages *out, const struct lp_tokenizer *tok,
                          const struct lp_gguf *gguf, const struct lp_texts_choice *choice,
                          struct lp_err *err) {
    int32_t prefix[2];
    int n_prefix = prefix_ids(tok, choice->prefix, prefix);
    struct lp_str source = {"", 0};
    struct lp_jinja *jinja = NULL;
    bool found = false;
    lp_status status = LP_OK;
    *out = (struct lp_passages){0};
    if (choice->chat && !lp_gguf_get_str(gguf, "tokenizer.chat_template", &source, &found, NULL) &&
        found)
        lp_jinja_parse(&jinja, source, NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && !status; i++) {
        struct lp_str given = lp_str_from(texts[i].given);
        struct lp_bytes question = {0};
        if (!wanted(&texts[i], choice)) continue;
        if (choice->max_all && out->n > 0 && out->n_tokens >= choice->max_all) break;
        bool chat = texts[i].kind == LP_TEXT_CHAT;
        if (chat && (!jinja || !render_question(jinja, tok, texts[i].given, &question))) {
            lp_bytes_release(&question);
            continue;
        }
        if (chat) given = lp_bytes_view(&question);
        status = add_text(out, tok, &texts[i], given, prefix, chat ? 0 : n_prefix,
                          choice->max_tokens, err);
        lp_bytes_release(&question);
    }
    lp_jinja_free(jinja);
    if (status) lp_passages_release(out);
    return status;
}
