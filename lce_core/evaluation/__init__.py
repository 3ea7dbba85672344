"""What a model says of text: losses, generated tokens, and the numbers made of both."""
