"""Training states in bf16: rounded at random, so that what rounding loses is nothing on average."""
