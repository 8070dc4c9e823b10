lp_fuzz(hf_values hf)
