lp_fuzz(reply text)
