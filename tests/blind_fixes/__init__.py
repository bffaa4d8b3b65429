"""Wrong fixes whose authors had not seen the checks: how many are accepted."""
