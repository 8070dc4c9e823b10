// A small trace, written by hand: request req-a has 600 prompt tokens, 64 of them cached. It is
// computed in two chunks beside request req-b, then gives a token in each of three steps and ends.
// req-b is pre-empted, and has not ended where the trace does. req-c is refused.
#ifndef VIEW_LINES_H
#define VIEW_LINES_H

#define AT(t) "\"time_us\":" #t ",\"thread\":7,"
#define ADMITTED(t, seq, what, prompt, tokens, computed, cached, id)                               \
    "{\"event\":\"request\"," AT(t) "\"sequence\":" #seq ",\"what\":\"" what                       \
                                    "\",\"choice\":0,\"n_prompt\":" #prompt                        \
                                    ",\"n_tokens\":" #tokens ",\"n_computed\":" #computed          \
                                    ",\"n_cached\":" #cached ",\"id\":\"" id "\"}\n"
#define CHUNK(t, step, seq, past, prompt, answer, draft, id)                                       \
    "{\"event\":\"chunk\"," AT(t) "\"step\":" #step ",\"sequence\":" #seq ",\"n_past\":" #past     \
                                  ",\"n_prompt\":" #prompt ",\"n_answer\":" #answer                \
                                  ",\"n_draft\":" #draft ",\"id\":\"" id "\"}\n"
#define ATTENTION(t, step, seq, first, last, route, reason)                                        \
    "{\"event\":\"attention\"," AT(t) "\"step\":" #step ",\"layer\":" #first                       \
                                      ",\"last_layer\":" #last ",\"sequence\":" #seq               \
                                      ",\"n_query\":1,\"n_kv\":640,\"top_k\":256,"                 \
                                      "\"indexer\":\"full\",\"route\":\"" route                    \
                                      "\",\"reason\":\"" reason "\",\"kernel\":\"avx2_mla\"}\n"
#define STEP(t, step, tokens, seqs, us)                                                            \
    "{\"event\":\"step\"," AT(t) "\"step\":" #step ",\"n_tokens\":" #tokens                        \
                                 ",\"n_sequences\":" #seqs ",\"duration_us\":" #us "}\n"
#define TOKEN(t, step, seq, position, token, logprob, rank)                                        \
    "{\"event\":\"token\"," AT(t) "\"step\":" #step ",\"sequence\":" #seq                          \
                                  ",\"position\":" #position ",\"token\":" #token                  \
                                  ",\"logprob\":" #logprob ",\"rank\":" #rank ",\"drafted\":0}\n"
#define DECODE(t0, t1, t2, t3, step, past_b, past_a, us)                                           \
    CHUNK(t0, step, 2, past_b, 0, 1, 0, "req-b")                                                   \
    CHUNK(t0, step, 3, past_a, 0, 1, 0, "req-a")                                                   \
    ATTENTION(t1, step, 2, 0, 4, "absorbed", "few")                                                \
    ATTENTION(t1, step, 3, 0, 4, "absorbed", "few")                                                \
    STEP(t2, step, 2, 2, us)

// clang-format off
#define TRACE_MODEL                                                                                \
    "{\"event\":\"model\"," AT(0) "\"architecture\":\"glm-dsa\",\"path\":\"m.gguf\","              \
    "\"backend\":\"cpu\",\"n_layers\":5,\"n_threads\":2}\n"                                        \
    "{\"event\":\"kernel\"," AT(0) "\"operation\":\"matmul\",\"type\":\"Q8_0\","                   \
    "\"kernel\":\"avx2_q8_0\"}\n"

static const char trace_lines[] =
    TRACE_MODEL
    ADMITTED(400, 2, "submitted", 10, 10, 0, 0, "req-b")
    ADMITTED(500, 2, "admitted", 10, 10, 0, 0, "req-b")
    ADMITTED(600, 3, "submitted", 600, 600, 0, 0, "req-a")
    ADMITTED(700, -1, "rejected", 9000, 9000, 0, 0, "req-c")
    ADMITTED(1000, 3, "admitted", 600, 600, 64, 64, "req-a")
    "{\"event\":\"cache\"," AT(1001) "\"sequence\":3,\"n_prompt\":600,\"n_cached\":64,"
        "\"n_from_disk\":32,\"source\":\"prefix tree\"}\n"
    // two chunks of req-a's prompt, the first beside a token of req-b
    "{\"event\":\"schedule\"," AT(2000) "\"step\":10,\"n_running\":2,\"n_waiting\":1,"
        "\"answers\":1,\"answer_tokens\":1,\"draft_tokens\":0,\"prompt_tokens\":512,"
        "\"pages_free\":9}\n"
    CHUNK(2001, 10, 2, 10, 0, 1, 0, "req-b")
    CHUNK(2001, 10, 3, 64, 512, 0, 0, "req-a")
    ATTENTION(2002, 10, 2, 0, 4, "absorbed", "few")
    ATTENTION(2002, 10, 3, 0, 1, "expanded", "many")
    ATTENTION(2003, 10, 3, 2, 3, "sparse", "selected")
    ATTENTION(2004, 10, 3, 4, 4, "expanded", "many")
    "{\"event\":\"expert_load\"," AT(40000) "\"step\":10,\"n_tokens\":513,\"n_layers\":4,"
        "\"n_hit\":30,\"most_layer\":1,\"most_expert\":4,\"n_most\":77}\n"
    STEP(43200, 10, 513, 2, 41200)
    "{\"event\":\"schedule\"," AT(49000) "\"step\":11,\"n_running\":2,\"n_waiting\":0,"
        "\"answers\":1,\"answer_tokens\":0,\"draft_tokens\":0,\"prompt_tokens\":24,"
        "\"pages_free\":3}\n"
    CHUNK(50001, 11, 3, 576, 24, 0, 0, "req-a")
    ATTENTION(50002, 11, 3, 0, 4, "expanded", "many")
    STEP(52500, 11, 24, 1, 2500)
    TOKEN(52600, 11, 3, 600, 258, -0.25, 0)
    // three tokens of both
    DECODE(60001, 60002, 61800, 61810, 12, 11, 600, 1800)
    TOKEN(61810, 12, 3, 601, 1744, -2.5, 0)
    DECODE(65001, 65002, 68100, 68110, 13, 12, 601, 3100)
    TOKEN(68110, 13, 3, 602, 1745, -9.75, 12)
    DECODE(70001, 70002, 71100, 71110, 14, 13, 602, 1100)
    TOKEN(71110, 14, 3, 603, 1746, -1, 0)
    "{\"event\":\"new_kind\"," AT(71200) "\"what\":\"ever\"}\n"
    ADMITTED(75000, 2, "pre-empted", 10, 14, 0, 0, "req-b")
    ADMITTED(80000, 3, "ended", 600, 604, 603, 64, "req-a");
// clang-format on

#endif
