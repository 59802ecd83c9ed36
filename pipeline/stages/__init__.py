"""Text stages, one module each: the function that produces its value, and the `Stage` that recipes list.

`base` defines what a stage declares, `asking` serves those that ask a language model, `generation` plans the images.
"""
