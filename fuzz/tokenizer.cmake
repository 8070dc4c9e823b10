lp_fuzz(tokenizer text)
