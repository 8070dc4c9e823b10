lp_folder(engine
  SOURCES engine/api.c engine/vocab_load.c engine/engine.c engine/settings.c engine/sequence.c
          engine/probe_spec.c engine/probes.c
          engine/request.c engine/output.c engine/sched.c engine/batch.c engine/loop.c engine/stats.c
          engine/model_file.c engine/open_options.c engine/memory_plan.c engine/model_sampling.c engine/step_log.c engine/engine_trace.c
          engine/speculate.c engine/selfcheck.c engine/selfcheck_routes.c engine/stop.c engine/sampler.c engine/filters.c
          engine/constraint.c engine/grammar_cache.c engine/penalties.c engine/dry.c engine/exp_block.c engine/follow.c
  LINK lp_hf lp_model lp_kv lp_text lp_grammar lp_gguf lp_trace lp_base PkgConfig::XXHASH Threads::Threads m)

add_executable(bench_trace EXCLUDE_FROM_ALL bench/trace/bench_trace.c)
target_link_libraries(bench_trace PRIVATE lp_engine)
