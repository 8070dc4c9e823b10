lp_folder(model
  SOURCES model/arch.c model/hparams.c model/hparams_router.c model/hparams_rope.c
          model/hparams_indexer.c model/binding.c model/binding_table.c model/binding_expected.c model/placement.c model/weight_check.c
          model/model.c model/ffn.c model/step.c model/step_logits.c model/host_experts.c
          model/dummy.c model/step_trace.c model/mtp.c model/bad_rows.c
          model/cache_state.c model/cost.c model/plan.c model/probe_added.c model/probe_shape.c
          model/repack.c model/read_ahead.c model/expert_cache.c model/expert_slots.c model/expert_reader.c model/expert_policy.c
          model/expert_layout.c model/weight_list.c model/expert_profile.c model/shard.c model/tensor_hash.c model/rank_plan.c model/ranks.c model/ranks_device.c model/ranks_experts.c model/ranks_orders.c model/ranks_probe.c
  LINK lp_attention lp_dist lp_kv lp_backend lp_gguf lp_trace lp_base)

# A figure, not a test: built when asked for by name.
add_executable(bench_experts EXCLUDE_FROM_ALL bench/experts/bench_experts.c)
target_link_libraries(bench_experts PRIVATE lp_model)
