lp_folder(gguf
  SOURCES gguf/gguf_read.c gguf/gguf_tensors.c gguf/gguf_shards.c gguf/gguf_get.c
  LINK lp_quant lp_base)
