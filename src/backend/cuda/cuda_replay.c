// Recorded operations (lp_backend.replay): a CUDA graph for each key that came RECORD_AT times. A step of decode is
// thousands of small kernels; a graph starts them with one call and less idle time between them.
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

#define RECORD_AT 3 // recording costs some steps' time

static bool same(const struct lp_replay_key *a, const struct lp_replay_key *b) {
    return a->owner == b->owner && a->n_rows == b->n_rows && a->most_keys == b->most_keys &&
           a->settings == b->settings && a->n_parts == b->n_parts &&
           (a->n_parts == 0 ||
            memcmp(a->parts, b->parts, (size_t)a->n_parts * sizeof *a->parts) == 0);
}

static void drop(struct lp_cuda_graph *g) {
    if (g->exec) cudaGraphExecDestroy(g->exec);
    lp_free((void *)g->key.parts);
    *g = (struct lp_cuda_graph){0};
}

void lp_cuda_drop_graphs(struct lp_cuda_device *dev) {
    for (int i = 0; i < LP_CUDA_GRAPHS; i++) drop(&dev->graphs[i]);
}

void lp_cuda_replay_forget(struct lp_device *device, const void *owner) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    cudaStreamSynchronize(dev->stream);
    for (int i = 0; i < LP_CUDA_GRAPHS; i++)
        if (dev->graphs[i].key.owner == owner) drop(&dev->graphs[i]);
}

// A key with parts of its own. False: no memory.
static bool keep(struct lp_replay_key *own, const struct lp_replay_key *key) {
    *own = *key;
    own->parts = NULL;
    if (key->n_parts == 0) return true;
    size_t *parts = lp_alloc((size_t)key->n_parts, sizeof *parts);
    if (!parts) {
        *own = (struct lp_replay_key){.owner = NULL};
        return false;
    }
    memcpy(parts, key->parts, (size_t)key->n_parts * sizeof *parts);
    own->parts = parts;
    return true;
}

// The entry of a key; a new one takes the place of the one that was not used for longest. NULL: no memory for it.
static struct lp_cuda_graph *find(struct lp_cuda_device *dev, const struct lp_replay_key *key) {
    struct lp_cuda_graph *oldest = &dev->graphs[0];
    for (int i = 0; i < LP_CUDA_GRAPHS; i++) {
        struct lp_cuda_graph *g = &dev->graphs[i];
        if (g->key.owner && same(&g->key, key)) return g;
        if (g->used < oldest->used) oldest = g;
    }
    if (oldest->exec) cudaStreamSynchronize(dev->stream);
    drop(oldest);
    return keep(&oldest->key, key) ? oldest : NULL;
}

enum lp_replay lp_cuda_replay(struct lp_device *device, const struct lp_replay_key *key) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || dev->no_graphs) return LP_REPLAY_CALL;
    struct lp_cuda_graph *g = find(dev, key);
    if (!g) { // other ranks have it, and what they record all of a group must record
        lp_cuda_note(dev, cudaErrorMemoryAllocation, "recording a step");
        return LP_REPLAY_CALL;
    }
    g->used = ++dev->n_replays;
    g->n_seen++;
    if (g->exec) {
        lp_cuda_note(dev, cudaGraphLaunch(g->exec, dev->stream), "the operations of a step");
        return LP_REPLAY_DONE;
    }
    if (g->n_seen < RECORD_AT) return LP_REPLAY_CALL;
    if (cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        cudaGetLastError();
        dev->no_graphs = true;
        return LP_REPLAY_CALL;
    }
    dev->recording = g;
    return LP_REPLAY_RECORD;
}

bool lp_cuda_replay_end(struct lp_device *device) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_graph *g = dev->recording;
    cudaGraph_t graph = NULL;
    dev->recording = NULL;
    cudaError_t error = cudaStreamEndCapture(dev->stream, &graph);
    if (!error && dev->error == cudaSuccess) error = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (error || dev->error) {
        // Nothing of it has run. What cannot be recorded is no fault of the device.
        cudaGetLastError();
        g->exec = NULL;
        dev->error = cudaSuccess;
        dev->no_graphs = true;
        return false;
    }
    lp_cuda_note(dev, cudaGraphLaunch(g->exec, dev->stream), "the operations of a step");
    return true;
}
