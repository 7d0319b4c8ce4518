"""Words, figures and planning reasons as explanations."""

from __future__ import annotations

from functools import cache

from pydantic import Field, ValidationError

from qwendeploy.documents.base import Model
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.files import cached_files, validation_error, yaml_files


class Topic(Model):
    """One entry of ``rules/topics/``; keys that begin with a dash are notes on a flag."""

    title: str
    unit: str | None = None
    text: tuple[str, ...] = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)
    see: tuple[str, ...] = ()


@cache
def topics() -> dict[str, Topic]:
    """Return the words, figures and planning reasons. Raises DataError as for rules."""
    directory = data_dir("rules") / "topics"
    found: dict[str, Topic] = {}
    for name, content in cached_files(yaml_files(directory), directory).items():
        for topic, body in content.items():
            try:
                found[topic] = Topic.model_validate(body)
            except ValidationError as problem:
                raise validation_error(directory / name, problem) from None
    return found


def topics_named(wanted: str) -> list[Explanation]:
    """Return the word or figure of this name, however it is spelled."""
    for name in (
        wanted,
        wanted.lower(),
        wanted.lower().replace(" ", "-"),
        wanted.replace("-", "_"),
    ):
        topic = topics().get(name)
        if topic is None or name.startswith("-"):
            continue
        facts = [Fact(label="unit", value=topic.unit)] if topic.unit else []
        if name == "quality":
            from qwendeploy.reporting.explain_quality import quality_facts

            facts += quality_facts()
        return [
            Explanation(
                topic=name,
                kind="figure" if topic.unit else "word",
                title=topic.title,
                text=topic.text,
                facts=tuple(facts),
                sources=topic.sources,
                see_also=topic.see,
            )
        ]
    return []
