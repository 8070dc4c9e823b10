lp_fuzz(jinja lp_text)
