lp_folder(gguf
  SOURCES gguf/gguf_read.c gguf/gguf_tensors.c gguf/gguf_shards.c gguf/gguf_get.c
          gguf/gguf_write.c gguf/gguf_assemble.c gguf/json_members.c gguf/safetensors.c
          gguf/safetensors_folder.c gguf/gguf_prefetch.c
  LINK lp_quant lp_base PkgConfig::JANSSON)
