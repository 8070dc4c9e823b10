// How the calls of the JSON syntaxes begin:
//
//     DeepSeek V3, R1   type, separator, name, line end, a fence, JSON, the fence's end
//     DeepSeek V3.1     name, separator, JSON
//     Kimi              functions.NAME:0, separator, JSON
//     Hermes, Qwen      {"name": NAME, "arguments": JSON}
//
// The two of DeepSeek are told apart by what is there: a model may write the other's.
#include "text/reply_parts.h"

#define TAG(name) LP_TAG_BIT(LP_TAG_##name)

enum lp_reply_answer lp_reply_openings(struct lp_reply *r, size_t *at) {
    enum lp_reply_tag tag = LP_TAG_CALL;
    *at = r->mark;
    enum lp_reply_answer answer = lp_reply_tag_at(r, *at, LP_TAGS_OPEN, &tag);
    r->new_section = tag != LP_TAG_CALL;
    if (answer == LP_REPLY_YES && r->new_section) {
        *at += r->tags[tag].len;
        answer = lp_reply_gap_then(r, *at, TAG(CALL), false);
        *at = lp_reply_skip_space(r, *at);
    }
    *at += r->tags[LP_TAG_CALL].len;
    return answer;
}

// The text up to the separator, trimmed; *at is moved behind that.
static enum lp_reply_answer before_separator(const struct lp_reply *r, size_t *at,
                                             struct lp_str *text) {
    size_t left = r->buf.len - *at;
    const char *bracket = left ? memchr(r->buf.data + *at, '<', left) : NULL;
    size_t to = bracket ? (size_t)(bracket - r->buf.data) : r->buf.len;
    enum lp_reply_tag tag;
    if (to - *at > LP_REPLY_MAX_HEAD) return LP_REPLY_NO;
    *text = lp_reply_trim(lp_reply_slice(r, *at, to));
    *at = to + r->tags[LP_TAG_SEPARATOR].len;
    return lp_reply_tag_at(r, to, TAG(SEPARATOR), &tag);
}

// ---- DeepSeek ----

// A word of name characters at *at, and the gap behind it.
static enum lp_reply_answer read_name(const struct lp_reply *r, size_t *at, struct lp_str *name) {
    size_t to = *at;
    while (to < r->buf.len && !lp_reply_is_space(r->buf.data[to]) &&
           !strchr("`{<\"", r->buf.data[to]))
        to++;
    *name = lp_reply_slice(r, *at, to);
    *at = to;
    if (!lp_reply_name_ok(*name)) return LP_REPLY_NO;
    return lp_reply_skip_gap(r, at);
}

// ```json, perhaps, at *at.
static enum lp_reply_answer read_fence(const struct lp_reply *r, size_t *at, size_t *n_ticks) {
    *n_ticks = 0;
    for (; *at < r->buf.len && r->buf.data[*at] == '`'; ++*at) ++*n_ticks;
    if (*n_ticks && *at == r->buf.len) return *n_ticks > 3 ? LP_REPLY_NO : lp_reply_more(r);
    if (!*n_ticks) return LP_REPLY_YES;
    size_t word = *at;
    while (*at < r->buf.len && r->buf.data[*at] >= 'a' && r->buf.data[*at] <= 'z') ++*at;
    if (*n_ticks != 3 || *at - word > LP_REPLY_MAX_GAP) return LP_REPLY_NO;
    return *at == r->buf.len ? lp_reply_more(r) : LP_REPLY_YES;
}

enum lp_reply_answer lp_reply_deepseek_head(struct lp_reply *r) {
    size_t at, n_ticks = 0;
    struct lp_str name = {0};
    enum lp_reply_answer answer = lp_reply_openings(r, &at);
    if (answer == LP_REPLY_YES) answer = before_separator(r, &at, &name);
    if (answer == LP_REPLY_YES) answer = lp_reply_skip_gap(r, &at);
    if (answer != LP_REPLY_YES) return answer;
    bool typed = !strchr("`{<\"", r->buf.data[at]) || !r->buf.data[at];
    if (typed) answer = read_name(r, &at, &name);
    if (answer == LP_REPLY_YES) answer = read_fence(r, &at, &n_ticks);
    if (answer != LP_REPLY_YES) return answer;
    if (!lp_reply_name_ok(name)) return LP_REPLY_NO;
    bool older = r->params.syntax == LP_SYNTAX_DEEPSEEK_V3;
    answer = lp_reply_json_begin(r, name, at, n_ticks);
    if (answer == LP_REPLY_YES && (typed != older || (n_ticks == 3) != older)) lp_reply_repair(r);
    return answer;
}

