lp_folder(engine
  SOURCES engine/api.c engine/vocab_load.c engine/sequence.c engine/sampler.c engine/stop.c engine/request.c
  LINK lp_model lp_kv lp_text lp_gguf lp_trace lp_base)
