"""The language model that writes kernels: tokenizer, coordinate prefix, model, sampling."""
