lp_fuzz(jinja text)
