// Keys come through a function of ours, which waits for the terminal and for signals at once and
// takes UTF-8 apart. Bracketed paste: the terminal puts ESC[200~ and ESC[201~ around what is
// pasted, and the first one is bound to a function that takes all up to the second.
#include "cli/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/utf8_step.h"
#include "cli/history_file.h"
#include "cli/interrupt.h"

#define MAX_HISTORY 1000
#define MAX_PASTE_BYTES (16 << 20)
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_END "\033[201~"

struct lp_editor {
    EditLine *line;
    History *history;
    FILE *to;
    char *history_path; // or NULL
    char *prompt;
    struct lp_bytes typed; // what the last read gave
    bool pastes;           // bracketed paste is on
    bool interrupted, ended;
    char bytes[256]; // read, not yet taken
    size_t n_bytes, at;
};

static struct lp_editor *editor_of(EditLine *line) {
    struct lp_editor *e = NULL;
    el_get(line, EL_CLIENTDATA, &e);
    return e;
}

// ---- keys ----

// What a signal asks of a line that is being typed. False: it ends the line.
static bool take_signal(struct lp_editor *e) {
    unsigned char number;
    while (read(lp_interrupt_pipe(), &number, 1) == 1) {
        if (number == SIGINT) e->interrupted = true;
        if (number == SIGWINCH) el_resize(e->line);
        if (number == SIGCONT) { // whoever ran meanwhile left the terminal in its own mode
            el_set(e->line, EL_PREP_TERM, 0);
            el_set(e->line, EL_PREP_TERM, 1);
        }
        if (number != SIGINT) el_set(e->line, EL_REFRESH);
    }
    return !e->interrupted;
}

// More bytes. False: a signal has ended the line, or the terminal is gone.
static bool fill(struct lp_editor *e) {
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = lp_interrupt_pipe(), .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
        if ((fds[1].revents & POLLIN) && !take_signal(e)) return false;
        if (!(fds[0].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        ssize_t n = read(STDIN_FILENO, e->bytes + e->n_bytes, sizeof e->bytes - e->n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        e->n_bytes += (size_t)n;
        return true;
    }
    e->ended = true;
    return false;
}

// The next byte; -1 as fill.
static int next_byte(struct lp_editor *e) {
    if (e->at == e->n_bytes) {
        e->at = e->n_bytes = 0;
        if (!fill(e)) return -1;
    }
    return (unsigned char)e->bytes[e->at++];
}

static wchar_t decode(const unsigned char *c, size_t n) {
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = c[0] & first_bits[n];
    for (size_t i = 1; i < n; i++) code = code << 6 | (c[i] & 0x3f);
    return (wchar_t)code;
}

// el_rfunc_t: 1 and a character, 0 at the end, -1 when interrupted.
static int next_character(EditLine *line, wchar_t *out) {
    struct lp_editor *e = editor_of(line);
    unsigned char c[4];
    size_t n = 0, n_step;
    for (;;) {
        int byte = next_byte(e);
        if (byte < 0) return e->interrupted ? -1 : 0;
        c[n++] = (unsigned char)byte;
        switch (lp_utf8_step(c, n, &n_step)) {
        case LP_UTF8_WHOLE:
            *out = decode(c, n);
            return 1;
        case LP_UTF8_BAD:
            if (n > 1) e->at--; // the byte that does not belong is a key of its own
            *out = 0xfffd;
            return 1;
        case LP_UTF8_CUT:
            break;
        }
    }
}

// ---- keys that libedit does not have ----

static unsigned char insert(EditLine *line, const char *text) {
    return el_insertstr(line, text) ? CC_ERROR : CC_REFRESH;
}

static unsigned char insert_newline(EditLine *line, int key) {
    (void)key;
    return insert(line, "\n");
}

// Line ends become '\n', tabs stay, other control characters are left out.
static void clean_paste(char *text) {
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c == '\r' && c[1] == '\n') continue;
        if (*c == '\r')
            *to++ = '\n';
        else if ((unsigned char)*c >= 0x20 || *c == '\n' || *c == '\t')
            *to++ = *c;
    }
    *to = 0;
}

static unsigned char insert_paste(EditLine *line, int key) {
    (void)key;
    struct lp_editor *e = editor_of(line);
    struct lp_bytes paste = {.max_bytes = MAX_PASTE_BYTES};
    const size_t n_end = strlen(PASTE_END);
    unsigned char result = CC_NORM;
    for (;;) {
        int byte = next_byte(e);
        if (byte < 0) break; // seen again by whoever reads the next key
        char c = (char)byte;
        lp_bytes_append(&paste, &c, 1);
        if (paste.failed || c != '~' || paste.len < n_end ||
            memcmp(paste.data + paste.len - n_end, PASTE_END, n_end) != 0)
            continue;
        paste.data[paste.len - n_end] = 0;
        clean_paste(paste.data);
        result = insert(line, paste.data);
        break;
    }
    if (paste.failed) result = CC_ERROR;
    lp_bytes_release(&paste);
    return result;
}

