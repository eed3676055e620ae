"""The language model that writes kernels: tokenizer, prompt, coordinate prefix, model, sampling.

It knows matrices and text; it never judges what it wrote.
"""
