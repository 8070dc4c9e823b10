// Inside of Anthropic's API: what its request, its whole answers and its streams share.
#ifndef LP_SERVE_ANTHROPIC_PARTS_H
#define LP_SERVE_ANTHROPIC_PARTS_H

#include "serve/anthropic.h"

// The code of an error by which Anthropic's package knows to send whole conversations.
#define LP_ANTHROPIC_NO_THREADS "thread_unsupported_request"

// ---- requests ----

// Fills messages, tools, tool_choice and thinking: all that becomes the prompt. r: initialised.
// Knows no model. False with the error filled.
bool lp_anthropic_read(struct lp_chat_request *r, const json_t *root, struct lp_api_error *err);
// Fills params: max_tokens, the fields of fields.h, the form of the output.
bool lp_anthropic_read_params(struct lp_chat_request *r, const json_t *root,
                              struct lp_api_error *err);
// r->messages from "system" and "messages", and r->continue_final (anthropic_messages.c). thinks:
// the answer may begin with thinking, so that an assistant's at the end may be it.
bool lp_anthropic_read_messages(struct lp_chat_request *r, const json_t *root, bool thinks,
                                struct lp_api_error *err);

// ---- answers ----

enum lp_anthropic_kind { LP_BLOCK_THINKING, LP_BLOCK_TEXT, LP_BLOCK_TOOL };

// Content blocks in the order in which they were generated; of a stream the last may be open.
struct lp_anthropic_block {
    enum lp_anthropic_kind kind;
    size_t call;          // TOOL: of the choice's calls
    struct lp_bytes text; // THINKING and TEXT of whole answers; a stream has sent it
};

struct lp_anthropic_content { // lp_chat_answer's extra
    struct lp_anthropic_block *blocks;
    size_t n_blocks, capacity;
    bool is_open;       // the last block
    bool hide_thinking; // thinking.display is "omitted"
};

static inline struct lp_anthropic_content *lp_anthropic_content_of(const struct lp_answer *a) {
    return lp_chat_of(a)->extra;
}
// A block without its text, as content_block_start has it. NULL without memory.
json_t *lp_anthropic_block_json(const struct lp_chat_choice *choice,
                                const struct lp_anthropic_block *block);
const char *lp_anthropic_stop_reason(const struct lp_chat_choice *choice);
// As the four counters of the API. NULL without memory.
json_t *lp_anthropic_usage(const struct lp_chat_usage *usage);
// {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}; content and
// usage are taken over. choice: NULL: not done. NULL without memory.
json_t *lp_anthropic_message(const struct lp_answer *a, const struct lp_chat_choice *choice,
                             json_t *content, json_t *usage);

// ---- anthropic_stream.c: members of lp_anthropic_format ----

bool lp_anthropic_start(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
// Of whole answers (out NULL) too: gathers the blocks.
bool lp_anthropic_piece(struct lp_answer *a, struct lp_chat_choice *choice,
                        const struct lp_reply_piece *piece, struct lp_bytes *out);
bool lp_anthropic_done(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
bool lp_anthropic_end(struct lp_answer *a, struct lp_bytes *out);
bool lp_anthropic_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                               struct lp_bytes *out);
bool lp_anthropic_ping(struct lp_answer *a, struct lp_bytes *out);

#endif
