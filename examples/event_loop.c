// Several requests in a program that has an event loop of its own, here poll(2). Two ways:
//
//   step    The loop's thread makes the steps, one at each turn while there is work. No locks, no other
//           thread; the loop stands still for the length of a step.
//   thread  A thread of the engine's makes them. Its on_event writes to an eventfd, which the loop
//           waits for beside everything else.
//
// The first request is cancelled when it has given 8 tokens; the others run on.
//
//     cc event_loop.c -o event_loop $(pkg-config --cflags --libs limpid)
//     ./event_loop step MODEL.gguf "Once upon a time" "The capital of France is" "1, 2, 3,"
#include <errno.h>
#include <limpid.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_JOBS 16
#define MAX_TOKENS 24
#define CANCEL_AFTER 8

struct job {
    const char *prompt;
    limpid_request *request; // NULL: over
    char text[4096];
    size_t text_len;
    int n_tokens;
};

// Runs in the engine's thread, under its lock: as little as possible, and no call on the engine.
static void wake(void *user) {
    uint64_t one = 1;
    if (write(*(int *)user, &one, sizeof one) < 0 && errno != EAGAIN) perror("eventfd");
}

static limpid_status submit(struct job *job, limpid_model *model, limpid_engine *engine,
                            int *event_fd, limpid_error *err) {
    int32_t *ids;
    size_t n_ids;
    limpid_status status = limpid_tokenize(model, job->prompt, strlen(job->prompt),
                                           LIMPID_SPECIAL | LIMPID_BOS, &ids, &n_ids, err);
    if (status) return status;
    limpid_request_options options = limpid_request_default_options();
    options.tokens = ids;
    options.n_tokens = n_ids;
    options.max_tokens = MAX_TOKENS;
    options.temperature = 0;
    options.on_event = event_fd ? wake : NULL;
    options.user = event_fd;
    status = limpid_request_new(&job->request, engine, &options, err);
    limpid_free(ids);
    return status;
}

static void end(struct job *job, const char *how) {
    printf("%s ->%.*s [%s]\n", job->prompt, (int)job->text_len, job->text, how);
    limpid_request_free(job->request);
    job->request = NULL;
}

// All events that are there. A failed request ends; it is no failure of the program.
static void take_events(struct job *job, bool cancels) {
    limpid_error err;
    limpid_event event;
    while (job->request) {
        limpid_status status = limpid_request_poll(job->request, &event, 0, &err);
        if (status) {
            end(job, status == LIMPID_CANCELLED ? "cancelled" : err.text);
            return;
        }
        if (event.kind == LIMPID_EVENT_NONE) return;
        size_t room = sizeof job->text - job->text_len;
        size_t n = event.text_len < room ? event.text_len : room;
        memcpy(job->text + job->text_len, event.text, n); // the event is gone at the next call
        job->text_len += n;
        if (event.kind == LIMPID_EVENT_DONE) end(job, event.finish_reason);
        if (event.kind == LIMPID_EVENT_TOKEN && ++job->n_tokens == CANCEL_AFTER && cancels)
            limpid_request_cancel(job->request);
    }
}

static int take_all(struct job *jobs, int n_jobs) {
    int n_open = 0;
    for (int i = 0; i < n_jobs; i++) {
        take_events(&jobs[i], i == 0);
        n_open += jobs[i].request != NULL;
    }
    return n_open;
}

// fds[0] is the eventfd or -1, which poll passes over; a program's sockets and timers stand behind.
static limpid_status loop(limpid_engine *engine, struct job *jobs, int n_jobs, int event_fd,
                          limpid_error *err) {
    struct pollfd fds[] = {{.fd = event_fd, .events = POLLIN}};
    bool makes_steps = event_fd < 0;
    while (take_all(jobs, n_jobs) > 0) {
        // While there are steps to make, only look what else has come; else wait for it.
        if (poll(fds, sizeof fds / sizeof fds[0], makes_steps ? 0 : -1) < 0 && errno != EINTR)
            perror("poll");
        uint64_t n_events;
        if (fds[0].revents & POLLIN && read(event_fd, &n_events, sizeof n_events) < 0)
            perror("eventfd");
        if (!makes_steps) continue;
        limpid_status status = limpid_engine_step(engine, NULL, err);
        if (status) return status;
    }
    return LIMPID_OK;
}

int main(int argc, char **argv) {
    limpid_error err = {0};
    limpid_model *model = NULL;
    limpid_engine *engine = NULL;
    struct job jobs[MAX_JOBS] = {0};
    int n_jobs = argc - 3, event_fd = -1;
    bool with_thread = argc > 1 && strcmp(argv[1], "thread") == 0;
    if (n_jobs < 1 || n_jobs > MAX_JOBS || (!with_thread && strcmp(argv[1], "step") != 0)) {
        fprintf(stderr, "usage: event_loop step|thread MODEL.gguf TEXT... (at most %d)\n",
                MAX_JOBS);
        return 2;
    }
    if (with_thread && (event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        perror("eventfd");
        return 1;
    }
    limpid_status status = limpid_model_open(&model, argv[2], NULL, &err);
    if (!status) status = limpid_engine_new(&engine, model, NULL, &err);
    if (!status && with_thread) status = limpid_engine_start(engine, &err);
    for (int i = 0; i < n_jobs && !status; i++) {
        jobs[i].prompt = argv[3 + i];
        status = submit(&jobs[i], model, engine, with_thread ? &event_fd : NULL, &err);
    }
    if (!status) status = loop(engine, jobs, n_jobs, event_fd, &err);
    if (status) fprintf(stderr, "event_loop: error: %s\n", err.text);
    for (int i = 0; i < n_jobs; i++) limpid_request_free(jobs[i].request);
    limpid_engine_free(engine, NULL);
    limpid_model_close(model);
    if (event_fd >= 0) close(event_fd); // after the engine, whose thread may still write to it
    return status ? 1 : 0;
}
