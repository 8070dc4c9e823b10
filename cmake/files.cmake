lp_folder(files
  SOURCES files/synth.c files/synth_config.c files/synth_models.c files/synth_text.c files/synth_types.c
          files/compare.c files/compare_run.c
          files/quantize_presets.c files/quantize_roles.c files/quantize_rules.c files/quantize_plan.c
          files/quantize_file.c files/finite.c files/tensor_source.c files/folder_files.c
          files/imatrix_read.c files/imatrix_write.c files/imatrix_watch.c files/imatrix_collect.c
          files/convert.c
          files/new_file.c files/new_file_place.c files/new_file_state.c files/new_file_copy.c
          files/new_file_sync.c
          files/on_signal.c files/gguf_slice.c files/split_keys.c files/split_plan.c files/job_text.c
          files/merge.c files/split.c
  LINK lp_engine lp_hf lp_model lp_gguf lp_quant lp_base PkgConfig::JANSSON)
