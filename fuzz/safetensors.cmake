lp_fuzz(safetensors gguf)
