"""Words, figures and planning reasons as explanations."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError

from qwendeploy.documents.base import Model
from qwendeploy.errors import DataError
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.files import parsed_files, validation_errors


class Topic(Model):
    """One entry of ``rules/topics/``; keys that begin with a dash are notes on a flag."""

    title: str
    unit: str | None = None
    text: tuple[str, ...] = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)
    see: tuple[str, ...] = ()


def read_topics(directory: Path) -> tuple[dict[str, Topic], list[DataError]]:
    """Return the valid entries of a folder and every problem that ``topics`` would raise."""
    contents, problems = parsed_files(directory)
    found: dict[str, Topic] = {}
    for name, content in contents.items():
        for topic, body in content.items():
            try:
                found[topic] = Topic.model_validate(body)
            except ValidationError as problem:
                problems += validation_errors(directory / name, problem, topic)
    return found, problems


@cache
def topics() -> dict[str, Topic]:
    """Return the words, figures and planning reasons. Raises DataError as for rules."""
    found, problems = read_topics(data_dir("rules") / "topics")
    if problems:
        raise problems[0]
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
