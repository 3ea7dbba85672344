"""Export checkpoints that stock software runs: frequencies in config.json, weights unchanged.

`stock_form` finds the config.json keys that compute the method, or raises an error with the reason
why stock software cannot run it. `folder` writes the model's folder, and `card` its README.md.
"""
