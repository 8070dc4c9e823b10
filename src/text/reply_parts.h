// What the files of the reply parser share. The text that was pushed waits in one buffer:
//
//     buf:   ......|  held: white space, an open value  |  not looked at yet  |
//            gone  at                                   scan                  buf.len
//
// A phase looks for the tags that may come next, hands on what lies before them, and moves at and
// scan. It never goes back behind scan, but where a call that was begun turns out to be text: then
// only its marker is given back and what follows it is read again, which a head keeps short.
#ifndef LP_TEXT_REPLY_PARTS_H
#define LP_TEXT_REPLY_PARTS_H

#include "base/alloc.h"
#include "base/map.h"
#include "text/reply.h"
#include "text/reply_json.h"

#define LP_REPLY_MAX_HEAD 512 // from a call's marker to its first argument
#define LP_REPLY_MAX_KEY 1024 // what is longer between the tags of a key is no key
#define LP_REPLY_MAX_JUNK 256 // text between pairs; more of it ends the call
#define LP_REPLY_MAX_GAP 64   // white space that a look ahead reads over

// The tags of all syntaxes. The first group begins or ends a call, the second is inside one.
enum lp_reply_tag {
    LP_TAG_THINK,
    LP_TAG_THINK_END,
    LP_TAG_SECTION, // around all calls
    LP_TAG_SECTION_TOO,
    LP_TAG_CALL,
    LP_TAG_CALL_END,
    LP_TAG_SECTION_END,
    LP_TAG_SECTION_END_TOO,
    LP_TAG_KEY,
    LP_TAG_KEY_END,
    LP_TAG_VALUE,
    LP_TAG_VALUE_END,
    LP_TAG_SEPARATOR, // of name and JSON
    LP_TAG_COUNT,
};
#define LP_TAG_BIT(tag) (1u << (tag))
#define LP_TAGS_OPEN                                                                               \
    (LP_TAG_BIT(LP_TAG_SECTION) | LP_TAG_BIT(LP_TAG_SECTION_TOO) | LP_TAG_BIT(LP_TAG_CALL))
#define LP_TAGS_SECTION_END (LP_TAG_BIT(LP_TAG_SECTION_END) | LP_TAG_BIT(LP_TAG_SECTION_END_TOO))
// What may follow a call.
#define LP_TAGS_AROUND (LP_TAGS_OPEN | LP_TAGS_SECTION_END | LP_TAG_BIT(LP_TAG_CALL_END))

enum lp_reply_answer {
    LP_REPLY_NO,
    LP_REPLY_YES,
    LP_REPLY_MORE, // the text so far does not tell; never once it has ended
};

enum lp_reply_phase {
    LP_PHASE_START,       // only white space so far
    LP_PHASE_THINK_START, // in reasoning, only white space so far
    LP_PHASE_REASONING,
    LP_PHASE_NEWLINES, // behind </think>
    LP_PHASE_CONTENT,
    LP_PHASE_HEAD,  // mark: a marker that may begin a call
    LP_PHASE_PAIRS, // in a call of the tag styles, between pairs
    LP_PHASE_KEY,
    LP_PHASE_GAP, // between a key and its value
    LP_PHASE_VALUE,
    LP_PHASE_JSON, // in the JSON of a call
    LP_PHASE_TAIL, // between that and the end of the call
};

// A phase did something and another follows, or it needs more text.
enum lp_reply_step { LP_STEP_AGAIN, LP_STEP_WAIT };

struct lp_reply_style {
    const char *name;
    const char *tags[LP_TAG_COUNT]; // NULL: the syntax has none
    const char *markers[12];        // NULL-terminated
    // Looks at the text from mark. YES: has begun the call and moved to its next phase.
    enum lp_reply_answer (*head)(struct lp_reply *r);
    enum lp_reply_step (*pairs)(struct lp_reply *r);
    // A tag other than the value's end inside a value: does it end the value all the same?
    enum lp_reply_answer (*ends_value)(const struct lp_reply *r, enum lp_reply_tag tag, size_t at);
    unsigned value_tags; // those to look for inside a value
};

extern const struct lp_reply_style lp_reply_styles[];

struct lp_reply {
    struct lp_reply_params params;
    const struct lp_reply_style *style;
    struct lp_str tags[LP_TAG_COUNT]; // of the style, with lengths
    bool calls;                       // they are looked for
    struct lp_map tool_names;         // -> index in params.tools
    bool ended, failed;
    int32_t n_calls, n_repairs;

    unsigned char cut[4]; // a character of which more is to come
    size_t n_cut;
    struct lp_bytes buf;
    size_t at, scan, mark;

    enum lp_reply_phase phase;
    bool from_reasoning;          // the head stands in reasoning
    bool think_open;              // a call has ended the reasoning; its </think> may still come
    bool repeated_think;          // has been dropped
    bool in_section, new_section; // new: opened by the head
    bool drop_call_end;           // the call has ended early; its end tag is still to come
    bool gap;                     // nothing but white space since a call or </think>
    size_t tried;                 // bytes that the head had seen when it last asked for more

    struct lp_bytes out;      // arguments on their way to the sink
    struct lp_bytes stray;    // text inside a call that is no part of it; content behind the call
    const json_t *properties; // of the call's tool; NULL: not known
    struct lp_arena key_arena;
    struct lp_map keys; // of this call, so far
    struct lp_bytes key;
    unsigned value_types;
    bool value_skipped; // its key was there before
    struct lp_reply_json json;
    size_t tail_want, tail_seen; // closing characters between the JSON and the end of the call
};

