"""Text stages, one module each: the function that produces its value, and the `Stage` that recipes list.

`base` defines what a stage declares, `asking` sends requests to a language model, and `generation` plans the images.
"""
