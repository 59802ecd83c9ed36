"""Words beyond those of the demo's scenes. They teach the embedded language model to copy words that people type.

`demo.train.corpus` takes words from these lists.
"""

from __future__ import annotations

MORE_COLOURS = (
    "grey", "gilded", "silver", "dark red", "light blue", "bright green", "pale yellow", "beige", "striped", "spotted",
    "purple with stripes", "white with red dots", "black and white", "rusty", "shiny", "transparent", "navy", "maroon",
)  # fmt: skip
MORE_WEATHERS = (
    "windy", "icy", "humid", "frosty", "mild", "freezing", "smoky", "showery", "very hot", "heavy winter", "muggy",
)  # fmt: skip
MORE_TIMES = (
    "in the morning", "in the evening", "in the afternoon", "early in the morning", "late at night",
    "during an eclipse", "in winter", "in summer", "at tea time", "before breakfast",
)  # fmt: skip
MORE_GROUNDS = (
    "mossy", "covered in leaves", "full of flowers", "paved", "cracked", "flooded", "made of gravel", "swampy",
    "frozen", "ploughed",
)  # fmt: skip
MORE_LOOKS = (
    "tall", "bushy", "dead", "marble", "ruined", "glass", "shallow", "frozen", "deep", "terraced", "steep", "mossy",
    "abandoned", "thorny", "gloomy", "very old",
)  # fmt: skip
THINGS = ("bench", "dog", "cat", "bicycle", "fountain", "lamp", "fence", "statue", "rock", "cow")
THING_SENTENCES = (
    "A {x} stands at the side.",
    "There is a {x} in the picture.",
    "A {x} can be seen in the distance.",
    "In front of it is a {x}.",
    "A small {x} is nearby.",
)
PLAIN_SENTENCES = (
    "The picture is quiet.",
    "Nothing else is to be seen.",
    "The sky is wide.",
    "It looks like a drawing.",
    "The light is soft.",
    "Hills rise behind it.",
    "The view is open to all sides.",
    "No one is around.",
    "Clouds drift over the hills.",
    "The scene is calm and clear.",
    "Long shadows fall across the picture.",
    "The image was taken from the front.",
)
SYNONYMS = (
    ("road", "street"), ("cars", "vehicles"), ("pavement", "sidewalk"), ("pedestrian", "person"),
    ("pedestrians", "people"), ("walks", "strolls"), ("walk", "stand"), ("line", "border"), ("near", "closest"),
    ("far", "distant"), ("empty", "deserted"), ("sits", "rests"), ("stands", "waits"), ("ground", "land"),
    ("calm", "still"), ("grows", "blooms"), ("drifts", "hovers"), ("with", "and"), ("two", "several"),
    ("three", "many"), ("Trees", "Houses"), ("trees", "hedges"), ("buildings", "shops"), ("Buildings", "Shops"),
    ("twig", "branch"), ("sky", "air"), ("alone", "in a field"), ("open", "meadow"), ("low", "around"),
)  # fmt: skip
_WORDS = """
    apple anchor arrow attic autumn bakery bamboo banner barrel basket beach beetle bell blanket bottle bridge
    brick brush bucket butter button cabin camera canal candle canyon captain carpet carrot castle cellar chair cheese
    cherry chimney church circus clock cloud coffee copper coral corner cotton cottage crane cradle crystal curtain
    desert diamond dragon drum duck eagle elephant engine evening farmer feather ferry field finger fire fish forest
    fork fox frog garden gate ghost giant giraffe glass glove goat gold grape guitar hammer harbour hat hedge helmet
    hill honey horse hotel island ivory jacket jungle kettle kitchen ladder lake lantern leaf lemon letter lion lizard
    machine magnet maple market meadow metal mirror monkey moon mountain mouse museum needle nest ocean olive orchard
    owl paint palace panda paper parrot path peach pencil penguin pepper piano picnic pillow pirate pizza planet plant
    pond pony potato puppet pyramid queen rabbit railway rainbow ribbon river robot rocket roof rope rose sailor salad
    school shadow sheep shell ship shoe silk skeleton sled snail soldier spider spoon squirrel stable station stone
    storm summer swan table teapot temple tent thunder tiger tower tractor train treasure truck tunnel turtle valley
    velvet village violin volcano wagon wall water whale wheat wheel window winter witch wolf wood yard zebra
    ancient angry beautiful big blurry broken busy cheap clean clever cold crowded curious deep dirty elegant empty
    enormous famous fast flat fluffy fresh friendly funny gentle giant glowing happy heavy hidden hollow huge little
    lonely long loud lucky modern narrow new noisy old painted plastic plain polite quiet rare rich round rough rusty
    sharp short silent simple sleepy slow small smooth soft steep strange strong sweet tall thin tiny tired warm weak
    wide wild wooden young carries chases climbs covers dances draws drives eats follows hides holds jumps lifts looks
    meets opens paints passes pulls pushes reads rides rolls runs sings sleeps smiles spins swims throws touches turns
    waits watches
"""
WORDS = tuple(_WORDS.split())
