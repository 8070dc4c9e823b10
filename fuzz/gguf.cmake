lp_fuzz(gguf gguf)
