"""What each figure of Evaluate says, in a sentence and an example, for the window of help and for `docs/`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ui.explore.parts import help_window, more_line
from ui.markup import Child, Html, el


@dataclass(frozen=True)
class Term:
    """A figure in plain words."""

    name: str
    words: str
    """One or two sentences."""
    example: str
    shown: tuple[str, ...] = ()
    """Other names under which pages and files show it; N stands for a number."""

    @property
    def key(self) -> str:
        """For addresses and ids: small letters, digits and hyphens."""
        return "-".join("".join(one if one.isalnum() else " " for one in self.name.lower()).split())


_ANSWER = (
    Term(
        "Error",
        "The share of images that the model is wrong about. Each source weighs the same, and its test cases share its "
        "weight, unless you choose otherwise.",
        "One source has 1 test case, which is wrong; another has 9, all right. The error is 50 %, not 10 %.",
        (
            "error, original → generated",
            "error on originals",
            "error on generated images",
            "error on reconstructions",
            "as measured",
        ),
    ),
    Term(
        "Difference",
        "The figure on generated images less the figure on their originals, in points.",
        "An error of 4 % on the originals and of 30 % on the generated images: +26 points.",
        ("generated less original", "points"),
    ),
    Term(
        "Reconstruction",
        "A source drawn again from its own caption, without an edit. It shows what drawing alone does to the model.",
        "The model is wrong on 0 % of the originals and on 5 % of their reconstructions: drawing alone costs 5 points.",
        ("reconstructed", "sources with a reconstruction"),
    ),
    Term(
        "Excess",
        "The figure on generated images less the figure on reconstructions of the same sources: what the edits do "
        "beyond what drawing does.",
        "The model is wrong on 35 % of the generated images and on 5 % of the reconstructions: +30 points.",
        (
            "in excess of reconstruction",
            "generated less reconstructed",
            "loses a class, generated less reconstructed",
            "loses a class, in excess",
        ),
    ),
    Term(
        "Interval",
        "These sources are a sample. The interval is made so that in 95 of 100 samples it holds the figure of all "
        "sources of their kind. If the model is wrong on fewer than five sources, or right on fewer than five, the "
        "interval is wider than it has to be.",
        "“35.1 % (32.1 to 38.1)”: 33 % would be no surprise, 45 % would be.",
    ),
    Term(
        "Bootstrap",
        "How most intervals are made. The sources, and one more that nobody saw, are weighed by chance thousands of "
        "times, each with all of its test cases, and the figure is computed each time.",
        "Of 4,000 such weighings of 90 sources, the middle 95 % have an error of 32.1 to 38.1 %.",
    ),
    Term(
        "Factor",
        "The error on generated images divided by the error on originals. Of a model that is right about every "
        "original, only the least that it may be is told.",
        "An error of 4 % on the originals and of 30 % on the generated images: 7.5 times.",
        ("error, times the original", "generated over original"),
    ),
)
_COMPARED = (
    Term(
        "Paired difference",
        "The figure of the second model less that of the first, on the very same test cases. What is hard for both "
        "cancels out, so its interval is shorter than the two intervals suggest.",
        "One is wrong on 30 % (25 to 35), the other on 26 % (21 to 31), and the difference is -4 points (-6 to -2).",
    ),
)
_SOURCES = (
    Term(
        "Intra-class correlation",
        "How far the test cases of one source share their fate: 0 if they fail like those of any other source, 1 if "
        "always all of them fail or none.",
        "Of 10 sources 5 fail on all of their test cases and 5 on none: 1.",
    ),
    Term(
        "Design effect",
        "How many times as many test cases it takes to be as sure, as they come in groups from one source each: "
        "1 + (test cases of a source - 1) x intra-class correlation.",
        "10 test cases a source and a correlation of 0.2: 1 + 9 x 0.2 = 2.8.",
    ),
    Term(
        "Effective number of images",
        "Test cases divided by the design effect: as many images, each of another source, would make the figure as "
        "sure.",
        "900 test cases with a design effect of 3 are worth 300.",
        ("what N test cases are worth", "what N test case is worth"),
    ),
    Term(
        "Flips",
        "Newly wrong: the model is right about the original and wrong about the test case. Newly right is the other "
        "way round.",
        "It calls the boat a boat, and the boat in fog a kite: newly wrong.",
        (
            "newly wrong",
            "newly right",
            "lost where all were found",
            "test cases that lose a class, of originals where all are found",
        ),
    ),
    Term(
        "All wrong, some wrong, none wrong",
        "Sources by how many of their test cases the model is wrong about.",
        "A source with 10 test cases, of which 3 are wrong, counts under “some wrong”.",
        (
            "sources with all test cases wrong",
            "sources with some test cases wrong",
            "sources with no test case wrong",
            "sources with all test cases losing a class",
            "sources with some test cases losing a class",
            "sources with no test case losing a class",
        ),
    ),
    Term(
        "McNemar, exact",
        "How likely chance alone splits the flips so unevenly. It is told only where each source has one test case.",
        "9 newly wrong and 1 newly right: p = 0.021, so hardly chance.",
    ),
    Term(
        "Cannot be compared",
        "Images of which nobody can say whether the model is right, such as those whose label it does not know. They "
        "count nowhere.",
        "The label is “kite”, and none of the model's classes is a kite: its images are left out.",
        ("images left out",),
    ),
)
_TABLES = (
    Term(
        "Change by an edit",
        "The mean change of the probability that the model gives the true class, from the reconstruction or the "
        "original to the test case; of a segmenter, of the share of right pixels. It is -1 to +1.",
        "0.90 on the reconstruction and 0.30 in fog: -0.60.",
        ("change of the probability of the true class", "change of the share of right pixels"),
    ),
    Term(
        "p, corrected",
        "How likely a change as large is where the edit does nothing. It is corrected for the length of the table, as "
        "among many rows one stands out by chance (Holm).",
        "p = 0.01 in a table of 20 rows becomes 0.20: that may be chance.",
    ),
    Term(
        "Where answers go",
        "A row is what the images show, a column what the model says, in per cent of the row.",
        "Row “boat”, column “kite”, 8: of 100 boats 8 are said to be kites.",
        ("where pixels go",),
    ),
    Term(
        "Expected calibration error",
        "The mean distance between how sure the model is and how often it is right, over 15 steps of sureness.",
        "It is 90 % sure of its answers, and 70 % of them are right: 20 %.",
    ),
)
_VALIDITY = (
    Term(
        "Wrong and valid",
        "The share of test cases that the model is wrong about and that people find valid. An image that it is right "
        "about is never one of them.",
        "The model is wrong on 40 %, and people find 3 of 4 of those valid: 30 %.",
        (
            "failures that are valid",
            "wrong and valid, of all test cases",
            "loses a class and valid, of all test cases",
            "loses a class and valid",
        ),
    ),
    Term(
        "Times the share judged valid",
        "The error times the share of the judged wrong images that are valid: how the paper computed it.",
        "An error of 40 %, and 75 of 100 judged wrong images are valid: 30 %.",
    ),
    Term(
        "By strata",
        "Test cases are parted by whether the model is wrong and by edit type. People judge some of each part, and "
        "each part weighs as much as it has test cases.",
        "Fog has 90 wrong images, all judged ones valid; snow has 10, none valid: 90 of the 100 count.",
        ("wrong and valid, by strata", "loses a class and valid, by strata"),
    ),
    Term(
        "At least and at most",
        "Between these two the share of wrong and valid test cases lies as far as votes go: if none, and if all, "
        "of the images are valid of which nobody can tell.",
        "Of 50 judged wrong images 30 are valid, 15 are not, and people do not agree on 5: at least 60 %, at most "
        "70 % of the wrong ones.",
        (
            "wrong and valid, at least",
            "wrong and valid, at most",
            "loses a class and valid, at least",
            "loses a class and valid, at most",
        ),
    ),
    Term(
        "Without a consensus",
        "Judged images on which too few people gave the same answer. Other figures do not leave them out: their "
        "intervals hold both answers.",
        "Five people vote and four equal answers are asked for: an image with three votes for and two against has "
        "no consensus.",
        ("judged images without a consensus",),
    ),
    Term(
        "With the score",
        "The same, where a validity score foretells the votes of all other images and the votes mend its mistakes "
        "(prediction-powered inference). A bad score makes the interval wider, and the figure no less right.",
        "The score foretells 80 % valid. Where people voted it foretold 5 points too much: 75 %.",
        (
            "wrong and valid, with the score",
            "loses a class and valid, with the score",
        ),
    ),
    Term(
        "Error among valid images",
        "The share of wrong images among the valid ones: the error after a perfect review.",
        "Of 100 test cases 80 are valid, and the model is wrong about 20 of those: 25 %.",
        ("loses a class among valid images",),
    ),
    Term(
        "Validity score",
        "How likely people find an image valid, 0 to 1, learnt from votes in studies. It is good for images like those "
        "that it was learnt from.",
        "Of 100 images with a score of 0.8, people would find some 80 valid.",
    ),
)
_SEGMENTERS = (
    Term(
        "IoU",
        "Of a class, the pixels that mask and model share, divided by the pixels that either of them has: 100 % is a "
        "perfect fit.",
        "The mask has 100 pixels of car, the model 100, and they share 80: 80 of 120 = 66.7 %.",
        ("IoU on originals", "IoU on generated images", "IoU on reconstructions"),
    ),
    Term(
        "mIoU",
        "The mean IoU over the classes that are there. That of a class is of all pixels of the set, and each source "
        "weighs the same.",
        "Road 90 %, car 60 % and pedestrian 30 %: 60 %.",
        ("mIoU, original → generated", "mIoU on originals", "mIoU on generated images", "mIoU on reconstructions"),
    ),
    Term(
        "mIoU where the mask holds",
        "The mIoU of the generated images in which another segmenter still finds every protected class in its place.",
        "Drawing lost the pedestrian of an image: the image does not count here, as the mask is wrong.",
        ("mIoU on generated images whose mask holds",),
    ),
    Term(
        "Loses a class",
        "The model finds a protected class on the original (IoU of 0.15 or more), and its IoU falls by 0.15 or more.",
        "Pedestrian falls from 0.60 to 0.20: lost. From 0.60 to 0.50: kept.",
        (
            "loses a class, reconstruction → generated",
            "lost in",
            "lost on generated images",
            "lost on reconstructions",
            "generated images on which it loses a class",
            "reconstructions on which it loses a class",
            "test cases that lose a class",
            "reconstructions that do",
        ),
    ),
    Term(
        "Originals that miss a class",
        "Originals on which the model does not find a protected class that the mask has.",
        "The mask has a pedestrian, and the model finds none: missed, before anything was edited.",
        ("originals on which it misses a protected class",),
    ),
    Term(
        "Nothing to lose",
        "Test cases on whose original the model finds no protected class. They do not count.",
        "It finds neither road nor car on the original: what it finds on the test cases says nothing.",
        ("test cases with no class to lose",),
    ),
    Term(
        "Pixel accuracy",
        "The share of the pixels of a class that the model finds.",
        "The mask has 100 pixels of car, and the model finds 90 of them: 90 %.",
        ("pixel accuracy on originals", "pixel accuracy on generated images"),
    ),
)
_RANKING = (
    Term(
        "Different faults",
        "A fault is a class, what is said in its place, and the edit. Two images that show the same are one fault.",
        "Ten foggy boats that are called kites are 1 fault.",
    ),
    Term(
        "APFD",
        "How early an order shows each fault for the first time (average percentage of faults detected): 1 if no order "
        "could be earlier, some 0.5 for faults in the middle.",
        "4 faults among 100 images, first seen at places 1, 2, 3 and 4: 1. At 1, 20, 40 and 60: 0.72.",
    ),
    Term(
        "Ours",
        "Images with the best chance of a new valid fault come first: likely wrong, likely valid, and unlike those "
        "before.",
        "A foggy boat comes first, and the next foggy boat far behind: it would show the same fault.",
    ),
    Term(
        "At random",
        "Images in an order by chance. An order that is no better is worth nothing.",
        "The first 10 of 100 images show about a tenth of all wrong ones.",
    ),
    Term(
        "Entropy",
        "How evenly the model spreads its probability over the classes: 0 if it is sure of one. The least sure come "
        "first.",
        "0.98 for “boat” and 0.02 for “kite”: 0.10. Half and half: 0.69.",
        ("least sure first (entropy)",),
    ),
    Term(
        "DeepGini",
        "1 less the sum of the squared probabilities: how unsure the model is. The least sure come first.",
        "0.98 and 0.02: 0.04. Half and half: 0.50.",
        ("least sure first (DeepGini)",),
    ),
)
_RETRAINING = (
    Term(
        "Gain",
        "The accuracy of a model that was trained further on an arm's images, less that of “original only” after as "
        "many updates.",
        "62 % with “original only” and 81 % with generated images: +19 points.",
    ),
    Term(
        "Won back",
        "The share of what the model loses from originals to generated images that an arm regains.",
        "95 % on originals, 55 % on generated images, and 85 % after training: 30 of 40 points, 75 %.",
    ),
)
GROUPS: Mapping[str, tuple[Term, ...]] = {
    "The answer": _ANSWER,
    "Sources": _SOURCES,
    "Tables": _TABLES,
    "Validity": _VALIDITY,
    "Segmenters": _SEGMENTERS,
    "Ranking": _RANKING,
    "Two models": _COMPARED,
    "Retraining": _RETRAINING,
}
"""All terms, in the order of the page."""
TERMS: Mapping[str, Term] = {
    name.lower(): term for terms in GROUPS.values() for term in terms for name in (term.name, *term.shown)
}
"""By each name under which a figure is shown, in small letters."""
_CONTROLLED = ", of sources with a reconstruction"
_NUMBER = re.compile(r"\d[\d,]*")


def explained(words: str, of: str = "") -> list[Child]:
    """The name of a figure with the mark that opens its explanation; `of` is its name where `words` say it otherwise.
    A name without an explanation stands alone.
    """
    term = TERMS.get(_NUMBER.sub("N", of or words).removesuffix(_CONTROLLED).lower())
    if term is None:
        return [words]
    mark = el(
        "a",
        href=f"#explains-{term.key}",
        data_explain=term.key,
        class_="why",
        title=term.words,
        aria_label=f"What is “{term.name}”?",
    )
    return [words, mark]


def explanations_window() -> Html:
    """The closed window with all explanations, which "?" opens."""
    links = [(f"help-{number}", words) for number, words in enumerate(GROUPS)]
    return help_window("What the figures say", links, _explanations())


def explanations_folded() -> Html:
    """All explanations in a line that opens, for a report."""
    return more_line("What the figures say", _explanations(), id="explanations")


def _explanations() -> list[Html]:
    return [
        el("section", el("h3", words), [_explanation(one) for one in terms], class_="words", id=f"help-{number}")
        for number, (words, terms) in enumerate(GROUPS.items())
    ]


def _explanation(one: Term) -> Html:
    return el(
        "p",
        el("b", one.name),
        " ",
        el("span", one.words, class_="mut"),
        " ",
        el("span", f"Example: {one.example}", class_="example"),
        id=f"explains-{one.key}",
    )