// ---- reply_text.c: reading the buffer and writing to the sink ----

static inline bool lp_reply_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
struct lp_str lp_reply_trim(struct lp_str text);
static inline struct lp_str lp_reply_slice(const struct lp_reply *r, size_t from, size_t to) {
    return (struct lp_str){lp_bytes_view(&r->buf).data + from, to - from};
}
size_t lp_reply_skip_space(const struct lp_reply *r, size_t at);
// Over at most MAX_GAP white space. YES: *at is at something else.
enum lp_reply_answer lp_reply_skip_gap(const struct lp_reply *r, size_t *at);
// What to say where the text ends too early.
static inline enum lp_reply_answer lp_reply_more(const struct lp_reply *r) {
    return r->ended ? LP_REPLY_NO : LP_REPLY_MORE;
}
static inline void lp_reply_go(struct lp_reply *r, size_t at, enum lp_reply_phase phase) {
    r->at = r->scan = at;
    r->phase = phase;
}

// Does one of the wanted tags (bits) stand at this place?
enum lp_reply_answer lp_reply_tag_at(const struct lp_reply *r, size_t at, unsigned wanted,
                                     enum lp_reply_tag *tag);
struct lp_reply_hit {
    bool found;
    enum lp_reply_tag tag;
    size_t at; // not found: up to here there is none, and none that has begun
};
struct lp_reply_hit lp_reply_find(const struct lp_reply *r, unsigned wanted); // from scan on
// At most MAX_GAP white space, then one of the wanted tags, or the end of the text?
enum lp_reply_answer lp_reply_gap_then(const struct lp_reply *r, size_t at, unsigned wanted,
                                       bool or_end);

bool lp_reply_tool_known(const struct lp_reply *r, struct lp_str name);
// The properties of the tool's parameters; NULL: not known.
const json_t *lp_reply_tool_properties(const struct lp_reply *r, struct lp_str name);

void lp_reply_emit(struct lp_reply *r, enum lp_reply_kind kind, struct lp_str text);
void lp_reply_flush(struct lp_reply *r); // sends what is in out
void lp_reply_repair(struct lp_reply *r);
void lp_reply_call_begin(struct lp_reply *r, struct lp_str name);
// Sends CALL_END and the stray text; the next phase is content.
void lp_reply_call_end(struct lp_reply *r);

// ---- reply_pairs.c: arguments as tagged pairs (GLM, DSML) ----

// Closes the object and ends the call; repaired: without its mark.
enum lp_reply_step lp_reply_pairs_end(struct lp_reply *r, bool repaired);
// Begins the value of r->key at place at. types: of reply_value.h
void lp_reply_value_begin(struct lp_reply *r, size_t at, unsigned types);
unsigned lp_reply_key_types(const struct lp_reply *r); // those that the tool's schema allows
enum lp_reply_step lp_reply_value_step(struct lp_reply *r);
// Text between pairs that is none of theirs, up to the next wanted tag. True: *hit is that tag;
// false: more text is needed, or the call has been ended (then the phase is content).
bool lp_reply_junk(struct lp_reply *r, unsigned wanted, struct lp_reply_hit *hit);

// ---- the syntaxes ----

enum lp_reply_answer lp_reply_glm_head(struct lp_reply *r);
enum lp_reply_step lp_reply_glm_pairs(struct lp_reply *r);
enum lp_reply_step lp_reply_glm_key(struct lp_reply *r);
enum lp_reply_step lp_reply_glm_gap(struct lp_reply *r);
enum lp_reply_answer lp_reply_glm_ends_value(const struct lp_reply *r, enum lp_reply_tag tag,
                                             size_t at);

enum lp_reply_answer lp_reply_dsml_head(struct lp_reply *r);
enum lp_reply_step lp_reply_dsml_pairs(struct lp_reply *r);
enum lp_reply_answer lp_reply_dsml_ends_value(const struct lp_reply *r, enum lp_reply_tag tag,
                                              size_t at);

// From mark over a section's opening, if there is one, and the call's. YES: *at is behind it.
enum lp_reply_answer lp_reply_openings(struct lp_reply *r, size_t *at);
enum lp_reply_answer lp_reply_deepseek_head(struct lp_reply *r);
enum lp_reply_answer lp_reply_kimi_head(struct lp_reply *r);
enum lp_reply_answer lp_reply_hermes_head(struct lp_reply *r);

// ---- reply_arguments.c: arguments as JSON ----

// Those that begin at `at`: an object, a JSON string of one, null, or the end of the call. YES: has
// begun the call. tail: closing characters that the syntax writes behind them.
enum lp_reply_answer lp_reply_json_begin(struct lp_reply *r, struct lp_str name, size_t at,
                                         size_t tail);
// The same for a value that is known to be whole; the call goes on behind it.
enum lp_reply_answer lp_reply_json_given(struct lp_reply *r, struct lp_str name,
                                         struct lp_str value, size_t behind, size_t tail);
enum lp_reply_step lp_reply_json_step(struct lp_reply *r);
enum lp_reply_step lp_reply_tail_step(struct lp_reply *r);

#endif
