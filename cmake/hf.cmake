lp_folder(hf
  SOURCES hf/hf_names.c
          hf/hf_config.c hf/hf_config_families.c hf/hf_config_read.c hf/hf_config_general.c
          hf/hf_config_refuse.c hf/hf_config_rope.c hf/hf_config_moe.c hf/hf_config_indexer.c
          hf/hf_arrays.c hf/hf_plan.c hf/hf_plan_tensors.c hf/hf_tensor.c hf/hf_pieces.c hf/hf_open.c
          hf/hf_values.c hf/hf_values_plain.c hf/hf_values_fp8.c hf/hf_values_nvfp4.c
          hf/hf_values_int4.c hf/hf_folder.c
          hf/hf_tokenizer.c hf/hf_vocab.c hf/hf_pretok.c hf/hf_regex.c hf/hf_special.c hf/hf_spm.c
          hf/hf_tiktoken.c hf/hf_templates.c
  LINK lp_model lp_text lp_gguf lp_quant lp_base PkgConfig::JANSSON)
