"""Export checkpoints that stock software runs: frequencies in config.json, weights unchanged.

`stock_form` finds the configuration that computes the method, or says why there is none. `folder`
writes what stock transformers loads, and `card` writes its README.md.
"""
