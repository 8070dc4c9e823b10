lp_fuzz(hf_config hf)
