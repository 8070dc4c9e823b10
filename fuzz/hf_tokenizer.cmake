lp_fuzz(hf_tokenizer hf)
