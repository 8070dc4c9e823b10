// Text to ids: mend the UTF-8, cut out special tokens, hand each fragment between them to the
// vocabulary's own algorithm, add BOS and EOS where asked. On an error the caller's list is as it
// was.
#include "base/alloc.h"
#include "base/checked.h"
#include "text/tokenizer_parts.h"
#include "base/utf8_step.h"

enum { MAX_TEXT_BYTES = 1 << 30 }; // positions then fit 32 bits even where each byte becomes three

bool lp_ids_push(struct lp_ids *ids, int32_t id) {
    if (ids->n == ids->capacity) {
        size_t capacity;
        if (!lp_add_size(ids->capacity, ids->capacity / 2 + 64, &capacity)) return false;
        int32_t *bigger = lp_realloc(ids->data, capacity, sizeof *bigger);
        if (!bigger) return false;
        ids->data = bigger;
        ids->capacity = capacity;
    }
    ids->data[ids->n++] = id;
    return true;
}

// The text itself if it is well-formed, else a copy in *copy with U+FFFD for what is not.
static lp_status mend_utf8(struct lp_str *text, struct lp_bytes *copy, struct lp_err *err) {
    const unsigned char *data = (const unsigned char *)text->data;
    size_t copied = 0, n;
    for (size_t at = 0; at < text->len; at += n) {
        if (lp_utf8_step(data + at, text->len - at, &n) == LP_UTF8_WHOLE) continue;
        lp_bytes_append(copy, data + copied, at - copied);
        lp_bytes_puts(copy, LP_UTF8_REPLACEMENT);
        copied = at + n;
    }
    if (!copied) return LP_OK;
    lp_bytes_append(copy, data + copied, text->len - copied);
    if (copy->failed) return lp_err_memory(err, text->len, "a text with bad UTF-8");
    *text = lp_bytes_view(copy);
    return LP_OK;
}

static lp_status encode_fragment(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                                 struct lp_str text, struct lp_ids *ids, struct lp_err *err) {
    if (tok->is_spm) return lp_spm_encode(tok, work, text, tok->add_space_prefix, ids, err);
    lp_status status = lp_pretok_split(tok->pretok, &work->pretok, text, err);
    for (size_t i = 0, begin = 0; i < work->pretok.n && !status; begin = work->pretok.ends[i++]) {
        struct lp_str piece = {text.data + begin, work->pretok.ends[i] - begin};
        status = lp_bpe_encode(tok, work, piece, ids, err);
    }
    return status;
}

static lp_status encode_all(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                            struct lp_str text, bool with_control, struct lp_ids *ids,
                            struct lp_err *err) {
    for (size_t at = 0; at < text.len;) {
        size_t end = text.len;
        const struct lp_special *special =
            lp_special_find(&tok->specials, text, at, with_control, &end);
        if (end > at) {
            struct lp_str fragment = {text.data + at, end - at};
            lp_status status = encode_fragment(tok, work, fragment, ids, err);
            if (status) return status;
        }
        at = end;
        if (!special) continue;
        if (!lp_ids_push(ids, special->id)) return lp_err_memory(err, text.len, "token ids");
        at += special->text.len;
    }
    return LP_OK;
}

lp_status lp_tokenizer_encode(const struct lp_tokenizer *tok, struct lp_str text, unsigned flags,
                              int32_t **ids, size_t *n_ids, size_t *capacity, struct lp_err *err) {
    if (text.len > MAX_TEXT_BYTES)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the text has %zu bytes, at most %d can be tokenized", text.len,
                          MAX_TEXT_BYTES);
    struct lp_encode_work work = {0};
    struct lp_bytes mended = {0};
    struct lp_ids list = {*ids, *n_ids, *capacity};
    size_t first = list.n;
    bool bos = (flags & LP_ENCODE_BOS_EOS) && tok->add_bos;
    bool eos = (flags & LP_ENCODE_BOS_EOS) && tok->add_eos;
    lp_status status = mend_utf8(&text, &mended, err);
    if (!status && bos && !lp_ids_push(&list, tok->bos))
        status = lp_err_memory(err, 4, "token ids");
    if (!status) status = encode_all(tok, &work, text, flags & LP_ENCODE_SPECIAL, &list, err);
    if (!status && bos && list.n > first + 1 && list.data[first + 1] == tok->bos) {
        list.n--; // the text brings its own
        memmove(list.data + first, list.data + first + 1, (list.n - first) * sizeof *list.data);
    }
    if (!status && eos && !lp_ids_push(&list, tok->eos))
        status = lp_err_memory(err, 4, "token ids");
    lp_pair_release(&work.pairs);
    lp_pretok_work_release(&work.pretok);
    lp_bytes_release(&work.text);
    lp_bytes_release(&mended);
    *ids = list.data;
    *capacity = list.capacity;
    *n_ids = status ? first : list.n;
    return status;
}
