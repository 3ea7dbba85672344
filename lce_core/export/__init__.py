"""Export models that stock software (transformers, vLLM) runs without lce.

The method is written as RoPE keys of config.json; the weights stay unchanged. `stock_form` finds
these keys, or raises an error that says why stock software cannot run the method. `folder` writes
the model's folder, and `card` its README.md.
"""
