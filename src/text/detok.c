// Ids to text: the bytes of one token, and the streaming form that gives out whole characters only.
#include "text/tokenizer_parts.h"
#include "base/utf8_step.h"

#define SPACE_MARK "\xE2\x96\x81"

// Undoes the spelling of bytes. False, and nothing appended, if a character stands for no byte:
// such a token (padding, a special one typed as normal) is then plain text.
static bool unspell(struct lp_str text, struct lp_bytes *out) {
    size_t before = out->len;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        uint32_t code_point = c;
        if (c >= 0x80) { // two-byte characters reach U+07FF; the spelling ends at U+0143
            unsigned char after = i + 1 < text.len ? (unsigned char)text.data[++i] : 0;
            bool two = (c & 0xE0) == 0xC0 && (after & 0xC0) == 0x80;
            code_point = two ? (c & 0x1Fu) << 6 | (after & 0x3Fu) : UINT32_MAX;
        }
        int byte = lp_bpe_char_byte(code_point);
        if (byte < 0) {
            out->len = before;
            if (out->data) out->data[before] = 0;
            return false;
        }
        char b = (char)byte;
        if (!lp_bytes_append(out, &b, 1)) return true; // out->failed says so
    }
    return true;
}

static bool unmark_spaces(struct lp_str text, struct lp_bytes *out) {
    const size_t mark = sizeof SPACE_MARK - 1;
    size_t begin = 0;
    for (size_t i = 0; i + mark <= text.len;) {
        if (memcmp(text.data + i, SPACE_MARK, mark)) {
            i++;
            continue;
        }
        lp_bytes_append(out, text.data + begin, i - begin);
        lp_bytes_puts(out, " ");
        begin = i += mark;
    }
    return lp_bytes_append(out, text.data + begin, text.len - begin);
}

bool lp_tokenizer_piece(const struct lp_tokenizer *tok, int32_t id, bool skip_special,
                        struct lp_bytes *out) {
    if (id < 0 || (uint32_t)id >= tok->n_tokens) return false;
    struct lp_str text = tok->tokens[id];
    switch (tok->types[id]) {
    case LP_TOKEN_UNKNOWN:
    case LP_TOKEN_CONTROL:
        return skip_special || lp_bytes_append(out, text.data, text.len);
    case LP_TOKEN_USER_DEFINED:
        return lp_bytes_append(out, text.data, text.len);
    case LP_TOKEN_BYTE: {
        char byte = (char)lp_spm_byte_of(text); // vocab.c has checked the text
        return lp_bytes_append(out, &byte, 1);
    }
    default:
        if (tok->is_spm) return unmark_spaces(text, out);
        if (!unspell(text, out)) lp_bytes_append(out, text.data, text.len);
        return !out->failed;
    }
}

void lp_detok_init(struct lp_detok *detok, const struct lp_tokenizer *tok, bool skip_special) {
    *detok = (struct lp_detok){.tok = tok, .skip_special = skip_special};
}

// Appends text as whole characters; what may still become one stays in detok->held.
static bool give_out(struct lp_detok *detok, const unsigned char *text, size_t n,
                     struct lp_bytes *out) {
    size_t at = 0, len;
    while (at < n) {
        enum lp_utf8_kind kind = lp_utf8_step(text + at, n - at, &len);
        if (kind == LP_UTF8_CUT) break;
        if (kind == LP_UTF8_WHOLE)
            lp_bytes_append(out, text + at, len);
        else
            lp_bytes_puts(out, LP_UTF8_REPLACEMENT);
        at += len;
    }
    detok->n_held = (uint8_t)(n - at); // at most 3: a cut character lacks a byte
    memcpy(detok->held, text + at, n - at);
    return !out->failed;
}

bool lp_detok_push(struct lp_detok *detok, int32_t id, struct lp_bytes *out) {
    struct lp_bytes text = {0};
    bool ok = lp_bytes_append(&text, detok->held, detok->n_held) &&
              lp_tokenizer_piece(detok->tok, id, detok->skip_special, &text);
    size_t begin = 0;
    if (ok && !detok->started && text.len > 0) {
        detok->started = true;
        begin = detok->tok->is_spm && detok->tok->add_space_prefix && text.data[0] == ' ' &&
                detok->tok->types[id] != LP_TOKEN_USER_DEFINED;
    }
    if (ok && text.len)
        ok = give_out(detok, (unsigned char *)text.data + begin, text.len - begin, out);
    lp_bytes_release(&text);
    return ok;
}

bool lp_detok_finish(struct lp_detok *detok, struct lp_bytes *out) {
    if (!detok->n_held) return true;
    detok->n_held = 0;
    return lp_bytes_puts(out, LP_UTF8_REPLACEMENT);
}
