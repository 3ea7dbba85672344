"""Phrases that the sentences of claims consist of, and explanations for their readers."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.contents import Row
from dashboards.families import Variant
from lce_core import formats
from lce_core.statistics.power import MOST_NEEDED, looks_in_words
from lce_core.study.variants import variant_in_words

MOST_NAMED = 4

SETS = (
    "The expectations of the study file are tested in their order, each at 0.05 as long as all"
    " earlier ones are decided (or, with weights, at its share of 0.05). p and the intervals are"
    " corrected for all comparisons of an entry, or for those with the base model within its"
    " trained context. All other comparisons are exploratory: q (Benjamini and Hochberg) limits the"
    " share of false ones among them to 5 %, any one may be false, and intervals are not corrected."
)
GEOMETRIC = (
    "Perplexities are geometric means here, because training changes a perplexity by a factor."
    " Sections without comparisons show arithmetic means, which are slightly larger."
)
EXPLAINED = (
    "Both methods of a comparison were evaluated on the same prompts. Brackets contain 95 %"
    " intervals; a negative number means the opposite direction. Better means significantly better:"
    f" the corrected p or q is at most 0.05. {SETS} {GEOMETRIC} Independent samples are prompts or"
    " windows of text; all from one document count as one sample. Comparisons of methods that were"
    " trained once hold for these weights only, those with several training seeds also for other"
    " seeds. The smallest detectable difference is the one that the test finds in four of five"
    " studies; smaller ones may exist. The number of seeds or samples that would decide a"
    " comparison assumes that the true difference equals the measured one."
    " A control prompt lacks the context (no_context), or has only the answer's neighbourhood"
    " (local_context). It explains a difference if the methods also differ on it, and the interval"
    " of the difference in score minus control score reaches 0."
)
CORRELATION = (
    "Kendall's tau is positive if methods with a lower perplexity have better scores on the"
    " benchmark. Its interval ignores the number of tests; p is corrected for all"
    " rank correlations of the study. Methods with equal perplexities and equal scores count once."
    " Methods that approximate attention can have a low perplexity without reading the whole"
    " context, so a second correlation leaves them out."
)
EFFECTIVE_CONTEXT = (
    "The effective context is the longest evaluated length up to which a method keeps 90 % of the"
    " base model's accuracy, or at most 110 % of its perplexity. The base model's score is the one"
    " at its longest evaluated length within its trained context."
)
OUTCOMES = (
    "The study file names these comparisons (expects). Confirmed: the methods differ significantly"
    " in the expected direction. Contradicted: the methods differ significantly in the other"
    " direction. With a margin (the difference that the study file tolerates): confirmed if the"
    " whole interval lies within the margin, contradicted if the whole interval lies beyond it;"
    " for not worse, only a disadvantage can exceed the margin."
    " On one training run: decided, but only for these weights, so neither confirmed nor"
    " contradicted. Undecided: none of these. Too few: no difference could be decided. Not"
    " measured: no results of both methods on the same prompts."
)


def named(variant: Variant) -> str:
    """Return the name of a variant in a sentence.

    `variant_in_words` returns "the base model", which registered expectations contain.
    """
    name = variant_in_words(variant.method, variant.frozen)
    return "the untuned base model" if name == "the base model" else name


def at(eval_length: int, trained: int | None) -> str:
    tokens = f"at {eval_length:,} tokens"
    if not trained or eval_length <= trained:
        return tokens
    return f"{tokens} ({eval_length / trained:.3g} times the trained context)"


def measured(row: Mapping[str, Any], several: bool) -> str:
    """Return metric, benchmark and tasks, such as "accuracy on ruler (cwe, fwe)"."""
    metric, benchmark = row["metric"] or "score", row["benchmark"]
    if metric == benchmark:
        return f"{metric} on {' and '.join(row['tasks'].split(', '))}" if several else metric
    name = "NLL" if metric == "nll" else metric
    return f"{name} on {benchmark}" + (f" ({row['tasks']})" if several else "")


def unit(row: Mapping[str, Any]) -> str:
    """Return the unit to write after a value; "" if the metric's name implies it."""
    return " nats per token" if row["unit"] == "nats" else ""


def gap(row: Mapping[str, Any]) -> str:
    """Return the difference, its direction and its interval in this direction."""
    difference, low, high = row["difference"], row["ci_low"], row["ci_high"]
    relation = "higher by" if difference > 0 else "lower by" if difference < 0 else "different by"
    if difference < 0 and low is not None and high is not None:
        low, high = -high, -low
    return f"{relation} {formats.estimate(abs(difference), low, high)}{unit(row)}"


def needed(row: Mapping[str, Any]) -> str:
    """Return how many seeds or samples decide: "about 24 independent samples"; "" if unknown."""
    number, unit = row["num_needed"], "training seeds"
    if row["generalises_to"] != unit:
        unit = "independent samples"
    if number is not None:
        return f"about {formats.two_digits(number)} {unit}"
    return "" if row["verdict"] == "too few" else f"more than {MOST_NEEDED:,} {unit}"


def listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED + 1:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def registered(versions: Sequence[Row], settled: Sequence[Row] = ()) -> str:
    registrations = " ".join(
        f"{'Registered' if number == 0 else 'Changed'} {version['registered_at']:%Y-%m-%d %H:%M}"
        f" UTC {stage(version['results_before'])} (sha256 {version['sha256'][:12]})."
        for number, version in enumerate(versions)
    )
    if not versions or not (looks := versions[-1]["looks"]):
        return registrations
    names = (f"{Variant.of(one).label} after {one['num_seeds']} seeds" for one in settled)
    shown = ", ".join(names) or "no method yet"
    return f"{registrations} Looks at {looks_in_words(looks)}; settled: {shown}."


def stage(results: int) -> str:
    if not results:
        return "before the first result"
    return f"after {results:,} result{'s'[: results > 1]}"
