lp_fuzz(store kv)
