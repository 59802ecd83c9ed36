"""Text stages, one module each: the function that produces its value, and the `Stage` that recipes list.

`base` says what a stage declares, `asking` is for those that ask a language model; `generation` makes the images.
"""