// ---- Kimi ----

static struct lp_str name_of_id(const struct lp_reply *r, struct lp_str id) {
    static const char prefix[] = "functions.";
    const size_t n = sizeof prefix - 1;
    size_t digits = 0;
    while (digits < id.len && id.data[id.len - 1 - digits] >= '0' &&
           id.data[id.len - 1 - digits] <= '9')
        digits++;
    if (digits && digits < id.len && id.data[id.len - 1 - digits] == ':') id.len -= digits + 1;
    if (!lp_reply_tool_known(r, id) && id.len > n && !memcmp(id.data, prefix, n))
        id.data += n, id.len -= n;
    return id;
}

enum lp_reply_answer lp_reply_kimi_head(struct lp_reply *r) {
    size_t at;
    struct lp_str id;
    enum lp_reply_answer answer = lp_reply_openings(r, &at);
    if (answer == LP_REPLY_YES) answer = before_separator(r, &at, &id);
    if (answer != LP_REPLY_YES) return answer;
    struct lp_str name = name_of_id(r, id);
    return lp_reply_name_ok(name) ? lp_reply_json_begin(r, name, at, 0) : LP_REPLY_NO;
}

// ---- Hermes ----

struct members {
    struct lp_bytes name;
    struct lp_str arguments; // data NULL: not seen
};

// A JSON value at *at, and the gap behind it.
static enum lp_reply_answer skip_value(struct lp_reply *r, size_t *at, struct lp_str *value) {
    size_t length;
    if (!lp_reply_json_length(lp_reply_slice(r, *at, r->buf.len), &length)) r->failed = true;
    if (r->failed || !length) return LP_REPLY_NO;
    if (length == SIZE_MAX) return lp_reply_more(r);
    *value = lp_reply_slice(r, *at, *at + length);
    *at += length;
    return lp_reply_skip_gap(r, at);
}

static enum lp_reply_answer skip_char(const struct lp_reply *r, size_t *at, char c) {
    if (r->buf.data[*at] != c) return LP_REPLY_NO;
    ++*at;
    return lp_reply_skip_gap(r, at);
}

// One member of the call's object from *at, behind { or a comma. YES: it is read and *at is behind
// it, or *begun: it is the arguments, and with them the call has begun.
static enum lp_reply_answer read_member(struct lp_reply *r, size_t *at, struct members *members,
                                        bool *begun) {
    struct lp_str key, value;
    if (r->buf.data[*at] != '"') return LP_REPLY_NO;
    enum lp_reply_answer answer = skip_value(r, at, &key);
    if (answer == LP_REPLY_YES) answer = skip_char(r, at, ':');
    if (answer != LP_REPLY_YES) return answer;
    bool arguments = lp_str_is(key, "\"arguments\"") || lp_str_is(key, "\"parameters\"");
    if (arguments && members->name.len) {
        answer = lp_reply_json_begin(r, lp_bytes_view(&members->name), *at, 1);
        *begun = answer == LP_REPLY_YES;
        return answer;
    }
    answer = skip_value(r, at, &value);
    if (answer != LP_REPLY_YES) return answer;
    if (arguments) members->arguments = value;
    if (lp_str_is(key, "\"name\"") && value.data[0] == '"' && !members->name.len &&
        !lp_reply_json_unquote(value, &members->name))
        r->failed = true;
    if (members->name.len && !lp_reply_name_ok(lp_bytes_view(&members->name))) return LP_REPLY_NO;
    return LP_REPLY_YES;
}

static enum lp_reply_answer read_members(struct lp_reply *r, size_t at, struct members *members) {
    enum lp_reply_answer answer = skip_char(r, &at, '{');
    bool begun = false;
    while (answer == LP_REPLY_YES) {
        answer = read_member(r, &at, members, &begun);
        if (answer != LP_REPLY_YES || begun) return answer;
        if (r->buf.data[at] == '}') {
            if (!members->name.len) return LP_REPLY_NO;
            return lp_reply_json_given(r, lp_bytes_view(&members->name), members->arguments, at + 1,
                                       0);
        }
        answer = skip_char(r, &at, ',');
    }
    return answer;
}

enum lp_reply_answer lp_reply_hermes_head(struct lp_reply *r) {
    size_t at;
    struct members members = {0};
    enum lp_reply_answer answer = lp_reply_openings(r, &at);
    if (answer == LP_REPLY_YES) answer = lp_reply_skip_gap(r, &at);
    if (answer == LP_REPLY_YES) answer = read_members(r, at, &members);
    lp_bytes_release(&members.name);
    return answer;
}
