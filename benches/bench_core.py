"""The core half: assembly of context, registries and policy tables, set beside the least that could do the same."""

from collections.abc import Callable

from benches._harness import Peer, Row, at_most, bench
from runlane.context import ContextFragment, assemble_fragments
from runlane.contracts import Id, OrderedRegistry
from runlane.policy import WalkRule, break_while, walk_rules

FRAGMENTS = 10_000


def fragments(characters: int) -> list[ContextFragment]:
    """Return documents of so many characters, each with a title, and a rule of the developers before them."""
    paragraph = "The quick brown fox jumps over the lazy dog, again and again. "
    rule = ContextFragment(id=Id("rule"), content="Answer from the documents.", trust="system")
    texts = (
        (f"{number}: " + paragraph * (characters // len(paragraph) + 1))[:characters] for number in range(FRAGMENTS)
    )
    return [
        rule,
        *(ContextFragment(id=Id(f"d{n}"), content=text, title=f"Document {n}") for n, text in enumerate(texts)),
    ]


def assembly(characters: int) -> Row:
    """Compare assembly with joining the texts."""
    pieces = fragments(characters)
    texts = [str(piece.content) for piece in pieces]
    return Row(lambda: assemble_fragments(pieces), [Peer("joining the texts", lambda: "\n\n".join(texts), at_most(3))])


@bench
def bench_assembly_documents() -> Row:
    """Assembly of 10,000 fragments of 8 KiB."""
    return assembly(8_192)


@bench
def bench_assembly_passages() -> Row:
    """Assembly of 10,000 fragments of 4 KiB."""
    return assembly(4_096)


@bench
def bench_assembly_paragraphs() -> Row:
    """Assembly of 10,000 fragments of 2 KiB."""
    return assembly(2_048)


@bench
def bench_assembly_sentences() -> Row:
    """Assembly of 10,000 fragments of 1 KiB."""
    return assembly(1_024)


def registered(count: int) -> Callable[[], object]:
    """Return work that fills a registry."""
    names = [f"tool-{number}" for number in range(count)]

    def work() -> object:
        registry: OrderedRegistry[str, str] = OrderedRegistry("tools", lambda name: (Id(name), name))
        for name in names:
            registry.register(name)
        return registry.seal().list()

    return work


def ten_times(work: Callable[[], object]) -> Callable[[], object]:
    """Return work that does something ten times."""

    def repeated() -> object:
        return [work() for _ in range(10)]

    return repeated


@bench
def bench_registry() -> Row:
    """10,000 registrations, beside ten times 1,000."""
    return Row(registered(10_000), [Peer("10 x 1,000", ten_times(registered(1_000)), at_most(1.5))])


def checked(count: int) -> Callable[[], object]:
    """Return work that asks a table of refusals, none of which holds."""
    table = [lambda: False] * count
    return lambda: break_while(table, "refused")


@bench
def bench_break_while() -> Row:
    """A table of 10,000 refusals, beside ten times 1,000."""
    return Row(checked(10_000), [Peer("10 x 1,000", ten_times(checked(1_000)), at_most(1.5))])


def walked(count: int) -> Callable[[], object]:
    """Return work that walks a table of rules."""
    rules: list[WalkRule[object]] = [WalkRule(apply=lambda _: None) for _ in range(count)]
    return lambda: walk_rules(rules, object())


@bench
def bench_walk_rules() -> Row:
    """A walk of 10,000 rules, beside ten times 1,000."""
    return Row(walked(10_000), [Peer("10 x 1,000", ten_times(walked(1_000)), at_most(1.5))])