static void bind_keys(EditLine *line) {
    static const struct {
        const char *key, *function;
    } keys[] = {
        {"\033[200~", "limpid-paste"},  {"\033\r", "limpid-newline"},
        {"\033\n", "limpid-newline"},   {"\033[H", "ed-move-to-beg"},
        {"\033OH", "ed-move-to-beg"},   {"\033[1~", "ed-move-to-beg"},
        {"\033[F", "ed-move-to-end"},   {"\033OF", "ed-move-to-end"},
        {"\033[4~", "ed-move-to-end"},  {"\033[3~", "ed-delete-next-char"},
        {"\033[1;5C", "em-next-word"},  {"\033[1;5D", "ed-prev-word"},
        {"\022", "em-inc-search-prev"},
    };
    // The narrow form of this call leaks its strings.
    el_wset(line, EL_ADDFN, L"limpid-paste", L"takes a pasted text", insert_paste);
    el_wset(line, EL_ADDFN, L"limpid-newline", L"begins a new line", insert_newline);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        el_set(line, EL_BIND, keys[i].key, keys[i].function, NULL);
}

// ---- history ----

static void add_to_history(void *user, const char *text) {
    struct lp_editor *e = user;
    HistEvent event;
    history(e->history, &event, H_ENTER, text);
}

void lp_editor_remember(struct lp_editor *e, const char *text) {
    HistEvent event;
    bool again = history(e->history, &event, H_FIRST) == 0 && strcmp(event.str, text) == 0;
    if (again) return;
    add_to_history(e, text);
    if (e->history_path) lp_history_append(e->history_path, text);
}

// ---- life ----

static char *prompt_of(EditLine *line) {
    return editor_of(line)->prompt;
}

// libedit takes text apart by the locale's rules; ours is UTF-8 whatever the locale says.
static void use_utf8(void) {
    if (!setlocale(LC_CTYPE, "C.UTF-8") && !setlocale(LC_CTYPE, "en_US.UTF-8"))
        setlocale(LC_CTYPE, "");
}

static bool open_line(struct lp_editor *e) {
    HistEvent event;
    use_utf8();
    e->line = el_init("limpid", stdin, e->to, stderr);
    e->history = history_init();
    if (!e->line || !e->history) return false;
    history(e->history, &event, H_SETSIZE, MAX_HISTORY);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->line, EL_CLIENTDATA, e);
    el_set(e->line, EL_SIGNAL, 0);
    el_set(e->line, EL_PROMPT, prompt_of);
    el_set(e->line, EL_EDITOR, "emacs");
    el_set(e->line, EL_HIST, history, e->history);
    el_set(e->line, EL_GETCFN, next_character);
    bind_keys(e->line);
    return true;
}

lp_status lp_editor_new(struct lp_editor **out, FILE *to, const char *history_path,
                        struct lp_err *err) {
    struct lp_editor *e = lp_alloc(1, sizeof *e);
    if (!e) return lp_err_memory(err, sizeof *e, "the line editor");
    e->to = to;
    e->prompt = lp_strdup("");
    e->history_path = history_path ? lp_strdup(history_path) : NULL;
    if (!e->prompt || (history_path && !e->history_path) || !open_line(e)) {
        lp_editor_free(e);
        return lp_err_set(err, LP_STATUS_IO, "the line editor cannot use this terminal");
    }
    if (e->history_path) lp_history_load(e->history_path, MAX_HISTORY, add_to_history, e);
    const char *terminal = getenv("TERM");
    e->pastes = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    if (e->pastes) fputs(PASTE_ON, to);
    fflush(to);
    *out = e;
    return LP_OK;
}

void lp_editor_free(struct lp_editor *e) {
    if (!e) return;
    if (e->pastes) fputs(PASTE_OFF, e->to);
    fflush(e->to);
    if (e->history) history_end(e->history);
    if (e->line) el_end(e->line);
    lp_bytes_release(&e->typed);
    lp_free(e->history_path);
    lp_free(e->prompt);
    lp_free(e);
}

// ---- a line ----

// What stood in the line when it was interrupted.
static void take_unfinished(struct lp_editor *e) {
    const LineInfo *info = el_line(e->line);
    if (info->lastchar > info->buffer)
        lp_bytes_append(&e->typed, info->buffer, (size_t)(info->lastchar - info->buffer));
    el_reset(e->line); // or the next line would begin with it
}

enum lp_typed lp_editor_read(struct lp_editor *e, const char *prompt, const char **line) {
    char *copy = lp_strdup(prompt);
    int n = 0;
    *line = "";
    if (!copy) return LP_TYPED_END;
    lp_free(e->prompt);
    e->prompt = copy;
    e->interrupted = false;
    lp_bytes_clear(&e->typed);
    lp_interrupt_clear();
    el_resize(e->line);               // the window may have changed meanwhile
    el_set(e->line, EL_PREP_TERM, 1); // before the prompt shows that keys may come
    const char *text = el_gets(e->line, &n);
    if (e->interrupted)
        take_unfinished(e);
    else if (text && n > 0)
        lp_bytes_append(&e->typed, text, (size_t)(text[n - 1] == '\n' ? n - 1 : n));
    fputs(e->interrupted || !text ? "\n" : "", e->to);
    fflush(e->to);
    if (e->typed.len) *line = e->typed.data;
    if (e->interrupted) return LP_TYPED_INTERRUPT;
    return text && n > 0 ? LP_TYPED_LINE : LP_TYPED_END;
}
