// A conversation in a file: JSON to come back to, Markdown to read.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/dialogue.h"
#include "cli/model_folder.h"

#define MAX_FILE_BYTES (64 << 20)

// ---- writing ----

static bool write_json(const struct lp_dialogue *d, FILE *to) {
    return json_dumpf(d->messages, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF;
}

// A list of parts, as OpenAI allows for content: their texts.
static void write_content(const json_t *content, FILE *to) {
    size_t i;
    json_t *part;
    if (json_is_string(content)) fputs(json_string_value(content), to);
    json_array_foreach((json_t *)content, i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        if (text) fputs(text, to);
    }
    fputs("\n\n", to);
}

static void write_reasoning(const char *text, FILE *to) {
    fputs("> ", to);
    for (; *text; text++) {
        fputc(*text, to);
        if (*text == '\n') fputs("> ", to);
    }
    fputs("\n\n", to);
}

static void write_calls(const json_t *calls, FILE *to) {
    char *text = calls ? json_dumps(calls, JSON_INDENT(2)) : NULL;
    if (text) fprintf(to, "```json\n%s\n```\n\n", text);
    free(text);
}

static bool write_markdown(const struct lp_dialogue *d, FILE *to) {
    size_t i;
    json_t *message;
    json_array_foreach(d->messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *thought = json_string_value(json_object_get(message, "reasoning_content"));
        fprintf(to, "## %s\n\n", role ? role : "");
        if (thought && *thought) write_reasoning(thought, to);
        write_content(json_object_get(message, "content"), to);
        write_calls(json_object_get(message, "tool_calls"), to);
    }
    return !ferror(to);
}

lp_status lp_dialogue_save(const struct lp_dialogue *d, const char *path, struct lp_err *err) {
    bool json = lp_name_ends(path, ".json");
    if (!json && !lp_name_ends(path, ".md"))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s ends neither in .json (which /load reads) nor in .md", path);
    struct lp_bytes name = {0};
    lp_bytes_printf(&name, "%s.XXXXXX", path);
    if (name.failed) return lp_err_memory(err, 0, "the file's name");
    int fd = mkstemp(name.data); // mode 0600: a conversation is private until its owner says else
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = to && (json ? write_json(d, to) : write_markdown(d, to));
    if (to) written = fclose(to) == 0 && written;
    written = written && rename(name.data, path) == 0;
    lp_status status =
        written ? LP_OK
                : lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    if (!written && fd >= 0) unlink(name.data);
    lp_bytes_release(&name);
    return status;
}

// ---- reading ----

static lp_status check_message(const json_t *message, size_t i, struct lp_err *err) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    bool known = false;
    for (size_t k = 0; role && k < sizeof roles / sizeof roles[0]; k++)
        known = known || strcmp(role, roles[k]) == 0;
    if (!known)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "message %zu has role '%s', expected system, user, assistant or tool", i,
                          role ? role : "");
    if (!json_is_string(content) && !json_is_array(content) &&
        !json_object_get(message, "tool_calls"))
        return lp_err_set(err, LP_STATUS_FORMAT, "message %zu (%s) has no text in \"content\"", i,
                          role);
    return LP_OK;
}

static lp_status check_messages(const json_t *messages, struct lp_err *err) {
    size_t i;
    json_t *message;
    if (!json_is_array(messages))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "it holds no array of messages, as /save FILE.json writes");
    json_array_foreach((json_t *)messages, i, message) {
        lp_status status = check_message(message, i, err);
        if (status) return status;
    }
    return LP_OK;
}

lp_status lp_dialogue_load(struct lp_dialogue *d, const char *path, struct lp_err *err) {
    char *text;
    size_t n_bytes;
    json_error_t at;
    lp_status status = lp_file_read(path, MAX_FILE_BYTES, &text, &n_bytes, err);
    if (status) return status;
    json_t *file = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &at);
    lp_free(text);
    if (!file) return lp_err_set(err, LP_STATUS_FORMAT, "%s, line %d: %s", path, at.line, at.text);
    json_t *messages = json_is_object(file) ? json_object_get(file, "messages") : file;
    status = check_messages(messages, err);
    if (status)
        lp_err_context(err, "%s", path);
    else {
        json_decref(d->messages);
        d->messages = json_incref(messages);
    }
    json_decref(file);
    return status;
}
