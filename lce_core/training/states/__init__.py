"""Training states in bf16, with stochastic rounding so that rounding errors are zero on average."""
